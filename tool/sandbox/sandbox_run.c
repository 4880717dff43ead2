/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox run: runs a command with its own NICs, environment and, unless --no-sysfs is given, sysfs, and
 * restores everything afterwards. */
#include "oci/oci.h"
#include "oci/run.h"
#include "sandbox/sysfs/sysfs.h"
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CMD "sandbox run"

enum { EXIT_US = 125, EXIT_CANNOT = 126, EXIT_NOT_FOUND = 127 }; /* as in env(1) and hawser lab exec */

struct run_args {
    struct sandbox_args plan;
    struct sbx_run run;
    struct hw_logger log;
};

/* Runs the command. Returns the exit status. */
static int run_sandboxed_command(const struct run_args *a, struct sbx_snapshot *s, struct sbx_plan *p)
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
            rc = hw_fail(-E2BIG, "too many NICs: at most %d", SB_NICS_MAX);
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

static int plan_and_run(struct run_args *a)
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
    rc = rc == TOOL_OK ? run_sandboxed_command(a, &s, &p) : EXIT_US;
    sbx_plan_free(&p);
    sbx_snapshot_free(&s);
    return rc;
}

static int parse_netns(void *args, const char *text)
{
    ((struct run_args *)args)->run.netns = strcmp(text, "new") == 0 ? NULL : text;
    return 0;
}

static const struct opt rows[] = {
    OPT_TEXT("id", 0, "ID", struct run_args, run.move.id, "name of the command in the journal (default: run-PID)"),
    OPT_CALL("netns", 0, "NETNS", parse_netns,
             "run in this network namespace: a process ID, a path or a name; new: in a new one (default: new)"),
    OPT_FLAG("no-sysfs", 0, struct run_args, run.no_sysfs, "leave /sys unchanged"),
    OPT_ENUM(
        "rdma", 0, "auto|yes|no", struct run_args, run.move.rdma, sandbox_rdma_words, SB_RDMA_AUTO,
        "also move the NICs' RDMA devices: yes (fail if that is impossible), no, or auto (if possible; the default)"),
    OPT_FLAG("no-arp", 0, struct run_args, run.move.no_arp, "change no ARP settings and add no source-based routes"),
    OPT_TEXT("journal-dir", 0, "DIR", struct run_args, run.move.journal_dir,
             "folder of the journals (default: " SB_JOURNAL_DIR ")"),
    OPT_TEXT("net-plugin", 0, "NAME", struct run_args, run.env.net_plugin,
             "set NCCL_NET_PLUGIN to NAME (default: hawser if the sandbox has NICs but no RDMA device)"),
    OPT_FLAG("debug-all", 0, struct run_args, run.env.debug_all,
             "add settings for debugging, which slow down the command"),
    OPT_COUNT("verbose", 'v', struct run_args, log.level, "print what is done"),
    OPT_GROUP(sandbox_opts, struct run_args, plan),
    {0},
};

int sandbox_run_main(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = CMD,
        .args = "[OPTION...] -- COMMAND [ARGUMENT...]",
        .about = "Runs a command with the planned NICs in its own namespaces, with a /sys that shows only these NICs, "
                 "and restores everything when the command ends. The exit status is the command's; 125 if hawser "
                 "failed, 126 if the command could not be executed, 127 if it was not found.",
        .rows = rows,
        .least = 1,
        .most = OPTS_ANY,
        .too_few = "COMMAND is missing"};
    char cmd[] = CMD;
    struct run_args a = {.run = {.env = {.caller = environ}},
                         .log = {.fn = sandbox_log, .arg = cmd, .level = HAWSER_LOG_WARN}};
    a.run.move.log = &a.log;
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    a.run.argv = argv + optind;
    a.run.move.force = a.plan.want.force;
    return plan_and_run(&a);
}
