/* SPDX-License-Identifier: Apache-2.0 */
/* CPU time of this process, and counters of this node's NICs, both ours and the kernel's. */
#ifndef HW_TOOL_STATS_H
#define HW_TOOL_STATS_H

#include "tool/peer/proto.h"

#include <stdbool.h>

/* Returns the user and system CPU time of this process so far, in microseconds. */
uint64_t stats_cpu_us(void);

/* Parses the table of /proc/net/dev (text, len bytes), and sets the kernel_* fields of those NICs in nics[0..n) that
 * the table lists. Returns how many NICs were found. Skips malformed lines. */
size_t stats_parse_netdev(const char *text, size_t len, struct tp_nic *nics, size_t n);

/* Returns how often channels of p have died. */
uint64_t stats_lost(hawser_peer *p);

/* Reads our counters and the kernel's for each NIC of p, in this thread's network namespace. *n is the capacity on
 * entry and the count on return. If devmem is set, also reads the NICs' rx_devmem_pkts. Returns 0 or -errno; kernel
 * counters that cannot be read remain 0. */
int stats_nics(hawser_peer *p, bool devmem, struct tp_nic *nics, size_t *n);

/* Returns true if NICs may place data of this transport (a value of knob transport) in device memory. */
bool stats_has_devmem(const char *transport);

/* Adds after - before to into, entry by entry, matched by NIC name. Skips a NIC that is in only one of before and
 * after. */
void stats_add(struct tp_nic *into, size_t *n, size_t cap, const struct tp_nic *before, size_t n_before,
               const struct tp_nic *after, size_t n_after);

/* Sorts v[0..n) and returns the median, or 0 if n is 0. */
double stats_median(double *v, size_t n);

#endif
