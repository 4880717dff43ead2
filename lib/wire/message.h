/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extensions of the message layer's frames (lib/message/peer.h). The extensions precede the payload and define its
 * meaning. Integers are little-endian.
 *
 *   CONTROL  u32 sequence, u32 kind, u64 a, u64 b, u64 c, u64 d      payload: only NOTE and EAGER
 *   WRITE    u64 operation, u32 flags, u32 descriptors; for each: u32 handle, u32 bytes, u64 offset
 *   READ     u64 landing, u32 flags, u32 descriptors; as in WRITE
 *   DATA     u64 landing, u64 offset in the message, u64 bytes of the whole message, u64 rest: bytes of the landing
 *            that this frame covers beyond its payload
 *   NOTED    u64 operation, u64 bytes that the operation writes      payload: the notification
 *   TAKEN    u32 sequence number of the next control message to be read, u32 0, u64 bytes of notifications that the
 *            application has taken so far
 */
#ifndef HW_WIRE_MESSAGE_H
#define HW_WIRE_MESSAGE_H

#include "base/base.h"
#include "wire/link.h"

enum hw_message_type { HW_MSG_CONTROL = 1, HW_MSG_WRITE, HW_MSG_READ, HW_MSG_DATA, HW_MSG_NOTED, HW_MSG_TAKEN };

/* Kinds of control messages, and the meaning of the fields a, b, c and d. Errors are positive Linux errno values below
 * HW_MSG_ERRNO_MAX. */
enum hw_control_kind {
    HW_CONTROL_IMPORT = 1, /* requests access to a region. a: region; b to d: proof (24 bytes) */
    HW_CONTROL_HANDLE,     /* a: region; b: handle; c: error or 0; d: bytes << 3 | HW_REGION_STAGED | rights */
    HW_CONTROL_FAIL,       /* data was not written. a: operation; b: error */
    HW_CONTROL_UNREAD,     /* data will not arrive. a: landing; b: error */
    HW_CONTROL_STOP,       /* the reader no longer wants the data. a: landing */
    HW_CONTROL_STOPPED,    /* answers every STOP. a: landing */
    HW_CONTROL_NOTE,       /* delivers a notification, which is the payload */
    HW_CONTROL_UNNOTE,     /* cancels a notification. a: operation */
    HW_CONTROL_REVOKED,    /* a region for which the peer has a handle was revoked. a: region */
    HW_CONTROL_GRANT,      /* a receive was posted. a: landing of b + 1 bytes; b: capacity in bytes; c: queue */
    HW_CONTROL_WITHDRAW,   /* a receive was cancelled. a: landing or HW_MSG_NO_LANDING; c: queue */
    HW_CONTROL_EAGER, /* delivers a message, which is the payload. a: operation; b: see lib/message/queue.h; c: queue */
    HW_CONTROL_MATCHED, /* answers EAGER. a: operation; b: bytes << 32 | error or 0; c: queue; d: landing or
                           HW_MSG_NO_LANDING */
    HW_CONTROL_UNSEND,  /* the message is cancelled and must not be received. a: operation; c: queue */
    HW_CONTROL_BYE,     /* the sender is closing */
    HW_CONTROL_CLOSE,   /* the sender no longer sends or receives on a stream. a: stream */
    HW_CONTROL_KINDS
};

#define HW_MSG_ERRNO_MAX   4096
#define HW_CONTROL_SIZE    40
#define HW_MSG_VECS_HEAD   16
#define HW_MSG_VEC_SIZE    16
#define HW_MSG_DATA_SIZE   32
#define HW_MSG_NOTED_SIZE  16
#define HW_MSG_TAKEN_SIZE  16
#define HW_MSG_VECS_MAX    255 /* maximum number of descriptors in a frame */
#define HW_IMPORT_PROOF    24
#define HW_MSG_COUNTED     1u /* WRITE: the operation also sends a NOTED frame */
#define HW_MSG_STAGED      2u /* READ: a CPU cannot access some of the memory, so long payloads are better */
#define HW_REGION_STAGED   4u /* set with a region's rights if the CPU cannot access the region's memory */
#define HW_MSG_LANDING_MAX (1ull << 44)
#define HW_MSG_NO_LANDING  UINT64_MAX
#define HW_MSG_EAGER_MAX   8192u /* maximum bytes of an eager message, which the receiver has not requested */

struct hw_control_head {
    uint32_t sequence;
    uint32_t kind;
    uint64_t a, b, c, d;
};

struct hw_msg_vec {
    uint32_t handle;
    uint32_t len;
    uint64_t offset;
};

struct hw_data_head {
    uint64_t landing, offset, total, rest;
};

void hw_control_encode(uint8_t out[HW_CONTROL_SIZE], const struct hw_control_head *h);
/* Fails with -EPROTO for a wrong size, an unknown kind, or an invalid error, handle or length. */
int hw_control_decode(const uint8_t *in, uint32_t size, struct hw_control_head *h);

/* Encode the header of a list of n descriptors, and the k-th descriptor. */
void hw_msg_vecs_encode(uint8_t *out, uint64_t id, uint32_t flags, uint32_t n);
void hw_msg_vec_encode(uint8_t *out, uint32_t k, const struct hw_msg_vec *v);
/* Fails with -EPROTO if the size does not match the count, for too many descriptors, and for unknown flags. */
int hw_msg_vecs_decode(const uint8_t *in, uint32_t size, uint64_t *id, uint32_t *flags, uint32_t *n);
struct hw_msg_vec hw_msg_vec_decode(const uint8_t *in, uint32_t k);

void hw_data_encode(uint8_t out[HW_MSG_DATA_SIZE], const struct hw_data_head *h);
/* pay is the payload size in bytes. Fails with -EPROTO for a wrong size, for an empty payload although the message is
 * not empty, for a frame that covers no part of the landing, for bytes outside the message, and for a message or rest
 * that is too large. */
int hw_data_decode(const uint8_t *in, uint32_t size, uint32_t pay, struct hw_data_head *h);

void hw_noted_encode(uint8_t out[HW_MSG_NOTED_SIZE], uint64_t op, uint64_t total);
/* Fails with -EPROTO for a wrong size or a total above HW_MSG_LANDING_MAX. */
int hw_noted_decode(const uint8_t *in, uint32_t size, uint64_t *op, uint64_t *total);

void hw_taken_encode(uint8_t out[HW_MSG_TAKEN_SIZE], uint32_t sequence, uint64_t notes);
/* Fails with -EPROTO for a wrong size. */
int hw_taken_decode(const uint8_t *in, uint32_t size, uint32_t *sequence, uint64_t *notes);

#endif
