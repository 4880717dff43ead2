/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox spec, and the code it shares with cdi. */
#include "net/sysfs.h"
#include "sandbox/sysfs/sysfs.h"
#include "tool/opts.h"
#include "tool/sandbox/bundle_file.h"
#include "tool/sandbox/sandbox.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CMD "sandbox spec"

/* ---- shared with cdi ------------------------------------------------------------------------------ */

static int parse_topo(void *args, const char *text)
{
    ((struct sandbox_bundle_args *)args)->topo_at = text;
    return *text == '/' ? 0 : hw_fail(-EINVAL, "'%s' is not an absolute path in the container", text);
}

const struct opt sandbox_bundle_opts[] = {
    OPT_TEXT("sysfs-out", 0, "DIR", struct sandbox_bundle_args, sysfs_out, "write the rebuilt sysfs to DIR"),
    OPT_FLAG("no-sysfs", 0, struct sandbox_bundle_args, no_sysfs, "leave the container's /sys unchanged"),
    OPT_CALL("nccl-topo", 0, "PATH", parse_topo,
             "also mount a topology file at PATH in the container, and set NCCL_TOPO_FILE to PATH"),
    OPT_TEXT("journal-dir", 0, "DIR", struct sandbox_bundle_args, journal_dir,
             "folder of the hooks' journals (default: " SB_JOURNAL_DIR ")"),
    OPT_WORD(
        "rdma", 0, "auto|yes|no", struct sandbox_bundle_args, rdma, sandbox_rdma_words,
        "also move the NICs' RDMA devices: yes (fail if that is impossible), no, or auto (if possible; the default)"),
    OPT_FLAG("no-arp", 0, struct sandbox_bundle_args, no_arp, "change no ARP settings and add no source-based routes"),
    OPT_TEXT("net-plugin", 0, "NAME", struct sandbox_bundle_args, env.net_plugin,
             "set NCCL_NET_PLUGIN to NAME (default: hawser if the sandbox has NICs but no RDMA device)"),
    OPT_FLAG("debug-all", 0, struct sandbox_bundle_args, env.debug_all,
             "add settings for debugging, which slow down the container"),
    {0},
};

struct line {
    const char *path, *text;
    unsigned mode;
};

static int write_text_file(const void *arg, FILE *f)
{
    const struct line *l = arg;
    if (fchmod(fileno(f), l->mode) < 0)
        return hw_fail(-errno, "%s.part: %s", l->path, strerror(errno));
    if (fprintf(f, "%s\n", l->text) < 0 || fflush(f) != 0 || fsync(fileno(f)) != 0)
        return hw_fail(-EIO, "writing %s.part failed", l->path);
    return 0;
}

int sandbox_write(const char *path, const char *text, unsigned mode)
{
    return sandbox_publish(path, write_text_file, &(struct line){path, text, mode});
}

/* Makes the hooks' arguments, unless no NIC is planned. The arguments list the NICs by name, so that either exactly the
 * planned NICs move or an error is reported. If the container gets RDMA devices and a sysfs, the hook rebuilds the
 * sysfs after the move, because a NIC that moves gets new GIDs. A sysfs of another machine is kept. */
static int hook_args(struct sandbox_bundle *b, const struct sandbox_bundle_args *a)
{
    const struct sbx_want *w = &a->plan.want;
    HW_AUTO_FREE char *nics = sbx_plan_nics(&b->p);
    size_t n = 0;
    if (!nics)
        return hw_no_memory("the hooks");
    if (!*nics)
        return 0;
    bool live = b->sp.memlock && !a->no_sysfs && !a->plan.from && !a->plan.sysfs;
    b->sp.hook_arg = (const char *const *)b->arg;
    if (asprintf(&b->arg[n++], "nics=%s", nics) < 0 || asprintf(&b->arg[n++], "sysfs=%s", live ? "yes" : "no") < 0 ||
        (live && w->gpus && asprintf(&b->arg[n++], "gpus=%s", w->gpus) < 0) ||
        (live && w->keep_nics && asprintf(&b->arg[n++], "all-nics=yes") < 0) ||
        (w->force && asprintf(&b->arg[n++], "force=yes") < 0) ||
        (a->rdma && asprintf(&b->arg[n++], "rdma=%s", a->rdma) < 0) ||
        (a->no_arp && asprintf(&b->arg[n++], "arp=no") < 0) ||
        (a->journal_dir && asprintf(&b->arg[n++], "journal-dir=%s", a->journal_dir) < 0))
        return hw_no_memory("the hooks");
    return 0;
}

/* Returns path as an absolute path; its last component need not exist. The caller frees the result. Returns NULL with
 * hw_error() on failure. */
static char *resolve_output_path(const char *path)
{
    char dir[PATH_MAX], *out = NULL;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    const char *slash = memrchr(path, '/', len);
    const char *name = slash ? slash + 1 : path;
    snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(name - path) : 1, slash ? path : ".");
    errno = ENAMETOOLONG; /* for a path that does not fit in dir */
    HW_AUTO_FREE char *real = len < sizeof(dir) ? realpath(dir, NULL) : NULL;
    if (real && asprintf(&out, "%s/%.*s", real, (int)(path + len - name), name) >= 0)
        return out;
    hw_fail(-EINVAL, "%s: %s", dir, strerror(errno));
    return NULL;
}

/* Sets the paths of the files to write. */
static int set_bundle_paths(struct sandbox_bundle *b, const struct sandbox_bundle_args *a, const char *beside)
{
    char *topo = NULL, *sysfs = NULL;
    if (!a->no_sysfs && a->sysfs_out && !(sysfs = resolve_output_path(a->sysfs_out)))
        return -EINVAL;
    if ((!a->no_sysfs && !sysfs && asprintf(&sysfs, "%s.sys", beside) < 0) ||
        (a->topo_at && asprintf(&topo, "%s.nccl.xml", beside) < 0))
        return hw_no_memory("a path");
    b->sp.sysfs = sysfs;
    b->sp.topo = topo;
    b->sp.topo_at = b->sp.env.nccl_topo = a->topo_at;
    return 0;
}

int sandbox_bundle_write(const struct sandbox_bundle *b)
{
    if (b->sp.sysfs) {
        struct sbx_tree t __attribute__((cleanup(sbx_tree_free))) = {0};
        int rc = sbx_sysfs_build(&t, &b->s, &b->p);
        if (rc < 0 || (rc = sbx_tree_write(&t, b->sp.sysfs)) < 0)
            return rc;
    }
    return b->sp.topo ? sandbox_topo(&b->s, &b->p, b->sp.topo) : 0;
}

static int fill_bundle(struct sandbox_bundle *b, const struct sandbox_bundle_args *a, const char *beside)
{
    ssize_t n = readlink("/proc/self/exe", b->program, sizeof(b->program) - 1);
    if (n < 0)
        return hw_fail(-errno, "finding this program's path: %s", strerror(errno));
    HW_AUTO_CLOSE int root = hw_root_open(a->plan.sysfs ? a->plan.sysfs : "/");
    if (root < 0)
        return root;
    int rc = sbx_devs_find(&b->dev, root, &b->s, &b->p, &b->log);
    if (rc < 0 || (rc = hook_args(b, a)) < 0)
        return rc;
    return set_bundle_paths(b, a, beside);
}

int sandbox_bundle_make(const char *cmd, struct sandbox_bundle *b, const struct sandbox_bundle_args *a,
                        const char *beside)
{
    *b = (struct sandbox_bundle){0};
    b->log = (struct hw_logger){.fn = sandbox_log, .arg = (char *)cmd, .level = HAWSER_LOG_WARN}; /* NOLINT */
    b->sp = (struct sbx_spec){.plan = &b->p, .env = a->env, .program = b->program, .dev = &b->dev, .log = &b->log};
    int rc = sandbox_make(cmd, &a->plan, &b->s, &b->p);
    if (rc != TOOL_OK)
        return rc;
    for (size_t i = 0; i < b->p.n_warning; i++)
        hw_log(&b->log, HAWSER_LOG_WARN, "%s", b->p.warning[i]);
    for (size_t i = 0; i < b->p.n_rdma; i++)
        b->sp.memlock |= !b->p.rdma[i].why[0];
    return fill_bundle(b, a, beside) < 0 ? tool_fail(cmd, "%s", hw_error()) : TOOL_OK;
}

void sandbox_bundle_free(struct sandbox_bundle *b)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(b->arg); i++)
        free(b->arg[i]);
    free((char *)b->sp.sysfs); /* NOLINT: allocated in set_bundle_paths() */
    free((char *)b->sp.topo);  /* NOLINT */
    sbx_devs_free(&b->dev);
    sbx_plan_free(&b->p);
    sbx_snapshot_free(&b->s);
}

/* ---- spec ---------------------------------------------------------------------------------------- */

/* Writes the prefix of the files that hawser adds to the bundle, such as "BUNDLE/hawser", to out. */
static void name_beside(char out[PATH_MAX], const struct bundle_file *f)
{
    snprintf(out, PATH_MAX, "%.*shawser", (int)(strrchr(f->path, '/') + 1 - f->path), f->path);
}

static int undo_bundle_spec(struct bundle_file *f, const struct sandbox_bundle_args *a)
{
    char path[PATH_MAX + 16], beside[PATH_MAX];
    int rc = sbx_spec_undo(f->config, f->notes);
    name_beside(beside, f);
    /* nothing was undone, so the file may be something other than a configuration */
    if (rc == 0 && !json_is_string(json_object_get(f->config, "ociVersion")))
        rc = hw_fail(-EINVAL, "not an OCI configuration");
    if (rc < 0)
        return tool_fail(CMD, "%s: %s", f->path, hw_error());
    if (rc == 1)
        rc = bundle_save(f, a->out);
    if (rc == 0 && !a->out) { /* otherwise, the bundle's own configuration may still refer to these files */
        snprintf(path, sizeof(path), "%s.sys", beside);
        rc = sbx_tree_remove(a->sysfs_out ? a->sysfs_out : path);
        snprintf(path, sizeof(path), "%s.nccl.xml", beside);
        if (rc == 0 && unlink(path) < 0 && errno != ENOENT)
            rc = hw_fail(-errno, "%s: %s", path, strerror(errno));
    }
    return rc < 0 ? tool_fail(CMD, "%s", hw_error()) : TOOL_OK;
}

/* Applies the container's annotations. A tenant may have written them, so they only choose among what the options
 * allow. */
static int take_annotations(struct sbx_oci *oci, const struct bundle_file *f, struct sandbox_bundle_args *a)
{
    char *text = sbx_oci_dump(f->config);
    int rc = text ? sbx_oci_config(oci, text, strlen(text)) : hw_no_memory("JSON");
    struct sbx_want w = sbx_settings_want(&oci->set), *o = &a->plan.want;
    free(text);
    o->only = w.only;
    o->only_gpus = w.only_gpus;
    o->peer_nics = o->peer_nics ? o->peer_nics : w.peer_nics;
    o->bootstrap = o->bootstrap ? o->bootstrap : w.bootstrap;
    o->require_ipv4 |= w.require_ipv4;
    return rc;
}

static int edit_bundle(const char *path, struct sandbox_bundle_args *a, bool undoing)
{
    struct bundle_file f = {.config = NULL};
    struct sbx_oci oci = {.id = NULL};
    struct sandbox_bundle *b = calloc(1, sizeof(*b));
    char beside[PATH_MAX];
    int rc = b ? bundle_load(&f, path) : hw_no_memory("the bundle");
    if (rc == 0 && !undoing)
        rc = take_annotations(&oci, &f, a);
    if (rc < 0) {
        rc = tool_fail(CMD, "%s", hw_error());
    } else if (undoing) {
        rc = undo_bundle_spec(&f, a);
    } else {
        name_beside(beside, &f);
        rc = sandbox_bundle_make(CMD, b, a, beside);
        if (rc == TOOL_OK && sbx_spec_apply(f.config, &b->sp, f.notes) < 0)
            rc = tool_fail(CMD, "%s: %s", path, hw_error());
        if (rc == TOOL_OK && (sandbox_bundle_write(b) < 0 || bundle_save(&f, a->out) < 0))
            rc = tool_fail(CMD, "%s", hw_error());
    }
    if (b)
        sandbox_bundle_free(b);
    free(b);
    bundle_free(&f);
    sbx_oci_free(&oci);
    return rc;
}

struct spec_args {
    struct sandbox_bundle_args bundle;
    bool undo;
};

static const struct opt rows[] = {
    OPT_TEXT("out", 'o', "FILE", struct spec_args, bundle.out, "write to FILE instead of replacing config.json"),
    OPT_FLAG("undo", 0, struct spec_args, undo, "remove everything that `hawser sandbox spec` has added"),
    OPT_GROUP(sandbox_bundle_opts, struct spec_args, bundle),
    OPT_GROUP(sandbox_opts, struct spec_args, bundle.plan),
    {0},
};

int sandbox_spec_main(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = CMD,
        .args = "CONFIG [OPTION...]",
        .about = "Adds to an OCI bundle's config.json what the container needs for the plan: hooks, mounts, devices, "
                 "environment, limits. Keeps the container's own settings.",
        .rows = rows,
        .least = 1,
        .most = 1,
        .too_few = "needs one config.json",
        .too_many = "needs one config.json"};
    struct spec_args a = {.bundle.out = NULL};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : edit_bundle(argv[optind], &a.bundle, a.undo);
}
