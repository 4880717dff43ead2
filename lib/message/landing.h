/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A landing is memory that receives data that this side requested. The peer addresses a landing by a number. Each frame
 * reserves its bytes before it may write. The reservation fails if the landing was given up or its number is stale, and
 * frames never reserve more bytes than the landing has. A landing that is not given up ends when all its bytes have
 * arrived. After that nothing can write to its memory, whatever the peer sends.
 *
 * The table never frees memory while it exists, so that a number from the peer can be looked up without a lock.
 */
#ifndef HW_LANDING_H
#define HW_LANDING_H

#include "base/base.h"

#include <stdatomic.h>

/* Number of landings in the first block; each further block has as many as all previous blocks together. */
#define HW_LANDING_FIRST  64
#define HW_LANDING_BLOCKS 12
#define HW_LANDINGS       (HW_LANDING_FIRST << (HW_LANDING_BLOCKS - 1)) /* maximum number of landings */

struct hw_landing {
    uint64_t id;             /* number on the wire */
    void *op;                /* used by the owner: the operation that the bytes belong to */
    uint64_t from;           /* used by the owner: offset of the landing in op */
    uint64_t bytes;          /* size of the landing */
    void *request;           /* used by the owner: the request for the bytes, until the peer has received it */
    struct hw_landing *next; /* used by the owner's list and by the free list */

    _Atomic uint64_t state; /* generation << 44 | bytes that are not reserved */
    _Atomic uint64_t left;  /* bytes that have not arrived; once given up, only the reserved bytes */
};

struct hw_landings {
    _Atomic(struct hw_landing *) block[HW_LANDING_BLOCKS];
    uint32_t blocks;
    struct hw_landing *free;
};

/* Returns the number of landings in the table, used or free. */
uint32_t hw_landings_count(const struct hw_landings *t);
/* Frees the table. No landing may be in use. */
void hw_landings_free(struct hw_landings *t);
/* Takes a landing of 1 to HW_MSG_LANDING_MAX - 1 bytes. Returns NULL if out of memory or if all landings are in use.
 * Called with the owner's lock held. */
struct hw_landing *hw_landing_take(struct hw_landings *t, void *op, uint64_t from, uint64_t bytes);
/* Returns a landing to the table. Called with the owner's lock held. */
void hw_landing_give(struct hw_landings *t, struct hw_landing *g);

/* Reserves n bytes (at least one) of the landing with this number. Returns NULL if no live landing has this number, or
 * if fewer than n of its bytes are not reserved. */
struct hw_landing *hw_landing_reserve(struct hw_landings *t, uint64_t id, uint64_t n);

/* Gives up a landing if none of its bytes is reserved or has arrived. Returns true on success; the caller then returns
 * the landing to the table. */
bool hw_landing_take_back(struct hw_landing *g);
/* Returns true if the landing was not given up and has not ended. */
bool hw_landing_is_live(const struct hw_landing *g);
/* Returns the live landing with this number, or NULL. Called with the owner's lock held. */
struct hw_landing *hw_landing_find(const struct hw_landings *t, uint64_t id);

enum hw_landing_end {
    HW_LANDING_GOES_ON,
    HW_LANDING_FULL, /* all bytes have arrived; the caller of hw_landing_arrived() returns the landing to the table */
    HW_LANDING_FREE, /* the landing was given up, and the caller returns it to the table */
};
/* Reports that n reserved bytes have arrived. */
enum hw_landing_end hw_landing_arrived(struct hw_landing *g, uint64_t n);
/* Reports that n reserved bytes will not arrive in this frame. Returns HW_LANDING_FREE or HW_LANDING_GOES_ON. */
enum hw_landing_end hw_landing_abandon(struct hw_landing *g, uint64_t n);
/* Gives up a landing, so that no more bytes can be reserved. Returns HW_LANDING_GOES_ON if frames that have reserved
 * bytes will end it, HW_LANDING_FULL if it is about to end anyway, and otherwise HW_LANDING_FREE. */
enum hw_landing_end hw_landing_give_up(struct hw_landing *g);

#endif
