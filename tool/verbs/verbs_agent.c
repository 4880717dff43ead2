/* SPDX-License-Identifier: Apache-2.0 */
/* hawser verbs agent: containers of crun and runc, a broker for each. */
#include "base/size.h"
#include "tool/opts_old.h"
#include "tool/verbs/verbs.h"
#include "verbs/broker/guard.h"

#include <string.h>
#include <sys/signalfd.h>

#define CMD            "verbs agent"
#define CONTAINERS     256
#define CONTAINERS_MAX 4096

enum { O_SOCKET = 300, O_STATE, O_AUDIT, O_CONTAINERS, O_CONTAINER };

/* What signals ask for. */
static int orders(struct vb_agent_options *o)
{
    static const int ends[] = {SIGTERM, SIGINT}, leaves[] = {SIGUSR1}, reloads[] = {SIGHUP};
    sigset_t old;
    o->stop = verbs_signals(ends, HW_ARRAY_LEN(ends), SFD_NONBLOCK, &old);
    o->leave = verbs_signals(leaves, HW_ARRAY_LEN(leaves), SFD_NONBLOCK, &old);
    o->reload = verbs_signals(reloads, HW_ARRAY_LEN(reloads), SFD_NONBLOCK, &old);
    return HW_MIN(HW_MIN(o->stop, o->leave), HW_MIN(o->reload, 0));
}

static int run(const struct vb_agent_options *a, const char *audit, bool verbose)
{
    struct vb_agent_options o = *a;
    struct verbs_base b;
    int rc = verbs_base_open(&b, CMD, o.policy_file, audit);
    if (rc == TOOL_OK && o.section && !vb_policy_has(b.policy, o.section))
        rc = tool_fail(CMD, "%s has no section for a container '%s'", o.policy_file, o.section);
    if (rc != TOOL_OK) {
        verbs_base_close(&b);
        return rc;
    }
    b.log.level += verbose;
    o.policy = b.policy;
    o.audit = &b.audit;
    o.log = &b.log;
    o.stop = o.leave = o.reload = -1;
    signal(SIGPIPE, SIG_IGN);
    rc = vb_guard_agent();
    if (rc == 0)
        rc = orders(&o);
    if (rc == 0)
        rc = verbs_folder(o.socket, false);
    if (rc == 0)
        rc = verbs_folder(o.state_dir, true);
    if (rc == 0)
        rc = vb_agent(&o);
    hw_close(&o.stop);
    hw_close(&o.leave);
    hw_close(&o.reload);
    verbs_base_close(&b);
    return rc < 0 ? tool_fail(CMD, "%s", hw_error()) : TOOL_OK;
}

int verbs_agent_main(int argc, char **argv)
{
    static const struct opt options[] = {
        {"policy", 'p', "FILE", "what containers may do: hawser-verbs-policy(5)"},
        {"socket", O_SOCKET, "PATH", "where runtimes find it (default: " VB_AGENT_SOCKET ")"},
        {"state-dir", O_STATE, "DIR", "of what `hawser verbs status` asks (default: " VB_AGENT_STATE ")"},
        {"audit", O_AUDIT, "FILE", "what is refused, a line of JSON each, to its end"},
        {"container", O_CONTAINER, "NAME", "the policy's section for each, whatever its annotation names"},
        {"containers", O_CONTAINERS, "N", "so many at once at most (default: 256)"},
        {"verbose", 'v', NULL, "say more"},
        {0},
    };
    struct opts o = {
        .cmd = CMD,
        .args = "--policy FILE [OPTION...]",
        .about = "Takes the seccomp listeners of containers that `hawser verbs spec` has prepared from crun and\n"
                 "runc, and starts a broker for each. It runs as root until SIGTERM, which ends the brokers\n"
                 "too, or SIGUSR1, after which they go on, as where it is killed: another agent can be started.\n"
                 "SIGHUP makes it read the policy again, for containers that start from then on.",
        .opt = options};
    struct vb_agent_options a = {.socket = VB_AGENT_SOCKET,
                                 .state_dir = VB_AGENT_STATE,
                                 .kernel = &vb_kernel,
                                 .containers_max = CONTAINERS,
                                 .serve = vb_serve};
    const char *arg, *audit = NULL;
    bool verbose = false;
    uint64_t n;
    opts_start(&o);
    for (int id; (id = opts_next(&o, argc, argv, &arg)) != OPT_END;) {
        switch (id) {
        case OPT_HELP:
            return TOOL_OK;
        case 'p':
            a.policy_file = arg;
            break;
        case O_SOCKET:
            a.socket = arg;
            if (*arg != '/') /* it goes into configurations, which runtimes read elsewhere */
                return tool_usage(CMD, "--socket '%s' is no absolute path", arg);
            break;
        case O_STATE:
            a.state_dir = arg;
            break;
        case O_AUDIT:
            audit = arg;
            break;
        case O_CONTAINER:
            a.section = arg;
            break;
        case O_CONTAINERS:
            if (hw_parse_u64(arg, 1, CONTAINERS_MAX, &n) < 0)
                return tool_usage(CMD, "--containers: %s", hw_error());
            a.containers_max = (unsigned)n;
            break;
        case 'v':
            verbose = true;
            break;
        default:
            return TOOL_USAGE;
        }
    }
    if (optind < argc)
        return tool_usage(CMD, "'%s' is one argument too many", argv[optind]);
    return run(&a, audit, verbose);
}
