/* SPDX-License-Identifier: Apache-2.0 */
/* For clang-tidy only (lint.sh includes it before every file but base.c): the analyzer sees one file at a time, and
 * cannot know that these return their first argument, which is never 0; it would follow paths on which a failure
 * was success. */
#include "base/base.h"
#define hw_fail(rc, ...)      ((void)hw_fail(rc, __VA_ARGS__), (rc))
#define hw_wrap(rc, ...)      ((void)hw_wrap(rc, __VA_ARGS__), (rc))
#define hw_fail_copy(rc, ...) ((void)hw_fail_copy(rc, __VA_ARGS__), (rc))
#define hw_no_memory(...)     ((void)hw_no_memory(__VA_ARGS__), -ENOMEM)
