/* SPDX-License-Identifier: Apache-2.0 */
/* Tests parsing of sizes, counts and durations, error messages for refused texts, and the format of sizes. */
#include "base/size.h"
#include "tests/tap.h"

static void size_good(const char *text, uint64_t want)
{
    uint64_t v = 77;
    int rc = hw_parse_size(text, &v);
    ok(rc == 0 && v == want, "size '%s' is %llu (rc %d, got %llu)", text, (unsigned long long)want, rc,
       (unsigned long long)v);
}

/* Checks that a call returns -EINVAL, quotes the text in the error message, and leaves the output unchanged. */
#define bad(call, text)                                                                                           \
    do {                                                                                                          \
        uint64_t v = 77;                                                                                          \
        hw_fail(0, "stale");                                                                                      \
        int rc = call;                                                                                            \
        ok(rc == -EINVAL && v == 77 && strstr(hw_error(), text), "%s refuses '%s': %s", #call, text, hw_error()); \
    } while (0)

static void sizes(void)
{
    static const char *const refused[] = {"",
                                          " ",
                                          " 1",
                                          "1 ",
                                          "+1",
                                          "-1",
                                          "0x10",
                                          "1.5K",
                                          "K",
                                          "KiB",
                                          "1Ki",
                                          "1KBB",
                                          "1KiB ",
                                          "1 KiB",
                                          "1P",
                                          "1PiB",
                                          "1e3",

                                          "1,000",
                                          "1kk",
                                          "1Bi",
                                          "1bb",
                                          "\xc2\xb9",
                                          "1\xc2\xa0",
                                          "18446744073709551616",
                                          "16777216TiB",
                                          "18446745TB",
                                          "36028797018963968K",
                                          "99999999999999999999999999999999999999999999",
                                          "18446744073709551615K"};

    size_good("0", 0);
    size_good("4096", 4096);
    size_good("007", 7);
    size_good("7B", 7);
    size_good("7b", 7);
    size_good("64KiB", 65536);
    size_good("64kib", 65536);
    size_good("64K", 65536);
    size_good("64k", 65536);
    size_good("1KB", 1000);
    size_good("1MB", 1000000);
    size_good("1MiB", 1048576);
    size_good("2G", 2147483648ull);
    size_good("3GB", 3000000000ull);
    size_good("1T", 1099511627776ull);
    size_good("1TB", 1000000000000ull);
    size_good("0TiB", 0);
    size_good("4294967303", 4294967303ull); /* 2^32 + 7 */
    size_good("18446744073709551615", UINT64_MAX);
    size_good("16777215TiB", 16777215ull << 40);
    size_good("18446744TB", 18446744000000000000ull);
    for (size_t i = 0; i < HW_ARRAY_LEN(refused); i++)
        bad(hw_parse_size(refused[i], &v), refused[i]);
    bad(hw_parse_size(NULL, &v), "''");
    bad(hw_parse_size("1\n\x1b[2J\x7f", &v), "'1??[2J?'"); /* error messages contain no control characters */
    hw_fail(0, "x");
    hw_wrap(0, "a\nb");
    is_str(hw_error(), "a?b: x", "context put in front neither");
}

static void counts(void)
{
    uint64_t n = 0;

    is_int(hw_parse_u64("18446744073709551615", 0, UINT64_MAX, &n), 0, "the largest number is read");
    ok(n == UINT64_MAX, "and is right");
    is_int(hw_parse_u64("1", 1, 64, &n), 0, "the lower bound belongs");
    is_int(hw_parse_u64("64", 1, 64, &n), 0, "the upper bound belongs");
    is_int(n, 64, "and is right");
    bad(hw_parse_u64("0", 1, 64, &v), "'0' is not a whole number from 1 to 64");
    bad(hw_parse_u64("65", 1, 64, &v), "'65' is not a whole number from 1 to 64");
    bad(hw_parse_u64("18446744073709551616", 0, UINT64_MAX, &v), "18446744073709551616");
    bad(hw_parse_u64("18446744073709551625", 0, UINT64_MAX, &v), "18446744073709551625");
    bad(hw_parse_u64("", 0, 9, &v), "''");
    bad(hw_parse_u64("-1", 0, UINT64_MAX, &v), "'-1'");
    bad(hw_parse_u64("+1", 0, 9, &v), "'+1'");
    bad(hw_parse_u64(" 1", 0, 9, &v), "' 1'");
    bad(hw_parse_u64("1 ", 0, 9, &v), "'1 '");
    bad(hw_parse_u64("1K", 0, 9, &v), "'1K'");
    bad(hw_parse_u64("0x1", 0, 9, &v), "'0x1'");
    bad(hw_parse_u64(NULL, 0, 9, &v), "''");
}

static void time_good(const char *text, uint64_t want)
{
    uint64_t v = 77;
    int rc = hw_parse_duration_ms(text, &v);
    ok(rc == 0 && v == want, "duration '%s' is %llu ms (rc %d, got %llu)", text, (unsigned long long)want, rc,
       (unsigned long long)v);
}

static void durations(void)
{
    static const char *const refused[] = {
        "",
        "s",
        "ms",
        ".5s",
        "5.s",
        "-1s",
        "+1",
        " 1",
        "1 s",
        "1S",
        "1h",
        "1us",
        "1e3",
        "1.5.5s",
        "0x1",
        "1,5s",
        "inf",
        "nan",
        "1sm",
        "0.0005s",
        "0.5ms",
        "0.00001m",
        "0.00000000000001m",
        "0.3333333333s",
        "18446744073709551616ms",
        "18446744073709552",
        "307445734561826m",
        "18446744073709551.616",
    };

    time_good("10", 10000);
    time_good("10s", 10000);
    time_good("500ms", 500);
    time_good("2m", 120000);
    time_good("0", 0);
    time_good("0ms", 0);
    time_good("0.5s", 500);
    time_good("0.5", 500);
    time_good("1.5m", 90000);
    time_good("0.25m", 15000);
    time_good("0.001", 1);
    time_good("0.00005m", 3);
    time_good("3.0ms", 3);
    time_good("0.500000000000000000000000000000000000s", 500);
    time_good("18446744073709551615ms", UINT64_MAX);
    time_good("18446744073709551.615", UINT64_MAX);
    for (size_t i = 0; i < HW_ARRAY_LEN(refused); i++)
        bad(hw_parse_duration_ms(refused[i], &v), refused[i]);
    bad(hw_parse_duration_ms(NULL, &v), "''");
}

static void formats(void)
{
    static const uint64_t edge[] = {0,
                                    1,
                                    7,
                                    1000,
                                    1023,
                                    1024,
                                    1025,
                                    1536,
                                    65536,
                                    1048576,
                                    1572864,
                                    4294967303ull,
                                    1ull << 40,
                                    1ull << 50,
                                    1ull << 63,
                                    UINT64_MAX,
                                    UINT64_MAX - 1023};
    char buf[32], tiny[4];
    uint64_t v, seed = 1;
    int wrong = 0;

    is_str(hw_format_size(0, buf, sizeof(buf)), "0B", "nothing");
    is_str(hw_format_size(7, buf, sizeof(buf)), "7B", "bytes");
    is_str(hw_format_size(1024, buf, sizeof(buf)), "1KiB", "a kibibyte");
    is_str(hw_format_size(64ull << 20, buf, sizeof(buf)), "64MiB", "mebibytes");
    is_str(hw_format_size(3ull << 30, buf, sizeof(buf)), "3GiB", "gibibytes");
    is_str(hw_format_size(1ull << 60, buf, sizeof(buf)), "1048576TiB", "tebibytes are the largest unit");
    is_str(hw_format_size(4294967303ull, buf, sizeof(buf)), "4294967303B", "what does not divide stays exact");
    is_str(hw_format_size(UINT64_MAX, tiny, sizeof(tiny)), "184", "a short buffer is kept to");
    for (size_t i = 0; i < HW_ARRAY_LEN(edge); i++) {
        int rc = hw_parse_size(hw_format_size(edge[i], buf, sizeof(buf)), &v);
        ok(rc == 0 && v == edge[i], "%s reads back", buf);
    }
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t want = (seed >> (i % 64)) << (i % 50);
        wrong += hw_parse_size(hw_format_size(want, buf, sizeof(buf)), &v) != 0 || v != want;
    }
    is_int(wrong, 0, "20000 other sizes read back");
}

int main(void)
{
    char lengthy[5000];
    uint64_t v;

    sizes();
    counts();
    durations();
    formats();
    memset(lengthy, 'x', sizeof(lengthy) - 1);
    lengthy[0] = '1';
    lengthy[sizeof(lengthy) - 1] = 0;
    is_int(hw_parse_size(lengthy, &v), -EINVAL, "a very long text is refused");
    ok(strlen(hw_error()) < HW_ERR_TEXT && strstr(hw_error(), "the unit"), "and the message keeps its end: %s",
       hw_error());
    return tap_done();
}
