/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a field test, in order. The remaining time is divided among the remaining steps by their weights. */
#include "tool/field/field.h"
#include "tool/report/output.h"

#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KNOCK_MS     3000
#define LEAST_MS     1000  /* ms; a step is skipped if less time than this is left */
#define PATIENCE_MS  8000  /* ms; minimum time for a step with a smaller share, if enough time is left */
#define SAYS_MS      500   /* ms for validate to report that its time limit has passed */
#define BRIEF_MS     2000  /* ms per unit of weight; with less time, plan_steps() omits measurements */
#define DURATION_MS  10000 /* maximum duration of one measurement */
#define ROUNDS       3ull
#define ROUND_MS     500
#define PING_MS      1000
#define OPERATION_MS 50 /* intended duration of one operation in throughput tests */
#define PIECE        65536
#define SMALL_PIECE  4096

/* ---- state of the parts -------------------------------------------------------------------------- */

const char *field_part_name(enum field_part p)
{
    static const char *const name[FIELD_PARTS] = {"inventory", "doctor", "validate", "bench", "rivals", "drill"};
    return name[p];
}

/* Records why a part is not ok. The first reason is kept as the part's reason; every reason is added to list if list
 * is not NULL. */
static void note_reason(struct field *f, enum field_part part, const char *list, const char *fmt, va_list ap)
{
    char text[HW_ERR_TEXT];
    struct field_state *s = &f->part[part];
    vsnprintf(text, sizeof text, fmt, ap);
    if (!*s->why)
        snprintf(s->why, sizeof s->why, "%s", text);
    if (list)
        json_array_append_new(json_object_get(f->doc, list), json_sprintf("%s: %s", field_part_name(part), text));
}

void field_wrong(struct field *f, enum field_part part, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    note_reason(f, part, "findings", fmt, ap);
    va_end(ap);
    f->part[part].wrong++;
}

void field_failed(struct field *f, enum field_part part, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    note_reason(f, part, "problems", fmt, ap);
    va_end(ap);
    f->part[part].failed++;
}

void field_skipped(struct field *f, enum field_part part, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    note_reason(f, part, NULL, fmt, ap);
    va_end(ap);
    f->part[part].skipped++;
}

uint64_t field_begin(struct field *f, enum field_part part, unsigned weight, const char *what, uint64_t *share)
{
    const uint64_t now = hw_now(), left = now < f->end ? (f->end - now) / HW_MS : 0;
    const uint64_t own = left * weight / HW_MAX(f->weight_left, weight);
    if (share)
        *share = own;
    f->weight_left -= HW_MIN(f->weight_left, weight);
    if (!tool_stop && !f->gone && left >= LEAST_MS) {
        output_progress("%s, %llu s left", what, (unsigned long long)left / 1000);
        return HW_MIN(HW_MAX(own, (uint64_t)PATIENCE_MS), left);
    }
    field_skipped(f, part, "%s",
                  tool_stop ? "interrupted"
                  : f->gone ? "the peer no longer answers"
                            : "too little time was left");
    json_object_set_new(f->doc, "complete", json_false());
    return 0;
}

/* ---- reachability of the peer ---------------------------------------------------------------------- */

/* Returns true if a program accepts connections on the peer's port. */
static bool is_peer_there(const struct field *f)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char port[8];
    bool there = false;
    snprintf(port, sizeof port, "%u", f->port);
    if (getaddrinfo(f->host, port, &hints, &list) != 0)
        return false;
    for (const struct addrinfo *a = list; a && !there; a = a->ai_next) {
        HW_AUTO_CLOSE int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        int err = -1;
        socklen_t len = sizeof err;
        if (fd >= 0 && (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) &&
            poll(&p, 1, KNOCK_MS) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0)
            there = err == 0;
    }
    freeaddrinfo(list);
    return there;
}

void field_child_failed(struct field *f, enum field_part part, const char *what, const struct field_result *r)
{
    char status[32];
    snprintf(status, sizeof status, "status %d", r->status);
    const char *why = r->late ? "the command did not end within its time limit" : *r->why ? r->why : status;
    if (tool_stop) {
        field_skipped(f, part, "interrupted");
        return;
    }
    field_failed(f, part, "%s: %s", what, why);
    f->gone = !is_peer_there(f);
    if (f->gone)
        field_failed(f, part, "%s no longer answers", f->target);
}

/* ---- command lines of child processes ------------------------------------------------------------------ */

void field_command(const struct field *f, struct field_args *a, const char *cmd)
{
    field_arg(a, "hawser");
    field_arg(a, cmd);
    field_arg(a, f->target);
    if (f->common.key_file) {
        field_arg(a, "--key-file");
        field_arg(a, f->common.key_file);
    }
    if (f->common.insecure)
        field_arg(a, "--insecure");
    for (size_t i = 0; i < f->common.n_knobs; i++) {
        field_arg(a, "--knob");
        field_arg(a, f->common.knobs[i]);
    }
}

json_t *field_pick(const json_t *row, const char *const *keys)
{
    json_t *out = json_object();
    for (; *keys; keys++) {
        json_t *v = json_object_get(row, *keys);
        json_object_set(out, *keys, v ? v : json_null());
    }
    return out;
}

/* ---- validate ---------------------------------------------------------------------------------------------- */

static void validate_nic(struct field *f, const char *nic)
{
    static const char *const keys[] = {"nic", "channels", "proved", "why", NULL};
    struct field_args a = {0};
    struct field_result r;
    char what[64], limit[32];
    snprintf(what, sizeof what, "validate %s", nic);
    const uint64_t ms = field_begin(f, FIELD_VALIDATE, 1, what, NULL);
    if (!ms)
        return;
    snprintf(limit, sizeof limit, "%llums", (unsigned long long)ms);
    field_command(f, &a, "validate");
    const char *const own[] = {"--nic", nic, "--size", "2MiB", "--timeout", limit, "--json", "-"};
    for (size_t i = 0; i < HW_ARRAY_LEN(own); i++)
        field_arg(&a, own[i]);
    int rc = field_run(&a, ms + SAYS_MS, &r);
    json_t *row = json_array_get(r.rows, 0);
    f->part[FIELD_VALIDATE].done++;
    if (rc < 0) {
        field_failed(f, FIELD_VALIDATE, "%s: %s", nic, hw_error());
    } else if (!json_is_object(row)) {
        field_child_failed(f, FIELD_VALIDATE, nic, &r);
    } else {
        const char *why = json_string_value(json_object_get(row, "why"));
        json_array_append_new(json_object_get(f->doc, "validate"), field_pick(row, keys));
        if (r.status != 0 && tool_stop)
            field_skipped(f, FIELD_VALIDATE, "interrupted");
        else if (r.status != 0) {
            field_wrong(f, FIELD_VALIDATE, "%s: %s", nic, why ? why : r.why);
            f->gone = !is_peer_there(f);
        }
    }
    json_decref(r.rows);
}

/* ---- bench --------------------------------------------------------------------------------------------------- */

static const struct test {
    const char *name;
    unsigned weight;
    bool raw;
} tests[] = {{"small", 1, false}, {"write", 3, true}, {"both", 2, false}, {"latency", 2, true}, {"lists", 3, false}};

/* Returns the size of an operation that takes about OPERATION_MS at this rate: a power of two from 256 KiB to 64
 * MiB. */
static uint64_t choose_size(double GBps)
{
    uint64_t size = 256u << 10;
    while (size < 64u << 20 && (double)size * 2 < GBps * 1e6 * OPERATION_MS)
        size *= 2;
    return size;
}

static void keep_bench_row(struct field *f, const struct test *t, const char *nic, const json_t *row)
{
    static const char *const keys[] = {"op",
                                       "size",
                                       "blocks",
                                       "iters",
                                       "seconds",
                                       "GBps",
                                       "ops_per_s",
                                       "mean_us",
                                       "p50_us",
                                       "p99_us",
                                       "cpu_s_per_GB",
                                       "peer_cpu_s_per_GB",
                                       "verified_bytes",
                                       "bad_bytes",
                                       "lost_channels",
                                       "raw_GBps",
                                       "ratio_raw",
                                       "raw_streams",
                                       "raw_congestion",
                                       "raw_pingpong_spin_us",
                                       "raw_pingpong_block_us",
                                       "ended_early",
                                       NULL};
    static const char *const nic_keys[] = {"nic", "peer_nic", "GBps", NULL};
    json_t *kept = json_pack("{s:s,s:s}", "nic", nic ? nic : "all", "test", t->name), *nics = json_array(), *n;
    json_t *picked = field_pick(row, keys);
    size_t i;
    json_object_update(kept, picked);
    json_decref(picked);
    json_array_foreach(json_object_get(row, "per_nic"), i, n) json_array_append_new(nics, field_pick(n, nic_keys));
    json_object_set_new(kept, "per_nic", nics);
    if (strcmp(t->name, "latency") == 0)
        json_object_set_new(kept, "GBps", json_null()); /* for 8 bytes the rate is meaningless */
    json_array_append_new(json_object_get(f->doc, "bench"), kept);
    if (strcmp(t->name, "small") == 0)
        f->all_GBps = json_number_value(json_object_get(row, "GBps"));
    if (json_integer_value(json_object_get(row, "bad_bytes")) > 0)
        field_wrong(f, FIELD_BENCH, "%s, %s: bytes arrived with wrong contents", nic ? nic : "all NICs", t->name);
    if (json_integer_value(json_object_get(row, "lost_channels")) > 0)
        field_wrong(f, FIELD_BENCH, "%s, %s: connections were lost", nic ? nic : "all NICs", t->name);
}

struct bench_words {
    char size[32], blocks[96], duration[32];
    bool rounds; /* hawser and plain sockets alternate several times */
};

/* Returns the duration of one measurement in milliseconds. *rounds is set if there is time for several rounds of
 * hawser and plain sockets. */
static uint64_t choose_duration(const struct field *f, const struct test *t, uint64_t share, bool *rounds)
{
    const bool ping = strcmp(t->name, "latency") == 0;
    const uint64_t fit = HW_MIN(share / t->weight * 4 / 10, (uint64_t)DURATION_MS);
    *rounds = t->raw && !ping && !f->each_ms && fit >= ROUNDS * ROUND_MS;
    if (f->each_ms)
        return f->each_ms;
    if (ping) /* plain sockets then do the same number of round trips twice, and take longer on a busy machine */
        return HW_MIN(HW_MAX(fit / 4, (uint64_t)50), (uint64_t)PING_MS);
    return HW_MAX(*rounds ? fit / ROUNDS : fit, (uint64_t)50);
}

static void add_bench_options(struct field *f, struct field_args *a, const struct test *t, const char *nic,
                              struct bench_words *w)
{
    const uint64_t size = choose_size(f->all_GBps / (double)(nic ? HW_MAX(f->n_nics, (size_t)1) : 1));
    snprintf(w->size, sizeof w->size, "%llu", (unsigned long long)size);
    snprintf(w->blocks, sizeof w->blocks, "%llux%d,%llux%d", (unsigned long long)size / PIECE, PIECE,
             (unsigned long long)size / SMALL_PIECE, SMALL_PIECE);
    const char *const name = t->name;
    if (nic) {
        field_arg(a, "--nics");
        field_arg(a, nic);
    }
    if (strcmp(name, "lists") == 0) {
        field_arg(a, "--blocks");
        field_arg(a, w->blocks);
    } else if (strcmp(name, "latency") == 0) {
        field_arg(a, "--op");
        field_arg(a, "pingpong");
    } else {
        field_arg(a, "--size");
        field_arg(a, strcmp(name, "small") == 0 ? "1MiB" : w->size);
    }
    if (strcmp(name, "both") == 0)
        field_arg(a, "--bidir");
    if (t->raw) {
        field_arg(a, "--compare-raw");
        field_arg(a, "--rounds");
        field_arg(a, w->rounds ? "3" : "1");
    }
    const char *const own[] = {"--duration", w->duration, "--json", "-"};
    for (size_t i = 0; i < HW_ARRAY_LEN(own); i++)
        field_arg(a, own[i]);
}

/* Runs one bench test on one NIC, or on all NICs together if nic is NULL. */
static void bench_nics(struct field *f, const struct test *t, const char *nic)
{
    struct field_args a = {0};
    struct field_result r;
    struct bench_words w;
    char what[64];
    snprintf(what, sizeof what, "%s, %s", nic ? nic : "all NICs", t->name);
    uint64_t share;
    const uint64_t ms = field_begin(f, FIELD_BENCH, t->weight, what, &share);
    if (!ms)
        return;
    snprintf(w.duration, sizeof w.duration, "%llums", (unsigned long long)choose_duration(f, t, share, &w.rounds));
    field_command(f, &a, "bench");
    add_bench_options(f, &a, t, nic, &w);
    int rc = field_run(&a, ms, &r);
    json_t *row;
    size_t i;
    f->part[FIELD_BENCH].done++;
    json_array_foreach(r.rows, i, row) keep_bench_row(f, t, nic, row);
    if (rc < 0)
        field_failed(f, FIELD_BENCH, "%s: %s", what, hw_error());
    else if (r.late && json_array_size(r.rows) > 0)
        field_skipped(f, FIELD_BENCH, "%s: cut short at its deadline", what);
    else if (r.status != 0 || json_array_size(r.rows) == 0)
        field_child_failed(f, FIELD_BENCH, what, &r);
    json_decref(r.rows);
}

/* Measures suspiciously slow NICs a second time, because other load on the machine may have disturbed the first
 * measurement. */
static void bench_again(struct field *f, const char *op, const struct test *t)
{
    const char *nic[FIELD_NICS];
    char name[HAWSER_NIC_NAME];
    const size_t n = field_suspects(f, op, nic);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s", nic[i]);
        bench_nics(f, t, name);
    }
}

static void bench_all(struct field *f)
{
    for (size_t k = 0; k < HW_ARRAY_LEN(tests); k++)
        bench_nics(f, &tests[k], NULL);
    for (size_t i = 0; f->n_nics > 1 && i < f->n_nics; i++)
        for (size_t k = 1; k < (f->brief ? 2 : HW_ARRAY_LEN(tests)); k++)
            bench_nics(f, &tests[k], f->nic[i]);
    bench_again(f, "write", &tests[1]);
    bench_again(f, "read", &tests[2]);
}

/* ---- drill ------------------------------------------------------------------------------------------------------ */

static void run_drill(struct field *f)
{
    static const char *const keys[] = {"nic", "what", "judged", "back_ms", "longest_ms", "retaken_bytes", NULL};
    struct field_args a = {0};
    struct field_result r;
    char faults[16];
    if (!f->drill || f->n_nics < 2 || geteuid() != 0) {
        field_skipped(f, FIELD_DRILL, "%s",
                      !f->drill       ? "--drill was not given"
                      : f->n_nics < 2 ? "fewer than two NICs are in use"
                                      : "drill needs root");
        return;
    }
    const uint64_t ms = field_begin(f, FIELD_DRILL, 4, "drill", NULL);
    if (!ms)
        return;
    snprintf(faults, sizeof faults, "%zu", f->n_nics);
    field_command(f, &a, "drill");
    const char *const own[] = {"--take", "all", "--faults", faults, "--json", "-"};
    for (size_t i = 0; i < HW_ARRAY_LEN(own); i++)
        field_arg(&a, own[i]);
    int rc = field_run(&a, HW_MAX(ms, (uint64_t)(10000 + 4000 * f->n_nics)), &r);
    json_t *row = json_array_get(r.rows, 0), *faulty;
    size_t i;
    f->part[FIELD_DRILL].done++;
    json_array_foreach(json_object_get(row, "drill"), i, faulty)
        json_array_append_new(json_object_get(f->doc, "drill"), field_pick(faulty, keys));
    if (rc < 0)
        field_failed(f, FIELD_DRILL, "%s", hw_error());
    else if (!row || tool_stop)
        field_child_failed(f, FIELD_DRILL, "drill", &r);
    else if (r.status != 0)
        field_wrong(f, FIELD_DRILL, "%s", r.why);
    json_decref(r.rows);
}

/* ---- the whole test ---------------------------------------------------------------------------------- */

static const char *get_state(const struct field_state *s)
{
    return s->failed                ? "failed"
           : s->wrong               ? "wrong"
           : s->skipped && !s->done ? "skipped"
           : s->skipped             ? "partly"
                                    : "ok";
}

static void end_part(struct field *f, enum field_part p, uint64_t from)
{
    struct field_state *s = &f->part[p];
    s->seconds = (double)(hw_now() - from) / 1e9;
    json_array_append_new(json_object_get(f->doc, "parts"),
                          json_pack("{s:s,s:s,s:s?,s:f}", "part", field_part_name(p), "state", get_state(s), "why",
                                    *s->why ? s->why : NULL, "seconds", s->seconds));
    if (s->failed)
        json_object_set_new(f->doc, "complete", json_false());
    output_progress(NULL);
    printf("%d/%d %-10s %-8s %6.1f s  %s\n", p + 1, FIELD_PARTS, field_part_name(p), get_state(s), s->seconds, s->why);
    fflush(stdout);
}

static void measure_part(struct field *f, enum field_part p)
{
    switch (p) {
    case FIELD_DOCTOR:
        field_doctor(f);
        break;
    case FIELD_VALIDATE:
        for (size_t i = 0; i < f->n_nics; i++)
            validate_nic(f, f->nic[i]);
        break;
    case FIELD_BENCH:
        bench_all(f);
        field_judge(f);
        break;
    case FIELD_RIVALS:
        field_rivals(f);
        break;
    case FIELD_DRILL:
        run_drill(f);
        break;
    default:
        break;
    }
}

/* Chooses the steps. If a unit of weight would get less than BRIEF_MS and --each was not given, each NIC alone is
 * measured only by the test "write". */
static void plan_steps(struct field *f)
{
    const unsigned n = (unsigned)f->n_nics,
                   most = 2 + n + 11 + (n > 1 ? n * 10 : 0) + (f->ssh ? 8 : 4) + (f->drill ? 4 : 0);
    f->brief = !f->each_ms && f->total_ms < (uint64_t)most * BRIEF_MS;
    f->weight_left = f->brief && n > 1 ? most - n * 7 : most;
    json_object_set_new(json_object_get(f->doc, "asked"), "brief", json_boolean(f->brief));
}

int field_measure(struct field *f)
{
    f->start = hw_now();
    f->end = f->start + f->total_ms * HW_MS;
    int rc = field_inventory(f);
    if (rc < 0)
        return rc;
    end_part(f, FIELD_INVENTORY, f->start);
    plan_steps(f);
    for (int p = FIELD_DOCTOR; p < FIELD_PARTS; p++) {
        const uint64_t from = hw_now();
        measure_part(f, (enum field_part)p);
        end_part(f, (enum field_part)p, from);
    }
    if (tool_stop)
        json_object_set_new(f->doc, "complete", json_false());
    json_object_set_new(f->doc, "seconds", json_real((double)(hw_now() - f->start) / 1e9));
    return 0;
}
