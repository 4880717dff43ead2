/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/load/detour.h"

#include <stdio.h>

#define ARP_REMEDY                                                                    \
    "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 (add " \
    "both to /etc/sysctl.d to keep them after a reboot)"
#define LEAST 1000000u /* bytes of payload; smaller counts are not compared */

struct lack {
    const struct tp_nic *nic;
    bool there, rx;
    uint64_t ours, kernel;
};

static void find_missing_bytes(const struct tp_nic *nics, size_t n, bool there, struct lack *worst)
{
    for (size_t i = 0; i < n; i++)
        for (int rx = 0; rx < 2; rx++) {
            uint64_t ours = rx ? nics[i].rx_bytes : nics[i].tx_bytes;
            uint64_t kernel = rx ? nics[i].kernel_rx_bytes : nics[i].kernel_tx_bytes;
            /* tolerate a tenth, because some drivers update their counters late */
            if (ours >= LEAST && kernel < ours - ours / 10 && ours - kernel > worst->ours - worst->kernel)
                *worst = (struct lack){.nic = &nics[i], .there = there, .rx = rx, .ours = ours, .kernel = kernel};
        }
}

bool detour_find(const struct tp_nic *own, size_t n_own, const struct tp_nic *peer, size_t n_peer, char *text,
                 size_t cap)
{
    struct lack w = {0};
    *text = 0;
    find_missing_bytes(own, n_own, false, &w);
    find_missing_bytes(peer, n_peer, true, &w);
    if (!w.nic)
        return false;
    const char *side = w.there ? "on the peer" : "on this node", *name = w.nic->nic;
    /* the kernel counted nothing in either direction, not even acknowledgements */
    bool idle = w.nic->kernel_rx_bytes + w.nic->kernel_tx_bytes == 0;
    int n = snprintf(text, cap, "of %.1f MB that %s %s %s, the kernel counted only %.1f MB: ", (double)w.ours / 1e6,
                     name, side, w.rx ? "received" : "sent", (double)w.kernel / 1e6);
    if (n < 0 || (size_t)n >= cap)
        return true;
    if (idle)
        snprintf(text + n, cap - (size_t)n,
                 "other devices carried the data; if NICs share a subnet, run %s: " ARP_REMEDY
                 ", and add a routing table for each address; otherwise both sides share a machine, or %s is an "
                 "alias (see `ip -s link`)",
                 side, name);
    else if (w.rx)
        snprintf(text + n, cap - (size_t)n, "the rest arrived on another NIC; run %s: " ARP_REMEDY, side);
    else
        snprintf(
            text + n, cap - (size_t)n,
            "the rest left through another NIC; %s, add a routing table for the address of %s: ip route add default "
            "dev %s table 100; ip rule add from ADDRESS table 100",
            side, name, name);
    return true;
}
