/* SPDX-License-Identifier: Apache-2.0 */
/* Write and check the pattern of base/pattern.h in place, in memory of any space. Both functions are synchronous. The
 * caller must ensure that nothing else accesses the memory at the same time. */
#ifndef HW_FILL_H
#define HW_FILL_H

#include "mem/space.h"

int hw_fill(const struct hw_space *s, void *ptr, size_t len, uint64_t seed, uint64_t pos);

/* Sets *bad to the number of bytes that differ. If any bytes differ, sets *first (if not NULL) to the offset of the
 * first such byte. */
int hw_check(const struct hw_space *s, const void *ptr, size_t len, uint64_t seed, uint64_t pos, uint64_t *bad,
             uint64_t *first);

#endif
