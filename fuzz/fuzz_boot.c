/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap messages of an untrusted peer. The first byte selects a message type or hw_hello_sniff(). An accepted
 * message encodes to the same bytes, except for reserved bytes. A refused message sets an error text. hw_hello_sniff()
 * refuses bytes if and only if they do not begin with HELLO's magic number. */
#include "fuzz.h"
#include "wire/wire.h"

/* Compares all bytes except the reserved bytes [from, to), which are sent as 0 and not checked. */
static bool same_but(const uint8_t *a, const uint8_t *b, size_t n, size_t from, size_t to)
{
    return memcmp(a, b, from) == 0 && memcmp(a + to, b + to, n - to) == 0;
}

static void hello(const uint8_t *in)
{
    struct hw_hello h;
    uint8_t out[HW_HELLO_SIZE];
    int rc = hw_hello_decode(in, &h);
    if (rc) {
        FUZZ_CHECK((rc == -EPROTO || rc == -EPROTONOSUPPORT) && *hw_error());
        return;
    }
    FUZZ_CHECK(hw_hello_sniff(in) == 0);
    FUZZ_CHECK((h.kind == HW_BOOT_CONTROL) == (h.session == 0));
    hw_hello_encode(out, &h);
    FUZZ_CHECK(memcmp(in, out, sizeof(out)) == 0);
}

static void challenge(const uint8_t *in)
{
    struct hw_challenge c;
    uint8_t out[HW_CHALLENGE_SIZE];
    int rc = hw_challenge_decode(in, &c);
    if (rc) {
        FUZZ_CHECK(rc == -EPROTO && *hw_error());
        return;
    }
    FUZZ_CHECK(c.refusal < HW_REFUSE_COUNT && *hw_refusal_text(c.refusal));
    hw_challenge_encode(out, &c);
    FUZZ_CHECK(same_but(in, out, sizeof(out), 16, 32));
}

static void welcome(const uint8_t *in)
{
    struct hw_welcome w;
    uint8_t out[HW_WELCOME_SIZE];
    int rc = hw_welcome_decode(in, &w);
    if (rc) {
        FUZZ_CHECK(rc == -EPROTO && *hw_error());
        return;
    }
    FUZZ_CHECK(w.refusal < HW_REFUSE_COUNT);
    hw_welcome_encode(out, &w);
    /* the version and flags are the CHALLENGE's; the rest is reserved */
    FUZZ_CHECK(same_but(in, out, 10, 4, 8));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        size_t size;
        void (*run)(const uint8_t *);
    } kind[] = {{HW_HELLO_SIZE, hello}, {HW_CHALLENGE_SIZE, challenge}, {HW_WELCOME_SIZE, welcome}};
    if (size == 0)
        return 0;
    unsigned k = data[0] % 4;
    hw_fail(0, "%s", "");
    if (k == 3) {
        if (size - 1 >= 4) {
            int rc = hw_hello_sniff(data + 1);
            FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
            FUZZ_CHECK((rc == 0) == (hw_get32(data + 1) == HW_WIRE_MAGIC));
        }
        return 0;
    }
    if (size - 1 < kind[k].size)
        return 0;
    /* on the heap with the exact size, so a sanitizer detects an overrun by a single byte */
    uint8_t *in = malloc(kind[k].size);
    if (!in)
        abort();
    memcpy(in, data + 1, kind[k].size);
    kind[k].run(in);
    free(in);
    return 0;
}
