/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a report. A missing or null number is NAN, and a missing text is NULL. */
#ifndef HW_TOOL_REPORT_DATA_H
#define HW_TOOL_REPORT_DATA_H

#include "base/base.h"
#include <stdio.h>

#define REP_MAX_ROWS   10000
#define REP_MAX_NICS   64
#define REP_MAX_FAULTS 1000
#define REP_MAX_POINTS 1000000   /* maximum points of one histogram or timeline */
#define REP_MAX_LINE   67108864u /* maximum bytes of one line */

enum rep_num {
    REP_SIZE,
    REP_ITERS,
    REP_DEPTH,
    REP_CHANNELS,
    REP_WINDOW,
    REP_SECONDS,
    REP_GBPS,
    REP_P50,
    REP_P99,
    REP_P999,
    REP_CPU,
    REP_PEER_CPU,
    REP_VERIFIED,
    REP_BAD,
    REP_RAW_GBPS,
    REP_RATIO,
    REP_RAW_SPIN,
    REP_RAW_CPU,
    REP_RAW_PEER_CPU,
    REP_LOST,
    REP_RECOVERED,
    REP_MEAN,
    REP_OPS,
    REP_BLOCKS,
    REP_GBITS, /* 8 times REP_GBPS if the line has no Gbps */
    REP_NUMS
};

struct rep_nic {
    char *nic, *peer_nic;
    double bytes, kernel_bytes, gbps, channels, lost;
};

struct rep_bin {
    double us, count;
};

struct rep_sample {
    double t, gbps;
    uint32_t nic; /* index into name[] of the row */
};

struct rep_fault {
    double t;
    char *text;
};

struct rep_row {
    size_t line;           /* line number in the file, from 1 */
    char *op, *mem, *nics; /* mem: with bench --gpus the GPUs, as in "GPU 0 -> 5" or "all GPUs" */
    bool sum;              /* the row is the sum of other rows */
    double num[REP_NUMS];
    struct rep_nic *nic;
    struct rep_bin *bin;       /* sorted by us */
    struct rep_sample *sample; /* sorted by t */
    struct rep_fault *fault;   /* sorted by t */
    size_t n_nic, n_bin, n_sample, n_fault;
    char *name[REP_MAX_NICS]; /* names of the timeline's NICs, in order of appearance */
    size_t n_name;
};

struct rep {
    struct rep_row *row;
    size_t n_row;
    char *title, *node, *peer, *date;
};

/* Reads JSON lines from in. path is for error messages. Leaves r empty on failure. See report_html() for the errors. */
int rep_read(FILE *in, const char *path, struct rep *r);
void rep_free(struct rep *r);

#endif
