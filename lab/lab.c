/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/lab_int.h"

#include <ctype.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX  "hawser-"
#define WAIT_MS 15000 /* for an `up` under way to end, before `down` gives up; the largest lab takes less */

void lab_init(struct lab *l)
{
    memset(l, 0, sizeof(*l));
    l->user = l->sw.ns = l->sw.rt.fd = -1;
    for (size_t i = 0; i < HW_ARRAY_LEN(l->node); i++)
        l->node[i].ns = l->node[i].rt.fd = -1;
}

static void close_ns(struct lab_ns *n)
{
    hw_rtnl_close(&n->rt);
    hw_close(&n->ns);
}

void lab_close(struct lab *l)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(l->node); i++)
        close_ns(&l->node[i]);
    close_ns(&l->sw);
    hw_close(&l->user);
}

/* ---- names ---------------------------------------------------------------------------------- */

static bool name_ok(const char *s, size_t len)
{
    if (len == 0 || len > HW_LAB_NAME_MAX || !isalnum((unsigned char)s[0]))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)s[i]) && s[i] != '-' && s[i] != '_')
            return false;
    }
    return true;
}

static int check_name(const char **name)
{
    if (!*name)
        *name = HW_LAB_DEFAULT;
    if (name_ok(*name, strlen(*name)))
        return 0;
    return hw_fail(-EINVAL, "'%s' is no lab name: up to %d letters, digits, '-' and '_', a letter or digit first",
                   *name, HW_LAB_NAME_MAX);
}

/* hawser-<lab>-<node> to lab and node; no node has a '-'. False where it is none of ours. */
static bool split(const char *file, char lab[HW_LAB_NAME_MAX + 1], const char **node)
{
    if (strncmp(file, PREFIX, strlen(PREFIX)) != 0)
        return false;
    file += strlen(PREFIX);
    const char *dash = strrchr(file, '-');
    if (!dash || !name_ok(file, (size_t)(dash - file)))
        return false;
    *node = dash + 1;
    snprintf(lab, HW_LAB_NAME_MAX + 1, "%.*s", (int)(dash - file), file);
    return strcmp(*node, LAB_SWITCH) == 0 || ((*node)[0] >= 'a' && (*node)[0] <= 'z' && (*node)[1] == 0);
}

void lab_ns_name(const char *lab, unsigned node, char *out, size_t cap)
{
    if (node == HW_LAB_MAX_NODES)
        snprintf(out, cap, PREFIX "%s-" LAB_SWITCH, lab);
    else
        snprintf(out, cap, PREFIX "%s-%c", lab, 'a' + (int)node);
}

/* Bits 0 to 25: node a to z has a file in HW_NETNS_DIR, bit 26: the switch. */
static uint32_t kept(const char *name)
{
    uint32_t found = 0;
    DIR *d = opendir(HW_NETNS_DIR);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        char lab[HW_LAB_NAME_MAX + 1];
        const char *node;
        if (split(e->d_name, lab, &node) && strcmp(lab, name) == 0)
            found |= 1u << (node[1] ? HW_LAB_MAX_NODES : node[0] - 'a');
    }
    if (d)
        closedir(d);
    return found;
}

/* ---- building ------------------------------------------------------------------------------- */

int lab_set_rate(struct hw_rtnl *rt, int index, uint64_t rate)
{
    /*
     * The bucket refills by the clock but is looked at by a softirq, which on a busy machine comes milliseconds late: a
     * burst of 4 ms of the rate is what it may catch up on without losing rate. At least two packets of the largest
     * (64 KiB before segmentation): sch_tbf cuts those that exceed the burst in software, and TCP wants the next one
     * there while this one drains.
     * The limit is the queue in front of the bucket: 10 ms of the rate is the delay that a full queue adds, long enough
     * that TCP's halved window still fills it (there is no other delay in a lab), short enough to be no bufferbloat.
     * Below 100 mbit the floor of two large packets makes it longer.
     */
    uint64_t bytes = rate / 8, floor = 131072;
    uint64_t burst = HW_MIN(HW_MAX(bytes * 4 / 1000, floor), (uint64_t)INT32_MAX);
    uint64_t limit = HW_MIN(HW_MAX(bytes * 10 / 1000, floor), (uint64_t)INT32_MAX);
    return hw_rtnl_tbf_set(rt, index, rate, (uint32_t)burst, (uint32_t)limit);
}

/* Finds a NIC that was just made, and gives it what it needs: address (0: none), master (0: none), rate, up. */
static int furnish(struct hw_rtnl *rt, const char *name, uint32_t addr, int master, uint64_t rate)
{
    struct hw_rtnl_link l;
    int rc = hw_rtnl_link_get(rt, name, &l);
    if (rc == 0 && addr)
        rc = hw_rtnl_addr_add(rt, l.index, (struct in_addr){htonl(addr)}, 24);
    if (rc == 0 && master)
        rc = hw_rtnl_link_master(rt, l.index, master);
    if (rc == 0 && rate)
        rc = lab_set_rate(rt, l.index, rate);
    if (rc == 0)
        rc = hw_rtnl_link_up(rt, l.index, true);
    return rc;
}

static uint32_t address(unsigned node, unsigned nic)
{
    return 198u << 24 | 18u << 16 | nic << 8 | (node + 1); /* RFC 2544, 198.18.0.0/15 */
}

/* Indices of NICs, none twice in a lab: see hw_rtnl_veth_add(). Small ones are the kernel's, for lo and such. */
static int nic_index(unsigned node, unsigned nic, bool port)
{
    return 100 + (int)((2 * node + port) * HW_LAB_MAX_NICS + nic);
}

static int build_rail_pair(struct lab *l, const struct hw_lab_spec *spec, unsigned nic)
{
    char eth[IFNAMSIZ];
    snprintf(eth, sizeof(eth), "eth%u", nic);
    struct hw_rtnl_end a = {eth, nic_index(0, nic, false), -1}, b = {eth, nic_index(1, nic, false), l->node[1].ns};
    int rc = hw_rtnl_veth_add(&l->node[0].rt, &a, &b, spec->mtu);
    for (unsigned k = 0; rc == 0 && k < 2; k++)
        rc = furnish(&l->node[k].rt, eth, address(k, nic), 0, spec->rate[nic]);
    return rc;
}

static int build_rail_bridge(struct lab *l, const struct hw_lab_spec *spec, unsigned nic)
{
    char eth[IFNAMSIZ], port[IFNAMSIZ], rail[IFNAMSIZ];
    struct hw_rtnl_link bridge;
    snprintf(eth, sizeof(eth), "eth%u", nic);
    snprintf(rail, sizeof(rail), "rail%u", nic);
    int rc = hw_rtnl_bridge_add(&l->sw.rt, rail, spec->mtu);
    if (rc == 0)
        rc = hw_rtnl_link_get(&l->sw.rt, rail, &bridge);
    if (rc == 0)
        rc = hw_rtnl_link_up(&l->sw.rt, bridge.index, true);
    for (unsigned k = 0; rc == 0 && k < l->nodes; k++) {
        snprintf(port, sizeof(port), "%c%u", 'a' + (int)k, nic);
        struct hw_rtnl_end here = {eth, nic_index(k, nic, false), -1};
        struct hw_rtnl_end there = {port, nic_index(k, nic, true), l->sw.ns};
        rc = hw_rtnl_veth_add(&l->node[k].rt, &here, &there, spec->mtu);
        if (rc == 0)
            rc = furnish(&l->sw.rt, port, 0, bridge.index, spec->rate[nic]);
        if (rc == 0)
            rc = furnish(&l->node[k].rt, eth, address(k, nic), 0, spec->rate[nic]);
    }
    return rc;
}

/* A NIC sends nothing, and a bridge's port forwards nothing, until the kernel's link watcher, a work queue, has seen
 * its carrier: without waiting for that, the first connection would lose its SYN, and a second with that. */
static int wait_ready(struct lab *l, const struct hw_lab_spec *spec)
{
    size_t cap = (size_t)(l->nodes + 1) * spec->nics + 1; /* what the switch has: ports, bridges, lo */
    struct hw_rtnl_link *links = calloc(cap, sizeof(*links));
    uint64_t give_up = hw_deadline(5000);
    int rc = links ? 0 : hw_fail(-ENOMEM, "out of memory for %zu links", cap);
    for (unsigned k = 0; rc == 0 && k <= l->nodes;) {
        struct lab_ns *in = k == l->nodes ? &l->sw : &l->node[k];
        int n = in->ns < 0 ? 0 : hw_rtnl_link_list(&in->rt, links, cap);
        int bad = -1;
        for (int i = 0; i < n && (size_t)i < cap && bad < 0; i++) {
            if (links[i].up && !links[i].running && strcmp(links[i].kind, "veth") == 0)
                bad = i;
        }
        if (n < 0)
            rc = n;
        else if (bad < 0)
            k++;
        else if (hw_now() > give_up)
            rc = hw_fail(-ETIMEDOUT, "%s got no carrier", links[bad].name);
        else
            (void)poll(NULL, 0, 1);
    }
    free(links);
    return rc;
}

int lab_build(struct lab *l, const struct hw_lab_spec *spec)
{
    int rc = 0;
    for (unsigned nic = 0; rc == 0 && nic < spec->nics; nic++)
        rc = l->sw.ns >= 0 ? build_rail_bridge(l, spec, nic) : build_rail_pair(l, spec, nic);
    return rc == 0 ? wait_ready(l, spec) : rc;
}

/* ---- up and down ---------------------------------------------------------------------------- */

static int check_spec(struct hw_lab_spec *s)
{
    int rc = check_name(&s->name);
    if (rc < 0)
        return rc;
    if (s->nodes < HW_LAB_MIN_NODES || s->nodes > HW_LAB_MAX_NODES)
        return hw_fail(-EINVAL, "a lab has %d to %d nodes, not %u", HW_LAB_MIN_NODES, HW_LAB_MAX_NODES, s->nodes);
    if (s->nics < 1 || s->nics > HW_LAB_MAX_NICS)
        return hw_fail(-EINVAL, "a node has 1 to %d NICs, not %u", HW_LAB_MAX_NICS, s->nics);
    if (s->mtu == 0)
        s->mtu = 1500;
    if (s->mtu < 576 || s->mtu > 65535) /* 65535: the most that veth takes (ETH_MAX_MTU) */
        return hw_fail(-EINVAL, "an MTU is 576 to 65535, not %u", s->mtu);
    return 0;
}

static int remove_kept(const char *name, uint32_t which)
{
    int rc = 0;
    for (unsigned k = 0; k <= HW_LAB_MAX_NODES; k++) {
        char ns[64];
        lab_ns_name(name, k, ns, sizeof(ns));
        int one = which & 1u << k ? hw_netns_remove(ns) : 0;
        if (one < 0 && rc == 0)
            rc = one;
    }
    return rc;
}

static int up_kept(const struct hw_lab_spec *spec)
{
    struct lab l;
    char ns[64];
    uint32_t made = 0;
    lab_init(&l);
    int rc = hw_netns_prepare();
    for (unsigned k = 0; rc == 0 && k < spec->nodes; k++, l.nodes++) {
        lab_ns_name(spec->name, k, ns, sizeof(ns));
        rc = hw_netns_create(ns, &l.node[k].ns, &l.node[k].rt);
        made |= rc == 0 ? 1u << k : 0;
    }
    if (rc == 0 && spec->nodes > 2) {
        lab_ns_name(spec->name, HW_LAB_MAX_NODES, ns, sizeof(ns));
        rc = hw_netns_create(ns, &l.sw.ns, &l.sw.rt);
        made |= rc == 0 ? 1u << HW_LAB_MAX_NODES : 0;
    }
    if (rc == 0)
        rc = lab_build(&l, spec);
    lab_close(&l);
    if (rc < 0) {
        char why[HW_ERR_TEXT];
        snprintf(why, sizeof(why), "%s", hw_error());
        (void)remove_kept(spec->name, made);
        return hw_fail_copy(rc, why);
    }
    return 0;
}

int hw_lab_up(const struct hw_lab_spec *asked)
{
    struct hw_lab_spec spec = *asked;
    int lock = -1;
    int rc = check_spec(&spec);
    if (rc < 0)
        return rc;
    rc = holder_lock(spec.name, &lock);
    if (rc == -EBUSY)
        return hw_fail(-EEXIST,
                       "there is a lab '%s' already, or one being made; `hawser lab down --name %s` takes it away",
                       spec.name, spec.name);
    if (rc < 0)
        return rc;
    if (kept(spec.name))
        rc = hw_fail(-EEXIST,
                     "there is a lab '%s' already, or what is left of one; `hawser lab down --name %s` takes it away",
                     spec.name, spec.name);
    else
        rc = hw_netns_privileged() ? up_kept(&spec) : holder_start(&spec, lock);
    hw_close(&lock);
    return rc < 0 && rc != -EEXIST ? hw_wrap(rc, "making the lab '%s'", spec.name) : rc;
}

/* Opens what namespaces there are of a lab that root keeps; with holes, where a crash left holes. */
static unsigned open_kept(const char *name, struct lab *l, bool *denied)
{
    uint32_t which = kept(name);
    unsigned n = 0;
    *denied = false;
    for (unsigned k = 0; k <= HW_LAB_MAX_NODES; k++) {
        struct lab_ns *to = k == HW_LAB_MAX_NODES ? &l->sw : &l->node[k];
        char ns[64];
        lab_ns_name(name, k, ns, sizeof(ns));
        if (!(which & 1u << k) || hw_netns_open(ns, &to->ns) < 0)
            continue;
        if (hw_netns_rtnl(to->ns, &to->rt) < 0) {
            *denied = true;
            hw_close(&to->ns);
            continue;
        }
        n++;
        if (k < HW_LAB_MAX_NODES)
            l->nodes = k + 1;
    }
    return n;
}

static int is_inside(const char *name)
{
    return hw_fail(-EBUSY, "this process is in the lab '%s' itself: take it down from outside", name);
}

/* Ends the processes in a lab. */
static int empty(const char *name, const struct lab *l)
{
    int ns[HW_LAB_MAX_NODES + 1];
    size_t n = 0;
    for (unsigned k = 0; k <= HW_LAB_MAX_NODES; k++) {
        int fd = k == HW_LAB_MAX_NODES ? l->sw.ns : l->node[k].ns;
        if (fd >= 0)
            ns[n++] = fd;
    }
    int own = hw_netns_own();
    if (own < 0)
        return own;
    bool inside = false;
    for (size_t i = 0; i < n; i++)
        inside = inside || hw_netns_same(own, ns[i]);
    hw_close(&own);
    if (inside)
        return is_inside(name);
    int rc = n ? hw_netns_kill(ns, n, 1000) : 0;
    return rc < 0 ? rc : 0;
}

int hw_lab_down(const char *name)
{
    struct lab l;
    bool denied;
    int lock = -1;
    int rc = check_name(&name);
    uint64_t give_up = hw_deadline(WAIT_MS);
    while (rc == 0) {
        lab_init(&l);
        rc = holder_open(name, &l);
        if (rc == 0)
            rc = empty(name, &l);
        lab_close(&l);
        if (rc == -EBUSY)
            return rc;
        rc = holder_end(name); /* whether or not it answered */
        if (rc == 0)
            continue;
        if (rc == -ENOENT)
            rc = holder_lock(name, &lock);
        if (rc == 0)
            break;
        if (rc != -EAGAIN && rc != -EBUSY)
            return rc;
        if (hw_now() > give_up)
            return hw_fail(-EBUSY, "another `hawser lab up` or `down` of '%s' is under way and does not end", name);
        (void)poll(NULL, 0, 20);
        rc = 0;
    }
    if (rc < 0)
        return rc;
    uint32_t which = kept(name);
    if (which && !hw_netns_privileged()) {
        rc = hw_fail(-EPERM, "the lab '%s' is root's; take it down as root", name);
    } else if (which) {
        lab_init(&l);
        (void)open_kept(name, &l, &denied);
        rc = empty(name, &l);
        lab_close(&l);
        if (rc == 0)
            rc = remove_kept(name, which);
    } else {
        /* Of a lab whose process was killed, its programs may live on, and its namespaces by them. */
        char mark[64];
        snprintf(mark, sizeof(mark), PREFIX "%s-", name);
        rc = hw_netns_marked(mark) ? is_inside(name) : hw_netns_kill_marked(mark, 1000);
        rc = HW_MIN(rc, 0);
    }
    hw_close(&lock);
    return rc;
}

/* ---- what there is -------------------------------------------------------------------------- */

static int lab_open(const char *name, struct lab *l)
{
    bool denied;
    lab_init(l);
    if (!kept(name))
        return holder_open(name, l);
    unsigned n = open_kept(name, l, &denied);
    if (denied) {
        lab_close(l);
        return hw_fail(-EPERM, "the lab '%s' is root's; use it as root", name);
    }
    if (n == 0 || l->nodes == 0) {
        lab_close(l);
        return hw_fail(-ENOENT,
                       "of the lab '%s' only a crash's remains are left; `hawser lab down --name %s` removes them",
                       name, name);
    }
    return 0;
}

static int find_node(const char *name, const struct lab *l, const char *node, unsigned *k)
{
    if (node && node[0] >= 'a' && node[0] <= 'z' && node[1] == 0) {
        *k = (unsigned)(node[0] - 'a');
        if (*k < l->nodes && l->node[*k].ns >= 0)
            return 0;
    }
    return hw_fail(-ENOENT, "the lab '%s' has no node '%s', only a to %c", name, node ? node : "",
                   'a' + (int)l->nodes - 1);
}

int lab_open_node(const char **name, const char *node, struct lab *l, unsigned *k)
{
    int rc = check_name(name);
    if (rc == 0)
        rc = lab_open(*name, l);
    if (rc < 0)
        return rc;
    rc = find_node(*name, l, node, k);
    if (rc < 0)
        lab_close(l);
    return rc;
}

int hw_lab_link(const char *name, const char *node, unsigned nic, bool up)
{
    struct lab l;
    struct hw_rtnl_link link;
    unsigned k = 0;
    char eth[IFNAMSIZ];
    int rc = lab_open_node(&name, node, &l, &k);
    if (rc < 0)
        return rc;
    snprintf(eth, sizeof(eth), "eth%u", nic);
    rc = hw_rtnl_link_get(&l.node[k].rt, eth, &link);
    if (rc == 0)
        rc = hw_rtnl_link_up(&l.node[k].rt, link.index, up);
    lab_close(&l);
    return rc < 0 ? hw_wrap(rc, "node %s of the lab '%s'", node, name) : 0;
}

int hw_lab_rate(const char *name, const char *node, unsigned nic, uint64_t rate)
{
    struct lab l;
    struct hw_rtnl_link link, far;
    unsigned k = 0;
    char eth[IFNAMSIZ], port[IFNAMSIZ];
    int rc = lab_open_node(&name, node, &l, &k);
    if (rc < 0)
        return rc;
    snprintf(eth, sizeof(eth), "eth%u", nic);
    snprintf(port, sizeof(port), "%s%u", node, nic);
    bool bridged = l.sw.ns >= 0;
    struct lab_ns *other = bridged ? &l.sw : &l.node[!k];
    rc = hw_rtnl_link_get(&l.node[k].rt, eth, &link);
    if (rc == 0)
        rc = hw_rtnl_link_get(&other->rt, bridged ? port : eth, &far);
    if (rc == 0)
        rc = lab_set_rate(&l.node[k].rt, link.index, rate);
    if (rc == 0)
        rc = lab_set_rate(&other->rt, far.index, rate);
    lab_close(&l);
    return rc < 0 ? hw_wrap(rc, "node %s of the lab '%s'", node, name) : 0;
}

/* Fills out with the NICs of a node, in the order of their numbers. */
static int node_info(struct hw_rtnl *rt, struct hw_lab_node *out)
{
    struct hw_rtnl_link links[HW_LAB_MAX_NICS + 32]; /* some room for what users add */
    int n = hw_rtnl_link_list(rt, links, HW_ARRAY_LEN(links));
    if (n < 0)
        return n;
    n = (int)HW_MIN((size_t)n, HW_ARRAY_LEN(links));
    for (unsigned nic = 0; nic < HW_LAB_MAX_NICS; nic++) {
        char eth[IFNAMSIZ];
        snprintf(eth, sizeof(eth), "eth%u", nic);
        for (int i = 0; i < n; i++) {
            if (strcmp(links[i].name, eth) != 0)
                continue;
            struct hw_lab_nic *to = &out->nic[out->nics++];
            to->link = links[i];
            int rc = hw_rtnl_addr_get(rt, to->link.index, &to->addr, NULL);
            if (rc == 0 || rc == -EADDRNOTAVAIL)
                rc = hw_rtnl_tbf_get(rt, to->link.index, &to->rate);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

int hw_lab_info(const char *name, struct hw_lab_info *out)
{
    struct lab l;
    memset(out, 0, sizeof(*out));
    int rc = check_name(&name);
    if (rc == 0)
        rc = lab_open(name, &l);
    if (rc < 0)
        return rc;
    snprintf(out->name, sizeof(out->name), "%s", name);
    out->user = l.user >= 0;
    for (unsigned k = 0; rc == 0 && k < l.nodes; k++) {
        if (l.node[k].ns < 0)
            continue;
        struct hw_lab_node *to = &out->node[out->nodes++];
        snprintf(to->name, sizeof(to->name), "%c", 'a' + (int)k);
        rc = node_info(&l.node[k].rt, to);
    }
    lab_close(&l);
    return rc;
}

int hw_lab_names(char (*out)[HW_LAB_NAME_MAX + 1], size_t cap)
{
    size_t n = 0;
    DIR *d = opendir(HW_NETNS_DIR);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        char lab[HW_LAB_NAME_MAX + 1];
        const char *node;
        if (!split(e->d_name, lab, &node))
            continue;
        bool known = false;
        for (size_t i = 0; i < HW_MIN(n, cap); i++)
            known = known || strcmp(out[i], lab) == 0;
        if (known)
            continue;
        if (n < cap)
            memcpy(out[n], lab, sizeof(lab));
        n++;
    }
    if (d)
        closedir(d);
    return holder_names(out, cap, n);
}
