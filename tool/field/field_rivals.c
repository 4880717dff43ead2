/* SPDX-License-Identifier: Apache-2.0 */
/* Measures other programs between the same nodes, if they are installed: iperf3, NCCL over its own sockets and over
 * hawser, and NIXL over UCX. These programs need a process on the other node, which is started through --ssh. iperf3
 * can also use a server that already runs there. */
#include "tool/field/field.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IPERF_PORT   "5201"
#define PATIENCE_MS  5000
#define SERVER_TRIES 10
#define TRY_MS       200
#define WORDS        1024

enum rival { IPERF, NCCL, NIXL };

/* Records the outcome of one program. row is the array of measured rows, or NULL; this function takes ownership of the
 * array. */
static void note_rival(struct field *f, enum rival v, const char *state, const char *why, json_t *row)
{
    static const char *const name[] = {[IPERF] = "iperf3", [NCCL] = "NCCL", [NIXL] = "NIXL over UCX"};
    json_t *to = json_pack("{s:s,s:s,s:s?}", "rival", name[v], "state", state, "why", why);
    json_object_set_new(to, "rows", row ? row : json_array());
    json_array_append_new(json_object_get(f->doc, "rivals"), to);
    if (strcmp(state, "failed") == 0)
        field_failed(f, FIELD_RIVALS, "%s: %s", name[v], why);
    else if (strcmp(state, "measured") == 0)
        f->part[FIELD_RIVALS].done++;
    else
        field_skipped(f, FIELD_RIVALS, "%s: %s", name[v], why ? why : state);
}

static bool is_installed(const char *const *command)
{
    struct field_args a = {0};
    struct field_result r;
    for (; *command; command++)
        field_arg(&a, *command);
    const bool is = field_run(&a, PATIENCE_MS, &r) == 0 && r.status == 0;
    json_decref(r.rows);
    return is;
}

/* ---- iperf3 ------------------------------------------------------------------------------------- */

/* Returns the NIC that has the address, or NULL. */
static const char *find_nic_of(const struct field *f, const char *address)
{
    json_t *p;
    size_t i;
    json_array_foreach(json_object_get(f->doc, "paths"), i, p)
    {
        const char *local = json_string_value(json_object_get(p, "local"));
        if (local && address && strcmp(local, address) == 0)
            return json_string_value(json_object_get(p, "nic"));
    }
    return NULL;
}

/* Returns hawser's row of a test on one NIC, or on all NICs together if nic is "all". Returns NULL if there is none. */
static const json_t *find_bench(const struct field *f, const char *nic, const char *test)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(f->doc, "bench"), i, row)
    {
        const char *its = json_string_value(json_object_get(row, "nic"));
        const char *t = json_string_value(json_object_get(row, "test"));
        if (its && t && strcmp(its, nic) == 0 && strcmp(t, test) == 0)
            return row;
    }
    return NULL;
}

/* Returns one row made from iperf3's output. If iperf3 measured nothing, returns NULL and stores iperf3's error
 * message, if any, in *why. */
static json_t *read_iperf(struct field *f, const json_t *said, const char **why)
{
    json_t *start = json_object_get(said, "start"), *end = json_object_get(said, "end");
    json_t *received = json_object_get(end, "sum_received");
    const char *local =
        json_string_value(json_object_get(json_array_get(json_object_get(start, "connected"), 0), "local_host"));
    const double bits = json_number_value(json_object_get(received, "bits_per_second"));
    *why = json_string_value(json_object_get(said, "error"));
    if (*why || bits <= 0)
        return NULL;
    const char *nic = find_nic_of(f, local);
    const json_t *own = find_bench(f, nic && f->n_nics > 1 ? nic : "all", "write");
    const double own_GBps = json_number_value(json_object_get(own, "GBps"));
    json_t *row = json_pack("{s:s?,s:f,s:f}", "nic", nic, "GBps", bits / 8e9, "seconds",
                            json_number_value(json_object_get(received, "seconds")));
    json_t *congestion = json_object_get(end, "sender_tcp_congestion");
    json_object_set_new(row, "congestion", congestion ? json_incref(congestion) : json_null());
    json_object_set_new(row, "hawser_ratio", own_GBps > 0 ? json_real(own_GBps * 8e9 / bits) : json_null());
    return row;
}

/* Adds the words of --ssh, with {} replaced with the host. The words are stored in text. */
static void add_ssh(const struct field *f, struct field_args *a, char text[WORDS])
{
    size_t n = 0;
    char *at = text, *word;
    for (const char *s = f->ssh; *s && n < WORDS - 1;)
        if (strncmp(s, "{}", 2) == 0) {
            n += (size_t)snprintf(text + n, WORDS - n, "%s", f->host);
            n = HW_MIN(n, (size_t)WORDS - 1);
            s += 2;
        } else {
            text[n++] = *s++;
        }
    text[n] = 0;
    while ((word = strsep(&at, " ")))
        if (*word)
            field_arg(a, word);
}

/* Runs the iperf3 client. If the server was started just now, tries up to SERVER_TRIES times while the connection is
 * refused. */
static json_t *ask_iperf(struct field *f, const struct field_args *client, uint64_t ms, bool started, char *why,
                         size_t cap)
{
    json_t *row = NULL;
    for (int i = 0; !row && i < (started ? SERVER_TRIES : 1) && !tool_stop; i++) {
        struct field_result r;
        const char *said = NULL;
        if (i)
            usleep(TRY_MS * 1000);
        if (field_run(client, ms, &r) < 0)
            snprintf(why, cap, "%s", hw_error());
        else if (!(row = read_iperf(f, json_array_get(r.rows, 0), &said)))
            snprintf(why, cap, "%s", said ? said : *r.why ? r.why : "iperf3 measured nothing");
        const bool again = !row && said && strstr(said, "refused");
        json_decref(r.rows);
        if (!again)
            break;
    }
    return row;
}

static void run_iperf(struct field *f)
{
    static const char *const version[] = {"iperf3", "--version", NULL};
    struct field_args client = {0}, server = {0};
    struct field_child there = {.pid = -1};
    char text[WORDS], seconds[16], limit[16], why[HW_ERR_TEXT] = "";
    if (!is_installed(version)) {
        note_rival(f, IPERF, "not installed", NULL, NULL);
        return;
    }
    uint64_t share;
    const uint64_t ms = field_begin(f, FIELD_RIVALS, 4, "iperf3", &share);
    if (!ms)
        return;
    snprintf(seconds, sizeof seconds, "%u",
             (unsigned)HW_MIN(HW_MAX((f->each_ms ? f->each_ms : share / 2) / 1000, 1u), 10u));
    snprintf(limit, sizeof limit, "%u", (unsigned)(ms / 1000) + 10);
    const char *congestion = json_string_value(json_object_get(find_bench(f, "all", "write"), "raw_congestion"));
    const char *const words[] = {
        "iperf3",   "-c", f->host, "-p", IPERF_PORT, "-J", "-P", "4", "-t", seconds, congestion ? "-C" : NULL,
        congestion, NULL};
    for (size_t i = 0; words[i]; i++)
        field_arg(&client, words[i]);
    if (f->ssh) { /* timeout(1) ends the server even if this process dies */
        const char *const own[] = {"timeout", limit, "iperf3", "-s", "-1", "-p", IPERF_PORT};
        add_ssh(f, &server, text);
        for (size_t i = 0; i < HW_ARRAY_LEN(own); i++)
            field_arg(&server, own[i]);
        if (field_start(&there, &server) < 0)
            there.pid = -1;
    }
    json_t *row = ask_iperf(f, &client, ms + PATIENCE_MS, there.pid > 0, why, sizeof why);
    if (there.pid > 0) {
        struct field_result r;
        field_finish(&there, row ? PATIENCE_MS : 0, &r);
        if (!row && r.status == 127)
            snprintf(why, sizeof why, "`timeout` or `iperf3` was not found on the other node, or --ssh is wrong");
        json_decref(r.rows);
    }
    if (row)
        note_rival(f, IPERF, "measured", NULL, json_pack("[o]", row));
    else if (!f->ssh && strstr(why, "refused"))
        note_rival(f, IPERF, "skipped", "no `iperf3 -s` runs on the other node, and without --ssh none can be started",
                   NULL);
    else
        note_rival(f, IPERF, tool_stop ? "skipped" : "failed", tool_stop ? "interrupted" : why, NULL);
}

/* ---- NCCL ----------------------------------------------------------------------------------------- */

/* Returns why NCCL cannot be measured, or NULL. A node is null in doc if its inventory failed. */
static const char *find_nccl_obstacle(const struct field *f)
{
    const json_t *nodes = json_object_get(f->doc, "nodes"), *here = json_object_get(nodes, "here"),
                 *there = json_object_get(nodes, "there");
    if (!json_is_object(here))
        return "the GPUs of this node are unknown, because its inventory failed";
    if (!json_is_object(there))
        return "the GPUs of the other node are unknown, because its inventory failed";
    if (json_array_size(json_object_get(here, "gpus")) == 0)
        return "no GPU on this node";
    if (json_array_size(json_object_get(there, "gpus")) == 0)
        return "no GPU on the other node";
    return f->ssh ? NULL : "the comparison needs --ssh";
}

static void run_nccl(struct field *f)
{
    static const char *const keys[] = {"op",           "size",    "config",        "network",
                                       "ranks",        "time_us", "algbw_GBps",    "busbw_GBps",
                                       "cpu_s_per_GB", "errors",  "ratio_default", NULL};
    struct field_args a = {0};
    struct field_result r;
    char own[256] = "", hosts[520];
    const char *obstacle = find_nccl_obstacle(f);
    if (obstacle) {
        note_rival(f, NCCL, "skipped", obstacle, NULL);
        return;
    }
    const uint64_t ms = field_begin(f, FIELD_RIVALS, 6, "NCCL", NULL);
    if (!ms)
        return;
    (void)gethostname(own, sizeof own - 1);
    snprintf(hosts, sizeof hosts, "%s,%s", own, f->host);
    const char *const words[] = {"hawser", "nccl",         "bench",    "--hosts", hosts,    "--ssh", f->ssh,
                                 "--size", "8,1MiB,64MiB", "--rounds", "1",       "--json", "-"};
    for (size_t i = 0; i < HW_ARRAY_LEN(words); i++)
        field_arg(&a, words[i]);
    json_t *rows = json_array(), *row;
    size_t i;
    int rc = field_run(&a, ms, &r);
    json_array_foreach(r.rows, i, row) json_array_append_new(rows, field_pick(row, keys));
    const bool some = json_array_size(rows) > 0;
    note_rival(f, NCCL, some ? "measured" : "failed", some ? NULL : rc < 0 ? hw_error() : r.why, rows);
    json_decref(r.rows);
}

/* ---- NIXL -------------------------------------------------------------------------------------------- */

#define NIXL_ABSENT 3 /* nixl_write.py's exit status: a node has no NIXL */
#define NIXL_TESTS  2

extern const char field_nixl_write[]; /* nixl_write.py, embedded by scripts/embed.py */

/* Writes the values of the key in all paths to text, each once, with commas between them. */
static void list_nics(const struct field *f, const char *key, char *text, size_t cap)
{
    json_t *p, *seen = json_object();
    size_t i, n = 0;
    *text = 0;
    json_array_foreach(json_object_get(f->doc, "paths"), i, p)
    {
        const char *nic = json_string_value(json_object_get(p, key));
        if (!nic || json_object_get(seen, nic) || n >= cap)
            continue;
        json_object_set_new(seen, nic, json_true());
        n += (size_t)snprintf(text + n, cap - n, "%s%s", n ? "," : "", nic);
    }
    json_decref(seen);
}

/* Stores hawser's rows of writes over all NICs, with different sizes. NIXL is measured at the same sizes. Returns the
 * number of rows. */
static size_t find_own_writes(const struct field *f, const json_t *own[NIXL_TESTS])
{
    static const char *const test[] = {"write", "small"};
    size_t n = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(test); i++) {
        const json_t *row = find_bench(f, "all", test[i]);
        if (row && (n == 0 || !json_equal(json_object_get(row, "size"), json_object_get(own[0], "size"))))
            own[n++] = row;
    }
    return n;
}

static json_t *read_nixl(const json_t *said, const json_t *const *own, size_t n)
{
    static const char *const keys[] = {"size", "GBps", "seconds", "version", NULL};
    json_t *rows = json_array(), *row;
    size_t i;
    json_array_foreach(said, i, row)
    {
        json_t *kept = field_pick(row, keys), *ratio = NULL;
        const double GBps = json_number_value(json_object_get(row, "GBps"));
        for (size_t k = 0; k < n; k++)
            if (GBps > 0 && json_equal(json_object_get(own[k], "size"), json_object_get(row, "size")))
                ratio = json_real(json_number_value(json_object_get(own[k], "GBps")) / GBps);
        json_object_set_new(kept, "hawser_ratio", ratio ? ratio : json_null());
        json_array_append_new(rows, kept);
    }
    return rows;
}

static void run_nixl(struct field *f)
{
    const char *const python = f->python ? f->python : "python3";
    const json_t *own[NIXL_TESTS];
    const size_t n = find_own_writes(f, own);
    char text[WORDS], nics[WORDS], peer_nics[WORDS], seconds[16], limit[16], sizes[64] = "";
    struct field_args a = {0};
    struct field_result r;
    uint64_t share;
    if (!f->ssh || n == 0) {
        note_rival(f, NIXL, "skipped",
                   f->ssh ? "bench measured nothing to compare NIXL with" : "the comparison needs --ssh", NULL);
        return;
    }
    const uint64_t ms = field_begin(f, FIELD_RIVALS, 4, "NIXL over UCX", &share);
    if (!ms)
        return;
    const uint64_t each = HW_MIN(f->each_ms ? f->each_ms : share / 8, (uint64_t)10000);
    snprintf(seconds, sizeof seconds, "%.3f", (double)each / 1e3);
    snprintf(limit, sizeof limit, "%u", (unsigned)(ms / 1000) + 10);
    for (size_t i = 0; i < n; i++)
        snprintf(sizes + strlen(sizes), sizeof sizes - strlen(sizes), "%s%lld", i ? "," : "",
                 (long long)json_integer_value(json_object_get(own[i], "size")));
    list_nics(f, "nic", nics, sizeof nics);
    list_nics(f, "peer_nic", peer_nics, sizeof peer_nics);
    const char *const words[] = {python, "-c", field_nixl_write, "write", field_nixl_write, seconds,
                                 sizes,  nics, peer_nics};
    for (size_t i = 0; i < HW_ARRAY_LEN(words); i++)
        field_arg(&a, words[i]);
    add_ssh(f, &a, text);
    const char *const there[] = {"timeout", limit, python, "-u", "-"};
    for (size_t i = 0; i < HW_ARRAY_LEN(there); i++)
        field_arg(&a, there[i]);
    const int rc = field_run(&a, ms + PATIENCE_MS, &r);
    json_t *rows = read_nixl(r.rows, own, n);
    const bool some = json_array_size(rows) > 0, absent = r.status == NIXL_ABSENT || r.status == 127;
    note_rival(f, NIXL,
               some        ? "measured"
               : tool_stop ? "skipped"
               : absent    ? "not installed"
                           : "failed",
               some        ? NULL
               : tool_stop ? "interrupted"
               : rc < 0    ? hw_error()
               : r.late    ? "the program did not end in time"
                           : r.why,
               rows);
    json_decref(r.rows);
}

/* ---- all programs ----------------------------------------------------------------------------------- */

void field_rivals(struct field *f)
{
    run_iperf(f);
    run_nccl(f);
    run_nixl(f);
}
