/* SPDX-License-Identifier: Apache-2.0 */
/* The paths by which received bytes reached a GPU's memory. */
#ifndef HW_TOOL_VERDICT_H
#define HW_TOOL_VERDICT_H

#include "sys/json.h"
#include "tool/peer/proto.h"

#include <stdbool.h>

struct verdict {
    uint64_t device; /* the NIC wrote it to that GPU's memory; includes gathers within the GPU */
    uint64_t staged; /* received in host memory and copied by the GPU's copy engine */
    uint64_t copied; /* copied by a CPU, although the NIC could have written it to the GPU's memory */
    bool passed;     /* nothing that channels carried was staged or copied; control frames do not count */
};

/* The verdict on `received` payload bytes that a GPU received by these NICs. */
struct verdict verdict_of(const struct tp_nic *nics, size_t n, uint64_t received);

/* Prints "GPU 0 -> 1  there: device path 100.00 %, ..." and a newline; nothing if nothing was received. */
void verdict_print(FILE *out, const char *who, const char *side, const struct verdict *v);
/* Writes an object of this name with the bytes and shares; null if nothing was received. */
void verdict_json(struct hw_json *j, const char *name, const struct verdict *v);
/* Adds v to the sum *into. */
void verdict_add(struct verdict *into, const struct verdict *v);

#endif
