/* SPDX-License-Identifier: Apache-2.0 */
/* Ethtool over netlink is used for names, header split, rx-gro-hw, and RSS contexts other than 0, because the ioctl
 * lacks these functions or has drawbacks. */
#ifndef HW_HELPER_ETHNL_H
#define HW_HELPER_ETHNL_H

#include "helper/kernel/kernel.h"
#include "sys/genl.h"

/* Finds the device with this name. Fails with -ENODEV if there is none, or if the name is only an alternative name
 * (altname). The ioctl is not used here, because for an unknown name the kernel would try to load a module called
 * netdev-NAME, which hawserd's CAP_NET_ADMIN permits. */
int hd_ethnl_find(struct hw_genl *g, const char *name, int *ifindex);
int hd_ethnl_split_get(struct hw_genl *g, int ifindex, struct hd_split *out);
/* Sets header split. changed may be NULL; see split_set in struct hd_kernel. *changed is also set to true if the
 * kernel's notifications are not available. */
int hd_ethnl_split_set(const struct hw_genl *g, int ifindex, const struct hd_split *s, bool *changed);
int hd_ethnl_gro_hw_get(struct hw_genl *g, int ifindex, enum hd_gro_hw *out);
int hd_ethnl_gro_hw_set(struct hw_genl *g, int ifindex, bool on);
/* Stores the queues of RSS contexts other than 0 in *out. The set is empty if the kernel cannot list these contexts. */
int hd_ethnl_contexts(struct hw_genl *g, int ifindex, struct hd_set *out);

#endif
