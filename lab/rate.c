/* SPDX-License-Identifier: Apache-2.0 */
/* Parses values from users, such as rates, delays, losses and fabrics. All parsers are strict and quote the text that
 * they refuse. */
#include "lab/lab.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define RATE_MIN     64000ull         /* at this rate, a packet of 64 KiB takes 8 s */
#define RATE_MAX     1000000000000ull /* 1 Tbit/s */
#define DELAY_MAX_US 10000000ull

static const struct unit {
    const char *name;
    uint64_t bits;
} units[] = {
    {"tbit", 1000000000000ull}, {"gbit", 1000000000ull}, {"mbit", 1000000ull}, {"kbit", 1000ull}, {"bit", 1ull},
};

static bool parse_bits(const char *text, size_t len, uint64_t *out)
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
            if (i - start >= 6) /* more decimals than any rate needs; the limit keeps the product below 2^64 */
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

static int parse_rate(const char *text, size_t len, uint64_t *out)
{
    *out = 0;
    if (len == 0 || (len == 4 && strncasecmp(text, "none", 4) == 0))
        return 0;
    if (parse_bits(text, len, out))
        return 0;
    return hw_fail(
        -EINVAL,
        "'%.*s' is not a rate: expected a number with kbit, mbit, gbit or tbit (as in 250mbit or 1.5gbit), from "
        "64kbit to 1tbit, or none",
        (int)HW_MIN(len, (size_t)40), text);
}

int hw_lab_parse_rate(const char *text, uint64_t *out)
{
    return parse_rate(text, strlen(text), out);
}

/* Parses text's comma-separated parts, at most `max`, with read(): one part for all `want` values, or one for each.
 * Returns the number of parts, or -EINVAL. `what` and `of` name the values and their owners in errors. */
static int parse_list(const char *text, unsigned want, unsigned max, const char *what, const char *of,
                      int (*read)(const char *text, size_t len, uint64_t *out), uint64_t *out)
{
    unsigned n = 0;
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        if (n == max)
            return hw_fail(-EINVAL, "'%.60s' has more than %u %s", text, max, what);
        int rc = read(at, len, &out[n++]);
        if (rc < 0)
            return rc;
        at += len;
        if (!*at)
            break;
    }
    if (n != 1 && n != want)
        return hw_fail(-EINVAL, "'%.60s' has %u %s, but the number of %s is %u: specify one for all, or one for each",
                       text, n, what, of, want);
    for (unsigned i = n; i < want && i < max; i++)
        out[i] = out[0];
    return (int)n;
}

int hw_lab_parse_rates(const char *text, struct hw_lab_spec *spec)
{
    uint64_t rate[HW_LAB_MAX_NICS] = {0};
    int rc = parse_list(text, spec->nics, HW_LAB_MAX_NICS, "rates", "NICs", parse_rate, rate);
    for (unsigned i = 0; rc >= 0 && i < spec->nics && i < HW_LAB_MAX_NICS; i++)
        spec->rate[i] = rate[i];
    return HW_MIN(rc, 0);
}

/* Parses a number with up to four decimals and multiplies it by 10000. Returns false if it is invalid or above max. */
static bool parse_decimal(const char *text, size_t len, uint64_t max, uint64_t *out)
{
    uint64_t v = 0, scale = 0;
    size_t digits = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '.' && scale == 0 && digits > 0) {
            scale = 1;
            continue;
        }
        if (text[i] < '0' || text[i] > '9' || scale >= 10000)
            return false;
        v = v * 10 + (uint64_t)(text[i] - '0');
        scale *= 10;
        digits++;
        if (v > max * 10000)
            return false;
    }
    if (digits == 0 || text[len - 1] == '.')
        return false;
    for (scale = HW_MAX(scale, 1ull); scale < 10000; scale *= 10)
        v *= 10;
    *out = v;
    return v <= max * 10000;
}

static int parse_delay(const char *text, size_t len, uint64_t *us)
{
    static const struct {
        const char *name;
        uint64_t us;
        /* "s" must be last, because the other units also end with "s" */
    } units_us[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}};
    for (size_t u = 0; u < HW_ARRAY_LEN(units_us); u++) {
        size_t unit = strlen(units_us[u].name);
        if (len <= unit || memcmp(text + len - unit, units_us[u].name, unit) != 0)
            continue;
        uint64_t v;
        if (parse_decimal(text, len - unit, DELAY_MAX_US / units_us[u].us, &v) && v * units_us[u].us % 10000 == 0) {
            *us = v * units_us[u].us / 10000;
            return 0;
        }
        break;
    }
    if (len == 0 || (len == 1 && *text == '0')) {
        *us = 0;
        return 0;
    }
    return hw_fail(-EINVAL,
                   "'%.*s' is not a delay: expected a number with us, ms or s (as in 250us or 10ms), up to 10s",
                   (int)HW_MIN(len, (size_t)40), text);
}

int hw_lab_parse_delays(const char *text, struct hw_lab_spec *spec)
{
    uint64_t us[HW_LAB_MAX_NICS] = {0};
    int rc = parse_list(text, spec->nics, HW_LAB_MAX_NICS, "delays", "NICs", parse_delay, us);
    for (unsigned i = 0; rc >= 0 && i < spec->nics && i < HW_LAB_MAX_NICS; i++)
        spec->delay_us[i] = (uint32_t)us[i];
    return HW_MIN(rc, 0);
}

static int parse_loss(const char *text, size_t len, uint64_t *ppm)
{
    if (len > 1 && text[len - 1] == '%' && parse_decimal(text, len - 1, 100, ppm) && *ppm < 1000000)
        return 0;
    if (len == 0 || (len == 1 && *text == '0')) {
        *ppm = 0;
        return 0;
    }
    return hw_fail(-EINVAL,
                   "'%.*s' is not a loss rate: expected a percentage below 100%% with up to four decimals, as in 0.1%%",
                   (int)HW_MIN(len, (size_t)40), text);
}

int hw_lab_parse_losses(const char *text, struct hw_lab_spec *spec)
{
    uint64_t ppm[HW_LAB_MAX_NICS] = {0};
    int rc = parse_list(text, spec->nics, HW_LAB_MAX_NICS, "losses", "NICs", parse_loss, ppm);
    for (unsigned i = 0; rc >= 0 && i < spec->nics && i < HW_LAB_MAX_NICS; i++)
        spec->loss_ppm[i] = (uint32_t)ppm[i];
    return HW_MIN(rc, 0);
}

static int parse_count(const char *text, size_t len, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < len && i < 3; i++)
        *out = text[i] >= '0' && text[i] <= '9' ? *out * 10 + (uint64_t)(text[i] - '0') : 99;
    if (len >= 1 && len <= 2 && *out >= 1 && *out <= HW_LAB_MAX_NICS)
        return 0;
    return hw_fail(-EINVAL, "'%.*s' is not a number of NICs: expected 1 to %d", (int)HW_MIN(len, (size_t)40), text,
                   HW_LAB_MAX_NICS);
}

int hw_lab_parse_nics(const char *text, struct hw_lab_spec *spec)
{
    uint64_t count[HW_LAB_MAX_NODES] = {0};
    int rc = parse_list(text, spec->nodes, HW_LAB_MAX_NODES, "numbers of NICs", "nodes", parse_count, count);
    if (rc < 0)
        return rc;
    spec->nics = 0;
    for (unsigned k = 0; k < spec->nodes && k < HW_LAB_MAX_NODES; k++) {
        spec->node_nics[k] = (unsigned)count[k];
        spec->nics = HW_MAX(spec->nics, spec->node_nics[k]);
    }
    return 0;
}

/* Checks a prefix, and stores a pointer to it in *out. */
static int parse_prefix(const char *text, size_t len, uint64_t *out)
{
    bool good = len >= 1 && len < HW_LAB_PREFIX && !(len == 2 && memcmp(text, "lo", 2) == 0);
    for (size_t i = 0; good && i < len; i++)
        good = text[i] >= 'a' && text[i] <= 'z';
    *out = (uintptr_t)text;
    return good ? 0
                : hw_fail(-EINVAL,
                          "'%.*s' is not a prefix for NIC names: expected 1 to %d lower-case letters, as in eth or "
                          "enp, to which the NIC's number is appended",
                          (int)HW_MIN(len, (size_t)40), text, HW_LAB_PREFIX - 1);
}

int hw_lab_parse_names(const char *text, struct hw_lab_spec *spec)
{
    uint64_t at[HW_LAB_MAX_NODES] = {0};
    int rc = parse_list(text, spec->nodes, HW_LAB_MAX_NODES, "names", "nodes", parse_prefix, at);
    for (unsigned k = 0; rc >= 0 && k < spec->nodes && k < HW_LAB_MAX_NODES; k++) {
        const char *name = at[k] ? (const char *)(uintptr_t)at[k] : "";
        snprintf(spec->prefix[k], sizeof(spec->prefix[k]), "%.*s", (int)strcspn(name, ","), name);
    }
    return HW_MIN(rc, 0);
}

int hw_lab_parse_fabric(const char *text, enum hw_lab_fabric *out)
{
    static const char *const names[] = {[HW_LAB_SUBNET] = "subnet",
                                        [HW_LAB_ROUTED] = "routed",
                                        [HW_LAB_GCP] = "gcp",
                                        [HW_LAB_SHARED] = "shared-subnet",
                                        [HW_LAB_BRIDGE] = "bridge"};
    for (unsigned i = 0; i < HW_ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum hw_lab_fabric)i;
            return 0;
        }
    }
    return hw_fail(-EINVAL, "'%.40s' is not a fabric: expected subnet, routed, gcp, shared-subnet or bridge", text);
}

char *hw_lab_format_rate(uint64_t rate, char *buf, size_t cap)
{
    if (rate == 0) {
        snprintf(buf, cap, "none");
        return buf;
    }
    for (size_t u = 0; u < HW_ARRAY_LEN(units); u++) {
        uint64_t b = units[u].bits;
        /* uses a smaller unit if this one needs more than three decimals */
        if (rate < b || (b > 1 && (rate * 1000) % b != 0))
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
