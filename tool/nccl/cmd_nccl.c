/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nccl: env, check, bench. */
#include "tool/nccl/nccl.h"
#include "tool/tool.h"

static const struct tool_action actions[] = {
    {"env", nccl_env_main, "[--json]", "what to export so that NCCL uses hawser, and why"},
    {"check", nccl_check_main, "[--nccl FILE] [--why] [--json]", "which network NCCL would use, and why not ours"},
    {"bench", nccl_bench_main,
     "[--op OP[,..]] [--size SIZE[,..]] [--gpus N] [--vs-socket] [--raw N[,..]]\n"
     "        [--rounds N] [--iters N] [--warmup N] [--plugin NAME] [--set NAME=VALUE]\n"
     "        [--nccl FILE] [--lab LAB] [--timeout TIME] [--json FILE] [--verbose]\n"
     "        [--hosts A,B[,..] [--ssh COMMAND] [--remote PATH] [--tcpx PATH]]",
     "operations over real NCCL, as nccl-tests measure them, against NCCL's own sockets"},
    {0},
};

static void print_nccl_help(void)
{
    printf(
        "Usage: hawser nccl ACTION [OPTION...]\n\n"
        "NCCL over hawser: NCCL_NET_PLUGIN=hawser makes NCCL use the plugin that is installed with this program.\n\n");
    for (const struct tool_action *a = actions; a->name; a++)
        printf("  %-5s %s\n        %s\n", a->name, a->args, a->summary);
    printf("\n`hawser nccl ACTION --help` says more.\n");
}

int cmd_nccl(int argc, char **argv)
{
    return tool_act("nccl", actions, print_nccl_help, argc, argv);
}
