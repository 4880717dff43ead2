/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landings: the memory in which data that this side requested arrives. The peer names a landing by a number, so each
 * frame reserves its bytes before it may write: a landing that was given up, or has ended and is used again, refuses,
 * and frames never reserve more bytes than it has. A landing that is not given up ends when all its bytes have arrived;
 * then nothing else can write to its memory, whatever the peer sends.
 *
 * The table never frees memory while it exists, so that a number from the peer can be looked up without a lock.
 */
#ifndef HW_LANDING_H
#define HW_LANDING_H

#include "base/base.h"

#include <stdatomic.h>

#define HW_LANDING_FIRST  64 /* landings of the first block; each further block has as many as all before it */
#define HW_LANDING_BLOCKS 12
#define HW_LANDINGS       (HW_LANDING_FIRST << (HW_LANDING_BLOCKS - 1)) /* the table's most */

struct hw_landing {
    uint64_t id;             /* on the wire */
    void *op;                /* the owner's: the operation of the bytes */
    uint64_t from;           /* the owner's: where the landing begins in op */
    uint64_t bytes;          /* that it holds */
    void *request;           /* the owner's: the request for the bytes, until the peer has received it */
    struct hw_landing *next; /* the owner's list, and the free list */

    _Atomic uint64_t state; /* generation << 44 | bytes that are not reserved */
    _Atomic uint64_t left;  /* bytes that have not arrived */
};

struct hw_landings {
    _Atomic(struct hw_landing *) block[HW_LANDING_BLOCKS];
    uint32_t blocks;
    struct hw_landing *free;
};

/* The number of landings in the table, used or free. */
uint32_t hw_landings_count(const struct hw_landings *t);
/* Frees the table; no landing may be in use. */
void hw_landings_free(struct hw_landings *t);
/* Takes a landing of this many bytes, 1 to HW_MSG_LANDING_MAX - 1. Under the owner's lock. NULL: no memory, or all
 * landings are in use. */
struct hw_landing *hw_landing_take(struct hw_landings *t, void *op, uint64_t from, uint64_t bytes);
/* Returns it to the table. Under the owner's lock. */
void hw_landing_give(struct hw_landings *t, struct hw_landing *g);

/* Reserves n bytes, at least one, of the landing with this number. NULL: it was given up or has ended, or has less than
 * n bytes left. */
struct hw_landing *hw_landing_reserve(struct hw_landings *t, uint64_t id, uint64_t n);

/* Gives it up if no byte of it was ever reserved: true; the caller then returns it to the table. */
bool hw_landing_take_back(struct hw_landing *g);
/* True if it was not given up and has not ended. */
bool hw_landing_is_live(const struct hw_landing *g);
/* The live landing with this number, or NULL. Under the owner's lock. */
struct hw_landing *hw_landing_find(const struct hw_landings *t, uint64_t id);

enum hw_landing_end {
    HW_LANDING_GOES_ON,
    HW_LANDING_FULL, /* the caller ends the landing's operation, then returns the landing to the table */
    HW_LANDING_FREE, /* it was given up: the caller returns it to the table */
};
/* n reserved bytes have arrived. */
enum hw_landing_end hw_landing_arrived(struct hw_landing *g, uint64_t n);
/* n reserved bytes will not arrive with that frame. FREE or GOES_ON. */
enum hw_landing_end hw_landing_abandon(struct hw_landing *g, uint64_t n);
/* Gives it up: no byte can be reserved any more. GOES_ON: frames that have reserved bytes will end it. FULL: too late,
 * it is about to end as full. */
enum hw_landing_end hw_landing_give_up(struct hw_landing *g);

#endif
