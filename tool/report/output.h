/* SPDX-License-Identifier: Apache-2.0 */
/* Output of bench besides its table (table.h): bytes per NIC, a progress line, JSON lines. */
#ifndef HW_TOOL_OUTPUT_H
#define HW_TOOL_OUTPUT_H

#include "tool/load/measure.h"
#include "tool/report/verdict.h"

#include <stdio.h>

#define OUTPUT_ROUNDS 99

/* Memory of a row: the host's, one GPU's, all GPUs' together; the host's in both directions together. */
enum row_of { ROW_HOST, ROW_GPU, ROW_GPUS, ROW_BOTH };

/* One finished measurement. NAN: not measured (null in JSON, "-" in the table). */
struct row {
    const char *op;
    enum row_of of;
    int gpu, peer_gpu;     /* ROW_GPU */
    uint32_t gpus, failed; /* ROW_GPUS, ROW_BOTH: workers that measured, and workers that failed */
    uint64_t size, iters;
    uint32_t channels, depth;
    uint32_t blocks; /* pieces of an operation; 0: one */
    char nics[256];
    double GBps, mean_us, p50_us, p99_us, p999_us;
    double cpu_s_per_GB, peer_cpu_s_per_GB;
    double raw_GBps, ratio_raw, raw_cpu_s_per_GB, raw_peer_cpu_s_per_GB, raw_spin_us, raw_block_us;
    double round_GBps[OUTPUT_ROUNDS], round_raw[OUTPUT_ROUNDS]; /* of each round; raw: 0 without one */
    uint32_t rounds;
    uint32_t raw_streams;
    char raw_congestion[16]; /* "": not known */
    uint64_t window;         /* bytes */
    uint64_t lost_channels;
    bool devmem;                /* the transport is devmem */
    struct verdict here, there; /* of GPUs: how their received data arrived; empty: none */
    struct measure_sum sum;
    char peer_nic[TP_MAX_NICS][HAWSER_NIC_NAME]; /* beside sum.own */
    uint64_t lost[TP_MAX_NICS];                  /* beside sum.own */
    uint32_t nic_channels[TP_MAX_NICS];
    char early[160];         /* why it ended early; "": it did not */
    const struct measure *m; /* histogram, timeline and faults */
};

const char *output_op_name(enum tp_op op);
/* Prints our bytes and the kernel's for each NIC of both sides, with the difference. */
void output_nics(FILE *out, const struct row *r);
/* Prints how the received data of a row's GPUs arrived: a line for each receiving side. */
void output_verdict(FILE *out, const char *who, const struct row *r);
/* Prints the NIC's own count of data placed in GPU memory; "" if it has none. */
void output_own_count(FILE *out, const struct tp_nic *n);
/* Returns true if hawser's count of bytes placed in device memory and the NIC's own packet count contradict each other.
 * why: the explanation, "" if not. devmem: the run's transport is devmem. */
bool output_devmem_differs(const struct tp_nic *n, bool devmem, char *why, size_t cap);
/* Parts of a JSON line: a NIC's counters, with its own count (null without one); and an array of each channel's
 * counters since it was made. */
void output_json_counts(struct hw_json *j, const struct tp_nic *n);
void output_json_channels(struct hw_json *j, hawser_peer *peer);
/* Writes one line of the JSON file, schema hawser-bench-1. -EIO. */
int output_json(FILE *out, const struct row *r);
/* Prints a progress line that overwrites itself on stderr, if that is a terminal; NULL clears it. */
void output_progress(const char *fmt, ...) HW_PRINTF(1, 2);

#endif
