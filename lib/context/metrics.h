/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of a context: a local socket (base/rundir.h) on loop 0 that sends each client one text in Prometheus's
 * format and then closes the connection. The context reads nothing from the socket. Without a reader there is no work
 * to do, and a reader costs one pass over counters that are maintained anyway. A context that cannot create a socket
 * works without metrics.
 *
 * The number of series is bounded. Peers beyond HW_METRICS_PEERS peers or HW_METRICS_ROWS pairs of NICs are summed up
 * as peer "other", with one row for each local NIC, HW_METRICS_NICS at most. A listed peer stays listed, and an
 * unlisted peer stays in "other", so that no counter decreases.
 */
#ifndef HW_METRICS_H
#define HW_METRICS_H

#include "core/driver.h"
#include "message/peer.h"

#include <sys/types.h>

#define HW_METRICS_PEERS    64  /* maximum number of peers that are listed by name */
#define HW_METRICS_ROWS     256 /* maximum number of pairs of NICs of the listed peers */
#define HW_METRICS_NICS     16  /* maximum number of local NICs for the other peers; the last row counts further NICs */
#define HW_METRICS_READ_MS  1000 /* time limit of a reader, after which its connection is closed */
#define HW_METRICS_APART_MS 10   /* minimum time between two readers */

struct hawser;
struct hawser_peer;

/* Totals of rails. */
struct hw_rail_totals {
    uint64_t sent, received, resent, failovers, retransmits;
    uint64_t device_in, device_out, copied, staged_in, staged_out, referenced;
};

struct hw_op_totals {
    uint64_t started;
    struct hw_op_counts of[HW_OP_BYE]; /* counts for each kind of operation */
};

struct hw_metrics {
    /* protected by the role of driver 0 */
    int fd; /* -1 if there is no socket */
    struct hw_source source;
    struct hw_task task;
    struct hw_timer timer;
    uint64_t next; /* time before which no reader is accepted, in ns */
    struct {
        int fd; /* -1 if no reader is connected */
        struct hw_source source;
        char *text;
        size_t len, at;
    } reader;
    pid_t owner; /* process that created the socket; a child of fork() must not remove it */
    char dir[256], name[32];
    uint64_t ino;

    uint64_t opened; /* seconds since 1970 */
    /* protected by the context's lock */
    bool listed[HW_METRICS_PEERS];
    unsigned rows;
    uint64_t lost;              /* number of peers that were lost */
    uint64_t registered[2];     /* bytes of registered host memory, and of GPU memory */
    struct hw_rail_totals gone; /* totals of closed peers */
    struct hw_op_totals gone_ops;
    unsigned n_others;
    struct hw_metrics_other {
        char nic[HAWSER_NIC_NAME];
        struct hw_rail_totals gone;
    } other[HW_METRICS_NICS];
};

/* Creates the socket if knob metrics allows it and a folder is usable. */
void hw_metrics_start(struct hawser *h);
/* Removes the socket. Called with the role of driver 0. */
void hw_metrics_stop(struct hawser *h);
/* Adds the totals of a peer that is being closed to the context's totals, and releases the peer's number. Called with
 * the context's lock held; may be called again for the same peer. */
void hw_metrics_fold(struct hawser_peer *p);

/* Returns the metrics text, which the caller frees, or NULL if out of memory. Runs on loop 0. (metrics_text.c) */
char *hw_metrics_text(struct hawser *h, size_t *len);

/* Returns the totals of one of the peer's rails. Called with the context's lock held. */
struct hw_rail_totals hw_metrics_rail(const struct hawser_peer *p, unsigned rail);
struct hw_op_totals hw_metrics_ops(struct hawser_peer *p);
/* Returns the row that counts the other peers' traffic over this NIC. Creates the row if necessary. Returns the last
 * row if all rows belong to other NICs. */
struct hw_metrics_other *hw_metrics_other(struct hw_metrics *m, const char *nic);
/* Computes a += b - c; c may be NULL. */
void hw_metrics_add_rail(struct hw_rail_totals *a, const struct hw_rail_totals *b, const struct hw_rail_totals *c);
void hw_metrics_add_ops(struct hw_op_totals *a, const struct hw_op_totals *b, const struct hw_op_totals *c);

#endif
