/* SPDX-License-Identifier: Apache-2.0 */
/* The last step before a rail is up: the rail's sockets are established, and the transport turns them into its
 * connections, which may need a handshake with the peer's transport. All of this runs with the role of the peer's home.
 */
#include "context/context.h"

#include "base/fork.h"

#include <sys/socket.h>

#define TICK (100 * HW_MS) /* interval of polling for events that no descriptor reports */

static struct hw_loop *get_home(const struct hw_way *w)
{
    return &w->peer->home->loop;
}

/* Records the addresses of the connection and, on the server, its NIC. */
static void note_ends(struct hw_way *w, int fd)
{
    union hw_addr local = {0}, remote = {0};
    socklen_t n = sizeof local, m = sizeof remote;
    (void)getsockname(fd, &local.sa, &n);
    (void)getpeername(fd, &remote.sa, &m);
    hw_addr_unmap(&local);
    hw_addr_unmap(&remote);
    pthread_mutex_lock(&w->peer->h->lock);
    hw_addr_text(&local, w->local, sizeof w->local);
    hw_addr_text(&remote, w->remote, sizeof w->remote);
    if (!w->peer->client)
        hw_nic_of_socket(fd, w->nic);
    pthread_mutex_unlock(&w->peer->h->lock);
}

/* Marks the rail as up. */
static void note_up(struct hw_way *w)
{
    struct hawser_peer *p = w->peer;
    bool first = true;
    for (unsigned i = 0; i < p->n_ways; i++)
        first &= p->way[i].pair != w->pair || !*p->way[i].remote || &p->way[i] == w;
    if (atomic_load(&w->lost))
        hw_log(&p->h->log, HW_MAX(w->lost_level, HAWSER_LOG_INFO), "%s: rail %u (%s to %s) is up again", p->name,
               w->index, w->nic, w->peer_nic);
    atomic_store(&w->up, true);
    w->refused = w->disowned = false;
    w->failures = 0;
    if (first)
        atomic_fetch_add(&p->pairs_up, 1);
    atomic_fetch_add(&p->rails_up, 1);
    hw_timer_stop(&p->home->loop, &p->dead);
    hw_event_signal(p->h, p->home);
}

/* If knob pin is set, pins the thread of the rail's loop to the CPUs near the NIC. */
static void pin_driver(struct hw_way *w)
{
    cpu_set_t cpus;
    if (w->peer->h->k.pin && hw_nic_cpus(w->nic, &cpus) == 0)
        hw_driver_pin(w->driver, &cpus);
}

static void forget_meetings(struct hw_way *w)
{
    struct hw_meeting *m = &w->meeting;
    for (unsigned k = 0; k < m->n && w->peer->h->tp->meet; k++)
        hw_driver_forget(w->peer->home, w->peer->h->tp->meeting_fd(m->conn[k]), &m->watch[k].source);
    hw_timer_stop(get_home(w), &m->timer);
}

/* Closes the m->n connections, which will not become a rail. */
static void close_meeting(struct hw_way *w)
{
    struct hw_meeting *m = &w->meeting;
    forget_meetings(w);
    if (m->n)
        hw_session_give_up(&w->peer->peer.session, w->index, m->gen);
    for (unsigned k = 0; k < m->n; k++)
        w->peer->h->tp->io->close(m->conn[k]);
    m->n = 0;
}

/* Starts the rail, because all connections are ready. */
static int finish_meeting(struct hw_way *w)
{
    struct hw_meeting *m = &w->meeting;
    struct hawser_peer *p = w->peer;
    forget_meetings(w);
    note_up(w);
    note_ends(w, m->fd);
    pin_driver(w);
    int rc = hw_session_start(&p->peer.session, w->index, m->gen, m->conn, m->n, p->client ? &m->theirs : NULL);
    if (rc == 0) {
        m->n = 0; /* the session owns the connections now */
        return 0;
    }
    close_meeting(w);
    atomic_store(&w->up, false);
    atomic_fetch_sub(&p->rails_up, 1);
    return rc;
}

/* Advances the handshake. Returns 0 if the rail has started, -EAGAIN, or an error after which the connections are
 * closed. */
static int step_meeting(struct hw_way *w)
{
    struct hw_meeting *m = &w->meeting;
    const struct hw_transport *tp = w->peer->h->tp;
    unsigned met = 0;
    for (unsigned k = 0; k < m->n && tp->meet; k++) {
        int rc = tp->meet(m->conn[k]);
        if (rc < 0 && rc != -EAGAIN) {
            close_meeting(w);
            return rc;
        }
        met += rc == 0;
    }
    return tp->meet && met < m->n ? -EAGAIN : finish_meeting(w);
}

static void run_meeting(struct hw_task *t)
{
    struct hw_way *w = hw_container_of(t, struct hw_way, meeting.task);
    if (!w->meeting.n)
        return;
    int rc = step_meeting(w);
    if (rc < 0 && rc != -EAGAIN)
        hw_way_failed(w, rc);
}

static void note_meeting_ready(struct hw_source *s, uint32_t events)
{
    struct hw_way *w = hw_container_of(s, struct meeting_watch, source)->way;
    (void)events;
    hw_loop_post(get_home(w), &w->meeting.task);
}

static void fire_meeting(struct hw_timer *t)
{
    struct hw_way *w = hw_container_of(t, struct hw_way, meeting.timer);
    hw_timer_set(get_home(w), t, get_home(w)->now + TICK);
    hw_loop_post(get_home(w), &w->meeting.task);
}

static int make_conn(struct hw_way *w, unsigned k, unsigned n, int *fd)
{
    struct hw_meeting *m = &w->meeting;
    struct hawser_peer *p = w->peer;
    const struct hw_transport *tp = p->h->tp;
    const struct hw_conn_args a = {.env = &p->h->env,
                                   .client = p->client,
                                   .small_only = n > 1 && k == 0,
                                   .id = {.session = p->session,
                                          .channel = w->index << 8 | k,
                                          .gen = m->gen,
                                          .keyed = p->keyed,
                                          .gpu = p->gpu,
                                          .peer_gpu = p->peer_gpu,
                                          .secret = p->secret},
                                   .from = &w->from,
                                   .to = &w->to,
                                   .counts = &w->counts};
    hw_sock_buffers(*fd, &p->h->k);
    int rc = tp->make(hw_take_fd(fd), &a, &m->conn[k]);
    if (rc < 0)
        return rc;
    m->n = k + 1;
    if (!tp->meet)
        return 0;
    int meets = tp->meeting_fd(m->conn[k]);
    m->watch[k].way = w;
    m->watch[k].source.ready = note_meeting_ready;
    return meets >= 0 ? hw_driver_watch(p->home, meets, &m->watch[k].source) : 0;
}

int hw_meeting_begin(struct hw_way *w, uint32_t gen, int *fd, unsigned n, const struct hw_word *theirs)
{
    struct hw_meeting *m = &w->meeting;
    close_meeting(w);
    m->gen = gen;
    m->fd = fd[n - 1];
    m->task.run = run_meeting;
    m->timer.fire = fire_meeting;
    if (theirs)
        m->theirs = *theirs;
    for (unsigned k = 0; k < n; k++) {
        int rc = make_conn(w, k, n, &fd[k]);
        if (rc < 0) {
            close_meeting(w);
            return rc;
        }
    }
    int rc = step_meeting(w);
    if (rc != -EAGAIN)
        return rc;
    hw_timer_set(get_home(w), &m->timer, get_home(w)->now + TICK);
    return 0;
}

void hw_meeting_side(struct hw_way *w, uint32_t gen, unsigned link, int *fd)
{
    struct hw_meeting *m = &w->meeting;
    const struct hw_transport *tp = w->peer->h->tp;
    if (!m->n || gen != m->gen || link >= m->n || !tp->side || hw_hs_welcome(*fd, HW_OK, 0) < 0)
        return;
    tp->side(m->conn[link], hw_take_fd(fd));
    hw_loop_post(get_home(w), &m->task);
}

void hw_meeting_stop(struct hw_way *w)
{
    close_meeting(w);
}

bool hw_meeting_is_idle(const struct hw_way *w)
{
    return !atomic_load(&w->meeting.task.posted);
}
