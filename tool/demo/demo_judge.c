/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the demo's results in sentences, and checks that the results are as expected. */
#include "tool/demo/demo.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define COLUMNS 78

json_t *demo_read_lines(const char *path)
{
    FILE *f = fopen(path, "re");
    json_t *all = json_array();
    json_error_t e;
    if (!f)
        hw_fail(-errno, "opening %s: %s", path, strerror(errno));
    else if (all)
        for (json_t *one; (one = json_loadf(f, JSON_DISABLE_EOF_CHECK, &e));)
            json_array_append_new(all, one);
    if (f)
        fclose(f);
    if (json_array_size(all) > 0)
        return all;
    if (f)
        hw_fail(-EIO, "%s has no results", path);
    json_decref(all);
    return NULL;
}

double demo_get_number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

const char *demo_get_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Returns the mean rate in GB/s of the NIC that was taken down, over the timeline's points in [from, to). */
static double victim_rate(const json_t *row, double from, double to)
{
    char name[HAWSER_NIC_NAME];
    double sum = 0;
    size_t i, n = 0;
    json_t *p;
    snprintf(name, sizeof name, "eth%d", DEMO_VICTIM);
    json_array_foreach(json_object_get(row, "timeline"), i, p)
    {
        double t = demo_get_number(p, "t_s");
        if (strcmp(demo_get_text(p, "nic"), name) == 0 && t >= from && t < to) {
            sum += demo_get_number(p, "GBps");
            n++;
        }
    }
    return n ? sum / (double)n : 0;
}

static double fault_time(const json_t *row, const char *what)
{
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(row, "faults"), i, p)
    {
        if (strstr(demo_get_text(p, "text"), what))
            return demo_get_number(p, "t_s");
    }
    return NAN;
}

/* Returns how many times connections were lost during the run. */
static double count_lost(const json_t *row)
{
    double lost = 0;
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(row, "per_channel"), i, c) lost += demo_get_number(c, "lost");
    return lost;
}

void demo_prove(struct demo *d, const char *fmt, ...)
{
    char *text = d->proved[HW_MIN(d->n_proved, (size_t)DEMO_PROVED - 1)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof d->proved[0], fmt, ap);
    va_end(ap);
    d->n_proved += d->n_proved < DEMO_PROVED;
    size_t column = 0;
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, " ");
        if (column + n + 1 > COLUMNS) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%.*s", column ? " " : at == text ? "- " : "  ", (int)n, at);
        at += n + (at[n] == ' ');
    }
    putchar('\n');
}

static void add_checked(const json_t *rows, double *verified, double *bad)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        *verified += demo_get_number(row, "verified_bytes");
        *bad += demo_get_number(row, "bad_bytes");
    }
}

int demo_check(struct demo *d)
{
    json_auto_t *first = demo_read_lines(d->result);
    json_auto_t *lists = first ? demo_read_lines(d->lists) : NULL;
    json_auto_t *second = lists ? demo_read_lines(d->second) : NULL;
    double total = 0, verified = 0, bad = 0;
    if (!second)
        return -EIO;
    for (size_t i = 0; i < DEMO_NICS; i++)
        total += (double)demo_rates[i] / 8e9;
    add_checked(first, &verified, &bad);
    add_checked(lists, &verified, &bad);
    add_checked(second, &verified, &bad);
    const json_t *row = json_array_get(first, json_array_size(first) - 1); /* measurement of the largest size */
    const json_t *hit = json_array_get(second, 0);
    const json_t *fault = json_array_get(json_object_get(hit, "drill"), 0);
    double down = fault_time(hit, DEMO_DOWN), up = fault_time(hit, DEMO_UP), lost = count_lost(hit);
    double back = demo_get_number(fault, "back_ms"), longest = demo_get_number(fault, "longest_ms");
    double before = victim_rate(hit, 0, down), during = victim_rate(hit, down + 0.3, up);
    double after = victim_rate(hit, up + 1, INFINITY), best = demo_get_number(row, "GBps");
    double one = demo_get_number(json_array_get(lists, 0), "GBps");
    double many = demo_get_number(json_array_get(lists, 1), "GBps");
    demo_prove(
        d,
        "The received data was verified: %.2f GB were compared with the data that was sent, and %.0f bytes differed.",
        verified / 1e9, bad);
    demo_prove(d,
               "Four NICs act as one: transfers of 64 MiB reached %.3f GB/s, which is %.0f %% of the NICs' total of "
               "%.3f GB/s.",
               best, 100 * best / total, total);
    demo_prove(d, "Plain sockets over the same NICs and memory reached %.3f GB/s: hawser reached %.2f times that rate.",
               demo_get_number(row, "raw_GBps"), demo_get_number(row, "ratio_raw"));
    demo_prove(d,
               "A list of 1,024 scattered blocks of 64 KiB moved at %.3f GB/s, and one block of 64 MiB at %.3f GB/s: a "
               "ratio of %.2f.",
               many, one, many / one);
    demo_prove(d,
               "Losing a NIC costs no transfer: eth%d carried %.3f GB/s, went down at %.1f s, carried %.3f GB/s, came "
               "back up at %.1f s and carried %.3f GB/s again; its channels were lost %.0f time%s in total, and no "
               "transfer failed.",
               DEMO_VICTIM, before, down, during, up, after, lost, lost == 1 ? "" : "s");
    if (!isnan(back))
        demo_prove(d,
                   "Goodput was back at 90 %% of the other NICs' rate after %.0f ms, the longest write took %.0f ms, "
                   "and %.1f MiB were sent again.",
                   back, longest, demo_get_number(hit, "retaken_bytes") / (1 << 20));
    if (!(bad == 0) || !(verified > 0))
        return hw_fail(-EIO, "some data arrived with wrong contents, or was not verified");
    if (!(many > 0) || !(one > 0))
        return hw_fail(-EIO, "the lists were not measured");
    if (isnan(down) || isnan(up))
        return hw_fail(-EIO, "%s lacks the time at which eth%d went down or came back up", d->second, DEMO_VICTIM);
    if (!(lost > 0))
        return hw_fail(-EIO, "no channel was lost, so the fault did not affect the transfer");
    if (isnan(back))
        return hw_fail(-EIO, "goodput did not recover within 1 s after eth%d went down, or was not measured",
                       DEMO_VICTIM);
    if (!(after > 0))
        return hw_fail(-EIO, "eth%d was not used again after its link came back up", DEMO_VICTIM);
    return 0;
}
