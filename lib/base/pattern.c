/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pattern is a sequence of little-endian 64-bit words, one for each 8 bytes of position. A word is a bijective mix
 * of (key + word number * odd constant), so no two positions with the same seed have the same word. The mix uses only
 * operations that SSE2 and AVX2 have for 64-bit lanes: addition, xor and shift. Neither has a 64-bit multiplication.
 */
#include "base/pattern.h"

#include <endian.h>
#include <string.h>

#define WEYL  0x9e3779b97f4a7c15ull /* 2^64 / golden ratio, odd: the increment of splitmix64 */
#define LANES 4
#define BLOCK 256 /* unit of filling and checking in bytes */

/* tests/lib/base/test_pattern.c counts the bytes that match the pattern of another position or seed. With this mix,
 * about as many bytes match as would by chance, unlike with the shorter mixes that were tried. */
#define MIX(x)            \
    do {                  \
        (x) ^= (x) >> 30; \
        (x) += (x) << 18; \
        (x) ^= (x) >> 27; \
        (x) += (x) << 9;  \
        (x) ^= (x) >> 31; \
        (x) += (x) << 25; \
        (x) ^= (x) >> 29; \
    } while (0)

/* Four words. Without AVX2 the compiler uses two SSE2 or NEON registers. */
typedef uint64_t vec __attribute__((vector_size(LANES * 8)));

/* Computes the key of a seed with splitmix64's finalizer (Steele, Lea, Flood 2014). Similar seeds yield distant keys,
 * so that the pattern of one seed is not that of another, shifted by a few words. */
static uint64_t key_of(uint64_t seed)
{
    uint64_t z = seed + WEYL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline uint64_t word_at(uint64_t key, uint64_t n)
{
    uint64_t x = key + n * WEYL;
    MIX(x);
    return x;
}

/* Returns word n in the byte order of memory. */
static inline uint64_t stored_word_at(uint64_t key, uint64_t n)
{
    return htole64(word_at(key, n));
}

/* Returns the byte at pos. Used for the ends of a range and for counting wrong bytes. */
static inline uint8_t byte_at(uint64_t key, uint64_t pos)
{
    return (uint8_t)(word_at(key, pos / 8) >> (pos % 8 * 8));
}

static inline __attribute__((always_inline)) void vec_start(vec *x, uint64_t key, uint64_t n)
{
    uint64_t a = key + n * WEYL;
    *x = (vec){a, a + WEYL, a + 2 * WEYL, a + 3 * WEYL};
}

static inline __attribute__((always_inline)) void fill_body(unsigned char *p, size_t blocks, uint64_t key, uint64_t n)
{
    const vec step = {LANES * WEYL, LANES * WEYL, LANES * WEYL, LANES * WEYL};
    vec x, y;

    vec_start(&x, key, n);
    for (size_t i = 0; i < blocks * (BLOCK / sizeof(vec)); i++, p += sizeof(vec)) {
        y = x;
        MIX(y);
        memcpy(p, &y, sizeof(y));
        x += step;
    }
}

/* Returns the number of leading blocks that are correct. */
static inline __attribute__((always_inline)) size_t check_body(const unsigned char *p, size_t blocks, uint64_t key,
                                                               uint64_t n)
{
    const vec step = {LANES * WEYL, LANES * WEYL, LANES * WEYL, LANES * WEYL};
    vec x, y, z;

    vec_start(&x, key, n);
    for (size_t b = 0; b < blocks; b++) {
        vec bad = {0};
        for (size_t i = 0; i < BLOCK / sizeof(vec); i++, p += sizeof(vec)) {
            y = x;
            MIX(y);
            memcpy(&z, p, sizeof(z));
            bad |= y ^ z;
            x += step;
        }
        if (bad[0] | bad[1] | bad[2] | bad[3])
            return b;
    }
    return blocks;
}

/* Filling and checking have AVX2 versions, which are selected explicitly at run time. GCC's target_clones would need
 * ifuncs, whose resolvers run before the sanitizers' runtimes are ready. */
static void fill_any(unsigned char *p, size_t blocks, uint64_t key, uint64_t n)
{
    fill_body(p, blocks, key, n);
}

static size_t check_any(const unsigned char *p, size_t blocks, uint64_t key, uint64_t n)
{
    return check_body(p, blocks, key, n);
}

/* HW_PATTERN_PLAIN allows a test to run the code for machines without AVX2. */
#if defined(__x86_64__) && !defined(HW_PATTERN_PLAIN)
__attribute__((target("avx2"))) static void fill_avx2(unsigned char *p, size_t blocks, uint64_t key, uint64_t n)
{
    fill_body(p, blocks, key, n);
}

__attribute__((target("avx2"))) static size_t check_avx2(const unsigned char *p, size_t blocks, uint64_t key,
                                                         uint64_t n)
{
    return check_body(p, blocks, key, n);
}

#define BEST(name) (__builtin_cpu_supports("avx2") ? name##_avx2 : name##_any)
#else
#define BEST(name) name##_any
#endif

/* Vectors are stored in native byte order, so a big-endian machine computes every word separately. */
#define WHOLE_BLOCKS(len) (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? (len) / BLOCK : 0)

void hw_pattern_fill(void *buf, size_t len, uint64_t seed, uint64_t pos)
{
    uint64_t key = key_of(seed);
    unsigned char *p = buf;
    size_t blocks;

    if (len == 0) /* buf may be NULL, and adding even 0 to NULL is undefined */
        return;
    for (; len > 0 && pos % 8 != 0; len--)
        *p++ = byte_at(key, pos++);
    blocks = WHOLE_BLOCKS(len);
    BEST(fill)(p, blocks, key, pos / 8);
    p += blocks * BLOCK;
    pos += blocks * BLOCK;
    len -= blocks * BLOCK;
    for (; len >= 8; p += 8, pos += 8, len -= 8) {
        uint64_t w = stored_word_at(key, pos / 8);
        memcpy(p, &w, 8);
    }
    while (len-- > 0)
        *p++ = byte_at(key, pos++);
}

struct findings {
    uint64_t bad, first;
};

static void check_bytes(struct findings *f, const unsigned char *buf, size_t at, size_t len, uint64_t key, uint64_t pos)
{
    for (size_t i = at; i < at + len; i++) {
        if (buf[i] == byte_at(key, pos + i))
            continue;
        if (f->bad++ == 0)
            f->first = i;
    }
}

uint64_t hw_pattern_check(const void *buf, size_t len, uint64_t seed, uint64_t pos, uint64_t *first_bad)
{
    uint64_t key = key_of(seed);
    const unsigned char *p = buf;
    struct findings f = {0, 0};
    size_t at = HW_MIN((size_t)(-pos % 8), len);

    if (len == 0)
        return 0;
    check_bytes(&f, p, 0, at, key, pos);
    while (WHOLE_BLOCKS(len - at) > 0) {
        size_t blocks = WHOLE_BLOCKS(len - at);
        size_t good = BEST(check)(p + at, blocks, key, (pos + at) / 8);
        at += good * BLOCK;
        if (good < blocks) {
            check_bytes(&f, p, at, BLOCK, key, pos);
            at += BLOCK;
        }
    }
    for (; len - at >= 8; at += 8) {
        uint64_t w;
        memcpy(&w, p + at, 8);
        if (w != stored_word_at(key, (pos + at) / 8))
            check_bytes(&f, p, at, 8, key, pos);
    }
    check_bytes(&f, p, at, len - at, key, pos);
    if (first_bad && f.bad)
        *first_bad = f.first;
    return f.bad;
}
