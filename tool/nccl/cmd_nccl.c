/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nccl: env, check, bench. */
#include "tool/nccl/nccl.h"
#include "tool/tool.h"

#include <string.h>

static const struct action {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *args, *summary;
} actions[] = {
    {"env", nccl_env_main, "[--json]", "what to export so that NCCL uses hawser, and why"},
    {"check", nccl_check_main, "[--nccl FILE] [--why] [--json]", "which network NCCL would use, and why not ours"},
    {"bench", nccl_bench_main,
     "[--op OP[,..]] [--size SIZE[,..]] [--gpus N] [--vs-socket] [--raw N[,..]]\n"
     "        [--rounds N] [--iters N] [--warmup N] [--plugin NAME] [--set NAME=VALUE]\n"
     "        [--nccl FILE] [--lab LAB] [--timeout TIME] [--json FILE] [--verbose]\n"
     "        [--hosts A,B[,..] [--ssh COMMAND] [--remote PATH] [--tcpx PATH]]",
     "operations over real NCCL, as nccl-tests measure them, against NCCL's own sockets"},
};

int cmd_nccl(int argc, char **argv)
{
    if (argc < 2)
        return tool_usage("nccl", "which of env, check, bench?");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        printf("Usage: hawser nccl ACTION [OPTION...]\n\n"
               "NCCL over hawser: NCCL_NET_PLUGIN=hawser makes NCCL use the plugin that is installed with this "
               "program.\n\n");
        for (size_t i = 0; i < HW_ARRAY_LEN(actions); i++)
            printf("  %-5s %s\n        %s\n", actions[i].name, actions[i].args, actions[i].summary);
        printf("\n`hawser nccl ACTION --help` says more.\n");
        return TOOL_OK;
    }
    for (size_t i = 0; i < HW_ARRAY_LEN(actions); i++)
        if (strcmp(argv[1], actions[i].name) == 0)
            return actions[i].run(argc - 1, argv + 1);
    return tool_usage("nccl", "there is no '%s', only env, check and bench", argv[1]);
}
