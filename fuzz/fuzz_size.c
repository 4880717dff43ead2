/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, durations and counts. Accepted values are correct. A refusal leaves the output unchanged and sets an error
 * text. */
#include "base/size.h"
#include "fuzz.h"

#define UNTOUCHED 0x5555555555555555ull

static void refused(int rc, uint64_t v)
{
    FUZZ_CHECK(rc == -EINVAL);
    FUZZ_CHECK(v == UNTOUCHED);
    FUZZ_CHECK(*hw_error());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), buf[32], *end;
    uint64_t v = UNTOUCHED, again, lead;
    int rc;

    errno = 0;
    lead = strtoull(text, &end, 10); /* accepts blanks and signs, which the parsers must refuse */

    hw_fail(0, "%s", "");
    rc = hw_parse_size(text, &v);
    if (rc == 0) {
        FUZZ_CHECK(text[0] >= '0' && text[0] <= '9' && errno == 0);
        FUZZ_CHECK(lead == 0 ? v == 0 : v % lead == 0);
        FUZZ_CHECK(hw_parse_size(hw_format_size(v, buf, sizeof(buf)), &again) == 0 && again == v);
    } else {
        refused(rc, v);
    }

    hw_fail(0, "%s", "");
    v = UNTOUCHED;
    rc = hw_parse_u64(text, 5, 1ull << 40, &v);
    if (rc == 0)
        FUZZ_CHECK(v >= 5 && v <= 1ull << 40 && v == lead && *end == 0 && text[0] >= '0' && text[0] <= '9');
    else
        refused(rc, v);

    hw_fail(0, "%s", "");
    v = UNTOUCHED;
    rc = hw_parse_duration_ms(text, &v);
    if (rc == 0) {
        FUZZ_CHECK(text[0] >= '0' && text[0] <= '9');
        FUZZ_CHECK(v >= lead);
        snprintf(buf, sizeof(buf), "%llums", (unsigned long long)v);
        FUZZ_CHECK(hw_parse_duration_ms(buf, &again) == 0 && again == v);
    } else {
        refused(rc, v);
    }
    free(text);
    return 0;
}
