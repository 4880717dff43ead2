/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench's table, 80 columns wide: rates, a row after each measurement; and after the last one, the time of each
 * operation and its CPU cost. The results of a ping-pong are the times, so these are in the rows themselves.
 */
#ifndef HW_TOOL_TABLE_H
#define HW_TOOL_TABLE_H

#include "tool/report/output.h"

struct table_times;

struct table {
    FILE *out;
    bool ping, raw, who; /* the operation is pingpong; there are plain sockets; rows begin with the GPUs */
    struct table_times *times;
    size_t n_times;
};

/* Prints the heading. The caller keeps ownership of out. */
void table_begin(struct table *t, FILE *out, bool ping, bool raw, bool who);
/* Prints a row. who: "GPU 0 -> 1"; not read if the table has no such column. */
void table_row(struct table *t, const char *who, const struct row *r);
/* Prints the second part and frees the table's memory. t may be all zero. */
void table_end(struct table *t);

/* Prints one line of bench --interval: the traffic between two marks of the timed run. who: as in table_row(), or ""
 * for none. */
void table_interval(FILE *out, const char *who, const struct measure_mark *from, const struct measure_mark *to);

#endif
