/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the pattern does not depend on how a range is divided or aligned, and differs between positions. */
#include "base/pattern.h"
#include "tests/tap.h"

#define GUARD 0x5c

static uint64_t rnd_state = 88172645463325252ull;

static uint64_t rnd(void)
{
    rnd_state ^= rnd_state << 13;
    rnd_state ^= rnd_state >> 7;
    rnd_state ^= rnd_state << 17;
    return rnd_state;
}

/* Checks fixed values, because all builds must generate the same bytes. */
static void fixed(void)
{
    static const uint8_t want[2][16] = {
        {0x7c, 0xc8, 0xce, 0x3b, 0x0a, 0x64, 0xd0, 0x10, 0xfc, 0xc4, 0xc2, 0x67, 0x52, 0x95, 0xad, 0x2c},
        {0xbd, 0xca, 0xda, 0x61, 0xf7, 0xf1, 0x1f, 0x35, 0xc6, 0xa3, 0x84, 0xb9, 0x48, 0x75, 0xc9, 0x8e}};
    uint8_t buf[16];

    hw_pattern_fill(buf, 16, 0, 0);
    ok(memcmp(buf, want[0], 16) == 0, "seed 0 at 0 has the bytes it always had");
    hw_pattern_fill(buf, 16, 42, 4294967303ull);
    ok(memcmp(buf, want[1], 16) == 0, "seed 42 at 2^32+7 has the bytes it always had");
}

/* Compares ranges of many lengths, offsets and positions with bytes that were generated one at a time. */
static void every_length(uint64_t base)
{
    enum { LEN = 200, SPAN = 16, LONG = 1100 };
    static uint8_t one[LONG + SPAN], buf[LONG + 2 * SPAN + 64];
    int wrong = 0, outside = 0, found = 0, missed = 0;

    for (size_t i = 0; i < sizeof(one); i++)
        hw_pattern_fill(one + i, 1, 99, base + i);
    for (size_t len = 0; len <= LONG; len += len < LEN ? 1 : 75)
        for (size_t off = 0; off < SPAN; off++)
            for (size_t pos = 0; pos < SPAN; pos += 1 + off % 3) {
                uint64_t first = 12345;
                memset(buf, GUARD, sizeof(buf));
                hw_pattern_fill(buf + off, len, 99, base + pos);
                wrong += len && memcmp(buf + off, one + pos, len) != 0;
                for (size_t i = 0; i < off; i++)
                    outside += buf[i] != GUARD;
                for (size_t i = off + len; i < sizeof(buf); i++)
                    outside += buf[i] != GUARD;
                found += hw_pattern_check(buf + off, len, 99, base + pos, &first) != 0 || first != 12345;
                if (len == 0)
                    continue;
                /* one wrong byte at a random offset, then a second wrong byte after it */
                size_t a = rnd() % len, b = a + rnd() % (len - a);
                buf[off + a] ^= (uint8_t)(1 + rnd() % 255);
                missed += hw_pattern_check(buf + off, len, 99, base + pos, &first) != 1 || first != a;
                missed += hw_pattern_check(buf + off, len, 99, base + pos, NULL) != 1;
                if (b != a) {
                    buf[off + b] ^= 0x80;
                    missed += hw_pattern_check(buf + off, len, 99, base + pos, &first) != 2 || first != a;
                }
            }
    is_int(wrong, 0, "any length, alignment and position: the same bytes as made one by one");
    is_int(outside, 0, "nothing is written outside");
    is_int(found, 0, "what was filled is found good");
    is_int(missed, 0, "one or two bad bytes are counted and the first is told");
}

static void all_bad(void)
{
    static uint8_t buf[100003];
    uint64_t first = 7, bad;

    hw_pattern_fill(buf, sizeof(buf), 5, 3);
    for (size_t i = 0; i < sizeof(buf); i++)
        buf[i] = (uint8_t)~buf[i];
    bad = hw_pattern_check(buf, sizeof(buf), 5, 3, &first);
    is_int(bad, sizeof(buf), "every byte bad: all are counted");
    is_int(first, 0, "from the first");
    is_int(hw_pattern_check(NULL, 0, 5, 3, &first), 0, "no bytes, no pointer");
    hw_pattern_fill(NULL, 0, 5, 3);
}

static uint8_t here[65536], there[65536];

/* Returns true if the bytes at two positions match only by chance. In n bytes, n / 256 matches are expected, with
 * a standard deviation of sqrt(n * 255) / 256. Accepts deviations of up to eight standard deviations, both for all
 * bytes together and for each of the eight byte positions in a word. */
static bool by_chance(uint64_t seed_a, uint64_t pos_a, uint64_t seed_b, uint64_t pos_b)
{
    const double n = sizeof(here), per = n / 8;
    double all = 0, lane[8] = {0};

    hw_pattern_fill(here, sizeof(here), seed_a, pos_a);
    hw_pattern_fill(there, sizeof(there), seed_b, pos_b);
    for (size_t i = 0; i < sizeof(here); i++)
        if (here[i] == there[i]) {
            lane[i % 8]++;
            all++;
        }
    for (int i = 0; i < 8; i++) {
        double d = lane[i] - per / 256;
        if (d * d > 64 * per * 255 / 65536)
            return false;
    }
    return (all - n / 256) * (all - n / 256) <= 64 * n * 255 / 65536;
}

static void nothing_repeats(void)
{
    uint64_t fib[2] = {1, 2};
    int bad = 0;

    for (uint64_t d = 1; d <= 4096; d++)
        bad += !by_chance(1, 0, 1, d);
    is_int(bad, 0, "moved by 1 to 4096 bytes: matches only by chance");
    bad = 0;
    for (int bit = 3; bit < 63; bit++)
        for (int64_t around = -9; around <= 9; around += 3)
            bad += !by_chance(1, 4096, 1, (1ull << bit) + (uint64_t)around + 4096);
    is_int(bad, 0, "moved by a power of two or nearly: matches only by chance");
    bad = 0;
    /* A golden-ratio sequence almost repeats after a Fibonacci number of steps. */
    for (int i = 0; i < 80; i++) {
        uint64_t next = fib[0] + fib[1];
        bad += !by_chance(1, 0, 1, fib[0] * 8);
        fib[0] = fib[1];
        fib[1] = next;
    }
    is_int(bad, 0, "moved by a Fibonacci number of words: matches only by chance");
    bad = 0;
    for (uint64_t s = 0; s < 1000; s++)
        bad += !by_chance(s, 0, s + 1, 0) + !by_chance(s, 0, s + 1, 8) + !by_chance(s, 8 * s, s + 1, 0);
    is_int(bad, 0, "neighbouring seeds: match only by chance");
    bad = 0;
    for (int bit = 0; bit < 64; bit++)
        bad += !by_chance(0, 0, 1ull << bit, 0) + !by_chance(UINT64_MAX, 0, UINT64_MAX ^ (1ull << bit), 0);
    is_int(bad, 0, "seeds one bit apart: match only by chance");
    bad = 0;
    for (int i = 0; i < 500; i++) {
        uint64_t p = rnd() >> 16, d = (rnd() >> (16 + i % 40)) | 1;
        bad += !by_chance(7, p, 7, p + d);
    }
    is_int(bad, 0, "random moves: match only by chance");
    ok(!by_chance(7, 0, 7, 0), "this test sees a match when there is one");
}

/* Tests that all 256 values are about equally frequent at each byte position of a word, because constant data of any
 * value must be detected. Chi-squared with 255 degrees of freedom has mean 255 and standard deviation 22.6. */
static void values(void)
{
    static uint8_t buf[1 << 20];
    double worst = 0;

    hw_pattern_fill(buf, sizeof(buf), 3, 0);
    for (int lane = 0; lane < 8; lane++) {
        double count[256] = {0}, chi = 0, want = sizeof(buf) / 8.0 / 256;
        for (size_t i = (size_t)lane; i < sizeof(buf); i += 8)
            count[buf[i]]++;
        for (int v = 0; v < 256; v++)
            chi += (count[v] - want) * (count[v] - want) / want;
        worst = HW_MAX(worst, chi);
    }
    ok(worst < 255 + 8 * 22.6, "values are evenly spread: chi-squared %.0f", worst);
}

int main(void)
{
    fixed();
    every_length(0);
    every_length((1ull << 32) - 600);
    every_length((1ull << 63) + 3);
    all_bad();
    nothing_repeats();
    values();
    return tap_done();
}
