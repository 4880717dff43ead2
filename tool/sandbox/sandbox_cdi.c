/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox cdi: writes the plan as a device that podman, containerd and Kubernetes can refer to by name. */
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CMD "sandbox cdi"
#define DIR "/run/hawser"

static int write_cdi(const struct sandbox_bundle_args *a, const char *name, bool no_env)
{
    char beside[PATH_MAX];
    struct sandbox_bundle *b = calloc(1, sizeof(*b));
    if (!b)
        return tool_fail(CMD, "out of memory");
    snprintf(beside, sizeof(beside), DIR "/%s", name);
    if (((!a->no_sysfs && !a->sysfs_out) || a->topo_at) && mkdir(DIR, 0755) < 0 && errno != EEXIST) {
        free(b);
        return tool_fail(CMD, DIR ": %s", strerror(errno));
    }
    int rc = sandbox_bundle_make(CMD, b, a, beside);
    b->sp.no_env = no_env;
    json_t *cdi = rc == TOOL_OK ? sbx_cdi(&b->sp, name) : NULL;
    char *text = cdi ? sbx_oci_dump(cdi) : NULL;
    if (rc == TOOL_OK && (!text || sandbox_bundle_write(b) < 0 || (a->out && sandbox_write(a->out, text, 0644) < 0)))
        rc = tool_fail(CMD, "%s", hw_error());
    if (rc == TOOL_OK && !a->out)
        puts(text);
    free(text);
    json_decref(cdi);
    sandbox_bundle_free(b);
    free(b);
    return rc;
}

struct cdi_args {
    struct sandbox_bundle_args bundle;
    const char *name;
    bool no_env;
};

static int parse_name(void *args, const char *text)
{
    ((struct cdi_args *)args)->name = text;
    return *text && !strchr(text, '/') ? 0 : hw_fail(-EINVAL, "'%s' is not a device name", text);
}

static const struct opt rows[] = {
    OPT_CALL("name", 0, "NAME", parse_name, "the device's name: " SBX_CDI_KIND "=NAME (default: all)"),
    OPT_TEXT("out", 'o', "FILE", struct cdi_args, bundle.out,
             "write to FILE, which podman finds in /etc/cdi or /run/cdi (default: standard output)"),
    OPT_FLAG("no-env", 0, struct cdi_args, no_env,
             "leave out the environment, which the container then gets from `hawser sandbox env` and --env-file"),
    OPT_GROUP(sandbox_bundle_opts, struct cdi_args, bundle),
    OPT_GROUP(sandbox_opts, struct cdi_args, bundle.plan),
    {0},
};

int sandbox_cdi_main(int argc, char **argv)
{
    static const struct opts o = {.cmd = CMD,
                                  .args = "[OPTION...]",
                                  .about = "Writes the plan as a specification of the Container Device Interface, "
                                           "for\n`podman run --device " SBX_CDI_KIND "=all` and similar commands.",
                                  .rows = rows};
    struct cdi_args a = {.bundle.env.caller = environ, .name = "all"};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : write_cdi(&a.bundle, a.name, a.no_env);
}
