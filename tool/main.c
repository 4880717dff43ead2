/* SPDX-License-Identifier: Apache-2.0 */
/* The hawser command. One table of subcommands drives dispatch, help and suggestions. */
#include "tool/build.h"
#include "tool/tool.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cmd_help(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"serve", cmd_serve, "wait for benchmarks and validations from other nodes"},
    {"bench", cmd_bench, "measure verified transfers to a node that runs `hawser serve`"},
    {"validate", cmd_validate, "open N connections at once on one NIC and check each of them"},
    {"mesh", cmd_mesh, "measure every pair of nodes of a cluster, and report outliers"},
    {"fieldtest", cmd_fieldtest, "test two nodes, by default within ten minutes, and write files for hawser's authors"},
    {"trace", cmd_trace, "record the calls into a net plugin, or compare two recordings"},
    {"topo", cmd_topo, "show GPUs, NICs and the paths between them, and plan which NICs serve which GPU"},
    {"doctor", cmd_doctor, "check this machine, or a pair of nodes, and say how to fix problems"},
    {"top", cmd_top, "show live which processes transfer how much over which NICs"},
    {"metrics", cmd_metrics, "print the counters of processes that use hawser, for Prometheus"},
    {"nccl", cmd_nccl, "show what NCCL needs to use hawser, check the setup, and measure NCCL"},
    {"nixl", cmd_nixl, "check whether NIXL finds and accepts hawser's backend, and if not, why"},
    {"sandbox", cmd_sandbox, "give a container NICs, a matching sysfs and NCCL settings, or take them back"},
    {"verbs", cmd_verbs, "run untrusted programs that use RDMA verbs, through a broker"},
    {"oci-hook", cmd_oci_hook, "a hook for OCI runtimes: moves NICs into a container, and back"},
    {"devmem", cmd_devmem, "show and plan bindings of NIC queues to device memory, and undo hawserd's changes"},
    {"lab", cmd_lab, "make a cluster of network namespaces on this machine"},
    {"drill", cmd_drill, "disable a NIC under load, and measure the effect"},
    {"demo", cmd_demo, "demonstrate a failing NIC, a KV push and a mesh in a lab, and write a report"},
    {"bugreport", cmd_bugreport, "print what a bug report needs, without secrets"},
    {"help", cmd_help, "show this list, or the help of COMMAND [ACTION], or all knobs (`help knobs`)"},
};

static const struct command *find_tool_command(const char *name)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* Reports an unknown command. help means that name is an argument of `hawser help`, which also accepts "knobs". */
static int refuse_command(const char *name, bool help)
{
    struct hw_guess g = {.word = name};
    for (size_t i = 0; i < HW_ARRAY_LEN(commands); i++)
        hw_guess(&g, commands[i].name);
    if (help)
        hw_guess(&g, "knobs");
    if (g.near)
        return tool_usage(NULL, "unknown command '%s'; did you mean '%s'?", name, g.near);
    return tool_usage(NULL, "unknown command '%s'", name);
}

static void print_row(FILE *out, const char *name, const char *summary)
{
    enum { LEFT = 13 };
    fprintf(out, "  %-*s ", LEFT - 3, name);
    tool_print_wrapped(out, LEFT, LEFT, summary);
}

static void print_list(FILE *out)
{
    fprintf(
        out,
        "hawser %s - verified transfers over many TCP connections and NICs\n\nUsage: hawser COMMAND [ARGUMENT...]\n\n",
        hawser_version());
    for (size_t i = 0; i < HW_ARRAY_LEN(commands); i++)
        print_row(out, commands[i].name, commands[i].summary);
    fprintf(out, "\n");
    tool_print_wrapped(out, 0, 0,
                       "Run `hawser serve` on one node, and on the other the command that it prints. On a single "
                       "machine: `hawser demo`.");
}

static void print_knob(void *arg, const char *name, const char *env, const char *def, const char *unit, const char *doc)
{
    (void)arg;
    printf("%s, %s (unit: %s, default: %s)\n    ", name, env, *unit ? unit : "none", *def ? def : "none");
    tool_print_wrapped(stdout, 4, 4, doc);
}

static int cmd_help(int argc, char **argv)
{
    if (argc > 3)
        return tool_usage(NULL, "help takes the name of a command and, optionally, of one of its actions");
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_list(stdout);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "knobs") == 0) {
        printf("Knobs, set with --knob NAME=VALUE or in the environment:\n\n");
        hawser_knobs(print_knob, NULL);
        return TOOL_OK;
    }
    const struct command *c = find_tool_command(argv[1]);
    if (!c)
        return refuse_command(argv[1], true);
    char help[] = "--help";
    char *args[] = {argv[1], argc > 2 ? argv[2] : help, argc > 2 ? help : NULL, NULL};
    return c->run(argc > 2 ? 3 : 2, args);
}

static int complete_command(bool knobs)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(commands); i++)
        tool_complete("", commands[i].name, commands[i].summary);
    if (knobs)
        tool_complete("", "knobs", "the library's knobs");
    return TOOL_OK;
}

/* Implements `hawser complete -- WORD...`: prints the completions of the last word, which may be empty. The other words
 * precede the last one on the command line. Prints nothing where a file name or another program's command line is
 * expected. */
static int complete_words(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[1], "--") != 0)
        return tool_usage(NULL, "complete needs -- and the words of a command line");
    char **word = argv + 2;
    const int n = argc - 2;
    tool_completion = (struct tool_completion){.word = word[n - 1], .before = n > 2 ? word[n - 2] : NULL};
    for (int i = 0; i < n - 1; i++)
        if (strcmp(word[i], "--") == 0)
            return TOOL_OK;
    if (n == 1)
        return complete_command(false);
    const struct command *c = find_tool_command(word[0]);
    if (c && c->run == cmd_help)
        return complete_command(true);
    return c ? c->run(n - 1, word) : TOOL_OK;
}

/* Returns true if the reader of standard output has closed the pipe, as in `hawser bench HOST | head`. The caller then
 * exits with the status of a process killed by SIGPIPE. */
static bool is_reader_gone(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

/* Saves the command line as typed, for reports, because getopt_long() reorders argv. */
static void keep_command_line(int argc, char **argv)
{
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    if (!copy)
        return; /* reports then omit the command line */
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    tool_argv = copy;
    tool_argc = argc;
}

int main(int argc, char **argv)
{
    keep_command_line(argc, argv);
    if (argc < 2) {
        print_list(stderr);
        return TOOL_USAGE;
    }
    int rc;
    const struct command *c = find_tool_command(argv[1]);
    if (c) {
        rc = c->run(argc - 1, argv + 1);
    } else if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_list(stdout);
        rc = TOOL_OK;
    } else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        build_print(stdout);
        rc = TOOL_OK;
    } else if (strcmp(argv[1], "complete") == 0) {
        rc = complete_words(argc - 1, argv + 1);
    } else if (argv[1][0] == '-') {
        rc = tool_usage(NULL, "unknown option '%s': see `hawser help`", argv[1]);
    } else {
        rc = refuse_command(argv[1], false);
    }
    /* Losing output, for example on a full disk, is a failure. */
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == TOOL_OK)
        rc = is_reader_gone() ? 128 + SIGPIPE
                              : tool_fail(NULL, "writing to standard output failed%s%s", errno ? ": " : "",
                                          errno ? hw_errno_text(errno) : "");
    return rc;
}
