/* SPDX-License-Identifier: Apache-2.0 */
/* Output of bench other than its table (table.h): bytes per NIC, a progress line, and JSON lines. */
#ifndef HW_TOOL_OUTPUT_H
#define HW_TOOL_OUTPUT_H

#include "tool/load/measure.h"
#include "tool/report/verdict.h"

#include <stdio.h>

#define OUTPUT_ROUNDS 99

/* Memory of a row: host memory, one GPU's memory, the memory of all GPUs, or host memory in both directions. */
enum row_of { ROW_HOST, ROW_GPU, ROW_GPUS, ROW_BOTH };

/* One finished measurement. NAN means not measured: null in JSON, "-" in the table. */
struct row {
    const char *op;
    enum row_of of;
    int gpu, peer_gpu;     /* for ROW_GPU */
    uint32_t gpus, failed; /* for ROW_GPUS and ROW_BOTH: workers that measured; workers that failed */
    uint64_t size, iters;
    uint32_t channels, depth;
    uint32_t blocks; /* blocks of one operation; 0 means one contiguous block */
    char nics[256];
    double GBps, mean_us, p50_us, p99_us, p999_us;
    double cpu_s_per_GB, peer_cpu_s_per_GB;
    double raw_GBps, ratio_raw, raw_cpu_s_per_GB, raw_peer_cpu_s_per_GB, raw_spin_us, raw_block_us;
    double round_GBps[OUTPUT_ROUNDS],
        round_raw[OUTPUT_ROUNDS]; /* rates of each round; raw is 0 if plain sockets were not measured */
    uint32_t rounds;
    uint32_t raw_streams;
    char raw_congestion[16]; /* empty if unknown */
    uint64_t window;         /* maximum bytes in flight per connection */
    uint64_t lost_channels;
    bool devmem;                /* the transport is devmem */
    struct verdict here, there; /* for GPUs: how the received data arrived; zero if there is none */
    struct measure_sum sum;
    char peer_nic[TP_MAX_NICS][HAWSER_NIC_NAME]; /* parallel to sum.own */
    uint64_t lost[TP_MAX_NICS];                  /* parallel to sum.own */
    uint32_t nic_channels[TP_MAX_NICS];
    char early[160];         /* why the measurement ended early, empty if it did not */
    const struct measure *m; /* histogram, timeline and faults */
};

const char *output_op_name(enum tp_op op);
/* Prints, for each NIC of both nodes, the bytes that hawser and the kernel counted, the relative difference if hawser
 * counted more than 1 MB, and the bytes in device memory. */
void output_nics(FILE *out, const struct row *r);
/* Prints how the received data of a row's GPUs arrived, with one line for each receiving node. */
void output_verdict(FILE *out, const char *who, const struct row *r);
/* Prints the NIC's own count of packets placed in device memory, if the NIC has one. */
void output_own_count(FILE *out, const struct tp_nic *n);
/* Returns true if the NIC's own packet count contradicts hawser's count of bytes placed in device memory. If devmem is
 * set, also returns true if at least 1 MiB arrived, but none of it in device memory. Returns false if the NIC has no
 * packet count. why receives the explanation, or an empty string. devmem says whether the run's transport is devmem. */
bool output_devmem_differs(const struct tp_nic *n, bool devmem, char *why, size_t cap);
/* Write parts of a JSON line: a NIC's counters, with its own packet count (null if it has none); and an array of the
 * counters of up to 64 channels since they were opened. */
void output_json_counts(struct hw_json *j, const struct tp_nic *n);
void output_json_channels(struct hw_json *j, hawser_peer *peer);
/* Writes one line of the JSON file, schema hawser-bench-1. Returns 0 or -EIO. */
int output_json(FILE *out, const struct row *r);
/* Prints a progress line that overwrites itself on stderr if stderr is a terminal. NULL clears the line. */
void output_progress(const char *fmt, ...) HW_PRINTF(1, 2);

#endif
