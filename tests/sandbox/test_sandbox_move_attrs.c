/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests changes by a container with CAP_NET_ADMIN to a NIC's attributes other than addresses and routes. Restore must
 * reset every attribute, or name the attributes that remain changed and fail. The test uses the attributes of veth and
 * macvlan devices; test_sandbox_move_ethtool.c simulates devices with more attributes.
 */
#include "sandbox_move.h"
#include "sandbox_move_int.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef BPF_TCX_INGRESS
#define BPF_TCX_INGRESS 46 /* Linux 6.6 */
#endif

static struct sm_ns box;

/* a tenant's changes to the device `dev`, made in the calling thread's namespace */

static const char *dev;
static int failed; /* number of changes that are not possible on this machine */

static void try_it(int rc, const char *what)
{
    if (rc < 0) {
        diag("cannot be changed here: %s: %s", what, strerror(-rc));
        failed++;
    }
}

static int ethtool(void *data)
{
    struct ifreq r = {.ifr_data = data};
    memcpy(r.ifr_name, dev, strnlen(dev, IFNAMSIZ - 1));
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = ioctl(fd, SIOCETHTOOL, &r) < 0 ? -errno : 0;
    hw_close(&fd);
    return rc;
}

static void change_features(void *arg)
{
    static const uint32_t cmds[] = {ETHTOOL_STXCSUM, ETHTOOL_SSG, ETHTOOL_SGSO, ETHTOOL_SGRO};
    (void)arg;
    for (size_t i = 0; i < HW_ARRAY_LEN(cmds); i++)
        try_it(ethtool(&(struct ethtool_value){.cmd = cmds[i], .data = 0}), "an offload");
}

static void change_channels(void *arg)
{
    (void)arg;
    struct ethtool_channels c = {.cmd = ETHTOOL_GCHANNELS};
    try_it(ethtool(&c), "channels");
    c.cmd = ETHTOOL_SCHANNELS;
    c.rx_count = c.tx_count = 1;
    try_it(ethtool(&c), "channels");
}

static int put_file(const char *path, const char *value)
{
    char at[256];
    snprintf(at, sizeof(at), "class/net/%s/%s", dev, path);
    int sys = sm_sysfs(), fd = sys < 0 ? -1 : openat(sys, at, O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 || write(fd, value, strlen(value)) < 0 ? -errno : 0;
    hw_close(&fd);
    hw_close(&sys);
    return rc;
}

static void change_files(void *arg)
{
    (void)arg;
    try_it(put_file("gro_flush_timeout", "12345"), "gro_flush_timeout");
    try_it(put_file("napi_defer_hard_irqs", "7"), "napi_defer_hard_irqs");
    try_it(put_file("threaded", "1"), "threaded");
    try_it(put_file("queues/rx-0/rps_cpus", "1"), "rps_cpus");
    try_it(put_file("queues/rx-0/rps_flow_cnt", "64"), "rps_flow_cnt");
}

static int set_link(uint16_t type, const void *data, size_t len)
{
    char buf[1024];
    struct ifinfomsg *i;
    struct hw_netlink rt;
    MUST(hw_netlink_open(&rt, NETLINK_ROUTE));
    struct nlmsghdr *h = sm_request(buf, RTM_NEWLINK, 0, sizeof(*i), &i);
    i->ifi_index = (int)if_nametoindex(dev);
    mnl_attr_put(h, type, len, data);
    int rc = hw_netlink_talk(&rt, h, NULL, NULL, "a tenant's change");
    hw_netlink_close(&rt);
    return rc;
}

static void change_sizes(void *arg)
{
    (void)arg;
    static const uint8_t broadcast[6] = {2, 2, 2, 2, 2, 2};
    uint32_t size = 4000, segs = 3;
    uint8_t mode = 1; /* IF_LINK_MODE_DORMANT: the device remains dormant until it is set up explicitly */
    try_it(set_link(IFLA_GSO_MAX_SIZE, &size, 4), "gso_max_size");
    try_it(set_link(IFLA_GSO_MAX_SEGS, &segs, 4), "gso_max_segs");
    try_it(set_link(IFLA_GRO_MAX_SIZE, &size, 4), "gro_max_size");
    try_it(set_link(IFLA_LINKMODE, &mode, 1), "the link mode");
    try_it(set_link(IFLA_BROADCAST, broadcast, 6), "the broadcast address");
}

static int altnames(const char *name, uint16_t type)
{
    char buf[1024];
    struct ifinfomsg *i;
    struct hw_netlink rt;
    MUST(hw_netlink_open(&rt, NETLINK_ROUTE));
    struct nlmsghdr *h =
        sm_request(buf, type, type == RTM_NEWLINKPROP ? NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND : 0, sizeof(*i), &i);
    i->ifi_index = (int)if_nametoindex(dev);
    struct nlattr *list = mnl_attr_nest_start(h, IFLA_PROP_LIST | NLA_F_NESTED);
    mnl_attr_put_strz(h, IFLA_ALT_IFNAME, name);
    mnl_attr_nest_end(h, list);
    int rc = hw_netlink_talk(&rt, h, NULL, NULL, "an alternative name");
    hw_netlink_close(&rt);
    return rc;
}

static void give_altname(void *arg)
{
    MUST(altnames(arg, RTM_NEWLINKPROP));
}

static void change_altnames(void *arg)
{
    (void)arg;
    try_it(altnames("rail-of-old", RTM_DELLINKPROP), "an alternative name");
    try_it(altnames("the-tenant", RTM_NEWLINKPROP), "an alternative name");
}

static int bpf(int cmd, union bpf_attr *a)
{
    int rc = (int)syscall(SYS_bpf, cmd, a, sizeof(*a));
    return rc < 0 ? -errno : rc;
}

/* Loads a program that returns the given verdict for every packet. */
static int load_program(uint32_t type, int verdict)
{
    struct bpf_insn code[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = verdict},
                              {.code = BPF_JMP | BPF_EXIT}};
    union bpf_attr a = {.prog_type = type,
                        .insn_cnt = HW_ARRAY_LEN(code),
                        .insns = (uint64_t)(uintptr_t)code,
                        .license = (uint64_t)(uintptr_t) "GPL"};
    return bpf(BPF_PROG_LOAD, &a);
}

static int set_xdp(int fd, uint32_t flags)
{
    char nest[64] = {0};
    struct nlattr *a = (struct nlattr *)nest, *b = (struct nlattr *)(nest + 8);
    a->nla_type = IFLA_XDP_FD;
    a->nla_len = b->nla_len = 8;
    b->nla_type = IFLA_XDP_FLAGS;
    memcpy(nest + 4, &fd, 4);
    memcpy(nest + 12, &flags, 4);
    return set_link(IFLA_XDP | NLA_F_NESTED, nest, 16);
}

static void change_xdp(void *arg)
{
    (void)arg;
    int fd = load_program(BPF_PROG_TYPE_XDP, 1 /* XDP_DROP */);
    try_it(fd, "loading a program");
    if (fd >= 0)
        try_it(set_xdp(fd, XDP_FLAGS_DRV_MODE), "XDP");
    hw_close(&fd);
}

/* A BPF link keeps its program attached to the device until the link's file descriptor is closed. */
static int held = -1;
static void change_xdp_link(void *arg)
{
    (void)arg;
    int fd = load_program(BPF_PROG_TYPE_XDP, 1);
    union bpf_attr a = {
        .link_create = {.prog_fd = (uint32_t)fd, .target_ifindex = if_nametoindex(dev), .attach_type = BPF_XDP}};
    held = fd < 0 ? fd : bpf(BPF_LINK_CREATE, &a);
    try_it(held, "an XDP link");
    hw_close(&fd);
}

static void change_tcx(void *arg)
{
    (void)arg;
    int fd = load_program(BPF_PROG_TYPE_SCHED_CLS, 2 /* TC_ACT_SHOT */);
    union bpf_attr a = {.attach_bpf_fd = (uint32_t)fd, .attach_type = BPF_TCX_INGRESS};
    a.target_fd = if_nametoindex(dev); /* target_ifindex */
    try_it(fd < 0 ? fd : bpf(BPF_PROG_ATTACH, &a), "a tcx program");
    hw_close(&fd);
}

static int count_tcx(void)
{
    uint32_t ids[8] = {0};
    union bpf_attr a = {.query = {.attach_type = BPF_TCX_INGRESS, .prog_ids = (uint64_t)(uintptr_t)ids, .prog_cnt = 8}};
    a.query.target_fd = if_nametoindex(dev);
    return bpf(BPF_PROG_QUERY, &a) < 0 ? -1 : (int)a.query.prog_cnt;
}

static void count_it(void *arg)
{
    *(int *)arg = count_tcx();
}

static void change_macvlan(void *arg)
{
    (void)arg;
    char nest[64] = {0};
    struct nlattr *kind = (struct nlattr *)nest, *data = (struct nlattr *)(nest + 12),
                  *mode = (struct nlattr *)(nest + 16);
    uint32_t private = MACVLAN_MODE_PRIVATE;
    uint8_t down = 1;
    kind->nla_type = IFLA_INFO_KIND;
    kind->nla_len = 4 + 7;
    memcpy(nest + 4, "macvlan", 7); // NOLINT(bugprone-not-null-terminated-result): the length is passed as well
    data->nla_type = IFLA_INFO_DATA;
    data->nla_len = 12;
    mode->nla_type = IFLA_MACVLAN_MODE;
    mode->nla_len = 8;
    memcpy(nest + 20, &private, 4);
    try_it(set_link(IFLA_LINKINFO, nest, 24), "a macvlan device's mode");
    try_it(set_link(IFLA_PROTO_DOWN, &down, 1), "proto_down");
}

/* ---- the tests ------------------------------------------------------------------------------------ */

static void change(const struct sm_ns *n, const char *of, void (*fn)(void *arg), void *arg)
{
    dev = of;
    sm_in(n, fn, arg);
}

/* Moves NIC `of`, changes the NIC in the container, restores it, and checks its attributes. */
static void test_one(const char *of, const char *what, void (*fn)(void *arg), const char *was)
{
    unsigned lost = 9;
    MUST(sm_move(&box, of, false));
    char *before = sm_state(&box);
    failed = 0;
    change(&box, of, fn, NULL);
    char *after = sm_state(&box);
    bool changed = strcmp(before, after) != 0 || fn == change_tcx;
    free(before);
    free(after);
    sm_logged[0] = 0;
    int rc = sm_restore(&lost);
    if (failed && !changed)
        tap_skip(what, "this kernel or device has none of it");
    else
        ok(rc == 0 && lost == 0 && sm_same(&sm_host, was) && sm_clean(), "%s: %s", what,
           rc < 0 ? hw_error() : "as it was");
    if (rc < 0)
        diag("%s", sm_logged);
    hw_close(&held);
    if (rc < 0)
        (void)sm_restore(&lost);
}

#define TABLE 0x00100000u /* number 1 */

static void add_tc(void *arg)
{
    char buf[1024];
    struct tcmsg *t;
    struct hw_netlink rt;
    (void)arg;
    MUST(hw_netlink_open(&rt, NETLINK_ROUTE));
    MUST(hw_rtnl_tbf_set(&rt, (int)if_nametoindex(dev), 100000000, 100000, 1000000));
    struct nlmsghdr *h = sm_request(buf, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, sizeof(*t), &t);
    *t = (struct tcmsg){.tcm_ifindex = (int)if_nametoindex(dev), .tcm_handle = 0xffff0000, .tcm_parent = TC_H_CLSACT};
    mnl_attr_put_strz(h, TCA_KIND, "clsact");
    MUST(hw_netlink_talk(&rt, h, NULL, NULL, "clsact"));
    /* a u32 filter that passes all IPv4 packets */
    uint8_t sel[sizeof(struct tc_u32_sel) + sizeof(struct tc_u32_key)] __attribute__((aligned(8))) = {0};
    const struct tc_u32_sel head = {.flags = TC_U32_TERMINAL, .nkeys = 1};
    memcpy(sel, &head, sizeof(head));
    h = sm_request(buf, RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, sizeof(*t), &t);
    *t = (struct tcmsg){.tcm_ifindex = (int)if_nametoindex(dev),
                        .tcm_parent = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS),
                        .tcm_info = TC_H_MAKE(10u << 16, htons(0x0800))};
    mnl_attr_put_strz(h, TCA_KIND, "u32");
    struct nlattr *opt = mnl_attr_nest_start(h, TCA_OPTIONS);
    mnl_attr_put_u32(h, TCA_U32_CLASSID, 0x10001);
    mnl_attr_put(h, TCA_U32_SEL, sizeof(sel), sel);
    mnl_attr_nest_end(h, opt);
    MUST(hw_netlink_talk(&rt, h, NULL, NULL, "a filter"));
    /* a table with one bucket, like the kernel's default table */
    h = sm_request(buf, RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, sizeof(*t), &t);
    *t = (struct tcmsg){.tcm_ifindex = (int)if_nametoindex(dev),
                        .tcm_handle = TABLE,
                        .tcm_parent = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS),
                        .tcm_info = TC_H_MAKE(10u << 16, htons(0x0800))};
    mnl_attr_put_strz(h, TCA_KIND, "u32");
    opt = mnl_attr_nest_start(h, TCA_OPTIONS);
    mnl_attr_put_u32(h, TCA_U32_DIVISOR, 1);
    mnl_attr_nest_end(h, opt);
    MUST(hw_netlink_talk(&rt, h, NULL, NULL, "a table"));
    hw_netlink_close(&rt);
}

static int count_table(const struct nlmsghdr *h, void *arg)
{
    const struct tcmsg *t = mnl_nlmsg_get_payload(h);
    *(int *)arg += h->nlmsg_type == RTM_NEWTFILTER && t->tcm_handle == TABLE;
    return 0;
}

static void find_table(void *arg)
{
    char buf[1024];
    struct tcmsg *t;
    struct hw_netlink rt;
    MUST(hw_netlink_open(&rt, NETLINK_ROUTE));
    struct nlmsghdr *h = sm_request(buf, RTM_GETTFILTER, NLM_F_DUMP, sizeof(*t), &t);
    *t =
        (struct tcmsg){.tcm_ifindex = (int)if_nametoindex(dev), .tcm_parent = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)};
    MUST(hw_netlink_talk(&rt, h, count_table, arg, "a dump"));
    hw_netlink_close(&rt);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void test_tc(void)
{
    unsigned lost = 9;
    int tables = 0;
    change(&sm_host, "n1", add_tc, NULL);
    char *was = sm_settled();
    MUST(sm_move(&box, "n1", false));
    change(&box, "n1", nothing, NULL);
    sm_logged[0] = 0;
    int rc = sm_restore(&lost);
    ok((rc == 0 && sm_same(&sm_host, was)) || (rc < 0 && strstr(sm_logged, "tc")),
       "queueing disciplines and filters are as they were, or are named: %s", rc < 0 ? hw_error() : "as they were");
    ok(strstr(was, "qdisc ") != NULL, "there were some");
    change(&sm_host, "n1", find_table, &tables);
    ok(tables == 1 || rc < 0, "a table of u32 with one bucket is there again");
    if (rc < 0) {
        struct sb_restore_options o = {.id = "box", .journal_dir = sm_dir, .forget = true, .log = &sm_log};
        (void)sb_restore(&o, &lost);
    }
    sm_link_del(&sm_host, "n1");
    free(was);
}

static void test_tcx(const char *was)
{
    int n = -1;
    test_one("n0", "a tcx program", change_tcx, was);
    change(&sm_host, "n0", count_it, &n);
    ok(n <= 0, "no program is left on it");
}

/* Tests an XDP program that the host has attached. */
static void test_own_xdp(void)
{
    unsigned lost = 9;
    int fd = load_program(BPF_PROG_TYPE_XDP, 2 /* XDP_PASS */);
    if (fd < 0) {
        tap_skip("an XDP program of the host's", "no program can be loaded here");
        return;
    }
    dev = "n0";
    MUST(set_xdp(fd, XDP_FLAGS_SKB_MODE));
    char *was = sm_settled();
    for (int kept = 1; kept >= 0; kept--) {
        MUST(sm_move(&box, "n0", false));
        char nest[16] = {8, 0, IFLA_XDP_FD, 0, -1, -1, -1, -1, 8, 0, IFLA_XDP_FLAGS, 0, XDP_FLAGS_SKB_MODE};
        struct ifinfomsg *i;
        char buf[1024];
        struct nlmsghdr *h = sm_request(buf, RTM_NEWLINK, 0, sizeof(*i), &i);
        i->ifi_index = sm_index(&box, "n0");
        mnl_attr_put(h, IFLA_XDP | NLA_F_NESTED, sizeof(nest), nest);
        MUST(hw_netlink_talk(&box.rt, h, NULL, NULL, "the tenant takes it away"));
        if (!kept)
            hw_close(&fd);
        sm_logged[0] = 0;
        int rc = sm_restore(&lost);
        if (kept)
            ok(rc == 0 && sm_same(&sm_host, was), "an XDP program of the host's own comes back: %s",
               rc < 0 ? hw_error() : "yes");
        else
            ok(rc == -EIO && strstr(sm_logged, "n0: not restored: XDP"),
               "one that is no more is named, and restore fails: %s", sm_logged);
    }
    struct sb_restore_options o = {.id = "box", .journal_dir = sm_dir, .forget = true, .log = &sm_log};
    ok(sb_restore(&o, &lost) == 0 && sm_clean(), "--forget ends that");
    free(was);
}

int main(void)
{
    sm_start();
    sm_ns_make(&box);
    sm_nic("n0");
    sm_nic("n1");
    sm_nic("low");
    sm_macvlan("mv0", "low");
    sm_addr(&sm_host, "n0", "10.9.0.1/24");
    static char old[] = "rail-of-old";
    change(&sm_host, "n0", give_altname, old);
    char *was = sm_settled();
    test_one("n0", "nothing", nothing, was);
    test_one("n0", "features", change_features, was);
    test_one("n0", "channels", change_channels, was);
    test_one("n0", "sysfs files", change_files, was);
    test_one("n0", "sizes, link mode, broadcast address", change_sizes, was);
    test_one("n0", "alternative names", change_altnames, was);
    test_one("n0", "an XDP program", change_xdp, was);
    test_one("n0", "an XDP program held by a link", change_xdp_link, was);
    test_tcx(was);
    test_one("mv0", "a macvlan device's mode, proto_down", change_macvlan, was);
    test_one("mv0", "features of a macvlan device", change_features, was);
    free(was);
    test_tc();
    test_own_xdp();
    sm_ns_drop(&box);
    sm_end();
    return tap_done();
}
