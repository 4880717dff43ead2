/* SPDX-License-Identifier: Apache-2.0 */
/* The agent, with runtimes of the test's own (good, slow, silent, wrong) and programs below the filter, whose broker is
 * the test's too: it answers a verbs ioctl with what it is asked about itself. */
#include "proc.h"
#include "tap.h"
#include "verbs/agent.h"
#include "verbs/filter.h"
#include "verbs/guard.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 60 /* for what takes no time on an idle machine */

/* What a broker can be asked. */
enum ask { PID, FDS, NODE, CAPS, ANNOTATIONS, SECTION, NAME, CRASH, BREACH, END, DEVICES };

static char dir[] = "/tmp/hawser-agent-XXXXXX", sock_path[64], state_dir[64];
static struct vb_policy *policy;
static atomic_int *told_breach; /* lines of the agent's log; shared by all */

/* ---- the broker -------------------------------------------------------------------------------------- */

/* 0: it could make a device node where it should, and open it. */
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

/* 1: CAP_NET_RAW, 2: one that it should not have, 4: no_new_privs is not set. */
static int caps(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    uint32_t should = 1u << CAP_SYS_PTRACE | 1u << CAP_SYS_ADMIN | 1u << CAP_MKNOD | 1u << CAP_DAC_READ_SEARCH;
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
        return proc_entries("/proc/self/fd") - 1; /* its own */
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
    case BREACH:
        return vb_guard_calls() < 0 ? -1 : getppid();
    default:
        abort();
    }
}

static int serve(const struct vb_container *c, const struct vb_broker_options *o)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct pollfd p[2] = {{.fd = c->listener, .events = POLLIN}, {.fd = o->stop, .events = POLLIN}};
    int status = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strncmp(c->id, "fail", 4) == 0)
        return hw_fail(-EIO, "it was to fail");
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/%.60s.status", o->state_dir, c->id);
    unlink(a.sun_path);
    if (bind(status, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(status, 1) < 0)
        return hw_fail(-errno, "its status");
    for (;;) {
        struct seccomp_notif n;
        memset(&n, 0, sizeof(n));
        if (poll(p, 2, -1) < 0 || p[1].revents || !(p[0].revents & POLLIN))
            break;
        if (ioctl(c->listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
            continue;
        struct seccomp_notif_resp r = {.id = n.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        if (n.data.nr == SYS_ioctl) {
            if (n.data.args[2] == END)
                break;
            r.flags = 0;
            r.val = answer(c, o, n.data.args[2]);
        }
        (void)ioctl(c->listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
    }
    unlink(a.sun_path);
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

static void log_line(void *arg, int level, const char *line)
{
    (void)arg;
    *told_breach += level == HAWSER_LOG_ERROR && strstr(line, "for a system call that its filter forbids");
    fprintf(stderr, "# agent: %d %s\n", level, line);
}

/* A child has these of the test's descriptors only, from number 3 on: a listener in a second process would keep its
 * programs waiting. */
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

struct agent {
    pid_t pid;
    int stop;
};

static struct agent agent_start(unsigned containers_max)
{
    struct agent a = {.stop = eventfd(0, EFD_CLOEXEC)};
    fflush(NULL);
    a.pid = fork();
    if (a.pid == 0) {
        keep(&a.stop, 1);
        struct hw_logger log = {.fn = log_line, .level = HAWSER_LOG_DEBUG};
        struct vb_agent_options o = {.socket = sock_path,
                                     .state_dir = state_dir,
                                     .policy = policy,
                                     .kernel = &kernel,
                                     .log = &log,
                                     .containers_max = containers_max,
                                     .stop = a.stop,
                                     .serve = serve};
        int rc = vb_agent(&o);
        if (rc < 0)
            fprintf(stderr, "# agent: %s\n", hw_error());
        _exit(rc == -EADDRINUSE ? 3 : rc < 0);
    }
    return a;
}

static int reap(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static int agent_stop(struct agent *a)
{
    eventfd_write(a->stop, 1);
    hw_close(&a->stop);
    return reap(a->pid);
}

static int dial(void)
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

/* ---- a program below the filter ------------------------------------------------------------------------- */

struct prog {
    pid_t pid;
    int listener, ask, told;
};

static bool send_all(int sock, const char *text, size_t len, const int *fds, unsigned n)
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

static struct prog prog_start(void)
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
        while (read(mine[1], &code, sizeof(code)) == sizeof(code)) {
            int rc = ioctl(0, RDMA_VERBS_IOCTL, code);
            rc = rc < 0 ? -errno : rc;
            if (write(mine[2], &rc, sizeof(rc)) != sizeof(rc))
                _exit(2);
        }
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

static int prog_ask(const struct prog *p, int code)
{
    int rc = -1;
    struct pollfd f = {.fd = p->told, .events = POLLIN};
    if (write(p->ask, &code, sizeof(code)) != sizeof(code) || poll(&f, 1, SECONDS * 1000) != 1 ||
        read(p->told, &rc, sizeof(rc)) != sizeof(rc))
        return -ETIME; /* it waits for an answer that does not come */
    return rc;
}

static void prog_end(struct prog *p)
{
    hw_close(&p->listener);
    hw_close(&p->ask);
    hw_close(&p->told);
    kill(p->pid, SIGKILL);
    reap(p->pid);
}

/* ---- a runtime ------------------------------------------------------------------------------------------ */

static const char usual[] =
    "{\"ociVersion\":\"1.0.2\",\"fds\":[\"seccompFd\"],\"pid\":%d,\"metadata\":\"hawser\",\"state\":{"
    "\"ociVersion\":\"1.0.2\",\"id\":\"%s\",\"status\":\"creating\",\"pid\":%d,\"bundle\":\"/b\"%s}}";

/* The listener is the broker's alone from here on. */
static void tell(struct prog *p, const char *id, const char *more)
{
    char text[1024];
    int fd = dial(), n = snprintf(text, sizeof(text), usual, (int)p->pid, id, (int)p->pid, more);
    send_all(fd, text, (size_t)n, &p->listener, 1);
    close(fd);
    hw_close(&p->listener);
}

/* What a program gets whose runtime said that. */
static int outcome(const char *text, size_t len, unsigned fds, bool wrong_fd)
{
    struct prog p = prog_start();
    int list[16], fd = dial();
    for (unsigned i = 0; i < fds; i++)
        list[i] = i + 1 == fds && !wrong_fd ? p.listener : 1;
    for (size_t sent = 0, n; sent < len; sent += n) {
        n = HW_MIN(len - sent, (size_t)65536);
        if (!send_all(fd, text + sent, n, list, sent ? 0 : fds))
            break;
    }
    hw_close(&p.listener);
    close(fd);
    int rc = prog_ask(&p, PID);
    prog_end(&p);
    return rc;
}

static void good(const struct agent *a)
{
    struct prog p = prog_start();
    struct stat st;
    tell(&p, "web",
         ",\"annotations\":{\"hawser.verbs.policy\":\"gpu\",\"hawser.verbs.max_qps\":\"4\",\"other\":\"x\"}");
    int pid = prog_ask(&p, PID);
    ok(pid > 1 && pid != a->pid && kill(pid, 0) == 0, "a container gets a broker, a process of its own");
    is_int(prog_ask(&p, SECTION), 3, "of the section that its annotation names");
    is_int(prog_ask(&p, ANNOTATIONS), 1, "with its annotations for hawser, and no others");
    is_int(prog_ask(&p, NODE), 0, "which can make device nodes");
    char path[128];
    snprintf(path, sizeof(path), "%s/nodes", state_dir);
    is_int(proc_entries(path), 0, "that nobody else sees");
    is_int(prog_ask(&p, CAPS), 0, "with the capabilities that it needs, and no others");
    /* 0, 1, 2, listener, stop, and the test's status */
    is_int(prog_ask(&p, FDS), 6, "with no descriptor that is another's");
    ok(stat(sock_path, &st) == 0 && (st.st_mode & 07777) == 0600 && st.st_uid == 0, "the socket is root's alone");
    prog_end(&p);

    p = prog_start();
    tell(&p, "raw", ",\"annotations\":{\"hawser.verbs.policy\":\"raw\"}");
    is_int(prog_ask(&p, CAPS), 1, "CAP_NET_RAW is for who may have raw packet QPs");
    prog_end(&p);
}

static void pieces(void)
{
    char text[1024];
    struct prog p = prog_start();
    int fd = dial(), n = snprintf(text, sizeof(text), usual, (int)p.pid, "slow", (int)p.pid, "");
    for (int i = 0; i < n; i++)
        send_all(fd, text + i, 1, &p.listener, i == 7);
    hw_close(&p.listener);
    ok(prog_ask(&p, PID) > 1, "a state that comes byte by byte, and no end of file behind it");
    prog_end(&p);
    close(fd);

    p = prog_start();
    static const char two[] = "{\"fds\":[\"other\",\"seccompFd\"],\"state\":{\"id\":\"two\"}}\n";
    int list[] = {1, p.listener};
    fd = dial();
    send_all(fd, two, sizeof(two) - 1, list, 2);
    hw_close(&p.listener);
    ok(prog_ask(&p, PID) > 1, "two descriptors, of which it is the second");
    prog_end(&p);
    close(fd);
}

static void wrong(void)
{
    static const struct {
        const char *text;
        unsigned fds;
        bool wrong_fd;
        const char *what;
    } cases[] = {
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"}}", 0, false, "no descriptor"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"}}", 2, false, "one more than it names"},
        {"{\"fds\":[\"another\"],\"state\":{\"id\":\"a\"}}", 1, false, "none called seccompFd"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"}}", 1, true, "one that is no listener"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"../a\"}}", 1, false, "a name that is a path"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\",\"annotations\":{\"hawser.verbs.policy\":\"nosuch\"}}}", 1,
         false, "a section that the policy has not"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"", 1, false, "half a state"},
        {"GET / HTTP/1.1\r\n\r\n", 1, false, "no JSON"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"fail\"}}", 1, false, "a broker that cannot begin"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        is_int(outcome(cases[i].text, strlen(cases[i].text), cases[i].fds, cases[i].wrong_fd), -ENOSYS, cases[i].what);

    size_t len = 3u << 20;
    char *huge = malloc(len);
    memset(huge, ' ', len);
    huge[0] = '{';
    is_int(outcome(huge, len, 1, false), -ENOSYS, "a state of 3 MiB");
    free(huge);
    is_int(outcome("{", 1, 12, false), -ENOSYS, "twelve descriptors");
}

static void silent(void)
{
    enum { N = VB_AGENT_HALVES + 8 };
    int fd[N];
    for (int i = 0; i < N; i++)
        fd[i] = dial();
    struct prog p = prog_start(), half = prog_start();
    int h = dial();
    send_all(h, "{\"fds\":", 7, &half.listener, 1);
    hw_close(&half.listener);
    tell(&p, "late", "");
    ok(prog_ask(&p, PID) > 1, "%d that say nothing hold nobody up for longer than their time", N);
    is_int(prog_ask(&half, PID), -ENOSYS, "who stops in the middle: its program does not wait for ever");
    prog_end(&p);
    prog_end(&half);
    for (int i = 0; i < N; i++)
        close(fd[i]);
    close(h);
}

static void deaths(void)
{
    struct prog a = prog_start(), b = prog_start();
    tell(&a, "one", "");
    tell(&b, "other", "");
    int one = prog_ask(&a, PID);
    ok(one > 1 && prog_ask(&b, PID) > 1, "two containers");
    is_int(prog_ask(&a, CRASH), -ENOSYS, "a broker that crashes: its program gets ENOSYS");
    is_int(prog_ask(&a, PID), -ENOSYS, "and so on");
    int other = prog_ask(&b, PID);
    ok(other > 1, "the other container goes on");
    kill(other, SIGKILL);
    is_int(prog_ask(&b, PID), -ENOSYS, "a broker that is killed");
    prog_end(&a);
    prog_end(&b);
    a = prog_start();
    tell(&a, "one", "");
    is_int(*told_breach, 0, "(no broker has made a call that is forbidden)");
    is_int(prog_ask(&a, BREACH), -ENOSYS, "a broker that makes one: its program gets ENOSYS");
    is_int(prog_ask(&a, PID), -ENOSYS, "and so on");
    for (uint64_t end = hw_deadline(SECONDS * 1000); *told_breach == 0 && hw_now() < end;)
        usleep(1000);
    is_int(*told_breach, 1, "and the log says why, once");
    prog_end(&a);
    a = prog_start();
    tell(&a, "one", "");
    ok(prog_ask(&a, PID) > 1, "and the agent takes new ones");
    b = prog_start();
    tell(&b, "one", "");
    ok(prog_ask(&b, NAME) > 4 && prog_ask(&a, NAME) == 3, "what is executed in a container has a name of its own");
    is_int(prog_ask(&a, END), -ENOSYS, "a broker that ends well");
    ok(prog_ask(&b, PID) > 1, "has nothing to do with the other");
    prog_end(&a);
    prog_end(&b);
}

static void restarts(struct agent *a)
{
    struct prog p = prog_start(), q = prog_start();
    tell(&p, "stays", "");
    int broker = prog_ask(&p, PID);
    struct agent second = agent_start(4);
    ok(WEXITSTATUS(reap(second.pid)) == 3, "a second agent on the same socket is refused");
    hw_close(&second.stop);
    kill(a->pid, SIGKILL);
    reap(a->pid);
    hw_close(&a->stop);
    is_int(prog_ask(&p, PID), broker, "the agent is killed: its brokers go on");
    *a = agent_start(2);
    tell(&q, "stays", "");
    ok(prog_ask(&q, PID) > 1, "a new agent takes new containers");
    ok(prog_ask(&q, NAME) > 5, "whose names are apart from those of the old one's");
    is_int(prog_ask(&p, PID), broker, "and leaves the old ones alone");
    prog_end(&p);

    struct prog r = prog_start(), s = prog_start();
    tell(&r, "second", "");
    ok(prog_ask(&r, PID) > 1, "two containers where two may be");
    tell(&s, "third", "");
    is_int(prog_ask(&s, PID), -ENOSYS, "and no third one");
    is_int(agent_stop(a), 0, "the agent ends when it is asked to");
    is_int(prog_ask(&q, PID), -ENOSYS, "and its brokers with it");
    is_int(prog_ask(&r, PID), -ENOSYS, "all of them");
    ok(access(sock_path, F_OK) < 0, "and its socket");
    prog_end(&q);
    prog_end(&r);
    prog_end(&s);
}

static void parser(void)
{
    struct vb_container c;
    unsigned which = 9;
    bool whole;
    static const char text[] =
        " {\"fds\":[\"x\",\"seccompFd\"],\"pid\":7,\"state\":{\"id\":\"a\\u0062\",\"annotations\":"
        "{\"hawser.verbs.a\":\"1\",\"hawser.verbs.spec\":\"mine\",\"hawser.other\":\"2\"}}}\n";
    size_t end = sizeof(text) - 2;
    unsigned early = 0;
    for (size_t i = 0; i < end; i++)
        early += vb_state_parse(text, i, 2, &c, &which, &whole) != 0 || whole;
    is_int(early, 0, "no beginning of it is whole");
    ok(vb_state_parse(text, end, 2, &c, &which, &whole) == 0 && whole && which == 1 && c.pid == 7 &&
           !strcmp(c.id, "ab") && c.n_annotations == 1 && !strcmp(c.annotations[0].key, "hawser.verbs.a") &&
           c.listener == -1,
       "all of it is");
    vb_container_free(&c);
    static const char *const bad[] = {
        "[]",
        "7",
        "\"{\"",
        "}",
        "{}",
        "{\"state\":{\"id\":\"a\"}}",
        "{\"fds\":[7],\"state\":{\"id\":\"a\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\".a\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\\u0000b\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"},\"pid\":\"7\"}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"},\"pid\":-1}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"},\"pid\":4294967303}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\",\"id\":\"b\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\",\"annotations\":[]}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\",\"annotations\":{\"hawser.verbs.a\":1}}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"}} more",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        ok(vb_state_parse(bad[i], strlen(bad[i]), 1, &c, &which, &whole) == -EINVAL && *hw_error(), "refused: %s",
           bad[i]);
    char deep[4096];
    memset(deep, '[', sizeof(deep));
    ok(vb_state_parse(deep, sizeof(deep), 1, &c, &which, &whole) == 0 && !whole, "a depth that goes on");
    memset(deep + 2048, ']', 2048);
    ok(vb_state_parse(deep, sizeof(deep), 1, &c, &which, &whole) == -EINVAL, "and one that is whole, and too deep");
}

int main(void)
{
    static const char text[] =
        "[default]\ndevices = rxe0\n[container gpu]\nmax_qps = 9\n[container raw]\nallow = raw\n";
    alarm(600);
    parser();
    if (geteuid() != 0)
        tap_skip_all("the rest takes root");
    if (!mkdtemp(dir) || vb_policy_parse(text, strlen(text), "test", &policy) < 0) {
        printf("Bail out! %s\n", hw_error());
        return 1;
    }
    snprintf(sock_path, sizeof(sock_path), "%s/agent.sock", dir);
    snprintf(state_dir, sizeof(state_dir), "%s/state", dir);
    struct prog try = prog_start();
    if (try.listener < 0)
        tap_skip_all("this kernel, or who runs this, takes no filter with a listener");
    prog_end(&try);
    told_breach = mmap(NULL, sizeof(*told_breach), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told_breach == MAP_FAILED)
        return 1;
    struct agent a = agent_start(64);
    good(&a);
    pieces();
    wrong();
    silent();
    deaths();
    restarts(&a);
    vb_policy_free(policy);
    char rm[64];
    snprintf(rm, sizeof(rm), "rm -rf %s", dir);
    if (system(rm) != 0)
        diag("%s is left", dir);
    return tap_done();
}
