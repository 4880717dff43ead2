/* SPDX-License-Identifier: GPL-2.0 */
/* dmnic simulates pairs of network cards. The wire between the two cards of a pair consists only of memory copies. The
 * driver supports everything that the kernel's devmem TCP requires: header split, flow steering, queues that restart
 * separately, and page pools with memory that the CPU must not read. */
#ifndef DMNIC_H
#define DMNIC_H

#include "compat.h"

#include <linux/if_vlan.h>
#include <linux/skbuff.h>

#define DMNIC_INDIR    128
#define DMNIC_KEY      40
#define DMNIC_RULES    64
#define DMNIC_RING     1024
#define DMNIC_RING_MIN 16
#define DMNIC_RING_MAX 8192
#define DMNIC_MTU_MAX  9000

/* The driver that a card imitates where drivers differ (docs/dmnic.md). Most comments at such places in the source give
 * the file in Linux 7.3.4, below drivers/net/ethernet/, and the line. */
enum dmnic_like { DMNIC_PLAIN, DMNIC_GVE, DMNIC_MLX5, DMNIC_BNXT, DMNIC_FBNIC, DMNIC_LIKES };

/* Counters of each queue. Each counter has one writer at a time: the queue's poll, the holder of the transmit lock of
 * the queue with the same number, or the holder of the ring's lock (DMNIC_RX_MISSED). */
enum dmnic_stat {
    DMNIC_RX_PACKETS,
    DMNIC_RX_BYTES,
    DMNIC_RX_DEVMEM_PKTS,
    DMNIC_RX_DEVMEM_BYTES,
    DMNIC_RX_LINEAR_PKTS,
    DMNIC_RX_LINEAR_BYTES,
    DMNIC_RX_ALLOC_FAIL,
    DMNIC_RX_MISSED,
    DMNIC_RX_ERRORS,
    DMNIC_RX_LOST,
    DMNIC_RX_REORDERED,
    DMNIC_RX_CORRUPTED,
    DMNIC_TX_PACKETS,
    DMNIC_TX_BYTES,
    DMNIC_TX_DEVMEM_PKTS,
    DMNIC_TX_DEVMEM_BYTES,
    DMNIC_TX_DROPS,
    DMNIC_STATS,
};

struct dmnic;

struct dmnic_queue {
    struct napi_struct napi;
    struct dmnic *nic;
    unsigned int idx;
    struct page_pool *pool;
    u32 page;                 /* bytes of a page in the pool */
    struct sk_buff_head ring; /* the wire: the sender's skbs, released when their bytes have been read */
    struct sk_buff *cur;      /* the skb that poll is cutting into packets */
    struct sk_buff *held;     /* a delayed packet, which later packets overtake */
    unsigned int held_for;
    u64 refill_at, refill_credit;
    u64 stat[DMNIC_STATS];
};

/* Data about an skb, kept in skb->cb while the skb is on the wire. */
struct dmnic_cb {
    /* offsets of the network and transport headers and of the payload; all are 0 if the card finds no TCP header, and
     * such a frame is not split */
    u16 l3, l4, hdr;
    bool v6;
    u32 off; /* payload bytes already delivered */
    u32 hash;
};
#define DMNIC_CB(skb) ((struct dmnic_cb *)(skb)->cb)

/* The fields that steering uses. */
struct dmnic_flow {
    bool v6;
    u8 proto;     /* 0 if not IP */
    bool ports;   /* TCP, and not an IP fragment */
    __be32 ip[8]; /* source, then destination; one element each for IPv4 (ip[0] and ip[1]) */
    __be16 port[2];
};

struct dmnic_rule {
    struct rcu_head rcu;
    struct ethtool_rx_flow_spec fs;
};

struct dmnic {
    struct net_device *ndev;
    struct dmnic *peer;
    struct dmnic_queue *q;
    unsigned int nq;
    unsigned int ring; /* maximum number of skbs in a queue's ring */
    enum dmnic_like like;
    u32 hds_thresh;
    u32 buf_len; /* maximum payload bytes in one page; 0 means the whole page */
    bool hds;    /* header split was requested */
    bool split;  /* payload goes into pages, which may be unreadable */
    bool up;
    u32 indir[DMNIC_INDIR];
    u8 key[DMNIC_KEY];
    struct dmnic_rule __rcu *rules[DMNIC_RULES];
};

/* Faults set by module parameters; 0 means off. */
struct dmnic_faults {
    unsigned int loss, reorder, corrupt; /* one packet in every N is affected */
    unsigned int linear;                 /* payload bytes that stay in header memory */
    unsigned int refill;                 /* pages that a queue gets per millisecond; 0 means no limit */
    bool recycle_all, large;
};
extern struct dmnic_faults dmnic_faults;

netdev_tx_t dmnic_xmit(struct sk_buff *skb, struct net_device *ndev);
int dmnic_poll(struct napi_struct *napi, int budget);
void dmnic_queue_purge(struct dmnic_queue *q);

/* Finds the headers of a TCP frame. For other frames and for IP fragments, cb->hdr is 0. */
void dmnic_parse(const struct sk_buff *skb, struct dmnic_cb *cb, struct dmnic_flow *flow);
/* Returns the receive queue of a flow, or -1 if a rule drops it. */
int dmnic_steer(struct dmnic *nic, const struct dmnic_flow *flow, u32 *hash);
int dmnic_rule_add(struct dmnic *nic, struct ethtool_rx_flow_spec *fs);
int dmnic_rule_del(struct dmnic *nic, u32 location);
int dmnic_rules_list(struct dmnic *nic, struct ethtool_rxnfc *info, u32 *locations);
int dmnic_rule_get(struct dmnic *nic, struct ethtool_rxnfc *info);
void dmnic_rules_clear(struct dmnic *nic);

/* Returns true if the card would put payload into pages, given this request for header split and these features. */
bool dmnic_splits(const struct dmnic *nic, bool hds, netdev_features_t features);
/* Sets split and ring. If the card is up, also gives each queue a new pool. Changes nothing on failure. */
int dmnic_reset(struct dmnic *nic, bool split, unsigned int ring);
bool dmnic_bound(const struct dmnic *nic);
u64 dmnic_drops(const struct dmnic_queue *q);
extern const struct ethtool_ops dmnic_ethtool_ops[DMNIC_LIKES];

#endif
