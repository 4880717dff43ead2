/* SPDX-License-Identifier: Apache-2.0 */
/* Base helpers: error handling, logging, clocks and small functions. */
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

/* Records an error line for the calling thread (the failed action, its object and, if known, a remedy) and returns rc,
 * so that one statement can both record and return a failure. The function that detects the fault calls this function,
 * and its callers pass rc on. */
int hw_fail(int rc, const char *fmt, ...) HW_PRINTF(2, 3);
/* Records that there is no memory for an object, such as "a list of NICs" or "%zu workers". Returns -ENOMEM. */
int hw_no_memory(const char *fmt, ...) HW_PRINTF(1, 2);
/* Prefixes the recorded line with more context, as in "connecting to 1.2.3.4:20000: <old>". Returns rc. */
int hw_wrap(int rc, const char *fmt, ...) HW_PRINTF(2, 3);
/* Returns the calling thread's error line, which is never NULL. */
const char *hw_error(void);
/* Works like hw_fail() with a finished line, such as one that another thread has recorded. Returns rc. */
int hw_fail_copy(int rc, const char *line);
/* Saves the calling thread's error line and restores it when the block ends, so that failures during cleanup do not
 * replace it. */
#define HW_KEEP_ERROR() \
    __attribute__((cleanup(hw_error_put), unused)) struct hw_error_kept hw_error_kept_ = hw_error_take()
struct hw_error_kept {
    char text[HW_ERR_TEXT];
};
struct hw_error_kept hw_error_take(void);
void hw_error_put(const struct hw_error_kept *k);
/* Returns the name of an errno value, such as "ETIMEDOUT", or "unknown error". */
const char *hw_errno_name(int err);
/* Returns the description of an errno value, such as "Connection timed out". */
const char *hw_errno_text(int err);

struct hw_logger {
    hawser_log_fn fn;
    void *arg;
    int level; /* lines above this level are dropped */
};
/* Passes one formatted line to the callback, if there is one and level is at most l->level. Preserves errno. */
void hw_log(const struct hw_logger *l, int level, const char *fmt, ...) HW_PRINTF(3, 4);

/* Hashes data with 64-bit FNV-1a, to distinguish texts; not cryptographic. h is HW_HASH_START, or the hash of the bytes
 * before data. */
#define HW_HASH_START 14695981039346656037u
static inline uint64_t hw_hash(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return h;
}

/* Returns "s" or "": the ending of a regular noun after the number n. */
static inline const char *hw_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Returns n zeroed bytes, which the caller frees, or NULL if out of memory. For small blocks, faster than calloc(),
 * which does not use the thread cache in glibc before 2.41. */
static inline void *hw_zalloc(size_t n)
{
    enum { CACHED = 1032 }; /* the largest block in glibc's thread cache */
    if (n > CACHED)
        return calloc(1, n);
    void *p = malloc(n);
    __asm__("" : "+r"(p)); /* prevents the compiler from merging malloc() and memset() into calloc() */
    return p ? memset(p, 0, n) : NULL;
}

/* Returns the monotonic time in nanoseconds. */
static inline uint64_t hw_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Works like hw_now(), but is faster and may lag by some milliseconds. */
static inline uint64_t hw_now_coarse(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define HW_MS    1000000ull /* one millisecond in nanoseconds */
#define HW_NEVER UINT64_MAX

/* Returns the hw_now() time that is timeout_ms from now, or HW_NEVER if timeout_ms is negative. */
static inline uint64_t hw_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? HW_NEVER : hw_now() + (uint64_t)timeout_ms * HW_MS;
}

/* true in the library's own threads, which block all signals */
extern __thread bool hw_own_thread;

/* Calls openat2(2) with O_CLOEXEC. Returns a descriptor, or -1 with errno set. Tries up to 10,000 times after EAGAIN:
 * for a path with "..", including one within a symbolic link, the kernel may return EAGAIN if something on the machine
 * is mounted or renamed at the same time (fs/namei.c, handle_dots()). */
int hw_openat2(int dir, const char *path, int flags, uint64_t resolve);

/* Closes *fd, unless *fd is negative, and sets *fd to -1. Preserves errno. */
void hw_close(int *fd);

/* Free the memory or close the descriptor in a variable when the variable's block ends, for example
 * HW_AUTO_CLOSE int fd = -1. To keep the value for longer, set the variable to NULL or -1. Cleanup runs in the reverse
 * order of declaration. */
#define HW_AUTO_FREE  __attribute__((cleanup(hw_free)))
#define HW_AUTO_CLOSE __attribute__((cleanup(hw_close)))
/* Frees the memory that the pointer at p points to and sets that pointer to NULL. */
void hw_free(void *p);
/* Returns the descriptor in *fd and sets *fd to -1, so that HW_AUTO_CLOSE does not close the descriptor. */
static inline int hw_take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* Evaluate each argument once. __COUNTER__ gives nested uses different variable names. */
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
