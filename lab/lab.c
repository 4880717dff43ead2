/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/lab_int.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX    "hawser-"
#define LINKS_MAX (HW_LAB_MAX_NICS + 32) /* links of a node, with some space for links that users add */
#define WAIT_MS   15000 /* ms that `down` waits for another `up` or `down`; enough to create the largest lab */

void lab_init(struct lab *l)
{
    memset(l, 0, sizeof(*l));
    l->user = l->sw.ns = l->sw.rt.fd = -1;
    for (size_t i = 0; i < HW_ARRAY_LEN(l->node); i++)
        l->node[i].ns = l->node[i].rt.fd = -1;
}

static void close_ns(struct lab_ns *n)
{
    hw_netlink_close(&n->rt);
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
    return hw_fail(
        -EINVAL,
        "'%s' is not a lab name: expected up to %d letters, digits, '-' and '_', beginning with a letter or digit",
        *name, HW_LAB_NAME_MAX);
}

/* Splits hawser-<lab>-<node>. Node names have no '-'. Returns false for other names. */
static bool split_lab_ns_name(const char *file, char lab[HW_LAB_NAME_MAX + 1], const char **node)
{
    if (strncmp(file, PREFIX, strlen(PREFIX)) != 0)
        return false;
    file += strlen(PREFIX);
    const char *dash = strrchr(file, '-');
    if (!dash || !name_ok(file, (size_t)(dash - file)))
        return false;
    *node = dash + 1;
    snprintf(lab, HW_LAB_NAME_MAX + 1, "%.*s", (int)(dash - file), file);
    unsigned k;
    return strcmp(*node, LAB_SWITCH) == 0 || lab_parse_node(*node, &k);
}

char *lab_node_name(unsigned node, char name[LAB_NODE_NAME])
{
    enum { LETTERS = 26 };
    if (node < LETTERS)
        snprintf(name, LAB_NODE_NAME, "%c", 'a' + (int)node);
    else
        snprintf(name, LAB_NODE_NAME, "%c%c", 'a' + (int)(node / LETTERS - 1), 'a' + (int)(node % LETTERS));
    return name;
}

bool lab_parse_node(const char *text, unsigned *node)
{
    char name[LAB_NODE_NAME];
    for (*node = 0; *node < HW_LAB_MAX_NODES; ++*node)
        if (strcmp(text, lab_node_name(*node, name)) == 0)
            return true;
    return false;
}

void lab_ns_name(const char *lab, unsigned node, char *out, size_t cap)
{
    char name[LAB_NODE_NAME];
    if (node == HW_LAB_MAX_NODES)
        snprintf(out, cap, PREFIX "%s-" LAB_SWITCH, lab);
    else
        snprintf(out, cap, PREFIX "%s-%s", lab, lab_node_name(node, name));
}

/* The namespaces of a lab that have a file in HW_NETNS_DIR. The last element of `has` is for the switch. */
struct kept {
    bool has[HW_LAB_MAX_NODES + 1];
    unsigned n;
};

static struct kept find_kept_namespaces(const char *name)
{
    struct kept found = {0};
    DIR *d = opendir(HW_NETNS_DIR);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        char lab[HW_LAB_NAME_MAX + 1];
        const char *node;
        if (split_lab_ns_name(e->d_name, lab, &node) && strcmp(lab, name) == 0) {
            unsigned k;
            if (!lab_parse_node(node, &k))
                k = HW_LAB_MAX_NODES;
            found.has[k] = true;
            found.n++;
        }
    }
    if (d)
        closedir(d);
    return found;
}

/* ---- up and down ---------------------------------------------------------------------------- */

static int check_spec(struct hw_lab_spec *s)
{
    char node[LAB_NODE_NAME];
    int rc = check_name(&s->name);
    if (rc < 0)
        return rc;
    if (s->nodes < HW_LAB_MIN_NODES || s->nodes > HW_LAB_MAX_NODES)
        return hw_fail(-EINVAL, "a lab must have %d to %d nodes, not %u", HW_LAB_MIN_NODES, HW_LAB_MAX_NODES, s->nodes);
    if (s->nics < 1 || s->nics > HW_LAB_MAX_NICS)
        return hw_fail(-EINVAL, "a node must have 1 to %d NICs, not %u", HW_LAB_MAX_NICS, s->nics);
    for (unsigned k = 0; k < s->nodes; k++)
        if (s->node_nics[k] > s->nics)
            return hw_fail(-EINVAL, "node %s cannot have %u NICs: a node of this lab has at most %u",
                           lab_node_name(k, node), s->node_nics[k], s->nics);
    if (s->mtu == 0)
        s->mtu = 1500;
    if (s->mtu < 576 || s->mtu > 65535) /* 65535 is veth's maximum (ETH_MAX_MTU) */
        return hw_fail(-EINVAL, "an MTU must be 576 to 65535, not %u", s->mtu);
    return 0;
}

static int remove_kept(const char *name, const struct kept *which)
{
    int rc = 0;
    for (unsigned k = 0; k <= HW_LAB_MAX_NODES; k++) {
        char ns[64];
        lab_ns_name(name, k, ns, sizeof(ns));
        int one = which->has[k] ? hw_netns_remove(ns) : 0;
        if (one < 0 && rc == 0)
            rc = one;
    }
    return rc;
}

/* Creates a lab as root. made->has records the namespaces created so far. */
static int make_kept_lab(const struct hw_lab_spec *spec, struct lab *l, struct kept *made)
{
    char ns[64];
    int rc = hw_netns_prepare();
    if (rc < 0)
        return rc;
    for (unsigned k = 0; k < spec->nodes; k++, l->nodes++) {
        lab_ns_name(spec->name, k, ns, sizeof(ns));
        if ((rc = hw_netns_create(ns, &l->node[k].ns, &l->node[k].rt)) < 0)
            return rc;
        made->has[k] = true;
    }
    if (lab_has_switch(spec)) {
        lab_ns_name(spec->name, HW_LAB_MAX_NODES, ns, sizeof(ns));
        if ((rc = hw_netns_create(ns, &l->sw.ns, &l->sw.rt)) < 0)
            return rc;
        made->has[HW_LAB_MAX_NODES] = true;
    }
    if ((rc = lab_build(l, spec)) < 0)
        return rc;
    return lab_has_relay(spec) ? lab_relay_start(l, spec, false) : 0;
}

static int up_kept(const struct hw_lab_spec *spec)
{
    struct lab l;
    struct kept made = {0};
    lab_init(&l);
    int rc = make_kept_lab(spec, &l, &made);
    lab_close(&l);
    if (rc < 0) {
        HW_KEEP_ERROR();
        (void)remove_kept(spec->name, &made);
    }
    return rc;
}

int hw_lab_up(const struct hw_lab_spec *asked)
{
    struct hw_lab_spec spec = *asked;
    HW_AUTO_CLOSE int lock = -1;
    int rc = check_spec(&spec);
    if (rc < 0)
        return rc;
    rc = holder_lock(spec.name, &lock);
    if (rc == -EBUSY)
        return hw_fail(
            -EEXIST, "lab '%s' already exists, or is being created or removed; `hawser lab down --name %s` removes it",
            spec.name, spec.name);
    if (rc < 0)
        return rc;
    if (find_kept_namespaces(spec.name).n)
        return hw_fail(-EEXIST, "lab '%s', or a part of it, already exists; `hawser lab down --name %s` removes it",
                       spec.name, spec.name);
    rc = hw_netns_privileged() ? up_kept(&spec) : holder_start(&spec, lock);
    return rc < 0 && rc != -EEXIST ? hw_wrap(rc, "creating the lab '%s'", spec.name) : rc;
}

/* Opens the existing namespaces of a lab that root has created. After a crash, some may be missing. */
static unsigned open_kept(const char *name, struct lab *l, bool *denied)
{
    const struct kept which = find_kept_namespaces(name);
    unsigned n = 0;
    *denied = false;
    for (unsigned k = 0; k <= HW_LAB_MAX_NODES; k++) {
        struct lab_ns *to = k == HW_LAB_MAX_NODES ? &l->sw : &l->node[k];
        char ns[64];
        lab_ns_name(name, k, ns, sizeof(ns));
        if (!which.has[k] || hw_netns_open(ns, &to->ns) < 0)
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
    return hw_fail(-EBUSY, "this process runs in the lab '%s': run `hawser lab down` outside the lab", name);
}

/* Ends the processes in a lab. Fails if the caller is one of them. */
static int kill_lab_processes(const char *name, const struct lab *l)
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

/* Ends the lab's process, if there is one. On success the caller owns the lab's name through *lock. */
static int end_lab_holder(const char *name, int *lock)
{
    uint64_t give_up = hw_deadline(WAIT_MS);
    for (;;) {
        struct lab l;
        lab_init(&l);
        int rc = holder_open(name, &l);
        if (rc == 0)
            rc = kill_lab_processes(name, &l);
        lab_close(&l);
        if (rc == -EBUSY)
            return rc;
        rc = holder_end(name); /* whether or not the process answered */
        if (rc == 0)
            continue;
        if (rc == -ENOENT)
            rc = holder_lock(name, lock);
        if (rc != -EAGAIN && rc != -EBUSY)
            return rc;
        if (hw_now() > give_up)
            return hw_fail(-EBUSY, "another `hawser lab up` or `down` of '%s' is still running", name);
        (void)poll(NULL, 0, 20);
    }
}

static int remove_root_lab(const char *name, const struct kept *which)
{
    struct lab l;
    bool denied;
    if (!hw_netns_privileged())
        return hw_fail(-EPERM, "the lab '%s' belongs to root; remove it as root", name);
    lab_init(&l);
    (void)open_kept(name, &l, &denied);
    int rc = kill_lab_processes(name, &l);
    lab_close(&l);
    return rc < 0 ? rc : remove_kept(name, which);
}

/* Ends the programs of a lab whose own process was killed, because these programs may keep the lab's namespaces alive.
 * Fails if the caller is one of these programs. */
static int kill_marked_programs(const char *name)
{
    char mark[64];
    snprintf(mark, sizeof(mark), PREFIX "%s-", name);
    int rc = hw_netns_marked(mark) ? is_inside(name) : hw_netns_kill_marked(mark, 1000);
    return HW_MIN(rc, 0);
}

int hw_lab_down(const char *name)
{
    HW_AUTO_CLOSE int lock = -1;
    int rc = check_name(&name);
    if (rc < 0 || (rc = end_lab_holder(name, &lock)) < 0)
        return rc;
    const struct kept which = find_kept_namespaces(name);
    return which.n ? remove_root_lab(name, &which) : kill_marked_programs(name);
}

/* ---- using a lab ---------------------------------------------------------------------------- */

static int lab_open(const char *name, struct lab *l)
{
    bool denied;
    lab_init(l);
    if (!find_kept_namespaces(name).n)
        return holder_open(name, l);
    unsigned n = open_kept(name, l, &denied);
    if (denied) {
        lab_close(l);
        return hw_fail(-EPERM, "the lab '%s' belongs to root; use it as root", name);
    }
    if (n == 0 || l->nodes == 0) {
        lab_close(l);
        return hw_fail(
            -ENOENT,
            "only parts of lab '%s' exist, for example after a crash; `hawser lab down --name %s` removes them", name,
            name);
    }
    return 0;
}

static int find_node(const char *name, const struct lab *l, const char *node, unsigned *k)
{
    char last[LAB_NODE_NAME];
    if (node && lab_parse_node(node, k) && *k < l->nodes && l->node[*k].ns >= 0)
        return 0;
    return hw_fail(-ENOENT, "the lab '%s' has no node '%s': its nodes are a to %s", name, node ? node : "",
                   lab_node_name(l->nodes ? l->nodes - 1 : 0, last));
}

int lab_open_node(const char **name, const char *node, struct lab *l, unsigned *k)
{
    int rc = check_name(name);
    if (rc < 0 || (rc = lab_open(*name, l)) < 0)
        return rc;
    rc = find_node(*name, l, node, k);
    if (rc < 0)
        lab_close(l);
    return rc;
}

/* Returns true if the link is NIC number nic of the node: by the name eth<nic> or, for other prefixes, by the index
 * that `up` gave it. */
static bool is_nic(const struct hw_rtnl_link *link, unsigned node, unsigned nic)
{
    char eth[IFNAMSIZ];
    snprintf(eth, sizeof(eth), "eth%u", nic);
    return strcmp(link->name, eth) == 0 || link->index == lab_index(node, nic, LAB_END_NODE);
}

static int find_nic(struct hw_netlink *rt, unsigned node, unsigned nic, struct hw_rtnl_link *out)
{
    struct hw_rtnl_link links[LINKS_MAX];
    int n = hw_rtnl_link_list(rt, links, LINKS_MAX);
    for (int i = 0; i < n && i < LINKS_MAX; i++) {
        if (!is_nic(&links[i], node, nic))
            continue;
        *out = links[i];
        return 0;
    }
    return n < 0 ? n : hw_fail(-ENODEV, "no NIC with the number %u", nic);
}

int hw_lab_parse_nic(const char *text, unsigned *nic)
{
    /* skip the prefix */
    const char *at = text + strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    unsigned v = 0;
    size_t len = strlen(at);
    bool good = len >= 1 && len <= 2 && !(len == 2 && at[0] == '0');
    for (size_t i = 0; good && i < len; i++) {
        good = at[i] >= '0' && at[i] <= '9';
        v = v * 10 + (unsigned)(at[i] - '0');
    }
    if (!good || v >= HW_LAB_MAX_NICS)
        return hw_fail(-EINVAL, "'%s' is not a NIC: expected a name as in `hawser lab list`, or a number up to %d",
                       text, HW_LAB_MAX_NICS - 1);
    *nic = v;
    return 0;
}

int hw_lab_link(const char *name, const char *node, unsigned nic, bool up)
{
    struct lab l;
    struct hw_rtnl_link link;
    unsigned k = 0;
    int rc = lab_open_node(&name, node, &l, &k);
    if (rc < 0)
        return rc;
    rc = find_nic(&l.node[k].rt, k, nic, &link);
    if (rc == 0)
        rc = hw_rtnl_link_up(&l.node[k].rt, link.index, up);
    lab_close(&l);
    return rc < 0 ? hw_wrap(rc, "node %s of the lab '%s'", node, name) : 0;
}

/* Sets the rate at both ends of the link of NIC `nic`. k is the number of the node. */
static int set_end_rates(struct lab *l, const char *node, unsigned k, unsigned nic, uint64_t rate)
{
    struct hw_netlink *near = &l->node[k].rt;
    struct hw_rtnl_link link, far;
    char port[IFNAMSIZ];
    int rc;
    snprintf(port, sizeof(port), "%s%u", node, nic);
    bool bridged = l->sw.ns >= 0;
    struct hw_netlink *other = bridged ? &l->sw.rt : &l->node[!k].rt;
    if ((rc = find_nic(near, k, nic, &link)) < 0)
        return rc;
    if ((rc = bridged ? hw_rtnl_link_get(other, port, &far) : find_nic(other, !k, nic, &far)) < 0)
        return rc;
    if ((rc = lab_set_rate(near, link.index, rate)) < 0)
        return rc;
    return lab_set_rate(other, far.index, rate);
}

int hw_lab_rate(const char *name, const char *node, unsigned nic, uint64_t rate)
{
    struct lab l;
    unsigned k = 0;
    int rc = lab_open_node(&name, node, &l, &k);
    if (rc < 0)
        return rc;
    rc = set_end_rates(&l, node, k, nic, rate);
    lab_close(&l);
    return rc < 0 ? hw_wrap(rc, "node %s of the lab '%s'", node, name) : 0;
}

/* Describes the NICs of a node in the order of their numbers. */
static int node_info(struct hw_netlink *rt, unsigned node, struct hw_lab_node *out)
{
    struct hw_rtnl_link links[LINKS_MAX];
    int n = hw_rtnl_link_list(rt, links, HW_ARRAY_LEN(links));
    if (n < 0)
        return n;
    n = (int)HW_MIN((size_t)n, HW_ARRAY_LEN(links));
    for (unsigned nic = 0; nic < HW_LAB_MAX_NICS; nic++) {
        for (int i = 0; i < n; i++) {
            if (!is_nic(&links[i], node, nic))
                continue;
            struct hw_lab_nic *to = &out->nic[out->nics++];
            to->link = links[i];
            int rc = hw_rtnl_addr_get(rt, to->link.index, &to->addr, NULL);
            if (rc == 0 || rc == -EADDRNOTAVAIL)
                rc = hw_rtnl_tbf_get(rt, to->link.index, &to->rate);
            if (rc < 0)
                return rc;
            break;
        }
    }
    return 0;
}

int hw_lab_info(const char *name, struct hw_lab_info *out)
{
    struct lab l;
    memset(out, 0, sizeof(*out));
    int rc = check_name(&name);
    if (rc < 0 || (rc = lab_open(name, &l)) < 0)
        return rc;
    snprintf(out->name, sizeof(out->name), "%s", name);
    out->user = l.user >= 0;
    for (unsigned k = 0; rc == 0 && k < l.nodes; k++) {
        if (l.node[k].ns < 0)
            continue;
        struct hw_lab_node *to = &out->node[out->nodes++];
        lab_node_name(k, to->name);
        rc = node_info(&l.node[k].rt, k, to);
    }
    lab_close(&l);
    return rc;
}

/* Returns true if the folder has no file for a node of the lab before this node; the switch comes after all nodes. Each
 * lab is counted only when this file is found, and so only once, even if its name does not fit into the caller's
 * array. */
static bool is_first_namespace(int dir, const char *lab, const char *node)
{
    unsigned k;
    if (!lab_parse_node(node, &k))
        k = HW_LAB_MAX_NODES;
    for (unsigned i = 0; i < k; i++) {
        char ns[64];
        lab_ns_name(lab, i, ns, sizeof(ns));
        if (faccessat(dir, ns, F_OK, 0) == 0)
            return false;
    }
    return true;
}

int hw_lab_names(char (*out)[HW_LAB_NAME_MAX + 1], size_t cap)
{
    size_t n = 0;
    DIR *d = opendir(HW_NETNS_DIR);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        char lab[HW_LAB_NAME_MAX + 1];
        const char *node;
        if (!split_lab_ns_name(e->d_name, lab, &node) || !is_first_namespace(dirfd(d), lab, node))
            continue;
        if (n < cap)
            memcpy(out[n], lab, sizeof(lab));
        n++;
    }
    if (d)
        closedir(d);
    return holder_names(out, cap, n);
}
