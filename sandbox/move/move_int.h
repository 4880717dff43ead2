/* SPDX-License-Identifier: Apache-2.0 */
/* Inside move and restore. */
#ifndef HW_SANDBOX_MOVE_INT_H
#define HW_SANDBOX_MOVE_INT_H

#include "sandbox/netdev/ident.h"
#include "sandbox/netdev/netdev.h"
#include "sys/files.h"
#include "sys/netns.h"

/* ---- namespaces (move_ns.c) ---------------------------------------------------------------------- */

struct sb_ns {
    int fd;  /* -1: there is none */
    int sys; /* its sysfs; -1: not opened yet, see sb_ns_sysfs() */
    struct hw_netlink rt;
    struct sb_ns_id id;
};
#define SB_NS_NONE ((struct sb_ns){.fd = -1, .sys = -1, .rt = {.fd = -1}})

void sb_ns_close(struct sb_ns *n);
/* The calling thread's own. */
int sb_ns_own(struct sb_ns *n);
/* Opens the namespace of a process ("PID"), at a path, or of a name of `ip netns`. path gets it as a path; *holder and
 * *start the process and its start time where it is one's, which then is the process that had this PID all the while.
 */
int sb_ns_open(const char *text, struct sb_ns *n, char path[256], pid_t *holder, uint64_t *start);
/* The container's of a journal: by its pin, by its path, by a process that is in it. -ENOENT: it has ended. */
int sb_ns_find(const struct sb_journal *j, int dir, const char *id, struct sb_ns *n);
/* What is at path, is it that namespace? */
bool sb_ns_at(const char *path, const struct sb_ns_id *id);
/* Is any process in it? */
bool sb_ns_inhabited(const struct sb_ns_id *id);
bool sb_ns_same(const struct sb_ns_id *a, const struct sb_ns_id *b);
/* Returns the namespace's sysfs (see ident.h), which n keeps, or -errno. */
int sb_ns_sysfs(struct sb_ns *n);
/* Calls fn for each namespace that some thread of the machine is in or has a descriptor of; what fn returns other than
 * -ENODEV ends the search and is returned. -ENODEV. */
int sb_ns_search(int (*fn)(struct sb_ns *n, void *arg), void *arg);

/* Keeps a namespace as DIR/ID.netns; lets it go, where it is kept. */
int sb_pin(int dir, const char *id, int ns);
int sb_unpin(int dir, const char *id);

/* Has the container of a journal ended? */
bool sb_ended(const struct sb_journal *j);

/* ---- RDMA devices (netdev_rdma.c) ---------------------------------------------------------------- */

/* Adds to j the RDMA devices that go along, by what `how` says. */
int sb_rdma_plan(struct sb_journal *j, enum sb_rdma how, const struct hw_logger *log);
/* Moves one (by its index, which it keeps) from the namespace `from` to another, under this name. -ENODEV where it is
 * not in `from`. */
int sb_rdma_move(const struct sb_ns *from, int to, int index, const char *name);

/* ---- where is a NIC? (move_find.c) ---------------------------------------------------------------- */

/* Returns whether a link is of a device of the machine's: its place on a bus is nothing that a tenant can make. */
bool sb_link_hardware(const struct sb_link *l);
/* Finds the NIC in the namespace. hint: the name that it probably has. 0 with *l; -ENODEV; -errno. */
int sb_nic_find(struct sb_ns *n, const struct sb_jnic *k, const char *hint, struct sb_link *l);

/* ---- back (move_restore.c) ----------------------------------------------------------------------- */

/* Gives back all that j says was taken, and drops pin and journal when that is done (or forget is set). */
int sb_give_back(struct sb_journal *j, int dir, const char *id, bool forget, const struct hw_logger *log,
                 unsigned *lost);

#endif
