/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queueing disciplines, classes and filters. The kernel removes all of them when a device changes its namespace
 * (dev_shutdown() in __dev_change_net_namespace()). A container's objects therefore do not return with the device, and
 * the host's objects must be created again. The messages with which the kernel describes the objects are almost
 * identical to the requests that create them. Objects that cannot be created in this way, such as a filter with a BPF
 * program, remain missing and are reported.
 */
#include "sandbox/attr/attr.h"

#include <libmnl/libmnl.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_MAX 65536
#define PARENTS_MAX 4096

static struct nlmsghdr *put_tc(char *buf, size_t cap, const struct sb_dev *d, uint16_t type, uint16_t flags,
                               uint32_t parent)
{
    struct nlmsghdr *h = hw_netlink_request(buf, cap, type, flags);
    struct tcmsg *t = mnl_nlmsg_put_extra_header(h, sizeof(*t));
    t->tcm_ifindex = d->index;
    t->tcm_parent = parent;
    return h;
}

/* ---- reading ------------------------------------------------------------------------------------------ */

struct sink {
    const struct sb_dev *d;
    uint16_t type;
    struct sb_blob *out;
};

/* Returns true for counters and other volatile values. */
static bool is_figure(int type)
{
    return type == TCA_STATS || type == TCA_XSTATS || type == TCA_STATS2 || type == TCA_HW_OFFLOAD;
}

#define U32_OWN 0x80000000u /* the kernel numbers tables from 0x800 on (gen_new_htid() in net/sched/cls_u32.c) */

/* Returns true for the root table of u32, which the kernel creates with a filter's first rule. A table that a user has
 * created can be distinguished only by its number, and only if the number is below 0x800. */
static bool is_root_table(const struct nlmsghdr *h)
{
    const struct tcmsg *t = mnl_nlmsg_get_payload(h);
    const struct nlattr *a, *b;
    bool root = false;
    if (!(t->tcm_handle & U32_OWN))
        return false;
    mnl_attr_for_each(a, h, sizeof(struct tcmsg))
    {
        if (mnl_attr_get_type(a) == TCA_KIND &&
            (mnl_attr_validate(a, MNL_TYPE_NUL_STRING) < 0 || strcmp(mnl_attr_get_str(a), "u32") != 0))
            return false;
        if (mnl_attr_get_type(a) != TCA_OPTIONS)
            continue;
        mnl_attr_for_each_nested(b, a) root |=
            mnl_attr_get_type(b) == TCA_U32_DIVISOR && mnl_attr_get_payload_len(b) == 4 && mnl_attr_get_u32(b) == 1;
    }
    return root;
}

/* Stores the header and the non-volatile attributes of one message. */
static int take_message(const struct nlmsghdr *h, void *arg)
{
    const struct sink *s = arg;
    const struct tcmsg *t = mnl_nlmsg_get_payload(h);
    const struct nlattr *a;
    if (h->nlmsg_type != s->type || mnl_nlmsg_get_payload_len(h) < sizeof(*t) || t->tcm_ifindex != s->d->index ||
        t->tcm_handle == 0 || /* a default object, which the kernel creates, or the entry of a filter chain */
        (s->type == RTM_NEWTFILTER && is_root_table(h)))
        return 0;
    struct sb_blob one __attribute__((cleanup(sb_blob_free))) = {0};
    struct nlmsghdr head = {.nlmsg_type = h->nlmsg_type};
    struct tcmsg tc = *t;
    tc.tcm_ifindex = 0;
    if (s->type == RTM_NEWQDISC)
        tc.tcm_info = 0; /* the reference count */
    int rc = sb_blob_put(&one, &head, sizeof(head));
    if (rc < 0 || (rc = sb_blob_put(&one, &tc, sizeof(tc))) < 0)
        return rc;
    mnl_attr_for_each(a, h, sizeof(*t))
    {
        if (!is_figure(mnl_attr_get_type(a)) &&
            (rc = sb_blob_attr(&one, a->nla_type, mnl_attr_get_payload(a), mnl_attr_get_payload_len(a))) < 0)
            return rc;
    }
    ((struct nlmsghdr *)(void *)one.p)->nlmsg_len = (uint32_t)one.n;
    return sb_blob_put(s->out, one.p, one.n);
}

static int dump_tc_objects(const struct sb_attr *a, const struct sb_dev *d, uint16_t type, uint32_t parent,
                           struct sb_blob *out)
{
    char buf[256] __attribute__((aligned(8))), what[128];
    struct sink s = {d, type, out};
    snprintf(what, sizeof(what), "%s: listing its %s", d->name, a->what);
    /* the third message type of each kind is the query, as in RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC */
    return hw_netlink_talk(d->k->rt, put_tc(buf, sizeof(buf), d, (uint16_t)(type + 2), NLM_F_DUMP, parent),
                           take_message, &s, what);
}

/* Returns the message after h in a value, or the first message if h is NULL. Returns NULL at the end. */
static const struct nlmsghdr *get_next_tc_message(const struct sb_blob *b, const struct nlmsghdr *h)
{
    if (!b->p)
        return NULL;
    const uint8_t *at = h ? (const uint8_t *)h + h->nlmsg_len : b->p, *end = b->p + b->n;
    const struct nlmsghdr *n = (const void *)at;
    if ((size_t)(end - at) < sizeof(*n) + sizeof(struct tcmsg) || n->nlmsg_len < sizeof(*n) + sizeof(struct tcmsg) ||
        n->nlmsg_len > (size_t)(end - at) || n->nlmsg_len % MNL_ALIGNTO)
        return NULL;
    return n;
}

static const struct tcmsg *tc_of(const struct nlmsghdr *h)
{
    return mnl_nlmsg_get_payload(h);
}

/* Lists the filters of all queueing disciplines and classes. The filters of clsact have two special parents. */
static int read_filters(const struct sb_attr *a, const struct sb_dev *d, struct sb_blob *out)
{
    struct sb_blob above __attribute__((cleanup(sb_blob_free))) = {0};
    size_t n = 0;
    int rc = dump_tc_objects(a, d, RTM_NEWQDISC, 0, &above);
    if (rc < 0 || (rc = dump_tc_objects(a, d, RTM_NEWTCLASS, 0, &above)) < 0)
        return rc;
    for (const struct nlmsghdr *h = NULL; (h = get_next_tc_message(&above, h)) != NULL;) {
        bool clsact = tc_of(h)->tcm_parent == TC_H_CLSACT;
        uint32_t at = clsact ? TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS) : tc_of(h)->tcm_handle;
        if (++n > PARENTS_MAX)
            return hw_fail(-E2BIG, "%s has more than %d queueing disciplines and classes", d->name, PARENTS_MAX);
        rc = dump_tc_objects(a, d, RTM_NEWTFILTER, at, out);
        if (rc == 0 && clsact)
            rc = dump_tc_objects(a, d, RTM_NEWTFILTER, TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS), out);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int sb_read_tc(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    return a->type == RTM_NEWTFILTER ? read_filters(a, d, out) : dump_tc_objects(a, d, a->type, 0, out);
}

/* ---- comparing and writing ----------------------------------------------------------------------------- */

static const char *get_tc_kind(const struct nlmsghdr *h)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct tcmsg))
    {
        if (mnl_attr_get_type(a) == TCA_KIND && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) == 0)
            return mnl_attr_get_str(a);
    }
    return "";
}

/* Returns true if both objects have the same kind and the same position. The other contents were copied from the old
 * object or are counters. */
static bool same_one(const struct nlmsghdr *x, const struct nlmsghdr *y)
{
    return memcmp(tc_of(x), tc_of(y), sizeof(struct tcmsg)) == 0 && strcmp(get_tc_kind(x), get_tc_kind(y)) == 0;
}

static bool has_one(const struct sb_blob *b, const struct nlmsghdr *x)
{
    for (const struct nlmsghdr *h = NULL; (h = get_next_tc_message(b, h)) != NULL;)
        if (same_one(h, x))
            return true;
    return false;
}

bool sb_same_tc(const struct sb_attr *a, const struct sb_blob *was, const struct sb_blob *now)
{
    bool same = true;
    (void)a;
    for (const struct nlmsghdr *h = NULL; (h = get_next_tc_message(was, h)) != NULL;)
        same &= has_one(now, h);
    for (const struct nlmsghdr *h = NULL; (h = get_next_tc_message(now, h)) != NULL;)
        same &= has_one(was, h);
    return same;
}

/* Replaces values that the kernel reports with values that it accepts in a request. Removes the flags that report
 * whether a filter is in hardware. htb reports its full version but expects only the major version. */
static void fix_up(struct nlmsghdr *h)
{
    static const struct {
        const char *kind;
        int type;
        uint32_t keep; /* mask for the first four bytes */
        unsigned shift;
    } t[] = {{"u32", TCA_U32_FLAGS, ~(uint32_t)(TCA_CLS_FLAGS_IN_HW | TCA_CLS_FLAGS_NOT_IN_HW), 0},
             {"flower", TCA_FLOWER_FLAGS, ~(uint32_t)(TCA_CLS_FLAGS_IN_HW | TCA_CLS_FLAGS_NOT_IN_HW), 0},
             {"matchall", TCA_MATCHALL_FLAGS, ~(uint32_t)(TCA_CLS_FLAGS_IN_HW | TCA_CLS_FLAGS_NOT_IN_HW), 0},
             {"bpf", TCA_BPF_FLAGS_GEN, ~(uint32_t)(TCA_CLS_FLAGS_IN_HW | TCA_CLS_FLAGS_NOT_IN_HW), 0},
             {"htb", TCA_HTB_INIT, UINT32_MAX, 16}};
    const char *kind = get_tc_kind(h);
    const struct nlattr *a, *b;
    mnl_attr_for_each(a, h, sizeof(struct tcmsg))
    {
        if (mnl_attr_get_type(a) != TCA_OPTIONS)
            continue;
        mnl_attr_for_each_nested(b, a)
        {
            uint32_t v;
            for (size_t i = 0; i < HW_ARRAY_LEN(t); i++) {
                if (strcmp(kind, t[i].kind) != 0 || mnl_attr_get_type(b) != t[i].type ||
                    mnl_attr_get_payload_len(b) < 4)
                    continue;
                memcpy(&v, mnl_attr_get_payload(b), sizeof(v));
                v = (v & t[i].keep) >> t[i].shift;
                memcpy(mnl_attr_get_payload(b), &v, sizeof(v));
            }
        }
    }
}

int sb_write_tc(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    char why[HW_ERR_TEXT] = "";
    int rc = 0;
    for (const struct nlmsghdr *h = NULL; (h = get_next_tc_message(was, h)) != NULL;) {
        char buf[REQUEST_MAX] __attribute__((aligned(8))), what[160];
        if (has_one(now, h))
            continue;
        if (h->nlmsg_len > sizeof(buf)) {
            rc = rc < 0 ? rc : hw_fail(-EMSGSIZE, "%s: one of its %s is too large to restore", d->name, a->what);
            if (!why[0])
                snprintf(why, sizeof(why), "%s", hw_error());
            continue;
        }
        struct nlmsghdr *m = (struct nlmsghdr *)buf;
        memcpy(buf, h, h->nlmsg_len);
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | (a->type == RTM_NEWTFILTER ? NLM_F_EXCL : NLM_F_REPLACE);
        ((struct tcmsg *)mnl_nlmsg_get_payload(m))->tcm_ifindex = d->index;
        fix_up(m);
        snprintf(what, sizeof(what), "%s: creating one of its %s, %.16s %x:%x", d->name, a->what, get_tc_kind(h),
                 TC_H_MAJ(tc_of(h)->tcm_handle) >> 16, TC_H_MIN(tc_of(h)->tcm_handle));
        int err = hw_netlink_talk(d->k->rt, m, NULL, NULL, what);
        if (err < 0 && rc == 0)
            snprintf(why, sizeof(why), "%s", hw_error());
        rc = rc < 0 ? rc : err;
    }
    return rc < 0 ? hw_fail_copy(rc, why) : 0;
}
