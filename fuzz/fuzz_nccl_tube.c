/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between processes of `hawser nccl bench` that a launcher has started. */
#include "fuzz.h"
#include "tool/nccl/bench/nccl_launch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct nb_tube m;
    uint8_t again[NB_TUBE_MOST];
    if (nb_tube_decode(data, size, &m) < 0) {
        FUZZ_CHECK(*hw_error());
        return 0;
    }
    FUZZ_CHECK(m.type != NB_TUBE_HELLO ||
               (m.hello.rank < m.hello.size && memchr(m.hello.name, 0, sizeof(m.hello.name))));
    FUZZ_CHECK(m.len <= sizeof(m.data));
    FUZZ_CHECK(nb_tube_encode(&m, again) == (int)size && memcmp(again, data, size) == 0);
    return 0;
}
