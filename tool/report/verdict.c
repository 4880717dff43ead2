/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/verdict.h"

#include <inttypes.h>

#define SMALL 8192 /* bytes of the largest operation that normally uses TCP with every transport */

struct verdict verdict_of(const struct tp_nic *nics, size_t n, uint64_t received, uint64_t size)
{
    uint64_t device = 0, copied = 0;
    for (size_t i = 0; i < n; i++) {
        device += nics[i].rx_device_bytes;
        copied += nics[i].rx_copied_bytes;
    }
    /* Data that a lost channel had carried was received twice, so the counts may exceed `received`. Data that landed in
     * another GPU's memory counts both as placed and as copied, so it is counted as copied here. */
    struct verdict v = {.copied = HW_MIN(copied, received)};
    v.device = HW_MIN(device, received - v.copied);
    v.staged = received - v.copied - v.device;
    v.passed = v.copied == 0 && (v.staged == 0 || size <= SMALL);
    return v;
}

static uint64_t received_bytes(const struct verdict *v)
{
    return v->device + v->staged + v->copied;
}

static double compute_percent(uint64_t part, uint64_t all)
{
    return 100 * (double)part / (double)all;
}

void verdict_print(FILE *out, const char *who, const char *side, const struct verdict *v)
{
    const uint64_t all = received_bytes(v);
    if (all)
        fprintf(out, "%-14s %5s: device path %.2f %%, staged %.2f %%, copied %.2f %%\n", who, side,
                compute_percent(v->device, all), compute_percent(v->staged, all), compute_percent(v->copied, all));
}

void verdict_json(struct hw_json *j, const char *name, const struct verdict *v)
{
    const uint64_t all = received_bytes(v);
    if (all == 0) {
        hw_json_null(j, name);
        return;
    }
    hw_json_object(j, name);
    hw_json_u64(j, "device_bytes", v->device);
    hw_json_u64(j, "staged_bytes", v->staged);
    hw_json_u64(j, "copied_bytes", v->copied);
    hw_json_double(j, "device_percent", compute_percent(v->device, all));
    hw_json_double(j, "staged_percent", compute_percent(v->staged, all));
    hw_json_double(j, "copied_percent", compute_percent(v->copied, all));
    hw_json_end(j);
}

void verdict_add(struct verdict *into, const struct verdict *v)
{
    into->device += v->device;
    into->staged += v->staged;
    into->copied += v->copied;
    into->passed &= v->passed;
}
