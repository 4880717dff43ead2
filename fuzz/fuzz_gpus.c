/* SPDX-License-Identifier: Apache-2.0 */
/* The --gpus option. An accepted text results in pairs within bounds and without duplicates. The pairs either fit the
 * machines or are refused with an error text. */
#include "fuzz.h"
#include "tool/load/gpus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gpus g;
    bool wrapped;

    if (size < 2)
        return 0;
    int here = data[0] % 20 + 1, there = data[1] % 20;
    char *text = fuzz_text(data + 2, size - 2);
    hw_fail(0, "%s", "");
    int rc = gpus_parse(text, &g);
    FUZZ_CHECK(rc == 0 || ((rc == -EINVAL || rc == -E2BIG) && *hw_error()));
    if (rc == 0) {
        FUZZ_CHECK(g.all ? g.n == 0 : g.n >= 1 && g.n <= GPUS_MAX);
        for (size_t i = 0; i < g.n; i++) {
            FUZZ_CHECK(g.pair[i].gpu >= 0 && g.pair[i].gpu <= GPUS_TOP);
            FUZZ_CHECK(g.pair[i].peer >= GPUS_SAME && g.pair[i].peer <= GPUS_TOP);
            for (size_t k = 0; k < i; k++)
                FUZZ_CHECK(g.pair[i].gpu != g.pair[k].gpu || g.pair[i].peer != g.pair[k].peer);
        }
        rc = gpus_resolve(&g, here, there, &wrapped);
        FUZZ_CHECK(rc == 0 || (rc == -ENODEV && *hw_error()));
        for (size_t i = 0; rc == 0 && i < g.n; i++)
            FUZZ_CHECK(g.pair[i].gpu < here && g.pair[i].peer >= 0 && g.pair[i].peer < there);
    }
    free(text);
    return 0;
}
