/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints bench's table, 80 columns wide. Each measurement is a row of rates. A second table with the durations of
 * operations and their CPU cost follows. A row of a ping-pong has the durations and the echoes per second instead, and
 * no second table follows.
 */
#ifndef HW_TOOL_TABLE_H
#define HW_TOOL_TABLE_H

#include "tool/report/output.h"

struct table_times;

struct table {
    FILE *out;
    bool ping, raw,
        who; /* ping: the operation is pingpong; raw: plain sockets are compared; who: rows begin with a name */
    struct table_times *times;
    size_t n_times;
};

/* Prints the heading. The caller keeps ownership of out. */
void table_begin(struct table *t, FILE *out, bool ping, bool raw, bool who);
/* Prints a row. who is a name such as "GPU 0 -> 1", and is ignored if the table has no such column. */
void table_row(struct table *t, const char *who, const struct row *r);
/* Prints the durations and CPU costs, and frees the table's memory. t may be zeroed. */
void table_end(struct table *t);

/* Prints one line of bench --interval: the traffic between two marks of the measured run. who is as in table_row(),
 * or "" for none. */
void table_interval(FILE *out, const char *who, const struct measure_mark *from, const struct measure_mark *to);

#endif
