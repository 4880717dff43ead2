/* SPDX-License-Identifier: Apache-2.0 */
/* hawser verbs: the table of its actions, each of which has its own file (verbs_*.c), and shared code. */
#include "tool/verbs/verbs.h"

#include <libgen.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

static const struct tool_action actions[] = {
    {"agent", verbs_agent_main, "serve containers of crun and runc, with a broker for each"},
    {"run", verbs_run_main, "run a command with a broker, without a container runtime"},
    {"spec", verbs_spec_main, "add the broker's filter and the device nodes to an OCI bundle's config.json"},
    {"status", verbs_status_main, "show containers with their objects, pinned bytes and refusals"},
    {"audit", verbs_audit_main, "show which requests were refused, to which container, and why"},
    {0},
};

int cmd_verbs(int argc, char **argv)
{
    static const struct tool_actions t = {
        .cmd = "verbs",
        .about = "RDMA verbs for untrusted programs: a broker checks each request against a policy.",
        .action = actions};
    return tool_act(&t, argc, argv);
}

/* ---- shared --------------------------------------------------------------------------------------- */

void verbs_log(void *arg, int level, const char *line)
{
    static const char *const names[] = {"error: ", "warning: ", "", ""};
    fprintf(stderr, "hawser %s: %s%s\n", (const char *)arg, names[level], line);
}

void verbs_put(FILE *f, const char *text)
{
    for (; *text; text++)
        putc((unsigned char)*text < ' ' || *text == 0x7f || (unsigned char)*text >= 0x80 ? '?' : *text, f);
}

static int make_verbs_folder(const char *path)
{
    struct stat st;
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return hw_fail(-errno, "creating the folder %s: %s", path, hw_errno_text(errno));
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : hw_fail(-ENOTDIR, "%s is not a folder", path);
}

int verbs_folder(const char *path, bool itself)
{
    char copy[256];
    if (strlen(path) >= sizeof(copy))
        return hw_fail(-ENAMETOOLONG, "'%s' is too long", path);
    memcpy(copy, path, strlen(path) + 1);
    int rc = make_verbs_folder(dirname(copy));
    return rc == 0 && itself ? make_verbs_folder(path) : rc;
}

int verbs_signals(const int *set, size_t n, int flags, sigset_t *old)
{
    sigset_t s;
    sigemptyset(&s);
    for (size_t i = 0; i < n; i++)
        sigaddset(&s, set[i]);
    if (sigprocmask(SIG_BLOCK, &s, old) < 0)
        return hw_fail(-errno, "blocking signals: %s", hw_errno_text(errno));
    int fd = signalfd(-1, &s, SFD_CLOEXEC | flags);
    return fd < 0 ? hw_fail(-errno, "creating a signalfd: %s", hw_errno_text(errno)) : fd;
}

/* Raises the limit on descriptors to 65536, but at most to the hard limit, because brokers fetch descriptors from
 * applications. *was receives the previous limit. */
static void raise_verbs_file_limit(struct rlimit *was)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return;
    *was = l;
    l.rlim_cur = HW_MAX(l.rlim_cur, HW_MIN(l.rlim_max, (rlim_t)65536));
    (void)setrlimit(RLIMIT_NOFILE, &l);
}

int verbs_base_open(struct verbs_base *b, const char *cmd, const char *policy, const char *audit)
{
    static struct vb_device device[VB_DEVICES_MAX];
    *b = (struct verbs_base){.log = {.fn = verbs_log, .arg = (char *)cmd, .level = HAWSER_LOG_INFO}, /* NOLINT */
                             .audit = {.fd = -1}};
    if (!policy)
        return tool_usage(
            cmd, "--policy FILE is missing; it specifies which requests are allowed (see hawser-verbs-policy(5))");
    int rc = vb_policy_load(policy, &b->policy);
    if (rc == 0)
        rc = vb_audit_open(&b->audit, audit, &b->log);
    if (rc < 0)
        return tool_fail(cmd, "%s", hw_error());
    int n = vb_kernel.devices(device, HW_ARRAY_LEN(device));
    if (n < 0)
        hw_log(&b->log, HAWSER_LOG_WARN, "listing the RDMA devices: %s", hw_error());
    else if (n == 0)
        hw_log(&b->log, HAWSER_LOG_WARN, "this machine has no RDMA device (/sys/class/infiniband_verbs)");
    raise_verbs_file_limit(&b->files);
    return TOOL_OK;
}

void verbs_base_close(struct verbs_base *b)
{
    vb_audit_close(&b->audit);
    vb_policy_free(b->policy);
}
