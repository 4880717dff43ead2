/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_hand.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <stdlib.h>
#include <string.h>

struct span *span_of(struct memory *m, uint64_t at, size_t n)
{
    for (unsigned i = m->n; i-- > 0;)
        if (at >= m->span[i].at && n <= m->span[i].n && at - m->span[i].at <= m->span[i].n - n)
            return &m->span[i];
    return NULL;
}

uint8_t *map(struct memory *m, uint64_t at, size_t n, const void *bytes)
{
    struct span *s = span_of(m, at, n);

    if (!s) {
        if (m->n == HW_ARRAY_LEN(m->span))
            abort();
        s = &m->span[m->n++];
        *s = (struct span){at, n, calloc(1, n + 1), calloc(n + 1, sizeof(uint16_t))};
        if (!s->bytes || !s->reads)
            abort();
    }
    if (bytes)
        memcpy(s->bytes + (at - s->at), bytes, n);
    return s->bytes + (at - s->at);
}

void unmap_all(struct memory *m)
{
    for (unsigned i = 0; i < m->n; i++) {
        free(m->span[i].bytes);
        free(m->span[i].reads);
    }
    memset(m, 0, sizeof(*m));
}

int mem_read(void *arg, uint64_t at, void *dst, size_t n)
{
    struct memory *m = arg;
    struct span *s = span_of(m, at, n);

    m->calls++;
    if (!s)
        return -EFAULT;
    memcpy(dst, s->bytes + (at - s->at), n);
    for (size_t i = 0; i < n; i++) {
        s->reads[at - s->at + i]++;
        if (m->turns)
            s->bytes[at - s->at + i] ^= 0xff;
    }
    return 0;
}

int mem_write(void *arg, uint64_t at, const void *src, size_t n)
{
    struct memory *m = arg;
    struct span *s = span_of(m, at, n);

    m->calls++;
    if (!s)
        return -EFAULT;
    memcpy(s->bytes + (at - s->at), src, n);
    return 0;
}

struct ask ask(uint32_t driver, uint16_t object, uint16_t method)
{
    return (struct ask){
        .hdr = {.length = sizeof(struct vb_header), .object_id = object, .method_id = method, .driver_id = driver}};
}

struct ib_uverbs_attr *say(struct ask *a, uint16_t id, uint16_t len, uint64_t data)
{
    struct ib_uverbs_attr *attr = &a->attr[a->hdr.num_attrs++];

    *attr = (struct ib_uverbs_attr){.attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data};
    a->hdr.length = (uint16_t)(a->hdr.length + sizeof(*attr));
    return attr;
}

struct ask ask_write(struct memory *m, uint32_t driver, uint32_t command, uint16_t in, uint16_t out, uint16_t uhw_in,
                     uint16_t uhw_out)
{
    struct ask a = ask(driver, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    static const struct {
        uint16_t id;
        uint64_t at;
        bool out;
    } parts[] = {{UVERBS_ATTR_CORE_IN, IN_AT, false},
                 {UVERBS_ATTR_CORE_OUT, OUT_AT, true},
                 {UVERBS_ATTR_UHW_IN, UHW_IN_AT, false},
                 {UVERBS_ATTR_UHW_OUT, UHW_OUT_AT, true}};
    const uint16_t len[] = {in, out, uhw_in, uhw_out};

    say(&a, UVERBS_ATTR_WRITE_CMD, 8, command);
    for (unsigned i = 0; i < HW_ARRAY_LEN(parts); i++) {
        uint64_t value = 0;
        if (len[i] == 0)
            continue;
        map(m, parts[i].at, len[i], NULL);
        if (len[i] <= 8 && !parts[i].out) /* the attribute itself holds short inputs */
            memcpy(&value, map(m, parts[i].at, len[i], NULL), len[i]);
        say(&a, parts[i].id, len[i], len[i] <= 8 && !parts[i].out ? value : parts[i].at);
    }
    return a;
}

struct vb_request r;
uint8_t built[VB_BUILD_MAX] __attribute__((aligned(4096)));
struct vb_layout layout;

int take(struct memory *m, const struct ask *a)
{
    map(m, HEADER, sizeof(a->hdr) + a->hdr.num_attrs * sizeof(a->attr[0]), NULL);
    mem_write(m, HEADER, &a->hdr, sizeof(a->hdr));
    mem_write(m, HEADER + sizeof(a->hdr), a->attr, a->hdr.num_attrs * sizeof(a->attr[0]));
    m->calls = 0;
    return vb_request_take(&r, HEADER, mem_read, m);
}

const char *rebuild(bool split)
{
    size_t cap = split ? CAP : sizeof(built);
    int rc;

    memset(built, 0xee, sizeof(built));
    rc = vb_request_build(&r, built, cap, WINDOW, split ? SPLIT : 0, &layout);
    return rc < 0 ? hw_error() : vk_check(&r, built, cap, WINDOW, split ? SPLIT : 0, layout.header);
}
