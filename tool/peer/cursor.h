/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cursor over a message, little-endian. One description of a message's fields serves both directions, so that encode
 * and decode cannot drift apart: each function writes its field to the message, or reads it from there.
 */
#ifndef HW_TOOL_CURSOR_H
#define HW_TOOL_CURSOR_H

#include "base/base.h"

struct cursor {
    uint8_t *at, *end;
    bool decode;
    bool bad; /* sticky: the message ends too early, or a field is not allowed */
};

/* A whole number of 1, 2, 4 or 8 bytes; enums and int32_t pass as 4. */
void convert_number(struct cursor *c, void *field, size_t width);
void convert_bytes(struct cursor *c, void *field, size_t n);
/* Text in a field of n bytes: ended by a zero, nothing but zeros after it, no control characters. */
void convert_text(struct cursor *c, char *field, size_t n);
/* A number from 0 to 1e15; no NaN. */
void convert_double(struct cursor *c, double *field);
/* The rest of the message is zero. */
void convert_padding(struct cursor *c);

#endif
