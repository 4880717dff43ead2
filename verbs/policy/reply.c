/* SPDX-License-Identifier: Apache-2.0 */
/* Filters the kernel's replies before the application gets them. */
#include "verbs/policy/policy_int.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>

bool vb_gid_shows(const struct vb_rules *rules, uint64_t port, uint64_t index)
{
    if (port >= 64 || !(rules->ports >> port & 1))
        return false;
    return index < 256 ? vb_gid_index(rules, (unsigned)index) : vb_all_gids(rules);
}

static void filter_table(const struct vb_rules *rules, struct vb_request *r)
{
    const struct vb_attr *out = vb_attr_find(r, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
    const struct vb_attr *num = vb_attr_find(r, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES);
    uint64_t size = vb_attr_u64(r, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE), n = 0, kept = 0;
    if (!out || !num)
        return;
    memcpy(&n, r->copy + num->at, HW_MIN(sizeof(n), (size_t)num->len));
    uint8_t *at = r->copy + out->at;
    if (size < sizeof(struct ib_uverbs_gid_entry))
        n = 0;
    n = HW_MIN(n, size ? out->len / size : 0);
    for (uint64_t i = 0; i < n; i++) {
        struct ib_uverbs_gid_entry e;
        memcpy(&e, at + i * size, sizeof(e));
        if (vb_gid_shows(rules, e.port_num, e.gid_index))
            memmove(at + kept++ * size, at + i * size, size);
    }
    memset(at + kept * size, 0, out->len - kept * size);
    memcpy(r->copy + num->at, &kept, HW_MIN(sizeof(kept), (size_t)num->len));
}

static void filter_entry(const struct vb_rules *rules, struct vb_request *r)
{
    const struct vb_attr *out = vb_attr_find(r, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY);
    if (out && !vb_gid_shows(rules, vb_attr_u64(r, UVERBS_ATTR_QUERY_GID_ENTRY_PORT),
                             vb_attr_u64(r, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)))
        memset(r->copy + out->at, 0, out->len);
}

static void cap_device_limit(uint32_t *n, uint64_t max)
{
    *n = (uint32_t)HW_MIN(*n, max);
}

/* Filters the replies to QUERY_DEVICE and EX_QUERY_DEVICE. The reply to QUERY_DEVICE is the first part of the reply to
 * EX_QUERY_DEVICE, which may be truncated. */
static void filter_device(const struct vb_rules *rules, struct vb_request *r)
{
    struct ib_uverbs_ex_query_device_resp ex = {0};
    size_t n = HW_MIN(sizeof(ex), (size_t)r->core_out_len);
    if (!r->core_out)
        return;
    memcpy(&ex, r->core_out, n);
    struct ib_uverbs_query_device_resp d = ex.base;
    uint32_t hidden = (rules->allow & VB_ALLOW_XRC ? 0 : (uint32_t)IB_UVERBS_DEVICE_XRC) |
                      (rules->allow & VB_ALLOW_FLOW ? 0 : (uint32_t)IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING);
    d.max_mr_size = HW_MIN(d.max_mr_size, rules->mr_bytes);
    cap_device_limit(&d.max_qp, rules->max[VB_QP]);
    cap_device_limit(&d.max_qp_wr, rules->qp_wr);
    cap_device_limit(&d.max_cq, rules->max[VB_CQ]);
    cap_device_limit(&d.max_cqe, rules->cqe);
    cap_device_limit(&d.max_mr, rules->max[VB_MR]);
    cap_device_limit(&d.max_pd, rules->max[VB_PD]);
    cap_device_limit(&d.max_mw, rules->max[VB_MW]);
    cap_device_limit(&d.max_ah, rules->max[VB_AH]);
    cap_device_limit(&d.max_srq, rules->max[VB_SRQ]);
    cap_device_limit(&d.max_srq_wr, rules->qp_wr);
    if (!(rules->allow & VB_ALLOW_MULTICAST))
        d.max_mcast_grp = 0;
    d.device_cap_flags &= ~hidden;
    ex.base = d;
    ex.device_cap_flags_ex &= ~(uint64_t)hidden;
    if (!(rules->allow & VB_ALLOW_ODP)) {
        memset(&ex.odp_caps, 0, sizeof(ex.odp_caps));
        ex.xrc_odp_caps = 0;
    }
    if (!(rules->allow & VB_ALLOW_RAW))
        ex.raw_packet_caps = 0;
    if (rules->max[VB_DM] == 0)
        ex.max_dm_size = 0;
    memcpy(r->core_out, &ex, n);
}

void vb_filter_reply(const struct vb_rules *rules, struct vb_request *r)
{
    const struct vb_command *c = r->command;
    if (c->object != UVERBS_OBJECT_DEVICE)
        return;
    if (c->method == UVERBS_METHOD_QUERY_GID_TABLE)
        filter_table(rules, r);
    else if (c->method == UVERBS_METHOD_QUERY_GID_ENTRY)
        filter_entry(rules, r);
    else if (c->method == UVERBS_METHOD_INVOKE_WRITE &&
             (c->command & ~IB_USER_VERBS_CMD_FLAG_EXTENDED) == IB_USER_VERBS_CMD_QUERY_DEVICE)
        filter_device(rules, r);
}
