/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A little-endian cursor over a message. One description of a message's fields serves both directions, so encode and
 * decode cannot diverge: each function writes its field to the message, or reads it from there.
 */
#ifndef HW_TOOL_CURSOR_H
#define HW_TOOL_CURSOR_H

#include "base/base.h"

struct cursor {
    uint8_t *at, *end;
    bool decode;
    bool bad; /* stays set: the message is too short, or a field is invalid */
};

/* A whole number of 1, 2, 4 or 8 bytes; enums and int32_t pass as 4. */
void convert_number(struct cursor *c, void *field, size_t width);
void convert_bytes(struct cursor *c, void *field, size_t n);
/* Converts text in a field of n bytes: zero-terminated, only zeros after that, no control characters. */
void convert_text(struct cursor *c, char *field, size_t n);
/* Converts a number from 0 to 1e15; no NaN. */
void convert_double(struct cursor *c, double *field);
/* The rest of the message is zero. */
void convert_padding(struct cursor *c);

#endif
