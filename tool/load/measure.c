/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/load/measure.h"

#include "tool/load/stats.h"
#include "tool/tool.h"

#include <stdlib.h>
#include <string.h>

#define PING_SLOTS  8 /* number of slots of a pingpong; more than the four receives that the server posts ahead */
#define PING_BATCH  10000
#define FREE_BATCH  1000000
#define SECONDS(ns) ((double)(ns) / 1e9)

struct flight {
    hawser_op *op;
    uint64_t posted; /* hw_now() when the operation was started */
};

static int op_timeout(const struct measure *m)
{
    return MEASURE_OP_MS + (int)HW_MIN(m->plan.size / 1000 * m->depth, (uint64_t)INT32_MAX / 2);
}

static void nic_state(struct measure *m, double t)
{
    struct hawser_nic_stats st[TP_MAX_NICS];
    size_t n = TP_MAX_NICS;
    if (hawser_nic_stats(m->s->peer, st, &n) < 0)
        return;
    n = HW_MIN(n, (size_t)TP_MAX_NICS);
    double dt = t - m->sampled_at;
    for (size_t i = 0; i < n; i++) {
        bool news = i >= m->n_names;
        uint64_t bytes = m->plan.op == TP_READ ? st[i].rx_bytes : st[i].tx_bytes;
        if (news) {
            memcpy(m->names[i], st[i].nic, HAWSER_NIC_NAME);
            m->names[i][HAWSER_NIC_NAME - 1] = 0;
            m->n_names = i + 1;
        } else if (dt > 0 && m->n_points < MEASURE_POINTS) {
            struct timeline_point *p = &m->points[m->n_points++];
            *p = (struct timeline_point){t, (double)(bytes - m->sampled[i]) / 1e9 / dt, (uint32_t)i};
        }
        if (!news && st[i].channels_up != m->up[i] && m->n_faults < MEASURE_FAULTS) {
            struct fault *f = &m->faults[m->n_faults++];
            f->t_s = t;
            snprintf(f->text, sizeof f->text, "%s: %u of %u channels up", m->names[i], st[i].channels_up,
                     st[i].channels);
        }
        m->up[i] = st[i].channels_up;
        m->channels[i] = st[i].channels;
        m->sampled[i] = bytes;
    }
    m->sampled_at = t;
}

/* Returns the bytes of payload that the NICs have carried so far in the direction of the operation, or in both
 * directions for a pingpong. */
static double count_nic_bytes(const struct measure *m)
{
    struct hawser_nic_stats st[TP_MAX_NICS];
    size_t n = TP_MAX_NICS;
    double bytes = 0;
    if (hawser_nic_stats(m->s->peer, st, &n) < 0)
        n = 0;
    for (size_t i = 0; i < HW_MIN(n, (size_t)TP_MAX_NICS); i++)
        bytes += (double)(m->plan.op == TP_READ       ? st[i].rx_bytes
                          : m->plan.op == TP_PINGPONG ? st[i].rx_bytes + st[i].tx_bytes
                                                      : st[i].tx_bytes);
    return bytes;
}

/* Calls the interval hook if the current interval has ended at t seconds of clocked time. */
static void tell_interval(struct measure *m, double t)
{
    if (!m->interval || !m->record || m->interval_s <= 0 || t < m->mark.t_s + m->interval_s)
        return;
    const struct measure_mark to = {.t_s = t, .bytes = count_nic_bytes(m), .ops = m->ops};
    m->interval(m->progress_arg, &m->mark, &to);
    m->mark = to;
}

uint64_t measure_lost(struct measure *m)
{
    return stats_lost(m->s->peer) - m->lost_before;
}

/* Allocates memory on both sides, in slots that are stride bytes apart. */
static int make_measure_memory(struct measure *m, uint64_t stride)
{
    const struct measure_plan *plan = &m->plan;
    m->hist = calloc(1, sizeof *m->hist);
    m->points = calloc(MEASURE_POINTS, sizeof *m->points);
    if (!m->hist || !m->points)
        return hw_no_memory("the results");
    hw_hist_reset(m->hist);
    int rc = buffer_make(&m->buf, m->s->h, plan->gpu, plan->size, stride, m->slots, plan->hot, plan->seed);
    if (rc == 0 && plan->op == TP_PINGPONG)
        rc = buffer_make(&m->back, m->s->h, plan->gpu, plan->size, stride, m->slots, plan->hot, plan->seed);
    if (rc < 0)
        return rc;
    struct tp_request q = {.type = TP_PREPARE,
                           .op = plan->op,
                           .flags = (plan->verify ? 0 : TP_NO_VERIFY) | (plan->hot ? TP_HOT : 0),
                           .slots = m->slots,
                           .depth = m->depth,
                           .size = plan->size,
                           .stride = stride,
                           .seed = plan->seed,
                           .gpu = plan->peer_gpu};
    struct tp_reply r;
    rc = session_call(m->s, &q, &r, session_patience_ms(m->buf.len));
    return rc == 0 && (plan->op == TP_WRITE || plan->op == TP_READ) ? hawser_import(r.key, &m->region) : rc;
}

int measure_open(struct measure *m, struct session *s, const struct measure_plan *plan)
{
    *m = (struct measure){.s = s, .plan = *plan};
    uint64_t align = plan->size >= 4096 ? 4096 : 64, stride;
    if (__builtin_add_overflow(plan->size, align - 1, &stride))
        return hw_fail(-ENOMEM, "cannot allocate %llu bytes", (unsigned long long)plan->size);
    stride = HW_MAX(stride / align * align, align);
    m->depth = plan->depth;
    if (plan->blocks > 1 && !(m->vec = calloc(plan->blocks, sizeof *m->vec)))
        return hw_no_memory("a list of %u pieces", plan->blocks);
    /* Use enough slots to exceed the caches, or up to 32 if they fit into the memory limit. If a depth was requested,
     * use at least that many slots. */
    uint64_t slots = HW_MAX(MEASURE_FRESH / stride, HW_MIN(MEASURE_MEMORY / stride, 32u));
    slots = HW_MIN(HW_MAX(slots, 1u), (uint64_t)TP_MAX_SLOTS);
    if (plan->depth_given)
        slots = HW_MAX(slots, m->depth);
    if (plan->op == TP_PINGPONG)
        slots = PING_SLOTS;
    m->slots = (uint32_t)slots;
    m->depth = plan->op == TP_PINGPONG ? 1 : HW_MIN(m->depth, m->slots);
    m->lost_before = measure_lost(m);
    int rc = make_measure_memory(m, stride);
    if (rc < 0)
        measure_close(m);
    return rc;
}

void measure_close(struct measure *m)
{
    HW_KEEP_ERROR();
    struct tp_request q = {.type = TP_RELEASE};
    struct tp_reply r;
    if (m->s && m->s->peer && !m->broken && hawser_peer_state(m->s->peer) == 0)
        /* best effort: the server frees the memory at the end of the session anyway */
        session_call(m->s, &q, &r, SESSION_CALL_MS);
    buffer_free(&m->buf);
    buffer_free(&m->back);
    free(m->hist);
    free(m->points);
    free(m->spans);
    free(m->vec);
    *m = (struct measure){0};
}

/* Lists the pieces of the operation at offset `at`. Each piece has the same offset on both sides. Three or more pieces
 * of a write or read are listed so that no piece directly follows the previous one in memory, which prevents merging. A
 * message's pieces are listed in order, because they also arrive in order. */
static void list_blocks(struct measure *m, uint64_t at)
{
    const uint32_t n = m->plan.blocks, half = (n + 1) / 2;
    const uint64_t len = m->plan.size / n;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = m->plan.op == TP_SEND ? i : i % 2 ? half + i / 2 : i / 2;
        const uint64_t to = at + k * len;
        m->vec[i] = (struct hawser_vec){
            .mem = m->buf.mem, .offset = to, .length = len, .region = &m->region, .remote_offset = to};
    }
}

static int post_measured_op(struct measure *m, uint64_t iteration, hawser_op **op)
{
    const struct hawser_op_options o = {.size = sizeof o, .timeout_ms = op_timeout(m)};
    uint64_t at = buffer_offset(&m->buf, iteration);
    const struct hawser_vec whole = {
        .mem = m->buf.mem, .offset = at, .length = m->plan.size, .region = &m->region, .remote_offset = at};
    const struct hawser_vec *v = m->vec ? m->vec : &whole;
    const size_t n = m->vec ? m->plan.blocks : 1;
    if (m->vec)
        list_blocks(m, at);
    switch (m->plan.op) {
    case TP_WRITE:
        return hawser_write(m->s->peer, v, n, &o, op);
    case TP_READ:
        return hawser_read(m->s->peer, v, n, &o, op);
    default:
        return hawser_send(m->s->peer, v, n, &o, op);
    }
}

static void send_due_heartbeat(struct measure *m, uint64_t *next)
{
    uint64_t now = m->beat ? hw_now() : 0;
    if (now < *next || !m->beat)
        return;
    m->beat(m->progress_arg, true);
    *next = now + MEASURE_SAMPLE * HW_MS;
}

/* State of a timed batch. */
struct timed {
    struct measure *m;
    struct flight *fl;
    uint32_t n, posted, count; /* numbers of operations: in flight; started so far; to start in all */
    uint64_t first, start, now;
    double limit_s;
};

/* Starts operations until `depth` of them are in flight, none is left to start, or the time is up. */
static int start_timed_ops(struct timed *t)
{
    while (t->n < t->m->depth && t->posted < t->count) {
        if (t->limit_s > 0 && t->m->clocked + SECONDS(t->now - t->start) >= t->limit_s) {
            t->count = t->posted; /* time is up: only wait for the operations in flight */
            return 0;
        }
        t->fl[t->n].posted = t->now;
        int rc = post_measured_op(t->m, t->first + t->posted, &t->fl[t->n].op);
        if (rc == -EAGAIN && t->n > 0)
            return 0; /* the library's limit of pending operations is reached: wait for one to end */
        if (rc < 0)
            return rc;
        t->n++;
        t->posted++;
        t->now = hw_now();
    }
    return 0;
}

/* Waits up to wait_ms for the oldest operation, and frees the operations that have completed. */
static int reap_timed_ops(struct timed *t, int wait_ms, uint32_t *done)
{
    (void)hawser_wait(t->fl[0].op, wait_ms); /* the loop below checks the result */
    uint32_t left = 0;
    int rc = 0;
    t->now = hw_now();
    for (uint32_t i = 0; i < t->n; i++) {
        int one = rc < 0 ? -EAGAIN : hawser_test(t->fl[i].op); /* after the first error, keep its text */
        if (one < 0) {                                         /* in flight, or failed */
            if (one != -EAGAIN)
                rc = hw_wrap(one, "an operation of %llu bytes", (unsigned long long)t->m->plan.size);
            t->fl[left++] = t->fl[i];
            continue;
        }
        if (t->m->record)
            hw_hist_add(t->m->hist, t->now - t->fl[i].posted);
        hawser_op_free(t->fl[i].op);
        t->m->ops += t->m->record;
        ++*done;
    }
    t->n = left;
    return rc;
}

/* Runs up to count operations, beginning with iteration first, with `depth` of them in flight. If limit_s is positive,
 * starts no operation once the clocked time reaches limit_s. Stores in *done how many operations ended; without an
 * error, these are the first ones. */
static int run_timed_ops(struct measure *m, uint64_t first, uint32_t count, double limit_s, uint32_t *done,
                         struct span *span)
{
    HW_AUTO_FREE struct flight *fl = calloc(m->depth, sizeof *fl);
    uint64_t start = hw_now(), next_sample = start, next_beat = start;
    struct timed t = {
        .m = m, .fl = fl, .count = count, .first = first, .start = start, .now = start, .limit_s = limit_s};
    int rc = 0;
    *done = 0;
    if (!fl)
        return hw_no_memory("%u operations in flight", m->depth);
    if (m->record) /* samples use clocked time, so the next sample may be due later in this batch */
        next_sample = start + (uint64_t)(HW_MAX(0.0, m->sampled_at + MEASURE_SAMPLE / 1e3 - m->clocked) * 1e9);
    while (rc == 0 && (rc = start_timed_ops(&t)) == 0 && t.n > 0) {
        int wait_ms = MEASURE_SAMPLE;
        if (m->record)
            wait_ms = next_sample > t.now ? (int)((next_sample - t.now) / HW_MS) + 1 : 0;
        rc = reap_timed_ops(&t, wait_ms, done);
        if (m->record && t.now >= next_sample) {
            nic_state(m, m->clocked + SECONDS(t.now - start));
            next_sample = t.now + MEASURE_SAMPLE * HW_MS;
        }
        tell_interval(m, m->clocked + SECONDS(t.now - start));
        send_due_heartbeat(m, &next_beat);
        if (rc == 0 && session_stopped(m->s) && m->plan.op != TP_SEND)
            /* wait for the operations in flight; sends continue, because the server expects the announced number */
            t.count = t.posted;
        if (rc == 0 && session_expired(m->s))
            rc = hw_fail(-EINTR, "interrupted");
    }
    *span = (struct span){start, t.now, m->clocked};
    for (uint32_t i = 0; rc < 0 && i < t.n; i++)
        session_drop(fl[i].op); /* cancels operations in flight */
    return rc;
}

/* Sends one message and waits for its echo. Stores the time between the two in *ns. */
static int send_ping(struct measure *m, uint64_t iteration, hawser_op **send, hawser_op **recv, uint64_t *next_beat,
                     uint64_t *ns)
{
    const struct hawser_op_options o = {.size = sizeof o, .timeout_ms = op_timeout(m)};
    uint64_t at = buffer_offset(&m->buf, iteration);
    const struct hawser_vec out = {.mem = m->buf.mem, .offset = at, .length = m->plan.size};
    const struct hawser_vec in = {.mem = m->back.mem, .offset = at, .length = m->plan.size};
    int rc = m->plan.verify ? buffer_fill(&m->buf, iteration, 1) : 0;
    if (rc < 0 || (rc = hawser_recv(m->s->peer, &in, 1, &o, recv)) < 0)
        return rc;
    uint64_t start = hw_now();
    rc = hawser_send(m->s->peer, &out, 1, &o, send);
    if (rc < 0)
        return rc;
    while ((rc = hawser_wait(*recv, MEASURE_SAMPLE)) == -EAGAIN && !session_expired(m->s))
        send_due_heartbeat(m, next_beat);
    if (rc == -EAGAIN)
        return hw_fail(-EINTR, "interrupted");
    *ns = hw_now() - start;
    if (rc == 0 && hawser_op_length(*recv) != m->plan.size)
        return hw_fail(-EPROTO, "the echo and the message have different lengths");
    return rc;
}

/* Runs the timed part of a pingpong. The clock runs from each send to its echo, and stops while data is filled and
 * checked. */
static int run_timed_pingpong(struct measure *m, uint64_t first, uint32_t count, struct measure_sum *sum,
                              uint32_t *done, struct span *span, double *seconds)
{
    uint64_t start = hw_now(), clock_ns = 0, next_beat = start, ns = 0;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        hawser_op *send = NULL, *recv = NULL;
        rc = send_ping(m, first + i, &send, &recv, &next_beat, &ns);
        session_drop(recv);
        if (rc == 0)
            rc = session_await(m->s, send, op_timeout(m));
        else
            session_drop(send);
        if (rc < 0)
            break;
        clock_ns += ns;
        if (m->record)
            hw_hist_add(m->hist, ns / 2);
        m->ops += m->record;
        tell_interval(m, m->clocked + SECONDS(clock_ns));
        if (m->plan.verify) {
            uint64_t bad, checked, at_byte;
            rc = buffer_check(&m->back, first + i, 1, &bad, &checked, &at_byte);
            sum->bad += bad;
            sum->verified += checked;
        }
        ++*done;
        send_due_heartbeat(m, &next_beat);
    }
    *seconds = SECONDS(clock_ns);
    *span = (struct span){start, start + clock_ns, m->clocked};
    return rc;
}

static int keep_span(struct measure *m, const struct span *span)
{
    struct span *v = realloc(m->spans, (m->n_spans + 1) * sizeof *v);
    if (!v)
        return hw_no_memory("the results");
    m->spans = v;
    v[m->n_spans++] = *span;
    return 0;
}

/* Adds the operations, bytes and times of a batch to *sum. Keeps the batch's span if m->record is set. */
static int add_batch(struct measure *m, const struct span *span, uint32_t done, double seconds, uint64_t cpu_us,
                     struct measure_sum *sum)
{
    sum->iters += done;
    sum->bytes += done * m->plan.size * (m->plan.op == TP_PINGPONG ? 2 : 1);
    sum->seconds += seconds;
    sum->cpu_us += cpu_us;
    m->next += done;
    int rc = m->record ? keep_span(m, span) : 0;
    if (rc == 0 && m->record)
        m->clocked += seconds;
    return rc;
}

static int run_measure_batch(struct measure *m, uint32_t count, double limit_s, struct measure_sum *sum, uint32_t *done)
{
    bool verify = m->plan.verify, read = m->plan.op == TP_READ, ping = m->plan.op == TP_PINGPONG;
    uint64_t first = m->next;
    struct tp_request q = {.type = TP_BEGIN, .first = first, .count = count};
    HW_AUTO_FREE struct tp_reply *begun = calloc(2, sizeof *begun);
    struct tp_reply *ended = begun + 1;
    struct tp_nic own[2][TP_MAX_NICS];
    size_t n[2] = {TP_MAX_NICS, TP_MAX_NICS};
    struct span span = {0};
    double seconds = 0;
    int rc = 0, patience = session_patience_ms(m->plan.size * count);
    *done = 0;
    if (!begun)
        return hw_no_memory("messages");
    if (verify && !read && !ping && (rc = buffer_fill(&m->buf, first, count)) < 0)
        return rc;
    rc = session_call(m->s, &q, begun, patience);
    if (rc < 0 || (m->gate && (rc = m->gate(m->progress_arg)) < 0))
        return rc;
    m->broken = true; /* during the batch, the server might be receiving data instead of requests */
    if (stats_nics(m->s->peer, m->plan.devmem, own[0], &n[0]) < 0)
        n[0] = 0;
    uint64_t cpu = stats_cpu_us();
    rc = ping ? run_timed_pingpong(m, first, count, sum, done, &span, &seconds)
              : run_timed_ops(m, first, count, limit_s, done, &span);
    cpu = stats_cpu_us() - cpu;
    if (m->beat)
        m->beat(m->progress_arg, false);
    if (!ping)
        seconds = SECONDS(span.end - span.start);
    {
        HW_KEEP_ERROR();
        /* count the operations that ended, checked or not */
        const int kept = add_batch(m, &span, *done, seconds, cpu, sum);
        if (rc == 0 && kept < 0)
            return hw_no_memory("the results");
    }
    if (rc < 0)
        return rc;
    m->broken = false;
    q = (struct tp_request){.type = TP_END, .first = first, .count = *done};
    rc = session_call(m->s, &q, ended, patience);
    if (rc < 0)
        return rc;
    if (stats_nics(m->s->peer, m->plan.devmem, own[1], &n[1]) < 0)
        n[1] = 0;
    sum->bad += ended->bad;
    sum->verified += ended->checked;
    if (read && verify) {
        uint64_t bad, checked, at;
        rc = buffer_check(&m->buf, first, *done, &bad, &checked, &at);
        sum->bad += bad;
        sum->verified += checked;
    }
    sum->peer_cpu_us += ended->cpu_us - begun->cpu_us;
    stats_add(sum->own, &sum->n_own, TP_MAX_NICS, own[0], n[0], own[1], n[1]);
    stats_add(sum->peer, &sum->n_peer, TP_MAX_NICS, begun->nic, begun->n_nics, ended->nic, ended->n_nics);
    return rc;
}

int measure_run(struct measure *m, uint64_t iters, uint64_t duration_ms, struct measure_sum *sum)
{
    bool ping = m->plan.op == TP_PINGPONG;
    double start = m->clocked, limit = duration_ms ? (double)duration_ms / 1e3 : 0;
    uint64_t done = 0;
    const double before = sum->seconds;
    const uint64_t bytes = sum->bytes;
    if (m->record && m->n_names == 0) {
        nic_state(m, m->clocked); /* the first sample yields no rate */
        m->mark = (struct measure_mark){.bytes = count_nic_bytes(m)};
    }
    while (duration_ms ? sum->seconds - before < limit : done < iters) {
        /* Data must be checked before it is overwritten. Without checks, the batch size only limits the time until a
         * signal is noticed. */
        uint64_t count = ping ? PING_BATCH : m->plan.verify ? m->slots : FREE_BATCH;
        if (session_stopped(m->s))
            return hw_fail(-EINTR, "interrupted");
        if (!duration_ms)
            count = HW_MIN(count, iters - done);
        else if (ping || m->plan.op == TP_SEND) /* the time limit cannot interrupt these batches, so keep them short */
            count = HW_MIN(count, ping ? 1000u : 4u * m->depth);
        uint32_t k = 0;
        bool cut = limit > 0 && (m->plan.op == TP_WRITE || m->plan.op == TP_READ);
        int rc = run_measure_batch(m, (uint32_t)count, cut ? start + limit : 0, sum, &k);
        if (rc < 0)
            return rc;
        done += k;
        if (m->progress)
            m->progress(m->progress_arg, done, iters, sum->seconds - before, sum->bytes - bytes);
        if (k == 0)
            break;
    }
    return 0;
}

int measure_read_faults(struct measure *m, const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return hw_fail(-errno, "opening %s: %s", path, strerror(errno));
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *text;
        double t = strtod(line, &text);
        if (text == line || *text != ' ' || !(t >= 0 && t < 1e9) || m->n_spans == 0)
            continue;
        line[strcspn(line, "\n")] = 0;
        uint64_t ns = (uint64_t)(t * 1e9);
        const struct span *s = NULL;
        for (size_t i = 0; i < m->n_spans && m->spans[i].start <= ns; i++)
            s = &m->spans[i];
        /* Tolerate one second: events between two batches belong to the measurement, events after its end do not. */
        if (!s || (s == &m->spans[m->n_spans - 1] && ns > s->end + 1000 * HW_MS) || m->n_faults == MEASURE_FAULTS)
            continue;
        struct fault *to = &m->faults[m->n_faults++];
        to->t_s = s->clocked + SECONDS(HW_MIN(ns, s->end) - s->start);
        snprintf(to->text, sizeof to->text, "%.*s", (int)sizeof to->text - 1, text + 1);
    }
    fclose(f);
    return 0;
}
