/* SPDX-License-Identifier: Apache-2.0 */
/* Generic netlink, and the numbers of its families, which change with each boot. */
#ifndef HW_SYS_GENL_H
#define HW_SYS_GENL_H

#include "sys/netlink.h"

struct hw_genl {
    struct hw_netlink nl;
    uint16_t netdev, ethtool; /* the families' numbers; 0: this kernel has none */
    uint32_t monitor;         /* ethtool's multicast group "monitor"; 0: none */
};

/* Opens a socket and looks up the families' numbers, or copies the numbers from like. */
int hw_genl_open(struct hw_genl *g, const struct hw_genl *like);
void hw_genl_close(struct hw_genl *g);
/* Starts a request in buf, size bytes. */
struct nlmsghdr *hw_genl_request(void *buf, size_t size, uint16_t family, uint8_t cmd, uint16_t flags);
/* Sets bit i of *ops if the family name has command i. */
int hw_genl_ops(struct hw_genl *g, const char *name, uint64_t *ops);

#endif
