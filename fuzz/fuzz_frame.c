/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream of control frames. The first byte says in what steps it arrives: cut anywhere, the frames are the same,
 * and they end at the same place with the same verdict. Each frame encodes to the bytes it came from; a SETUP's entries
 * are within their bounds, and read back.
 */
#include "fuzz.h"
#include "wire/wire.h"

static void setup(const struct hw_frame *f)
{
    struct hw_setup s;
    uint8_t head[HW_SETUP_HEAD], raw[HW_SETUP_ENTRY_MAX];
    char transport[HW_TRANSPORT_TEXT];
    if (hw_setup_transport_decode(f->body, f->body_len, transport) == 0)
        for (const char *c = transport; *c; c++)
            FUZZ_CHECK(*c >= ' ' && *c <= '~');
    uint16_t least, most;
    if (hw_setup_versions_decode(f->body, f->body_len, &least, &most) == 0)
        FUZZ_CHECK(least >= 1 && least <= most);
    int rc = hw_setup_decode(f->body, f->body_len, &s);
    FUZZ_CHECK(rc == 0 || rc == -EPROTO);
    if (rc)
        return;
    FUZZ_CHECK(s.n <= HW_SETUP_MAX);
    hw_setup_head(head, &s);
    FUZZ_CHECK(memcmp(head, f->body, 10) == 0);
    size_t at = HW_SETUP_HEAD;
    for (unsigned i = 0; i < s.n; i++) {
        struct hw_setup_entry e;
        size_t was = at;
        rc = hw_setup_entry_decode(f->body, f->body_len, &at, &e);
        FUZZ_CHECK(rc == 0 || rc == -EPROTO);
        if (rc)
            return;
        FUZZ_CHECK(at > was && at <= f->body_len && memchr(e.nic, 0, sizeof(e.nic)) && e.handle_len <= HW_HANDLE_MAX);
        FUZZ_CHECK(hw_setup_entry_encode(raw, &e) == at - was && memcmp(raw, f->body + was, at - was) == 0);
    }
}

static void frame(const struct hw_frame *f, const uint8_t *in, size_t size)
{
    uint8_t head[HW_FRAME_HEAD];
    static const unsigned largest = HW_FRAME_MAX;
    FUZZ_CHECK(size == HW_FRAME_HEAD + (size_t)f->body_len && size <= largest && f->body == in + HW_FRAME_HEAD);
    FUZZ_CHECK(f->type > 0 && f->type < HW_F_COUNT);
    hw_frame_head(head, f->type, f->flags, f->id, f->body_len);
    FUZZ_CHECK(memcmp(head, in, sizeof(head)) == 0);
    if (f->type == HW_F_SETUP)
        setup(f);
}

/* Reads the stream as hw_ctl_recv() does. Returns where it ended; *verdict: 0 more bytes are needed, or -EPROTO. */
static size_t walk(const uint8_t *in, size_t size, size_t step, bool look, int64_t *verdict)
{
    size_t at = 0, have = 0;
    *verdict = 0;
    while (have < size && *verdict >= 0) {
        have = HW_MIN(size, have + step);
        /* to size, so that a sanitizer sees a look at what has not arrived */
        uint8_t *part = malloc(have - at + 1);
        if (!part)
            abort();
        memcpy(part, in + at, have - at);
        size_t from = 0;
        for (;;) {
            struct hw_frame f;
            *verdict = hw_frame_parse(part + from, have - at - from, &f);
            FUZZ_CHECK(*verdict >= 0 || (*verdict == -EPROTO && *hw_error()));
            if (*verdict <= 0)
                break;
            if (look)
                frame(&f, part + from, (size_t)*verdict);
            from += (size_t)*verdict;
        }
        free(part);
        at += from;
    }
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t whole, cut;
    if (size < 1)
        return 0;
    hw_fail(0, "%s", "");
    size_t end = walk(data + 1, size - 1, size, true, &whole);
    if (size <= 4096) {
        FUZZ_CHECK(walk(data + 1, size - 1, 1 + data[0] % 64, false, &cut) == end);
        FUZZ_CHECK(whole == cut);
    }
    return 0;
}
