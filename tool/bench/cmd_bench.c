/* SPDX-License-Identifier: Apache-2.0 */
/* hawser bench: measures and verifies transfers to a node that runs `hawser serve`. */
#include "base/size.h"
#include "tool/bench/bench.h"
#include "tool/load/detour.h"
#include "tool/load/stats.h"
#include "tool/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Checks that each value of a list is valid for a knob, and sets the knob if the list has one value. */
static int set_knob(struct bench *b, const char *name, const struct bench_list *l)
{
    char text[32];
    int rc = 0;
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        struct hw_knobs scratch = {0};
        snprintf(text, sizeof text, "%" PRIu64, l->v[i]);
        rc = l->n == 1 ? common_knob(&b->common, name, text) : hw_knob_set(&scratch, name, text);
    }
    return rc;
}

/* Applies the lists of --channels and --window or, in a run of a sweep, the values of --one. */
static int take_lists(struct bench *b)
{
    struct bench_list *lists[] = {&b->channels_list, &b->window_list};
    uint64_t v[2] = {0};
    if (b->one && !bench_one(b->one, v))
        return hw_fail(-EINVAL, "--one is only for runs that `hawser bench` starts itself");
    for (size_t i = 0; b->one && i < HW_ARRAY_LEN(lists); i++)
        *lists[i] = (struct bench_list){.v = {v[i]}, .n = v[i] > 0};
    if (b->one)
        b->report = NULL; /* the sweep writes one report for all runs */
    b->channels = b->channels_list.n == 1 ? b->channels_list.v[0] : 0;
    return set_knob(b, "window", &b->window_list);
}

static int parse_op(void *args, const char *text)
{
    struct bench *b = args;
    static const char *const names[] = {"write", "read", "send", "pingpong"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        if (strcmp(names[i], text) == 0) {
            b->op_name = text;
            b->op = (enum tp_op)(TP_WRITE + i);
            return 0;
        }
    return hw_fail(-EINVAL, "must be write, read, send or pingpong, not '%s'", text);
}

static int parse_bench_sizes(void *args, const char *text)
{
    struct bench *b = args;
    return opts_sizes(b->sizes_text = text, b->sizes, BENCH_SIZES, &b->n_sizes);
}

/* Parses the value of --blocks, such as "1024x64KiB,512x4KiB". */
static int parse_blocks(void *args, const char *text)
{
    struct bench *b = args;
    b->blocks_text = text;
    b->n_sizes = 0;
    for (const char *p = text;; p++) {
        char word[64];
        uint64_t n, size;
        const size_t len = strcspn(p, ",");
        if (len >= sizeof word || b->n_sizes == BENCH_SIZES)
            return hw_fail(-E2BIG, "'%s' has more than %d NxSIZE lists, or one with more than 63 characters", text,
                           BENCH_SIZES);
        snprintf(word, sizeof word, "%.*s", (int)len, p);
        char *x = strchr(word, 'x');
        if (!x)
            return hw_fail(-EINVAL, "must be NxSIZE, N blocks of SIZE bytes, as in 1024x64KiB, not '%s'", word);
        *x = 0;
        int rc = hw_parse_u64(word, 1, HAWSER_MAX_VECS, &n);
        if (rc < 0 || (rc = hw_parse_size(x + 1, &size)) < 0)
            return rc;
        if (size < 1 || size > (1ull << 40) / n)
            return hw_fail(-EINVAL, "%sx%s: the total size of a list must be from 1 byte to 1TiB", word, x + 1);
        b->blocks[b->n_sizes] = (uint32_t)n;
        b->sizes[b->n_sizes++] = n * size;
        p += len;
        if (!*p)
            return 0;
    }
}

static int parse_warmup(void *args, const char *text)
{
    struct bench *b = args;
    b->has_warmup = true;
    return hw_parse_u64(text, 0, 1000000000, &b->warmup);
}

static int parse_channels(void *args, const char *text)
{
    struct bench *b = args;
    return bench_list(text, false, 1, 64, &b->channels_list);
}

static int parse_window(void *args, const char *text)
{
    struct bench *b = args;
    return bench_list(text, true, 0, 0, &b->window_list);
}

static int parse_bench_nics(void *args, const char *text)
{
    struct bench *b = args;
    return opts_nics(b->nics = text);
}

static int parse_peer_nics(void *args, const char *text)
{
    struct bench *b = args;
    return opts_nics(b->peer_nics = text);
}

static int parse_streams(void *args, const char *text)
{
    struct bench *b = args;
    b->raw_best = strcmp(text, "best") == 0;
    return b->raw_best ? 0 : hw_parse_u64(text, 1, TP_MAX_STREAM, &b->raw_streams);
}

static int parse_bench_gpus(void *args, const char *text)
{
    struct bench *b = args;
    if (b->gpus_text)
        return hw_fail(-EINVAL, "--gpus and --gpu may be given only once, and not together");
    return gpus_parse(b->gpus_text = text, &b->gpus);
}

static int parse_gpu(void *args, const char *text)
{
    if (strpbrk(text, ",-") || strcmp(text, "all") == 0)
        return hw_fail(-EINVAL, "must be one GPU, N or N:M, not '%s'", text);
    return parse_bench_gpus(args, text);
}

static const struct opt rows[] = {
    OPT_CALL("op", 0, "OP", parse_op, "write, read, send or pingpong (default: write)"),
    OPT_CALL("size", 's', "SIZE[,..]", parse_bench_sizes,
             "sizes of an operation; 1KiB:64MiB is a range of doubling sizes (default: 64MiB; 8 bytes for pingpong)"),
    OPT_CALL("blocks", 0, "NxSIZE[,..]", parse_blocks,
             "instead of --size: each operation is a list of N scattered blocks of SIZE bytes, as in 1024x64KiB"),
    OPT_FLAG("bidir", 0, struct bench, both, "write and read at once, over separate connections"),
    OPT_NUMBER("iters", 0, "N", struct bench, iters, 1, 1000000000,
               "measured operations per round (default: 2000 for pingpong; otherwise 20 for sizes from 1MiB up and 200 "
               "below, or more with --compare-raw and sizes up to 12MiB)"),
    OPT_CALL("warmup", 0, "N", parse_warmup,
             "unmeasured operations before the first round (default: a tenth of --iters, but at least 2)"),
    OPT_TIME("duration", 't', "TIME", struct bench, duration_ms, 10, TP_RAW_MS / 2,
             "instead of --iters: measure each round for this time, such as 10s or 500ms"),
    OPT_TIME("interval", 'i', "TIME", struct bench, interval_ms, 100, TP_RAW_MS / 2,
             "print the rates at this interval, such as 1s"),
    OPT_NUMBER("depth", 'd', "N", struct bench, depth, 1, TP_MAX_DEPTH,
               "operations in flight (default: as many as fit into 16MiB, but at least 2 and at most 32; 1 for "
               "pingpong and for sizes above 128MiB)"),
    OPT_CALL("channels", 'c', "N[,..]", parse_channels,
             "connections per pair of NICs (default: knob channels); a list gives one run for each value"),
    OPT_CALL("nics", 'n', "A,B", parse_bench_nics, "NICs of this node (default: all with a route to the peer)"),
    OPT_CALL("peer-nics", 0, "A,B", parse_peer_nics, "NICs of the peer, paired in order with --nics"),
    OPT_CALL("window", 0, "SIZE[,..]", parse_window,
             "bytes in flight per connection (default: knob window); a list gives one run for each value"),
    OPT_FLAG("no-verify", 0, struct bench, no_verify, "do not check the received data"),
    OPT_FLAG("hot", 0, struct bench, hot,
             "use the same buffer, which may stay in the CPU's cache, for all operations; only the last operation of a "
             "batch is checked"),
    OPT_FLAG("compare-raw", 0, struct bench, compare_raw,
             "also measure plain sockets, alternating with hawser, over the same paths and memory (host memory with "
             "--gpus)"),
    OPT_CALL(
        "raw-streams", 0, "N|best", parse_streams,
        "plain sockets per path, 1 to 16 (default: as many as hawser has channels per path); best tries 1, 2, 4 and 8"),
    OPT_NUMBER("rounds", 0, "N", struct bench, rounds, 1, BENCH_ROUNDS,
               "measure this many rounds, and report their median (default: 1; 3 with --compare-raw)"),
    OPT_TEXT("json", 0, "FILE", struct bench, json,
             "write one JSON line per measurement to FILE; - is standard output"),
    OPT_TEXT("report", 0, "FILE", struct bench, report, "write one HTML file with plots"),
    OPT_TEXT("faults", 0, "FILE", struct bench, faults,
             "mark the events in FILE in the timeline; each line is SECONDS TEXT, with SECONDS as CLOCK_MONOTONIC "
             "counts them"),
    OPT_CALL("gpus", 'g', "LIST", parse_bench_gpus,
             "use memory of these GPUs at once, each with its own NICs; LIST is all, a range such as 0-3, a list such "
             "as 0,2, or pairs of a local and a remote GPU such as 0:5,1:4"),
    OPT_CALL("gpu", 0, "N[:M]", parse_gpu, "use memory of one GPU: local GPU N with remote GPU M (default: M = N)"),
    OPT_FLAG("per-process", 0, struct bench, per_process,
             "with --gpus or --gpu: use one process for each worker, on the NUMA node of its GPU"),
    OPT_TEXT("map", 'm', "MAP", struct bench, map,
             "with --gpus or --gpu: use these NICs for these GPUs, as in \"0,1=eth1;2-3=eth2,eth4\""),
    OPT_TEXT("worker", 0, "", struct bench, worker, NULL),
    OPT_TEXT("one", 0, "", struct bench, one, NULL),
    OPT_GROUP(common_opts, struct bench, common),
    {0},
};

/* Parses and checks the arguments. Returns OPTS_GO or the exit status. */
static int parse_bench_args(struct bench *b, int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "bench",
        .args = "HOST[:PORT] [OPTION...]",
        .about = "Measures transfers between this node and a node that runs `hawser serve`. By default, every byte is "
                 "checked, outside the measured time.\nExit status: 0 success, 1 a failure or wrong bytes, 2 usage "
                 "error, 128 plus the signal's number if interrupted.",
        .rows = rows,
        .least = 1,
        .most = 1,
        .too_few = "HOST is missing; `hawser serve` on the other node prints the command"};
    int rc = opts_parse(&o, b, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (take_lists(b) < 0)
        return tool_usage("bench", "%s", hw_error());
    b->port = HAWSER_DEFAULT_PORT;
    if (opts_host(argv[optind], b->host, sizeof b->host, &b->port) < 0)
        return tool_usage("bench", "%s", hw_error());
    if (b->peer_nics && !b->nics)
        return tool_usage("bench", "--peer-nics needs --nics");
    if (!b->gpus_text && (b->map || b->per_process))
        return tool_usage("bench", "--map and --per-process need --gpus or --gpu");
    if ((b->gpus_text || b->both) && b->peer_nics)
        return tool_usage("bench", "--peer-nics cannot be combined with --gpus, --gpu or --bidir");
    if (b->both && b->op_name)
        return tool_usage("bench", "--bidir cannot be combined with --op, because --bidir both writes and reads");
    if (b->blocks_text && b->sizes_text)
        return tool_usage("bench", "--size and --blocks cannot be combined");
    if (b->blocks_text && b->op == TP_PINGPONG)
        return tool_usage("bench", "--blocks needs --op write, read or send");
    if (b->duration_ms && b->iters)
        return tool_usage("bench", "--duration and --iters cannot be combined");
    if ((b->raw_streams || b->raw_best) && !b->compare_raw)
        return tool_usage("bench", "--raw-streams needs --compare-raw");
    if (b->json && strcmp(b->json, "-") == 0 && b->report)
        return tool_usage(
            "bench", "--report cannot be combined with --json -, because the report is made from the lines in a file");
    if (!b->n_sizes) {
        b->sizes[0] = b->op == TP_PINGPONG ? 8 : 64ull << 20;
        b->n_sizes = 1;
    }
    if (!b->rounds)
        b->rounds = b->compare_raw ? 3 : 1;
    return OPTS_GO;
}

static void show_bench_progress(void *arg, uint64_t done, uint64_t of, double seconds, uint64_t bytes)
{
    const struct bench *b = arg;
    const double GBps = seconds > 0 ? (double)bytes / 1e9 / seconds : 0;
    if (b->duration_ms)
        output_progress("%s: %.1f of %.1f s, %.3f GB, %.2f GB/s, %.1f Gbit/s", b->what, seconds,
                        (double)b->duration_ms / 1e3, (double)bytes / 1e9, GBps, 8 * GBps);
    else
        output_progress("%s: %" PRIu64 " of %" PRIu64 " operations, %.3f GB, %.2f GB/s, %.1f Gbit/s", b->what, done, of,
                        (double)bytes / 1e9, GBps, 8 * GBps);
}

static void print_host_bench_head(struct bench *b)
{
    FILE *out = bench_table(b);
    struct session_path path[TP_MAX_PATHS];
    const size_t n = session_paths(&b->s, path, HW_ARRAY_LEN(path));
    uint64_t used = 0;
    for (size_t i = 0; i < n; i++)
        used = HW_MAX(used, path[i].channels);
    session_print_head(&b->s, out);
    bench_print_channels(out, b->channels ? b->channels : b->knobs.channels, used);
    bench_print_knobs(b, out);
    table_begin(&b->table, out, b->op == TP_PINGPONG, b->compare_raw, false);
}

static void print_interval(void *arg, const struct measure_mark *from, const struct measure_mark *to)
{
    struct bench *b = arg;
    output_progress(NULL);
    table_interval(bench_table(b), "", from, to);
}

static int show_rival_progress(void *arg, size_t turn)
{
    const struct bench *b = arg;
    if (turn % 2)
        output_progress("%s: plain sockets", b->what);
    return 0;
}

static int report_host_size(struct bench *b, struct measure *m, uint64_t iters, bool last, struct row *r)
{
    FILE *table = bench_table(b);
    const bool rival = b->compare_raw && m->plan.size > 0;
    const struct bench_turns turns = {
        .m = m, .rival = rival ? &b->rival : NULL, .raw = m, .before = show_rival_progress, .arg = b};
    int rc = bench_rounds(b, &turns, iters, r);
    output_progress(NULL);
    if (rc < 0 && r->sum.iters == 0)
        return rc;
    char why[HW_ERR_TEXT];
    snprintf(why, sizeof why, "%s", rc < 0 ? hw_error() : "");
    snprintf(r->early, sizeof r->early, "%.*s", (int)sizeof r->early - 1, why);
    bench_finish(b, m, b->rival.path, b->rival.n_paths, r);
    table_row(&b->table, NULL, r);
    if (!isnan(r->raw_spin_us)) /* NAN if plain sockets ran no ping-pong, for example because of an interruption */
        fprintf(table, "# one way, p50: hawser %.2f us, plain sockets %.2f us spinning, %.2f us blocking\n", r->p50_us,
                r->raw_spin_us, r->raw_block_us);
    last |= rc < 0;
    if (last)
        table_end(&b->table);
    if (last)
        bench_print_congestion(table, r);
    if (last)
        output_nics(table, r);
    char detour[DETOUR_TEXT];
    if (detour_find(r->sum.own, r->sum.n_own, r->sum.peer, r->sum.n_peer, detour, sizeof detour))
        tool_fail("bench", "warning: %s", detour);
    b->bad += r->sum.bad;
    const int wrote = b->json_out ? output_json(b->json_out, r) : 0;
    return rc < 0 ? hw_fail(rc, "%s", why) : wrote;
}

static int run_host_size(struct bench *b, size_t i, bool last)
{
    const uint64_t size = b->sizes[i];
    char what[64], text[32];
    snprintf(what, sizeof what, "%s %s", output_op_name(b->op), hw_format_size(size, text, sizeof text));
    b->what = what;
    struct measure_plan plan;
    uint64_t iters = bench_iters(b, size);
    HW_AUTO_FREE struct measure *m = calloc(1, sizeof *m);
    HW_AUTO_FREE struct row *r = calloc(1, sizeof *r);
    int rc = m && r ? bench_plan(b, i, &plan) : hw_no_memory("the results");
    if (rc < 0)
        return rc;
    m->progress = show_bench_progress;
    m->interval = print_interval;
    m->progress_arg = b;
    rc = bench_start(b, &b->s, &plan, bench_warmup(b, iters), m, r);
    if (rc == 0) {
        rc = report_host_size(b, m, iters, last, r);
        HW_KEEP_ERROR();
        measure_close(m);
    }
    output_progress(NULL);
    return rc;
}

static int run_host_sizes(struct bench *b)
{
    const struct hawser_connect_options o = {
        .size = sizeof o, .nics = b->nics, .peer_nics = b->peer_nics, .channels = (uint32_t)b->channels};
    int rc = common_open(&b->common, &b->h);
    if (rc < 0)
        return rc;
    rc = session_open(&b->s, b->h, b->host, b->port, &o);
    if (rc < 0 || (rc = rival_open(&b->rival, &b->s, &b->knobs)) < 0)
        return rc;
    print_host_bench_head(b);
    for (size_t i = 0; i < b->n_sizes && rc == 0; i++)
        rc = run_host_size(b, i, i + 1 == b->n_sizes);
    return rc;
}

/* Runs bench in host memory, without --bidir. */
static int run_host_bench(struct bench *b)
{
    int rc = run_host_sizes(b);
    HW_KEEP_ERROR();
    table_end(&b->table);
    if (b->report)
        run_ask(&b->files.run, &b->s, b->host);
    session_close(&b->s);
    hawser_close(b->h);
    return HW_MIN(rc, 0);
}

static int run_any_bench(struct bench *b)
{
    int rc = report_files_open(&b->files, b->json, b->report);
    b->json_out = b->files.lines;
    if (rc < 0 || (rc = hw_knobs_load(&b->knobs, (const char *const *)b->common.knobs)) < 0)
        return rc;
    if (bench_sweeps(b))
        return bench_sweep(b);
    return b->gpus_text || b->both ? bench_gpus(b) : run_host_bench(b);
}

static int run_bench_command(struct bench *b)
{
    if (b->worker)
        return bench_child(b) < 0 ? TOOL_FAILED : TOOL_OK;
    int rc = run_any_bench(b);
    output_progress(NULL);
    const bool interrupted = rc == -EINTR;
    if (rc < 0 && !interrupted)
        tool_fail("bench", "%s", hw_error());
    const int closed = report_files_close(&b->files);
    if (closed < 0)
        rc = tool_fail("bench", "%s", hw_error());
    if (b->abandoned) {
        fflush(NULL);
        _exit(TOOL_FAILED);
    }
    if (b->bad)
        return tool_fail("bench", "%" PRIu64 " byte%s arrived with wrong contents", b->bad, hw_plural(b->bad));
    if (interrupted && b->one)
        return TOOL_FAILED; /* the sweep reports the interruption */
    if (interrupted)
        return tool_interrupted("bench", "any results above were measured before the interruption");
    return rc == 0 && !b->failed ? TOOL_OK : TOOL_FAILED;
}

int cmd_bench(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof *b);
    if (!b)
        return tool_fail("bench", "out of memory");
    b->op = TP_WRITE;
    b->argc = argc;
    b->argv = argv;
    int rc = parse_bench_args(b, argc, argv);
    if (rc == OPTS_GO) {
        tool_catch_signals();
        rc = run_bench_command(b);
    }
    common_free(&b->common);
    free(b);
    return rc;
}
