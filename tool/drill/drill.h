/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of `hawser drill`. drill_load.c keeps writes in flight and records the confirmed bytes of each 10
 * ms window. drill_fault.c disables and restores a NIC. drill_judge.c determines the cost of each fault.
 */
#ifndef HW_TOOL_DRILL_H
#define HW_TOOL_DRILL_H

#include "tool/load/measure.h"

#define DRILL_WINDOW (10 * HW_MS)
#define DRILL_BEFORE 50  /* number of windows before a fault from which the other NICs' rate is computed */
#define DRILL_AFTER  150 /* number of windows after a fault in which operations may have been delayed by the fault */
#define DRILL_BACK   100 /* number of windows within which goodput must recover */
#define DRILL_FAULTS 1000

/* A fault: a NIC was unavailable for some time. */
struct drill_fault {
    char nic[HAWSER_NIC_NAME]; /* NIC of this node or, with --marks, also of the peer */
    char text[64];             /* kind of fault, such as "down" */
    uint64_t at, until;        /* start and end, as hw_now(); until is 0 while the NIC is not restored */
    /* set by drill_judge() */
    bool judged;       /* true if the load ran long enough before and after the start of the fault */
    double back_ms;    /* ms until goodput recovered; NAN if not within DRILL_BACK windows */
    double longest_ms; /* ms of the longest operation that completed within DRILL_AFTER windows after the fault */
    uint64_t again;    /* bytes sent again over other channels in the DRILL_AFTER windows after the fault */
};

/* One window of the load, 10 ms long. */
struct drill_window {
    uint64_t bytes;   /* bytes of the operations that completed in this window */
    uint64_t longest; /* duration of the longest of these operations, in ns */
    /* bytes that the peer has confirmed so far on each NIC's connections, sampled near the start of the window */
    uint64_t nic[TP_MAX_NICS];
    uint64_t again; /* bytes sent again so far over all NICs, sampled at the same time */
};

struct drill_load {
    struct session *s;
    const struct measure *m; /* memory and region that the writes use */
    uint64_t size;
    uint32_t depth;
    uint64_t start; /* start of the first window, as hw_now() */
    struct drill_window *win;
    size_t n_win, cap_win;
    char nic[TP_MAX_NICS][HAWSER_NIC_NAME];
    uint32_t up[TP_MAX_NICS], channels[TP_MAX_NICS];
    size_t n_nics;
    uint64_t *began; /* hw_now() when each write in flight was posted */
    uint64_t ops;
    struct hw_hist *hist; /* durations of writes in ns */
    bool watch;           /* true if faults are detected from the library's connection states */
    struct drill_fault *fault;
    size_t n_faults;
    /* Called between two windows with the time from hw_now(). Returns 1 to end the load, 0 to continue, or a
     * negative errno. */
    int (*tick)(void *arg, uint64_t now);
    void *arg;
};

/* Runs the load until tick() ends it or a signal arrives, then waits for the writes in flight. m is open and its
 * memory is filled. Returns 0 or -errno, for example if an operation failed. */
int drill_load_run(struct drill_load *l);
void drill_load_free(struct drill_load *l);
/* Records a fault. Returns NULL if DRILL_FAULTS faults are recorded already. */
struct drill_fault *drill_add_fault(struct drill_load *l, const char *nic, const char *text, uint64_t at);
/* Reads a file with lines SECONDS NIC TEXT (CLOCK_MONOTONIC). A line describes a fault or, if the text ends in "up",
 * the end of the NIC's last unfinished fault. Other lines are ignored. Returns a negative errno if the file cannot be
 * opened. */
int drill_read_faults(struct drill_load *l, const char *path);

/* Determines the cost of each fault. */
void drill_judge(struct drill_load *l);

/* ---- faults; a child process restores the NIC even if this process is killed ------------------------------------- */

enum drill_how { DRILL_HOLE, DRILL_DOWN };

struct drill_child {
    pid_t pid;
    int to, from; /* pipes to and from the child */
};

/* Starts the child. Must be called before this process has threads. Returns 0 or a negative errno. */
int drill_child_start(struct drill_child *c);
/* Disables the NIC, or restores the disabled NIC if away is false. *at receives the time of the change, as hw_now().
 * Returns 0 or a negative errno. */
int drill_child_do(struct drill_child *c, const char *nic, enum drill_how how, bool away, uint64_t *at);
/* Restores the NIC and ends the child. The struct may be zeroed. */
void drill_child_end(struct drill_child *c);

#endif
