/* SPDX-License-Identifier: Apache-2.0 */
/* hawser oci-hook: OCI runtimes call this command when a container is created, and after a container has ended. */
#include "oci/oci.h"
#include "tool/sandbox/sandbox.h"
#include "tool/tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CMD "oci-hook"

static void print_oci_hook_help(void)
{
    printf("Usage: hawser oci-hook createRuntime|poststop [SETTING=VALUE...]\n\n"
           "A hook for crun, runc and the runtimes built on them, which write the\n"
           "container's state to the hook's standard input. createRuntime moves NICs into\n"
           "the container, and poststop returns them. Only these settings decide what a\n"
           "container may get. Annotations, which a tenant can write, only choose among\n"
           "what the settings allow: hawser.nics, hawser.gpus, hawser.peer-nics,\n"
           "hawser.bootstrap, hawser.require-ipv4 and hawser.rdma.\n\n"
           "  nics=NIC[,..]         move these NICs, or the NICs of these RDMA devices; all:\n"
           "                        the suitable NICs; none (the default)\n"
           "  offer=NIC[,..]        like nics, but move only those that the container's\n"
           "                        annotation hawser.nics lists\n"
           "  gpus=LIST             show only these GPUs in sysfs: 0-3,6, or none\n"
           "  exclude=REGEX         leave out NICs whose names match; empty: leave out none\n"
           "                        (default: ^eth[0-9]+$, except NICs near a GPU)\n"
           "  peer-nics=NIC[,..]    move only NICs that have the same name as one of these\n"
           "                        NICs of the peer\n"
           "  bootstrap=ADDR        this node's rendezvous address; do not move its NIC\n"
           "  require-ipv4=yes|no   fail if a NIC has no IPv4 address (default: no)\n"
           "  force=yes|no          take NICs with a default route or the bootstrap address\n"
           "                        too (default: no)\n"
           "  all-nics=yes|no       show the PCI devices of all NICs in sysfs (default: no)\n"
           "  sysfs=yes|no|DIR      mount the rebuilt sysfs, or the folder DIR, over the\n"
           "                        container's /sys (default: no)\n"
           "  rdma=auto|yes|no      also move the NICs' RDMA devices (default: auto)\n"
           "  arp=yes|no            change ARP settings and add source-based routes, so\n"
           "                        that each NIC serves only its addresses (default: yes)\n"
           "  id=ID                 the container's name in the journal (default: its id)\n"
           "  journal-dir=DIR       folder of the journals\n"
           "                        (default: " SB_JOURNAL_DIR ")\n");
}

int cmd_oci_hook(int argc, char **argv)
{
    if (argc < 2)
        return tool_usage(CMD, "action is missing: createRuntime or poststop");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_oci_hook_help();
        return TOOL_OK;
    }
    bool create = strcmp(argv[1], "createRuntime") == 0;
    if (!create && strcmp(argv[1], "poststop") != 0)
        return tool_usage(CMD, "unknown action '%s': must be createRuntime or poststop", argv[1]);
    char cmd[] = CMD;
    struct hw_logger log = {.fn = sandbox_log, .arg = cmd, .level = HAWSER_LOG_WARN};
    struct sbx_oci o = {.log = &log};
    int rc = 0;
    for (int i = 2; i < argc && rc == 0; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) {
            rc = hw_fail(-EINVAL, "'%s' is not SETTING=VALUE", argv[i]);
            break;
        }
        *value++ = 0;
        rc = sbx_setting(&o.set, argv[i], value, false);
    }
    if (rc == 0)
        rc = create ? sbx_hook_create(&o, STDIN_FILENO) : sbx_hook_stop(&o, STDIN_FILENO);
    sbx_oci_free(&o);
    return rc < 0 ? tool_fail(CMD, "%s: %s", argv[1], hw_error()) : TOOL_OK;
}
