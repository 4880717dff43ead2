/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a context tells about itself: a local socket (base/rundir.h) on loop 0, on which whoever connects gets one text
 * in Prometheus's format and the end of the stream. The socket reads nothing. Without a reader nothing runs; a reader
 * costs one look at counters that are kept anyway. A context that cannot have a socket does without.
 *
 * Series are bounded: peers beyond HW_METRICS_PEERS, or HW_METRICS_ROWS pairs of NICs, are summed up as peer "other", a
 * row for each local NIC. A peer that is listed stays listed and one that is not stays among the others, so that no
 * counter goes back.
 */
#ifndef HW_METRICS_H
#define HW_METRICS_H

#include "core/driver.h"
#include "message/peer.h"

#include <sys/types.h>

#define HW_METRICS_PEERS    64   /* listed by name */
#define HW_METRICS_ROWS     256  /* pairs of NICs of those */
#define HW_METRICS_NICS     16   /* local NICs of the others; any more are counted in the last one's row */
#define HW_METRICS_READ_MS  1000 /* a reader that takes longer is dropped */
#define HW_METRICS_APART_MS 10   /* minimal time between two readers */

struct hawser;
struct hawser_peer;

/* What rails have carried. */
struct hw_rail_totals {
    uint64_t sent, received, resent, failovers, retransmits;
    uint64_t device_in, device_out, copied, staged_in, staged_out, referenced;
};

struct hw_op_totals {
    uint64_t started;
    struct hw_op_counts of[HW_OP_BYE]; /* by kind */
};

struct hw_metrics {
    /* the role of driver 0 */
    int fd; /* -1: no socket */
    struct hw_source source;
    struct hw_task task;
    struct hw_timer timer;
    uint64_t next; /* no reader is accepted before, ns */
    struct {
        int fd; /* -1: nobody reads */
        struct hw_source source;
        char *text;
        size_t len, at;
    } reader;
    pid_t owner; /* a child of fork() removes nothing */
    char dir[256], name[32];
    uint64_t ino;

    uint64_t opened; /* seconds since 1970 */
    /* under the context's lock */
    bool listed[HW_METRICS_PEERS];
    unsigned rows;
    uint64_t lost;              /* peers */
    uint64_t registered[2];     /* by enum hawser_mem_kind */
    struct hw_rail_totals gone; /* of peers that were closed */
    struct hw_op_totals gone_ops;
    unsigned n_others;
    struct hw_metrics_other {
        char nic[HAWSER_NIC_NAME];
        struct hw_rail_totals gone;
    } other[HW_METRICS_NICS];
};

/* Starts answering, if knob metrics permits and there is a directory. */
void hw_metrics_start(struct hawser *h);
/* Removes the socket. With the role of driver 0. */
void hw_metrics_stop(struct hawser *h);
/* Keeps the totals of a peer that is being closed. Under the context's lock; may be called again for the same peer.
 * closed: it is in no list any more, and its slot is free. */
void hw_metrics_fold(struct hawser_peer *p);

/* Returns the text, which the caller frees; NULL: no memory. On loop 0. (metrics_text.c) */
char *hw_metrics_text(struct hawser *h, size_t *len);

/* The totals of the peer's rail with this index. Under the context's lock. */
struct hw_rail_totals hw_metrics_rail(const struct hawser_peer *p, unsigned rail);
struct hw_op_totals hw_metrics_ops(struct hawser_peer *p);
/* The row of the other peers for that NIC. */
struct hw_metrics_other *hw_metrics_other(struct hw_metrics *m, const char *nic);
/* a += b - c */
void hw_metrics_add_rail(struct hw_rail_totals *a, const struct hw_rail_totals *b, const struct hw_rail_totals *c);
void hw_metrics_add_ops(struct hw_op_totals *a, const struct hw_op_totals *b, const struct hw_op_totals *c);

#endif
