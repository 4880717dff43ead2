/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seeded pattern at memory speed: the byte at absolute position pos under seed is a pure function of both. Any part
 * of a buffer can be filled or checked on its own, and a byte from another position, transfer or iteration does not
 * match.
 */
#ifndef HW_PATTERN_H
#define HW_PATTERN_H

#include "base/base.h"

/* Fills buf[0..len) with the pattern's bytes [pos, pos+len). Any alignment; pos + len is below 2^64. */
void hw_pattern_fill(void *buf, size_t len, uint64_t seed, uint64_t pos);

/* Returns the number of bytes of buf that differ from the pattern; 0: none. *first_bad (may be NULL) receives the
 * offset in buf of the first one. */
uint64_t hw_pattern_check(const void *buf, size_t len, uint64_t seed, uint64_t pos, uint64_t *first_bad);

#endif
