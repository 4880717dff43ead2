/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one NIC's validation as a line of JSON. */
#ifndef HW_TOOL_VALIDATE_JSON_H
#define HW_TOOL_VALIDATE_JSON_H

#include "tool/report/output.h"

struct validated {
    const char *host, *nic, *why; /* why not all channels were proved; "" or NULL if they were */
    bool gpus;
    int gpu, peer_gpu;          /* valid if gpus is set */
    struct verdict here, there; /* valid if gpus is set */
    uint64_t channels, proved;
    const struct tp_nic *own, *peer_nics;
    size_t n_own, n_peer;
    hawser_peer *peer; /* NULL if never connected */
};

/* Writes a line of schema hawser-validate-1. Returns 0 or -EIO. */
int validate_json(FILE *out, const struct validated *v);

#endif
