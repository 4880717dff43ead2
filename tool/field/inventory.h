/* SPDX-License-Identifier: Apache-2.0 */
/* What `hawser fieldtest` notes of a node: `hawser serve` tells it to the asking side, too. */
#ifndef HW_TOOL_INVENTORY_H
#define HW_TOOL_INVENTORY_H

#include <stddef.h>

/* Makes one JSON object of this machine below root: versions, CPUs, NUMA nodes, NICs, GPUs, sysctls, and the warnings
 * and failures of `hawser doctor`, but for those of GPUs: CUDA is not asked. No file of a user's is read, and nothing
 * of the environment. The caller frees *text. -ENOMEM, -ENOENT without sys/, -E2BIG beyond TP_INVENTORY_MOST bytes. */
int inventory_make(int root, char **text, size_t *len);

#endif
