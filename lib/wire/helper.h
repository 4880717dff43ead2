/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client and hawserd say to each other: requests and replies of one fixed size each, a packet of a UNIX
 * SOCK_SEQPACKET socket apiece, one request under way at a time. A descriptor that belongs to a request (the dma-buf of
 * a bind, the TCP socket of a steer) comes with it by SCM_RIGHTS. Integers are little-endian, fields that a type does
 * not use are zero, and a message that is anything else is refused whole. docs/hawserd.md draws them.
 */
#ifndef HW_WIRE_HELPER_H
#define HW_WIRE_HELPER_H

#include "wire/wire.h"

#define HW_HELPER_MAGIC    0x44485748u /* "HWHD" */
#define HW_HELPER_VERSION  1
#define HW_HELPER_REQUEST  40
#define HW_HELPER_REPLY    (104 + HW_ERR_TEXT)
#define HW_HELPER_QUEUES   16 /* of one binding, at most */
#define HW_HELPER_PAGE_MIN 4096u
#define HW_HELPER_PAGE_MAX (2u << 20) /* of GPUs' memory */
#define HW_HELPER_SOCKET   "/run/hawser/hawserd.sock"

enum hw_helper_type {
    HW_H_HELLO = 1, /* may I? The first request, and answered before anything else is looked at */
    HW_H_BIND_RX,   /* nic, count: a dma-buf to that many queues of the NIC; with one descriptor */
    HW_H_BIND_TX,   /* nic: a dma-buf to send from; with one descriptor */
    HW_H_STEER,     /* id: a binding; what arrives on this TCP connection goes to it; with one descriptor */
    HW_H_RELEASE,   /* id: a binding with its rules, or a rule */
    HW_H_COUNT
};

struct hw_helper_request {
    uint16_t type;             /* enum hw_helper_type */
    uint32_t seq;              /* comes back in the reply */
    uint32_t id;               /* STEER, RELEASE; never 0 there */
    uint32_t count;            /* BIND_RX: 1 to HW_HELPER_QUEUES */
    char nic[HAWSER_NIC_NAME]; /* BIND_*: printable, no '/' and no blank, NUL-padded */
    uint32_t page; /* BIND_RX: bytes of the pieces that the NIC is to fill, a power of two; 0: the kernel's page */
};

struct hw_helper_reply {
    uint16_t type;
    uint32_t seq;
    int32_t status;                    /* 0 or -errno, -1 to -4095; then text says why and nothing else is set */
    uint32_t id;                       /* BIND_*: the binding; STEER: the rule */
    uint32_t dmabuf_id;                /* BIND_*: the kernel's number for the bound dma-buf */
    uint32_t count;                    /* BIND_RX: queues; STEER: 1 */
    uint32_t queues[HW_HELPER_QUEUES]; /* BIND_RX; STEER: the queue that the connection goes to */
    uint32_t page;                     /* BIND_RX: bytes of the pieces as asked for; 0: the kernel's page */
    char text[HW_ERR_TEXT];            /* one line, NUL-padded */
};

/* A size of pieces: 0, or a power of two between the bounds. */
bool hw_helper_page(uint32_t page);
/* How many descriptors a request of the type carries: 0 or 1. */
unsigned hw_helper_fds(uint16_t type);

void hw_helper_request_encode(uint8_t out[HW_HELPER_REQUEST], const struct hw_helper_request *q);
/* -EPROTO; -EPROTONOSUPPORT for another version, where type and seq are set all the same. */
int hw_helper_request_decode(const uint8_t *in, size_t n, struct hw_helper_request *q);
void hw_helper_reply_encode(uint8_t out[HW_HELPER_REPLY], const struct hw_helper_reply *r);
int hw_helper_reply_decode(const uint8_t *in, size_t n, struct hw_helper_reply *r); /* -EPROTO, -EPROTONOSUPPORT */

#endif
