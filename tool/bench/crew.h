/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crew of bench --gpus or --bidir: one supervisor, and a worker (a thread or a process) for each pair of GPUs and
 * each direction.
 *
 * Each worker reports its progress to the supervisor over its own socket. Before each size, each batch of measured
 * operations and each turn of plain sockets, a worker waits until no other worker is behind it, and until all workers
 * at the same point wait too. The batches therefore begin at the same time, and none begins while another worker still
 * fills memory. The supervisor reports a worker that fails or stalls, and then ignores that worker.
 *
 * A worker's message is a header {type, length} of two uint32_t, followed by length bytes. Both ends are the same
 * program, so structures are sent as they are. The supervisor answers only CREW_READY, with one byte.
 */
#ifndef HW_TOOL_CREW_H
#define HW_TOOL_CREW_H

#include "tool/report/hist.h"
#include "tool/report/output.h"

/* The supervisor abandons a worker after CREW_STALL_MS without progress if operations are in flight, and otherwise
 * after CREW_OTHER_MS without progress, except while the worker waits at a gate. CREW_STALL_MS must exceed the default
 * of the knob peer_timeout_ms, and CREW_OTHER_MS must exceed SESSION_CALL_MS. */
#define CREW_STILL_MS 3000 /* ms without progress, with data in flight, until a warning */
#define CREW_STALL_MS 12000
#define CREW_OTHER_MS 90000
#define CREW_MESSAGE  (64u << 20)
#define CREW_TAIL     2048 /* bytes kept of a child's output */
#define CREW_PATIENCE 8000 /* ms for the workers to exit once none is working */

enum crew_type { CREW_READY = 1, CREW_BEAT, CREW_RESULT, CREW_ERROR, CREW_INTERVAL };

struct crew_ready {
    /* turn is 0 during set-up. From 1 up, hawser and plain sockets take the measured turns alternately. */
    uint32_t size, turn;
};
struct crew_beat {
    /* flying: 1 if operations are in flight, else 0; moved: payload bytes that were confirmed or received so far; ops:
     * measured operations completed */
    uint64_t flying, moved, ops;
};

struct crew_interval {
    struct measure_mark from, to;
};

/* The result of one worker for one size. The message consists of the row, the histogram, the number of spans, the
 * spans (pairs of hw_now()), and the JSON line up to the end. */
struct crew_result {
    struct row row; /* the pointers in this copy are invalid */
    struct hw_hist hist;
    size_t n_spans;
    uint64_t (*span)[2];
    char *json; /* the result as a JSON line, with a newline */
};

struct crew_member {
    char name[40]; /* for example "GPU 0 -> 5" */
    int fd, err;   /* socket for the worker's messages, pipe from a child's standard output and error; -1 if not open */
    bool gone;     /* there is no worker yet, or the worker has closed its socket */
    bool failed, named, still;
    char why[HW_ERR_TEXT]; /* reason if failed is true */
    struct crew_ready at;  /* last gate that the worker reached; after a result, the start of the next size */
    bool ready;
    struct crew_beat beat;
    uint64_t heard; /* hw_now() of the last sign of progress */
    uint8_t *in;
    size_t in_len, in_cap;
    char tail[CREW_TAIL];
    size_t tail_len;
    struct crew_result **result; /* one entry for each size, NULL if there is no result yet */
};

struct crew {
    struct crew_member *m;
    size_t n, n_sizes;
    bool verbose; /* print the children's output at once */
    /* Called after a signal. The worker must report its results within SESSION_FINISH_MS. NULL if the workers detect
     * the signal themselves. */
    void (*interrupt)(void *arg, size_t i);
    /* Tells worker i to end. The supervisor then ignores its messages. */
    void (*give_up)(void *arg, size_t i);
    /* Called when worker i has closed its socket. If why is empty, no reason for a failure is known, and the hook
     * may set one. */
    void (*ended)(void *arg, size_t i, char *why, size_t cap);
    void *arg;
    /* Called when all remaining workers have finished this size, or after a signal when some have. */
    void (*sized)(void *table, size_t size);
    /* Called for each interval report of a worker (--interval). */
    void (*interval)(void *table, const char *name, const struct crew_interval *v);
    void *table;
};

/* Allocates n members, which have no workers yet. Returns 0 or -ENOMEM. */
int crew_open(struct crew *c, size_t n, size_t n_sizes);
void crew_close(struct crew *c);
/* Handles the messages of all workers until all have ended, or until CREW_PATIENCE ms after the last worker stopped
 * working. Prints failures on standard error as they occur, except after a signal. Returns the number of failed
 * workers, -EINTR if tool_stop was set, or -ENOMEM. */
int crew_run(struct crew *c);

/* Functions for workers. Return 0, or -EPIPE if the supervisor has ended. */
int crew_say(int fd, enum crew_type type, const void *data, size_t len);
int crew_say_result(int fd, const struct row *row, const struct measure *m, const char *json, size_t len);
/* Sends CREW_READY and waits until the supervisor releases the worker. Returns -EINTR if the session must stop, or
 * -EPIPE if the supervisor has ended. */
int crew_gate(int fd, const struct session *s, struct crew_ready at);

#endif
