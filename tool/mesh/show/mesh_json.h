/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a mesh as JSON lines of schema hawser-mesh-1 (docs/mesh.md), and reads them. */
#ifndef HW_MESH_JSON_H
#define HW_MESH_JSON_H

#include "tool/mesh/judge/mesh_judge.h"

/* Writes the mesh and its findings. Returns 0 or -errno. */
int mesh_write(const struct mesh *m, const struct mesh_findings *f, FILE *out);
/* Reads the output of mesh_write(), except for findings, because the caller judges again. Does not trust the file: all
 * indices of nodes and NICs in m are valid afterwards. path is for the error text. The caller frees m even after a
 * failure. Fails with -EINVAL, -E2BIG, -ENOMEM or another -errno. */
int mesh_read(FILE *in, const char *path, struct mesh *m);

#endif
