/* SPDX-License-Identifier: Apache-2.0 */
/* The pattern of base/pattern.h in memory of any space, made and checked where it lies. Both are done on return; what
 * else writes there, or reads, must be over before. */
#ifndef HW_FILL_H
#define HW_FILL_H

#include "mem/space.h"

int hw_fill(const struct hw_space *s, void *ptr, size_t len, uint64_t seed, uint64_t pos);

/* *bad: how many bytes differ; if any, *first (may be NULL) gets the offset of the first. */
int hw_check(const struct hw_space *s, const void *ptr, size_t len, uint64_t seed, uint64_t pos, uint64_t *bad,
             uint64_t *first);

#endif
