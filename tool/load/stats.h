/* SPDX-License-Identifier: Apache-2.0 */
/* CPU time of this process, and our counters and the kernel's of this node's NICs. */
#ifndef HW_TOOL_STATS_H
#define HW_TOOL_STATS_H

#include "tool/peer/proto.h"

#include <stdbool.h>

/* Returns the user and system time of this process so far, microseconds. */
uint64_t stats_cpu_us(void);

/* Parses the table of /proc/net/dev (text, len bytes) and sets the kernel_* fields of those of nics[0..n) that it
 * lists. Returns how many were found. Skips malformed lines. */
size_t stats_parse_netdev(const char *text, size_t len, struct tp_nic *nics, size_t n);

/* Reads our counters of each NIC of p and the kernel's (of this thread's network namespace); *n is the capacity before
 * and the count after. devmem: also the NICs' rx_devmem_pkts. 0 or -errno; kernel counters that cannot be read stay
 * 0. */
int stats_nics(hawser_peer *p, bool devmem, struct tp_nic *nics, size_t *n);

/* Returns true if NICs count data of this transport (knob transport) as placed in device memory. */
bool stats_has_devmem(const char *transport);

/* into += after - before, entry by entry by NIC name; a NIC that is in only one of the two is left out. */
void stats_add(struct tp_nic *into, size_t *n, size_t cap, const struct tp_nic *before, size_t n_before,
               const struct tp_nic *after, size_t n_after);

/* Returns the median of v[0..n), which is sorted; 0 if n is 0. */
double stats_median(double *v, size_t n);

#endif
