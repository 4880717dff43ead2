/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the network of a lab: the links, addresses, routes and rules of each fabric. See enum hw_lab_fabric in
 * lab.h. */
#include "lab/lab_int.h"
#include "sys/rtnl_route.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE 100u /* routing table of the first rail; the tables of all HW_LAB_MAX_NICS rails stay below 256 */

static struct in_addr make_addr(unsigned b, unsigned c, unsigned d)
{
    return (struct in_addr){htonl(198u << 24 | b << 16 | c << 8 | d)}; /* in 198.18.0.0/15 (RFC 2544) */
}

static struct in_addr node_addr(const struct hw_lab_spec *spec, unsigned node, unsigned nic)
{
    return make_addr(18, nic, spec->fabric == HW_LAB_ROUTED ? 2 * node + 1 : node + 1);
}

/* Returns the router's address on the port of a node's NIC. */
static struct in_addr gateway_addr(const struct hw_lab_spec *spec, unsigned node, unsigned nic)
{
    return make_addr(18, nic, spec->fabric == HW_LAB_ROUTED ? 2 * node : 254);
}

static bool is_layer3(const struct hw_lab_spec *spec)
{
    return spec->fabric == HW_LAB_ROUTED || spec->fabric == HW_LAB_GCP;
}

unsigned lab_prefix(enum hw_lab_fabric f)
{
    static const unsigned prefix[] = {
        [HW_LAB_SUBNET] = 24, [HW_LAB_ROUTED] = 31, [HW_LAB_GCP] = 32, [HW_LAB_SHARED] = 16, [HW_LAB_BRIDGE] = 24};
    return prefix[f];
}

unsigned lab_nics_of(const struct hw_lab_spec *spec, unsigned node)
{
    return spec->node_nics[node] ? spec->node_nics[node] : spec->nics;
}

void lab_nic_name(const struct hw_lab_spec *spec, unsigned node, unsigned nic, char out[IFNAMSIZ])
{
    snprintf(out, IFNAMSIZ, "%s%u", spec->prefix[node][0] ? spec->prefix[node] : "eth", (unsigned)(uint8_t)nic);
}

bool lab_has_switch(const struct hw_lab_spec *spec)
{
    if (spec->nodes > 2 || is_layer3(spec) || spec->fabric == HW_LAB_SHARED || lab_has_relay(spec))
        return true;
    return lab_nics_of(spec, 0) != lab_nics_of(spec, 1);
}

bool lab_has_relay(const struct hw_lab_spec *spec)
{
    for (unsigned i = 0; i < spec->nics; i++)
        if (lab_is_relayed(spec, i))
            return true;
    return false;
}

bool lab_is_relayed(const struct hw_lab_spec *spec, unsigned nic)
{
    return spec->delay_us[nic] || spec->loss_ppm[nic];
}

/* Returns a link index that is unique in the lab; see hw_rtnl_veth_add(). The kernel uses small indices for lo and
 * others. */
int lab_index(unsigned node, unsigned nic, enum lab_end end)
{
    return 100 + (int)((4 * node + end) * HW_LAB_MAX_NICS + nic);
}

int lab_set_rate(struct hw_netlink *rt, int index, uint64_t rate)
{
    /*
     * The bucket fills at a constant rate, but a softirq checks the bucket and can run milliseconds late on a busy
     * machine. A burst of 4 ms at the full rate lets the bucket catch up without losing throughput. The burst has room
     * for at least two of the largest packets (64 KiB before segmentation), because sch_tbf splits packets above the
     * burst in software, and TCP needs the next packet in the queue while one packet drains.
     *
     * The limit is the length of the queue in front of the bucket. A full queue adds a delay of 10 ms at the full rate.
     * This is long enough that TCP's halved window still fills the link (without --delay, a lab has no other delay),
     * and short enough to avoid bufferbloat. Below 105 mbit, the minimum of two large packets makes the queue longer.
     */
    uint64_t bytes = rate / 8, floor = 131072;
    uint64_t burst = HW_MIN(HW_MAX(bytes * 4 / 1000, floor), (uint64_t)INT32_MAX);
    uint64_t limit = HW_MIN(HW_MAX(bytes * 10 / 1000, floor), (uint64_t)INT32_MAX);
    return hw_rtnl_tbf_set(rt, index, rate, (uint32_t)burst, (uint32_t)limit);
}

/* ---- links ---------------------------------------------------------------------------------- */

static int raise_node_nic(struct lab *l, const struct hw_lab_spec *spec, unsigned node, unsigned nic)
{
    struct hw_netlink *rt = &l->node[node].rt;
    int index = lab_index(node, nic, LAB_END_NODE);
    int rc;
    if ((rc = hw_rtnl_addr_add(rt, index, node_addr(spec, node, nic), lab_prefix(spec->fabric))) < 0)
        return rc;
    if (spec->rate[nic] && (rc = lab_set_rate(rt, index, spec->rate[nic])) < 0)
        return rc;
    return hw_rtnl_link_up(rt, index, true);
}

static int build_cable(struct lab *l, const struct hw_lab_spec *spec, unsigned nic)
{
    char name[2][IFNAMSIZ];
    for (unsigned k = 0; k < 2; k++)
        lab_nic_name(spec, k, nic, name[k]);
    struct hw_rtnl_end a = {name[0], lab_index(0, nic, LAB_END_NODE), -1};
    struct hw_rtnl_end b = {name[1], lab_index(1, nic, LAB_END_NODE), l->node[1].ns};
    int rc = hw_rtnl_veth_add(&l->node[0].rt, &a, &b, spec->mtu);
    for (unsigned k = 0; rc == 0 && k < 2; k++)
        rc = raise_node_nic(l, spec, k, nic);
    return rc;
}

/* Writes a name such as "b3" for the port of a node's NIC in the switch. end is "" or, for a relay's links, "n" or
 * "r". */
static void name_port(char out[IFNAMSIZ], unsigned node, unsigned nic, const char *end)
{
    char name[LAB_NODE_NAME];
    snprintf(out, IFNAMSIZ, "%.2s%u%.1s", lab_node_name(node, name), (unsigned)(uint8_t)nic, end);
}

/* Creates two veth pairs, one at the node's NIC and one at the switch's port. The process of relay.c connects them. */
static int build_relayed(struct lab *l, const struct hw_lab_spec *spec, unsigned node, unsigned nic,
                         const struct hw_rtnl_end *here)
{
    char near[IFNAMSIZ], far[IFNAMSIZ], port[IFNAMSIZ];
    name_port(near, node, nic, "n");
    name_port(far, node, nic, "r");
    name_port(port, node, nic, "");
    struct hw_rtnl_end n = {near, lab_index(node, nic, LAB_END_NEAR), l->sw.ns};
    struct hw_rtnl_end f = {far, lab_index(node, nic, LAB_END_FAR), -1};
    struct hw_rtnl_end p = {port, lab_index(node, nic, LAB_END_PORT), -1};
    int rc;
    if ((rc = hw_rtnl_veth_add(&l->node[node].rt, here, &n, spec->mtu)) < 0)
        return rc;
    if ((rc = hw_rtnl_veth_add(&l->sw.rt, &f, &p, spec->mtu)) < 0)
        return rc;
    for (unsigned i = 0; i < 2; i++) {
        int end = i ? f.index : n.index;
        if ((rc = hw_rtnl_link_no_arp(&l->sw.rt, end)) < 0 || (rc = hw_rtnl_link_up(&l->sw.rt, end, true)) < 0)
            return rc;
    }
    return 0;
}

/* Creates a node's NIC and its port in the switch. The port belongs to `bridge`, or to the router if bridge is 0. */
static int build_port(struct lab *l, const struct hw_lab_spec *spec, unsigned node, unsigned nic, int bridge)
{
    char name[IFNAMSIZ], port[IFNAMSIZ];
    int index = lab_index(node, nic, LAB_END_PORT);
    lab_nic_name(spec, node, nic, name);
    name_port(port, node, nic, "");
    struct hw_rtnl_end here = {name, lab_index(node, nic, LAB_END_NODE), -1}, there = {port, index, l->sw.ns};
    int rc = lab_is_relayed(spec, nic) ? build_relayed(l, spec, node, nic, &here)
                                       : hw_rtnl_veth_add(&l->node[node].rt, &here, &there, spec->mtu);
    if (rc < 0)
        return rc;
    if (bridge && (rc = hw_rtnl_link_master(&l->sw.rt, index, bridge)) < 0)
        return rc;
    if (spec->rate[nic] && (rc = lab_set_rate(&l->sw.rt, index, spec->rate[nic])) < 0)
        return rc;
    if ((rc = hw_rtnl_link_up(&l->sw.rt, index, true)) < 0)
        return rc;
    return raise_node_nic(l, spec, node, nic);
}

/* Creates a bridge and sets it up. */
static int add_bridge(struct hw_netlink *rt, const char *name, uint32_t mtu, int *index)
{
    struct hw_rtnl_link bridge = {0};
    int rc;
    if ((rc = hw_rtnl_bridge_add(rt, name, mtu)) < 0 || (rc = hw_rtnl_link_get(rt, name, &bridge)) < 0)
        return rc;
    *index = bridge.index;
    return hw_rtnl_link_up(rt, bridge.index, true);
}

static int build_rail(struct lab *l, const struct hw_lab_spec *spec, unsigned nic)
{
    char rail[IFNAMSIZ];
    struct hw_rtnl_link shared = {0};
    int bridge = 0, rc = 0;
    snprintf(rail, sizeof(rail), "rail%u", spec->fabric == HW_LAB_SHARED ? 0 : nic);
    if (spec->fabric == HW_LAB_SHARED && nic > 0) {
        rc = hw_rtnl_link_get(&l->sw.rt, rail, &shared);
        bridge = shared.index;
    } else if (!is_layer3(spec)) {
        rc = add_bridge(&l->sw.rt, rail, spec->mtu, &bridge);
    }
    for (unsigned k = 0; rc == 0 && k < l->nodes; k++)
        if (nic < lab_nics_of(spec, k))
            rc = build_port(l, spec, k, nic, bridge);
    return rc;
}

/* ---- routers -------------------------------------------------------------------------------- */

static int add_routes(struct hw_netlink *rt, const struct hw_rtnl_route *routes, size_t n)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = hw_rtnl_route_add(rt, &routes[i]);
    return rc;
}

/* Sets up a NIC of HW_LAB_ROUTED: a /31 on its port, forwarding in the router, and a routing table in the node that the
 * NIC's address selects. The first NIC also gets the default route. */
static int route_fabric(struct lab *l, const struct hw_lab_spec *spec, unsigned node, unsigned nic)
{
    struct hw_netlink *rt = &l->node[node].rt;
    int port = lab_index(node, nic, LAB_END_PORT), index = lab_index(node, nic, LAB_END_NODE);
    struct in_addr gateway = gateway_addr(spec, node, nic), own = node_addr(spec, node, nic);
    const struct hw_rtnl_route route[] = {{.via = gateway, .index = index, .table = TABLE + nic},
                                          {.via = gateway, .index = index}};
    const struct hw_rtnl_rule rule = {.priority = TABLE + nic, .table = TABLE + nic, .from = own};
    int rc;
    if ((rc = hw_rtnl_addr_add(&l->sw.rt, port, gateway, 31)) < 0)
        return rc;
    if ((rc = hw_rtnl_link_forward(&l->sw.rt, port)) < 0)
        return rc;
    if ((rc = add_routes(rt, route, nic == 0 ? 2 : 1)) < 0)
        return rc;
    return hw_rtnl_rule_add(rt, &rule);
}

/* Sets up a NIC of HW_LAB_GCP, as in Google's cloud: a /32 address, the gateway on the link, the NIC's subnet behind
 * the gateway, and a default route through the first NIC. Rails are separate networks, because the router uses the
 * table of the rail on which a packet arrived. */
static int route_cloud(struct lab *l, const struct hw_lab_spec *spec, unsigned node, unsigned nic)
{
    char name[IFNAMSIZ];
    int port = lab_index(node, nic, LAB_END_PORT), index = lab_index(node, nic, LAB_END_NODE);
    struct in_addr gateway = gateway_addr(spec, node, nic), own = node_addr(spec, node, nic);
    const struct hw_rtnl_route route[] = {
        {.to = gateway, .prefix = 32, .index = index},
        {.to = make_addr(18, nic, 0), .prefix = 24, .via = gateway, .index = index},
        {.via = gateway, .index = index},
    };
    const struct hw_rtnl_route back[] = {{.to = own, .prefix = 32, .index = port},
                                         {.to = own, .prefix = 32, .index = port, .table = TABLE + nic},
                                         {.table = TABLE + nic}}; /* once per rail */
    const struct hw_rtnl_rule rule = {.priority = TABLE + nic, .table = TABLE + nic, .iif = name};
    bool first = true;
    for (unsigned k = 0; k < node; k++)
        first = first && nic >= lab_nics_of(spec, k);
    name_port(name, node, nic, "");
    int rc;
    if ((rc = hw_rtnl_addr_add(&l->sw.rt, port, gateway, 32)) < 0)
        return rc;
    if ((rc = hw_rtnl_link_forward(&l->sw.rt, port)) < 0)
        return rc;
    if ((rc = add_routes(&l->sw.rt, back, first ? 3 : 2)) < 0)
        return rc;
    if ((rc = hw_rtnl_rule_add(&l->sw.rt, &rule)) < 0)
        return rc;
    return add_routes(&l->node[node].rt, route, nic == 0 ? 3 : 2);
}

/* ---- container bridges ---------------------------------------------------------------------- */

/* Creates a bridge with an address and with one port, so that the bridge is running as if a container were
 * connected. */
static int add_node_bridge(struct hw_netlink *rt, const char *name, struct in_addr addr, unsigned prefix, uint32_t mtu)
{
    char near[IFNAMSIZ], far[IFNAMSIZ];
    struct hw_rtnl_link link;
    int bridge = 0;
    snprintf(near, sizeof(near), "v%s", name);
    snprintf(far, sizeof(far), "c%s", name);
    struct hw_rtnl_end n = {near, 0, -1}, f = {far, 0, -1};
    int rc;
    if ((rc = add_bridge(rt, name, mtu, &bridge)) < 0)
        return rc;
    if ((rc = hw_rtnl_addr_add(rt, bridge, addr, prefix)) < 0)
        return rc;
    if ((rc = hw_rtnl_veth_add(rt, &n, &f, mtu)) < 0)
        return rc;
    if ((rc = hw_rtnl_link_get(rt, near, &link)) < 0 || (rc = hw_rtnl_link_master(rt, link.index, bridge)) < 0 ||
        (rc = hw_rtnl_link_up(rt, link.index, true)) < 0)
        return rc;
    if ((rc = hw_rtnl_link_get(rt, far, &link)) < 0)
        return rc;
    return hw_rtnl_link_up(rt, link.index, true);
}

/* Adds docker0, which has the same address on every node, and cni0, which has a subnet of the lab but no link to other
 * nodes. */
static int build_bridges(struct lab *l, const struct hw_lab_spec *spec)
{
    const struct in_addr docker = {htonl(172u << 24 | 17u << 16 | 1)};
    for (unsigned k = 0; k < l->nodes; k++) {
        struct hw_netlink *rt = &l->node[k].rt;
        int rc;
        if ((rc = add_node_bridge(rt, "docker0", docker, 16, spec->mtu)) < 0)
            return rc;
        if ((rc = add_node_bridge(rt, "cni0", make_addr(19, 0, k + 1), 24, spec->mtu)) < 0)
            return rc;
    }
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Waits until all veth links that are up have a carrier, for at most 5 s. Until the kernel's link watcher, a work
 * queue, has detected the carrier, a NIC sends nothing and a bridge port forwards nothing. Without this wait, the first
 * connection could lose its SYN and take 1 s longer. */
static int wait_ready(struct lab *l, const struct hw_lab_spec *spec)
{
    size_t cap = ((size_t)l->nodes * 3 + 1) * spec->nics + 8; /* links in the switch: ports, relays, bridges and lo */
    HW_AUTO_FREE struct hw_rtnl_link *links = calloc(cap, sizeof(*links));
    uint64_t give_up = hw_deadline(5000);
    if (!links)
        return hw_no_memory("a list of %zu network devices", cap);
    for (unsigned k = 0; k <= l->nodes;) {
        struct lab_ns *in = k == l->nodes ? &l->sw : &l->node[k];
        int n = in->ns < 0 ? 0 : hw_rtnl_link_list(&in->rt, links, cap);
        if (n < 0)
            return n;
        int bad = -1;
        for (int i = 0; i < n && (size_t)i < cap && bad < 0; i++) {
            if (links[i].up && !links[i].running && strcmp(links[i].kind, "veth") == 0)
                bad = i;
        }
        if (bad < 0)
            k++;
        else if (hw_now() > give_up)
            return hw_fail(-ETIMEDOUT, "network device %s had no carrier within 5 s", links[bad].name);
        else
            (void)poll(NULL, 0, 1);
    }
    return 0;
}

int lab_build(struct lab *l, const struct hw_lab_spec *spec)
{
    int rc;
    for (unsigned nic = 0; nic < spec->nics; nic++)
        if ((rc = l->sw.ns >= 0 ? build_rail(l, spec, nic) : build_cable(l, spec, nic)) < 0)
            return rc;
    for (unsigned k = 0; k < l->nodes && is_layer3(spec); k++)
        for (unsigned nic = 0; nic < lab_nics_of(spec, k); nic++)
            if ((rc = spec->fabric == HW_LAB_GCP ? route_cloud(l, spec, k, nic) : route_fabric(l, spec, k, nic)) < 0)
                return rc;
    if (spec->fabric == HW_LAB_BRIDGE && (rc = build_bridges(l, spec)) < 0)
        return rc;
    return wait_ready(l, spec);
}
