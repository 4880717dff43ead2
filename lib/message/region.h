/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: memory that peers may read or write. The exporter's side of a region is an export. A peer that proves
 * knowledge of the region's secret, which is not sent over the network for this, gets a handle that is valid in that
 * session. The other side of a handle is an import.
 *
 * A rail's loop looks up a handle without a lock. The result stays valid until that loop takes part in a round of
 * hw_session_let_go() that begins after the handle was removed from its table.
 */
#ifndef HW_REGION_H
#define HW_REGION_H

#include "base/list.h"
#include "core/session.h"
#include "wire/message.h"

#include <pthread.h>

#define HW_BINDING       32                     /* bytes that distinguish a session from all others */
#define HW_HANDLES       (1u << HW_HANDLE_BITS) /* of a peer */
#define HW_HANDLE_BITS   16
#define HW_HANDLE_BLOCK  256
#define HW_IMPORT_CHAINS 1024

struct hw_peer;
struct hw_op;

/* ---- the exporter's side ------------------------------------------------------------------------- */

struct hw_export {
    const struct hw_space *space;
    uint8_t *ptr;
    uint64_t len;
    uint32_t rights;                      /* HAWSER_REMOTE_* */
    const struct hw_peer *only;           /* NULL: any peer of the domain */
    uint64_t secret;                      /* random */
    void (*revoked)(struct hw_export *x); /* no peer touches the memory any more; on any loop, no lock held */

    /* the message layer's */
    uint64_t id;
    struct hw_domain *domain;
    struct hw_list handles;
    unsigned left; /* handles that rails may still hold */
};

/* The exports of a context: by number, with the generation above the index. */
struct hw_domain {
    pthread_mutex_t lock;
    struct domain_slot {
        struct hw_export *export;
        uint32_t generation, next_free;
    } * slot;
    uint32_t n, room, free;
};

void hw_domain_init(struct hw_domain *d);
void hw_domain_free(struct hw_domain *d);
/* Registers x and sets its id. -ENOMEM. */
int hw_export_add(struct hw_domain *d, struct hw_export *x);
/* After this call no peer gets a handle to x, and revoked() is called once nothing touches the memory any more. Only
 * once for each export. */
void hw_export_revoke(struct hw_export *x);

/* A peer's right to memory. */
struct hw_handle {
    struct hw_export *export;
    struct hw_peer *peer;
    uint32_t number; /* generation << 16 | index: a handle in flight never names a later one */
    struct hw_list of_export;
    struct hw_let_go let_go;
};

/* A peer's handles. The table is read without a lock, and written under the domain's lock. */
struct hw_handles {
    _Atomic(struct handle_block *) block[HW_HANDLES / HW_HANDLE_BLOCK];
    uint32_t n;
    uint32_t *unused; /* the next numbers of freed slots */
    uint32_t n_unused, unused_room;
};

/* Computes the proof that its sender knows the region's secret, in this session. */
void hw_import_proof(uint8_t proof[HW_IMPORT_PROOF], uint64_t id, uint64_t secret, const uint8_t binding[HW_BINDING]);
/* The peer asks for a handle to region id. Sends the answer. -ENOMEM: no memory for the answer. */
int hw_handle_ask(struct hw_peer *p, uint64_t id, const uint8_t proof[HW_IMPORT_PROOF]);
/* On a rail's loop: stores the memory of [v->offset, +len) in *out. -ESTALE there is no such handle; -EFAULT outside
 * the region; -EACCES its rights (HAWSER_REMOTE_*) do not include `rights`. Sets no error text. */
int hw_handle_find(const struct hw_handles *t, uint32_t number, uint64_t offset, uint64_t len, uint32_t rights,
                   struct hw_piece *out);
/* Frees the handles of a peer that is gone. */
void hw_handles_free(struct hw_peer *p);

/* ---- the importer's side ------------------------------------------------------------------------- */

/* A region of the peer: under the peer's lock, except for handle and error, which do not change once they are set. */
struct hw_import {
    struct hw_import *next; /* in its chain */
    uint64_t id, secret;
    uint64_t len;    /* from the exporter's answer */
    uint32_t rights; /* likewise */
    bool staged;     /* likewise: the peer's CPU cannot use it */
    uint32_t refs;
    enum { HW_IMPORT_ASKED, HW_IMPORT_READY, HW_IMPORT_REFUSED } state;
    uint32_t handle;
    int error;          /* refused: why */
    struct hw_list ops; /* wait for the answer */
};

struct hw_imports {
    struct hw_import *chain[HW_IMPORT_CHAINS];
    uint32_t n; /* at most HW_HANDLES */
    uint8_t binding[HW_BINDING];
};

/* Adds a user of the peer's region id; asks the peer at the first use. NULL: -ENOMEM, or too many, or the peer is dead.
 * From any thread. */
struct hw_import *hw_import_get(struct hw_peer *p, uint64_t id, uint64_t secret);
/* Removes a user. From any thread. */
void hw_import_put(struct hw_peer *p, struct hw_import *i);
/* The peer answers. -EPROTO: there was no question. */
int hw_import_answer(struct hw_peer *p, const struct hw_control_head *h);
/* The peer has revoked the region. */
void hw_import_revoked(struct hw_peer *p, uint64_t id);
void hw_imports_free(struct hw_imports *t);

#endif
