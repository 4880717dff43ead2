/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes one self-contained HTML file from the JSON lines of `hawser bench --json`. The file needs no script, font or
 * image, follows the reader's light or dark mode, and can be printed.
 *
 * Each line is one object with one measurement. op and size are required, and so is peer_gpu if gpu is a number. Also
 * required are t_s in elements of timeline and faults, and GBps in elements of timeline. Every other key may be missing
 * or null, and unknown keys are ignored:
 *
 *   op mem gpu peer_gpu sum size blocks iters depth channels window_bytes seconds GBps Gbps ops_per_s
 *   mean_us p50_us p99_us p999_us cpu_s_per_GB peer_cpu_s_per_GB
 *   verified_bytes bad_bytes raw_GBps ratio_raw raw_cpu_s_per_GB raw_peer_cpu_s_per_GB
 *   lost_channels recovered_channels
 *   nics      "a,b" or ["a", "b"]
 *   per_nic   [{"nic", "peer_nic", "bytes", "kernel_bytes", "GBps", "channels", "lost"}, ...]; without bytes, the
 *             larger of tx_bytes and rx_bytes is used, and likewise for kernel_bytes
 *   hist_us   [[us, count], ...]          latency histogram
 *   timeline  [{"t_s", "nic", "GBps"}, ...]
 *   faults    [{"t_s", "text"}, ...]
 *   title, node, peer, date: text for the head of the page (the first line with the key wins)
 */
#ifndef HW_TOOL_REPORT_H
#define HW_TOOL_REPORT_H

#include "tool/page/page.h"

/* Contents of a page other than the measurements. All pointers may be NULL, and so may the frame. */
struct report_frame {
    const struct run *run;
    const struct page_figure *figures; /* key figures that precede those of the measurements */
    size_t n_figures;
    const char *title;         /* title of the page if no line has one */
    const char *said;          /* output of the command on the terminal */
    const char *const *proved; /* sentences at the top of the page, NULL-terminated */
};

/* Reads all of jsonl_path, then writes html_path. An invalid line fails the call before anything is written, and
 * hw_error() has the line's number. Returns -EINVAL for a line that is not a JSON object, lacks a required key, or has
 * a value of the wrong type or out of range; -ENODATA if the file has no measurement; -E2BIG if a report cannot show
 * that much; -ENOMEM; or the error of opening, reading or writing a file. */
int report_html(const char *jsonl_path, const char *html_path, const struct report_frame *frame);

#endif
