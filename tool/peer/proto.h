/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hawser bench` and `hawser validate` say to `hawser serve`, over hawser's own send and receive: fixed-size
 * little-endian requests, each answered by one fixed-size reply. Pure encode and decode; decode trusts nothing.
 *
 *   PREPARE  have memory of `gpu` for op: `slots` slots of `stride` bytes       -> key of the region (write, read)
 *   BEGIN    iterations [first, first+count) come next: fill (read) or post
 *            receives (send, pingpong); sample the clocks last                 -> counters
 *   END      of them the first `count` are done: sample the clocks first, then
 *            check what arrived                                                -> counters, bad bytes
 *   RAW      start a plain-socket server for `raw`                             -> ports
 *   RAW_END  wait for it                                                       -> bytes, seconds, CPU
 *   RELEASE  free the memory                                                   -> empty
 *   FACTS    what are you, and which of these addresses do your NICs reach?    -> facts
 *   INVENTORY  what `hawser fieldtest` notes of a node, from byte `first` on   -> a piece of text
 *
 * Iteration i lives in slot i % slots and holds the pattern of tp_seed(seed, i).
 */
#ifndef HW_TOOL_PROTO_H
#define HW_TOOL_PROTO_H

#include "base/base.h"

#define TP_VERSION        4
#define TP_MAX_SLOTS      65536
#define TP_MAX_DEPTH      4096
#define TP_MAX_NICS       16 /* counters of so many NICs fit in a reply */
#define TP_MAX_PATHS      16 /* plain-socket paths in one request */
#define TP_TEXT           224
#define TP_REQUEST        1024 /* bytes of every request on the wire */
#define TP_REPLY          2048 /* bytes of every reply on the wire */
#define TP_TOKEN          16
#define TP_HOST           0xffff  /* instead of a GPU: the host's memory */
#define TP_MAX_STREAM     16      /* plain streams per path */
#define TP_RAW_MS         3600000 /* longest plain run */
#define TP_PIECE          1536    /* most bytes of the inventory in a reply */
#define TP_INVENTORY_MOST (256u << 10)

enum tp_type { TP_PREPARE = 1, TP_BEGIN, TP_END, TP_RAW, TP_RAW_END, TP_RELEASE, TP_FACTS, TP_INVENTORY, TP_TYPES };
enum tp_op { TP_WRITE = 1, TP_READ, TP_SEND, TP_PINGPONG, TP_VALIDATE, TP_OPS };
#define TP_NO_VERIFY 1u /* flags: neither fill nor check */
#define TP_HOT       2u /* flags: all slots share memory; only the last iteration can be checked */
#define TP_CONTAINED 4u /* the only flag of FACTS: also report the NICs that containers have (`hawser sandbox`) */
enum tp_raw_kind { TP_RAW_UP = 1, TP_RAW_DOWN, TP_RAW_SPIN, TP_RAW_BLOCK, TP_RAW_KINDS };

#define TP_HASH 16

/* FACTS may ask the serving node to connect from each of its NICs to the asking node's addresses in the same subnet,
 * and from a NIC without a subnet (/31, /32) to all of them. The listener there presents the token, so that a foreign
 * port answers nothing. */
struct tp_reach {
    uint16_t port; /* 1024 or above; 0 with no addresses */
    uint8_t token[TP_TOKEN];
    uint32_t n_addrs;
    struct tp_addr {
        uint16_t family;  /* 4 or 6 */
        uint8_t byte[16]; /* in network order; zeros after an IPv4 address */
    } addr[TP_MAX_NICS];
};

struct tp_facts {
    char hawser[16];                  /* its version */
    char kernel[48];                  /* uname -r, cut */
    uint8_t boot[TP_HASH];            /* hash of the kernel's boot id: equal on nodes that share a kernel */
    uint64_t wall_in_ns, wall_out_ns; /* its clock when the request arrived, and when the reply was sent */
    uint16_t gpus;                    /* number of CUDA GPUs; below TP_HOST */
    uint32_t n_nics;                  /* one entry per address; without loopback; names valid for the kernel */
    struct tp_fact_nic {
        char nic[HAWSER_NIC_NAME];
        struct tp_addr addr;
        uint16_t prefix;
        uint32_t mtu;      /* bytes; 0: unknown */
        uint32_t speed;    /* Mbit/s; 0: unknown */
        char rdma[32];     /* the RDMA device with a RoCE v2 GID of this address; "": none */
        uint16_t gid;      /* that GID's index; 0 without rdma */
        uint8_t contained; /* 1: a container has the NIC; the address is from before the move */
    } nic[TP_MAX_NICS];
    /* results of the request; bit i: addr[i] of the request */
    uint16_t tried[TP_MAX_NICS], reached[TP_MAX_NICS]; /* reached: connected, and the token was presented */
    /* and a hundred full-sized segments arrived in both directions */
    uint16_t carried[TP_MAX_NICS];
};

struct tp_request {
    enum tp_type type;
    uint32_t id;   /* echoed in the reply */
    enum tp_op op; /* PREPARE */
    uint32_t flags;
    uint32_t slots, depth;
    uint64_t size, stride, seed; /* PREPARE */
    uint64_t first;              /* BEGIN, END; INVENTORY: offset, 0 makes a new one */
    uint32_t count;
    uint16_t gpu; /* PREPARE: GPU of the serving node for the memory; TP_HOST: host memory */
    struct {
        enum tp_raw_kind kind;
        uint32_t streams;     /* per path */
        uint32_t timeout_ms;  /* of the whole run */
        uint64_t message;     /* bytes per call */
        uint64_t total;       /* bytes; 0: by duration_ms */
        uint64_t duration_ms; /* */
        uint64_t warmup;      /* bytes per stream; pingpong: round trips */
        uint8_t token[TP_TOKEN];
        uint32_t n_addrs;
        char addr[TP_MAX_PATHS][HAWSER_ADDR_TEXT];
    } raw;                 /* RAW; zero in others */
    struct tp_reach reach; /* FACTS */
};

struct tp_nic {
    char nic[HAWSER_NIC_NAME];
    uint64_t tx_bytes, rx_bytes;                                /* ours: payload */
    uint64_t kernel_tx_bytes, kernel_rx_bytes;                  /* the kernel's: frames */
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes; /* hawser_nic_stats */
    uint64_t devmem_pkts;                                       /* the NIC's rx_devmem_pkts */
    uint8_t has_devmem_pkts;                                    /* 1: the NIC counts them */
    uint64_t devmem_before, devmem_after;                       /* in a difference: its two ends; never sent */
};

struct tp_reply {
    enum tp_type type;
    uint32_t id;
    int32_t status;     /* 0 or -errno of the server's side */
    char text[TP_TEXT]; /* reason if status is not 0; after PREPARE the server's version */
    uint8_t key[HAWSER_KEY_SIZE];
    uint64_t bad, first_bad, checked; /* END: bytes; first_bad is relative to the region */
    uint64_t cpu_us;                  /* user + system time of the server's process so far */
    double raw_seconds, raw_cpu;
    uint64_t raw_bytes;
    uint16_t port[TP_MAX_PATHS];
    uint32_t n_nics;
    struct tp_nic nic[TP_MAX_NICS];
    struct tp_facts facts;   /* FACTS */
    uint32_t whole, n_piece; /* INVENTORY: bytes of the text, and of them in piece */
    uint8_t piece[TP_PIECE];
};

/* Write exactly TP_REQUEST or TP_REPLY bytes. Values outside the bounds of decode are a bug of the caller: -EINVAL. */
int tp_encode_request(const struct tp_request *r, uint8_t buf[TP_REQUEST]);
int tp_encode_reply(const struct tp_reply *r, uint8_t buf[TP_REPLY]);

/* Read a message of len bytes. -EPROTO with hw_error() for a wrong length, magic, version, type or op, an unknown flag,
 * a count or size beyond the bounds above, unterminated text, or nonzero padding. */
int tp_decode_request(const uint8_t *buf, size_t len, struct tp_request *r);
int tp_decode_reply(const uint8_t *buf, size_t len, struct tp_reply *r);

/* Returns true if s is a valid name for a NIC or RDMA device (dev_valid_name() in net/core/dev.c), printable, and one
 * name in a comma-separated list. */
bool tp_name_ok(const char *s);

/* Returns the pattern's seed for one iteration of a run. */
uint64_t tp_seed(uint64_t run, uint64_t iteration);

#endif
