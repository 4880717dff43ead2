/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes, each with a message layer. Shared by the application, the checks and the schedule. */
#ifndef HW_SIM_MESSAGES_H
#define HW_SIM_MESSAGES_H

#include "bounds.h"

#define OPS     24 /* per side */
#define REGIONS 12
#define REGION  (48u << 10)
#define LENGTH  (20u << 10)
#define SPANS   300
#define POISON  WORLD_POISON /* what the application writes to its own memory: no transferred byte has this value */
#define AFTER   0x3c         /* what the application writes instead to an operation's local memory, except for writes */
#define STEPS   250000
#define DRAIN   60000

struct node;

struct region {
    struct hw_export x;
    struct node *node;
    uint32_t serial, used; /* used: bytes already assigned; each operation has a separate range */
    bool revoking, revoked;
    uint8_t mem[REGION], first[REGION]; /* current contents, and initial contents */
};

/* The part of an operation that lies in one region. */
struct part {
    struct region *region; /* a region of the other node */
    struct hw_import *import;
    uint32_t at;
};

struct action {
    struct node *node;
    struct hw_op *op;
    struct part part[2]; /* spans alternate between the two parts */
    uint32_t parts;
    enum hw_op_kind kind;
    uint32_t serial, len;
    bool posted, over, off, late, noted, heard;
    bool said;             /* BYE: the operation was passed to the session */
    uint32_t number;       /* BYE: sequence number of its control message .. */
    uint32_t told;         /* .. and a bit mask of the notifications that had succeeded before */
    uint32_t heard_before; /* BYE: bit mask of the other side's operations whose notifications had arrived before */
    struct bounds_op watch;
    bool orphaned;                       /* the peer was dead when the operation ended */
    bool missed;                         /* write: a region was returned before all of the write's bytes had arrived */
    bool deserted;                       /* the operation ended before the peer reported the result */
    uint32_t behind;                     /* bit mask of the operations that were deserted at the time of posting */
    bool revoked_then;                   /* an accessed region was already revoked at the time of posting */
    int wrong, result;                   /* the error with which the operation has to end, or 0; the actual result */
    uint8_t of[LENGTH];                  /* index into `part` for each byte */
    uint8_t local[LENGTH], left[LENGTH]; /* left: the bytes at the target when the operation ended */
};

struct node {
    struct world *w;
    struct node *other;
    int side;
    bool freed;     /* the peer was freed */
    bool impatient; /* the peer has only the library's default time to answer */
    bool overdue;   /* the peer did not answer a cancelled operation in time */
    struct hw_domain domain;
    struct hw_peer peer;
    struct region *region[REGIONS];
    struct action action[OPS];
    uint32_t n, posted, regions, last_note, byes;
    struct hw_note *notes;              /* not yet taken */
    uint32_t held_notes, held_requests; /* bytes and requests that occupied room before the simulation began */
};

/* ---- the application (messages_script.c) ------------------------------------------------------------ */

/* Posts the node's next operation. */
void msg_post_op(struct node *n);
/* Cancel one random operation, or all operations. */
void msg_cancel_op(struct node *n);
void msg_cancel_all(struct node *n);
/* Revokes a random region. */
void msg_revoke_region(struct node *n);
/* Release the handles of all operations that have ended, or of a random half of them. */
void msg_forget_ops(struct node *n, bool all);
/* Sometimes posts or cancels an operation, as applications may do in a callback. */
void msg_do_more(struct node *n);

/* checks (messages_oracle.c) */

uint8_t msg_make_byte(int side, uint32_t serial, uint32_t at);
/* Checks that no lock is held, because the layer above may call any function in its callbacks. */
void msg_check_unlocked(struct node *n);
/* Returns the target address of byte `at` of the operation in the other node's region. */
uint8_t *msg_find_target(const struct action *a, uint32_t at);
/* Notes that incomplete writes to this region can only fail from now on, because the region is about to be returned to
 * the application. */
void msg_note_missing(const struct region *r);
/* Checks the outcome of an operation, including a->result. */
void msg_check_end(struct action *a);
/* Checks that an operation failed with the expected error or for a valid reason. */
void msg_check_failure(const struct action *a);
/* Checks a notification that arrives at n from the other node's operation a. */
void msg_check_note(struct node *n, struct action *a, const struct hw_note *note);
/* Checks that the other node may announce its close now. */
void msg_check_bye(struct node *n);
/* Returns true if the operation's caller was told that the operation ended before the peer reported the end. */
bool msg_is_deserted(const struct action *a);
/* Checks that no write begins while frames of an abandoned earlier write may still arrive. */
void msg_check_order(const struct node *n);
/* Checks that nothing has changed the memory of finished operations or the regions. */
void msg_check_node(const struct node *n);
/* Returns true once the node has posted all its operations and all have ended. */
bool msg_has_ended(const struct node *n);
/* Returns the name of something that is still in flight for the node, or NULL. */
const char *msg_find_unsettled(const struct node *n);

#endif
