/* SPDX-License-Identifier: Apache-2.0 */
/* Draw the report's plots, each with its heading and legend. A plot without data is omitted. */
#ifndef HW_TOOL_REPORT_PLOT_H
#define HW_TOOL_REPORT_PLOT_H

#include "tool/report/report_data.h"

int rep_plot_throughput(FILE *f, const struct rep *r);
int rep_plot_latency(FILE *f, const struct rep *r);
int rep_plot_timeline(FILE *f, const struct rep *r); /* up to six plots, at most two of them without faults */

#endif
