/* SPDX-License-Identifier: Apache-2.0 */
/* A program's request to a verbs device. The input is the program's memory from address BASE, where the request's
 * header is. An accepted request is rebuilt for the broker and, if it fits, for the stub. A fake kernel checks that the
 * rebuilt request is valid, and executes the request. The program receives the results. */
#include "fuzz.h"
#include "tests/fakes/verbs/verbs_kernel.h"

#define BASE   0x10000ull
#define WINDOW 0x7e0000000000ull
#define SPLIT  12288u
#define CAP    28672u

struct memory {
    const uint8_t *bytes;
    size_t n;
};

static int mem_read(void *arg, uint64_t at, void *dst, size_t n)
{
    const struct memory *m = arg;

    if (at < BASE || at - BASE > m->n || n > m->n - (at - BASE))
        return -EFAULT;
    memcpy(dst, m->bytes + (at - BASE), n);
    return 0;
}

/* Accepts outputs at any address, because the program's memory is larger than the input. */
static int mem_write(void *arg, uint64_t at, const void *src, size_t n)
{
    volatile uint8_t sum = 0;

    (void)arg;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)src)[i]);
    return at > UINT64_MAX - n ? -EFAULT : 0;
}

static struct vb_request r;
static struct vb_layout layout;
static uint8_t built[VB_BUILD_MAX];

static void run(uint32_t split)
{
    size_t cap = split ? CAP : sizeof(built);
    int rc = vb_request_build(&r, built, cap, WINDOW, split, &layout);
    const char *wrong;
    uint32_t number;

    FUZZ_CHECK(rc == 0 || (split > 0 && (rc == -E2BIG || rc == -EOPNOTSUPP) && *hw_error()));
    if (rc < 0)
        return;
    wrong = vk_check(&r, built, cap, WINDOW, split, layout.header);
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    FUZZ_CHECK(!wrong);
    vk_run(built, WINDOW, split, layout.header, r.command->attrs ? r.command->attrs : vb_write_attrs, 7);
    vb_request_collect(&r, built, &layout);
    FUZZ_CHECK(r.command->made.place == VB_NOWHERE || vb_request_number(&r, &r.command->made, &number) == 0);
    FUZZ_CHECK(r.command->made.place != VB_ATTR || number == vk_number(7, r.command->made.at));
    FUZZ_CHECK(vb_request_give(&r, mem_write, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory m = {data, size};
    char text[160];
    int rc;

    hw_fail(0, "%s", "");
    rc = vb_request_take(&r, BASE, mem_read, &m);
    vb_request_text(&r, text, sizeof(text));
    FUZZ_CHECK(strlen(text) < sizeof(text));
    FUZZ_CHECK(rc == 0 || *hw_error());
    FUZZ_CHECK(rc == 0 || rc == -EFAULT || rc == -EINVAL || rc == -EPROTONOSUPPORT || rc == -ENOSPC ||
               rc == -EOPNOTSUPP || rc == -E2BIG);
    if (rc < 0)
        return 0;
    FUZZ_CHECK(r.command && r.driver && r.where != VB_REFUSED && r.command->where != VB_REFUSED &&
               r.used <= VB_COPY_MAX);
    run(0);
    run(SPLIT);
    return 0;
}
