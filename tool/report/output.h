/* SPDX-License-Identifier: Apache-2.0 */
/* What bench says besides its table (table.h): bytes per NIC, a progress line, JSON lines. */
#ifndef HW_TOOL_OUTPUT_H
#define HW_TOOL_OUTPUT_H

#include "tool/load/measure.h"
#include "tool/report/verdict.h"

#include <stdio.h>

#define OUTPUT_ROUNDS 99

/* Whose memory a row is of: the host's, one GPU's, all GPUs' together; the host's in both directions together. */
enum row_of { ROW_HOST, ROW_GPU, ROW_GPUS, ROW_BOTH };

/* One finished measurement. NAN: not measured (null in JSON, "-" in the table). */
struct row {
    const char *op;
    enum row_of of;
    int gpu, peer_gpu;     /* ROW_GPU */
    uint32_t gpus, failed; /* ROW_GPUS, ROW_BOTH: workers that measured, and those that should have been */
    uint64_t size, iters;
    uint32_t channels, depth;
    uint32_t blocks; /* pieces of an operation; 0: it is one */
    char nics[256];
    double GBps, mean_us, p50_us, p99_us, p999_us;
    double cpu_s_per_GB, peer_cpu_s_per_GB;
    double raw_GBps, ratio_raw, raw_cpu_s_per_GB, raw_peer_cpu_s_per_GB, raw_spin_us, raw_block_us;
    double round_GBps[OUTPUT_ROUNDS], round_raw[OUTPUT_ROUNDS]; /* of each round; raw: 0 where there was none */
    uint32_t rounds;
    uint32_t raw_streams;
    char raw_congestion[16]; /* "": not known */
    uint64_t window;         /* bytes */
    uint64_t lost_channels;
    bool devmem;                /* the transport is devmem */
    struct verdict here, there; /* of GPUs: how what they received came; nothing: none */
    struct measure_sum sum;
    char peer_nic[TP_MAX_NICS][HAWSER_NIC_NAME]; /* beside sum.own */
    uint64_t lost[TP_MAX_NICS];                  /* beside sum.own */
    uint32_t nic_channels[TP_MAX_NICS];
    char early[160];         /* why it ended before its time; "": it did not */
    const struct measure *m; /* histogram, timeline and faults */
};

const char *output_op_name(enum tp_op op);
/* Our bytes and the kernel's for each NIC of both sides, with the difference. */
void output_nics(FILE *out, const struct row *r);
/* How what a row's GPUs received came to them: a line for each side that received. */
void output_verdict(FILE *out, const char *who, const struct row *r);
/* What a NIC that came into GPU memory counted itself; "" where it does not. */
void output_own_count(FILE *out, const struct tp_nic *n);
/* Do hawser's count of bytes that came into device memory and the NIC's own count of packets contradict each other?
 * why: a text, "" where they do not. devmem: the run's transport is devmem. */
bool output_devmem_differs(const struct tp_nic *n, bool devmem, char *why, size_t cap);
/* Parts of such a line: a NIC's counters, with its own count (null where it has none); and an array of each channel's
 * own counters since it was made. */
void output_json_counts(struct hw_json *j, const struct tp_nic *n);
void output_json_channels(struct hw_json *j, hawser_peer *peer);
/* One line of the JSON file, schema hawser-bench-1. -EIO. */
int output_json(FILE *out, const struct row *r);
/* A line that overwrites itself on stderr, if that is a terminal; NULL clears it. */
void output_progress(const char *fmt, ...) HW_PRINTF(1, 2);

#endif
