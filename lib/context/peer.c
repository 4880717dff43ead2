/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: creation, callbacks from the message layer, death and closing. */
#include "context/context.h"

#include "base/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define BYE_MS   1000 /* limit of each wait for the peer in hawser_peer_close() */
#define GRACE_MS 100  /* time for the connections to close after that */
/* time that a peer that has sent BYE has to close its connections */
#define CLOSE_MS (BYE_MS + GRACE_MS)

static void fire_dead(struct hw_timer *t);
static void fire_bye(struct hw_timer *t);

struct hawser_peer *hw_peer_new(struct hawser *h, bool client)
{
    struct hawser_peer *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->h = h;
    p->client = client;
    p->gpu = p->peer_gpu = -1;
    p->keyed = h->keyed;
    pthread_mutex_lock(&h->lock);
    p->home = &h->driver[h->next_home++ % h->n_drivers];
    pthread_mutex_unlock(&h->lock);
    atomic_store(&p->refs, 1);
    atomic_store(&p->state, HW_PEER_NEW);
    hw_list_init(&p->in_context);
    hw_list_init(&p->in_accept);
    hw_list_init(&p->arrivals);
    struct {
        struct hw_event *e;
        enum hawser_event kind;
    } event[] = {{&p->arrived, HAWSER_ARRIVED},
                 {&p->died, HAWSER_DIED},
                 {&p->notified, HAWSER_NOTIFIED},
                 {&p->connected, HAWSER_CONNECTED}};
    for (size_t i = 0; i < HW_ARRAY_LEN(event); i++) {
        event[i].e->kind = event[i].kind;
        hw_list_init(&event[i].e->in_queue);
    }
    p->dead.fire = fire_dead;
    p->bye.fire = fire_bye;
    p->arrive.run = hw_ways_arrive;
    p->nics.run = hw_nics_judge;
    p->spares.call.run = hw_ways_call_spares;
    p->spares.rest.fire = hw_ways_rest_spares;
    p->last_note = &p->note;
    pthread_mutex_init(&p->door, NULL);
    hw_lock_init(&p->note_lock);
    return p;
}

void hw_peer_ref(struct hawser_peer *p)
{
    atomic_fetch_add(&p->refs, 1);
}

void hw_peer_unref(struct hawser_peer *p)
{
    if (atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&p->door);
    pthread_mutex_destroy(&p->note_lock);
    free(p->paths);
    free(p);
}

struct hawser_peer *hw_peer_by_session(struct hawser *h, uint64_t session)
{
    hw_list_each(it, tmp, &h->peers)
    {
        struct hawser_peer *p = hw_container_of(it, struct hawser_peer, in_context);
        if (!p->client && p->session == session)
            return p;
    }
    return NULL;
}

/* ---- callbacks from the message layer ----------------------------------------------------------------------- */

static void take_note(void *up, struct hw_note *note)
{
    struct hawser_peer *p = up;
    note->next = NULL;
    pthread_mutex_lock(&p->note_lock);
    *p->last_note = note;
    p->last_note = &note->next;
    bool known = atomic_load(&p->known);
    pthread_mutex_unlock(&p->note_lock);
    if (p->h->flags & HAWSER_EVENTS && known)
        hw_event_push(p->h, &p->notified);
    else
        hw_event_signal(p->h, p->home);
}

void hw_peer_make_known(struct hawser_peer *p)
{
    pthread_mutex_lock(&p->note_lock);
    atomic_store(&p->known, true);
    bool noted = p->note != NULL;
    pthread_mutex_unlock(&p->note_lock);
    if (p->h->flags & HAWSER_EVENTS && noted)
        hw_event_push(p->h, &p->notified);
}

static void note_end(void *up, unsigned rail, int why)
{
    hw_way_ended(up, rail, why);
}

static void note_down(void *up, unsigned rail)
{
    hw_way_down(up, rail);
}

static void note_death(void *up, int why)
{
    hw_peer_kill(up, why);
}

/* Handles the peer's BYE. Confirmations may still arrive over another rail. The peer closes its connections once it
 * knows that the BYE and these confirmations have arrived, or after BYE_MS. If this side closed them first, operations
 * that the peer has confirmed would fail. */
static void note_bye(void *up)
{
    struct hawser_peer *p = up;
    uint64_t ms = atomic_load(&p->rails_up) ? CLOSE_MS : GRACE_MS;
    p->heard_bye = true;
    if (atomic_load(&p->state) >= 0)
        hw_timer_set(&p->home->loop, &p->bye, p->home->loop.now + ms * HW_MS);
}

void hw_peer_look_if_closed(struct hawser_peer *p)
{
    if (p->heard_bye && !atomic_load(&p->rails_up) && !hw_session_is_settling(&p->peer.session))
        hw_peer_lose(p, -ESHUTDOWN);
}

/* Runs on the rail's loop. */
static void note_doubt(void *up, unsigned rail)
{
    struct hawser_peer *p = up;
    (void)rail;
    hw_loop_post(&p->home->loop, &p->spares.call);
}

static const struct hw_peer_ops peer_ops = {.noted = take_note,
                                            .ended = note_end,
                                            .down = note_down,
                                            .died = note_death,
                                            .doubted = note_doubt,
                                            .bye = note_bye};

void hw_peer_share_path(struct hawser_peer *p)
{
    unsigned n = p->n_ways - p->n_spare;
    if (n < 3) /* the other rail would have to carry everything */
        return;
    for (unsigned i = n; i-- > 0;) {
        if (p->way[i].pair != p->way[0].pair)
            continue;
        if (p->way[i].driver == p->home)
            p->peer.relieved |= 1u << i;
        else
            p->peer.relief = i;
        p->peer.relief_loops += i > 0 && i < p->h->n_drivers;
    }
}

int hw_peer_set_rails(struct hawser_peer *p, unsigned n)
{
    struct hawser *h = p->h;
    struct hw_loop *loop[HW_SESSION_RAILS];
    p->way = calloc(n, sizeof *p->way);
    if (!p->way)
        return hw_no_memory("a peer's rails");
    for (unsigned i = 0; i < n; i++) {
        struct hw_way *w = &p->way[i];
        w->peer = p;
        w->index = i;
        w->links = 1;
        w->driver = &h->driver[(size_t)(p->home - h->driver + i) % h->n_drivers];
        for (unsigned k = 0; k < HW_RAIL_LINKS; k++)
            w->in_fd[k] = -1;
        loop[i] = &w->driver->loop;
    }
    int rc = hw_peer_init(&p->peer, &h->domain, p->client, &p->home->loop, loop, n, &peer_ops, h->tp->io, p, &h->limits,
                          p->secret);
    if (rc < 0) {
        free(p->way);
        p->way = NULL;
        return rc;
    }
    p->peer.by_reference = h->k.splice;
    p->n_ways = n;
    p->has_rails = true;
    return 0;
}

/* ---- death ------------------------------------------------------------------------------------------------ */

void hw_peer_kill(struct hawser_peer *p, int why)
{
    struct hawser *h = p->h;
    bool lived = atomic_load(&p->state) == HW_PEER_LIVES;
    if (atomic_load(&p->state) < 0)
        return;
    memcpy(p->why, hw_error(), strlen(hw_error()) + 1);
    atomic_store(&p->state, why);
    hw_timer_stop(&p->home->loop, &p->dead);
    hw_timer_stop(&p->home->loop, &p->bye);
    hw_ways_stop(p);
    if (p->has_rails)
        hw_peer_die(&p->peer, hw_fail_copy(why, p->why)); /* closing the rails may have replaced the error text */
    if (why != -ESHUTDOWN)
        hw_log(&h->log, HAWSER_LOG_INFO, "%s: peer lost: %s", p->name, p->why); /* callers receive this as an error */
    if (h->flags & HAWSER_EVENTS && p->known)
        hw_event_push(h, &p->died);
    pthread_mutex_lock(&h->lock);
    h->metrics.lost += lived && why != -ESHUTDOWN;
    if (!p->client && !p->known && !p->closing &&
        hw_list_empty(&p->in_accept)) { /* the application will not close this peer */
        hw_list_append(&h->graves, &p->in_accept);
        atomic_fetch_add(&h->n_graves, 1);
        pthread_cond_broadcast(&h->someone);
    }
    pthread_mutex_unlock(&h->lock);
    hw_event_signal(h, p->home);
}

static void fire_dead(struct hw_timer *t)
{
    struct hawser_peer *p = hw_container_of(t, struct hawser_peer, dead);
    hw_peer_lose(p, hw_fail(-ECONNRESET, atomic_load(&p->pairs_up)
                                             ? "every path to the peer is dead"
                                             : "no connection to the peer could be established on any path"));
}

void hw_peer_lose(struct hawser_peer *p, int why)
{
    if (p->closing)
        why = hw_fail(-ESHUTDOWN, "closed by this side");
    hw_peer_kill(p, p->heard_bye ? hw_fail(-ESHUTDOWN, "the peer closed the connection") : why);
}

static void fire_bye(struct hw_timer *t)
{
    hw_peer_lose(hw_container_of(t, struct hawser_peer, bye), -ESHUTDOWN);
}

/* ---- closing ------------------------------------------------------------------------------------------------ */

static void detach_peer(struct hawser_peer *p)
{
    struct hawser *h = p->h;
    pthread_mutex_lock(&h->lock);
    if (!hw_list_empty(&p->in_accept)) {
        hw_list_remove(&p->in_accept);
        atomic_fetch_sub(p->known ? &h->n_accepts : &h->n_graves, 1);
    }
    if (!hw_list_empty(&p->in_context)) {
        hw_list_remove(&p->in_context);
        h->n_peers--;
    }
    hw_metrics_fold(p);
    pthread_mutex_unlock(&h->lock);
}

static void end_bye(struct hw_op *op)
{
    struct hawser_peer *p = op->user;
    atomic_store(&p->said_bye, true);
    hw_event_signal(p->h, p->home);
}

static bool is_bye_over(void *arg)
{
    const struct hawser_peer *p = arg;
    return atomic_load(&p->said_bye);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static bool is_memory_free(struct hawser_peer *p)
{
    return atomic_load(&p->state) < 0 || hw_peer_is_quiet(&p->peer);
}

/* Cancels sending, and waits up to BYE_MS until memory that was sent by reference is no longer read, because the
 * application may reuse this memory after the close. */
static void finish_sending(struct hawser_peer *p)
{
    hw_driver_enter(p->home);
    hw_peer_call_off(&p->peer);
    hw_driver_end(p->home);
    const uint64_t end = hw_deadline(BYE_MS);
    while (!is_memory_free(p) && hw_now() < end) /* is_memory_free() takes a lock, so hw_driver_wait() cannot use it */
        (void)hw_driver_wait(p->home, never, NULL, hw_now() + HW_MS);
}

/* Sends BYE to the peer, if a rail is up, and waits until the peer has received BYE and all confirmations, or BYE_MS
 * have passed. */
static void say_bye(struct hawser_peer *p)
{
    struct hw_op *op = hw_op_new(&p->peer, HW_OP_BYE, 0);
    if (!op)
        return;
    op->over = end_bye;
    op->user = p;
    op->deadline = hw_deadline(BYE_MS);
    hw_driver_enter(p->home);
    p->closing = true;
    int rc = atomic_load(&p->rails_up) ? hw_op_post(op) : -ENOTCONN;
    hw_driver_end(p->home);
    if (rc == 0) /* the operation ends no later than its deadline */
        (void)hw_driver_wait(p->home, is_bye_over, p, HW_NEVER);
    hw_op_put(op);
}

static bool is_peer_gone(void *arg)
{
    struct hawser_peer *p = arg;
    return hw_ways_are_idle(p) && !atomic_load(&p->arrive.posted) && !atomic_load(&p->nics.posted) &&
           !atomic_load(&p->spares.call.posted) && (!p->has_rails || hw_peer_is_gone(&p->peer));
}

/* Returns true once none of the peer's tasks will run again. */
static bool look_if_gone(struct hawser_peer *p)
{
    hw_driver_enter(p->home);
    bool gone = is_peer_gone(p);
    hw_driver_end(p->home);
    return gone;
}

static void wait_until_gone(struct hawser_peer *p)
{
    while (!look_if_gone(p))
        (void)hw_driver_wait(p->home, never, NULL, hw_now() + HW_MS);
}

static void drop_events(struct hawser_peer *p)
{
    /* a thread that reports `died` may queue `notified`, which is therefore dropped later */
    hw_event_drop(p->h, &p->arrived);
    hw_event_drop(p->h, &p->died);
    hw_event_drop(p->h, &p->notified);
    hw_event_drop(p->h, &p->connected);
}

void hawser_peer_close(hawser_peer *p)
{
    if (!p)
        return;
    struct hawser *h = p->h;
    hw_connect_join(p);
    detach_peer(p); /* the listener no longer finds the peer */
    if (p->has_rails && atomic_load(&p->state) >= 0 && p->peer.by_reference)
        finish_sending(p);
    if (p->has_rails && atomic_load(&p->state) >= 0)
        say_bye(p);
    hw_driver_enter(p->home);
    p->known = false;  /* the death of a closed peer is not reported */
    p->closing = true; /* prevents another thread's hawser_accept() from closing the peer too */
    if (atomic_load(&p->state) >= 0)
        hw_peer_kill(p, hw_fail(-ESHUTDOWN, "closed by this side"));
    hw_driver_end(p->home);
    detach_peer(p);
    wait_until_gone(p);
    drop_events(p);
    if (p->has_rails) {
        hw_memory_forget_peer(h, &p->peer);
        hw_context_visit(h); /* threads that were running a task of the peer have finished */
        hw_handles_forget(&p->peer);
        wait_until_gone(p); /* another thread may have posted a task to revoke a handle */
        hw_context_visit(h);
        pthread_mutex_lock(&p->door);
        p->closed = true;
        pthread_mutex_unlock(&p->door);
        pthread_mutex_lock(&h->lock);
        hw_metrics_fold(p); /* adds the totals since detach_peer() */
        pthread_mutex_unlock(&h->lock);
        hw_driver_enter(p->home);
        hw_peer_free(&p->peer);
        hw_driver_end(p->home);
    }
    while (atomic_load(&p->callers)) /* all operations have ended, so these threads return soon */
        sched_yield();
    hw_ways_free(p);
    while (p->note) {
        struct hw_note *next = p->note->next;
        free(p->note);
        p->note = next;
    }
    hw_peer_unref(p);
}

/* ---- queries by the application ------------------------------------------------------------------------------- */

int hawser_peer_state(hawser_peer *p)
{
    int rc = atomic_load(&p->state);
    if (rc == HW_PEER_NEW)
        return hw_fail(-EAGAIN, "the connection to the peer is still being established");
    return rc < 0 ? hw_fail_copy(rc, p->why) : 0;
}

const char *hawser_peer_name(hawser_peer *p)
{
    return p->name;
}

void hawser_peer_set_user(hawser_peer *p, void *user)
{
    p->user = user;
}

void *hawser_peer_user(hawser_peer *p)
{
    return p->user;
}

int hawser_notification(hawser_peer *p, void *buf, size_t cap, size_t *len)
{
    int rc = 0;
    pthread_mutex_lock(&p->note_lock);
    struct hw_note *note = p->note;
    if (!note) {
        int state = atomic_load(&p->state);
        rc = state < 0 ? hw_fail_copy(state, p->why) : hw_fail(-EAGAIN, "no notification has arrived");
    } else if (*len = note->len, note->len > cap) {
        rc = hw_fail(-EMSGSIZE, "the notification has %u bytes, but the buffer has only %zu", note->len, cap);
        note = NULL;
    } else {
        p->note = note->next;
        if (!p->note)
            p->last_note = &p->note;
    }
    pthread_mutex_unlock(&p->note_lock);
    if (!note || rc < 0) {
        if (rc == -EAGAIN)
            hw_driver_poll(p->home, NULL, NULL);
        return rc;
    }
    memcpy(buf, note->data, note->len);
    hw_peer_took(&p->peer, note->len);
    free(note);
    return 0;
}
