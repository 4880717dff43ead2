/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `hawser bench` share: its options, and one measurement. */
#ifndef HW_TOOL_BENCH_H
#define HW_TOOL_BENCH_H

#include "base/knob.h"
#include "tool/bench/crew.h"
#include "tool/load/gpus.h"
#include "tool/opts.h"
#include "tool/raw/rival.h"
#include "tool/report/files.h"
#include "tool/report/table.h"

#define BENCH_SIZES  64
#define BENCH_ROUNDS OUTPUT_ROUNDS

#define BENCH_LIST 16

/* What --channels and --window give. */
struct bench_list {
    uint64_t v[BENCH_LIST];
    size_t n;
};

struct bench {
    struct common common;
    char host[256];
    uint16_t port;
    const char *op_name, *sizes_text, *nics, *peer_nics, *json, *report, *faults;
    enum tp_op op;
    uint64_t sizes[BENCH_SIZES];  /* bytes of an operation */
    uint32_t blocks[BENCH_SIZES]; /* pieces of it; 0: it is one */
    size_t n_sizes;
    const char *blocks_text; /* --blocks instead of --size */
    uint64_t interval_ms;    /* 0: none */
    bool both;               /* --bidir: a worker writes, another reads */
    uint64_t iters, warmup, depth, channels, duration_ms, rounds, raw_streams;
    struct hw_knobs knobs; /* in force */
    bool has_warmup, no_verify, hot, compare_raw, raw_best;
    const char *gpus_text, *map; /* gpus_text: NULL: host memory */
    struct gpus gpus;
    bool per_process;
    struct bench_list channels_list, window_list;
    const char *one;    /* "CHANNELS,WINDOW": this is a run of a sweep; 0: not said */
    const char *worker; /* "FD,CROWD,GPU,PEER,OP,NICS": this is a child of --per-process */
    int argc;           /* to start such children with */
    char **argv;
    /* running */
    hawser *h;
    struct session s;
    struct rival rival;
    struct table table;
    struct report_files files;
    FILE *json_out; /* of files */
    uint64_t bad;
    bool failed;      /* some GPU did */
    bool abandoned;   /* a thread hangs in the driver: the process can only be left */
    const char *what; /* of the progress line */
};

/* Where the table goes: standard output, unless the JSON lines do. */
FILE *bench_table(const struct bench *b);
/* Operations of a measurement of this size where --iters says nothing, and as it says; before the clock likewise. */
uint64_t bench_iters(const struct bench *b, uint64_t size);
uint64_t bench_warmup(const struct bench *b, uint64_t iters);
uint32_t bench_depth(const struct bench *b, uint64_t size);
/* The plan of size i, of host memory. -EIO: no random seed. */
int bench_plan(const struct bench *b, size_t i, struct measure_plan *out);
/* A row of which nothing is measured yet. */
struct row bench_make_row(const struct bench *b, struct measure *m, const char *op, uint64_t size, uint32_t blocks);
/* Opens m by plan on s, with its hooks (progress...) set before, runs the warm-up and makes r ready for measure_run().
 * On failure m is closed. */
int bench_start(const struct bench *b, struct session *s, const struct measure_plan *plan, uint64_t warmup,
                struct measure *m, struct row *r);
/* What is known after measure_run(): percentiles, rates, NICs. */
void bench_finish(const struct bench *b, struct measure *m, const struct session_path *path, size_t n_paths,
                  struct row *r);
double bench_per_GB(uint64_t us, uint64_t bytes);

/* The rounds of one size: hawser and, with rival, plain sockets in turns. */
struct bench_turns {
    struct measure *m;
    struct rival *rival;                   /* NULL: none */
    struct measure *raw;                   /* whose memory plain sockets move */
    int (*before)(void *arg, size_t turn); /* a turn: even ones are hawser's */
    void *arg;
};
/* Adds what was measured to r, with medians of the rounds. On failure, -EINTR too, of as many as there were. */
int bench_rounds(const struct bench *b, const struct bench_turns *t, uint64_t iters, struct row *r);
/* Which congestion control plain sockets had, if that is known. */
void bench_print_congestion(FILE *out, const struct row *r);

/* The lines "# ..." over the table, from the knobs on. */
void bench_print_knobs(const struct bench *b, FILE *out);

/* A list of numbers (sizes: like 512KiB). -EINVAL. */
int bench_list(const char *text, bool sizes, uint64_t least, uint64_t most, struct bench_list *out);
/* What --one has: channels, window. False: it is none. */
bool bench_one(const char *text, uint64_t v[2]);
/* Does any of the lists have more than one value? */
bool bench_sweeps(const struct bench *b);
/* Then: a run for each combination. What failed of them was said: then b->failed. */
int bench_sweep(struct bench *b);

/* --gpus, --bidir: the whole run, after the options are read. What failed of the workers was said: then b->failed. */
int bench_gpus(struct bench *b);
/* What one pair's worker does, on context h; it says all, its failure too, to the supervisor on fd. stop: as in struct
 * session. crowd: pairs in all; own_cpu: this process's CPU time is this worker's. */
struct bench_work {
    const struct bench *b;
    const struct gpu_pair *pair; /* of GPUs, or with BUFFER_HOST of both hosts' memory */
    enum tp_op op;
    hawser *h;
    int fd;
    size_t crowd;
    bool own_cpu;
    const bool *stop;
};
int bench_work(const struct bench_work *w);
/* All of a size's results as one row, with m->hist for the times. False: no worker has a result. */
bool bench_sum_up(const struct bench *b, const struct crew *c, size_t size, struct row *all, struct measure *m);
/* What worker i does: with --bidir there are two for each pair. */
const struct gpu_pair *bench_worker_pair(const struct bench *b, size_t i);
enum tp_op bench_worker_op(const struct bench *b, size_t i);

/* --per-process: starts a child for each pair, and sets the crew's hooks. On failure none is left. */
struct bench_child {
    pid_t pid; /* 0: reaped */
};
int bench_children_start(const struct bench *b, struct crew *c, struct bench_child *child);
/* Ends and reaps those that are left. */
void bench_children_end(struct bench_child *child, size_t n);
/* Such a child, after the options are read. */
int bench_child(struct bench *b);

#endif
