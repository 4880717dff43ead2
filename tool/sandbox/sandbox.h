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

/* A hw_logger's function: a line on stderr. arg: the command's name. */
void sandbox_log(void *arg, int level, const char *line);

/* "auto", "yes", "no", as enum sb_rdma has them; ends with NULL. */
extern const char *const sandbox_rdma_words[];
/* What put() writes comes to path: all of it, or nothing has changed there. put: 0, or -errno with the text set. */
int sandbox_publish(const char *path, int (*put)(const void *arg, FILE *f), const void *arg);
/* NCCL's XML to path, "-" for standard output: all of it, or nothing has changed there. */
int sandbox_topo(const struct sbx_snapshot *s, const struct sbx_plan *p, const char *path);

/* A snapshot of this machine, or (dir) of one whose sys/ and proc/ are below dir. To be freed, also after a failure. */
int sandbox_take(struct sbx_snapshot *out, const char *dir, bool no_addresses);
/* Writes it to path: all of it, or nothing has changed there. */
int sandbox_save(const struct sbx_snapshot *s, const char *path);

/* What every action that plans takes. Their rows are a group of the table of options. */
struct sandbox_args {
    const char *from;  /* a snapshot; NULL: none */
    const char *sysfs; /* without from: the folder of a machine's sys/ and proc/; NULL: this machine's */
    const char *peer;  /* "HOST[:PORT]" of its `hawser serve`, which is asked for its NICs; NULL: nobody */
    struct common common;
    struct sbx_want want;
};
extern const struct opt sandbox_opts[];
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
extern const struct opt sandbox_bundle_opts[]; /* without sandbox_opts, but for --out, which each has itself */

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
