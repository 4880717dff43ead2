/* SPDX-License-Identifier: Apache-2.0 */
/* Runs brokers, and programs under the filter. */
#include "base/sanitizers.h"
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/proc.h"
#include "tests/tap.h"
#include "verbs/agent/filter.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 60000

bool world_guarded = !HW_ASAN;

static char dir[] = "/tmp/hawser-verbs-XXXXXX";
static char nodes[64], state[64], audit_path[64];

void fake_start(void)
{
    if (geteuid() != 0)
        tap_skip_all("needs root: device nodes, mounts, other processes' descriptors");
    if (!mkdtemp(dir))
        tap_skip_all("mkdtemp: %s", strerror(errno));
    snprintf(nodes, sizeof nodes, "%s/nodes", dir);
    snprintf(state, sizeof state, "%s/state", dir);
    snprintf(audit_path, sizeof audit_path, "%s/audit", dir);
    mkdir(nodes, 0700);
    mkdir(state, 0700);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("nodes", nodes, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0700,size=1m"))
        tap_skip_all("a mount namespace with a tmpfs: %s", strerror(errno));
    fake = mmap(NULL, sizeof *fake, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fake_channel = eventfd(7, EFD_CLOEXEC);
    fake_events = eventfd(9, EFD_CLOEXEC);
    if (fake == MAP_FAILED || fake_channel < 0 || fake_events < 0)
        tap_skip_all("shared memory and eventfds: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
}

void fake_end(void)
{
    umount2(nodes, MNT_DETACH);
    rmdir(nodes);
    DIR *d = opendir(state); /* may contain files of killed brokers */
    for (struct dirent *e; d && (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(state);
    unlink(audit_path);
    rmdir(dir);
}

static void log_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    if (getenv("HAWSER_TEST_VERBOSE"))
        fprintf(stderr, "# %s\n", line);
}

int fd_send(int to, int fd)
{
    union {
        struct cmsghdr h;
        char b[CMSG_SPACE(sizeof fd)];
    } c = {0};
    char byte = 0;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
    c.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&c.h), &fd, sizeof fd);
    return sendmsg(to, &m, 0) == 1 ? 0 : -errno;
}

int fd_take(int from)
{
    union {
        struct cmsghdr h;
        char b[CMSG_SPACE(sizeof(int))];
    } c;
    char byte;
    int fd = -1;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
    if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

/* Installs only the notifications of the filter, as BPF written by hand, without the flag that holds signals back. */
static int install_plain(void)
{
    const unsigned nr = offsetof(struct seccomp_data, nr), arg1 = offsetof(struct seccomp_data, args[1]),
                   arg0 = offsetof(struct seccomp_data, args[0]), arg2 = offsetof(struct seccomp_data, args[2]);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg1),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RDMA_VERBS_IOCTL, 7, 6),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg2),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_RDWR, 3, 2),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog p = {HW_ARRAY_LEN(code), code};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &p);
}

int (*world_before)(void);

static int app_main(int sock, bool killable, int (*fn)(void *), void *arg)
{
    bool has;
    if (world_before && world_before())
        return 102;
    int listener = killable ? vb_filter_install(&has) : install_plain();
    char go;
    if (listener < 0 || fd_send(sock, listener))
        return 100;
    close(listener);
    if (read(sock, &go, 1) != 1)
        return 101;
    close(sock);
    return fn(arg);
}

static int broker_main(struct world *w, const char *text, int listener, int stop)
{
    struct vb_policy *policy;
    struct hw_logger log = {.fn = log_line, .level = HAWSER_LOG_DEBUG};
    struct vb_audit audit;
    struct vb_container c = {.pid = w->app, .listener = listener, .join = -1};
    memcpy(c.id, w->id, sizeof w->id);
    if (vb_policy_parse(text, strlen(text), "policy", &policy) || vb_audit_open(&audit, audit_path, &log)) {
        fprintf(stderr, "# %s\n", hw_error());
        return 1;
    }
    int rc = vb_serve(&c, &(struct vb_broker_options){.kernel = &fake_kernel,
                                                      .policy = policy,
                                                      .log = &log,
                                                      .audit = &audit,
                                                      .state_dir = state,
                                                      .node_dir = nodes,
                                                      .stop = stop,
                                                      .cgroup = -1,
                                                      .uid = world_guarded ? 0x70000000u + (uid_t)getpid() : 0,
                                                      .guarded = world_guarded});
    if (rc)
        fprintf(stderr, "# vb_serve: %s\n", hw_error());
    vb_audit_close(&audit);
    vb_policy_free(policy);
    return rc ? 2 : 0;
}

/* Forks a child that is killed when this process exits. */
static pid_t child(void)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
        _exit(99);
    return pid;
}

void world_start(struct world *w, const char *policy, bool killable, int (*fn)(void *), void *arg)
{
    static unsigned serial;
    int sock[2], stop[2];
    memset(w, 0, sizeof *w);
    snprintf(w->id, sizeof w->id, "c%u", serial++);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) || pipe2(stop, O_CLOEXEC))
        abort();
    w->app = child();
    if (w->app == 0) {
        close(sock[0]);
        close(stop[0]);
        close(stop[1]);
        _exit(app_main(sock[1], killable, fn, arg));
    }
    close(sock[1]);
    int listener = fd_take(sock[0]);
    if (listener < 0) {
        diag("no listener: %s", strerror(errno));
        exit(1);
    }
    w->broker = child();
    if (w->broker == 0) {
        close(sock[0]);
        close(stop[1]);
        int rc = broker_main(w, policy, listener, stop[0]);
        if (world_guarded)
            _exit(rc);
        exit(rc); /* so that LeakSanitizer runs */
    }
    close(listener);
    close(stop[0]);
    w->stop = stop[1];
    /* Start the program only after the broker has started to listen. */
    world_becomes(w, "opens", 0);
    if (write(sock[0], "", 1) != 1)
        diag("the program has ended early");
    close(sock[0]);
}

static int ended(pid_t *pid)
{
    int st;
    if (!*pid)
        return -1;
    for (int ms = 0; ms < DEADLINE_MS; ms += 2) {
        if (waitpid(*pid, &st, WNOHANG) == *pid) {
            *pid = 0;
            return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
        }
        usleep(2000);
    }
    kill(*pid, SIGKILL);
    waitpid(*pid, &st, 0);
    *pid = 0;
    return -1;
}

int world_app(struct world *w)
{
    return w->app ? (w->status = ended(&w->app)) : w->status;
}

int world_end(struct world *w)
{
    if (write(w->stop, "", 1) != 1 && errno != EPIPE)
        diag("stop: %s", strerror(errno));
    close(w->stop);
    return ended(&w->broker);
}

static bool gone(pid_t pid)
{
    siginfo_t i = {0};
    return waitid(P_PID, (id_t)pid, &i, WEXITED | WNOHANG | WNOWAIT) == 0 && i.si_pid;
}

bool world_until(struct world *w, int n)
{
    for (int ms = 0; ms < DEADLINE_MS; ms++) {
        if (fake->seen >= n)
            return true;
        if (gone(w->app))
            break;
        usleep(1000);
    }
    return fake->seen >= n;
}

void fake_reset(void)
{
    fake->go = fake->seen = fake->fail = fake->ms = fake->breach = 0;
    fake->live = fake->ran = 0;
    fake->mr_bytes = 0;
    fake->driver = 0;
    for (unsigned i = 0; i < HW_ARRAY_LEN(fake->number); i++)
        fake->number[i] = 0;
}

void app_step(int n)
{
    fake->seen = n;
    while (fake->go < n)
        usleep(1000);
}

static json_t *status_of(const struct world *w)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char text[8192];
    size_t n = 0;
    ssize_t got;
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%s.status", state, w->id);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(s, (struct sockaddr *)&a, sizeof a) == 0) {
        while (n < sizeof text && (got = read(s, text + n, sizeof text - n)) > 0)
            n += (size_t)got;
    }
    close(s);
    return json_loadb(text, n, 0, NULL);
}

long world_status(const struct world *w, const char *what)
{
    json_t *root = status_of(w), *of = root, *d;
    size_t i;
    const char *dot = strchr(what, '.');
    long v = -1;
    if (!root)
        return -1;
    if (dot) {
        of = NULL;
        json_array_foreach(json_object_get(root, "devices"), i, d)
        {
            const char *name = json_string_value(json_object_get(d, "device"));
            if (name && strncmp(name, what, (size_t)(dot - what)) == 0)
                of = d;
        }
        what = dot + 1;
        v = of ? 0 : -1; /* if there are no objects, there is no count */
    }
    json_t *n = json_object_get(of, what);
    if (!n)
        n = json_object_get(json_object_get(of, "objects"), what);
    if (n)
        v = (long)json_integer_value(n);
    json_decref(root);
    return v;
}

bool world_becomes(const struct world *w, const char *what, long value)
{
    for (int ms = 0; ms < DEADLINE_MS / 2; ms += 5) {
        long is = world_status(w, what);
        if (is == value)
            return true;
        /* -1: the broker has not started yet, or has exited */
        if (is < 0 && gone(w->broker))
            break;
        usleep(5000);
    }
    diag("%s is %ld", what, world_status(w, what));
    return false;
}

unsigned world_fds(const struct world *w)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)w->broker);
    int n = proc_entries(path);
    for (int same = 0, all = 0; same < 40 && all < 1000; same++, all++) {
        usleep(5000);
        int now = proc_entries(path);
        if (now != n)
            same = -1;
        n = now;
    }
    return (unsigned)n;
}

long world_kb(const struct world *w)
{
    char path[64], line[256];
    long kb = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)w->broker);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "RssAnon: %ld", &kb) != 1)
        ;
    if (f)
        fclose(f);
    return kb;
}

const char *world_audit(void)
{
    static char text[1 << 20];
    int fd = open(audit_path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[HW_MAX(n, 0)] = 0;
    hw_close(&fd);
    return text;
}

/* ---------------------------------------------------------------- programs */

static int sys(long rc)
{
    return rc < 0 ? -errno : (int)rc;
}

int app_open(int device)
{
    return sys(syscall(SYS_openat, AT_FDCWD, device ? "/dev/zero" : "/dev/null", O_RDWR | O_CLOEXEC, 0));
}

int app_ioctl(int fd, uint16_t object, uint16_t method, struct ib_uverbs_attr *attr, unsigned n)
{
    struct {
        struct vb_header hdr;
        struct ib_uverbs_attr attr[16];
    } q = {0};
    q.hdr.length = (uint16_t)(sizeof q.hdr + n * sizeof *attr);
    q.hdr.object_id = object;
    q.hdr.method_id = method;
    q.hdr.num_attrs = (uint16_t)n;
    q.hdr.driver_id = fake_driver();
    if (n)
        memcpy(q.attr, attr, n * sizeof *attr);
    int rc = sys(syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, &q));
    if (n)
        memcpy(attr, q.attr, n * sizeof *attr);
    return rc;
}

static struct ib_uverbs_attr attr_bytes(uint16_t id, const void *p, size_t n, bool in)
{
    struct ib_uverbs_attr a = {.attr_id = id, .len = (uint16_t)n, .flags = UVERBS_ATTR_F_MANDATORY};
    if (in && n <= 8)
        memcpy(&a.data, p, n);
    else
        a.data = (uintptr_t)p;
    return a;
}

int app_write_cmd(int fd, uint32_t command, const void *in, size_t in_len, void *out, size_t out_len)
{
    uint64_t cmd = command;
    struct ib_uverbs_attr a[3] = {
        attr_bytes(UVERBS_ATTR_CORE_IN, in, in_len, true),
        attr_bytes(UVERBS_ATTR_WRITE_CMD, &cmd, 8, true),
        attr_bytes(UVERBS_ATTR_CORE_OUT, out, out_len, false),
    };
    return app_ioctl(fd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, a, out_len ? 3 : 2);
}

int app_pd(int fd, uint32_t *number)
{
    struct ib_uverbs_alloc_pd in = {0};
    struct ib_uverbs_alloc_pd_resp out = {.pd_handle = 0xdead};
    int rc = app_write_cmd(fd, IB_USER_VERBS_CMD_ALLOC_PD, &in, sizeof in, &out, sizeof out);
    *number = out.pd_handle;
    return rc;
}

int app_pd_free(int fd, uint32_t number)
{
    struct ib_uverbs_attr a = {
        .attr_id = UVERBS_ATTR_DESTROY_PD_HANDLE, .flags = UVERBS_ATTR_F_MANDATORY, .data = number};
    return app_ioctl(fd, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, &a, 1);
}

int app_context(int fd)
{
    return app_ioctl(fd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, NULL, 0);
}

int app_channel(int fd)
{
    struct ib_uverbs_create_comp_channel in = {0};
    struct ib_uverbs_create_comp_channel_resp out = {0};
    int rc = app_write_cmd(fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &in, sizeof in, &out, sizeof out);
    return rc < 0 ? rc : (int)out.fd;
}

int app_post(int fd, uint32_t wr_count)
{
    uint32_t bad = 99; /* must not change: the broker never writes to a program's memory */
    struct {
        struct ib_uverbs_cmd_hdr hdr;
        struct ib_uverbs_post_send post;
    } c = {{IB_USER_VERBS_CMD_POST_SEND, sizeof c / 4, 1},
           {.response = (uintptr_t)&bad, .qp_handle = 1, .wr_count = wr_count, .wqe_size = 0}};
    int rc = sys(syscall(SYS_write, fd, &c, sizeof c));
    return rc == (int)sizeof c && bad != 99 ? -EPROTO : rc;
}

int app_reg(int fd, void *at, uint64_t length, struct ib_uverbs_reg_mr_resp *resp)
{
    struct ib_uverbs_reg_mr in = {.start = (uintptr_t)at, .length = length, .hca_va = (uintptr_t)at, .access_flags = 1};
    return app_write_cmd(fd, IB_USER_VERBS_CMD_REG_MR, &in, sizeof in, resp, sizeof *resp);
}

int app_dereg(int fd, uint32_t number)
{
    struct ib_uverbs_attr a = {
        .attr_id = UVERBS_ATTR_DESTROY_MR_HANDLE, .flags = UVERBS_ATTR_F_MANDATORY, .data = number};
    return app_ioctl(fd, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, &a, 1);
}

int app_reg_method(int fd, void *at, uint64_t length, uint32_t *number)
{
    const uint64_t address = (uintptr_t)at, access = 1;
    uint32_t lkey = 0, rkey = 0;
    memcpy(at, &address, sizeof address); /* the simulated kernel expects this when it pins the page */
    struct ib_uverbs_attr a[8] = {
        {.attr_id = REG_MR_HANDLE, .flags = UVERBS_ATTR_F_MANDATORY},
        {.attr_id = REG_MR_PD_HANDLE, .flags = UVERBS_ATTR_F_MANDATORY},
        attr_bytes(REG_MR_IOVA, &address, 8, true),
        attr_bytes(REG_MR_ADDR, &address, 8, true),
        attr_bytes(REG_MR_LENGTH, &length, 8, true),
        attr_bytes(REG_MR_ACCESS_FLAGS, &access, 8, true),
        attr_bytes(REG_MR_RESP_LKEY, &lkey, 4, false),
        attr_bytes(REG_MR_RESP_RKEY, &rkey, 4, false),
    };
    int rc = app_ioctl(fd, UVERBS_OBJECT_MR, METHOD_REG_MR, a, HW_ARRAY_LEN(a));
    *number = (uint32_t)a[0].data;
    return rc < 0 || (lkey == *number + 1 && rkey == *number + 2) ? rc : -EPROTO;
}
