/* SPDX-License-Identifier: Apache-2.0 */
/* Sends ethtool ioctl requests to a NIC, and reads one of the NIC's own statistics (ethtool -S). */
#ifndef HW_SYS_ETHSTAT_H
#define HW_SYS_ETHSTAT_H

#include <stdint.h>

/* Sends one request of linux/ethtool.h. data begins with the command. fd is any socket in the NIC's network namespace.
 * Returns 0 or -errno. */
int ethstat_ask(int fd, const char *nic, void *data);

/* Sets *sum to the number of packets that the NIC has written to device memory. This is the statistic rx_devmem_pkts if
 * there is one, else the sum of the statistics whose names begin with rx_devmem_pkts, one per queue. Returns 0,
 * -ENODATA if the driver does not count these packets, or another -errno. */
int ethstat_devmem_pkts(int fd, const char *nic, uint64_t *sum);

#endif
