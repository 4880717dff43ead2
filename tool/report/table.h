/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench's table, 80 columns wide: rates, a row as each measurement ends; and after the last one, what each operation
 * took and what that cost the CPUs. Of a ping-pong the times are the result, and stand in the rows themselves.
 */
#ifndef HW_TOOL_TABLE_H
#define HW_TOOL_TABLE_H

#include "tool/report/output.h"

struct table_times;

struct table {
    FILE *out;
    bool ping, raw, who; /* the operation is pingpong; there are plain sockets; rows begin with who moved the bytes */
    struct table_times *times;
    size_t n_times;
};

/* Prints the heading. out stays the caller's. */
void table_begin(struct table *t, FILE *out, bool ping, bool raw, bool who);
/* Prints a row. who: "GPU 0 -> 1"; not read where the table has no such column. */
void table_row(struct table *t, const char *who, const struct row *r);
/* Prints the second part. Frees what the table holds; all zero is allowed. */
void table_end(struct table *t);

/* One line of bench --interval: what was moved between two moments under the clock. who: as of table_row(), or "". */
void table_interval(FILE *out, const char *who, const struct measure_mark *from, const struct measure_mark *to);

#endif
