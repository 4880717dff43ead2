/* SPDX-License-Identifier: Apache-2.0 */
#include "message/pace.h"

#include "message/peer.h"

/* Time after which a rail that was too slow is tried again. The rail's NIC may be faster now, or the rail's thread may
 * have received no CPU time during the measurement. */
#define STALE (500 * HW_MS)

static uint64_t count_in_flight(const struct hw_rail *r)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < r->links; i++)
        bytes += r->link[i].link.in_flight;
    return bytes;
}

void hw_pace_pair(struct hw_pace *all, unsigned rails, unsigned i, unsigned pair)
{
    bool has_others = false;
    all[i].path = pair;
    for (unsigned k = 0; k < rails; k++)
        has_others |= all[k].path != pair;
    for (unsigned k = 0; k < rails; k++)
        all[k].has_others = has_others;
}

void hw_pace_look(struct hw_pace *all, unsigned rails, unsigned own, struct hw_rail *r, struct hw_stripe *s)
{
    struct hw_pace *mine = &all[own];
    uint64_t paths = 0; /* bit mask */
    if (mine->gen != r->gen) {
        mine->gen = r->gen;
        mine->rate = (struct hw_rate){0};
    }
    s->in_flight = count_in_flight(r);
    s->rate = mine->rate.value;
    s->rails = 1;
    if (hw_stripe_is_soon(s->rate, s->in_flight + s->min_chunk) &&
        (!mine->has_others || hw_stripe_is_brief(s->rate, s->in_flight + HW_CHUNK)))
        return; /* the other rails' state is not read, because it is in their CPUs' caches */
    atomic_store_explicit(&mine->in_flight, s->in_flight, memory_order_relaxed);
    s->rails = s->rate == 0;
    s->all_rates = s->all_in_flight = s->like_in_flight = s->best_rate = 0;
    s->like = 0;
    s->path_in_flight = 0;
    for (unsigned i = 0; i < rails; i++)
        s->best_rate = HW_MAX(s->best_rate, atomic_load_explicit(&all[i].shown, memory_order_relaxed));
    for (unsigned i = 0; i < rails; i++) {
        uint64_t rate = atomic_load_explicit(&all[i].shown, memory_order_relaxed);
        if (!rate)
            continue;
        s->rails++;
        s->all_rates += rate;
        uint64_t in_flight = atomic_load_explicit(&all[i].in_flight, memory_order_relaxed);
        s->all_in_flight += in_flight;
        if (all[i].path == mine->path)
            s->path_in_flight += in_flight;
        if (!hw_stripe_is_like(rate, s->best_rate))
            continue;
        uint64_t path = UINT64_C(1) << all[i].path % 64;
        s->like += !(paths & path);
        paths |= path;
        s->like_in_flight += in_flight;
    }
    if (hw_stripe_is_fast(s->rate, s->best_rate))
        return;
    if (mine->rate.provisional) {
        s->rate = 0; /* a provisional rate counts as unknown here */
    } else if (s->in_flight == 0 && r->loop->now - mine->seen >= STALE) {
        mine->rate = (struct hw_rate){0};
        mine->seen = r->loop->now;
        s->rate = 0;
    }
}

void hw_pace_start(struct hw_pace *p, const struct hw_rail *r)
{
    if (count_in_flight(r) == 0)
        hw_rate_start(&p->rate, r->loop->now);
}

void hw_pace_confirm(struct hw_pace *p, const struct hw_rail *r, uint64_t bytes)
{
    if (r->state != HW_RAIL_UP || p->gen != r->gen)
        return;
    hw_rate_confirm(&p->rate, r->loop->now, bytes);
    p->seen = r->loop->now;
    atomic_store_explicit(&p->shown, p->rate.value, memory_order_relaxed);
    atomic_store_explicit(&p->in_flight, count_in_flight(r), memory_order_relaxed);
}

void hw_pace_forget(struct hw_pace *p)
{
    atomic_store(&p->shown, 0);
    atomic_store(&p->in_flight, 0);
}

unsigned hw_pace_best(const struct hw_pace *all, unsigned rails, unsigned own)
{
    uint64_t best = 0;
    for (unsigned i = 0; i < rails; i++) {
        uint64_t rate = atomic_load_explicit(&all[i].shown, memory_order_relaxed);
        if (rate > best) {
            best = rate;
            own = i;
        }
    }
    return own;
}

unsigned hw_pace_idle(const struct hw_pace *all, unsigned rails, unsigned own, const struct hw_stripe *s)
{
    for (unsigned k = 1; k < rails; k++) {
        unsigned i = (own + k) % rails;
        uint64_t rate = atomic_load_explicit(&all[i].shown, memory_order_relaxed);
        if (all[i].path != all[own].path && rate && hw_stripe_is_fast(rate, s->best_rate) &&
            atomic_load_explicit(&all[i].in_flight, memory_order_relaxed) == 0)
            return i;
    }
    return own;
}
