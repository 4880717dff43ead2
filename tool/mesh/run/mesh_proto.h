/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the ranks of `hawser mesh` and their lead. They are notifications on hawser's own connections, on
 * which both sides have proved that they know the key, if there is one. Encoding and decoding do no I/O; decoding does
 * not trust its input.
 *
 *   HELLO   rank to lead: its rank, the address of its service, its NICs
 *   ORDER   lead to rank: measure with one rank, or with several at once
 *   ANSWER  rank to lead: the result of an order
 *   BYE     lead to rank: the rank is no longer needed
 *   FINAL   rank to lead: the errors that its NICs counted since HELLO; the rank then exits
 */
#ifndef HW_MESH_PROTO_H
#define HW_MESH_PROTO_H

#include "tool/launch/launch_env.h"
#include "tool/peer/proto.h"

#define MESH_VERSION 1
#define MESH_MESSAGE 4096 /* maximum bytes of a message */
#define MESH_RANKS   LAUNCH_RANKS
#define MESH_NAME    LAUNCH_NAME
#define MESH_TARGETS 16     /* maximum number of ranks that one order measures with */
#define MESH_LONGEST 600000 /* maximum duration_ms and warmup_ms of an order */
#define MESH_PINGS   1000000

enum mesh_type { MESH_HELLO = 1, MESH_ORDER, MESH_ANSWER, MESH_BYE, MESH_FINAL, MESH_TYPES };

enum mesh_what {
    MESH_LATENCY = 1, /* 8 bytes each way, one at a time */
    MESH_ONE_WAY,     /* to the target, then back */
    MESH_BOTH_WAYS,   /* to the target and back at once */
    MESH_RAILS,       /* to the target, then back, over each pair of NICs alone */
    MESH_ALL_TO_ALL,  /* to all targets at once */
    MESH_WHATS
};

struct mesh_nic_facts {
    char name[HAWSER_NIC_NAME];
    uint32_t speed, mtu;           /* Mbit/s, bytes; 0 if unknown */
    uint64_t rx_errors, tx_errors; /* in FINAL, those since HELLO */
};

struct mesh_hello {
    uint32_t rank, size;
    char name[MESH_NAME], rack[MESH_NAME]; /* rack is "" if unknown */
    char version[16];
    uint8_t boot[TP_HASH];       /* the same on ranks that share a kernel */
    uint64_t netns;              /* the same on ranks that also share a network namespace */
    char addr[HAWSER_ADDR_TEXT]; /* local address of the rank's connection to the lead, without a port */
    uint16_t port;               /* port of the rank's service */
    uint32_t n_nics;
    struct mesh_nic_facts nic[TP_MAX_NICS];
};

struct mesh_target {
    char addr[HAWSER_ADDR_TEXT];
    uint16_t port;
};

struct mesh_order {
    uint32_t seq; /* echoed in the answer */
    enum mesh_what what;
    uint64_t size; /* bytes of a transfer */
    uint32_t depth;
    uint32_t duration_ms, warmup_ms; /* each way */
    uint32_t pings;                  /* number of round trips of LATENCY */
    uint16_t gpu;                    /* GPU whose memory both sides use, or TP_HOST for host memory */
    uint32_t n_targets;
    struct mesh_target target[MESH_TARGETS];
};

struct mesh_answer {
    uint32_t seq;
    int32_t status; /* 0 or -errno */
    char text[TP_TEXT];
    double out_GBps, in_GBps; /* 0 if not measured */
    double low_us, p50_us;    /* LATENCY: 10th percentile and median of half a round trip */
    uint64_t bad, checked;    /* wrong bytes; checked bytes */
    uint32_t n_nics;
    struct mesh_share {
        char nic[HAWSER_NIC_NAME], peer_nic[HAWSER_NIC_NAME];
        double out_GBps, in_GBps;
    } nic[TP_MAX_NICS];
};

struct mesh_message {
    enum mesh_type type;
    struct mesh_hello hello; /* for HELLO; FINAL uses only the NICs */
    struct mesh_order order;
    struct mesh_answer answer;
};

/* Writes the message to buf. Returns its length, or -EINVAL if the message is invalid. */
int mesh_encode(const struct mesh_message *m, uint8_t buf[MESH_MESSAGE]);
/* Decodes a message of len bytes. Fails with -EPROTO if the message is invalid. */
int mesh_decode(const uint8_t *buf, size_t len, struct mesh_message *m);

#endif
