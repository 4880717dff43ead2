/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests how rails of different rates carry an operation in simulated time, and compares the duration with the ideal
 * duration at the sum of the rates. A chunk is confirmed one round trip after its last byte has left the rail.
 */
#include "core/stripe.h"
#include "message/pace.h"
#include "tests/tap.h"

#include "base/base.h"

#define RAILS  8
#define CHUNKS 4096

struct rail {
    double rate;     /* bytes/s */
    uint64_t rtt;    /* ns */
    uint64_t change; /* time (ns) at which the rate changes .. */
    double later;    /* .. to this value; 0: never */
    struct hw_rate learned;
    uint64_t in_flight, free_at; /* free_at: time at which the last byte taken so far leaves */
    uint64_t carried;
    struct {
        uint64_t at, bytes; /* of the confirmation */
    } chunk[CHUNKS];
    unsigned first, n;
};

struct run {
    unsigned rails;
    struct rail rail[RAILS];
    uint64_t window;
    bool greedy; /* each rail takes as many chunks as it may before the next rail takes any */
};

/* Returns the time at which the last of these bytes, sent from `at` on, leaves the rail. */
static uint64_t leave_at(const struct rail *r, uint64_t at, uint64_t bytes)
{
    double left = (double)bytes;
    if (r->later > 0 && at < r->change) {
        double part = (double)(r->change - at) * r->rate / 1e9;
        if (part >= left)
            return at + (uint64_t)(left * 1e9 / r->rate);
        left -= part;
        at = r->change;
    }
    return at + (uint64_t)(left * 1e9 / (r->later > 0 && at >= r->change ? r->later : r->rate));
}

static void take_chunk(struct run *run, struct rail *r, uint64_t now, uint64_t bytes)
{
    (void)run;
    if (r->in_flight == 0)
        hw_rate_start(&r->learned, now);
    uint64_t from = r->free_at > now ? r->free_at : now;
    r->free_at = leave_at(r, from, bytes);
    r->in_flight += bytes;
    unsigned i = (r->first + r->n++) % CHUNKS;
    r->chunk[i].at = r->free_at + r->rtt;
    r->chunk[i].bytes = bytes;
}

/* Lets each rail take one chunk or, with run->greedy, as many as it may. Returns false if no rail takes any. */
static bool pull_chunks(struct run *run, uint64_t now, uint64_t *left)
{
    bool any = false;
    for (unsigned k = 0; k < run->rails;) {
        struct rail *r = &run->rail[k];
        struct hw_stripe s = {.rate = r->learned.value,
                              .in_flight = r->in_flight,
                              .path_in_flight = r->in_flight,
                              .left = *left,
                              .total = *left, /* as if the bytes in flight belonged to another operation */
                              .rails = run->rails,
                              .min_chunk = 64 << 10,
                              .max_chunk = 1 << 20};
        for (unsigned i = 0; i < run->rails; i++) {
            s.all_rates += run->rail[i].learned.value;
            s.all_in_flight += run->rail[i].in_flight;
            s.best_rate = HW_MAX(s.best_rate, run->rail[i].learned.value);
        }
        for (unsigned i = 0; i < run->rails; i++)
            if (hw_stripe_is_like(run->rail[i].learned.value, s.best_rate)) {
                s.like++;
                s.like_in_flight += run->rail[i].in_flight;
            }
        uint64_t take = r->in_flight < run->window ? hw_stripe_take(&s, run->window - r->in_flight) : 0;
        bool none = take == 0 || r->n == CHUNKS;
        k += none || !run->greedy;
        if (none)
            continue;
        take_chunk(run, r, now, take);
        *left -= take;
        any = true;
    }
    return any;
}

/* Returns the duration of an operation in ns, or UINT64_MAX if some bytes are left that no rail takes. */
static uint64_t carry_bytes(struct run *run, uint64_t start, uint64_t bytes)
{
    uint64_t now = start, left = bytes, last = start;
    for (;;) {
        while (pull_chunks(run, now, &left))
            ;
        struct rail *next = NULL;
        for (unsigned k = 0; k < run->rails; k++) {
            struct rail *r = &run->rail[k];
            if (r->n && (!next || r->chunk[r->first].at < next->chunk[next->first].at))
                next = r;
        }
        if (!next)
            return left ? UINT64_MAX : last - start;
        now = last = HW_MAX(now, next->chunk[next->first].at);
        next->in_flight -= next->chunk[next->first].bytes;
        next->carried += next->chunk[next->first].bytes;
        hw_rate_confirm(&next->learned, now, next->chunk[next->first].bytes);
        next->first = (next->first + 1) % CHUNKS;
        next->n--;
    }
}

static double sum_rates(const struct run *run)
{
    double sum = 0;
    for (unsigned k = 0; k < run->rails; k++)
        sum += run->rail[k].rate;
    return sum;
}

/* Carries two operations. Returns the ratio of the second operation's ideal duration, at the sum of the rates, to its
 * actual duration. */
static double measure(struct run *run, uint64_t bytes)
{
    uint64_t first = carry_bytes(run, 0, bytes), took = carry_bytes(run, 2 * first + HW_MS, bytes);
    return (double)bytes / sum_rates(run) / ((double)took / 1e9);
}

static void check_rates(const char *what, unsigned n, const double *rate, uint64_t rtt, uint64_t bytes, double least)
{
    static struct run run;
    run = (struct run){.rails = n, .window = 8 << 20};
    for (unsigned k = 0; k < n; k++)
        run.rail[k] = (struct rail){.rate = rate[k], .rtt = rtt};
    double part = measure(&run, bytes);
    ok(part >= least, "%s: %.3f of the sum of the rates, at least %.2f", what, part, least);
    /* A thread may run alone for a while. Its rails must not take data that the other rails could carry in the
     * meantime. */
    run = (struct run){.rails = n, .window = 16 << 20, .greedy = true};
    for (unsigned k = 0; k < n; k++)
        run.rail[k] = (struct rail){.rate = rate[k], .rtt = rtt};
    part = measure(&run, bytes);
    ok(part >= least, "%s, one rail after the other: %.3f, at least %.2f", what, part, least);
}

/* Returns the rate that is assumed for a slow rail next to a rail of 3 GB/s. */
static uint64_t look_at_rate(struct hw_pace *own, uint64_t now)
{
    static struct hw_pace all[2];
    struct hw_loop loop = {.now = now};
    struct hw_rail r = {.loop = &loop};
    struct hw_stripe s = {.min_chunk = 64 << 10, .max_chunk = 256 << 10};
    all[0] = *own;
    all[1].shown = 3000000000;
    hw_pace_look(all, 2, 0, &r, &s);
    *own = all[0];
    return s.rate;
}

/* Tests that a rail is not excluded because its thread got no CPU while the rate was measured. */
static void test_slow_once(void)
{
    struct hw_rate r = {0};
    hw_rate_start(&r, 1);
    hw_rate_confirm(&r, 1 + HW_MS, 64 << 10);
    hw_rate_start(&r, 2 * HW_MS);
    hw_rate_confirm(&r, 2 * HW_MS + 20000, 64 << 10);
    ok(r.value > 3000000000, "of two round trips the faster one counts: %llu bytes/s", (unsigned long long)r.value);
    struct hw_pace p = {.rate = {.value = 60000000, .provisional = true}, .seen = HW_MS};
    is_int(look_at_rate(&p, 2 * HW_MS), 0, "a rail that one round trip shows slow is tried on");
    p.rate.provisional = false;
    is_int(look_at_rate(&p, 2 * HW_MS), 60000000, "one that was measured is not");
    is_int(look_at_rate(&p, 600 * HW_MS), 0, "but half a second later");
}

/* Tests which rail is woken if a rail leaves bytes to others: it has to be a rail that takes the bytes, because
 * otherwise the two rails would wake each other again and again. */
static void test_woken(void)
{
    static struct hw_pace all[5];
    const struct hw_stripe s = {.best_rate = 1000};
    for (unsigned i = 0; i < 5; i++) {
        all[i].path = i;
        all[i].shown = 1000;
        all[i].in_flight = 1 << 20;
    }
    is_int(hw_pace_idle(all, 5, 0, &s), 0, "no other rail is idle");
    all[1].path = all[0].path;
    all[1].in_flight = 0;
    is_int(hw_pace_idle(all, 5, 0, &s), 0, "an idle rail of the same pair of NICs does not help");
    all[2].shown = 400;
    all[2].in_flight = 0;
    is_int(hw_pace_idle(all, 5, 0, &s), 0, "a slow rail may refuse, too");
    all[3].shown = 0;
    all[3].in_flight = 0;
    is_int(hw_pace_idle(all, 5, 0, &s), 0, "so may one that is not compared");
    all[4].in_flight = 0;
    is_int(hw_pace_idle(all, 5, 0, &s), 4, "an idle fast rail of another pair of NICs is woken");
}

/* Returns the chunk that a rail takes of 1 MiB of the only operation. `mine` bytes are in flight on this rail, and none
 * on the three rails of other pairs of NICs. */
static uint64_t take_of_lone(uint64_t rate, uint64_t mine, uint64_t behind)
{
    const uint64_t total = 1 << 20;
    const struct hw_stripe s = {.rate = rate,
                                .in_flight = mine,
                                .path_in_flight = mine,
                                .best_rate = rate,
                                .all_rates = 4 * rate,
                                .all_in_flight = mine,
                                .like_in_flight = mine,
                                .like = 4,
                                .left = total - mine,
                                .behind = behind,
                                .total = total,
                                .rails = 4,
                                .min_chunk = 64 << 10,
                                .max_chunk = 256 << 10};
    return hw_stripe_take(&s, 16 << 20);
}

/* Tests that NICs share a message that is alone: one NIC would need several times as long. */
static void test_alone(void)
{
    const uint64_t slow = 1250000000, fast = 50000000000;
    is_int(take_of_lone(slow, 0, 0), 256 << 10, "10 Gb/s: an idle rail takes an even share of 1 MiB");
    is_int(take_of_lone(slow, (256 << 10) + 100, 0), 0, "and leaves the rest to other NICs");
    is_int(take_of_lone(fast, (256 << 10) + 100, 0), 256 << 10, "at 400 Gb/s, other threads would not be faster");
    is_int(take_of_lone(slow, (256 << 10) + 100, 4 << 20), 256 << 10, "nor are they idle if more operations follow");
    static struct hw_pace all[2];
    struct hw_loop loop = {0};
    struct hw_rail r = {.loop = &loop};
    for (unsigned i = 0; i < 2; i++) {
        all[i].rate.value = slow;
        all[i].shown = slow;
    }
    for (unsigned other = 0; other < 2; other++) {
        struct hw_stripe s = {.min_chunk = 64 << 10};
        hw_pace_pair(all, 2, 0, 0);
        hw_pace_pair(all, 2, 1, other);
        hw_pace_look(all, 2, 0, &r, &s);
        is_int(s.rails, 1 + other,
               other ? "a rail looks at another NIC before it takes a chunk" : "but not at its own");
    }
}

int main(void)
{
    static const double even[] = {12.5e9, 12.5e9, 12.5e9, 12.5e9}, slow[] = {12.5e6, 12.5e6, 12.5e6, 3.1e6},
                        tenth[] = {12.5e9, 12.5e9, 12.5e9, 1.25e9}, pair[] = {50e9, 0.1e9},
                        eight[] = {50e9, 50e9, 50e9, 50e9, 50e9, 50e9, 50e9, 50e9},
                        ten[] = {1.25e9, 1.25e9, 1.25e9, 1.25e9, 1.25e9, 1.25e9, 1.25e9, 1.25e9},
                        uneven[] = {1.25e9, 0.8e9};
    check_rates("four NICs of 100 Gb/s, 1 GiB", 4, even, 30000, 1ull << 30, 0.95);
    check_rates("four NICs of 100 Gb/s, 64 MiB", 4, even, 30000, 64ull << 20, 0.90);
    check_rates("one of four at a quarter, 100 Mb/s, 64 MiB", 4, slow, 200000, 64ull << 20, 0.95);
    check_rates("one of four at a tenth, 1 GiB", 4, tenth, 30000, 1ull << 30, 0.95);
    check_rates("400 Gb/s beside 0.8 Gb/s, 256 MiB", 2, pair, 30000, 256ull << 20, 0.95);
    check_rates("eight NICs of 400 Gb/s, 4 GiB", 8, eight, 30000, 4ull << 30, 0.95);
    check_rates("eight NICs of 10 Gb/s, 64 MiB", 8, ten, 30000, 64ull << 20, 0.90);
    check_rates("10 Gb/s beside 6.4 Gb/s, 64 MiB", 2, uneven, 30000, 64ull << 20, 0.85);

    static struct run run;
    run = (struct run){.rails = 4, .window = 8 << 20};
    for (unsigned k = 0; k < 4; k++)
        run.rail[k] = (struct rail){.rate = 1e9, .rtt = 50000};
    uint64_t whole = carry_bytes(&run, 0, 1ull << 30);
    run.rail[3].change = 2 * whole + whole / 2;
    run.rail[3].later = 1e8;
    uint64_t took = carry_bytes(&run, 2 * whole, 1ull << 30);
    /* half of the bytes at the full rate, the rest at 3.1/4 of it */
    double best = (double)whole / 2 * (1 + 4 / 3.1);
    ok((double)took <= best * 1.10,
       "a NIC that falls to a tenth in the middle: %.3f of the time that its loss explains", (double)took / best);

    ok(hw_stripe_lengthen(1, 9, 1000, 4, 0) == 1 && hw_stripe_lengthen(1, 9, 1000, 4, 5000) == 5 &&
           hw_stripe_lengthen(1, 9, 24, 4, 5000) == 3 && hw_stripe_lengthen(1, 9, 1000, 4, 50000) == 9,
       "long chunks are bounded by the rail's rate, by what each rail has of the rest, and by the most");

    struct hw_stripe one = {.left = 10 << 20, .rails = 1, .min_chunk = 64 << 10, .max_chunk = 1 << 20};
    is_int(hw_stripe_take(&one, 70000), 70000, "a chunk is no longer than the budget");
    is_int(hw_stripe_take(&one, 300), 0, "a small budget waits until it is larger");
    is_int(hw_stripe_take(&one, 0), 0, "nothing without a budget");
    one.left = 300;
    is_int(hw_stripe_take(&one, 300), 300, "the end of an operation may be short");
    uint64_t least = UINT64_MAX;
    for (one.left = 64 << 10; one.left < 1200 << 10; one.left += 511)
        for (uint64_t budget = 64 << 10; budget < 1300 << 10; budget += 7919) {
            uint64_t take = hw_stripe_take(&one, budget), rest = one.left - take;
            least = HW_MIN(least, rest ? HW_MIN(take, rest) : take);
        }
    ok(least >= 32 << 10, "no chunk of a few bytes is cut or left, whatever the budget: %lu at least",
       (unsigned long)least);
    one.left = 0;
    is_int(hw_stripe_take(&one, 1 << 20), 0, "nothing where nothing is left");
    struct hw_stripe beside = {.rate = 1000000,
                               .best_rate = 1000000,
                               .all_rates = 2000000,
                               .rails = 2,
                               .like = 2,
                               .left = 1 << 20,
                               .path_in_flight = 8 << 20,
                               .all_in_flight = 8 << 20,
                               .like_in_flight = 8 << 20,
                               .min_chunk = 64 << 10,
                               .max_chunk = 1 << 20};
    is_int(hw_stripe_take(&beside, 1 << 20), 64 << 10,
           "a rail with nothing in flight takes a chunk, whatever its path has");
    beside.in_flight = 1;
    is_int(hw_stripe_take(&beside, 1 << 20), 0, "one with something in flight leaves it to other paths");
    beside.left = 128 << 10;
    is_int(hw_stripe_take(&beside, 1 << 20), 0, "nor does it take a part of the last two chunks of an operation");
    beside.path_in_flight = beside.all_in_flight / 2;
    beside.like_in_flight = beside.all_in_flight;
    is_int(hw_stripe_take(&beside, 64 << 10), 0, "a rail waits until it has room for both");
    is_int(hw_stripe_take(&beside, 1 << 20), 128 << 10, "and takes both, even if this is more than its even share");
    beside.best_rate = 4 * beside.rate;
    beside.all_rates = 5 * beside.rate;
    beside.path_in_flight = 100;
    beside.like_in_flight = beside.all_in_flight;
    is_int(hw_stripe_take(&beside, 64 << 10), 0, "so does a rail with a quarter of the best rate");
    beside.best_rate = 16 * beside.rate;
    is_int(hw_stripe_take(&beside, 64 << 10), 64 << 10, "a rail with a sixteenth takes one of them");
    beside.path_in_flight = 8 << 20;
    is_int(hw_stripe_take(&beside, 1 << 20), 0, "a slow rail that would finish late takes neither");
    beside.rate = 0;
    beside.in_flight = 0;
    is_int(hw_stripe_take(&beside, 1 << 20), 64 << 10, "a rail whose rate is not known takes one of them");
    test_slow_once();
    test_woken();
    test_alone();
    return tap_done();
}
