/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injects a stub with ptrace(). A child of the tracer process (tracer.c) performs the injection, and exits once the
 * stub is injected or the attempt has been undone. Undoing does not unmap a window that is already sealed.
 *
 * The traced thread makes the injected system calls with the `syscall` instruction of its interrupted call. The thread
 * stops on entry to and exit from each call, where PTRACE_GET_SYSCALL_INFO shows whether the call and its arguments are
 * the intended ones (ptrace(2)). The final verification detects changes that other threads make to the mappings.
 */
#include "verbs/stub/guard.h"
#include "verbs/stub/inject_int.h"
#include "verbs/stub/notify.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

void (*vb_inject_hook)(enum vb_step step, pid_t tid, uint64_t window);

#ifdef __x86_64__

/* From include/linux/errno.h: internal results of a call that the kernel will restart. A tracer sees these results, but
 * the program never does. */
#define RESTART_SYS      (-512)
#define RESTART_NO_INTR  (-513)
#define RESTART_NO_HAND  (-514)
#define RESTART_BLOCK    (-516)
#define USER_CS          0x33  /* selector of 64-bit code (arch/x86/include/asm/segment.h) */
#define PLAIN_FLAGS      0x202 /* eflags: interrupts enabled, no single steps, no alignment checks */
#define STOP_OF_EVENT(s) ((unsigned)(s) >> 16)

struct tracer {
    struct vb_shared *sh;
    const struct vb_window *w;
    int listener;
    const struct seccomp_notif *n;
    bool wall;
    pid_t parent, tid; /* the parent process exits when the broker exits */
    int theirs[2];     /* descriptors of the memfds in the application, or -1 */
    bool seized, stopped, sealed, undoing;
    bool left;      /* a signal has ended or restarted the thread's call, so it cannot be answered here */
    bool suspended; /* the thread's seccomp filters are suspended for the injected calls */
    struct user_regs_struct saved;
    uint64_t mask;
    pid_t stub;
    uint64_t window;
};

static void report_trace_step(const struct tracer *t, enum vb_step s)
{
    if (vb_inject_hook)
        vb_inject_hook(s, t->tid, t->window);
}

static bool is_trace_cancelled(const struct tracer *t)
{
    return !t->undoing && (atomic_load(&t->sh->state) == VB_CANCELLED || getppid() != t->parent);
}

static int report_thread_death(pid_t tid)
{
    return hw_fail(-ESRCH, "thread %d has died", (int)tid);
}

/* Waits for the next stop of a thread. Has no time limit, because a running thread can be neither restored nor
 * released. Fails with -ESRCH if the thread has died. */
static int wait_stop(pid_t tid, int *status)
{
    sigset_t chld; /* all signals are blocked in this process */
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    const struct timespec nap = {0, 10 * HW_MS};
    for (;;) {
        pid_t got = waitpid(tid, status, __WALL | WNOHANG);
        if (got == tid)
            return WIFSTOPPED(*status) ? 0 : report_thread_death(tid);
        if (got < 0)
            return report_thread_death(tid);
        if (sigtimedwait(&chld, NULL, &nap) >= 0)
            continue;
        /* Reaps any dead thread, because the death of a process's first thread is not reported before the other threads
         * are reaped (delay_group_leader() in kernel/exit.c), and only the tracer can reap a tracee. WNOWAIT is
         * necessary, because for tracees waitid() also returns and consumes stops, even if only exits are requested
         * (wait_task_stopped()). */
        siginfo_t dead = {.si_pid = 0};
        if (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 && dead.si_pid != 0 &&
            (dead.si_code == CLD_EXITED || dead.si_code == CLD_KILLED || dead.si_code == CLD_DUMPED) &&
            waitpid(dead.si_pid, status, __WALL | WNOHANG) == dead.si_pid && dead.si_pid == tid)
            return report_thread_death(tid);
    }
}

/* Lets a stopped thread continue to its next stop. Job control stops still apply to the thread, which stays stopped
 * when it is released. */
static int resume_tracee(pid_t tid, int how, int *status)
{
    int sig = 0;
    for (;;) {
        if (ptrace(how, tid, 0, sig))
            return report_thread_death(tid);
        int rc = wait_stop(tid, status);
        if (rc)
            return rc;
        if (STOP_OF_EVENT(*status) == PTRACE_EVENT_STOP)
            sig = 0;
        else if (STOP_OF_EVENT(*status) == 0 && WSTOPSIG(*status) == SIGSTOP)
            sig = SIGSTOP;
        else
            return 0;
    }
}

/* Lets the thread continue to its next entry to or exit from a system call, and stores the details in *info. */
static int syscall_stop(struct tracer *t, pid_t tid, struct __ptrace_syscall_info *info)
{
    int status, rc;
    do {
        if ((rc = resume_tracee(tid, PTRACE_SYSCALL, &status)))
            return rc;
        unsigned long child;
        if (STOP_OF_EVENT(status) == PTRACE_EVENT_CLONE && ptrace(PTRACE_GETEVENTMSG, tid, 0, &child) == 0)
            t->stub = (pid_t)child;
    } while (STOP_OF_EVENT(status) == PTRACE_EVENT_CLONE);
    if (WSTOPSIG(status) != (SIGTRAP | 0x80))
        return hw_fail(-EPROTO, "thread %d received signal %d instead of making the injected system call", (int)tid,
                       WSTOPSIG(status));
    memset(info, 0, sizeof(*info));
    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(*info), info) < 0)
        return report_thread_death(tid);
    return 0;
}

/* Makes the stopped thread tid execute a system call with the `syscall` instruction before address `after`, and stops
 * the thread after the call. */
static int run_tracee_syscall(struct tracer *t, pid_t tid, uint64_t after, long nr, const uint64_t a[6], int64_t *value)
{
    struct user_regs_struct r = t->saved;
    struct __ptrace_syscall_info info;
    do {
        if (is_trace_cancelled(t))
            return hw_fail(-ETIMEDOUT, "the broker no longer waits for the injection into thread %d", (int)t->tid);
        r.rip = after - 2;
        r.orig_rax = UINT64_MAX; /* the thread is in no call, so the kernel restarts nothing */
        r.rax = (uint64_t)nr;
        r.rdi = a[0], r.rsi = a[1], r.rdx = a[2], r.r10 = a[3], r.r8 = a[4], r.r9 = a[5];
        r.eflags = PLAIN_FLAGS;
        if (ptrace(PTRACE_SETREGS, tid, 0, &r))
            return report_thread_death(tid);
        int rc = syscall_stop(t, tid, &info);
        if (rc)
            return rc;
        if (info.op != PTRACE_SYSCALL_INFO_ENTRY || info.arch != AUDIT_ARCH_X86_64 || info.entry.nr != (uint64_t)nr ||
            info.instruction_pointer != after || memcmp(info.entry.args, a, 6 * sizeof(a[0])) != 0)
            return hw_fail(-EPROTO, "thread %d made a system call other than the injected one", (int)tid);
        if ((rc = syscall_stop(t, tid, &info)))
            return rc;
        if (info.op != PTRACE_SYSCALL_INFO_EXIT)
            return hw_fail(-EPROTO, "thread %d did not return from the injected system call", (int)tid);
        *value = info.exit.rval;
    } while (*value <= RESTART_SYS && *value >= RESTART_BLOCK);
    return 0;
}

/* Makes the thread execute a system call. Fails if the call fails. */
static int own_call(struct tracer *t, const char *what, int64_t *value, long nr, const uint64_t a[6])
{
    int rc = run_tracee_syscall(t, t->tid, t->n->data.instruction_pointer, nr, a, value);
    if (rc == 0 && *value < 0 && *value > -4096)
        rc = hw_fail((int)*value, "%s in the application (thread %d): %s", what, (int)t->tid, strerror((int)-*value));
    return rc;
}
#define OWN(t, value, name, ...) own_call(t, #name, value, SYS_##name, (const uint64_t[6]){__VA_ARGS__})

/* Returns true if the thread is still in the system call of the notification: it is the same call with the same
 * arguments, interrupted and about to restart. */
static bool in_call(const struct tracer *t)
{
    const struct user_regs_struct *r = &t->saved;
    const struct seccomp_data *d = &t->n->data;
    return r->cs == USER_CS && r->rip == d->instruction_pointer && r->orig_rax == (uint64_t)d->nr &&
           r->rdi == d->args[0] && r->rsi == d->args[1] && r->rdx == d->args[2] && r->r10 == d->args[3] &&
           r->r8 == d->args[4] && r->r9 == d->args[5] &&
           ((int64_t)r->rax == RESTART_SYS || (int64_t)r->rax == RESTART_NO_INTR);
}

static int has_left(struct tracer *t)
{
    t->left = true;
    return hw_fail(-EAGAIN, "thread %d: a signal interrupted its system call", (int)t->tid);
}

static int seize_tracee(struct tracer *t)
{
    report_trace_step(t, VB_STEP_SEIZE);
    if (ptrace(PTRACE_SEIZE, t->tid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE)) {
        if (errno == ESRCH || !vb_notify_valid(t->listener, t->n->id)) /* ptrace() fails with EPERM for a zombie */
            return report_thread_death(t->tid);
        return hw_fail(
            -EPERM,
            "cannot trace thread %d: not permitted (check for strace or gdb, and for kernel.yama.ptrace_scope = 3)",
            (int)t->tid);
    }
    t->seized = true;
    report_trace_step(t, VB_STEP_GIVE);
    const int mine[2] = {t->w->fixed, t->w->results};
    for (int i = 0; i < 2; i++) {
        int fd = vb_notify_give(t->listener, t->n->id, mine[i], -1, true, false);
        if (fd < 0)
            return fd == -ENOENT ? has_left(t) : fd;
        t->theirs[i] = fd;
    }
    return 0;
}

/* Stops the thread and answers its call with `answer`. With RESTART_NO_INTR the kernel restarts the call if this
 * process dies now. The thread stops before it returns to the program or handles a signal (get_signal() in
 * kernel/signal.c), unless it is already handling one. */
static int stop_tracee(struct tracer *t, int answer)
{
    report_trace_step(t, VB_STEP_STOP);
    if (ptrace(PTRACE_INTERRUPT, t->tid, 0, 0))
        return report_thread_death(t->tid);
    int rc = vb_notify_answer(t->listener, t->n->id, 0, answer), status;
    if (rc && rc != -ENOENT) /* the kernel has already interrupted the call if the filter lacks WAIT_KILLABLE_RECV */
        return rc;
    if ((rc = wait_stop(t->tid, &status)))
        return rc;
    while (STOP_OF_EVENT(status) != PTRACE_EVENT_STOP) { /* a signal arrived first, so deliver the signal */
        if (ptrace(PTRACE_CONT, t->tid, 0, WSTOPSIG(status)))
            return report_thread_death(t->tid);
        if ((rc = wait_stop(t->tid, &status)))
            return rc;
    }
    const uint64_t all = UINT64_MAX;
    if (ptrace(PTRACE_GETREGS, t->tid, 0, &t->saved) || ptrace(PTRACE_GETSIGMASK, t->tid, sizeof(t->mask), &t->mask) ||
        ptrace(PTRACE_SETSIGMASK, t->tid, sizeof(all), &all))
        return report_thread_death(t->tid);
    t->stopped = true;
    /* The registers of the thread are changed from here on, so the thread must be killed if this process dies. To
     * suspend its filters, a tracer needs CAP_SYS_ADMIN and must not have filters (check_ptrace_options() in
     * kernel/ptrace.c). */
    const unsigned long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
    t->suspended = ptrace(PTRACE_SETOPTIONS, t->tid, 0, options | PTRACE_O_SUSPEND_SECCOMP) == 0;
    if (!t->suspended && ptrace(PTRACE_SETOPTIONS, t->tid, 0, options))
        return report_thread_death(t->tid);
    return 0;
}

static int map_stub_window(struct tracer *t)
{
    const uint64_t size = VB_WINDOW_SIZE, fixed = (uint64_t)t->theirs[0], results = (uint64_t)t->theirs[1];
    const uint64_t where = t->wall ? VB_WALL_AT : 0, place = MAP_SHARED | (t->wall ? MAP_FIXED_NOREPLACE : 0);
    int64_t at, v;
    int rc;
    if (t->wall && !t->suspended)
        return hw_fail(-EOPNOTSUPP,
                       "the seccomp filter of thread %d cannot be suspended and refuses the calls for the injection: "
                       "use a kernel with CONFIG_CHECKPOINT_RESTORE, or Linux 6.10 or later",
                       (int)t->tid);
    /* The first mmap() maps the whole range. The other parts are then mapped over it. */
    report_trace_step(t, VB_STEP_MMAP);
    if ((rc = OWN(t, &at, mmap, where, size, PROT_READ | PROT_EXEC, place, fixed, 0)))
        return rc;
    t->window = (uint64_t)at;
    if (t->wall && t->window != VB_WALL_AT) /* kernels before 4.17 ignore MAP_FIXED_NOREPLACE */
        return hw_fail(-EEXIST, "address 0x%llx in the process of thread %d is already mapped", VB_WALL_AT,
                       (int)t->tid);
    const uint64_t shared = MAP_SHARED | MAP_FIXED, requests = t->window + VB_WINDOW_CODE,
                   split = t->window + VB_WINDOW_SPLIT;
    report_trace_step(t, VB_STEP_MMAP);
    if ((rc = OWN(t, &v, mmap, requests, VB_WINDOW_SPLIT - VB_WINDOW_CODE, PROT_READ, shared, fixed, VB_WINDOW_CODE)))
        return rc;
    report_trace_step(t, VB_STEP_MMAP);
    if ((rc = OWN(t, &v, mmap, split, size - VB_WINDOW_SPLIT, PROT_READ | PROT_WRITE, shared, results, 0)))
        return rc;
    report_trace_step(t, VB_STEP_MADVISE);
    return OWN(t, &v, madvise, t->window, size,
               MADV_DONTFORK); /* a child process has no stub and could never unmap the window */
}

/* Checks that brk() cannot unmap the window. brk() unmaps the memory between the new and the old end of the heap, and
 * only checks that the new end is not below the beginning of the heap or, on some kernels with CONFIG_COMPAT_BRK, below
 * the end of the program's data (mm/mmap.c). Both are determined when the program is loaded. */
static int brk_is_above(struct tracer *t)
{
    char path[32], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)t->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    hw_close(&fd);
    text[HW_MAX(n, 0)] = 0;
    /* Field 3 follows the name. Fields 46 and 47 are end_data and start_brk, or 0 without permission (proc(5)). */
    const char *s = strrchr(text, ')');
    for (int field = 2; s && field < 46; field++)
        s = strchr(s + 1, ' ');
    if (!s)
        return report_thread_death(t->tid);
    char *next;
    unsigned long long end_data = strtoull(s, &next, 10), start_brk = strtoull(next, NULL, 10);
    if (end_data >= VB_WALL_END && start_brk >= VB_WALL_END)
        return 0;
    return hw_fail(-EOPNOTSUPP,
                   "the program of thread %d is loaded below 0x%llx (its data end at 0x%llx, its heap begins at "
                   "0x%llx), at addresses that the stub needs on kernels before 6.10",
                   (int)t->tid, VB_WALL_END, end_data, start_brk);
}

static int seal_stub_window(struct tracer *t)
{
    int64_t v;
    if (t->wall)
        return brk_is_above(t);
    report_trace_step(t, VB_STEP_MSEAL);
    int rc = OWN(t, &v, mseal, t->window, VB_WINDOW_SIZE, 0);
    t->sealed = rc == 0;
    return rc;
}

/* Creates the stub's thread. This is done before the window is sealed, because sealing cannot be undone and a limit may
 * make clone() fail. The new thread is stopped until it is released, and starts in the window. */
static int clone_stub(struct tracer *t)
{
    const uint64_t flags = CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    int64_t v;
    report_trace_step(t, VB_STEP_CLONE);
    int rc = OWN(t, &v, clone, flags, 0, 0, 0, 0, 0), status;
    if (rc)
        return rc;
    if (t->stub <= 0)
        return hw_fail(-EPROTO, "thread %d did not create a thread for the stub", (int)t->tid);
    if ((rc = wait_stop(t->stub, &status)))
        return rc;
    if (STOP_OF_EVENT(status) != PTRACE_EVENT_STOP)
        return hw_fail(-EPROTO, "stub %d did not stop at its start", (int)t->stub);
    return 0;
}

/* Verifies the window's mappings. The seals must be verified too if a filter of the application may have answered
 * mseal(), because the filters were not suspended. */
static int verify_stub_window(struct tracer *t)
{
    report_trace_step(t, VB_STEP_VERIFY);
    int rc = vb_window_verify(t->w, t->tid, t->window, !t->suspended && !t->wall);
    struct user_regs_struct r;
    return rc && ptrace(PTRACE_GETREGS, t->tid, 0, &r)
               ? report_thread_death(t->tid)
               : rc; /* if the thread has died, its memory may no longer exist */
}

/* Gives the stub an empty descriptor table and sets its initial registers. */
static int prepare_stub(struct tracer *t)
{
    const uint64_t after = t->window + VB_STUB_AFTER;
    int64_t v;
    report_trace_step(t, VB_STEP_TABLE);
    int rc = run_tracee_syscall(t, t->stub, after, SYS_close_range,
                                (const uint64_t[6]){0, UINT_MAX, CLOSE_RANGE_UNSHARE}, &v);
    if (rc)
        return rc;
    if (v < 0)
        return hw_fail((int)v, "cannot create a descriptor table for stub %d: %s", (int)t->stub, strerror((int)-v));
    if (syscall(SYS_kcmp, t->stub, t->tid, KCMP_FILES, 0, 0) == 0)
        return hw_fail(-EPROTO, "stub %d still shares the descriptor table of the program", (int)t->stub);
    struct user_regs_struct r = {
        .rip = t->window, .cs = t->saved.cs, .ss = t->saved.ss, .eflags = PLAIN_FLAGS, .orig_rax = UINT64_MAX};
    return ptrace(PTRACE_SETREGS, t->stub, 0, &r) ? report_thread_death(t->stub) : 0;
}

/* Closes the descriptors of the memfds in the application, with one call if their numbers are consecutive. Ignores
 * errors of the call, because another thread may already have closed them. */
static int close_theirs(struct tracer *t)
{
    for (int i = 0; i < 2; i++) {
        if (t->theirs[i] < 0)
            continue;
        int last = i == 0 && t->theirs[1] == t->theirs[0] + 1 ? t->theirs[1] : t->theirs[i];
        int64_t v;
        report_trace_step(t, VB_STEP_CLOSE);
        int rc = run_tracee_syscall(t, t->tid, t->n->data.instruction_pointer, SYS_close_range,
                                    (const uint64_t[6]){(uint64_t)t->theirs[i], (uint64_t)last}, &v);
        if (rc)
            return rc;
        t->theirs[i] = -1;
        if (last == t->theirs[1])
            t->theirs[1] = -1;
    }
    return 0;
}

static int inject_stub(struct tracer *t)
{
    int rc;
    if ((rc = seize_tracee(t)) || (rc = stop_tracee(t, RESTART_NO_INTR)))
        return rc;
    if (!in_call(t))
        return has_left(t);
    if ((rc = map_stub_window(t)) || (rc = clone_stub(t)) || (rc = seal_stub_window(t)) ||
        (rc = verify_stub_window(t)) || (rc = prepare_stub(t)))
        return rc;
    return close_theirs(t);
}

/* Changes the registers so that an interrupted call is restarted, as the kernel does if no signal has a handler
 * (arch/x86/kernel/signal.c). */
static void prepare_call_restart(struct user_regs_struct *r)
{
    int64_t v = (int64_t)r->rax;
    if ((int64_t)r->orig_rax < 0 || v > RESTART_SYS || v < RESTART_BLOCK)
        return;
    r->rax = v == RESTART_BLOCK ? SYS_restart_syscall : r->orig_rax;
    r->rip -= 2;
    r->orig_rax = UINT64_MAX;
}

static void detach_tracee(struct tracer *t, struct user_regs_struct *r)
{
    if (ptrace(PTRACE_SETREGS, t->tid, 0, r) == 0 && ptrace(PTRACE_SETSIGMASK, t->tid, sizeof(t->mask), &t->mask) == 0)
        ptrace(PTRACE_DETACH, t->tid, 0, 0);
}

/* Makes the stub exit before it has run any code. Uses the same `syscall` instruction as for the thread's calls. */
static void end_stub(struct tracer *t)
{
    struct user_regs_struct r = t->saved;
    struct __ptrace_syscall_info info;
    int status;
    r.rip = t->n->data.instruction_pointer - 2;
    r.rax = SYS_exit;
    r.rdi = 0;
    r.orig_rax = UINT64_MAX;
    r.eflags = PLAIN_FLAGS;
    if (ptrace(PTRACE_SETREGS, t->stub, 0, &r) == 0 && syscall_stop(t, t->stub, &info) == 0 &&
        info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_exit)
        resume_tracee(t->stub, PTRACE_CONT, &status);
}

/* Undoes the injection, and makes the thread's call fail with rc unless a signal has interrupted the call. Sealed
 * mappings remain, because they cannot be removed. */
static void undo_injection(struct tracer *t, int rc)
{
    t->undoing = true;
    int64_t v;
    if (!t->seized) {
        vb_notify_answer(t->listener, t->n->id, 0, rc);
        return;
    }
    if (!t->stopped && stop_tracee(t, rc))
        return;
    if (t->stub > 0)
        end_stub(t);
    if (t->window && !t->sealed)
        run_tracee_syscall(t, t->tid, t->n->data.instruction_pointer, SYS_munmap,
                           (const uint64_t[6]){t->window, VB_WINDOW_SIZE}, &v);
    close_theirs(t);
    struct user_regs_struct r = t->saved;
    if (!t->left && in_call(t)) {
        r.rax = (uint64_t)rc;
        r.orig_rax = UINT64_MAX;
    }
    prepare_call_restart(&r);
    detach_tracee(t, &r);
}

/* Releases the stub, and then the thread, which repeats its call. */
static void finish_injection(struct tracer *t)
{
    t->undoing = true; /* the injection can no longer be cancelled */
    report_trace_step(t, VB_STEP_LEAVE);
    ptrace(PTRACE_DETACH, t->stub, 0, 0);
    struct user_regs_struct r = t->saved;
    prepare_call_restart(&r);
    detach_tracee(t, &r);
}

static void wake_broker(struct vb_shared *sh)
{
    syscall(SYS_futex, &sh->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Reports to the broker that the stub is ready. Returns true if the broker accepts the stub. */
static bool hand_over(struct tracer *t)
{
    uint32_t state = VB_RUN;
    const struct timespec nap = {0, 20 * HW_MS};
    t->sh->stub = t->stub;
    t->sh->window = t->window;
    report_trace_step(t, VB_STEP_READY);
    if (!atomic_compare_exchange_strong(&t->sh->state, &state, VB_READY))
        return false;
    wake_broker(t->sh);
    while (atomic_load(&t->sh->state) == VB_READY && getppid() == t->parent)
        syscall(SYS_futex, &t->sh->state, FUTEX_WAIT, VB_READY, &nap, NULL, 0);
    return atomic_load(&t->sh->state) == VB_GO;
}

_Noreturn void vb_trace(struct vb_shared *sh, const struct vb_window *w, int listener, const struct seccomp_notif *n,
                        bool wall, pid_t parent)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_DFL); /* SIGCHLD reports stops of tracees */
    prctl(PR_SET_NAME, "hawser-tracer");
    int keep[] = {listener, w->fixed, w->results};
    (void)vb_guard_fds(0, keep,
                       HW_ARRAY_LEN(keep)); /* also closes the tracer's socket, including descriptors in its queue */
    struct tracer t = {.sh = sh,
                       .w = w,
                       .listener = listener,
                       .n = n,
                       .wall = wall,
                       .parent = parent,
                       .tid = (pid_t)n->pid,
                       .theirs = {-1, -1}};
    int rc = inject_stub(&t);
    if (rc == 0 && hand_over(&t)) {
        finish_injection(&t);
        _exit(0);
    }
    rc = rc ? rc : -ETIMEDOUT;
    sh->rc = rc;
    snprintf(sh->text, sizeof(sh->text), "%s", hw_error());
    undo_injection(&t, rc);
    uint32_t state = VB_RUN;
    atomic_compare_exchange_strong(&sh->state, &state, VB_FAILED);
    wake_broker(sh);
    _exit(1);
}

#else
_Noreturn void vb_trace(struct vb_shared *sh, const struct vb_window *w, int listener, const struct seccomp_notif *n,
                        bool wall, pid_t parent)
{
    (void)sh, (void)w, (void)listener, (void)n, (void)wall, (void)parent;
    _exit(1); /* not reached, because vb_inject_possible() fails on other architectures */
}
#endif
