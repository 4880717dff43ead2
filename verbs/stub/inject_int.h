/* SPDX-License-Identifier: Apache-2.0 */
/* Between inject.c, tracer.c, trace.c, stub.c and their tests. */
#ifndef HW_VERBS_INJECT_INT_H
#define HW_VERBS_INJECT_INT_H

#include "verbs/stub/inject.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/types.h>

/* The stub: position-independent, without a stack. It begins at the window's first byte. */
extern const uint8_t vb_stub_code[], vb_stub_after[], vb_stub_end_of_code[];
/* Offset of the instruction behind its `syscall`: where its calls come from. */
#define VB_STUB_AFTER ((uint64_t)(vb_stub_after - vb_stub_code))

/* Numbers of Linux 6.10, include/uapi/asm-generic/unistd.h; Debian 12's headers are of 6.1. */
#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* What a window is made of: two memfds, since what nobody else may write is sealed against every new mapping that can
 * be written, which the results' must be. */
struct vb_window {
    uint8_t *mine;      /* VB_WINDOW_SIZE, all writable */
    int fixed, results; /* descriptors for the application; fixed is read-only */
    dev_t dev;
    ino_t fixed_ino, results_ino;
};
int vb_window_make(struct vb_tracer *t, struct vb_window *w);
/* How a window is held. Tests set VB_HOLD_WALL before the first question, where the kernel could do better. */
enum vb_hold { VB_HOLD_UNKNOWN, VB_HOLD_SEAL, VB_HOLD_WALL, VB_HOLD_NOT };
extern enum vb_hold vb_inject_hold;
void vb_window_close(struct vb_window *w); /* the descriptors; mine stays */
void vb_window_drop(struct vb_window *w);  /* mine, too */
/* What is mapped at `window` of the thread's process, sealed, so that nothing can change it: -EPROTO if it is another.
 * flags: that it is sealed is looked at, too ("sl" in smaps, with mseal() in Linux 6.10). */
int vb_window_verify(const struct vb_window *w, pid_t tid, uint64_t window, bool flags);

/* Thread and tracer wait for each other some fifty times, which takes seconds where twenty others are ready to run. The
 * broker waits meanwhile, and with it whoever asks for something in the container. */
#define VB_INJECT_MS 10000

/* Between broker and tracer, in memory that both have. */
#define VB_ORDERS 16 /* at once: one that is waited for, and those whose thread does not stop, to be put right then */
enum {
    VB_RUN,       /* the tracer is at it, or will be */
    VB_READY,     /* the tracer: the stub is there, verified, and stopped */
    VB_GO,        /* the broker: let it go */
    VB_FAILED,    /* the tracer: undone, and the thread told */
    VB_CANCELLED, /* the broker: undo all */
};
struct vb_shared {
    _Atomic uint32_t state; /* a futex */
    _Atomic uint32_t busy;  /* a futex: until the tracing process has ended */
    int rc;
    char text[HW_ERR_TEXT];
    pid_t stub;
    uint64_t window;
};
void vb_shared_set(_Atomic uint32_t *word, uint32_t value); /* and wakes who waits for it */
/* Has the thread that waits in n traced: *out tells how it goes, and is the tracer's until it is not busy. -EAGAIN: too
 * many have not ended; -EIO: there is no tracer any more. */
int vb_tracer_order(struct vb_tracer *t, int listener, const struct seccomp_notif *n, const struct vb_window *w,
                    struct vb_shared **out);
/* The tracing process, parent's child. wall: the window is held by one. */
_Noreturn void vb_trace(struct vb_shared *sh, const struct vb_window *w, int listener, const struct seccomp_notif *n,
                        bool wall, pid_t parent);

/* For tests: called in the tracing process before each step. */
enum vb_step {
    VB_STEP_SEIZE,
    VB_STEP_GIVE,
    VB_STEP_STOP,
    VB_STEP_MMAP, /* before each of three */
    VB_STEP_MADVISE,
    VB_STEP_CLONE,
    VB_STEP_MSEAL, /* not with a wall */
    VB_STEP_VERIFY,
    VB_STEP_TABLE, /* the stub's descriptors */
    VB_STEP_CLOSE,
    VB_STEP_READY, /* all is verified */
    VB_STEP_LEAVE, /* before both are let go */
    VB_STEPS
};
extern void (*vb_inject_hook)(enum vb_step step, pid_t tid, uint64_t window);

#endif
