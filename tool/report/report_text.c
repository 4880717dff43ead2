/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/report_text.h"

#include <math.h>
#include <string.h>

void rep_text_num(double v, char *buf, size_t cap)
{
    if (v == 0)
        snprintf(buf, cap, "0");
    else if (v >= 99.95)
        snprintf(buf, cap, v < 1e9 ? "%.0f" : "%.4g", v);
    else if (v >= 9.995)
        snprintf(buf, cap, "%.1f", v);
    else if (v >= 0.01)
        snprintf(buf, cap, "%.2f", v);
    else
        snprintf(buf, cap, "%.2g", v);
}

static void format_scaled_value(double v, double step, const char *const *units, size_t n, char *buf, size_t cap)
{
    char num[24];
    size_t i = 0;
    while (i + 1 < n && v >= step * 0.9995) {
        v /= step;
        i++;
    }
    if (v == floor(v) && v < 1e6)
        snprintf(num, sizeof(num), "%.0f", v);
    else
        rep_text_num(v, num, sizeof(num));
    snprintf(buf, cap, "%s %s", num, units[i]);
}

void rep_text_us(double us, char *buf, size_t cap)
{
    static const char *const units[] = {"\u00b5s", "ms", "s"};
    format_scaled_value(us, 1000, units, HW_ARRAY_LEN(units), buf, cap);
}

void rep_text_bytes(double bytes, char *buf, size_t cap)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    format_scaled_value(bytes, 1000, units, HW_ARRAY_LEN(units), buf, cap);
}

void rep_text_size(double bytes, char *buf, size_t cap)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = bytes;
    size_t i = 0;
    while (i + 1 < HW_ARRAY_LEN(units) && v >= 1024 && fmod(v, 1024) == 0) {
        v /= 1024;
        i++;
    }
    if (v >= 10000 && i == 0 && bytes == floor(bytes))
        rep_text_count(bytes, buf, cap);
    else
        snprintf(buf, cap, "%.0f", v);
    size_t len = strlen(buf);
    snprintf(buf + len, cap - len, " %s", units[i]);
}

void rep_text_count(double v, char *buf, size_t cap)
{
    char digits[64];
    int n = snprintf(digits, sizeof(digits), "%.0f", fmin(v, 1e40));
    size_t k = 0;
    for (int i = 0; i < n && k + 2 < cap; i++) {
        if (i && (n - i) % 3 == 0)
            buf[k++] = ',';
        buf[k++] = digits[i];
    }
    buf[k] = '\0';
}

static bool is_same_row_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_num(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static size_t count_nics(const char *list)
{
    size_t n = list && *list;
    for (; list && *list; list++)
        n += *list == ',';
    return n;
}

void rep_series_name(const struct rep *r, const struct rep_row *row, char *buf, size_t cap)
{
    bool nics = false, mem = false, counts = false;
    unsigned differ = 0;
    static const enum rep_num key[] = {REP_BLOCKS, REP_CHANNELS, REP_DEPTH, REP_WINDOW};
    static const char *const word[] = {"blocks", "channels", "in flight", "window"};
    for (size_t i = 0; i < r->n_row; i++) {
        const struct rep_row *o = &r->row[i];
        nics |= !is_same_row_text(o->nics, row->nics);
        counts |= count_nics(o->nics) != count_nics(row->nics);
        mem |= !is_same_row_text(o->mem, row->mem);
        for (size_t k = 0; k < HW_ARRAY_LEN(key); k++)
            if (!same_num(o->num[key[k]], row->num[key[k]]) && is_same_row_text(o->op, row->op) &&
                same_num(o->num[REP_SIZE], row->num[REP_SIZE]))
                differ |= 1u << k;
    }
    size_t at = (size_t)snprintf(buf, cap, "%s", row->op);
    if (nics && row->nics && at < cap) {
        size_t n = count_nics(row->nics);
        at += counts ? (size_t)snprintf(buf + at, cap - at, ", %zu NIC%s", n, hw_plural(n))
                     : (size_t)snprintf(buf + at, cap - at, ", %s", row->nics);
    }
    if (mem && row->mem && at < cap)
        at += (size_t)snprintf(buf + at, cap - at, ", %s", row->mem);
    for (size_t k = 0; k < HW_ARRAY_LEN(key) && at < cap; k++)
        if (differ & 1u << k && !isnan(row->num[key[k]])) {
            char v[40];
            if (key[k] == REP_BLOCKS && row->num[key[k]] == 1) {
                at += (size_t)snprintf(buf + at, cap - at, ", one block");
                continue;
            }
            if (key[k] == REP_WINDOW)
                rep_text_size(row->num[key[k]], v, sizeof(v));
            else
                rep_text_count(row->num[key[k]], v, sizeof(v));
            const bool one = key[k] == REP_CHANNELS && row->num[key[k]] == 1;
            at += (size_t)snprintf(buf + at, cap - at, ", %s %s", v, one ? "channel" : word[k]);
        }
}
