/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nccl: the actions env, check and bench. */
#include "tool/nccl/nccl.h"
#include "tool/tool.h"

static const struct tool_action actions[] = {
    {"env", nccl_env_main, "print what to export so that NCCL uses hawser, and why"},
    {"check", nccl_check_main, "show which network NCCL would use and, if not hawser, why"},
    {"bench", nccl_bench_main,
     "measure operations of real NCCL over hawser or over NCCL's own sockets, as nccl-tests does"},
    {0},
};

int cmd_nccl(int argc, char **argv)
{
    static const struct tool_actions t = {
        .cmd = "nccl",
        .about = "NCCL over hawser: with NCCL_NET_PLUGIN=hawser, NCCL uses hawser's plugin if the loader finds it.",
        .action = actions};
    return tool_act(&t, argc, argv);
}
