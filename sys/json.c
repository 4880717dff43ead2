/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the length of the UTF-8 sequence at s, which is NUL-terminated. For an invalid sequence, returns minus the
 * number of bytes that one U+FFFD replaces (Unicode 15, table 3-7, and "substitution of maximal subparts" in section
 * 3.9). */
static int measure_utf8_sequence(const unsigned char *s)
{
    unsigned char low = 0x80, high = 0xbf;
    int n;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        n = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        n = 3;
        if (s[0] == 0xe0)
            low = 0xa0; /* excludes overlong forms */
        else if (s[0] == 0xed)
            high = 0x9f; /* excludes surrogates */
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        n = 4;
        if (s[0] == 0xf0)
            low = 0x90;
        else if (s[0] == 0xf4)
            high = 0x8f; /* excludes code points beyond U+10FFFF */
    } else {
        return -1;
    }
    for (int i = 1; i < n; i++) {
        if (s[i] < low || s[i] > high)
            return -i;
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

static void write_json_bytes(struct hw_json *j, const char *s, size_t n)
{
    if (!j->error && fwrite(s, 1, n, j->out) != n) {
        j->error = true;
        j->err = errno ? errno : EIO;
    }
}

static void puts_(struct hw_json *j, const char *s)
{
    write_json_bytes(j, s, strlen(s));
}

static void write_json_string(struct hw_json *j, const char *text)
{
    static const char from[] = "\"\\\n\t\r\b\f", to[] = "\"\\ntrbf";
    const unsigned char *s = (const unsigned char *)text;
    char esc[8];

    write_json_bytes(j, "\"", 1);
    while (*s) {
        const char *f = strchr(from, (char)*s);
        int n = measure_utf8_sequence(s);
        if (f) {
            snprintf(esc, sizeof(esc), "\\%c", to[f - from]);
            puts_(j, esc);
        } else if (*s < 0x20) {
            snprintf(esc, sizeof(esc), "\\u%04x", *s);
            puts_(j, esc);
        } else if (n < 0) {
            puts_(j, "\xef\xbf\xbd");
            n = -n;
        } else {
            write_json_bytes(j, (const char *)s, (size_t)n);
        }
        s += n;
    }
    write_json_bytes(j, "\"", 1);
}

/* Writes the comma and the key before a value. Returns false after an error, or if no value is allowed here. */
static bool begin_json_value(struct hw_json *j, const char *key)
{
    bool object = j->level[j->depth].object;

    if (j->error)
        return false;
    if (object != (key != NULL) || (j->depth == 0 && j->level[0].some)) {
        j->error = true;
        return false;
    }
    if (j->level[j->depth].some)
        write_json_bytes(j, ",", 1);
    j->level[j->depth].some = true;
    if (key) {
        write_json_string(j, key);
        write_json_bytes(j, ":", 1);
    }
    return true;
}

static void write_json_value(struct hw_json *j, const char *key, const char *text)
{
    if (begin_json_value(j, key))
        puts_(j, text);
}

static void open_(struct hw_json *j, const char *key, bool object)
{
    if (!begin_json_value(j, key))
        return;
    if (j->depth + 1 >= HW_JSON_DEPTH) {
        j->error = true;
        return;
    }
    j->depth++;
    j->level[j->depth].object = object;
    j->level[j->depth].some = false;
    puts_(j, object ? "{" : "[");
}

void hw_json_init(struct hw_json *j, FILE *out)
{
    memset(j, 0, sizeof(*j));
    j->out = out;
}

void hw_json_object(struct hw_json *j, const char *key)
{
    open_(j, key, true);
}

void hw_json_array(struct hw_json *j, const char *key)
{
    open_(j, key, false);
}

void hw_json_end(struct hw_json *j)
{
    if (j->error)
        return;
    if (j->depth == 0) {
        j->error = true;
        return;
    }
    puts_(j, j->level[j->depth--].object ? "}" : "]");
}

void hw_json_str(struct hw_json *j, const char *key, const char *text)
{
    if (!begin_json_value(j, key))
        return;
    if (text)
        write_json_string(j, text);
    else
        puts_(j, "null");
}

void hw_json_u64(struct hw_json *j, const char *key, uint64_t v)
{
    char buf[24];

    snprintf(buf, sizeof(buf), "%" PRIu64, v);
    write_json_value(j, key, buf);
}

void hw_json_i64(struct hw_json *j, const char *key, int64_t v)
{
    char buf[24];

    snprintf(buf, sizeof(buf), "%" PRId64, v);
    write_json_value(j, key, buf);
}

void hw_json_double(struct hw_json *j, const char *key, double v)
{
    char buf[64], *w = buf;
    bool point = false;

    if (!isfinite(v)) {
        write_json_value(j, key, "null");
        return;
    }
    /* Uses the smallest number of digits, from 15 to 17, that reads back as the same value. 17 digits are always
     * sufficient (IEEE 754 binary64). */
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, sizeof(buf), "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    /* Any other character is part of the locale's decimal point, which may have several bytes. */
    for (const char *r = buf; *r; r++) {
        if (strchr("0123456789+-e", *r))
            *w++ = *r;
        else if (!point)
            *w++ = '.', point = true;
    }
    *w = 0;
    write_json_value(j, key, buf);
}

void hw_json_bool(struct hw_json *j, const char *key, bool v)
{
    write_json_value(j, key, v ? "true" : "false");
}

void hw_json_null(struct hw_json *j, const char *key)
{
    write_json_value(j, key, "null");
}

int hw_json_finish(struct hw_json *j)
{
    if (!j->error && (j->depth != 0 || !j->level[0].some))
        j->error = true;
    if (j->error && !j->err)
        return hw_fail(-EINVAL, "writing JSON: objects, arrays and keys do not match (a bug in the caller)");
    write_json_bytes(j, "\n", 1);
    if (!j->error && fflush(j->out) != 0) {
        j->error = true;
        j->err = errno ? errno : EIO;
    }
    if (j->error)
        return hw_fail(-EIO, "writing JSON: %s (%s)", strerror(j->err), hw_errno_name(j->err));
    j->level[0].some = false;
    return 0;
}
