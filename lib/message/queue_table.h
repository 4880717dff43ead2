/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of a peer by name, and their grants. Both are protected by the peer's lock. */
#ifndef HW_QUEUE_TABLE_H
#define HW_QUEUE_TABLE_H

#include "message/control.h"
#include "message/queue.h"

/* A receive of the peer to which no message has been sent yet. */
struct hw_grant {
    struct hw_control refusal; /* sent if the stream is closed; embedded to avoid an allocation */
    struct hw_list of_queue;   /* entry in the queue's list, oldest first */
    struct hw_list in_chain;
    uint64_t landing, room;
    uint64_t number; /* number of its control message */
};

/* An eager message of the peer that no receive has taken yet. */
struct hw_held {
    struct hw_control refusal; /* sent if the stream is closed; embedded to avoid an allocation */
    struct hw_list of_queue;   /* entry in the queue's list, oldest first */
    struct hw_list in_chain;
    uint64_t queue;
    struct hw_note *note;
};

struct hw_queue {
    uint64_t name;
    struct hw_list in_chain;
    struct hw_list of_stream; /* entry in hw_queues.stream_queues, unless the stream is 0 */
    /* sending */
    struct hw_list sends;  /* operations that wait */
    struct hw_list grants; /* unused grants */
    uint32_t unanswered;   /* number of eager messages whose receive is not known yet */
    /* receiving */
    struct hw_list receives; /* operations with a landing; data may be in flight to some of them */
    struct hw_list held;     /* eager messages without a receive */
};

/* Sets up one of the hash tables of t. number() returns the number by which an entry is found. */
void hw_chains_init(struct hw_chains *c, uint64_t (*number)(const struct hw_list *entry));
/* Frees the table. Its entries are removed first; gone() is called for each removed entry, and may be NULL. */
void hw_chains_free(struct hw_chains *c, void (*gone)(struct hw_list *entry));
/* Returns the chain that contains all entries with this number, and others. The pointer is valid until the next call
 * that finds or adds an entry of c. */
struct hw_list *hw_chains_find(const struct hw_queues *t, struct hw_chains *c, uint64_t number);
/* Adds an entry, which hw_list_remove() removes. */
void hw_chains_add(const struct hw_queues *t, struct hw_chains *c, struct hw_list *entry);
/* Returns the queue with this name, or NULL. */
struct hw_queue *hw_queue_find(struct hw_queues *t, uint64_t name);
/* Finds or creates the queue with this name. Fails with -EAGAIN if `most` queues are in use, or with -ENOMEM. */
int hw_queue_get(struct hw_queues *t, uint64_t name, uint32_t most, struct hw_queue **out);
/* Frees a queue if it is empty. q may be NULL. */
void hw_queue_put(struct hw_queues *t, struct hw_queue *q);
/* Remove a grant from its queue and its chain. hw_grant_drop() also frees the grant. */
void hw_grant_unlist(struct hw_queues *t, struct hw_grant *g);
void hw_grant_drop(struct hw_queues *t, struct hw_grant *g);

#endif
