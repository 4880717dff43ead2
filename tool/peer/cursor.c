/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/peer/cursor.h"

#include <string.h>

void convert_number(struct cursor *c, void *field, size_t width)
{
    if ((size_t)(c->end - c->at) < width) {
        c->bad = true;
        return;
    }
    uint64_t v = 0;
    if (c->decode) {
        for (size_t i = 0; i < width; i++)
            v |= (uint64_t)c->at[i] << (8 * i);
        switch (width) {
        case 1:
            *(uint8_t *)field = (uint8_t)v;
            break;
        case 2:
            *(uint16_t *)field = (uint16_t)v;
            break;
        case 4:
            memcpy(field, &(uint32_t){(uint32_t)v}, 4); /* also correct for enums and int32_t */
            break;
        default:
            *(uint64_t *)field = v;
        }
    } else {
        switch (width) {
        case 1:
            v = *(const uint8_t *)field;
            break;
        case 2:
            v = *(const uint16_t *)field;
            break;
        case 4: {
            uint32_t w;
            memcpy(&w, field, 4);
            v = w;
            break;
        }
        default:
            v = *(const uint64_t *)field;
        }
        for (size_t i = 0; i < width; i++)
            c->at[i] = (uint8_t)(v >> (8 * i));
    }
    c->at += width;
}

void convert_bytes(struct cursor *c, void *field, size_t n)
{
    if ((size_t)(c->end - c->at) < n) {
        c->bad = true;
        return;
    }
    if (c->decode)
        memcpy(field, c->at, n);
    else
        memcpy(c->at, field, n);
    c->at += n;
}

void convert_text(struct cursor *c, char *field, size_t n)
{
    if (!c->decode) {
        size_t len = strnlen(field, n - 1);
        if ((size_t)(c->end - c->at) < n) {
            c->bad = true;
            return;
        }
        memset(c->at, 0, n);
        memcpy(c->at, field, len);
        c->at += n;
        return;
    }
    convert_bytes(c, field, n);
    size_t len = strnlen(field, n);
    if (len == n)
        c->bad = true;
    for (size_t i = 0; i < n && !c->bad; i++)
        if (i < len ? (unsigned char)field[i] < 0x20 || field[i] == 0x7f : field[i] != 0)
            c->bad = true;
    field[n - 1] = 0;
}

void convert_padding(struct cursor *c)
{
    for (; c->at < c->end; c->at++) {
        if (!c->decode)
            *c->at = 0;
        else if (*c->at)
            c->bad = true;
    }
}

void convert_double(struct cursor *c, double *field)
{
    uint64_t bits;
    memcpy(&bits, field, 8);
    convert_number(c, &bits, 8);
    memcpy(field, &bits, 8);
    if (!(*field >= 0 && *field <= 1e15)) /* NaN too */
        c->bad = true;
}
