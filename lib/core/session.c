/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session.h"

#include "wire/wire.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER_NONE, ORDER_START, ORDER_SETTLE };

enum { REPORT_ENDED = 1, REPORT_DOWN = 2, REPORT_REFUSED = 4 };

/* ---- parcels and memory releases ----------------------------------------------------------------- */

static void return_parcel(struct hw_session *s, struct hw_parcel *p)
{
    hw_parcel_push(&s->returned, p);
    hw_loop_post(s->home, &s->sort);
}

void hw_session_spare(struct hw_session *s)
{
    for (unsigned i = 0; i < s->rails; i++)
        s->rail[i].rail.spared = true;
}

bool hw_session_is_sound(const struct hw_session *s, unsigned i)
{
    return atomic_load(&s->rail[i].live) && hw_rail_is_sound(&s->rail[i].rail);
}

void hw_session_pair(struct hw_session *s, unsigned i, unsigned pair)
{
    s->rail[i].pair = pair;
}

void hw_session_send(struct hw_session *s, unsigned i, struct hw_parcel *p)
{
    if (hw_session_is_sound(s, i))
        hw_rail_send(&s->rail[i].rail, p);
    else
        return_parcel(s, p);
}

void hw_session_wake(struct hw_session *s, unsigned i)
{
    unsigned at = i;
    while (!hw_session_is_sound(s, at)) {
        at = at + 1 < s->rails ? at + 1 : 0;
        if (at == i)
            return;
    }
    hw_rail_wake(&s->rail[at].rail);
}

static void let_go_by_rail(struct hw_task *t)
{
    struct session_rail *sr = hw_container_of(t, struct session_rail, let_go);
    struct hw_session *s = sr->session;
    for (const struct hw_let_go *g = s->let_go.round; g && !sr->has_let_go; g = g->next)
        hw_rail_let_go(&sr->rail, g->owner);
    sr->has_let_go = hw_rail_is_reading(&sr->rail, t);
    if (sr->has_let_go)
        return; /* t runs again when the memory is no longer read */
    if (atomic_fetch_sub(&s->let_go.left, 1) == 1)
        hw_loop_post(s->home, &s->let_go.next);
}

/* Ends a round of memory releases and starts the next one, on the home loop. */
static void step_let_go(struct hw_task *t)
{
    struct hw_session *s = hw_container_of(t, struct hw_session, let_go.next);
    struct hw_let_go *over = s->let_go.round;
    if (atomic_load(&s->let_go.left))
        return; /* a round is in progress */
    s->let_go.round = atomic_exchange(&s->let_go.asked, NULL);
    if (s->let_go.round) {
        atomic_store(&s->let_go.left, s->rails);
        for (unsigned i = 0; i < s->rails; i++)
            hw_loop_post(s->rail[i].rail.loop, &s->rail[i].let_go);
    }
    struct hw_parcel **at = &s->waiting;
    while (over && *at) {
        struct hw_parcel *p = *at, *rest = p->next;
        if (p->session || s->ops->keep(s->up, p))
            at = &p->next;
        else
            *at = rest;
    }
    while (over) {
        struct hw_let_go *next = over->next;
        over->over(over);
        over = next;
    }
}

void hw_session_let_go(struct hw_session *s, struct hw_let_go *g)
{
    g->next = atomic_load(&s->let_go.asked);
    while (!atomic_compare_exchange_weak(&s->let_go.asked, &g->next, g))
        ;
    hw_loop_post(s->home, &s->let_go.next);
}

/* ---- callbacks of a rail: on its loop ------------------------------------------------------------- */

static bool fill_frame(void *up, struct hw_parcel *p, struct hw_link_out *out)
{
    struct session_rail *sr = up;
    if (!p->session)
        return sr->session->ops->fill(sr->session->up, p, out);
    const struct session_note *note = hw_container_of(p, struct session_note, parcel);
    out->type = HW_SESSION_WORD;
    hw_put32(out->ext, note->rail);
    out->ext_len = 4 + hw_word_encode(out->ext + 4, &note->word);
    return true;
}

static struct hw_parcel *cut_parcel(void *up, struct hw_rail *r, uint64_t budget)
{
    struct session_rail *sr = up;
    (void)r;
    return sr->session->ops->cut(sr->session->up, sr->index, budget);
}

static int take_word(struct hw_session *s, const struct hw_link_in *in)
{
    struct hw_word word;
    if (in->ext_len < 4)
        return hw_fail(-EPROTO, "a final confirmation has an invalid length: %u bytes", in->ext_len);
    int rc = hw_word_decode(in->ext + 4, in->ext_len - 4, &word);
    if (rc < 0 || in->pay || hw_get32(in->ext) >= s->rails)
        return hw_fail(-EPROTO, "invalid final confirmation of %u bytes for rail %u", in->ext_len, hw_get32(in->ext));
    struct session_note *note = calloc(1, sizeof *note);
    if (!note)
        return hw_no_memory("a final confirmation");
    note->rail = hw_get32(in->ext);
    note->word = word;
    hw_parcel_push(&s->notes, &note->parcel);
    hw_loop_post(s->home, &s->sort);
    return 0;
}

static int place_session_frame(void *up, struct hw_rail *r, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    struct session_rail *sr = up;
    (void)r;
    if (in->type < HW_SESSION_TYPES)
        return sr->session->ops->place(sr->session->up, sr->index, in, piece, n);
    if (in->type != HW_SESSION_WORD)
        return hw_fail(-EPROTO, "unknown frame type %u", in->type);
    return take_word(sr->session, in);
}

static int deliver_session_frame(void *up, struct hw_rail *r, const struct hw_link_in *in)
{
    struct session_rail *sr = up;
    (void)r;
    return in->type < HW_SESSION_TYPES ? sr->session->ops->arrived(sr->session->up, sr->index, in) : 0;
}

static int place_session_rest(void *up, struct hw_rail *r, const struct hw_link_in *in, uint64_t at,
                              struct hw_piece *piece, uint32_t *n)
{
    struct session_rail *sr = up;
    (void)r;
    return sr->session->ops->more(sr->session->up, sr->index, in, at, piece, n);
}

static void abandon_session_frame(void *up, struct hw_rail *r, const struct hw_link_in *in)
{
    struct session_rail *sr = up;
    (void)r;
    if (in->type < HW_SESSION_TYPES)
        sr->session->ops->abandoned(sr->session->up, sr->index, in);
}

static int refuse_session_frame(void *up, struct hw_rail *r, struct hw_link_in *in)
{
    struct session_rail *sr = up;
    (void)r;
    /* parcels of the session itself have no payload */
    return sr->session->ops->refused(sr->session->up, sr->index, in);
}

static void fault_parcel(void *up, struct hw_rail *r, struct hw_parcel *p)
{
    struct session_rail *sr = up;
    (void)r;
    if (!p->session)
        sr->session->ops->faulted(sr->session->up, sr->index, p);
}

static bool was_heard_elsewhere(void *up, struct hw_rail *r, uint64_t since, bool ask)
{
    struct session_rail *sr = up;
    struct hw_session *s = sr->session;
    bool heard = false;
    for (unsigned i = 0; i < s->rails && !heard; i++)
        heard = &s->rail[i].rail != r && atomic_load(&s->rail[i].live) && atomic_load(&s->rail[i].rail.heard) >= since;
    for (unsigned i = 0; i < s->rails && !heard && ask; i++)
        if (&s->rail[i].rail != r && atomic_load(&s->rail[i].live))
            hw_rail_ask(&s->rail[i].rail);
    return heard;
}

static void note_suspected(void *up, struct hw_rail *r)
{
    struct session_rail *sr = up;
    struct hw_session *s = sr->session;
    const uint64_t heard = atomic_load(&r->heard);
    s->ops->suspected(s->up, sr->index);
    /* An idle rail of the same pair of NICs does not notice a dead path soon, and new data on this rail would be stuck
     * too. */
    for (unsigned i = 0; i < s->rails; i++) {
        struct session_rail *other = &s->rail[i];
        if (other != sr && other->pair == sr->pair && atomic_load(&other->live) &&
            hw_rail_distrust(&other->rail, heard))
            s->ops->suspected(s->up, i);
    }
}

static void note_doubted(void *up, struct hw_rail *r)
{
    struct session_rail *sr = up;
    (void)r;
    sr->session->ops->doubted(sr->session->up, sr->index);
}

static uint32_t get_mark(void *up)
{
    struct session_rail *sr = up;
    return sr->session->ops->mark(sr->session->up);
}

static void take_mark(void *up, uint32_t mark)
{
    struct session_rail *sr = up;
    sr->session->ops->marked(sr->session->up, mark);
}

/* Releases a parcel of the session that the peer has received or will not receive. */
static void end_note(struct hw_session *s, struct hw_parcel *p)
{
    if (!p->barrier)
        free(hw_container_of(p, struct session_note, parcel));
    else if (atomic_fetch_sub(&s->flush.left, 1) == 1)
        hw_loop_post(s->home, &s->sort);
}

static void finish_session_parcels(void *up, struct hw_rail *r, struct hw_parcel *list)
{
    struct session_rail *sr = up;
    struct hw_parcel **at = &list;
    (void)r;
    while (*at) {
        struct hw_parcel *p = *at;
        if (!p->session) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        end_note(sr->session, p);
    }
    if (list)
        sr->session->ops->done(sr->session->up, sr->index, list);
}

static void return_list(void *up, struct hw_rail *r, struct hw_parcel *list)
{
    struct session_rail *sr = up;
    (void)r;
    atomic_store(&sr->session->flush.again, true); /* before the home loop finds a barrier in the list */
    while (list) {
        struct hw_parcel *next = list->next;
        return_parcel(sr->session, list);
        list = next;
    }
    atomic_store(&sr->session->flush.again, true); /* the home loop may have sent barriers before the last parcel */
}

static void post_report(struct session_rail *sr, unsigned what)
{
    atomic_fetch_or(&sr->reported, what);
    hw_loop_post(sr->session->home, &sr->report);
}

/* Stores the error and its text for the home loop. */
static void note_why(struct session_rail *sr, int why)
{
    const char *text = why == -ECONNABORTED ? "ended by this side or the peer" : hw_error();
    sr->report_why = why;
    snprintf(sr->report_text, sizeof sr->report_text, "%s", text);
}

static void report_end(void *up, struct hw_rail *r)
{
    struct session_rail *sr = up;
    note_why(sr, r->why);
    sr->report_word = (struct hw_word){.gen = r->gen, .mark = r->mark, .n = r->links};
    memcpy(sr->report_word.count, r->count, r->links * sizeof r->count[0]);
    post_report(sr, REPORT_ENDED);
}

static const struct hw_rail_ops rail_ops = {.fill = fill_frame,
                                            .cut = cut_parcel,
                                            .place = place_session_frame,
                                            .more = place_session_rest,
                                            .arrived = deliver_session_frame,
                                            .abandoned = abandon_session_frame,
                                            .refused = refuse_session_frame,
                                            .heard = was_heard_elsewhere,
                                            .suspected = note_suspected,
                                            .doubted = note_doubted,
                                            .faulted = fault_parcel,
                                            .mark = get_mark,
                                            .marked = take_mark,
                                            .done = finish_session_parcels,
                                            .give_back = return_list,
                                            .ended = report_end};

/* Executes the home loop's orders on the rail. */
static void act_on_order(struct hw_task *t)
{
    struct session_rail *sr = hw_container_of(t, struct session_rail, act);
    int order = atomic_exchange(&sr->order, ORDER_NONE);
    int rc = order == ORDER_START ? hw_rail_start(&sr->rail, sr->order_gen, sr->order_conn, sr->order_n) : 0;
    if (rc < 0) {
        note_why(sr, rc);
        sr->report_word = (struct hw_word){.gen = sr->order_gen, .mark = get_mark(sr)};
        post_report(sr, REPORT_ENDED | REPORT_DOWN);
    }
    if (order == ORDER_SETTLE) {
        rc = hw_rail_settle(&sr->rail, sr->order_word.count, sr->order_word.n);
        if (rc < 0) {
            note_why(sr, rc);
            hw_rail_settle(&sr->rail, NULL, 0);
        }
        post_report(sr, REPORT_DOWN | (rc < 0 ? REPORT_REFUSED : 0));
    }
    if (atomic_exchange(&sr->order_end, false))
        hw_rail_end(&sr->rail, hw_fail(-ECONNABORTED, "given up by this side or the peer"));
}

/* ---- the home loop -------------------------------------------------------------------------------- */

/* Returns the next sound rail in round-robin order. If no rail is sound, returns any rail that is up, or NULL. */
static struct session_rail *choose_rail(struct hw_session *s)
{
    struct session_rail *suspect = NULL;
    for (unsigned k = 0; k < s->rails; k++) {
        struct session_rail *sr = &s->rail[s->turn++ % s->rails];
        if (hw_session_is_sound(s, sr->index))
            return sr;
        if (atomic_load(&sr->live))
            suspect = sr;
    }
    return suspect;
}

/* Returns the sound rail that heard from the peer most recently. Considers all rails if `all` is true, and otherwise
 * the rails on the pair of NICs of `first`. Returns `first` if no such rail has heard from the peer later than
 * `first`. */
static struct session_rail *choose_heard(struct hw_session *s, struct session_rail *first, bool all)
{
    struct session_rail *best = first;
    for (unsigned i = 0; i < s->rails; i++) {
        struct session_rail *sr = &s->rail[i];
        if ((all || sr->pair == first->pair) && hw_session_is_sound(s, i) &&
            atomic_load(&sr->rail.heard) > atomic_load(&best->rail.heard))
            best = sr;
    }
    return best;
}

/* Sends a parcel on any rail, or keeps it until a rail is up. If the session is dead, the parcel is lost. Parcels of
 * the layer above use the pairs of NICs in round-robin order. On each pair, they use the rail that heard from the peer
 * most recently: parcels on several connections would share the NIC's rate, so that all would arrive late. */
static void route_parcel(struct hw_session *s, struct hw_parcel *p)
{
    struct session_rail *sr = s->dead || p->barrier ? NULL : choose_rail(s);
    if (p->barrier || (s->dead && p->session)) {
        end_note(s, p);
    } else if (s->dead) {
        s->ops->lost(s->up, p);
    } else if (sr) {
        hw_rail_send(&choose_heard(s, sr, p->session)->rail, p);
    } else {
        p->next = s->waiting;
        s->waiting = p;
    }
}

static void route_list(struct hw_session *s, struct hw_parcel *p)
{
    while (p) {
        struct hw_parcel *next = p->next;
        route_parcel(s, p);
        p = next;
    }
}

static void route_waiting(struct hw_session *s)
{
    struct hw_parcel *all = s->waiting;
    s->waiting = NULL;
    route_list(s, all);
}

static void order_end(struct session_rail *sr)
{
    atomic_store(&sr->live, false);
    atomic_store(&sr->order_end, true);
    hw_loop_post(sr->rail.loop, &sr->act);
}

static void order_settle(struct session_rail *sr, const struct hw_word *word)
{
    sr->order_word = *word;
    if (word->gen)
        sr->session->ops->marked(sr->session->up, word->mark);
    atomic_store(&sr->order, ORDER_SETTLE);
    sr->state = RAIL_IS_SETTLING;
    hw_loop_post(sr->rail.loop, &sr->act);
}

static void order_start(struct session_rail *sr)
{
    memcpy(sr->order_conn, sr->start.conn, sizeof sr->order_conn);
    sr->order_n = sr->start.n;
    sr->order_gen = sr->gen = sr->start.gen;
    sr->start.is = false;
    atomic_store(&sr->order, ORDER_START);
    sr->state = RAIL_IS_UP;
    atomic_store(&sr->live, true);
    hw_loop_post(sr->rail.loop, &sr->act);
    if (sr->session->flush.active)
        hw_loop_post(sr->session->home, &sr->session->sort); /* the flush may wait for a rail */
    if (sr->ahead.gen == sr->gen)                            /* the peer has already ended this generation */
        sr->peers = sr->ahead;
}

/* Stores the peer's last word on a generation. */
static void note_word(struct session_rail *sr, const struct hw_word *word)
{
    if (word->gen == sr->gen)
        sr->peers = *word;
    else if (word->gen > sr->gen && word->gen > sr->ahead.gen) /* last words may arrive in any order */
        sr->ahead = *word;
}

static void close_start(struct session_rail *sr)
{
    for (unsigned k = 0; k < sr->start.n && sr->start.is; k++)
        sr->rail.io->close(sr->start.conn[k]);
    sr->start.is = false;
}

/* Performs the steps that are now possible for a rail. */
static void advance_rail(struct session_rail *sr)
{
    struct hw_session *s = sr->session;
    static const struct hw_word nothing = {0};
    if (sr->state == RAIL_IS_DOWN && sr->start.is && !s->dead)
        order_start(sr);
    if (sr->state == RAIL_IS_UP && (sr->peers.gen == sr->gen || s->dead || (!s->client && sr->asked > sr->gen)))
        order_end(sr);
    bool told = sr->peers.gen == sr->gen;
    bool client_never_had_it = !s->client && sr->asked > sr->gen && sr->client.gen < sr->gen;
    if (sr->state == RAIL_IS_ENDED && !s->dead && told)
        order_settle(sr, &sr->peers);
    else if (sr->state == RAIL_IS_ENDED && (s->dead || client_never_had_it))
        order_settle(sr, &nothing);
    if (s->dead)
        close_start(sr);
    if (sr->state == RAIL_IS_UP && atomic_load(&sr->live))
        route_waiting(s);
}

void hw_session_die(struct hw_session *s, int why)
{
    if (s->dead)
        return;
    s->dead = why;
    for (unsigned i = 0; i < s->rails; i++)
        advance_rail(&s->rail[i]);
    route_waiting(s);
}

bool hw_session_is_gone(const struct hw_session *s)
{
    bool gone = s->dead && !atomic_load(&s->returned) && !atomic_load(&s->notes) && !atomic_load(&s->sort.posted) &&
                !s->let_go.round && !atomic_load(&s->let_go.next.posted);
    for (unsigned i = 0; i < s->rails && gone; i++) {
        const struct session_rail *sr = &s->rail[i];
        gone = sr->state == RAIL_IS_DOWN && !atomic_load(&sr->act.posted) && !atomic_load(&sr->report.posted) &&
               !atomic_load(&sr->rail.work.posted) && !atomic_load(&sr->rail.flush.posted);
    }
    return gone;
}

/* Sends one of this side's last words about rail sr to the peer, over any rail that is up. */
static void send_word(struct hw_session *s, const struct session_rail *sr, const struct hw_word *word)
{
    struct session_note *note = word->gen ? calloc(1, sizeof *note) : NULL;
    if (!note)
        return; /* the handshake of the rail's next connection also carries the last word */
    note->parcel.small = note->parcel.session = true;
    note->rail = sr->index;
    note->word = *word;
    route_parcel(s, &note->parcel);
}

/* Returns the last word on a generation in which nothing arrived. */
static struct hw_word make_empty_word(struct session_rail *sr, uint32_t gen)
{
    return (struct hw_word){.gen = gen, .mark = get_mark(sr)};
}

/* Sends this side's newest last words about all rails. Called whenever a rail ends, because an earlier copy that was in
 * flight on the ended rail is not sent again before the peer's last word about the rail arrives, which may be delayed
 * in the same way. Duplicates have no effect. */
static void send_words(struct hw_session *s)
{
    for (unsigned i = 0; i < s->rails; i++) {
        struct session_rail *sr = &s->rail[i];
        const struct hw_word none = make_empty_word(sr, sr->given_up);
        send_word(s, sr, &sr->mine);
        if (sr->kept.gen != sr->mine.gen)
            send_word(s, sr, &sr->kept);
        if (sr->given_up > sr->mine.gen)
            send_word(s, sr, &none);
    }
}

static void take_report(struct hw_task *t)
{
    struct session_rail *sr = hw_container_of(t, struct session_rail, report);
    struct hw_session *s = sr->session;
    unsigned what = atomic_exchange(&sr->reported, 0);
    if (what & REPORT_ENDED) {
        sr->state = RAIL_IS_ENDED;
        sr->mine = sr->report_word;
        atomic_store(&sr->live, false);
        send_words(s);
    }
    if (what & REPORT_REFUSED)
        hw_session_die(s, hw_fail_copy(sr->report_why, sr->report_text));
    if (what & REPORT_DOWN)
        sr->state = RAIL_IS_DOWN;
    if (what & REPORT_ENDED && !s->dead)
        s->ops->ended(s->up, sr->index, hw_fail_copy(sr->report_why, sr->report_text));
    advance_rail(sr);
    if (sr->state == RAIL_IS_DOWN && !s->dead)
        s->ops->down(s->up, sr->index);
    if (what & REPORT_REFUSED)
        s->ops->died(s->up, hw_fail_copy(s->dead, sr->report_text));
    hw_flush_step(s);
}

static void sort_arrivals(struct hw_task *t)
{
    struct hw_session *s = hw_container_of(t, struct hw_session, sort);
    struct hw_parcel *p = atomic_exchange(&s->notes, NULL);
    while (p) {
        struct hw_parcel *next = p->next;
        struct session_note *note = hw_container_of(p, struct session_note, parcel);
        struct session_rail *sr = &s->rail[note->rail];
        note_word(sr, &note->word);
        advance_rail(sr);
        free(note);
        p = next;
    }
    route_list(s, atomic_exchange(&s->returned, NULL));
    hw_flush_step(s);
}

int hw_session_init(struct hw_session *s, bool client, struct hw_loop *home, struct hw_loop *const *loop, unsigned n,
                    const struct hw_session_ops *ops, const struct hw_rail_io *io, void *up,
                    const struct hw_rail_limits *limits)
{
    assert(n >= 1 && n <= HW_SESSION_RAILS);
    memset(s, 0, sizeof *s);
    s->rail = calloc(n, sizeof *s->rail);
    if (!s->rail)
        return hw_no_memory("a session's rails");
    s->client = client;
    s->rails = n;
    s->home = home;
    s->ops = ops;
    s->up = up;
    s->sort.run = sort_arrivals;
    s->let_go.next.run = step_let_go;
    for (unsigned i = 0; i < n; i++) {
        struct session_rail *sr = &s->rail[i];
        sr->session = s;
        sr->index = sr->pair = i;
        sr->act.run = act_on_order;
        sr->report.run = take_report;
        sr->let_go.run = let_go_by_rail;
        hw_rail_init(&sr->rail, loop[i], &rail_ops, io, sr, limits);
    }
    return 0;
}

void hw_session_free(struct hw_session *s)
{
    for (unsigned i = 0; i < s->rails; i++)
        hw_rail_free(&s->rail[i].rail);
    free(s->rail);
    s->rail = NULL;
    s->rails = 0;
}

void hw_session_end_rail(struct hw_session *s, unsigned i)
{
    if (s->rail[i].state == RAIL_IS_UP)
        order_end(&s->rail[i]);
}

bool hw_session_has_rails(const struct hw_session *s)
{
    for (unsigned i = 0; i < s->rails; i++)
        if (s->rail[i].state == RAIL_IS_UP)
            return true;
    return false;
}

/* ---- handshakes ------------------------------------------------------------------------------------ */

void hw_session_give_up(struct hw_session *s, unsigned i, uint32_t gen)
{
    struct session_rail *sr = &s->rail[i];
    if (gen != sr->asked || gen <= sr->gen || sr->start.is || s->dead || (!s->client && sr->state != RAIL_IS_DOWN))
        return;
    const struct hw_word none = make_empty_word(sr, gen);
    sr->given_up = gen;
    if (!s->client) { /* the client may have had the rail up, so treat the generation as started and ended */
        sr->gen = gen;
        sr->mine = none;
    }
    send_word(s, sr, &none);
}

uint32_t hw_session_hello(struct hw_session *s, unsigned i, struct hw_word *mine)
{
    struct session_rail *sr = &s->rail[i];
    assert(s->client);
    if (sr->state == RAIL_IS_UP || sr->start.is || s->dead)
        return 0;
    *mine = sr->mine;
    sr->asked = HW_MAX(sr->asked, sr->gen) + 1;
    return sr->asked;
}

int hw_session_ask(struct hw_session *s, unsigned i, uint32_t gen, const struct hw_word *client)
{
    struct session_rail *sr = &s->rail[i];
    assert(!s->client);
    if (gen <= sr->asked)
        return hw_fail(-ESTALE, "connection %u of rail %u is out of date: connection %u was already requested", gen, i,
                       sr->asked);
    if (client->gen >= gen || client->gen > sr->gen)
        return hw_fail(-EPROTO,
                       "the client's final confirmation on rail %u is for connection %u, which was never established",
                       i, client->gen);
    sr->asked = gen;
    sr->client = *client;
    note_word(sr, client);
    advance_rail(sr);
    return 0;
}

int hw_session_answer(struct hw_session *s, unsigned i, uint32_t gen, struct hw_word *mine)
{
    struct session_rail *sr = &s->rail[i];
    if (gen != sr->asked || s->dead)
        return hw_fail(-ESTALE, "this connection of rail %u is out of date", i);
    if (sr->state != RAIL_IS_DOWN)
        return -EAGAIN;
    if (sr->mine.gen == sr->client.gen)
        sr->kept = sr->mine;
    *mine = sr->kept;
    return 0;
}

int hw_session_start(struct hw_session *s, unsigned i, uint32_t gen, struct hw_conn *const *conn, unsigned n,
                     const struct hw_word *peer)
{
    struct session_rail *sr = &s->rail[i];
    assert(n >= 1 && n <= HW_RAIL_LINKS);
    if (gen != sr->asked || gen <= sr->gen || sr->start.is || s->dead)
        return hw_fail(-ESTALE, "this connection of rail %u is out of date", i);
    if (peer)
        note_word(sr, peer);
    sr->start.is = true;
    sr->start.gen = gen;
    sr->start.n = n;
    memcpy(sr->start.conn, conn, n * sizeof *conn);
    advance_rail(sr);
    return 0;
}
