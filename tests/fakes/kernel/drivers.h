/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of header split, receive buffers, rx-gro-hw and XDP in the kernel and in four drivers of Linux 7.3.4, for
 * tests/fakes/kernel/fake.c, and of how the drivers list flow rules, for tests/helper/test_hawserd_drivers.c. Modelled
 * on the kernel's source; comments give the file and line.
 */
#ifndef TESTS_HELPER_DRIVERS_H
#define TESTS_HELPER_DRIVERS_H

#include "helper/kernel/kernel.h"

#include <linux/ethtool.h>

enum fake_like { LIKE_PLAIN, LIKE_GVE, LIKE_MLX5, LIKE_BNXT, LIKE_FBNIC, LIKES };
extern const char *const like_names[LIKES];

struct fake_driver {
    enum fake_like like;
    uint8_t config;       /* the kernel's dev->cfg->hds_config */
    uint32_t thresh;      /* dev->cfg->hds_thresh */
    bool hds;             /* the driver's flag (gve, bnxt) */
    uint32_t buf_len;     /* gve */
    bool fixed_buf;       /* the driver reports a buffer size that cannot be set */
    bool gro, gro_wanted; /* rx-gro-hw: its state, and the requested state */
    bool xdp;             /* a single-buffer XDP program is attached */
};

/* Sets the driver's initial state. */
void driver_init(struct fake_driver *d, enum fake_like like);
/* Work like ethtool netlink; `bound` means that memory is bound to a queue. driver_split() returns 0, or -errno and
 * sets hw_error(). */
void driver_report(const struct fake_driver *d, struct hd_split *out);
int driver_split(struct fake_driver *d, const struct hd_split *s, bool bound, bool *changed);
enum hd_gro_hw driver_gro(const struct fake_driver *d);
void driver_gro_set(struct fake_driver *d, bool on);
/* Performs BIND_RX's checks of the device. Returns 0 or -errno. */
int driver_bind(const struct fake_driver *d, uint32_t page);
/* Returns true if an XDP program can be attached now. */
bool driver_takes_xdp(const struct fake_driver *d);

/* Implements ETHTOOL_GRXCLSRLALL for the rules at loc[0..n). Fills r as the driver would, and returns 0 or -errno. */
int driver_list(enum fake_like like, const uint32_t *loc, uint32_t n, struct ethtool_rxnfc *r);
/* Implements ETHTOOL_GRXCLSRLCNT. */
void driver_count(enum fake_like like, uint32_t n, struct ethtool_rxnfc *r);

#endif
