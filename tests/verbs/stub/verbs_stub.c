/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_stub.h"
#include "tests/proc.h"
#include "verbs/agent/filter_rules.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <poll.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct common *common;

void common_reset(void)
{
    if (!common)
        common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED)
        abort();
    memset((void *)common, 0, sizeof(*common));
    vb_inject_hook = NULL;
}

static void die(const char *what)
{
    fprintf(stderr, "# %s: %s\n", what, strerror(errno));
    _exit(99);
}

/* Installs the wall: the filter's rules that refuse calls because of their arguments. */
static int install_wall(void)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    int rc = f ? 0 : -ENOMEM;
    for (const struct vb_filter_rule *r = vb_filter_rules; rc == 0 && r->call; r++) {
        struct scmp_arg_cmp is[HW_ARRAY_LEN(r->is)];
        unsigned n = 0;
        for (; n < HW_ARRAY_LEN(r->is) && r->is[n].mask; n++)
            is[n] = (struct scmp_arg_cmp){r->is[n].arg, SCMP_CMP_MASKED_EQ, r->is[n].mask, r->is[n].value};
        if (r->err && n && strcmp(r->call, "seccomp") != 0) /* the listener's filter must still be installed */
            rc = seccomp_rule_add_array(f, SCMP_ACT_ERRNO((uint32_t)r->err), seccomp_syscall_resolve_name(r->call), n,
                                        is);
    }
    rc = rc ? rc : seccomp_load(f);
    seccomp_release(f);
    return rc;
}

static int install(bool killable)
{
    if (vb_inject_hold == VB_HOLD_WALL && install_wall())
        return -1;
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RDMA_VERBS_IOCTL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {HW_ARRAY_LEN(f), f};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | (killable ? SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV : 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p);
}

void app_start(struct app *a, void (*fn)(void), bool killable)
{
    *a = (struct app){.listener = -1, .killable = killable};
    common->listener = -1;
    common->taken = false;
    fflush(NULL);
    a->pid = fork();
    if (a->pid < 0)
        die("fork");
    if (a->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = install(killable);
        common->listener = fd < 0 ? -2 : fd;
        if (fd < 0)
            die("installing a filter");
        while (!common->taken)
            usleep(200);
        close(fd);
        fn();
        _exit(0);
    }
    while (common->listener == -1)
        usleep(200);
    int pidfd = (int)syscall(SYS_pidfd_open, a->pid, 0);
    a->listener = (int)syscall(SYS_pidfd_getfd, pidfd, common->listener, 0);
    if (a->listener < 0)
        die("taking the listener");
    close(pidfd);
    common->taken = true;
}

int reg(int fd)
{
    uint64_t request = 0;
    return ioctl(fd, RDMA_VERBS_IOCTL, &request) ? -errno : 0;
}

/* Returns a copy of descriptor fd in the thread's own table. Returns -errno on failure (-EBADF if fd is closed). */
static int device_of(pid_t tid, int fd)
{
    int pidfd = (int)syscall(SYS_pidfd_open, tid, O_EXCL);
    int got = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    int rc = got < 0 ? -errno : got;
    if (pidfd >= 0)
        close(pidfd);
    return rc;
}

static void drop(struct mini *m, unsigned i)
{
    if (m->s[i].asks)
        vb_notify_answer(m->a->listener, m->s[i].asks, 0, EIO);
    hw_close(&m->s[i].device);
    vb_stub_end(&m->s[i].stub, m->a->listener);
    m->s[i] = m->s[--m->n];
}

static void ask(struct mini *m, unsigned i, const struct seccomp_notif *n)
{
    struct vb_stub *s = &m->s[i].stub;
    int device = device_of((pid_t)n->pid, (int)n->data.args[0]);
    if (device < 0) {
        vb_notify_answer(m->a->listener, n->id, 0, -device);
        return;
    }
    memcpy(s->mine + VB_WINDOW_CODE, &n->id, sizeof(n->id));
    m->s[i].asks = n->id;
    m->s[i].device = device;
    int rc = vb_stub_run(s, m->a->listener, device);
    if (rc && rc != -ENOENT) {
        vb_notify_answer(m->a->listener, n->id, 0, rc);
        m->s[i].asks = 0;
        hw_close(&m->s[i].device);
    }
}

/* Takes a request of the program: passes it to an idle stub, queues it, or injects a new stub. */
static void take(struct mini *m, const struct seccomp_notif *n)
{
    for (unsigned i = 0; i < m->n; i++) {
        struct vb_stub *s = &m->s[i].stub;
        if (!vb_stub_serves(s, (pid_t)n->pid))
            continue;
        if (s->parked && !m->s[i].asks)
            ask(m, i, n);
        else if (m->n_waits < WAIT_MAX)
            m->waits[m->n_waits++] = *n;
        else
            vb_notify_answer(m->a->listener, n->id, 0, EBUSY);
        return;
    }
    struct seccomp_notif as = *n;
    if (m->other_arch)
        as.data.arch = AUDIT_ARCH_I386;
    struct vb_stub s;
    if (m->tracer.pid == 0) {
        common->broker = getpid();
        if (vb_tracer_start(&m->tracer, NULL, 0))
            die("starting a tracer");
    }
    int rc = m->n == STUBS_MAX ? -ENOSPC : vb_inject(&m->tracer, &s, m->a->listener, &as);
    if (rc) {
        m->failed++;
        m->last_rc = rc;
        snprintf(m->text, sizeof(m->text), "%s", hw_error());
        return;
    }
    m->injected++;
    common->window = s.window;
    m->s[m->n].stub = s;
    m->s[m->n].asks = 0;
    m->s[m->n++].device = -1;
}

static void parked(struct mini *m, unsigned i, const struct seccomp_notif *n)
{
    struct vb_stub *s = &m->s[i].stub;
    int64_t result = 0;
    int rc = vb_stub_park(s, n, &result);
    if (rc < 0) {
        vb_notify_answer(m->a->listener, n->id, 0, EPERM);
        return;
    }
    if (rc == 0) {
        m->again++;
        if (m->s[i].asks)
            vb_stub_run(s, m->a->listener, m->s[i].device);
        return;
    }
    if (m->s[i].asks) {
        m->results++;
        vb_notify_answer(m->a->listener, m->s[i].asks, result, result < 0 ? (int)result : 0);
        vb_stub_clear(s, m->a->listener);
        m->s[i].asks = 0;
        hw_close(&m->s[i].device);
        if (m->end_each)
            drop(m, i);
    }
}

static void handle(struct mini *m)
{
    struct seccomp_notif n;
    if (vb_notify_next(m->a->listener, &n))
        return;
    for (unsigned i = 0; i < m->n; i++)
        if (m->s[i].stub.tid == (pid_t)n.pid && !m->s[i].stub.dead) {
            parked(m, i, &n);
            return;
        }
    take(m, &n);
}

static void sweep(struct mini *m)
{
    for (unsigned i = m->n; i-- > 0;) {
        struct pollfd p = {.fd = m->s[i].stub.thread, .events = POLLIN};
        if (m->s[i].stub.dead || poll(&p, 1, 0) > 0 ||
            (m->end_alone && !m->s[i].asks && m->s[i].stub.parked && vb_stub_alone(&m->tracer, &m->s[i].stub)))
            drop(m, i);
    }
    unsigned had = m->n_waits;
    struct seccomp_notif waits[WAIT_MAX];
    memcpy(waits, m->waits, had * sizeof(waits[0]));
    m->n_waits = 0;
    for (unsigned i = 0; i < had; i++)
        if (vb_notify_valid(m->a->listener, waits[i].id))
            take(m, &waits[i]);
}

static void serve(struct mini *m, int ms)
{
    struct pollfd p = {.fd = m->a->listener, .events = POLLIN};
    if (poll(&p, 1, ms) > 0 && p.revents & POLLIN)
        handle(m);
    sweep(m);
}

bool mini_until(struct mini *m, int until, int ms)
{
    uint64_t deadline = hw_deadline(ms);
    while (common->at != until && hw_now() < deadline)
        serve(m, 2);
    /* The stub may still be making the call that follows its last result. */
    for (int i = 0; i < 1000 && m->n && !m->s[m->n - 1].stub.parked; i++)
        serve(m, 2);
    return common->at == until;
}

bool mini_serve(struct mini *m, struct app *a, int seconds)
{
    uint64_t deadline = hw_deadline(seconds * 1000);
    m->a = a;
    while (!a->ended) {
        serve(m, 5);
        if (waitpid(a->pid, &a->status, WNOHANG) == a->pid)
            a->ended = true;
        else if (hw_now() > deadline) {
            fprintf(stderr, "# the program did not end within %d s\n", seconds);
            break;
        }
    }
    sweep(m);
    bool well = a->ended && WIFEXITED(a->status) && WEXITSTATUS(a->status) == 0;
    if (a->ended && !well && a->status != SIGKILL)
        fprintf(stderr, "# the program's status is 0x%x\n", (unsigned)a->status);
    return well;
}

void mini_drop(struct mini *m)
{
    while (m->n)
        drop(m, m->n - 1);
}

void mini_end(struct mini *m)
{
    mini_drop(m);
    if (m->tracer.pid)
        vb_tracer_end(&m->tracer);
    if (!m->a->ended) {
        kill(m->a->pid, SIGKILL);
        waitpid(m->a->pid, &m->a->status, 0);
        m->a->ended = true;
    }
    hw_close(&m->a->listener);
}

void hook_wait(enum vb_step step, pid_t tid, uint64_t window)
{
    (void)tid;
    if ((int)step != common->hook_step || common->hook_seen++ != common->hook_nth)
        return;
    common->at_window = window;
    common->at = (int)step + 1;
    for (int i = 0; i < 10000 && common->done != common->at; i++)
        usleep(100);
}

bool app_at_step(void)
{
    while (common->at == common->done) {
        if (common->stop)
            return false;
        usleep(100);
    }
    return true;
}

void app_step_done(void)
{
    common->done = (int)common->at;
}

/* ---- functions for programs and for observers --------------------------------------------------- */

int null_fd(void)
{
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

void app_look(void)
{
    int fd = null_fd();
    uint64_t before = 1, after = 2; /* the kernel's signal mask: 64 bits */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &before, sizeof(before));
    int fds = proc_entries("/proc/self/fd"), tasks = proc_entries("/proc/self/task");
    common->out[0] = reg(fd);
    common->out[1] = proc_entries("/proc/self/fd") - fds;
    common->out[2] = proc_entries("/proc/self/task") - tasks;
    common->out[3] = proc_maps("hawser-verbs");
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &after, sizeof(after));
    common->out[4] = before == after;
}
