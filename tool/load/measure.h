/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measurement of one transfer size: batches of operations, with `depth` operations in flight. The clock runs only
 * during batches. With plan.verify, every batch has new data, which is checked while the clock is stopped.
 */
#ifndef HW_TOOL_MEASURE_H
#define HW_TOOL_MEASURE_H

#include "tool/load/buffer.h"
#include "tool/peer/session.h"
#include "tool/report/hist.h"

#define MEASURE_FRESH (64ull << 20) /* intended memory of the slots, larger than a cache */
/* maximum memory of the slots, unless one operation, --depth or a pingpong needs more */
#define MEASURE_MEMORY (256ull << 20)
#define MEASURE_OP_MS  60000 /* ms; an operation's deadline is this plus the time of all data in flight at 1 MB/s */
#define MEASURE_SAMPLE 100   /* minimum ms of clocked time between two points of the timeline */
#define MEASURE_POINTS 20000 /* maximum points of a timeline */
#define MEASURE_FAULTS 256

struct measure_plan {
    enum tp_op op;
    uint64_t size;
    int gpu;           /* GPU of this node, or BUFFER_HOST */
    uint16_t peer_gpu; /* GPU of the serving node, or TP_HOST */
    uint32_t depth;    /* operations in flight */
    bool depth_given;
    uint32_t blocks; /* number of pieces of an operation, size / blocks bytes each; 0 or 1 means one piece */
    bool verify, hot;
    bool devmem; /* read the NICs' rx_devmem_pkts counters */
    uint64_t seed;
};

struct timeline_point {
    double t_s, GBps;
    uint32_t nic; /* index into names */
};

struct fault {
    double t_s;
    char text[96];
};

/* Sums over any number of timed runs. */
struct measure_sum {
    uint64_t iters, bytes;
    double seconds;
    uint64_t cpu_us, peer_cpu_us;
    uint64_t verified, bad;
    struct tp_nic own[TP_MAX_NICS], peer[TP_MAX_NICS];
    size_t n_own, n_peer;
};

struct measure {
    struct session *s;
    struct measure_plan plan;
    struct buffer buf;           /* data to send, or memory to read into */
    struct buffer back;          /* memory for the echoes of a pingpong */
    struct hawser_region region; /* the server's region, for writes and reads */
    uint32_t depth, slots;
    uint64_t next; /* next iteration */
    bool broken;   /* the server might not answer requests any more */
    uint64_t lost_before;
    bool record; /* record latencies and the timeline; false during warm-up */

    struct hw_hist *hist; /* latencies in nanoseconds, of all recorded runs */
    double clocked;       /* seconds of clocked time, of all recorded runs */

    struct hawser_vec *vec; /* plan.blocks entries, or NULL for one piece */

    double interval_s; /* period of the interval hook in seconds; 0 means no hook */
    struct measure_mark {
        double t_s, bytes;
        uint64_t ops;
    } mark;       /* start of the current interval */
    uint64_t ops; /* operations that ended in recorded runs */

    struct timeline_point *points;
    size_t n_points;
    char names[TP_MAX_NICS][HAWSER_NIC_NAME];
    uint32_t up[TP_MAX_NICS], channels[TP_MAX_NICS];
    uint64_t sampled[TP_MAX_NICS]; /* bytes at the last sample */
    size_t n_names;
    double sampled_at; /* clocked seconds at the last sample */

    struct fault faults[MEASURE_FAULTS];
    size_t n_faults;
    struct span {
        uint64_t start, end; /* hw_now() */
        double clocked;      /* clocked seconds at start */
    } * spans;               /* periods in which the clock ran; map machine time to measurement time */
    size_t n_spans;

    /* Hooks, each of which may be NULL. interval() is called about every interval_s seconds of clocked time while
     * `record` is set. progress() is called after each batch. gate() is called before each batch, and returns 0
     * when the batch may start, or -errno. beat() is called with flying set about every MEASURE_SAMPLE ms while
     * operations are in flight, and with flying clear after the batch. */
    void (*interval)(void *arg, const struct measure_mark *from, const struct measure_mark *to);
    void (*progress)(void *arg, uint64_t done, uint64_t of, double seconds, uint64_t bytes);
    int (*gate)(void *arg);
    void (*beat)(void *arg, bool flying);
    void *progress_arg;
};

/* Allocates memory on both sides. Fails with -ENOMEM if either side lacks memory, or with another -errno. */
int measure_open(struct measure *m, struct session *s, const struct measure_plan *plan);
void measure_close(struct measure *m);

/* Runs iters operations or, if duration_ms is set, runs operations until the clocked time reaches duration_ms. Adds the
 * results to *sum, which also counts wrong bytes: wrong bytes do not make the call fail. Fails if an operation fails,
 * or with -EINTR after a signal; *sum then still includes the operations that ended. */
int measure_run(struct measure *m, uint64_t iters, uint64_t duration_ms, struct measure_sum *sum);

/* Returns how often channels were lost since measure_open(). */
uint64_t measure_lost(struct measure *m);

/* Adds the faults from a file of lines "SECONDS-OF-CLOCK_MONOTONIC TEXT" that occurred during this measurement. Returns
 * -errno if the file cannot be opened. */
int measure_read_faults(struct measure *m, const char *path);

#endif
