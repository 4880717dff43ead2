/* SPDX-License-Identifier: Apache-2.0 */
#include "message/region.h"

#include "base/thread.h"
#include "message/control.h"
#include "message/op.h"
#include "message/peer.h"
#include "wire/wire.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define NO_SLOT UINT32_MAX

/* ---- exports; static functions are called with the domain's lock held ---------------------------------------- */

void hw_domain_init(struct hw_domain *d)
{
    *d = (struct hw_domain){.free = NO_SLOT};
    hw_lock_init(&d->lock);
}

void hw_domain_free(struct hw_domain *d)
{
    free(d->slot);
    pthread_mutex_destroy(&d->lock);
}

/* Takes a slot for an export. */
static int take_export_slot(struct hw_domain *d, uint32_t *place)
{
    if (d->free != NO_SLOT) {
        *place = d->free;
        d->free = d->slot[*place].next_free;
        return 0;
    }
    if (d->n == d->room) {
        uint32_t room = d->room ? 2 * d->room : 16;
        struct domain_slot *slot = realloc(d->slot, room * sizeof *slot);
        if (!slot)
            return hw_no_memory("%u exported regions", room);
        d->slot = slot;
        d->room = room;
    }
    *place = d->n++;
    d->slot[*place] = (struct domain_slot){.generation = 1};
    return 0;
}

int hw_export_add(struct hw_domain *d, struct hw_export *x)
{
    uint32_t place = 0;
    x->domain = d;
    x->left = 0;
    hw_list_init(&x->handles);
    pthread_mutex_lock(&d->lock);
    int rc = take_export_slot(d, &place);
    if (rc == 0) {
        d->slot[place].export = x;
        x->id = (uint64_t)d->slot[place].generation << 32 | place;
    }
    pthread_mutex_unlock(&d->lock);
    return rc;
}

struct hw_export *hw_export_find(const struct hw_domain *d, uint64_t id)
{
    uint32_t place = (uint32_t)id;
    return place < d->n && d->slot[place].generation == id >> 32 ? d->slot[place].export : NULL;
}

/* ---- handles -------------------------------------------------------------------------------------- */

struct handle_block {
    _Atomic(struct hw_handle *) at[HW_HANDLE_BLOCK];
};

static _Atomic(struct hw_handle *) *find_handle_place(const struct hw_handles *t, uint32_t number)
{
    uint32_t place = number % HW_HANDLES;
    struct handle_block *b = atomic_load(&t->block[place / HW_HANDLE_BLOCK]);
    return b ? &b->at[place % HW_HANDLE_BLOCK] : NULL;
}

int hw_handle_find(const struct hw_handles *t, uint32_t number, uint64_t offset, uint64_t len, uint32_t rights,
                   struct hw_piece *out)
{
    _Atomic(struct hw_handle *) *place = find_handle_place(t, number);
    const struct hw_handle *h = place ? atomic_load(place) : NULL;
    if (!h || h->number != number)
        return -ESTALE;
    const struct hw_export *x = h->export;
    if ((x->rights & rights) != rights)
        return -EACCES;
    if (offset > x->len || len > x->len - offset)
        return -EFAULT;
    *out = (struct hw_piece){x->space, x->ptr + offset, len, x};
    return 0;
}

/* Reserves a number for a handle, and the space to return the number when the handle is freed. */
static int take_handle_number(struct hw_handles *t, uint32_t *number)
{
    if (t->n_unused) {
        *number = t->unused[--t->n_unused];
        return 0;
    }
    if (t->n == HW_HANDLES)
        return -ENOSPC;
    if (t->n == t->unused_room) {
        uint32_t *unused = realloc(t->unused, (t->unused_room + HW_HANDLE_BLOCK) * sizeof *unused);
        if (!unused)
            return -ENOMEM;
        t->unused = unused;
        t->unused_room += HW_HANDLE_BLOCK;
    }
    if (t->n % HW_HANDLE_BLOCK == 0 && !atomic_load(&t->block[t->n / HW_HANDLE_BLOCK])) {
        struct handle_block *b = calloc(1, sizeof *b);
        if (!b)
            return -ENOMEM;
        atomic_store(&t->block[t->n / HW_HANDLE_BLOCK], b);
    }
    *number = t->n++;
    return 0;
}

void hw_import_proof(uint8_t proof[HW_IMPORT_PROOF], uint64_t id, uint64_t secret, const uint8_t binding[HW_BINDING])
{
    static const char label[] = "hawser region";
    uint8_t what[16];
    crypto_generichash_state st;
    hw_put64(what, secret);
    hw_put64(what + 8, id);
    crypto_generichash_init(&st, binding, HW_BINDING, HW_IMPORT_PROOF);
    crypto_generichash_update(&st, (const uint8_t *)label, sizeof label);
    crypto_generichash_update(&st, what, sizeof what);
    crypto_generichash_final(&st, proof, HW_IMPORT_PROOF);
}

/* Gives the peer a handle to x. Called with the domain's lock held. */
static int add_handle(struct hw_peer *p, struct hw_export *x, uint32_t *number)
{
    struct hw_handle *h = calloc(1, sizeof *h);
    int rc = h ? take_handle_number(&p->handles, number) : -ENOMEM;
    if (rc < 0) {
        free(h);
        return rc;
    }
    h->export = x;
    h->peer = p;
    h->number = *number;
    hw_list_append(&x->handles, &h->of_export);
    atomic_store(find_handle_place(&p->handles, *number), h);
    return 0;
}

/* Returns this peer's handle to x, or NULL. */
static struct hw_handle *find_own_handle(const struct hw_peer *p, struct hw_export *x)
{
    hw_list_each(it, tmp, &x->handles)
    {
        struct hw_handle *h = hw_container_of(it, struct hw_handle, of_export);
        if (h->peer == p)
            return h;
    }
    return NULL;
}

int hw_handle_ask(struct hw_peer *p, uint64_t id, const uint8_t proof[HW_IMPORT_PROOF])
{
    struct hw_control answer = {.kind = HW_CONTROL_HANDLE, .a = id};
    uint8_t right[HW_IMPORT_PROOF];
    uint32_t number = 0;
    pthread_mutex_lock(&p->domain->lock);
    struct hw_export *x = hw_export_find(p->domain, id);
    int rc = x ? 0 : -ESTALE;
    if (rc == 0) {
        hw_import_proof(right, id, x->secret, p->imports.binding);
        /* a peer without access must not learn whether the region exists */
        if (sodium_memcmp(right, proof, sizeof right) != 0 || (x->only && x->only != p))
            rc = -ESTALE;
    }
    const struct hw_handle *had = rc == 0 ? find_own_handle(p, x) : NULL;
    if (had)
        number = had->number;
    else if (rc == 0)
        rc = add_handle(p, x, &number);
    answer.b = number;
    answer.c = (uint64_t)-rc;
    answer.d = rc == 0 ? x->len << 3 | (x->space->direct ? 0 : HW_REGION_STAGED) | x->rights : 0;
    pthread_mutex_unlock(&p->domain->lock);
    return rc == -ENOMEM ? hw_no_memory("a handle of a region") : hw_control_send(p, &answer);
}

/* Frees a handle that no rail of the peer uses. */
static void end_handle(struct hw_let_go *g)
{
    struct hw_handle *h = hw_container_of(g, struct hw_handle, let_go);
    struct hw_export *x = h->export;
    struct hw_domain *d = x->domain;
    pthread_mutex_lock(&d->lock);
    h->peer->handles.unused[h->peer->handles.n_unused++] = h->number + HW_HANDLES;
    bool last = --x->left == 0;
    pthread_mutex_unlock(&d->lock);
    free(h);
    if (last)
        x->revoked(x);
}

void hw_export_revoke(struct hw_export *x)
{
    struct hw_domain *d = x->domain;
    pthread_mutex_lock(&d->lock);
    uint32_t place = (uint32_t)x->id;
    d->slot[place].export = NULL;
    d->slot[place].generation++;
    d->slot[place].next_free = d->free;
    d->free = place;
    x->left = 1; /* counts this call, so that the last handle cannot end the export early */
    hw_list_each(it, tmp, &x->handles)
    {
        struct hw_handle *h = hw_container_of(it, struct hw_handle, of_export);
        hw_list_remove(&h->of_export);
        atomic_store(find_handle_place(&h->peer->handles, h->number), NULL);
        h->let_go = (struct hw_let_go){.owner = x, .over = end_handle};
        x->left++;
        hw_session_let_go(&h->peer->session, &h->let_go);
        /* if there is no memory for the message, the peer learns of the revocation when it uses the region */
        (void)hw_control_send(h->peer, &(struct hw_control){.kind = HW_CONTROL_REVOKED, .a = x->id});
    }
    bool last = --x->left == 0;
    pthread_mutex_unlock(&d->lock);
    if (last)
        x->revoked(x);
}

void hw_handles_forget(struct hw_peer *p)
{
    struct hw_handles *t = &p->handles;
    pthread_mutex_lock(&p->domain->lock);
    for (uint32_t i = 0; i < t->n; i++) {
        struct hw_handle *h = atomic_exchange(find_handle_place(t, i), NULL);
        if (h)
            hw_list_remove(&h->of_export);
        free(h);
    }
    pthread_mutex_unlock(&p->domain->lock);
}

void hw_handles_free(struct hw_peer *p)
{
    struct hw_handles *t = &p->handles;
    hw_handles_forget(p);
    for (uint32_t i = 0; i < HW_ARRAY_LEN(t->block); i++)
        free(atomic_load(&t->block[i]));
    free(t->unused);
}

/* ---- imports: static functions, get and put are called with the peer's lock held ---- */

static struct hw_import **find_import(struct hw_imports *t, uint64_t id, uint64_t secret)
{
    struct hw_import **at = &t->chain[hw_hash(HW_HASH_START, &id, sizeof id) % HW_IMPORT_CHAINS];
    while (*at && ((*at)->id != id || (*at)->secret != secret))
        at = &(*at)->next;
    return at;
}

static int ask_for_region(struct hw_peer *p, const struct hw_import *i)
{
    uint8_t proof[HW_IMPORT_PROOF];
    hw_import_proof(proof, i->id, i->secret, p->imports.binding);
    struct hw_control ask = {.kind = HW_CONTROL_IMPORT,
                             .a = i->id,
                             .b = hw_get64(proof),
                             .c = hw_get64(proof + 8),
                             .d = hw_get64(proof + 16)};
    return hw_control_send_locked(p, &ask);
}

static int add_import(struct hw_peer *p, struct hw_import **at, uint64_t id, uint64_t secret)
{
    if (p->imports.n == HW_HANDLES)
        return hw_fail(-ENOSPC, "%d regions of the peer are imported, which is the limit per peer", HW_HANDLES);
    struct hw_import *i = calloc(1, sizeof *i);
    if (!i)
        return hw_no_memory("a region of the peer");
    i->id = id;
    i->secret = secret;
    hw_list_init(&i->ops);
    int rc = ask_for_region(p, i);
    if (rc < 0) {
        free(i);
        return rc;
    }
    p->imports.n++;
    *at = i;
    return 0;
}

int hw_import_get(struct hw_peer *p, uint64_t id, uint64_t secret, struct hw_import **out)
{
    struct hw_import *i = p->imports.recent;
    if (!i || i->id != id || i->secret != secret) {
        struct hw_import **at = find_import(&p->imports, id, secret);
        int rc = *at ? 0 : add_import(p, at, id, secret);
        if (rc < 0)
            return rc;
        i = p->imports.recent = *at;
    }
    i->refs++;
    *out = i;
    return 0;
}

/* Frees an import that the peer refused or revoked, once it has no users. The next user asks the peer again. */
static void forget_import(struct hw_imports *t, struct hw_import *i)
{
    if (i->refs || i->state != HW_IMPORT_REFUSED)
        return;
    *find_import(t, i->id, i->secret) = i->next;
    if (t->recent == i)
        t->recent = NULL;
    t->n--;
    free(i);
}

void hw_import_put(struct hw_peer *p, struct hw_import *i)
{
    i->refs--;
    forget_import(&p->imports, i);
}

/* Returns the import of this region that waits for an answer, or NULL. */
static struct hw_import *find_asked(struct hw_imports *t, uint64_t id)
{
    struct hw_import *i = t->chain[hw_hash(HW_HASH_START, &id, sizeof id) % HW_IMPORT_CHAINS];
    while (i && (i->id != id || i->state != HW_IMPORT_ASKED))
        i = i->next;
    return i;
}

int hw_import_answer(struct hw_peer *p, const struct hw_control_head *h)
{
    struct hw_list ops;
    hw_list_init(&ops);
    pthread_mutex_lock(&p->lock);
    struct hw_import *i = find_asked(&p->imports, h->a);
    if (i) {
        i->handle = (uint32_t)h->b;
        i->error = -(int)h->c;
        i->len = h->d >> 3;
        i->rights = h->d & 3;
        i->staged = h->d & HW_REGION_STAGED;
        i->state = h->c ? HW_IMPORT_REFUSED : HW_IMPORT_READY;
        hw_ops_resume(p, &i->ops);
        forget_import(&p->imports, i);
    }
    hw_ops_unlock(p);
    return i ? 0 : hw_fail(-EPROTO, "the peer sent a region handle that was not requested");
}

void hw_import_revoked(struct hw_peer *p, uint64_t id)
{
    pthread_mutex_lock(&p->lock);
    struct hw_import *i = p->imports.chain[hw_hash(HW_HASH_START, &id, sizeof id) % HW_IMPORT_CHAINS], *next;
    for (; i; i = next) {
        next = i->next;
        if (i->id != id || i->state != HW_IMPORT_READY)
            continue;
        i->state = HW_IMPORT_REFUSED;
        i->error = -ESTALE;
        forget_import(&p->imports, i);
    }
    pthread_mutex_unlock(&p->lock);
}

void hw_imports_free(struct hw_imports *t)
{
    for (int k = 0; k < HW_IMPORT_CHAINS; k++)
        while (t->chain[k]) {
            struct hw_import *next = t->chain[k]->next;
            free(t->chain[k]);
            t->chain[k] = next;
        }
}
