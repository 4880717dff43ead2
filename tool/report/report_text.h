/* SPDX-License-Identifier: Apache-2.0 */
/* The report's numbers and names as text. */
#ifndef HW_TOOL_REPORT_TEXT_H
#define HW_TOOL_REPORT_TEXT_H

#include "tool/report/report_data.h"

/* Formats: "64 MiB", "12.3 ms" from microseconds, "1.25 GB" from bytes, "5.21" with three significant digits. */
void rep_text_size(double bytes, char *buf, size_t cap);
void rep_text_us(double us, char *buf, size_t cap);
void rep_text_bytes(double bytes, char *buf, size_t cap);
void rep_text_num(double v, char *buf, size_t cap);
/* "12,345,678" */
void rep_text_count(double v, char *buf, size_t cap);

/* Writes "write", or "write, 2 NICs" if the rows differ in it: what distinguishes this row's series from the others. */
void rep_series_name(const struct rep *r, const struct rep_row *row, char *buf, size_t cap);

#endif
