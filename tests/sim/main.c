/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs schedules of the simulator.
 *   sim [--seeds FIRST:COUNT] [--trace SEED[,FEATURES]]
 * Each seed is one schedule. The first that fails is run again with one feature after the other taken away, as long as
 * it fails, and its trace is printed: what happened, in order, with the least machinery that shows the fault.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_FEATURES ((1u << SIM_FEATURES) - 1)

/* Every fourth seed has all features, or all but the liar, who hides other faults; the others each a subset, where
 * single ones show more. */
static uint32_t pick_features(uint64_t seed)
{
    struct sim s = {.state = seed ^ 0x5eed};
    switch (seed % 4) {
    case 0:
        return ALL_FEATURES;
    case 1:
        return ALL_FEATURES & ~(1u << SIM_LIAR);
    default:
        return (uint32_t)sim_random(&s, ALL_FEATURES + 1);
    }
}

/* All parts of a seed, from the lowest layer up, to the first that fails. */
static void run_schedule(struct sim *s)
{
    static void (*const part[])(struct sim *) = {sim_run_loops, sim_run_links, sim_run_sessions, sim_run_messages,
                                                 sim_run_matches};
    for (size_t i = 0; i < HW_ARRAY_LEN(part) && !s->failed[0]; i++) {
        s->step = 0;
        part[i](s);
    }
}

static void shrink_and_print(struct sim *s)
{
    for (int f = 0; f < SIM_FEATURES; f++) {
        struct sim less = {.seed = s->seed, .features = s->features & ~(1u << f)};
        if (!sim_has(s, f))
            continue;
        run_schedule(&less);
        if (less.failed[0])
            s->features = less.features;
    }
    struct sim last = {.seed = s->seed, .features = s->features, .trace = true};
    run_schedule(&last);
    printf("seed %llu fails with:", (unsigned long long)s->seed);
    for (int f = 0; f < SIM_FEATURES; f++)
        if (sim_has(s, f))
            printf(" %s", sim_feature_name[f]);
    printf("\nreplay: sim --trace %llu,%u\n", (unsigned long long)s->seed, s->features);
}

static int run_seeds(uint64_t first, uint64_t count)
{
    uint64_t steps = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct sim s = {.seed = seed, .features = pick_features(seed)};
        run_schedule(&s);
        steps += s.step;
        if (s.failed[0]) {
            char why[sizeof s.failed];
            memcpy(why, s.failed, sizeof why);
            shrink_and_print(&s);
            printf("1..1\nnot ok 1 - seed %llu: %s\n", (unsigned long long)seed, why);
            return 1;
        }
    }
    printf("1..1\nok 1 - %llu schedules from seed %llu on, %llu steps\n", (unsigned long long)count,
           (unsigned long long)first, (unsigned long long)steps);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, count = 1000;
    if (argc == 3 && strcmp(argv[1], "--trace") == 0) {
        char *end;
        struct sim s = {.seed = strtoull(argv[2], &end, 10), .trace = true};
        s.features = *end == ',' ? (uint32_t)strtoul(end + 1, NULL, 10) : pick_features(s.seed);
        run_schedule(&s);
        return s.failed[0] != 0;
    }
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        char *end;
        first = strtoull(argv[2], &end, 10);
        count = *end == ':' ? strtoull(end + 1, NULL, 10) : 1;
    } else if (argc != 1) {
        fprintf(stderr, "usage: sim [--seeds FIRST:COUNT] [--trace SEED[,FEATURES]]\n");
        return 2;
    }
    return run_seeds(first, count);
}
