/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions for every fuzz target; see README.md. */
#ifndef HW_FUZZ_H
#define HW_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The target, which is called with arbitrary bytes. data is a heap block of exactly size bytes, so a sanitizer detects
 * an overrun by a single byte. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts if cond is false. Unlike assert(), also aborts with NDEBUG. */
#define FUZZ_CHECK(cond)                                                              \
    do {                                                                              \
        if (!(cond)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond); \
            abort();                                                                  \
        }                                                                             \
    } while (0)

/* Returns a copy of the bytes with a terminating NUL. The caller frees the copy. */
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
