/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a benchmark's buffers in host and GPU memory: filled buffers pass verification, and wrong bytes are
 * detected. */
#include "tests/fakes/cuda/fakecuda.h"
#include "tests/tap.h"
#include "tool/load/buffer.h"

#define GPU 1

/* Fills and verifies a buffer, changes bytes with the CPU (without the driver's knowledge), and verifies it again. */
static void one(hawser *h, int gpu, uint64_t size, uint64_t stride, uint32_t slots, bool hot, const char *what)
{
    struct buffer b;
    uint64_t bad = 1, checked = 0, first = 0;
    if (!ok(buffer_make(&b, h, gpu, size, stride, slots, hot, 7) == 0, "%s: made", what))
        return;
    ok((b.base != NULL) == (gpu == BUFFER_HOST), "%s: of the kind asked for", what);
    uint64_t from = slots - 1; /* the iterations wrap around after the first one */
    uint32_t n = slots;
    bool good = buffer_fill(&b, from, n) == 0 && buffer_check(&b, from, n, &bad, &checked, &first) == 0;
    ok(good && bad == 0 && checked == (hot ? 1 : n) * size, "%s: all good", what);

    uint8_t *bytes = b.base ? b.base : fakecuda_alias((uintptr_t)hawser_mem_ptr(b.mem), b.len);
    uint64_t at = buffer_offset(&b, from + n - 1) + size - 1;
    bytes[at] ^= 0x20;
    good = buffer_check(&b, from, n, &bad, &checked, &first) == 0;
    ok(good && bad == 1 && first == at, "%s: the last byte changed, and found at its place", what);
    bytes[at] ^= 0x20;
    uint64_t at0 = buffer_offset(&b, hot ? from + n - 1 : from);
    bytes[at0] ^= 0x01;
    bytes[at0 + size / 2] ^= 0x80;
    good = buffer_check(&b, from, n, &bad, &checked, &first) == 0;
    ok(good && bad == 2 && first == at0, "%s: two bytes of the first", what);
    ok(buffer_check(&b, from + 1, n, &bad, &checked, &first) == 0 && bad > 0, "%s: other iterations do not match",
       what);
    ok(buffer_clear(&b) == 0 && bytes[at] == 0 && bytes[at0 + size / 2] == 0 && bytes[b.len - 1] == 0, "%s: cleared",
       what);
    ok(buffer_free(&b) == 0, "%s: given back", what);
}

int main(void)
{
    hawser *h = NULL;
    struct fakecuda_counts c;
    if (!ok(hawser_open(NULL, &h) == 0, "a context"))
        return tap_done();
    one(h, BUFFER_HOST, 100, 128, 7, false, "host");
    one(h, GPU, 100, 128, 7, false, "a GPU's small slots");
    one(h, GPU, 1000, 1024, 2500, false, "more than a block of small slots");
    one(h, GPU, 3000, 4096, 5, true, "one hot slot");
    one(h, GPU, 300001, 303104, 5, false, "slots filled by the GPU");
    one(h, GPU, 3 * BUFFER_BLOCK + 5, 4 * BUFFER_BLOCK, 2, false, "slots of several blocks");
    fakecuda_count(&c);
    uint64_t kernels = c.kernels;
    ok(kernels > 0, "large slots are filled by the GPU");

    struct buffer b;
    ok(buffer_make(&b, h, 99, 10, 64, 1, false, 7) == -ENODEV && strstr(hw_error(), "99"), "a GPU that is not there");
    ok(buffer_make(&b, h, GPU, 1ull << 60, 1ull << 60, 1, false, 7) == -ENOMEM, "more than it has");
    ok(buffer_make(&b, h, GPU, 2000, 2048, 3, false, 7) == 0, "made");
    fakecuda_fail("cuMemcpyHtoDAsync_v2", 1, CUDA_ERROR_INVALID_VALUE);
    ok(buffer_fill(&b, 0, 3) < 0, "a copy that fails is a failure");
    ok(buffer_free(&b) == 0, "given back");
    hawser_close(h);
    fakecuda_count(&c);
    is_int(c.misuse, 0, "CUDA was not misused");
    is_int(c.allocations, 0, "nothing of the GPU's is left");
    return tap_done();
}
