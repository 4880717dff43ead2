/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between clients such as `hawser bench` and `hawser serve`, which uses hawser's own send and receive.
 * Requests are little-endian and of fixed size, and each gets one reply of fixed size. Decoding does not trust its
 * input.
 *
 *   PREPARE  allocate memory of `gpu` for op: `slots` slots of `stride` bytes   -> key of the region (one-sided)
 *   BEGIN    prepare iterations [first, first+count): fill memory (read) or post
 *            receives (send, pingpong); read the counters last                 -> counters
 *   END      the first `count` iterations have completed: read the counters,
 *            then check the received data                                      -> counters, bad bytes
 *   RAW      start a plain-socket server for `raw`                             -> ports
 *   RAW_END  wait for that server to end                                       -> bytes, seconds, CPU
 *   RELEASE  free the memory                                                   -> empty
 *   FACTS    report facts of the node, and which of the addresses it reaches    -> facts
 *   INVENTORY  send the inventory for `hawser fieldtest`, from byte `first`    -> a part of the text
 *
 * Iteration i uses slot i % slots and the pattern of tp_seed(seed, i).
 */
#ifndef HW_TOOL_PROTO_H
#define HW_TOOL_PROTO_H

#include "base/base.h"

#define TP_VERSION        4
#define TP_MAX_SLOTS      65536
#define TP_MAX_DEPTH      4096
#define TP_MAX_NICS       16 /* maximum number of NICs whose counters fit in a reply */
#define TP_MAX_PATHS      16 /* maximum plain-socket paths in one request */
#define TP_MAX_CHANNELS   16 /* maximum number of channels of a peer, as HW_SESSION_RAILS */
#define TP_TEXT           224
#define TP_REQUEST        1024 /* bytes of every request on the wire */
#define TP_REPLY          2048 /* bytes of every reply on the wire */
#define TP_TOKEN          16
#define TP_HOST           0xffff  /* in place of a GPU number: host memory */
#define TP_MAX_STREAM     16      /* maximum plain sockets per path */
#define TP_RAW_MS         3600000 /* maximum ms of a plain-socket run */
#define TP_PIECE          1536    /* maximum bytes of the inventory in one reply */
#define TP_INVENTORY_MOST (256u << 10)

enum tp_type { TP_PREPARE = 1, TP_BEGIN, TP_END, TP_RAW, TP_RAW_END, TP_RELEASE, TP_FACTS, TP_INVENTORY, TP_TYPES };
enum tp_op { TP_WRITE = 1, TP_READ, TP_SEND, TP_PINGPONG, TP_VALIDATE, TP_OPS };
#define TP_NO_VERIFY 1u /* flag: neither fill nor check memory */
#define TP_HOT       2u /* flag: all slots share memory, so only the last iteration can be checked */
#define TP_CONTAINED 4u /* flag of FACTS: also report the NICs that containers have (`hawser sandbox`) */
enum tp_raw_kind { TP_RAW_UP = 1, TP_RAW_DOWN, TP_RAW_SPIN, TP_RAW_BLOCK, TP_RAW_KINDS };

#define TP_HASH 16

/* FACTS may request that the serving node connect from each of its NICs to the client's addresses in the same subnet,
 * and from a NIC without a subnet (/31, /32, /127, /128) to those that routes may reach (see reach_may()). The client's
 * listener answers with the complement of the token, so that another program on this port cannot pass as the client. */
struct tp_reach {
    uint16_t port; /* 1024 or above; 0 if there are no addresses */
    uint8_t token[TP_TOKEN];
    uint32_t n_addrs;
    struct tp_addr {
        uint16_t family;  /* 4 or 6 */
        uint8_t byte[16]; /* in network byte order; zeros follow an IPv4 address */
    } addr[TP_MAX_NICS];
};

struct tp_facts {
    char hawser[16];                  /* version of hawser */
    char kernel[48];                  /* uname -r, truncated */
    uint8_t boot[TP_HASH];            /* hash of the kernel's boot ID, equal on nodes that share a kernel */
    uint64_t wall_in_ns, wall_out_ns; /* the node's clock when the request arrived, and when the reply was sent */
    uint16_t gpus;                    /* number of CUDA GPUs, below TP_HOST */
    uint32_t n_nics; /* number of entries, one per address, without loopback; the names are valid NIC names */
    struct tp_fact_nic {
        char nic[HAWSER_NIC_NAME];
        struct tp_addr addr;
        uint16_t prefix;
        uint32_t mtu;      /* bytes; 0 if unknown */
        uint32_t speed;    /* Mbit/s; 0 if unknown */
        char rdma[32];     /* RDMA device that has a RoCE v2 GID for this address, empty if none */
        uint16_t gid;      /* index of that GID; 0 without an RDMA device */
        uint8_t contained; /* 1 if a container has the NIC; the address is then from before the move */
    } nic[TP_MAX_NICS];
    /* Results of the request; bit i is for addr[i] of the request. tried: a connection was attempted. reached: the
     * connection was established, and the listener's answer to the token arrived. */
    uint16_t tried[TP_MAX_NICS], reached[TP_MAX_NICS];
    /* carried: in addition, 128 KiB arrived from the listener, which sends them after it has received 128 KiB. */
    uint16_t carried[TP_MAX_NICS];
};

struct tp_request {
    enum tp_type type;
    uint32_t id;   /* repeated in the reply */
    enum tp_op op; /* for PREPARE */
    uint32_t flags;
    uint32_t slots, depth;
    uint64_t size, stride, seed; /* for PREPARE */
    uint64_t first; /* for BEGIN and END: first iteration; for INVENTORY: offset, 0 creates a new inventory */
    uint32_t count;
    uint16_t gpu; /* for PREPARE: GPU of the serving node, or TP_HOST for host memory */
    struct {
        enum tp_raw_kind kind;
        uint32_t streams;    /* plain sockets per path */
        uint32_t timeout_ms; /* for the whole run */
        uint64_t message;    /* bytes per send or receive call */
        uint64_t total;      /* total bytes, or 0 if duration_ms limits the run */
        uint64_t duration_ms;
        uint64_t warmup; /* bytes per socket; for pingpong: round trips */
        uint8_t token[TP_TOKEN];
        uint32_t n_addrs;
        char addr[TP_MAX_PATHS][HAWSER_ADDR_TEXT];
    } raw;                 /* for RAW; zero in other requests */
    struct tp_reach reach; /* for FACTS */
};

struct tp_nic {
    char nic[HAWSER_NIC_NAME];
    uint64_t tx_bytes, rx_bytes;                                /* payload, counted by hawser */
    uint64_t kernel_tx_bytes, kernel_rx_bytes;                  /* frames, counted by the kernel */
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes; /* from hawser_nic_stats() */
    uint64_t devmem_pkts;                                       /* the NIC's counter rx_devmem_pkts */
    uint8_t has_devmem_pkts;                                    /* 1 if the NIC has this counter */
    uint64_t devmem_before, devmem_after; /* in a difference of counters: the two readings; never sent */
};

struct tp_reply {
    enum tp_type type;
    uint32_t id;
    int32_t status;     /* 0, or a negative errno of the server */
    char text[TP_TEXT]; /* reason if status is not 0; after PREPARE the server's version */
    uint8_t key[HAWSER_KEY_SIZE];
    uint64_t bad, first_bad, checked; /* for END: numbers of bytes; first_bad is an offset in the region */
    uint64_t cpu_us;                  /* user and system time of the server's process so far */
    double raw_seconds, raw_cpu;
    uint64_t raw_bytes;
    uint16_t port[TP_MAX_PATHS];
    uint32_t n_nics;
    struct tp_nic nic[TP_MAX_NICS];
    struct tp_facts facts;   /* for FACTS */
    uint32_t whole, n_piece; /* for INVENTORY: bytes of the whole text, and bytes in piece */
    uint8_t piece[TP_PIECE];
};

/* Encode a message of exactly TP_REQUEST or TP_REPLY bytes. Return -EINVAL if a field is invalid. */
int tp_encode_request(const struct tp_request *r, uint8_t buf[TP_REQUEST]);
int tp_encode_reply(const struct tp_reply *r, uint8_t buf[TP_REPLY]);

/* Decode a message of len bytes. Return -EPROTO, with the reason in hw_error(), for an invalid message. */
int tp_decode_request(const uint8_t *buf, size_t len, struct tp_request *r);
int tp_decode_reply(const uint8_t *buf, size_t len, struct tp_reply *r);

/* Returns true if s is a valid name of a NIC or RDMA device (dev_valid_name() in net/core/dev.c) except for its length,
 * is printable ASCII, and has no comma. */
bool tp_name_ok(const char *s);

/* Returns the pattern's seed for one iteration of a run. */
uint64_t tp_seed(uint64_t run, uint64_t iteration);

#endif
