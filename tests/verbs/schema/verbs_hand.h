/* SPDX-License-Identifier: Apache-2.0 */
/* An application's memory, and hand-made requests in it. */
#ifndef HW_TESTS_VERBS_HAND_H
#define HW_TESTS_VERBS_HAND_H

#include "tests/fakes/verbs/verbs_kernel.h"

/* A few spans, which count the reads of each byte. */
struct span {
    uint64_t at;
    size_t n;
    uint8_t *bytes;
    uint16_t *reads;
};
struct memory {
    struct span span[256];
    unsigned n, calls;
    bool turns; /* every byte changes after it was read */
};
struct span *span_of(struct memory *m, uint64_t at, size_t n); /* returns NULL if it is not entirely in one span */
/* Maps memory with these bytes, or zeros if there are none. */
uint8_t *map(struct memory *m, uint64_t at, size_t n, const void *bytes);
void unmap_all(struct memory *m);
int mem_read(void *m, uint64_t at, void *dst, size_t n);
int mem_write(void *m, uint64_t at, const void *src, size_t n);

#define HEADER 0x7f0000001000ull /* address of a request */
struct ask {
    struct vb_header hdr;
    struct ib_uverbs_attr attr[256];
};
struct ask ask(uint32_t driver, uint16_t object, uint16_t method);
struct ib_uverbs_attr *say(struct ask *a, uint16_t id, uint16_t len,
                           uint64_t data); /* adds an attribute, marked mandatory */
/* For INVOKE_WRITE. Parts of no length are omitted; the bytes of the others are at IN_AT and so on. */
#define IN_AT      0x10000ull
#define OUT_AT     0x20000ull
#define UHW_IN_AT  0x30000ull
#define UHW_OUT_AT 0x40000ull
struct ask ask_write(struct memory *m, uint32_t driver, uint32_t command, uint16_t in, uint16_t out, uint16_t uhw_in,
                     uint16_t uhw_out);

/* The current request. */
extern struct vb_request r;
extern uint8_t built[VB_BUILD_MAX];
extern struct vb_layout layout;
int take(struct memory *m, const struct ask *a); /* writes a to HEADER and takes the request there */

/* The window of the stub, as in verbs/stub/inject.h, without its page of code. */
#define WINDOW 0x7e0000000000ull
#define SPLIT  12288u
#define CAP    28672u
const char *rebuild(bool split); /* rebuilds r; returns NULL, or what is wrong with it */

#endif
