/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Limits the length of a bad value that a message repeats. */
#define ECHO "%.80s"

/* Reads the digits at *text and moves *text past them. Returns false if there are no digits or if they overflow. */
static bool parse_decimal_digits(const char **text, uint64_t *out)
{
    const char *p = *text;
    uint64_t v = 0;

    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
    if (p == *text)
        return false;
    *text = p;
    *out = v;
    return true;
}

static const struct {
    const char *name;
    uint64_t factor;
} size_units[] = {
    {"", 1},
    {"b", 1},
    {"k", 1ull << 10},
    {"m", 1ull << 20},
    {"g", 1ull << 30},
    {"t", 1ull << 40},
    {"kib", 1ull << 10},
    {"mib", 1ull << 20},
    {"gib", 1ull << 30},
    {"tib", 1ull << 40},
    {"kb", 1000ull},
    {"mb", 1000000ull},
    {"gb", 1000000000ull},
    {"tb", 1000000000000ull},
};

int hw_parse_size(const char *text, uint64_t *out)
{
    const char *p = text ? text : "";
    uint64_t v;

    if (!parse_decimal_digits(&p, &v))
        return hw_fail(-EINVAL,
                       "'" ECHO "' is not a size: expected a number of bytes, or a number with a unit, below 16 EiB, "
                       "as in 4096, 64KiB, 1MB or 2G",
                       text ? text : "");
    for (size_t i = 0; i < HW_ARRAY_LEN(size_units); i++) {
        if (strcasecmp(p, size_units[i].name) != 0)
            continue;
        if (__builtin_mul_overflow(v, size_units[i].factor, &v))
            return hw_fail(-EINVAL, "size '" ECHO "' is too large: it must be below 16 EiB", text);
        *out = v;
        return 0;
    }
    return hw_fail(
        -EINVAL, "'" ECHO "' is not a size: '%.20s' is not a unit; the units are B, K, M, G, T, KiB ... TiB, KB ... TB",
        text, p);
}

int hw_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    const char *p = text ? text : "";
    uint64_t v;

    if (!parse_decimal_digits(&p, &v) || *p || v < min || v > max)
        return hw_fail(-EINVAL, "'" ECHO "' is not a whole number from %" PRIu64 " to %" PRIu64, text ? text : "", min,
                       max);
    *out = v;
    return 0;
}

/* Reads a fraction such as the ".5" of "0.5s" into *num / *den, which is 0 / 1 without a point. Returns false if no
 * digits follow the point, or more than nine (not counting zeros at the end), which no duration in whole milliseconds
 * needs. */
static bool parse_decimal_fraction(const char **text, uint64_t *num, uint64_t *den)
{
    const char *p = *text;
    size_t n;

    *num = 0;
    *den = 1;
    if (*p != '.')
        return true;
    n = strspn(++p, "0123456789");
    if (n == 0)
        return false;
    *text = p + n;
    while (n > 0 && p[n - 1] == '0')
        n--;
    if (n > 9)
        return false;
    for (size_t i = 0; i < n; i++) {
        *num = *num * 10 + (uint64_t)(p[i] - '0');
        *den *= 10;
    }
    return true;
}

int hw_parse_duration_ms(const char *text, uint64_t *out)
{
    const char *p = text ? text : "";
    uint64_t v, num, den, unit;

    if (!parse_decimal_digits(&p, &v) || !parse_decimal_fraction(&p, &num, &den))
        goto bad;
    if (strcmp(p, "ms") == 0)
        unit = 1;
    else if (strcmp(p, "s") == 0 || *p == 0)
        unit = 1000;
    else if (strcmp(p, "m") == 0)
        unit = 60000;
    else
        goto bad;
    if (num * unit % den != 0)
        return hw_fail(-EINVAL, "duration '" ECHO "' is finer than a millisecond", text);
    if (__builtin_mul_overflow(v, unit, &v) || __builtin_add_overflow(v, num * unit / den, &v))
        return hw_fail(-EINVAL, "duration '" ECHO "' is too long: it must be below 2^64 ms", text);
    *out = v;
    return 0;
bad:
    return hw_fail(
        -EINVAL,
        "'" ECHO
        "' is not a duration: expected a number of seconds, or a number with a unit, as in 10, 10s, 500ms, 2m or 0.5s",
        text ? text : "");
}

char *hw_format_size(uint64_t bytes, char *buf, size_t cap)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;

    while (bytes != 0 && bytes % 1024 == 0 && i + 1 < HW_ARRAY_LEN(unit)) {
        bytes /= 1024;
        i++;
    }
    snprintf(buf, cap, "%" PRIu64 "%s", bytes, unit[i]);
    return buf;
}
