/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's netlink family "netdev": queues and their bindings, binding, page pools. */
#ifndef HW_HELPER_NETDEV_H
#define HW_HELPER_NETDEV_H

#include "helper/kernel/kernel.h"
#include "sys/genl.h"

int hd_netdev_queues(struct hw_genl *g, int ifindex, struct hd_queue *out, unsigned cap, unsigned *n);
/* Binds on a new socket, *sock, because the binding lives as long as its socket. nic: for the text. */
int hd_netdev_bind(const struct hw_genl *like, const char *nic, const struct hd_bind_what *b, int *sock, uint32_t *id);
/* Returns the bytes in flight in a NIC's page pools with dma-bufs, and the number of these pools. */
int hd_netdev_pools(struct hw_genl *g, int ifindex, unsigned *pools, uint64_t *inflight);

#endif
