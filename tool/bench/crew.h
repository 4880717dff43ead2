/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crew of a benchmark with several GPUs: a worker for each pair, a thread or a process, which says over a socket of
 * its own what it does, and one supervisor that hears them all. Before each size, and before each clock, a worker waits
 * until all others have come as far; so the clocks run together, and nobody fills memory while another is measured. Who
 * fails or stands still is named and waited for no more.
 *
 * A message is {type, length} as two uint32_t and so many bytes; both ends are the same program.
 */
#ifndef HW_TOOL_CREW_H
#define HW_TOOL_CREW_H

#include "tool/report/hist.h"
#include "tool/report/output.h"

#define CREW_STILL_MS 3000 /* in flight with no byte moved: said */
#define CREW_STALL_MS                                                                                                \
    12000                   /* and given up: later than the library's peer_timeout_ms, which knows the reason better \
                             */
#define CREW_OTHER_MS 90000 /* setting up, filling, checking: more than a request may take (SESSION_CALL_MS) */
#define CREW_MESSAGE  (64u << 20)
#define CREW_TAIL     2048 /* of a child's standard error */
#define CREW_PATIENCE 8000 /* ms for those given up to end */

enum crew_type { CREW_READY = 1, CREW_BEAT, CREW_RESULT, CREW_ERROR, CREW_INTERVAL };

struct crew_ready {
    uint32_t size, turn; /* turn: 0, setting up; from 1 on hawser's and plain sockets' in turns, under the clock */
};
struct crew_beat {
    uint64_t flying, moved, ops; /* moved: bytes so far, in and out, of which small operations have none; that ended */
};

struct crew_interval {
    struct measure_mark from, to;
};

/* Of one worker and size; on the wire the row, the histogram, n_spans pairs of hw_now(), and json up to the end. */
struct crew_result {
    struct row row; /* pointers in it mean nothing */
    struct hw_hist hist;
    size_t n_spans;
    uint64_t (*span)[2];
    char *json; /* its line, with a newline */
};

struct crew_member {
    char name[40]; /* "GPU 0 -> 5" */
    int fd, err;   /* of the worker's messages, of its standard error; -1: none */
    bool gone;     /* its socket is closed */
    bool failed, named, still;
    char why[HW_ERR_TEXT]; /* failed: its reason */
    struct crew_ready at;  /* where it is, or waits */
    bool ready;
    struct crew_beat beat;
    uint64_t heard; /* hw_now() of its last sign of life */
    uint8_t *in;
    size_t in_len, in_cap;
    char tail[CREW_TAIL];
    size_t tail_len;
    struct crew_result **result; /* one a size; NULL: none */
};

struct crew {
    struct crew_member *m;
    size_t n, n_sizes;
    bool verbose; /* standard error of workers is passed on */
    /* A signal came: the worker is to say what it has, within SESSION_FINISH_MS. NULL: it has seen the signal itself.
     */
    void (*interrupt)(void *arg, size_t i);
    /* The worker is to end: it is not heard any more. */
    void (*give_up)(void *arg, size_t i);
    /* Its socket is closed. Where why is "", no reason for a failure is known: may be set to one. */
    void (*ended)(void *arg, size_t i, char *why, size_t cap);
    void *arg;
    /* All that still work have been through this size; after a signal, some have. */
    void (*sized)(void *table, size_t size);
    /* What a worker's --interval tells. */
    void (*interval)(void *table, const char *name, const struct crew_interval *v);
    void *table;
};

/* n members with no worker yet. -ENOMEM. */
int crew_open(struct crew *c, size_t n, size_t n_sizes);
void crew_close(struct crew *c);
/* Hears all workers until they are gone, or given up and out of patience. Failures are said on standard error as they
 * come. Returns how many failed, or -EINTR once tool_stop is set. */
int crew_run(struct crew *c);

/* The workers' end. 0, or -EPIPE where nobody hears it any more. */
int crew_say(int fd, enum crew_type type, const void *data, size_t len);
int crew_say_result(int fd, const struct row *row, const struct measure *m, const char *json, size_t len);
/* Says READY and waits to be let go. -EINTR once the session is to stop, -EPIPE. */
int crew_gate(int fd, const struct session *s, struct crew_ready at);

#endif
