/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landings: where bytes that this side asked for arrive. The peer names a landing by a number, so each frame reserves
 * its bytes before it may write: a landing that was given up, or has ended and is used again, refuses, and no more
 * bytes are ever reserved than it holds. A landing that is not given up ends when all its bytes have arrived; nothing
 * else can write to its memory then, whatever the peer sends.
 *
 * The table never gives memory back while it lives, so that a number of the peer's can be looked up without a lock.
 */
#ifndef HW_LANDING_H
#define HW_LANDING_H

#include "base/base.h"

#include <stdatomic.h>

#define HW_LANDING_FIRST  64 /* landings of the first block; each further one has as many as all before it */
#define HW_LANDING_BLOCKS 12
#define HW_LANDINGS       (HW_LANDING_FIRST << (HW_LANDING_BLOCKS - 1)) /* the table's most */

struct hw_landing {
    uint64_t id;             /* on the wire */
    void *op;                /* the owner's: what the bytes belong to */
    uint64_t from;           /* the owner's: where the landing begins in op */
    uint64_t bytes;          /* that it holds */
    void *request;           /* the owner's: what asks the peer for the bytes, until the peer has it */
    struct hw_landing *next; /* the owner's list, and the free list */

    _Atomic uint64_t state; /* generation << 44 | bytes that are not reserved */
    _Atomic uint64_t left;  /* bytes that have not arrived */
};

struct hw_landings {
    _Atomic(struct hw_landing *) block[HW_LANDING_BLOCKS];
    uint32_t blocks;
    struct hw_landing *free;
};

/* How many the table has, used or free. */
uint32_t hw_landings_count(const struct hw_landings *t);
/* Frees the table: no landing is used any more. */
void hw_landings_free(struct hw_landings *t);
/* Takes a landing of this many bytes, 1 to HW_MSG_LANDING_MAX - 1. Under the owner's lock. NULL: no memory, or all are
 * taken. */
struct hw_landing *hw_landing_take(struct hw_landings *t, void *op, uint64_t from, uint64_t bytes);
/* Gives it back. Under the owner's lock. */
void hw_landing_give(struct hw_landings *t, struct hw_landing *g);

/* Reserves n bytes, at least one, of the landing with this number. NULL: it was given up or has ended, or so many are
 * not left. */
struct hw_landing *hw_landing_reserve(struct hw_landings *t, uint64_t id, uint64_t n);

/* Gives it up if nothing of it was ever reserved: then it is free, and the caller gives it back. */
bool hw_landing_take_back(struct hw_landing *g);
/* True where it was not given up, and has not ended. */
bool hw_landing_is_live(const struct hw_landing *g);
/* The live landing with this number, or NULL. Under the owner's lock. */
struct hw_landing *hw_landing_find(const struct hw_landings *t, uint64_t id);

enum hw_landing_end {
    HW_LANDING_GOES_ON,
    HW_LANDING_FULL, /* the caller ends the landing's operation, then gives it back */
    HW_LANDING_FREE, /* it was given up: the caller gives it back */
};
/* n reserved bytes have arrived. */
enum hw_landing_end hw_landing_arrived(struct hw_landing *g, uint64_t n);
/* n reserved bytes will not arrive by that frame. FREE or GOES_ON. */
enum hw_landing_end hw_landing_abandon(struct hw_landing *g, uint64_t n);
/* Gives it up: no byte is reserved any more. GOES_ON: the frames that have reserved some end it. FULL: too late, it is
 * about to end as full. */
enum hw_landing_end hw_landing_give_up(struct hw_landing *g);

#endif
