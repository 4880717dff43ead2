/* SPDX-License-Identifier: Apache-2.0 */
/* Formats a request as one line for logs: the name of the command and, for some commands, the most important fields. */
#include "verbs/schema/request.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <string.h>

struct field {
    const char *name;
    bool hex;
    uint8_t place; /* VB_CORE_IN, or VB_ATTR for an input that is stored in `data` */
    uint8_t size;
    uint16_t at; /* offset in CORE_IN, or id of the attribute */
};
#define CORE(s, m, h)                                                                                \
    {                                                                                                \
#m, h, VB_CORE_IN, sizeof(((struct ib_uverbs_##s *)0)->m), offsetof(struct ib_uverbs_##s, m) \
    }
#define DATA(n, id, h)                     \
    {                                      \
        n, h, VB_ATTR, 8, UVERBS_ATTR_##id \
    }
#define QP(s) CORE(s, qp_type, false), CORE(s, max_send_wr, false), CORE(s, max_recv_wr, false)

static const struct {
    uint16_t object, method;
    uint32_t command;
    struct field field[4];
} shown[] = {
#define PLAIN(c) UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, IB_USER_VERBS_CMD_##c
#define EXTENDED(c) \
    UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##c
#define METHOD(o, m) UVERBS_OBJECT_##o, UVERBS_METHOD_##m, 0
    {PLAIN(REG_MR), {CORE(reg_mr, length, false), CORE(reg_mr, access_flags, true)}},
    {PLAIN(REREG_MR),
     {CORE(rereg_mr, mr_handle, false), CORE(rereg_mr, length, false), CORE(rereg_mr, access_flags, true)}},
    {PLAIN(CREATE_CQ), {CORE(create_cq, cqe, false)}},
    {EXTENDED(CREATE_CQ), {CORE(ex_create_cq, cqe, false)}},
    {PLAIN(RESIZE_CQ), {CORE(resize_cq, cqe, false)}},
    {PLAIN(CREATE_QP), {QP(create_qp)}},
    {EXTENDED(CREATE_QP), {QP(ex_create_qp)}},
    {PLAIN(MODIFY_QP),
     {CORE(modify_qp, qp_handle, false), CORE(modify_qp, attr_mask, true), CORE(modify_qp, qp_state, false)}},
    {EXTENDED(MODIFY_QP),
     {CORE(ex_modify_qp, base.qp_handle, false), CORE(ex_modify_qp, base.attr_mask, true),
      CORE(ex_modify_qp, base.qp_state, false)}},
    {METHOD(CQ, CQ_CREATE), {DATA("cqe", CREATE_CQ_CQE, false)}},
    {METHOD(QP, QP_CREATE), {DATA("qp_type", CREATE_QP_TYPE, false), DATA("flags", CREATE_QP_FLAGS, true)}},
    {METHOD(MR, REG_DMABUF_MR),
     {DATA("length", REG_DMABUF_MR_LENGTH, false), DATA("access_flags", REG_DMABUF_MR_ACCESS_FLAGS, true)}},
};

static bool read_request_field(const struct vb_request *r, const struct field *f, uint64_t *v)
{
    *v = 0; /* fewer than 8 bytes may be copied, which is correct on little-endian machines only */
    if (f->place == VB_CORE_IN) {
        if (!r->core_in || f->at + f->size > r->core_in_len)
            return false;
        memcpy(v, (const uint8_t *)r->core_in + f->at, f->size);
        return true;
    }
    for (unsigned i = 0; i < r->n; i++)
        if (r->attr[i].rule && r->attr[i].raw.attr_id == f->at && r->attr[i].len == 0) {
            *v = r->attr[i].raw.data;
            return true;
        }
    return false;
}

const char *vb_request_text(const struct vb_request *r, char *out, size_t cap)
{
    const struct vb_command *c = r->command;
    const char *dot;
    uint64_t v;
    size_t n;

    if (!c) {
        snprintf(out, cap, "object 0x%x method 0x%x", r->hdr.object_id, r->hdr.method_id);
        return out;
    }
    snprintf(out, cap, "%s", c->name);
    for (unsigned i = 0; i < HW_ARRAY_LEN(shown); i++) {
        if (shown[i].object != c->object || shown[i].method != c->method || shown[i].command != c->command)
            continue;
        for (const struct field *f = shown[i].field; f < shown[i].field + HW_ARRAY_LEN(shown[i].field) && f->name;
             f++) {
            n = strlen(out);
            dot = strchr(f->name, '.');
            if (read_request_field(r, f, &v))
                snprintf(out + n, cap - n, f->hex ? " %s=0x%llx" : " %s=%llu", dot ? dot + 1 : f->name,
                         (unsigned long long)v);
        }
    }
    return out;
}
