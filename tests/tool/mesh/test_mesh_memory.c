/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the output of `hawser mesh` when memory runs out: each calloc() call fails in turn (linked with --wrap). The
 * functions must then return -ENOMEM and not an incomplete result. */
#include "tests/tap.h"
#include "tool/mesh/show/mesh_heat.h"
#include "tool/mesh/show/mesh_out.h"

#include <unistd.h>

static int left = -1; /* calloc() calls that succeed before one fails; -1: none fails */
static bool failed;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    failed = failed || left == 0;
    return left >= 0 && left-- == 0 ? NULL : __real_calloc(n, size);
}

static char path[] = "/tmp/hawser-mesh-XXXXXX";

static int heat(const struct mesh *m, const struct mesh_findings *f, FILE *out)
{
    return mesh_heat(out, m, f, MESH_K_WAY, HEAT_BY_NAME);
}

static int page(const struct mesh *m, const struct mesh_findings *f, FILE *out)
{
    (void)out;
    return mesh_html(m, f, path);
}

/* Repeats fn with its first calloc() call failing, then its second, and so on, until no call fails. */
static void exhaust(int (*fn)(const struct mesh *, const struct mesh_findings *, FILE *), const struct mesh *m,
                    const char *what)
{
    const struct mesh_findings none = {0};
    FILE *out = fopen("/dev/null", "we");
    int calls = 0, wrong = 0, rc;
    do {
        left = calls++;
        failed = false;
        rc = fn(m, &none, out);
        left = -1;
        wrong += rc != (failed ? -ENOMEM : 0);
    } while (failed && calls < 1000);
    ok(calls > 1 && wrong == 0, "%s: each of %d failures is -ENOMEM (%d are not)", what, calls - 1, wrong);
    fclose(out);
}

int main(void)
{
    enum { NODES = 3 };
    struct mesh m;
    int fd = mkstemp(path);
    if (fd < 0 || mesh_init(&m, NODES) < 0)
        return 1;
    close(fd);
    for (unsigned i = 0; i < NODES; i++) {
        snprintf(m.node[i].name, sizeof m.node[i].name, "node%u", i);
        (void)mesh_nic(&m.node[i], "eth0");
    }
    for (unsigned i = 0; i < NODES * NODES; i++) {
        const struct mesh_sample way = {i / NODES, i % NODES, MESH_K_WAY, MESH_ALL, MESH_ALL, 10},
                                 rail = {i / NODES, i % NODES, MESH_K_RAIL, 0, 0, 10};
        if (way.from != way.to && (mesh_add(&m, &way) < 0 || mesh_add(&m, &rail) < 0))
            return 1;
    }
    exhaust(mesh_print, &m, "figures");
    exhaust(heat, &m, "a heat map");
    exhaust(page, &m, "the report");
    mesh_free(&m);
    unlink(path);
    return tap_done();
}
