/* SPDX-License-Identifier: Apache-2.0 */
/* hawser drill: measures what the loss of a NIC costs transfers in flight. */
#include "base/size.h"
#include "sys/json.h"
#include "tool/drill/drill.h"
#include "tool/load/stats.h"
#include "tool/opts.h"
#include "tool/report/files.h"
#include "tool/report/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SETTLE_MS   1500 /* time before the first fault, after the last fault, and between two faults */
#define TAKE_MAX    TP_MAX_NICS
#define JSON_POINTS 5000 /* maximum number of timeline points for each NIC */

static const char *const how_names[] = {[DRILL_HOLE] = "hole", [DRILL_DOWN] = "down", NULL};

struct drill {
    struct common common;
    char host[256];
    uint16_t port;
    const char *nics, *peer_nics, *take, *faults_file, *json, *report;
    struct report_files files;
    enum drill_how how;
    uint64_t faults, off_ms, duration_ms, size, depth;
    /* state of the running command */
    hawser *h;
    struct session s;
    struct measure m;
    struct drill_load load;
    struct drill_child child;
    char victim[TAKE_MAX][HAWSER_NIC_NAME];
    size_t n_victims;
    uint64_t taken, next; /* number of faults that have ended, and time of the next action */
    bool away;
    bool unchecked; /* a signal ended the drill before the server had checked the bytes */
    uint64_t bad, checked;
    double seconds;
};

/* ---- command line ------------------------------------------------------------------------------------------ */

static int parse_drill_nics(void *args, const char *text)
{
    return opts_nics(((struct drill *)args)->nics = text);
}

static int parse_drill_peer_nics(void *args, const char *text)
{
    return opts_nics(((struct drill *)args)->peer_nics = text);
}

static int parse_take(void *args, const char *text)
{
    return opts_nics(((struct drill *)args)->take = text);
}

static const struct opt rows[] = {
    OPT_CALL("take", 0, "A,B", parse_take,
             "disable these NICs of this node, one after another; all means every NIC in use (needs root)"),
    OPT_ENUM("how", 0, "HOW", struct drill, how, how_names, DRILL_HOLE,
             "hole: sent packets are silently lost; down: the link goes down (default: hole)"),
    OPT_NUMBER("faults", 0, "N", struct drill, faults, 1, DRILL_FAULTS, "with --take: number of faults (default: 5)"),
    OPT_TIME("off", 0, "TIME", struct drill, off_ms, 100, 60000, "with --take: duration of each fault (default: 1s)"),
    OPT_TIME("duration", 't', "TIME", struct drill, duration_ms, 4000, 86400000,
             "without --take: how long to watch (default: 30s)"),
    OPT_TEXT("marks", 0, "FILE", struct drill, faults_file,
             "without --take: read externally caused faults from FILE; each line is SECONDS NIC TEXT, where "
             "SECONDS is a time of CLOCK_MONOTONIC"),
    OPT_SIZE("size", 's', "SIZE", struct drill, size, 1, 1u << 30, "size of a write (default: 128KiB)"),
    OPT_NUMBER("depth", 'd', "N", struct drill, depth, 1, TP_MAX_DEPTH, "writes in flight (default: 64)"),
    OPT_CALL("nics", 'n', "A,B", parse_drill_nics, "NICs of this node (default: all with a route to the peer)"),
    OPT_CALL("peer-nics", 0, "A,B", parse_drill_peer_nics, "NICs of the peer, paired in order with --nics"),
    OPT_TEXT("json", 0, "FILE", struct drill, json, "write one JSON line to FILE; - is standard output"),
    OPT_TEXT("report", 0, "FILE", struct drill, report, "write one HTML file with the goodput of each NIC over time"),
    OPT_GROUP(common_opts, struct drill, common),
    {0},
};

/* Parses the arguments. Returns OPTS_GO, or the exit status. */
static int parse_drill_args(struct drill *d, int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "drill",
        .args = "HOST[:PORT] [OPTION...]",
        .about =
            "Keeps writes in flight to a node that runs `hawser serve` and reports what each lost NIC costs:\nhow long "
            "goodput takes to reach 90 % of what the other NICs carried, how long the longest write took,\nand "
            "how many bytes were sent again. drill disables NICs itself (--take), or watches while you disable "
            "NICs.\nExit status: 0 success, 1 failure (such as a failed write, goodput that did not recover, or wrong "
            "bytes), 2 usage error, 128 plus the signal's number if interrupted before all faults of --take, or before "
            "the check of the bytes.",
        .rows = rows,
        .least = 1,
        .most = 1,
        .too_few = "HOST is missing; `hawser serve` on the other node prints its addresses"};
    int rc = opts_parse(&o, d, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    d->port = HAWSER_DEFAULT_PORT;
    if (opts_host(argv[optind], d->host, sizeof d->host, &d->port) < 0)
        return tool_usage("drill", "%s", hw_error());
    if (d->peer_nics && !d->nics)
        return tool_usage("drill", "--peer-nics needs --nics");
    if (d->take && (d->duration_ms || d->faults_file))
        return tool_usage(
            "drill", "--duration and --marks are for externally caused faults, and cannot be combined with --take");
    if (!d->take && (d->faults || d->off_ms))
        return tool_usage("drill", "--faults and --off need --take");
    if (d->json && strcmp(d->json, "-") == 0 && d->report)
        return tool_usage(
            "drill", "--report cannot be combined with --json -, because the report is made from the lines in a file");
    d->faults = d->faults ? d->faults : 5;
    d->off_ms = d->off_ms ? d->off_ms : 1000;
    d->duration_ms = d->duration_ms ? d->duration_ms : 30000;
    d->size = d->size ? d->size : 128 << 10;
    d->depth = d->depth ? d->depth : 64;
    return OPTS_GO;
}

/* ---- causing faults ----------------------------------------------------------------------------------------- */

static bool is_used(const struct drill_load *l, const char *nic)
{
    for (size_t i = 0; i < l->n_nics; i++)
        if (strcmp(l->nic[i], nic) == 0)
            return true;
    return false;
}

static int choose_victims(struct drill *d)
{
    const struct drill_load *l = &d->load;
    if (l->n_nics == 0)
        return hw_fail(-EINVAL, "no NIC carries data to the peer");
    if (l->n_nics < 2)
        return hw_fail(-EINVAL, "%s is the only NIC in use, so the transfer could not continue without it", l->nic[0]);
    if (strcmp(d->take, "all") == 0) {
        memcpy(d->victim, l->nic, sizeof d->victim);
        d->n_victims = l->n_nics;
        return 0;
    }
    for (const char *at = d->take; *at && d->n_victims < TAKE_MAX; at += *at == ',') {
        size_t n = strcspn(at, ",");
        char *nic = d->victim[d->n_victims++];
        snprintf(nic, HAWSER_NIC_NAME, "%.*s", (int)n, at);
        if (!is_used(l, nic))
            return hw_fail(-EINVAL, "%s carries no data to the peer, so disabling this NIC would show nothing", nic);
        at += n;
    }
    return 0;
}

/* The first call chooses the NICs. Later calls disable the next NIC, or restore the disabled NIC, when it is time.
 * Returns 1 when all faults are done, else 0 or -errno. */
static int step_faults(struct drill *d, uint64_t now)
{
    const char *nic = d->n_victims ? d->victim[d->taken % d->n_victims] : NULL;
    uint64_t at;
    int rc;
    if (!nic)
        return choose_victims(d);
    if (now < d->next)
        return 0;
    if (!d->away && d->taken == d->faults)
        return 1;
    rc = drill_child_do(&d->child, nic, d->how, !d->away, &at);
    if (rc < 0)
        return rc;
    if (!d->away)
        (void)drill_add_fault(&d->load, nic, how_names[d->how], at);
    else
        d->load.fault[d->load.n_faults - 1].until = at;
    d->taken += d->away;
    d->next = at + (d->away ? SETTLE_MS : d->off_ms) * HW_MS;
    d->away = !d->away;
    return 0;
}

static int tick(void *arg, uint64_t now)
{
    struct drill *d = arg;
    double passed = (double)(now - d->load.start) / 1e9;
    const double GBps = passed > 0 ? (double)(d->load.ops * d->load.size) / 1e9 / passed : 0;
    if (d->take) {
        output_progress("%" PRIu64 " of %" PRIu64 " faults, %.1f s, %.2f GB/s", d->taken, d->faults, passed, GBps);
        return step_faults(d, now);
    }
    output_progress("%.1f of %.1f s, %.2f GB/s", passed, (double)d->duration_ms / 1e3, GBps);
    return now >= d->load.start + d->duration_ms * HW_MS;
}

/* ---- results --------------------------------------------------------------------------------------------------- */

static FILE *get_table(const struct drill *d)
{
    return d->files.shown;
}

static void print_head(struct drill *d)
{
    char size[32];
    FILE *out = get_table(d);
    session_print_head(&d->s, out);
    fprintf(out, "# %" PRIu64 " write%s of %s in flight\n", d->depth, hw_plural(d->depth),
            hw_format_size(d->size, size, sizeof size));
    fflush(out);
}

/* Returns the seconds from the start of the load to this time, or 0 for an earlier time. */
static double get_seconds(const struct drill_load *l, uint64_t at)
{
    return (double)(at - HW_MIN(at, l->start)) / 1e9;
}

static void print_fault(FILE *out, const struct drill_load *l, const struct drill_fault *f)
{
    char again[32], back[32] = "never";
    if (f->judged && !isnan(f->back_ms))
        snprintf(back, sizeof back, "%.0f", f->back_ms);
    fprintf(out, "%7.2f  %-15s %-14s", get_seconds(l, f->at), f->nic, f->text);
    if (f->judged)
        fprintf(out, " %9s %13.1f %11s\n", back, f->longest_ms, hw_format_size(f->again, again, sizeof again));
    else
        fprintf(out, " not measured: too close to the start or the end of the drill\n");
}

/* Median and 99th percentile over the n judged faults. A fault without recovery counts as INFINITY. */
struct share {
    size_t n;
    double p50, p99;
};

static struct share share_of(const struct drill_load *l, size_t field)
{
    struct share s = {0};
    double *v = calloc(l->n_faults + 1, sizeof *v);
    for (size_t i = 0; v && i < l->n_faults; i++) {
        const struct drill_fault *f = &l->fault[i];
        double x = *(const double *)((const char *)f + field);
        if (f->judged)
            v[s.n++] = isnan(x) ? INFINITY : x;
    }
    if (s.n) {
        s.p50 = stats_median(v, s.n); /* sorts v */
        s.p99 = v[HW_MIN(s.n - 1, s.n * 99 / 100)];
    }
    free(v);
    return s;
}

static uint64_t count_again(const struct drill_load *l)
{
    return l->n_win ? l->win[l->n_win - 1].again : 0;
}

static void note_figure(struct drill *d, const char *what, double ms, double p99, bool good)
{
    struct page_figure *g = &d->files.figure[d->files.n_figures++];
    snprintf(g->what, sizeof g->what, "%s", what);
    snprintf(g->value, sizeof g->value, isinf(ms) ? "never" : "%.0f", ms);
    snprintf(g->unit, sizeof g->unit, "%s", isinf(ms) ? "" : "ms");
    snprintf(g->class, sizeof g->class, "%s", good ? "good" : "bad");
    snprintf(g->note, sizeof g->note, isinf(p99) ? "median; for some faults, not within 1 s" : "median; p99 %.0f ms",
             p99);
}

/* Formats the time until goodput recovered, where INFINITY means never. */
static const char *format_back(double ms, char buf[32])
{
    snprintf(buf, 32, isinf(ms) ? "never" : "%.0f ms", ms);
    return buf;
}

static void print_results(struct drill *d)
{
    const struct drill_load *l = &d->load;
    FILE *out = get_table(d);
    char again[32], p50[32], p99[32];
    struct share back = share_of(l, offsetof(struct drill_fault, back_ms));
    struct share longest = share_of(l, offsetof(struct drill_fault, longest_ms));
    if (l->n_faults)
        fprintf(out, "%7s  %-15s %-14s %9s %13s %11s\n", "at s", "NIC", "what", "back ms", "longest ms", "sent again");
    for (size_t i = 0; i < l->n_faults; i++)
        print_fault(out, l, &l->fault[i]);
    if (!l->n_faults)
        fprintf(out, "no NIC was lost\n");
    if (back.n)
        fprintf(out,
                "back: time until goodput is at 90 %% of the other NICs' rate; never: not within 1 s\nmedians of %zu "
                "measured fault%s: back %s (p99 %s), longest write %.1f ms (p99 %.1f);\n%s sent again in total\n",
                back.n, hw_plural(back.n), format_back(back.p50, p50), format_back(back.p99, p99), longest.p50,
                longest.p99, hw_format_size(count_again(l), again, sizeof again));
    if (back.n) {
        note_figure(d, "Goodput back after", back.p50, back.p99, !isinf(back.p99));
        note_figure(d, "Longest write", longest.p50, longest.p99, true);
    }
    fprintf(out,
            "%.3f GB/s over %.1f s; writes: p50 %.2f ms, p99 %.2f ms; %" PRIu64 " bytes checked, %" PRIu64
            " of them wrong\n",
            (double)(l->ops * l->size) / 1e9 / d->seconds, d->seconds, (double)hw_hist_quantile(l->hist, 0.5) / 1e6,
            (double)hw_hist_quantile(l->hist, 0.99) / 1e6, d->checked, d->bad);
}

/* Writes each NIC's throughput over time. Windows are merged so that there are at most JSON_POINTS points per NIC. */
static void write_timeline(struct hw_json *j, const struct drill_load *l)
{
    size_t step = l->n_win / JSON_POINTS + 1;
    hw_json_array(j, "timeline");
    for (size_t i = step; i < l->n_win; i += step) {
        for (size_t k = 0; k < l->n_nics; k++) {
            hw_json_object(j, NULL);
            hw_json_double(j, "t_s", (double)(i * DRILL_WINDOW) / 1e9);
            hw_json_str(j, "nic", l->nic[k]);
            hw_json_double(j, "GBps",
                           (double)(l->win[i].nic[k] - l->win[i - step].nic[k]) / (double)(step * DRILL_WINDOW));
            hw_json_end(j);
        }
    }
    hw_json_end(j);
}

/* Writes the fault events that the report's plot marks. */
static void write_marks(struct hw_json *j, const struct drill_load *l)
{
    char text[160];
    hw_json_array(j, "faults");
    for (size_t i = 0; i < l->n_faults; i++) {
        const struct drill_fault *f = &l->fault[i];
        hw_json_object(j, NULL);
        hw_json_double(j, "t_s", get_seconds(l, f->at));
        snprintf(text, sizeof text, "%s: %s", f->nic, f->text);
        if (f->judged && !isnan(f->back_ms))
            snprintf(text, sizeof text, "%s: %s, goodput back after %.0f ms", f->nic, f->text, f->back_ms);
        hw_json_str(j, "text", text);
        hw_json_end(j);
        if (!f->until)
            continue;
        hw_json_object(j, NULL);
        hw_json_double(j, "t_s", get_seconds(l, f->until));
        snprintf(text, sizeof text, "%s: back up", f->nic);
        hw_json_str(j, "text", text);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void write_drill_faults(struct hw_json *j, const struct drill_load *l)
{
    hw_json_array(j, "drill");
    for (size_t i = 0; i < l->n_faults; i++) {
        const struct drill_fault *f = &l->fault[i];
        hw_json_object(j, NULL);
        hw_json_str(j, "nic", f->nic);
        hw_json_str(j, "what", f->text);
        hw_json_double(j, "t_s", get_seconds(l, f->at));
        hw_json_bool(j, "judged", f->judged);
        hw_json_double(j, "back_ms", f->judged ? f->back_ms : NAN);
        hw_json_double(j, "longest_ms", f->judged ? f->longest_ms : NAN);
        hw_json_u64(j, "retaken_bytes", f->again);
        hw_json_end(j);
    }
    hw_json_end(j);
}

/* Writes a JSON line that the report reads like a line of `hawser bench`. */
static int write_json(const struct drill *d, FILE *out)
{
    const struct drill_load *l = &d->load;
    struct hw_json j;
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", "hawser-drill-1");
    hw_json_str(&j, "op", "write");
    hw_json_str(&j, "mem", "host");
    hw_json_array(&j, "nics");
    for (size_t i = 0; i < l->n_nics; i++)
        hw_json_str(&j, NULL, l->nic[i]);
    hw_json_end(&j);
    hw_json_u64(&j, "size", l->size);
    hw_json_u64(&j, "iters", l->ops);
    hw_json_u64(&j, "depth", l->depth);
    hw_json_double(&j, "seconds", d->seconds);
    hw_json_double(&j, "GBps", (double)(l->ops * l->size) / 1e9 / d->seconds);
    hw_json_double(&j, "p50_us", (double)hw_hist_quantile(l->hist, 0.5) / 1e3);
    hw_json_double(&j, "p99_us", (double)hw_hist_quantile(l->hist, 0.99) / 1e3);
    hw_json_double(&j, "p999_us", (double)hw_hist_quantile(l->hist, 0.999) / 1e3);
    hw_json_u64(&j, "verified_bytes", d->checked);
    hw_json_u64(&j, "bad_bytes", d->bad);
    hw_json_u64(&j, "lost_channels", stats_lost(d->s.peer));
    hw_json_u64(&j, "retaken_bytes", count_again(l));
    write_drill_faults(&j, l);
    write_timeline(&j, l);
    write_marks(&j, l);
    output_json_channels(&j, d->s.peer);
    hw_json_end(&j);
    int rc = hw_json_finish(&j);
    return rc < 0 ? hw_wrap(rc, "writing the JSON line") : 0;
}

/* ---- running the drill ----------------------------------------------------------------------------------------- */

static int run_load(struct drill *d)
{
    struct tp_request q = {.type = TP_BEGIN, .first = 0, .count = (uint32_t)d->depth};
    HW_AUTO_FREE struct tp_reply *r = calloc(1, sizeof *r);
    int patience = session_patience_ms(d->size * d->depth);
    if (!r)
        return hw_no_memory("messages");
    int rc = buffer_fill(&d->m.buf, 0, (uint32_t)d->depth);
    if (rc == 0)
        rc = session_call(&d->s, &q, r, patience);
    if (rc < 0)
        return rc;
    d->load = (struct drill_load){.s = &d->s,
                                  .m = &d->m,
                                  .size = d->size,
                                  .depth = (uint32_t)d->depth,
                                  .watch = !d->take && !d->faults_file,
                                  .tick = tick,
                                  .arg = d};
    uint64_t start = hw_now();
    d->next = start + SETTLE_MS * HW_MS;
    d->m.broken = true; /* the server might not answer requests until all writes have completed */
    rc = drill_load_run(&d->load);
    d->seconds = (double)(hw_now() - start) / 1e9;
    if (rc < 0)
        return rc;
    d->m.broken = false;
    q = (struct tp_request){.type = TP_END, .first = 0, .count = (uint32_t)d->depth};
    rc = session_call(&d->s, &q, r, patience);
    if (rc == -EINTR && session_stopped(&d->s)) {
        d->unchecked = true; /* the results so far are still reported */
        d->m.broken = true;
        return 0;
    }
    d->bad = r->bad;
    d->checked = r->checked;
    return rc;
}

static int run_session(struct drill *d)
{
    const struct hawser_connect_options o = {.size = sizeof o, .nics = d->nics, .peer_nics = d->peer_nics};
    struct measure_plan plan = {.op = TP_WRITE,
                                .size = d->size,
                                .gpu = BUFFER_HOST,
                                .peer_gpu = TP_HOST,
                                .depth = (uint32_t)d->depth,
                                .depth_given = true,
                                .verify = true};
    if (getrandom(&plan.seed, sizeof plan.seed, 0) != (ssize_t)sizeof plan.seed)
        return hw_fail(-EIO, "the kernel returned no random bytes for the pattern's seed");
    int rc = common_open(&d->common, &d->h);
    if (rc == 0)
        rc = session_open(&d->s, d->h, d->host, d->port, &o);
    if (rc == 0)
        rc = measure_open(&d->m, &d->s, &plan);
    if (rc < 0)
        return rc;
    print_head(d);
    rc = run_load(d);
    output_progress(NULL);
    if (rc == 0 && d->faults_file)
        rc = drill_read_faults(&d->load, d->faults_file);
    if (rc == 0) {
        drill_judge(&d->load);
        print_results(d);
        rc = d->files.lines ? write_json(d, d->files.lines) : 0;
    }
    HW_KEEP_ERROR();
    measure_close(&d->m);
    return rc;
}

/* Returns true if goodput recovered after every judged fault. */
static bool came_back(const struct drill_load *l)
{
    for (size_t i = 0; i < l->n_faults; i++)
        if (l->fault[i].judged && isnan(l->fault[i].back_ms))
            return false;
    return true;
}

static int run_drill(struct drill *d)
{
    int rc = report_files_open(&d->files, d->json, d->report), code = TOOL_OK;
    d->files.title = "hawser drill";
    if (rc == 0 && d->take)
        rc = drill_child_start(&d->child);
    if (rc == 0)
        rc = run_session(d);
    drill_child_end(&d->child); /* before the rest, because this call restores the NIC */
    output_progress(NULL);
    if (d->report && d->s.peer)
        run_ask(&d->files.run, &d->s, d->host);
    if (rc < 0) {
        HW_KEEP_ERROR();
        (void)report_files_close(&d->files);
    } else {
        rc = report_files_close(&d->files);
    }
    if (rc < 0)
        code = tool_fail("drill", "%s", hw_error());
    else if (d->take && d->taken < d->faults)
        code = tool_interrupted("drill", "after %" PRIu64 " of %" PRIu64 " faults", d->taken, d->faults);
    else if (d->unchecked)
        code = tool_interrupted("drill", "the bytes were not checked");
    else if (d->bad)
        code = tool_fail("drill", "%" PRIu64 " byte%s arrived with wrong contents", d->bad, hw_plural(d->bad));
    else if (!came_back(&d->load))
        code = tool_fail("drill", "goodput did not recover within 1 s");
    session_close(&d->s);
    hawser_close(d->h);
    drill_load_free(&d->load);
    return code;
}

int cmd_drill(int argc, char **argv)
{
    struct drill *d = calloc(1, sizeof *d);
    if (!d)
        return tool_fail("drill", "out of memory");
    int rc = parse_drill_args(d, argc, argv);
    if (rc == OPTS_GO) {
        tool_catch_signals();
        rc = run_drill(d);
    }
    common_free(&d->common);
    free(d);
    return rc;
}
