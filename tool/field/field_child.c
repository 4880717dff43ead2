/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/child.h"
#include "tool/field/field.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MOST_TEXT (64u << 20) /* maximum bytes of a child's output; more output indicates a fault of the child */
#define SAYS_MS   4000        /* ms after SIGINT for a command to print its results: SESSION_FINISH_MS and a margin */
#define REAP_MS   1000

void field_arg(struct field_args *a, const char *word)
{
    if (a->n <= FIELD_ARGS)
        a->word[a->n++] = word;
}

/* Runs in the child after fork(): executes the command, without environment variables that are not meant for it. */
static void become_child(const struct field_args *a, pid_t parent, int out, int err)
{
    static const char *const not_for_it[] = {"NCCL_", "HAWSER_MESH_KEY="};
    extern char **environ;
    size_t n = 0;
    if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
        _exit(127);
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(127);
    for (char **e = environ; *e; e++) {
        bool drop = false;
        for (size_t i = 0; i < HW_ARRAY_LEN(not_for_it); i++)
            drop |= strncmp(*e, not_for_it[i], strlen(not_for_it[i])) == 0;
        if (!drop)
            environ[n++] = *e;
    }
    environ[n] = NULL;
    signal(SIGPIPE, SIG_DFL);
    if (strcmp(a->word[0], "hawser") == 0)
        execv("/proc/self/exe", (char *const *)a->word);
    else
        execvp(a->word[0], (char *const *)a->word);
    dprintf(2, "%s: %s\n", a->word[0], strerror(errno));
    _exit(127);
}

int field_start(struct field_child *c, const struct field_args *a)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    const pid_t parent = getpid();
    *c = (struct field_child){.out = -1, .err = -1};
    if (a->n > FIELD_ARGS)
        return hw_fail(-E2BIG, "a command line has more than %d words", FIELD_ARGS);
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0) {
        int rc = hw_fail(-errno, "creating pipes for %s: %s", a->word[0], strerror(errno));
        hw_close(&out[0]);
        hw_close(&out[1]);
        return rc;
    }
    fflush(NULL);
    c->pid = fork();
    if (c->pid == 0)
        become_child(a, parent, out[1], err[1]);
    const int rc = c->pid < 0 ? hw_fail(-errno, "starting a process for %s: %s", a->word[0], strerror(errno)) : 0;
    /* parent and child both set the group, so a signal to the group always finds the child */
    if (c->pid > 0)
        (void)setpgid(c->pid, c->pid);
    hw_close(&out[1]);
    hw_close(&err[1]);
    c->out = out[0];
    c->err = err[0];
    if (rc < 0) {
        hw_close(&c->out);
        hw_close(&c->err);
    }
    return rc;
}

static void take_output(struct field_child *c)
{
    char buf[16384];
    const ssize_t n = read(c->out, buf, sizeof buf);
    char *more = n > 0 && c->n_text + (size_t)n < MOST_TEXT ? realloc(c->text, c->n_text + (size_t)n) : NULL;
    if (more) {
        memcpy(more + c->n_text, buf, (size_t)n);
        c->text = more;
        c->n_text += (size_t)n;
    } else if (n >= 0 || errno != EINTR) {
        hw_close(&c->out);
    }
}

/* Reads the child's standard error and keeps its end. */
static void take_said(struct field_child *c)
{
    char buf[512];
    const ssize_t n = read(c->err, buf, sizeof buf);
    if (n <= 0) {
        if (n == 0 || errno != EINTR)
            hw_close(&c->err);
        return;
    }
    const size_t room = sizeof c->said - 1, keep = HW_MIN(c->n_said, room - (size_t)n);
    memmove(c->said, c->said + c->n_said - keep, keep);
    memcpy(c->said + keep, buf, (size_t)n);
    c->n_said = keep + (size_t)n;
    c->said[c->n_said] = 0;
}

/* Copies the last line that is not empty, without a prefix such as "hawser bench: ". Replaces characters below 0x20
 * with spaces. */
static void copy_last_line(const struct field_child *c, char *why, size_t cap)
{
    const char *end = c->said + c->n_said, *at;
    while (end > c->said && (unsigned char)end[-1] <= ' ')
        end--;
    for (at = end; at > c->said && at[-1] != '\n' && at[-1] != '\r';)
        at--;
    if (strncmp(at, "hawser", 6) == 0 && memchr(at, ':', (size_t)(end - at)))
        at = strchr(at, ':') + 1;
    at += strspn(at, " ");
    snprintf(why, cap, "%.*s", (int)HW_MAX(end - at, (ptrdiff_t)0), at);
    for (char *s = why; *s; s++)
        if ((unsigned char)*s < ' ')
            *s = ' ';
}

static json_t *read_rows(const char *text, size_t len)
{
    json_t *rows = json_array();
    size_t at = 0;
    while (rows && at < len) {
        json_error_t e;
        json_t *v = json_loadb(text + at, len - at, JSON_DISABLE_EOF_CHECK, &e);
        if (!v)
            break;
        json_array_append_new(rows, v);
        at += HW_MAX((size_t)e.position, (size_t)1);
        while (at < len && strchr(" \t\r\n", text[at]))
            at++;
    }
    return rows;
}

static void wait_for_output(struct field_child *c, uint64_t deadline, bool until_stop)
{
    while ((c->out >= 0 || c->err >= 0) && hw_now() < deadline && !(until_stop && tool_stop)) {
        struct pollfd p[2] = {{.fd = c->out, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};
        if (poll(p, 2, 100) <= 0)
            continue;
        if (p[0].revents)
            take_output(c);
        if (p[1].revents)
            take_said(c);
    }
}

void field_finish(struct field_child *c, uint64_t ms, struct field_result *r)
{
    const pid_t group = c->pid;
    *r = (struct field_result){0};
    wait_for_output(c, hw_deadline((int)HW_MIN(ms, (uint64_t)INT32_MAX)), true);
    if (c->out >= 0 || c->err >= 0) {
        r->late = !tool_stop;
        kill(-group, SIGINT);
        wait_for_output(c, hw_deadline(SAYS_MS), false);
    }
    /* SIGKILL is only for the child itself, not for its group: drill's own child restores a NIC when drill ends, and
     * ignores SIGINT and SIGTERM. */
    int status = child_reap(&c->pid, c->out >= 0 || c->err >= 0 ? 0 : REAP_MS);
    kill(-group, SIGTERM);
    r->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    r->rows = read_rows(c->text, c->n_text);
    copy_last_line(c, r->why, sizeof r->why);
    hw_close(&c->out);
    hw_close(&c->err);
    free(c->text);
    c->text = NULL;
}

int field_run(const struct field_args *a, uint64_t ms, struct field_result *r)
{
    struct field_child c;
    *r = (struct field_result){0};
    int rc = field_start(&c, a);
    if (rc == 0)
        field_finish(&c, ms, r);
    return rc;
}
