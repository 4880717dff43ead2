/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the inputs of a request, the size of the memory that the request registers, and the size of its queues. */
#include "verbs/policy/policy_int.h"
#include "verbs/schema/newer.h"

#include <rdma/efa-abi.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

/* IB_MR_REREG_TRANS and IB_MR_REREG_ACCESS of include/rdma/ib_verbs.h */
#define REREG_TRANS  1u
#define REREG_ACCESS 4u

bool vb_attr_bytes(const struct vb_request *r, uint16_t id, void *dst, size_t n)
{
    const struct vb_attr *a = vb_attr_find(r, id);
    memset(dst, 0, n);
    if (!a)
        return false;
    /* Up to 8 bytes are stored in data (uverbs_attr_ptr_is_inline()). The length of a handle is 0. */
    if (a->len > 0)
        memcpy(dst, r->copy + a->at, HW_MIN((size_t)a->len, n));
    else
        memcpy(dst, &a->raw.data, HW_MIN(n, a->raw.len ? (size_t)HW_MIN(a->raw.len, 8) : 8));
    return true;
}

uint64_t vb_attr_u64(const struct vb_request *r, uint16_t id)
{
    uint64_t v = 0;
    vb_attr_bytes(r, id, &v, sizeof(v));
    return v;
}

/* Returns the size of the pages that contain the memory, in bytes. Returns 2^56, the size of the largest user address
 * space, if length exceeds it, because the length of an on-demand MR may be UINT64_MAX ("all memory"). */
uint64_t vb_pinned_bytes(uint64_t start, uint64_t length)
{
    const uint64_t page = 4096, most = 1ull << 56;
    if (length > most)
        return most;
    return ((start & (page - 1)) + length + page - 1) & ~(page - 1);
}

/* Supports REG_MR as a command of INVOKE_WRITE and as a method (since Linux 6.17). */
bool vb_mr_place(struct vb_request *r, uint64_t *length, uint64_t *iova)
{
    struct ib_uverbs_reg_mr in;
    if (r->core_in && r->core_in_len >= sizeof in) {
        memcpy(&in, r->core_in, sizeof in);
        *length = in.length;
        *iova = in.hca_va;
        return true;
    }
    const struct vb_attr *l = vb_request_attr(r, REG_MR_LENGTH), *v = vb_request_attr(r, REG_MR_IOVA);
    if (r->core_in || !l || !v)
        return false;
    *length = l->raw.data; /* a value of 8 bytes is stored in data */
    *iova = v->raw.data;
    return true;
}

static void mr_ask(const struct vb_request *r, struct vb_mr_ask *m)
{
    const struct vb_command *c = r->command;
    if (c->object == UVERBS_OBJECT_DEVICE && c->method == UVERBS_METHOD_INVOKE_WRITE) {
        if (c->command == IB_USER_VERBS_CMD_REG_MR) {
            struct ib_uverbs_reg_mr in;
            vb_core_in(r, &in, sizeof(in));
            m->kind = VB_MR_NEW;
            m->bytes = vb_pinned_bytes(in.start, in.length);
            m->access = in.access_flags;
        } else if (c->command == IB_USER_VERBS_CMD_REREG_MR) {
            struct ib_uverbs_rereg_mr in;
            vb_core_in(r, &in, sizeof(in));
            m->kind = VB_MR_AGAIN;
            m->number = in.mr_handle;
            m->resize = in.flags & REREG_TRANS;
            m->change_access = in.flags & REREG_ACCESS;
            m->bytes = vb_pinned_bytes(in.start, in.length);
            m->access = in.access_flags;
        }
        return;
    }
    if (c->object != UVERBS_OBJECT_MR)
        return;
    if (c->method == UVERBS_METHOD_REG_DMABUF_MR) {
        m->kind = VB_MR_NEW;
        m->bytes = vb_pinned_bytes(vb_attr_u64(r, UVERBS_ATTR_REG_DMABUF_MR_OFFSET),
                                   vb_attr_u64(r, UVERBS_ATTR_REG_DMABUF_MR_LENGTH));
        m->access = vb_attr_u64(r, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS);
    } else if (c->method == METHOD_REG_MR) {
        /* A request has either an address in memory or an offset in a dma-buf; the other value is 0. */
        m->kind = VB_MR_NEW;
        m->bytes = vb_pinned_bytes(vb_attr_u64(r, REG_MR_ADDR) + vb_attr_u64(r, REG_MR_FD_OFFSET),
                                   vb_attr_u64(r, REG_MR_LENGTH));
        m->access = vb_attr_u64(r, REG_MR_ACCESS_FLAGS);
    } else if (c->method == UVERBS_METHOD_DM_MR_REG) {
        /* Device memory is not pinned. */
        m->kind = VB_MR_NEW;
        m->access = vb_attr_u64(r, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS);
    }
}

void vb_mr_ask(const struct vb_request *r, struct vb_mr_ask *m)
{
    memset(m, 0, sizeof(*m));
    mr_ask(r, m);
    m->writes = m->access & (IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE |
                             IB_UVERBS_ACCESS_REMOTE_ATOMIC | IB_UVERBS_ACCESS_MW_BIND);
}

/* Returns half of rq_wqe_count, because libmlx5 rounds the number of receive requests up to a power of two. A request
 * has at most 2 KiB (log_rq_stride of a QP's context), so an entry of more than 2 KiB counts as several requests. */
static uint64_t mlx5_recv(uint32_t count, uint32_t shift)
{
    return (shift > 11 ? (uint64_t)count << HW_MIN(shift - 11, 31u) : count) / 2;
}

/* Returns how many SGEs a receive request may have, according to r, which creates a QP. */
static uint32_t recv_sge(const struct vb_request *r)
{
    const struct vb_command *c = r->command;
    if (c->object == UVERBS_OBJECT_QP) {
        struct ib_uverbs_qp_cap cap;
        vb_attr_bytes(r, UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof(cap));
        return cap.max_recv_sge;
    }
    if (c->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) {
        struct ib_uverbs_ex_create_qp in;
        vb_core_in(r, &in, sizeof(in));
        return in.max_recv_sge;
    }
    struct ib_uverbs_create_qp in;
    vb_core_in(r, &in, sizeof(in));
    return in.max_recv_sge;
}

static void copy_driver_input(void *dst, const void *src, size_t n)
{
    if (n > 0)
        memcpy(dst, src, n);
}

void vb_queue_ask(const struct vb_request *r, struct vb_queue_ask *q)
{
    const uint64_t page = 4096;
    size_t n = r->uhw_in ? r->uhw_in_len : 0;
    uint32_t driver = r->driver ? r->driver->id : RDMA_DRIVER_UNKNOWN;
    memset(q, 0, sizeof(*q));
    if (driver == RDMA_DRIVER_MLX5 && r->command->makes == VB_QP) {
        /* The kernel takes the sizes from this part of the request (set_user_buf_size() and set_rq_size() in
         * mlx5/qp.c). A send request uses up to 16 blocks, and libmlx5 rounds the number of blocks up to a power of
         * two. */
        struct mlx5_ib_create_qp in = {0};
        copy_driver_input(&in, r->uhw_in, HW_MIN(sizeof(in), n));
        q->send = in.sq_wqe_count / 32;
        q->recv = mlx5_recv(in.rq_wqe_count, in.rq_wqe_shift);
    } else if (driver == RDMA_DRIVER_MLX5 && r->command->makes == VB_WQ) {
        /* set_user_rq_size() in mlx5/qp.c only compares max_wr of the core part with the limit of the device. */
        struct mlx5_ib_create_wq in = {0};
        copy_driver_input(&in, r->uhw_in, HW_MIN(sizeof(in), n));
        q->recv = mlx5_recv(in.rq_wqe_count, in.rq_wqe_shift);
    } else if (driver == RDMA_DRIVER_EFA && r->command->makes == VB_QP) {
        /* efa_create_qp() in efa/efa_verbs.c allocates rq_ring_size bytes for the receive queue, in whole pages, and
         * requests sq_ring_size bytes for the send queue from the device. A send request has 64 or 128 bytes. A receive
         * request has 16 bytes for each SGE, and the kernel allows as many SGEs as the device supports. Both sizes are
         * powers of two. */
        struct efa_ibv_create_qp in = {0};
        uint64_t pieces = recv_sge(r);
        copy_driver_input(&in, r->uhw_in, HW_MIN(sizeof(in), n));
        q->send = in.sq_ring_size > page ? in.sq_ring_size / 256 : 0;
        q->recv = in.rq_ring_size > page ? in.rq_ring_size / 32 / (pieces ? pieces : 1) : 0;
    }
}
