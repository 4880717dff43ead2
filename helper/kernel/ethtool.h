/* SPDX-License-Identifier: Apache-2.0 */
/* The ethtool ioctl: flow rules (which netlink lacks), the RSS table (which netlink can set only since Linux 6.17), the
 * ntuple flag, and the NIC's state. */
#ifndef HW_HELPER_ETHTOOL_H
#define HW_HELPER_ETHTOOL_H

#include "helper/kernel/kernel.h"

/* Returns 0 or -errno, as do all functions below. fd is any socket in the NIC's network namespace. */
int hd_eth_link_at(int fd, int ifindex, struct hd_link *out);
int hd_eth_driver(int fd, int ifindex, char *out, size_t cap);
int hd_eth_ntuple_get(int fd, int ifindex, bool *on);
int hd_eth_ntuple_set(int fd, int ifindex, bool on);
int hd_eth_rss_get(int fd, int ifindex, struct hd_rss *out); /* does not set out->others */
int hd_eth_rss_set(int fd, int ifindex, const uint32_t *queue, uint32_t n);
int hd_eth_rules(int fd, int ifindex, struct hd_rule **out, unsigned *n);
int hd_eth_rule_at(int fd, int ifindex, uint32_t loc, struct hd_rule *out);
int hd_eth_rule_add(int fd, int ifindex, struct hd_rule *r);
int hd_eth_rule_del(int fd, int ifindex, uint32_t loc);

#endif
