/* SPDX-License-Identifier: Apache-2.0 */
/* A single knob, set from "name=value". The text of an accepted value sets the same value again. A refused value
 * changes nothing. */
#include "base/knob.h"
#include "fuzz.h"

/* memcmp() is sufficient, because copies of one struct have the same padding. The parameters are void pointers to avoid
 * a clang-tidy warning. */
static bool same(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct hw_knobs)) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *eq = strchr(text, '='), *name, buf[300];
    const char *list[] = {text, NULL}, *shown;
    static struct hw_knobs defaults; /* set once and never changed */
    struct hw_knobs k, before, again;
    int loaded, rc;

    if (defaults.window == 0) {
        clearenv(); /* ignore the environment of the fuzzer */
        FUZZ_CHECK(hw_knobs_load(&defaults, NULL) == 0);
    }
    k = before = again = defaults;

    hw_fail(0, "%s", "");
    loaded = hw_knobs_load(&k, list);
    FUZZ_CHECK(loaded == 0 || (loaded == -EINVAL && *hw_error() && same(&k, &before)));
    k = before;

    name = fuzz_text(data, eq ? (size_t)(eq - text) : size);
    hw_fail(0, "%s", "");
    rc = hw_knob_set(&k, name, eq ? eq + 1 : "");
    if (rc == 0) {
        bool found = false;
        FUZZ_CHECK(loaded == 0 || !eq);
        for (size_t i = 0; hw_knob_text(&k, i, &shown, buf, sizeof(buf)); i++)
            if (strcmp(shown, name) == 0) {
                found = true;
                FUZZ_CHECK(hw_knob_set(&again, shown, buf) == 0);
            }
        FUZZ_CHECK(found && same(&k, &again));
    } else {
        FUZZ_CHECK(rc == -EINVAL && loaded != 0);
        FUZZ_CHECK(*hw_error());
        FUZZ_CHECK(same(&k, &before));
    }
    free(name);
    free(text);
    return 0;
}
