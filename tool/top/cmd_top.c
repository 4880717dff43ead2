/* SPDX-License-Identifier: Apache-2.0 */
/* hawser top: shows, once per interval, how much each context transfers over which NICs. */
#include "tool/opts.h"
#include "tool/top/top.h"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ANSWER_MS   500 /* ms for contexts to answer */
#define LINES_LEAST 8

struct top_args {
    const char *dir;
    bool once, json;
    uint64_t interval_ms;
};

static const struct opt rows[] = {
    OPT_TIME("interval", 'i', "TIME", struct top_args, interval_ms, 100, 3600000,
             "time between two updates (default: 1s)"),
    OPT_FLAG("once", '1', struct top_args, once, "exit after one interval"),
    OPT_FLAG("json", 'j', struct top_args, json, "print one JSON line per interval"),
    OPT_TEXT("dir", 0, "FOLDER", struct top_args, dir,
             "look for the processes' sockets only in FOLDER, which is the value of their knob metrics_dir"),
    {0},
};

struct screen {
    bool is;   /* standard output is a terminal that is redrawn */
    bool keys; /* standard input is a terminal, too */
    struct termios was;
};

static bool is_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

static void begin_screen(struct screen *s, const struct top_args *a)
{
    struct termios t;
    s->is = !a->once && !a->json && is_terminal();
    if (!s->is)
        return;
    s->keys = tcgetattr(STDIN_FILENO, &s->was) == 0;
    if (s->keys) {
        t = s->was;
        t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &t);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* alternate screen, no cursor */
    fflush(stdout);
}

static void end_screen(const struct screen *s)
{
    if (!s->is)
        return;
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (s->keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &s->was);
}

static unsigned count_lines(void)
{
    struct winsize w;
    unsigned n = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row ? w.ws_row : 24;
    return HW_MAX(n, (unsigned)LINES_LEAST) - 1; /* writing the last line would scroll the screen */
}

/* Waits until the given time or a signal. After the key q or the end of standard input, sets tool_stop and returns. */
static void wait_for(const struct screen *s, uint64_t until)
{
    for (uint64_t now; !tool_stop && (now = hw_now()) < until;) {
        struct pollfd p = {.fd = s->keys ? STDIN_FILENO : -1, .events = POLLIN};
        char c = 0;
        if (poll(&p, 1, (int)HW_MIN((until - now) / HW_MS + 1, 250ull)) <= 0 || !p.revents)
            continue;
        if (read(STDIN_FILENO, &c, 1) != 1 || c == 'q' || c == 'Q')
            tool_stop = 1;
    }
}

/* Shows one view. Returns 0, or -EIO if writing fails. */
static int show_view(const struct screen *s, const struct top_args *a, const struct top_view *v)
{
    if (a->json)
        return top_json(stdout, v);
    if (s->is)
        fputs("\033[H", stdout);
    top_show(stdout, v, s->is ? count_lines() : UINT_MAX, s->is ? "\033[K\n" : "\n");
    fputs(s->is ? "\033[J" : a->once ? "" : "\n", stdout);
    return fflush(stdout) != 0 ? hw_fail(-EIO, "writing to standard output: %s", strerror(errno)) : 0;
}

static int show_until_stopped(const struct screen *s, const struct top_args *a)
{
    struct gather before = {0}, now = {0};
    bool first = true;
    int rc = 0;
    while (!tool_stop && rc == 0) {
        struct top_view v = {0};
        uint64_t next = hw_deadline((int)a->interval_ms);
        rc = gather_all(a->dir, ANSWER_MS, &now);
        if (rc == 0)
            rc = top_compare(first ? NULL : &before, &now, &v);
        if (rc == 0 && (!first || s->is)) /* a terminal shows the first state at once */
            rc = show_view(s, a, &v);
        top_free(&v);
        gather_free(&before);
        before = now;
        now = (struct gather){0};
        if (a->once && !first)
            break;
        first = false;
        if (rc == 0)
            wait_for(s, next);
    }
    gather_free(&before);
    gather_free(&now);
    return rc;
}

int cmd_top(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "top",
        .args = "[OPTION...]",
        .about = "Shows what the contexts of this user's processes (for root, of all users' processes) transfer, over "
                 "which NICs, and at what CPU cost. The key q or Ctrl-C ends the display.",
        .rows = rows,
        .too_many = "top takes no arguments, because it finds the processes itself"};
    struct top_args a = {.interval_ms = 1000};
    struct screen s = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    tool_catch_signals();
    begin_screen(&s, &a);
    rc = show_until_stopped(&s, &a);
    end_screen(&s);
    return rc < 0 ? tool_fail("top", "%s", hw_error()) : TOOL_OK;
}
