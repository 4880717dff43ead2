/* SPDX-License-Identifier: Apache-2.0 */
/* Used only by clang-tidy. lint.sh includes this header before the files that the analyzer checks, except base.c and
 * the examples. The analyzer sees one file at a time, so it does not know that these functions return their first
 * argument (or -ENOMEM), which is negative wherever the result is used. Without these macros, the analyzer would follow
 * paths on which a failure counts as success. */
#include "base/base.h"
#define hw_fail(rc, ...)      ((void)hw_fail(rc, __VA_ARGS__), (rc))
#define hw_wrap(rc, ...)      ((void)hw_wrap(rc, __VA_ARGS__), (rc))
#define hw_fail_copy(rc, ...) ((void)hw_fail_copy(rc, __VA_ARGS__), (rc))
#define hw_no_memory(...)     ((void)hw_no_memory(__VA_ARGS__), -ENOMEM)
