/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_queues.h"

#include <string.h>

#define EX(c) (IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##c)

union app_uhw app_uhw_at(uint64_t buf_addr, uint64_t db_addr)
{
    union app_uhw u;
    memset(&u, 0, sizeof u);
    u.buf_addr = buf_addr;
    u.db_addr = db_addr;
    return u;
}

static int mlx5(int fd, uint32_t command, const void *in, size_t in_len, void *out, size_t out_len,
                const union app_uhw *uhw, size_t uhw_len, uint32_t *token)
{
    struct ib_uverbs_attr a[5] = {
        {.attr_id = UVERBS_ATTR_UHW_OUT, .len = 8, .flags = UVERBS_ATTR_F_MANDATORY, .data = (uintptr_t)token},
        {.attr_id = UVERBS_ATTR_CORE_IN, .len = (uint16_t)in_len, .flags = UVERBS_ATTR_F_MANDATORY},
        {.attr_id = UVERBS_ATTR_WRITE_CMD, .len = 8, .flags = UVERBS_ATTR_F_MANDATORY, .data = command},
        {.attr_id = UVERBS_ATTR_UHW_IN, .len = (uint16_t)uhw_len, .flags = UVERBS_ATTR_F_MANDATORY},
        {.attr_id = UVERBS_ATTR_CORE_OUT, .len = (uint16_t)out_len, .flags = UVERBS_ATTR_F_MANDATORY},
    };
    a[1].data = (uintptr_t)in;
    a[3].data = (uintptr_t)uhw;
    a[4].data = (uintptr_t)out;
    /* RESIZE_CQ has no driver output */
    return token ? app_ioctl(fd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, a, 5)
                 : app_ioctl(fd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, a + 1, 4);
}

int app_queue_destroy(int fd, uint16_t object, uint32_t number)
{
    uint64_t events[2];
    const struct {
        uint16_t object, method, len;
    } how[] = {
        {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, sizeof(struct ib_uverbs_destroy_cq_resp)},
        {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, sizeof(struct ib_uverbs_destroy_qp_resp)},
        {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, sizeof(struct ib_uverbs_destroy_srq_resp)},
        {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, 4},
    };
    for (unsigned i = 0; i < HW_ARRAY_LEN(how); i++) {
        struct ib_uverbs_attr a[2] = {
            {.attr_id = 0, .flags = UVERBS_ATTR_F_MANDATORY, .data = number},
            {.attr_id = 1, .len = how[i].len, .flags = UVERBS_ATTR_F_MANDATORY, .data = (uintptr_t)events},
        };
        if (how[i].object == object)
            return app_ioctl(fd, object, how[i].method, a, 2);
    }
    return -EINVAL;
}

/* Functions that create a queue, for the table app_queues. They store the queue's number in *number. */
static int make_cq(int fd, int channel, const union app_uhw *u, uint32_t *number, uint32_t *token)
{
    struct ib_uverbs_create_cq in = {.cqe = 16, .comp_channel = channel};
    struct ib_uverbs_create_cq_resp out = {.cq_handle = ~0u};
    int rc = mlx5(fd, IB_USER_VERBS_CMD_CREATE_CQ, &in, sizeof in, &out, sizeof out, u, sizeof u->cq, token);
    *number = out.cq_handle;
    /* the program must not see a file descriptor number of the stub or the broker */
    return rc == 0 && in.comp_channel != channel ? -EPROTO : rc;
}

static int make_cq_ex(int fd, int channel, const union app_uhw *u, uint32_t *number, uint32_t *token)
{
    struct ib_uverbs_ex_create_cq in = {.cqe = 16, .comp_channel = channel};
    struct ib_uverbs_ex_create_cq_resp out = {.base.cq_handle = ~0u};
    int rc = mlx5(fd, EX(CREATE_CQ), &in, sizeof in, &out, sizeof out, u, sizeof u->cq, token);
    *number = out.base.cq_handle;
    return rc;
}

static int make_srq(int fd, int channel, const union app_uhw *u, uint32_t *number, uint32_t *token)
{
    struct ib_uverbs_create_srq in = {.max_wr = 16};
    struct ib_uverbs_create_srq_resp out = {.srq_handle = ~0u};
    (void)channel;
    int rc = mlx5(fd, IB_USER_VERBS_CMD_CREATE_SRQ, &in, sizeof in, &out, sizeof out, u, sizeof u->srq, token);
    *number = out.srq_handle;
    return rc;
}

static int make_xsrq(int fd, int channel, const union app_uhw *u, uint32_t *number, uint32_t *token)
{
    struct ib_uverbs_create_xsrq in = {.max_wr = 16, .srq_type = IB_UVERBS_SRQT_XRC};
    struct ib_uverbs_create_srq_resp out = {.srq_handle = ~0u};
    (void)channel;
    int rc = mlx5(fd, IB_USER_VERBS_CMD_CREATE_XSRQ, &in, sizeof in, &out, sizeof out, u, sizeof u->srq, token);
    *number = out.srq_handle;
    return rc;
}

static int make_qp(int fd, int channel, const union app_uhw *u, uint32_t *number, uint32_t *token)
{
    struct ib_uverbs_create_qp in = {.max_send_wr = 16, .max_recv_wr = 16, .qp_type = IB_UVERBS_QPT_RC};
    struct ib_uverbs_create_qp_resp out = {.qp_handle = ~0u};
    (void)channel;
    int rc = mlx5(fd, IB_USER_VERBS_CMD_CREATE_QP, &in, sizeof in, &out, sizeof out, u, sizeof u->qp, token);
    *number = out.qp_handle;
    return rc;
}

static int make_qp_ex(int fd, int channel, const union app_uhw *u, uint32_t *number, uint32_t *token)
{
    struct ib_uverbs_ex_create_qp in = {.max_send_wr = 16, .max_recv_wr = 16, .qp_type = IB_UVERBS_QPT_RC};
    struct ib_uverbs_ex_create_qp_resp out = {.base.qp_handle = ~0u};
    (void)channel;
    int rc = mlx5(fd, EX(CREATE_QP), &in, sizeof in, &out, sizeof out, u, sizeof u->qp, token);
    *number = out.base.qp_handle;
    return rc;
}

static int make_wq(int fd, int channel, const union app_uhw *u, uint32_t *number, uint32_t *token)
{
    struct ib_uverbs_ex_create_wq in = {.max_wr = 16};
    struct ib_uverbs_ex_create_wq_resp out = {.wq_handle = ~0u};
    (void)channel;
    int rc = mlx5(fd, EX(CREATE_WQ), &in, sizeof in, &out, sizeof out, u, sizeof u->wq, token);
    *number = out.wq_handle;
    return rc;
}

const struct app_queue app_queues[APP_QUEUES] = {
    {"CREATE_CQ", make_cq, UVERBS_OBJECT_CQ, true},     {"EX_CREATE_CQ", make_cq_ex, UVERBS_OBJECT_CQ, true},
    {"CREATE_SRQ", make_srq, UVERBS_OBJECT_SRQ, false}, {"CREATE_XSRQ", make_xsrq, UVERBS_OBJECT_SRQ, false},
    {"CREATE_QP", make_qp, UVERBS_OBJECT_QP, false},    {"EX_CREATE_QP", make_qp_ex, UVERBS_OBJECT_QP, false},
    {"EX_CREATE_WQ", make_wq, UVERBS_OBJECT_WQ, false},
};

int app_queue_resize(int fd, uint32_t number, uint64_t address)
{
    struct ib_uverbs_resize_cq in = {.cq_handle = number, .cqe = 32};
    struct ib_uverbs_resize_cq_resp out = {0};
    union app_uhw u = app_uhw_at(address, 0);
    int rc = mlx5(fd, IB_USER_VERBS_CMD_RESIZE_CQ, &in, sizeof in, &out, sizeof out, &u, sizeof u.resize, NULL);
    return rc == 0 && out.cqe != 32 ? -EPROTO : rc;
}

int app_rereg(int fd, uint32_t number, uint32_t flags, uint64_t address, uint64_t length, uint32_t access)
{
    struct ib_uverbs_rereg_mr in = {.mr_handle = number,
                                    .flags = flags,
                                    .start = address,
                                    .length = length,
                                    .hca_va = address,
                                    .access_flags = access};
    struct ib_uverbs_rereg_mr_resp out = {0};
    int rc = app_write_cmd(fd, IB_USER_VERBS_CMD_REREG_MR, &in, sizeof in, &out, sizeof out);
    return rc == 0 && out.lkey != number + 1 ? -EPROTO : rc;
}
