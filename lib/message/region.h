/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions are memory that peers may read or write. The exporting side's record is an export. A peer that proves
 * knowledge of the region's secret receives a handle that is valid in its session. This step does not send the secret
 * itself over the network. The importing side's record is an import.
 *
 * A rail's loop looks up a handle without a lock. The result stays valid until this loop takes part in a round of
 * hw_session_let_go() that begins after the handle was removed from its table.
 */
#ifndef HW_REGION_H
#define HW_REGION_H

#include "base/list.h"
#include "core/session.h"
#include "wire/message.h"

#include <pthread.h>

#define HW_BINDING       32                     /* size of a value that distinguishes a session from all others */
#define HW_HANDLES       (1u << HW_HANDLE_BITS) /* maximum number of handles of a peer */
#define HW_HANDLE_BITS   16
#define HW_HANDLE_BLOCK  256
#define HW_IMPORT_CHAINS 1024

struct hw_peer;
struct hw_op;

/* ---- the exporting side ----------------------------------------------------------------------------------- */

struct hw_export {
    const struct hw_space *space;
    uint8_t *ptr;
    uint64_t len;
    uint32_t rights;                      /* HAWSER_REMOTE_* */
    const struct hw_peer *only;           /* peer that has access, or NULL for any peer of the domain */
    uint64_t secret;                      /* random */
    void (*revoked)(struct hw_export *x); /* called without a lock, once no peer accesses the memory */

    /* for the message layer's use */
    uint64_t id;
    struct hw_domain *domain;
    struct hw_list handles;
    unsigned left; /* after hw_export_revoke(): number of handles that rails may still use */
};

/* The exports of a context by number. A number contains the generation in the upper half and the index in the lower
 * half. */
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
/* Registers x and sets its id. Fails with -ENOMEM. */
int hw_export_add(struct hw_domain *d, struct hw_export *x);
/* Returns the export with this id, or NULL. Called with the domain's lock held. */
struct hw_export *hw_export_find(const struct hw_domain *d, uint64_t id);
/* Revokes x. No peer gets a new handle to x, and revoked() is called once nothing accesses the memory. May be called
 * only once for each export. */
void hw_export_revoke(struct hw_export *x);

/* A peer's right to access an export. */
struct hw_handle {
    struct hw_export *export;
    struct hw_peer *peer;
    uint32_t number; /* generation << 16 | index, so that a handle in flight does not refer to a later export */
    struct hw_list of_export;
    struct hw_let_go let_go;
};

/* A peer's handles. The table is read without a lock and written with the domain's lock held. */
struct hw_handles {
    _Atomic(struct handle_block *) block[HW_HANDLES / HW_HANDLE_BLOCK];
    uint32_t n;
    uint32_t *unused; /* numbers for the next handles in freed slots */
    uint32_t n_unused, unused_room;
};

/* Computes the proof, valid in one session, that the sender knows the region's secret. */
void hw_import_proof(uint8_t proof[HW_IMPORT_PROOF], uint64_t id, uint64_t secret, const uint8_t binding[HW_BINDING]);
/* Processes the peer's request for a handle to region id, and sends the answer. Fails with -ENOMEM or the error that
 * the peer died with. */
int hw_handle_ask(struct hw_peer *p, uint64_t id, const uint8_t proof[HW_IMPORT_PROOF]);
/* Looks up the memory at [offset, offset + len) of a handle and stores it in *out. Called on a rail's loop. Fails with
 * -ESTALE for an unknown handle, -EFAULT for a range outside the region, and -EACCES if the region's rights
 * (HAWSER_REMOTE_*) do not include `rights`. Sets no error text. */
int hw_handle_find(const struct hw_handles *t, uint32_t number, uint64_t offset, uint64_t len, uint32_t rights,
                   struct hw_piece *out);
/* Frees the handles of a peer whose rails have all ended. From here on, no hw_export_revoke() uses the peer. One that
 * has already begun may still use the peer, until hw_peer_is_gone() returns true. */
void hw_handles_forget(struct hw_peer *p);
/* Frees the table of a peer that is gone. */
void hw_handles_free(struct hw_peer *p);

/* ---- the importing side ------------------------------------------------------------------------------------ */

/* A region of the peer. Protected by the peer's lock, except for handle, which does not change once it is set. */
struct hw_import {
    struct hw_import *next; /* next import in the hash chain */
    uint64_t id, secret;
    uint64_t len;    /* from the exporter's answer */
    uint32_t rights; /* from the exporter's answer */
    bool staged;     /* from the exporter's answer: the peer's CPU cannot access the region */
    uint32_t refs;
    enum { HW_IMPORT_ASKED, HW_IMPORT_READY, HW_IMPORT_REFUSED } state;
    uint32_t handle;
    int error;          /* error of a refused import */
    struct hw_list ops; /* operations that wait for the answer */
};

struct hw_imports {
    struct hw_import *chain[HW_IMPORT_CHAINS];
    struct hw_import *recent; /* import that was found last, or NULL */
    uint32_t n;               /* at most HW_HANDLES */
    uint8_t binding[HW_BINDING];
};

/* Adds a user of the peer's region id, and stores the import in *out. Asks the peer for a handle on first use. Fails
 * with -ENOMEM, with -ENOSPC if too many regions are imported, or with the error that the peer died with. Called with
 * the peer's lock held. */
int hw_import_get(struct hw_peer *p, uint64_t id, uint64_t secret, struct hw_import **out);
/* Removes a user. Called with the peer's lock held. */
void hw_import_put(struct hw_peer *p, struct hw_import *i);
/* Processes the peer's answer. Fails with -EPROTO if no answer was expected. */
int hw_import_answer(struct hw_peer *p, const struct hw_control_head *h);
/* Marks the region as revoked by the peer. */
void hw_import_revoked(struct hw_peer *p, uint64_t id);
void hw_imports_free(struct hw_imports *t);

#endif
