/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/output.h"

#include "base/size.h"
#include "sys/json.h"
#include "tool/load/stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define PACKET_MAX 65536u /* largest packet; a NIC with rx-gro-hw merges packets before counting */
#define NOTICEABLE (1u << 20)

bool output_devmem_differs(const struct tp_nic *n, bool devmem, char *why, size_t cap)
{
    *why = 0;
    if (!n->has_devmem_pkts)
        return false;
    if (n->rx_device_bytes && n->devmem_pkts == 0)
        snprintf(why, cap,
                 "hawser counted %.6f GB as placed in device memory, but the counter rx_devmem_pkts of %s did not "
                 "change: the "
                 "data arrived on another NIC, or was not placed in device memory",
                 (double)n->rx_device_bytes / 1e9, n->nic);
    else if (n->rx_device_bytes / PACKET_MAX > n->devmem_pkts)
        snprintf(why, cap,
                 "hawser counted %.6f GB as placed in device memory, but the %llu packets that rx_devmem_pkts of %s "
                 "counted cannot carry so much: some data arrived on another NIC",
                 (double)n->rx_device_bytes / 1e9, (unsigned long long)n->devmem_pkts, n->nic);
    else if (devmem && n->rx_bytes >= NOTICEABLE && n->rx_device_bytes == 0)
        snprintf(why, cap,
                 "%.6f GB arrived on %s, but none of it in device memory, and the NIC's counter rx_devmem_pkts %s (rx "
                 "no cmsg)",
                 (double)n->rx_bytes / 1e9, n->nic,
                 n->devmem_pkts ? "rose only because of packets for other programs" : "did not change");
    return *why != 0;
}

#define HIST_POINTS 200

const char *output_op_name(enum tp_op op)
{
    static const char *const name[TP_OPS] = {[TP_WRITE] = "write",
                                             [TP_READ] = "read",
                                             [TP_SEND] = "send",
                                             [TP_PINGPONG] = "pingpong",
                                             [TP_VALIDATE] = "validate"};
    return op > 0 && op < TP_OPS ? name[op] : "?";
}

void output_own_count(FILE *out, const struct tp_nic *n)
{
    if (n->has_devmem_pkts)
        fprintf(out,
                "%11s the NIC's own count, rx_devmem_pkts: %" PRIu64 " packets into device memory\n%13s(%" PRIu64
                " before, %" PRIu64 " after)\n",
                "", n->devmem_pkts, "", n->devmem_before, n->devmem_after);
}

void output_verdict(FILE *out, const char *who, const struct row *r)
{
    verdict_print(out, who, "here", &r->here);
    verdict_print(out, who, "there", &r->there);
}

/* Prints hawser's counts of bytes sent from, placed in, and copied by a CPU to device memory, and the NIC's count of
 * packets. Warns if output_devmem_differs() returns true. */
static void devmem_lines(FILE *out, const struct tp_nic *n, bool devmem)
{
    char why[256];
    fprintf(out, "%11s devmem: %.6f GB from device memory, %.6f GB into it,\n%13s%.6f GB copied by a CPU\n", "",
            (double)n->tx_device_bytes / 1e9, (double)n->rx_device_bytes / 1e9, "", (double)n->rx_copied_bytes / 1e9);
    output_own_count(out, n);
    if (output_devmem_differs(n, devmem, why, sizeof why))
        fprintf(out, "%11s WARNING: %s\n", "", why);
}

/* Prints a line for each direction with payload, and at least one line. Also prints devmem_lines() if the transport is
 * devmem or device memory was used. */
static void nic_lines(FILE *out, const char *side, const struct tp_nic *n, bool devmem)
{
    const uint64_t ours[2] = {n->tx_bytes, n->rx_bytes}, kernel[2] = {n->kernel_tx_bytes, n->kernel_rx_bytes};
    for (int d = 0; d < 2; d++) {
        if (!ours[d] && (ours[!d] || d))
            continue;
        fprintf(out, "%6s %-15s %s %13.6f GB  kernel %13.6f GB", side, n->nic, d ? "in " : "out", (double)ours[d] / 1e9,
                (double)kernel[d] / 1e9);
        const double ratio = (double)kernel[d] / (double)HW_MAX(ours[d], 1);
        if (ours[d] > 1000000 && ratio >= 10) /* other programs use this NIC too */
            fprintf(out, " (%.0f times)", ratio);
        else if (ours[d] > 1000000) /* with less payload, acknowledgements and headers dominate */
            fprintf(out, " (%+.2f %%)", 100 * (ratio - 1));
        fputc('\n', out);
    }
    if (devmem || n->rx_device_bytes || n->rx_copied_bytes || n->tx_device_bytes)
        devmem_lines(out, n, devmem);
}

void output_nics(FILE *out, const struct row *r)
{
    fprintf(out,
            "\nBytes per NIC: payload as counted by hawser, and frames with their headers as\ncounted by the kernel\n");
    for (size_t i = 0; i < r->sum.n_own; i++)
        nic_lines(out, "here", &r->sum.own[i], r->devmem);
    for (size_t i = 0; i < r->sum.n_peer; i++)
        nic_lines(out, "there", &r->sum.peer[i], r->devmem);
}

void output_json_counts(struct hw_json *j, const struct tp_nic *n)
{
    hw_json_u64(j, "tx_bytes", n->tx_bytes);
    hw_json_u64(j, "rx_bytes", n->rx_bytes);
    hw_json_u64(j, "kernel_tx_bytes", n->kernel_tx_bytes);
    hw_json_u64(j, "kernel_rx_bytes", n->kernel_rx_bytes);
    hw_json_u64(j, "tx_device_bytes", n->tx_device_bytes);
    hw_json_u64(j, "rx_device_bytes", n->rx_device_bytes);
    hw_json_u64(j, "rx_copied_bytes", n->rx_copied_bytes);
    static const char *const name[] = {"rx_devmem_pkts", "rx_devmem_pkts_before", "rx_devmem_pkts_after"};
    const uint64_t v[] = {n->devmem_pkts, n->devmem_before, n->devmem_after};
    for (size_t i = 0; i < HW_ARRAY_LEN(name); i++)
        if (n->has_devmem_pkts)
            hw_json_u64(j, name[i], v[i]);
        else
            hw_json_null(j, name[i]);
}

/* Writes the counters of up to 64 channels since they were opened. */
void output_json_channels(struct hw_json *j, hawser_peer *peer)
{
    struct hawser_channel_stats ch[64];
    size_t n = HW_ARRAY_LEN(ch);
    if (hawser_channel_stats(peer, ch, &n) < 0)
        n = 0;
    hw_json_array(j, "per_channel");
    for (size_t i = 0; i < HW_MIN(n, HW_ARRAY_LEN(ch)); i++) {
        const struct hawser_channel_stats *c = &ch[i];
        hw_json_object(j, NULL);
        hw_json_u64(j, "channel", c->index);
        hw_json_str(j, "nic", c->nic);
        hw_json_str(j, "peer_nic", c->peer_nic);
        hw_json_str(j, "local", c->local);
        hw_json_str(j, "remote", c->remote);
        hw_json_bool(j, "up", c->up);
        hw_json_u64(j, "lost", c->lost);
        hw_json_bool(j, "suspect", c->suspect);
        hw_json_u64(j, "retaken_bytes", c->retaken_bytes);
        hw_json_u64(j, "tx_bytes", c->tx_bytes);
        hw_json_u64(j, "rx_bytes", c->rx_bytes);
        hw_json_u64(j, "tx_chunks", c->tx_chunks);
        hw_json_u64(j, "rx_chunks", c->rx_chunks);
        hw_json_u64(j, "tx_device_bytes", c->tx_device_bytes);
        hw_json_u64(j, "rx_device_bytes", c->rx_device_bytes);
        hw_json_u64(j, "rx_copied_bytes", c->rx_copied_bytes);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void write_row_nics(struct hw_json *j, const struct row *r)
{
    hw_json_array(j, "per_nic");
    for (size_t i = 0; i < r->sum.n_own; i++) {
        const struct tp_nic *n = &r->sum.own[i];
        hw_json_object(j, NULL);
        hw_json_str(j, "nic", n->nic);
        hw_json_str(j, "peer_nic", r->peer_nic[i][0] ? r->peer_nic[i] : NULL);
        output_json_counts(j, n);
        hw_json_u64(j, "lost", r->lost[i]);
        hw_json_u64(j, "channels", r->nic_channels[i]);
        hw_json_u64(j, "bytes", n->tx_bytes + n->rx_bytes);
        hw_json_u64(j, "kernel_bytes", n->kernel_tx_bytes + n->kernel_rx_bytes);
        hw_json_double(j, "GBps",
                       r->sum.seconds > 0 ? (double)(n->tx_bytes + n->rx_bytes) / 1e9 / r->sum.seconds : NAN);
        hw_json_end(j);
    }
    hw_json_end(j);
}

/* Writes up to 32 paths between the two nodes, used or not, with their states and reasons. */
static void json_paths(struct hw_json *j, hawser_peer *peer)
{
    static const char *const state[] = {[HAWSER_PATH_USED] = "used",
                                        [HAWSER_PATH_AWAITED] = "awaited",
                                        [HAWSER_PATH_UNUSED] = "unused",
                                        [HAWSER_PATH_SPARE] = "spare"};
    struct hawser_path path[2 * TP_MAX_NICS];
    size_t n = HW_ARRAY_LEN(path);
    if (hawser_paths(peer, path, &n) < 0)
        n = 0;
    hw_json_array(j, "paths");
    for (size_t i = 0; i < HW_MIN(n, HW_ARRAY_LEN(path)); i++) {
        const struct hawser_path *p = &path[i];
        hw_json_object(j, NULL);
        hw_json_str(j, "nic", *p->nic ? p->nic : NULL);
        hw_json_str(j, "peer_nic", *p->peer_nic ? p->peer_nic : NULL);
        hw_json_str(j, "local", *p->local ? p->local : NULL);
        hw_json_str(j, "remote", *p->remote ? p->remote : NULL);
        hw_json_str(j, "state", state[p->state]);
        hw_json_str(j, "why", *p->why ? p->why : NULL);
        hw_json_end(j);
    }
    hw_json_end(j);
}

/* Writes the histogram as pairs [us, count], reduced to at most HIST_POINTS points by rank. */
static void json_hist(struct hw_json *j, const struct hw_hist *h)
{
    hw_json_array(j, "hist_us");
    /* Quantiles do not depend on the layout of the buckets. Each 1/200 of the ranks is one point, and points with
     * equal values are merged. */
    uint64_t done = 0;
    for (int i = 1; i <= HIST_POINTS && h->n;) {
        uint64_t v = hw_hist_quantile(h, (double)i / HIST_POINTS);
        do {
            i++;
        } while (i <= HIST_POINTS && hw_hist_quantile(h, (double)i / HIST_POINTS) == v);
        uint64_t upto = i > HIST_POINTS ? h->n : (uint64_t)ceil((double)(i - 1) / HIST_POINTS * (double)h->n);
        if (upto == done)
            continue;
        hw_json_array(j, NULL);
        hw_json_double(j, NULL, (double)v / 1e3);
        hw_json_u64(j, NULL, upto - done);
        hw_json_end(j);
        done = upto;
    }
    hw_json_end(j);
}

int output_json(FILE *out, const struct row *r)
{
    struct hw_json j;
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", "hawser-bench-1");
    hw_json_str(&j, "op", r->op);
    hw_json_str(&j, "mem", r->of == ROW_HOST || r->of == ROW_BOTH ? "host" : "cuda");
    hw_json_u64(&j, "size", r->size);
    hw_json_u64(&j, "iters", r->iters);
    hw_json_u64(&j, "channels", r->channels);
    hw_json_str(&j, "nics", r->nics);
    if (r->of == ROW_GPU) {
        hw_json_i64(&j, "gpu", r->gpu);
        hw_json_i64(&j, "peer_gpu", r->peer_gpu);
    } else if (r->of == ROW_GPUS) {
        hw_json_str(&j, "gpu", "all");
        hw_json_u64(&j, "gpus", r->gpus);
        hw_json_u64(&j, "failed_gpus", r->failed);
    }
    if (r->of == ROW_GPUS || r->of == ROW_BOTH)
        hw_json_bool(&j, "sum", true); /* the line is the sum of other lines */
    hw_json_double(&j, "GBps", r->GBps);
    hw_json_double(&j, "p50_us", r->p50_us);
    hw_json_double(&j, "p99_us", r->p99_us);
    hw_json_double(&j, "p999_us", r->p999_us);
    hw_json_double(&j, "cpu_s_per_GB", r->cpu_s_per_GB);
    hw_json_double(&j, "peer_cpu_s_per_GB", r->peer_cpu_s_per_GB);
    hw_json_u64(&j, "verified_bytes", r->sum.verified);
    hw_json_u64(&j, "bad_bytes", r->sum.bad);
    hw_json_double(&j, "raw_GBps", r->raw_GBps);
    hw_json_double(&j, "ratio_raw", r->ratio_raw);
    write_row_nics(&j, r);
    if (r->of == ROW_GPU || r->of == ROW_GPUS) {
        hw_json_object(&j, "received");
        verdict_json(&j, "here", &r->here);
        verdict_json(&j, "there", &r->there);
        hw_json_end(&j);
    }
    if (r->m->s && r->m->s->peer) {
        json_paths(&j, r->m->s->peer);
        output_json_channels(&j, r->m->s->peer);
    }
    hw_json_u64(&j, "lost_channels", r->lost_channels);
    hw_json_double(&j, "Gbps", 8 * r->GBps);
    hw_json_double(&j, "ops_per_s", r->sum.seconds > 0 ? (double)r->iters / r->sum.seconds : NAN);
    hw_json_double(&j, "mean_us", r->mean_us);
    hw_json_u64(&j, "blocks", HW_MAX(r->blocks, 1u));
    hw_json_u64(&j, "depth", r->depth);
    hw_json_u64(&j, "window_bytes", r->window);
    hw_json_double(&j, "seconds", r->sum.seconds);
    if (r->raw_streams)
        hw_json_u64(&j, "raw_streams", r->raw_streams);
    else
        hw_json_null(&j, "raw_streams");
    hw_json_str(&j, "raw_congestion", *r->raw_congestion ? r->raw_congestion : NULL);
    hw_json_double(&j, "raw_cpu_s_per_GB", r->raw_cpu_s_per_GB);
    hw_json_double(&j, "raw_peer_cpu_s_per_GB", r->raw_peer_cpu_s_per_GB);
    hw_json_double(&j, "raw_pingpong_spin_us", r->raw_spin_us);
    hw_json_double(&j, "raw_pingpong_block_us", r->raw_block_us);
    hw_json_str(&j, "ended_early", *r->early ? r->early : NULL);
    json_hist(&j, r->m->hist);
    hw_json_array(&j, "timeline");
    for (size_t i = 0; i < r->m->n_points; i++) {
        const struct timeline_point *p = &r->m->points[i];
        hw_json_object(&j, NULL);
        hw_json_double(&j, "t_s", p->t_s);
        hw_json_str(&j, "nic", r->m->names[p->nic]);
        hw_json_double(&j, "GBps", p->GBps);
        hw_json_end(&j);
    }
    hw_json_end(&j);
    hw_json_array(&j, "faults");
    for (size_t i = 0; i < r->m->n_faults; i++) {
        hw_json_object(&j, NULL);
        hw_json_double(&j, "t_s", r->m->faults[i].t_s);
        hw_json_str(&j, "text", r->m->faults[i].text);
        hw_json_end(&j);
    }
    hw_json_end(&j);
    hw_json_end(&j);
    int rc = hw_json_finish(&j);
    return rc < 0 ? hw_wrap(rc, "writing the JSON line") : 0;
}

void output_progress(const char *fmt, ...)
{
    if (!isatty(STDERR_FILENO))
        return;
    fputs("\r\033[K", stderr);
    if (fmt) {
        va_list ap;
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
    }
    fflush(stderr);
}
