/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by inject.c, tracer.c, trace.c, stub.c and their tests. */
#ifndef HW_VERBS_INJECT_INT_H
#define HW_VERBS_INJECT_INT_H

#include "verbs/stub/inject.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/types.h>

/* The stub: position-independent, without a stack, at the window's first byte. */
extern const uint8_t vb_stub_code[], vb_stub_after[], vb_stub_end_of_code[];
/* Offset of the instruction after its `syscall`: its calls come from there. */
#define VB_STUB_AFTER ((uint64_t)(vb_stub_after - vb_stub_code))

/* Numbers of Linux 6.10, include/uapi/asm-generic/unistd.h; Debian 12 has headers of 6.1. */
#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* A window consists of two memfds: the part that only we may write is sealed against every new writable mapping, but
 * the results' part must be mapped writable. */
struct vb_window {
    uint8_t *mine;      /* VB_WINDOW_SIZE, all writable */
    int fixed, results; /* descriptors for the application; fixed is read-only */
    dev_t dev;
    ino_t fixed_ino, results_ino;
};
int vb_window_make(struct vb_tracer *t, struct vb_window *w);
/* How a window is protected. Tests set VB_HOLD_WALL before the first query, on kernels that could seal. */
enum vb_hold { VB_HOLD_UNKNOWN, VB_HOLD_SEAL, VB_HOLD_WALL, VB_HOLD_NOT };
extern enum vb_hold vb_inject_hold;
void vb_window_close(struct vb_window *w); /* closes the descriptors; mine stays */
void vb_window_drop(struct vb_window *w);  /* mine, too */
/* Verifies the sealed mapping at `window` in the thread's process: -EPROTO if it is another one. flags: also verify the
 * seal ("sl" in smaps, with mseal() in Linux 6.10). */
int vb_window_verify(const struct vb_window *w, pid_t tid, uint64_t window, bool flags);

/* Thread and tracer wait for each other about fifty times, which takes seconds if twenty other threads are runnable.
 * The broker waits meanwhile, and with it every request of the container. */
#define VB_INJECT_MS 10000

/* Memory shared by broker and tracer. */
/* at a time: one that is being waited for, and those whose thread does not stop, which are cleaned up later */
#define VB_ORDERS 16
enum {
    VB_RUN,       /* the tracer works on it, or will */
    VB_READY,     /* set by the tracer: the stub is there, verified, and stopped */
    VB_GO,        /* set by the broker: release it */
    VB_FAILED,    /* set by the tracer: undone, and the thread has its error */
    VB_CANCELLED, /* set by the broker: undo everything */
};
struct vb_shared {
    _Atomic uint32_t state; /* a futex */
    _Atomic uint32_t busy;  /* a futex, set until the tracing process has ended */
    int rc;
    char text[HW_ERR_TEXT];
    pid_t stub;
    uint64_t window;
};
void vb_shared_set(_Atomic uint32_t *word, uint32_t value); /* sets the word and wakes its waiters */
/* Starts tracing of the thread that waits in n: *out shows the progress, and belongs to the tracer until it is not
 * busy. -EAGAIN: too many have not ended; -EIO: the tracer has ended. */
int vb_tracer_order(struct vb_tracer *t, int listener, const struct seccomp_notif *n, const struct vb_window *w,
                    struct vb_shared **out);
/* The tracing process, a child of parent. wall: the window is protected by one. */
_Noreturn void vb_trace(struct vb_shared *sh, const struct vb_window *w, int listener, const struct seccomp_notif *n,
                        bool wall, pid_t parent);

/* For tests: called in the tracing process before each step. */
enum vb_step {
    VB_STEP_SEIZE,
    VB_STEP_GIVE,
    VB_STEP_STOP,
    VB_STEP_MMAP, /* before each of three calls */
    VB_STEP_MADVISE,
    VB_STEP_CLONE,
    VB_STEP_MSEAL, /* not with a wall */
    VB_STEP_VERIFY,
    VB_STEP_TABLE, /* the stub's descriptors */
    VB_STEP_CLOSE,
    VB_STEP_READY, /* all is verified */
    VB_STEP_LEAVE, /* before both are released */
    VB_STEPS
};
extern void (*vb_inject_hook)(enum vb_step step, pid_t tid, uint64_t window);

#endif
