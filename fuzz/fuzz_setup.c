/* SPDX-License-Identifier: Apache-2.0 */
/* SETUP from an untrusted peer. Accepted entries are within their bounds and encode to the same bytes, the transport's
 * name is printable, and the lowest version does not exceed the highest. */
#include "fuzz.h"
#include "wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hw_setup s;
    uint8_t head[HW_SETUP_HEAD], raw[HW_SETUP_ENTRY_MAX];
    char transport[HW_TRANSPORT_TEXT];
    if (hw_setup_transport_decode(data, size, transport) == 0)
        for (const char *c = transport; *c; c++)
            FUZZ_CHECK(*c >= ' ' && *c <= '~');
    uint16_t least, most;
    if (hw_setup_versions_decode(data, size, &least, &most) == 0)
        FUZZ_CHECK(least >= 1 && least <= most);
    int rc = hw_setup_decode(data, size, &s);
    FUZZ_CHECK(rc == 0 || rc == -EPROTO);
    if (rc)
        return 0;
    FUZZ_CHECK(s.n <= HW_SETUP_MAX);
    hw_setup_head(head, &s);
    FUZZ_CHECK(memcmp(head, data, sizeof(head)) == 0);
    size_t at = HW_SETUP_HEAD;
    for (unsigned i = 0; i < s.n; i++) {
        struct hw_setup_entry e;
        size_t was = at;
        rc = hw_setup_entry_decode(data, size, &at, &e);
        FUZZ_CHECK(rc == 0 || rc == -EPROTO);
        if (rc)
            return 0;
        FUZZ_CHECK(at > was && at <= size && memchr(e.nic, 0, sizeof(e.nic)) && e.handle_len <= HW_HANDLE_MAX);
        FUZZ_CHECK(hw_setup_entry_encode(raw, &e) == at - was && memcmp(raw, data + was, at - was) == 0);
    }
    return 0;
}
