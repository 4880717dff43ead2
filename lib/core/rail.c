/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rail.h"

#include "wire/wire.h"

#include <assert.h>
#include <stdlib.h>

#define TURN_PIECES 64
/* If hw_rail.spared is set, the limit of the argument `alone` of check() while no other rail hears from the peer. It is
 * shorter than the time after which a path is considered dead. */
#define DOUBT (120 * HW_MS)
/* Maximum number of reads or writes of a link per task run, which limits the time that the loop's other tasks wait. */
#define TURN_STEPS 8
/* A confirmation does not wait for limits.patience once it covers this many frames of a link. */
#define PATIENT_MAX (HW_LINK_FLIGHT / 4)

/* ---- queues of parcels -------------------------------------------------------------------------- */

static void clear_queue(struct rail_queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void append_parcel(struct rail_queue *q, struct hw_parcel *p)
{
    p->next = NULL;
    *q->last = p;
    q->last = &p->next;
}

static struct hw_parcel *take_parcel(struct rail_queue *q)
{
    struct hw_parcel *p = q->first;
    if (!p)
        return NULL;
    q->first = p->next;
    if (!q->first)
        q->last = &q->first;
    return p;
}

static void queue_parcel(struct hw_rail *r, struct hw_parcel *p)
{
    append_parcel(p->barrier ? &r->barrier : p->small ? &r->small : &r->bulk, p);
}

static void empty_inbox(struct hw_rail *r)
{
    if (!atomic_load(&r->inbox))
        return;
    struct hw_parcel *p = atomic_exchange(&r->inbox, NULL), *oldest = NULL;
    while (p) {
        struct hw_parcel *next = p->next;
        p->next = oldest;
        oldest = p;
        p = next;
    }
    while (oldest) {
        struct hw_parcel *next = oldest->next;
        queue_parcel(r, oldest);
        oldest = next;
    }
}

static void give_back_queues(struct hw_rail *r)
{
    empty_inbox(r);
    if (r->state != HW_RAIL_UP && r->barrier.first)
        append_parcel(&r->small, take_parcel(&r->barrier));
    *r->small.last = r->bulk.first;
    struct hw_parcel *all = r->small.first;
    clear_queue(&r->small);
    clear_queue(&r->bulk);
    if (all)
        r->ops->give_back(r->up, r, all);
}

void hw_rail_send(struct hw_rail *r, struct hw_parcel *p)
{
    if (hw_loop_is_mine(r->loop) && r->state == HW_RAIL_UP) {
        queue_parcel(r, p);
        hw_loop_post_late(r->loop, &r->flush);
        return;
    }
    hw_parcel_push(&r->inbox, p);
    hw_loop_post(r->loop, &r->work);
}

void hw_rail_wake(struct hw_rail *r)
{
    if (hw_loop_is_mine(r->loop) && r->state == HW_RAIL_UP)
        hw_loop_post_late(r->loop, &r->flush);
    else
        hw_loop_post(r->loop, &r->work);
}

void hw_rail_ready(struct hw_rail *r, unsigned link)
{
    if (r->state == HW_RAIL_UP)
        r->link[link].ready = true;
    hw_loop_post(r->loop, &r->work);
}

void hw_rail_ask(struct hw_rail *r)
{
    atomic_store(&r->asked, true);
    hw_loop_post(r->loop, &r->work);
}

/* ---- time of the peer's last sign of life ----------------------------------------------------------- */

static uint64_t get_heard(const struct hw_rail *r)
{
    return atomic_load_explicit(&r->heard, memory_order_relaxed);
}

static void note_heard(struct hw_rail *r)
{
    atomic_store_explicit(&r->heard, r->loop->now, memory_order_relaxed);
}

bool hw_rail_distrust(struct hw_rail *r, uint64_t since)
{
    uint64_t quiet = atomic_load(&r->quiet);
    if (get_heard(r) >= since)
        return false;
    while (quiet < since && !atomic_compare_exchange_weak(&r->quiet, &quiet, since))
        ;
    hw_rail_ask(r);
    return true;
}

bool hw_rail_is_sound(const struct hw_rail *r)
{
    return !atomic_load_explicit(&r->suspect, memory_order_relaxed) &&
           get_heard(r) >= atomic_load_explicit(&r->quiet, memory_order_relaxed);
}

/* ---- callbacks of links ----------------------------------------------------------------------------- */

/* Returns true if a link has received frames that have to be confirmed. If `all` is true, these are any frames, and
 * otherwise frames whose confirmation the peer waits for, or at least PATIENT_MAX frames. */
static bool has_news(const struct hw_rail *r, bool all)
{
    for (unsigned i = 0; i < r->links; i++) {
        const struct rail_link *rl = &r->link[i];
        if (rl->told < (all ? rl->link.received : rl->link.awaited) || rl->link.received - rl->told >= PATIENT_MAX)
            return true;
    }
    return false;
}

/* If a confirmation is due, fills the confirmation with all counts that were not sent to the peer yet. */
static bool fill_confirm(struct hw_rail *r, struct hw_link_out *out)
{
    uint32_t at = 4;
    bool all = r->confirm_due;
    r->confirm_due = false;
    if (!has_news(r, all))
        return false;
    for (unsigned i = 0; i < r->links; i++) {
        struct rail_link *rl = &r->link[i];
        if (rl->told == rl->link.received)
            continue;
        rl->told = rl->link.received;
        hw_put32(out->ext + at, i);
        hw_put64(out->ext + at + 4, rl->told);
        at += 12;
    }
    hw_put32(out->ext, r->ops->mark(r->up));
    out->type = HW_RAIL_CONFIRM;
    out->uncounted = true;
    out->ext_len = at;
    return true;
}

/* Fills a keepalive frame, if one is due. */
static bool fill_sign(struct hw_rail *r, struct hw_link_out *out)
{
    if (!r->ping_due && !r->answer_due)
        return false;
    out->type = r->answer_due ? HW_RAIL_ANSWER : HW_RAIL_PING;
    out->uncounted = true;
    if (r->answer_due)
        r->answer_due = false;
    else
        r->ping_due = false;
    return true;
}

/* Fills the barrier, if there is one and no small parcel can be sent before it. */
static bool fill_barrier(struct hw_rail *r, uint64_t budget, struct hw_link_out *out)
{
    if (!budget || !r->barrier.first)
        return false;
    empty_inbox(r); /* may contain older small parcels */
    if (r->small.first)
        return false;
    struct hw_parcel *p = take_parcel(&r->barrier);
    out->token = p;
    return r->ops->fill(r->up, p, out);
}

static bool pull_rail_frame(void *up, struct hw_link *l, uint64_t budget, struct hw_link_out *out)
{
    struct hw_rail *r = up;
    struct hw_parcel *p = NULL;
    struct rail_link *rl = hw_container_of(l, struct rail_link, link);
    bool express = rl == r->link;
    if (l->in_flight == 0) /* the link was idle until now */
        rl->since = rl->began = r->loop->now;
    if (express && (fill_confirm(r, out) || fill_sign(r, out) || fill_barrier(r, budget, out)))
        return true;
    while (budget && hw_rail_is_sound(r)) {
        p = express ? take_parcel(&r->small) : NULL;
        if (!p && (!express || r->links == 1))
            p = take_parcel(&r->bulk);
        if (!p && (!express || r->links == 1))
            p = r->ops->cut(r->up, r, budget);
        if (!p) {
            r->dry |= !express && l->in_flight == 0;
            return false;
        }
        out->token = p;
        out->n_pieces = out->ext_len = 0; /* an earlier fill() may have set them and returned false */
        out->patient = false;
        out->bulk = !p->small;
        if (r->ops->fill(r->up, p, out)) {
            r->confirm_due |= express; /* the confirmation is sent along with the frame */
            return true;
        }
    }
    return false;
}

/* Passes the parcels that were just confirmed to the layer above. */
static void pass_confirmed(struct hw_rail *r)
{
    struct hw_parcel *list = r->confirmed.first;
    clear_queue(&r->confirmed);
    if (list)
        r->ops->done(r->up, r, list);
}

/* Takes the counts of a confirmation, which follow its mark. */
static int take_counts(struct hw_rail *r, const struct hw_link_in *in)
{
    for (uint32_t at = 4; at < in->ext_len; at += 12) {
        uint32_t i = hw_get32(in->ext + at);
        if (i >= r->links)
            return hw_fail(-EPROTO, "the peer confirms frames of link %u, but the number of links is %u", i, r->links);
        int rc = hw_link_confirm(&r->link[i].link, hw_get64(in->ext + at + 4));
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int take_confirm(struct hw_rail *r, const struct hw_link_in *in)
{
    if (in->ext_len % 12 != 4 || in->pay)
        return hw_fail(-EPROTO, "invalid confirmation: extension of %u bytes, payload of %u bytes", in->ext_len,
                       in->pay);
    r->ops->marked(r->up, hw_get32(in->ext));
    int rc = take_counts(r, in);
    if (rc == 0) /* otherwise the rail ends, and passes them when it is settled */
        pass_confirmed(r);
    return rc;
}

static int place_rail_frame(void *up, struct hw_link *l, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    struct hw_rail *r = up;
    (void)l;
    if (in->uncounted != (in->type >= HW_RAIL_TYPES))
        return hw_fail(-EPROTO, "frame type %u %s", in->type,
                       in->uncounted ? "is sent as uncounted, but must be counted"
                                     : "is sent as counted, but must not be");
    switch (in->type) {
    case HW_RAIL_CONFIRM:
        return take_confirm(r, in);
    case HW_RAIL_PING:
    case HW_RAIL_ANSWER:
        r->answer_due |= in->type == HW_RAIL_PING;
        return in->pay || in->ext_len ? hw_fail(-EPROTO, "the peer sent a keepalive with a body") : 0;
    default:
        return in->uncounted ? hw_fail(-EPROTO, "unknown frame type %u", in->type)
                             : r->ops->place(r->up, r, in, piece, n);
    }
}

static int place_more(void *up, struct hw_link *l, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                      uint32_t *n)
{
    struct hw_rail *r = up;
    (void)l;
    return r->ops->more(r->up, r, in, at, piece, n);
}

static void abandon_rail_frame(void *up, struct hw_link *l, const struct hw_link_in *in)
{
    struct hw_rail *r = up;
    (void)l;
    if (!in->uncounted)
        r->ops->abandoned(r->up, r, in);
}

/* Only the thread that runs the loop writes the counters, but any thread may read them. */
static void add_count(_Atomic uint64_t *count, uint64_t n)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

static void count_payload(_Atomic uint64_t *bytes, _Atomic uint64_t *frames, uint32_t pay)
{
    add_count(bytes, pay);
    add_count(frames, 1);
}

static int deliver_rail_frame(void *up, struct hw_link *l, const struct hw_link_in *in)
{
    struct hw_rail *r = up;
    (void)l;
    if (in->uncounted)
        return 0;
    if (in->bulk)
        count_payload(&r->counts.rx_bytes, &r->counts.rx_frames, in->pay);
    else if (in->pay)
        add_count(&r->counts.rx_small, in->pay);
    return r->ops->arrived(r->up, r, in);
}

static void finish_rail_parcel(void *up, struct hw_link *l, void *token, uint32_t pay)
{
    struct hw_rail *r = up;
    struct hw_parcel *p = token;
    (void)l;
    if (!p->small)
        count_payload(&r->counts.tx_bytes, &r->counts.tx_frames, pay);
    else if (pay)
        add_count(&r->counts.tx_small, pay);
    append_parcel(&r->confirmed, p);
}

static void keep_parcel(void *up, struct hw_link *l, void *token, uint32_t pay)
{
    struct hw_rail *r = up;
    struct hw_parcel *p = token;
    (void)l;
    atomic_fetch_add(&r->counts.lost, 1);
    atomic_fetch_add(&r->counts.lost_bytes, pay);
    queue_parcel(r, p);
}

static int load_piece(void *up, struct hw_link *l, const struct hw_piece *piece, uint8_t *to)
{
    const struct hw_rail *r = up;
    const struct rail_link *rl = hw_container_of(l, struct rail_link, link);
    return r->io->load ? r->io->load(rl->conn, piece, to) : hw_load(piece->space, to, piece->ptr, piece->len);
}

static const struct hw_link_ops link_ops = {.pull = pull_rail_frame,
                                            .place = place_rail_frame,
                                            .more = place_more,
                                            .arrived = deliver_rail_frame,
                                            .abandoned = abandon_rail_frame,
                                            .confirmed = finish_rail_parcel,
                                            .lost = keep_parcel,
                                            .load = load_piece};

void hw_rail_let_go(struct hw_rail *r, const void *owner)
{
    for (unsigned i = 0; i < r->links && r->state == HW_RAIL_UP; i++) {
        struct rail_link *rl = &r->link[i];
        int rc = r->io->settle && hw_link_uses(&rl->link, owner) ? r->io->settle(rl->conn) : 0;
        if (rc == 0 && hw_link_fills_apart(&rl->link, owner))
            rc = r->io->discard(rl->conn);
        if (rc == 0 && r->io->stop_reading && hw_link_sends_apart(&rl->link))
            rc = r->io->stop_reading(rl->conn);
        if (rc == 0)
            rc = hw_link_let_go(&rl->link, owner);
        rl->let_go = rl->link.gone;
        rl->ready = true; /* the transport may now return bytes that it had read for this memory */
        if (rc < 0)
            hw_rail_end(r, rc);
    }
}

bool hw_rail_is_reading(struct hw_rail *r, struct hw_task *t)
{
    bool reads = false;
    for (unsigned i = 0; i < r->links && r->state == HW_RAIL_UP; i++)
        reads |= r->link[i].link.released < r->link[i].let_go;
    r->reading = reads ? t : NULL;
    return reads;
}

/* Asks the transport which memory it no longer reads. */
static void note_released(struct hw_rail *r, struct rail_link *rl)
{
    uint64_t was = rl->link.released;
    if (was == rl->link.gone)
        return;
    hw_link_released(&rl->link, r->io->released(rl->conn));
    pass_confirmed(r);
    if (was < rl->let_go && rl->link.released >= rl->let_go && r->reading)
        hw_loop_post(r->loop, r->reading);
}

/* ---- states -------------------------------------------------------------------------------------- */

/* Writes pending data on link i. Returns true if the rail should try again soon. */
static bool write_link(struct hw_rail *r, unsigned i)
{
    struct hw_piece piece[TURN_PIECES];
    struct rail_link *rl = &r->link[i];
    for (int step = 0; step < TURN_STEPS; step++) {
        uint32_t n = hw_link_tx(&rl->link, piece, TURN_PIECES);
        if (n == 0)
            return false;
        int64_t done = (hw_link_sends_apart(&rl->link) ? r->io->write_apart : r->io->write)(rl->conn, piece, n);
        if (done > 0 && rl->full)
            note_heard(r);
        rl->full = done == -EAGAIN;
        if (done == -EAGAIN || done == -EBUSY)
            return done == -EBUSY;
        if (done < 0) {
            struct hw_parcel *p = done == -ENXIO ? hw_link_get_sending(&rl->link) : NULL;
            if (p)
                r->ops->faulted(r->up, r, p);
            hw_rail_end(r, (int)done);
            return false;
        }
        r->loop->moved[1] += (uint64_t)done;
        hw_link_sent(&rl->link, (uint64_t)done);
        if (hw_link_is_dry(&rl->link))
            return false;
    }
    return true;
}

/* Discards a payload because its destination device has failed. */
static int refuse_payload(struct hw_rail *r, struct rail_link *rl)
{
    struct hw_link_in *in = hw_link_drop(&rl->link);
    return in ? r->ops->refused(r->up, r, in) : -ENXIO;
}

/* Reports to the link that n bytes were read, and returns to the connection the bytes that the connection must read
 * again. */
static int take_bytes(const struct hw_rail *r, struct rail_link *rl, uint64_t n)
{
    const uint8_t *data;
    int rc = hw_link_got(&rl->link, n);
    uint32_t back = rc < 0 ? 0 : hw_link_unread(&rl->link, &data);
    return back ? r->io->unread(rl->conn, data, back) : rc;
}

static bool read_rail_link(struct hw_rail *r, unsigned i)
{
    struct hw_piece piece[TURN_PIECES];
    struct rail_link *rl = &r->link[i];
    for (int step = 0; step < TURN_STEPS; step++) {
        uint32_t n = hw_link_rx(&rl->link, piece, TURN_PIECES);
        int64_t done = (hw_link_reads_apart(&rl->link) ? r->io->read_apart : r->io->read)(rl->conn, piece, n);
        if (done == -EAGAIN || done == -EBUSY)
            return done == -EBUSY;
        if (done > 0) {
            note_heard(r);
            r->loop->moved[0] += (uint64_t)done;
        }
        int rc = done == -ENXIO ? refuse_payload(r, rl) : done < 0 ? (int)done : take_bytes(r, rl, (uint64_t)done);
        if (rc < 0) {
            hw_rail_end(r, rc);
            return false;
        }
    }
    return true;
}

/* Returns true if checks are enabled and a link has frames in flight, a full connection, or a payload that arrives on
 * the second stream. */
static bool is_busy(const struct hw_rail *r)
{
    for (unsigned i = 0; i < r->links && r->limits.check; i++)
        if (r->link[i].link.in_flight || r->link[i].full || hw_link_reads_apart(&r->link[i].link))
            return true;
    return false;
}

/* Schedules an earlier check of the path if data is in flight. */
static void watch_closely(struct hw_rail *r)
{
    if (r->watch.at > r->loop->now + r->limits.check && is_busy(r))
        hw_timer_set(r->loop, &r->watch, r->loop->now + r->limits.check);
}

/* Schedules the confirmation of frames that the peer does not wait for. */
static void watch_patience(struct hw_rail *r)
{
    if (r->watch.at > r->loop->now + r->limits.patience && has_news(r, true))
        hw_timer_set(r->loop, &r->watch, r->loop->now + r->limits.patience);
}

bool hw_rail_look(struct hw_rail *r, unsigned link)
{
    if (r->state != HW_RAIL_UP)
        return false;
    uint64_t before = r->loop->moved[0];
    bool more = read_rail_link(r, link);
    if (r->state == HW_RAIL_UP && !more && r->loop->moved[0] == before)
        return false;
    if (more)
        hw_rail_ready(r, link);
    hw_loop_post_late(r->loop, &r->flush);
    return true;
}

static void flush_rail(struct hw_task *t)
{
    struct hw_rail *r = hw_container_of(t, struct hw_rail, flush);
    bool more = false;
    r->dry = false;
    for (unsigned i = 0; i < r->links && r->state == HW_RAIL_UP; i++)
        if (!r->dry || hw_link_has_unsent(&r->link[i].link))
            more |= write_link(r, i);
    if (r->state != HW_RAIL_UP)
        return;
    watch_closely(r);
    watch_patience(r);
    if (more)
        hw_loop_post(r->loop, &r->work);
}

static void work_rail(struct hw_task *t)
{
    struct hw_rail *r = hw_container_of(t, struct hw_rail, work);
    bool more = false;
    if (r->state != HW_RAIL_UP) {
        give_back_queues(r);
        return;
    }
    empty_inbox(r);
    if (atomic_load_explicit(&r->asked, memory_order_relaxed) && atomic_exchange(&r->asked, false)) {
        r->ping_due = true;
        if (!hw_rail_is_sound(r))
            give_back_queues(r);
    }
    for (unsigned i = 0; i < r->links && r->state == HW_RAIL_UP; i++) {
        struct rail_link *rl = &r->link[i];
        note_released(r, rl);
        if (rl->ready)
            more |= rl->ready = read_rail_link(r, i);
    }
    if (more)
        hw_loop_post(r->loop, &r->work);
    hw_loop_post_late(r->loop, &r->flush);
}

/* Fails with -ETIMEDOUT if frames are in flight and the connection has made no progress for limits.dead. */
static int watch_progress(const struct hw_rail *r, struct rail_link *rl)
{
    uint64_t progress = rl->link.tx.written + rl->link.said;
    if (progress != rl->progress || rl->link.in_flight == 0) {
        rl->progress = progress;
        rl->since = r->loop->now;
    }
    uint64_t still = r->loop->now - rl->since;
    return still < r->limits.dead
               ? 0
               : hw_fail(-ETIMEDOUT, "%llu bytes are in flight, but none was sent or confirmed for %llu ms",
                         (unsigned long long)rl->link.in_flight, (unsigned long long)(still / HW_MS));
}

/* Stops or resumes new data on this rail. */
static void set_suspect(struct hw_rail *r, bool is)
{
    if (atomic_exchange(&r->suspect, is) == is)
        return;
    if (is) {
        r->ops->suspected(r->up, r);
        give_back_queues(r);
    }
    hw_loop_post(r->loop, &r->work);
}

/* Makes the transport check the path of each connection. Returns false if the rail has ended. */
static bool watch_path(struct hw_rail *r, uint64_t silent)
{
    bool suspect = false, doubt = false;
    bool others = r->ops->heard(r->up, r, r->loop->now - r->limits.check, silent >= r->limits.check);
    for (unsigned i = 0; i < r->links; i++) {
        struct rail_link *rl = &r->link[i];
        uint64_t window = r->limits.window, alone = rl->link.in_flight ? r->loop->now - rl->began : 0;
        uint64_t counted = others ? alone : r->spared ? HW_MIN(alone, DOUBT) : 0;
        int rc = r->io->check(rl->conn, counted, &window);
        suspect |= rc > 0 && others;
        doubt |= rc > 0 && !others;
        if (rc >= 0)
            rc = watch_progress(r, rl);
        if (rc < 0) {
            hw_rail_end(r, rc);
            return false;
        }
        rl->link.window = window;
    }
    set_suspect(r, suspect);
    if (doubt)
        r->ops->doubted(r->up, r);
    return true;
}

/* Checks the paths and whether the peer is silent, and schedules pings and late confirmations. */
static void watch_peer(struct hw_timer *t)
{
    struct hw_rail *r = hw_container_of(t, struct hw_rail, watch);
    uint64_t silent = r->loop->now - get_heard(r);
    bool busy = is_busy(r);
    if (busy && !watch_path(r, silent))
        return;
    if (!busy)
        set_suspect(r, false);
    if (silent >= r->limits.dead) {
        hw_rail_end(r, hw_fail(-ETIMEDOUT, "nothing was heard from the peer on this rail for %llu ms",
                               (unsigned long long)(silent / HW_MS)));
        return;
    }
    r->ping_due |= silent >= r->limits.ping;
    r->confirm_due |= has_news(r, true);
    if (r->ping_due || r->confirm_due)
        hw_loop_post(r->loop, &r->work);
    uint64_t next = HW_MAX(get_heard(r), r->loop->now - r->limits.ping / 2) + r->limits.ping;
    hw_timer_set(r->loop, t, busy ? HW_MIN(next, r->loop->now + r->limits.check) : next);
}

void hw_rail_init(struct hw_rail *r, struct hw_loop *loop, const struct hw_rail_ops *ops, const struct hw_rail_io *io,
                  void *up, const struct hw_rail_limits *limits)
{
    *r = (struct hw_rail){.loop = loop,
                          .ops = ops,
                          .io = io,
                          .up = up,
                          .limits = *limits,
                          .work.run = work_rail,
                          .flush.run = flush_rail};
    clear_queue(&r->small);
    clear_queue(&r->bulk);
    clear_queue(&r->barrier);
    clear_queue(&r->confirmed);
    r->watch.fire = watch_peer;
}

static void free_links(struct hw_rail *r)
{
    for (unsigned i = 0; i < r->links; i++)
        hw_link_free(&r->link[i].link);
    free(r->link);
    r->link = NULL;
    r->links = 0;
}

void hw_rail_free(struct hw_rail *r)
{
    assert(r->state != HW_RAIL_UP);
    if (r->state == HW_RAIL_ENDED)
        hw_rail_settle(r, NULL, 0);
    give_back_queues(r);
}

int hw_rail_start(struct hw_rail *r, uint32_t gen, struct hw_conn *const *conn, unsigned n)
{
    assert(r->state == HW_RAIL_DOWN && n >= 1 && n <= HW_RAIL_LINKS);
    int rc = 0;
    r->link = calloc(n, sizeof *r->link);
    if (!r->link)
        rc = hw_no_memory("a rail's connections");
    for (unsigned i = 0; i < n && rc == 0; i++) {
        rc = hw_link_init(&r->link[i].link, &link_ops, r, r->limits.window);
        r->link[i].conn = conn[i];
        r->link[i].since = r->loop->now;
        r->links = i + 1;
        r->link[i].ready = true;
        rc = rc < 0 ? rc : r->io->attach(conn[i], r, i);
        if (rc == 0 && r->io->apart)
            r->link[i].link.apart = r->io->apart(conn[i]);
    }
    if (rc < 0) {
        free_links(r);
        for (unsigned k = 0; k < n; k++)
            r->io->close(conn[k]);
        return rc;
    }
    r->gen = gen;
    r->state = HW_RAIL_UP;
    r->ping_due = r->answer_due = r->confirm_due = false;
    atomic_store(&r->suspect, false);
    note_heard(r);
    hw_timer_set(r->loop, &r->watch, r->loop->now + r->limits.ping);
    hw_loop_post(r->loop, &r->work);
    return 0;
}

void hw_rail_end(struct hw_rail *r, int why)
{
    if (r->state != HW_RAIL_UP)
        return;
    const struct hw_error_kept text = hw_error_take(); /* kept for the callback ended() */
    r->state = HW_RAIL_ENDED;
    r->why = why;
    atomic_store(&r->suspect, false);
    hw_timer_stop(r->loop, &r->watch);
    for (unsigned i = 0; i < r->links; i++) {
        r->io->close(r->link[i].conn);
        hw_link_end(&r->link[i].link, why);
        r->count[i] = r->link[i].link.received;
    }
    pass_confirmed(r); /* parcels that the peer has, and whose memory the connections were reading until now */
    if (r->reading)
        hw_loop_post(r->loop, r->reading);
    r->mark = r->ops->mark(r->up);
    hw_error_put(&text);
    r->ops->ended(r->up, r);
}

/* Checks for each link whether the peer's count is possible. */
static int check_peer_counts(const struct hw_rail *r, const uint64_t *count, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (i >= r->links ? count[i] != 0 : !hw_link_can_settle(&r->link[i].link, count[i]))
            return hw_fail(
                -EPROTO,
                "the peer's final confirmation on link %u of a rail is for an impossible number of frames: %llu", i,
                (unsigned long long)count[i]);
    return 0;
}

int hw_rail_settle(struct hw_rail *r, const uint64_t *count, unsigned n)
{
    assert(r->state == HW_RAIL_ENDED);
    int rc = check_peer_counts(r, count, n);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < r->links; i++)
        (void)hw_link_settle(&r->link[i].link, i < n ? count[i] : r->link[i].link.confirmed);
    pass_confirmed(r);
    free_links(r);
    r->state = HW_RAIL_DOWN;
    give_back_queues(r);
    return 0;
}
