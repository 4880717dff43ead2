/* SPDX-License-Identifier: Apache-2.0 */
/* The table of attributes, and the operations on its rows. */
#include "sandbox/attr/attr.h"
#include "sandbox/netdev/ident.h"

#include <libmnl/libmnl.h>
#include <linux/ethtool_netlink.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Attribute numbers that Debian 12's headers lack. */
enum { GSO_IPV4_MAX_SIZE = 63, GRO_IPV4_MAX_SIZE = 64 }; /* both with prefix IFLA_, since Linux 6.3 */

/* ---- the table ------------------------------------------------------------------------------------ */

#define BIT(n) (1ull << (n))

/* Fills a row for an attribute of ethtool's netlink: the messages FAMILY_GET and FAMILY_SET, and the attributes of the
 * reply that can be set. */
#define ETHTOOL(family, bits)                                                                                    \
    .get = ETHTOOL_MSG_##family##_GET, .set = ETHTOOL_MSG_##family##_SET, .header = ETHTOOL_A_##family##_HEADER, \
    .keep = (bits), .read = sb_read_ethtool, .write = sb_write_ethtool
#define A(name)                BIT(ETHTOOL_A_##name)
#define LINK(number, bytes)    .type = (number), .keep = (bytes), .read = sb_read_link, .write = sb_write_link
#define TUNABLE(number, bytes) .type = (number), .keep = (bytes), .read = sb_read_tunable, .write = sb_write_tunable

static const char *const files[] = {"gro_flush_timeout", "napi_defer_hard_irqs", "threaded", NULL};

/* The rows are in the order in which the attributes are written. Attributes that block others come first: an XDP
 * program limits the MTU and the features, and flow rules and RSS contexts can prevent the removal of queues. */
static const struct sb_attr table[] = {
    {"xdp", "XDP program", .read = sb_read_xdp, .write = sb_write_xdp},
    {"tcx-in", "tcx program (ingress)", .read = sb_read_tcx, .write = sb_write_tcx,
     .type = 46}, /* BPF_TCX_INGRESS, since Linux 6.6 */
    {"tcx-out", "tcx program (egress)", .read = sb_read_tcx, .write = sb_write_tcx, .type = 47}, /* BPF_TCX_EGRESS */
    {"kind", "kind-specific settings (ip -d link)", .read = sb_read_kind, .write = sb_write_kind},
    {"altnames", "list of alternative names", .read = sb_read_altnames, .write = sb_write_altnames},
    {"proto-down", "protocol state (proto_down)", .read = sb_read_down, .write = sb_write_down},
    {"linkmode", "link mode", LINK(IFLA_LINKMODE, 1)},
    {"broadcast", "broadcast address", LINK(IFLA_BROADCAST, 0)},
    {"features", "set of features (ethtool -k)", .read = sb_read_features, .write = sb_write_features,
     .get = ETHTOOL_MSG_FEATURES_GET, .set = ETHTOOL_MSG_FEATURES_SET, .header = ETHTOOL_A_FEATURES_HEADER},
    {"privflags", "set of private flags (ethtool --show-priv-flags)", ETHTOOL(PRIVFLAGS, A(PRIVFLAGS_FLAGS))},
    {"rules", "flow rules (ethtool -n)", .read = sb_read_rules, .write = sb_write_rules},
    {"contexts", "RSS contexts (ethtool -x)", .read = sb_read_contexts, .write = sb_write_contexts,
     .get = ETHTOOL_MSG_RSS_GET, .header = ETHTOOL_A_RSS_HEADER},
    {"channels", "channels (ethtool -l)",
     ETHTOOL(CHANNELS,
             A(CHANNELS_RX_COUNT) | A(CHANNELS_TX_COUNT) | A(CHANNELS_OTHER_COUNT) | A(CHANNELS_COMBINED_COUNT))},
    {"rings", "rings (ethtool -g)",
     ETHTOOL(RINGS, A(RINGS_RX) | A(RINGS_RX_MINI) | A(RINGS_RX_JUMBO) | A(RINGS_TX) | A(RINGS_RX_BUF_LEN) |
                        A(RINGS_TCP_DATA_SPLIT) | A(RINGS_CQE_SIZE) | A(RINGS_TX_PUSH) | A(RINGS_RX_PUSH) |
                        A(RINGS_TX_PUSH_BUF_LEN) | A(RINGS_HDS_THRESH))},
    {"rss", "RSS table, key or function (ethtool -x)", .read = sb_read_rss, .write = sb_write_rss},
    {"hash", "RSS hash fields (ethtool -n rx-flow-hash)", .read = sb_read_hash, .write = sb_write_hash},
    {"coalesce", "interrupt coalescing (ethtool -c)", ETHTOOL(COALESCE, ~A(COALESCE_HEADER))},
    {"pause", "pause frames (ethtool -a)", ETHTOOL(PAUSE, A(PAUSE_AUTONEG) | A(PAUSE_RX) | A(PAUSE_TX))},
    {"fec", "error correction (ethtool --show-fec)", ETHTOOL(FEC, A(FEC_MODES) | A(FEC_AUTO))},
    {"eee", "energy saving (ethtool --show-eee)",
     ETHTOOL(EEE, A(EEE_MODES_OURS) | A(EEE_ENABLED) | A(EEE_TX_LPI_ENABLED) | A(EEE_TX_LPI_TIMER))},
    {"wol", "wake-on-LAN (ethtool)", ETHTOOL(WOL, A(WOL_MODES) | A(WOL_SOPASS))},
    {"debug", "message level (ethtool)", ETHTOOL(DEBUG, A(DEBUG_MSGMASK))},
    {"modes", "speed, duplex and autonegotiation (ethtool)", .read = sb_read_modes, .write = sb_write_ethtool,
     .same = sb_same_modes, .get = ETHTOOL_MSG_LINKMODES_GET, .set = ETHTOOL_MSG_LINKMODES_SET,
     .header = ETHTOOL_A_LINKMODES_HEADER,
     .keep = A(LINKMODES_AUTONEG) | A(LINKMODES_OURS) | A(LINKMODES_SPEED) | A(LINKMODES_DUPLEX) | A(LINKMODES_LANES) |
             A(LINKMODES_MASTER_SLAVE_CFG)},
    {"port", "port and MDI-X (ethtool)",
     ETHTOOL(LINKINFO, A(LINKINFO_PORT) | A(LINKINFO_PHYADDR) | A(LINKINFO_TP_MDIX_CTRL))},
    {"module", "module power mode (ethtool --show-module)", ETHTOOL(MODULE, A(MODULE_POWER_MODE_POLICY))},
    {"mm", "frame preemption (ethtool --show-mm)",
     ETHTOOL(MM, A(MM_PMAC_ENABLED) | A(MM_TX_ENABLED) | A(MM_TX_MIN_FRAG_SIZE) | A(MM_VERIFY_ENABLED) |
                     A(MM_VERIFY_TIME))},
    {"plca", "collision avoidance (ethtool --get-plca-cfg)", .read = sb_read_ethtool, .write = sb_write_ethtool,
     .get = ETHTOOL_MSG_PLCA_GET_CFG, .set = ETHTOOL_MSG_PLCA_SET_CFG, .header = ETHTOOL_A_PLCA_HEADER,
     .keep =
         A(PLCA_ENABLED) | A(PLCA_NODE_CNT) | A(PLCA_NODE_ID) | A(PLCA_TO_TMR) | A(PLCA_BURST_CNT) | A(PLCA_BURST_TMR)},
    {"rx-copybreak", "rx-copybreak (ethtool --get-tunable)", TUNABLE(ETHTOOL_RX_COPYBREAK, 4)},
    {"tx-copybreak", "tx-copybreak (ethtool --get-tunable)", TUNABLE(ETHTOOL_TX_COPYBREAK, 4)},
    {"tx-buf-size", "tx-buf-size (ethtool --get-tunable)", TUNABLE(ETHTOOL_TX_COPYBREAK_BUF_SIZE, 4)},
    {"pfc-tout", "pfc-prevention-tout (ethtool --get-tunable)", TUNABLE(ETHTOOL_PFC_PREVENTION_TOUT, 2)},
    {"stamps", "hardware time stamps (hwstamp_ctl)", .read = sb_read_stamps, .write = sb_write_stamps},
    {"dcb", "data center bridging (dcb)", .read = sb_read_dcb, .write = sb_write_dcb},
    {"vfs", "virtual functions (ip link set vf)", .read = sb_read_vfs, .write = sb_write_vfs},
    {"gso-size", "gso_max_size", LINK(IFLA_GSO_MAX_SIZE, 4)},
    {"gso-segs", "gso_max_segs", LINK(IFLA_GSO_MAX_SEGS, 4)},
    {"gro-size", "gro_max_size", LINK(IFLA_GRO_MAX_SIZE, 4)},
    {"gso-ipv4-size", "gso_ipv4_max_size", LINK(GSO_IPV4_MAX_SIZE, 4)},
    {"gro-ipv4-size", "gro_ipv4_max_size", LINK(GRO_IPV4_MAX_SIZE, 4)},
    {"files", "settings of NAPI (sysfs)", .read = sb_read_files, .write = sb_write_files, .path = files},
    {"queues", "packet steering and queue limits (sysfs queues)", .read = sb_read_queues, .write = sb_write_files},
    {"token", "IPv6 token", .read = sb_read_token, .write = sb_write_token},
    {"qdiscs", "queueing disciplines (tc)", .read = sb_read_tc, .write = sb_write_tc, .same = sb_same_tc,
     .type = RTM_NEWQDISC},
    {"classes", "traffic classes (tc)", .read = sb_read_tc, .write = sb_write_tc, .same = sb_same_tc,
     .type = RTM_NEWTCLASS},
    {"filters", "filters (tc)", .read = sb_read_tc, .write = sb_write_tc, .same = sb_same_tc, .type = RTM_NEWTFILTER},
};

/* ---- values --------------------------------------------------------------------------------------- */

/* Maximum size of a value, in bytes. RULES_MAX flow rules (attr_ioctl.c) take about 3 MiB. */
#define BLOB_MAX (4u << 20)

int sb_blob_put(struct sb_blob *b, const void *data, size_t n)
{
    if (n > BLOB_MAX || b->n + n > BLOB_MAX)
        return hw_fail(-E2BIG, "an attribute has more than %u MiB", BLOB_MAX >> 20);
    if (b->n + n > b->cap) {
        size_t cap = HW_MAX(2 * b->cap, b->n + n + 64);
        uint8_t *more = realloc(b->p, cap);
        if (!more)
            return hw_no_memory("a device's attributes");
        b->p = more;
        b->cap = cap;
    }
    if (n)
        memcpy(b->p + b->n, data, n);
    b->n += n;
    return 0;
}

int sb_blob_attr(struct sb_blob *b, uint16_t type, const void *data, size_t len)
{
    static const char zeros[MNL_ALIGNTO];
    struct nlattr a = {.nla_type = type, .nla_len = (uint16_t)(MNL_ATTR_HDRLEN + len)};
    if (len > UINT16_MAX - MNL_ATTR_HDRLEN)
        return hw_fail(-E2BIG, "an attribute has %zu bytes, which is too large", len);
    int rc = sb_blob_put(b, &a, sizeof(a));
    if (rc < 0 || (rc = sb_blob_put(b, data, len)) < 0)
        return rc;
    return sb_blob_put(b, zeros, MNL_ALIGN(len) - len);
}

void sb_blob_free(struct sb_blob *b)
{
    free(b->p);
    *b = (struct sb_blob){0};
}

const struct nlattr *sb_blob_find(const struct sb_blob *b, int type)
{
    const struct nlattr *a;
    sb_blob_each(a, b)
    {
        if (mnl_attr_get_type(a) == type)
            return a;
    }
    return NULL;
}

static bool is_same_blob(const struct sb_blob *a, const struct sb_blob *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

/* ---- the journal's text --------------------------------------------------------------------------- */

static const char digits[] = "0123456789abcdef";

static int add_attr_record(struct sb_journal *j, int nic, const char *name, const struct sb_blob *b)
{
    size_t head = strlen(name) + 1, n = head + HW_MAX(2 * b->n, (size_t)1);
    char *text = malloc(n + 1);
    if (!text)
        return hw_no_memory("a device's attributes");
    snprintf(text, n + 1, "%s -", name);
    for (size_t i = 0; i < b->n; i++) {
        text[head + 2 * i] = digits[b->p[i] >> 4];
        text[head + 2 * i + 1] = digits[b->p[i] & 15];
    }
    int rc = sb_journal_add(j, SB_ATTR, nic, text, n);
    free(text);
    return rc;
}

/* Parses a record into out and returns its row. If the table has no row for the record, returns NULL and sets *rc to
 * 0. */
static const struct sb_attr *take_record(const char *text, struct sb_blob *out, int *rc)
{
    size_t name = strcspn(text, " ");
    *rc = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(table); i++) {
        if (strlen(table[i].name) != name || strncmp(table[i].name, text, name) != 0)
            continue;
        for (const char *p = text + name + 1; *rc == 0 && *p != '-' && *p; p += 2) {
            uint8_t byte = (uint8_t)((strchr(digits, p[0]) - digits) << 4 | (strchr(digits, p[1]) - digits));
            *rc = sb_blob_put(out, &byte, 1);
        }
        return &table[i];
    }
    return NULL;
}

/* ---- opening a namespace and a device -------------------------------------------------------------- */

int sb_attr_open(struct sb_attr_kernel *k, struct hw_netlink *rt, int sys)
{
    *k = (struct sb_attr_kernel){.rt = rt, .genl.nl.fd = -1, .sock = -1, .sys = sys};
    k->sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (k->sock < 0)
        return hw_fail(-errno, "opening a socket for ethtool requests: %s", strerror(errno));
    return hw_genl_open(&k->genl, NULL);
}

void sb_attr_close(struct sb_attr_kernel *k)
{
    hw_genl_close(&k->genl);
    hw_close(&k->sock);
}

static struct sb_dev open_attr_device(struct sb_attr_kernel *k, int index, const char *name)
{
    struct sb_dev d = {.k = k, .index = index, .folder = -1};
    snprintf(d.name, sizeof(d.name), "%s", name);
    if (k->sys >= 0)
        d.folder = sb_ident_open(k->sys, name, NULL, NULL);
    return d;
}

/* ---- reading --------------------------------------------------------------------------------------- */

/* Returns true if the error means that a device lacks the attribute. Drivers use many different errors for this
 * case. */
static bool is_missing_attr_error(int rc)
{
    static const int t[] = {EOPNOTSUPP, 524 /* ENOTSUPP, which drivers return */,
                            EINVAL,     ENODEV,
                            ENOENT,     ENODATA,
                            ENOTTY,     ENOSYS,
                            ENXIO,      EPERM,
                            EACCES};
    for (size_t i = 0; i < HW_ARRAY_LEN(t); i++)
        if (rc == -t[i])
            return true;
    return false;
}

/* Returns true if the error is due to a fault or limit of this machine or program rather than the device. The error
 * then reveals nothing about the attribute. */
static bool is_machine_error(int rc)
{
    return rc == -ENOMEM || rc == -ENOBUFS || rc == -EMSGSIZE || rc == -E2BIG || rc == -EBADMSG || rc == -EAGAIN;
}

int sb_attrs_read(struct sb_attr_kernel *k, struct sb_journal *j, int nic, int index, const char *name, bool skip,
                  const struct hw_logger *log)
{
    struct sb_dev d = open_attr_device(k, index, name);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < HW_ARRAY_LEN(table); i++) {
        struct sb_blob b = {0};
        int err = table[i].read(&table[i], &d, &b);
        if (err == 0)
            rc = add_attr_record(j, nic, table[i].name, &b);
        else if (is_machine_error(err) && !skip)
            rc = hw_wrap(err, "%s: its %s cannot be saved (--force, or force=yes in the hook, moves the NIC anyway)",
                         name, table[i].what);
        else if (!is_missing_attr_error(err))
            sb_log(log, HAWSER_LOG_WARN, "%s: its %s cannot be read, so changes by the container will remain: %s", name,
                   table[i].what, hw_error());
        sb_blob_free(&b);
    }
    hw_close(&d.folder);
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------------- */

/* Reads an attribute into now and compares it with was. Returns 1 if unchanged, 0 if changed, or -errno. */
static int compare_attr(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, struct sb_blob *now)
{
    sb_blob_free(now);
    int rc = a->read(a, d, now);
    return rc < 0 ? rc : a->same ? a->same(a, was, now) : is_same_blob(was, now);
}

/* Restores one attribute. Returns 1 if the attribute is unchanged, 0 if it has been restored, or -errno. */
static int restore_attr(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was)
{
    struct sb_blob now __attribute__((cleanup(sb_blob_free))) = {0};
    int rc = compare_attr(a, d, was, &now);
    if (rc != 0)
        return rc;
    int err = a->write(a, d, was, &now);
    char why[HW_ERR_TEXT];
    snprintf(why, sizeof(why), "%s", hw_error());
    rc = compare_attr(a, d, was, &now);
    if (rc != 0)
        return HW_MIN(rc, 0);
    return err < 0 ? hw_fail_copy(err, why)
                   : hw_fail(-EIO, "the kernel accepted the value but reports a different one");
}

/* Maximum number of rounds. Several rounds are needed, because setting one attribute may change or require another. For
 * example, a queueing discipline that is attached to a traffic class requires this class. */
#define ROUNDS 4

void sb_attrs_apply(struct sb_attr_kernel *k, const struct sb_journal *j, int nic, int index, const char *name,
                    bool last, struct sb_faults *f)
{
    struct sb_dev d = open_attr_device(k, index, name);
    bool again = true;
    for (int round = 1; again && round <= (last ? ROUNDS : 1); round++) {
        again = false;
        for (size_t i = 0; i < j->n; i++) {
            struct sb_blob was = {0};
            int rc = 0;
            if (j->rec[i].kind != SB_ATTR || j->rec[i].nic != nic)
                continue;
            const char *text = j->rec[i].data;
            const struct sb_attr *a = take_record(text, &was, &rc);
            if (rc == 0 && a)
                rc = restore_attr(a, &d, &was);
            else if (rc == 0)
                rc = hw_fail(-EPROTONOSUPPORT, "this version of hawser does not know the attribute");
            sb_blob_free(&was);
            again |= rc <= 0;
            if (rc < 0 && last && round == ROUNDS)
                (void)sb_fault(f, hw_wrap(-EIO, "%s: not restored: %.*s", name,
                                          a ? (int)strlen(a->what) : (int)strcspn(text, " "), a ? a->what : text));
        }
    }
    hw_close(&d.folder);
}
