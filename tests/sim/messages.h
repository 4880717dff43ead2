/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes with a message layer each. Shared by the application, the checks, and the schedule. */
#ifndef HW_SIM_MESSAGES_H
#define HW_SIM_MESSAGES_H

#include "bounds.h"

#define OPS     24 /* per side */
#define REGIONS 12
#define REGION  (48u << 10)
#define LENGTH  (20u << 10)
#define SPANS   300
#define POISON  WORLD_POISON /* what the application writes to its own memory: no transferred byte has this value */
#define AFTER   0x3c         /* what it writes instead to an operation's local memory, except a write's */
#define STEPS   250000
#define DRAIN   60000

struct node;

struct region {
    struct hw_export x;
    struct node *node;
    uint32_t serial, used; /* used: bytes; each operation has its own range */
    bool revoking, revoked;
    uint8_t mem[REGION], first[REGION]; /* now, and initially */
};

/* The part of an operation that is in one region. */
struct part {
    struct region *region; /* a region of the other node */
    struct hw_import *import;
    uint32_t at;
};

struct action {
    struct node *node;
    struct hw_op *op;
    struct part part[2]; /* spans alternate between them */
    uint32_t parts;
    enum hw_op_kind kind;
    uint32_t serial, len;
    bool posted, over, off, late, noted, heard;
    bool said;       /* BYE: it was given to the session */
    uint32_t number; /* BYE: sequence number of its control message .. */
    uint32_t told;   /* .. and the notifications, as bits, that had succeeded before */
    struct bounds_op watch;
    bool orphaned;                       /* the peer was dead when it ended */
    bool missed;                         /* a write: a region was given back before all its bytes had arrived */
    bool deserted;                       /* it ended before the peer had reported its result */
    uint32_t behind;                     /* bits of the operations that were deserted when it was posted */
    bool revoked_then;                   /* a region of its bytes was already revoked when it was posted */
    int wrong, result;                   /* the error that it must end with, 0: none; its result */
    uint8_t of[LENGTH];                  /* each byte's index in part */
    uint8_t local[LENGTH], left[LENGTH]; /* left: the bytes at its target when it ended */
};

struct node {
    struct world *w;
    struct node *other;
    int side;
    bool freed;     /* the peer was freed */
    bool impatient; /* the peer has no more time to answer than the product gives it */
    bool overdue;   /* a cancelled operation had no answer in time */
    struct hw_domain domain;
    struct hw_peer peer;
    struct region *region[REGIONS];
    struct action action[OPS];
    uint32_t n, posted, regions, last_note, byes;
    struct hw_note *notes;              /* not yet taken */
    uint32_t held_notes, held_requests; /* bytes and requests that took room before the simulation began */
};

/* ---- the application (messages_script.c) ------------------------------------------------------------ */

/* Posts the node's next operation. */
void msg_post_op(struct node *n);
/* Cancel a random operation; all operations. */
void msg_cancel_op(struct node *n);
void msg_cancel_all(struct node *n);
/* Revokes a random region. */
void msg_revoke_region(struct node *n);
/* Gives back the handles of operations that have ended: of all, or of a random half. */
void msg_forget_ops(struct node *n, bool all);
/* Sometimes posts or cancels an operation, as an application may in a callback. */
void msg_do_more(struct node *n);

/* checks (messages_oracle.c) */

uint8_t msg_make_byte(int side, uint32_t serial, uint32_t at);
/* Checks that no lock is held, because the layer above may call any function from its callbacks. */
void msg_check_unlocked(struct node *n);
/* Returns the place of byte `at` of the operation in the other node's region. */
uint8_t *msg_find_target(const struct action *a, uint32_t at);
/* A region is about to be returned to the application: incomplete writes to it can only fail from now on. */
void msg_note_missing(const struct region *r);
/* Checks the end of an operation, with a->result. */
void msg_check_end(struct action *a);
/* Checks the failure of an operation: it must have the expected error, or one explained by what happened to it. */
void msg_check_failure(const struct action *a);
/* Checks the notification of a, of the other node, that arrives at n. */
void msg_check_note(struct node *n, struct action *a, const struct hw_note *note);
/* Checks that the other node may announce its close now. */
void msg_check_bye(struct node *n);
/* Returns true for an operation whose caller was told that it is over before the peer has said so. */
bool msg_is_deserted(const struct action *a);
/* Checks that no write begins while frames of one that was given up before may arrive. */
void msg_check_order(const struct node *n);
/* Checks that memory of finished operations, and regions, are as they were left. */
void msg_check_node(const struct node *n);
/* Returns true once the node has posted all operations, and all have ended. */
bool msg_has_ended(const struct node *n);
/* Returns what is still in flight for node, or NULL. */
const char *msg_find_unsettled(const struct node *n);

#endif
