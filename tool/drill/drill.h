/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of `hawser drill`. The load (drill_load.c) keeps writes in flight and records, window by window,
 * the confirmed bytes; the fault (drill_fault.c) takes a NIC down and restores it; the judge (drill_judge.c) determines
 * the cost of each fault.
 */
#ifndef HW_TOOL_DRILL_H
#define HW_TOOL_DRILL_H

#include "tool/load/measure.h"

#define DRILL_WINDOW (10 * HW_MS)
#define DRILL_BEFORE 50  /* windows before a fault that give each NIC's rate */
#define DRILL_AFTER  150 /* windows after it in which operations may have been delayed by it */
#define DRILL_BACK   100 /* windows within which goodput must be back */
#define DRILL_FAULTS 1000

/* A NIC that was gone for a time. */
struct drill_fault {
    char nic[HAWSER_NIC_NAME]; /* of this node; "": unknown */
    char text[64];             /* what happened to it */
    uint64_t at, until;        /* hw_now(); until 0: it is not back yet */
    /* the judge's */
    bool judged;       /* the load continued for long enough before and after */
    double back_ms;    /* until goodput was back; NAN: not within DRILL_BACK windows */
    double longest_ms; /* the longest operation that ended in that time */
    uint64_t again;    /* retransmitted bytes */
};

/* 10 ms of the load. */
struct drill_window {
    uint64_t bytes;            /* of operations that ended */
    uint64_t longest;          /* ns, of these */
    uint64_t nic[TP_MAX_NICS]; /* bytes that each NIC's connections had confirmed at its end, since they were made */
    uint64_t again;            /* bytes retransmitted on all NICs */
};

struct drill_load {
    struct session *s;
    const struct measure *m; /* its memory and region */
    uint64_t size;
    uint32_t depth;
    uint64_t start; /* of the first window, hw_now() */
    struct drill_window *win;
    size_t n_win, cap_win;
    char nic[TP_MAX_NICS][HAWSER_NIC_NAME];
    uint32_t up[TP_MAX_NICS], channels[TP_MAX_NICS];
    size_t n_nics;
    uint64_t *began; /* when each write in flight was posted */
    uint64_t ops;
    struct hw_hist *hist; /* ns */
    bool watch;           /* faults are taken from the library's connection states */
    struct drill_fault *fault;
    size_t n_faults;
    /* Called between two windows, at hw_now() `now`: returns 1 to end the load, 0, or -errno. */
    int (*tick)(void *arg, uint64_t now);
    void *arg;
};

/* Runs until tick() ends it, or a signal, and waits for writes in flight. m is open, its memory filled. -errno: an
 * operation failed. */
int drill_load_run(struct drill_load *l);
void drill_load_free(struct drill_load *l);
/* Records a fault. NULL: there are DRILL_FAULTS already. */
struct drill_fault *drill_add_fault(struct drill_load *l, const char *nic, const char *text, uint64_t at);
/* Reads lines SECONDS NIC TEXT (CLOCK_MONOTONIC): each is a fault or, if the text ends in "up", the end of that NIC's
 * last one. -errno if the file cannot be opened. */
int drill_read_faults(struct drill_load *l, const char *path);

/* Determines the cost of each fault. */
void drill_judge(struct drill_load *l);

/* ---- faults: made by a child of this process, which restores the NIC even if this process is killed -------------- */

enum drill_how { DRILL_HOLE, DRILL_DOWN };

struct drill_child {
    pid_t pid;
    int to, from; /* pipes */
};

/* Starts the child, before there are threads. -errno. */
int drill_child_start(struct drill_child *c);
/* Takes the NIC down, or restores it. *at: when that was done. -errno. */
int drill_child_do(struct drill_child *c, const char *nic, enum drill_how how, bool away, uint64_t *at);
/* Restores the NIC, and ends the child. A zeroed struct is allowed. */
void drill_child_end(struct drill_child *c);

#endif
