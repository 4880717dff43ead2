/* SPDX-License-Identifier: GPL-2.0 */
/* Lets the driver compile for Linux 6.12 to 7.x despite the interfaces that the kernel renamed or added in between. The
 * driver was built and run on 6.12 and 7.3. The version checks for the releases in between follow the kernel's
 * history. */
#ifndef DMNIC_COMPAT_H
#define DMNIC_COMPAT_H

#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/version.h>
#include <net/netdev_queues.h>
#include <net/page_pool/helpers.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "devmem TCP requires Linux 6.12 or later"
#endif
#ifndef CONFIG_64BIT
#error "a 64-bit kernel is required: counters are plain u64, and all memory must be mapped"
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
#define DMNIC_HDS_THRESH      1 /* the kernel has struct kernel_ethtool_ringparam.hds_thresh */
#define dmnic_pool_take(pool) page_pool_alloc_netmems(pool, GFP_ATOMIC | __GFP_NOWARN)
#else
#define dmnic_pool_take(pool) page_pool_alloc_netmem(pool, GFP_ATOMIC | __GFP_NOWARN)
#endif

/* Since 6.15 the kernel calls the operations of a driver with queue_mgmt_ops under the netdev's own lock, which the
 * plain functions would take again (Documentation/networking/netdevices.rst). */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
#define dmnic_napi_enable  napi_enable_locked
#define dmnic_napi_disable napi_disable_locked
#else
#define dmnic_napi_enable  napi_enable
#define dmnic_napi_disable napi_disable
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
#define DMNIC_NETMEM_TX NETMEM_TX_DMA
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
#define DMNIC_NETMEM_TX true
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
#define DMNIC_RX_RING_COUNT 1 /* ethtool_ops.get_rx_ring_count replaces ETHTOOL_GRXRINGS in get_rxnfc */
#endif

/* Operations that need rtnl in addition to the netdev's own lock, because they call netdev_update_features(). */
#ifdef ETHTOOL_OP_NEEDS_RTNL_SRINGPARAM
#define DMNIC_OP_NEEDS_RTNL .op_needs_rtnl = ETHTOOL_OP_NEEDS_RTNL_SRINGPARAM,
#else
#define DMNIC_OP_NEEDS_RTNL
#endif

/* Since 7.0, struct netdev_queue_mgmt_ops passes the queue's configuration. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define DMNIC_QCFG      struct netdev_queue_config *qcfg,
#define DMNIC_QCFG_PAGE 1 /* with the page size, which NETDEV_A_DMABUF_RX_PAGE_SIZE can set */
#else
#define DMNIC_QCFG
#endif

#endif
