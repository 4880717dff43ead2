/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/mesh_out.h"

int mesh_html(const struct mesh *m, const struct mesh_findings *f, const char *path)
{
    (void)m;
    (void)f;
    return hw_fail(-ENOSYS, "%s", path);
}
