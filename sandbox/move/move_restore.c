/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restores NICs from the container. The journal describes the previous state. This code restores that state from any
 * current state, and may be repeated after any interruption. It keeps no state except the
 * journal's record that the restore has begun (SB_BACK).
 */
#include "sandbox/attr/attr.h"
#include "sandbox/move/move.h"
#include "sandbox/move/move_int.h"

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

struct back {
    struct sb_journal *j;
    int dir;
    const char *id;
    struct sb_ns host, there;     /* there.fd is -1 if the container's namespace has ended */
    struct sb_attr_kernel kernel; /* access to the host's attributes */
    struct sb_faults f;
    unsigned lost;
    int now[SB_NICS_MAX]; /* the NIC's index here; 0 if sb_move() did not move it, or it is not back */
    char name[SB_NICS_MAX][IFNAMSIZ];
};

/* ---- moving back --------------------------------------------------------------------------------- */

/* Moves l here from the namespace `from` under the NIC's name, or under a spare name if another device has that name.
 * Stores the name in `as`. */
static int fetch_as(struct back *b, struct sb_ns *from, int i, const struct sb_link *l, int index, char as[IFNAMSIZ])
{
    const struct sb_jnic *k = &b->j->nic[i];
    memcpy(as, k->link.name, IFNAMSIZ);
    /* An alternative name blocks the move if a device here has that name. The NIC's previous alternative names are
     * restored with its other attributes. */
    int rc = sb_netdev_drop_altnames(&from->rt, l->index);
    if (rc == 0)
        rc = sb_netdev_move(&from->rt, l->index, b->host.fd, as, index);
    if (rc != -EEXIST)
        return rc;
    (void)sb_fault(&b->f, hw_fail(rc, "%s: another device now has the NIC's name", k->link.name));
    (void)snprintf(as, IFNAMSIZ, "hwback%d", k->link.index % 100000000);
    return sb_netdev_move(&from->rt, l->index, b->host.fd, as, index);
}

/* Moves a device that is not the NIC back to the namespace `to`, from which it was moved. The device is down and has no
 * addresses, as when it arrived. Always fails with -ENODEV. */
static int send_back(struct back *b, const struct sb_ns *to, int i, const struct sb_link *l)
{
    const char *name = b->j->nic[i].link.name;
    char spare[IFNAMSIZ];
    (void)snprintf(spare, sizeof(spare), "hwcopy%d", b->j->nic[i].link.index % 100000000);
    if (sb_netdev_move(&b->host.rt, l->index, to->fd, spare, 0) == 0)
        sb_log(b->f.log, HAWSER_LOG_ERROR,
               "%s was replaced by another device while it was being moved back; the other device was returned to its "
               "network namespace",
               name);
    else
        (void)sb_fault(&b->f, hw_wrap(-EIO,
                                      "%s was replaced by another device while it was being moved back; the other "
                                      "device is now in this network namespace as %s, down and without addresses",
                                      name, l->name));
    return -ENODEV;
}

static int update_highest_index(const struct sb_link *l, void *arg)
{
    *(int *)arg = HW_MAX(*(int *)arg, l->index);
    return 0;
}

/* Chooses an index that no device here has, or 0 if the highest possible index is in use. The kernel would prefer the
 * index that the device has in the container, which the tenant controls. */
static int choose_index(struct back *b, int *index)
{
    *index = 0;
    int rc = sb_netdev_links(&b->host.rt, update_highest_index, index);
    *index = *index < INT32_MAX ? *index + 1 : 0;
    return rc;
}

/* Moves NIC i here from the namespace `from`. l is the NIC's link there, and is set to the NIC's link here. Fails with
 * -ENODEV if the device was not the NIC. */
static int fetch_nic_from(struct back *b, struct sb_ns *from, int i, struct sb_link *l)
{
    const struct sb_jnic *k = &b->j->nic[i];
    struct sb_link other = {0};
    char as[IFNAMSIZ];
    int index = k->link.index;
    int rc = sb_netdev_find(&b->host.rt, index, NULL, &other);
    if (rc == 0)
        sb_log(b->f.log, HAWSER_LOG_WARN, "%s: its former index %d now belongs to the network device %s", k->link.name,
               index, other.name);
    else if (rc != -ENODEV)
        return rc;
    if (sb_journal_stepf(b->j, SB_BACK, i, "%d", index) < 0)
        /* Continue, because restoring is more important. Without this record, only the protection against a second
         * crash is lost. */
        sb_log(b->f.log, HAWSER_LOG_WARN, "%s; continuing without this step in the journal", hw_error());
    if (rc == 0 && (rc = choose_index(b, &index)) < 0)
        return rc;
    rc = fetch_as(b, from, i, l, index, as);
    if (rc < 0)
        return rc;
    rc = sb_nic_find(&b->host, k, as, l);
    /* Between the check and the move, the container may have replaced the NIC with another device. The device that
     * arrived has this name, which was free here. */
    if (rc == -ENODEV && sb_netdev_find(&b->host.rt, 0, as, &other) == 0)
        return send_back(b, from, i, &other);
    return rc;
}

struct elsewhere {
    struct back *b;
    int nic;
    struct sb_link *l;
};

static int look_elsewhere(struct sb_ns *n, void *arg)
{
    const struct elsewhere *e = arg;
    const struct sb_jnic *k = &e->b->j->nic[e->nic];
    if (sb_ns_same(&n->id, &e->b->host.id) || sb_ns_same(&n->id, &e->b->j->netns) || sb_nic_find(n, k, k->as, e->l) < 0)
        return -ENODEV;
    sb_log(e->b->f.log, HAWSER_LOG_WARN, "%s is in a different network namespace from the one that it was moved to",
           k->link.name);
    return fetch_nic_from(e->b, n, e->nic, e->l);
}

/* Finds NIC i in any namespace and moves it here. Fails with -ENODEV if the NIC was not found. */
static int find_and_fetch_nic(struct back *b, int i, struct sb_link *l)
{
    const struct sb_jnic *k = &b->j->nic[i];
    int rc = sb_nic_find(&b->host, k, k->link.name, l);
    if (rc == -ENODEV && b->there.fd >= 0) {
        rc = sb_nic_find(&b->there, k, k->as, l);
        if (rc == 0)
            return fetch_nic_from(b, &b->there, i, l);
    }
    /* A container may have moved the NIC to another namespace. When a namespace ends, its hardware returns to the
     * machine's first namespace (default_device_exit_net() in net/core/dev.c), which need not be this namespace. */
    return rc == -ENODEV ? sb_ns_search(look_elsewhere, &(struct elsewhere){b, i, l}) : rc;
}

/* Time limit for finding a NIC. After a namespace has ended, there is a delay before the kernel moves its hardware to
 * the first namespace. A running container may also keep moving a NIC between namespaces, so a single search may miss
 * it. */
#define PATIENCE_MS 3000

static bool may_appear(const struct back *b, int i)
{
    return sb_link_hardware(&b->j->nic[i].link) || (b->there.fd >= 0 && sb_ns_inhabited(&b->j->netns));
}

static int bring_patiently(struct back *b, int i, struct sb_link *l)
{
    uint64_t deadline = hw_deadline(PATIENCE_MS);
    for (;;) {
        int rc = find_and_fetch_nic(b, i, l);
        if (rc != -ENODEV || hw_now() >= deadline || !may_appear(b, i))
            return rc;
        (void)poll(NULL, 0, 20);
    }
}

/* Reports that NIC i was not found. A NIC that was deleted is reported as lost, and any other as a fault. */
static void tell_lost(struct back *b, int i)
{
    const struct sb_jnic *k = &b->j->nic[i];
    const struct sb_link *w = &k->link;
    struct sb_link l;
    if (!k->ident && !sb_link_hardware(w)) {
        (void)sb_fault(
            &b->f, hw_fail(-ENODEV,
                           "%s: an older hawser wrote the journal, so the NIC cannot be distinguished from a copy that "
                           "the container may have made; `hawser sandbox restore --forget` removes the journal",
                           w->name));
        return;
    }
    if (sb_link_hardware(w)) {
        (void)sb_fault(
            &b->f, hw_fail(-ENODEV,
                           "%s (%s) is in no process's network namespace: it may reappear when a namespace ends; "
                           "if it was removed from the machine, `hawser sandbox restore --forget` removes the journal",
                           w->name, w->parent));
        return;
    }
    if (may_appear(b, i)) {
        (void)sb_fault(&b->f, hw_fail(-ENODEV,
                                      "%s was not found, and the container is running: the container may have deleted "
                                      "%s, or may keep moving it between network namespaces; end the container first",
                                      w->name, w->name));
        return;
    }
    b->lost++;
    if (b->there.fd < 0)
        sb_log(b->f.log, HAWSER_LOG_ERROR,
               "%s is lost: it is not in this network namespace, and the container's namespace has ended%s%s", w->name,
               *w->kind ? ", which deletes devices of kind " : "", w->kind);
    else if (sb_netdev_find(&b->there.rt, k->there, NULL, &l) == 0)
        sb_log(b->f.log, HAWSER_LOG_ERROR,
               "%s is lost: another device, which stays in the container, has replaced it and has its index", w->name);
    else
        sb_log(b->f.log, HAWSER_LOG_ERROR,
               "%s is lost: it is neither in this network namespace, nor in the container, nor in the namespace of "
               "another process, so it was deleted",
               w->name);
}

static int restore_nic_settings(struct back *b, int i, struct sb_link *l, const struct sb_map *map)
{
    const struct sb_jnic *k = &b->j->nic[i];
    bool up = k->link.flags & IFF_UP;
    struct sb_faults *f = &b->f;
    unsigned before = f->n;
    /* The attributes are restored first, because some of them limit other settings: an XDP program limits the MTU. */
    sb_attrs_apply(&b->kernel, b->j, i, l->index, l->name, false, f);
    /* Linux before 6.2 cannot rename a device that is up. This matters for a device that arrived with a spare name and
     * was set up by an earlier call. */
    if (strcmp(l->name, k->link.name) != 0 && l->flags & IFF_UP && hw_rtnl_link_up(&b->host.rt, l->index, false) == 0)
        l->flags &= ~(uint32_t)IFF_UP;
    (void)sb_netdev_set(&b->host.rt, l, &k->link, k->link.name, f);
    if (strcmp(l->name, k->link.name) != 0 && sb_netdev_find(&b->host.rt, l->index, NULL, l) < 0)
        return sb_fault(f, hw_wrap(-EIO, "%s", k->link.name));
    snprintf(b->name[i], sizeof(b->name[i]), "%s", l->name);
    (void)sb_sysctl_apply(b->j, i, l->name, f);
    (void)sb_netdev_addrs(&b->host.rt, b->j, i, map, AF_INET, f);
    if (up != !!(l->flags & IFF_UP))
        (void)sb_fault(f, hw_rtnl_link_up(&b->host.rt, l->index, up));
    (void)sb_netdev_addrs(&b->host.rt, b->j, i, map, AF_INET6, f);
    sb_attrs_apply(&b->kernel, b->j, i, l->index, l->name, true, f);
    if (f->n == before)
        sb_log(f->log, HAWSER_LOG_INFO, "%s is restored", k->link.name);
    return 0;
}

static void take_rules_away(struct back *b)
{
    for (size_t i = 0; b->there.fd >= 0 && i < b->j->n; i++) {
        if (b->j->rec[i].kind == SB_MADE)
            (void)sb_fault(&b->f, sb_netdev_rule(&b->there.rt, false, b->j->rec[i].data));
    }
}

static void bring_rdma(struct back *b)
{
    for (unsigned i = 0; b->there.fd >= 0 && i < b->j->rdmas; i++) {
        const struct sb_jrdma *k = &b->j->rdma[i];
        if (!k->moved)
            continue;
        int rc = sb_rdma_move(&b->there, b->host.fd, k->index, k->name);
        if (rc != -ENODEV) /* -ENODEV means that the device is no longer in the container */
            (void)sb_fault(&b->f, rc);
    }
}

/* ---- verification -------------------------------------------------------------------------------- */

static void report_link_difference(struct back *b, unsigned i, const char *what, const char *is, const char *was)
{
    (void)sb_fault(&b->f, hw_fail(-EIO, "%s: its %s is %s, but was %s", b->j->nic[i].link.name, what, is, was));
}

static void compare_link(struct back *b, unsigned i, const struct sb_link *l)
{
    const struct sb_link *w = &b->j->nic[i].link;
    const uint32_t flags = IFF_UP | IFF_NOARP | IFF_ALLMULTI | IFF_PROMISC | IFF_MULTICAST | IFF_DYNAMIC;
    const struct {
        const char *what;
        uint32_t is, was;
    } t[] = {{"MTU", l->mtu, w->mtu},
             {"queue length", l->txqlen, w->txqlen},
             {"group", l->group, w->group},
             {"set of flags", l->flags & flags, w->flags & flags}};
    for (size_t k = 0; k < HW_ARRAY_LEN(t); k++) {
        char is[16], was[16];
        snprintf(is, sizeof(is), "%u", t[k].is);
        snprintf(was, sizeof(was), "%u", t[k].was);
        if (t[k].is != t[k].was)
            report_link_difference(b, i, t[k].what, is, was);
    }
    if (strcmp(l->name, w->name) != 0)
        report_link_difference(b, i, "name", l->name, w->name);
    if (strcmp(l->alias, w->alias) != 0)
        report_link_difference(b, i, "alias", *l->alias ? l->alias : "empty", *w->alias ? w->alias : "empty");
    if (l->mac_len != w->mac_len || memcmp(l->mac, w->mac, w->mac_len) != 0)
        (void)sb_fault(&b->f, hw_fail(-EIO, "%s: its previous MAC address is not restored", w->name));
}

/* Returns the number that NIC i of the journal has in the new snapshot, or -1 if i is -1 or the NIC was not moved back.
 */
static int now_nic(const struct back *b, const struct sb_journal *now, int i)
{
    for (unsigned k = 0; i >= 0 && k < now->nics; k++) {
        if (now->nic[k].link.index == b->now[i])
            return (int)k;
    }
    return -1;
}

static bool has_matching_record(const struct back *b, const struct sb_journal *now, const struct sb_record *r,
                                const struct sb_map *map)
{
    int nic = now_nic(b, now, r->nic);
    for (size_t i = 0; i < now->n; i++) {
        const struct sb_record *n = &now->rec[i];
        if (n->kind != r->kind || n->nic != nic)
            continue;
        if (r->kind == SB_SYSCTL ? strcmp(n->data, r->data) == 0 : sb_msg_same(r->kind, n->data, r->data, map))
            return true;
    }
    return false;
}

/* Reports record r of the journal if the new snapshot lacks it. */
static void compare_record(struct back *b, const struct sb_journal *now, const struct sb_record *r,
                           const struct sb_map *map)
{
    char buf[SB_MSG_MAX] __attribute__((aligned(8))), text[SB_TEXT];
    bool of_nic = r->nic >= 0, compared = r->kind == SB_SYSCTL || r->kind == SB_ADDR || r->kind == SB_NEIGH ||
                                          r->kind == SB_ROUTE || r->kind == SB_RULE;
    if (!compared || (of_nic && !b->now[r->nic]))
        return;
    if (r->kind == SB_ROUTE && sb_route_by_object(r->data))
        return; /* nexthop objects are not restored; such a NIC moves only with --force */
    if (r->kind != SB_SYSCTL && sb_msg_rewrite(r->kind, r->data, map, buf, sizeof(buf)) < 0)
        return; /* its lifetime has expired, or one of its NICs is lost */
    if (has_matching_record(b, now, r, map))
        return;
    const char *nic = of_nic ? b->j->nic[r->nic].link.name : "";
    if (r->kind == SB_SYSCTL) { /* "FOLDER NAME VALUE" */
        const char *key = strchr(r->data, ' ') + 1, *value = strchr(key, ' ') + 1;
        (void)sb_fault(&b->f, hw_fail(-EIO, "the sysctl net/%.*s/%s/%.*s is missing or is no longer '%s'",
                                      (int)(key - 1 - (const char *)r->data), (const char *)r->data, nic,
                                      (int)(value - 1 - key), key, value));
        return;
    }
    (void)sb_fault(&b->f, hw_fail(-EIO, "%s%sthe %s is missing or has changed", nic, of_nic ? ": " : "",
                                  sb_msg_text(r->kind, r->data, text)));
}

/* Reads the links, sysctls, addresses, neighbours, routes and rules again, and reports differences from the journal. */
static int verify_restored_state(struct back *b, const struct sb_map *map)
{
    const char *names[SB_NICS_MAX];
    size_t n = 0;
    for (unsigned i = 0; i < b->j->nics; i++) {
        const struct sb_jnic *k = &b->j->nic[i];
        struct sb_link l;
        if (b->now[i])
            names[n++] = b->name[i];
        /* The routes and rules of NICs that were never moved are also compared. */
        else if (!k->there && sb_netdev_find(&b->host.rt, k->link.index, NULL, &l) == 0 &&
                 strcmp(l.name, k->link.name) == 0)
            names[n++] = k->link.name;
    }
    if (n == 0)
        return 0;
    struct sb_journal now __attribute__((cleanup(sb_journal_free))) = {.fd = -1};
    int rc = sb_journal_addf(&now, SB_HEAD, -1, "1");
    if (rc < 0 || (rc = sb_netdev_read(&b->host.rt, &now, names, n)) < 0)
        return rc;
    for (unsigned i = 0; i < b->j->nics; i++) {
        int k = now_nic(b, &now, (int)i);
        if (k >= 0)
            compare_link(b, i, &now.nic[k].link);
    }
    for (size_t i = 0; i < b->j->n; i++)
        compare_record(b, &now, &b->j->rec[i], map);
    return 0;
}

/* ---- restoring ----------------------------------------------------------------------------------- */

static uint64_t elapsed_since(uint64_t taken)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec > taken ? (uint64_t)now.tv_sec - taken : 0;
}

static void bring_all(struct back *b)
{
    struct sb_journal *j = b->j;
    struct sb_map map = {.others = true, .elapsed = elapsed_since(j->taken)};
    struct sb_link l[SB_NICS_MAX] = {0};
    take_rules_away(b);
    bring_rdma(b);
    for (unsigned i = 0; i < j->nics; i++) {
        if (!j->nic[i].there) /* the NIC was never moved */
            continue;
        int rc = bring_patiently(b, (int)i, &l[i]);
        if (rc == -ENODEV) {
            tell_lost(b, (int)i);
        } else if (rc < 0) {
            (void)sb_fault(&b->f, hw_wrap(rc, "%s", j->nic[i].link.name));
        } else {
            b->now[i] = l[i].index;
        }
    }
    for (unsigned i = 0; i < j->nics; i++) {
        if (!j->nic[i].there)
            continue;
        map.dev[map.n].from = j->nic[i].link.index;
        map.dev[map.n].to = b->now[i];
        map.dev[map.n].from_name = map.dev[map.n].to_name = j->nic[i].link.name;
        map.n++;
    }
    (void)sb_fault(&b->f, sb_attr_open(&b->kernel, &b->host.rt, sb_ns_sysfs(&b->host)));
    for (unsigned i = 0; i < j->nics; i++) {
        if (b->now[i])
            (void)restore_nic_settings(b, (int)i, &l[i], &map);
    }
    sb_attr_close(&b->kernel);
    if (map.n == 0)
        return;
    (void)sb_fault(&b->f, sb_netdev_routes(&b->host.rt, j, &map, &b->f));
    (void)sb_netdev_neighs(&b->host.rt, j, &map, &b->f);
    for (size_t i = 0; i < j->n; i++) {
        char buf[SB_MSG_MAX] __attribute__((aligned(8)));
        if (j->rec[i].kind == SB_RULE && sb_msg_rewrite(SB_RULE, j->rec[i].data, &map, buf, sizeof(buf)) > 0)
            (void)sb_fault(&b->f, sb_netdev_rule(&b->host.rt, true, (struct nlmsghdr *)buf));
    }
    (void)sb_fault(&b->f, verify_restored_state(b, &map));
}

/* Opens the namespaces and restores the NICs, unless nothing was changed or the machine has rebooted since the move. */
static int bring_if_taken(struct back *b)
{
    const struct sb_journal *j = b->j;
    char boot[HW_BOOT_ID];
    int rc = hw_boot_id(boot);
    if (rc < 0)
        return rc;
    if (!j->begun || strcmp(boot, j->boot) != 0) {
        sb_log(b->f.log, HAWSER_LOG_INFO, "%s: nothing to restore: %s", b->id,
               j->begun ? "the machine has been rebooted since the move" : "nothing had been changed");
        return 0;
    }
    rc = sb_ns_own(&b->host);
    if (rc < 0)
        return rc;
    if (!sb_ns_same(&b->host.id, &j->host))
        return hw_fail(-EXDEV, "the NICs of %s come from a network namespace other than this one", b->id);
    rc = sb_ns_find(j, b->dir, b->id, &b->there);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    bring_all(b);
    return 0;
}

static int remove_pin_and_journal(int dir, const char *id)
{
    int rc = sb_unpin(dir, id);
    return rc < 0 ? rc : sb_journal_remove(dir, id);
}

int sb_give_back(struct sb_journal *j, int dir, const char *id, bool forget, const struct hw_logger *log,
                 unsigned *lost)
{
    struct back b = {.j = j, .dir = dir, .id = id, .host = SB_NS_NONE, .there = SB_NS_NONE, .f = {.log = log}};
    int rc = bring_if_taken(&b);
    sb_ns_close(&b.there);
    sb_ns_close(&b.host);
    if (lost)
        *lost = b.lost;
    if (rc < 0)
        return rc;
    if (b.f.n > 0 && !forget)
        return hw_fail(-EIO, "%s: %.150s%s; `hawser sandbox restore %s` tries again", id, b.f.first,
                       b.f.n > 1 ? " (and more)" : "", id);
    return remove_pin_and_journal(dir, id);
}

int sb_restore(const struct sb_restore_options *o, unsigned *lost)
{
    if (lost)
        *lost = 0;
    int rc = sb_id_check(o->id);
    if (rc < 0)
        return rc;
    HW_AUTO_CLOSE int dir = sb_dir_open(o->journal_dir, false);
    if (dir < 0)
        return dir == -ENOENT ? 0 : dir;
    struct sb_journal j __attribute__((cleanup(sb_journal_free))) = {.fd = -1};
    rc = sb_dir_lock(dir);
    if (rc == 0)
        rc = sb_journal_load(&j, dir, o->id, true);
    if (rc == -ENOENT || ((rc == -EBADMSG || rc == -EPROTONOSUPPORT) && o->forget))
        /* also removes files that a crash has left behind */
        return remove_pin_and_journal(dir, o->id);
    if (rc < 0)
        return rc;
    if (o->ended && j.ready && !j.returning && !sb_ended(&j))
        return hw_fail(
            -EBUSY, "the container %s is still running and keeps its NICs; `hawser sandbox restore %s` takes them back",
            o->id, o->id);
    return sb_give_back(&j, dir, o->id, o->forget, o->log, lost);
}
