/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs schedules of the simulator.
 *   sim [--list FILE] [--seeds FIRST:COUNT]
 *   sim --trace SEED[,FEATURES[,FAULTS[,OPS]]]
 * Each seed gives one schedule. When a schedule fails, the program removes its features one by one, and then reduces
 * its faults and operations, while the schedule still fails. It then prints the trace of the smallest failing schedule,
 * which lists the events in order. The seeds in FILE are run first. Each line of FILE has a seed, optional names of
 * features, and a comment after a # on the fault that the seed found. Without names, the seed selects the features.
 */
#include "sim.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_FEATURES ((1u << SIM_FEATURES) - 1)
#define REPLAYED     64 /* one in this many seeds is run twice, to check that a seed always gives the same run */

/* Of every four seeds, one has all features, and one has all except the liar, which hides other faults. The other two
 * have random subsets, because some faults only show when few features are active. */
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

/* Runs all parts of a schedule, from the lowest layer up, until one fails. */
static void run_schedule(struct sim *s)
{
    static void (*const part[])(struct sim *) = {sim_run_loops, sim_run_links, sim_run_sessions, sim_run_messages,
                                                 sim_run_matches};
    sim_seed_library(s->seed);
    for (size_t i = 0; i < HW_ARRAY_LEN(part) && !s->failed[0]; i++) {
        long live = sim_count_memory();
        s->step = 0;
        sim_fail_memory(NULL); /* the previous part or schedule may have ended while an operation was posted */
        part[i](s);
        s->print = hw_hash(s->print ^ s->step, &s->state, sizeof s->state);
        if (!s->failed[0] && sim_count_memory() != live)
            sim_fail(s, "%ld pieces of memory are left at the end of part %zu", sim_count_memory() - live, i);
    }
}

/* Returns a schedule in its initial state, with no limits. */
static struct sim make_schedule(uint64_t seed, uint32_t features)
{
    return (struct sim){.seed = seed, .features = features, .most_faults = UINT32_MAX, .most_ops = UINT32_MAX};
}

/* Runs the smaller schedule `less`. If it fails, sets *s to it and returns true. */
static bool try_less(struct sim *s, struct sim less)
{
    struct sim run = less;
    run_schedule(&run);
    if (run.failed[0])
        *s = less;
    return run.failed[0];
}

/* Reduces the limit at this offset in *s by bisection, starting at `from`, while the schedule still fails. */
static void shrink_limit(struct sim *s, size_t offset, uint32_t from)
{
    uint32_t low = 0, high = from; /* the schedule fails with high */
    while (low < high) {
        struct sim less = *s;
        uint32_t middle = low + (high - low) / 2;
        memcpy((char *)&less + offset, &middle, sizeof middle);
        if (try_less(s, less))
            high = middle;
        else
            low = middle + 1;
    }
}

static void shrink_and_print(uint64_t seed, uint32_t features)
{
    struct sim s = make_schedule(seed, features);
    for (int f = 0; f < SIM_FEATURES; f++) {
        struct sim less = s;
        less.features &= ~(1u << f);
        if (sim_has(&s, f))
            (void)try_less(&s, less);
    }
    shrink_limit(&s, offsetof(struct sim, most_faults), SIM_FAULTS);
    shrink_limit(&s, offsetof(struct sim, most_ops), SIM_OPS);
    struct sim last = s;
    last.trace = true;
    run_schedule(&last);
    if (!last.failed[0])
        printf("and the schedule does not fail again: it does not replay\n");
    printf("seed %llu fails with:", (unsigned long long)seed);
    for (int f = 0; f < SIM_FEATURES; f++)
        if (sim_has(&s, f))
            printf(" %s", sim_feature_name[f]);
    printf("\nreplay: sim --trace %llu,%u,%u,%u\n", (unsigned long long)seed, s.features, s.most_faults, s.most_ops);
}

/* Runs one seed and adds its steps to *steps. If the seed fails, prints the reason and returns false. */
static bool run_seed(uint64_t seed, uint32_t features, uint64_t *steps)
{
    struct sim s = make_schedule(seed, features), again = s;
    run_schedule(&s);
    *steps += s.step;
    if (!s.failed[0] && seed % REPLAYED == 0) {
        run_schedule(&again);
        if (again.print != s.print)
            sim_fail(&s, "two runs of the seed differ");
    }
    if (!s.failed[0])
        return true;
    shrink_and_print(seed, features);
    printf("1..1\nnot ok 1 - seed %llu: %s\n", (unsigned long long)seed, s.failed);
    return false;
}

static bool find_feature(const char *name, uint32_t *features)
{
    for (int f = 0; f < SIM_FEATURES; f++)
        if (strcmp(name, sim_feature_name[f]) == 0) {
            *features |= 1u << f;
            return true;
        }
    return false;
}

/* Runs the seeds in a file. If one fails, or the file is malformed, prints the reason and returns false. */
static bool run_list(const char *path, uint64_t *count, uint64_t *steps)
{
    char line[256], *rest, *end;
    bool good = true;
    FILE *f = fopen(path, "re");
    if (!f)
        printf("1..1\nnot ok 1 - cannot open %s\n", path);
    while (f && good && fgets(line, sizeof line, f)) {
        line[strcspn(line, "#\n")] = 0;
        const char *word = strtok_r(line, " ", &rest);
        if (!word)
            continue;
        uint64_t seed = strtoull(word, &end, 10);
        uint32_t features = 0;
        good = *end == 0;
        while (good && (word = strtok_r(NULL, " ", &rest)))
            good = find_feature(word, &features);
        if (!good)
            printf("1..1\nnot ok 1 - %s: \"%s\" is no seed and no feature\n", path, word ? word : line);
        else
            good = run_seed(seed, features ? features : pick_features(seed), steps);
        ++*count;
    }
    if (f)
        fclose(f);
    return f && good;
}

static int trace_seed(const char *text)
{
    char *end;
    uint64_t seed = strtoull(text, &end, 10);
    struct sim s = make_schedule(seed, *end == ',' ? (uint32_t)strtoul(end + 1, &end, 10) : pick_features(seed));
    if (*end == ',')
        s.most_faults = (uint32_t)strtoul(end + 1, &end, 10);
    if (*end == ',')
        s.most_ops = (uint32_t)strtoul(end + 1, &end, 10);
    s.trace = true;
    run_schedule(&s);
    return s.failed[0] != 0;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, count = 1000, listed = 0, steps = 0;
    char *end;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--trace") == 0)
            return trace_seed(argv[i + 1]);
        if (i + 1 < argc && strcmp(argv[i], "--list") == 0) {
            if (!run_list(argv[i + 1], &listed, &steps))
                return 1;
        } else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
            first = strtoull(argv[i + 1], &end, 10);
            count = *end == ':' ? strtoull(end + 1, NULL, 10) : 1;
        } else {
            fprintf(stderr, "usage: sim [--list FILE] [--seeds FIRST:COUNT]\n"
                            "       sim --trace SEED[,FEATURES[,FAULTS[,OPS]]]\n");
            return 2;
        }
    }
    for (uint64_t seed = first; seed < first + count; seed++)
        if (!run_seed(seed, pick_features(seed), &steps))
            return 1;
    printf("1..1\nok 1 - %llu schedules from seed %llu on, and %llu that failed before, %llu steps\n",
           (unsigned long long)count, (unsigned long long)first, (unsigned long long)listed, (unsigned long long)steps);
    return 0;
}
