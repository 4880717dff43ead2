/* SPDX-License-Identifier: Apache-2.0 */
/* One of a NIC's own statistics (ethtool -S). */
#ifndef HW_TOOL_ETHSTAT_H
#define HW_TOOL_ETHSTAT_H

#include <stdint.h>

/* How many packets the NIC has put into device memory: the sum of the statistics whose names start with rx_devmem_pkts,
 * one for all or one a queue. fd: any socket. -ENODATA: the driver does not count them. */
int ethstat_devmem_pkts(int fd, const char *nic, uint64_t *sum);

#endif
