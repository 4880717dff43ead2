/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of a peer by name, and the grants in them. All under the peer's lock. */
#ifndef HW_QUEUE_TABLE_H
#define HW_QUEUE_TABLE_H

#include "message/control.h"
#include "message/queue.h"

/* A receive of the peer to which nothing was sent yet. */
struct hw_grant {
    struct hw_control refusal; /* replaces the grant if its stream is closed: needs no memory */
    struct hw_list of_queue;   /* oldest first */
    struct hw_list in_chain;
    uint64_t landing, room;
    uint64_t number; /* of the control message */
};

/* An eager message of the peer without a receive so far. */
struct hw_held {
    struct hw_control refusal; /* likewise */
    struct hw_list of_queue;   /* oldest first */
    struct hw_list in_chain;
    uint64_t queue;
    struct hw_note *note;
};

struct hw_queue {
    uint64_t name;
    struct hw_list in_chain;
    /* sending */
    struct hw_list sends;  /* operations that wait */
    struct hw_list grants; /* that are not used */
    uint32_t unanswered;   /* eager messages whose receive is not known yet */
    /* what the peer sends */
    struct hw_list receives; /* operations with a landing; data may be in flight to some */
    struct hw_list held;     /* eager messages */
};

/* The chain for a number, among the HW_QUEUE_CHAINS chains of a table. */
struct hw_list *hw_queues_find_chain(struct hw_queues *t, struct hw_list *chains, uint64_t number);
/* The queue with this name. NULL: there is none. */
struct hw_queue *hw_queue_find(struct hw_queues *t, uint64_t name);
/* Finds the queue with this name, or makes it. -EAGAIN: HW_QUEUES are in use, -ENOMEM. */
int hw_queue_get(struct hw_queues *t, uint64_t name, struct hw_queue **out);
/* Frees a queue without operations. NULL is allowed. */
void hw_queue_put(struct hw_queues *t, struct hw_queue *q);
/* Removes a grant from its queue and its chain, and frees it as well. */
void hw_grant_unlist(struct hw_queues *t, struct hw_grant *g);
void hw_grant_drop(struct hw_queues *t, struct hw_grant *g);

#endif
