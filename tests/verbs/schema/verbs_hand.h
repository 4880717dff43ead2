/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated application memory, and requests built by hand in that memory. */
#ifndef HW_TESTS_VERBS_HAND_H
#define HW_TESTS_VERBS_HAND_H

#include "tests/fakes/verbs/verbs_kernel.h"

/* Simulated memory consists of a few spans. Each span counts the reads of each of its bytes. */
struct span {
    uint64_t at;
    size_t n;
    uint8_t *bytes;
    uint16_t *reads;
};
struct memory {
    struct span span[256];
    unsigned n, calls;
    bool turns; /* each byte changes after each read */
};
struct span *span_of(struct memory *m, uint64_t at, size_t n); /* returns NULL unless one span holds the range */
/* Maps n bytes at the address `at`. Copies `bytes` there, or writes zeros if `bytes` is NULL. */
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
                           uint64_t data); /* adds a mandatory attribute to a */
/* Builds an INVOKE_WRITE request. Omits parts of length 0. The other parts are at IN_AT, OUT_AT, UHW_IN_AT and
 * UHW_OUT_AT. */
#define IN_AT      0x10000ull
#define OUT_AT     0x20000ull
#define UHW_IN_AT  0x30000ull
#define UHW_OUT_AT 0x40000ull
struct ask ask_write(struct memory *m, uint32_t driver, uint32_t command, uint16_t in, uint16_t out, uint16_t uhw_in,
                     uint16_t uhw_out);

/* The request under test. */
extern struct vb_request r;
extern uint8_t built[VB_BUILD_MAX];
extern struct vb_layout layout;
int take(struct memory *m, const struct ask *a); /* writes a to HEADER and takes the request from there */

/* The stub's window as in verbs/stub/inject.h, but without its code page. */
#define WINDOW 0x7e0000000000ull
#define SPLIT  12288u
#define CAP    28672u
const char *rebuild(bool split); /* rebuilds r; returns NULL on success, or a description of the error */

#endif
