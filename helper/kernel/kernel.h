/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that hawserd asks of the kernel, as one table: the real one talks netlink and ioctl, that of the tests plays a
 * NIC and can fail, or end the process, at any call. Each returns 0 or -errno with hw_error(); -ENODEV: the NIC is
 * gone.
 */
#ifndef HW_HELPER_KERNEL_H
#define HW_HELPER_KERNEL_H

#include "base/base.h"
#include "net/nic.h"

#define HD_QUEUES_MAX 1024   /* receive queues of a NIC; drivers of today stop at a few hundred */
#define HD_TABLE_MAX  16384u /* entries of an indirection table; the largest of today have 4096 */
#define HD_RULES_MAX  65536u /* flow rules of a NIC that are looked at */

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
    unsigned rx_queues; /* at most HD_QUEUES_MAX; those above are left alone */
    unsigned mtu;       /* 0: unknown */
};

enum hd_user { HD_FREE, HD_DMABUF, HD_IO_URING, HD_XSK, HD_LEASED };
struct hd_queue {
    enum hd_user user;
    uint32_t dmabuf_id;
};

/* Header split, as ethtool's tcp-data-split: values of ETHTOOL_TCP_DATA_SPLIT_*. What is read is what the driver does,
 * which need not be what is configured: bnxt splits for large packets too, fbnic always says that it does. The kernel
 * binds where it is configured. */
struct hd_split {
    uint8_t split;
    bool has_thresh;  /* kernels from 6.14 on, drivers that can */
    uint32_t thresh;  /* below it a packet is not split */
    uint32_t buf_len; /* bytes of a receive buffer (rx-buf-len); 0: the driver does not say; not to be set */
};

/* Aggregation of packets by the NIC (rx-gro-hw). */
enum hd_gro_hw { HD_GRO_NONE, HD_GRO_OFF, HD_GRO_ON }; /* NONE: the driver has none that could be set */

/* The indirection table of RSS context 0, and which queues the other contexts use. queue is freed by the caller, NULL
 * after a failure. */
struct hd_rss {
    uint32_t n, *queue;
    struct hd_set others;
};

/* A flow rule: TCP from remote to local goes to a queue. */
struct hd_rule {
    bool exact; /* it is just that, both ends given whole; else only queue and loc mean something */
    union hw_addr local, remote;
    uint32_t queue; /* UINT32_MAX: to none (dropped, or to an RSS context) */
    uint32_t loc;   /* its place in the NIC's table */
};

/* A TCP connection of this machine: its ends, and the kernel's own number for its socket (SO_COOKIE), which no other
 * socket gets before the next boot. The ends alone may be another connection's a moment later. */
struct hd_conn {
    union hw_addr local, remote;
    uint64_t cookie;
};

/* A dma-buf for queues of a NIC; n 0: for sending. */
struct hd_bind_what {
    int ifindex, dmabuf;
    const uint32_t *queue;
    unsigned n;
    uint32_t page; /* bytes of the pieces that the NIC is to fill; 0: the kernel's page */
};

struct hd_kernel {
    void *arg;
    int (*link)(void *arg, const char *name, struct hd_link *out);
    int (*link_at)(void *arg, int ifindex, struct hd_link *out);
    /* Of a NIC that is down the kernel shows none (net/core/netdev-genl.c): *n is 0 then. */
    int (*queues)(void *arg, int ifindex, struct hd_queue *out, unsigned cap, unsigned *n);
    int (*split_get)(void *arg, int ifindex, struct hd_split *out);
    /* changed (may be NULL): false where it was configured so already, and nothing has happened. */
    int (*split_set)(void *arg, int ifindex, const struct hd_split *s, bool *changed);
    int (*gro_hw_get)(void *arg, int ifindex, enum hd_gro_hw *out);
    int (*gro_hw_set)(void *arg, int ifindex, bool on); /* the driver may keep it as it is all the same */
    int (*ntuple_get)(void *arg, int ifindex, bool *on);
    int (*ntuple_set)(void *arg, int ifindex, bool on);
    int (*rss_get)(void *arg, int ifindex, struct hd_rss *out);
    int (*rss_set)(void *arg, int ifindex, const uint32_t *queue, uint32_t n);
    /* All rules; *out is freed by the caller. */
    int (*rules)(void *arg, int ifindex, struct hd_rule **out, unsigned *n);
    int (*rule_at)(void *arg, int ifindex, uint32_t loc, struct hd_rule *out); /* -ENOENT */
    int (*rule_add)(void *arg, int ifindex, struct hd_rule *r);                /* sets loc */
    int (*rule_del)(void *arg, int ifindex, uint32_t loc);
    /* The binding lives as long as the descriptor *sock. */
    int (*bind)(void *arg, const struct hd_bind_what *what, int *sock, uint32_t *id);
    void (*unbind)(void *arg, int *sock);

    /* Descriptors of clients. The first two may block for as long as the client likes: only helper/child/inspect.c
     * calls them, in a process of their own. */
    int (*dmabuf_size)(void *arg, int fd, uint64_t *size); /* -EBADF: no dma-buf */
    int (*connection)(void *arg, int fd, struct hd_conn *out);
    int (*same_netns)(void *arg, int fd); /* of a socket; -EXDEV: no. Does not block. */

    /* Is this the connection of these ends, as packets that arrive at that NIC find it? 1, 0, -errno. */
    int (*alive)(void *arg, int ifindex, const struct hd_conn *c);
    /* Turns reports of sockets that are destroyed on or off. events, below, is readable while there are some. */
    int (*watch)(void *arg, bool on);
    /* Takes up to cap cookies of destroyed sockets. lost: the kernel dropped reports. Returns how many. */
    unsigned (*ended)(void *arg, uint64_t *cookie, unsigned cap, bool *lost);
    /* Keeps a local port from being given to anybody as long as *sock is open; -1 where no port of that number is
     * given out unasked. */
    int (*port_hold)(void *arg, const union hw_addr *local, int *sock);
    void (*port_free)(void *arg, int *sock);
    int events; /* a descriptor for poll, or -1 */
};

/* The kernel of this machine. -errno where its netlink cannot be had. */
int hd_kernel_open(struct hd_kernel *k);
void hd_kernel_close(struct hd_kernel *k);

#endif
