/* SPDX-License-Identifier: Apache-2.0 */
/* hawser verbs status: prints each broker's report about its container. */
#include "base/size.h"
#include "tool/opts.h"
#include "tool/verbs/verbs.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CMD        "verbs status"
#define SUFFIX     ".status"
#define ANSWER_MS  3000 /* ms; a broker answers at once, unless its loop is busy or blocked */
#define ANSWER_MAX (1u << 20)

/* Returns a broker's answer, or NULL with hw_error(). Sets *gone if nothing listens on the socket, because the broker
 * has ended. */
static json_t *ask_broker_status(int dir, const char *name, bool *gone)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    static char text[ANSWER_MAX];
    size_t len = 0;
    uint64_t until = hw_deadline(ANSWER_MS);
    json_error_t e;
    *gone = false;
    /* use the folder's descriptor, because its path may be too long for a socket address */
    if (snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir, name) >= (int)sizeof(a.sun_path)) {
        hw_fail(-ENAMETOOLONG, "the name of the socket is too long");
        return NULL;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        *gone = errno == ECONNREFUSED || errno == ENOENT;
        hw_fail(-errno, "%s",
                errno == ENOENT ? "the broker has ended, and has removed its socket"
                : *gone         ? "the broker has died: RDMA calls of the container fail with ENOSYS"
                                : strerror(errno));
        hw_close(&fd);
        return NULL;
    }
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = hw_now();
        ssize_t n = now < until && poll(&p, 1, (int)((until - now) / HW_MS + 1)) == 1
                        ? recv(fd, text + len, sizeof(text) - len, 0)
                        : -1;
        if (n <= 0) {
            hw_close(&fd);
            json_t *o = n == 0 ? json_loadb(text, len, 0, &e) : NULL;
            if (!json_is_object(o)) {
                hw_fail(-EPROTO, "the broker %s", n < 0 ? "does not answer" : "sent an invalid answer");
                json_decref(o);
                o = NULL;
            }
            return o;
        }
        len += (size_t)n;
    }
}

static json_int_t get_status_number(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static const char *get_status_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

/* Prints "1 request, " or "2 requests, ". */
static void print_status_count(const json_t *o, const char *key, const char *one)
{
    printf("%lld %s%s, ", (long long)get_status_number(o, key), one, hw_plural(get_status_number(o, key)));
}

static void print_broker_status(const json_t *o)
{
    const json_t *devices = json_object_get(o, "devices");
    char size[32];
    verbs_put(stdout, get_status_text(o, "container"));
    printf(": process %lld, broker %lld, for %lld s, policy ", (long long)get_status_number(o, "pid"),
           (long long)get_status_number(o, "broker"), (long long)get_status_number(o, "seconds"));
    verbs_put(stdout, *get_status_text(o, "section") ? get_status_text(o, "section") : "of all");
    printf("\n  ");
    print_status_count(o, "requests", "request");
    print_status_count(o, "doorbells", "doorbell");
    printf("%lld refused, %lld stub%s\n", (long long)get_status_number(o, "refused"),
           (long long)get_status_number(o, "stubs"), hw_plural(get_status_number(o, "stubs")));
    for (size_t i = 0; i < json_array_size(devices); i++) {
        json_t *d = json_array_get(devices, i), *v;
        const char *type;
        printf("  ");
        verbs_put(stdout, get_status_text(d, "device"));
        printf(" (");
        verbs_put(stdout, get_status_text(d, "node"));
        printf(")%s: open %lld time%s", json_is_false(json_object_get(d, "allowed")) ? ", not allowed" : "",
               (long long)get_status_number(d, "opens"), hw_plural(get_status_number(d, "opens")));
        json_object_foreach(json_object_get(d, "objects"), type, v)
        {
            printf(", %lld ", (long long)json_integer_value(v));
            verbs_put(stdout, type);
        }
        printf(", %s pinned, %lld refused\n",
               hw_format_size((uint64_t)get_status_number(d, "mr_bytes"), size, sizeof(size)),
               (long long)get_status_number(d, "refused"));
    }
}

/* Returns the length of ID in a name "ID.status", or 0 for other files. */
static size_t get_status_id_length(const char *name)
{
    size_t n = strlen(name), s = sizeof(SUFFIX) - 1;
    return n > s && *name != '.' && strcmp(name + n - s, SUFFIX) == 0 ? n - s : 0;
}

static int is_status(const struct dirent *e)
{
    return get_status_id_length(e->d_name) > 0;
}

/* Shows the status of the brokers that have a socket in the folder. chosen means that the folder was given with
 * --state-dir; only then is it an error if the folder is missing. */
static int show_status(const char *path, bool chosen, bool as_json)
{
    struct dirent **e = NULL;
    json_t *all = json_array();
    unsigned bad = 0;
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int n = dir < 0 ? -1 : scandir(path, &e, is_status, versionsort);
    if (n < 0 && (errno != ENOENT || chosen)) {
        json_decref(all);
        hw_close(&dir);
        return tool_fail(CMD, "%s: %s", path, strerror(errno));
    }
    for (int i = 0; i < n; i++) {
        bool gone;
        int len = (int)get_status_id_length(e[i]->d_name);
        json_t *o = ask_broker_status(dir, e[i]->d_name, &gone);
        bad += !o;
        if (!o && as_json)
            o = json_pack("{s:o,s:s}", "container", json_stringn(e[i]->d_name, (size_t)len), "error", hw_error());
        if (as_json && (!o || json_array_append(all, o) < 0))
            bad++;
        else if (!as_json && o)
            print_broker_status(o);
        else if (!as_json)
            printf("%.*s: %s\n", len, e[i]->d_name, hw_error());
        json_decref(o);
        free(e[i]);
    }
    if (as_json) {
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
    } else if (n <= 0) {
        printf("No broker of a container was found in %s.\n", path);
    }
    free(e);
    json_decref(all);
    hw_close(&dir);
    return bad ? TOOL_FAILED : TOOL_OK;
}

struct status_args {
    const char *dir;
    bool json;
};

int verbs_status_main(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_TEXT("state-dir", 0, "DIR", struct status_args, dir,
                 "folder of the brokers' status sockets (default: " VB_AGENT_STATE ")"),
        OPT_FLAG("json", 'j', struct status_args, json,
                 "print a JSON array of containers, each as reported by its broker"),
        {0},
    };
    static const struct opts o = {
        .cmd = CMD,
        .args = "[OPTION...]",
        .about = "Asks the brokers of this machine for the status of their containers: devices, objects by type, "
                 "pinned\nbytes, refusals. Exit status: 1 if a broker has ended or gives no valid answer, or the "
                 "folder cannot be read.",
        .rows = rows};
    struct status_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : show_status(a.dir ? a.dir : VB_AGENT_STATE, a.dir, a.json);
}
