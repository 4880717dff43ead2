/* SPDX-License-Identifier: Apache-2.0 */
/* hawserd binds NIC queues and steers flows for unprivileged programs. See hawserd(8) and docs/hawserd.md. */
#include "base/sanitizers.h"
#include "helper/daemon.h"
#include "helper/guard.h"

#include <getopt.h>
#include <libgen.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define RECOVER_MS 5000 /* time limit in ms for the kernel to close the sockets of the previous hawserd */

/* the filter would kill a sanitized process, because sanitizers make other system calls */
#define SANITIZED (HW_ASAN || HW_TSAN)

struct args {
    const char *socket, *state, *policy, *user;
    int verbose;
};

static void print_daemon_log(void *arg, int level, const char *line)
{
    static const char *const names[] = {"error: ", "warning: ", "", ""};
    (void)arg;
    fprintf(stderr, "hawserd: %s%s\n", names[level], line);
}

static int report_daemon_error(void)
{
    fprintf(stderr, "hawserd: %s\n", hw_error());
    return 1;
}

static void print_daemon_usage(FILE *f)
{
    fprintf(f,
            "Usage: hawserd [OPTION...]\n"
            "Binds NIC queues to dma-bufs and steers TCP connections to these queues, for\n"
            "unprivileged programs.\n\n"
            "  -s, --socket PATH  listen on this socket (default: %s)\n"
            "  -t, --state FILE   record the changes to undo in this file\n"
            "                     (default: %s)\n"
            "  -p, --policy FILE  read from this file what each user may use\n"
            "                     (default: %s; if it does not exist,\n"
            "                     root and the user that hawserd runs as may use all NICs)\n"
            "  -u, --user NAME    run as this user, with only CAP_NET_ADMIN\n"
            "  -v, --verbose      also log flow rules, refused requests and retries\n"
            "  -h, --help         show this help\n"
            "  -V, --version      print the version\n",
            HW_HELPER_SOCKET, HD_STATE_FILE, HD_POLICY_FILE);
}

/* Parses the arguments. Returns 0 to continue, or the exit status plus 1. */
static int parse_daemon_args(int argc, char **argv, struct args *a)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'}, {"state", required_argument, NULL, 't'},
        {"policy", required_argument, NULL, 'p'}, {"user", required_argument, NULL, 'u'},
        {"verbose", no_argument, NULL, 'v'},      {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},      {0},
    };
    for (int c; (c = getopt_long(argc, argv, "s:t:p:u:vhV", options, NULL)) != -1;) {
        switch (c) {
        case 's':
            a->socket = optarg;
            break;
        case 't':
            a->state = optarg;
            break;
        case 'p':
            a->policy = optarg;
            break;
        case 'u':
            a->user = optarg;
            break;
        case 'v':
            a->verbose++;
            break;
        case 'h':
            print_daemon_usage(stdout);
            return 1;
        case 'V':
            printf("hawserd %d.%d\n", HAWSER_VERSION_MAJOR, HAWSER_VERSION_MINOR);
            return 1;
        default:
            print_daemon_usage(stderr);
            return 3;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "hawserd: unexpected argument '%s'\n", argv[optind]);
        return 3;
    }
    return 0;
}

/* Creates a file's folder, owned by `user` unless user is NULL. Does nothing if the folder already exists. */
static int make_daemon_folder(const char *path, const char *user)
{
    char copy[256];
    if (strlen(path) >= sizeof(copy) - 8)
        return hw_fail(-ENAMETOOLONG, "the path '%s' is too long", path);
    snprintf(copy, sizeof(copy), "%s", path);
    const char *dir = dirname(copy);
    const struct passwd *u = user ? getpwnam(user) : NULL;
    if (mkdir(dir, 0755) < 0)
        return errno == EEXIST ? 0 : hw_fail(-errno, "cannot create the folder %s: %s", dir, hw_errno_text(errno));
    if (u && chown(dir, u->pw_uid, u->pw_gid) < 0) {
        int error = errno;
        rmdir(dir); /* or the next start would use the folder, which belongs to another user */
        return hw_fail(-error, "cannot change the owner of the folder %s to %s: %s", dir, u->pw_name,
                       hw_errno_text(error));
    }
    return 0;
}

/* Loads the policy. If path is NULL and HD_POLICY_FILE does not exist, root and the user that hawserd will run as (the
 * current user if user is NULL) may use all NICs, within the default limits. hd_guard_caps() refuses an unknown user
 * later.
 */
static int load_policy(struct hd_policy *p, const char *path, const char *user)
{
    if (!path && access(HD_POLICY_FILE, F_OK) < 0 && errno == ENOENT) {
        const struct passwd *u = user ? getpwnam(user) : NULL;
        hd_policy_default(p, u ? u->pw_uid : geteuid());
        return 0;
    }
    return hd_policy_load(p, path ? path : HD_POLICY_FILE);
}

/* Opens the socket for sd_notify(3) messages to systemd (Type=notify). Call it before the seccomp filter is installed,
 * because the filter forbids such sockets. Returns -1 if systemd is not listening. */
static int open_notify(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path || strlen(path) < 2 || strlen(path) >= sizeof(a.sun_path))
        return -1;
    memcpy(a.sun_path, path, strlen(path));
    if (path[0] == '@')
        a.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))) < 0)
        hw_close(&fd);
    return fd;
}

static int open_daemon_signalfd(void)
{
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGTERM);
    sigaddset(&s, SIGINT);
    sigaddset(&s, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &s, NULL) < 0)
        return hw_fail(-errno, "cannot block signals: %s", hw_errno_text(errno));
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &s, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? hw_fail(-errno, "cannot create a signalfd: %s", hw_errno_text(errno)) : fd;
}

static void raise_daemon_file_limit(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = HW_MIN(l.rlim_max, (rlim_t)65536);
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
}

static int guard_daemon(const struct args *a, const struct hw_logger *log)
{
    int rc = hd_guard_caps(a->user);
    if (rc)
        return rc;
    if (SANITIZED) {
        hw_log(log, HAWSER_LOG_WARN, "built with a sanitizer, so access to files and system calls is not restricted");
        return 0;
    }
    rc = hd_guard_files(a->state, a->socket);
    if (rc == -EOPNOTSUPP)
        hw_log(log, HAWSER_LOG_WARN, "%s", hw_error());
    else if (rc)
        return rc;
    return hd_guard_calls();
}

/* Drops privileges, undoes the changes left by the previous hawserd, and serves clients. The lock and the listener are
 * already open. */
static int run_daemon(const struct args *a, struct hd_daemon *d, const struct hw_logger *log)
{
    int notify = open_notify(), rc = guard_daemon(a, log);
    if (rc)
        return rc;
    int left = hd_recover(&d->state, RECOVER_MS);
    if (left < 0)
        return left;
    if (left)
        hw_log(log, HAWSER_LOG_WARN,
               "not all changes of the previous hawserd could be undone yet (NICs and flow rules left: %d)", left);
    if (notify >= 0)
        (void)send(notify, "READY=1", 7, MSG_NOSIGNAL | MSG_DONTWAIT);
    hw_close(&notify);
    hw_log(log, HAWSER_LOG_INFO, "listening on %s; sections of the policy: %u", a->socket, d->policy->n);
    return hd_serve(d);
}

/* Calls fn(path), and retries for up to a second while fn fails with -EBUSY or -EADDRINUSE. If the previous hawserd was
 * killed, a child of that hawserd may still hold copies of the lock and the listener. */
static int try_for_a_second(int (*fn)(const char *path), const char *path)
{
    uint64_t until = hw_deadline(1000);
    for (;;) {
        int rc = fn(path);
        if ((rc != -EBUSY && rc != -EADDRINUSE) || hw_now() >= until)
            return rc;
        struct timespec t = {.tv_nsec = 20000000};
        nanosleep(&t, NULL);
    }
}

int main(int argc, char **argv)
{
    static struct hd_policy policy;
    struct args a = {.socket = HW_HELPER_SOCKET, .state = HD_STATE_FILE};
    struct hw_logger log = {.fn = print_daemon_log, .level = HAWSER_LOG_INFO};
    struct hd_kernel kernel;
    int rc = parse_daemon_args(argc, argv, &a);
    if (rc)
        return rc - 1;
    log.level += a.verbose ? 1 : 0;
    umask(022);
    raise_daemon_file_limit();
    struct hd_daemon d = {.policy = &policy, .listener = -1, .stop = open_daemon_signalfd()};
    if (d.stop < 0 || load_policy(&policy, a.policy, a.user) < 0 || make_daemon_folder(a.state, a.user) < 0 ||
        make_daemon_folder(a.socket, a.user) < 0)
        return report_daemon_error();
    int lock = try_for_a_second(hd_journal_lock, a.state);
    if (lock < 0 || hd_kernel_open(&kernel) < 0)
        return report_daemon_error();
    hd_state_init(&d.state, &kernel, &log, a.state);
    d.listener = try_for_a_second(hd_listen, a.socket);
    rc = d.listener < 0 ? d.listener : 0;
    if (rc == 0) {
        rc = run_daemon(&a, &d, &log);
        unlink(a.socket);
    }
    if (rc < 0)
        (void)report_daemon_error();
    hd_state_free(&d.state);
    hd_kernel_close(&kernel);
    /* The listener stays open; see hd_serve(). */
    hw_close(&d.stop);
    hw_close(&lock);
    return rc ? 1 : 0;
}
