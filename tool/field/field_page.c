/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the HTML file from the same tree as the JSON file. */
#include "tool/field/field.h"
#include "tool/page/page.h"
#include "tool/report/report_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const json_t *get(const json_t *v, const char *key)
{
    return json_object_get(v, key);
}

static const char *get_text(const json_t *v, const char *key)
{
    return json_string_value(get(v, key));
}

/* Returns the number at key, or NAN if there is none. */
static double get_number(const json_t *v, const char *key)
{
    const json_t *n = get(v, key);
    return json_is_number(n) ? json_number_value(n) : (double)NAN;
}

static const json_t *find_row(const struct field *f, const char *nic, const char *test)
{
    json_t *row;
    size_t i;
    json_array_foreach(get(f->doc, "bench"), i, row)
    {
        const char *its = get_text(row, "nic"), *t = get_text(row, "test");
        if (its && t && strcmp(its, nic) == 0 && strcmp(t, test) == 0)
            return row;
    }
    return NULL;
}

/* ---- key figures -------------------------------------------------------------------------------- */

static void write_card(struct page *p, const char *what, double v, void (*fmt)(double, char *, size_t),
                       const char *unit, const char *note)
{
    char value[48] = "-";
    if (!isnan(v))
        fmt(v, value, sizeof value);
    page_card(p, what, value, isnan(v) ? "" : unit, "", note);
}

static void write_cards(struct page *p, const struct field *f)
{
    const json_t *write = find_row(f, "all", "write"), *ping = find_row(f, "all", "latency");
    const size_t found = json_array_size(get(f->doc, "findings")), problems = json_array_size(get(f->doc, "problems"));
    char n[24];
    snprintf(n, sizeof n, "%zu", found);
    page_cards(p);
    page_card(p, "Findings", n, "", found ? "bad" : "good", found ? "listed below" : "no part found a problem");
    page_card(p, "Result", json_is_true(get(f->doc, "complete")) ? "complete" : "incomplete", "",
              json_is_true(get(f->doc, "complete")) ? "good" : "bad",
              problems ? "some steps could not be measured" : "");
    write_card(p, "All NICs, one way", get_number(write, "GBps"), rep_text_num, "GB/s", "every byte checked");
    write_card(p, "Ratio to plain sockets", get_number(write, "ratio_raw"), rep_text_num, "times",
               "same paths, memory and congestion control");
    write_card(p, "8 bytes, one way", get_number(ping, "p50_us"), rep_text_us, "",
               "half of the round-trip time, median");
    page_cards_end(p);
}

static void write_list(struct page *p, const json_t *list, const char *heading)
{
    static const struct page_column heads[] = {{.head = "", .text = true}};
    json_t *text;
    size_t i;
    if (json_array_size(list) == 0)
        return;
    page_table(p, heading, "");
    page_heads(p, heads, 1);
    json_array_foreach(list, i, text)
    {
        page_row(p);
        page_text(p, json_string_value(text), "w");
        page_row_end(p);
    }
    page_table_end(p, NULL);
}

static void format_seconds(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.1f", v);
}

/* ---- tables --------------------------------------------------------------------------------------- */

/* A column of a table, and the key of its values in a row. */
struct column {
    struct page_column column;
    const char *key;
    void (*fmt)(double v, char *buf, size_t cap); /* formats a number; NULL for a text */
};
#define MOST_COLUMNS 12

static void write_rows(struct page *p, const char *heading, const struct column *c, size_t n, const json_t *rows)
{
    struct page_column heads[MOST_COLUMNS];
    json_t *row;
    size_t i;
    if (json_array_size(rows) == 0)
        return;
    for (size_t k = 0; k < n; k++)
        heads[k] = c[k].column;
    page_table(p, heading, "");
    page_heads(p, heads, n);
    json_array_foreach(rows, i, row)
    {
        page_row(p);
        for (size_t k = 0; k < n; k++)
            if (c[k].fmt)
                page_number(p, get_number(row, c[k].key), c[k].fmt, "");
            else
                page_text(p, get_text(row, c[k].key),
                          strcmp(c[k].key, "why") == 0 || strcmp(c[k].key, "found") == 0 ? "w" : "");
        page_row_end(p);
    }
    page_table_end(p, NULL);
}

static void write_parts(struct page *p, const struct field *f)
{
    static const struct column c[] = {
        {{"Part", NULL, true}, "part", NULL},
        {{"State",
          "ok; wrong: the part found a problem; failed: a step could not be measured; "
          "skipped; partly: some steps were skipped",
          true},
         "state",
         NULL},
        {{"Seconds", NULL, false}, "seconds", format_seconds},
        {{"Why", "the first reason why a step failed, was skipped, or found a problem", true}, "why", NULL}};
    write_rows(p, "Parts", c, HW_ARRAY_LEN(c), get(f->doc, "parts"));
}

static void write_bench(struct page *p, const struct field *f)
{
    static const struct column c[] = {
        {{"NIC", "NIC of this node; all: all NICs together", true}, "nic", NULL},
        {{"Test",
          "write: one contiguous block; small: 1 MiB; both: both directions at once; lists: scattered blocks; latency: "
          "round trips of 8 bytes",
          true},
         "test",
         NULL},
        {{"Operation", "the test `both` has one row for each direction, and one for their sum", true}, "op", NULL},
        {{"Bytes", "size of one operation", false}, "size", rep_text_size},
        {{"Blocks", "number of scattered blocks of one operation", false}, "blocks", rep_text_count},
        {{"GB/s", "payload per second, confirmed and checked", false}, "GBps", rep_text_num},
        {{"Plain GB/s", "plain sockets over the same paths, with the same memory, alternating with hawser", false},
         "raw_GBps",
         rep_text_num},
        {{"Ratio", "hawser&#39;s rate divided by that of plain sockets", false}, "ratio_raw", rep_text_num},
        {{"Median",
          "duration of an operation, most of it waiting for other operations in flight; latency: half of the "
          "round-trip time",
          false},
         "p50_us",
         rep_text_us},
        {{"Plain", "latency of a plain socket, with blocking calls on both sides", false},
         "raw_pingpong_block_us",
         rep_text_us},
        {{"CPU s/GB", "CPU seconds of hawser&#39;s process on this node per GB", false}, "cpu_s_per_GB", rep_text_num},
        {{"Bad", "bytes that arrived with wrong contents", false}, "bad_bytes", rep_text_count}};
    write_rows(p, "Bench", c, HW_ARRAY_LEN(c), get(f->doc, "bench"));
}

static void write_others(struct page *p, const struct field *f)
{
    static const struct column validate[] = {
        {{"NIC", NULL, true}, "nic", NULL},
        {{"Channels", "connections opened at the same time", false}, "channels", rep_text_count},
        {{"Proved", "channels that stayed up and carried bytes in both directions", false}, "proved", rep_text_count},
        {{"Why not", NULL, true}, "why", NULL}};
    static const struct column rivals[] = {{{"Program", NULL, true}, "rival", NULL},
                                           {{"State", NULL, true}, "state", NULL},
                                           {{"Why", NULL, true}, "why", NULL}};
    static const struct column iperf[] = {
        {{"NIC", NULL, true}, "nic", NULL},
        {{"GB/s", NULL, false}, "GBps", rep_text_num},
        {{"Congestion control", NULL, true}, "congestion", NULL},
        {{"hawser", "hawser&#39;s rate divided by iperf3&#39;s rate, on the same NIC if it is known", false},
         "hawser_ratio",
         rep_text_num}};
    static const struct column nccl[] = {
        {{"Operation", NULL, true}, "op", NULL},
        {{"Bytes", NULL, false}, "size", rep_text_size},
        {{"Over", NULL, true}, "config", NULL},
        {{"Time", NULL, false}, "time_us", rep_text_us},
        {{"Bus GB/s", NULL, false}, "busbw_GBps", rep_text_num},
        {{"Times default", "speed relative to NCCL&#39;s own sockets", false}, "ratio_default", rep_text_num}};
    static const struct column nixl[] = {
        {{"Bytes", "size of a write", false}, "size", rep_text_size},
        {{"GB/s", "goodput over TCP; UCX uses at most four of the NICs", false}, "GBps", rep_text_num},
        {{"NIXL", "version of NIXL", true}, "version", NULL},
        {{"hawser", "hawser&#39;s rate at the same size over all NICs, divided by NIXL&#39;s rate", false},
         "hawser_ratio",
         rep_text_num}};
    static const struct column drill[] = {
        {{"NIC", "the NIC that was disabled", true}, "nic", NULL},
        {{"How", NULL, true}, "what", NULL},
        {{"Back after ms", "time until goodput was at 90 % of the other NICs&#39; rate", false},
         "back_ms",
         rep_text_num},
        {{"Longest ms", "the longest write that ended within 1.5 s after the start of the fault", false},
         "longest_ms",
         rep_text_num},
        {{"Sent again", "bytes sent again over other connections", false}, "retaken_bytes", rep_text_bytes}};
    json_t *r;
    size_t i;
    write_rows(p, "Validate", validate, HW_ARRAY_LEN(validate), get(f->doc, "validate"));
    write_rows(p, "Other programs", rivals, HW_ARRAY_LEN(rivals), get(f->doc, "rivals"));
    json_array_foreach(get(f->doc, "rivals"), i, r)
    {
        const char *name = get_text(r, "rival");
        if (name && strcmp(name, "iperf3") == 0)
            write_rows(p, "iperf3", iperf, HW_ARRAY_LEN(iperf), get(r, "rows"));
        else if (name && strcmp(name, "NCCL") == 0)
            write_rows(p, "NCCL", nccl, HW_ARRAY_LEN(nccl), get(r, "rows"));
        else if (name && strcmp(name, "NIXL over UCX") == 0)
            write_rows(p, "NIXL over UCX", nixl, HW_ARRAY_LEN(nixl), get(r, "rows"));
    }
    write_rows(p, "Failover drill", drill, HW_ARRAY_LEN(drill), get(f->doc, "drill"));
}

static void write_doctor(struct page *p, const struct field *f)
{
    static const struct column c[] = {{{"Result", NULL, true}, "outcome", NULL},
                                      {{"Check", "`hawser doctor --list` shows all checks", true}, "id", NULL},
                                      {{"On", NULL, true}, "subject", NULL},
                                      {{"Found", NULL, true}, "found", NULL}};
    static const char *const of[][2] = {
        {"here", "Doctor: this node"}, {"there", "Doctor: the other node"}, {"pair", "Doctor: between the nodes"}};
    for (size_t i = 0; i < HW_ARRAY_LEN(of); i++)
        write_rows(p, of[i][1], c, HW_ARRAY_LEN(c), get(get(get(f->doc, "doctor"), of[i][0]), "checks"));
}

static void write_node(struct page *p, const json_t *node, const char *heading)
{
    static const struct page_column heads[] = {{.head = "", .text = true}, {.head = "", .text = true}};
    static const struct column nics[] = {
        {{"NIC", NULL, true}, "nic", NULL},
        {{"Driver", NULL, true}, "driver", NULL},
        {{"State", NULL, true}, "state", NULL},
        {{"Mbit/s", "link rate as the driver reports it", false}, "speed_Mbps", rep_text_count},
        {{"MTU", NULL, false}, "mtu", rep_text_count},
        {{"Queues", "receive queues", false}, "rx_queues", rep_text_count},
        {{"NUMA", "NUMA node", false}, "numa", rep_text_count}};
    static const char *const keys[] = {"hawser", "kernel", "system", "machine", "cpu", "cpus_online", "nvidia_driver"};
    const char *key;
    json_t *v;
    if (!json_is_object(node))
        return;
    page_table(p, heading, "");
    page_heads(p, heads, 2);
    for (size_t i = 0; i < HW_ARRAY_LEN(keys); i++)
        if (get_text(node, keys[i])) {
            page_row(p);
            page_text(p, keys[i], "");
            page_text(p, get_text(node, keys[i]), "w");
            page_row_end(p);
        }
    json_object_foreach((json_t *)get(node, "sysctls"), key, v)
    {
        if (!json_is_string(v))
            continue;
        page_row(p);
        page_text(p, key, "");
        page_text(p, json_string_value(v), "w");
        page_row_end(p);
    }
    page_table_end(p, NULL);
    write_rows(p, "NICs", nics, HW_ARRAY_LEN(nics), get(node, "nics"));
}

int field_write_page(const struct field *f, const char *path)
{
    struct page p;
    const char *date = get_text(f->doc, "date");
    char title[64];
    snprintf(title, sizeof title, "hawser fieldtest, %s", date ? date : "");
    int rc = page_begin(&p, path, title);
    if (rc < 0)
        return rc;
    write_cards(&p, f);
    write_list(&p, get(f->doc, "findings"), "Findings");
    write_list(&p, get(f->doc, "problems"), "What could not be measured");
    write_parts(&p, f);
    write_bench(&p, f);
    write_others(&p, f);
    write_doctor(&p, f);
    write_node(&p, get(get(f->doc, "nodes"), "here"), "This node");
    write_node(&p, get(get(f->doc, "nodes"), "there"), "The other node");
    return page_end(&p, 0);
}
