/* SPDX-License-Identifier: Apache-2.0 */
#include "message/control.h"

#include "message/op.h"
#include "wire/wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Sequence numbers of 32 bits can be compared if they are less than 2^31 apart, so a mark that is more than MARK_OLD
 * messages old is advanced. */
#define MARK_OLD (1 << 29)

/* ---- sending; static functions are called with the lock held ------------------------------------------------ */

static void send_parcel(struct hw_peer *p, struct hw_parcel *parcel)
{
    parcel->small = true;
    hw_session_send(&p->session, 0, parcel);
}

static bool has_room(const struct hw_peer *p, uint32_t sequence)
{
    return sequence - p->out.acked < HW_CONTROL_WINDOW;
}

/* Returns true for a message that a message of the peer causes. The peer limits the number of these messages. */
static bool is_answer(const struct hw_control *c)
{
    return c->kind == HW_CONTROL_HANDLE || c->kind == HW_CONTROL_FAIL || c->kind == HW_CONTROL_UNREAD ||
           c->kind == HW_CONTROL_STOPPED || c->kind == HW_CONTROL_MATCHED;
}

/* Fails with -EPROTO if too many answers wait: the peer sends messages, but does not read the answers. */
static int check_answers(const struct hw_peer *p)
{
    return p->out.answers > HW_CONTROLS ? hw_fail(-EPROTO, "the peer does not read the answers to its control messages")
                                        : 0;
}

int hw_control_check_own(const struct hw_peer *p)
{
    return p->out.waiting - p->out.answers < HW_CONTROLS
               ? 0
               : hw_fail(-EAGAIN,
                         "%d control messages of this side wait, which is the limit per peer: wait until the peer "
                         "reads some of them",
                         HW_CONTROLS);
}

static void queue_control(struct hw_peer *p, struct hw_control *c)
{
    c->parcel = (struct hw_parcel){.type = HW_MSG_CONTROL};
    c->next = NULL;
    c->sequence = (uint32_t)p->out.next++;
    if (!p->out.first && has_room(p, c->sequence)) {
        send_parcel(p, &c->parcel);
    } else {
        *p->out.last = c;
        p->out.last = &c->next;
        p->out.waiting++;
        p->out.answers += is_answer(c);
    }
}

int hw_control_send_locked(struct hw_peer *p, const struct hw_control *c)
{
    if (p->dead)
        return hw_fail(p->dead, "the connection to the peer has ended");
    struct hw_control *out = malloc(sizeof *out);
    if (!out)
        return hw_no_memory("a control message");
    *out = *c;
    if (out->op)
        out->op->control = out;
    queue_control(p, out);
    return 0;
}

void hw_control_send_own(struct hw_peer *p, struct hw_control *c)
{
    if (p->dead)
        free(c);
    else
        queue_control(p, c);
}

void hw_control_send_within(struct hw_op *op, const struct hw_control *c)
{
    assert(!op->last.within);
    if (op->peer->dead)
        return;
    atomic_fetch_add(&op->refs, 1);
    op->last = *c;
    op->last.within = op;
    queue_control(op->peer, &op->last);
}

bool hw_control_send_spare(struct hw_peer *p, const struct hw_control *c)
{
    if (p->spare_is_out || p->dead)
        return false;
    p->spare_is_out = true;
    p->spare = *c;
    queue_control(p, &p->spare);
    return true;
}

int hw_control_send(struct hw_peer *p, const struct hw_control *c)
{
    pthread_mutex_lock(&p->lock);
    int rc = hw_control_send_locked(p, c);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int hw_control_refuse(struct hw_peer *p, enum hw_control_kind kind, uint64_t a, int error)
{
    struct hw_control c = {.kind = kind, .a = a, .b = (uint64_t)-error};
    pthread_mutex_lock(&p->lock);
    int rc = check_answers(p);
    if (rc == 0)
        rc = hw_control_send_locked(p, &c);
    if (rc == 0)
        atomic_store(&p->out.refused, (uint32_t)p->out.next);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

uint32_t hw_control_mark(const struct hw_peer *p)
{
    uint32_t acked = atomic_load(&p->out.acked), refused = atomic_load(&p->out.refused);
    /* if the peer has read all refusals, it need not wait for a message */
    return (int32_t)(acked - refused) >= 0 ? acked : refused;
}

void hw_control_fill(const struct hw_control *c, struct hw_link_out *out)
{
    struct hw_control_head h = {c->sequence, c->kind, c->a, c->b, c->c, c->d};
    hw_control_encode(out->ext, &h);
    out->ext_len = HW_CONTROL_SIZE;
    out->patient = c->kind != HW_CONTROL_NOTE && c->kind != HW_CONTROL_BYE;
    if (!c->note)
        return;
    out->piece[0] = (struct hw_piece){&hw_host, c->note->data, c->note->len, c};
    out->n_pieces = 1;
}

void hw_control_done(struct hw_peer *p, struct hw_control *c)
{
    bool spare = c == &p->spare, carries = c->kind == HW_CONTROL_NOTE || c->kind == HW_CONTROL_BYE;
    if (spare || carries) {
        pthread_mutex_lock(&p->lock);
        if (c->op) {
            c->op->control = NULL;
            hw_op_sub_locked(c->op, 1);
        }
        if (spare) {
            p->spare_is_out = false;
            hw_stops_send(p);
        }
        pthread_mutex_unlock(&p->lock);
    }
    if (spare)
        return;
    free(c->note);
    if (c->within)
        hw_op_put(c->within);
    else
        free(c);
    hw_ops_flush(p);
}

static void send_waiting(struct hw_peer *p)
{
    while (p->out.first && has_room(p, p->out.first->sequence)) {
        struct hw_control *c = p->out.first;
        p->out.first = c->next;
        if (!p->out.first)
            p->out.last = &p->out.first;
        p->out.waiting--;
        p->out.answers -= is_answer(c);
        send_parcel(p, &c->parcel);
    }
}

int hw_taken_arrived(struct hw_peer *p, uint32_t sequence, uint64_t notes)
{
    pthread_mutex_lock(&p->lock);
    uint32_t acked = atomic_load(&p->out.acked);
    uint32_t sent = (uint32_t)p->out.next - p->out.waiting; /* the waiting messages are the newest ones */
    bool can_be = sent - sequence <= sent - acked && notes >= p->taken && notes <= p->noted;
    if (can_be) {
        atomic_store(&p->out.acked, sequence);
        if ((int32_t)(sequence - atomic_load(&p->out.refused)) > MARK_OLD)
            atomic_store(&p->out.refused, sequence);
        p->taken = notes;
        send_waiting(p);
        hw_notes_resume(p);
    }
    hw_ops_unlock(p);
    return can_be ? 0
                  : hw_fail(-EPROTO, "invalid confirmation of control message %u and %llu bytes of notifications",
                            sequence, (unsigned long long)notes);
}

/* ---- receiving ------------------------------------------------------------------------------------------ */

static void free_control_in(struct hw_control_in *c)
{
    free(c->note);
    free(c);
}

/* Returns the sequence number of the next message to read. */
static uint32_t get_next(const struct hw_peer *p)
{
    return (uint32_t)atomic_load(&p->in.next);
}

int hw_control_misplaced(uint32_t sequence, uint32_t next)
{
    return hw_fail(
        -EPROTO,
        "control message %u is a duplicate, or is outside the window of %d messages that begins with message %u",
        sequence, HW_CONTROL_WINDOW, next);
}

/* Puts the message into the ring. Fails with -EPROTO if the peer sent a message twice or exceeded the window. */
static int sort_control(struct hw_peer *p, struct hw_control_in *c)
{
    struct hw_control_in **at = &p->in.ring[c->head.sequence % HW_CONTROL_WINDOW];
    if (c->head.sequence - get_next(p) < HW_CONTROL_WINDOW && !*at) {
        *at = c;
        return 0;
    }
    int rc = hw_control_misplaced(c->head.sequence, get_next(p));
    free_control_in(c);
    return rc;
}

/* Sorts the inbox into the ring. Fails like sort_control(). */
static int sort_inbox(struct hw_peer *p)
{
    int rc = 0;
    struct hw_control_in *c = atomic_exchange(&p->in.inbox, NULL);
    while (c) {
        struct hw_control_in *next = c->next;
        int one = sort_control(p, c);
        rc = one < 0 ? one : rc;
        c = next;
    }
    return rc;
}

/* Sends TAKEN if at least a quarter of a window of messages was read, or a quarter of the notification buffer was
 * freed, since the last TAKEN. Does nothing if a TAKEN is in flight or the peer is dead. Called with the lock held. */
static void tell_taken(struct hw_peer *p)
{
    bool tell = get_next(p) - p->in.acked >= HW_CONTROL_WINDOW / 4 || p->took - p->took_told >= HW_NOTES / 4;
    if (tell && !p->in.telling && !p->dead) {
        p->in.telling = true;
        send_parcel(p, &p->in.taken);
    }
}

/* Advances the peer's mark if it is old: all messages before the next one have been read. */
static void renew_mark(struct hw_peer *p)
{
    uint32_t next = get_next(p), told = atomic_load(&p->in.told);
    if ((int32_t)(next - told) > MARK_OLD)
        (void)atomic_compare_exchange_strong(&p->in.told, &told, next);
}

/* Processes the messages in the ring in order, until the next message has not arrived yet or memory runs out. rc is the
 * result of sorting the messages into the ring. Ends the peer if rc is negative, if a message is invalid, or if too
 * many answers wait to be sent. */
static void read_ring(struct hw_peer *p, int rc)
{
    while (rc == 0 && !p->session.dead) {
        struct hw_control_in **at = &p->in.ring[get_next(p) % HW_CONTROL_WINDOW], *c = *at;
        if (!c)
            break;
        rc = hw_peer_control(p, c);
        if (rc == -ENOMEM) { /* the message can be processed again */
            hw_loop_post(p->session.home, &p->in.read);
            rc = 0;
            break;
        }
        *at = NULL;
        /* only the home loop changes the number, and hw_ops_unfence() reads it with the lock held */
        atomic_store_explicit(&p->in.next, atomic_load(&p->in.next) + 1, memory_order_release);
        free_control_in(c);
    }
    renew_mark(p);
    pthread_mutex_lock(&p->lock);
    if (rc == 0)
        rc = check_answers(p);
    hw_ops_unfence(p);
    tell_taken(p);
    if (rc < 0 && !p->session.dead) {
        pthread_mutex_unlock(&p->lock);
        hw_peer_die(p, rc);
        p->ops->died(p->up, rc);
        pthread_mutex_lock(&p->lock);
    }
    hw_ops_unlock(p);
}

static void read_control(struct hw_task *t)
{
    struct hw_peer *p = hw_container_of(t, struct hw_peer, in.read);
    read_ring(p, sort_inbox(p));
}

void hw_control_arrived(struct hw_peer *p, unsigned rail, struct hw_control_in *c)
{
    if (p->session.rail[rail].rail.loop == p->session.home) {
        read_ring(p, sort_control(p, c));
        return;
    }
    c->next = atomic_load(&p->in.inbox);
    while (!atomic_compare_exchange_weak(&p->in.inbox, &c->next, c))
        ;
    hw_loop_post(p->session.home, &p->in.read);
}

/* ---- TAKEN ---------------------------------------------------------------------------------------- */

void hw_taken_tell(struct hw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    tell_taken(p);
    pthread_mutex_unlock(&p->lock);
}

void hw_taken_fill(struct hw_peer *p, struct hw_link_out *out)
{
    pthread_mutex_lock(&p->lock);
    p->in.acked = get_next(p);
    p->took_told = p->took;
    hw_taken_encode(out->ext, p->in.acked, p->took_told);
    pthread_mutex_unlock(&p->lock);
    out->ext_len = HW_MSG_TAKEN_SIZE;
}

void hw_taken_done(struct hw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    p->in.telling = false;
    pthread_mutex_unlock(&p->lock);
    hw_taken_tell(p);
}

/* ---- starting and stopping ------------------------------------------------------------------------------ */

void hw_control_init(struct hw_peer *p)
{
    p->out.last = &p->out.first;
    p->in.read.run = read_control;
    p->in.taken.type = HW_MSG_TAKEN;
}

void hw_control_die(struct hw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    struct hw_control *c = p->out.first;
    p->out.first = NULL;
    p->out.last = &p->out.first;
    pthread_mutex_unlock(&p->lock);
    while (c) {
        struct hw_control *next = c->next;
        hw_control_done(p, c);
        c = next;
    }
}

void hw_control_free(struct hw_peer *p)
{
    (void)sort_inbox(p);
    for (int i = 0; i < HW_CONTROL_WINDOW; i++)
        if (p->in.ring[i])
            free_control_in(p->in.ring[i]);
}
