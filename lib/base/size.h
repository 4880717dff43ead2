/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parsing of sizes, counts and durations, and formatting of sizes. */
#ifndef HW_SIZE_H
#define HW_SIZE_H

#include "base/base.h"

/* Parses a size such as "4096", "64KiB", "1MB" or "2G". K, M, G, T and KiB, MiB, GiB, TiB are binary, and KB, MB, GB,
 * TB are decimal. Case is ignored. Signs, blanks and overflows are not allowed. Fails with -EINVAL and echoes the text.
 */
int hw_parse_size(const char *text, uint64_t *out);
/* Parses a decimal number within [min, max]. Fails with -EINVAL and echoes the text and the bounds. */
int hw_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/* Parses a duration such as "10", "10s", "500ms" or "2m" to milliseconds. A number without a unit is in seconds.
 * Fractions such as "0.5s" are allowed. Fails with -EINVAL and echoes the text, including if the value is not a whole
 * number of milliseconds, because values are not rounded. */
int hw_parse_duration_ms(const char *text, uint64_t *out);
/* Formats a size with the largest unit that divides it exactly, such as "64MiB", "1KiB", "7B" or "4294967303B". Returns
 * buf. */
char *hw_format_size(uint64_t bytes, char *buf, size_t cap);

#endif
