/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser sandbox`. argv[0] is the action's name. */
#ifndef HW_TOOL_SANDBOX_H
#define HW_TOOL_SANDBOX_H

#include "sandbox/plan.h"

int sandbox_plan_main(int argc, char **argv);
int sandbox_snapshot_main(int argc, char **argv);
int sandbox_sysfs_main(int argc, char **argv);
int sandbox_env_main(int argc, char **argv);
int sandbox_move_main(int argc, char **argv);
int sandbox_restore_main(int argc, char **argv);
int sandbox_watch_main(int argc, char **argv);
int sandbox_status_main(int argc, char **argv);

/* A hw_logger's function: a line on stderr. arg: the command's name. */
void sandbox_log(void *arg, int level, const char *line);

/* A snapshot of this machine, or (dir) of one whose sys/ and proc/ are below dir. To be freed, also after a failure. */
int sandbox_take(struct sbx_snapshot *out, const char *dir, bool no_addresses);
/* Writes it to path: all of it, or nothing has changed there. */
int sandbox_save(const struct sbx_snapshot *s, const char *path);

/* What every action that plans takes. Their rows in a table of options, in SANDBOX_ARGS for the usage line. */
struct sandbox_args {
    const char *from;  /* a snapshot; NULL: none */
    const char *sysfs; /* without from: the folder of a machine's sys/ and proc/; NULL: this machine's */
    struct sbx_want want;
};
enum {
    SANDBOX_EXCLUDE = 600,
    SANDBOX_PEER,
    SANDBOX_BOOTSTRAP,
    SANDBOX_REQUIRE_IPV4,
    SANDBOX_FORCE,
    SANDBOX_ALL_NICS,
};
#define SANDBOX_OPTS                                                                                             \
    {"from", 'f', "FILE", "another machine, out of a snapshot, instead of this one"},                            \
        {"sysfs", 's', "DIR", "the machine whose sys/ and proc/ are below DIR, instead of this one"},            \
        {"nics", 'n', "NIC[,..]", "only these NICs or RDMA devices; none: no NIC (default: see hawser(1))"},     \
        {"gpus", 'g', "LIST", "only these GPUs: 0-3,6, or none (default: all)"},                                 \
        {"exclude", SANDBOX_EXCLUDE, "REGEX", "leave out NICs like this; empty: none (default: ^eth[0-9]+$)"},   \
        {"peer-nics", SANDBOX_PEER, "NIC[,..]", "only NICs that the peer has too, by name"},                     \
        {"bootstrap", SANDBOX_BOOTSTRAP, "ADDR", "this node's address where the nodes meet: its NIC stays"},     \
        {"require-ipv4", SANDBOX_REQUIRE_IPV4, NULL, "a NIC without an IPv4 address is an error, not left out"}, \
        {"force", SANDBOX_FORCE, NULL, "take NICs with a default route or the bootstrap address too"},           \
    {                                                                                                            \
        "all-nics", SANDBOX_ALL_NICS, NULL, "show the PCI devices of all NICs in sysfs, usable or not"           \
    }

/* Takes option id if it is one of these. */
bool sandbox_option(struct sandbox_args *a, int id, const char *arg);
/* The snapshot and its plan. Returns a tool_exit, said on stderr as `hawser CMD`'s. Both to be freed after either. */
int sandbox_make(const char *cmd, const struct sandbox_args *a, struct sbx_snapshot *s, struct sbx_plan *p);

#endif
