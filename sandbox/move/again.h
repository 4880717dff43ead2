/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the kernel's state again once the NICs are in the container's network namespace. A NIC that moves loses its
 * addresses, and its RDMA device therefore loses its GIDs. Both are created again, and the GIDs may get different
 * indices. Everything that is derived from a plan after the move (the rebuilt sysfs, NCCL_IB_GID_INDEX) therefore uses
 * the state read here, before any program of the container runs.
 */
#ifndef HW_SANDBOX_AGAIN_H
#define HW_SANDBOX_AGAIN_H

#include "sandbox/plan/plan.h"

/* Maximum time to wait for GIDs, which the kernel creates in a work queue (drivers/infiniband/core/roce_gid_mgmt.c). */
#define SBX_AGAIN_MS  3000
#define SBX_STABLE_MS 200

/* Updates s until the planned RDMA devices have at least as many GIDs for RoCE v2 over IPv4 as before the move and
 * their tables have not changed for SBX_STABLE_MS, or until SBX_AGAIN_MS have passed. Then updates p. sysfs is the
 * sysfs of the container's network namespace (sb_sysfs_open()). Logs devices that are no longer usable. Returns 0 or
 * -errno. */
int sbx_again(struct sbx_snapshot *s, struct sbx_plan *p, const struct sbx_want *want, int sysfs,
              const struct hw_logger *log);
/* Does the same in the network namespace netns, or in the caller's if netns is NULL. Fails with -ESRCH if the process
 * of netns did not start at `start`. netns and start are as in sb_move_options. */
int sbx_again_in(struct sbx_snapshot *s, struct sbx_plan *p, const struct sbx_want *want, const char *netns,
                 uint64_t start, const struct hw_logger *log);

#endif
