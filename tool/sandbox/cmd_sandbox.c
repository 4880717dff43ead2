/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox: its actions, one file each (sandbox_*.c). */
#include "tool/sandbox/sandbox.h"
#include "tool/tool.h"

static const struct tool_action actions[] = {
    {"plan", sandbox_plan_main, "which NICs, RDMA devices and GPUs a container gets, and why each other one does not"},
    {"snapshot", sandbox_snapshot_main, "what a container's sysfs is rebuilt from, as one JSON file"},
    {"sysfs", sandbox_sysfs_main, "the sysfs that a container is to see, as a folder, by FUSE, or as NCCL's XML"},
    {"env", sandbox_env_main, "the environment that a container's programs need, and why"},
    {"move", sandbox_move_main, "NICs into a container's network namespace, with all they have: all of them or none"},
    {"restore", sandbox_restore_main, "give back what `move` took, whatever happened since"},
    {"watch", sandbox_watch_main, "wait for the container's end, then restore"},
    {"status", sandbox_status_main, "which containers have which NICs"},
    {"run", sandbox_run_main, "a command with all of this and no container runtime, and everything given back"},
    {"spec", sandbox_spec_main, "hooks, mounts, devices, environment and limits into an OCI bundle's config.json"},
    {"cdi", sandbox_cdi_main, "the same as a file of the Container Device Interface"},
    {0},
};

int cmd_sandbox(int argc, char **argv)
{
    static const struct tool_actions t = {
        .cmd = "sandbox",
        .about = "NICs, topology and environment that NCCL finds true in a container, and all of it undone afterwards.",
        .action = actions};
    return tool_act(&t, argc, argv);
}
