/* SPDX-License-Identifier: Apache-2.0 */
/* One NIC's validation as a line of JSON. */
#ifndef HW_TOOL_VALIDATE_JSON_H
#define HW_TOOL_VALIDATE_JSON_H

#include "tool/report/output.h"

struct validated {
    const char *host, *nic, *why; /* why: not all channels were proved; "" or NULL: they were */
    bool gpus;
    int gpu, peer_gpu;          /* gpus */
    struct verdict here, there; /* gpus */
    uint64_t channels, proved;
    const struct tp_nic *own, *peer_nics;
    size_t n_own, n_peer;
    hawser_peer *peer; /* NULL: never connected */
};

/* Schema hawser-validate-1. -EIO. */
int validate_json(FILE *out, const struct validated *v);

#endif
