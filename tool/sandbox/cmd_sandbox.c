/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox: its actions, one file each (sandbox_*.c). */
#include "tool/sandbox/sandbox.h"
#include "tool/tool.h"

static const struct tool_action actions[] = {
    {"plan", sandbox_plan_main,
     "show which NICs, RDMA devices and GPUs a container gets, and for each other one the reason"},
    {"snapshot", sandbox_snapshot_main, "write what a container's sysfs is rebuilt from, as one JSON file"},
    {"sysfs", sandbox_sysfs_main, "rebuild a container's sysfs, as a folder, by FUSE, or as NCCL's XML"},
    {"env", sandbox_env_main, "print the environment that a container's programs need, and why"},
    {"move", sandbox_move_main,
     "move NICs into a container's network namespace with all their settings: all of them or none"},
    {"restore", sandbox_restore_main, "give back what `move` took, whatever happened since"},
    {"watch", sandbox_watch_main, "wait for the container's end, then restore"},
    {"status", sandbox_status_main, "show which containers have which NICs"},
    {"run", sandbox_run_main, "run a command with all of this, without a container runtime, and give everything back"},
    {"spec", sandbox_spec_main, "add hooks, mounts, devices, environment and limits to an OCI bundle's config.json"},
    {"cdi", sandbox_cdi_main, "write the same as a specification of the Container Device Interface"},
    {0},
};

int cmd_sandbox(int argc, char **argv)
{
    static const struct tool_actions t = {.cmd = "sandbox",
                                          .about = "NICs, and a topology and environment for NCCL that are correct in "
                                                   "a container; all of it is undone afterwards.",
                                          .action = actions};
    return tool_act(&t, argc, argv);
}
