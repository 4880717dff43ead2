/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of `hawser bench`: its options, and one measurement. */
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

/* The values of --channels and --window. */
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
    uint32_t blocks[BENCH_SIZES]; /* pieces of an operation; 0: one */
    size_t n_sizes;
    const char *blocks_text; /* --blocks instead of --size */
    uint64_t interval_ms;    /* 0: none */
    bool both;               /* --bidir: one worker writes, another reads */
    uint64_t iters, warmup, depth, channels, duration_ms, rounds, raw_streams;
    struct hw_knobs knobs; /* in force */
    bool has_warmup, no_verify, hot, compare_raw, raw_best;
    const char *gpus_text, *map; /* gpus_text: NULL: host memory */
    struct gpus gpus;
    bool per_process;
    struct bench_list channels_list, window_list;
    const char *one;    /* "CHANNELS,WINDOW": this is one run of a sweep; 0: it is not */
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
    bool abandoned;   /* a thread hangs in the driver: the process can only exit */
    const char *what; /* text of the progress line */
};

/* Returns the table's stream: standard output, unless the JSON lines go there. */
FILE *bench_table(const struct bench *b);
/* Return the operations of a measurement of this size, with or without --iters, and those of the warm-up. */
uint64_t bench_iters(const struct bench *b, uint64_t size);
uint64_t bench_warmup(const struct bench *b, uint64_t iters);
uint32_t bench_depth(const struct bench *b, uint64_t size);
/* Makes the plan of size i, for host memory. -EIO: no random seed. */
int bench_plan(const struct bench *b, size_t i, struct measure_plan *out);
/* Returns a row without measured values. */
struct row bench_make_row(const struct bench *b, struct measure *m, const char *op, uint64_t size, uint32_t blocks);
/* Opens m with plan on s, with its hooks (progress...) already set, runs the warm-up and prepares r for measure_run().
 * Closes m on failure. */
int bench_start(const struct bench *b, struct session *s, const struct measure_plan *plan, uint64_t warmup,
                struct measure *m, struct row *r);
/* Fills in the results of measure_run(): percentiles, rates, NICs. */
void bench_finish(const struct bench *b, struct measure *m, const struct session_path *path, size_t n_paths,
                  struct row *r);
double bench_per_GB(uint64_t us, uint64_t bytes);

/* The rounds of one size: hawser and, with rival, plain sockets alternately. */
struct bench_turns {
    struct measure *m;
    struct rival *rival;                   /* NULL: none */
    struct measure *raw;                   /* whose memory plain sockets use */
    int (*before)(void *arg, size_t turn); /* a turn: even ones are hawser's */
    void *arg;
};
/* Adds the results to r, with medians over the rounds. After a failure, also -EINTR, over the finished rounds. */
int bench_rounds(const struct bench *b, const struct bench_turns *t, uint64_t iters, struct row *r);
/* Prints the congestion control of plain sockets, if known. */
void bench_print_congestion(FILE *out, const struct row *r);

/* Prints the lines "# ..." above the table, from the knobs on. */
void bench_print_knobs(const struct bench *b, FILE *out);

/* Parses a list of numbers (sizes: such as 512KiB). -EINVAL. */
int bench_list(const char *text, bool sizes, uint64_t least, uint64_t most, struct bench_list *out);
/* Parses the value of --one: channels, window. Returns false if invalid. */
bool bench_one(const char *text, uint64_t v[2]);
/* Returns true if a list has more than one value. */
bool bench_sweeps(const struct bench *b);
/* Runs each combination. Failures were reported and set b->failed. */
int bench_sweep(struct bench *b);

/* --gpus, --bidir: the whole run, after the options are parsed. Failures of workers were reported and set b->failed. */
int bench_gpus(struct bench *b);
/* The work of one pair's worker, on context h; it reports everything, also its failure, to the supervisor on fd. stop:
 * as in struct session. crowd: number of pairs; own_cpu: this process's CPU time is this worker's. */
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
/* Combines all results of a size in one row, with m->hist for the times. Returns false if no worker has a result. */
bool bench_sum_up(const struct bench *b, const struct crew *c, size_t size, struct row *all, struct measure *m);
/* Return the pair and operation of worker i: with --bidir each pair has two workers. */
const struct gpu_pair *bench_worker_pair(const struct bench *b, size_t i);
enum tp_op bench_worker_op(const struct bench *b, size_t i);

/* --per-process: starts a child for each pair, and sets the crew's hooks. On failure no child is left. */
struct bench_child {
    pid_t pid; /* 0: reaped */
};
int bench_children_start(const struct bench *b, struct crew *c, struct bench_child *child);
/* Ends and reaps the remaining children. */
void bench_children_end(struct bench_child *child, size_t n);
/* Runs such a child, after the options are parsed. */
int bench_child(struct bench *b);

#endif
