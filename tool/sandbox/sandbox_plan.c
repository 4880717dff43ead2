/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox plan, and the options by which all actions plan. */
#include "tool/opts_old.h"
#include "tool/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>

bool sandbox_option(struct sandbox_args *a, int id, const char *arg)
{
    switch (id) {
    case 'f':
        a->from = arg;
        return true;
    case 's':
        a->sysfs = arg;
        return true;
    case 'n':
        a->want.nics = arg;
        return true;
    case 'g':
        a->want.gpus = arg;
        return true;
    case SANDBOX_EXCLUDE:
        a->want.exclude = arg;
        return true;
    case SANDBOX_PEER:
        a->want.peer_nics = arg;
        return true;
    case SANDBOX_ASK:
        a->peer = arg;
        return true;
    case SANDBOX_KEY:
        return common_option(&a->common, 'k', arg) == 1;
    case SANDBOX_INSECURE:
        return common_option(&a->common, 'I', arg) == 1;
    case SANDBOX_BOOTSTRAP:
        a->want.bootstrap = arg;
        return true;
    case SANDBOX_REQUIRE_IPV4:
        a->want.require_ipv4 = true;
        return true;
    case SANDBOX_FORCE:
        a->want.force = true;
        return true;
    case SANDBOX_ALL_NICS:
        a->want.keep_nics = true;
        return true;
    default:
        return false;
    }
}

int sandbox_make(const char *cmd, const struct sandbox_args *a, struct sbx_snapshot *s, struct sbx_plan *p)
{
    *p = (struct sbx_plan){0};
    *s = (struct sbx_snapshot){0};
    if (a->from && a->sysfs)
        return tool_usage(cmd, "--from and --sysfs name two machines");
    if (a->peer && a->want.peer_nics)
        return tool_usage(cmd, "--peer asks for what --peer-nics says");
    int rc = a->from ? sbx_snapshot_load(s, a->from) : sandbox_take(s, a->sysfs, false);
    if (rc < 0)
        return tool_fail(cmd, "%s", hw_error());
    struct sbx_want want = a->want;
    struct sandbox_args asked = *a;
    char *list = NULL;
    if (a->peer) {
        list = sandbox_ask_peer(cmd, &asked, s, strcmp(cmd, "sandbox plan") == 0);
        if (!list)
            return tool_fail(cmd, "%s", hw_error());
        want.peer = a->peer;
        want.peer_nics = list;
    }
    rc = sbx_plan_make(p, s, &want);
    free(list);
    /* what was typed is wrong, or does not fit this machine */
    return rc == -EINVAL || rc == -ENODEV || rc == -EPERM ? tool_usage(cmd, "%s", hw_error())
           : rc < 0                                       ? tool_fail(cmd, "%s", hw_error())
                                                          : TOOL_OK;
}

int sandbox_plan_main(int argc, char **argv)
{
    static const struct opt options[] = {SANDBOX_OPTS, {"json", 'j', NULL, "say it in JSON"}, {0}};
    struct opts o = {.cmd = "sandbox plan",
                     .args = "[OPTION...]",
                     .about =
                         "Says which NICs, RDMA devices and GPUs a container gets, and why each other one does not.",
                     .opt = options};
    struct sandbox_args a = {0};
    struct sbx_snapshot s;
    struct sbx_plan p;
    const char *arg;
    bool json = false;
    opts_start(&o);
    for (int id; (id = opts_next(&o, argc, argv, &arg)) != OPT_END;) {
        if (id == OPT_HELP)
            return TOOL_OK;
        if (id == 'j')
            json = true;
        else if (!sandbox_option(&a, id, arg))
            return TOOL_USAGE;
    }
    if (optind < argc)
        return tool_usage(o.cmd, "'%s': it takes no arguments", argv[optind]);
    int rc = sandbox_make(o.cmd, &a, &s, &p);
    if ((rc == TOOL_OK || p.empty) && (json ? sbx_plan_json(&p, &s, stdout) : sbx_plan_text(&p, &s, stdout)) < 0)
        rc = tool_fail(o.cmd, "%s", hw_error());
    sbx_plan_free(&p);
    sbx_snapshot_free(&s);
    return rc;
}
