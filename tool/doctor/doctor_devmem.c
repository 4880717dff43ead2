/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's checks of the driver settings that are needed to place payload in device memory (helper/state/split.c
 * changes the same settings), and of NICs that reach their peers by routes. Files and line numbers are from Linux
 * 7.3.4. */
#include "net/sysfs.h"
#include "tool/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

#define PAGE    4096
#define HEADERS 40 /* bytes of IPv4 and TCP headers without options */

static bool is_mlx5(const struct dr_nic *n)
{
    return strcmp(n->driver, "mlx5_core") == 0;
}

static void split_of(struct dr_report *d, const struct dr_nic *n)
{
    if (n->split < 0)
        dr_say(d, DR_SKIP, n->name, "the driver does not report header split: %s", hw_errno_text(-n->split));
    else if (n->split == DR_SPLIT_UNKNOWN && !(is_mlx5(n) && dr_kernel(d->m->release) >= 7000))
        dr_say(d, DR_SKIP, n->name, "the driver does not report header split");
    else if (n->split == DR_SPLIT_ON && n->thresh > 0) {
        /* bnxt (bnxt.c:4889) and fbnic (fbnic_netdev.c:781) start in this state, whatever split setting they report */
        dr_say(d, DR_WARN, n->name,
               "on, but not for packets of up to %d bytes (hds-thresh): in this state the kernel binds no queue",
               n->thresh);
        dr_mend(d, "ethtool -G %s tcp-data-split on hds-thresh 0   # hawserd does this itself while a queue is bound",
                n->name);
    } else if (n->split == DR_SPLIT_ON)
        dr_say(d, DR_PASS, n->name, "on");
    else {
        dr_say(d, DR_WARN, n->name, "off: in this state, no queue of this NIC can be bound to GPU memory");
        if (is_mlx5(n) && n->gro_hw == 0) /* mellanox/mlx5/core/en_ethtool.c:399 */
            dr_mend(d,
                    "ethtool -K %s rx-gro-hw on; ethtool -G %s tcp-data-split on   # hawserd does this itself while a "
                    "queue is bound",
                    n->name, n->name);
        else
            dr_mend(d, "ethtool -G %s tcp-data-split on   # hawserd does this itself while a queue is bound", n->name);
    }
}

void dr_nic_split(struct dr_report *d)
{
    dr_each_nic(d, split_of);
}

/* Checks rx-buf-len. gve splits a packet larger than one buffer into several fragments, and none of them fills a page
 * if the buffers are smaller than a page (gve_set_rx_buf_len_config(), gve_main.c:2111). */
static void buffers_of(struct dr_report *d, const struct dr_nic *n)
{
    uint64_t mtu;
    if (n->buf_len <= 0)
        dr_say(d, DR_SKIP, n->name, "the driver does not report rx-buf-len");
    else if (hw_root_u64(d->m->root, &mtu, "sys/class/net/%s/mtu", n->name) < 0)
        dr_say(d, DR_SKIP, n->name, "%s", hw_error());
    else if (n->buf_len < PAGE && mtu > (uint64_t)n->buf_len + HEADERS) {
        dr_say(d, DR_WARN, n->name,
               "%d bytes: packets of the NIC's MTU, %llu bytes, arrive in fragments smaller than a page", n->buf_len,
               (unsigned long long)mtu);
        dr_mend(d, "ethtool -G %s rx-buf-len %d   # hawserd does this itself when it turns on header split", n->name,
                PAGE);
    } else
        dr_say(d, DR_PASS, n->name, "%d bytes, MTU %llu", n->buf_len, (unsigned long long)mtu);
}

void dr_nic_buffers(struct dr_report *d)
{
    dr_each_nic(d, buffers_of);
}

static void gro_hw_of(struct dr_report *d, const struct dr_nic *n)
{
    if (!is_mlx5(n))
        dr_say(d, DR_SKIP, n->name, "not needed: only mlx5_core needs rx-gro-hw for header split");
    else if (n->gro_hw == 1)
        dr_say(d, DR_PASS, n->name, "on");
    else if (n->gro_hw == 0) {
        dr_say(d, DR_WARN, n->name, "off: this driver needs rx-gro-hw for header split");
        dr_mend(d, "ethtool -K %s rx-gro-hw on   # hawserd does this itself while a queue is bound", n->name);
    } else {
        dr_say(d, DR_WARN, n->name, "cannot be %s (%s), but this driver needs rx-gro-hw for header split",
               n->gro_hw == -EOPNOTSUPP ? "turned on" : "read", hw_errno_text(-n->gro_hw));
        dr_mend(d,
                "ethtool --show-priv-flags %s; ip link show %s   # rx_striding_rq off, rx_cqe_compress on, or XDP "
                "prevents rx-gro-hw",
                n->name, n->name);
    }
}

void dr_nic_gro_hw(struct dr_report *d)
{
    dr_each_nic(d, gro_hw_of);
}

/* ---- routed rails ------------------------------------------------------------------------------- */

/* Returns true if a line of /proc/net/route or ipv6_route (net/ipv4/fib_trie.c, net/ipv6/route.c) is a route through
 * the NIC to a gateway, or with a prefix shorter than /31 (IPv6: /127). Ignores link-local and multicast routes of
 * IPv6. */
static bool leads_out(char *line, const char *nic, bool v6)
{
    enum { V4_NIC, V4_GATEWAY = 2, V4_MASK = 7, V6_TO = 0, V6_BITS, V6_HOP = 4, V6_NIC = 9, FIELDS };
    char *save = NULL, *f[FIELDS];
    int n = 0;
    for (char *w = strtok_r(line, " \t", &save); w && n < FIELDS; w = strtok_r(NULL, " \t", &save))
        f[n++] = w;
    if (v6)
        return n == FIELDS && strcmp(f[V6_NIC], nic) == 0 && strncmp(f[V6_TO], "fe8", 3) != 0 &&
               strncmp(f[V6_TO], "ff", 2) != 0 &&
               (strtoul(f[V6_BITS], NULL, 16) < 127 || strspn(f[V6_HOP], "0") < strlen(f[V6_HOP]));
    return n > V4_MASK && strcmp(f[V4_NIC], nic) == 0 &&
           (strtoul(f[V4_GATEWAY], NULL, 16) || __builtin_popcountl(strtoul(f[V4_MASK], NULL, 16)) < 31);
}

/* Returns the number of routes that leads_out() accepts for the NIC, or a negative errno. */
static int routes_by(const struct dr_machine *m, const char *nic, bool v6)
{
    static const size_t room = 4u << 20;
    char *text = malloc(room), *save = NULL;
    int n = 0, rc = text ? hw_root_text(m->root, text, room, v6 ? "proc/net/ipv6_route" : "proc/net/route") : -ENOMEM;
    for (char *line = rc < 0 ? NULL : strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        n += leads_out(line, nic, v6);
    free(text);
    return rc < 0 ? rc : n;
}

static void rail_of(struct dr_report *d, const struct dr_nic *n)
{
    for (int i = 0; i < n->n_addrs; i++) {
        const struct hw_nic *a = &n->addr[i];
        bool v6 = a->addr.sa.sa_family == AF_INET6;
        if (a->prefix < (v6 ? 127u : 31u))
            continue;
        int routes = routes_by(d->m, n->name, v6);
        if (routes < 0)
            dr_say(d, DR_SKIP, n->name,
                   "the prefix is /%u, so peers are reached by routes, but the routes cannot be read: %s", a->prefix,
                   hw_error());
        else if (routes == 0) {
            dr_say(d, DR_WARN, n->name,
                   "the prefix is /%u, but no route of the main table leads through this NIC to a gateway or a larger "
                   "subnet",
                   a->prefix);
            dr_mend(
                d,
                "ip route add PEERS via GATEWAY dev %s src ADDRESS   # PEERS: the addresses of this rail's other NICs",
                n->name);
        } else
            dr_say(d, DR_PASS, n->name,
                   "the prefix is /%u; routes through this NIC to a gateway or a larger subnet: %d", a->prefix, routes);
        return;
    }
    dr_say(d, DR_SKIP, n->name, "not needed: the NIC has no address with prefix /31 or /32 (IPv6: /127 or /128)");
}

void dr_nic_rail(struct dr_report *d)
{
    dr_each_nic(d, rail_of);
}
