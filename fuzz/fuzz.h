/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target includes; see README.md. */
#ifndef HW_FUZZ_H
#define HW_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The target: called with any bytes; data is exactly size bytes of the heap, so that a sanitizer sees one too far.
 * Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Dies where something that must always hold does not; assert() would be gone with NDEBUG. */
#define FUZZ_CHECK(cond)                                                              \
    do {                                                                              \
        if (!(cond)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond); \
            abort();                                                                  \
        }                                                                             \
    } while (0)

/* The bytes with a NUL behind, to be freed. */
__attribute__((unused)) static char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;
    return text;
}

#endif
