/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the objects of an open file. The count of a type is the number of created objects minus the number of
 * destroyed objects, according to the kernel's results, plus one for each request that may create an object and is
 * still running or has an unknown result. When the kernel lists the objects, the count is set to the kernel's number
 * (reconcile.c). The count does not depend on the numbers of the objects, which the application may have changed.
 *
 * Only MRs have sizes, so MRs are recorded with their numbers. A number that was read from memory that the application
 * can write to is not trusted, and the bytes of its MR remain counted until the kernel lists the MRs or the file is
 * closed.
 */
#include "verbs/policy/policy_int.h"

#include <search.h>
#include <stdlib.h>

struct mr {
    uint32_t number;
    bool true_number; /* false if the application may have changed the number, or the size is unknown */
    uint64_t bytes;
};

struct vb_objects {
    struct vb_usage *of;
    uint64_t n[VB_TYPES];
    uint64_t bytes; /* bytes of all MRs, including reservations and MRs with an unknown number */
    void *mrs;      /* tree of struct mr (tsearch) */
    bool read_only; /* true if any request of the file asked to pin an MR read-only; not recorded for each MR, because
                       an MR's number can be forged */
};

struct vb_objects *vb_objects_new(struct vb_usage *of)
{
    struct vb_objects *o = calloc(1, sizeof(*o));
    if (!o)
        return NULL;
    o->of = of;
    o->n[VB_CONTEXT] = 1;
    of->n[VB_CONTEXT]++;
    return o;
}

void vb_objects_free(struct vb_objects *o)
{
    if (!o)
        return;
    for (unsigned t = 0; t < VB_TYPES; t++)
        o->of->n[t] -= o->n[t];
    o->of->mr_bytes -= o->bytes;
    tdestroy(o->mrs, free);
    free(o);
}

static int by_mr_number(const void *a, const void *b)
{
    uint32_t x = ((const struct mr *)a)->number, y = ((const struct mr *)b)->number;
    return x < y ? -1 : x > y;
}

static struct mr *find_mr(const struct vb_objects *o, uint32_t number)
{
    struct mr key = {.number = number};
    void *const *at = tfind(&key, &o->mrs, by_mr_number);
    return at ? *at : NULL;
}

bool vb_objects_read_only(const struct vb_objects *o)
{
    return o && o->read_only;
}

uint64_t vb_objects_mr_bytes(const struct vb_objects *o, uint32_t number)
{
    const struct mr *m = o ? find_mr(o, number) : NULL;
    return m && m->true_number ? m->bytes : 0;
}

bool vb_objects_mr_known(const struct vb_objects *o, uint32_t number, uint64_t *bytes)
{
    const struct mr *m = find_mr(o, number);
    *bytes = m && m->true_number ? m->bytes : 0;
    return m && m->true_number;
}

/* --------------------------------------------- before and after a request */

static bool makes_counted_object(const struct vb_command *c)
{
    return c->makes != VB_NONE && c->makes != VB_CONTEXT && c->makes < VB_TYPES && vb_limit_key(c->makes);
}

static void add_bytes(struct vb_objects *o, uint64_t n)
{
    o->bytes += n;
    o->of->mr_bytes += n;
}

static void take_bytes(struct vb_objects *o, uint64_t n)
{
    o->bytes -= n;
    o->of->mr_bytes -= n;
}

/* Stores the number of reserved bytes in *ticket. */
int vb_reserve(struct vb_objects *o, const struct vb_request *r, uint64_t *ticket)
{
    struct vb_mr_ask m;
    vb_mr_ask(r, &m);
    *ticket = 0;
    if (m.kind == VB_MR_NEW) {
        *ticket = m.bytes;
    } else if (m.kind == VB_MR_AGAIN && m.resize) {
        uint64_t old = vb_objects_mr_bytes(o, m.number);
        *ticket = m.bytes > old ? m.bytes - old : 0;
    }
    o->read_only |= !m.writes && (m.kind == VB_MR_NEW || m.change_access);
    add_bytes(o, *ticket);
    if (makes_counted_object(r->command)) {
        o->n[r->command->makes]++;
        o->of->n[r->command->makes]++;
    }
    return 0;
}

static void one_less(struct vb_objects *o, enum vb_type t)
{
    if (o->n[t] > 0) {
        o->n[t]--;
        o->of->n[t]--;
    }
}

/* Records an MR. The MR is not recorded if memory is exhausted, or if its number is not trusted but an MR with the same
 * trusted number is recorded. The bytes then remain counted until the file is closed or the kernel lists the MRs. */
static void note_mr(struct vb_objects *o, uint32_t number, uint64_t bytes, bool trusted)
{
    struct mr *m = find_mr(o, number);
    if (m && m->true_number && !trusted)
        return;
    if (!m && (m = calloc(1, sizeof(*m)))) {
        m->number = number;
        if (!tsearch(m, &o->mrs, by_mr_number)) {
            free(m);
            m = NULL;
        }
    }
    if (m) {
        m->true_number = trusted;
        m->bytes = bytes;
    }
}

static void remove_ended_object(struct vb_objects *o, const struct vb_request *r)
{
    uint32_t number;
    one_less(o, r->command->ends);
    if (r->command->ends != VB_MR || vb_request_number(r, &r->command->ended, &number) < 0)
        return;
    struct mr *m = find_mr(o, number);
    if (!m)
        return;
    if (m->true_number)
        take_bytes(o, m->bytes);
    tdelete(m, &o->mrs, by_mr_number);
    free(m);
}

void vb_settle(struct vb_objects *o, const struct vb_request *r, uint64_t ticket, int rc, bool trusted)
{
    const struct vb_command *c = r->command;
    struct vb_mr_ask m;
    uint32_t number;
    vb_mr_ask(r, &m);
    if (rc == VB_UNKNOWN) /* keep the reservation, because the request may have succeeded */
        return;
    if (rc < 0) {
        take_bytes(o, ticket);
        if (makes_counted_object(c))
            one_less(o, c->makes);
        return;
    }
    if (m.kind == VB_MR_NEW) {
        if (vb_request_number(r, &c->made, &number) == 0)
            note_mr(o, number, m.bytes, trusted);
    } else if (m.kind == VB_MR_AGAIN && m.resize) {
        /* The size of the MR may have changed since the reservation. */
        struct mr *old = find_mr(o, m.number);
        take_bytes(o, ticket);
        add_bytes(o, m.bytes);
        if (old && old->true_number) {
            take_bytes(o, old->bytes);
            old->bytes = m.bytes;
        }
    }
    if (c->ends != VB_NONE && c->ends < VB_TYPES)
        remove_ended_object(o, r);
}

/* ---------------------------------------------------- the kernel's numbers */

uint64_t vb_objects_count(const struct vb_objects *o, enum vb_type t)
{
    return o->n[t];
}

uint64_t vb_objects_bytes(const struct vb_objects *o)
{
    return o->bytes;
}

void vb_objects_set_count(struct vb_objects *o, enum vb_type t, uint64_t n)
{
    o->of->n[t] = o->of->n[t] - o->n[t] + n;
    o->n[t] = n;
}

void vb_objects_forget_mr(struct vb_objects *o, uint32_t number)
{
    struct mr *m = find_mr(o, number);
    if (m)
        m->true_number = false;
}

void vb_objects_set_mrs(struct vb_objects *o, const struct vb_mr_seen *mr, unsigned n)
{
    uint64_t sum = 0, before = o->bytes;
    bool exact = true;
    tdestroy(o->mrs, free);
    o->mrs = NULL;
    for (unsigned i = 0; i < n; i++) {
        sum += mr[i].bytes;
        exact &= mr[i].known;
        note_mr(o, mr[i].number, mr[i].bytes, mr[i].known);
    }
    take_bytes(o, before);
    add_bytes(o, exact ? sum : HW_MAX(sum, before));
    vb_objects_set_count(o, VB_MR, n);
}
