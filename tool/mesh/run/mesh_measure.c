/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/run/mesh_measure.h"

#include "tool/load/measure.h"
#include "tool/tool.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#define MEET_MS     2000 /* ms for which the streams of an order wait for each other before their clocks start */
#define PING_BYTES  8
#define PINGS_FIRST 20 /* round trips before the clock starts */

/* A barrier that makes the clocks of several streams start together. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t all;
    unsigned here, of;
};

/* One direction or one target of an order. */
struct stream {
    struct session *s;
    const struct mesh_order *o;
    enum tp_op op;
    struct gate *gate; /* NULL if the stream is alone */
    bool through;
    pthread_t thread;
    bool started;
    /* results */
    int rc;
    char text[HW_ERR_TEXT];
    double low_us, p50_us;
    struct measure_sum sum;
};

static int pass_gate(void *arg)
{
    struct stream *t = arg;
    struct timespec until;
    if (!t->gate || t->through)
        return 0;
    t->through = true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MEET_MS / 1000;
    pthread_mutex_lock(&t->gate->lock);
    t->gate->here++;
    pthread_cond_broadcast(&t->gate->all);
    int rc = 0; /* after MEET_MS, continue without a late stream: the stream's deadline reports the delay */
    while (t->gate->here < t->gate->of && rc == 0)
        rc = pthread_cond_timedwait(&t->gate->all, &t->gate->lock, &until);
    pthread_mutex_unlock(&t->gate->lock);
    return 0;
}

/* Transfers until the warm-up time has passed. Stores in *iters how many transfers fit in the measurement's time, but
 * at least m->depth. The measurement is limited by this number and not by time, because the last transfer of each
 * batch, which is checked, must be known when the batch is filled. */
static int warm_up(struct measure *m, const struct mesh_order *o, struct measure_sum *sum, uint64_t *iters)
{
    int rc = 0;
    uint64_t n = m->depth;
    do {
        rc = measure_run(m, n, 0, sum);
        n *= 2;
    } while (rc == 0 && sum->seconds * 1000 < o->warmup_ms);
    double worth = sum->seconds > 0 ? (double)sum->iters / sum->seconds * o->duration_ms / 1000 : 0;
    *iters = (uint64_t)HW_MIN(HW_MAX(worth, (double)m->depth), 1e9);
    return rc;
}

static int run_stream(struct stream *t)
{
    const struct mesh_order *o = t->o;
    const bool ping = t->op == TP_PINGPONG;
    struct measure_plan plan = {.op = t->op,
                                .size = ping ? PING_BYTES : o->size,
                                .gpu = o->gpu == TP_HOST ? BUFFER_HOST : o->gpu,
                                .peer_gpu = o->gpu,
                                .depth = o->depth,
                                .depth_given = true,
                                .verify = true,
                                .hot = !ping};
    HW_AUTO_FREE struct measure *m = calloc(1, sizeof *m);
    HW_AUTO_FREE struct measure_sum *first = calloc(1, sizeof *first);
    if (!m || !first)
        return hw_no_memory("a measurement");
    if (getrandom(&plan.seed, sizeof plan.seed, 0) != (ssize_t)sizeof plan.seed)
        return hw_fail(-EIO, "the kernel returned no random bytes");
    int rc = measure_open(m, t->s, &plan);
    if (rc < 0)
        return rc;
    uint64_t iters = HW_MAX(o->pings, 1u);
    rc = ping ? measure_run(m, PINGS_FIRST, 0, first) : warm_up(m, o, first, &iters);
    m->gate = pass_gate;
    m->progress_arg = t;
    m->record = true;
    if (rc == 0)
        rc = measure_run(m, iters, 0, &t->sum);
    /* A disturbed warm-up yields too few transfers, which the queues alone might absorb. */
    while (rc == 0 && !ping && t->sum.seconds * 2000 < o->duration_ms)
        rc = measure_run(m, iters *= 2, 0, &t->sum);
    t->sum.bad += first->bad;
    t->sum.verified += first->verified;
    t->low_us = (double)hw_hist_quantile(m->hist, 0.1) / 1e3;
    t->p50_us = (double)hw_hist_quantile(m->hist, 0.5) / 1e3;
    HW_KEEP_ERROR();
    measure_close(m);
    return rc;
}

static void *stream_main(void *arg)
{
    struct stream *t = arg;
    t->rc = run_stream(t);
    if (t->rc < 0)
        snprintf(t->text, sizeof t->text, "%s", hw_error());
    (void)pass_gate(t); /* after a failure, release the other streams from the gate */
    return NULL;
}

/* Runs all streams at once. Returns 0, or the error of the first stream in t that failed. */
static int run_streams(struct stream *t, size_t n)
{
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER, .of = (unsigned)n};
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        t[i].gate = n > 1 ? &gate : NULL;
        int e = i + 1 < n ? pthread_create(&t[i].thread, NULL, stream_main, &t[i]) : 0;
        t[i].started = i + 1 < n && e == 0;
        if (e) {
            t[i].rc = hw_fail(-e, "starting a thread: %s", hw_errno_name(e));
            snprintf(t[i].text, sizeof t[i].text, "%s", hw_error());
            (void)pass_gate(&t[i]);
        } else if (i + 1 == n)
            (void)stream_main(&t[i]);
    }
    for (size_t i = 0; i < n; i++)
        if (t[i].started)
            pthread_join(t[i].thread, NULL);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = hw_fail_copy(t[i].rc, t[i].text);
    return rc;
}

static double compute_rate(const struct stream *t)
{
    return t->sum.seconds > 0 ? (double)t->sum.bytes / 1e9 / t->sum.seconds : 0;
}

static void add_checked(struct mesh_answer *a, const struct stream *t)
{
    a->bad += t->sum.bad;
    a->checked += t->sum.verified;
}

/* Records the rate of each NIC in this stream, in GB/s: inbound for reads, outbound for writes. */
static void add_shares(struct mesh_answer *a, struct session *s, const struct stream *t)
{
    struct session_path path[TP_MAX_PATHS];
    size_t n = session_paths(s, path, HW_ARRAY_LEN(path));
    for (size_t i = 0; i < n && t->sum.seconds > 0; i++) {
        uint32_t at = 0;
        while (at < a->n_nics && strcmp(a->nic[at].nic, path[i].nic) != 0)
            at++;
        if (at == TP_MAX_NICS)
            return;
        if (at == a->n_nics) {
            a->nic[a->n_nics++] = (struct mesh_share){0};
            memcpy(a->nic[at].nic, path[i].nic, HAWSER_NIC_NAME);
            memcpy(a->nic[at].peer_nic, path[i].peer_nic, HAWSER_NIC_NAME);
        }
        for (size_t k = 0; k < t->sum.n_own; k++) {
            const struct tp_nic *own = &t->sum.own[k];
            if (strcmp(own->nic, path[i].nic) != 0)
                continue;
            if (t->op == TP_READ)
                a->nic[at].in_GBps = (double)own->rx_bytes / 1e9 / t->sum.seconds;
            else
                a->nic[at].out_GBps = (double)own->tx_bytes / 1e9 / t->sum.seconds;
        }
    }
}

static int measure_latency(struct mesh_link *l, const struct mesh_order *o, struct mesh_answer *a)
{
    HW_AUTO_FREE struct stream *t = calloc(1, sizeof *t);
    if (!t)
        return hw_no_memory("a measurement");
    *t = (struct stream){.s = &l->there, .o = o, .op = TP_PINGPONG};
    int rc = run_streams(t, 1);
    a->low_us = t->low_us;
    a->p50_us = t->p50_us;
    add_checked(a, t);
    return rc;
}

/* Measures writes to the peer, and then reads from the peer, on s. */
static int measure_one_way(struct session *s, const struct mesh_order *o, struct mesh_answer *a)
{
    HW_AUTO_FREE struct stream *t = calloc(2, sizeof *t);
    int rc = t ? 0 : hw_no_memory("a measurement");
    for (unsigned k = 0; k < 2 && rc == 0; k++) {
        t[k] = (struct stream){.s = s, .o = o, .op = k ? TP_READ : TP_WRITE};
        rc = run_streams(&t[k], 1);
        add_checked(a, &t[k]);
        add_shares(a, s, &t[k]);
    }
    if (rc == 0) {
        a->out_GBps = compute_rate(&t[0]);
        a->in_GBps = compute_rate(&t[1]);
    }
    return rc;
}

static int open_back(hawser *h, struct mesh_link *l)
{
    if (l->has_back)
        return 0;
    int rc = session_open(&l->back, h, l->to.addr, l->to.port, NULL);
    l->has_back = rc == 0;
    return rc;
}

static int measure_both_ways(hawser *h, struct mesh_link *l, const struct mesh_order *o, struct mesh_answer *a)
{
    HW_AUTO_FREE struct stream *t = calloc(2, sizeof *t);
    int rc = t ? open_back(h, l) : hw_no_memory("a measurement");
    if (rc < 0)
        return rc;
    t[0] = (struct stream){.s = &l->there, .o = o, .op = TP_WRITE};
    t[1] = (struct stream){.s = &l->back, .o = o, .op = TP_READ};
    rc = run_streams(t, 2);
    a->out_GBps = compute_rate(&t[0]);
    a->in_GBps = compute_rate(&t[1]);
    for (unsigned k = 0; k < 2; k++)
        add_checked(a, &t[k]);
    return rc;
}

/* Measures each pair of NICs alone, one after another. */
static int measure_rails(hawser *h, struct mesh_link *l, const struct mesh_order *o, struct mesh_answer *a)
{
    struct session_path path[TP_MAX_PATHS];
    size_t n = session_paths(&l->there, path, HW_ARRAY_LEN(path));
    int rc = 0;
    for (size_t i = 0; i < HW_MIN(n, (size_t)TP_MAX_NICS) && rc == 0; i++) {
        const struct hawser_connect_options only = {
            .size = sizeof only, .nics = path[i].nic, .peer_nics = path[i].peer_nic};
        struct session s;
        rc = session_open(&s, h, l->to.addr, l->to.port, &only);
        if (rc < 0)
            return hw_wrap(rc, "measuring %s to %s alone", path[i].nic, path[i].peer_nic);
        rc = measure_one_way(&s, o, a);
        session_close(&s);
    }
    return rc;
}

static int measure_all(hawser *h, const struct mesh_order *o, struct mesh_answer *a)
{
    HW_AUTO_FREE struct stream *t = calloc(o->n_targets, sizeof *t);
    HW_AUTO_FREE struct session *s = calloc(o->n_targets, sizeof *s);
    int rc = t && s ? 0 : hw_no_memory("%u measurements", o->n_targets);
    uint32_t n = 0;
    while (n < o->n_targets && rc == 0) {
        rc = session_open(&s[n], h, o->target[n].addr, o->target[n].port, NULL);
        t[n] = (struct stream){.s = &s[n], .o = o, .op = TP_WRITE};
        n += rc == 0;
    }
    if (rc == 0)
        rc = run_streams(t, n);
    HW_KEEP_ERROR();
    for (uint32_t i = 0; i < n; i++) {
        a->out_GBps += compute_rate(&t[i]);
        add_checked(a, &t[i]);
        session_close(&s[i]);
    }
    return rc;
}

void mesh_link_close(struct mesh_link *l)
{
    if (l->has_back)
        session_close(&l->back);
    if (l->to.port)
        session_close(&l->there);
    *l = (struct mesh_link){0};
}

/* Connects l to the target of the order, unless l is already connected to it. Closes an earlier connection. */
static int open_link(hawser *h, struct mesh_link *l, const struct mesh_target *to)
{
    if (l->to.port == to->port && strcmp(l->to.addr, to->addr) == 0 && hawser_peer_state(l->there.peer) == 0)
        return 0;
    mesh_link_close(l);
    int rc = session_open(&l->there, h, to->addr, to->port, NULL);
    if (rc == 0)
        l->to = *to;
    return rc;
}

static int carry_out(hawser *h, struct mesh_link *l, const struct mesh_order *o, struct mesh_answer *a)
{
    if (o->what == MESH_ALL_TO_ALL) {
        mesh_link_close(l);
        return measure_all(h, o, a);
    }
    int rc = open_link(h, l, &o->target[0]);
    if (rc < 0)
        return rc;
    switch (o->what) {
    case MESH_LATENCY:
        return measure_latency(l, o, a);
    case MESH_ONE_WAY:
        return measure_one_way(&l->there, o, a);
    case MESH_BOTH_WAYS:
        return measure_both_ways(h, l, o, a);
    default:
        return measure_rails(h, l, o, a);
    }
}

void mesh_measure(hawser *h, struct mesh_link *l, const struct mesh_order *o, struct mesh_answer *a)
{
    *a = (struct mesh_answer){.seq = o->seq};
    a->status = carry_out(h, l, o, a);
    if (a->status < 0) {
        snprintf(a->text, sizeof a->text, "%s", hw_error());
        mesh_link_close(l); /* closing the connections ends operations in progress on the other side */
    }
}
