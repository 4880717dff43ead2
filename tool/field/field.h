/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser fieldtest`: tests two nodes in several parts. A part may fail or be skipped without stopping the other parts.
 * Child processes take the measurements: hawser's other commands, iperf3, and a Python program for NIXL. They print
 * JSON on standard output. The results are collected in one JSON tree (field "doc" of struct field), from which both
 * output files are written.
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
    const char *out, *ssh, *python;
    bool drill, names;
    bool brief; /* true if there is too little time for all steps */
    /* time limit of the whole test, and duration of one measurement (0: chosen from the time left) */
    uint64_t total_ms, each_ms;
    const char *target; /* HOST[:PORT] as given on the command line */
    char host[256];
    uint16_t port;
    uint64_t start, end;                   /* start and deadline of the whole test, as hw_now() */
    unsigned weight_left;                  /* sum of the weights of the steps that have not begun, see field_steps.c */
    char nic[FIELD_NICS][HAWSER_NIC_NAME]; /* NICs of this node that carry data to the peer */
    size_t n_nics;
    double all_GBps; /* goodput of all NICs from the first measurement; 0 until then */
    bool gone;       /* the peer no longer answers */
    json_t *doc;
    struct field_state {
        unsigned done, wrong, failed, skipped; /* done: steps that ran; the others: calls of field_wrong() etc. */
        char why[HW_ERR_TEXT];                 /* reason of the first step that was not successful */
        double seconds;
    } part[FIELD_PARTS];
};

/* ---- field_child.c: child processes ------------------------------------------------------------- */

/* A command line. The caller owns the words, which must outlive the structure. field_start() fails with -E2BIG for
 * more than FIELD_ARGS words. */
struct field_args {
    const char *word[FIELD_ARGS + 1];
    size_t n;
};
void field_arg(struct field_args *a, const char *word);

struct field_child {
    pid_t pid;
    int out, err;
    char *text; /* standard output of the child */
    size_t n_text;
    char said[1024]; /* end of the child's standard error */
    size_t n_said;
};

/* The output of a child, as an array of JSON values, and its exit status. */
struct field_result {
    json_t *rows;          /* array; the caller releases it */
    int status;            /* exit status; 128 + signal number if killed; 127 if the program could not be started */
    bool late;             /* the deadline passed, so the child was interrupted with SIGINT, and killed if necessary */
    char why[HW_ERR_TEXT]; /* last line of the child's standard error, empty if there was none */
};

/* Starts a command in its own process group. The command receives SIGTERM when this process ends. The word "hawser" as
 * word[0] stands for this program. The variables NCCL_* and HAWSER_MESH_KEY are not passed on. Returns 0 or a negative
 * errno. */
int field_start(struct field_child *c, const struct field_args *a);
/* Waits at most ms for the child to exit. Then interrupts the child and reads its remaining output. A signal to this
 * process also ends the child. */
void field_finish(struct field_child *c, uint64_t ms, struct field_result *r);
/* Runs a command with field_start() and field_finish(). Returns 0, or a negative errno if the command could not be
 * started. */
int field_run(const struct field_args *a, uint64_t ms, struct field_result *r);

/* ---- field_steps.c, field_look.c, field_rivals.c: parts of the test -------------------------------- */

/* Runs all parts in order. Returns a negative errno only if there is nothing to report, for example because the peer
 * cannot be reached or the key is wrong. */
int field_measure(struct field *f);
/* Collects the inventories of both nodes, and the NICs that carry data to the peer. Returns a negative errno if no
 * session with the peer can be opened. */
int field_inventory(struct field *f);
void field_doctor(struct field *f);
/* Measures iperf3, NCCL and NIXL over UCX, if they are installed and time permits. */
void field_rivals(struct field *f);

/* Begins a step with this weight. `what` is the beginning of the progress line. Returns the milliseconds after which
 * the step must end. If share is not NULL, *share receives the step's share of the remaining time, which may be less.
 * Returns 0 if less than a second is left, the run was interrupted, or the peer no longer answers; the step is then
 * recorded as skipped. */
uint64_t field_begin(struct field *f, enum field_part part, unsigned weight, const char *what, uint64_t *share);
/* Record the outcome of a step in its part. field_wrong() is for a step that ran and found a problem. */
void field_wrong(struct field *f, enum field_part part, const char *fmt, ...) HW_PRINTF(3, 4);
void field_failed(struct field *f, enum field_part part, const char *fmt, ...) HW_PRINTF(3, 4);
void field_skipped(struct field *f, enum field_part part, const char *fmt, ...) HW_PRINTF(3, 4);

/* Begins the command line "hawser CMD HOST" and adds the common options of this run, except --verbose. */
void field_command(const struct field *f, struct field_args *a, const char *cmd);
/* Records that a step's child process failed, and why, and checks whether the peer still accepts connections. If this
 * process was interrupted, only records the step as skipped. */
void field_child_failed(struct field *f, enum field_part part, const char *what, const struct field_result *r);
/* Returns a new object with the given keys of row. A key that row lacks is null. */
json_t *field_pick(const json_t *row, const char *const *keys);

/* ---- field_judge.c, field_write.c, field_page.c: findings and output files ------------------------ */

/* Stores the names of the NICs that carried far less than the others in operations of this kind ("write", "read"), each
 * measured alone. The caller measures these NICs again before reporting them. The names belong to doc. Returns the
 * number of NICs. */
size_t field_suspects(const struct field *f, const char *op, const char *nic[FIELD_NICS]);
/* Adds NICs that are much slower than the others to the findings. */
void field_judge(struct field *f);
const char *field_part_name(enum field_part p);
/* Replaces the host names of both nodes, IP and MAC addresses, and the path of the home folder in all strings of doc.
 * Keeps names that reveal nothing, such as localhost, loopback addresses and /root. Returns 0 or -ENOMEM. */
int field_mask(struct field *f);
/* Write doc to a file, as JSON or as an HTML page. Return 0 or a negative errno. */
int field_write_json(const struct field *f, const char *path);
int field_write_page(const struct field *f, const char *path);

#endif
