/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox run: a command with NICs, sysfs and environment of its own, and everything given back. */
#include "oci/oci.h"
#include "oci/run.h"
#include "sandbox/sysfs/sysfs.h"
#include "tool/opts_old.h"
#include "tool/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CMD "sandbox run"

enum { O_ID = 300, O_NETNS, O_NO_SYSFS, O_JOURNAL, O_RDMA, O_NO_ARP, O_PLUGIN, O_DEBUG_ALL };
enum { EXIT_US = 125, EXIT_CANNOT = 126, EXIT_NOT_FOUND = 127 }; /* env(1)'s, and hawser lab exec's */

struct run_args {
    struct sandbox_args plan;
    struct sbx_run run;
    struct hw_logger log;
};

/* The exit status. */
static int go(const struct run_args *a, struct sbx_snapshot *s, struct sbx_plan *p)
{
    struct sb_nic nic[SB_NICS_MAX];
    struct sbx_run r = a->run;
    int status = -1, rc = 0;
    r.move.nic = nic;
    r.s = s;
    r.p = p;
    r.want = &a->plan.want;
    for (size_t i = 0; i < s->n_net && rc == 0; i++) {
        if (!sbx_nic_in(p, i))
            continue;
        if (r.move.n == SB_NICS_MAX)
            rc = hw_fail(-E2BIG, "more than %d NICs", SB_NICS_MAX);
        else
            nic[r.move.n++] = (struct sb_nic){.name = s->net[i].name};
    }
    for (size_t i = 0; i < p->n_rdma; i++)
        r.memlock |= !p->rdma[i].why[0];
    if (rc == 0)
        rc = sbx_run(&r, &status);
    if (rc < 0) {
        tool_fail(CMD, "%s", hw_error());
        return status < 0 || !WIFEXITED(status)        ? EXIT_US
               : WEXITSTATUS(status) == EXIT_NOT_FOUND ? EXIT_NOT_FOUND
               : WEXITSTATUS(status) == EXIT_CANNOT    ? EXIT_CANNOT
                                                       : EXIT_US;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run(struct run_args *a)
{
    struct sbx_snapshot s;
    struct sbx_plan p;
    char id[32];
    snprintf(id, sizeof(id), "run-%d", (int)getpid());
    if (!a->run.move.id)
        a->run.move.id = id;
    sbx_heal(a->run.move.journal_dir, &a->log);
    int rc = sandbox_make(CMD, &a->plan, &s, &p);
    for (size_t i = 0; rc == TOOL_OK && i < p.n_warning; i++)
        fprintf(stderr, "hawser " CMD ": warning: %s\n", p.warning[i]);
    rc = rc == TOOL_OK ? go(a, &s, &p) : EXIT_US;
    sbx_plan_free(&p);
    sbx_snapshot_free(&s);
    return rc;
}

int sandbox_run_main(int argc, char **argv)
{
    static const struct opt options[] = {
        {"id", O_ID, "ID", "its name in the journal (default: run-PID)"},
        {"netns", O_NETNS, "NETNS", "in this network namespace: a PID, a path, a name; new: its own (default: new)"},
        {"no-sysfs", O_NO_SYSFS, NULL, "leave /sys as it is"},
        {"rdma", O_RDMA, "auto|yes|no", "the NICs' RDMA devices too: where they can go, or else fail, or not"},
        {"no-arp", O_NO_ARP, NULL, "leave ARP as a namespace has it"},
        {"journal-dir", O_JOURNAL, "DIR", "where journals are (default: " SB_JOURNAL_DIR ")"},
        {"net-plugin", O_PLUGIN, "NAME", "NCCL_NET_PLUGIN (default: hawser where there is no RDMA device)"},
        {"debug-all", O_DEBUG_ALL, NULL, "all that finds faults, at a cost"},
        {"verbose", 'v', NULL, "say what is done"},
        SANDBOX_OPTS,
        {0},
    };
    struct opts o = {.cmd = CMD,
                     .args = "[OPTION...] -- COMMAND [ARGUMENT...]",
                     .about = "Runs a command with the planned NICs in namespaces of its own, with a /sys that shows\n"
                              "only these, and gives everything back at its end. The exit status is the command's;\n"
                              "125 where hawser failed, 126 and 127 where it could not be run or found.",
                     .opt = options};
    char cmd[] = CMD;
    struct run_args a = {.run = {.env = {.caller = environ}},
                         .log = {.fn = sandbox_log, .arg = cmd, .level = HAWSER_LOG_WARN}};
    const char *arg;
    int id;
    a.run.move.log = &a.log;
    opts_start(&o);
    while ((id = opts_next(&o, argc, argv, &arg)) != OPT_END) {
        switch (id) {
        case OPT_HELP:
            return TOOL_OK;
        case O_ID:
            a.run.move.id = arg;
            break;
        case O_NETNS:
            a.run.netns = strcmp(arg, "new") == 0 ? NULL : arg;
            break;
        case O_NO_SYSFS:
            a.run.no_sysfs = true;
            break;
        case O_RDMA:
            if (!sandbox_rdma(arg, &a.run.move.rdma))
                return tool_usage(CMD, "--rdma is auto, yes or no, and not '%s'", arg);
            break;
        case O_NO_ARP:
            a.run.move.no_arp = true;
            break;
        case O_JOURNAL:
            a.run.move.journal_dir = arg;
            break;
        case O_PLUGIN:
            a.run.env.net_plugin = arg;
            break;
        case O_DEBUG_ALL:
            a.run.env.debug_all = true;
            break;
        case 'v':
            a.log.level++;
            break;
        default:
            if (!sandbox_option(&a.plan, id, arg))
                return TOOL_USAGE;
        }
    }
    if (optind == argc)
        return tool_usage(CMD, "which command?");
    a.run.argv = argv + optind;
    a.run.move.force = a.plan.want.force;
    return run(&a);
}
