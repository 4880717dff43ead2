/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox sysfs: a folder, a FUSE file system, or NCCL's XML. */
#include "net/sysfs.h"
#include "sandbox/sysfs/sysfs.h"
#include "tool/opts_old.h"
#include "tool/sandbox/sandbox.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CMD "sandbox sysfs"

enum { O_FUSE = 300, O_TOPO };

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

/* Returns in the parent once it is mounted; the child serves on, apart from the terminal. A tool_exit. */
static int serve(const struct sbx_tree *t, const struct out *out, const char *host)
{
    int ready[2] = {-1, -1};
    struct sbx_fuse f = {.at = out->fuse, .host = -1, .ready = -1};
    char byte;
    if (host && (f.host = hw_root_open(host)) < 0)
        return tool_fail(CMD, "%s", hw_error());
    if (!out->foreground) {
        if (pipe2(ready, O_CLOEXEC) < 0)
            return tool_fail(CMD, "a pipe: %s", strerror(errno));
        pid_t pid = fork();
        if (pid < 0)
            return tool_fail(CMD, "fork: %s", strerror(errno));
        if (pid > 0) {
            hw_close(&ready[1]);
            /* the child has said why, if it ends before */
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

static int run(const struct sandbox_args *a, const struct out *out)
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
        rc = serve(&t, out, a->from ? NULL : a->sysfs ? a->sysfs : "/");
    sbx_tree_free(&t);
    return rc;
}

int sandbox_sysfs_main(int argc, char **argv)
{
    static const struct opt options[] = {
        {"out", 'o', "DIR", "write it to DIR, to be mounted read-only on a container's /sys"},
        {"fuse", O_FUSE, "MOUNTPOINT", "serve it there; states, rates, GIDs and counters are the host's of the moment"},
        {"foreground", 'F', NULL, "with --fuse: do not go to the background once it is mounted"},
        {"nccl-topo", O_TOPO, "FILE", "write it to FILE as NCCL_TOPO_FILE has it; - is standard output"},
        SANDBOX_OPTS,
        {0},
    };
    struct opts o = {.cmd = CMD,
                     .args = "--out DIR | --fuse MOUNTPOINT | --nccl-topo FILE [OPTION...]",
                     .about = "Rebuilds the sysfs that a container with these NICs and GPUs is to see.",
                     .opt = options};
    struct sandbox_args a = {0};
    struct out out = {0};
    const char *arg;
    opts_start(&o);
    for (int id; (id = opts_next(&o, argc, argv, &arg)) != OPT_END;) {
        switch (id) {
        case OPT_HELP:
            return TOOL_OK;
        case 'o':
            out.dir = arg;
            break;
        case O_FUSE:
            out.fuse = arg;
            break;
        case 'F':
            out.foreground = true;
            break;
        case O_TOPO:
            out.topo = arg;
            break;
        default:
            if (!sandbox_option(&a, id, arg))
                return TOOL_USAGE;
        }
    }
    if (optind < argc)
        return tool_usage(CMD, "'%s': it takes no arguments", argv[optind]);
    if (!out.dir && !out.fuse && !out.topo)
        return tool_usage(CMD, "where to? --out DIR, --fuse MOUNTPOINT or --nccl-topo FILE");
    return run(&a, &out);
}
