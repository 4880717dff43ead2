/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of an application that are judged and settled one after the other. The first byte selects the policy. Each
 * request consists of a byte for its outcome, a byte for the number of the new object, two bytes for the length of its
 * memory, and the memory, which begins at BASE as in fuzz_verbs_request.c. No limit is ever exceeded, and no request
 * that the strict policy forbids is passed. At the end, all usage has been returned. */
#include "fuzz.h"
#include "verbs/policy/policy_int.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>

#define BASE 0x10000ull

#define STRICT                                                                                                     \
    "[default]\ndevices = *\nmax_mrs = 3\nmr_bytes = 64KiB\nmax_qps = 2\nmax_cqs = 2\ndestinations = 10.0.0.0/8\n" \
    "gids = 3\nports = 1\npkeys = 0x8001\ncqe = 100\nqp_wr = 10\n"
#define ALL                                                                                                 \
    "[default]\ndevices = *\nallow = devx flow raw dmabuf odp multicast xrc lid ud-anywhere\nmax_mrs = 2\n" \
    "mr_bytes = unlimited\nmax_dms = 1\nqp_types = rc uc ud driver\n"
static const char *const policies[] = {STRICT, ALL, "[default]\ndevices = *\n", "[default]\ndevices = none\n"};

struct memory {
    const uint8_t *bytes;
    size_t n;
};

static int mem_read(void *arg, uint64_t at, void *dst, size_t n)
{
    const struct memory *m = arg;
    if (at < BASE || at - BASE > m->n || n > m->n - (at - BASE))
        return -EFAULT;
    memcpy(dst, m->bytes + (at - BASE), n);
    return 0;
}

static int pkey(void *arg, unsigned port, unsigned index, uint16_t *value)
{
    (void)arg;
    *value = index == 1 ? 0x8001 : 0xffff;
    return port <= 2 && index < 3 ? 0 : -ENOENT;
}

static void in_bounds(const struct vb_rules *r, const struct vb_usage *u)
{
    FUZZ_CHECK(u->mr_bytes <= r->mr_bytes);
    for (unsigned t = 0; t < VB_TYPES; t++)
        FUZZ_CHECK(u->n[t] <= r->max[t]);
}

static bool is(const struct vb_request *q, uint32_t command)
{
    return q->command->object == UVERBS_OBJECT_DEVICE && q->command->method == UVERBS_METHOD_INVOKE_WRITE &&
           q->command->command == command;
}

/* Checks a request that the policy STRICT allows, independently of the judge's code. */
static void strict(const struct vb_request *q)
{
    const uint8_t *in = q->core_in;
    if ((is(q, IB_USER_VERBS_CMD_MODIFY_QP) ||
         is(q, IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP)) &&
        q->core_in_len >= sizeof(struct ib_uverbs_modify_qp)) {
        const struct ib_uverbs_modify_qp *m = (const void *)in;
        for (int alt = 0; alt < 2; alt++) {
            const struct ib_uverbs_qp_dest *d = alt ? &m->alt_dest : &m->dest;
            if (m->attr_mask & (alt ? 0x4000u : 0x80u))
                FUZZ_CHECK(d->is_global && d->sgid_index == 3 && d->port_num == 1 && d->dlid == 0 &&
                           memcmp(d->dgid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a", 13) == 0);
        }
        FUZZ_CHECK(!(m->attr_mask & 0x20) || m->port_num == 1);
        FUZZ_CHECK(!(m->attr_mask & 0x10) || m->pkey_index == 1);
    }
    if (is(q, IB_USER_VERBS_CMD_CREATE_QP))
        FUZZ_CHECK(((const struct ib_uverbs_create_qp *)(const void *)in)->qp_type == 2);
    FUZZ_CHECK(q->command->makes != VB_FLOW && q->command->makes != VB_WQ && q->command->makes != VB_XRCD &&
               q->command->makes != VB_RWQ_TABLE && q->command->makes != VB_DM);
    FUZZ_CHECK(q->command->object != UVERBS_OBJECT_MR || q->command->method != UVERBS_METHOD_REG_DMABUF_MR);
}

static struct vb_request q;

static void made(uint32_t number)
{
    const struct vb_number *n = &q.command->made;
    if (n->place == VB_CORE_OUT && q.core_out && n->at + sizeof(number) <= q.core_out_len)
        memcpy((uint8_t *)q.core_out + n->at, &number, sizeof(number));
    else if (n->place == VB_ATTR && vb_request_attr(&q, n->at))
        vb_request_attr(&q, n->at)->raw.data = number;
}

static void one(const struct vb_rules *r, struct vb_usage *u, struct vb_objects *o, uint8_t what, uint8_t number,
                bool strictly)
{
    static const int results[] = {0, -EINVAL, VB_UNKNOWN, 0};
    struct vb_verdict v;
    uint64_t ticket;
    vb_judge(r, u, o, &q, &v);
    FUZZ_CHECK(v.rc == 0 || (v.rc < 0 && *v.text));
    if (v.rc)
        return;
    if (strictly)
        strict(&q);
    FUZZ_CHECK(r->allowed && vb_reserve(o, &q, &ticket) == 0);
    in_bounds(r, u);
    made(number);
    vb_settle(o, &q, ticket, results[what & 3], what & 4);
    in_bounds(r, u);
    if (what & 8) { /* the kernel does not list more objects than were counted */
        struct vb_mr_seen seen = {number, what & 16, 4096};
        unsigned n = vb_objects_count(o, VB_MR) > 0 && u->mr_bytes >= 4096;
        vb_objects_set_mrs(o, &seen, n);
        in_bounds(r, u);
    }
    if ((what & 3) == 0)
        vb_filter_reply(r, &q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_usage u = {{0}, 0};
    struct vb_rules r;
    struct vb_policy *p;
    if (size < 1)
        return 0;
    unsigned which = data[0] % HW_ARRAY_LEN(policies);
    const char *text = policies[which];
    FUZZ_CHECK(vb_policy_parse(text, strlen(text), "p", &p) == 0 && vb_policy_rules(p, NULL, NULL, 0, "d", &r) == 0);
    r.pkey = pkey;
    struct vb_objects *o[2] = {vb_objects_new(&u), vb_objects_new(&u)};
    FUZZ_CHECK(o[0] && o[1]);
    for (size_t at = 1; size - at >= 4;) {
        uint8_t what = data[at], number = data[at + 1];
        size_t n = (size_t)(data[at + 2] | data[at + 3] << 8);
        struct memory m = {data + at + 4, HW_MIN(n, size - at - 4)};
        if (vb_request_take(&q, BASE, mem_read, &m) == 0)
            one(&r, &u, o[what >> 4 & 1], what, number, which == 0);
        at += 4 + m.n;
    }
    vb_objects_free(o[0]);
    vb_objects_free(o[1]);
    for (unsigned t = 0; t < VB_TYPES; t++)
        FUZZ_CHECK(u.n[t] == 0);
    FUZZ_CHECK(u.mr_bytes == 0);
    vb_policy_free(p);
    return 0;
}
