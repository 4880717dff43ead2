/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes that are read and set by ioctls, because ethtool's netlink interface lacks them, or can set them only
 * since Linux 6.14 (time stamps) or 6.17 (RSS). */
#include "sandbox/attr/attr.h"

#include <linux/ethtool.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define TABLE_MAX 65536u /* limit for the entries of an RSS table, and for the bytes of its key */
#define RULES_MAX 16384u

static int send_device_ioctl(const struct sb_dev *d, unsigned long cmd, void *data, const char *what)
{
    struct ifreq r = {.ifr_data = data};
    memcpy(r.ifr_name, d->name, sizeof(r.ifr_name));
    if (ioctl(d->k->sock, cmd, &r) == 0)
        return 0;
    return hw_fail(-errno, "%s: %s: %s", d->name, what, strerror(errno));
}

int sb_ethtool_ioctl(const struct sb_dev *d, void *data, const char *what)
{
    return send_device_ioctl(d, SIOCETHTOOL, data, what);
}

/* ---- RSS --------------------------------------------------------------------------------------------- */

/* The value is a struct ethtool_rxfh with cmd 0, followed by the table and the key. */
int sb_read_rss(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    struct ethtool_rxfh size = {.cmd = ETHTOOL_GRSSH};
    int rc = sb_ethtool_ioctl(d, &size, a->what);
    if (rc < 0)
        return rc;
    if (size.indir_size > TABLE_MAX || size.key_size > TABLE_MAX)
        return hw_fail(-E2BIG, "%s: its RSS table (%u entries) or its RSS key (%u bytes) is too large", d->name,
                       size.indir_size, size.key_size);
    size_t n = sizeof(size) + 4 * (size_t)size.indir_size + size.key_size;
    HW_AUTO_FREE struct ethtool_rxfh *r = calloc(1, n);
    if (!r)
        return hw_no_memory("an RSS table");
    r->cmd = ETHTOOL_GRSSH;
    r->indir_size = size.indir_size;
    r->key_size = size.key_size;
    rc = sb_ethtool_ioctl(d, r, a->what);
    r->cmd = 0;
    return rc < 0 ? rc : sb_blob_put(out, r, n);
}

/* Returns true if the table is the kernel's default (ethtool_rxfh_indir_default() in include/linux/ethtool.h). */
static bool is_default(const struct sb_dev *d, const struct ethtool_rxfh *r)
{
    struct ethtool_rxnfc rings = {.cmd = ETHTOOL_GRXRINGS};
    if (sb_ethtool_ioctl(d, &rings, "counting its rings") < 0 || rings.data == 0)
        return false;
    for (uint32_t i = 0; i < r->indir_size; i++)
        if (r->rss_config[i] != i % rings.data)
            return false;
    return true;
}

int sb_write_rss(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    struct ethtool_rxfh head = {.cmd = 0};
    (void)now;
    memcpy(&head, was->p, HW_MIN(was->n, sizeof(head)));
    size_t table = 4 * (size_t)head.indir_size;
    if (was->n < sizeof(head) || was->n != sizeof(head) + table + head.key_size)
        return hw_fail(-EBADMSG, "%s: the recorded RSS table is invalid", d->name);
    struct ethtool_rxfh *r = malloc(was->n);
    if (!r)
        return hw_no_memory("an RSS table");
    memcpy(r, was->p, was->n);
    r->cmd = ETHTOOL_SRSSH;
    /* A table that was set explicitly can block a change of the number of queues (netif_is_rxfh_configured()), so the
     * default table is restored by a request to reset it. */
    if (table && is_default(d, r)) {
        memmove((char *)(r + 1), (char *)(r + 1) + table, r->key_size);
        r->indir_size = 0;
    }
    int rc = sb_ethtool_ioctl(d, r, a->what);
    free(r);
    return rc;
}

/* ---- hash fields ------------------------------------------------------------------------------------- */

struct fields {
    uint32_t flow, none;
    uint64_t data;
};
enum { FLOWS = 0x20 }; /* exclusive limit for the numbers of flow types, which begin with TCP_V4_FLOW */

/* The value contains a `struct fields` for each flow type that the device supports. */
int sb_read_hash(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    int rc = 0;
    for (uint32_t flow = 1; rc == 0 && flow < FLOWS; flow++) {
        struct ethtool_rxnfc r = {.cmd = ETHTOOL_GRXFH, .flow_type = flow};
        int err = sb_ethtool_ioctl(d, &r, a->what);
        if (err == -EOPNOTSUPP && flow == TCP_V4_FLOW) /* the driver lacks the call */
            return err;
        if (err == 0)
            rc = sb_blob_put(out, &(struct fields){.flow = flow, .data = r.data}, sizeof(struct fields));
    }
    return rc < 0 ? rc : out->n ? 0 : -EOPNOTSUPP;
}

int sb_write_hash(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    int rc = 0;
    for (size_t i = 0; i + sizeof(struct fields) <= was->n; i += sizeof(struct fields)) {
        struct fields f, is = {0};
        memcpy(&f, was->p + i, sizeof(f));
        for (size_t k = 0; k + sizeof(is) <= now->n && is.flow != f.flow; k += sizeof(is))
            memcpy(&is, now->p + k, sizeof(is));
        struct ethtool_rxnfc r = {.cmd = ETHTOOL_SRXFH, .flow_type = f.flow, .data = f.data};
        int err = is.flow == f.flow && is.data == f.data ? 0 : sb_ethtool_ioctl(d, &r, a->what);
        rc = rc < 0 ? rc : err;
    }
    return rc;
}

/* ---- flow rules -------------------------------------------------------------------------------------- */

struct rule {
    struct ethtool_rx_flow_spec fs;
    uint64_t context; /* RSS context of a rule with FLOW_RSS */
};

static int read_rule(const struct sb_attr *a, const struct sb_dev *d, uint32_t location, struct sb_blob *out)
{
    struct ethtool_rxnfc one = {.cmd = ETHTOOL_GRXCLSRULE, .fs.location = location};
    int rc = sb_ethtool_ioctl(d, &one, a->what);
    struct rule r;
    memset(&r, 0, sizeof(r)); /* clears the padding too, because values are compared byte by byte */
    r.fs = one.fs;
    r.context = one.fs.flow_type & FLOW_RSS ? one.rss_context : 0;
    return rc < 0 ? rc : sb_blob_put(out, &r, sizeof(r));
}

/* The value contains a `struct rule` for each rule, in the driver's order. */
int sb_read_rules(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    struct ethtool_rxnfc count = {.cmd = ETHTOOL_GRXCLSRLCNT};
    int rc = sb_ethtool_ioctl(d, &count, a->what);
    if (rc < 0)
        return rc;
    if (count.rule_cnt > RULES_MAX)
        return hw_fail(-E2BIG, "%s: there are %u flow rules, which is too many", d->name, count.rule_cnt);
    HW_AUTO_FREE struct ethtool_rxnfc *all = calloc(1, sizeof(*all) + count.rule_cnt * sizeof(all->rule_locs[0]));
    if (!all)
        return hw_no_memory("flow rules");
    all->cmd = ETHTOOL_GRXCLSRLALL;
    all->rule_cnt = count.rule_cnt;
    if (count.rule_cnt)
        rc = sb_ethtool_ioctl(d, all, a->what);
    for (uint32_t i = 0; rc == 0 && i < HW_MIN(all->rule_cnt, count.rule_cnt); i++)
        rc = read_rule(a, d, all->rule_locs[i], out);
    return rc;
}

static bool has_rule(const struct sb_blob *b, const struct rule *r)
{
    for (size_t i = 0; i + sizeof(*r) <= b->n; i += sizeof(*r))
        if (memcmp(b->p + i, (const void *)r, sizeof(*r)) == 0) // NOLINT: bytes from the kernel
            return true;
    return false;
}

/* Applies cmd, which removes or adds rules, to the rules in `of` that `without` lacks. */
static int change_rules(const struct sb_attr *a, const struct sb_dev *d, const struct sb_blob *of,
                        const struct sb_blob *without, uint32_t cmd)
{
    int rc = 0;
    for (size_t i = 0; i + sizeof(struct rule) <= of->n; i += sizeof(struct rule)) {
        struct rule r;
        memcpy(&r, of->p + i, sizeof(r));
        if (has_rule(without, &r))
            continue;
        struct ethtool_rxnfc c = {.cmd = cmd, .fs = r.fs};
        if (r.fs.flow_type & FLOW_RSS)
            c.rss_context = (uint32_t)r.context;
        int err = sb_ethtool_ioctl(d, &c, a->what);
        rc = rc < 0 ? rc : err;
    }
    return rc;
}

int sb_write_rules(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    int rc = change_rules(a, d, now, was, ETHTOOL_SRXCLSRLDEL), err = change_rules(a, d, was, now, ETHTOOL_SRXCLSRLINS);
    return rc < 0 ? rc : err;
}

/* ---- tunables, time stamps ------------------------------------------------------------------------------ */

/* Same as struct ethtool_tunable, but with an array of fixed size instead of the flexible array. */
struct tunable {
    uint32_t cmd, id, type_id, len;
    uint8_t value[8];
};
_Static_assert(offsetof(struct tunable, value) == sizeof(struct ethtool_tunable),
               "struct tunable must match struct ethtool_tunable");

static struct tunable make_tunable(const struct sb_attr *a, uint32_t cmd)
{
    return (struct tunable){.cmd = cmd,
                            .id = a->type,
                            .type_id = a->keep == 2 ? ETHTOOL_TUNABLE_U16 : ETHTOOL_TUNABLE_U32,
                            .len = (uint32_t)a->keep};
}

int sb_read_tunable(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    struct tunable t = make_tunable(a, ETHTOOL_GTUNABLE);
    int rc = sb_ethtool_ioctl(d, &t, a->what);
    return rc < 0 ? rc : sb_blob_put(out, t.value, a->keep);
}

int sb_write_tunable(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    struct tunable t = make_tunable(a, ETHTOOL_STUNABLE);
    (void)now;
    if (was->n != a->keep)
        return hw_fail(-EBADMSG, "%s: its recorded %s has an invalid length of %zu bytes", d->name, a->what, was->n);
    memcpy(t.value, was->p, was->n);
    return sb_ethtool_ioctl(d, &t, a->what);
}

int sb_read_stamps(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    struct hwtstamp_config c = {.flags = 0};
    int rc = send_device_ioctl(d, SIOCGHWTSTAMP, &c, a->what);
    return rc < 0 ? rc : sb_blob_put(out, &c, sizeof(c));
}

int sb_write_stamps(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    struct hwtstamp_config c;
    (void)now;
    if (was->n != sizeof(c))
        return hw_fail(-EBADMSG, "%s: its recorded %s have an invalid length of %zu bytes", d->name, a->what, was->n);
    memcpy(&c, was->p, sizeof(c));
    return send_device_ioctl(d, SIOCSHWTSTAMP, &c, a->what);
}
