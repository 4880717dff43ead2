/* SPDX-License-Identifier: Apache-2.0 */
/* Moves either all of the NICs to the container, or none of them. */
#include "sandbox/move/move.h"
#include "sandbox/attr/attr.h"
#include "sandbox/move/move_int.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Base number of the tables for source-based routing. A table's number is this base plus the NIC's index in the
 * container. */
#define TABLE_BASE 10000

struct mover {
    const struct sb_move_options *o;
    int dir;
    struct sb_ns host, there;
    struct sb_journal j;
    struct sb_map map;
};

/* ---- checks before the move ---------------------------------------------------------------------- */

static int check_options(const struct sb_move_options *o)
{
    int rc = sb_id_check(o->id);
    if (rc < 0)
        return rc;
    if (o->n == 0 || o->n > SB_NICS_MAX)
        return hw_fail(-EINVAL, "cannot move %zu NICs at a time: the number must be from 1 to %d", o->n, SB_NICS_MAX);
    for (size_t i = 0; i < o->n; i++) {
        const char *as = o->nic[i].as ? o->nic[i].as : o->nic[i].name;
        size_t len = strlen(as);
        if (len == 0 || len >= IFNAMSIZ || strpbrk(as, "/: \t\n%") || strcmp(as, ".") == 0 || strcmp(as, "..") == 0)
            return hw_fail(-EINVAL, "'%.32s' is not a valid name of a network device", as);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(o->nic[k].name, o->nic[i].name) == 0)
                return hw_fail(-EINVAL, "%s is listed twice", o->nic[i].name);
            if (strcmp(o->nic[k].as ? o->nic[k].as : o->nic[k].name, as) == 0)
                return hw_fail(-EINVAL, "two NICs would have the name %s in the container", as);
        }
    }
    return 0;
}

static int check_upper_link(const struct sb_link *l, void *arg)
{
    const struct mover *m = arg;
    for (unsigned i = 0; i < m->j.nics; i++) {
        const struct sb_link *nic = &m->j.nic[i].link;
        /* For a veth, iflink is the index of the other end. */
        if (l->iflink == nic->index && !l->far && l->index != nic->index && strcmp(l->kind, "veth") != 0)
            return hw_fail(
                -EBUSY,
                "%s is stacked on %s and would stop working; --force, or force=yes in the hook, moves the NIC anyway",
                l->name, nic->name);
    }
    return 0;
}

static int check_movable_nics(struct mover *m)
{
    const struct sb_journal *j = &m->j;
    for (unsigned i = 0; i < j->nics; i++) {
        const struct sb_link *l = &j->nic[i].link;
        if (l->flags & IFF_LOOPBACK)
            return hw_fail(-EINVAL, "%s is the loopback device: every namespace has its own", l->name);
        if (l->master)
            return hw_fail(-EBUSY,
                           "%s is a port of network device %d (such as a bridge or bond), which would lose the port",
                           l->name, l->master);
        if (j->nic[i].gateway && !m->o->force)
            return hw_fail(-EBUSY,
                           "%s has a default route, without which this machine may become unreachable; --force, or "
                           "force=yes in the hook, moves the NIC anyway",
                           l->name);
        for (size_t k = 0; k < j->n && !m->o->force; k++) {
            if (j->rec[k].kind == SB_ROUTE && sb_route_uses(j->rec[k].data, l->index) &&
                sb_route_by_object(j->rec[k].data))
                return hw_fail(-EBUSY,
                               "%s has a route with a nexthop object, which would not be restored; --force, or "
                               "force=yes in the hook, "
                               "moves the NIC anyway",
                               l->name);
        }
    }
    return m->o->force ? 0 : sb_netdev_links(&m->host.rt, check_upper_link, m);
}

/* Checks that none of the NICs to move belongs to container id. Such a NIC may be in this namespace if that container's
 * move or restore was interrupted or failed. If a journal cannot be read, only logs this. */
static int check_claim(struct mover *m, const char *id)
{
    struct sb_journal other __attribute__((cleanup(sb_journal_free))) = {.fd = -1};
    int rc = sb_journal_load(&other, m->dir, id, false);
    if (rc < 0) {
        sb_log(m->o->log, HAWSER_LOG_WARN, "the NICs of container %s cannot be determined: %s", id, hw_error());
        return 0;
    }
    for (unsigned i = 0; sb_ns_same(&other.host, &m->host.id) && i < other.nics; i++) {
        for (size_t k = 0; k < m->o->n; k++) {
            if (strcmp(other.nic[i].link.name, m->o->nic[k].name) == 0)
                return hw_fail(-EBUSY, "%s belongs to the container %s; `hawser sandbox restore %s` moves it back",
                               m->o->nic[k].name, id, id);
        }
    }
    return 0;
}

static int check_claims(struct mover *m)
{
    static const char suffix[] = ".journal";
    int fd = dup(m->dir), rc = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        hw_close(&fd);
        return hw_fail(-errno, "reading the journal folder: %s", strerror(errno));
    }
    rewinddir(d); /* dup() shares the position */
    const struct dirent *e;
    while (rc == 0 && (e = readdir(d)) != NULL) {
        char id[256];
        size_t n = strlen(e->d_name), cut = sizeof(suffix) - 1;
        if (n <= cut || n - cut > SB_ID_MAX || strcmp(e->d_name + n - cut, suffix) != 0)
            continue;
        snprintf(id, sizeof(id), "%.*s", (int)(n - cut), e->d_name);
        if (strcmp(id, m->o->id) == 0)
            rc = hw_fail(-EEXIST, "there is already a journal of %s: run `hawser sandbox restore %s` first", id, id);
        else
            rc = check_claim(m, id);
    }
    closedir(d);
    return rc;
}

/* ---- the snapshot -------------------------------------------------------------------------------- */

/* Records the identities of the devices, so that restore can distinguish them from copies. */
static int take_idents(struct mover *m)
{
    struct sb_journal *j = &m->j;
    int sys = sb_ns_sysfs(&m->host);
    for (unsigned i = 0; i < j->nics; i++) {
        const struct sb_link *l = &j->nic[i].link;
        uint64_t ident;
        int index;
        if (sys < 0 && sb_link_hardware(l)) /* hardware is identified by its bus address */
            continue;
        if (sys < 0)
            return hw_wrap(sys, "%s could not be distinguished from a copy that the container might create", l->name);
        HW_AUTO_CLOSE int fd = sb_ident_open(sys, l->name, &ident, &index);
        if (fd == -ENODEV || (fd >= 0 && index != l->index))
            return hw_fail(-EAGAIN, "the network device %s was removed or replaced while it was read", l->name);
        int rc = fd < 0 ? fd : sb_journal_addf(j, SB_IDENT, (int)i, "%llu", (unsigned long long)ident);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads the devices' other attributes. */
static int take_attrs(struct mover *m)
{
    struct sb_attr_kernel k;
    int sys = sb_ns_sysfs(&m->host), rc = sb_attr_open(&k, &m->host.rt, sys);
    for (unsigned i = 0; rc == 0 && i < m->j.nics; i++) {
        const struct sb_link *l = &m->j.nic[i].link;
        rc = sb_attrs_read(&k, &m->j, (int)i, l->index, l->name, m->o->force, m->o->log);
    }
    sb_attr_close(&k);
    return rc;
}

/* Records the source, the destination and the time of the move. */
static int add_move_head(struct mover *m, const char *path, pid_t holder, uint64_t start)
{
    struct sb_journal *j = &m->j;
    const struct sb_ns_id *host = &m->host.id, *there = &m->there.id;
    struct timespec now;
    char boot[HW_BOOT_ID];
    int rc = hw_boot_id(boot);
    if (rc < 0)
        return rc;
    clock_gettime(CLOCK_BOOTTIME, &now);
    rc = sb_journal_addf(j, SB_HEAD, -1, "1");
    if (rc < 0 || (rc = sb_journal_addf(j, SB_BOOT, -1, "%s", boot)) < 0)
        return rc;
    rc = sb_journal_addf(j, SB_HOST, -1, "%llu %llu %llu", (unsigned long long)host->dev, (unsigned long long)host->ino,
                         (unsigned long long)host->cookie);
    if (rc < 0)
        return rc;
    rc = sb_journal_addf(j, SB_NETNS, -1, "%llu %llu %llu %s", (unsigned long long)there->dev,
                         (unsigned long long)there->ino, (unsigned long long)there->cookie, path);
    if (rc < 0)
        return rc;
    if (holder && (rc = sb_journal_addf(j, SB_HOLDER, -1, "%d %llu", (int)holder, (unsigned long long)start)) < 0)
        return rc;
    return sb_journal_addf(j, SB_TAKEN, -1, "%lld", (long long)now.tv_sec);
}

static int fill_move_journal(struct mover *m, const char *path, pid_t holder, uint64_t start)
{
    const struct sb_move_options *o = m->o;
    const char *names[SB_NICS_MAX];
    for (size_t i = 0; i < o->n; i++)
        names[i] = o->nic[i].name;
    int rc = add_move_head(m, path, holder, start);
    if (rc < 0)
        return rc;
    rc = sb_netdev_read(&m->host.rt, &m->j, names, o->n);
    if (rc < 0)
        return rc;
    rc = take_idents(m);
    if (rc < 0)
        return rc;
    rc = take_attrs(m);
    for (size_t i = 0; rc == 0 && i < o->n; i++) {
        if (o->nic[i].as)
            rc = sb_journal_addf(&m->j, SB_AS, (int)i, "%s", o->nic[i].as);
    }
    return rc;
}

/* ---- the move ------------------------------------------------------------------------------------ */

/* The indices that are in use in the container. */
struct indices {
    const struct mover *m;
    int highest;
    bool taken[SB_NICS_MAX]; /* another device in the container has the NIC's current index */
};

static int index_each(const struct sb_link *l, void *arg)
{
    struct indices *x = arg;
    x->highest = HW_MAX(x->highest, l->index);
    for (unsigned i = 0; i < x->m->j.nics; i++) {
        x->taken[i] |= x->m->j.nic[i].link.index == l->index;
        if (strcmp(x->m->j.nic[i].as, l->name) == 0)
            return hw_fail(-EEXIST, "the container already has a network device %s", l->name);
    }
    return 0;
}

/* Finds an index that no device in the container has and that no other NIC will get. */
static int find_index(struct mover *m, int *highest, int *out)
{
    if (*highest < INT32_MAX) {
        *out = ++*highest;
        return 0;
    }
    /* The highest possible index is in use, so search from the lowest up. */
    for (int i = 2; i < INT32_MAX; i++) {
        struct sb_link l;
        bool meant = false;
        for (size_t k = 0; k < m->map.n; k++)
            meant |= m->map.dev[k].to == i || m->map.dev[k].from == i;
        int rc = meant ? 0 : sb_netdev_find(&m->there.rt, i, NULL, &l);
        if (rc == -ENODEV) {
            *out = i;
            return 0;
        }
        if (rc < 0)
            return rc;
    }
    return hw_fail(-ENOSPC, "the container has no free index for a network device");
}

/* Chooses the index of each NIC in the container in advance. Like the kernel, keeps a NIC's current index if it is
 * free. */
static int choose_indices(struct mover *m)
{
    struct indices x = {.m = m};
    int rc = sb_netdev_links(&m->there.rt, index_each, &x);
    m->map = (struct sb_map){.n = m->j.nics, .nodad = true};
    for (unsigned i = 0; i < m->j.nics; i++) {
        const struct sb_jnic *k = &m->j.nic[i];
        x.highest = HW_MAX(x.highest, k->link.index);
        m->map.dev[i].from = k->link.index;
        m->map.dev[i].from_name = k->link.name;
        m->map.dev[i].to_name = k->as;
    }
    for (unsigned i = 0; rc == 0 && i < m->j.nics; i++) {
        m->map.dev[i].to = m->j.nic[i].link.index;
        if (x.taken[i])
            rc = find_index(m, &x.highest, &m->map.dev[i].to);
    }
    return rc;
}

/* Sets the NIC's ARP sysctls in the container's namespace, unless no_arp is set, and determines whether the NIC has
 * IPv6 there. */
static int set_arp_check_ipv6(struct mover *m, const char *name, bool *ipv6)
{
    HW_AUTO_CLOSE int own = hw_netns_own();
    if (own < 0)
        return own;
    if (setns(m->there.fd, CLONE_NEWNET) < 0)
        return hw_fail(-errno, "entering the container's network namespace: %s", strerror(errno));
    int rc = m->o->no_arp ? 0 : sb_sysctl_arp(name, m->o->log);
    *ipv6 = !sb_sysctl_no_ipv6(name);
    if (setns(own, CLONE_NEWNET) < 0) /* unlikely: the thread has just left that namespace */
        return hw_fail(-errno, "returning to this process's network namespace: %s", strerror(errno));
    return rc;
}

/* Restores the settings and the addresses of NIC i. Its link in the container is l. */
static int equip_moved_nic(struct mover *m, int i, const struct sb_link *l)
{
    const struct sb_jnic *k = &m->j.nic[i];
    struct sb_faults f = {.log = m->o->log, .stop = true};
    bool ipv6 = true;
    int rc = sb_netdev_set(&m->there.rt, l, &k->link, k->as, &f);
    if (rc < 0)
        return rc;
    rc = set_arp_check_ipv6(m, k->as, &ipv6);
    if (rc < 0)
        return rc;
    rc = sb_netdev_addrs(&m->there.rt, &m->j, i, &m->map, AF_INET, &f);
    if (rc < 0 || (k->link.flags & IFF_UP && (rc = hw_rtnl_link_up(&m->there.rt, l->index, true)) < 0))
        return rc;
    if (ipv6)
        return sb_netdev_addrs(&m->there.rt, &m->j, i, &m->map, AF_INET6, &f);
    sb_log(m->o->log, HAWSER_LOG_INFO,
           "%s: the NIC has no IPv6 in the container, so IPv6 addresses, routes and rules are left out", k->link.name);
    m->map.skip6 = true;
    return 0;
}

static int move_nic(struct mover *m, int i)
{
    const struct sb_jnic *k = &m->j.nic[i];
    struct sb_link now;
    int to = m->map.dev[i].to;
    int rc = sb_journal_stepf(&m->j, SB_MOVE, i, "%d", to);
    if (rc < 0)
        return rc;
    rc = sb_netdev_move(&m->host.rt, k->link.index, m->there.fd, k->as, to);
    if (rc < 0)
        return rc;
    /* A tenant may be changing the NIC's name and index, so neither identifies the NIC. */
    rc = sb_nic_find(&m->there, k, k->as, &now);
    if (rc < 0)
        return rc;
    if (now.index != to) { /* an old kernel has chosen another index, or a tenant has changed the index */
        m->map.dev[i].to = now.index;
        rc = sb_journal_stepf(&m->j, SB_MOVE, i, "%d", now.index);
        if (rc < 0)
            return rc;
    }
    return equip_moved_nic(m, i, &now);
}

/* Adds a rule in the container, which restore will remove. */
static int make_rule(struct mover *m, struct nlmsghdr *h)
{
    int rc = sb_journal_step(&m->j, SB_MADE, -1, h, h->nlmsg_len);
    return rc < 0 ? rc : sb_netdev_rule(&m->there.rt, true, h);
}

static int family_of_message(const void *message)
{
    return ((const struct rtgenmsg *)mnl_nlmsg_get_payload(message))->rtgen_family;
}

static int copy_rules(struct mover *m)
{
    size_t n = m->j.n; /* the records added below must not be processed */
    for (size_t i = 0; i < n; i++) {
        char buf[SB_MSG_MAX] __attribute__((aligned(8)));
        if (m->j.rec[i].kind != SB_RULE)
            continue;
        int rc = sb_msg_rewrite(SB_RULE, m->j.rec[i].data, &m->map, buf, sizeof(buf));
        if (rc == -ENODEV) {
            sb_log(m->o->log, HAWSER_LOG_WARN,
                   "left out a routing rule, because it names a network device that is not moved");
            continue;
        }
        if (rc > 0 && m->map.skip6 && family_of_message(buf) == AF_INET6)
            continue;
        if (rc > 0)
            rc = make_rule(m, (struct nlmsghdr *)buf);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Parses record r as an IPv4 address of a NIC. */
static bool ipv4_of(const struct sb_record *r, uint32_t *addr, unsigned *prefix)
{
    int family;
    const uint8_t *p = r->kind == SB_ADDR ? sb_addr_bytes(r->data, &family, prefix) : NULL;
    if (!p || family != AF_INET)
        return false;
    memcpy(addr, p, 4);
    *addr = ntohl(*addr);
    return *prefix > 0;
}

static uint32_t mask_of(unsigned prefix)
{
    return prefix ? ~0u << (32 - prefix) : 0;
}

/* Returns true if another NIC of the move has an address whose network overlaps that of this record's address. */
static bool has_shared_network(const struct sb_journal *j, size_t at)
{
    uint32_t a = 0, b = 0;
    unsigned p = 0, q = 0;
    bool shared = false;
    if (!ipv4_of(&j->rec[at], &a, &p))
        return false;
    for (size_t i = 0; i < j->n; i++) {
        if (ipv4_of(&j->rec[i], &b, &q) && j->rec[i].nic != j->rec[at].nic)
            shared |= ((a ^ b) & mask_of(HW_MIN(p, q))) == 0;
    }
    return shared;
}

/* Copies the main table's IPv4 routes through a single gateway on this device into another table of the container. */
static int copy_gateway_routes(struct mover *m, int index, uint32_t table)
{
    for (size_t i = 0; i < m->j.n; i++) {
        char buf[SB_MSG_MAX] __attribute__((aligned(8)));
        if (m->j.rec[i].kind != SB_ROUTE || !sb_route_gateway(m->j.rec[i].data, index))
            continue;
        int rc = sb_msg_rewrite(SB_ROUTE, m->j.rec[i].data, &m->map, buf, sizeof(buf));
        if (rc == -ESTALE || (rc > 0 && family_of_message(buf) != AF_INET))
            continue;
        if (rc < 0)
            return rc;
        sb_route_set_table((struct nlmsghdr *)buf, table);
        rc = sb_netdev_add(&m->there.rt, SB_ROUTE, (struct nlmsghdr *)buf);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/*
 * arp_filter and rp_filter check the route back to the sender. If several NICs are in one network, the main table
 * routes replies through the first NIC, and the other NICs would stop answering (arp_filter() in net/ipv4/arp.c). Each
 * of these NICs that is up therefore gets its own table, and a rule that selects the table for packets with the NIC's
 * address as source.
 */
static int route_by_source(struct mover *m, size_t at)
{
    const struct sb_record *r = &m->j.rec[at];
    const struct sb_jnic *k = &m->j.nic[r->nic];
    int index = m->map.dev[r->nic].to;
    uint32_t addr, table = TABLE_BASE + (uint32_t)index;
    unsigned prefix;
    char buf[256] __attribute__((aligned(8))) = {0};
    if (!(k->link.flags & IFF_UP) || !ipv4_of(r, &addr, &prefix))
        return 0;
    struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
    h->nlmsg_type = RTM_NEWROUTE;
    struct rtmsg *t = mnl_nlmsg_put_extra_header(h, sizeof(*t));
    *t = (struct rtmsg){.rtm_family = AF_INET,
                        .rtm_dst_len = (uint8_t)prefix,
                        .rtm_protocol = RTPROT_STATIC,
                        .rtm_scope = RT_SCOPE_LINK,
                        .rtm_type = RTN_UNICAST};
    mnl_attr_put_u32(h, RTA_TABLE, table);
    mnl_attr_put_u32(h, RTA_DST, htonl(addr & mask_of(prefix)));
    mnl_attr_put_u32(h, RTA_PREFSRC, htonl(addr));
    mnl_attr_put_u32(h, RTA_OIF, (uint32_t)index);
    int rc = sb_netdev_add(&m->there.rt, SB_ROUTE, h);
    if (rc < 0 || (rc = copy_gateway_routes(m, k->link.index, table)) < 0)
        return rc;
    memset(buf, 0, sizeof(buf));
    h = mnl_nlmsg_put_header(buf);
    h->nlmsg_type = RTM_NEWRULE;
    struct fib_rule_hdr *f = mnl_nlmsg_put_extra_header(h, sizeof(*f));
    *f = (struct fib_rule_hdr){.family = AF_INET, .src_len = 32, .action = FR_ACT_TO_TBL};
    mnl_attr_put_u32(h, FRA_SRC, htonl(addr));
    mnl_attr_put_u32(h, FRA_TABLE, table);
    /* precedes the rule for table main, which has priority 32766 (net/ipv4/fib_rules.c) */
    mnl_attr_put_u32(h, FRA_PRIORITY, 32765);
    return make_rule(m, h);
}

static int execute_move(struct mover *m)
{
    struct sb_faults f = {.log = m->o->log, .stop = true};
    int rc = sb_journal_step(&m->j, SB_PIN, -1, NULL, 0);
    if (rc < 0 || (rc = sb_pin(m->dir, m->o->id, m->there.fd)) < 0)
        return rc;
    for (unsigned i = 0; i < m->j.nics; i++) {
        rc = move_nic(m, (int)i);
        if (rc < 0)
            return hw_wrap(rc, "%s", m->j.nic[i].link.name);
    }
    for (unsigned i = 0; i < m->j.rdmas; i++) {
        const struct sb_jrdma *k = &m->j.rdma[i];
        rc = sb_journal_stepf(&m->j, SB_RDMAMOVE, -1, "%d", k->index);
        if (rc < 0 || (rc = sb_rdma_move(&m->host, m->there.fd, k->index, k->name)) < 0)
            return rc;
    }
    rc = sb_netdev_routes(&m->there.rt, &m->j, &m->map, &f);
    if (rc < 0)
        return rc;
    rc = copy_rules(m);
    size_t n = m->j.n;
    for (size_t i = 0; rc == 0 && !m->o->no_arp && i < n; i++) {
        if (has_shared_network(&m->j, i))
            rc = route_by_source(m, i);
    }
    return rc < 0 ? rc : sb_journal_step(&m->j, SB_READY, -1, NULL, 0);
}

/* Prepares everything, up to the journal on disk. Does not change the NICs. */
static int prepare_move(struct mover *m)
{
    const struct sb_move_options *o = m->o;
    char path[256];
    pid_t holder = 0;
    uint64_t start = 0;
    int rc = sb_dir_lock(m->dir);
    if (rc < 0)
        return rc;
    rc = sb_ns_own(&m->host);
    if (rc < 0)
        return rc;
    rc = sb_ns_open(o->netns, &m->there, path, &holder, &start);
    if (rc < 0)
        return rc;
    if (o->start && start != o->start)
        return hw_fail(-ESRCH, "the container's process has ended, and %s now refers to another process", o->netns);
    if (sb_ns_same(&m->host.id, &m->there.id))
        return hw_fail(-EINVAL, "the NICs are already in the network namespace %s", o->netns);
    rc = check_claims(m);
    if (rc < 0)
        return rc;
    rc = fill_move_journal(m, path, holder, start);
    if (rc < 0)
        return rc;
    rc = check_movable_nics(m);
    if (rc < 0)
        return rc;
    rc = choose_indices(m);
    if (rc < 0)
        return rc;
    rc = sb_rdma_plan(&m->j, o->rdma, o->log);
    if (rc < 0)
        return rc;
    rc = sb_journal_step(&m->j, SB_BEGIN, -1, NULL, 0);
    return rc < 0 ? rc : sb_journal_create(&m->j, m->dir, o->id);
}

/* Moves all NICs. On failure, moves back the NICs that were already moved. */
static int move_or_put_back(struct mover *m)
{
    const struct sb_move_options *o = m->o;
    char why[HW_ERR_TEXT];
    int rc = prepare_move(m);
    if (rc < 0)
        return rc;
    rc = execute_move(m);
    for (unsigned i = 0; i < m->j.nics && rc == 0; i++)
        sb_log(o->log, HAWSER_LOG_INFO, "%s is in the container%s%s", m->j.nic[i].link.name,
               strcmp(m->j.nic[i].as, m->j.nic[i].link.name) == 0 ? "" : ", as ",
               strcmp(m->j.nic[i].as, m->j.nic[i].link.name) == 0 ? "" : m->j.nic[i].as);
    if (rc == 0)
        return 0;
    snprintf(why, sizeof(why), "%s", hw_error());
    sb_log(o->log, HAWSER_LOG_INFO, "moving the NICs back, because the move failed: %s", why);
    if (sb_give_back(&m->j, m->dir, o->id, false, o->log, NULL) < 0)
        return hw_wrap(rc, "%.160s; moving the NICs back failed too: run `hawser sandbox restore %s`", why, o->id);
    return hw_fail_copy(rc, why);
}

int sb_move(const struct sb_move_options *o)
{
    struct mover m = {.o = o, .host = SB_NS_NONE, .there = SB_NS_NONE};
    int rc = check_options(o);
    if (rc < 0)
        return rc;
    m.dir = sb_dir_open(o->journal_dir, true);
    if (m.dir < 0)
        return m.dir;
    sb_journal_init(&m.j);
    rc = move_or_put_back(&m);
    sb_journal_free(&m.j);
    sb_ns_close(&m.there);
    sb_ns_close(&m.host);
    hw_close(&m.dir);
    return rc;
}
