/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injects a stub into an application. A child of the tracer process does the tracing (tracer.c, trace.c). If a thread
 * cannot be stopped, or stops only after minutes because its container is frozen, it blocks this child. The broker is
 * blocked for at most VB_INJECT_MS. The child also undoes an injection that has failed, as soon as this is possible.
 */
#include "verbs/stub/inject_int.h"
#include "verbs/stub/lookup.h"
#include "verbs/stub/notify.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum vb_hold vb_inject_hold;

#ifdef __x86_64__
/* Detects how the kernel can protect a window. Called only once, because the broker's filter forbids these calls later.
 * Stores the reason in why if the result is VB_HOLD_NOT. */
static enum vb_hold detect_window_hold(char why[64])
{
    char text[24] = "";
    if (syscall(SYS_mseal, NULL, 0, 0) == 0) /* for an empty range, mseal() succeeds on every kernel that has it */
        return VB_HOLD_SEAL;
    int fd = open("/proc/sys/vm/mmap_min_addr", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    hw_close(&fd);
    if (n > 0 && strtoull(text, NULL, 10) <= VB_WALL_AT)
        return VB_HOLD_WALL;
    text[strcspn(text, "\n")] = 0;
    if (n > 0)
        snprintf(why, 64, "vm.mmap_min_addr is %s, more than %llu", text, VB_WALL_AT);
    else
        snprintf(why, 64, "vm.mmap_min_addr cannot be read");
    return VB_HOLD_NOT;
}
#endif

int vb_inject_possible(void)
{
#ifdef __x86_64__
    static char why[64];
    if (vb_inject_hold == VB_HOLD_UNKNOWN)
        vb_inject_hold = detect_window_hold(why);
    if (vb_inject_hold != VB_HOLD_NOT)
        return 0;
    return hw_fail(
        -EOPNOTSUPP,
        "RDMA cannot be used, because the stub cannot be protected: mseal() (Linux 6.10) is not available, and %s",
        why);
#else
    return hw_fail(-EOPNOTSUPP, "RDMA requests of applications are supported on x86-64 only");
#endif
}

static void wait_word(_Atomic uint32_t *word, uint32_t value, uint64_t left)
{
    struct timespec t = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

/* Waits until the tracing process has exited, or until the deadline. */
static void wait_end(struct vb_shared *sh, uint64_t deadline)
{
    for (uint64_t now; atomic_load(&sh->busy) && (now = hw_now()) < deadline;)
        wait_word(&sh->busy, 1, deadline - now);
}

/* Waits until the state is no longer VB_RUN, and returns it. After the deadline, cancels the injection and returns
 * VB_CANCELLED. */
static uint32_t wait_tracer(struct vb_shared *sh, uint64_t deadline)
{
    for (;;) {
        uint32_t state = atomic_load(&sh->state);
        if (state != VB_RUN)
            return state;
        uint64_t now = hw_now();
        if (now >= deadline) {
            if (atomic_compare_exchange_strong(&sh->state, &state, VB_CANCELLED))
                return VB_CANCELLED;
            continue;
        }
        wait_word(&sh->state, VB_RUN, deadline - now);
    }
}

/* Finds the process of the thread that waits in n. */
static int find_caller_process(struct vb_tracer *t, struct vb_stub *s, int listener, const struct seccomp_notif *n)
{
    const struct vb_lookup q = {.kind = VB_LOOKUP_PROCESS, .tid = (pid_t)n->pid};
    struct vb_found f;
    int rc = vb_tracer_ask(t, &q, -1, &f, &s->pidfd);
    s->tgid = f.tgid;
    if (rc == 0 && vb_notify_valid(listener, n->id))
        return 0;
    hw_close(&s->pidfd);
    return rc ? rc : hw_fail(-ESRCH, "thread %u has ended", n->pid);
}

/* Accepts a stub in state VB_READY, which is verified and stopped. */
static int accept_ready_stub(struct vb_tracer *t, struct vb_stub *s, struct vb_shared *sh)
{
    s->tid = sh->stub;
    s->window = sh->window;
    const struct vb_lookup q = {.kind = VB_LOOKUP_THREAD, .tgid = s->tgid, .tid = s->tid};
    struct vb_found f;
    int rc = vb_tracer_ask(t, &q, -1, &f, &s->thread); /* the number of a tracee cannot be reused */
    s->thread_folder = f.folder;
    if (rc) {
        vb_shared_set(&sh->state, VB_CANCELLED);
        return rc;
    }
    vb_shared_set(&sh->state, VB_GO);
    return 0;
}

/* Orders an injection and waits for it to complete. Sets *told to true if the caller must not answer the thread's
 * call. */
static int order_stub_injection(struct vb_tracer *t, struct vb_stub *s, int listener, const struct seccomp_notif *n,
                                const struct vb_window *w, bool *told)
{
    struct vb_shared *sh;
    uint64_t deadline = hw_deadline(VB_INJECT_MS);
    int rc = vb_tracer_order(t, listener, n, w, &sh);
    if (rc)
        return rc;
    *told = true;
    uint32_t state = wait_tracer(sh, deadline);
    if (state == VB_READY) {
        rc = accept_ready_stub(t, s, sh);
    } else if (state == VB_FAILED) {
        rc = hw_fail_copy(sh->rc, sh->text);
    } else {
        /* If the thread is still waiting, it gets the error now. Otherwise, the tracer reports the error to the thread
         * later. */
        vb_notify_answer(listener, n->id, 0, -ETIMEDOUT);
        rc = hw_fail(-ETIMEDOUT, "no stub could be injected into the process of thread %u within %d s", n->pid,
                     VB_INJECT_MS / 1000);
    }
    wait_end(sh, HW_MAX(deadline, hw_now() + (rc == -ETIMEDOUT ? 0 : 100 * HW_MS)));
    return rc;
}

bool vb_inject_waits(const struct vb_tracer *t)
{
    return t->shared && !t->spare && !t->no_spare && vb_inject_possible() == 0;
}

void vb_inject_idle(struct vb_tracer *t)
{
    if (!vb_inject_waits(t))
        return;
    t->spare = malloc(sizeof(*t->spare));
    if (t->spare && vb_window_make(t, t->spare)) { /* the next injection will report the reason */
        free(t->spare);
        t->spare = NULL;
        t->no_spare = true;
    }
}

static int get_stub_window(struct vb_tracer *t, struct vb_window *w)
{
    t->no_spare = false;
    if (!t->spare)
        return vb_window_make(t, w);
    *w = *t->spare;
    free(t->spare);
    t->spare = NULL;
    return 0;
}

static int make_stub(struct vb_tracer *t, struct vb_stub *s, int listener, const struct seccomp_notif *n,
                     struct vb_window *w, bool *told)
{
    int rc = vb_inject_possible();
    if (rc)
        return rc;
    if (n->data.arch != AUDIT_ARCH_X86_64 || n->data.nr != SYS_ioctl)
        return hw_fail(-EOPNOTSUPP, "thread %u makes a request with a system call of another architecture", n->pid);
    if ((rc = find_caller_process(t, s, listener, n)) || (rc = get_stub_window(t, w)))
        return rc;
    s->mine = w->mine;
    rc = order_stub_injection(t, s, listener, n, w, told);
    if (rc)
        return rc;
    s->file = w->fixed;
    w->fixed = -1;
    return 0;
}

int vb_inject(struct vb_tracer *t, struct vb_stub *s, int listener, const struct seccomp_notif *n)
{
    *s = (struct vb_stub){.pidfd = -1, .thread = -1, .file = -1};
    struct vb_window w = {.fixed = -1, .results = -1};
    bool told = false;
    int rc = make_stub(t, s, listener, n, &w, &told);
    if (rc) {
        HW_KEEP_ERROR();
        if (!told)
            vb_notify_answer(listener, n->id, 0, rc);
        vb_stub_end(s, listener);
    }
    vb_window_close(&w);
    return rc;
}
