/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a request to `hawser metrics --listen`. For a part of an accepted header, the parser either requests
 * more bytes or returns the same result as for the complete header. */
#include "fuzz.h"
#include "tool/metrics/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_request r, whole;
    hw_fail(0, "%s", "");
    int rc = http_parse((const char *)data, size, &whole);
    FUZZ_CHECK(rc == 0 || rc == -EAGAIN || rc == -EPROTO || rc == -E2BIG);
    FUZZ_CHECK(memchr(whole.path, 0, sizeof whole.path));
    FUZZ_CHECK(rc != 0 || whole.path[0] == '/');
    FUZZ_CHECK(rc != -EAGAIN || size < HTTP_HEAD);
    if (rc != 0 || size > 512)
        return 0;
    for (size_t n = 0; n < size; n++) { /* parse again as if bytes were arriving */
        int part = http_parse((const char *)data, n, &r);
        FUZZ_CHECK(part == 0 || part == -EAGAIN);
        FUZZ_CHECK(part != 0 || (r.method == whole.method && strcmp(r.path, whole.path) == 0));
    }
    return 0;
}
