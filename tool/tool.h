/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all subcommands of `hawser`: signature, exit codes, error output. */
#ifndef HW_TOOL_H
#define HW_TOOL_H

#include "base/base.h"
#include "base/guess.h"

#include <signal.h>
#include <stdio.h>

/* A subcommand's result is the process's exit code; 128 + the signal's number after a signal (tool_interrupted). */
enum tool_exit { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

/* argv[0] is the subcommand's name. On --help each prints its help to stdout and returns TOOL_OK; `hawser help X` calls
 * it with {"X", "--help"}. */
int cmd_serve(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_validate(int argc, char **argv);
int cmd_mesh(int argc, char **argv);
int cmd_topo(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_devmem(int argc, char **argv);
int cmd_lab(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_drill(int argc, char **argv);
int cmd_fieldtest(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_metrics(int argc, char **argv);
int cmd_nccl(int argc, char **argv);
int cmd_nixl(int argc, char **argv);
int cmd_sandbox(int argc, char **argv);
int cmd_oci_hook(int argc, char **argv);
int cmd_verbs(int argc, char **argv);
int cmd_bugreport(int argc, char **argv);

/* Prints "hawser bench: <text>" and where to find help on stderr. Returns TOOL_USAGE. */
int tool_usage(const char *cmd, const char *fmt, ...) HW_PRINTF(2, 3);
/* Prints "hawser bench: <text>" on stderr. Returns TOOL_FAILED. */
int tool_fail(const char *cmd, const char *fmt, ...) HW_PRINTF(2, 3);

/* Prints "hawser bench: interrupted: <text>" on stderr, after the results so far; "": no text. Returns 128 + tool_stop,
 * as shells do. */
int tool_interrupted(const char *cmd, const char *fmt, ...) HW_PRINTF(2, 3);

/* Reports hw_error() for a command that failed with rc: -EINTR after a signal is tool_interrupted(). */
int tool_failed(const char *cmd, int rc);

/* Prints text and a newline, broken at blanks before column 80: at is the column that out is in, indent that of the
 * lines that follow. A newline in text is a blank. */
void tool_print_wrapped(FILE *out, unsigned at, unsigned indent, const char *text);

/* An action of a command, as `up` of `hawser lab`. */
struct tool_action {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* one line */
};
/* A command with actions. */
struct tool_actions {
    const char *cmd;
    const char *about;                /* a few lines of --help */
    const struct tool_action *action; /* {0} ends the table */
};
/* Runs the action that argv[1] names, or prints --help. */
int tool_act(const struct tool_actions *t, int argc, char **argv);

/* The word that a shell completes (`hawser complete`): option parsing up to that word prints candidates and does
 * nothing else. */
struct tool_completion {
    const char *word;   /* prefix of the candidates; NULL: an ordinary call */
    const char *before; /* the word before it, NULL if that is the command or the action */
};
extern struct tool_completion tool_completion;
/* Prints dashes and candidate as one word, a tab and the text, if the word can be completed to it. */
void tool_complete(const char *dashes, const char *candidate, const char *text);

/* The process's command line, set by main(). */
extern int tool_argc;
extern char **tool_argv;

/* The last SIGINT or SIGTERM since tool_catch_signals(), or 0; the fifth one kills at once. SIGPIPE is ignored from
 * then on. */
extern volatile sig_atomic_t tool_stop;
/* Returns milliseconds since the first of them; 0: none. */
uint64_t tool_stopped_ms(void);
void tool_catch_signals(void);

#endif
