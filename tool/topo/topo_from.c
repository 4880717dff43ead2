/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and reads snapshots for `hawser topo`, in the format of `hawser sandbox snapshot` (sandbox/plan/snapshot.h).
 * Saved snapshots have no addresses. To read a snapshot, the machine's sysfs is rebuilt in a temporary folder and
 * scanned like that of this machine. */
#include "net/sysfs.h"
#include "sandbox/sysfs/sysfs.h"
#include "tool/sandbox/sandbox.h"
#include "tool/topo/topo.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int topo_save(const char *path)
{
    struct sbx_snapshot s __attribute__((cleanup(sbx_snapshot_free))) = {0};
    int rc = sandbox_take(&s, NULL, true);
    return rc < 0 ? rc : sandbox_save(&s, path);
}

/* Writes a substitute for /proc/net/route, with the only information that a scan needs: which interfaces have a default
 * route. */
static int write_route_file(const struct sbx_snapshot *s, const char *path)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return hw_fail(-errno, "%s: %s", path, strerror(errno));
    fprintf(f, "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n");
    for (size_t i = 0; i < s->n_net; i++)
        if (s->net[i].default_route)
            fprintf(f, "%s\t00000000\t00000000\t0003\t0\t0\t0\t00000000\n", s->net[i].name);
    return fclose(f) == 0 ? 0 : hw_fail(-EIO, "writing %s failed", path);
}

struct rebuilt {
    char dir[PATH_MAX - 32], sys[PATH_MAX], proc[PATH_MAX], net[PATH_MAX], route[PATH_MAX];
};

static int rebuild_machine_files(struct rebuilt *r, const struct sbx_snapshot *s)
{
    const char *tmp = getenv("TMPDIR");
    struct sbx_tree t;
    if ((size_t)snprintf(r->dir, sizeof(r->dir), "%s/hawser-topo.XXXXXX", tmp && *tmp ? tmp : "/tmp") >= sizeof(r->dir))
        return hw_fail(-ENAMETOOLONG, "the path in TMPDIR is too long");
    if (!mkdtemp(r->dir)) {
        int rc = hw_fail(-errno, "%s: %s", r->dir, strerror(errno));
        r->dir[0] = 0;
        return rc;
    }
    snprintf(r->sys, sizeof(r->sys), "%s/sys", r->dir);
    snprintf(r->proc, sizeof(r->proc), "%s/proc", r->dir);
    snprintf(r->net, sizeof(r->net), "%s/proc/net", r->dir);
    snprintf(r->route, sizeof(r->route), "%s/proc/net/route", r->dir);
    int rc = sbx_sysfs_build(&t, s, NULL);
    if (rc == 0)
        rc = sbx_tree_write(&t, r->sys);
    sbx_tree_free(&t);
    if (rc < 0)
        return rc;
    if (mkdir(r->proc, 0700) < 0 || mkdir(r->net, 0700) < 0)
        return hw_fail(-errno, "%s: %s", r->net, strerror(errno));
    return write_route_file(s, r->route);
}

/* Removes the files that were created. Preserves the current error. */
static void remove_rebuilt_files(const struct rebuilt *r)
{
    if (!r->dir[0])
        return;
    HW_KEEP_ERROR();
    unlink(r->route);
    rmdir(r->net);
    rmdir(r->proc);
    sbx_tree_remove(r->sys);
    rmdir(r->dir);
}

int topo_from(struct hw_node *n, const char *file)
{
    struct sbx_snapshot s;
    struct rebuilt r = {.dir = ""};
    *n = (struct hw_node){0};
    int rc = sbx_snapshot_load(&s, file), root = -1;
    if (rc == 0)
        rc = rebuild_machine_files(&r, &s);
    if (rc == 0 && (rc = root = hw_root_open(r.dir)) >= 0)
        rc = hw_node_scan(n, root, &(struct hw_scan){0});
    hw_close(&root);
    remove_rebuilt_files(&r);
    sbx_snapshot_free(&s);
    return rc;
}
