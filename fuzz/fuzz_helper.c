/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between hawserd and its clients: an accepted message encodes to the same bytes and is within its bounds.
 * A refused message sets an error text. The first byte selects request or reply. */
#include "fuzz.h"
#include "wire/helper.h"

static void request(const uint8_t *in, size_t n)
{
    struct hw_helper_request q;
    uint8_t again[HW_HELPER_REQUEST];
    int rc = hw_helper_request_decode(in, n, &q);
    FUZZ_CHECK(rc == 0 || ((rc == -EPROTO || rc == -EPROTONOSUPPORT) && *hw_error()));
    if (rc < 0)
        return;
    FUZZ_CHECK(q.type > 0 && q.type < HW_H_COUNT && hw_helper_fds(q.type) <= 1 && q.count <= HW_HELPER_QUEUES);
    FUZZ_CHECK(memchr(q.nic, 0, sizeof(q.nic)) && !strchr(q.nic, '/'));
    hw_helper_request_encode(again, &q);
    FUZZ_CHECK(n == sizeof(again) && memcmp(again, in, n) == 0);
}

static void reply(const uint8_t *in, size_t n)
{
    struct hw_helper_reply r;
    uint8_t again[HW_HELPER_REPLY];
    int rc = hw_helper_reply_decode(in, n, &r);
    FUZZ_CHECK(rc == 0 || ((rc == -EPROTO || rc == -EPROTONOSUPPORT) && *hw_error()));
    if (rc < 0)
        return;
    FUZZ_CHECK(r.type > 0 && r.type < HW_H_COUNT && r.count <= HW_HELPER_QUEUES && memchr(r.text, 0, sizeof(r.text)));
    FUZZ_CHECK(r.status <= 0 && r.status >= -4095 && (r.status != 0) == (r.text[0] != 0));
    FUZZ_CHECK(r.status == 0 || (r.id == 0 && r.count == 0 && r.dmabuf_id == 0));
    hw_helper_reply_encode(again, &r);
    FUZZ_CHECK(n == sizeof(again) && memcmp(again, in, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    hw_fail(0, "%s", "");
    if (data[0] & 1)
        reply(data + 1, size - 1);
    else
        request(data + 1, size - 1);
    return 0;
}
