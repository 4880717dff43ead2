/* SPDX-License-Identifier: Apache-2.0 */
/* hawser verbs agent: runs brokers for containers of crun and runc. */
#include "tool/opts.h"
#include "tool/verbs/verbs.h"
#include "verbs/stub/guard.h"

#include <string.h>
#include <sys/signalfd.h>

#define CMD            "verbs agent"
#define CONTAINERS     256
#define CONTAINERS_MAX 4096

/* Opens a signalfd for each kind of request: stop, leave and reload. */
static int open_signals(struct vb_agent_options *o)
{
    static const int ends[] = {SIGTERM, SIGINT}, leaves[] = {SIGUSR1}, reloads[] = {SIGHUP};
    sigset_t old;
    o->stop = verbs_signals(ends, HW_ARRAY_LEN(ends), SFD_NONBLOCK, &old);
    o->leave = verbs_signals(leaves, HW_ARRAY_LEN(leaves), SFD_NONBLOCK, &old);
    o->reload = verbs_signals(reloads, HW_ARRAY_LEN(reloads), SFD_NONBLOCK, &old);
    return HW_MIN(HW_MIN(o->stop, o->leave), HW_MIN(o->reload, 0));
}

static int guard_and_serve(struct vb_agent_options *o)
{
    int rc = vb_guard_agent();
    if (rc < 0 || (rc = open_signals(o)) < 0)
        return rc;
    rc = verbs_folder(o->socket, false);
    if (rc < 0 || (rc = verbs_folder(o->state_dir, true)) < 0)
        return rc;
    return vb_agent(o);
}

static int run_agent(const struct vb_agent_options *a, const char *audit, bool verbose)
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
    rc = guard_and_serve(&o);
    hw_close(&o.stop);
    hw_close(&o.leave);
    hw_close(&o.reload);
    verbs_base_close(&b);
    return rc < 0 ? tool_fail(CMD, "%s", hw_error()) : TOOL_OK;
}

struct agent_args {
    struct vb_agent_options o;
    const char *audit;
    bool verbose;
};

/* Requires an absolute path, because runtimes read it from configurations in other folders. */
static int parse_agent_socket(void *args, const char *text)
{
    struct agent_args *a = args;
    a->o.socket = text;
    return *text == '/' ? 0 : hw_fail(-EINVAL, "'%s' is not an absolute path", text);
}

static const struct opt rows[] = {
    OPT_TEXT("policy", 'P', "FILE", struct agent_args, o.policy_file,
             "read the policy from FILE (see hawser-verbs-policy(5))"),
    OPT_CALL("socket", 0, "PATH", parse_agent_socket,
             "socket to which the container runtimes connect (default: " VB_AGENT_SOCKET ")"),
    OPT_TEXT("state-dir", 0, "DIR", struct agent_args, o.state_dir,
             "folder of the brokers' status sockets (default: " VB_AGENT_STATE ")"),
    OPT_TEXT("audit", 0, "FILE", struct agent_args, audit, "append refused requests to FILE, one JSON line each"),
    OPT_TEXT(
        "container", 0, "NAME", struct agent_args, o.section,
        "use this section of the policy for every container, instead of the one that the container's annotation names"),
    OPT_NUMBER("containers", 0, "N", struct agent_args, o.containers_max, 1, CONTAINERS_MAX,
               "maximum number of containers at once (default: 256)"),
    OPT_FLAG("verbose", 'v', struct agent_args, verbose, "print more messages"),
    {0},
};

int verbs_agent_main(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = CMD,
        .args = "--policy FILE [OPTION...]",
        .about = "Receives from crun and runc the seccomp listeners of containers that `hawser verbs spec` has "
                 "prepared, and starts a broker for each container. Runs as root. SIGTERM and SIGINT end the agent and "
                 "the brokers. SIGUSR1 ends only the agent, so that another agent can be started while the brokers "
                 "continue. SIGHUP makes the agent read the policy again, for containers that start later.",
        .rows = rows};
    struct agent_args a = {.o = {.socket = VB_AGENT_SOCKET,
                                 .state_dir = VB_AGENT_STATE,
                                 .kernel = &vb_kernel,
                                 .containers_max = CONTAINERS,
                                 .serve = vb_serve}};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : run_agent(&a.o, a.audit, a.verbose);
}
