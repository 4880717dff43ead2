/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of files in a snapshot: numbers, CPU lists, PCI addresses, link speeds and PCI paths. The first byte
 * selects the type. Accepted numbers and addresses are unchanged after they are written and read again. A refusal
 * leaves the output unchanged. */
#include "fuzz.h"
#include "net/pci.h"
#include "net/sysfs.h"

static void numbers(const char *text)
{
    uint64_t u = 77, again;
    int64_t i = 77;
    char buf[32];
    int rc = hw_text_u64(text, &u), rc2 = hw_text_i64(text, &i);
    FUZZ_CHECK(rc == 0 || (rc == -EINVAL && u == 77));
    FUZZ_CHECK(rc2 == 0 || (rc2 == -EINVAL && i == 77 && *hw_error()));
    if (rc == 0) {
        snprintf(buf, sizeof(buf), "%llu", (unsigned long long)u);
        FUZZ_CHECK(hw_text_u64(buf, &again) == 0 && again == u);
        FUZZ_CHECK((rc2 == 0) == (u <= INT64_MAX) && (rc2 < 0 || i == (int64_t)u));
    }
}

static void cpus(const char *text)
{
    cpu_set_t set;
    size_t count = 77;
    int rc = hw_text_cpulist(text, &set, &count);
    FUZZ_CHECK(rc == 0 || (rc == -EINVAL && count == 77 && *hw_error()));
    if (rc == 0)
        FUZZ_CHECK(count > 0 && (size_t)CPU_COUNT(&set) <= count);
}

static void address(const char *text)
{
    struct hw_bdf b = {.domain = 77}, again;
    char buf[HW_BDF_TEXT];
    int rc = hw_bdf_parse(text, &b);
    FUZZ_CHECK(rc == 0 || (rc == -EINVAL && b.domain == 77 && *hw_error()));
    if (rc == 0)
        FUZZ_CHECK(hw_bdf_parse(hw_bdf_text(b, buf), &again) == 0 && hw_bdf_cmp(b, again) == 0);
}

static void speed(const char *text)
{
    unsigned mts = 77;
    int rc = hw_pci_speed_parse(text, &mts);
    FUZZ_CHECK(rc == 0 || (rc == -EINVAL && mts == 77 && *hw_error()));
    if (rc == 0)
        FUZZ_CHECK(mts < 10000000 && mts % 100 == 0 && hw_pci_MBps(mts, 16) <= 2 * mts);
}

/* Checks that the distance between two PCI paths, separated by a newline, is the same in both directions. */
static void way(char *text)
{
    struct hw_pci_path a = {.depth = 77}, b;
    char *second = strchr(text, '\n');
    if (second)
        *second++ = 0;
    int rc = hw_pci_path_parse(text, &a);
    FUZZ_CHECK(rc == 0 || ((rc == -ENOENT || rc == -E2BIG) && a.depth == 77 && *hw_error()));
    if (rc < 0)
        return;
    FUZZ_CHECK(a.depth > 0 && a.depth <= HW_PCI_DEPTH && strncmp(a.root, "pci", 3) == 0);
    FUZZ_CHECK(hw_pci_distance(&a, 0, &a, 0) == HW_DIST_X);
    if (!second || hw_pci_path_parse(second, &b) < 0)
        return;
    enum hw_dist d = hw_pci_distance(&a, 0, &b, 1);
    FUZZ_CHECK(d == hw_pci_distance(&b, 1, &a, 0) && *hw_dist_name(d) != '?');
    FUZZ_CHECK((d >= HW_DIST_NODE) == (strcmp(a.root, b.root) != 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *text = fuzz_text(data + 1, size - 1);
    hw_fail(0, "%s", "");
    switch (data[0] % 5) {
    case 0:
        numbers(text);
        break;
    case 1:
        cpus(text);
        break;
    case 2:
        address(text);
        break;
    case 3:
        speed(text);
        break;
    default:
        way(text);
    }
    free(text);
    return 0;
}
