/* SPDX-License-Identifier: Apache-2.0 */
/* Generic netlink requests. The IDs of the families may differ between boots. */
#ifndef HW_SYS_GENL_H
#define HW_SYS_GENL_H

#include "sys/netlink.h"

struct hw_genl {
    struct hw_netlink nl;
    uint16_t netdev, ethtool; /* IDs of the families; 0 if the kernel lacks the family */
    uint32_t monitor;         /* ethtool's multicast group "monitor"; 0 if there is none */
};

/* Opens a socket, and copies the families' IDs from like, or looks up the IDs if like is NULL. A missing family is not
 * an error. */
int hw_genl_open(struct hw_genl *g, const struct hw_genl *like);
void hw_genl_close(struct hw_genl *g);
/* Starts a request in buf, which has size bytes. */
struct nlmsghdr *hw_genl_request(void *buf, size_t size, uint16_t family, uint8_t cmd, uint16_t flags);
/* Sets bit i of *ops for each command i below 64 that the family supports. Fails with -ENOENT if the kernel lacks the
 * family. */
int hw_genl_ops(struct hw_genl *g, const char *name, uint64_t *ops);

#endif
