/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code that runs on a GPU: the gather of fragments, and the writing and checking of the pattern of
 * lib/base/pattern.c.
 *
 * The library contains gather.ptx, which scripts/ptx.sh makes from this file; the driver compiles it for the GPU. The
 * code is CUDA C that uses no CUDA header, so that both clang's NVPTX back end and nvcc accept it. Special registers
 * and the few special instructions, which the headers would declare, are inline PTX.
 */
#ifdef __clang__ /* nvcc has these built in */
#define __global__            __attribute__((global))
#define __device__            __attribute__((device))
#define __forceinline__       __inline__ __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
typedef unsigned int uint4 __attribute__((ext_vector_type(4)));
#endif

#define THREADS 256u /* maximum threads in a block (lib/mem/kernels.h) */
#define WARP    32u
#define FEW     64u /* HW_FEW (lib/mem/kernels.h) */
/* Number of 16-byte vectors that each thread has in flight. SHIFT_BATCH applies to copy_shifted(), which loads two
 * vectors for each result, and to hw_pattern_check(). */
#define BATCH       8u
#define SHIFT_BATCH 4u

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ __forceinline__ u32 thread_index(void)
{
    u32 v;
    asm("mov.u32 %0, %%tid.x;" : "=r"(v));
    return v;
}

static __device__ __forceinline__ u32 block_index(void)
{
    u32 v;
    asm("mov.u32 %0, %%ctaid.x;" : "=r"(v));
    return v;
}

static __device__ __forceinline__ u32 block_threads(void)
{
    u32 v;
    asm("mov.u32 %0, %%ntid.x;" : "=r"(v));
    return v;
}

static __device__ __forceinline__ u32 blocks(void)
{
    u32 v;
    asm("mov.u32 %0, %%nctaid.x;" : "=r"(v));
    return v;
}

static __device__ __forceinline__ u32 from_lane(u32 v, u32 lane)
{
    u32 r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(r) : "r"(v), "r"(lane));
    return r;
}

/* Returns the low word of (high:low) >> bits. */
static __device__ __forceinline__ u32 funnel(u32 low, u32 high, u32 bits)
{
    u32 v;
    asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(low), "r"(high), "r"(bits));
    return v;
}

/* Returns the 16 bytes that begin WORDS words and bits / 8 bytes into two adjacent vectors. */
template <u32 WORDS>
static __device__ __forceinline__ uint4 shifted(uint4 a, uint4 b, u32 bits)
{
    const u32 w[9] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, 0};
    uint4 v;
    v.x = funnel(w[WORDS], w[WORDS + 1], bits);
    v.y = funnel(w[WORDS + 1], w[WORDS + 2], bits);
    v.z = funnel(w[WORDS + 2], w[WORDS + 3], bits);
    v.w = funnel(w[WORDS + 3], w[WORDS + 4], bits);
    return v;
}

/* Copies n vectors with one warp. dst and src point to this thread's first vector. If the last batch is not full, its
 * first vector is loaded again in place of the missing vectors, which avoids a branch. Loads without branches stay
 * together, and the vector is in the cache. */
static __device__ __forceinline__ void copy_aligned(uint4 *dst, const uint4 *src, u32 n, u32 lane)
{
    uint4 v[BATCH];

    for (; n >= BATCH * WARP; n -= BATCH * WARP, dst += BATCH * WARP, src += BATCH * WARP) {
#pragma unroll
        for (u32 j = 0; j < BATCH; j++)
            v[j] = src[j * WARP];
#pragma unroll
        for (u32 j = 0; j < BATCH; j++)
            dst[j * WARP] = v[j];
    }
    if (lane >= n)
        return;
    n -= lane;
#pragma unroll
    for (u32 j = 0; j < BATCH; j++)
        v[j] = src[j * WARP < n ? j * WARP : 0];
#pragma unroll
    for (u32 j = 0; j < BATCH; j++)
        if (j * WARP < n)
            dst[j * WARP] = v[j];
}

/* Copies n vectors whose bytes begin 4 * WORDS + bits / 8 bytes into *src, so that n + 1 vectors are read. Two threads
 * load each vector; the second finds it in the first-level cache. */
template <u32 WORDS>
static __device__ __forceinline__ void copy_shifted(uint4 *dst, const uint4 *src, u32 n, u32 lane, u32 bits)
{
    for (u32 i = lane; i < n; i += SHIFT_BATCH * WARP, dst += SHIFT_BATCH * WARP, src += SHIFT_BATCH * WARP) {
        uint4 a[SHIFT_BATCH], b[SHIFT_BATCH];
#pragma unroll
        for (u32 j = 0; j < SHIFT_BATCH; j++) {
            u32 k = i + j * WARP < n ? j * WARP : 0;
            a[j] = src[k];
            b[j] = src[k + 1];
        }
#pragma unroll
        for (u32 j = 0; j < SHIFT_BATCH; j++)
            if (i + j * WARP < n)
                dst[j * WARP] = shifted<WORDS>(a[j], b[j], bits);
    }
}

/* Copies one fragment, or one slice of a fragment, with one warp. Reads nothing outside [src, src+len) and writes
 * nothing outside [dst, dst+len). */
static __device__ __forceinline__ void copy(u8 *dst, const u8 *src, u32 len, u32 lane)
{
    u32 head, tail, n, shift, bits;
    u8 edge, edge2;

    if (len < 4 * 16) { /* there may be no body */
        if (lane < len)
            edge = src[lane];
        if (lane + WARP < len)
            edge2 = src[lane + WARP];
        if (lane < len)
            dst[lane] = edge;
        if (lane + WARP < len)
            dst[lane + WARP] = edge2;
        return;
    }
    /* The head ends where dst is a multiple of 16. If src is not a multiple of 16 there, the aligned vectors that
     * contain the body's bytes must neither begin before src nor end after it. Head and tail therefore grow by a vector
     * where necessary. */
    head = (u32)(0 - (u64)dst) & 15;
    shift = (u32)((u64)src - (u64)dst) & 15;
    if (shift > head)
        head += 16;
    n = (len - head) / 16;
    tail = (len - head) % 16;
    if (shift && 16 - shift > tail) {
        n--;
        tail += 16;
    }

    /* head and tail are shorter than 32 bytes */
    if (lane < head)
        edge = src[lane];
    if (lane < tail)
        edge2 = src[len - tail + lane];
    if (lane < head)
        dst[lane] = edge;
    if (lane < tail)
        dst[len - tail + lane] = edge2;

    uint4 *to = (uint4 *)(dst + head) + lane;
    const uint4 *from = (const uint4 *)(src + head - shift) + lane;
    bits = shift % 4 * 8;
    if (shift == 0)
        copy_aligned(to, from, n, lane);
    else if (shift < 4)
        copy_shifted<0>(to, from, n, lane, bits);
    else if (shift < 8)
        copy_shifted<1>(to, from, n, lane, bits);
    else if (shift < 12)
        copy_shifted<2>(to, from, n, lane, bits);
    else
        copy_shifted<3>(to, from, n, lane, bits);
}

/* Copies the n fragments of list from src to dst. The list (struct hw_gather_entry: u32 source offset, u32 length, u64
 * destination offset) is in host memory. A warp takes `each` entries (1 to 32) at a time and reads them in one access,
 * because each access is a round trip to the host. Any grid of whole warps is correct as long as warps * each + n <
 * 2^32. */
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    hw_gather(u8 *dst, const u8 *src, const uint4 *list, u32 n, u32 each)
{
    u32 lane = thread_index() % WARP;
    u32 warp = block_index() * (block_threads() / WARP) + thread_index() / WARP;
    u32 step = blocks() * (block_threads() / WARP) * each;

    for (u32 first = warp * each; first < n; first += step) {
        u32 count = n - first < each ? n - first : each;
        uint4 mine = {0, 0, 0, 0};

        if (lane < count)
            mine = list[first + lane];
        for (u32 i = 0; i < count; i++) {
            u32 src_off = from_lane(mine.x, i), len = from_lane(mine.y, i);
            u64 dst_off = from_lane(mine.z, i) | (u64)from_lane(mine.w, i) << 32;
            copy(dst + dst_off, src + src_off, len, lane);
        }
    }
}

/* Copies up to FEW fragments, whose list is passed with the launch, because reading host memory takes longer than
 * copying them. Each warp copies one fragment. */
struct few {
    uint4 list[FEW];
};

extern "C" __global__ void __launch_bounds__(THREADS, 4) hw_gather_few(u8 *dst, const u8 *src, u32 n, struct few few)
{
    u32 warp = block_index() * (block_threads() / WARP) + thread_index() / WARP;

    if (warp < n) {
        uint4 e = few.list[warp];
        copy(dst + (e.z | (u64)e.w << 32), src + e.x, e.y, thread_index() % WARP);
    }
}

/* lib/base/pattern.c explains the pattern. These are its constants. */
#define WEYL 0x9e3779b97f4a7c15ull

static __device__ __forceinline__ u64 key_of(u64 seed)
{
    u64 z = seed + WEYL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static __device__ __forceinline__ u64 word_at(u64 key, u64 n)
{
    u64 x = key + n * WEYL;
    x ^= x >> 30;
    x += x << 18;
    x ^= x >> 27;
    x += x << 9;
    x ^= x >> 31;
    x += x << 25;
    x ^= x >> 29;
    return x;
}

static __device__ __forceinline__ u8 byte_at(u64 key, u64 pos)
{
    return (u8)(word_at(key, pos / 8) >> (pos % 8 * 8));
}

/* Returns the 16 bytes at pos. */
static __device__ __forceinline__ uint4 vec_at(u64 key, u64 pos)
{
    u32 bits = (u32)(pos % 8) * 8;
    u64 lo = word_at(key, pos / 8), hi = word_at(key, pos / 8 + 1);
    uint4 v;

    if (bits) {
        lo = lo >> bits | hi << (64 - bits);
        hi = hi >> bits | word_at(key, pos / 8 + 2) << (64 - bits);
    }
    v.x = (u32)lo;
    v.y = (u32)(lo >> 32);
    v.z = (u32)hi;
    v.w = (u32)(hi >> 32);
    return v;
}

/* A byte range in three parts: the head [0, head), the body [head, head + 16 n), and the tail. The head ends where the
 * address is a multiple of 16, or at the end of the range. */
struct parts {
    u64 head, n;
    u32 tail;
};

static __device__ __forceinline__ struct parts parts_of(const u8 *at, u64 len)
{
    struct parts p;
    p.head = (0 - (u64)at) & 15;
    if (p.head > len)
        p.head = len;
    p.n = (len - p.head) / 16;
    p.tail = (u32)((len - p.head) % 16);
    return p;
}

extern "C" __global__ void __launch_bounds__(THREADS) hw_pattern_fill(u8 *dst, u64 len, u64 seed, u64 pos)
{
    u64 key = key_of(seed), me = (u64)block_index() * block_threads() + thread_index();
    u64 all = (u64)blocks() * block_threads();
    struct parts p = parts_of(dst, len);
    uint4 *body = (uint4 *)(dst + p.head);

    if (me < p.head)
        dst[me] = byte_at(key, pos + me);
    if (me < p.tail)
        dst[len - p.tail + me] = byte_at(key, pos + len - p.tail + me);
    for (u64 i = me; i < p.n; i += all)
        body[i] = vec_at(key, pos + p.head + i * 16);
}

/* Adds the number of bytes that differ from the pattern to found[0], and lowers found[1] to the offset of the first of
 * them. */
extern "C" __global__ void __launch_bounds__(THREADS)
    hw_pattern_check(const u8 *src, u64 len, u64 seed, u64 pos, u64 *found)
{
    u64 key = key_of(seed), me = (u64)block_index() * block_threads() + thread_index();
    u64 all = (u64)blocks() * block_threads();
    u64 bad = 0, first = ~0ull, at;
    struct parts p = parts_of(src, len);
    const uint4 *body = (const uint4 *)(src + p.head);
    uint4 v[SHIFT_BATCH];

    if (me < p.head && src[me] != byte_at(key, pos + me)) {
        bad++;
        first = me;
    }
    for (u64 i = me; i < p.n; i += all * SHIFT_BATCH) {
#pragma unroll
        for (u32 j = 0; j < SHIFT_BATCH; j++)
            if (i + j * all < p.n)
                v[j] = body[i + j * all];
#pragma unroll
        for (u32 j = 0; j < SHIFT_BATCH; j++)
            if (i + j * all < p.n) {
                at = p.head + (i + j * all) * 16;
                uint4 want = vec_at(key, pos + at);
                if ((v[j].x ^ want.x) | (v[j].y ^ want.y) | (v[j].z ^ want.z) | (v[j].w ^ want.w))
                    for (u32 b = 0; b < 16; b++) /* rare, so it may be slow */
                        if (src[at + b] != byte_at(key, pos + at + b)) {
                            bad++;
                            first = at + b < first ? at + b : first;
                        }
            }
    }
    at = len - p.tail + me;
    if (me < p.tail && src[at] != byte_at(key, pos + at)) {
        bad++;
        first = at < first ? at : first;
    }
    if (bad) {
        asm volatile("red.global.add.u64 [%0], %1;" ::"l"(found), "l"(bad) : "memory");
        asm volatile("red.global.min.u64 [%0], %1;" ::"l"(found + 1), "l"(first) : "memory");
    }
}
