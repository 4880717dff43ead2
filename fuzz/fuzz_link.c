/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an untrusted peer on a link. The first byte selects how many bytes arrive at a time, and whether
 * payloads arrive in a second stream, which is all zeros. The link either ends with -EPROTO or continues, and writes
 * only to the memory that it was given. The received frames do not depend on how many bytes arrive at a time.
 */
#include "core/link.h"
#include "fuzz.h"

struct receiver {
    const uint8_t *steps;
    size_t n_steps, at;
    uint64_t frames, bytes;
    int placing;
    uint8_t *memory; /* exactly as long as the expected payload */
};

static bool pull_nothing(void *up, struct hw_link *l, uint64_t budget, struct hw_link_out *out)
{
    (void)up, (void)l, (void)budget, (void)out;
    return false;
}

static int place_rest(void *up, struct hw_link *l, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                      uint32_t *n)
{
    struct receiver *r = up;
    (void)l;
    piece[0] = (struct hw_piece){&hw_host, in->type % 4 == 2 ? NULL : r->memory + at, in->pay - at, r};
    *n = 1;
    return 0;
}

static int place_frame(void *up, struct hw_link *l, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    struct receiver *r = up;
    (void)l;
    if (in->pay > 65536)
        return hw_fail(-EPROTO, "more than this receiver takes");
    free(r->memory);
    r->memory = malloc(in->pay ? in->pay : 1);
    if (!r->memory)
        abort();
    uint32_t first = in->ext_len && in->pay ? in->ext[0] % in->pay : 0;
    r->placing++;
    piece[0] = (struct hw_piece){&hw_host, in->type % 4 == 3 ? NULL : r->memory, first, r};
    if (in->type % 8 > 4)
        *n = 1;
    else
        *n = 1 + (uint32_t)(place_rest(up, l, in, first, piece + 1, n) == 0);
    return 0;
}

static int take_frame(void *up, struct hw_link *l, const struct hw_link_in *in)
{
    struct receiver *r = up;
    (void)l;
    FUZZ_CHECK(r->placing-- == 1);
    r->frames += !in->uncounted;
    r->bytes += in->pay;
    return 0;
}

static void abandon_frame(void *up, struct hw_link *l, const struct hw_link_in *in)
{
    struct receiver *r = up;
    (void)l, (void)in;
    FUZZ_CHECK(r->placing-- == 1);
}

static void end_token(void *up, struct hw_link *l, void *token, uint32_t pay)
{
    (void)up, (void)l, (void)token, (void)pay;
    abort(); /* nothing was sent */
}

static const struct hw_link_ops ops = {pull_nothing,  place_frame, place_rest, take_frame,
                                       abandon_frame, end_token,   end_token,  NULL /* all memory is host memory */};

/* Fills the pieces that are expected from the second stream, up to `most` bytes. Returns the number of bytes. */
static uint64_t feed_apart(const struct hw_piece *piece, uint32_t n, size_t most)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n && sum < most; i++) {
        uint64_t part = piece[i].len < most - sum ? piece[i].len : most - sum;
        if (piece[i].ptr)
            memset(piece[i].ptr, 0, part);
        sum += part;
    }
    return sum;
}

/* Feeds data in steps of up to `most` bytes. Returns how the link ended. */
static int feed_link(const uint8_t *data, size_t size, size_t most, bool apart, struct receiver *r)
{
    struct hw_link l;
    int rc = hw_link_init(&l, &ops, r, 1 << 20);
    l.apart.rx = apart;
    while (rc == 0 && (size || hw_link_reads_apart(&l))) {
        struct hw_piece piece[3];
        uint32_t k = hw_link_rx(&l, piece, 3);
        uint64_t sum = 0;
        if (hw_link_reads_apart(&l)) {
            rc = hw_link_got(&l, feed_apart(piece, k, most < 1000 ? 1000 + most : most));
            FUZZ_CHECK(rc == 0 || rc == -EPROTO);
            continue;
        }
        for (uint32_t i = 0; i < k && size && sum < most; i++) {
            uint64_t part = piece[i].len < size ? piece[i].len : size;
            part = part < most - sum ? part : most - sum;
            memcpy(piece[i].ptr, data, part);
            data += part;
            size -= part;
            sum += part;
            if (part < piece[i].len)
                break;
        }
        rc = hw_link_got(&l, sum);
        FUZZ_CHECK(rc == 0 || rc == -EPROTO);
    }
    FUZZ_CHECK(l.received == r->frames);
    hw_link_end(&l, rc < 0 ? rc : -ECONNRESET);
    FUZZ_CHECK(r->placing == 0);
    hw_link_free(&l);
    free(r->memory);
    r->memory = NULL;
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct receiver a = {0}, b = {0};
    if (size < 1)
        return 0;
    bool apart = data[0] & 1;
    int one = feed_link(data + 1, size - 1, 1 + data[0], apart, &a);
    int two = feed_link(data + 1, size - 1, SIZE_MAX, apart, &b);
    FUZZ_CHECK(one == two && a.frames == b.frames && a.bytes == b.bytes);
    return 0;
}
