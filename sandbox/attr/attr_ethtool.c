/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of ethtool's netlink (Documentation/networking/ethtool-netlink.rst). The reply to a GET has almost the
 * same format as the request of a SET. Most values therefore consist of the reply's settable attributes, unchanged and
 * in order.
 */
#include "sandbox/attr/attr.h"

#include <libmnl/libmnl.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define REQUEST_MAX 16384

/* ---- one attribute --------------------------------------------------------------------------------- */

static struct nlmsghdr *put_about(char buf[REQUEST_MAX], const struct sb_attr *a, const struct sb_dev *d, uint8_t cmd,
                                  uint16_t flags)
{
    struct nlmsghdr *h = hw_genl_request(buf, REQUEST_MAX, d->k->genl.ethtool, cmd, flags);
    struct nlattr *nest = mnl_attr_nest_start(h, a->header | NLA_F_NESTED);
    mnl_attr_put_u32(h, ETHTOOL_A_HEADER_DEV_INDEX, (uint32_t)d->index);
    mnl_attr_put_u32(h, ETHTOOL_A_HEADER_FLAGS, ETHTOOL_FLAG_COMPACT_BITSETS);
    mnl_attr_nest_end(h, nest);
    return h;
}

static int talk_about(const struct sb_attr *a, struct sb_dev *d, struct nlmsghdr *h, hw_netlink_fn fn, void *arg)
{
    char what[128];
    bool get = mnl_nlmsg_get_payload_len(h) && ((struct genlmsghdr *)mnl_nlmsg_get_payload(h))->cmd == a->get;
    snprintf(what, sizeof(what), "%s: %s its %s", d->name, get ? "reading" : "setting", a->what);
    return hw_netlink_talk(&d->k->genl.nl, h, fn, arg, what);
}

static int query_ethtool_attr(const struct sb_attr *a, struct sb_dev *d, uint16_t flags, hw_netlink_fn fn, void *arg)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8)));
    if (!d->k->genl.ethtool)
        return -EOPNOTSUPP;
    return talk_about(a, d, put_about(buf, a, d, a->get, flags), fn, arg);
}

struct sink {
    const struct sb_attr *a;
    struct sb_blob *out;
};

static int take_kept(const struct nlmsghdr *h, void *arg)
{
    const struct sink *s = arg;
    const struct nlattr *a;
    int rc;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        unsigned type = mnl_attr_get_type(a);
        if (type < 64 && s->a->keep >> type & 1 &&
            (rc = sb_blob_attr(s->out, a->nla_type, mnl_attr_get_payload(a), mnl_attr_get_payload_len(a))) < 0)
            return rc;
    }
    return 0;
}

int sb_read_ethtool(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    int rc = query_ethtool_attr(a, d, 0, take_kept, &(struct sink){a, out});
    return rc == 0 && out->n == 0 ? -EOPNOTSUPP : rc;
}

static bool same_attr(const struct nlattr *a, const struct nlattr *b)
{
    return a && b && a->nla_len == b->nla_len && memcmp(a, b, a->nla_len) == 0;
}

/* Sets only the attributes that differ, because a driver refuses settings that it does not support, even if the value
 * does not change. */
int sb_write_ethtool(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    static const char zeros[8];
    char buf[REQUEST_MAX] __attribute__((aligned(8)));
    struct nlmsghdr *h = put_about(buf, a, d, a->set, 0);
    const struct nlattr *x;
    bool fits = true;
    sb_blob_each(x, was)
    {
        if (!same_attr(x, sb_blob_find(now, mnl_attr_get_type(x))))
            fits &=
                mnl_attr_put_check(h, sizeof(buf), x->nla_type, mnl_attr_get_payload_len(x), mnl_attr_get_payload(x));
    }
    sb_blob_each(x, now) /* a reply may leave out attributes that are zero */
    {
        if (!sb_blob_find(was, mnl_attr_get_type(x)) && mnl_attr_get_payload_len(x) <= sizeof(zeros))
            fits &= mnl_attr_put_check(h, sizeof(buf), x->nla_type, mnl_attr_get_payload_len(x), zeros);
    }
    return fits ? talk_about(a, d, h, NULL, NULL)
                : hw_fail(-EMSGSIZE, "%s: the request to set its %s would be too large", d->name, a->what);
}

/* ---- features -------------------------------------------------------------------------------------- */

/* Returns the bits of a compact bitset, or NULL if there are none. */
static const struct nlattr *find_bitset_value(const struct nlattr *bitset)
{
    const struct nlattr *a;
    mnl_attr_for_each_nested(a, bitset)
    {
        if (mnl_attr_get_type(a) == ETHTOOL_A_BITSET_VALUE)
            return a;
    }
    return NULL;
}

#define WORDS_MAX 8 /* 256 features; Linux 6.18 has 64 */
struct features {
    uint32_t hw[WORDS_MAX], wanted[WORDS_MAX], active[WORDS_MAX];
    size_t words;
};

static int take_features(const struct nlmsghdr *h, void *arg)
{
    struct features *f = arg;
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        int type = mnl_attr_get_type(a);
        uint32_t *to = type == ETHTOOL_A_FEATURES_HW       ? f->hw
                       : type == ETHTOOL_A_FEATURES_WANTED ? f->wanted
                       : type == ETHTOOL_A_FEATURES_ACTIVE ? f->active
                                                           : NULL;
        const struct nlattr *v = to ? find_bitset_value(a) : NULL;
        size_t n = v ? mnl_attr_get_payload_len(v) : 0;
        if (n > sizeof(f->hw))
            return hw_fail(-E2BIG, "a device has %zu features, which is too many", 8 * n);
        if (v)
            memcpy(to, mnl_attr_get_payload(v), n);
        f->words = HW_MAX(f->words, n / 4); // NOLINT(clang-analyzer-core.NullDereference): the caller's, as above
    }
    return 0;
}

/* The value consists of the wanted features, and of the active features that can be changed. */
int sb_read_features(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    struct features f = {.words = 0};
    int rc = query_ethtool_attr(a, d, 0, take_features, &f);
    for (size_t i = 0; i < f.words; i++)
        f.active[i] &= f.hw[i];
    if (rc < 0 || (rc = sb_blob_attr(out, ETHTOOL_A_FEATURES_WANTED, f.wanted, 4 * f.words)) < 0)
        return rc;
    return sb_blob_attr(out, ETHTOOL_A_FEATURES_ACTIVE, f.active, 4 * f.words);
}

static int set_wanted_features(const struct sb_attr *a, struct sb_dev *d, const void *value, const void *mask,
                               size_t len)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8)));
    struct nlmsghdr *h = put_about(buf, a, d, a->set, 0);
    struct nlattr *nest = mnl_attr_nest_start(h, ETHTOOL_A_FEATURES_WANTED | NLA_F_NESTED);
    mnl_attr_put_u32(h, ETHTOOL_A_BITSET_SIZE, (uint32_t)(8 * len));
    mnl_attr_put(h, ETHTOOL_A_BITSET_VALUE, len, value);
    mnl_attr_put(h, ETHTOOL_A_BITSET_MASK, len, mask);
    mnl_attr_nest_end(h, nest);
    return talk_about(a, d, h, NULL, NULL);
}

/* Restores the wanted features, from which the kernel computes the active ones. The kernel computes nothing if the
 * wanted features do not change (ethnl_set_features() in net/ethtool/features.c). If only active features differ, a
 * first request therefore inverts the wanted state of these features. */
int sb_write_features(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    uint8_t mask[4 * WORDS_MAX] = {0}, inverse[4 * WORDS_MAX];
    bool same_wanted = true;
    int rc = 0;
    const struct nlattr *w = sb_blob_find(was, ETHTOOL_A_FEATURES_WANTED),
                        *n = sb_blob_find(now, ETHTOOL_A_FEATURES_WANTED),
                        *x = sb_blob_find(was, ETHTOOL_A_FEATURES_ACTIVE),
                        *y = sb_blob_find(now, ETHTOOL_A_FEATURES_ACTIVE);
    size_t len = w ? mnl_attr_get_payload_len(w) : 0;
    if (!w || !n || !x || !y || len > sizeof(mask) || len != mnl_attr_get_payload_len(n) ||
        len != mnl_attr_get_payload_len(x) || len != mnl_attr_get_payload_len(y))
        return hw_fail(-EBADMSG, "%s: the recorded set of features does not have the form that the kernel reports",
                       d->name);
    for (size_t i = 0; i < len; i++) {
        const uint8_t *pw = mnl_attr_get_payload(w), *pn = mnl_attr_get_payload(n), *px = mnl_attr_get_payload(x),
                      *py = mnl_attr_get_payload(y);
        mask[i] = (uint8_t)((pw[i] ^ pn[i]) | (px[i] ^ py[i]));
        inverse[i] = (uint8_t)~pw[i];
        same_wanted &= pw[i] == pn[i];
    }
    if (same_wanted)
        rc = set_wanted_features(a, d, inverse, mask, len);
    return rc < 0 ? rc : set_wanted_features(a, d, mnl_attr_get_payload(w), mask, len);
}

/* ---- speed ------------------------------------------------------------------------------------------ */

static uint32_t number_of(const struct nlattr *a)
{
    uint32_t v = 0;
    if (a)
        memcpy(&v, mnl_attr_get_payload(a), HW_MIN(mnl_attr_get_payload_len(a), (uint16_t)4));
    return v;
}

static bool is_finding(int type)
{
    return type == ETHTOOL_A_LINKMODES_SPEED || type == ETHTOOL_A_LINKMODES_DUPLEX || type == ETHTOOL_A_LINKMODES_LANES;
}

/* Leaves out speed, duplex and lanes if autonegotiation is on, because autonegotiation determines them and they cannot
 * be set. */
int sb_read_modes(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    struct sb_blob all __attribute__((cleanup(sb_blob_free))) = {0};
    int rc = sb_read_ethtool(a, d, &all);
    if (rc < 0)
        return rc;
    bool negotiates = number_of(sb_blob_find(&all, ETHTOOL_A_LINKMODES_AUTONEG));
    const struct nlattr *x;
    sb_blob_each(x, &all)
    {
        if (negotiates && is_finding(mnl_attr_get_type(x)))
            continue;
        rc = sb_blob_attr(out, x->nla_type, mnl_attr_get_payload(x), mnl_attr_get_payload_len(x));
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Ignores the speed, duplex and lanes if the current speed is unknown (SPEED_UNKNOWN), for example while the link is
 * down. */
bool sb_same_modes(const struct sb_attr *a, const struct sb_blob *was, const struct sb_blob *now)
{
    const struct nlattr *x;
    bool unknown = number_of(sb_blob_find(now, ETHTOOL_A_LINKMODES_SPEED)) == UINT32_MAX, same = true;
    (void)a;
    sb_blob_each(x, was)
    {
        int type = mnl_attr_get_type(x);
        same &= (unknown && is_finding(type)) || same_attr(x, sb_blob_find(now, type));
    }
    return same;
}

/* ---- RSS contexts ------------------------------------------------------------------------------------ */

static int take_context(const struct nlmsghdr *h, void *arg)
{
    struct sb_blob *out = arg;
    const struct nlattr *a;
    uint32_t context = 0;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) == ETHTOOL_A_RSS_CONTEXT)
            context = number_of(a);
    }
    return context ? sb_blob_put(out, &context, sizeof(context)) : 0;
}

/* The value is the list of the additional contexts' numbers, which can be listed since Linux 6.12. */
int sb_read_contexts(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    return query_ethtool_attr(a, d, NLM_F_DUMP, take_context, out);
}

static bool has_number(const struct sb_blob *b, uint32_t number)
{
    for (size_t i = 0; i + 4 <= b->n; i += 4)
        if (memcmp(b->p + i, &number, 4) == 0)
            return true;
    return false;
}

/* Removes contexts that did not exist before. Fails if a context that existed before is missing, because the ioctl
 * cannot create a context with a given number. */
int sb_write_contexts(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    (void)a;
    for (size_t i = 0; i + 4 <= now->n; i += 4) {
        uint32_t number;
        memcpy(&number, now->p + i, 4);
        struct ethtool_rxfh r = {.cmd = ETHTOOL_SRSSH, .rss_context = number};
        int rc = has_number(was, number) ? 0 : sb_ethtool_ioctl(d, &r, "removing an RSS context");
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i + 4 <= was->n; i += 4) {
        uint32_t number;
        memcpy(&number, was->p + i, 4);
        if (!has_number(now, number))
            return hw_fail(-EOPNOTSUPP, "RSS context %u was deleted, and must be created again manually", number);
    }
    return 0;
}
