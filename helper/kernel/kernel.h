/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that hawserd requests from the kernel, as one table: the real one uses netlink and ioctl; the tests' table
 * simulates a NIC and can fail, or end the process, at any call. Each function returns 0 or -errno with hw_error();
 * -ENODEV: the NIC is gone.
 */
#ifndef HW_HELPER_KERNEL_H
#define HW_HELPER_KERNEL_H

#include "base/base.h"
#include "net/nic.h"

#define HD_QUEUES_MAX 1024   /* receive queues of a NIC; current drivers have at most a few hundred */
#define HD_TABLE_MAX  16384u /* entries of an indirection table; the largest current ones have 4096 */
#define HD_RULES_MAX  65536u /* most flow rules of a NIC that are read */

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
    unsigned rx_queues; /* at most HD_QUEUES_MAX; higher ones are not used */
    unsigned mtu;       /* 0: unknown */
};

enum hd_user { HD_FREE, HD_DMABUF, HD_IO_URING, HD_XSK, HD_LEASED };
struct hd_queue {
    enum hd_user user;
    uint32_t dmabuf_id;
};

/* Header split, ethtool's tcp-data-split: values of ETHTOOL_TCP_DATA_SPLIT_*. Reading returns what the driver does,
 * which may differ from the configuration: bnxt also splits for large packets, fbnic always reports that it splits. The
 * kernel allows binding only if the split is configured. */
struct hd_split {
    uint8_t split;
    bool has_thresh;  /* kernels from 6.14 on, with drivers that support it */
    uint32_t thresh;  /* smaller packets are not split */
    uint32_t buf_len; /* bytes of a receive buffer (rx-buf-len); 0: not reported, and cannot be set */
};

/* Aggregation of packets by the NIC (rx-gro-hw). */
enum hd_gro_hw { HD_GRO_NONE, HD_GRO_OFF, HD_GRO_ON }; /* NONE: the driver has no such setting */

/* The indirection table of RSS context 0, and the queues that other contexts use. The caller frees queue; NULL after a
 * failure. */
struct hd_rss {
    uint32_t n, *queue;
    struct hd_set others;
};

/* A flow rule: TCP from remote to local goes to a queue. */
struct hd_rule {
    bool exact; /* the rule is exactly that, with both ends complete; otherwise only queue and loc are valid */
    union hw_addr local, remote;
    uint32_t queue; /* UINT32_MAX: none (dropped, or to an RSS context) */
    uint32_t loc;   /* its location in the NIC's table */
};

/* A TCP connection of this machine: its ends, and the cookie of its socket (SO_COOKIE), which is unique until the next
 * boot. The same ends may belong to another connection a moment later. */
struct hd_conn {
    union hw_addr local, remote;
    uint64_t cookie;
};

/* A dma-buf for queues of a NIC; n 0: for sending. */
struct hd_bind_what {
    int ifindex, dmabuf;
    const uint32_t *queue;
    unsigned n;
    uint32_t page; /* bytes of each buffer that the NIC fills; 0: the kernel's page size */
};

struct hd_kernel {
    void *arg;
    int (*link)(void *arg, const char *name, struct hd_link *out);
    int (*link_at)(void *arg, int ifindex, struct hd_link *out);
    /* The kernel lists no queues of a NIC that is down (net/core/netdev-genl.c): *n is 0 then. */
    int (*queues)(void *arg, int ifindex, struct hd_queue *out, unsigned cap, unsigned *n);
    int (*split_get)(void *arg, int ifindex, struct hd_split *out);
    /* changed (may be NULL): false if it was already configured like that, and nothing happened. */
    int (*split_set)(void *arg, int ifindex, const struct hd_split *s, bool *changed);
    int (*gro_hw_get)(void *arg, int ifindex, enum hd_gro_hw *out);
    int (*gro_hw_set)(void *arg, int ifindex, bool on); /* the driver may still leave it unchanged */
    int (*ntuple_get)(void *arg, int ifindex, bool *on);
    int (*ntuple_set)(void *arg, int ifindex, bool on);
    int (*rss_get)(void *arg, int ifindex, struct hd_rss *out);
    int (*rss_set)(void *arg, int ifindex, const uint32_t *queue, uint32_t n);
    /* All rules; the caller frees *out. */
    int (*rules)(void *arg, int ifindex, struct hd_rule **out, unsigned *n);
    int (*rule_at)(void *arg, int ifindex, uint32_t loc, struct hd_rule *out); /* -ENOENT */
    int (*rule_add)(void *arg, int ifindex, struct hd_rule *r);                /* sets loc */
    int (*rule_del)(void *arg, int ifindex, uint32_t loc);
    /* The binding lives as long as the descriptor *sock. */
    int (*bind)(void *arg, const struct hd_bind_what *what, int *sock, uint32_t *id);
    void (*unbind)(void *arg, int *sock);

    /* Client descriptors. The first two may block for as long as the client likes: only helper/child/inspect.c calls
     * them, in a separate process. */
    int (*dmabuf_size)(void *arg, int fd, uint64_t *size); /* -EBADF: no dma-buf */
    int (*connection)(void *arg, int fd, struct hd_conn *out);
    int (*same_netns)(void *arg, int fd); /* of a socket; -EXDEV: another namespace. Does not block. */

    /* Returns 1 if packets with these ends that arrive at that NIC reach this connection; 0 if not; -errno. */
    int (*alive)(void *arg, int ifindex, const struct hd_conn *c);
    /* Turns reports of destroyed sockets on or off. events, below, is readable while reports are queued. */
    int (*watch)(void *arg, bool on);
    /* Reads up to cap cookies of destroyed sockets. lost: the kernel dropped reports. Returns how many. */
    unsigned (*ended)(void *arg, uint64_t *cookie, unsigned cap, bool *lost);
    /* Prevents a local port from being assigned while *sock is open; *sock is -1 if the port is not an ephemeral
     * one. */
    int (*port_hold)(void *arg, const union hw_addr *local, int *sock);
    void (*port_free)(void *arg, int *sock);
    int events; /* a descriptor for poll, or -1 */
};

/* Opens this machine's kernel interface. -errno if its netlink is unavailable. */
int hd_kernel_open(struct hd_kernel *k);
void hd_kernel_close(struct hd_kernel *k);

#endif
