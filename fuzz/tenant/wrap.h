/* SPDX-License-Identifier: Apache-2.0 */
/* What the linker's --wrap needs (fuzz/meson.build): between calls.c and sockets.c. */
#ifndef HW_FUZZ_TENANT_WRAP_H
#define HW_FUZZ_TENANT_WRAP_H

#include "fuzz/tenant/tenant.h"

#include <errno.h>

/* AddressSanitizer's own calls come here too, before it is set up. */
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
/* rc where it is 0 or more; else -1, and errno. */
static inline int result(int rc)
{
    if (rc >= 0)
        return rc;
    errno = -rc;
    return -1;
}

/* Is fd one of the broker's here? */
static inline bool played(int fd)
{
    return t.playing && fd >= T_FD_FIRST;
}

T_WRAPS_END

#endif
