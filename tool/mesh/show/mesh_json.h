/* SPDX-License-Identifier: Apache-2.0 */
/* A mesh as JSON lines, schema hawser-mesh-1 (docs/mesh.md), and back. */
#ifndef HW_MESH_JSON_H
#define HW_MESH_JSON_H

#include "tool/mesh/judge/mesh_judge.h"

/* -errno of opening or writing. */
int mesh_write(const struct mesh *m, const struct mesh_findings *f, FILE *out);
/* Reads the output of mesh_write() without the findings: the caller judges again. Does not trust the file: indices of
 * nodes and NICs are within m. The caller frees m also after a failure. path: for the error message, which has the line
 * number. -EINVAL, -E2BIG, -ENOMEM, -errno. */
int mesh_read(FILE *in, const char *path, struct mesh *m);

#endif
