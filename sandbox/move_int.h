/* SPDX-License-Identifier: Apache-2.0 */
/* Inside move and restore. */
#ifndef HW_SANDBOX_MOVE_INT_H
#define HW_SANDBOX_MOVE_INT_H

#include "lab/netns.h"
#include "sandbox/netdev.h"

/* ---- namespaces (move_ns.c) ---------------------------------------------------------------------- */

struct sb_ns {
    int fd; /* -1: there is none */
    struct hw_rtnl rt;
    struct sb_ns_id id;
};

void sb_ns_close(struct sb_ns *n);
/* The calling thread's own. */
int sb_ns_own(struct sb_ns *n);
/* "PID", a path, or a name of `ip netns`. path gets it as a path, *holder the process where it is one's. */
int sb_ns_open(const char *text, struct sb_ns *n, char path[256], pid_t *holder);
/* The container's of a journal: by its pin, by its path, by a process that is in it. -ENOENT: it has ended. */
int sb_ns_find(const struct sb_journal *j, int dir, const char *id, struct sb_ns *n);
/* What is at path, is it that namespace? */
bool sb_ns_at(const char *path, const struct sb_ns_id *id);
/* Is any process in it? */
bool sb_ns_inhabited(const struct sb_ns_id *id);
bool sb_ns_same(const struct sb_ns_id *a, const struct sb_ns_id *b);

/* Keeps a namespace as DIR/ID.netns; lets it go, where it is kept. */
int sb_pin(int dir, const char *id, int ns);
int sb_unpin(int dir, const char *id);

/* When a process began, in the clock ticks of /proc/PID/stat; 0: there is none. */
uint64_t sb_process_start(pid_t pid);
int sb_boot_id(char out[64]);
/* Has the container of a journal ended? */
bool sb_ended(const struct sb_journal *j);

/* ---- RDMA devices (netdev_rdma.c) ---------------------------------------------------------------- */

/* Adds to j the RDMA devices that go along, by what `how` says. */
int sb_rdma_plan(struct sb_journal *j, enum sb_rdma how, const struct hw_logger *log);
/* Moves one (by its index, which it keeps) from the namespace `from` to another. -ENODEV where it is not in `from`. */
int sb_rdma_move(const struct sb_ns *from, int to, int index, const char *name);

/* ---- back (move_restore.c) ----------------------------------------------------------------------- */

/* Gives back all that j says was taken, and drops pin and journal when that is done (or forget is set). */
int sb_give_back(struct sb_journal *j, int dir, const char *id, bool forget, const struct hw_logger *log,
                 unsigned *lost);

#endif
