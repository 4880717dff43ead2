/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser sandbox`. argv[0] is the action's name. */
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

/* A hw_logger's function: prints a line on stderr. arg: the command's name. */
void sandbox_log(void *arg, int level, const char *line);

/* "auto", "yes", "no", in the order of enum sb_rdma; NULL-terminated. */
extern const char *const sandbox_rdma_words[];
/* Replaces path atomically with the output of put(). put: 0, or -errno with the text set. */
int sandbox_publish(const char *path, int (*put)(const void *arg, FILE *f), const void *arg);
/* Writes NCCL's XML to path, "-" for standard output; atomically. */
int sandbox_topo(const struct sbx_snapshot *s, const struct sbx_plan *p, const char *path);

/* Takes a snapshot of this machine, or (dir) of one with its sys/ and proc/ below dir. The caller frees out, also after
 * a failure. */
int sandbox_take(struct sbx_snapshot *out, const char *dir, bool no_addresses);
/* Writes it to path atomically. */
int sandbox_save(const struct sbx_snapshot *s, const char *path);

/* Options of every action that plans. Their rows are a group of the table of options. */
struct sandbox_args {
    const char *from;  /* a snapshot; NULL: none */
    const char *sysfs; /* without from: the folder with a machine's sys/ and proc/; NULL: this machine's */
    const char *peer;  /* "HOST[:PORT]" of the peer's `hawser serve`, which is asked for its NICs; NULL: none */
    struct common common;
    struct sbx_want want;
};
extern const struct opt sandbox_opts[];
/* Makes the snapshot and its plan. Returns a tool_exit after reporting errors on stderr as `hawser CMD`. The caller
 * frees both in any case. */
int sandbox_make(const char *cmd, const struct sandbox_args *a, struct sbx_snapshot *s, struct sbx_plan *p);

/* Asks a->peer, and returns those of s's NICs that have a partner there: "rdma0,rdma1", which the caller frees; NULL
 * with hw_error(). Warnings go to stderr, with verbose also a line for each NIC of the peer. */
char *sandbox_ask_peer(const char *cmd, struct sandbox_args *a, const struct sbx_snapshot *s, bool verbose);
/* Sorts the peer's NICs by name; partner[k] receives the index in s->net of the partner of peer->nic[k], -1: none.
 * Matches equal names in one subnet, or both routed rails (/31, /32); then subnets; then rails in order; then names
 * alone. No NIC has two partners. */
void sandbox_match(const struct sbx_snapshot *s, struct tp_facts *peer, int partner[TP_MAX_NICS]);

/* Shared by spec and cdi: the options for data passed to a runtime, besides the plan's. */
struct sandbox_bundle_args {
    struct sandbox_args plan;
    struct sbx_env_want env;
    const char *out, *sysfs_out, *topo_at, *journal_dir, *rdma;
    bool no_sysfs, no_arp;
};
extern const struct opt sandbox_bundle_opts[]; /* without sandbox_opts and --out, which each command has itself */

/* The result of these options; in one struct, because sp points into it. */
struct sandbox_bundle {
    struct sbx_snapshot s;
    struct sbx_plan p;
    struct sbx_devs dev;
    char program[4096], *arg[10];
    struct sbx_spec sp;
    struct hw_logger log;
};
/* Plans. File names begin with beside ("/run/hawser/all") unless others are given. Returns a tool_exit. The caller
 * frees b in any case. */
int sandbox_bundle_make(const char *cmd, struct sandbox_bundle *b, const struct sandbox_bundle_args *a,
                        const char *beside);
/* Writes the sysfs and NCCL's XML. 0 or -errno. */
int sandbox_bundle_write(const struct sandbox_bundle *b);
void sandbox_bundle_free(struct sandbox_bundle *b);
/* Writes text and a newline to path with this mode, atomically. */
int sandbox_write(const char *path, const char *text, unsigned mode);

#endif
