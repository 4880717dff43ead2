/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_raw.h"

#include <fcntl.h>
#include <sys/ioctl.h>

void start(struct request *r, uint16_t object, uint16_t method)
{
    memset(r, 0, sizeof(*r));
    r->h.object_id = object;
    r->h.method_id = method;
    r->h.driver_id = RDMA_DRIVER_RXE;
}

void add(struct request *r, uint16_t id, uint16_t len, uint64_t data)
{
    r->a[r->h.num_attrs++] =
        (struct ib_uverbs_attr){.attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data};
    r->h.length = (uint16_t)(sizeof(r->h) + r->h.num_attrs * sizeof(r->a[0]));
}

int go(int fd, struct request *r)
{
    return ioctl(fd, RDMA_VERBS_IOCTL, r) < 0 ? -errno : 0;
}

void write_cmd(struct request *r, uint64_t command, const void *in, size_t in_len, void *out, size_t out_len)
{
    uint64_t inline_in = 0; /* short inputs are stored in the attribute itself */
    if (in_len <= sizeof(inline_in))
        memcpy(&inline_in, in, in_len);
    start(r, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    add(r, UVERBS_ATTR_WRITE_CMD, 8, command);
    add(r, UVERBS_ATTR_CORE_IN, (uint16_t)in_len, in_len <= sizeof(inline_in) ? inline_in : at(in));
    if (out_len)
        add(r, UVERBS_ATTR_CORE_OUT, (uint16_t)out_len, at(out));
}

int open_context(void)
{
    uint32_t vectors;
    uint64_t core = 0;
    struct request r;
    const int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, "no device");
    start(&r, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
    add(&r, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, at(&vectors));
    add(&r, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, at(&core));
    const int rc = go(fd, &r);
    CHECK(rc == 0, "GET_CONTEXT %d", rc);
    return fd;
}

uint32_t alloc_pd(int fd)
{
    const uint64_t in = 0; /* struct ib_uverbs_alloc_pd: .response, which only write() uses */
    struct ib_uverbs_alloc_pd_resp out = {0};
    struct request r;
    write_cmd(&r, IB_USER_VERBS_CMD_ALLOC_PD, &in, sizeof(in), &out, sizeof(out));
    const int rc = go(fd, &r);
    CHECK(rc == 0, "ALLOC_PD %d", rc);
    return out.pd_handle;
}

void mr_of(struct ib_uverbs_reg_mr *in, uint32_t pd, const void *p, uint64_t n)
{
    memset(in, 0, sizeof(*in));
    in->start = in->hca_va = at(p);
    in->length = n;
    in->pd_handle = pd;
    in->access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE;
}

int reg_mr(int fd, uint32_t pd, const void *p, uint64_t n, uint32_t *number)
{
    struct ib_uverbs_reg_mr in;
    struct ib_uverbs_reg_mr_resp out = {0};
    struct request r;
    mr_of(&in, pd, p, n);
    write_cmd(&r, IB_USER_VERBS_CMD_REG_MR, &in, sizeof(in), &out, sizeof(out));
    const int rc = go(fd, &r);
    *number = out.mr_handle;
    return rc;
}

int dereg_mr(int fd, uint32_t number)
{
    struct request r;
    start(&r, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
    add(&r, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, number);
    return go(fd, &r);
}

int rereg_mr(int fd, uint32_t number, uint32_t flags, const void *p, uint64_t n, uint32_t access)
{
    struct ib_uverbs_rereg_mr in;
    struct ib_uverbs_rereg_mr_resp out = {0};
    struct request r;
    memset(&in, 0, sizeof(in));
    in.mr_handle = number;
    in.flags = flags;
    in.start = in.hca_va = at(p);
    in.length = n;
    in.access_flags = access;
    write_cmd(&r, IB_USER_VERBS_CMD_REREG_MR, &in, sizeof(in), &out, sizeof(out));
    return go(fd, &r);
}

/* include/uapi/rdma/ib_user_ioctl_cmds.h of Linux 6.17: UVERBS_METHOD_REG_MR */
int reg_mr_method(int fd, uint32_t pd, const void *p, uint64_t n, uint32_t *number)
{
    enum { METHOD_REG_MR = 5, HANDLE = 0, PD, IOVA = 3, ADDR, LENGTH, ACCESS, LKEY = 9, RKEY };
    uint32_t lkey, rkey;
    struct request r;
    start(&r, UVERBS_OBJECT_MR, METHOD_REG_MR);
    add(&r, HANDLE, 0, 0);
    add(&r, PD, 0, pd);
    add(&r, IOVA, 8, at(p));
    add(&r, ADDR, 8, at(p));
    add(&r, LENGTH, 8, n);
    add(&r, ACCESS, 4, IB_UVERBS_ACCESS_LOCAL_WRITE);
    add(&r, LKEY, 4, at(&lkey));
    add(&r, RKEY, 4, at(&rkey));
    const int rc = go(fd, &r);
    *number = (uint32_t)r.a[0].data;
    return rc;
}

int query_mr(int fd, uint32_t number, uint64_t *length)
{
    uint32_t lkey, rkey;
    uint64_t iova;
    struct request r;
    start(&r, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
    add(&r, UVERBS_ATTR_QUERY_MR_HANDLE, 0, number);
    add(&r, UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4, at(&lkey));
    add(&r, UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4, at(&rkey));
    add(&r, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8, at(length));
    add(&r, UVERBS_ATTR_QUERY_MR_RESP_IOVA, 8, at(&iova));
    return go(fd, &r);
}

int create_cq(int fd, uint32_t *number)
{
    struct ib_uverbs_create_cq in;
    struct ib_uverbs_create_cq_resp out;
    uint64_t driver[2]; /* struct rxe_create_cq_resp, <rdma/rdma_user_rxe.h> */
    struct request r;
    memset(&in, 0, sizeof(in));
    memset(&out, 0, sizeof(out));
    in.cqe = 16;
    in.comp_channel = -1;
    write_cmd(&r, IB_USER_VERBS_CMD_CREATE_CQ, &in, sizeof(in), &out, sizeof(out));
    add(&r, UVERBS_ATTR_UHW_OUT, sizeof(driver), at(driver));
    const int rc = go(fd, &r);
    *number = out.cq_handle;
    return rc;
}

void qp_of(struct ib_uverbs_create_qp *in, uint32_t pd, uint32_t cq, uint32_t wr)
{
    memset(in, 0, sizeof(*in));
    in->pd_handle = pd;
    in->send_cq_handle = in->recv_cq_handle = cq;
    in->max_send_wr = wr;
    in->max_recv_wr = in->max_send_sge = in->max_recv_sge = 1;
    in->qp_type = IB_UVERBS_QPT_RC;
}

int create_qp(int fd, uint32_t pd, uint32_t cq, uint32_t wr, uint32_t *number)
{
    struct ib_uverbs_create_qp in;
    struct ib_uverbs_create_qp_resp out;
    uint64_t driver[4]; /* struct rxe_create_qp_resp */
    struct request r;
    qp_of(&in, pd, cq, wr);
    memset(&out, 0, sizeof(out));
    write_cmd(&r, IB_USER_VERBS_CMD_CREATE_QP, &in, sizeof(in), &out, sizeof(out));
    add(&r, UVERBS_ATTR_UHW_OUT, sizeof(driver), at(driver));
    const int rc = go(fd, &r);
    *number = out.qp_handle;
    return rc;
}

int destroy_qp(int fd, uint32_t number)
{
    struct ib_uverbs_destroy_qp_resp out;
    struct request r;
    start(&r, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY);
    add(&r, UVERBS_ATTR_DESTROY_QP_HANDLE, 0, number);
    add(&r, UVERBS_ATTR_DESTROY_QP_RESP, sizeof(out), at(&out));
    return go(fd, &r);
}

/* IB_QP_* of the kernel's <rdma/ib_verbs.h> */
enum { QP_STATE = 1 << 0, QP_PKEY_INDEX = 1 << 4, QP_PORT = 1 << 5, QP_QKEY = 1 << 6, QP_CAP = 1 << 19, QPS_INIT = 1 };

uint32_t qp_wr(int fd, uint32_t number)
{
    struct ib_uverbs_query_qp in;
    struct ib_uverbs_query_qp_resp out;
    struct request r;
    memset(&in, 0, sizeof(in));
    memset(&out, 0, sizeof(out));
    in.qp_handle = number;
    in.attr_mask = QP_CAP;
    write_cmd(&r, IB_USER_VERBS_CMD_QUERY_QP, &in, sizeof(in), &out, sizeof(out));
    const int rc = go(fd, &r);
    CHECK(rc == 0, "QUERY_QP %d", rc);
    return out.max_send_wr;
}

int init_ud(int fd, uint32_t number)
{
    struct ib_uverbs_modify_qp in;
    struct request r;
    memset(&in, 0, sizeof(in));
    in.qp_handle = number;
    in.attr_mask = QP_STATE | QP_PKEY_INDEX | QP_PORT | QP_QKEY;
    in.qp_state = QPS_INIT;
    in.port_num = 1;
    in.qkey = 0x11111111;
    write_cmd(&r, IB_USER_VERBS_CMD_MODIFY_QP, &in, sizeof(in), NULL, 0);
    return go(fd, &r);
}
