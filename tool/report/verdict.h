/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the paths by which received bytes reached a GPU's memory. */
#ifndef HW_TOOL_VERDICT_H
#define HW_TOOL_VERDICT_H

#include "sys/json.h"
#include "tool/peer/proto.h"

#include <stdbool.h>

struct verdict {
    uint64_t device; /* bytes that the NIC wrote to the GPU's memory, including gathers within the GPU */
    uint64_t staged; /* bytes received in host memory and copied by the GPU's copy engine */
    uint64_t copied; /* bytes copied by a CPU, although the NIC could have written them to the GPU's memory */
    bool passed;     /* true if no byte was copied, and none of an operation of more than 8 KiB was staged */
};

/* Returns how `received` payload bytes, in operations of `size` bytes each, reached a GPU that received them over these
 * NICs. Operations of up to 8 KiB normally use TCP with every transport. */
struct verdict verdict_of(const struct tp_nic *nics, size_t n, uint64_t received, uint64_t size);

/* Prints a line such as "GPU 0 -> 1 there: device path 100.00 %, ...". Prints nothing if nothing was received. */
void verdict_print(FILE *out, const char *who, const char *side, const struct verdict *v);
/* Writes a JSON object of this name with the bytes and percentages, or null if nothing was received. */
void verdict_json(struct hw_json *j, const char *name, const struct verdict *v);
/* Adds v to the sum *into. */
void verdict_add(struct verdict *into, const struct verdict *v);

#endif
