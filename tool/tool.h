/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the subcommands of `hawser`. */
#ifndef HW_TOOL_H
#define HW_TOOL_H

#include "base/base.h"
#include "base/guess.h"

#include <signal.h>
#include <stdio.h>

/* Exit codes of most subcommands. Some also return others, such as 128 plus a signal's number (tool_interrupted()). */
enum tool_exit { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

/* Subcommands. argv[0] is the subcommand's name. For --help, each function prints help to stdout and returns TOOL_OK.
 * `hawser help X` passes {"X", "--help"} to X. */
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

/* Prints "hawser bench: <text>" and a hint about --help to stderr. Returns TOOL_USAGE. */
int tool_usage(const char *cmd, const char *fmt, ...) HW_PRINTF(2, 3);
/* Prints "hawser bench: <text>" to stderr. Returns TOOL_FAILED. */
int tool_fail(const char *cmd, const char *fmt, ...) HW_PRINTF(2, 3);

/* Prints "hawser bench: interrupted: <text>" to stderr; an empty text also omits the second colon. Returns
 * 128 + tool_stop, as shells do. */
int tool_interrupted(const char *cmd, const char *fmt, ...) HW_PRINTF(2, 3);

/* Fails with -EINVAL, with the path in hw_error(), if path exists and is not a regular file: root could replace a
 * device with rename(2). */
int tool_check_replace(const char *path);

/* Appends a hint for the user to the text of hw_error(). Returns rc. */
int tool_hint(int rc, const char *hint);

/* Reports that a command failed with rc, and returns its exit code. Calls tool_interrupted() for -EINTR after a signal,
 * and otherwise prints hw_error(). */
int tool_failed(const char *cmd, int rc);

/* Prints text and a newline, and breaks lines between words to keep them within 80 columns. at is the current column
 * of out; the following lines are indented by indent. A newline in text counts as a space. */
void tool_print_wrapped(FILE *out, unsigned at, unsigned indent, const char *text);

/* An action of a command, such as `up` of `hawser lab`. */
struct tool_action {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* help, one line */
};
/* A command that has actions. */
struct tool_actions {
    const char *cmd;
    const char *about;                /* description for --help, a few lines */
    const struct tool_action *action; /* terminated by {0} */
};
/* Runs the action that argv[1] specifies, or prints help, completions or an error. Returns the exit status. */
int tool_act(const struct tool_actions *t, int argc, char **argv);

/* The word for which the shell wants completions (`hawser complete`). While word is set, option parsing prints the
 * candidates and does nothing else. */
struct tool_completion {
    const char *word;   /* prefix of the candidates, or NULL in an ordinary run */
    const char *before; /* preceding word, or NULL if that is the command */
};
extern struct tool_completion tool_completion;
/* Prints dashes and candidate as one word, a tab and text, if that word begins with the word to complete. */
void tool_complete(const char *dashes, const char *candidate, const char *text);

/* Command line of the process, set by main(). */
extern int tool_argc;
extern char **tool_argv;

/* Last SIGINT or SIGTERM since tool_catch_signals(), or 0. Some commands also set tool_stop themselves, to end their
 * threads or loops. The fifth signal kills the process if it is the same as the fourth. tool_catch_signals() also makes
 * the process ignore SIGPIPE. */
extern volatile sig_atomic_t tool_stop;
/* Returns the milliseconds since the first SIGINT or SIGTERM, or 0 if no such signal has arrived. */
uint64_t tool_stopped_ms(void);
void tool_catch_signals(void);

#endif
