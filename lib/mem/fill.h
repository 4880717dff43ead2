/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and checks the pattern of base/pattern.h in memory of any space, in place. Both functions are complete on
 * return; the caller ensures that nothing else accesses the memory at the time. */
#ifndef HW_FILL_H
#define HW_FILL_H

#include "mem/space.h"

int hw_fill(const struct hw_space *s, void *ptr, size_t len, uint64_t seed, uint64_t pos);

/* Sets *bad to the number of bytes that differ; if there are any, *first (may be NULL) to the offset of the first. */
int hw_check(const struct hw_space *s, const void *ptr, size_t len, uint64_t seed, uint64_t pos, uint64_t *bad,
             uint64_t *first);

#endif
