/* SPDX-License-Identifier: Apache-2.0 */
/* hawser trace: records the calls into a net plugin and their results, and compares two traces. */
#include "tool/opts.h"
#include "tool/trace/trace_read.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_STARTED 127 /* exit status of a child process whose program could not be run */

struct tracing {
    const char *out, *show, *level;
    bool polls, diff;
};

static const char *const levels[] = {"warn", "info", "trace", NULL};

static const struct opt rows[] = {
    OPT_TEXT("out", 'o', "FILE", struct tracing, out, "write the calls to FILE (default: hawser-trace.txt)"),
    OPT_WORD("level", 0, "LEVEL", struct tracing, level, levels,
             "log level of the plugin: warn, info or trace (default: from the environment)"),
    OPT_FLAG("polls", 0, struct tracing, polls,
             "also write a line for each call that made no progress; otherwise such calls are only counted"),
    OPT_TEXT("show", 0, "FILE", struct tracing, show, "only summarize the existing trace FILE"),
    OPT_FLAG("diff", 0, struct tracing, diff, "compare two traces: hawser trace --diff A B"),
    {0},
};

/* ---- one trace ------------------------------------------------------------------------------ */

static int read_trace_file(const char *path, struct trace *t)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return hw_fail(-errno, "opening the trace %s: %s", path, strerror(errno));
    int rc = trace_read(f, path, t);
    (void)fclose(f);
    return rc;
}

static int show_trace(const char *path)
{
    struct trace t = {0};
    if (read_trace_file(path, &t) < 0)
        return tool_fail("trace", "%s", hw_error());
    printf("%-14s %10s %10s %8s %12s %12s %12s\n", "call", "calls", "again", "failed", "total ms", "mean us",
           "longest us");
    for (size_t i = 0; i < t.n_call; i++) {
        const struct trace_call *c = &t.call[i];
        printf("%-14s %10" PRIu64 " %10" PRIu64 " %8" PRIu64 " %12.3f %12.1f %12.1f\n", c->name, c->n, c->polls,
               c->failed, c->us / 1e3, c->us / (double)c->n, c->most);
    }
    printf("\nThe plugin's log:");
    for (size_t i = 0; i < HW_ARRAY_LEN(trace_levels); i++)
        if (t.log[i])
            printf(" %" PRIu64 " %s", t.log[i], trace_levels[i]);
    printf("\n%zu lines in %s\n", t.n_lines, path);
    for (size_t i = 0; i < t.n_kind; i++)
        if (strncmp(t.kind[i].key, "log WARN ", 9) == 0)
            printf("  %s (line %zu, %" PRIu64 " time%s)\n", t.kind[i].key + 4, t.kind[i].line, t.kind[i].n,
                   hw_plural(t.kind[i].n));
    trace_free(&t);
    return TOOL_OK;
}

/* ---- two ------------------------------------------------------------------------------------ */

static size_t print_missing(const struct trace *in, const struct trace *from, char sign)
{
    size_t n = 0;
    for (size_t i = 0; i < in->n_kind; i++) {
        const struct trace_kind *k = &in->kind[i];
        if (trace_kind_of(from, k->key))
            continue;
        printf("%c %s  (line %zu, %" PRIu64 " time%s)\n", sign, k->key, k->line, k->n, hw_plural(k->n));
        n++;
    }
    return n;
}

/* Returns false for calls that move data and for lines of the log, because their numbers vary between runs. */
static bool told_by_count(const char *key)
{
    static const char *const names[] = {"isend ", "irecv ", "test ", "iflush ", "irecvConsumed ", "log "};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        if (strncmp(key, names[i], strlen(names[i])) == 0)
            return false;
    return true;
}

static size_t print_counts(const struct trace *a, const struct trace *b)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_kind; i++) {
        const struct trace_kind *k = &a->kind[i], *other = trace_kind_of(b, k->key);
        if (!other || other->n == k->n || !told_by_count(k->key))
            continue;
        printf("~ %s  (%" PRIu64 " time%s in A, %" PRIu64 " in B)\n", k->key, k->n, hw_plural(k->n), other->n);
        n++;
    }
    return n;
}

static void print_times(const struct trace *a, const struct trace *b)
{
    printf("\n%-14s %10s %10s %12s %12s %12s %12s\n", "call", "A calls", "B calls", "A mean us", "B mean us",
           "A longest", "B longest");
    for (int pass = 0; pass < 2; pass++) {
        const struct trace *t = pass ? b : a;
        for (size_t i = 0; i < t->n_call; i++) {
            const char *name = t->call[i].name;
            const struct trace_call *x = trace_call_of(a, name), *y = trace_call_of(b, name);
            if (pass && x) /* printed in the first pass */
                continue;
            printf("%-14s %10" PRIu64 " %10" PRIu64 " %12.1f %12.1f %12.1f %12.1f\n", name, x ? x->n : 0, y ? y->n : 0,
                   x ? x->us / (double)x->n : NAN, y ? y->us / (double)y->n : NAN, x ? x->most : NAN,
                   y ? y->most : NAN);
        }
    }
}

/* Compares two traces. Returns 0 if there is no difference, and 1 if there is one or after an error. */
static int compare_traces(const char *path_a, const char *path_b)
{
    struct trace a = {0}, b = {0};
    if (read_trace_file(path_a, &a) < 0)
        return tool_fail("trace", "%s", hw_error());
    if (read_trace_file(path_b, &b) < 0) {
        trace_free(&a);
        return tool_fail("trace", "%s", hw_error());
    }
    printf("# A %s, B %s; -: only in A, +: only in B, ~: in both, but with different counts\n", path_a, path_b);
    size_t n = print_missing(&a, &b, '-');
    n += print_missing(&b, &a, '+');
    n += print_counts(&a, &b);
    if (n == 0)
        printf("No differences. Times, addresses, and the number and sizes of transfers are not compared.\n");
    print_times(&a, &b);
    trace_free(&a);
    trace_free(&b);
    return n ? TOOL_FAILED : TOOL_OK;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static bool is_hawser_command(const char *name)
{
    static const char *const names[] = {"serve", "bench", "validate", "doctor", "nccl"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Sets the variables from which plugins read their log level, unless level is NULL. */
static void set_level(const char *level)
{
    static const char *const names[] = {"NCCL_DEBUG", "NCCL_GPUDIRECTTCPX_DEBUG_LEVEL"};
    char upper[16];
    if (!level)
        return;
    snprintf(upper, sizeof upper, "%s", level);
    for (char *c = upper; *c; c++)
        *c = (char)(*c - 'a' + 'A');
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        (void)setenv(names[i], upper, 1);
    (void)setenv("NCCL_DEBUG_SUBSYS", "ALL", 1);
}

/* Creates the file, or truncates it, because the plugin's process appends. Only its owner may read the file, because it
 * contains the handles of listeners. */
static int make_trace_file(const char *path)
{
    HW_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || (S_ISREG(st.st_mode) && fchmod(fd, 0600) < 0))
        return hw_fail(-errno, "writing %s: %s", path, strerror(errno));
    return 0;
}

/* Runs the command, and stores its wait status in *status. */
static int run_traced_command(const struct tracing *t, char **argv, int *status)
{
    int rc = make_trace_file(t->out);
    if (rc < 0)
        return rc;
    char *full = realpath(t->out, NULL);
    if (!full)
        return hw_fail(-errno, "%s: %s", t->out, strerror(errno));
    (void)setenv("HAWSER_PLUGIN_TRACE", full, 1);
    (void)setenv("HAWSER_PLUGIN_TRACE_POLLS", t->polls ? "yes" : "no", 1);
    free(full);
    /* Signals from a terminal also reach the command. After the command has ended, the trace is summarized. */
    tool_catch_signals();
    const pid_t pid = fork();
    if (pid == 0) {
        if (!is_hawser_command(argv[0])) {
            execvp(argv[0], argv);
            tool_fail("trace", "starting %s: %s", argv[0], strerror(errno));
            _exit(NOT_STARTED);
        }
        size_t n = 0;
        static char self[] = "hawser";
        while (argv[n])
            n++;
        char **all = calloc(n + 2, sizeof(char *));
        if (!all)
            _exit(NOT_STARTED);
        all[0] = self;
        memcpy(all + 1, argv, n * sizeof(char *));
        execv("/proc/self/exe", all);
        _exit(NOT_STARTED);
    }
    if (pid < 0)
        return hw_fail(-errno, "starting %s: %s", argv[0], strerror(errno));
    bool passed = false;
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        if (tool_stop && !passed) {
            passed = true;
            (void)kill(pid, SIGINT);
        }
    return 0;
}

static int trace_command(const struct tracing *t, char **argv)
{
    int status = 0;
    set_level(t->level);
    if (run_traced_command(t, argv, &status) < 0)
        return tool_fail("trace", "%s", hw_error());
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_STARTED)
        return TOOL_FAILED;
    putchar('\n');
    fflush(stdout);
    int rc = show_trace(t->out);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? rc : TOOL_FAILED;
}

int cmd_trace(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "trace",
        .args = "[OPTION...] COMMAND [ARGUMENT...] | --show FILE | --diff A B",
        .about = "Runs a hawser command, such as serve, bench or validate, or another program, and records the calls "
                 "into the net plugin of its transport, with arguments, result and time, and the plugin's own log. "
                 "Exit status of --diff: 0 if the traces are equal, 1 if they differ or cannot be read.",
        .rows = rows,
        .most = OPTS_ANY,
        .stops = true};
    struct tracing t = {.out = "hawser-trace.txt"};
    int rc = opts_parse(&o, &t, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    const int left = argc - optind;
    if (t.show)
        return left ? tool_usage("trace", "--show takes only one file") : show_trace(t.show);
    if (t.diff)
        return left == 2 ? compare_traces(argv[optind], argv[optind + 1])
                         : tool_usage("trace", "--diff needs two files");
    if (left == 0)
        return tool_usage("trace",
                          "COMMAND is missing; for example: hawser trace validate HOST --transport netplugin:PLUGIN");
    return trace_command(&t, argv + optind);
}
