/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of the functions with which hawserd uses NICs and inspects connections and dma-bufs. The real functions use
 * netlink and ioctl. The tests' functions simulate a NIC, and can be made to fail or to kill the process at any call.
 * Unless stated otherwise, functions return 0, or -errno with hw_error(). They fail with -ENODEV if the NIC no longer
 * exists.
 */
#ifndef HW_HELPER_KERNEL_H
#define HW_HELPER_KERNEL_H

#include "base/base.h"
#include "net/nic.h"

#define HD_QUEUES_MAX 1024   /* maximum number of receive queues of a NIC */
#define HD_TABLE_MAX  16384u /* maximum number of entries of an RSS table */
#define HD_RULES_MAX  65536u /* maximum number of flow rules of a NIC */

/* A set of queues. */
struct hd_set {
    uint64_t bits[HD_QUEUES_MAX / 64];
};
static inline bool hd_has(const struct hd_set *s, uint32_t q)
{
    return q < HD_QUEUES_MAX && s->bits[q / 64] >> (q % 64) & 1;
}
static inline void hd_put(struct hd_set *s, uint32_t q)
{
    if (q < HD_QUEUES_MAX)
        s->bits[q / 64] |= 1ull << (q % 64);
}
static inline void hd_cut(struct hd_set *s, uint32_t q)
{
    if (q < HD_QUEUES_MAX)
        s->bits[q / 64] &= ~(1ull << (q % 64));
}

struct hd_link {
    int ifindex;
    char name[HAWSER_NIC_NAME];
    bool up;
    unsigned rx_queues; /* at most HD_QUEUES_MAX; further queues are not used */
    unsigned mtu;       /* 0 if unknown */
};

enum hd_user { HD_FREE, HD_DMABUF, HD_IO_URING, HD_XSK, HD_LEASED };
struct hd_queue {
    enum hd_user user;
    uint32_t dmabuf_id;
};

/* The settings of header split (tcp-data-split of ethtool). split is one of ETHTOOL_TCP_DATA_SPLIT_*. The kernel
 * returns the driver's actual state, which may differ from the configuration: bnxt also reports header split if large
 * packets or rx-gro-hw require it, and fbnic always reports it. The kernel allows a binding only if header split is
 * configured. */
struct hd_split {
    uint8_t split;
    bool has_thresh;  /* thresh is valid; since Linux 6.14, if the driver supports it */
    uint32_t thresh;  /* only packets with more bytes are split */
    uint32_t buf_len; /* bytes of a receive buffer (rx-buf-len), or 0 if the driver does not support this setting */
};

/* State of packet aggregation by the NIC (rx-gro-hw). */
enum hd_gro_hw { HD_GRO_NONE, HD_GRO_OFF, HD_GRO_ON }; /* HD_GRO_NONE if the driver cannot change it */

/* The indirection table of RSS context 0, and the queues of other contexts. The caller must free queue, which is NULL
 * after a failure. */
struct hd_rss {
    uint32_t n, *queue;
    struct hd_set others;
};

/* A flow rule, which selects a queue for TCP packets from remote to local. */
struct hd_rule {
    bool exact; /* the rule matches exactly local and remote; if false, only queue and loc are valid */
    union hw_addr local, remote;
    uint32_t queue; /* UINT32_MAX if the rule drops packets or sends them to an RSS context or a VF */
    uint32_t loc;   /* location in the NIC's table */
};

/* A TCP connection of this machine: the two endpoints and the cookie of the socket (SO_COOKIE). The cookie is unique
 * until the next boot, whereas a later connection may have the same endpoints. */
struct hd_conn {
    union hw_addr local, remote;
    uint64_t cookie;
};

/* A request to bind a dma-buf to n queues of a NIC for receiving, or to the NIC for sending if n is 0. */
struct hd_bind_what {
    int ifindex, dmabuf;
    const uint32_t *queue;
    unsigned n;
    uint32_t page; /* bytes of each receive buffer, or 0 for the kernel's page size */
};

struct hd_kernel {
    void *arg;
    int (*link)(void *arg, const char *name, struct hd_link *out);
    int (*link_at)(void *arg, int ifindex, struct hd_link *out);
    /* *n is 0 if the NIC is down, because the kernel then lists no queues (net/core/netdev-genl.c). */
    int (*queues)(void *arg, int ifindex, struct hd_queue *out, unsigned cap, unsigned *n);
    int (*split_get)(void *arg, int ifindex, struct hd_split *out);
    /* *changed is set to false if the same settings were already configured and nothing was changed. changed may be
     * NULL. */
    int (*split_set)(void *arg, int ifindex, const struct hd_split *s, bool *changed);
    int (*gro_hw_get)(void *arg, int ifindex, enum hd_gro_hw *out);
    int (*gro_hw_set)(void *arg, int ifindex, bool on); /* may return 0 without any effect */
    int (*ntuple_get)(void *arg, int ifindex, bool *on);
    int (*ntuple_set)(void *arg, int ifindex, bool on);
    int (*rss_get)(void *arg, int ifindex, struct hd_rss *out);
    int (*rss_set)(void *arg, int ifindex, const uint32_t *queue, uint32_t n);
    /* Reads all rules. The caller must free *out. */
    int (*rules)(void *arg, int ifindex, struct hd_rule **out, unsigned *n);
    int (*rule_at)(void *arg, int ifindex, uint32_t loc, struct hd_rule *out); /* -ENOENT if there is no rule */
    int (*rule_add)(void *arg, int ifindex, struct hd_rule *r);                /* sets r->loc */
    int (*rule_del)(void *arg, int ifindex, uint32_t loc);
    /* The binding lasts as long as the descriptor *sock is open. */
    int (*bind)(void *arg, const struct hd_bind_what *what, int *sock, uint32_t *id);
    void (*unbind)(void *arg, int *sock);

    /* Functions for descriptors of clients. A client can make the first two functions block indefinitely, so only
     * helper/child/inspect.c calls them, in a separate process. */
    int (*dmabuf_size)(void *arg, int fd, uint64_t *size); /* -EBADF if fd is not a dma-buf */
    int (*connection)(void *arg, int fd, struct hd_conn *out);
    int (*same_netns)(void *arg, int fd); /* -EXDEV if the socket is in another namespace; does not block */

    /* Returns 1 if packets with the endpoints of c that arrive at the NIC reach this connection. Otherwise returns 0,
     * or -errno. */
    int (*alive)(void *arg, int ifindex, const struct hd_conn *c);
    /* Turns reports of destroyed sockets on or off. The descriptor `events` is readable while reports are queued. */
    int (*watch)(void *arg, bool on);
    /* Reads up to cap cookies of destroyed sockets. Returns the number of cookies. Sets *lost to true if the kernel
     * dropped reports. */
    unsigned (*ended)(void *arg, uint64_t *cookie, unsigned cap, bool *lost);
    /* Reserves a local port as long as *sock is open. Sets *sock to -1 if the port is not ephemeral. */
    int (*port_hold)(void *arg, const union hw_addr *local, int *sock);
    void (*port_free)(void *arg, int *sock);
    int events; /* descriptor to poll for reports, or -1 */
};

/* Opens the interface to the running kernel. Returns 0 or -errno. */
int hd_kernel_open(struct hd_kernel *k);
void hd_kernel_close(struct hd_kernel *k);

#endif
