/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common.h"

#include "base/knob.h"
#include "base/size.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Copies the text up to the next comma to buf and advances *text past the comma. Returns false if the part does not fit
 * in buf. */
static bool cut_piece(const char **text, char *buf, size_t cap)
{
    size_t n = strcspn(*text, ",");
    if (n >= cap)
        return false;
    memcpy(buf, *text, n);
    buf[n] = 0;
    *text += n + ((*text)[n] == ',');
    return true;
}

static bool has_trailing_comma(const char *text)
{
    size_t n = strlen(text);
    return n == 0 || text[n - 1] == ',';
}

int opts_sizes(const char *text, uint64_t *out, size_t cap, size_t *n)
{
    const char *at = text;
    char buf[64];
    *n = 0;
    if (has_trailing_comma(text))
        return hw_fail(-EINVAL, "'%s' is not a list of sizes like 64MiB,1GiB or 1KiB:64MiB", text);
    while (*at) {
        uint64_t first, last;
        if (!cut_piece(&at, buf, sizeof buf))
            return hw_fail(-EINVAL, "'%s' is not a list of sizes like 64MiB,1GiB or 1KiB:64MiB", text);
        char *colon = strchr(buf, ':');
        if (colon)
            *colon = 0;
        int rc = hw_parse_size(buf, &first);
        if (rc < 0)
            return rc;
        last = first;
        if (colon && (rc = hw_parse_size(colon + 1, &last)) < 0)
            return rc;
        if (colon && (first == 0 || first > last))
            return hw_fail(-EINVAL, "the range %s:%s must begin with at least 1 and must not descend", buf, colon + 1);
        for (uint64_t v = first;;) {
            if (*n == cap)
                return hw_fail(-E2BIG, "'%s' has more than %zu sizes", text, cap);
            out[(*n)++] = v;
            if (v == last)
                break;
            v = v > last / 2 ? last : v * 2;
        }
    }
    return 0;
}

int opts_host(const char *text, char *host, size_t cap, uint16_t *port)
{
    const char *start = text, *end, *p = NULL;
    const char *colon = strchr(text, ':');
    if (text[0] == '[') {
        start = text + 1;
        end = strchr(text, ']');
        if (!end || (end[1] != 0 && end[1] != ':'))
            return hw_fail(-EINVAL, "'%s' is not HOST[:PORT]; write an IPv6 address with a port as [ADDRESS]:PORT",
                           text);
        p = end[1] ? end + 2 : NULL;
    } else if (colon && strchr(colon + 1, ':')) {
        end = text + strlen(text); /* a bare IPv6 address */
    } else {
        end = colon ? colon : text + strlen(text);
        p = colon ? colon + 1 : NULL;
    }
    size_t n = (size_t)(end - start);
    if (n == 0 || n >= cap)
        return hw_fail(-EINVAL, "the host in '%s' is empty or too long", text);
    if (p) {
        uint64_t v;
        int rc = hw_parse_u64(p, 1, 65535, &v);
        if (rc < 0)
            return hw_wrap(rc, "invalid port in '%s'", text);
        *port = (uint16_t)v;
    }
    memcpy(host, start, n);
    host[n] = 0;
    return 0;
}

int opts_nics(const char *text)
{
    const char *at = text;
    char buf[HAWSER_NIC_NAME];
    if (has_trailing_comma(text))
        return hw_fail(-EINVAL, "'%s' is not a list of NICs like eth1,eth2", text);
    while (*at) {
        const char *from = at;
        if (!cut_piece(&at, buf, sizeof buf) || !buf[0] || strchr(buf, '/') || strchr(buf, ' '))
            return hw_fail(-EINVAL, "'%s' is not a list of NICs like eth1,eth2", text);
        size_t n = strlen(buf);
        for (const char *q = text; q < from; q += strcspn(q, ",") + 1)
            if (strncmp(q, buf, n) == 0 && q[n] == ',')
                return hw_fail(-EINVAL, "NIC %s appears twice in '%s'", buf, text);
    }
    return 0;
}

int common_knob(struct common *c, const char *name, const char *value)
{
    /* Parse into a scratch table, so that a bad value is reported as a usage error and not as a later failure. */
    struct hw_knobs scratch = {0};
    char word[64];
    const char *eq = strchr(name, '=');
    size_t len = value ? strlen(name) : (size_t)(eq - name);
    if (len >= sizeof word)
        return hw_fail(-EINVAL, "unknown knob '%s': see `hawser help knobs`", name);
    memcpy(word, name, len);
    word[len] = 0;
    int rc = hw_knob_set(&scratch, word, value ? value : eq + 1);
    if (rc < 0)
        return rc;
    if (c->n_knobs == COMMON_MAX_KNOBS)
        return hw_fail(-E2BIG, "too many knobs: at most %d", COMMON_MAX_KNOBS);
    char *s = NULL;
    if (asprintf(&s, "%s%s%s", name, value ? "=" : "", value ? value : "") < 0)
        return hw_no_memory("knob %s", name);
    c->knobs[c->n_knobs++] = s;
    return 0;
}

static void log_to_stderr(void *arg, int level, const char *line)
{
    static const char *const name[] = {"error", "warning", "info", "debug"};
    const struct common *c = arg;
    if (level > HAWSER_LOG_WARN + c->verbose)
        return;
    const char *clear = isatty(STDERR_FILENO) ? "\r\033[K" : "";
    fprintf(stderr, "%shawser: %s: %s\n", clear, level >= 0 && level <= 3 ? name[level] : "?", line);
}

int common_read_key(const char *path, uint8_t *key, size_t cap, size_t *len)
{
    HW_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return hw_fail(-errno, "opening key file %s: %s", path, strerror(errno));
    struct stat st;
    size_t n = 0;
    uint8_t extra[2]; /* data beyond a full buffer: only one newline is allowed */
    if (fstat(fd, &st) < 0)
        return hw_fail(-errno, "key file %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return hw_fail(-EINVAL, "key file %s is not a regular file", path);
    if (st.st_mode & (S_IROTH | S_IWOTH))
        return hw_fail(-EACCES,
                       "key file %s is accessible to other users (mode %04o), so the key is not secret: create a new "
                       "key file with mode 600",
                       path, (unsigned)st.st_mode & 07777);
    for (;;) {
        ssize_t k = n < cap ? read(fd, key + n, cap - n) : read(fd, extra, sizeof extra);
        if (k < 0 && errno != EINTR)
            return hw_fail(-errno, "reading key file %s: %s", path, strerror(errno));
        if (k > 0 && n == cap && (k > 1 || extra[0] != '\n'))
            return hw_fail(-EINVAL, "key file %s is longer than %zu bytes", path, cap);
        if (k == 0 || (k > 0 && n == cap))
            break;
        if (k > 0)
            n += (size_t)k;
    }
    if (n > 0 && key[n - 1] == '\n')
        n--;
    if (n < 16)
        return hw_fail(-EINVAL,
                       "the key in %s has %zu byte%s, but at least 16 are required: create one with `head -c 32 "
                       "/dev/urandom | base64`",
                       path, n, hw_plural(n));
    *len = n;
    return 0;
}

/* Sets the knob same_machine to no unless the user has set the knob. If the requested transport cannot be used between
 * processes on the same machine, the context then refuses a peer on this machine, and does not fall back to tcp. */
static int refuse_same_machine(struct common *c)
{
    static const char knob[] = "same_machine";
    for (size_t i = 0; i < c->n_knobs; i++)
        if (strncmp(c->knobs[i], knob, strlen(knob)) == 0)
            return 0;
    return getenv("HAWSER_SAME_MACHINE") ? 0 : common_knob(c, knob, "no");
}

struct env_check {
    struct hw_guess guess;
    char near[48];
    bool is_knob;
};

static void compare_knob_env(void *arg, const char *name, const char *env, const char *def, const char *unit,
                             const char *doc)
{
    struct env_check *e = arg;
    (void)name, (void)def, (void)unit, (void)doc;
    e->is_knob |= strcmp(e->guess.word, env) == 0;
    hw_guess(&e->guess, env);
    if (e->guess.near == env) { /* env is valid only during this call */
        snprintf(e->near, sizeof e->near, "%s", env);
        e->guess.near = e->near;
    }
}

/* Warns, once, about HAWSER_* environment variables that are not knobs but resemble one, because the user probably
 * misspelled a knob. */
static void warn_of_unknown_knobs(void)
{
    extern char **environ;
    static const char *const others[] = {"HAWSER_NCCL_", "HAWSER_NIXL_", "HAWSER_CUDA_", "HAWSER_PLUGIN_"};
    static bool warned;
    for (char **e = warned ? NULL : environ; e && *e; e++) {
        char word[48];
        struct env_check check = {.guess = {.word = word}};
        bool other = strncmp(*e, "HAWSER_", 7) != 0;
        for (size_t i = 0; i < HW_ARRAY_LEN(others); i++)
            other |= strncmp(*e, others[i], strlen(others[i])) == 0;
        if (other || strcspn(*e, "=") >= sizeof word)
            continue;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(*e, "="), *e);
        hawser_knobs(compare_knob_env, &check);
        if (!check.is_knob && check.guess.near)
            fprintf(stderr, "hawser: warning: %s is set, but is not a knob; did you mean %s?\n", word,
                    check.guess.near);
    }
    warned = true;
}

int common_open(struct common *c, hawser **out)
{
    warn_of_unknown_knobs();
    int knob = refuse_same_machine(c);
    if (knob < 0)
        return knob;
    if (c->key_file) {
        int rc = common_read_key(c->key_file, c->key, sizeof c->key, &c->key_len);
        if (rc < 0)
            return rc;
    }
    const struct hawser_options o = {
        .size = sizeof o,
        .flags = c->flags | (c->insecure ? HAWSER_INSECURE : 0),
        .log = log_to_stderr,
        .log_arg = c,
        .key = c->key_len ? c->key : NULL,
        .key_len = c->key_len,
        .knobs = (const char *const *)c->knobs,
    };
    return hawser_open(&o, out);
}

void common_free(struct common *c)
{
    for (size_t i = 0; i < c->n_knobs; i++)
        free(c->knobs[i]);
    explicit_bzero(c->key, sizeof c->key);
    *c = (struct common){0};
}
