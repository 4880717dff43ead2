/* SPDX-License-Identifier: Apache-2.0 */
/* Measures hawser's own transfer for comparison with NCCL: `hawser serve` on the first host, `hawser bench` on another
 * host. */
#include "tool/nccl/bench/nccl_hosts.h"

#include "base/size.h"
#include "tool/tool.h"

#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define POLL_MS  200
#define ADDRS    16
#define LEAVE_MS 5000
#define OUTPUT   (4u << 20) /* maximum bytes of a command's output */

/* The output of a command, terminated by a NUL. The caller frees `at`. */
struct output {
    char *at;
    size_t len, cap;
};

/* Waits up to ms for more output, and reads it. Returns 1 after reading output, 0 at the end or after an error of
 * the socket, -EAGAIN if no output is available, or -ENOMEM if the output is too long or memory is exhausted. */
static int read_member_output(struct nb_member *m, struct output *o, int ms)
{
    struct pollfd p[2] = {{.fd = m->fd, .events = POLLIN}, {.fd = m->err, .events = POLLIN}};
    (void)poll(p, 2, ms);
    if (p[1].revents)
        nb_overhear(m, false);
    if (!p[0].revents)
        return -EAGAIN;
    if (o->len + 4096 > o->cap) {
        char *more = o->cap < OUTPUT ? realloc(o->at, o->cap + 65536) : NULL;
        if (!more)
            return hw_fail(-ENOMEM, "host %s: the command's output is too long, or memory is exhausted", m->host);
        o->at = more;
        o->cap += 65536;
    }
    ssize_t k = recv(m->fd, o->at + o->len, 4095, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    o->len += (size_t)HW_MAX(k, 0);
    o->at[o->len] = 0;
    return k > 0;
}

static void add_environment(struct nb_items *items)
{
    extern char **environ;
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "HAWSER_", 7) == 0)
            nb_item(items, 's', "%s", *e);
}

/* ---- serve ----------------------------------------------------------------------------------- */

struct own {
    const struct nb_hosts *hosts;
    struct nb_table *t;
    char key[65], addr[ADDRS][80];
    size_t n_addrs;
    int timeout_ms;
};

static bool is_loopback(const char *addr)
{
    return strncmp(addr, "127.", 4) == 0 || strncmp(addr, "[::1]", 5) == 0 || strcmp(addr, "::1") == 0;
}

/* Reads the addresses that serve prints; loopback addresses come last. */
static void read_addresses(struct own *w, const char *text)
{
    static const char mark[] = "  hawser bench ";
    for (int last = 0; last <= 1; last++)
        for (const char *at = text; (at = strstr(at, mark)) && w->n_addrs < ADDRS;) {
            at += strlen(mark);
            char *to = w->addr[w->n_addrs];
            snprintf(to, sizeof w->addr[0], "%.*s", (int)strcspn(at, " \n"), at);
            w->n_addrs += is_loopback(to) == (last != 0);
        }
}

static int start_serving(struct own *w, struct nb_member *m)
{
    struct nb_items items = {0};
    struct output o = {0};
    const uint64_t deadline = hw_deadline(NB_GREET_MS);
    int rc = nb_agent_start(m, w->hosts, 0);
    if (rc < 0)
        return rc;
    add_environment(&items);
    nb_item(&items, 'k', "%s", w->key);
    nb_item(&items, 'a', "serve");
    nb_item(&items, 'a', "--port=0");
    nb_item(&items, 'a', "--key-file");
    nb_item(&items, 'a', NB_KEY_WORD);
    rc = nb_agent_ask(m, NB_ASK_RUN, &items);
    free(items.at);
    while (rc == 0) {
        int k = read_member_output(m, &o, POLL_MS);
        if (k == -EAGAIN && o.len && strstr(o.at, "On the other node") && o.at[o.len - 1] == '\n')
            break; /* serve prints all of its lines at once */
        if (k < 0 && k != -EAGAIN)
            rc = k;
        else if (k == 0)
            rc = hw_fail(-EPIPE, "host %s: hawser serve ended", m->host);
        else if (tool_stop)
            rc = hw_fail(-EINTR, "interrupted");
        else if (hw_now() > deadline)
            rc = hw_fail(-ETIMEDOUT, "host %s: hawser serve did not start in time", m->host);
    }
    if (rc == 0)
        read_addresses(w, o.at);
    free(o.at);
    return rc == 0 && w->n_addrs == 0
               ? hw_fail(-ENODEV, "host %s has no usable address on an interface that is up", m->host)
               : rc;
}

/* ---- bench ----------------------------------------------------------------------------------- */

static bool take_row(struct own *w, const char *line, size_t len)
{
    json_auto_t *o = json_loadb(line, len, 0, NULL);
    const json_t *gpu = json_object_get(o, "gpu");
    const uint64_t size = (uint64_t)json_integer_value(json_object_get(o, "size"));
    /* with several GPUs, use only the line for all of them */
    for (size_t i = 0; i < w->t->n_own && o; i++) {
        struct nb_own *r = &w->t->own[i];
        if (r->size != size || (w->hosts->per_host > 1 && !json_is_string(gpu)) || r->n == NB_ROUNDS)
            continue;
        r->GBps[r->n++] = json_number_value(json_object_get(o, "GBps"));
        r->bad += (uint64_t)json_integer_value(json_object_get(o, "bad_bytes"));
        r->checked += (uint64_t)json_integer_value(json_object_get(o, "verified_bytes"));
        return true;
    }
    return false;
}

static int run_bench(struct own *w, const char *addr, unsigned *rows)
{
    struct nb_member m;
    struct nb_items items = {0};
    struct output o = {0};
    char sizes[NB_SIZES * 24] = "";
    const uint64_t deadline = hw_deadline(w->timeout_ms);
    *rows = 0;
    int rc = nb_agent_start(&m, w->hosts, w->hosts->other), k = 1;
    for (size_t i = 0; i < w->t->n_own; i++) {
        size_t at = strlen(sizes);
        snprintf(sizes + at, sizeof sizes - at, "%s%llu", at ? "," : "", (unsigned long long)w->t->own[i].size);
    }
    add_environment(&items);
    nb_item(&items, 'k', "%s", w->key);
    nb_item(&items, 'a', "bench");
    nb_item(&items, 'a', "%s", addr);
    nb_item(&items, 'a', "--key-file");
    nb_item(&items, 'a', NB_KEY_WORD);
    nb_item(&items, 'a', "--size=%s", sizes);
    if (w->hosts->per_host > 1)
        nb_item(&items, 'a', "--gpus=0-%u", w->hosts->per_host - 1);
    else
        nb_item(&items, 'a', "--gpus=%d", w->hosts->gpu[w->hosts->other]);
    nb_item(&items, 'a', "--json=-");
    if (rc == 0)
        rc = nb_agent_ask(&m, NB_ASK_RUN, &items);
    free(items.at);
    while (rc == 0 && k != 0) {
        k = read_member_output(&m, &o, POLL_MS);
        if (k < 0 && k != -EAGAIN)
            rc = k;
        else if (tool_stop)
            rc = hw_fail(-EINTR, "interrupted");
        else if (k != 0 && hw_now() > deadline)
            rc = hw_fail(-ETIMEDOUT, "host %s: hawser bench %s did not end within %d s", m.host, addr,
                         w->timeout_ms / 1000);
    }
    for (const char *at = o.at; rc == 0 && at && *at; at += strcspn(at, "\n") + 1)
        *rows += take_row(w, at, strcspn(at, "\n"));
    free(o.at);
    int status = nb_agent_end(&m, rc < 0 ? 0 : LEAVE_MS, false);
    if (rc == 0 && *rows < w->t->n_own) {
        char tail[NB_LINE];
        nb_last_line(&m, tail);
        return hw_fail(-EIO, "host %s: hawser bench %s ended with status %d%s%s", m.host, addr, WEXITSTATUS(status),
                       *tail ? ": " : "", tail);
    }
    return rc;
}

int nb_own_run(const struct nb_hosts *hosts, struct nb_table *t, int timeout_ms)
{
    struct own w = {.hosts = hosts, .t = t, .timeout_ms = timeout_ms};
    struct nb_member serve;
    uint8_t key[32];
    unsigned rows = 0;
    if (getrandom(key, sizeof key, 0) != (ssize_t)sizeof key)
        return hw_fail(-EIO, "the kernel returned no random bytes: %s", hw_errno_text(errno));
    for (size_t i = 0; i < sizeof key; i++)
        snprintf(w.key + 2 * i, 3, "%02x", key[i]);
    int rc = start_serving(&w, &serve);
    if (rc == 0)
        for (size_t i = 0; i < w.n_addrs; i++)
            if ((rc = run_bench(&w, w.addr[i], &rows)) == 0 || rows > 0 || rc == -EINTR)
                break; /* otherwise try the next address, because this one may be unreachable */
    HW_KEEP_ERROR();
    (void)nb_agent_end(&serve, LEAVE_MS, rc < 0 && rc != -EINTR);
    return rc;
}
