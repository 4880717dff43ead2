/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions for the linker's --wrap (fuzz/meson.build), which calls.c and sockets.c share. */
#ifndef HW_FUZZ_TENANT_WRAP_H
#define HW_FUZZ_TENANT_WRAP_H

#include "fuzz/tenant/tenant.h"

#include <errno.h>

/* AddressSanitizer's own calls are redirected as well, even before it is initialised. */
#ifdef __clang__
#define T_UNWATCHED   __attribute__((no_sanitize("address", "undefined", "coverage")))
#define T_WRAPS_BEGIN _Pragma("clang attribute push(T_UNWATCHED, apply_to = function)")
#define T_WRAPS_END   _Pragma("clang attribute pop")
#else
#define T_WRAPS_BEGIN
#define T_WRAPS_END
#endif

#define WRAP(type, name, ...)        \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

T_WRAPS_BEGIN
/* Returns rc if it is not negative; otherwise sets errno and returns -1. */
static inline int result(int rc)
{
    if (rc >= 0)
        return rc;
    errno = -rc;
    return -1;
}

/* Returns true if fd is a simulated file descriptor of the broker. */
static inline bool played(int fd)
{
    return t.playing && fd >= T_FD_FIRST;
}

T_WRAPS_END

#endif
