/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crew of a benchmark with several GPUs: a worker for each pair of GPUs, a thread or a process, and one supervisor.
 * Each worker reports its progress to the supervisor over a socket of its own. Before each size, and before each clock,
 * a worker waits until all others have reached the same point: so the clocks run together, and no worker fills memory
 * while another one measures. The supervisor names a worker that fails or stalls and does not wait for it any more.
 *
 * A message is {type, length} as two uint32_t, then length bytes; both ends are the same program.
 */
#ifndef HW_TOOL_CREW_H
#define HW_TOOL_CREW_H

#include "tool/report/hist.h"
#include "tool/report/output.h"

#define CREW_STILL_MS 3000  /* data in flight without progress: reported */
#define CREW_STALL_MS 12000 /* given up: later than the library's peer_timeout_ms, as that gives a better reason */
#define CREW_OTHER_MS 90000 /* set-up, filling, checking: more than a request may take (SESSION_CALL_MS) */
#define CREW_MESSAGE  (64u << 20)
#define CREW_TAIL     2048 /* of a child's standard error */
#define CREW_PATIENCE 8000 /* ms for workers that were given up to end */

enum crew_type { CREW_READY = 1, CREW_BEAT, CREW_RESULT, CREW_ERROR, CREW_INTERVAL };

struct crew_ready {
    uint32_t size, turn; /* turn: 0: set-up; from 1 on hawser's and plain sockets' turns alternately, under the clock */
};
struct crew_beat {
    /* operations in flight; bytes so far in both directions, without small operations; operations ended */
    uint64_t flying, moved, ops;
};

struct crew_interval {
    struct measure_mark from, to;
};

/* The result of one worker and size; on the wire the row, the histogram, n_spans pairs of hw_now(), and json to the
 * end. */
struct crew_result {
    struct row row; /* its pointers are invalid */
    struct hw_hist hist;
    size_t n_spans;
    uint64_t (*span)[2];
    char *json; /* its JSON line, with a newline */
};

struct crew_member {
    char name[40]; /* "GPU 0 -> 5" */
    int fd, err;   /* for the worker's messages, for its standard error; -1: none */
    bool gone;     /* its socket is closed */
    bool failed, named, still;
    char why[HW_ERR_TEXT]; /* failed: its reason */
    struct crew_ready at;  /* its position, at which it runs or waits */
    bool ready;
    struct crew_beat beat;
    uint64_t heard; /* hw_now() of its last message */
    uint8_t *in;
    size_t in_len, in_cap;
    char tail[CREW_TAIL];
    size_t tail_len;
    struct crew_result **result; /* one for each size; NULL: none */
};

struct crew {
    struct crew_member *m;
    size_t n, n_sizes;
    bool verbose; /* pass on the standard error of workers */
    /* After a signal: the worker must report its results within SESSION_FINISH_MS. NULL: it has seen the
     * signal itself. */
    void (*interrupt)(void *arg, size_t i);
    /* Tells the worker to end; nothing more is read from it. */
    void (*give_up)(void *arg, size_t i);
    /* Its socket is closed. If why is "", no reason for a failure is known: the hook may set one. */
    void (*ended)(void *arg, size_t i, char *why, size_t cap);
    void *arg;
    /* All remaining workers have finished this size; after a signal only some. */
    void (*sized)(void *table, size_t size);
    /* An interval report of a worker (--interval). */
    void (*interval)(void *table, const char *name, const struct crew_interval *v);
    void *table;
};

/* Makes n members without workers. -ENOMEM. */
int crew_open(struct crew *c, size_t n, size_t n_sizes);
void crew_close(struct crew *c);
/* Serves all workers until they are gone, or given up and timed out. Reports failures on standard error at once.
 * Returns how many failed, or -EINTR once tool_stop is set. */
int crew_run(struct crew *c);

/* The workers' side. 0, or -EPIPE if the supervisor is gone. */
int crew_say(int fd, enum crew_type type, const void *data, size_t len);
int crew_say_result(int fd, const struct row *row, const struct measure *m, const char *json, size_t len);
/* Sends READY and waits to be released. -EINTR once the session must stop, -EPIPE. */
int crew_gate(int fd, const struct session *s, struct crew_ready at);

#endif
