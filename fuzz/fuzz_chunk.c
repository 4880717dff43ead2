/* SPDX-License-Identifier: Apache-2.0 */
/* The header in front of each payload: what is taken is within its bounds and encodes to the same bytes. */
#include "fuzz.h"
#include "wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hw_chunk_head c;
    uint8_t out[HW_CHUNK_HEAD];
    if (size < HW_CHUNK_HEAD)
        return 0;
    hw_fail(0, "%s", "");
    int rc = hw_chunk_decode(data, &c);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc)
        return 0;
    FUZZ_CHECK(c.len > 0 && c.len <= HW_CHUNK_MAX && c.type > 0 && c.type < HW_C_COUNT);
    hw_chunk_encode(out, &c);
    FUZZ_CHECK(memcmp(data, out, sizeof(out)) == 0);
    return 0;
}
