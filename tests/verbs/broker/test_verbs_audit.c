/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the audit file contains only complete lines of JSON, regardless of the names and the number of the
 * programs. */
#include "tests/tap.h"
#include "verbs/broker/audit.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES 2000

static char path[] = "/tmp/hawser-audit.XXXXXX";
static char said[1024];
static unsigned n_said;

static void on_log(void *arg, int level, const char *line)
{
    (void)level;
    (void)arg;
    n_said++;
    snprintf(said, sizeof(said), "%s", line);
}

static const struct hw_logger logger = {.fn = on_log, .level = HAWSER_LOG_WARN};
static const struct vb_refusal plain = {.container = "c0ffee",
                                        .program = "ib_write_bw",
                                        .device = "rxe0",
                                        .pid = 4711,
                                        .command = "CREATE_QP type=8",
                                        .rule = "allow: no raw",
                                        .text = "a raw packet QP",
                                        .rc = -EOPNOTSUPP};

static void begin(struct vb_audit *a)
{
    if (truncate(path, 0) < 0 || vb_audit_open(a, path, &logger) < 0)
        exit(1);
    n_said = 0;
    said[0] = 0;
}

/* Reads all lines of the file. Returns false unless there are at most LINES lines, each a JSON value followed by a
 * newline. */
static bool lines(json_t *out[LINES], unsigned *n, size_t *longest)
{
    static char text[LINES * 2048];
    int fd = open(path, O_RDONLY);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    close(fd);
    *n = 0;
    *longest = 0;
    if (len < 0 || (len > 0 && text[len - 1] != '\n'))
        return false;
    text[len] = 0;
    for (char *at = text, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        *end = 0;
        *longest = (size_t)(end - at) > *longest ? (size_t)(end - at) : *longest;
        if (*n == LINES || !(out[*n] = json_loads(at, 0, NULL)))
            return false;
        ++*n;
    }
    return true;
}

static const char *str(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void drop(json_t *out[LINES], unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        json_decref(out[i]);
}

static json_t *L[LINES];

static void one(void)
{
    struct vb_audit a;
    unsigned n;
    size_t longest;
    unlink(path);
    ok(vb_audit_open(&a, path, &logger) == 0, "a file is made");
    struct stat s;
    ok(stat(path, &s) == 0 && (s.st_mode & 07) == 0, "that others do not read");
    vb_audit_refusal(&a, &plain);
    vb_audit_close(&a);
    ok(lines(L, &n, &longest) && n == 1, "a line of JSON");
    if (n != 1)
        exit(1);
    is_str(str(L[0], "container"), "c0ffee", "container");
    is_int(json_integer_value(json_object_get(L[0], "pid")), 4711, "pid");
    is_str(str(L[0], "program"), "ib_write_bw", "program");
    is_str(str(L[0], "device"), "rxe0", "device");
    is_str(str(L[0], "command"), "CREATE_QP type=8", "command");
    is_str(str(L[0], "rule"), "allow: no raw", "rule");
    is_str(str(L[0], "text"), "a raw packet QP", "text");
    is_str(str(L[0], "errno"), "EOPNOTSUPP", "errno");
    const char *t = str(L[0], "time");
    ok(t && strlen(t) == 24 && t[10] == 'T' && t[19] == '.' && t[23] == 'Z', "time: %s", t ? t : "none");
    is_int(json_object_size(L[0]), 9, "and no more");
    drop(L, n);
    is_str(
        said,
        "verbs: container c0ffee, ib_write_bw (4711), rxe0: CREATE_QP type=8 refused with EOPNOTSUPP by allow: no raw: "
        "a raw packet QP",
        "the log has it too");
    begin(&a);
    vb_audit_refusal(&a, &(struct vb_refusal){.rc = -EPERM});
    vb_audit_close(&a);
    ok(lines(L, &n, &longest) && n == 1 && strcmp(str(L[0], "container"), "") == 0, "what is not known is empty");
    drop(L, n);
    ok(vb_audit_open(&a, NULL, &logger) == 0 && a.fd == -1, "without a file");
    n_said = 0;
    vb_audit_refusal(&a, &plain);
    ok(n_said == 1, "there is the log");
    vb_audit_close(&a);
}

static void hostile(void)
{
    struct vb_audit a;
    unsigned n;
    size_t longest;
    char all[300], more[5000];
    begin(&a);
    vb_audit_refusal(&a, &(struct vb_refusal){.container = "c",
                                              .program = "a\nb\x1b[2J\"}\\\x9b\xc2\x9b\xff\x7f",
                                              .device = "d",
                                              .command = "e",
                                              .rule = "f",
                                              .text = "g",
                                              .rc = -EPERM});
    ok(!strchr(said, '\n') && !strchr(said, '\x1b') && !strchr(said, '\x9b') && !strchr(said, '\x7f'),
       "a program's name does not write to the log's terminal: %s", said);
    for (int i = 0; i < 255; i++)
        all[i] = (char)(i + 1);
    all[255] = 0;
    memset(more, '\\', sizeof(more) - 1);
    more[sizeof(more) - 1] = 0;
    vb_audit_refusal(&a, &(struct vb_refusal){all, all, all, 1, all, all, all, -EINVAL});
    vb_audit_refusal(&a, &(struct vb_refusal){more, more, more, 1, more, more, more, -EINVAL});
    vb_audit_close(&a);
    ok(lines(L, &n, &longest) && n == 3, "three lines of whatever bytes");
    if (n != 3)
        exit(1);
    is_str(str(L[0], "program"), "a\\x0ab\\x1b[2J\"}\\x5c\\x9b\\xc2\\x9b\\xff\\x7f",
           "all but printable ASCII as hexadecimal");
    ok(longest < 4096, "none is longer than a write() of a pipe keeps whole: %zu", longest);
    drop(L, n);
}

static void flood(void)
{
    struct vb_audit a;
    unsigned n, left = 0, told = 0;
    size_t longest;
    begin(&a);
    for (int i = 0; i < 1000; i++) {
        vb_audit_refusal(&a, &plain);
        a.window = hw_now(); /* keep all refusals in one second, even on slow machines */
    }
    ok(lines(L, &n, &longest) && n == 100, "of 1000 in a second, 100 are written");
    drop(L, n);
    is_int(n_said, 100, "and logged");
    a.window -= 2000 * HW_MS;
    vb_audit_refusal(&a, &plain);
    ok(lines(L, &n, &longest) && n == 102, "then a line for the others, and the next one");
    if (n == 102)
        is_int(json_integer_value(json_object_get(L[100], "left_out")), 900, "which says how many");
    drop(L, n);
    for (int i = 0; i < 1000; i++)
        vb_audit_refusal(&a, &plain);
    vb_audit_close(&a);
    bool whole = lines(L, &n, &longest);
    for (unsigned i = 102; i < n; i++) {
        json_t *l = json_object_get(L[i], "left_out");
        left += (unsigned)json_integer_value(l);
        told += l == NULL;
    }
    ok(whole && left + told == 1000, "as many as there were, when it is closed: %u and %u left out", told, left);
    drop(L, n);
}

/* Tests several brokers that share the audit file. */
static void together(void)
{
    struct vb_audit a;
    unsigned n;
    size_t longest;
    char text[200];
    begin(&a);
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    struct vb_refusal r = plain;
    r.text = text;
    for (int k = 0; k < 8; k++)
        if (fork() == 0) {
            for (int i = 0; i < 90; i++)
                vb_audit_refusal(&a, &r);
            _exit(0);
        }
    int status, bad = 0;
    while (wait(&status) > 0)
        bad += status != 0;
    vb_audit_close(&a);
    bool whole = lines(L, &n, &longest);
    ok(bad == 0 && whole && n == 720, "720 lines of 8 processes, each whole");
    drop(L, n);
}

static void failing(void)
{
    struct vb_audit a;
    char link[sizeof(path) + 8];
    ok(vb_audit_open(&a, "/tmp", &logger) == -EISDIR && a.fd == -1, "a folder: %s", hw_error());
    ok(vb_audit_open(&a, "/dev/null", &logger) == -EINVAL && a.fd == -1, "no plain file: %s", hw_error());
    snprintf(link, sizeof(link), "%s.link", path);
    unlink(link);
    if (symlink(path, link) == 0)
        ok(vb_audit_open(&a, link, &logger) == -ELOOP, "a link: %s", hw_error());
    unlink(link);
    begin(&a);
    struct rlimit old, limit;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    vb_audit_refusal(&a, &plain);
    char first[sizeof(said)];
    snprintf(first, sizeof(first), "%s", said);
    vb_audit_refusal(&a, &plain);
    setrlimit(RLIMIT_FSIZE, &old); /* TAP output may go to a file */
    ok(strstr(first, "was lost: the write was incomplete"), "a disk that is full: %s", first);
    ok(strstr(said, "was lost: EFBIG"), "and stays so: %s", said);
    vb_audit_close(&a);
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    one();
    hostile();
    flood();
    together();
    failing();
    unlink(path);
    return tap_done();
}
