/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include "base/size.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct options opt = {
    .deadline = 20,
    .depth_max = NCCL_NET_MAX_REQUESTS,
    .comms_max = 32,
    .churn = 1000,
    .max_size = UINT64_MAX,
    .align = 1,
    .slow_ms = 3000,
    .repeat = 1,
    .size = 1024 * 1024,
    .comms = 1,
    .depth = 8,
    .threads = 1,
    .ranks = 16,
    .ms = 2000,
};

enum kind { FLAG, TEXT, NUMBER, SIZE, MILLISECONDS };

/* The options except --help. */
static const struct row {
    const char *name;
    enum kind kind;
    void *to;
    uint64_t min, max;
    const char *help;
} rows[] = {
    {"version", NUMBER, &opt.version, 6, 12, "this version of the table (the newest there is)"},
    {"dev", NUMBER, &opt.dev, 0, 1023, "device (0)"},
    {"deadline", NUMBER, &opt.deadline, 1, 600, "seconds for everything that is waited for (20)"},
    {"verbose", FLAG, &opt.verbose, 0, 0, "the plugin's log goes to stderr"},
    {"no-sizes", FLAG, &opt.no_sizes, 0, 0, "quirk: test never writes the size"},
    {"consumed", FLAG, &opt.consumed, 0, 0, "quirk: irecvConsumed after each receive"},
    {"depth-max", NUMBER, &opt.depth_max, 1, FLOW_DEPTH, "quirk: requests in flight on a connection (32; v6: 8)"},
    {"max-size", SIZE, &opt.max_size, 1, UINT64_MAX, "quirk: largest message, and receive"},
    {"align", NUMBER, &opt.align, 1, 4096, "quirk: alignment of messages in memory (1)"},
    {"no-hint", FLAG, &opt.no_hint, 0, 0, "quirk: irecv's *request never asks for optional completion"},
    {"no-alternate", FLAG, &opt.no_alternate, 0, 0, "quirk: connect waits for accept; they never take turns"},
    {"list", FLAG, &opt.list, 0, 0, "all: prints the steps"},
    {"only", TEXT, &opt.only, 0, 0, "all: steps whose name matches this glob"},
    {"without", TEXT, &opt.without, 0, 0, "all: steps whose name matches this glob are skipped"},
    {"modes", TEXT, &opt.modes, 0, 0, "all: processes or threads (both)"},
    {"repeat", NUMBER, &opt.repeat, 1, 1000000, "all: how often (1)"},
    {"strict", FLAG, &opt.strict, 0, 0, "all: also what the ABI leaves open"},
    {"flush", FLAG, &opt.flush, 0, 0, "all: iflush after receives"},
    {"cuda", FLAG, &opt.cuda, 0, 0, "all: the plugin must take GPU memory, and there must be a GPU"},
    {"comms-max", NUMBER, &opt.comms_max, 1, 32, "all: pairs of connections at once (32)"},
    {"churn", NUMBER, &opt.churn, 0, 1000000, "all: connections made and closed (1000)"},
    {"slow", MILLISECONDS, &opt.slow_ms, 0, 600000, "all: how late a receiver comes (3s)"},
    {"no-stray", FLAG, &opt.no_stray, 0, 0, "all: no strangers at the listening sockets"},
    {"no-death", FLAG, &opt.no_death, 0, 0, "all: no rank is killed"},
    {"no-abort", FLAG, &opt.no_abort, 0, 0, "all: nobody waits for the error that the other's close brings"},
    {"no-fork", FLAG, &opt.no_fork, 0, 0, "all: no children"},
    {"ends", FLAG, &opt.ends, 0, 0, "all: ends as hawser's plugin promises them"},
    {"size", SIZE, &opt.size, 1, 1u << 30, "bench: of a message (1MiB)"},
    {"comms", NUMBER, &opt.comms, 1, 32, "bench: connections (1)"},
    {"depth", NUMBER, &opt.depth, 1, FLOW_DEPTH, "bench: in flight on each (8)"},
    {"ranks", NUMBER, &opt.ranks, 2, CROWD_MAX, "crowd: processes (16)"},
    {"threads", NUMBER, &opt.threads, 1, 64, "bench: threads of each rank that drive them (1, as NCCL)"},
    {"seconds", MILLISECONDS, &opt.ms, 100, 3600000, "bench: how long (2)"},
    {"bidir", FLAG, &opt.bidir, 0, 0, "bench: as many connections the other way"},
    {"latency", FLAG, &opt.latency, 0, 0, "bench: round trips of 8 bytes instead"},
    {"json", TEXT, &opt.json, 0, 0, "bench: figures into this file, - for stdout"},
};

static void usage(FILE *f)
{
    fputs("Usage: driver all PLUGIN [options]     every step of the suite, as TAP\n"
          "       driver bench PLUGIN [options]   goodput between two processes, or latency\n"
          "       driver crowd PLUGIN [options]   many processes connect to each other, and exchange messages (--size, "
          "--comms)\n"
          "PLUGIN is a path, or the NAME of libnccl-net-NAME.so.\n",
          f);
    for (size_t i = 0; i < HW_ARRAY_LEN(rows); i++)
        fprintf(f, "  --%-14s %s\n", rows[i].name, rows[i].help);
}

static int parse(const struct row *w, const char *text)
{
    uint64_t v = 0;
    int rc = 0;
    switch (w->kind) {
    case FLAG:
        *(bool *)w->to = true;
        return 0;
    case TEXT:
        *(const char **)w->to = text;
        return 0;
    case NUMBER:
        rc = hw_parse_u64(text, w->min, w->max, &v);
        break;
    case SIZE:
        rc = hw_parse_size(text, &v);
        break;
    case MILLISECONDS:
        rc = hw_parse_duration_ms(text, &v);
        break;
    }
    if (!rc && (v < w->min || v > w->max))
        rc = hw_fail(-EINVAL, "'%s' is out of bounds", text);
    *(uint64_t *)w->to = v;
    return hw_wrap(rc, "--%s", w->name);
}

static int options(int argc, char **argv)
{
    struct option lng[HW_ARRAY_LEN(rows) + 2] = {{0}};
    int id;

    for (size_t i = 0; i < HW_ARRAY_LEN(rows); i++)
        lng[i] = (struct option){.name = rows[i].name, .has_arg = rows[i].kind != FLAG, .val = 1000 + (int)i};
    lng[HW_ARRAY_LEN(rows)] = (struct option){.name = "help", .val = 'h'};
    while ((id = getopt_long(argc, argv, "h", lng, NULL)) != -1) {
        if (id == 'h') {
            usage(stdout);
            exit(0);
        }
        if (id < 1000)
            return hw_fail(-EINVAL, "see --help");
        int rc = parse(&rows[id - 1000], optarg);
        if (rc)
            return rc;
    }
    if (opt.modes && strcmp(opt.modes, "processes") != 0 && strcmp(opt.modes, "threads") != 0)
        return hw_fail(-EINVAL, "--modes %s: processes or threads", opt.modes);
    if (opt.align & (opt.align - 1))
        return hw_fail(-EINVAL, "--align %llu is no power of two", (unsigned long long)opt.align);
    if (opt.bidir && opt.comms > 16)
        return hw_fail(-EINVAL, "--bidir takes 16 --comms at most");
    return 0;
}

int main(int argc, char **argv)
{
    int rc = options(argc, argv);

    if (!rc && opt.list) {
        for (size_t i = 0; i < n_steps; i++)
            puts(steps[i].name);
        return 0;
    }
    if (!rc && argc - optind != 2)
        rc = hw_fail(-EINVAL, "wanted: all, bench, crowd or facts, and a plugin; see --help");
    if (rc) {
        fprintf(stderr, "driver: %s\n", hw_error());
        return 2;
    }
    opt.plugin = argv[optind + 1];
    opt.profile = strcmp(argv[optind], "all") == 0;
    if (opt.profile)
        return run_suite(steps, n_steps);
    if (strcmp(argv[optind], "bench") == 0)
        return run_bench(&bench_step);
    if (strcmp(argv[optind], "crowd") == 0)
        return run_crowd();
    if (strcmp(argv[optind], "facts") == 0)
        return run_facts();
    fprintf(stderr, "driver: '%s' is none of all, bench, crowd and facts\n", argv[optind]);
    return 2;
}
