/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_agent.h"
#include "tests/proc.h"
#include "verbs/agent/filter.h"
#include "verbs/broker/join.h"
#include "verbs/stub/guard.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/hawser-agent-XXXXXX";
char sock_path[64], state_dir[64], policy_file[64], log_file[64];
static struct vb_policy *policy;

/* ---- the broker -------------------------------------------------------------------------------------- */

/* Returns 0 if the broker can create and open a device node in this directory. */
static int node(const char *nodes)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/null", nodes);
    if (mknod(path, S_IFCHR | 0600, makedev(1, 3)) < 0)
        return 1;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unlink(path);
    close(fd);
    return fd < 0 ? 2 : 0;
}

/* Returns a bit mask: 1 if the broker has CAP_NET_RAW, 2 if its other capabilities are wrong, 4 if no_new_privs is not
 * set, or 64 if the capabilities are unknown. */
static int caps(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    uint32_t should = 1u << CAP_SYS_PTRACE | 1u << CAP_SYS_ADMIN | 1u << CAP_MKNOD | 1u << CAP_DAC_READ_SEARCH |
                      1u << CAP_CHOWN | 1u << CAP_SETUID | 1u << CAP_SETGID; /* only during setup: see guard.h */
    if (syscall(SYS_capget, &h, d) < 0)
        return 64;
    return (d[0].effective & 1u << CAP_NET_RAW ? 1 : 0) |
           ((d[0].permitted & ~(1u << CAP_NET_RAW)) != should || d[1].permitted ? 2 : 0) |
           (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 4);
}

static long answer(const struct vb_container *c, const struct vb_broker_options *o, uint64_t code)
{
    switch (code) {
    case PID:
        return getpid();
    case FDS:
        return proc_entries("/proc/self/fd") - 1; /* not counting the descriptor that reads the directory */
    case NODE:
        return node(o->node_dir);
    case CAPS:
        return caps();
    case ANNOTATIONS:
        return c->n_annotations;
    case SECTION:
        return (long)strlen(c->section);
    case NAME:
        return (long)strlen(c->id);
    case LATE:
        return vb_policy_has(o->policy, "late");
    case BREACH:
        return vb_guard_calls() < 0 ? -1 : getppid();
    default:
        abort();
    }
}

static int serve(const struct vb_container *c, const struct vb_broker_options *o)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    enum { STOP, JOIN, LISTENERS, MOST = 6 };
    struct pollfd p[MOST] = {
        {.fd = o->stop, .events = POLLIN}, {.fd = c->join, .events = POLLIN}, {.fd = c->listener, .events = POLLIN}};
    nfds_t n_polls = LISTENERS + 1;
    int status = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strncmp(c->id, "fail", 4) == 0)
        return hw_fail(-EIO, "it was to fail");
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/%.60s.status", o->state_dir, c->id);
    unlink(a.sun_path);
    if (bind(status, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(status, 1) < 0)
        return hw_fail(-errno, "its status");
    while (n_polls > LISTENERS && poll(p, n_polls, -1) >= 0 && !p[STOP].revents) {
        int reply, fd = p[JOIN].revents ? vb_join_take(c, &reply) : -1;
        if (fd >= 0) {
            vb_join_answer(reply, n_polls < MOST ? 0 : -EUSERS);
            if (n_polls < MOST)
                p[n_polls++] = (struct pollfd){.fd = fd, .events = POLLIN};
            continue;
        }
        for (nfds_t i = n_polls; i-- > LISTENERS;) {
            struct seccomp_notif n;
            memset(&n, 0, sizeof(n));
            if (p[i].revents && !(p[i].revents & POLLIN)) { /* the program has exited */
                close(p[i].fd);
                p[i] = p[--n_polls];
                continue;
            }
            if (!p[i].revents || ioctl(p[i].fd, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
                continue;
            struct seccomp_notif_resp r = {.id = n.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
            if (n.data.nr == SYS_ioctl) {
                if (n.data.args[2] == END)
                    return 0;
                r.flags = 0;
                r.val = answer(c, o, n.data.args[2]);
            }
            (void)ioctl(p[i].fd, SECCOMP_IOCTL_NOTIF_SEND, &r);
        }
    }
    return 0;
}

/* ---- the agent --------------------------------------------------------------------------------------- */

static int devices(struct vb_device *out, unsigned cap)
{
    if (cap < 2)
        return -EINVAL;
    out[0] = (struct vb_device){.node = "uverbs0", .ibdev = "rxe0", .rdev = makedev(231, 192)};
    out[1] = (struct vb_device){.node = "uverbs1", .ibdev = "rxe1", .rdev = makedev(231, 193)};
    return 2;
}
static const struct vb_kernel kernel = {.devices = devices};

/* Logs for the agent and its brokers. They keep only the first three file descriptors and cannot open files, so the log
 * is file descriptor 0. */
static void log_line(void *arg, int level, const char *line)
{
    (void)arg;
    dprintf(STDIN_FILENO, "%d %s\n", level, line);
    fprintf(stderr, "# agent: %d %s\n", level, line);
}

int said(const char *text)
{
    char line[1024];
    int n = 0;
    FILE *f = fopen(log_file, "re");
    while (f && fgets(line, sizeof(line), f))
        n += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return n;
}

void policy_put(const char *text)
{
    int fd = open(policy_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        printf("Bail out! %s\n", policy_file), exit(1);
    close(fd);
}

/* Closes all file descriptors in a child except 0 to 2 and the n given ones. Otherwise, a second process could hold a
 * listener, and programs would keep waiting after their broker has exited. */
static void keep(int *fd, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (dup2(fd[i], 200 + (int)i) < 0)
            _exit(1);
    (void)syscall(SYS_close_range, 3, 199, 0);
    (void)syscall(SYS_close_range, 200 + n, UINT32_MAX, 0);
    for (unsigned i = 0; i < n; i++)
        fd[i] = 200 + (int)i;
}

struct agent agent_start(struct vb_agent_options o)
{
    struct agent a = {
        .stop = eventfd(0, EFD_CLOEXEC), .leave = eventfd(0, EFD_CLOEXEC), .reload = eventfd(0, EFD_CLOEXEC)};
    fflush(NULL);
    a.pid = fork();
    if (a.pid == 0) {
        int mine[] = {a.stop, a.leave, a.reload};
        int log_fd = open(log_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (log_fd < 0 || dup2(log_fd, STDIN_FILENO) < 0)
            _exit(1);
        keep(mine, 3);
        struct hw_logger log = {.fn = log_line, .level = HAWSER_LOG_DEBUG};
        o.socket = sock_path;
        o.state_dir = state_dir;
        o.policy = policy;
        o.policy_file = policy_file;
        o.kernel = o.kernel ? o.kernel : &kernel;
        o.log = &log;
        if (o.audit)
            o.audit->log = &log;
        o.containers_max = o.containers_max ? o.containers_max : 64;
        o.stop = mine[0];
        o.leave = mine[1];
        o.reload = mine[2];
        o.serve = o.serve ? o.serve : serve;
        int rc = vb_guard_agent(); /* as in tool/verbs/verbs_agent.c */
        if (rc == 0)
            rc = vb_agent(&o);
        if (rc < 0)
            fprintf(stderr, "# agent: %s\n", hw_error());
        _exit(rc == -EADDRINUSE ? 3 : rc < 0);
    }
    return a;
}

int reap(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

int agent_order(int fd)
{
    return eventfd_write(fd, 1);
}

int agent_end(struct agent *a)
{
    hw_close(&a->stop);
    hw_close(&a->leave);
    hw_close(&a->reload);
    return reap(a->pid);
}

int agent_stop(struct agent *a)
{
    agent_order(a->stop);
    return agent_end(a);
}

int dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timespec t = {.tv_nsec = 5000000};
    memcpy(a.sun_path, sock_path, strlen(sock_path) + 1);
    for (uint64_t end = hw_deadline(SECONDS * 1000); hw_now() < end; nanosleep(&t, NULL)) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return fd;
        close(fd);
    }
    printf("Bail out! nobody listens at %s\n", sock_path);
    exit(1);
}

/* ---- a program under the filter -------------------------------------------------------------------------- */

bool send_all(int sock, const char *text, size_t len, const int *fds, unsigned n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(16 * sizeof(int))];
    } c = {.head = {.cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n) {
        memcpy(CMSG_DATA(&c.head), fds, n * sizeof(int));
        m.msg_control = &c;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
    }
    return sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)len;
}

static int receive_fd(int sock)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } c;
    char byte;
    int fd = -1;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
    if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    return fd;
}

struct prog prog_start(int (*fn)(void))
{
    int pair[2], ask[2], told[2];
    struct prog p = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || pipe2(ask, O_CLOEXEC) < 0 ||
        pipe2(told, O_CLOEXEC) < 0) {
        printf("Bail out! no descriptors\n");
        exit(1);
    }
    fflush(NULL);
    p.pid = fork();
    if (p.pid == 0) {
        bool killable;
        int mine[] = {pair[1], ask[0], told[1]};
        keep(mine, 3);
        int code, fd = vb_filter_install(&killable);
        if (fd < 0 || !send_all(mine[0], "l", 1, &fd, 1))
            _exit(1);
        close(fd);
        close(mine[0]);
        while (!fn && read(mine[1], &code, sizeof(code)) == sizeof(code)) {
            int rc = ioctl(0, RDMA_VERBS_IOCTL, code);
            rc = rc < 0 ? -errno : rc;
            if (write(mine[2], &rc, sizeof(rc)) != sizeof(rc))
                _exit(2);
        }
        if (fn && read(mine[1], &code, sizeof(code)) == sizeof(code))
            _exit(fn());
        _exit(0);
    }
    close(pair[1]);
    close(ask[0]);
    close(told[1]);
    p.listener = receive_fd(pair[0]);
    p.ask = ask[1];
    p.told = told[0];
    close(pair[0]);
    return p;
}

int prog_ask(const struct prog *p, int code)
{
    int rc = -1;
    struct pollfd f = {.fd = p->told, .events = POLLIN};
    if (write(p->ask, &code, sizeof(code)) != sizeof(code) || poll(&f, 1, SECONDS * 1000) != 1 ||
        read(p->told, &rc, sizeof(rc)) != sizeof(rc))
        return -ETIME; /* the program still waits for an answer */
    return rc;
}

bool prog_go(const struct prog *p)
{
    int code = 0;
    return write(p->ask, &code, sizeof(code)) == sizeof(code);
}

int prog_exit(struct prog *p)
{
    int status = -1;
    struct pollfd f = {.fd = p->told}; /* the program's exit closes the other end */
    (void)prog_go(p);                  /* has no effect if fn has already run */
    if (poll(&f, 1, SECONDS * 1000) == 1) {
        status = reap(p->pid);
        status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        p->pid = 0;
    }
    prog_end(p);
    return status;
}

void prog_end(struct prog *p)
{
    hw_close(&p->listener);
    hw_close(&p->ask);
    hw_close(&p->told);
    if (p->pid == 0)
        return;
    kill(p->pid, SIGKILL);
    reap(p->pid);
}

/* ---- a runtime ------------------------------------------------------------------------------------------ */

const char usual[] = "{\"ociVersion\":\"1.0.2\",\"fds\":[\"seccompFd\"],\"pid\":%d,\"metadata\":\"hawser\",\"state\":{"
                     "\"ociVersion\":\"1.0.2\",\"id\":\"%s\",\"status\":\"creating\",\"pid\":%d,\"bundle\":\"/b\"%s}}";

void tell(struct prog *p, const char *id, const char *more)
{
    char text[1024];
    int fd = dial(), n = snprintf(text, sizeof(text), usual, (int)p->pid, id, (int)p->pid, more);
    send_all(fd, text, (size_t)n, &p->listener, 1);
    close(fd);
    hw_close(&p->listener);
}

/* ---- the test ------------------------------------------------------------------------------------------- */

void agents_start(const char *text)
{
    if (geteuid() != 0)
        tap_skip_all("the rest takes root");
    if (!mkdtemp(dir) || vb_policy_parse(text, strlen(text), "test", &policy) < 0) {
        printf("Bail out! %s\n", hw_error());
        exit(1);
    }
    snprintf(log_file, sizeof(log_file), "%s/log", dir);
    snprintf(sock_path, sizeof(sock_path), "%s/agent.sock", dir);
    snprintf(state_dir, sizeof(state_dir), "%s/state", dir);
    snprintf(policy_file, sizeof(policy_file), "%s/policy", dir);
    struct prog try = prog_start(NULL);
    if (try.listener < 0)
        tap_skip_all("this kernel, or who runs this, takes no filter with a listener");
    prog_end(&try);
}

void agents_end(void)
{
    vb_policy_free(policy);
    char rm[64];
    snprintf(rm, sizeof(rm), "rm -rf %s", dir);
    if (system(rm) != 0)
        diag("%s is left", dir);
}
