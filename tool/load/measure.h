/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measurement of one size: batches of operations with `depth` in flight; the clock runs only during batches; every
 * batch has new bytes, which are checked between batches.
 */
#ifndef HW_TOOL_MEASURE_H
#define HW_TOOL_MEASURE_H

#include "tool/load/buffer.h"
#include "tool/peer/session.h"
#include "tool/report/hist.h"

#define MEASURE_FRESH  (64ull << 20)  /* least memory for the slots: more than a cache holds */
#define MEASURE_MEMORY (256ull << 20) /* most memory, unless the requested depth needs more */
#define MEASURE_OP_MS  60000          /* deadline of an operation, plus size at 1 MB/s */
#define MEASURE_SAMPLE 100            /* ms of clocked time between two points of the timeline */
#define MEASURE_POINTS 20000          /* most points of a timeline */
#define MEASURE_FAULTS 256

struct measure_plan {
    enum tp_op op;
    uint64_t size;
    int gpu;           /* of this node, or BUFFER_HOST */
    uint16_t peer_gpu; /* of the serving node, or TP_HOST */
    uint32_t depth;    /* operations in flight */
    bool depth_given;
    uint32_t blocks; /* an operation is a list of that many pieces, size / blocks bytes each; 0, 1: one piece */
    bool verify, hot;
    bool devmem; /* read the NICs' rx_devmem_pkts */
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
    struct buffer buf;           /* data to send, or read into */
    struct buffer back;          /* pingpong: data that comes back */
    struct hawser_region region; /* write and read: the server's region */
    uint32_t depth, slots;
    uint64_t next; /* iteration */
    bool broken;   /* the server may not listen to requests any more */
    uint64_t lost_before;
    bool record; /* record latencies and timeline; off during warm-up */

    struct hw_hist *hist; /* nanoseconds, all recorded runs */
    double clocked;       /* seconds, recorded runs */

    struct hawser_vec *vec; /* of plan.blocks entries */

    double interval_s; /* of the hook; 0: none */
    struct measure_mark {
        double t_s, bytes;
        uint64_t ops;
    } mark;       /* start of the current interval */
    uint64_t ops; /* operations that ended, recorded runs */

    struct timeline_point *points;
    size_t n_points;
    char names[TP_MAX_NICS][HAWSER_NIC_NAME];
    uint32_t up[TP_MAX_NICS], channels[TP_MAX_NICS];
    uint64_t sampled[TP_MAX_NICS]; /* bytes at the last point */
    size_t n_names;
    double sampled_at; /* clocked seconds */

    struct fault faults[MEASURE_FAULTS];
    size_t n_faults;
    struct span {
        uint64_t start, end; /* hw_now() */
        double clocked;      /* at start */
    } * spans;               /* when the clock ran: machine time to measurement time */
    size_t n_spans;

    /* Hooks, any of which may be NULL. interval: every interval_s seconds under the clock; gate: called before each
     * batch's clock starts, returns when it may start; beat: at least every MEASURE_SAMPLE ms while operations are in
     * flight (flying), and at their end (not flying). */
    void (*interval)(void *arg, const struct measure_mark *from, const struct measure_mark *to);
    void (*progress)(void *arg, uint64_t done, uint64_t of, double seconds, uint64_t bytes);
    int (*gate)(void *arg);
    void (*beat)(void *arg, bool flying);
    void *progress_arg;
};

/* Allocates memory on both sides. -ENOMEM (either side), or the error that the peer died of. */
int measure_open(struct measure *m, struct session *s, const struct measure_plan *plan);
void measure_close(struct measure *m);

/* Runs iters operations or, with duration_ms, as many as start within that clocked time; adds to *sum. Bad bytes are no
 * error here; a failed operation is, with its reason, and -EINTR after a signal; *sum then still has the operations
 * that ended. */
int measure_run(struct measure *m, uint64_t iters, uint64_t duration_ms, struct measure_sum *sum);

/* Returns the deaths of channels since measure_open(). */
uint64_t measure_lost(struct measure *m);

/* Adds the faults of a file, lines of "SECONDS-OF-CLOCK_MONOTONIC TEXT", that fall into this measurement. -errno if the
 * file cannot be opened. */
int measure_read_faults(struct measure *m, const char *path);

#endif
