/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox: its actions, one file each (sandbox_*.c). */
#include "tool/sandbox/sandbox.h"
#include "tool/tool.h"

static const struct tool_action actions[] = {
    {"plan", sandbox_plan_main, "[PLAN OPTION...] [--json]",
     "which NICs, RDMA devices and GPUs a container gets, and why each other one does not"},
    {"snapshot", sandbox_snapshot_main, "[--out FILE] [--sysfs DIR] [--no-addresses]",
     "what a container's sysfs is rebuilt from, as one JSON file"},
    {"sysfs", sandbox_sysfs_main,
     "--out DIR | --fuse MOUNTPOINT [--foreground] | --nccl-topo FILE\n            [PLAN OPTION...]",
     "the sysfs that a container is to see, as a folder, by FUSE, or as NCCL's XML"},
    {"env", sandbox_env_main,
     "[--shell | --json] [--nccl-topo FILE] [--net-plugin NAME] [--debug-all] [--moved]\n            [PLAN OPTION...]",
     "the environment that a container's programs need, and why"},
    {"move", sandbox_move_main,
     "ID --netns NETNS --nics NIC[=NAME][,..] [--rdma auto|yes|no] [--no-arp] [--force]\n"
     "            [--journal-dir DIR] [--verbose]",
     "NICs into a container's network namespace, with all they have: all of them or none"},
    {"restore", sandbox_restore_main, "ID [--forget] [--journal-dir DIR] [--verbose]",
     "give back what `move` took, whatever happened since"},
    {"watch", sandbox_watch_main, "ID [--forget] [--journal-dir DIR] [--verbose]",
     "wait for the container's end, then restore"},
    {"status", sandbox_status_main, "[ID] [--json] [--journal-dir DIR]", "which containers have which NICs"},
    {"run", sandbox_run_main,
     "[--id ID] [--netns NETNS] [--no-sysfs] [--net-plugin NAME] [--debug-all] [PLAN OPTION...]\n"
     "            -- COMMAND [ARGUMENT...]",
     "a command with all of this and no container runtime, and everything given back"},
    {"spec", sandbox_spec_main,
     "CONFIG [--out FILE] [--sysfs-out DIR | --no-sysfs] [--nccl-topo PATH] [PLAN OPTION...] | CONFIG --undo",
     "hooks, mounts, devices, environment and limits into an OCI bundle's config.json"},
    {"cdi", sandbox_cdi_main,
     "[--name NAME] [--out FILE] [--sysfs-out DIR | --no-sysfs] [--nccl-topo PATH] [--no-env] [PLAN OPTION...]",
     "the same as a file of the Container Device Interface"},
    {0},
};

/* Of all actions that plan. */
static const char plan_options[] =
    "Plan options: [--from FILE | --sysfs DIR] [--nics NIC[,..]] [--gpus LIST] [--exclude REGEX]\n"
    "  [--peer-nics NIC[,..] | --peer HOST[:PORT] [--key-file FILE] [--insecure]] [--bootstrap ADDR]\n"
    "  [--require-ipv4] [--force] [--all-nics]\n";

static void print_sandbox_help(void)
{
    printf("Usage: hawser sandbox ACTION [OPTION...]\n\n"
           "NICs, topology and environment that NCCL finds true in a container, and all of it undone afterwards.\n\n");
    for (const struct tool_action *a = actions; a->name; a++)
        printf("  %-9s %s\n            %s\n", a->name, a->args, a->summary);
    printf("\n%s\n`hawser sandbox ACTION --help` says more.\n", plan_options);
}

int cmd_sandbox(int argc, char **argv)
{
    return tool_act("sandbox", actions, print_sandbox_help, argc, argv);
}
