/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox sysfs: writes a folder, serves a FUSE file system, or writes NCCL's XML. */
#include "net/sysfs.h"
#include "sandbox/sysfs/sysfs.h"
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CMD "sandbox sysfs"

struct out {
    const char *dir, *fuse, *topo;
    bool foreground;
};

struct topo {
    const struct sbx_snapshot *s;
    const struct sbx_plan *p;
};

static int put_topo(const void *arg, FILE *f)
{
    const struct topo *t = arg;
    return sbx_nccl_topo(t->s, t->p, f);
}

int sandbox_topo(const struct sbx_snapshot *s, const struct sbx_plan *p, const char *path)
{
    if (strcmp(path, "-") == 0)
        return sbx_nccl_topo(s, p, stdout);
    return sandbox_publish(path, put_topo, &(struct topo){s, p});
}

/* Serves the tree by FUSE. Unless out->foreground is set, a child that is detached from the terminal serves the tree,
 * and the parent returns an exit code once the file system is mounted or the child has failed. */
static int serve_sysfs_tree(const struct sbx_tree *t, const struct out *out, const char *host)
{
    int ready[2] = {-1, -1};
    struct sbx_fuse f = {.at = out->fuse, .host = -1, .ready = -1};
    char byte;
    if (host && (f.host = hw_root_open(host)) < 0)
        return tool_fail(CMD, "%s", hw_error());
    if (!out->foreground) {
        if (pipe2(ready, O_CLOEXEC) < 0)
            return tool_fail(CMD, "creating a pipe: %s", strerror(errno));
        pid_t pid = fork();
        if (pid < 0)
            return tool_fail(CMD, "starting a process: %s", strerror(errno));
        if (pid > 0) {
            hw_close(&ready[1]);
            /* a child that ended early has reported why */
            return read(ready[0], &byte, 1) == 1 ? TOOL_OK : TOOL_FAILED;
        }
        hw_close(&ready[0]);
        setsid();
        f.ready = ready[1];
    }
    int rc = sbx_fuse_serve(t, &f);
    hw_close(&f.host);
    return rc < 0 ? tool_fail(CMD, "%s", hw_error()) : TOOL_OK;
}

static int make_sysfs(const struct sandbox_args *a, const struct out *out)
{
    struct sbx_snapshot s;
    struct sbx_plan p;
    struct sbx_tree t = {0};
    int rc = sandbox_make(CMD, a, &s, &p);
    for (size_t i = 0; rc == TOOL_OK && i < p.n_warning; i++)
        fprintf(stderr, "hawser " CMD ": warning: %s\n", p.warning[i]);
    if (rc == TOOL_OK && ((out->topo && sandbox_topo(&s, &p, out->topo) < 0) ||
                          ((out->dir || out->fuse) && sbx_sysfs_build(&t, &s, &p) < 0) ||
                          (out->dir && sbx_tree_write(&t, out->dir) < 0)))
        rc = tool_fail(CMD, "%s", hw_error());
    sbx_plan_free(&p);
    sbx_snapshot_free(&s);
    if (rc == TOOL_OK && out->fuse)
        rc = serve_sysfs_tree(&t, out, a->from ? NULL : a->sysfs ? a->sysfs : "/");
    sbx_tree_free(&t);
    return rc;
}

struct sysfs_args {
    struct sandbox_args plan;
    struct out out;
};

static const struct opt rows[] = {
    OPT_TEXT("out", 'o', "DIR", struct sysfs_args, out.dir,
             "write the sysfs to DIR, for mounting read-only on a container's /sys"),
    OPT_TEXT("fuse", 0, "DIR", struct sysfs_args, out.fuse,
             "mount the sysfs on DIR with FUSE; states, rates, GIDs and counters are read live from the host"),
    OPT_FLAG("foreground", 'F', struct sysfs_args, out.foreground, "with --fuse: stay in the foreground"),
    OPT_TEXT("nccl-topo", 0, "FILE", struct sysfs_args, out.topo,
             "write the topology to FILE in the format of NCCL_TOPO_FILE; -: standard output"),
    OPT_GROUP(sandbox_opts, struct sysfs_args, plan),
    {0},
};

int sandbox_sysfs_main(int argc, char **argv)
{
    static const struct opts o = {.cmd = CMD,
                                  .args = "{--out DIR|--fuse DIR|--nccl-topo FILE} [OPTION...]",
                                  .about =
                                      "Rebuilds the sysfs that a container with the planned NICs and GPUs should see.",
                                  .rows = rows};
    struct sysfs_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (!a.out.dir && !a.out.fuse && !a.out.topo)
        return tool_usage(CMD, "needs --out DIR, --fuse DIR or --nccl-topo FILE");
    return make_sysfs(&a.plan, &a.out);
}
