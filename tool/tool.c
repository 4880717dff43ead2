/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/tool.h"

#include <unistd.h>

volatile sig_atomic_t tool_stop;

/* timeout(1) signals its child and then the group, so that one wish to end comes twice; who insists is let go. */
#define PATIENCE 4

static void on_signal(int sig)
{
    static volatile sig_atomic_t times;
    tool_stop = 1;
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

static void say(const char *cmd, const char *fmt, va_list ap)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K"); /* a progress line may stand there */
    fprintf(stderr, "hawser%s%s: ", cmd ? " " : "", cmd ? cmd : "");
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

int tool_usage(const char *cmd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(cmd, fmt, ap);
    va_end(ap);
    fprintf(stderr, "Try `hawser%s%s --help`.\n", cmd ? " " : "", cmd ? cmd : "");
    return TOOL_USAGE;
}

int tool_fail(const char *cmd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(cmd, fmt, ap);
    va_end(ap);
    return TOOL_FAILED;
}
