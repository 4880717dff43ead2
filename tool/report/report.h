/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the JSON lines of `hawser bench --json` to one HTML file that needs nothing else: no script, no font, no
 * image; light and dark as the reader's system has it, and fit to print.
 *
 * One object a line, one measurement each. op and size must be there; every other key may be missing or null, and
 * unknown ones are passed over:
 *   op mem size iters depth channels window_bytes seconds GBps p50_us p99_us p999_us cpu_s_per_GB peer_cpu_s_per_GB
 *   verified_bytes bad_bytes raw_GBps ratio_raw raw_cpu_s_per_GB raw_peer_cpu_s_per_GB
 *   lost_channels recovered_channels
 *   nics      "a,b" or ["a", "b"]
 *   per_nic   [{"nic", "peer_nic", "bytes", "kernel_bytes", "GBps", "channels", "lost"}, ...]
 *   hist_us   [[us, count], ...]          latency histogram
 *   timeline  [{"t_s", "nic", "GBps"}, ...]
 *   faults    [{"t_s", "text"}, ...]
 *   title, node, peer, date: text for the head of the page (the first line that has one wins)
 */
#ifndef HW_TOOL_REPORT_H
#define HW_TOOL_REPORT_H

#include "tool/page/page.h"

/* Contents of a page besides measurements; all may be NULL, and so may the frame. */
struct report_frame {
    const struct run *run;
    const struct page_figure *figures; /* at the top, before the measurements' figures */
    size_t n_figures;
    const char *title;         /* if the lines have none */
    const char *said;          /* the terminal's output */
    const char *const *proved; /* sentences at the top; NULL-terminated */
};

/* Reads all of jsonl_path, then writes html_path. A bad line stops it before anything is written, with the line's
 * number in hw_error(): -EINVAL: not JSON, not an object, a key of the wrong type or out of range; -ENODATA: no
 * measurement in the file; -E2BIG: more than a report can show; -ENOMEM, or errors of opening, reading or writing. */
int report_html(const char *jsonl_path, const char *html_path, const struct report_frame *frame);

#endif
