/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser sandbox`. argv[0] is the action's name. */
#ifndef HW_TOOL_SANDBOX_H
#define HW_TOOL_SANDBOX_H

#include "oci/spec.h"
#include "sandbox/move/move.h"
#include "tool/opts_old.h"
#include "tool/peer/proto.h"

#include <stdio.h>

int sandbox_plan_main(int argc, char **argv);
int sandbox_snapshot_main(int argc, char **argv);
int sandbox_sysfs_main(int argc, char **argv);
int sandbox_env_main(int argc, char **argv);
int sandbox_move_main(int argc, char **argv);
int sandbox_restore_main(int argc, char **argv);
int sandbox_watch_main(int argc, char **argv);
int sandbox_status_main(int argc, char **argv);
int sandbox_run_main(int argc, char **argv);
int sandbox_spec_main(int argc, char **argv);
int sandbox_cdi_main(int argc, char **argv);

/* A hw_logger's function: a line on stderr. arg: the command's name. */
void sandbox_log(void *arg, int level, const char *line);

/* "auto", "yes", "no"; false: something else. */
bool sandbox_rdma(const char *text, enum sb_rdma *out);
/* What put() writes comes to path: all of it, or nothing has changed there. put: 0, or -errno with the text set. */
int sandbox_publish(const char *path, int (*put)(const void *arg, FILE *f), const void *arg);
/* NCCL's XML to path, "-" for standard output: all of it, or nothing has changed there. */
int sandbox_topo(const struct sbx_snapshot *s, const struct sbx_plan *p, const char *path);

/* A snapshot of this machine, or (dir) of one whose sys/ and proc/ are below dir. To be freed, also after a failure. */
int sandbox_take(struct sbx_snapshot *out, const char *dir, bool no_addresses);
/* Writes it to path: all of it, or nothing has changed there. */
int sandbox_save(const struct sbx_snapshot *s, const char *path);

/* What every action that plans takes. Their rows in a table of options, in SANDBOX_ARGS for the usage line. */
struct sandbox_args {
    const char *from;  /* a snapshot; NULL: none */
    const char *sysfs; /* without from: the folder of a machine's sys/ and proc/; NULL: this machine's */
    const char *peer;  /* "HOST[:PORT]" of its `hawser serve`, which is asked for its NICs; NULL: nobody */
    struct common common;
    struct sbx_want want;
};
enum {
    SANDBOX_EXCLUDE = 600,
    SANDBOX_PEER,
    SANDBOX_BOOTSTRAP,
    SANDBOX_REQUIRE_IPV4,
    SANDBOX_FORCE,
    SANDBOX_ALL_NICS,
    SANDBOX_ASK,
    SANDBOX_KEY,
    SANDBOX_INSECURE,
};
#define SANDBOX_OPTS                                                                                              \
    {"from", 'f', "FILE", "another machine, out of a snapshot, instead of this one"},                             \
        {"sysfs", 's', "DIR", "the machine whose sys/ and proc/ are below DIR, instead of this one"},             \
        {"nics", 'n', "NIC[,..]", "only these NICs or RDMA devices; none: no NIC (default: see hawser(1))"},      \
        {"gpus", 'g', "LIST", "only these GPUs: 0-3,6, or none (default: all)"},                                  \
        {"exclude", SANDBOX_EXCLUDE, "REGEX",                                                                     \
         "leave out NICs like this; empty: none (default: ^eth[0-9]+$, where no GPU is beside)"},                 \
        {"peer-nics", SANDBOX_PEER, "NIC[,..]", "only NICs that the peer has too, by name"},                      \
        {"peer", SANDBOX_ASK, "HOST[:PORT]", "only NICs that have a partner there; its `hawser serve` is asked"}, \
        {"key-file", SANDBOX_KEY, "FILE", "the job key for --peer"},                                              \
        {"insecure", SANDBOX_INSECURE, NULL, "--peer at any address without a key"},                              \
        {"bootstrap", SANDBOX_BOOTSTRAP, "ADDR", "this node's address where the nodes meet: its NIC stays"},      \
        {"require-ipv4", SANDBOX_REQUIRE_IPV4, NULL, "a NIC without an IPv4 address is an error, not left out"},  \
        {"force", SANDBOX_FORCE, NULL, "take NICs with a default route or the bootstrap address too"},            \
    {                                                                                                             \
        "all-nics", SANDBOX_ALL_NICS, NULL, "show the PCI devices of all NICs in sysfs, usable or not"            \
    }

/* Takes option id if it is one of these. */
bool sandbox_option(struct sandbox_args *a, int id, const char *arg);
/* The snapshot and its plan. Returns a tool_exit, said on stderr as `hawser CMD`'s. Both to be freed after either. */
int sandbox_make(const char *cmd, const struct sandbox_args *a, struct sbx_snapshot *s, struct sbx_plan *p);

/* Asks a->peer, and returns which of s's NICs have a partner there: "rdma0,rdma1", to be freed; NULL with hw_error().
 * Warnings go to stderr, and with verbose a line for each NIC of the peer's. */
char *sandbox_ask_peer(const char *cmd, struct sandbox_args *a, const struct sbx_snapshot *s, bool verbose);
/* Sorts the peer's NICs by name; partner[k] gets the place in s->net of the NIC that belongs to peer->nic[k], -1 for
 * none. By equal names in one subnet, or both routed rails (/31, /32); then by subnets; then rails in their order; then
 * by names alone. No NIC has two partners. */
void sandbox_match(const struct sbx_snapshot *s, struct tp_facts *peer, int partner[TP_MAX_NICS]);

/* What spec and cdi share: the options of what is handed to a runtime, besides the plan's. */
struct sandbox_bundle_args {
    struct sandbox_args plan;
    struct sbx_env_want env;
    const char *out, *sysfs_out, *topo_at, *journal_dir, *rdma;
    bool no_sysfs, no_arp;
};
enum {
    BUNDLE_SYSFS_OUT = 700,
    BUNDLE_NO_SYSFS,
    BUNDLE_TOPO,
    BUNDLE_JOURNAL,
    BUNDLE_RDMA,
    BUNDLE_NO_ARP,
    BUNDLE_PLUGIN,
    BUNDLE_DEBUG_ALL
};
#define SANDBOX_BUNDLE_OPTS                                                                                          \
    {"sysfs-out", BUNDLE_SYSFS_OUT, "DIR", "where the rebuilt sysfs is written to"},                                 \
        {"no-sysfs", BUNDLE_NO_SYSFS, NULL, "leave the container's /sys as it is"},                                  \
        {"nccl-topo", BUNDLE_TOPO, "PATH", "NCCL_TOPO_FILE as well: mounted there in the container"},                \
        {"net-plugin", BUNDLE_PLUGIN, "NAME", "NCCL_NET_PLUGIN (default: hawser where there is no RDMA device)"},    \
        {"debug-all", BUNDLE_DEBUG_ALL, NULL, "all that finds faults, at a cost"},                                   \
        {"rdma", BUNDLE_RDMA, "auto|yes|no", "the NICs' RDMA devices too: where they can go, or else fail, or not"}, \
        {"no-arp", BUNDLE_NO_ARP, NULL, "leave ARP as the container has it"},                                        \
    {                                                                                                                \
        "journal-dir", BUNDLE_JOURNAL, "DIR", "where the hooks keep journals (default: " SB_JOURNAL_DIR ")"          \
    }
/* Takes option id if it is one of these or of the plan's; 0, or a tool_exit said on stderr. */
int sandbox_bundle_option(const char *cmd, struct sandbox_bundle_args *a, int id, const char *arg);

/* What is made of them; all in one piece, since sp points into it. */
struct sandbox_bundle {
    struct sbx_snapshot s;
    struct sbx_plan p;
    struct sbx_devs dev;
    char program[4096], *arg[10];
    struct sbx_spec sp;
    struct hw_logger log;
};
/* Plans. The files are to be at names that begin with beside ("/run/hawser/all") unless others are said. A tool_exit.
 * To be freed either way. */
int sandbox_bundle_make(const char *cmd, struct sandbox_bundle *b, const struct sandbox_bundle_args *a,
                        const char *beside);
/* Writes the sysfs and NCCL's XML. 0 or -errno. */
int sandbox_bundle_write(const struct sandbox_bundle *b);
void sandbox_bundle_free(struct sandbox_bundle *b);
/* Writes text and a newline to path, with this mode: all of it, or nothing has changed there. */
int sandbox_write(const char *path, const char *text, unsigned mode);

#endif
