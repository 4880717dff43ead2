/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the fake RDMA kernel that uses memory and file descriptors of the calling process. An address is valid if
 * the 8 bytes at the address contain the address itself. The fake reads these bytes from the caller's memory, so that
 * an address from a different process or a changed address causes -EFAULT.
 */
#include "verbs/broker/broker_int.h"
#include "verbs_fake_int.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/mlx5-abi.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EX(c)       (IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##c)
#define PLAIN(c)    IB_USER_VERBS_CMD_##c
#define REREG_TRANS 1u /* include/rdma/ib_verbs.h */

static int pinned(uint64_t address)
{
    uint64_t is = 0;
    if (!fake_stub) { /* the broker would pin its own memory */
        fake->wrong++;
        return -EFAULT;
    }
    return vb_mem_read(fake_stub, address, &is, sizeof is) || is != address ? -EFAULT : 0;
}

/* Returns a duplicate, in this process, of the caller's file descriptor, or -errno. */
static int file_of(int64_t fd)
{
    if (fd < 0 || fd != (int)fd)
        return -EBADF;
    if (fake_stub) {
        int pidfd = (int)syscall(SYS_pidfd_open, fake_stub, O_EXCL); /* PIDFD_THREAD */
        int got = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, (int)fd, 0), rc = got < 0 ? -errno : got;
        hw_close(&pidfd);
        return rc;
    }
    int mine = fcntl((int)fd, F_DUPFD_CLOEXEC, 3);
    return mine < 0 ? -errno : mine;
}

bool fake_is_channel(int64_t fd)
{
    uint64_t v = 0;
    int mine = file_of(fd);
    struct pollfd p = {.fd = mine, .events = POLLIN};
    bool is = mine >= 0 && poll(&p, 1, 0) == 1 && read(mine, &v, sizeof v) == sizeof v && v == 7;
    is = is && write(mine, &v, sizeof v) == sizeof v;
    hw_close(&mine);
    return is;
}

/* Checks that a file represents a dma-buf: it must start with FAKE_DMABUF and be long enough. */
static int dmabuf(int64_t fd, uint64_t offset, uint64_t length)
{
    int mine = file_of(fd);
    if (mine < 0)
        return -EBADF;
    struct stat st = {0};
    fstat(mine, &st);
    /* the broker's filter permits mmap(), but not pread() */
    void *text = st.st_size ? mmap(NULL, sizeof FAKE_DMABUF, PROT_READ, MAP_SHARED, mine, 0) : MAP_FAILED;
    bool is = text != MAP_FAILED && memcmp(text, FAKE_DMABUF, sizeof FAKE_DMABUF) == 0;
    if (text != MAP_FAILED)
        munmap(text, sizeof FAKE_DMABUF);
    close(mine);
    return !is ? -EINVAL : offset + length > (uint64_t)st.st_size ? -ERANGE : 0;
}

/* The INVOKE_WRITE requests for which mlx5 pins memory of objects other than MRs. */
static const struct queue {
    uint32_t command;
    uint8_t makes;   /* type of the created object */
    uint8_t channel; /* offset of the channel in CORE_IN; 0 if none */
    uint8_t number;  /* offset of the object's number in CORE_OUT */
    uint8_t resp;    /* minimum length of CORE_OUT */
    uint8_t db;      /* offset of db_addr in UHW_IN; 0 if none; buf_addr is always the first field */
    uint16_t in;     /* minimum length of UHW_IN */
} queues[] = {
    {PLAIN(CREATE_CQ), VB_CQ, offsetof(struct ib_uverbs_create_cq, comp_channel),
     offsetof(struct ib_uverbs_create_cq_resp, cq_handle), sizeof(struct ib_uverbs_create_cq_resp),
     offsetof(struct mlx5_ib_create_cq, db_addr), sizeof(struct mlx5_ib_create_cq)},
    {EX(CREATE_CQ), VB_CQ, offsetof(struct ib_uverbs_ex_create_cq, comp_channel),
     offsetof(struct ib_uverbs_ex_create_cq_resp, base.cq_handle), sizeof(struct ib_uverbs_ex_create_cq_resp),
     offsetof(struct mlx5_ib_create_cq, db_addr), sizeof(struct mlx5_ib_create_cq)},
    {PLAIN(RESIZE_CQ), VB_NONE, 0, 0, sizeof(struct ib_uverbs_resize_cq_resp), 0, sizeof(struct mlx5_ib_resize_cq)},
    {PLAIN(CREATE_SRQ), VB_SRQ, 0, offsetof(struct ib_uverbs_create_srq_resp, srq_handle),
     sizeof(struct ib_uverbs_create_srq_resp), offsetof(struct mlx5_ib_create_srq, db_addr),
     sizeof(struct mlx5_ib_create_srq)},
    {PLAIN(CREATE_XSRQ), VB_SRQ, 0, offsetof(struct ib_uverbs_create_srq_resp, srq_handle),
     sizeof(struct ib_uverbs_create_srq_resp), offsetof(struct mlx5_ib_create_srq, db_addr),
     sizeof(struct mlx5_ib_create_srq)},
    {PLAIN(CREATE_QP), VB_QP, 0, offsetof(struct ib_uverbs_create_qp_resp, qp_handle),
     sizeof(struct ib_uverbs_create_qp_resp), offsetof(struct mlx5_ib_create_qp, db_addr),
     sizeof(struct mlx5_ib_create_qp)},
    {EX(CREATE_QP), VB_QP, 0, offsetof(struct ib_uverbs_ex_create_qp_resp, base.qp_handle),
     sizeof(struct ib_uverbs_ex_create_qp_resp), offsetof(struct mlx5_ib_create_qp, db_addr),
     sizeof(struct mlx5_ib_create_qp)},
    {EX(CREATE_WQ), VB_WQ, 0, offsetof(struct ib_uverbs_ex_create_wq_resp, wq_handle),
     sizeof(struct ib_uverbs_ex_create_wq_resp), offsetof(struct mlx5_ib_create_wq, db_addr),
     sizeof(struct mlx5_ib_create_wq)},
};

static int queue(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, const struct fake_op *op, const struct queue *q)
{
    struct ib_uverbs_attr *uhw = fake_attr(h, UVERBS_ATTR_UHW_IN), *out = fake_attr(h, UVERBS_ATTR_CORE_OUT),
                          *uhw_out = fake_attr(h, UVERBS_ATTR_UHW_OUT);
    uint8_t resp[128] = {0};
    uint64_t address;
    uint32_t number = 0, token;
    int32_t channel = -1;
    if (!uhw || uhw->len < q->in || !out || out->len < q->resp)
        return -EINVAL;
    for (unsigned i = 0; i < (q->db ? 2 : 1); i++) {
        memcpy(&address, (uint8_t *)fake_bytes(uhw, true) + (i ? q->db : 0), sizeof address);
        if (pinned(address))
            return -EFAULT;
    }
    if (q->channel)
        memcpy(&channel, op->in + q->channel, sizeof channel);
    if (channel != -1 && !fake_is_channel(channel))
        return -EBADF;
    if (!q->makes) { /* RESIZE_CQ: response, cq_handle, cqe */
        struct ib_uverbs_resize_cq in;
        memcpy(&in, op->in, sizeof in);
        if (in.cq_handle >= FAKE_NUMBERS || f->type[in.cq_handle] != VB_CQ)
            return -ENOENT;
        memcpy(resp, &in.cqe, sizeof in.cqe);
        return fake_give(out, resp, q->resp);
    }
    int rc = fake_make(f, q->makes, &number);
    if (rc)
        return rc;
    memcpy(resp + q->number, &number, sizeof number);
    rc = fake_give(out, resp, q->resp);
    token = number + FAKE_TOKEN;
    if (!rc && uhw_out)
        rc = fake_give(uhw_out, &token, sizeof token);
    if (rc)
        fake_unmake(f, q->makes, number);
    return rc;
}

static int rereg(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, const struct fake_op *op)
{
    struct ib_uverbs_rereg_mr in;
    memcpy(&in, op->in, sizeof in);
    if (in.mr_handle >= FAKE_NUMBERS || f->type[in.mr_handle] != VB_MR)
        return -ENOENT;
    if (in.flags & REREG_TRANS) {
        if (pinned(in.start))
            return -EFAULT;
        fake->mr_bytes += (long)in.length - (long)f->length[in.mr_handle];
        f->length[in.mr_handle] = in.length;
        f->iova[in.mr_handle] = in.hca_va;
    }
    struct ib_uverbs_rereg_mr_resp out = {.lkey = in.mr_handle + 1, .rkey = in.mr_handle + 2};
    return fake_give(fake_attr(h, UVERBS_ATTR_CORE_OUT), &out, sizeof out);
}

int fake_invoke_mlx5(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, const struct fake_op *op)
{
    if (op->command == IB_USER_VERBS_CMD_REREG_MR)
        return rereg(f, h, op);
    for (unsigned i = 0; i < HW_ARRAY_LEN(queues); i++) {
        if (queues[i].command == op->command)
            return queue(f, h, op, &queues[i]);
    }
    return -EOPNOTSUPP;
}

/* ---------------------------------------------------------- MRs by method */

static uint64_t number_in(struct ib_uverbs_ioctl_hdr *h, uint16_t id)
{
    uint64_t v = 0;
    struct ib_uverbs_attr *a = fake_attr(h, id);
    if (a)
        memcpy(&v, fake_bytes(a, true), HW_MIN(a->len, sizeof v));
    return v;
}

static int mr(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, uint64_t length, uint64_t iova, uint16_t handle,
              uint16_t lkey, uint16_t rkey)
{
    uint32_t number;
    int rc = fake_make(f, VB_MR, &number);
    if (rc)
        return rc;
    f->length[number] = length;
    f->iova[number] = iova;
    fake->mr_bytes += (long)length;
    struct ib_uverbs_attr *a = fake_attr(h, handle);
    a->data = number;
    a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    rc = fake_give(fake_attr(h, lkey), &(uint32_t){number + 1}, 4);
    if (!rc)
        rc = fake_give(fake_attr(h, rkey), &(uint32_t){number + 2}, 4);
    if (rc)
        fake_unmake(f, VB_MR, number);
    return rc;
}

int fake_reg_method(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h)
{
    uint64_t length = number_in(h, REG_MR_LENGTH);
    struct ib_uverbs_attr *fd = fake_attr(h, REG_MR_FD);
    int rc = fd                               ? dmabuf(fd->data_s64, number_in(h, REG_MR_FD_OFFSET), length)
             : fake_attr(h, REG_MR_FD_OFFSET) ? -EINVAL
                                              : pinned(number_in(h, REG_MR_ADDR));
    if (fd && fake_attr(h, REG_MR_ADDR))
        rc = -EINVAL;
    return rc ? rc : mr(f, h, length, number_in(h, REG_MR_IOVA), REG_MR_HANDLE, REG_MR_RESP_LKEY, REG_MR_RESP_RKEY);
}

int fake_reg_dmabuf(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h)
{
    uint64_t length = number_in(h, UVERBS_ATTR_REG_DMABUF_MR_LENGTH);
    int rc = dmabuf((int32_t)number_in(h, UVERBS_ATTR_REG_DMABUF_MR_FD), number_in(h, UVERBS_ATTR_REG_DMABUF_MR_OFFSET),
                    length);
    return rc ? rc
              : mr(f, h, length, number_in(h, UVERBS_ATTR_REG_DMABUF_MR_IOVA), UVERBS_ATTR_REG_DMABUF_MR_HANDLE,
                   UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY);
}
