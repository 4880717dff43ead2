/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A little-endian cursor over a message. Encode and decode use the same description of a message's fields, so the two
 * cannot diverge. Each function writes its field to the message or reads the field from the message.
 */
#ifndef HW_TOOL_CURSOR_H
#define HW_TOOL_CURSOR_H

#include "base/base.h"

struct cursor {
    uint8_t *at, *end;
    bool decode;
    bool bad; /* set once the message is too short or a field is invalid */
};

/* Converts an unsigned integer of 1, 2, 4 or 8 bytes. Enums and int32_t have 4 bytes. */
void convert_number(struct cursor *c, void *field, size_t width);
void convert_bytes(struct cursor *c, void *field, size_t n);
/* Converts text in a field of n bytes, which ends with at least one zero byte. In a message that is read, control
 * characters in the text, and bytes other than zero after the first zero byte, are invalid. */
void convert_text(struct cursor *c, char *field, size_t n);
/* Converts a floating-point number. Numbers below 0 or above 1e15, and NaN, are invalid. */
void convert_double(struct cursor *c, double *field);
/* Writes zeros to the rest of the message, or checks that the rest is zero. */
void convert_padding(struct cursor *c);

#endif
