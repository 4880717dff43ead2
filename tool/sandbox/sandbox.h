/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser sandbox`, and code that they share. argv[0] is the action's name. */
#ifndef HW_TOOL_SANDBOX_H
#define HW_TOOL_SANDBOX_H

#include "oci/spec.h"
#include "sandbox/move/move.h"
#include "tool/opts.h"
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

/* Log function for a struct hw_logger: prints a line to stderr. arg is the command's name. */
void sandbox_log(void *arg, int level, const char *line);

/* "auto", "yes" and "no", in the order of enum sb_rdma; terminated by NULL. */
extern const char *const sandbox_rdma_words[];
/* Replaces path atomically with the output of put(), which returns 0, or -errno with an error text. */
int sandbox_publish(const char *path, int (*put)(const void *arg, FILE *f), const void *arg);
/* Writes NCCL's XML to path, atomically, or to standard output if path is "-". */
int sandbox_topo(const struct sbx_snapshot *s, const struct sbx_plan *p, const char *path);

/* Takes a snapshot of this machine or, if dir is not NULL, of a machine whose sys/ and proc/ are below dir. The caller
 * frees out, even after a failure. */
int sandbox_take(struct sbx_snapshot *out, const char *dir, bool no_addresses);
/* Writes the snapshot to path, atomically. */
int sandbox_save(const struct sbx_snapshot *s, const char *path);

/* Options of every action that makes a plan. Their rows are a group in the action's table of options. */
struct sandbox_args {
    const char *from;  /* path of a snapshot, or NULL */
    const char *sysfs; /* folder with a machine's sys/ and proc/, or NULL for this machine; not with from */
    const char *peer;  /* "HOST[:PORT]" of the peer's `hawser serve`, which is queried for its NICs, or NULL */
    struct common common;
    struct sbx_want want;
};
extern const struct opt sandbox_opts[];
/* Makes the snapshot and its plan. Returns an exit code, after reporting errors to stderr as `hawser CMD`. The caller
 * frees s and p in any case. */
int sandbox_make(const char *cmd, const struct sandbox_args *a, struct sbx_snapshot *s, struct sbx_plan *p);

/* Queries the NICs of a->peer, and returns the names of those NICs of s that have a partner at the peer, as in
 * "rdma0,rdma1". The caller frees the result. Returns NULL with hw_error() on failure. Prints warnings to stderr and,
 * if verbose is set, a line for each address of the peer's NICs. */
char *sandbox_ask_peer(const char *cmd, struct sandbox_args *a, const struct sbx_snapshot *s, bool verbose);
/* Sorts the peer's NICs by name. partner[k] receives the index in s->net of the partner of peer->nic[k], or -1 if there
 * is none. Matches first NICs with equal names that are in the same subnet or are both routed rails (such as /31), or
 * any with equal names if s has no addresses. Then matches NICs in the same subnet, and then rails in order, if both
 * NICs or neither have an RDMA device. Finally, matches equal names alone. No NIC has two partners. */
void sandbox_match(const struct sbx_snapshot *s, struct tp_facts *peer, int partner[TP_MAX_NICS]);

/* Options of spec and cdi for the data that is passed to a runtime, in addition to the options of the plan. */
struct sandbox_bundle_args {
    struct sandbox_args plan;
    struct sbx_env_want env;
    const char *out, *sysfs_out, *topo_at, *journal_dir, *rdma;
    bool no_sysfs, no_arp;
};
extern const struct opt sandbox_bundle_opts[]; /* without sandbox_opts and --out, which each command adds itself */

/* The data that spec and cdi make from struct sandbox_bundle_args. sp has pointers to other members. */
struct sandbox_bundle {
    struct sbx_snapshot s;
    struct sbx_plan p;
    struct sbx_devs dev;
    char program[4096], *arg[10];
    struct sbx_spec sp;
    struct hw_logger log;
};
/* Makes the plan and the data for a runtime. File names begin with `beside`, such as "/run/hawser/all", unless the
 * options specify others. Returns an exit code. The caller frees b in any case. */
int sandbox_bundle_make(const char *cmd, struct sandbox_bundle *b, const struct sandbox_bundle_args *a,
                        const char *beside);
/* Writes the sysfs and NCCL's XML, as far as the options request them. Returns 0 or -errno. */
int sandbox_bundle_write(const struct sandbox_bundle *b);
void sandbox_bundle_free(struct sandbox_bundle *b);
/* Writes text and a newline to path with this mode, atomically. */
int sandbox_write(const char *path, const char *text, unsigned mode);

#endif
