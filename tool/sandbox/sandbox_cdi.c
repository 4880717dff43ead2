/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox cdi: the plan as a device that podman, containerd and Kubernetes can name. */
#include "tool/opts_old.h"
#include "tool/sandbox/sandbox.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CMD "sandbox cdi"
#define DIR "/run/hawser"

enum { O_NAME = 300, O_NO_ENV };

static int run(const struct sandbox_bundle_args *a, const char *name, bool no_env)
{
    char beside[PATH_MAX];
    struct sandbox_bundle *b = calloc(1, sizeof(*b));
    if (!b)
        return tool_fail(CMD, "no memory");
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

int sandbox_cdi_main(int argc, char **argv)
{
    static const struct opt options[] = {
        {"name", O_NAME, "NAME", "the device's: " SBX_CDI_KIND "=NAME (default: all)"},
        {"out", 'o', "FILE", "write it to FILE, below /etc/cdi or /run/cdi (default: standard output)"},
        {"no-env", O_NO_ENV, NULL, "leave the environment to `hawser sandbox env` and the container's --env-file"},
        SANDBOX_BUNDLE_OPTS,
        SANDBOX_OPTS,
        {0},
    };
    struct opts o = {.cmd = CMD,
                     .args = "[OPTION...]",
                     .about = "Writes the plan as a specification of the Container Device Interface, for\n"
                              "`podman run --device " SBX_CDI_KIND "=all` and its like.",
                     .opt = options};
    struct sandbox_bundle_args a = {.env.caller = environ};
    const char *arg, *name = "all";
    bool no_env = false;
    opts_start(&o);
    for (int id; (id = opts_next(&o, argc, argv, &arg)) != OPT_END;) {
        if (id == OPT_HELP)
            return TOOL_OK;
        if (id == O_NAME)
            name = arg;
        else if (id == O_NO_ENV)
            no_env = true;
        else if (sandbox_bundle_option(CMD, &a, id, arg) != 0)
            return TOOL_USAGE;
    }
    if (optind < argc)
        return tool_usage(CMD, "'%s': it takes no arguments", argv[optind]);
    if (strchr(name, '/') || !*name)
        return tool_usage(CMD, "'%s' is no name", name);
    return run(&a, name, no_env);
}
