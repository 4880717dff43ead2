/* SPDX-License-Identifier: Apache-2.0 */
#include "core/stripe.h"

#define INTERVAL (2 * HW_MS) /* minimum time of a rate measurement; a twentieth of this for the first value */
/* A slow rail must finish within this fraction of the time that all rails together need to finish everything. The rest
 * is a reserve, because a delay of one rail delays the whole operation. */
#define EARLY 0.85
/* In seconds. A rail that will finish within this time takes work regardless of the others, because such a short delay
 * does not matter, and because the measured rate of a rail with little data is lower than its true rate. */
#define SOON 0.0005
/* In seconds. If no other operation is under way, a rail that will finish within this time need not share the operation
 * with other pairs of NICs, whose threads may have to wake up first. */
#define BRIEF 0.0001
/* Number of chunks of maximum length per pair of NICs. Similar pairs share the last chunks of an operation that is
 * alone. */
#define LAST_CHUNKS 4
/* Fast rails leave no even share of the work to rails with less than 1/LIKE of the best rate. */
#define LIKE 8

static uint64_t divide_rate(uint64_t bytes, uint64_t ns)
{
    double rate = (double)bytes * 1e9 / (double)HW_MAX(ns, 1);
    return rate < 1 ? 1 : (uint64_t)rate;
}

void hw_rate_start(struct hw_rate *r, uint64_t now)
{
    r->started = now;
    r->since = 0;
    r->bytes = 0;
}

void hw_rate_confirm(struct hw_rate *r, uint64_t now, uint64_t bytes)
{
    if (!r->since) {
        uint64_t seen = divide_rate(bytes, now - r->started);
        r->since = now;
        if (!r->value || (r->provisional && seen > r->value)) {
            r->value = seen;
            r->provisional = true;
        }
        return;
    }
    r->bytes += bytes;
    uint64_t took = now - r->since;
    if (took < (r->provisional ? INTERVAL / 20 : INTERVAL))
        return;
    uint64_t seen = divide_rate(r->bytes, took);
    r->value = r->provisional ? seen : (3 * r->value + seen) / 4;
    r->provisional = false;
    r->since = now;
    r->bytes = 0;
}

bool hw_stripe_is_fast(uint64_t rate, uint64_t best_rate)
{
    return rate >= best_rate / 2;
}

bool hw_stripe_is_like(uint64_t rate, uint64_t best_rate)
{
    return rate >= best_rate / LIKE;
}

bool hw_stripe_is_soon(uint64_t rate, uint64_t bytes)
{
    return (double)bytes <= (double)rate * SOON;
}

bool hw_stripe_is_brief(uint64_t rate, uint64_t bytes)
{
    return (double)bytes <= (double)rate * BRIEF;
}

/* Returns the time, in seconds, in which all rails together finish everything. */
static double get_time_of_all(const struct hw_stripe *s)
{
    return (double)(s->left + s->behind + s->all_in_flight) / (double)s->all_rates;
}

/* Returns true if the rail's pair of NICs, with `bytes` more, finishes soon, or before all rails together finish
 * everything. */
static bool ends_in_time(const struct hw_stripe *s, uint64_t bytes)
{
    double mine = (double)(s->path_in_flight + bytes) / (double)s->rate;
    return hw_stripe_is_soon(s->rate, s->path_in_flight + bytes) || mine <= get_time_of_all(s) * EARLY;
}

/* Returns true if probably no other operation has bytes to send or in flight. The sixteenth allows for the frames'
 * headers, which count as bytes in flight. */
static bool is_alone(const struct hw_stripe *s)
{
    return s->behind == 0 && s->left + s->all_in_flight <= s->total + s->total / 16;
}

/* Returns true if a fast rail need not leave bytes to similar pairs of NICs, although it has this many bytes in flight
 * or is about to. A fast rail takes as much as it can of an operation that is alone, up to the last chunks, because any
 * bytes that the rail left would go to rails whose rates may be overestimated. */
static bool need_not_share(const struct hw_stripe *s, uint64_t bytes)
{
    if (s->like <= 1)
        return true;
    if (!is_alone(s))
        return hw_stripe_is_soon(s->rate, bytes);
    return s->left > s->max_chunk * s->like * LAST_CHUNKS || hw_stripe_is_brief(s->rate, bytes);
}

/* Returns the share of a fast rail in [least, most], or 0 if the rail has data in flight and its pair of NICs has more
 * in flight than similar pairs will have on average once everything is cut. The differences between the rates of these
 * pairs do not matter here: rails of several sessions may share a NIC, and each then measures a random part of its
 * rate. */
static uint64_t get_even_share(const struct hw_stripe *s, uint64_t least, uint64_t most)
{
    if (need_not_share(s, s->path_in_flight + most))
        return most;
    uint64_t even = (s->left + s->behind + s->like_in_flight) / s->like;
    if (s->path_in_flight > even) /* the other rails may be stuck, so an idle rail takes a chunk anyway */
        return s->in_flight ? 0 : least;
    return HW_MAX(least, HW_MIN(most, even - s->path_in_flight));
}

/* Returns this rail's share in [least, most], or 0. */
static uint64_t get_share(const struct hw_stripe *s, uint64_t least, uint64_t most)
{
    if (s->rails <= 1)
        return most;
    if (s->rate && hw_stripe_is_fast(s->rate, s->best_rate))
        return get_even_share(s, least, most);
    if (s->rate == 0) /* measure the rate with a small share */
        return s->in_flight < 2 * s->min_chunk ? least : 0;
    if (!ends_in_time(s, least))
        return 0;
    uint64_t take = most;
    while (take > least && !ends_in_time(s, take))
        take = HW_MAX(take / 2, least);
    return take;
}

uint64_t hw_stripe_lengthen(uint64_t least, uint64_t most, uint64_t left, unsigned rails, uint64_t rate)
{
    uint64_t share = left / (2ull * rails), in_time = rate / 1000;
    return HW_MAX(least, HW_MIN(HW_MIN(share, in_time), most));
}

uint64_t hw_stripe_take(const struct hw_stripe *s, uint64_t budget)
{
    const bool whole = s->rate && hw_stripe_is_like(s->rate, s->best_rate) && s->left <= 2 * s->min_chunk;
    const uint64_t least = whole ? s->left : HW_MIN(s->min_chunk, s->left);
    if (budget < least || budget == 0) /* waiting for space for one chunk is better than sending many small chunks */
        return 0;
    uint64_t take = get_share(s, least, HW_MIN(HW_MIN(s->max_chunk, s->left), budget));
    uint64_t rest = s->left - take;
    return take && rest && rest < least ? s->left / 2 : take;
}
