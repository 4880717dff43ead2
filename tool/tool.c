/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/tool.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

volatile sig_atomic_t tool_stop;
int tool_argc;
char **tool_argv;

/* timeout(1) signals its child and then the process group, so one request to stop arrives as two signals. After this
 * many signals, the next one of the same kind kills the process. */
#define PATIENCE 4

static atomic_uint_fast64_t stopped_at; /* hw_now() at the first signal */

static void on_signal(int sig)
{
    static volatile sig_atomic_t times;
    if (!tool_stop)
        atomic_store(&stopped_at, hw_now());
    tool_stop = sig;
    times = times + 1;
    if (times == PATIENCE)
        signal(sig, SIG_DFL);
}

void tool_catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
}

uint64_t tool_stopped_ms(void)
{
    return tool_stop ? (hw_now() - atomic_load(&stopped_at)) / HW_MS : 0;
}

static void print_line(const char *cmd, const char *fmt, va_list ap)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K"); /* erase a progress line */
    fprintf(stderr, "hawser%s%s: ", cmd ? " " : "", cmd ? cmd : "");
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

int tool_usage(const char *cmd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line(cmd, fmt, ap);
    va_end(ap);
    fprintf(stderr, "Try `hawser%s%s --help`.\n", cmd ? " " : "", cmd ? cmd : "");
    return TOOL_USAGE;
}

int tool_fail(const char *cmd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line(cmd, fmt, ap);
    va_end(ap);
    return TOOL_FAILED;
}

int tool_interrupted(const char *cmd, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tool_fail(cmd, "interrupted%s%s", *text ? ": " : "", text);
    return 128 + tool_stop;
}

int tool_check_replace(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode)
               ? hw_fail(-EINVAL, "%s is not a regular file, and would be replaced", path)
               : 0;
}

int tool_hint(int rc, const char *hint)
{
    char why[HW_ERR_TEXT];
    snprintf(why, sizeof why, "%s", hw_error());
    return hw_fail(rc, "%s: %s", why, hint);
}

int tool_failed(const char *cmd, int rc)
{
    return rc == -EINTR && tool_stop ? tool_interrupted(cmd, "%s", "") : tool_fail(cmd, "%s", hw_error());
}

void tool_print_wrapped(FILE *out, unsigned at, unsigned indent, const char *text)
{
    enum { COLUMNS = 80 };
    bool first = true;
    for (size_t n; *(text += strspn(text, " \n")); text += n, first = false) {
        n = strcspn(text, " \n");
        if (!first && at + 1 + n > COLUMNS) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', out);
            at++;
        }
        fwrite(text, 1, n, out);
        at += (unsigned)n;
    }
    fputc('\n', out);
}

/* Formats the names of all actions, as in "env, check, bench". */
static void list_actions(const struct tool_action *actions, char *buf, size_t cap)
{
    buf[0] = 0;
    for (const struct tool_action *a = actions; a->name; a++) {
        size_t at = strlen(buf);
        snprintf(buf + at, cap - at, "%s%s", at ? ", " : "", a->name);
    }
}

static void print_actions(const struct tool_actions *t)
{
    enum { LEFT = 12 };
    printf("Usage: hawser %s ACTION [ARGUMENT...]\n\n", t->cmd);
    tool_print_wrapped(stdout, 0, 0, t->about);
    printf("\nActions:\n");
    for (const struct tool_action *a = t->action; a->name; a++) {
        printf("  %-*s ", LEFT - 3, a->name);
        tool_print_wrapped(stdout, LEFT, LEFT, a->summary);
    }
    printf("\nRun `hawser %s ACTION --help` for the options of an action.\n", t->cmd);
}

static int complete_action(const struct tool_actions *t)
{
    for (const struct tool_action *a = t->action; a->name; a++)
        tool_complete("", a->name, a->summary);
    return TOOL_OK;
}

int tool_act(const struct tool_actions *t, int argc, char **argv)
{
    char all[256];
    struct hw_guess g = {.word = argc < 2 ? "" : argv[1]};
    list_actions(t->action, all, sizeof all);
    if (argc < 2 && tool_completion.word)
        return complete_action(t);
    if (argc < 2)
        return tool_usage(t->cmd, "ACTION is missing; it must be one of %s", all);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_actions(t);
        return TOOL_OK;
    }
    for (const struct tool_action *a = t->action; a->name; a++) {
        if (strcmp(argv[1], a->name) == 0)
            return a->run(argc - 1, argv + 1);
        hw_guess(&g, a->name);
    }
    if (g.near)
        return tool_usage(t->cmd, "unknown action '%s'; did you mean '%s'? The actions are %s", argv[1], g.near, all);
    return tool_usage(t->cmd, "unknown action '%s': the actions are %s", argv[1], all);
}

struct tool_completion tool_completion;

void tool_complete(const char *dashes, const char *candidate, const char *text)
{
    char whole[128];
    snprintf(whole, sizeof whole, "%s%s", dashes, candidate);
    if (strncmp(whole, tool_completion.word, strlen(tool_completion.word)) == 0)
        printf("%s\t%s\n", whole, text);
}
