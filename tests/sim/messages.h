/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes with a message layer each: what the application does, what is checked, and the schedule share this. */
#ifndef HW_SIM_MESSAGES_H
#define HW_SIM_MESSAGES_H

#include "bounds.h"

#define OPS     24 /* of each side */
#define REGIONS 12
#define REGION  (48u << 10)
#define LENGTH  (20u << 10)
#define SPANS   300
#define POISON  WORLD_POISON /* what the application leaves where it may: no byte that is moved has this value */
#define AFTER   0x3c         /* likewise, of its own memory */
#define STEPS   250000
#define DRAIN   60000

struct node;

struct region {
    struct hw_export x;
    struct node *node;
    uint32_t serial, used; /* each operation has a range of its own */
    bool revoking, revoked;
    uint8_t mem[REGION], first[REGION]; /* now, and at first */
};

/* What an operation touches in one region. */
struct part {
    struct region *region; /* of the other node */
    struct hw_import *import;
    uint32_t at;
};

struct action {
    struct node *node;
    struct hw_op *op;
    struct part part[2]; /* spans are in them in turn */
    uint32_t parts;
    enum hw_op_kind kind;
    uint32_t serial, len;
    bool posted, over, off, late, noted, heard;
    bool said;       /* BYE: it was given to the session */
    uint32_t number; /* BYE: sequence of its control message .. */
    uint32_t told;   /* .. and the notifications, as bits, that had ended well before */
    struct bounds_op watch;
    bool orphaned;                       /* the peer was dead when it ended */
    bool missed;                         /* a write: a region was given back before all its bytes were there */
    bool deserted;                       /* a write: it ended before the peer had said what became of it */
    uint32_t behind;                     /* a write: those, as bits, that had ended so when it was posted */
    bool revoked_then;                   /* a region of its bytes was taken back when it was posted */
    int wrong, result;                   /* the error that it must end with, 0: none; how it ended */
    uint8_t of[LENGTH];                  /* the part that each byte is in */
    uint8_t local[LENGTH], left[LENGTH]; /* left: what a write had left at its target */
};

struct node {
    struct world *w;
    struct node *other;
    int side;
    bool freed;     /* the peer was */
    bool impatient; /* the peer has no more time to answer than the product gives it */
    bool overdue;   /* an operation that was called off had no answer in time */
    struct hw_domain domain;
    struct hw_peer peer;
    struct region *region[REGIONS];
    struct action action[OPS];
    uint32_t n, posted, regions, last_note, byes;
    struct hw_note *notes;              /* not taken yet */
    uint32_t held_notes, held_requests; /* bytes, and requests, that took room before the simulation began */
};

/* ---- the application (messages_script.c) ------------------------------------------------------------ */

/* Posts the node's next operation. */
void msg_post_op(struct node *n);
/* Calls any operation off; all. */
void msg_cancel_op(struct node *n);
void msg_cancel_all(struct node *n);
/* Takes any region back. */
void msg_revoke_region(struct node *n);
/* The handles of operations that are over are given back, at some time; all: now. */
void msg_forget_ops(struct node *n, bool all);
/* The application posts, or calls off, from where it is called. */
void msg_do_more(struct node *n);

/* ---- what is checked (messages_oracle.c) ------------------------------------------------------------ */

uint8_t msg_make_byte(int side, uint32_t serial, uint32_t at);
/* The layer above may call anything from where it is called. */
void msg_check_unlocked(struct node *n);
/* Where byte at of the operation is, in the other node's region. */
uint8_t *msg_find_target(const struct action *a, uint32_t at);
/* A region is about to be the application's: writes to it of which something is missing can only fail from now on. */
void msg_note_missing(const struct region *r);
/* An operation ends, as a->result says. */
void msg_check_end(struct action *a);
/* An operation may fail with the error that was asked for, or because of what happened to it. */
void msg_check_failure(const struct action *a);
/* The notification of a, of the other node, arrives at n. */
void msg_check_note(struct node *n, struct action *a, const struct hw_note *note);
/* The other node says that it closes. */
void msg_check_bye(struct node *n);
/* True for an operation whose caller was told that it is over before the peer has said so. */
bool msg_is_deserted(const struct action *a);
/* No write begins while frames of one that was given up before may land. */
void msg_check_order(const struct node *n);
/* Memory of operations that are over, and regions, are as they were left. */
void msg_check_node(const struct node *n);
/* True once the node has posted all, and all has ended. */
bool msg_has_ended(const struct node *n);
/* NULL, or what of node is still under way. */
const char *msg_find_unsettled(const struct node *n);

#endif
