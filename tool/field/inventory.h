/* SPDX-License-Identifier: Apache-2.0 */
/* The inventory of a node for `hawser fieldtest`. `hawser serve` sends its inventory to the client. */
#ifndef HW_TOOL_INVENTORY_H
#define HW_TOOL_INVENTORY_H

#include <stddef.h>

/* Writes one JSON object about this machine, whose files are read below root: versions, CPUs, NUMA nodes, NICs, GPUs,
 * sysctls, and the report of `hawser doctor` without the GPU checks, because CUDA is not called. Reads no user files.
 * The caller frees *text. Returns 0 or -errno, which is -ENOENT if there is no sys/, and -E2BIG if the object exceeds
 * TP_INVENTORY_MOST bytes. */
int inventory_make(int root, char **text, size_t *len);

#endif
