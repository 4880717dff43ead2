/* SPDX-License-Identifier: Apache-2.0 */
/* How what a GPU received came into its memory. */
#ifndef HW_TOOL_VERDICT_H
#define HW_TOOL_VERDICT_H

#include "sys/json.h"
#include "tool/peer/proto.h"

#include <stdbool.h>

struct verdict {
    uint64_t device; /* the NIC put it into that GPU's memory; gathers within the GPU included */
    uint64_t staged; /* came to host memory, and from there by the GPU's own copies */
    uint64_t copied; /* a CPU copied it, where the NIC might have put it into the GPU's memory */
    bool passed; /* nothing that channels carried was staged or copied. What fits a control frame is carried by none */
};

/* Of so many payload bytes that a GPU received by these NICs. */
struct verdict verdict_of(const struct tp_nic *nics, size_t n, uint64_t received);

/* "GPU 0 -> 1  there: device path 100.00 %, ..." and a newline; nothing where nothing was received. */
void verdict_print(FILE *out, const char *who, const char *side, const struct verdict *v);
/* An object of this name with the bytes and shares; null where nothing was received. */
void verdict_json(struct hw_json *j, const char *name, const struct verdict *v);
/* Of all: the sum. */
void verdict_add(struct verdict *into, const struct verdict *v);

#endif
