/* SPDX-License-Identifier: Apache-2.0 */
/* What this process and this node's NICs did: CPU time, our counters and the kernel's, side by side. */
#ifndef HW_TOOL_STATS_H
#define HW_TOOL_STATS_H

#include "tool/peer/proto.h"

#include <stdbool.h>

/* User and system time of this process so far, microseconds. */
uint64_t stats_cpu_us(void);

/* Reads the table of /proc/net/dev (text, len bytes) and sets the kernel_* fields of those of nics[0..n) that stand in
 * it. Returns how many were found. Lines that are not of its form are passed over. */
size_t stats_parse_netdev(const char *text, size_t len, struct tp_nic *nics, size_t n);

/* Our counters of each NIC of p and the kernel's (of this thread's network namespace) beside them; *n is cap before and
 * what there is after. devmem: with the NICs' own rx_devmem_pkts. 0 or -errno; kernel counters that cannot be read stay
 * 0. */
int stats_nics(hawser_peer *p, bool devmem, struct tp_nic *nics, size_t *n);

/* Has a transport of this name (knob transport) anything that NICs count as put into device memory? */
bool stats_has_devmem(const char *transport);

/* into += after - before, entry by entry by NIC name; a NIC that stands in one of the two only is left out until it
 * stands in both. */
void stats_add(struct tp_nic *into, size_t *n, size_t cap, const struct tp_nic *before, size_t n_before,
               const struct tp_nic *after, size_t n_after);

/* Median of v[0..n), which gets sorted; 0 of nothing. */
double stats_median(double *v, size_t n);

#endif
