/* SPDX-License-Identifier: Apache-2.0 */
/* Ethtool over netlink, for what the ioctl lacks or does badly: names, header split, the RSS contexts besides the main
 * one. */
#ifndef HW_HELPER_ETHNL_H
#define HW_HELPER_ETHNL_H

#include "helper/kernel/kernel.h"
#include "sys/genl.h"

/* Finds the device with this name. -ENODEV, also if it is only an alternative name (altname). With the ioctl the kernel
 * would load a module netdev-NAME for an unknown name, on behalf of hawserd's CAP_NET_ADMIN. */
int hd_ethnl_find(struct hw_genl *g, const char *name, int *ifindex);
int hd_ethnl_split_get(struct hw_genl *g, int ifindex, struct hd_split *out);
/* changed (may be NULL): see struct hd_kernel. True if the kernel's reports are unavailable. */
int hd_ethnl_split_set(const struct hw_genl *g, int ifindex, const struct hd_split *s, bool *changed);
int hd_ethnl_gro_hw_get(struct hw_genl *g, int ifindex, enum hd_gro_hw *out);
int hd_ethnl_gro_hw_set(struct hw_genl *g, int ifindex, bool on);
/* Returns the queues that RSS contexts other than 0 use; none if the kernel cannot list them. */
int hd_ethnl_contexts(struct hw_genl *g, int ifindex, struct hd_set *out);

#endif
