/* SPDX-License-Identifier: Apache-2.0 */
/* The remote key of a region, which an application transfers by any means: an accepted key encodes to the same
 * bytes. */
#include "fuzz.h"
#include "wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hawser_region r;
    uint8_t out[HAWSER_KEY_SIZE];
    if (size < HAWSER_KEY_SIZE)
        return 0;
    hw_fail(0, "%s", "");
    int rc = hw_region_decode(data, &r);
    FUZZ_CHECK(rc == 0 || (rc == -EINVAL && *hw_error()));
    if (rc)
        return 0;
    FUZZ_CHECK(r.rights && !(r.rights & ~(HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE)) && !r.reserved);
    hw_region_encode(out, &r);
    FUZZ_CHECK(memcmp(data, out, sizeof(out)) == 0);
    return 0;
}
