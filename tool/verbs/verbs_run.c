/* SPDX-License-Identifier: Apache-2.0 */
/* hawser verbs run: runs a command with a broker and without a container runtime. */
#include "base/size.h"
#include "sys/pass.h"
#include "tool/opts.h"
#include "tool/verbs/verbs.h"
#include "verbs/agent/filter.h"
#include "verbs/broker/join.h"
#include "verbs/stub/guard.h"

#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CMD    "verbs run"
#define NODES  "/dev/infiniband"
#define END_MS 5000 /* ms for the broker to exit after the command has ended */

enum { EXIT_US = 125, EXIT_CANNOT = 126, EXIT_NOT_FOUND = 127 }; /* as in env(1) and hawser sandbox run */

static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};

struct user {
    bool other; /* run the command as a user other than the caller */
    uid_t uid;
    gid_t gid;
    char name[64]; /* user whose groups are set; "" if only gid is set */
};

struct run_args {
    const char *policy, *audit, *container;
    struct user user;
    struct vb_agent_options o;
    char *const *argv;
};

/* ---- the command's side --------------------------------------------------------------------------- */

/* Prevents the command from opening a node in /dev/infiniband natively, as `hawser verbs spec` does. The filter sees
 * neither openat2() nor an open for writing only. After a notification that lets a call continue, the kernel also reads
 * the path again, from memory that may have changed. */
static int hide_nodes(void)
{
    struct stat st;
    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return hw_fail(-errno, "creating a mount namespace: %s", hw_errno_text(errno));
    if (stat(NODES, &st) < 0)
        return errno == ENOENT ? 0 : hw_fail(-errno, NODES ": %s", hw_errno_text(errno));
    if (mount(NODES, NODES, NULL, MS_BIND, NULL) < 0 ||
        mount("", NODES, NULL, MS_REMOUNT | MS_BIND | MS_NODEV | MS_NOSUID | MS_NOEXEC | MS_RDONLY, NULL) < 0)
        return hw_fail(-errno, "mounting " NODES " with nodev: %s", hw_errno_text(errno));
    return 0;
}

static int set_command_user(const struct user *u)
{
    return u->other ? vb_guard_user(*u->name ? u->name : NULL, u->uid, u->gid) : vb_guard_command();
}

/* Raises the command's limit on descriptors, because its devices get the descriptors from VB_FD_FIRST on. */
static int limit_files(struct rlimit l)
{
    l.rlim_cur = HW_MAX(l.rlim_cur, (rlim_t)VB_FD_LAST + 1);
    l.rlim_max = HW_MAX(l.rlim_max, l.rlim_cur);
    return setrlimit(RLIMIT_NOFILE, &l) < 0 ? hw_fail(-errno, "raising the command's limit on descriptors to %d: %s",
                                                      VB_FD_LAST + 1, hw_errno_text(errno))
                                            : 0;
}

static void send_listener(int sock, int fd, bool killable)
{
    char byte = killable ? 'k' : 'o';
    if (hw_pass_send(sock, NULL, &byte, 1, &fd, 1, 0) < 0)
        _exit(EXIT_US);
}

/* Runs in the child: installs the filter and executes the command. Does not return. */
static void exec_verbs_command(const struct run_args *a, const struct rlimit *files, int sock, const sigset_t *mask)
{
    bool killable = false;
    int rc = limit_files(*files);
    if (rc == 0)
        rc = hide_nodes();
    if (rc == 0)
        rc = set_command_user(&a->user);
    sigprocmask(SIG_SETMASK, mask, NULL);
    signal(SIGPIPE, SIG_DFL);
    int listener = rc == 0 ? vb_filter_install(&killable) : rc;
    rc = HW_MIN(listener, 0);
    if (rc == 0) {
        send_listener(sock, listener, killable);
        hw_close(&listener);
        execvp(a->argv[0], a->argv);
        rc = hw_fail(-errno, "%s: %s", a->argv[0], strerror(errno));
    }
    (void)send(sock, hw_error(), strlen(hw_error()), MSG_NOSIGNAL);
    _exit(rc == -ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT);
}

/* ---- ours ----------------------------------------------------------------------------------------- */

/* Receives the listener's descriptor. Fails if the child exits, or sends an error text, which is then stored in why. */
static int receive_listener(int sock, bool *killable, char why[HW_ERR_TEXT])
{
    int fd;
    ssize_t n = hw_pass_receive(sock, why, HW_ERR_TEXT - 1, &fd, 1, 0, NULL);
    why[HW_MAX(n, 0)] = 0;
    if (fd < 0)
        return hw_fail(-EIO, "%s", n > 0 ? why : "the command's process ended before the command started");
    *killable = *why == 'k';
    *why = 0;
    return fd;
}

/* Waits for the command's end, and returns its wait status. Forwards signals, except those of a terminal, which the
 * command receives itself. Sets *broker to 0 when the broker has ended. */
static int await_verbs_command(pid_t child, pid_t *broker, int signals, const struct hw_logger *log)
{
    for (;;) {
        struct signalfd_siginfo s;
        int status = 0;
        for (pid_t k; (k = waitpid(-1, &status, WNOHANG)) > 0;) {
            if (k == child)
                return status;
            if (k == *broker) {
                *broker = 0;
                if (WIFSIGNALED(status))
                    hw_log(log, HAWSER_LOG_ERROR,
                           "the broker was killed by signal %d%s: RDMA calls of the command now fail with ENOSYS",
                           WTERMSIG(status), vb_broker_signal(WTERMSIG(status)));
                else if (status != 0)
                    hw_log(log, HAWSER_LOG_ERROR,
                           "the broker has ended: RDMA calls of the command now fail with ENOSYS");
            }
        }
        ssize_t n = read(signals, &s, sizeof(s));
        if (n == (ssize_t)sizeof(s) && s.ssi_signo != SIGCHLD && s.ssi_code != SI_KERNEL)
            kill(child, (int)s.ssi_signo);
    }
}

static void end_broker(pid_t pid, int stop)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (fd < 0 || eventfd_write(stop, 1) < 0 || poll(&p, 1, END_MS) != 1)
        kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    hw_close(&fd);
}

/* Supervises the child from its first message to its end. Returns the exit status. */
static int supervise_verbs_run(const struct run_args *a, pid_t child, int sock, int signals, int stop)
{
    struct vb_container c = {.pid = child, .listener = -1, .join = -1};
    char why[HW_ERR_TEXT], id[sizeof(c.id)];
    bool killable = true;
    pid_t broker = 0;
    int status;
    snprintf(id, sizeof(id), "run-%d", (int)child);
    memcpy(c.id, id, sizeof(id));
    snprintf(c.section, sizeof(c.section), "%s", a->container ? a->container : "");
    int rc = c.listener = receive_listener(sock, &killable, why);
    if (rc >= 0)
        rc = vb_broker_start(&a->o, &c, stop, true, &broker);
    if (rc < 0) {
        tool_fail(CMD, "%s", hw_error());
        kill(child, SIGKILL);
    } else if (!killable) {
        hw_log(a->o.log, HAWSER_LOG_WARN,
               "this kernel is older than Linux 5.19: a signal can discard the answer to a request that was executed");
    }
    ssize_t n = rc < 0 ? 0 : recv(sock, why, sizeof(why) - 1, 0); /* nothing arrives if the command was executed */
    if (n > 0)
        tool_fail(CMD, "%.*s", (int)n, why);
    status = await_verbs_command(child, &broker, signals, a->o.log);
    if (broker) {
        end_broker(broker, stop);
        vb_join_clean(a->o.state_dir, id, true);
    }
    if (rc < 0)
        return EXIT_US;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int start_command(const struct run_args *a, const struct rlimit *files)
{
    int sock[2] = {-1, -1}, stop = eventfd(0, EFD_CLOEXEC), rc = EXIT_US;
    sigset_t old;
    int signals = verbs_signals(handed_on, HW_ARRAY_LEN(handed_on), 0, &old);
    if (signals < 0 || stop < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock) < 0) {
        tool_fail(CMD, "preparing for the command: %s", signals < 0 ? hw_error() : hw_errno_text(errno));
    } else {
        pid_t child = fork();
        if (child == 0) {
            hw_close(&sock[0]);
            exec_verbs_command(a, files, sock[1], &old);
        }
        hw_close(&sock[1]);
        if (child < 0)
            tool_fail(CMD, "starting a process: %s", hw_errno_text(errno));
        else
            rc = supervise_verbs_run(a, child, sock[0], signals, stop);
    }
    hw_close(&sock[0]);
    hw_close(&sock[1]);
    hw_close(&signals);
    hw_close(&stop);
    return rc;
}

static int run_brokered(const struct run_args *args)
{
    struct run_args copy = *args, *a = &copy;
    struct verbs_base b;
    if (geteuid() != 0) {
        tool_fail(CMD, "root is needed to create device nodes and to read the command's memory");
        return EXIT_US;
    }
    int rc = verbs_base_open(&b, CMD, a->policy, a->audit);
    if (rc == TOOL_OK && a->container && !vb_policy_has(b.policy, a->container))
        rc = tool_fail(CMD, "%s has no section for a container '%s'", a->policy, a->container);
    if (rc == TOOL_OK && verbs_folder(a->o.state_dir, true) < 0)
        rc = tool_fail(CMD, "%s", hw_error());
    if (rc == TOOL_OK) {
        a->o.policy = b.policy;
        a->o.log = &b.log;
        a->o.audit = &b.audit;
        b.log.level = HAWSER_LOG_WARN;
        rc = start_command(a, &b.files);
    } else if (rc == TOOL_FAILED) {
        rc = EXIT_US;
    }
    verbs_base_close(&b);
    return rc;
}

/* Parses NAME or UID[:GID]. */
static int parse_user(void *args, const char *text)
{
    struct user *out = &((struct run_args *)args)->user;
    char uid[16];
    uint64_t u = 0, g = 0;
    const char *colon = strchrnul(text, ':');
    const struct passwd *p = getpwnam(text);
    snprintf(uid, sizeof(uid), "%.*s", (int)HW_MIN(colon - text, 15), text);
    if (p) {
        *out = (struct user){.other = true, .uid = p->pw_uid, .gid = p->pw_gid};
        snprintf(out->name, sizeof(out->name), "%s", p->pw_name);
    } else if (hw_parse_u64(uid, 0, UINT32_MAX - 1, &u) < 0 ||
               hw_parse_u64(*colon ? colon + 1 : uid, 0, UINT32_MAX - 1, &g) < 0) {
        return hw_fail(-EINVAL, "'%s' is not a user: expected NAME or UID[:GID]", text);
    } else {
        *out = (struct user){.other = true, .uid = (uid_t)u, .gid = (gid_t)g};
    }
    return out->uid == 0 ? hw_fail(-EINVAL, "the user must not be root") : 0;
}

static const struct opt rows[] = {
    OPT_TEXT("policy", 'P', "FILE", struct run_args, policy, "read the policy from FILE (see hawser-verbs-policy(5))"),
    OPT_TEXT("container", 0, "NAME", struct run_args, container,
             "apply the policy's sections for this container (default: only the sections for all containers)"),
    OPT_CALL("user", 0, "USER", parse_user,
             "run the command as this user: NAME, or UID[:GID] (default: root with fewer capabilities)"),
    OPT_TEXT("state-dir", 0, "DIR", struct run_args, o.state_dir,
             "folder of the broker's status socket (default: " VB_AGENT_STATE ")"),
    OPT_TEXT("audit", 0, "FILE", struct run_args, audit, "append refused requests to FILE, one JSON line each"),
    {0},
};

int verbs_run_main(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = CMD,
        .args = "--policy FILE [OPTION...] -- COMMAND [ARGUMENT...]",
        .about = "Runs a command whose RDMA verbs go through a broker, without a container runtime. The exit status is "
                 "the command's; 125 if hawser failed, 126 if the command could not be executed, 127 if it was not "
                 "found. RDMA calls of child processes that outlive the command fail with ENOSYS. Needs root. "
                 "hawser(1) describes in what respects the command is less isolated than a container.",
        .rows = rows,
        .least = 1,
        .most = OPTS_ANY,
        .too_few = "COMMAND is missing"};
    struct run_args a = {.o = {.state_dir = VB_AGENT_STATE, .kernel = &vb_kernel, .serve = vb_serve}};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    a.argv = argv + optind;
    return run_brokered(&a);
}
