/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between a client and hawserd. Requests and replies have one fixed size each. Each message is one packet
 * of a UNIX SOCK_SEQPACKET socket, and a client has one request in progress at a time. The descriptor that a request
 * needs (the dma-buf of a bind, the TCP socket of a steer) is passed with the request by SCM_RIGHTS. Integers are
 * little-endian, and fields that a type does not use are zero; messages that break these rules are rejected.
 * docs/hawserd.md shows the layout.
 */
#ifndef HW_WIRE_HELPER_H
#define HW_WIRE_HELPER_H

#include "wire/wire.h"

#define HW_HELPER_MAGIC    0x44485748u /* "HWHD" */
#define HW_HELPER_VERSION  1
#define HW_HELPER_REQUEST  40
#define HW_HELPER_REPLY    (104 + HW_ERR_TEXT)
#define HW_HELPER_QUEUES   16 /* maximum number of queues of one binding */
#define HW_HELPER_PAGE_MIN 4096u
#define HW_HELPER_PAGE_MAX (2u << 20) /* page size of GPU memory */
#define HW_HELPER_SOCKET   "/run/hawser/hawserd.sock"

enum hw_helper_type {
    HW_H_HELLO = 1, /* must be the first request; asks for permission to send other requests */
    HW_H_BIND_RX,   /* nic, count, page: binds a dma-buf to count receive queues of the NIC; carries one descriptor */
    HW_H_BIND_TX,   /* nic: binds a dma-buf for sending; carries one descriptor */
    HW_H_STEER,     /* id of a binding: steers a TCP connection to the binding; carries one descriptor */
    HW_H_RELEASE,   /* id: releases a binding with its rules, or a single rule */
    HW_H_COUNT
};

struct hw_helper_request {
    uint16_t type;             /* enum hw_helper_type */
    uint32_t seq;              /* repeated in the reply */
    uint32_t id;               /* STEER, RELEASE: never 0 */
    uint32_t count;            /* BIND_RX: 1 to HW_HELPER_QUEUES */
    char nic[HAWSER_NIC_NAME]; /* BIND_*: printable, without '/', ':' and blanks, NUL-padded */
    /* BIND_RX: size of each buffer that the NIC fills, a power of two, or 0 for the kernel's page size */
    uint32_t page;
};

struct hw_helper_reply {
    uint16_t type;
    uint32_t seq;
    int32_t status; /* 0 or a negative errno from -1 to -4095; after an error, text contains the reason, and id to page
                       are 0 */
    uint32_t id;    /* BIND_*: number of the binding; STEER: number of the rule */
    uint32_t dmabuf_id;                /* BIND_*: the kernel's ID of the bound dma-buf */
    uint32_t count;                    /* BIND_RX: number of queues; STEER: 1 */
    uint32_t queues[HW_HELPER_QUEUES]; /* BIND_RX: the queues; STEER: the queue that receives the connection */
    uint32_t page;                     /* BIND_RX: size of each buffer, as requested, or 0 for the kernel's page size */
    char text[HW_ERR_TEXT];            /* one line, NUL-padded */
};

/* Returns true if page is a valid buffer size: 0, or a power of two between the bounds. */
bool hw_helper_page(uint32_t page);
/* Returns how many descriptors a request of the type carries: 0 or 1. */
unsigned hw_helper_fds(uint16_t type);

void hw_helper_request_encode(uint8_t out[HW_HELPER_REQUEST], const struct hw_helper_request *q);
/* Fails with -EPROTO, or with -EPROTONOSUPPORT for another version; type and seq are set in the second case. */
int hw_helper_request_decode(const uint8_t *in, size_t n, struct hw_helper_request *q);
void hw_helper_reply_encode(uint8_t out[HW_HELPER_REPLY], const struct hw_helper_reply *r);
int hw_helper_reply_decode(const uint8_t *in, size_t n,
                           struct hw_helper_reply *r); /* fails with -EPROTO or -EPROTONOSUPPORT */

#endif
