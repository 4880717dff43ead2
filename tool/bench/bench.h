/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `hawser bench` share: its options, and one measurement. */
#ifndef HW_TOOL_BENCH_H
#define HW_TOOL_BENCH_H

#include "base/knob.h"
#include "tool/bench/crew.h"
#include "tool/load/gpus.h"
#include "tool/opts.h"
#include "tool/raw/rival.h"
#include "tool/report/output.h"

#define BENCH_SIZES  64
#define BENCH_ROUNDS 99

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
    uint64_t sizes[BENCH_SIZES];
    size_t n_sizes;
    uint64_t iters, warmup, depth, channels, duration_ms, rounds, raw_streams;
    struct hw_knobs knobs; /* in force */
    bool has_warmup, no_verify, hot, compare_raw, raw_best;
    const char *gpus_text, *map; /* gpus_text: NULL: host memory */
    struct gpus gpus;
    bool per_process;
    struct bench_list channels_list, window_list;
    const char *one;    /* "CHANNELS,WINDOW": this is a run of a sweep; 0: not said */
    const char *worker; /* "FD,CROWD,GPU,PEER,NICS": this is a child of --per-process */
    int argc;           /* to start such children with */
    char **argv;
    /* running */
    hawser *h;
    struct session s;
    struct rival rival;
    char raw_congestion[16]; /* of plain sockets; "": none were measured, or the kernel does not say */
    FILE *json_out;
    char *json_tmp; /* a report without --json still needs the lines */
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
/* The plan of one size, of host memory. -EIO: no random seed. */
int bench_plan(const struct bench *b, uint64_t size, struct measure_plan *out);
/* Opens m by plan on s, with its hooks (progress...) set before, runs the warm-up and makes r ready for measure_run().
 * On failure m is closed. */
int bench_start(const struct bench *b, struct session *s, const struct measure_plan *plan, uint64_t warmup,
                struct measure *m, struct row *r);
/* What is known after measure_run(): percentiles, rates, NICs. */
void bench_finish(const struct bench *b, struct measure *m, const struct session_path *path, size_t n_paths,
                  struct row *r);
double bench_per_GB(uint64_t us, uint64_t bytes);

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

/* --gpus: the whole run, after the options are read. What failed of the GPUs was said: then b->failed. */
int bench_gpus(struct bench *b);
/* What one pair's worker does, on context h; it says all, its failure too, to the supervisor on fd. stop: as in struct
 * session. crowd: pairs in all; own_cpu: this process's CPU time is this worker's. */
struct bench_work {
    const struct bench *b;
    const struct gpu_pair *pair;
    hawser *h;
    int fd;
    size_t crowd;
    bool own_cpu;
    const bool *stop;
};
int bench_work(const struct bench_work *w);

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
