/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that the NCCL plugin receives from other processes: handles, which NCCL transfers, and hellos, which are
 * notifications. An accepted handle or hello encodes to the same values. */
#include "fuzz.h"
#include "nccl/inner.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hn_handle h, again;
    struct hn_hello hello;
    uint8_t out[NCCL_NET_HANDLE_MAXSIZE];
    hw_fail(0, "%s", "");
    if (size == NCCL_NET_HANDLE_MAXSIZE) {
        int rc = hn_handle_decode(data, &h);
        FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
        if (rc == 0) {
            FUZZ_CHECK(h.port);
            hn_handle_encode(out, &h);
            memset(&again, 0, sizeof(again));
            FUZZ_CHECK(hn_handle_decode(out, &again) == 0 && again.port == h.port && again.process == h.process &&
                       again.secret == h.secret && again.listen == h.listen && again.attempt == h.attempt &&
                       memcmp(again.key, h.key, HN_KEY) == 0 && memcmp(again.addr, h.addr, sizeof(h.addr)) == 0);
            hn_handle_note(out, 77);
            FUZZ_CHECK(hn_handle_decode(out, &again) == 0 && again.attempt == 77);
        }
    }
    int rc = hn_hello_decode(data, size, &hello);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc == 0) {
        FUZZ_CHECK(size == HN_HELLO && hello.stream);
        hn_hello_encode(out, &hello);
        FUZZ_CHECK(memcmp(data, out, HN_HELLO) == 0);
    }
    return 0;
}
