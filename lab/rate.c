/* SPDX-License-Identifier: Apache-2.0 */
/* What users write of labs: rates and NICs. All parsers are strict and echo what they refuse. */
#include "lab/lab.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define RATE_MIN 64000ull         /* below it a single packet of 64 KiB takes longer than TCP waits */
#define RATE_MAX 1000000000000ull /* 1 Tbit */

static const struct unit {
    const char *name;
    uint64_t bits;
} units[] = {
    {"tbit", 1000000000000ull}, {"gbit", 1000000000ull}, {"mbit", 1000000ull}, {"kbit", 1000ull}, {"bit", 1ull},
};

static bool parse(const char *text, size_t len, uint64_t *out)
{
    uint64_t whole = 0, part = 0, scale = 1;
    size_t i = 0, digits = 0;
    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++, digits++) {
        whole = whole * 10 + (uint64_t)(text[i] - '0');
        if (whole > RATE_MAX)
            return false;
    }
    if (digits == 0)
        return false;
    if (i < len && text[i] == '.') {
        size_t start = ++i;
        for (; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
            if (i - start >= 6) /* finer than any rate needs, and keeps the product below 2^64 */
                return false;
            part = part * 10 + (uint64_t)(text[i] - '0');
            scale *= 10;
        }
        if (i == start)
            return false;
    }
    for (size_t u = 0; u < HW_ARRAY_LEN(units); u++) {
        if (len - i != strlen(units[u].name) || strncasecmp(text + i, units[u].name, len - i) != 0)
            continue;
        if (whole > RATE_MAX / units[u].bits)
            return false;
        *out = whole * units[u].bits + part * units[u].bits / scale;
        return *out >= RATE_MIN && *out <= RATE_MAX;
    }
    return false;
}

static int parse_piece(const char *text, size_t len, uint64_t *out)
{
    *out = 0;
    if (len == 0 || (len == 4 && strncasecmp(text, "none", 4) == 0))
        return 0;
    if (parse(text, len, out))
        return 0;
    return hw_fail(
        -EINVAL, "'%.*s' is no rate: a number and kbit, mbit or gbit (as 250mbit or 1.5gbit), 64kbit to 1tbit, or none",
        (int)HW_MIN(len, (size_t)40), text);
}

int hw_lab_parse_rate(const char *text, uint64_t *out)
{
    return parse_piece(text, strlen(text), out);
}

int hw_lab_parse_rates(const char *text, struct hw_lab_spec *spec)
{
    uint64_t rate[HW_LAB_MAX_NICS];
    unsigned n = 0;
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        if (n == HW_LAB_MAX_NICS)
            return hw_fail(-EINVAL, "'%.60s' has more than %d rates", text, HW_LAB_MAX_NICS);
        int rc = parse_piece(at, len, &rate[n++]);
        if (rc < 0)
            return rc;
        at += len;
        if (!*at)
            break;
    }
    if (n != 1 && n != spec->nics)
        return hw_fail(-EINVAL, "'%.60s' has %u rates for %u NICs: give one for all, or one for each", text, n,
                       spec->nics);
    for (unsigned i = 0; i < spec->nics && i < HW_LAB_MAX_NICS; i++)
        spec->rate[i] = n == 1 ? rate[0] : rate[i];
    return 0;
}

char *hw_lab_format_rate(uint64_t rate, char *buf, size_t cap)
{
    if (rate == 0) {
        snprintf(buf, cap, "none");
        return buf;
    }
    for (size_t u = 0; u < HW_ARRAY_LEN(units); u++) {
        uint64_t b = units[u].bits;
        if (rate < b || (b > 1 && (rate * 1000) % b != 0)) /* at most three decimals, else the next smaller unit */
            continue;
        uint64_t part = b > 1 ? rate % b * 1000 / b : 0;
        int n = snprintf(buf, cap, "%llu.%03u", (unsigned long long)(rate / b), (unsigned)part);
        while (n > 0 && (buf[n - 1] == '0'))
            n--;
        if (n > 0 && buf[n - 1] == '.')
            n--;
        snprintf(buf + n, cap - (size_t)n, "%s", units[u].name);
        break;
    }
    return buf;
}

int hw_lab_parse_nic(const char *text, unsigned *nic)
{
    const char *at = strncmp(text, "eth", 3) == 0 ? text + 3 : text;
    unsigned v = 0;
    size_t len = strlen(at);
    bool good = len >= 1 && len <= 2 && !(len == 2 && at[0] == '0');
    for (size_t i = 0; good && i < len; i++) {
        good = at[i] >= '0' && at[i] <= '9';
        v = v * 10 + (unsigned)(at[i] - '0');
    }
    if (!good || v >= HW_LAB_MAX_NICS)
        return hw_fail(-EINVAL, "'%s' is no NIC: eth0 to eth%d, or the number alone", text, HW_LAB_MAX_NICS - 1);
    *nic = v;
    return 0;
}
