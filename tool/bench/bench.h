/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of `hawser bench`: the command's options, and the steps of one measurement. */
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

/* Values of --channels or --window. */
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
    uint64_t sizes[BENCH_SIZES];  /* bytes of one operation, for each size */
    uint32_t blocks[BENCH_SIZES]; /* blocks of one operation, for each size; 0 means one contiguous block */
    size_t n_sizes;
    const char *blocks_text; /* value of --blocks, or NULL if --size is used */
    uint64_t interval_ms;    /* interval between printed rates; 0 means none */
    bool both;               /* --bidir: one worker writes while another reads */
    uint64_t iters, warmup, depth, channels, duration_ms, rounds, raw_streams;
    struct hw_knobs knobs; /* knobs in effect */
    bool has_warmup, no_verify, hot, compare_raw, raw_best;
    const char *gpus_text, *map; /* gpus_text is NULL for host memory */
    struct gpus gpus;
    bool per_process;
    struct bench_list channels_list, window_list;
    const char *one;    /* "CHANNELS,WINDOW" if this process is one run of a sweep, else NULL */
    const char *worker; /* "FD,CROWD,GPU,PEER,OP,NICS" if this process is a child of --per-process, else NULL */
    int argc;           /* this command's arguments, which are passed to every run or child */
    char **argv;
    /* state of the running command */
    hawser *h;
    struct session s;
    struct rival rival;
    struct table table;
    struct report_files files;
    FILE *json_out; /* stream for JSON lines, owned by files */
    uint64_t bad;
    bool failed;      /* a worker or run failed, or violated --require-direct */
    bool abandoned;   /* a thread did not end, so the process can only exit */
    const char *what; /* start of the progress line */
};

/* Returns the stream for the table, to standard output or, if the JSON lines go there, to standard error. */
FILE *bench_table(const struct bench *b);
/* Return the number of measured operations of a round, of warm-up operations, and of operations in flight, from the
 * options or their defaults. */
uint64_t bench_iters(const struct bench *b, uint64_t size);
uint64_t bench_warmup(const struct bench *b, uint64_t iters);
uint32_t bench_depth(const struct bench *b, uint64_t size);
/* Makes the plan for size i, with host memory on both sides. Returns -EIO if the kernel provides no random seed. */
int bench_plan(const struct bench *b, size_t i, struct measure_plan *out);
/* Returns a row with no measured values yet. */
struct row bench_make_row(const struct bench *b, struct measure *m, const char *op, uint64_t size, uint32_t blocks);
/* Opens m with plan on s, runs the warm-up, and prepares m and r for measure_run(). The caller has already set the
 * hooks of m (progress, beat, interval, gate). Closes m on failure. */
int bench_start(const struct bench *b, struct session *s, const struct measure_plan *plan, uint64_t warmup,
                struct measure *m, struct row *r);
/* Fills in the latencies, CPU time, lost channels, NICs, verdicts about GPUs, and fault events of the rounds, but not
 * their rates. */
void bench_finish(const struct bench *b, struct measure *m, const struct session_path *path, size_t n_paths,
                  struct row *r);
double bench_per_GB(uint64_t us, uint64_t bytes);

/* The rounds of one size. hawser and, if rival is set, plain sockets take turns. */
struct bench_turns {
    struct measure *m;
    struct rival *rival;                   /* NULL to measure only hawser */
    struct measure *raw;                   /* measurement with the memory that plain sockets use */
    int (*before)(void *arg, size_t turn); /* called before each turn; even turns are hawser's */
    void *arg;
};
/* Runs the rounds and adds the results to r, with medians over the rounds. After a failure, or -EINTR, r also counts
 * those operations of the unfinished round that completed. */
int bench_rounds(const struct bench *b, const struct bench_turns *t, uint64_t iters, struct row *r);
/* Prints the congestion control algorithm of plain sockets, if it is known. */
void bench_print_congestion(FILE *out, const struct row *r);

/* Prints a line if a pair of NICs has fewer channels, `used`, than were asked for (with --channels or knob channels, 0
 * if the library chooses). */
void bench_print_channels(FILE *out, uint64_t asked, uint64_t used);
/* Prints the heading with the operation, window, depth, verification and rounds. Each line begins with "#". */
void bench_print_knobs(const struct bench *b, FILE *out);

/* Parses a list of numbers, or with sizes a list of sizes such as 512KiB. Returns -EINVAL for an invalid list. */
int bench_list(const char *text, bool sizes, uint64_t least, uint64_t most, struct bench_list *out);
/* Parses the value of --one, "CHANNELS,WINDOW", into v. Returns false if the text is invalid. */
bool bench_one(const char *text, uint64_t v[2]);
/* Returns true if --channels or --window has more than one value. */
bool bench_sweeps(const struct bench *b);
/* Runs each combination of channels and window. A failed run is reported at once and sets b->failed. */
int bench_sweep(struct bench *b);

/* Runs bench with --gpus or --bidir after the options are parsed. A failed worker is reported at once and sets
 * b->failed. */
int bench_gpus(struct bench *b);
/* The work of one worker, on context h. The worker reports results and failures to the supervisor on fd. crowd is the
 * number of workers. own_cpu is true if the worker has its own process, so that the CPU time of this process is that of
 * the worker. stop is as in struct session. */
struct bench_work {
    const struct bench *b;
    const struct gpu_pair *pair; /* pair of GPUs, or with BUFFER_HOST the memory of both hosts */
    enum tp_op op;
    hawser *h;
    int fd;
    size_t crowd;
    bool own_cpu;
    const bool *stop;
};
int bench_work(const struct bench_work *w);
/* Combines the results of all workers for one size in one row, and merges the latencies into m->hist. Returns false
 * if no worker has a result. */
bool bench_sum_up(const struct bench *b, const struct crew *c, size_t size, struct row *all, struct measure *m);
/* Return the GPU pair and the operation of worker i. With --bidir each pair has two workers. */
const struct gpu_pair *bench_worker_pair(const struct bench *b, size_t i);
enum tp_op bench_worker_op(const struct bench *b, size_t i);

struct bench_child {
    pid_t pid; /* 0 once reaped */
};
/* Starts a child process for each worker (--per-process), and sets those hooks of the crew that concern the children.
 * The caller ends the children with bench_children_end(), even after a failure. */
int bench_children_start(const struct bench *b, struct crew *c, struct bench_child *child);
/* Kills and reaps the remaining children. */
void bench_children_end(struct bench_child *child, size_t n);
/* Runs one child of --per-process, after the options are parsed. */
int bench_child(struct bench *b);

#endif
