/* SPDX-License-Identifier: Apache-2.0 */
/* The exported symbols of a shared object. Each reported symbol has the requested prefix and lies within the input. A
 * refusal sets an error text. */
#include "fuzz.h"
#include "tool/doctor/elfsym.h"

struct bounds {
    const uint8_t *data;
    size_t size;
};

static void symbol(void *arg, const char *name)
{
    const struct bounds *b = arg;
    const uint8_t *at = (const uint8_t *)name;
    FUZZ_CHECK(at >= b->data && at < b->data + b->size);
    FUZZ_CHECK(memchr(name, 0, (size_t)(b->data + b->size - at)));
    FUZZ_CHECK(strncmp(name, "ncclNet", 7) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bounds b = {data, size};
    uint16_t machine;
    hw_fail(0, "%s", "");
    int rc = elf_symbols(data, size, "ncclNet", &machine, symbol, &b);
    FUZZ_CHECK(rc == 0 || (rc == -ENOEXEC && *hw_error()));
    return 0;
}
