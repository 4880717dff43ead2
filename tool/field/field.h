/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser fieldtest`: a test of two nodes in parts, each of which may fail or be skipped without stopping the others.
 * What is measured is measured by this program's other commands, run as child processes with JSON on their standard
 * output; their rows are collected in one tree (struct field, doc), from which both files are written.
 */
#ifndef HW_TOOL_FIELD_H
#define HW_TOOL_FIELD_H

#include "tool/bugreport/mask.h"
#include "tool/opts.h"

#include <jansson.h>

#define FIELD_CMD    "fieldtest"
#define FIELD_SCHEMA "hawser-field-1"
#define FIELD_NICS   32
#define FIELD_ARGS   64

enum field_part { FIELD_INVENTORY, FIELD_DOCTOR, FIELD_VALIDATE, FIELD_BENCH, FIELD_RIVALS, FIELD_DRILL, FIELD_PARTS };

struct field {
    struct common common;
    const char *out, *ssh;
    bool drill, names;
    bool brief;                 /* there is little time */
    uint64_t total_ms, each_ms; /* each_ms 0: as it fits */
    const char *target;         /* HOST[:PORT] as it was given */
    char host[256];
    uint16_t port;
    uint64_t start, end;                   /* hw_now(): of the whole */
    unsigned weight_left;                  /* of the steps not begun, see field_steps.c */
    char nic[FIELD_NICS][HAWSER_NIC_NAME]; /* those that carry bytes to the peer */
    size_t n_nics;
    double all_GBps; /* by a first measurement; 0: not yet */
    bool gone;       /* the peer does not answer any more */
    json_t *doc;
    struct field_state {
        unsigned done, wrong, failed, skipped; /* steps */
        char why[HW_ERR_TEXT];                 /* of the first that was not well */
        double seconds;
    } part[FIELD_PARTS];
};

/* ---- field_child.c: child processes ------------------------------------------------------------- */

/* A command line. The caller owns the words, which must outlive it. With more than FIELD_ARGS words, field_start()
 * fails with -E2BIG. */
struct field_args {
    const char *word[FIELD_ARGS + 1];
    size_t n;
};
void field_arg(struct field_args *a, const char *word);

struct field_child {
    pid_t pid;
    int out, err;
    char *text; /* of its standard output */
    size_t n_text;
    char said[1024]; /* the end of its standard error */
    size_t n_said;
};

/* What a child has printed, as JSON values in an array, and how it ended. */
struct field_result {
    json_t *rows;          /* to be released */
    int status;            /* its exit status, 128 + signal; 127: it could not be run */
    bool late;             /* the deadline came first: it was asked to end, by force in the end */
    char why[HW_ERR_TEXT]; /* its last line of standard error; "": it printed none */
};

/* Starts it in a process group of its own, which ends with this process. word[0] "hawser": this program. The variables
 * that NCCL reads are not passed on. -errno. */
int field_start(struct field_child *c, const struct field_args *a);
/* Waits until it ends, at most ms, then for what it says of the end. A signal to this process ends it, too. */
void field_finish(struct field_child *c, uint64_t ms, struct field_result *r);
/* Both. -errno where it could not be started; else 0. */
int field_run(const struct field_args *a, uint64_t ms, struct field_result *r);

/* ---- field_steps.c, field_look.c, field_rivals.c: the parts ---------------------------------------- */

/* All parts, in order. -errno only where nothing at all is to be shown: no peer, a wrong key. */
int field_measure(struct field *f);
/* Asks both nodes what they are, and learns which NICs carry bytes. -errno where the peer cannot be asked. */
int field_inventory(struct field *f);
void field_doctor(struct field *f);
/* iperf3, NCCL and NIXL, each one step of weight 1 or 2, if its turn is within the time. */
void field_rivals(struct field *f);

/* Begins a step of so many weights, named what in the progress line. Returns the milliseconds after which it is to end;
 * *share (NULL is allowed) is its share of the time that is left, which may be less. 0: no time is left, or the run was
 * interrupted, and the step is noted as skipped. */
uint64_t field_begin(struct field *f, enum field_part part, unsigned weight, const char *what, uint64_t *share);
/* Note how a step ended, in its part. field_wrong(): it ran, and found something. */
void field_wrong(struct field *f, enum field_part part, const char *fmt, ...) HW_PRINTF(3, 4);
void field_failed(struct field *f, enum field_part part, const char *fmt, ...) HW_PRINTF(3, 4);
void field_skipped(struct field *f, enum field_part part, const char *fmt, ...) HW_PRINTF(3, 4);

/* Begins a command line: "hawser CMD HOST", and those of this command's options that are for every command. */
void field_command(const struct field *f, struct field_args *a, const char *cmd);
/* Notes that a step's child process measured nothing, and why. Finds out whether the peer is gone. */
void field_child_failed(struct field *f, enum field_part part, const char *what, const struct field_result *r);
/* Copies those keys of a row that are kept: a new object, null where the row has none. */
json_t *field_pick(const json_t *row, const char *const *keys);

/* ---- field_judge.c, field_write.c, field_page.c: what is made of it ------------------------------- */

/* NICs that carried far less than the others alone, in operations of that kind ("write", "read"): to be measured again
 * before they are named. Names are doc's. Returns how many. */
size_t field_suspects(const struct field *f, const char *op, const char *nic[FIELD_NICS]);
/* Adds those NICs to the findings. */
void field_judge(struct field *f);
const char *field_part_name(enum field_part p);
/* Replaces names and addresses in all of doc. -ENOMEM. */
int field_mask(struct field *f);
/* Writes doc. -errno. */
int field_write_json(const struct field *f, const char *path);
int field_write_page(const struct field *f, const char *path);

#endif
