/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seeded pattern that is written and checked at memory speed. The byte at absolute position pos under a seed is a
 * pure function of both. Any part of a buffer can be filled or checked separately, and bytes from another position,
 * transfer or iteration match only by chance.
 */
#ifndef HW_PATTERN_H
#define HW_PATTERN_H

#include "base/base.h"

/* Fills buf[0..len) with the pattern's bytes [pos, pos+len). buf may have any alignment. pos + len must be below 2^64.
 */
void hw_pattern_fill(void *buf, size_t len, uint64_t seed, uint64_t pos);

/* Returns the number of bytes of buf that differ from the pattern. If any bytes differ and first_bad is not NULL,
 * *first_bad receives the offset of the first such byte in buf. */
uint64_t hw_pattern_check(const void *buf, size_t len, uint64_t seed, uint64_t pos, uint64_t *first_bad);

#endif
