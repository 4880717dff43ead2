/* SPDX-License-Identifier: Apache-2.0 */
/* Generic netlink: its families' numbers, which each boot gives anew. */
#ifndef HW_SYS_GENL_H
#define HW_SYS_GENL_H

#include "sys/netlink.h"

struct hw_genl {
    struct hw_netlink nl;
    uint16_t netdev, ethtool; /* the families' numbers; 0: this kernel has none */
    uint32_t monitor;         /* ethtool's multicast group of that name; 0: none */
};

/* A socket that knows the families, or one with their numbers taken from another. */
int hw_genl_open(struct hw_genl *g, const struct hw_genl *like);
void hw_genl_close(struct hw_genl *g);
/* A request in buf, size bytes. */
struct nlmsghdr *hw_genl_request(void *buf, size_t size, uint16_t family, uint8_t cmd, uint16_t flags);
/* Bit i: family name knows command i. */
int hw_genl_ops(struct hw_genl *g, const char *name, uint64_t *ops);

#endif
