/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the report's numbers and names as text. */
#ifndef HW_TOOL_REPORT_TEXT_H
#define HW_TOOL_REPORT_TEXT_H

#include "tool/report/report_data.h"

/* Format a value: a size as "64 MiB", microseconds as "12.3 ms", bytes as "1.25 GB", and a number as "5.21". */
void rep_text_size(double bytes, char *buf, size_t cap);
void rep_text_us(double us, char *buf, size_t cap);
void rep_text_bytes(double bytes, char *buf, size_t cap);
void rep_text_num(double v, char *buf, size_t cap);
/* Formats a count with separators, as in "12,345,678". */
void rep_text_count(double v, char *buf, size_t cap);

/* Writes the name of the row's series, such as "write" or "write, 2 NICs": the operation, and those of NICs, memory,
 * blocks, channels, depth and window in which the rows differ. */
void rep_series_name(const struct rep *r, const struct rep_row *row, char *buf, size_t cap);

#endif
