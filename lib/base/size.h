/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parsing and printing of sizes, counts and durations. */
#ifndef HW_SIZE_H
#define HW_SIZE_H

#include "base/base.h"

/* Parses "4096", "64KiB", "1MB", "2G" (bare K, M, G, T are binary; KB, MB, GB, TB decimal; KiB, MiB, GiB, TiB binary;
 * case is ignored). No sign, no blanks, no overflow. -EINVAL echoes the text. */
int hw_parse_size(const char *text, uint64_t *out);
/* Parses decimal digits within [min, max]. -EINVAL echoes the text and the bounds. */
int hw_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/* Parses "10", "10s", "500ms", "2m" to milliseconds; bare numbers are seconds; fractions ("0.5s") are allowed. -EINVAL
 * echoes the text, also if it is not a whole number of milliseconds: the value is not rounded. */
int hw_parse_duration_ms(const char *text, uint64_t *out);
/* Formats "64MiB", "1KiB", "7B" where the value divides exactly, else bytes: "4294967303B". Returns buf. */
char *hw_format_size(uint64_t bytes, char *buf, size_t cap);

#endif
