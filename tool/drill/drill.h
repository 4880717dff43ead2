/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of `hawser drill` share. The load (drill_load.c) keeps writes under way and notes, window by window,
 * what was confirmed; the fault (drill_fault.c) takes a NIC away and gives it back; the judge (drill_judge.c) says what
 * each fault has cost.
 */
#ifndef HW_TOOL_DRILL_H
#define HW_TOOL_DRILL_H

#include "tool/load/measure.h"

#define DRILL_WINDOW (10 * HW_MS)
#define DRILL_BEFORE 50  /* windows before a fault that say what each NIC carries */
#define DRILL_AFTER  150 /* windows after it in which operations that ended may have suffered from it */
#define DRILL_BACK   100 /* windows within which goodput has to be back */
#define DRILL_FAULTS 1000

/* A NIC that was gone for a while. */
struct drill_fault {
    char nic[HAWSER_NIC_NAME]; /* of this node; "": not known */
    char text[64];             /* what happened to it */
    uint64_t at, until;        /* hw_now(); until 0: it is not back */
    /* the judge's */
    bool judged;       /* the load went on for long enough before and after */
    double back_ms;    /* until goodput was back; NAN: not within DRILL_BACK windows */
    double longest_ms; /* the longest operation that ended then */
    uint64_t again;    /* bytes that were sent again */
};

/* 10 ms of the load. */
struct drill_window {
    uint64_t bytes;            /* of operations that ended */
    uint64_t longest;          /* ns, of these */
    uint64_t nic[TP_MAX_NICS]; /* bytes that each NIC's connections had confirmed by its end, since they were made */
    uint64_t again;            /* bytes that all had sent again */
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
    uint64_t *began; /* when each write under way was posted */
    uint64_t ops;
    struct hw_hist *hist; /* ns */
    bool watch;           /* faults are what the library says of its connections */
    struct drill_fault *fault;
    size_t n_faults;
    /* Called between two windows, at hw_now() `now`: returns 1 to end the load, 0, or -errno. */
    int (*tick)(void *arg, uint64_t now);
    void *arg;
};

/* Runs until tick() ends it, or a signal, and waits for what is under way. m is open, its memory filled. -errno: an
 * operation failed. */
int drill_load_run(struct drill_load *l);
void drill_load_free(struct drill_load *l);
/* Notes a fault. NULL: there are DRILL_FAULTS. */
struct drill_fault *drill_add_fault(struct drill_load *l, const char *nic, const char *text, uint64_t at);
/* Reads lines SECONDS NIC TEXT (of CLOCK_MONOTONIC): a fault each, or where the text ends in "up", the end of that
 * NIC's last one. -errno of opening it. */
int drill_read_faults(struct drill_load *l, const char *path);

/* What each fault has cost. */
void drill_judge(struct drill_load *l);

/* ---- faults: by a child of this process, which gives back what was taken even where this process is killed ---- */

enum drill_how { DRILL_HOLE, DRILL_DOWN };

struct drill_child {
    pid_t pid;
    int to, from; /* pipes */
};

/* Starts it, before there are threads. -errno. */
int drill_child_start(struct drill_child *c);
/* Takes the NIC away, or gives it back. *at: when that was done. -errno. */
int drill_child_do(struct drill_child *c, const char *nic, enum drill_how how, bool away, uint64_t *at);
/* Gives back what is away, and ends it. All zero is allowed. */
void drill_child_end(struct drill_child *c);

#endif
