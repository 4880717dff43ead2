/* SPDX-License-Identifier: Apache-2.0 */
/* Internal declarations for moving NICs. */
#ifndef HW_SANDBOX_MOVE_INT_H
#define HW_SANDBOX_MOVE_INT_H

#include "sandbox/netdev/ident.h"
#include "sandbox/netdev/netdev.h"
#include "sys/files.h"
#include "sys/netns.h"

/* ---- namespaces (move_ns.c) ---------------------------------------------------------------------- */

struct sb_ns {
    int fd;  /* -1 if there is none */
    int sys; /* descriptor of the namespace's sysfs; negative if it is not open, see sb_ns_sysfs() */
    struct hw_netlink rt;
    struct sb_ns_id id;
};
#define SB_NS_NONE ((struct sb_ns){.fd = -1, .sys = -1, .rt = {.fd = -1}})

void sb_ns_close(struct sb_ns *n);
/* Opens the calling thread's namespace. */
int sb_ns_own(struct sb_ns *n);
/* Opens the namespace of a process ("PID"), at a path, or with a name of `ip netns`. Stores the namespace's path in
 * path. If text specifies a process, *holder and *start receive the process and its start time. On Linux 5.3 and later,
 * also verifies that the PID belonged to the same process throughout. */
int sb_ns_open(const char *text, struct sb_ns *n, char path[256], pid_t *holder, uint64_t *start);
/* Finds the namespace of a journal's container by its pin, by its path, or through a process in it. Fails with -ENOENT
 * if none of these refers to the namespace. */
int sb_ns_find(const struct sb_journal *j, int dir, const char *id, struct sb_ns *n);
/* Returns true if the file at path refers to the namespace with this id. */
bool sb_ns_at(const char *path, const struct sb_ns_id *id);
/* Returns true if a process is in the namespace. */
bool sb_ns_inhabited(const struct sb_ns_id *id);
bool sb_ns_same(const struct sb_ns_id *a, const struct sb_ns_id *b);
/* Returns the file descriptor of the namespace's sysfs (see ident.h), which n owns, or -errno. */
int sb_ns_sysfs(struct sb_ns *n);
/* Calls fn for each network namespace that contains a thread of a process in /proc, or to which such a process has a
 * file descriptor.
 * A result of fn other than -ENODEV ends the search and is returned. Returns -ENODEV if no namespace matched. */
int sb_ns_search(int (*fn)(struct sb_ns *n, void *arg), void *arg);

/* sb_pin() keeps a namespace as DIR/ID.netns. sb_unpin() releases it if it is kept. */
int sb_pin(int dir, const char *id, int ns);
int sb_unpin(int dir, const char *id);

/* Returns true if the container of a journal has ended. */
bool sb_ended(const struct sb_journal *j);

/* ---- RDMA devices (netdev_rdma.c) ---------------------------------------------------------------- */

/* Adds to j the RDMA devices that move with the NICs, according to `how`. */
int sb_rdma_plan(struct sb_journal *j, enum sb_rdma how, const struct hw_logger *log);
/* Moves an RDMA device, which keeps its index, from the namespace `from` to the namespace `to`, and gives the device
 * this name. Fails with -ENODEV if the device is not in `from`. */
int sb_rdma_move(const struct sb_ns *from, int to, int index, const char *name);

/* ---- finding a NIC (move_find.c) ------------------------------------------------------------------ */

/* Returns true if a link is hardware of the machine. A tenant cannot forge the bus address of hardware. */
bool sb_link_hardware(const struct sb_link *l);
/* Finds the NIC in the namespace. hint is its probable name. Returns 0 and sets *l, or fails with -ENODEV or another
 * -errno. */
int sb_nic_find(struct sb_ns *n, const struct sb_jnic *k, const char *hint, struct sb_link *l);

/* ---- restore (move_restore.c) -------------------------------------------------------------------- */

/* Restores everything in j, and then removes the pin and the journal. If forget is true, removes them even if something
 * could not be restored. Removes nothing if the restore cannot begin, for example with -EXDEV outside the namespace
 * that the NICs come from. */
int sb_give_back(struct sb_journal *j, int dir, const char *id, bool forget, const struct hw_logger *log,
                 unsigned *lost);

#endif
