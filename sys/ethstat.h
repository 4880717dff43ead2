/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a NIC with the ethtool ioctl, and one of the NIC's own statistics (ethtool -S). */
#ifndef HW_SYS_ETHSTAT_H
#define HW_SYS_ETHSTAT_H

#include <stdint.h>

/* Makes one request of linux/ethtool.h; data starts with the command. fd: any socket. 0 or -errno. */
int ethstat_ask(int fd, const char *nic, void *data);

/* Counts the packets that the NIC has put into device memory: the sum of the statistics whose names start with
 * rx_devmem_pkts, one in total or one for each queue. -ENODATA: the driver does not count them. */
int ethstat_devmem_pkts(int fd, const char *nic, uint64_t *sum);

#endif
