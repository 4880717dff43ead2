/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nccl bench: chooses the configurations, and measures them in rounds. */
#include "tool/nccl/bench/nccl_args.h"
#include "tool/report/files.h"

#include "base/size.h"
#include "mem/cuda.h"
#include "tool/nccl/bench/nccl_launch.h"
#include "tool/nccl/nccl.h"
#include "tool/nccl/nccl_conf.h"
#include "tool/report/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CMD        NB_CMD
#define BYTES      (1ull << 30) /* default iterations of a size: BYTES / size, limited to ITERS_MIN to ITERS_MAX */
#define ITERS_MIN  10
#define ITERS_MAX  500
#define WARMUP_MIN 3
#define TIMEOUT_MS 120000
#define WAIT_MS    60000
#define TCPX       "/usr/local/tcpx/lib64/libnccl-net.so"

/* Of the settings of NCCL's sockets that were measured, none is much faster than the better of the two tuned settings.
 * Which one is better depends on the operation (docs/nccl.md). */
static struct nb_config configs[] = {
    {.name = "hawser", .about = "", .set = {{"NCCL_NET_PLUGIN", "hawser"}}},
    {.name = "socket",
     .about = "NET/Socket's default settings",
     .socket = true,
     .set = {{"NCCL_NET", "Socket"}, {"NCCL_NET_PLUGIN", "none"}}},
    {.name = "socket-1x1-16ch",
     .about = "one thread and socket for each of 16 channels",
     .socket = true,
     .tuned = true,
     .set = {{"NCCL_NET", "Socket"},
             {"NCCL_NET_PLUGIN", "none"},
             {"NCCL_SOCKET_NTHREADS", "1"},
             {"NCCL_NSOCKS_PERTHREAD", "1"},
             {"NCCL_MIN_NCHANNELS", "16"},
             {"NCCL_NCHANNELS_PER_NET_PEER", "16"},
             {"NCCL_MIN_P2P_NCHANNELS", "16"}}},
    {.name = "socket-4x4-8ch",
     .about = "8 channels, four threads per channel, four sockets per thread, and large buffers",
     .socket = true,
     .tuned = true,
     .set = {{"NCCL_NET", "Socket"},
             {"NCCL_NET_PLUGIN", "none"},
             {"NCCL_SOCKET_NTHREADS", "4"},
             {"NCCL_NSOCKS_PERTHREAD", "4"},
             {"NCCL_MIN_NCHANNELS", "8"},
             {"NCCL_NCHANNELS_PER_NET_PEER", "8"},
             {"NCCL_MIN_P2P_NCHANNELS", "8"},
             {"NCCL_BUFFSIZE", "16777216"},
             {"NCCL_P2P_NET_CHUNKSIZE", "2097152"}}},
    {.name = "tcpx",
     .about = "GPUDirect-TCPX",
     .theirs = true,
     .set = {{"NCCL_NET_PLUGIN", TCPX}, {"NCCL_NET", "GPUDirectTCPX_v7"}, {"NCCL_DYNAMIC_CHUNK_SIZE", "524288"}}},
};
#define CONFIGS HW_ARRAY_LEN(configs)
enum { OURS, STANDARD, FIRST_TUNED, PLUGIN_TCPX = CONFIGS - 1 };

/* Make the GPUs of one host behave like GPUs of different nodes. NVLink multicast would also bypass the network. */
static const struct nb_var common[] = {
    {"NCCL_P2P_DISABLE", "1"},
    {"NCCL_SHM_DISABLE", "1"},
    {"NCCL_NVLS_ENABLE", "0"},
    {"NCCL_MNNVL_ENABLE", "0"},
    /* turn on the log output that the supervisor parses, and remove user settings that would redirect this output or
     * choose another network */
    {"NCCL_DEBUG", "INFO"},
    {"NCCL_DEBUG_SUBSYS", "INIT,NET,ENV"},
    {"NCCL_DEBUG_FILE", NULL},
    {"NCCL_NET", NULL},
    {"NCCL_NET_PLUGIN", NULL},
    {0},
};

/* On several hosts, leave the links within a host as they are, but prevent NCCL from bypassing the network between
 * hosts. */
static const struct nb_var common_hosts[] = {
    {"NCCL_MNNVL_ENABLE", "0"},
    {"NCCL_DEBUG", "INFO"},
    {"NCCL_DEBUG_SUBSYS", "INIT,NET,ENV"},
    {"NCCL_DEBUG_FILE", NULL},
    {"NCCL_NET", NULL},
    {"NCCL_NET_PLUGIN", NULL},
    {0},
};

/* ---- rounds ----------------------------------------------------------------------------------- */

struct bench_run {
    const struct nb_args *a;
    struct nb_table t;
    struct report_files files;
    struct nb_start start;
    struct nb_hosts hosts;
    bool on_hosts;                                 /* true with --hosts or a launcher */
    struct nb_config config[CONFIGS + NB_SOCKETS]; /* configurations to measure */
    bool failed[CONFIGS + NB_SOCKETS], own_failed;
    bool left_badly; /* in at least one round, ranks did not exit cleanly */
    int version;
    uint64_t most;
};

static int measure_row(struct bench_run *b, struct nb_crew *crew, struct nb_row *r, size_t config)
{
    struct nb_order o = {.type = NB_RUN, .op = r->op, .size = r->size, .iters = r->iters, .warmup = r->warmup};
    struct nb_cell *cell = &r->cell[config];
    struct nb_sample s = {0};
    int rc = nb_crew_order(crew, &o, (int)b->a->timeout_ms);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < crew->n; i++) {
        const struct nb_reply *p = &crew->m[i].reply;
        s.us = fmax(s.us, p->seconds * 1e6 / r->iters);
        s.cpu += p->cpu / r->iters;
        s.first = fmax(s.first, p->first_op * 1e6);
        cell->checked += p->checked;
        if (p->bad && !cell->bad)
            tool_fail(CMD, "%s: rank %u: %s of %llu bytes: %llu of %llu elements %s wrong; the first is element %llu",
                      crew->config, i, nb_op_name(r->op), (unsigned long long)r->size, (unsigned long long)p->bad,
                      (unsigned long long)p->checked, p->bad == 1 ? "is" : "are", (unsigned long long)p->first);
        cell->bad += p->bad;
        rc = rc < 0 ? rc : nb_counted_add(&cell->nics, crew, i);
    }
    cell->sample[cell->n++] = s;
    return rc;
}

/* Measures all operations and sizes of a configuration once, with one set of ranks. */
static int measure_config(struct bench_run *b, size_t config, unsigned round)
{
    HW_AUTO_FREE struct nb_crew *crew = calloc(1, sizeof *crew);
    if (!crew)
        return hw_no_memory("%u ranks", b->t.ranks);
    output_progress("round %u of %u: %s: starting", round + 1, b->t.rounds, b->config[config].name);
    int rc = nb_crew_start(crew, &b->config[config], &b->start, b->most);
    if (rc == 0) {
        b->version = crew->version;
        snprintf(b->t.network[config], sizeof b->t.network[config], "%s", crew->m[0].network);
    }
    for (size_t i = 0; i < b->t.n_rows && rc == 0; i++) {
        struct nb_row *r = &b->t.row[i];
        char size[32];
        output_progress("round %u of %u: %s: %s %s", round + 1, b->t.rounds, b->config[config].name, nb_op_name(r->op),
                        hw_format_size(r->size, size, sizeof size));
        rc = measure_row(b, crew, r, config);
    }
    output_progress(NULL);
    if (rc < 0 && rc != -EINTR)
        tool_fail(CMD, "%s", hw_error());
    if (nb_crew_end(crew, rc) < 0 && rc == 0)
        b->left_badly = true;
    return rc;
}

/* Measures hawser's own transfer of all sizes. */
static int own_round(struct bench_run *b, unsigned round)
{
    output_progress("round %u of %u: hawser bench", round + 1, b->t.rounds);
    int rc = nb_own_run(&b->hosts, &b->t, (int)HW_MIN(b->a->timeout_ms * b->t.n_own, (uint64_t)INT32_MAX));
    output_progress(NULL);
    b->own_failed = rc < 0;
    if (rc < 0 && rc != -EINTR)
        tool_fail(CMD, "hawser's own transfer: %s", hw_error());
    return rc;
}

static int measure_rounds(struct bench_run *b)
{
    int rc = 0;
    for (unsigned round = 0; round < b->t.rounds; round++) {
        for (size_t i = 0; i < b->t.n_configs; i++) {
            /* rotate, so that no configuration is always the first */
            size_t config = (i + round) % b->t.n_configs;
            if (b->failed[config])
                continue;
            rc = measure_config(b, config, round);
            if (rc == -EINTR || tool_stop)
                return hw_fail(-EINTR, "interrupted");
            b->failed[config] = rc < 0;
        }
        if (b->t.n_own && !b->own_failed && (rc = own_round(b, round)) == -EINTR)
            return rc;
        for (size_t i = 0; i < b->t.n_raw; i++) {
            struct nb_raw *raw = &b->t.raw[i];
            output_progress("round %u of %u: %u plain sockets", round + 1, b->t.rounds, raw->streams);
            rc = nb_raw_run(raw->streams, &raw->GBps[raw->n]);
            output_progress(NULL);
            if (rc < 0)
                return rc;
            raw->n++;
        }
    }
    return 0;
}

static void print_nccl_bench_head(FILE *out, const struct bench_run *b)
{
    const struct nb_args *a = b->a;
    fprintf(out,
            "# NCCL %d.%d.%d (%s), %u ranks, float32, sum; the last result is checked in full; medians of %u round%s\n",
            b->version / 10000, b->version / 100 % 100, b->version % 100, a->nccl ? a->nccl : "libnccl.so.2",
            b->t.ranks, b->t.rounds, hw_plural(b->t.rounds));
    if (a->lab)
        fprintf(out, "# rank 0 in node %s/a, rank 1 in node %s/b, and so on\n", a->lab, a->lab);
    for (unsigned i = 0; i < b->t.ranks; i++) {
        struct hw_gpu_info g;
        const unsigned host = b->on_hosts ? nb_host_of(&b->hosts, i) : 0;
        if (b->on_hosts)
            fprintf(out, "# rank %u: host %s, GPU %d, NCCL_HOSTID=hawser-bench-%u\n", i, b->hosts.host[host],
                    nb_gpu_of(&b->hosts, i), b->hosts.node[host]);
        else if (hw_cuda_info((int)i, &g) == 0)
            fprintf(out, "# rank %u: GPU %u, %s, %s, NCCL_HOSTID=hawser-bench-%u\n", i, i, g.name, g.pci, i);
    }
    if (b->on_hosts && !b->hosts.other)
        fputs("# all ranks are on one node, where NCCL need not use the network\n", out);
    if (a->rails)
        fprintf(out, "# rails: %s\n", a->rails);
    fputs(b->on_hosts ? "# for all ranks:" : "# each rank as a separate node:", out);
    for (const struct nb_var *v = b->start.common; v->name; v++)
        if (v->value && strncmp(v->name, "NCCL_DEBUG", 10) != 0)
            fprintf(out, " %s=%s", v->name, v->value);
    fputc('\n', out);
    if (b->on_hosts && !b->hosts.tcpx)
        fprintf(out, "# tcpx: not measured, because not all hosts have %s%s\n", b->hosts.tcpx_path,
                a->hosts ? " (--tcpx)" : "");
    if (b->t.n_own)
        fprintf(out, "# hawser bench: write from host %s to host %s, GPU memory\n", b->hosts.host[b->hosts.other],
                b->hosts.host[0]);
    for (size_t i = 0; i < b->t.n_configs; i++) {
        fprintf(out, "# %s: network %s;", b->config[i].name, b->t.network[i][0] ? b->t.network[i] : "none");
        for (const struct nb_var *v = b->config[i].set; v->name; v++)
            fprintf(out, " %s=%s", v->name, v->value);
        for (const struct nb_var *v = a->set; v->name && !b->config[i].socket && !b->config[i].theirs; v++)
            fprintf(out, " %s=%s", v->name, v->value);
        fputc('\n', out);
    }
    fprintf(out, "# cpu: CPU seconds of all ranks' processes, per GB of the operations' size\n");
}

static int make_rows(struct bench_run *b)
{
    const struct nb_args *a = b->a;
    struct nb_table *t = &b->t;
    t->row = calloc(NB_OPS * a->n_sizes, sizeof *t->row);
    t->network = calloc(t->n_configs, sizeof *t->network);
    if (!t->row || !t->network)
        return hw_no_memory("results");
    for (int op = 0; op < NB_OPS; op++)
        for (size_t i = 0; i < a->n_sizes && a->op[op]; i++) {
            struct nb_row *r = &t->row[t->n_rows];
            uint64_t size = nb_fit(op, t->ranks, a->size[i]);
            if (size == 0)
                return hw_fail(-EINVAL, "%s among %u ranks needs at least %llu bytes, not %llu", nb_op_name(op),
                               t->ranks, 4ull * nb_parts(op, t->ranks), (unsigned long long)a->size[i]);
            uint64_t iters = a->iters ? a->iters : HW_MIN(HW_MAX(BYTES / size, ITERS_MIN), ITERS_MAX);
            uint64_t warmup = a->warmup != UINT64_MAX ? a->warmup : HW_MAX(iters / 10, WARMUP_MIN);
            *r = (struct nb_row){.op = op, .size = size, .iters = (uint32_t)iters, .warmup = (uint32_t)warmup};
            r->cell = calloc(t->n_configs, sizeof *r->cell);
            if (!r->cell)
                return hw_no_memory("results");
            t->n_rows++;
            b->most = HW_MAX(b->most, size);
        }
    return 0;
}

static bool all_well(const struct bench_run *b)
{
    if (b->left_badly || b->own_failed)
        return false;
    for (size_t i = 0; i < b->t.n_own; i++)
        if (b->t.own[i].bad || b->t.own[i].n == 0)
            return false;
    for (size_t i = 0; i < b->t.n_configs; i++) {
        if (b->failed[i])
            return false;
        for (size_t k = 0; k < b->t.n_rows; k++) {
            const struct nb_cell *cell = b->t.row[k].cell;
            if (!cell || cell[i].bad || cell[i].n == 0)
                return false;
        }
    }
    return true;
}

/* Chooses the configurations to measure: hawser's, those of --sockets and, with --vs-socket, --hosts or a
 * launcher, others. */
static void choose_configs(struct bench_run *b)
{
    const struct nb_args *a = b->a;
    size_t n = 0;
    configs[OURS].set[0].value = a->plugin;
    for (size_t i = 0; i < CONFIGS; i++) {
        if (i == STANDARD ? !a->vs && !b->on_hosts : i == PLUGIN_TCPX ? !b->hosts.tcpx : i >= FIRST_TUNED && !a->vs)
            continue;
        b->config[n] = configs[i];
        if (i == PLUGIN_TCPX)
            b->config[n].set[0].value = b->hosts.tcpx;
        n++;
    }
    memcpy(&b->config[n], a->sockets, a->n_sockets * sizeof a->sockets[0]);
    n += a->n_sockets;
    b->t.config = b->config;
    b->t.n_configs = n;
}

/* Determines the number of ranks per host. Returns TOOL_OK, or the exit code after printing an error. */
static int find_hosts_gpus(struct bench_run *b)
{
    const struct nb_args *a = b->a;
    struct nb_hosts *h = &b->hosts;
    int gpus = 0;
    output_progress("querying %u hosts", h->n);
    int rc = nb_hosts_probe(h, a->tcpx ? a->tcpx : TCPX, &gpus);
    output_progress(NULL);
    if (rc < 0)
        return tool_failed(CMD, rc);
    if (h->per_host && a->gpus > 1)
        return tool_usage(CMD, "with several processes on a node, each process has one GPU, not %llu (--gpus)",
                          (unsigned long long)a->gpus);
    if (a->gpus > (uint64_t)gpus)
        return tool_fail(CMD, "not all hosts have %llu GPUs: one has %d", (unsigned long long)a->gpus, gpus);
    if (!h->per_host)
        h->per_host = a->gpus ? (unsigned)a->gpus : HW_MIN((unsigned)gpus, (unsigned)NB_RANKS / h->n);
    b->t.ranks = h->n * h->per_host;
    if (b->t.ranks > NB_RANKS)
        return tool_fail(CMD, "too many ranks: %u (at most %d are supported)", b->t.ranks, NB_RANKS);
    for (size_t i = 0; i < a->n_sizes && h->other; i++)
        b->t.own[b->t.n_own++].size = a->size[i];
    return TOOL_OK;
}

/* Determines the number of local ranks. Returns TOOL_OK, or the exit code after printing an error. */
static int find_local_gpus(struct bench_run *b)
{
    const struct nb_args *a = b->a;
    int gpus = hw_cuda_count();
    if (gpus < 0)
        return tool_fail(CMD, "%s", hw_error());
    if (gpus < 2)
        return tool_fail(CMD, "NCCL transfers nothing with fewer than two GPUs; this host has %d", gpus);
    if (a->gpus == 1)
        return tool_usage(CMD, "--gpus needs at least 2 on one host, not '1'");
    if (a->gpus > (uint64_t)gpus)
        return tool_fail(CMD, "%llu GPUs were requested, but this host has %d", (unsigned long long)a->gpus, gpus);
    b->t.ranks = a->gpus ? (unsigned)a->gpus : (unsigned)HW_MIN(gpus, NB_RANKS);
    return TOOL_OK;
}

static int measure_all(struct bench_run *b)
{
    const struct nb_args *a = b->a;
    char dir[NCCL_PATH] = "";
    int found = b->on_hosts ? find_hosts_gpus(b) : find_local_gpus(b);
    if (found != TOOL_OK)
        return found;
    choose_configs(b);
    /* Let a program that was built but not installed measure its own plugin. */
    if (nccl_plugin_dir(dir, sizeof dir) < 0)
        dir[0] = 0;
    b->start = (struct nb_start){.nccl = a->nccl,
                                 .lab = a->lab,
                                 .hosts = b->on_hosts ? &b->hosts : NULL,
                                 .library_path = dir,
                                 .common = b->on_hosts ? common_hosts : common,
                                 .more = a->set,
                                 .n = b->t.ranks,
                                 .timeout_ms = (int)a->timeout_ms,
                                 .verbose = a->verbose};
    int rc = make_rows(b);
    if (rc == 0)
        rc = measure_rounds(b);
    if (rc < 0 && rc != -EINTR)
        return tool_fail(CMD, "%s", hw_error());
    /* version is 0 if no configuration could be started; errors were printed */
    if (b->version && (!a->json || strcmp(a->json, "-") != 0)) {
        print_nccl_bench_head(b->files.shown, b);
        nb_print(b->files.shown, &b->t);
    }
    int wrote = a->json ? nb_print_json(b->files.lines, &b->t) : 0;
    if (wrote == 0 && b->version)
        wrote = report_files_page(&b->files, "hawser nccl bench", nb_write_page, &b->t);
    if (wrote < 0)
        return tool_fail(CMD, "%s", hw_error());
    if (rc == -EINTR)
        return tool_interrupted(CMD, b->version ? "any results above were measured before the interruption"
                                                : "nothing was measured");
    return all_well(b) ? TOOL_OK : TOOL_FAILED;
}

/* ---- the command --------------------------------------------------------------------------------- */

static void free_rows(struct nb_table *t)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        for (size_t k = 0; k < t->n_configs; k++)
            free(t->row[i].cell[k].nics.at);
        free(t->row[i].cell);
    }
    free(t->row);
    free(t->network);
}

/* Measures on this host, on the hosts of --hosts, or in the n processes that a launcher started. */
static int run_bench(const struct nb_args *a, const struct nb_seat_row *row, uint32_t n, int via)
{
    struct bench_run *b = calloc(1, sizeof *b);
    if (!b)
        return tool_fail(CMD, "out of memory");
    b->a = a;
    b->on_hosts = n || a->hosts;
    b->t.rounds = a->rounds ? (unsigned)a->rounds : a->vs || b->on_hosts ? 3 : 1;
    for (size_t i = 0; i < a->n_raw; i++)
        b->t.raw[b->t.n_raw++].streams = a->raw[i];
    int rc = TOOL_OK;
    if (n && nb_hosts_launched(&b->hosts, row, n, via) < 0)
        rc = tool_fail(CMD, "%s", hw_error());
    else if (a->hosts && nb_hosts_parse(&b->hosts, a->hosts, a->ssh, a->remote) < 0)
        rc = tool_usage(CMD, "%s", hw_error());
    b->t.hosts = b->hosts.label ? b->hosts.label : a->hosts;
    if (rc == TOOL_OK)
        rc = report_files_open(&b->files, a->json, a->report) < 0 ? tool_fail(CMD, "%s", hw_error()) : measure_all(b);
    if (report_files_close(&b->files) < 0)
        rc = tool_fail(CMD, "%s", hw_error());
    free_rows(&b->t);
    nb_hosts_free(&b->hosts);
    free(b);
    return rc;
}

static int supervise(void *arg, const struct nb_seat_row *row, uint32_t n, int via)
{
    return run_bench(arg, row, n, via);
}

/* Runs as one of the processes that a launcher started. */
static int run_launched(struct nb_args *a, struct launch_seat *seat)
{
    struct nb_launch l = {.common = &a->common, .seat = seat, .wait_ms = a->wait_ms};
    int rc = launch_key(&a->common);
    if (rc == 0 && a->meet)
        rc = opts_host(a->meet, seat->meet, sizeof seat->meet, &seat->port);
    if (rc < 0)
        return tool_fail(CMD, "%s", hw_error());
    /* Require a key, because a process executes the commands of rank 0 with its own rights. */
    if (!a->common.key_len)
        return tool_usage(
            CMD,
            "a job key is needed, because %s started several processes: use --key-file, or set HAWSER_MESH_KEY "
            "to the same key on every node (to make a key: head -c 32 /dev/urandom | base64); --local measures only "
            "this host",
            seat->launcher);
    if (a->n_raw)
        return tool_usage(CMD, "--raw uses one host's loopback: add --local");
    launch_place_of(seat, &l.place);
    return seat->rank == 0 ? nb_hub(&l, supervise, a) : nb_seat(&l);
}

static int parse_and_bench(struct nb_args *a, int argc, char **argv)
{
    extern char **environ;
    struct launch_seat seat = {0};
    int rc = nb_args_parse(a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (a->agent)
        return nb_agent();
    if (a->rank)
        return nb_rank(a->rank, a->nccl);
    if (a->via)
        return nb_via(a->via);
    tool_catch_signals();
    rc = a->hosts || a->lab || a->local ? -ENOENT : launch_env((const char *const *)environ, &seat);
    if (rc < 0 && rc != -ENOENT)
        rc = tool_fail(CMD, "%s (--local measures only this host)", hw_error());
    else if (rc == 0 && seat.size != 1)
        rc = run_launched(a, &seat);
    else
        rc = run_bench(a, NULL, 0, -1);
    launch_seat_free(&seat);
    return rc;
}

int nccl_bench_main(int argc, char **argv)
{
    struct nb_args *a = calloc(1, sizeof *a);
    if (!a)
        return tool_fail(CMD, "out of memory");
    *a = (struct nb_args){.op = {[NB_ALL_REDUCE] = true, [NB_SENDRECV] = true},
                          .size = {8, 1024, 65536, 1ull << 20, 16ull << 20, 64ull << 20, 256ull << 20},
                          .n_sizes = 7,
                          .warmup = UINT64_MAX,
                          .timeout_ms = TIMEOUT_MS,
                          .wait_ms = WAIT_MS,
                          .plugin = "hawser"};
    int rc = parse_and_bench(a, argc, argv);
    nb_args_free(a);
    return rc;
}
