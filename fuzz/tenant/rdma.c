/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated kernel's RDMA. Creates and destroys the objects that requests refer to, for each inode, and checks that
 * each request is one that a broker may send. A new object gets the lowest free number. As in kernels before June 2026,
 * REREG_MR can give write access to memory that was pinned only for reading (CVE-2026-52908).
 */
#include "fuzz/tenant/tenant.h"
#include "verbs/policy/policy.h"
#include "verbs/schema/newer.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#define REREG_TRANS  1u /* include/rdma/ib_verbs.h */
#define REREG_ACCESS 4u
#define WRITES                                                                                       \
    (IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC | \
     IB_UVERBS_ACCESS_MW_BIND)

/* The limits of the policy, except quotas (quota.c). */
#define MOST_CQE 64
#define MOST_WR  32

uint32_t t_driver(unsigned device)
{
    return device == 1 ? RDMA_DRIVER_MLX5 : RDMA_DRIVER_RXE;
}

/* ---- a request ---------------------------------------------------------------------------------------- */

struct request {
    const struct vb_command *c;
    const struct vb_driver_part *part;
    struct t_file *device;
    struct t_thread *stub; /* NULL if the broker makes the call */
    struct t_window *window;
    uint64_t at; /* the window's address in the stub's process */
    struct vb_header h;
    uint8_t *attr; /* the attributes in the caller's memory */
    struct ib_uverbs_attr copy[VB_ATTRS_MAX + 2 * VB_WINDOW_INPUTS];
};

T_UNSEEN static struct ib_uverbs_attr *attr_of(struct request *r, uint16_t id)
{
    for (unsigned i = 0; i < r->h.num_attrs; i++) {
        if (r->copy[i].attr_id == id)
            return &r->copy[i];
    }
    return NULL;
}

/* Returns n bytes of the caller's memory, or NULL. */
static uint8_t *bytes_at(struct request *r, uint64_t address, uint64_t n, bool write)
{
    uint32_t tag;
    if (!r->stub)
        return (uint8_t *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr): the broker's own
    if (address >= r->at && n <= VB_WINDOW_SIZE && address - r->at <= VB_WINDOW_SIZE - n)
        return write && address - r->at < VB_WINDOW_SPLIT ? NULL : r->window->mine + (address - r->at);
    uint8_t *p = t_bytes(r->stub->process->mm, address, n, &tag);
    uint32_t at = (uint32_t)(address & 0xfffff);
    return p && write && at + n > T_READ_ONLY * T_PAGE && at < (T_READ_ONLY + 1) * T_PAGE ? NULL : p;
}

static const uint8_t *input(struct request *r, uint16_t id, size_t *n)
{
    struct ib_uverbs_attr *a = attr_of(r, id);
    *n = a ? a->len : 0;
    if (!a)
        return NULL;
    return a->len <= 8 ? (const uint8_t *)&a->data : bytes_at(r, a->data, a->len, false);
}

static uint64_t number_in(struct request *r, uint16_t id)
{
    uint64_t v = 0;
    size_t n;
    const uint8_t *p = input(r, id, &n);
    if (p)
        memcpy(&v, p, HW_MIN(n ? n : 8, sizeof v));
    return v;
}

/* Copies up to size bytes of the core part, and zeroes the rest. */
static void core_in(struct request *r, void *dst, size_t size)
{
    size_t n;
    const uint8_t *p = input(r, UVERBS_ATTR_CORE_IN, &n);
    memset(dst, 0, size);
    if (p)
        memcpy(dst, p, HW_MIN(n, size));
}

static bool is_write(const struct request *r)
{
    return !r->c->attrs;
}

static int write_out(struct request *r, const struct ib_uverbs_attr *a, const void *src, size_t n)
{
    uint8_t *to = bytes_at(r, a->data, a->len, true);
    if (a->len < n)
        return -ENOSPC;
    if (!to)
        return -EFAULT;
    memset(to, 0, a->len);
    memcpy(to, src, n);
    return 0;
}

/* Marks the caller's attribute as valid output and, if number is true, stores the new number in the attribute. Fails
 * with -EFAULT if the attribute is not writable. */
static int mark(struct request *r, const struct ib_uverbs_attr *a, bool number)
{
    uint8_t *theirs = r->attr + (size_t)(a - r->copy) * sizeof *a,
            *at = theirs + offsetof(struct ib_uverbs_attr, flags);
    if (r->stub && at < r->window->mine + VB_WINDOW_SPLIT)
        return -EFAULT;
    uint16_t flags = a->flags | UVERBS_ATTR_F_VALID_OUTPUT;
    memcpy(at, &flags, sizeof flags);
    if (number)
        memcpy(theirs + offsetof(struct ib_uverbs_attr, data), &a->data, sizeof a->data);
    return 0;
}

/* ---- memory and descriptors --------------------------------------------------------------------------- */

static uint64_t pages(uint64_t at, uint64_t length)
{
    return (at + length + T_PAGE - 1) / T_PAGE * T_PAGE - at / T_PAGE * T_PAGE;
}

/* Pins memory of the stub's process. Sets *read_only if the memory cannot be written. */
static int pin(struct request *r, uint64_t at, uint64_t length, bool writes, bool *read_only)
{
    uint32_t tag = 0, offset = (uint32_t)(at & 0xfffff);
    T_HOLDS(r->stub, "%s pins memory of the broker's", r->c->name);
    if (length == 0)
        return -EINVAL;
    bool window = r->at && at >= r->at && at - r->at < VB_WINDOW_SIZE;
    *read_only = window ? at - r->at < VB_WINDOW_SPLIT
                        : offset + length > T_READ_ONLY * T_PAGE && offset < (T_READ_ONLY + 1) * T_PAGE;
    if (!window && !t_bytes(r->stub->process->mm, at, length, &tag))
        return -EFAULT;
    T_HOLDS(window || tag == r->stub->process->mm->tag, "%s pins memory of another process's", r->c->name);
    return (window && length > VB_WINDOW_SIZE - (at - r->at)) || (*read_only && writes) ? -EFAULT : 0;
}

/* Returns the file for a file descriptor of the request, in the caller's table. */
static struct t_file *named_file(struct request *r, int64_t fd)
{
    struct t_file *f = r->stub ? t_table_get(r->stub->table, fd) : t_broker_file((int)fd);
    T_HOLDS(!f || !f->stranger, "%s names a descriptor of a stranger's", r->c->name);
    return f;
}

static int check_descriptors(struct request *r)
{
    const struct vb_core_fd *core = &r->c->fd;
    for (unsigned i = 0; r->c->attrs && i < r->h.num_attrs; i++) {
        const struct vb_attr_rule *rule = r->c->attrs;
        while (rule->kind != VB_END && rule->id != r->copy[i].attr_id)
            rule++;
        if (rule->kind != VB_FD && rule->kind != VB_RAW_FD)
            continue;
        const struct t_file *f = named_file(r, (int32_t)r->copy[i].data);
        if (!f || f->kind != (rule->kind == VB_FD ? T_CHANNEL : T_DMABUF))
            return f ? -EINVAL : -EBADF;
    }
    if (core->place != VB_CORE_IN)
        return 0;
    int32_t fd = -1;
    size_t n;
    const uint8_t *in = input(r, UVERBS_ATTR_CORE_IN, &n);
    if (in && core->at + sizeof fd <= n)
        memcpy(&fd, in + core->at, sizeof fd);
    if (fd == -1)
        return 0;
    T_HOLDS(core->kind == VB_FD, "%s is shared by a file", r->c->name);
    const struct t_file *f = named_file(r, fd);
    return !f ? -EBADF : f->kind != T_CHANNEL ? -EINVAL : 0;
}

/* ---- the policy's limits, for some commands ----------------------------------------------------------- */

static void check_policy(struct request *r)
{
    uint64_t type = IB_UVERBS_QPT_RC, cqe = 0, wr = 0, port = 1;
    const uint8_t *gid = NULL;
    union {
        struct ib_uverbs_create_qp qp;
        struct ib_uverbs_ex_create_qp ex_qp;
        struct ib_uverbs_create_cq cq;
        struct ib_uverbs_modify_qp modify;
        struct ib_uverbs_create_ah ah;
    } u;
    if (!is_write(r)) {
        if (r->c->makes == VB_QP)
            type = number_in(r, UVERBS_ATTR_CREATE_QP_TYPE);
        if (r->c->makes == VB_CQ)
            cqe = (uint32_t)number_in(r, UVERBS_ATTR_CREATE_CQ_CQE);
    } else {
        core_in(r, &u, sizeof u);
        switch (r->c->command) {
        case IB_USER_VERBS_CMD_CREATE_QP:
            type = u.qp.qp_type;
            wr = HW_MAX(u.qp.max_send_wr, u.qp.max_recv_wr);
            break;
        case IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_QP:
            type = u.ex_qp.qp_type;
            wr = HW_MAX(u.ex_qp.max_send_wr, u.ex_qp.max_recv_wr);
            break;
        case IB_USER_VERBS_CMD_CREATE_CQ:
            cqe = u.cq.cqe;
            break;
        case IB_USER_VERBS_CMD_MODIFY_QP:
            port = u.modify.attr_mask & 1u << 5 ? u.modify.port_num : 1;
            gid = u.modify.attr_mask & 1u << 7 ? u.modify.dest.dgid : NULL;
            break;
        case IB_USER_VERBS_CMD_CREATE_AH:
            port = u.ah.attr.port_num;
            gid = u.ah.attr.is_global ? u.ah.attr.grh.dgid : NULL;
            break;
        default:
            break;
        }
    }
    T_HOLDS(type == IB_UVERBS_QPT_RC || (t.wide && (type == IB_UVERBS_QPT_RAW_PACKET || type == IB_UVERBS_QPT_XRC_INI ||
                                                    type == IB_UVERBS_QPT_XRC_TGT)),
            "a QP of type %llu", (unsigned long long)type);
    T_HOLDS(cqe <= MOST_CQE, "a CQ of %llu entries", (unsigned long long)cqe);
    T_HOLDS(wr <= MOST_WR, "a QP of %llu requests", (unsigned long long)wr);
    T_HOLDS(port == 1, "port %llu", (unsigned long long)port);
    static const uint8_t prefix[8];
    T_HOLDS(!gid || t.wide || memcmp(gid, prefix, sizeof prefix) == 0, "a destination that is not allowed");
}

/* ---- objects ------------------------------------------------------------------------------------------ */

static int make(struct request *r, uint32_t *number)
{
    for (uint32_t i = 0; i < T_OBJECTS; i++) {
        if (!r->device->object[i].type) {
            r->device->object[i] = (struct t_object){.type = (uint8_t)r->c->makes};
            r->device->objects = HW_MAX(r->device->objects, i + 1);
            *number = i;
            return 0;
        }
    }
    return -ENOSPC;
}

static uint64_t ended_number(struct request *r)
{
    const struct vb_number *n = &r->c->ended;
    uint32_t v = UINT32_MAX;
    size_t len;
    if (n->place == VB_ATTR)
        return number_in(r, n->at);
    const uint8_t *in = input(r, UVERBS_ATTR_CORE_IN, &len);
    if (in && n->at + sizeof v <= len)
        memcpy(&v, in + n->at, sizeof v);
    return v;
}

static int end_object(struct request *r)
{
    uint64_t number = ended_number(r);
    if (number >= T_OBJECTS || r->device->object[number].type != r->c->ends)
        return -ENOENT;
    r->device->object[number] = (struct t_object){0};
    return 0;
}

/* Stores the properties of a new memory registration. */
static int fill_mr(struct request *r, struct t_object *o)
{
    uint64_t at, length, iova, access;
    if (is_write(r)) {
        struct ib_uverbs_reg_mr in;
        core_in(r, &in, sizeof in);
        at = in.start;
        length = in.length;
        iova = in.hca_va;
        access = in.access_flags;
    } else if (r->c->method == METHOD_REG_MR) {
        at = number_in(r, REG_MR_ADDR);
        length = number_in(r, REG_MR_LENGTH);
        iova = number_in(r, REG_MR_IOVA);
        access = number_in(r, REG_MR_ACCESS_FLAGS);
    } else if (r->c->method == UVERBS_METHOD_REG_DMABUF_MR) {
        at = number_in(r, UVERBS_ATTR_REG_DMABUF_MR_OFFSET);
        length = number_in(r, UVERBS_ATTR_REG_DMABUF_MR_LENGTH);
        iova = number_in(r, UVERBS_ATTR_REG_DMABUF_MR_IOVA);
        access = number_in(r, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS);
    } else {
        return 0; /* device memory, so nothing is pinned */
    }
    T_HOLDS(!(access & IB_UVERBS_ACCESS_ON_DEMAND), "an MR on demand");
    bool dmabuf = r->c->method == UVERBS_METHOD_REG_DMABUF_MR || (!is_write(r) && attr_of(r, REG_MR_FD));
    if (dmabuf) {
        T_HOLDS(t.wide, "an MR of a dma-buf");
        at += !is_write(r) && r->c->method == METHOD_REG_MR ? number_in(r, REG_MR_FD_OFFSET) - at : 0;
        if (length == 0 || length > T_MEMORY || at > T_MEMORY - length)
            return -EINVAL;
    }
    if (((at ^ iova) & (T_PAGE - 1)) != 0)
        return -EINVAL; /* uverbs_cmd.c, ib_uverbs_reg_mr(); uverbs_std_types_mr.c */
    int rc = dmabuf ? 0 : pin(r, at, length, access & WRITES, &o->read_only);
    o->writes = access & WRITES;
    o->length = length;
    o->iova = iova;
    o->bytes = rc ? 0 : pages(dmabuf ? at : at & 0xfffff, length);
    return rc;
}

static int rereg(struct request *r)
{
    struct ib_uverbs_rereg_mr in;
    core_in(r, &in, sizeof in);
    if (in.mr_handle >= T_OBJECTS || r->device->object[in.mr_handle].type != VB_MR)
        return -ENOENT;
    struct t_object *o = &r->device->object[in.mr_handle];
    /* the access rights remain unless the request changes them */
    bool writes = in.flags & REREG_ACCESS ? in.access_flags & WRITES : o->writes, read_only = o->read_only;
    if (in.flags & REREG_TRANS) {
        if (((in.start ^ in.hca_va) & (T_PAGE - 1)) != 0)
            return -EINVAL;
        int rc = pin(r, in.start, in.length, writes, &read_only);
        if (rc)
            return rc;
        o->length = in.length;
        o->iova = in.hca_va;
        o->bytes = pages(in.start & 0xfffff, in.length);
        o->read_only = read_only;
    }
    T_HOLDS(!writes || !o->read_only, "an MR of memory that cannot be written gets write access");
    o->writes = writes;
    return 0;
}

static int list_handles(struct request *r)
{
    static const uint8_t types[] = {[UVERBS_OBJECT_PD] = VB_PD,
                                    [UVERBS_OBJECT_CQ] = VB_CQ,
                                    [UVERBS_OBJECT_QP] = VB_QP,
                                    [UVERBS_OBJECT_SRQ] = VB_SRQ,
                                    [UVERBS_OBJECT_MR] = VB_MR,
                                    [UVERBS_OBJECT_WQ] = VB_WQ,
                                    [UVERBS_OBJECT_AH] = VB_AH,
                                    [UVERBS_OBJECT_MW] = VB_MW,
                                    [UVERBS_OBJECT_FLOW] = VB_FLOW,
                                    [UVERBS_OBJECT_XRCD] = VB_XRCD,
                                    [UVERBS_OBJECT_DM] = VB_DM,
                                    [UVERBS_OBJECT_COUNTERS] = VB_COUNTERS,
                                    [UVERBS_OBJECT_RWQ_IND_TBL] = VB_RWQ_TABLE};
    uint32_t list[T_OBJECTS], n = 0;
    uint64_t object = number_in(r, UVERBS_ATTR_INFO_OBJECT_ID);
    const struct ib_uverbs_attr *out = attr_of(r, UVERBS_ATTR_INFO_HANDLES_LIST),
                                *total = attr_of(r, UVERBS_ATTR_INFO_TOTAL_HANDLES);
    if (object >= sizeof types || !types[object] || !out)
        return -EINVAL;
    for (uint32_t i = 0; i < T_OBJECTS && n < out->len / sizeof *list; i++) {
        if (r->device->object[i].type == types[object])
            list[n++] = i;
    }
    int rc = write_out(r, out, list, n * sizeof *list);
    return rc || !total ? rc : write_out(r, total, &n, sizeof n);
}

static int query_mr(struct request *r)
{
    uint64_t number = number_in(r, UVERBS_ATTR_QUERY_MR_HANDLE);
    const struct ib_uverbs_attr *length = attr_of(r, UVERBS_ATTR_QUERY_MR_RESP_LENGTH),
                                *iova = attr_of(r, UVERBS_ATTR_QUERY_MR_RESP_IOVA);
    if (number >= T_OBJECTS || r->device->object[number].type != VB_MR)
        return -ENOENT;
    const struct t_object *o = &r->device->object[number];
    int rc = length ? write_out(r, length, &o->length, sizeof o->length) : -EINVAL;
    return rc || !iova ? rc : write_out(r, iova, &o->iova, sizeof o->iova);
}

/* ---- results ------------------------------------------------------------------------------------------ */

static int new_channel(struct request *r)
{
    T_HOLDS(!r->stub, "%s runs in a stub", r->c->name);
    return t_broker_fd(t_file_new(T_CHANNEL));
}

/* Fills the outputs. number is the number of the new object. */
static int put_results(struct request *r, uint32_t number)
{
    const struct vb_attr_rule *rules = r->c->attrs ? r->c->attrs : vb_write_attrs;
    bool query = r->c->object == UVERBS_OBJECT_DEVICE && r->c->method == UVERBS_METHOD_INFO_HANDLES;
    query |= r->c->object == UVERBS_OBJECT_MR && r->c->method == UVERBS_METHOD_QUERY_MR;
    for (unsigned i = 0; i < r->h.num_attrs; i++) {
        struct ib_uverbs_attr *a = &r->copy[i];
        const struct vb_attr_rule *rule = rules;
        uint8_t out[512] = {0};
        int rc = 0;
        while (rule->kind != VB_END && rule->id != a->attr_id)
            rule++;
        if (rule->kind == VB_FD_NEW) {
            int fd = new_channel(r);
            a->data_s64 = fd;
            rc = fd < 0 ? -errno : mark(r, a, true);
        } else if (rule->kind == VB_HANDLE_NEW) {
            a->data = number;
            rc = mark(r, a, true);
        } else if (rule->kind == VB_OUT && a->len) {
            bool core = is_write(r) && a->attr_id == UVERBS_ATTR_CORE_OUT;
            if (core && r->c->fd.place == VB_CORE_OUT) {
                int32_t fd = new_channel(r);
                memcpy(out + r->c->fd.at, &fd, sizeof fd);
                rc = fd < 0 ? -errno : 0;
            } else if (core && r->c->made.place == VB_CORE_OUT) {
                memcpy(out + r->c->made.at, &number, sizeof number);
            }
            if (rc == 0 && !query)
                rc = write_out(r, a, out, HW_MIN(sizeof out, (size_t)a->len));
            rc = rc ? rc : mark(r, a, false);
        }
        if (rc)
            return rc;
    }
    return 0;
}

static int run(struct request *r)
{
    const struct vb_command *c = r->c;
    uint32_t number = 0;
    int rc = check_descriptors(r);
    check_policy(r);
    if (rc == 0 && r->part && r->part->memory) {
        size_t n;
        const uint8_t *uhw = input(r, UVERBS_ATTR_UHW_IN, &n);
        for (unsigned i = 0; uhw && i < r->part->n_addresses && rc == 0; i++) {
            uint64_t at;
            bool read_only;
            if (r->part->addresses[i].at + sizeof at > n)
                continue;
            memcpy(&at, uhw + r->part->addresses[i].at, sizeof at);
            rc = at ? pin(r, at, 64, false, &read_only) : 0;
        }
    }
    if (rc)
        return rc;
    if (c->object == UVERBS_OBJECT_DEVICE && c->method == UVERBS_METHOD_INFO_HANDLES)
        rc = list_handles(r);
    else if (c->object == UVERBS_OBJECT_MR && c->method == UVERBS_METHOD_QUERY_MR)
        rc = query_mr(r);
    else if (is_write(r) && c->command == IB_USER_VERBS_CMD_REREG_MR)
        rc = rereg(r);
    else if (c->ends != VB_NONE)
        rc = end_object(r);
    bool object = c->makes != VB_NONE && c->makes != VB_CONTEXT && c->makes != VB_CHANNEL && c->makes != VB_ASYNC;
    if (rc == 0 && object && (rc = make(r, &number)) == 0 && c->makes == VB_MR) {
        rc = fill_mr(r, &r->device->object[number]);
        if (rc)
            r->device->object[number] = (struct t_object){0};
    }
    if (rc == 0 && (object || r->c->command == IB_USER_VERBS_CMD_REREG_MR))
        t_rdma_check();
    if (rc == 0 && (rc = put_results(r, number)) && object)
        r->device->object[number] = (struct t_object){0};
    return rc;
}

/* Checks attributes as uverbs_process_attr() does: no known attribute occurs twice, every mandatory attribute is
 * known, and no required attribute is missing. */
static int check_attrs(struct request *r)
{
    const struct vb_attr_rule *rules = r->c->attrs ? r->c->attrs : vb_write_attrs;
    uint64_t seen = 0;
    for (unsigned i = 0; i < r->h.num_attrs; i++) {
        unsigned k = 0;
        while (rules[k].kind != VB_END && rules[k].id != r->copy[i].attr_id)
            k++;
        if (rules[k].kind == VB_END && r->copy[i].flags & UVERBS_ATTR_F_MANDATORY)
            return -EPROTONOSUPPORT;
        if (rules[k].kind != VB_END && seen >> k & 1)
            return -EINVAL;
        seen |= rules[k].kind == VB_END ? 0 : 1ull << k;
    }
    for (unsigned k = 0; rules[k].kind != VB_END; k++) {
        if (rules[k].mandatory && !(seen >> k & 1))
            return -EINVAL;
    }
    return 0;
}

int t_rdma_run(struct t_file *device, void *h, struct t_thread *th)
{
    static struct request r;
    uint32_t command = 0;
    r = (struct request){.device = device, .stub = th, .attr = (uint8_t *)h + sizeof r.h};
    t_totals.requests++;
    t_totals.by_stub += th != NULL;
    memcpy(&r.h, h, sizeof r.h);
    T_HOLDS(r.h.length == sizeof r.h + r.h.num_attrs * sizeof r.copy[0] && !r.h.reserved1 && !r.h.reserved2 &&
                r.h.num_attrs <= HW_ARRAY_LEN(r.copy),
            "a request that is malformed");
    memcpy(r.copy, r.attr, r.h.num_attrs * sizeof r.copy[0]);
    if (th) {
        r.window = th->process->mm->window;
        r.at = t_address(th->process->mm, T_WINDOW_AT);
    }
    if (!device || device->kind != T_DEVICE)
        return -ENOTTY;
    T_HOLDS(!device->stranger && device->device + 1 < T_DEVICES, "a request to device %u%s", device->device,
            device->stranger ? " of another container" : "");
    struct ib_uverbs_attr *which = attr_of(&r, UVERBS_ATTR_WRITE_CMD);
    if (r.h.object_id == UVERBS_OBJECT_DEVICE && r.h.method_id == UVERBS_METHOD_INVOKE_WRITE && which)
        command = (uint32_t)which->data;
    r.c = vb_schema(r.h.object_id, r.h.method_id, command);
    T_HOLDS(r.c && r.c->where != VB_REFUSED, "a command that the schema does not let through: 0x%x 0x%x 0x%x",
            r.h.object_id, r.h.method_id, command);
    /* the broker also makes these requests for itself */
    bool own = r.c->ends != VB_NONE ||
               (r.c->object == UVERBS_OBJECT_DEVICE && r.c->method == UVERBS_METHOD_INFO_HANDLES) ||
               (r.c->object == UVERBS_OBJECT_MR && r.c->method == UVERBS_METHOD_QUERY_MR);
    T_HOLDS(!t.read_other || th || own, "it runs %s, which it has read from another process", r.c->name);
    T_HOLDS(th || own || t.raced || device == t.call_file, "it runs %s on what is not there", r.c->name);
    T_SAY("kernel runs %s of %s, on inode %u", r.c->name, th ? "a stub" : "the broker", (unsigned)device->ino);
    const struct vb_driver *d = vb_driver(r.h.driver_id);
    if (!d || r.h.driver_id != t_driver(device->device))
        return -EINVAL;
    r.part = vb_driver_part(d, r.c);
    T_HOLDS(th || (r.c->where != VB_MEMORY && !(r.part && r.part->memory)), "it runs %s itself", r.c->name);
    int rc = check_attrs(&r);
    if (rc == 0 && t.fail_rdma && r.c->method != UVERBS_METHOD_INFO_HANDLES) {
        rc = -t.fail_rdma;
        t.fail_rdma = 0;
    }
    return rc ? rc : run(&r);
}

/* ---- the broker's ------------------------------------------------------------------------------------- */

static int call(int fd, struct ib_uverbs_ioctl_hdr *h)
{
    t_tick();
    struct t_file *f = t_broker_file(fd);
    T_HOLDS(f, "a request to descriptor %d, which is not open", fd);
    return t_rdma_run(f, h, NULL);
}

const struct vb_kernel t_kernel = {.ioctl = call};
