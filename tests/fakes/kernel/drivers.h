/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header split, receive buffers, rx-gro-hw and XDP as the kernel and four drivers of Linux 7.3.4 have them, for
 * tests/fakes/kernel/fake.c; and how they list flow rules, for tests/helper/test_hawserd_drivers.c. Written from what
 * the sources do; each point has its file and line there.
 */
#ifndef TESTS_HELPER_DRIVERS_H
#define TESTS_HELPER_DRIVERS_H

#include "helper/kernel/kernel.h"

#include <linux/ethtool.h>

enum fake_like { LIKE_PLAIN, LIKE_GVE, LIKE_MLX5, LIKE_BNXT, LIKE_FBNIC, LIKES };
extern const char *const like_names[LIKES];

struct fake_driver {
    enum fake_like like;
    uint8_t config;       /* what is configured: the kernel's dev->cfg->hds_config */
    uint32_t thresh;      /* dev->cfg->hds_thresh */
    bool hds;             /* the driver's own flag: gve, bnxt */
    uint32_t buf_len;     /* gve */
    bool fixed_buf;       /* it says how large its buffers are, and lets nobody set it */
    bool gro, gro_wanted; /* rx-gro-hw, as it is and as it was asked for */
    bool xdp;             /* a program that takes one buffer is attached */
};

/* As the driver begins. */
void driver_init(struct fake_driver *d, enum fake_like like);
/* As ethtool netlink does; bound: memory is bound to a queue. 0 or -errno with hw_error(). */
void driver_report(const struct fake_driver *d, struct hd_split *out);
int driver_split(struct fake_driver *d, const struct hd_split *s, bool bound, bool *changed);
enum hd_gro_hw driver_gro(const struct fake_driver *d);
void driver_gro_set(struct fake_driver *d, bool on);
/* BIND_RX's checks of the device: 0 or -errno. */
int driver_bind(const struct fake_driver *d, uint32_t page);
/* Can an XDP program be attached now? */
bool driver_takes_xdp(const struct fake_driver *d);

/* ETHTOOL_GRXCLSRLALL: rules are at loc[0..n). 0 or -errno, r filled as the driver does. */
int driver_list(enum fake_like like, const uint32_t *loc, uint32_t n, struct ethtool_rxnfc *r);
/* ETHTOOL_GRXCLSRLCNT. */
void driver_count(enum fake_like like, uint32_t n, struct ethtool_rxnfc *r);

#endif
