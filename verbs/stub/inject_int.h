/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that inject.c, tracer.c, trace.c, stub.c and their tests share. */
#ifndef HW_VERBS_INJECT_INT_H
#define HW_VERBS_INJECT_INT_H

#include "verbs/stub/inject.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/types.h>

/* The stub's code, which is position-independent, uses no stack and begins at the window's first byte. */
extern const uint8_t vb_stub_code[], vb_stub_after[], vb_stub_end_of_code[];
/* Offset of the instruction after the `syscall` of the stub's ioctl(). Notifications contain its address. */
#define VB_STUB_AFTER ((uint64_t)(vb_stub_after - vb_stub_code))

/* From include/uapi/asm-generic/unistd.h of Linux 6.10. Debian 12 has the headers of Linux 6.1. */
#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* A window consists of two memfds. The part that only the broker may write to is sealed against new writable mappings.
 * The part for results must be mapped writable. */
struct vb_window {
    uint8_t *mine;      /* the broker's mapping of VB_MINE_SIZE bytes, all writable */
    int fixed, results; /* descriptors for the application; fixed is read-only */
    dev_t dev;
    ino_t fixed_ino, results_ino;
};
int vb_window_make(struct vb_tracer *t, struct vb_window *w);
/* How a window is protected: by mseal(), by the application's filter, or not at all. Tests set VB_HOLD_WALL before the
 * first call of vb_inject_possible(), on kernels that have mseal(). */
enum vb_hold { VB_HOLD_UNKNOWN, VB_HOLD_SEAL, VB_HOLD_WALL, VB_HOLD_NOT };
extern enum vb_hold vb_inject_hold;
void vb_window_close(struct vb_window *w); /* closes the descriptors but keeps the mapping */
void vb_window_drop(struct vb_window *w);  /* closes the descriptors and removes the mapping */
/* Verifies that the mappings at `window` in the thread's process are the parts of w. Fails with -EPROTO if they are
 * not, or with another -errno. If flags is true, also verifies that they are sealed by mseal() ("sl" in smaps). */
int vb_window_verify(const struct vb_window *w, pid_t tid, uint64_t window, bool flags);

/* Time limit of an injection, and of a query to the tracer, in ms. During an injection, the thread and the tracer wait
 * for each other about fifty times, which takes seconds if twenty other threads are runnable. The broker and all
 * requests of the container wait during this time. */
#define VB_INJECT_MS 10000

/* Maximum number of injections at a time: the injection that the broker waits for, and injections whose thread does not
 * stop, which are cleaned up later. */
#define VB_ORDERS 16
enum {
    VB_RUN,       /* the tracer is working on the injection, or is about to start */
    VB_READY,     /* set by the tracer: the stub exists, is verified and is stopped */
    VB_GO,        /* set by the broker: the stub must be released */
    VB_FAILED,    /* set by the tracer: the injection was undone; the thread gets the error or repeats its call */
    VB_CANCELLED, /* set by the broker: the injection must be undone */
};
/* State of an injection, in memory that the broker and the tracer share. */
struct vb_shared {
    _Atomic uint32_t state; /* one of the values above; a futex */
    _Atomic uint32_t busy;  /* 1 until the tracing process has exited; a futex */
    int rc;
    char text[HW_ERR_TEXT];
    pid_t stub;
    uint64_t window;
};
void vb_shared_set(_Atomic uint32_t *word, uint32_t value); /* sets the futex and wakes its waiters */
/* Makes the tracer begin the injection into the thread that waits in n. *out shows the progress, and belongs to the
 * tracer while (*out)->busy is 1. Fails with -EAGAIN if too many injections are in progress, with -EIO if the tracer
 * has exited, or with another -errno. */
int vb_tracer_order(struct vb_tracer *t, int listener, const struct seccomp_notif *n, const struct vb_window *w,
                    struct vb_shared **out);
/* Runs the tracing process, a child of parent. wall is true if the window is protected by the application's filter. */
_Noreturn void vb_trace(struct vb_shared *sh, const struct vb_window *w, int listener, const struct seccomp_notif *n,
                        bool wall, pid_t parent);

/* Steps of the tracing process. Tests can set a hook that is called before each step. */
enum vb_step {
    VB_STEP_SEIZE,
    VB_STEP_GIVE,
    VB_STEP_STOP,
    VB_STEP_MMAP, /* before each of three mmap() calls */
    VB_STEP_MADVISE,
    VB_STEP_CLONE,
    VB_STEP_MSEAL, /* only if the window is protected by mseal() */
    VB_STEP_VERIFY,
    VB_STEP_TABLE, /* makes the stub's descriptor table */
    VB_STEP_CLOSE,
    VB_STEP_READY, /* everything is verified */
    VB_STEP_LEAVE, /* releases the stub and the thread */
    VB_STEPS
};
extern void (*vb_inject_hook)(enum vb_step step, pid_t tid, uint64_t window);

#endif
