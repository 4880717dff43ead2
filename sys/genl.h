/* SPDX-License-Identifier: Apache-2.0 */
/* Generic netlink: a request, its answers, the kernel's own words on why not. */
#ifndef HW_SYS_GENL_H
#define HW_SYS_GENL_H

#include "base/base.h"

#include <libmnl/libmnl.h>

#define HD_GENL_REQUEST 2048

/* Called for each answer; 0 or -errno. */
typedef int (*hd_genl_fn)(const struct nlmsghdr *h, void *arg);

struct hd_genl {
    int fd;
    uint32_t seq;
    uint16_t netdev, ethtool; /* the families' numbers; 0: this kernel has none */
    uint32_t monitor;         /* ethtool's multicast group of that name; 0: none */
    hd_genl_fn heard;         /* called, with NULL, for what comes by multicast while an answer is waited for */
};

/* A socket that knows the families, or one with their numbers taken from another. */
int hd_genl_open(struct hd_genl *g, const struct hd_genl *like);
void hd_genl_close(struct hd_genl *g);
/* A request in buf (HD_GENL_REQUEST bytes). */
struct nlmsghdr *hd_genl_request(void *buf, uint16_t family, uint8_t cmd, uint16_t flags);
/* Sends it and takes the answers. what: for the text. Where the kernel refused, its own words are in the text. */
int hd_genl_talk(struct hd_genl *g, struct nlmsghdr *h, hd_genl_fn fn, void *arg, const char *what);
/* What the group says comes in from now on. */
int hd_genl_join(struct hd_genl *g, uint32_t group);
/* Bit i: family name knows command i. */
int hd_genl_ops(struct hd_genl *g, const char *name, uint64_t *ops);

#endif
