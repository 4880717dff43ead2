/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects and reconnects rails. The client opens all links of a rail at once. On each link, it proves that it knows
 * the session's secret, and sends the number of links and its last word about the previous generation (core/session.h).
 * Once all links have arrived, the server answers on each of them with its own last word. A rail that ends is
 * reconnected after a delay that grows with each failure up to 1 s.
 *
 * All of this runs with the role of the peer's home.
 */
#include "context/context.h"

#include "base/fork.h"
#include "transport/tcp/tcp.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BACKOFF_MIN (20 * HW_MS)
#define BACKOFF_MAX (1000 * HW_MS)
/* Minimum time that spare rails stay connected, so that they are not reconnected each time a NIC's link flaps. */
#define REST (5000 * HW_MS)
/* Maximum time for which a server waits for a client that has closed all connections and opens no new ones. */
#define GONE_MS 2000

/* ---- both sides ------------------------------------------------------------------------------------------ */

/* Returns the time at which a peer without rails dies: peer_timeout_ms after this side last heard from the peer (or
 * after now, if this side never did), but at least a quarter of peer_timeout_ms from now, so that the rails can be
 * reconnected. If the client has closed its connections, the server waits at most GONE_MS. */
static uint64_t find_death(const struct hawser_peer *p, int why)
{
    uint64_t whole = p->h->k.peer_timeout_ms * HW_MS, now = p->home->loop.now, heard = 0;
    for (unsigned i = 0; i < p->n_ways; i++) /* all rails have ended */
        heard = HW_MAX(heard, p->peer.session.rail[i].rail.heard);
    /* a process that dies closes its connections; a peer that considers a path dead closes them too, but reconnects */
    if (!p->client && why == -ECONNRESET)
        return now + HW_MIN(whole, GONE_MS * HW_MS);
    return heard ? HW_MAX(heard + whole, now + whole / 4) : now + whole;
}

static void watch_for_death(struct hawser_peer *p, int why)
{
    if (!atomic_load(&p->rails_up) && !p->dead.set && atomic_load(&p->state) >= 0)
        hw_timer_set(&p->home->loop, &p->dead, find_death(p, why));
}

/* Returns true if this side is closing and its BYE has ended or can still be sent over another rail. A peer that has
 * received the BYE closes its rails as well and would refuse new ones. */
static bool is_leaving(const struct hawser_peer *p)
{
    return p->closing && (atomic_load(&p->said_bye) || atomic_load(&p->rails_up));
}

/* ---- client -------------------------------------------------------------------------------------------------- */

static void close_attempt(struct hw_attempt *a)
{
    if (a->fd < 0)
        return;
    hw_driver_forget(a->way->peer->home, a->fd, &a->source);
    hw_fork_close(&a->fd);
}

static void stop_dialling(struct hw_way *w)
{
    for (unsigned k = 0; w->attempt && k < w->links; k++)
        close_attempt(&w->attempt[k]);
    w->dialling = false;
    hw_timer_stop(&w->peer->home->loop, &w->timer);
}

static bool is_resting(const struct hw_way *w)
{
    return w->spare && !w->peer->spares.called;
}

static void dial_later(struct hw_way *w)
{
    if (is_resting(w))
        return;
    uint64_t wait = BACKOFF_MIN << HW_MIN(w->failures, 8u);
    w->failures++;
    if (atomic_load(&w->peer->state) >= 0)
        hw_timer_set(&w->peer->home->loop, &w->timer, w->peer->home->loop.now + HW_MIN(wait, BACKOFF_MAX));
}

static bool is_session_refused(const struct hw_way *w)
{
    for (unsigned k = 0; k < w->links; k++)
        if (w->attempt[k].hs.challenge.refusal == HW_REFUSE_SESSION ||
            w->attempt[k].hs.welcome.refusal == HW_REFUSE_SESSION)
            return true;
    return false;
}

/* Returns true if all rails are lost, and the peer no longer knows the session or refuses connections on every path.
 * Before the first rail is up, a path may still lead to another server, so the session must be unknown on every path
 * that is tried. */
static bool is_peer_over(const struct hawser_peer *p)
{
    bool all_refused = true, any_disowned = false, all_disowned = true;
    if (atomic_load(&p->rails_up))
        return false;
    for (unsigned i = 0; i < p->n_ways; i++) {
        const struct hw_way *w = &p->way[i];
        any_disowned |= w->disowned;
        all_disowned &= w->disowned || is_resting(w);
        all_refused &= w->refused;
    }
    return atomic_load(&p->pairs_up) ? any_disowned || all_refused : any_disowned && all_disowned;
}

/* Kills the peer and returns true if the transport can no longer open connections. */
static bool is_transport_dead(struct hawser_peer *p)
{
    struct hawser *h = p->h;
    int rc = h->tp->alive && atomic_load(&p->state) >= 0 ? h->tp->alive(&h->env) : 0;
    if (rc < 0)
        hw_peer_kill(p, rc);
    return rc < 0;
}

/* Returns true if the transport has no device for any of the NICs. */
static bool is_hopeless(const struct hawser_peer *p)
{
    bool all = true;
    for (unsigned i = 0; i < p->n_ways; i++)
        all &= p->way[i].hopeless;
    return all;
}

/* Returns true if a rail that is not spare is likely to deliver new frames. */
static bool has_sound_rail(struct hawser_peer *p)
{
    for (unsigned i = 0; i < p->n_ways - p->n_spare; i++)
        if (atomic_load(&p->way[i].up) && hw_session_is_sound(&p->peer.session, i))
            return true;
    return false;
}

/* Ends a failed attempt, and schedules the next one or kills the peer. */
static void give_up(struct hw_way *w, int why)
{
    struct hawser_peer *p = w->peer;
    bool asked = true; /* true if the server has accepted all links, so that it may have started the rail */
    for (unsigned k = 0; k < w->links; k++)
        asked &= w->attempt[k].greeted;
    if (asked)
        hw_session_give_up(&p->peer.session, w->index, w->gen);
    stop_dialling(w);
    hw_log(&p->h->log, HAWSER_LOG_DEBUG, "%s: %s to %s: %s", p->name, w->nic, w->peer_nic, hw_error());
    w->refused = why == -ECONNREFUSED;
    w->disowned = is_session_refused(w);
    w->hopeless |= why == -ENODEV && p->h->env.caps.nodev_final;
    if (is_transport_dead(p))
        return;
    if (is_hopeless(p)) { /* no NIC works with this transport, so more attempts would not help */
        hw_peer_kill(p, why);
        return;
    }
    if (is_peer_over(p)) {
        hw_peer_lose(p, atomic_load(&p->pairs_up)
                            ? hw_wrap(-ECONNRESET, "the peer is lost: it refuses new connections")
                            : hw_wrap(-ECONNRESET, "%s: the peer closed the session during setup", p->name));
        return;
    }
    dial_later(w);
    if (!has_sound_rail(p))
        hw_ways_call_spares(&p->spares.call);
}

void hw_way_failed(struct hw_way *w, int why)
{
    struct hawser_peer *p = w->peer;
    if (p->client) {
        give_up(w, why);
        return;
    }
    hw_log(&p->h->log, HAWSER_LOG_DEBUG, "%s: rail %u: %s", p->name, w->index, hw_error());
    (void)is_transport_dead(p);
}

/* Hands the established links to the transports' handshake. */
static void finish_dialling(struct hw_way *w)
{
    struct hawser_peer *p = w->peer;
    int fd[HW_RAIL_LINKS];
    struct hw_word theirs;
    uint32_t links;
    int rc = hw_ask_decode(w->attempt[0].answer, &links, &theirs);
    for (unsigned k = 0; k < w->links; k++) {
        hw_driver_forget(p->home, w->attempt[k].fd, &w->attempt[k].source);
        hw_sock_settled(w->attempt[k].fd, &p->h->k);
        fd[k] = hw_take_fd(&w->attempt[k].fd);
    }
    stop_dialling(w);
    if (rc == 0)
        rc = hw_meeting_begin(w, w->gen, fd, w->links, &theirs);
    for (unsigned k = 0; k < w->links; k++)
        hw_fork_close(&fd[k]);
    if (rc < 0)
        give_up(w, rc);
}

/* Advances the attempt. Returns 0 if the link is established, -EAGAIN, or an error. */
static int step_attempt(struct hw_attempt *a)
{
    if (!a->greeted) {
        int rc = hw_hs_step(&a->hs, a->fd);
        if (rc < 0)
            return rc;
        a->greeted = true;
    }
    while (a->have < HW_ASK_SIZE) {
        ssize_t n = recv(a->fd, a->answer + a->have, HW_ASK_SIZE - a->have, MSG_DONTWAIT);
        if (n == 0)
            return hw_fail(-ECONNABORTED, "the peer closed the connection without an answer");
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -EAGAIN : hw_fail(-errno, "receiving an answer: %s", strerror(errno));
        a->have += (uint32_t)n;
    }
    return 0;
}

static void run_attempt(struct hw_task *t)
{
    struct hw_attempt *a = hw_container_of(t, struct hw_attempt, task);
    struct hw_way *w = a->way;
    if (a->fd < 0 || a->done)
        return;
    int rc = step_attempt(a);
    if (rc == -EAGAIN)
        return;
    if (rc < 0) {
        give_up(w, rc);
        return;
    }
    a->done = true;
    if (++w->n_done == w->links)
        finish_dialling(w);
}

static void note_attempt_ready(struct hw_source *s, uint32_t events)
{
    (void)events;
    struct hw_attempt *a = hw_container_of(s, struct hw_attempt, source);
    hw_loop_post(&a->way->peer->home->loop, &a->task);
}

/* Starts the connection of one link. */
static int start_attempt(struct hw_way *w, unsigned k, const struct hw_word *mine)
{
    struct hawser_peer *p = w->peer;
    struct hw_attempt *a = &w->attempt[k];
    struct hw_hello hello = {
        .kind = HW_BOOT_DATA, .keyed = p->keyed, .session = p->session, .channel = w->index << 8 | k, .gen = w->gen};
    a->fd = hw_fork_guard(hw_sock_connect(&w->from, &w->to, &p->h->k));
    if (a->fd < 0) {
        int rc = a->fd;
        a->fd = -1;
        return rc;
    }
    a->greeted = a->done = false;
    a->have = 0;
    hw_hs_client(&a->hs, &hello, p->secret, p->h->k.handshake_ms);
    hw_ask_encode(a->ask, w->links, mine);
    a->hs.after = a->ask;
    a->hs.after_len = HW_ASK_SIZE;
    return hw_driver_watch(p->home, a->fd, &a->source);
}

static void dial(struct hw_way *w)
{
    struct hawser_peer *p = w->peer;
    struct hw_word mine = {0};
    int rc = 0;
    w->gen = hw_session_hello(&p->peer.session, w->index, &mine);
    if (!w->gen)
        return; /* the rail is up or about to be, or the session is dead */
    w->dialling = true;
    w->n_done = 0;
    for (unsigned k = 0; k < w->links && rc == 0; k++)
        rc = start_attempt(w, k, &mine);
    if (rc < 0)
        give_up(w, rc);
    else
        hw_timer_set(&p->home->loop, &w->timer, p->home->loop.now + p->h->k.handshake_ms * HW_MS);
}

/* Starts the next attempt, or ends an attempt that has exceeded its time limit. */
static void fire_way(struct hw_timer *t)
{
    struct hw_way *w = hw_container_of(t, struct hw_way, timer);
    if (w->dialling)
        give_up(w, hw_fail(-ETIMEDOUT, "no answer before the deadline"));
    else
        dial(w);
}

void hw_ways_dial(struct hawser_peer *p)
{
    if (p->n_spare)
        hw_session_spare(&p->peer.session);
    for (unsigned i = 0; i < p->n_ways; i++) {
        struct hw_way *w = &p->way[i];
        w->timer.fire = fire_way;
        for (unsigned k = 0; k < w->links; k++) {
            struct hw_attempt *a = &w->attempt[k];
            a->way = w;
            a->fd = -1;
            a->task.run = run_attempt;
            a->source.ready = note_attempt_ready;
        }
        if (!w->spare)
            dial(w);
    }
    watch_for_death(p, 0);
}

/* ---- client: spare rails -------------------------------------------------------------------------------------- */

/* Connects the spare rails if they are not in use yet. Does not check has_sound_rail(), because a doubtful rail counts
 * as sound while no other rail hears from the peer. */
void hw_ways_call_spares(struct hw_task *t)
{
    struct hawser_peer *p = hw_container_of(t, struct hawser_peer, spares.call);
    if (!p->n_spare || p->spares.called || atomic_load(&p->state) < 0 || is_leaving(p))
        return;
    p->spares.called = true;
    hw_log(&p->h->log, HAWSER_LOG_INFO, "%s: no preferred NIC is known to work now: connecting over the others",
           p->name);
    hw_timer_set(&p->home->loop, &p->spares.rest, p->home->loop.now + REST);
    for (unsigned i = p->n_ways - p->n_spare; i < p->n_ways; i++) {
        p->way[i].failures = 0;
        if (!p->way[i].dialling)
            dial(&p->way[i]);
    }
}

/* Ends the spare rails if they are no longer needed, or else checks again after REST. */
void hw_ways_rest_spares(struct hw_timer *t)
{
    struct hawser_peer *p = hw_container_of(t, struct hawser_peer, spares.rest);
    if (!has_sound_rail(p)) {
        hw_timer_set(&p->home->loop, t, p->home->loop.now + REST);
        return;
    }
    p->spares.called = false;
    for (unsigned i = p->n_ways - p->n_spare; i < p->n_ways; i++) {
        stop_dialling(&p->way[i]);
        hw_session_end_rail(&p->peer.session, i);
    }
}

/* ---- server ---------------------------------------------------------------------------------------------------- */

static void refuse_fd(int *fd, unsigned refusal)
{
    if (*fd < 0)
        return;
    (void)hw_hs_welcome(*fd, refusal, 0);
    hw_fork_close(fd);
}

static void refuse_links(struct hw_way *w, unsigned refusal)
{
    for (unsigned k = 0; k < HW_RAIL_LINKS; k++)
        refuse_fd(&w->in_fd[k], refusal);
    w->in_have = 0;
}

/* Answers the links once all have arrived and the rail is down. */
static void answer_links(struct hw_way *w)
{
    struct hawser_peer *p = w->peer;
    struct hw_word mine = {0};
    uint8_t answer[HW_ASK_SIZE];
    if (!w->in_have || w->in_have < w->in_links)
        return;
    int rc = hw_session_answer(&p->peer.session, w->index, w->in_gen, &mine);
    if (rc == -EAGAIN)
        return; /* hw_way_down() calls this function again */
    hw_ask_encode(answer, w->in_links, &mine);
    for (unsigned k = 0; k < w->in_links && rc == 0; k++) {
        hw_sock_accepted(w->in_fd[k], &p->h->k);
        rc = hw_hs_welcome(w->in_fd[k], HW_OK, 0);
        if (rc == 0 && send(w->in_fd[k], answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof answer)
            rc = hw_fail(-ECONNRESET, "answering a new connection: %s", strerror(errno));
    }
    w->in_have = 0;
    if (rc == 0)
        rc = hw_meeting_begin(w, w->in_gen, w->in_fd, w->in_links, NULL);
    refuse_links(w, HW_REFUSE_STALE);
    if (rc < 0) {
        hw_session_give_up(&p->peer.session, w->index, w->in_gen);
        hw_way_failed(w, rc);
    }
}

/* Starts a newer generation of the rail when its first link arrives. Returns HW_OK or the refusal. */
static unsigned begin_generation(struct hw_way *w, uint32_t gen, uint32_t links, const struct hw_word *theirs)
{
    refuse_links(w, HW_REFUSE_STALE);
    hw_meeting_stop(w);
    w->in_links = links;
    w->in_gen = gen;
    int rc = hw_session_ask(&w->peer->peer.session, w->index, gen, theirs);
    return rc < 0 ? HW_REFUSE_STALE : HW_OK;
}

static void take_arrival(struct hawser_peer *p, struct hw_arrival *a)
{
    struct hw_way *w = a->rail < p->n_ways ? &p->way[a->rail] : NULL;
    struct hw_word theirs;
    uint32_t links;
    unsigned refusal = HW_OK;
    if (a->side) {
        if (w && atomic_load(&p->state) >= 0)
            hw_meeting_side(w, a->gen, a->link, &a->fd);
        refuse_fd(&a->fd, HW_REFUSE_STALE);
        return;
    }
    int rc = hw_ask_decode(a->ask, &links, &theirs);
    if (rc < 0 || !w || a->link >= links || atomic_load(&p->state) < 0)
        refusal = HW_REFUSE_SESSION;
    else if (a->gen < w->in_gen)
        refusal = HW_REFUSE_STALE;
    else if (a->gen > w->in_gen)
        refusal = begin_generation(w, a->gen, links, &theirs);
    if (refusal == HW_OK && (links != w->in_links || w->in_fd[a->link] >= 0))
        refusal = HW_REFUSE_STALE;
    if (refusal != HW_OK) {
        refuse_fd(&a->fd, refusal);
        return;
    }
    w->in_fd[a->link] = hw_take_fd(&a->fd);
    w->in_have++;
    answer_links(w);
}

void hw_ways_arrive(struct hw_task *t)
{
    struct hawser_peer *p = hw_container_of(t, struct hawser_peer, arrive);
    if (atomic_load(&p->abandoned))
        hw_peer_kill(p, hw_fail(-ECONNRESET, "the client's connection failed during setup"));
    watch_for_death(p, 0);
    for (;;) {
        pthread_mutex_lock(&p->h->lock);
        struct hw_arrival *a = hw_list_first(&p->arrivals, struct hw_arrival, of_peer);
        if (a)
            hw_list_remove(&a->of_peer);
        pthread_mutex_unlock(&p->h->lock);
        if (!a)
            return;
        take_arrival(p, a);
        free(a);
    }
}

/* ---- callbacks from the session --------------------------------------------------------------------------------- */

/* Returns true for an error of the network path that may disappear without action. Other errors may require an
 * administrator's attention. */
static bool is_of_the_path(int why)
{
    return why == -ECONNRESET || why == -ECONNABORTED || why == -ETIMEDOUT || why == -EPIPE || why == -ENETDOWN ||
           why == -ENETUNREACH || why == -EHOSTUNREACH;
}

void hw_way_ended(struct hawser_peer *p, unsigned rail, int why)
{
    struct hw_way *w = &p->way[rail];
    if (atomic_exchange(&w->up, false)) {
        atomic_fetch_sub(&p->rails_up, 1);
        if (!is_resting(w)) {
            atomic_fetch_add(&w->lost, 1);
            atomic_fetch_add(&w->failed, !p->closing && !p->heard_bye);
        }
        w->lost_level = is_leaving(p) || is_resting(w) ? HAWSER_LOG_DEBUG
                        : is_of_the_path(why)          ? HAWSER_LOG_INFO
                                                       : HAWSER_LOG_WARN;
        hw_log(&p->h->log, w->lost_level, "%s: rail %u (%s to %s) lost: %s", p->name, rail, w->nic, w->peer_nic,
               hw_error());
    }
    if (is_transport_dead(p))
        return;
    hw_peer_look_if_closed(p);
    watch_for_death(p, why);
    if (!p->client || atomic_load(&p->state) < 0 || is_leaving(p))
        return;
    dial_later(w);
    if (!has_sound_rail(p))
        hw_ways_call_spares(&p->spares.call);
}

void hw_way_down(struct hawser_peer *p, unsigned rail)
{
    hw_peer_look_if_closed(p);
    if (!p->client)
        answer_links(&p->way[rail]);
}

/* ---- stopping --------------------------------------------------------------------------------------- */

void hw_ways_stop(struct hawser_peer *p)
{
    hw_timer_stop(&p->home->loop, &p->spares.rest);
    for (unsigned i = 0; i < p->n_ways; i++) {
        stop_dialling(&p->way[i]);
        hw_meeting_stop(&p->way[i]);
        refuse_links(&p->way[i], HW_REFUSE_SESSION);
    }
}

bool hw_ways_are_idle(const struct hawser_peer *p)
{
    for (unsigned i = 0; i < p->n_ways; i++) {
        if (!hw_meeting_is_idle(&p->way[i]))
            return false;
        for (unsigned k = 0; p->way[i].attempt && k < p->way[i].links; k++)
            if (atomic_load(&p->way[i].attempt[k].task.posted))
                return false;
    }
    return true;
}

void hw_ways_free(struct hawser_peer *p)
{
    for (unsigned i = 0; i < p->n_ways; i++)
        free(p->way[i].attempt);
    free(p->way);
    p->way = NULL;
    hw_list_each(it, tmp, &p->arrivals)
    {
        struct hw_arrival *a = hw_container_of(it, struct hw_arrival, of_peer);
        hw_fork_close(&a->fd);
        free(a);
    }
}
