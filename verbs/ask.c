/* SPDX-License-Identifier: Apache-2.0 */
/* What a request asks for: its inputs, and what it wants of registered memory. */
#include "verbs/policy_int.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

/* include/rdma/ib_verbs.h */
#define REREG_TRANS  1u
#define REREG_ACCESS 4u

/* include/uapi/rdma/ib_user_ioctl_cmds.h of Linux 7.0: enum uverbs_methods_mr, uverbs_attrs_reg_mr_cmd_attr_ids */
#define METHOD_REG_MR         5
#define ATTR_REG_MR_ADDR      4
#define ATTR_REG_MR_LENGTH    5
#define ATTR_REG_MR_ACCESS    6
#define ATTR_REG_MR_FD_OFFSET 8

bool vb_attr_bytes(const struct vb_request *r, uint16_t id, void *dst, size_t n)
{
    const struct vb_attr *a = vb_attr_find(r, id);
    memset(dst, 0, n);
    if (!a)
        return false;
    /* up to 8 bytes lie in data itself (uverbs_attr_ptr_is_inline()); handles have no length */
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

/* What is pinned: whole pages. No more than an address space has (57 bits), which is what "all of it" on demand means.
 */
static uint64_t pages(uint64_t start, uint64_t length)
{
    const uint64_t page = 4096, most = 1ull << 56;
    if (length > most)
        return most;
    return ((start & (page - 1)) + length + page - 1) & ~(page - 1);
}

void vb_mr_ask(const struct vb_request *r, struct vb_mr_ask *m)
{
    const struct vb_command *c = r->command;
    memset(m, 0, sizeof(*m));
    if (c->object == UVERBS_OBJECT_DEVICE && c->method == UVERBS_METHOD_INVOKE_WRITE) {
        if (c->command == IB_USER_VERBS_CMD_REG_MR) {
            struct ib_uverbs_reg_mr in;
            vb_core_in(r, &in, sizeof(in));
            m->kind = VB_MR_NEW;
            m->bytes = pages(in.start, in.length);
            m->access = in.access_flags;
        } else if (c->command == IB_USER_VERBS_CMD_REREG_MR) {
            struct ib_uverbs_rereg_mr in;
            vb_core_in(r, &in, sizeof(in));
            m->kind = VB_MR_AGAIN;
            m->number = in.mr_handle;
            m->resize = in.flags & REREG_TRANS;
            m->change_access = in.flags & REREG_ACCESS;
            m->bytes = pages(in.start, in.length);
            m->access = in.access_flags;
        }
        return;
    }
    if (c->object != UVERBS_OBJECT_MR)
        return;
    if (c->method == UVERBS_METHOD_REG_DMABUF_MR) {
        m->kind = VB_MR_NEW;
        m->bytes =
            pages(vb_attr_u64(r, UVERBS_ATTR_REG_DMABUF_MR_OFFSET), vb_attr_u64(r, UVERBS_ATTR_REG_DMABUF_MR_LENGTH));
        m->access = vb_attr_u64(r, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS);
    } else if (c->method == METHOD_REG_MR) {
        /* of memory at an address, or of a dma-buf from an offset on */
        m->kind = VB_MR_NEW;
        m->bytes = pages(vb_attr_u64(r, ATTR_REG_MR_ADDR) + vb_attr_u64(r, ATTR_REG_MR_FD_OFFSET),
                         vb_attr_u64(r, ATTR_REG_MR_LENGTH));
        m->access = vb_attr_u64(r, ATTR_REG_MR_ACCESS);
    } else if (c->method == UVERBS_METHOD_DM_MR_REG) {
        /* of the device's own memory: nothing is pinned */
        m->kind = VB_MR_NEW;
        m->access = vb_attr_u64(r, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS);
    }
}
