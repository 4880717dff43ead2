/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's netlink family "netdev": lists queues and page pools, and binds dma-bufs. */
#ifndef HW_HELPER_NETDEV_H
#define HW_HELPER_NETDEV_H

#include "helper/kernel/kernel.h"
#include "sys/genl.h"

int hd_netdev_queues(struct hw_genl *g, int ifindex, struct hd_queue *out, unsigned cap, unsigned *n);
/* Binds a dma-buf. Stores a new socket in *sock. The binding lasts as long as this socket is open. nic is the NIC's
 * name for error texts. */
int hd_netdev_bind(const struct hw_genl *like, const char *nic, const struct hd_bind_what *b, int *sock, uint32_t *id);
/* Stores the number of a NIC's page pools with dma-bufs in *pools, and the bytes in flight in these pools in
 * *inflight. */
int hd_netdev_pools(struct hw_genl *g, int ifindex, unsigned *pools, uint64_t *inflight);

#endif
