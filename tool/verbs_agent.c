/* SPDX-License-Identifier: Apache-2.0 */
/* hawser verbs agent: containers of crun and runc, a broker for each. */
#include "base/size.h"
#include "tool/opts.h"
#include "tool/verbs.h"
#include "verbs/guard.h"

#include <string.h>
#include <sys/signalfd.h>

#define CMD            "verbs agent"
#define CONTAINERS     256
#define CONTAINERS_MAX 4096

enum { O_SOCKET = 300, O_STATE, O_AUDIT, O_CONTAINERS };

static int run(const struct vb_agent_options *a, const char *policy, const char *audit, bool verbose)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
    struct vb_agent_options o = *a;
    struct verbs_base b;
    sigset_t old;
    int rc = verbs_base_open(&b, CMD, policy, audit);
    if (rc != TOOL_OK) {
        verbs_base_close(&b);
        return rc;
    }
    b.log.level += verbose;
    o.policy = b.policy;
    o.audit = &b.audit;
    o.log = &b.log;
    o.stop = -1;
    signal(SIGPIPE, SIG_IGN);
    rc = vb_guard_broker(true);
    if (rc == 0)
        o.stop = verbs_signals(ends, HW_ARRAY_LEN(ends), SFD_NONBLOCK, &old);
    if (rc == 0)
        rc = o.stop < 0 ? o.stop : verbs_folder(o.socket, false);
    if (rc == 0)
        rc = verbs_folder(o.state_dir, true);
    if (rc == 0)
        rc = vb_agent(&o);
    hw_close(&o.stop);
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
        {"containers", O_CONTAINERS, "N", "so many at once at most (default: 256)"},
        {"verbose", 'v', NULL, "say more"},
        {0},
    };
    struct opts o = {
        .cmd = CMD,
        .args = "--policy FILE [OPTION...]",
        .about = "Takes the seccomp listeners of containers that `hawser verbs spec` has prepared from crun and\n"
                 "runc, and starts a broker for each. It runs as root until SIGTERM, which ends the brokers\n"
                 "too; if it is killed they go on, and another agent can be started.",
        .opt = options};
    struct vb_agent_options a = {.socket = VB_AGENT_SOCKET,
                                 .state_dir = VB_AGENT_STATE,
                                 .kernel = &vb_kernel,
                                 .containers_max = CONTAINERS,
                                 .serve = vb_serve};
    const char *arg, *policy = NULL, *audit = NULL;
    bool verbose = false;
    uint64_t n;
    opts_start(&o);
    for (int id; (id = opts_next(&o, argc, argv, &arg)) != OPT_END;) {
        switch (id) {
        case OPT_HELP:
            return TOOL_OK;
        case 'p':
            policy = arg;
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
    return run(&a, policy, audit, verbose);
}
