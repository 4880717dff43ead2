/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child process: one loop that answers the parent's messages, advances requests, and sleeps when it has no work.
 * The child is a fork of the parent without an exec, because a library inside another program has no executable of its
 * own. Therefore the child first closes the parent's descriptors, resets its signal handlers, and ensures that its exit
 * handlers do not run.
 */
#include "transport/netplugin/child/child.h"
#include "transport/netplugin/table/trace.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FD_SOCKET = 3,
    FD_LOG = 4,
    FD_WARN = 5,
    FD_TRACE = 6,        /* open only if tracing is enabled */
    FD_FREE = 7,         /* first descriptor for the plugin and the connections */
    YIELD_AFTER_US = 50, /* spin time before the loop starts to yield its CPU */
    NAP_MIN_US = 20,     /* shortest sleep between two checks while requests are pending */
    NAP_MAX_US = 500,
    IDLE_MS = 1000,
};

static int log_fd = FD_LOG;
__thread enum np_call kid_here;

/* Exits at once. A sanitizer's _exit() would wait. */
static void exit_child_process(int status) __attribute__((noreturn));
static void exit_child_process(int status)
{
    for (;;)
        (void)syscall(SYS_exit_group, status);
}

/* ---- callbacks for the plugin ---------------------------------------------------------------- */

static void log_plugin_line(ncclDebugLogLevel level, unsigned long flags, const char *file, int line, const char *fmt,
                            ...) HW_PRINTF(5, 6);
static void log_plugin_line(ncclDebugLogLevel level, unsigned long flags, const char *file, int line, const char *fmt,
                            ...)
{
    char text[1024];
    va_list ap;
    (void)flags;
    if (level > NCCL_LOG_INFO && !np_trace_on())
        return;
    int saved = errno;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text) - 1, fmt, ap);
    va_end(ap);
    np_trace_log((int)level, file, line, text);
    if (level > NCCL_LOG_INFO) {
        errno = saved;
        return;
    }
    size_t n = strlen(text);
    if (n == 0 || text[n - 1] != '\n')
        text[n++] = '\n';
    (void)!write(log_fd, text, n);
    if (level <= NCCL_LOG_WARN)
        (void)!write(FD_WARN, text, n);
    errno = saved;
}

static ncclResult_t ignore_plugin_events(void **handle, int type, void *phandle, int64_t id, void *ext)
{
    (void)type, (void)phandle, (void)id, (void)ext;
    if (handle)
        *handle = NULL;
    return ncclSuccess;
}

/* Ends the process without running exit handlers, because the parent's program registered them, for example to remove
 * its files. */
static void leave_at_once(int status, void *arg)
{
    const struct kid *k = arg;
    if (kid_here)
        atomic_store(&k->s->doing, kid_here);
    (void)fflush(stdout);
    exit_child_process(status);
}

int kid_result(enum np_call call, ncclResult_t rc)
{
    static const struct {
        int rc;
        const char *name;
    } as[] = {
        [ncclSuccess] = {0, ""},
        [ncclUnhandledCudaError] = {-ENXIO, "ncclUnhandledCudaError"},
        [ncclSystemError] = {-EIO, "ncclSystemError"},
        [ncclInternalError] = {-EIO, "ncclInternalError"},
        [ncclInvalidArgument] = {-EINVAL, "ncclInvalidArgument"},
        [ncclInvalidUsage] = {-EINVAL, "ncclInvalidUsage"},
        [ncclRemoteError] = {-ECONNRESET, "ncclRemoteError"},
        [ncclInProgress] = {-EIO, "ncclInProgress"},
    };
    if (rc == ncclSuccess)
        return 0;
    const bool known = (unsigned)rc < HW_ARRAY_LEN(as);
    return hw_fail(known ? as[rc].rc : -EIO, "%s: the plugin returned %d (%s)", np_call_names[call], (int)rc,
                   known ? as[rc].name : "not an ncclResult_t");
}

void kid_ring(struct kid_comm *c)
{
    const uint64_t one = 1;
    /* The parent sets `armed` with an atomic exchange and then reads the counters again, so at least one side sees the
     * other's change. */
    if (atomic_exchange(&c->ring->armed, 0))
        (void)!write(c->bell, &one, sizeof(one));
}

void kid_fail(struct kid_comm *c, int rc)
{
    c->ring->rc = rc;
    snprintf(c->ring->text, sizeof(c->ring->text), "%s", hw_error());
    atomic_store_explicit(&c->ring->state, NP_FAILED, memory_order_release);
    kid_ring(c);
}

extern char **environ;

/* ---- messages ------------------------------------------------------------------------------- */

static int load_plugin_library(struct kid *k, struct np_hello *out)
{
    const char *name = k->c->plugin;
    kid_enter(k, NP_DLOPEN);
    /* Searches for the library as NCCL does: first by the given name, then as libnccl-net-NAME.so. */
    k->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!k->library && !strchr(name, '/') && (strncmp(name, "lib", 3) != 0 || !strstr(name, ".so"))) {
        char file[256];
        snprintf(file, sizeof(file), "libnccl-net-%s.so", name);
        k->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    kid_leave(k);
    if (!k->library)
        return hw_fail(-ENOENT, "dlopen() failed: %s", dlerror());
    if (!np_table_find(k->library, k->c->newest, &k->t))
        return hw_fail(-ENOEXEC,
                       "it exports none of ncclNetPlugin_v%d to v%u, the versions of net plugins that hawser supports",
                       NP_OLDEST, k->c->newest);
    const char *lacks = np_table_lacks(&k->t), *table = np_table_name(&k->t);
    if (lacks)
        return hw_fail(-ENOEXEC, "its table v%u has no %s", k->t.version, lacks);
    k->q = np_quirk_of(table);
    k->hang_ms = k->c->call_ms + np_quirk_wait_ms(k->q, (const char *const *)environ);
    out->version = k->t.version;
    snprintf(out->table, sizeof(out->table), "%s", table);
    return 0;
}

static int init_plugin(struct kid *k, struct np_hello *out)
{
    int n = 0;
    if (!k->q)
        return hw_fail(-EINVAL, "init was called before the library was loaded");
    kid_enter(k, NP_INIT);
    ncclResult_t rc = np_table_init(&k->t, log_plugin_line, ignore_plugin_events);
    kid_leave(k);
    if (rc == ncclSuccess) {
        kid_enter(k, NP_GETDEVICES);
        rc = np_table_devices(&k->t, &n);
        kid_leave(k);
        if (rc != ncclSuccess)
            return kid_result(NP_GETDEVICES, rc);
    }
    if (rc == ncclSuccess && n <= 0)
        return hw_fail(-ENODEV, "devices: the plugin reports %d devices", n);
    out->devices = (uint32_t)HW_MIN(n, NP_DEVICES);
    return kid_result(NP_INIT, rc);
}

static int query_plugin_device(struct kid *k, int dev, struct np_device *out)
{
    ncclNetProperties_v12_t p;
    kid_enter(k, NP_PROPERTIES);
    ncclResult_t rc = np_table_properties(&k->t, dev, &p);
    if (rc == ncclSuccess) { /* copied before kid_leave(), because an invalid string ends the child here */
        snprintf(out->name, sizeof(out->name), "%s", p.name ? p.name : "");
        snprintf(out->pci, sizeof(out->pci), "%s", p.pciPath ? p.pciPath : "");
    }
    kid_leave(k);
    if (rc == ncclSuccess && !p.name)
        return hw_fail(-EIO, "getProperties: device %d has no name", dev);
    out->guid = p.guid;
    out->max_bytes = p.maxP2pBytes;
    out->latency = p.latency;
    out->ptr_support = p.ptrSupport;
    out->speed = p.speed;
    out->port = p.port;
    out->max_comms = p.maxComms;
    out->max_recvs = p.maxRecvs;
    out->type = (int32_t)p.netDeviceType;
    out->type_version = p.netDeviceVersion;
    out->reg_is_global = p.regIsGlobal;
    return kid_result(NP_PROPERTIES, rc);
}

static void finalize_plugin(struct kid *k)
{
    if (!kid_close_all(k))
        return;
    kid_enter(k, NP_FINALIZE);
    (void)np_table_finalize(&k->t);
    kid_enter(k, NP_DLCLOSE);
    (void)dlclose(k->library); /* NCCL also closes the library */
    kid_leave(k);
}

static int handle_child_request(struct kid *k, const struct np_message *m, int fd[2], struct np_reply *r)
{
    if (m->op != NP_OP_LOAD && m->op != NP_OP_QUIT && !k->q)
        return hw_fail(-EINVAL, "no plugin is loaded");
    switch ((enum np_op)m->op) {
    case NP_OP_LOAD:
        return load_plugin_library(k, &r->u.hello);
    case NP_OP_INIT:
        return init_plugin(k, &r->u.hello);
    case NP_OP_PROPERTIES:
        return query_plugin_device(k, (int)m->number, &r->u.device);
    case NP_OP_LISTEN:
        return kid_listen(k, m, r->u.handle);
    case NP_OP_CONNECT:
        return kid_connect(k, m, fd);
    case NP_OP_ACCEPT:
        return kid_accept(k, m, fd);
    case NP_OP_CLOSE:
        return kid_close(k, m);
    case NP_OP_MAP:
        return kid_map(k, m, fd[0]);
    case NP_OP_GPU:
        return kid_gpu(k, m, &r->u.gpu);
    case NP_OP_ALLOC:
        return kid_alloc(k, m, &r->u.gpu);
    case NP_OP_UNMAP:
        return kid_unmap(k, m);
    case NP_OP_REG:
        return kid_reg(k, m);
    case NP_OP_DEREG:
        return kid_dereg(k, m);
    case NP_OP_QUIT:
        if (k->q)
            finalize_plugin(k);
        return 0;
    }
    return hw_fail(-EINVAL, "unknown message %u", m->op);
}

/* Receives a message with up to two descriptors. Sets *lost if descriptors were dropped because of RLIMIT_NOFILE. */
static bool receive_parent_message(struct np_message *m, int fd[2], bool *lost)
{
    union {
        char room[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {.room = {0}};
    struct iovec iov = {.iov_base = m, .iov_len = sizeof(*m)};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(FD_SOCKET, &h, MSG_CMSG_CLOEXEC);
    fd[0] = fd[1] = -1;
    *lost = h.msg_flags & MSG_CTRUNC;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(fd, CMSG_DATA(c), HW_MIN(c->cmsg_len - CMSG_LEN(0), 2 * sizeof(int)));
    return n == (ssize_t)sizeof(*m);
}

static bool take_messages(struct kid *k)
{
    if (atomic_load_explicit(&k->s->messages, memory_order_acquire) == k->taken)
        return false;
    static struct np_message m;
    int fd[2];
    bool lost;
    if (!receive_parent_message(&m, fd, &lost))
        exit_child_process(0); /* the parent has exited, or the plugin has closed this socket */
    k->taken++;
    struct np_reply r = {.seq = m.seq};
    r.rc = lost ? hw_fail(-EMFILE, "the plugin's process cannot open enough files: raise RLIMIT_NOFILE (ulimit -n)")
                : handle_child_request(k, &m, fd, &r);
    if (r.rc < 0)
        snprintf(r.text, sizeof(r.text), "%s", hw_error());
    hw_close(&fd[0]);
    hw_close(&fd[1]);
    if (send(FD_SOCKET, &r, sizeof(r), MSG_NOSIGNAL) < 0 || m.op == NP_OP_QUIT)
        exit_child_process(0);
    return true;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static unsigned look_round(struct kid *k)
{
    unsigned found = take_messages(k) ? KID_MOVED : 0;
    bool tried = false;
    for (unsigned i = 0; i < k->top; i++) {
        struct kid_comm *c = k->comm[i];
        if (!c || c->kind == KID_LISTENER)
            continue;
        uint32_t state = atomic_load_explicit(&c->ring->state, memory_order_relaxed);
        if (state == NP_OPENING && !c->threaded && (tried || i < k->turn))
            found |= KID_PENDING;
        else if (state == NP_OPENING) {
            /* Calls at most one connect or accept per round, because the call may sleep and would delay the parent's
             * messages. */
            tried |= !c->threaded;
            k->turn = c->threaded ? k->turn : i + 1;
            found |= kid_setup(k, c);
        } else if (state == NP_OPEN)
            found |= kid_progress(k, c);
    }
    if (!tried)
        k->turn = 0;
    if (k->orphans) {
        kid_orphans(k);
        found |= KID_PENDING;
    }
    if (k->joining)
        kid_watch(k);
    atomic_fetch_add_explicit(&k->s->beat, 1, memory_order_relaxed);
    return found;
}

static unsigned wait_for_wakeup(struct kid *k, uint64_t us)
{
    const uint32_t bell = atomic_load(&k->s->bell);
    (void)atomic_exchange(&k->s->asleep, 1);
    unsigned found = look_round(k); /* finds work that arrived before the parent could see that this process sleeps */
    if (!(found & KID_MOVED)) {
        struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
        (void)syscall(SYS_futex, &k->s->bell, FUTEX_WAIT, bell, &t, NULL, 0);
    }
    atomic_store(&k->s->asleep, 0);
    return found;
}

static void yield_after_spin(uint64_t since, uint64_t now)
{
    if (now - since > YIELD_AFTER_US * 1000ull)
        (void)sched_yield();
}

static void run_child_loop(struct kid *k) __attribute__((noreturn));
static void run_child_loop(struct kid *k)
{
    uint64_t since = 0, nap_us = NAP_MIN_US;
    for (;;) {
        unsigned found = look_round(k);
        if (found & KID_MOVED) {
            since = 0;
            nap_us = NAP_MIN_US;
            continue;
        }
        uint64_t now = hw_now();
        if (!since)
            since = now;
        if (now - since <
            k->c->spin_us * 1000ull) { /* also without requests in flight, because a wakeup takes many microseconds */
            yield_after_spin(since, now);
            continue;
        }
        found = wait_for_wakeup(k, (found & KID_PENDING) ? nap_us : IDLE_MS * 1000ull);
        if (found & KID_MOVED) {
            since = 0;
            nap_us = NAP_MIN_US;
        } else if (found & KID_PENDING)
            nap_us = HW_MIN(nap_us * 2, (uint64_t)NAP_MAX_US);
        else
            since = 0; /* spins again, because the parent usually needs a fast answer after a wakeup */
    }
}

/* ---- the beginning -------------------------------------------------------------------------- */

/* Frees all but the last NP_LOG bytes of a log file once more than 2 * NP_LOG bytes are allocated. */
static void bound_file(int fd, off_t *punched)
{
    const off_t end = lseek(fd, 0, SEEK_END);
    if (end - *punched > (off_t)2 * NP_LOG) {
        (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end - NP_LOG);
        *punched = end - NP_LOG;
    }
}

/* Ends this process when the parent exits, even during a plugin call, and limits the memory of the log files.
 * PR_SET_PDEATHSIG does not work here, because the kernel sends that signal when the thread that forked ends. */
static void *watch_parent_process(void *arg)
{
    const struct kid *k = arg;
    struct pollfd p[2] = {{.fd = (int)syscall(SYS_pidfd_open, k->c->parent, 0), .events = POLLIN},
                          {.fd = FD_SOCKET}}; /* reports POLLHUP */
    off_t punched[2] = {0};
    for (;;) {
        if (poll(p, 2, IDLE_MS) > 0 || getppid() != k->c->parent)
            exit_child_process(0);
        bound_file(FD_LOG, &punched[0]);
        bound_file(FD_WARN, &punched[1]);
    }
    return NULL;
}

static void fail_child_start(int log, const char *what)
{
    dprintf(log, "the plugin's process could not start: %s: %s\n", what, strerror(errno));
    exit_child_process(125);
}

static void move_descriptors(const struct np_child *c)
{
    const int sock = fcntl(c->socket, F_DUPFD, FD_FREE), log = fcntl(c->log, F_DUPFD, FD_FREE);
    const int warnings = fcntl(c->warnings, F_DUPFD, FD_FREE);
    const int trace = c->trace >= 0 ? fcntl(c->trace, F_DUPFD, FD_FREE) : -1;
    const int null = open("/dev/null", O_RDWR);
    if (sock < 0 || log < 0 || warnings < 0 || null < 0)
        fail_child_start(c->log, "duplicating descriptors");
    dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
    dup2(sock, FD_SOCKET);
    dup2(log, FD_LOG);
    dup2(warnings, FD_WARN);
    if (trace >= 0)
        dup2(trace, FD_TRACE);
    else
        close(FD_TRACE);
    if (syscall(SYS_close_range, FD_FREE, ~0u, 0) < 0) /* fails before Linux 5.9 */
        for (long fd = FD_FREE, n = HW_MIN(sysconf(_SC_OPEN_MAX), 65536L); fd < n; fd++)
            close((int)fd);
}

void np_child_main(const struct np_child *c)
{
    static struct kid kid; /* may be static, because each process runs only one child */
    struct kid *k = &kid;
    struct sigaction standard = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
    sigset_t none;
    pthread_t thread;

    for (int sig = 1; sig < NSIG; sig++)
        (void)sigaction(sig, sig == SIGPIPE ? &ignore : &standard, NULL);
    (void)setpgid(0, 0); /* Ctrl-C then reaches only the parent */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    move_descriptors(c);
    __fpurge(stdout); /* drops the parent's buffered output, which the parent writes itself */
    __fpurge(stderr);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)prctl(PR_SET_NAME, "hawser-plugin");
    (void)prctl(PR_SET_TIMERSLACK, 1000); /* in ns, for short sleeps */

    if (c->trace >= 0)
        np_trace_open(FD_TRACE, c->trace_polls);
    k->c = c;
    k->s = c->shared;
    (void)on_exit(leave_at_once, k);
    errno = pthread_create(&thread, NULL, watch_parent_process, k);
    if (errno) /* without this thread, the child would survive its parent */
        fail_child_start(FD_LOG, "creating a thread");
    run_child_loop(k);
}
