/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox: the table of its actions, each of which has its own file (sandbox_*.c). */
#include "tool/sandbox/sandbox.h"
#include "tool/tool.h"

static const struct tool_action actions[] = {
    {"plan", sandbox_plan_main,
     "show which NICs, RDMA devices and GPUs a container gets, and why it does not get the others"},
    {"snapshot", sandbox_snapshot_main, "write the data from which a container's sysfs is rebuilt, as one JSON file"},
    {"sysfs", sandbox_sysfs_main,
     "rebuild a container's sysfs in a folder or with FUSE, or write its topology as NCCL's XML"},
    {"env", sandbox_env_main, "print the environment that a container's programs need, and why"},
    {"move", sandbox_move_main,
     "move NICs, all of them or none, into a container's network namespace, with their addresses, routes and rules"},
    {"restore", sandbox_restore_main, "return the NICs that `move` took, with all their settings"},
    {"watch", sandbox_watch_main, "wait until a container has ended, and then return its NICs"},
    {"status", sandbox_status_main, "show which containers have which NICs"},
    {"run", sandbox_run_main,
     "run a command with the planned NICs, without a container runtime, and return the NICs afterwards"},
    {"spec", sandbox_spec_main, "add hooks, mounts, devices, environment and limits to an OCI bundle's config.json"},
    {"cdi", sandbox_cdi_main, "write the plan as a specification of the Container Device Interface"},
    {0},
};

int cmd_sandbox(int argc, char **argv)
{
    static const struct tool_actions t = {.cmd = "sandbox",
                                          .about =
                                              "Gives a container NICs, and a correct topology and environment for "
                                              "NCCL. The NICs return to the host afterwards, with all their settings.",
                                          .action = actions};
    return tool_act(&t, argc, argv);
}
