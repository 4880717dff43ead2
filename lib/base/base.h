/* SPDX-License-Identifier: Apache-2.0 */
/* The ground everything stands on: the error contract, logging, clocks, small helpers. */
#ifndef HW_BASE_H
#define HW_BASE_H

#include "hawser.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HW_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define HW_ERR_TEXT     256

/* Records "what was tried, on what, what to do" for the calling thread and returns rc (0 or -errno), so that
 * a failure is made and returned in one line. Only whoever detects a fault calls it; callers pass rc on. */
int hw_fail(int rc, const char *fmt, ...) HW_PRINTF(2, 3);
/* Records that there is no memory for what the text names: "a list of NICs", "%zu workers". Returns -ENOMEM. */
int hw_no_memory(const char *fmt, ...) HW_PRINTF(1, 2);
/* Puts more context in front of the recorded line: "connecting to 1.2.3.4:20000: <old>". Returns rc. */
int hw_wrap(int rc, const char *fmt, ...) HW_PRINTF(2, 3);
/* The calling thread's line; never NULL. */
const char *hw_error(void);
/* Copies a line recorded elsewhere (by a progress thread, say) to the calling thread. Returns rc. */
int hw_fail_copy(int rc, const char *line);
/* Keeps the calling thread's line as it is now until the block ends: what the block undoes may fail, and says nothing.
 */
#define HW_KEEP_ERROR() \
    __attribute__((cleanup(hw_error_put), unused)) struct hw_error_kept hw_error_kept_ = hw_error_take()
struct hw_error_kept {
    char text[HW_ERR_TEXT];
};
struct hw_error_kept hw_error_take(void);
void hw_error_put(const struct hw_error_kept *k);
/* The name of an errno value, "ETIMEDOUT"; for JSON and logs. */
const char *hw_errno_name(int err);
/* The same in words, "Connection timed out"; for messages to people. */
const char *hw_errno_text(int err);

struct hw_logger {
    hawser_log_fn fn;
    void *arg;
    int level; /* lines above it are not made */
};
/* Formats one line and hands it over; preserves errno; nothing where there is no callback. */
void hw_log(const struct hw_logger *l, int level, const char *fmt, ...) HW_PRINTF(3, 4);

/* FNV-1a, 64 bits: tells texts apart, and is no secret. h: HW_HASH_START, or the hash of what stands before. */
#define HW_HASH_START 14695981039346656037u
static inline uint64_t hw_hash(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return h;
}

/* n bytes of zeros, which the caller frees. Faster than calloc(), which does not use the thread's cache in glibc before
 * 2.41. NULL: no memory. */
static inline void *hw_zalloc(size_t n)
{
    enum { CACHED = 1032 }; /* glibc's cache has no larger ones */
    if (n > CACHED)
        return calloc(1, n);
    void *p = malloc(n);
    __asm__("" : "+r"(p)); /* or the compiler makes a calloc() of the two */
    return p ? memset(p, 0, n) : NULL;
}

/* Monotonic nanoseconds. */
static inline uint64_t hw_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The same, some milliseconds behind the truth at worst and five times as cheap: for deadlines of a second and more. */
static inline uint64_t hw_now_coarse(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define HW_MS    1000000ull /* nanoseconds */
#define HW_NEVER UINT64_MAX

/* The deadline, in hw_now() terms, timeout_ms from now; -1: never. */
static inline uint64_t hw_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? HW_NEVER : hw_now() + (uint64_t)timeout_ms * HW_MS;
}

/* True in the library's own threads, which block all signals. */
extern __thread bool hw_own_thread;

/* openat2(2) with O_CLOEXEC: a descriptor, or -1 and errno. Made again on EAGAIN: of a path with "..", be it in a
 * symbolic link, the kernel says so whenever anything on the machine is mounted or renamed meanwhile (fs/namei.c,
 * handle_dots()). */
int hw_openat2(int dir, const char *path, int flags, uint64_t resolve);

/* close() that keeps errno, ignores -1 and leaves -1 behind. */
void hw_close(int *fd);

/* Given back when the block ends, on whichever way: HW_AUTO_FREE char *text = NULL; HW_AUTO_CLOSE int fd = -1; what
 * keeps it for longer leaves NULL or -1 there. The last one declared goes first. */
#define HW_AUTO_FREE  __attribute__((cleanup(hw_free)))
#define HW_AUTO_CLOSE __attribute__((cleanup(hw_close)))
/* Frees what the pointer at p points to, and leaves NULL there. */
void hw_free(void *p);
/* Takes a descriptor out of a variable that HW_AUTO_CLOSE guards. */
static inline int hw_take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* Each argument is evaluated once. The numbers keep the names apart where one stands within another. */
#define HW_MIN(a, b)               HW_PICK(<, a, b, __COUNTER__)
#define HW_MAX(a, b)               HW_PICK(>, a, b, __COUNTER__)
#define HW_PICK(is, a, b, n)       HW_PICK_NAMED(is, a, b, n)
#define HW_PICK_NAMED(is, a, b, n) HW_PICK_BY(is, a, b, hw_a_##n, hw_b_##n)
/* NOLINTBEGIN(bugprone-macro-parentheses): x and y are declared here, is is an operator */
#define HW_PICK_BY(is, a, b, x, y)                  \
    __extension__({                                 \
        __typeof__(1 ? (a) : (b)) x = (a), y = (b); \
        x is y ? x : y;                             \
    })
/* NOLINTEND(bugprone-macro-parentheses) */
#define HW_ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define hw_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
