/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the JSON writer: commas, escapes, UTF-8, numbers in any locale, wrong nesting and failed writes. */
#include "sys/json.h"
#include "tests/tap.h"

#include <float.h>
#include <locale.h>
#include <math.h>

/* Simulates locales with any decimal point, for machines without other locales. */
static const char *locale_point = ".";

__attribute__((format(printf, 3, 4))) static int local_snprintf(char *buf, size_t cap, const char *fmt, ...)
{
    char plain[128], *dot;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(plain, sizeof(plain), fmt, ap);
    va_end(ap);
    dot = strchr(plain, '.');
    if (!dot)
        return snprintf(buf, cap, "%s", plain);
    return snprintf(buf, cap, "%.*s%s%s", (int)(dot - plain), plain, locale_point, dot + 1);
}

static double local_strtod(const char *s, char **end)
{
    const char *p = strstr(s, locale_point);
    char plain[128];

    if (!p)
        return strtod(s, end);
    snprintf(plain, sizeof(plain), "%.*s.%s", (int)(p - s), s, p + strlen(locale_point));
    return strtod(plain, NULL);
}

#define snprintf local_snprintf
#define strtod   local_strtod
#include "sys/json.c"
#undef snprintf
#undef strtod

static char *text;
static size_t text_len;

static struct hw_json start(void)
{
    struct hw_json j;
    free(text);
    text = NULL;
    hw_json_init(&j, open_memstream(&text, &text_len));
    return j;
}

static int finish(struct hw_json *j)
{
    int rc = hw_json_finish(j);
    fclose(j->out);
    return rc;
}

static void shapes(void)
{
    struct hw_json j = start();

    hw_json_object(&j, NULL);
    hw_json_str(&j, "s", "x");
    hw_json_u64(&j, "u", UINT64_MAX);
    hw_json_i64(&j, "i", INT64_MIN);
    hw_json_bool(&j, "t", true);
    hw_json_bool(&j, "f", false);
    hw_json_null(&j, "n");
    hw_json_str(&j, "sn", NULL);
    hw_json_object(&j, "o");
    hw_json_end(&j);
    hw_json_array(&j, "a");
    hw_json_end(&j);
    hw_json_array(&j, "b");
    hw_json_u64(&j, NULL, 0);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "", "");
    hw_json_end(&j);
    hw_json_array(&j, NULL);
    hw_json_null(&j, NULL);
    hw_json_null(&j, NULL);
    hw_json_end(&j);
    hw_json_end(&j);
    hw_json_double(&j, "d", 1.5);
    hw_json_end(&j);
    is_int(finish(&j), 0, "a document of everything");
    is_str(text,
           "{\"s\":\"x\",\"u\":18446744073709551615,\"i\":-9223372036854775808,\"t\":true,\"f\":false,\"n\":null,"
           "\"sn\":null,\"o\":{},\"a\":[],\"b\":[0,{\"\":\"\"},[null,null]],\"d\":1.5}\n",
           "is written as it should be");
    j = start();
    hw_json_u64(&j, NULL, 1);
    is_int(hw_json_finish(&j), 0, "a bare value is a document");
    hw_json_array(&j, NULL);
    hw_json_end(&j);
    is_int(finish(&j), 0, "another may follow");
    is_str(text, "1\n[]\n", "a line each");
}

static void str(const char *value, const char *want, const char *what)
{
    struct hw_json j = start();
    char quoted[400];

    hw_json_str(&j, NULL, value);
    is_int(finish(&j), 0, what);
    snprintf(quoted, sizeof(quoted), "\"%s\"\n", want);
    is_str(text, quoted, what);
}

#define BAD "\xef\xbf\xbd"

static void strings(void)
{
    struct hw_json j;
    char all[32], want[400] = "";

    for (int c = 1; c < 0x20; c++) {
        static const char *const named[0x20] = {
            ['\n'] = "\\n", ['\t'] = "\\t", ['\r'] = "\\r", ['\b'] = "\\b", ['\f'] = "\\f"};
        char esc[8];
        all[c - 1] = (char)c;
        snprintf(esc, sizeof(esc), "\\u%04x", c);
        strcat(want, named[c] ? named[c] : esc);
    }
    all[0x1f] = 0;
    str(all, want, "every control character is escaped");
    str("a\"b\\c/d", "a\\\"b\\\\c/d", "quote and backslash are escaped, slash is not");
    str("\x7f", "\x7f", "DEL may stand");
    str("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf",
        "\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf",
        "the first and last of each length of UTF-8 pass");
    str("\x80", BAD, "a continuation alone");
    str("\xbf\xbf", BAD BAD, "two continuations alone");
    str("\xc0\xaf", BAD BAD, "'/' in two bytes");
    str("\xc1\xbf", BAD BAD, "DEL in two bytes");
    str("\xe0\x9f\xbf", BAD BAD BAD, "U+07FF in three bytes");
    str("\xf0\x8f\xbf\xbf", BAD BAD BAD BAD, "U+FFFF in four bytes");
    str("\xed\xa0\x80", BAD BAD BAD, "a surrogate");
    str("\xf4\x90\x80\x80", BAD BAD BAD BAD, "U+110000");
    str("\xf5\x80\x80\x80", BAD BAD BAD BAD, "a lead byte that is none");
    str("\xff\xfe", BAD BAD, "bytes that never occur");
    str("\xc3", BAD, "cut after 1 of 2");
    str("\xe2\x82", BAD, "cut after 2 of 3: one replacement");
    str("\xf0\x9f\x98", BAD, "cut after 3 of 4: one replacement");
    str("\xf0\x9f\x98\"", BAD "\\\"", "cut by a quote: the quote is not eaten");
    str("\xe2\x82\xe2\x82\xac", BAD "\xe2\x82\xac", "cut by a whole one: that is kept");
    j = start();
    hw_json_object(&j, NULL);
    hw_json_null(&j, "k\"\n\xff");
    hw_json_end(&j);
    is_int(finish(&j), 0, "keys too");
    is_str(text, "{\"k\\\"\\n" BAD "\":null}\n", "are escaped");
}

static void number(double v, const char *want)
{
    struct hw_json j = start();
    char line[64];

    hw_json_double(&j, NULL, v);
    ok(finish(&j) == 0, "%s is written", want);
    snprintf(line, sizeof(line), "%s\n", want);
    is_str(text, line, want);
}

static void numbers(void)
{
    uint64_t bits, state = 3;
    int wrong = 0;

    number(0, "0");
    number(-0.0, "-0");
    number(0.1, "0.1");
    number(1.0 / 3, "0.3333333333333333");
    number(-2.5, "-2.5");
    number(1e300, "1e+300");
    number(DBL_MAX, "1.7976931348623157e+308");
    number(DBL_MIN, "2.2250738585072014e-308");
    number(DBL_TRUE_MIN, "4.94065645841247e-324");
    number(NAN, "null");
    number(INFINITY, "null");
    number(-INFINITY, "null");
    for (int i = 0; i < 5000; i++) {
        struct hw_json j = start();
        double v;
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        bits = state ^ state >> 29;
        memcpy(&v, &bits, sizeof(v));
        if (!isfinite(v))
            v = i;
        hw_json_double(&j, NULL, v);
        wrong += finish(&j) != 0 || strtod(text, NULL) != v;
    }
    is_int(wrong, 0, "5000 numbers of random bits read back the same");
}

/* Switches to a real locale with a decimal comma. Creates a locale with localedef if none is installed. */
static bool comma_locale(void)
{
    static const char *const names[] = {"de_DE.utf8", "de_DE.UTF-8", "fr_FR.utf8", "fr_FR.UTF-8"};
    char dir[] = "/tmp/hawser-locale-XXXXXX", cmd[200];
    bool set;

    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        if (setlocale(LC_ALL, names[i]))
            return true;
    if (!mkdtemp(dir))
        return false;
    snprintf(cmd, sizeof(cmd), "localedef -i de_DE -f UTF-8 %s/de_DE.utf8 >/dev/null 2>&1", dir);
    setenv("LOCPATH", dir, 1);
    set = system(cmd) == 0 && setlocale(LC_ALL, "de_DE.utf8");
    unsetenv("LOCPATH");
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    if (system(cmd) != 0)
        diag("%s is left behind", dir);
    return set;
}

static void locales(void)
{
    static const char *const points[] = {",", "\xd9\xab"}; /* U+066B, two bytes, as in fa_IR */
    char buf[16];

    for (size_t i = 0; i < HW_ARRAY_LEN(points); i++) {
        locale_point = points[i];
        diag("decimal point '%s'", locale_point);
        numbers();
    }
    locale_point = ".";
    if (!comma_locale()) {
        tap_skip("the C library's decimal comma", "no such locale here, and localedef could not make one");
        return;
    }
    snprintf(buf, sizeof(buf), "%.1f", 0.5);
    is_str(buf, "0,5", "the C library writes a decimal comma");
    number(0.1, "0.1");
    number(1.0 / 3, "0.3333333333333333");
    number(1e300, "1e+300");
    number(DBL_MAX, "1.7976931348623157e+308");
    is_str(setlocale(LC_ALL, "C"), "C", "back to no locale");
}

static void nesting(void)
{
    struct hw_json j = start();

    is_int(finish(&j), -EINVAL, "nothing is no document");
    j = start();
    hw_json_object(&j, NULL);
    is_int(finish(&j), -EINVAL, "an object left open");
    j = start();
    hw_json_end(&j);
    is_int(finish(&j), -EINVAL, "an end too many");
    j = start();
    hw_json_array(&j, NULL);
    hw_json_end(&j);
    hw_json_end(&j);
    is_int(finish(&j), -EINVAL, "an end too many, later");
    j = start();
    hw_json_object(&j, NULL);
    hw_json_u64(&j, NULL, 1);
    hw_json_end(&j);
    is_int(finish(&j), -EINVAL, "no key in an object");
    j = start();
    hw_json_array(&j, NULL);
    hw_json_u64(&j, "k", 1);
    hw_json_end(&j);
    is_int(finish(&j), -EINVAL, "a key in an array");
    j = start();
    hw_json_object(&j, "k");
    hw_json_end(&j);
    is_int(finish(&j), -EINVAL, "a key at the top");
    j = start();
    hw_json_u64(&j, NULL, 1);
    hw_json_u64(&j, NULL, 2);
    is_int(hw_json_finish(&j), -EINVAL, "two values at the top");
    ok(strstr(hw_error(), "do not match"), "says: %s", hw_error());
    is_int(finish(&j), -EINVAL, "and stays wrong");

    j = start();
    for (int i = 1; i < HW_JSON_DEPTH; i++)
        hw_json_array(&j, NULL);
    for (int i = 1; i < HW_JSON_DEPTH; i++)
        hw_json_end(&j);
    is_int(finish(&j), 0, "the deepest nesting");
    j = start();
    for (int i = 0; i < HW_JSON_DEPTH + 1000; i++)
        hw_json_array(&j, NULL);
    for (int i = 0; i < HW_JSON_DEPTH + 1000; i++)
        hw_json_end(&j);
    is_int(finish(&j), -EINVAL, "one deeper and more");
}

static void failing(void)
{
    struct hw_json j;
    FILE *full = fopen("/dev/full", "we");

    if (!full) {
        tap_skip("a full disk", "no /dev/full");
        return;
    }
    hw_json_init(&j, full);
    hw_json_u64(&j, NULL, 1);
    is_int(hw_json_finish(&j), -EIO, "a write that fails at the flush");
    ok(strstr(hw_error(), "ENOSPC"), "says: %s", hw_error());
    hw_json_u64(&j, NULL, 1);
    is_int(hw_json_finish(&j), -EIO, "and stays failed");
    fclose(full);

    full = fopen("/dev/full", "we");
    setvbuf(full, NULL, _IONBF, 0);
    hw_json_init(&j, full);
    hw_json_object(&j, NULL);
    for (int i = 0; i < 1000; i++)
        hw_json_u64(&j, "k", 1);
    hw_json_end(&j);
    is_int(hw_json_finish(&j), -EIO, "a write that fails at once");
    ok(strstr(hw_error(), "ENOSPC"), "says: %s", hw_error());
    fclose(full);
}

int main(void)
{
    shapes();
    strings();
    numbers();
    nesting();
    failing();
    locales();
    free(text);
    return tap_done();
}
