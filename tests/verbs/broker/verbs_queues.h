/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for test programs: objects that mlx5 creates in the application's memory, and MRs that are reregistered. */
#ifndef VERBS_QUEUES_H
#define VERBS_QUEUES_H

#include "tests/fakes/verbs/verbs_fake.h"
#include "verbs/policy/policy.h"

#include <rdma/mlx5-abi.h>

/* The driver's part of each request: addresses at the start, zeros after them. */
union app_uhw {
    struct {
        uint64_t buf_addr, db_addr;
    };
    struct mlx5_ib_create_cq cq;
    struct mlx5_ib_resize_cq resize;
    struct mlx5_ib_create_srq srq;
    struct mlx5_ib_create_qp qp;
    struct mlx5_ib_create_wq wq;
};

/* Returns a driver part with the given addresses. An initializer would leave the ends of the longer members
 * undefined. */
union app_uhw app_uhw_at(uint64_t buf_addr, uint64_t db_addr);

/* Each function creates a queue. On success, it returns 0, and stores the queue's number and the driver's token. On
 * failure, it returns -errno. channel -1 means no channel. */
#define APP_QUEUES 7
extern const struct app_queue {
    const char *name;
    int (*make)(int fd, int channel, const union app_uhw *u, uint32_t *number, uint32_t *token);
    uint16_t object;
    bool channel;         /* accepts a completion channel */
} app_queues[APP_QUEUES]; /* CREATE_CQ is the first entry */
int app_queue_destroy(int fd, uint16_t object, uint32_t number);
int app_queue_resize(int fd, uint32_t number, uint64_t address); /* resizes a CQ to 32 entries */

/* include/rdma/ib_verbs.h: IB_MR_REREG_TRANS, IB_MR_REREG_ACCESS */
#define REREG_TRANS  1u
#define REREG_ACCESS 4u
int app_rereg(int fd, uint32_t number, uint32_t flags, uint64_t address, uint64_t length, uint32_t access);

#endif
