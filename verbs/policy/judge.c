/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a container may make a request. The table below has a row for each command that the schema does not
 * refuse; a command without a row is refused. The rules depend on how the kernel executes a command (uverbs_cmd.c and
 * uverbs_std_types_*.c in drivers/infiniband/core/ of Linux 6.12).
 *
 * For raw packet QPs, the source QPNs of EX_CREATE_QP, flows and controlled Q_Keys the kernel checks the capabilities
 * of its caller, which is the broker or the stub. These requests are therefore checked against the policy here.
 */
#include "base/size.h"
#include "verbs/policy/policy_int.h"
#include "verbs/schema/newer.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <stdio.h>

/* From include/rdma/ib_verbs.h (enums ib_qp_attr_mask, ib_srq_attr_mask and ib_qp_create_flags) and
 * include/rdma/ib_mad.h. */
#define QP_STATE          (1u << 0)
#define QP_PKEY_INDEX     (1u << 4)
#define QP_PORT           (1u << 5)
#define QP_QKEY           (1u << 6)
#define QP_AV             (1u << 7)
#define QP_ALT_PATH       (1u << 14)
#define SRQ_MAX_WR        (1u << 0)
#define STATE_RTR         2 /* IB_QPS_RTR of enum ib_qp_state */
#define CREATE_SOURCE_QPN (1u << 10)
#define CONTROLLED_QKEY   0x80000000u

#define TYPE_DRIVER_BIT 31

struct judge {
    const struct vb_rules *rules;
    const struct vb_usage *u;
    const struct vb_objects *o;
    const struct vb_request *r;
    struct vb_verdict *v;
};

/* Records a refusal. Returns false, so that a rule can return the result of this call. */
static bool HW_PRINTF(4, 5) no(struct judge *j, int rc, const char *rule, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    j->v->rc = rc;
    snprintf(j->v->rule, sizeof(j->v->rule), "%s", rule);
    vsnprintf(j->v->text, sizeof(j->v->text), fmt, ap);
    va_end(ap);
    return false;
}

static bool has_permission(struct judge *j, unsigned bit, const char *name, const char *what)
{
    char rule[64];
    snprintf(rule, sizeof(rule), "allow: no %s", name);
    return j->rules->allow & bit ? true : no(j, -EOPNOTSUPP, rule, "%s", what);
}

/* ---------------------------------------------------------------- amounts */

/* Returns true if `have`, the current amount, plus `more` does not exceed max. Otherwise records a refusal. */
static bool is_within_limit(struct judge *j, const char *key, uint64_t have, uint64_t more, uint64_t max, bool size)
{
    char rule[64], a[32], b[32];
    uint64_t sum;
    if (!__builtin_add_overflow(have, more, &sum) && sum <= max)
        return true;
    if (size) {
        snprintf(rule, sizeof(rule), "%s = %s", key, hw_format_size(max, a, sizeof(a)));
        return no(j, -ENOMEM, rule, "%s of memory is registered, and %s more was requested",
                  hw_format_size(have, a, sizeof(a)), hw_format_size(more, b, sizeof(b)));
    }
    snprintf(rule, sizeof(rule), "%s = %" PRIu64, key, max);
    return no(j, -ENOMEM, rule, "the limit of %" PRIu64 " is reached", max);
}

static bool at_most(struct judge *j, const char *key, uint64_t n, uint64_t max, const char *what)
{
    char rule[64];
    snprintf(rule, sizeof(rule), "%s = %" PRIu64, key, max);
    return n <= max ? true : no(j, -EINVAL, rule, "%" PRIu64 " %s exceed the limit", n, what);
}

static bool judge_object_count(struct judge *j)
{
    enum vb_type t = j->r->command->makes;
    const char *key = t < VB_TYPES ? vb_limit_key(t) : NULL;
    /* vb_judge_open() and vb_objects_new() check and count contexts. */
    return !key || t == VB_CONTEXT || is_within_limit(j, key, j->u->n[t], 1, j->rules->max[t], false);
}

/* ------------------------------------------------------------------ paths */

static bool judge_port(struct judge *j, unsigned p)
{
    return p < 64 && (j->rules->ports >> p & 1) ? true : no(j, -EPERM, "ports", "port %u is not allowed", p);
}

static bool is_pkey_allowed(const struct vb_rules *rules, uint16_t pkey)
{
    bool in = false;
    for (unsigned i = 0; i < rules->n_pkeys; i++)
        in |= ((rules->pkeys[i] ^ pkey) & 0x7fff) == 0;
    return in;
}

/* Checks the P_Key at an index of port p. If p is 0, the request does not specify the port, and the P_Key at this index
 * must be allowed on each allowed port that has one. */
static bool judge_pkey(struct judge *j, unsigned p, unsigned index)
{
    const struct vb_rules *rules = j->rules;
    unsigned known = 0;
    if (rules->any_pkey)
        return true;
    for (unsigned i = p ? p : 1; i <= (p ? p : 63); i++) {
        uint16_t value = 0;
        if ((!p && !(rules->ports >> i & 1)) || !rules->pkey || rules->pkey(rules->pkey_arg, i, index, &value) < 0)
            continue;
        known++;
        if (!is_pkey_allowed(rules, value))
            return no(j, -EPERM, "pkeys", "P_Key 0x%04x, index %u of port %u, is not allowed", value, index, i);
    }
    if (known)
        return true;
    return p ? no(j, -EPERM, "pkeys", "the P_Key at index %u of port %u is unknown", index, p)
             : no(j, -EPERM, "pkeys", "no allowed port has a known P_Key at index %u", index);
}

/* Returns true for an IPv6 or a mapped IPv4 multicast address, like rdma_is_multicast_addr() in ib_addr.h. */
static bool is_multicast(const uint8_t *gid)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return gid[0] == 0xff || (memcmp(gid, mapped, sizeof(mapped)) == 0 && gid[12] >> 4 == 14);
}

static bool judge_destination(struct judge *j, const uint8_t *gid)
{
    const struct vb_rules *rules = j->rules;
    char text[INET6_ADDRSTRLEN];
    if (is_multicast(gid) && !has_permission(j, VB_ALLOW_MULTICAST, "multicast",
                                             "the destination is a multicast group, which is not allowed"))
        return false;
    if (rules->any_destination)
        return true;
    for (unsigned i = 0; i < rules->n_destinations; i++)
        if (vb_within(&rules->destination[i], gid))
            return true;
    return no(j, -EPERM, "destinations", "GID %s is not in any of the allowed prefixes",
              inet_ntop(AF_INET6, gid, text, sizeof(text)));
}

static bool judge_path(struct judge *j, unsigned p, bool global, unsigned sgid_index, const uint8_t *dgid,
                       unsigned dlid)
{
    if (!judge_port(j, p))
        return false;
    /* On InfiniBand the LID alone determines the destination, and a packet without a GRH has no GID. Ethernet has no
     * LIDs, and the kernel requires a GRH there. */
    if ((!global || dlid) && !j->rules->any_destination && !(j->rules->allow & VB_ALLOW_LID))
        return dlid ? no(j, -EPERM, "destinations",
                         "LID %u determines the destination, and 'allow' does not contain 'lid'", dlid)
                    : no(j, -EPERM, "destinations", "the destination has no GID, and 'allow' does not contain 'lid'");
    if (!global)
        return true;
    if (!vb_gid_index(j->rules, sgid_index))
        return no(j, -EPERM, "gids", "GID index %u is not allowed as the source", sgid_index);
    return judge_destination(j, dgid);
}

/* -------------------------------------------------------------- the rules */

static bool judge_context(struct judge *j)
{
    const struct vb_request *r = j->r;
    uint32_t flags = 0;
    size_t at = offsetof(struct mlx5_ib_alloc_ucontext_req_v2, flags);
    if (!r->driver || r->driver->id != RDMA_DRIVER_MLX5)
        return true;
    if (r->uhw_in && r->uhw_in_len > at)
        memcpy(&flags, (const uint8_t *)r->uhw_in + at, HW_MIN(sizeof(flags), r->uhw_in_len - at));
    /* libmlx5 retries without the flag if the request fails. */
    return flags & MLX5_IB_ALLOC_UCTX_DEVX
               ? has_permission(j, VB_ALLOW_DEVX, "devx",
                                "contexts that can send firmware commands to the device are not allowed")
               : true;
}

static bool judge_mr(struct judge *j)
{
    struct vb_mr_ask m;
    vb_mr_ask(j->r, &m);
    if ((m.kind == VB_MR_NEW || m.change_access) && (m.access & IB_UVERBS_ACCESS_ON_DEMAND) &&
        !has_permission(j, VB_ALLOW_ODP, "odp",
                        "memory regions that are not pinned (on-demand paging) are not allowed"))
        return false;
    /* Linux 6.2 and later, up to 6.12.94, 6.18.36 and 7.0.13, does not check how the memory is pinned (CVE-2026-52908).
     * The device could then write to memory that is read-only for the program, including the window of the stub. Fixed
     * kernels return -EACCES, as this rule does. */
    if (m.change_access && !m.resize && m.writes && vb_objects_read_only(j->o))
        return no(j, -EACCES, "REREG_MR",
                  "an MR cannot get write access after this context has requested a read-only MR");
    uint64_t old = m.kind == VB_MR_AGAIN ? vb_objects_mr_bytes(j->o, m.number) : 0;
    bool more = m.kind == VB_MR_NEW || (m.kind == VB_MR_AGAIN && m.resize && m.bytes > old);
    return more ? is_within_limit(j, "mr_bytes", j->u->mr_bytes, m.bytes - old, j->rules->mr_bytes, true) : true;
}

static bool dmabuf_mr(struct judge *j)
{
    return has_permission(j, VB_ALLOW_DMABUF, "dmabuf", "memory regions in dma-bufs are not allowed") && judge_mr(j);
}

static bool modern_mr(struct judge *j)
{
    return vb_attr_find(j->r, REG_MR_FD) ? dmabuf_mr(j) : judge_mr(j);
}

static bool advise_mr(struct judge *j)
{
    return has_permission(j, VB_ALLOW_ODP, "odp", "memory advice is only for on-demand paging, which is not allowed");
}

static bool create_cq(struct judge *j)
{
    const struct vb_command *c = j->r->command;
    uint64_t cqe;
    if (c->object == UVERBS_OBJECT_CQ) {
        cqe = vb_attr_u64(j->r, UVERBS_ATTR_CREATE_CQ_CQE);
    } else if (c->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) {
        struct ib_uverbs_ex_create_cq in;
        vb_core_in(j->r, &in, sizeof(in));
        cqe = in.cqe;
    } else if (c->command == IB_USER_VERBS_CMD_RESIZE_CQ) {
        struct ib_uverbs_resize_cq in;
        vb_core_in(j->r, &in, sizeof(in));
        cqe = in.cqe;
    } else {
        struct ib_uverbs_create_cq in;
        vb_core_in(j->r, &in, sizeof(in));
        cqe = in.cqe;
    }
    return at_most(j, "cqe", cqe, j->rules->cqe, "entries of a CQ");
}

static bool qp_type(struct judge *j, uint64_t type)
{
    static const char *const names[] = {
        [2] = "RC", [3] = "UC", [4] = "UD", [8] = "raw packet", [9] = "XRC", [10] = "XRC"};
    unsigned bit = type == IB_UVERBS_QPT_DRIVER ? TYPE_DRIVER_BIT : (unsigned)HW_MIN(type, (uint64_t)30);
    const char *name = bit == TYPE_DRIVER_BIT ? "driver" : bit < HW_ARRAY_LEN(names) ? names[bit] : NULL;
    if (!name)
        return no(j, -EINVAL, "qp_types", "unknown QP type %" PRIu64, type);
    if (type == IB_UVERBS_QPT_RAW_PACKET && !has_permission(j, VB_ALLOW_RAW, "raw", "raw packet QPs are not allowed"))
        return false;
    if ((type == IB_UVERBS_QPT_XRC_INI || type == IB_UVERBS_QPT_XRC_TGT) &&
        !has_permission(j, VB_ALLOW_XRC, "xrc", "XRC QPs are not allowed"))
        return false;
    if (!(j->rules->qp_types >> bit & 1))
        return no(j, -EPERM, "qp_types", "%s QPs are not allowed", name);
    /* A work request of these QPs can contain the source and the destination of a message. The application writes work
     * requests to memory that the device reads, so the broker cannot check them. Work requests of rxe's old ABI contain
     * both addresses (rxe_get_av()). Work requests of mlx5's UD and DC QPs contain the GID index and the
     * destination. */
    if ((type == IB_UVERBS_QPT_UD || type == IB_UVERBS_QPT_DRIVER) && !(j->rules->allow & VB_ALLOW_UD_ANYWHERE)) {
        if (!j->rules->any_destination)
            return no(j, -EPERM, "destinations",
                      "a %s QP can send to any destination, and 'allow' does not contain 'ud-anywhere'", name);
        if (!vb_all_gids(j->rules))
            return no(j, -EPERM, "gids", "a %s QP can send from any GID, and 'allow' does not contain 'ud-anywhere'",
                      name);
    }
    return true;
}

static bool qp_flags(struct judge *j, uint64_t flags)
{
    const uint64_t harmless = IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
                              IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
    const uint64_t raw = CREATE_SOURCE_QPN | IB_UVERBS_QP_CREATE_SCATTER_FCS | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
    if (flags & ~(harmless | raw))
        return no(j, -EOPNOTSUPP, "QP create flags", "flags 0x%" PRIx64 " are never allowed",
                  flags & ~(harmless | raw));
    return flags & raw ? has_permission(
                             j, VB_ALLOW_RAW, "raw",
                             "QP create flags that concern raw packets or the source QPN of another QP are not allowed")
                       : true;
}

static bool qp_size(struct judge *j, uint64_t send, uint64_t recv)
{
    return at_most(j, "qp_wr", send, j->rules->qp_wr, "send requests") &&
           at_most(j, "qp_wr", recv, j->rules->qp_wr, "receive requests");
}

/* Checks the size of the queues in the driver's part of the request. */
static bool driver_size(struct judge *j)
{
    struct vb_queue_ask q;
    vb_queue_ask(j->r, &q);
    return qp_size(j, q.send, q.recv);
}

static bool create_qp(struct judge *j)
{
    const struct vb_request *r = j->r;
    if (!driver_size(j))
        return false;
    if (r->command->object == UVERBS_OBJECT_QP) {
        struct ib_uverbs_qp_cap cap;
        vb_attr_bytes(r, UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof(cap));
        uint64_t flags = vb_attr_u64(r, UVERBS_ATTR_CREATE_QP_FLAGS);
        /* The kernel does not check a capability for this attribute. */
        if (vb_attr_find(r, UVERBS_ATTR_CREATE_QP_SOURCE_QPN))
            flags |= CREATE_SOURCE_QPN;
        if (vb_attr_find(r, UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE) &&
            !has_permission(j, VB_ALLOW_RAW, "raw", "QPs with a receive table are not allowed"))
            return false;
        return qp_type(j, vb_attr_u64(r, UVERBS_ATTR_CREATE_QP_TYPE)) && qp_flags(j, flags) &&
               qp_size(j, cap.max_send_wr, cap.max_recv_wr);
    }
    if (r->command->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) {
        struct ib_uverbs_ex_create_qp in;
        vb_core_in(r, &in, sizeof(in));
        if ((in.comp_mask & IB_UVERBS_CREATE_QP_MASK_IND_TABLE) &&
            !has_permission(j, VB_ALLOW_RAW, "raw", "QPs with a receive table are not allowed"))
            return false;
        return qp_type(j, in.qp_type) && qp_flags(j, in.create_flags) && qp_size(j, in.max_send_wr, in.max_recv_wr);
    }
    struct ib_uverbs_create_qp in;
    vb_core_in(r, &in, sizeof(in));
    return qp_type(j, in.qp_type) && qp_size(j, in.max_send_wr, in.max_recv_wr);
}

/* Checks MODIFY_QP and EX_MODIFY_QP, whose inputs begin with the same struct. As in the kernel's modify_qp(), only the
 * fields in attr_mask are used. The kernel checks the QP's state and whether the mask is valid in this state. */
static bool modify_qp(struct judge *j)
{
    struct ib_uverbs_modify_qp in;
    vb_core_in(j->r, &in, sizeof(in));
    const struct ib_uverbs_qp_dest *d = &in.dest, *alt = &in.alt_dest;
    unsigned p = in.attr_mask & QP_PORT ? in.port_num : in.attr_mask & QP_AV ? d->port_num : 0;
    if ((in.attr_mask & QP_PORT) && !judge_port(j, in.port_num))
        return false;
    if ((in.attr_mask & QP_AV) && !judge_path(j, d->port_num, d->is_global, d->sgid_index, d->dgid, d->dlid))
        return false;
    if ((in.attr_mask & QP_PKEY_INDEX) && !judge_pkey(j, p, in.pkey_index))
        return false;
    /* An index may stand for a different P_Key on another port, so a request that changes the port must also contain
     * the index. An address vector changes the port, except in the transition to RTR, as in the kernel's
     * modify_qp(). */
    bool rtr = (in.attr_mask & QP_STATE) && in.qp_state == STATE_RTR;
    if (!j->rules->any_pkey && !(in.attr_mask & QP_PKEY_INDEX) &&
        ((in.attr_mask & QP_PORT) || ((in.attr_mask & QP_AV) && !rtr)))
        return no(j, -EPERM, "pkeys", "the request sets port %u without a P_Key index", p);
    if ((in.attr_mask & QP_QKEY) && (in.qkey & CONTROLLED_QKEY) &&
        !has_permission(j, VB_ALLOW_RAW, "raw", "controlled Q_Keys (with the highest bit set) are not allowed"))
        return false;
    if (!(in.attr_mask & QP_ALT_PATH))
        return true;
    return judge_port(j, in.alt_port_num) &&
           judge_path(j, alt->port_num, alt->is_global, alt->sgid_index, alt->dgid, alt->dlid) &&
           judge_pkey(j, in.alt_port_num, in.alt_pkey_index);
}

static bool create_ah(struct judge *j)
{
    struct ib_uverbs_create_ah in;
    vb_core_in(j->r, &in, sizeof(in));
    return judge_path(j, in.attr.port_num, in.attr.is_global, in.attr.grh.sgid_index, in.attr.grh.dgid, in.attr.dlid);
}

static bool srq_type(struct judge *j, uint64_t type)
{
    if (type == IB_UVERBS_SRQT_XRC)
        return has_permission(j, VB_ALLOW_XRC, "xrc", "XRC SRQs are not allowed");
    return type == IB_UVERBS_SRQT_BASIC ? true
                                        : no(j, -EOPNOTSUPP, "SRQ types", "type %" PRIu64 " is never allowed", type);
}

static bool srq_size(struct judge *j, uint64_t n)
{
    return at_most(j, "qp_wr", n, j->rules->qp_wr, "receive requests of an SRQ");
}

static bool create_srq(struct judge *j)
{
    const struct vb_command *c = j->r->command;
    if (c->object == UVERBS_OBJECT_SRQ)
        return srq_type(j, vb_attr_u64(j->r, UVERBS_ATTR_CREATE_SRQ_TYPE)) &&
               srq_size(j, vb_attr_u64(j->r, UVERBS_ATTR_CREATE_SRQ_MAX_WR));
    if (c->command == IB_USER_VERBS_CMD_CREATE_XSRQ) {
        struct ib_uverbs_create_xsrq in;
        vb_core_in(j->r, &in, sizeof(in));
        return srq_type(j, in.srq_type) && srq_size(j, in.max_wr);
    }
    struct ib_uverbs_create_srq in;
    vb_core_in(j->r, &in, sizeof(in));
    return srq_size(j, in.max_wr);
}

static bool modify_srq(struct judge *j)
{
    struct ib_uverbs_modify_srq in;
    vb_core_in(j->r, &in, sizeof(in));
    return in.attr_mask & SRQ_MAX_WR ? srq_size(j, in.max_wr) : true;
}

/* Refuses an XRC domain that is identified by a file even if XRC is allowed, because all processes that open the domain
 * with this file share it, even if they are in other containers. */
static bool open_xrcd(struct judge *j)
{
    struct ib_uverbs_open_xrcd in;
    vb_core_in(j->r, &in, sizeof(in));
    if (!has_permission(j, VB_ALLOW_XRC, "xrc", "XRC domains are not allowed"))
        return false;
    return in.fd == UINT32_MAX
               ? true
               : no(j, -EOPNOTSUPP, "XRC domains", "sharing a domain through a file descriptor is never allowed");
}

static bool open_qp(struct judge *j)
{
    struct ib_uverbs_open_qp in;
    vb_core_in(j->r, &in, sizeof(in));
    return qp_type(j, in.qp_type);
}

static bool attach_mcast(struct judge *j)
{
    struct ib_uverbs_attach_mcast in;
    vb_core_in(j->r, &in, sizeof(in));
    return has_permission(j, VB_ALLOW_MULTICAST, "multicast", "multicast groups are not allowed") &&
           judge_destination(j, in.gid);
}

static bool judge_flow(struct judge *j)
{
    return has_permission(j, VB_ALLOW_FLOW, "flow", "flow steering is not allowed");
}

static bool create_wq(struct judge *j)
{
    uint64_t max_wr;
    if (j->r->command->object == UVERBS_OBJECT_WQ) {
        max_wr = vb_attr_u64(j->r, UVERBS_ATTR_CREATE_WQ_MAX_WR);
    } else {
        struct ib_uverbs_ex_create_wq in;
        vb_core_in(j->r, &in, sizeof(in));
        max_wr = in.max_wr;
    }
    return has_permission(j, VB_ALLOW_RAW, "raw", "WQs, which are for raw packets only, are not allowed") &&
           at_most(j, "qp_wr", max_wr, j->rules->qp_wr, "receive requests of a WQ") && driver_size(j);
}

static bool rwq_table(struct judge *j)
{
    return has_permission(j, VB_ALLOW_RAW, "raw", "receive tables, which are for raw packets only, are not allowed");
}

/* Refuses a GID that the application is not allowed to see, with the error that rdma_get_gid_attr() returns for an
 * empty entry. */
static bool gid_entry(struct judge *j)
{
    return vb_gid_shows(j->rules, vb_attr_u64(j->r, UVERBS_ATTR_QUERY_GID_ENTRY_PORT),
                        vb_attr_u64(j->r, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX))
               ? true
               : no(j, -ENODATA, "", "the application is not allowed to see this GID");
}

/* Refuses truncated entries, because they may lack the port and the index of the GID. */
static bool gid_table(struct judge *j)
{
    return vb_attr_u64(j->r, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE) < sizeof(struct ib_uverbs_gid_entry)
               ? no(j, -EINVAL, "", "entries of the GID table must have at least %zu bytes",
                    sizeof(struct ib_uverbs_gid_entry))
               : true;
}

/* --------------------------------------------------------------- the table */

#define EX(c) (IB_USER_VERBS_CMD_FLAG_EXTENDED | (c))
#define W(c)  UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, (c)

static const struct row {
    uint16_t object, method;
    uint32_t command;
    bool (*rule)(struct judge *j); /* NULL if only the number of created objects is checked */
} rows[] = {
    {W(IB_USER_VERBS_CMD_GET_CONTEXT), judge_context},
    {W(IB_USER_VERBS_CMD_QUERY_DEVICE), NULL},
    {W(IB_USER_VERBS_CMD_QUERY_PORT), NULL},
    {W(IB_USER_VERBS_CMD_ALLOC_PD), NULL},
    {W(IB_USER_VERBS_CMD_DEALLOC_PD), NULL},
    {W(IB_USER_VERBS_CMD_CREATE_AH), create_ah},
    {W(IB_USER_VERBS_CMD_DESTROY_AH), NULL},
    {W(IB_USER_VERBS_CMD_REG_MR), judge_mr},
    {W(IB_USER_VERBS_CMD_REREG_MR), judge_mr},
    {W(IB_USER_VERBS_CMD_DEREG_MR), NULL},
    {W(IB_USER_VERBS_CMD_ALLOC_MW), NULL},
    {W(IB_USER_VERBS_CMD_DEALLOC_MW), NULL},
    {W(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL), NULL},
    {W(IB_USER_VERBS_CMD_CREATE_CQ), create_cq},
    {W(IB_USER_VERBS_CMD_RESIZE_CQ), create_cq},
    {W(IB_USER_VERBS_CMD_DESTROY_CQ), NULL},
    {W(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ), NULL},
    {W(IB_USER_VERBS_CMD_CREATE_QP), create_qp},
    {W(IB_USER_VERBS_CMD_QUERY_QP), NULL},
    {W(IB_USER_VERBS_CMD_MODIFY_QP), modify_qp},
    {W(IB_USER_VERBS_CMD_DESTROY_QP), NULL},
    {W(IB_USER_VERBS_CMD_POST_SEND), NULL},
    {W(IB_USER_VERBS_CMD_POST_RECV), NULL},
    {W(IB_USER_VERBS_CMD_ATTACH_MCAST), attach_mcast},
    {W(IB_USER_VERBS_CMD_DETACH_MCAST), NULL},
    {W(IB_USER_VERBS_CMD_CREATE_SRQ), create_srq},
    {W(IB_USER_VERBS_CMD_MODIFY_SRQ), modify_srq},
    {W(IB_USER_VERBS_CMD_QUERY_SRQ), NULL},
    {W(IB_USER_VERBS_CMD_DESTROY_SRQ), NULL},
    {W(IB_USER_VERBS_CMD_POST_SRQ_RECV), NULL},
    {W(IB_USER_VERBS_CMD_OPEN_XRCD), open_xrcd},
    {W(IB_USER_VERBS_CMD_CLOSE_XRCD), NULL},
    {W(IB_USER_VERBS_CMD_CREATE_XSRQ), create_srq},
    {W(IB_USER_VERBS_CMD_OPEN_QP), open_qp},
    {W(EX(IB_USER_VERBS_EX_CMD_QUERY_DEVICE)), NULL},
    {W(EX(IB_USER_VERBS_EX_CMD_CREATE_CQ)), create_cq},
    {W(EX(IB_USER_VERBS_EX_CMD_CREATE_QP)), create_qp},
    {W(EX(IB_USER_VERBS_EX_CMD_MODIFY_QP)), modify_qp},
    {W(EX(IB_USER_VERBS_EX_CMD_CREATE_FLOW)), judge_flow},
    {W(EX(IB_USER_VERBS_EX_CMD_DESTROY_FLOW)), NULL},
    {W(EX(IB_USER_VERBS_EX_CMD_CREATE_WQ)), create_wq},
    {W(EX(IB_USER_VERBS_EX_CMD_MODIFY_WQ)), NULL},
    {W(EX(IB_USER_VERBS_EX_CMD_DESTROY_WQ)), NULL},
    {W(EX(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL)), rwq_table},
    {W(EX(IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL)), NULL},
    {W(EX(IB_USER_VERBS_EX_CMD_MODIFY_CQ)), NULL},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES, 0, NULL},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, 0, NULL},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, 0, judge_context},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, 0, NULL},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, 0, gid_table},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, 0, gid_entry},
    {UVERBS_OBJECT_DEVICE, METHOD_QUERY_PORT_SPEED, 0, NULL},
    {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, 0, NULL},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, 0, create_cq},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, 0, NULL},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, 0, create_qp},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, 0, NULL},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, 0, create_srq},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, 0, NULL},
    {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, 0, NULL},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, 0, judge_mr},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, 0, NULL},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, 0, advise_mr},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, 0, NULL},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, 0, dmabuf_mr},
    {UVERBS_OBJECT_MR, METHOD_REG_MR, 0, modern_mr},
    {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, 0, NULL},
    {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, 0, NULL},
    {UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, 0, NULL},
    {UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, 0, NULL},
    {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, 0, create_wq},
    {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, 0, NULL},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, 0, NULL},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, 0, NULL},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE, 0, NULL},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, 0, NULL},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ, 0, NULL},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, 0, NULL},
};

static const struct row *row_of(const struct vb_command *c)
{
    bool write = c->object == UVERBS_OBJECT_DEVICE && c->method == UVERBS_METHOD_INVOKE_WRITE;
    for (size_t i = 0; i < HW_ARRAY_LEN(rows); i++)
        if (rows[i].object == c->object && rows[i].method == c->method && (!write || rows[i].command == c->command))
            return &rows[i];
    return NULL;
}

bool vb_judged(const struct vb_command *c)
{
    return row_of(c) != NULL;
}

static bool judge_device_open(struct judge *j)
{
    return j->rules->allowed ? true : no(j, -EACCES, "devices", "the policy does not allow this device");
}

void vb_judge_open(const struct vb_rules *rules, const struct vb_usage *u, struct vb_verdict *v)
{
    struct judge j = {rules, u, NULL, NULL, v};
    memset(v, 0, sizeof(*v));
    if (judge_device_open(&j))
        is_within_limit(&j, vb_limit_key(VB_CONTEXT), u->n[VB_CONTEXT], 1, rules->max[VB_CONTEXT], false);
}

void vb_judge(const struct vb_rules *rules, const struct vb_usage *u, const struct vb_objects *o,
              const struct vb_request *r, struct vb_verdict *v)
{
    struct judge j = {rules, u, o, r, v};
    memset(v, 0, sizeof(*v));
    const struct row *row = row_of(r->command);
    if (!judge_device_open(&j))
        return;
    if (!row)
        no(&j, -EOPNOTSUPP, "schema", "there is no rule for %s", r->command->name);
    else if (!row->rule || row->rule(&j))
        judge_object_count(&j);
}
