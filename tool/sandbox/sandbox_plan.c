/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox plan, and the options and the code with which other actions also make a plan. */
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>

const struct opt sandbox_opts[] = {
    OPT_TEXT("from", 'f', "FILE", struct sandbox_args, from, "plan for the machine whose snapshot is in FILE"),
    OPT_TEXT("sysfs", 0, "DIR", struct sandbox_args, sysfs, "plan for the machine whose sys/ and proc/ are below DIR"),
    OPT_TEXT("nics", 'n', "NIC[,..]", struct sandbox_args, want.nics,
             "use only these NICs or RDMA devices; none: no NIC (default: see hawser(1))"),
    OPT_TEXT("gpus", 'g', "LIST", struct sandbox_args, want.gpus, "use only these GPUs: 0-3,6, or none (default: all)"),
    OPT_TEXT("exclude", 0, "REGEX", struct sandbox_args, want.exclude,
             "exclude NICs whose names match; empty: exclude none (default: ^eth[0-9]+$, except NICs near a GPU)"),
    OPT_TEXT("peer-nics", 0, "NIC[,..]", struct sandbox_args, want.peer_nics,
             "use only NICs that have the same name as one of these NICs of the peer"),
    OPT_TEXT("peer", 0, "HOST[:PORT]", struct sandbox_args, peer,
             "use only NICs that have a partner on HOST, which runs `hawser serve`"),
    OPT_TEXT("key-file", 0, "FILE", struct sandbox_args, common.key_file, "read the job key for --peer from FILE"),
    OPT_FLAG("insecure", 0, struct sandbox_args, common.insecure, "without a key, accept any address for --peer"),
    OPT_TEXT("bootstrap", 0, "ADDR", struct sandbox_args, want.bootstrap,
             "this node's rendezvous address; do not use its NIC"),
    OPT_FLAG("require-ipv4", 0, struct sandbox_args, want.require_ipv4,
             "fail if a NIC has no IPv4 address, instead of excluding the NIC"),
    OPT_FLAG("force", 0, struct sandbox_args, want.force,
             "also use NICs with a default route or the bootstrap address"),
    OPT_FLAG("all-nics", 0, struct sandbox_args, want.keep_nics,
             "show the PCI devices of all NICs in sysfs, including those that the container does not get"),
    {0},
};

int sandbox_make(const char *cmd, const struct sandbox_args *a, struct sbx_snapshot *s, struct sbx_plan *p)
{
    *p = (struct sbx_plan){0};
    *s = (struct sbx_snapshot){0};
    if (a->from && a->sysfs)
        return tool_usage(cmd, "--from and --sysfs cannot be combined: each specifies a machine");
    if (a->peer && a->want.peer_nics)
        return tool_usage(cmd, "--peer and --peer-nics cannot be combined");
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
    /* a wrong option, or one that does not fit this machine */
    return rc == -EINVAL || rc == -ENODEV || rc == -EPERM ? tool_usage(cmd, "%s", hw_error())
           : rc < 0                                       ? tool_fail(cmd, "%s", hw_error())
                                                          : TOOL_OK;
}

struct plan_args {
    struct sandbox_args plan;
    bool json;
};

int sandbox_plan_main(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_GROUP(sandbox_opts, struct plan_args, plan),
        OPT_FLAG("json", 'j', struct plan_args, json, "print JSON"),
        {0},
    };
    static const struct opts o = {
        .cmd = "sandbox plan",
        .args = "[OPTION...]",
        .about = "Shows which NICs, RDMA devices and GPUs a container gets, and why it does not get the others.",
        .rows = rows};
    struct plan_args a = {0};
    struct sbx_snapshot s;
    struct sbx_plan p;
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    rc = sandbox_make(o.cmd, &a.plan, &s, &p);
    if ((rc == TOOL_OK || p.empty) && (a.json ? sbx_plan_json(&p, &s, stdout) : sbx_plan_text(&p, &s, stdout)) < 0)
        rc = tool_fail(o.cmd, "%s", hw_error());
    sbx_plan_free(&p);
    sbx_snapshot_free(&s);
    return rc;
}
