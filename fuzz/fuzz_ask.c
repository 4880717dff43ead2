/* SPDX-License-Identifier: Apache-2.0 */
/* ASK and the final message of a rail (lib/wire/word.h). An accepted message is within its bounds and encodes to the
 * same bytes. */
#include "fuzz.h"
#include "wire/word.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hw_word w;
    uint32_t links;
    uint8_t ask[HW_ASK_SIZE] = {0}, again[HW_ASK_SIZE];
    hw_fail(0, "%s", "");
    memcpy(ask, data, HW_MIN(size, sizeof ask));
    int rc = hw_ask_decode(ask, &links, &w);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc == 0) {
        FUZZ_CHECK(links >= 1 && links <= HW_RAIL_LINKS && w.n <= HW_RAIL_LINKS);
        hw_ask_encode(again, links, &w);
        FUZZ_CHECK(memcmp(ask, again, 4 + 12 + 8ull * w.n) == 0);
    }
    rc = hw_word_decode(data, (uint32_t)size, &w);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc == 0)
        FUZZ_CHECK(hw_word_encode(again, &w) <= size && memcmp(data, again, 12 + 8ull * w.n) == 0);
    return 0;
}
