/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nccl: env, check, bench. */
#include "tool/nccl/nccl.h"
#include "tool/tool.h"

static const struct tool_action actions[] = {
    {"env", nccl_env_main, "what to export so that NCCL uses hawser, and why"},
    {"check", nccl_check_main, "which network NCCL would use, and why not ours"},
    {"bench", nccl_bench_main, "operations over real NCCL, as nccl-tests measure them, against NCCL's own sockets"},
    {0},
};

int cmd_nccl(int argc, char **argv)
{
    static const struct tool_actions t = {
        .cmd = "nccl",
        .about =
            "NCCL over hawser: NCCL_NET_PLUGIN=hawser makes NCCL use the plugin that is installed with this program.",
        .action = actions};
    return tool_act(&t, argc, argv);
}
