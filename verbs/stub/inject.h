/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stub is a thread in the application's process that works for the broker. It runs the requests that access the
 * application's memory.
 * The application can change neither the code of the stub nor the requests, because both are in pages of a memfd that
 * is sealed against writes, and the mapping of these pages is protected. This memory is called the window. The stub has
 * a separate descriptor table, which is empty at first, and blocks all signals.
 *
 * Protection of the mapping: mseal() protects a window at any address (since Linux 6.10). On older kernels the window
 * is at VB_WALL_AT, and the application's seccomp filter (filter.c) refuses calls that could unmap or replace memory
 * there or change its protection, from the start and for all threads. The filter is suspended for the application's
 * thread while this thread makes the calls of the injection. mseal() is preferred, because the kernel enforces it,
 * while the filter protects only against the calls in its list.
 *
 * Communication: the stub calls ioctl(VB_STUB_FD, RDMA_VERBS_IOCTL, window + VB_WINDOW_HEADER) in a loop. The
 * container's seccomp filter notifies the broker. The broker does not answer at once, so the call blocks. Such a call
 * is called parked. To run a request, the broker writes it to the window through the broker's mapping, installs the
 * device at VB_STUB_FD (SECCOMP_IOCTL_NOTIF_ADDFD) and lets the kernel execute the call
 * (SECCOMP_USER_NOTIF_FLAG_CONTINUE). This is safe, because all arguments are in registers of the stub. The result
 * arrives as the sixth argument of the stub's next call.
 *
 * The stub also copies the results of all requests to the application, so that the broker never writes to the
 * application's memory. Each copy is a pread() of the window's file. A bad address therefore results in EFAULT, memory
 * that the application cannot write to stays unchanged, and a slow page delays only the stub.
 */
#ifndef HW_VERBS_INJECT_H
#define HW_VERBS_INJECT_H

#include "base/base.h"

#include <linux/seccomp.h>
#include <sys/types.h>

#define VB_STUB_FD      100
#define VB_STUB_FILE    99     /* descriptor of the window's file in the stub's table, to read results */
#define VB_WINDOW_SIZE  0x8000 /* bytes: code, requests (read-only) and results (writable) */
#define VB_WINDOW_CODE  4096
#define VB_WINDOW_SPLIT 0x4000 /* offset of the results, which the application can write to */
/* Results to copy are in the window's file after the part that is mapped in the application, so the application cannot
 * write to them. */
#define VB_REPLY_AT   VB_WINDOW_SPLIT
#define VB_REPLY_SIZE 0x12000
#define VB_MINE_SIZE  (VB_WINDOW_SIZE + VB_REPLY_SIZE) /* the broker's mapping: window and results to copy */
/* The list of copies is in the same page as the code. */
#define VB_COPIES_AT  0x400
#define VB_COPIES_MAX 128
/* Address of the window on kernels without mseal(), and end of the addresses that the filter protects. The window is at
 * a low address (vm.mmap_min_addr must be 65536 or less), so that the filter can protect all addresses below it too.
 * Mappings that begin below the window could extend into it, and a filter cannot compute the end of a mapping. */
#define VB_WALL_AT  0x10000ull
#define VB_WALL_END 0x20000ull
/* Offset of a request's header, which is constant, because the stub's registers are set in advance. The space from this
 * offset to VB_WINDOW_SPLIT holds the 24 bytes of the header, VB_WINDOW_INPUTS attributes of 16 bytes, and the first 4
 * bytes of the attribute that extends across the split (request.h). */
#define VB_WINDOW_INPUTS 24
#define VB_WINDOW_HEADER (VB_WINDOW_SPLIT - 4 - 16 * VB_WINDOW_INPUTS - 24)

struct vb_lookup;
struct vb_lookups;
struct vb_found;
/* The process that injects stubs into applications (tracer.c) and resolves paths (lookup.h). It must be started before
 * the caller installs a seccomp filter, and exits when the caller exits. */
struct vb_tracer {
    int sock; /* socket to the process, or -1 */
    pid_t pid;
    uint32_t serial;          /* number of the last query */
    struct vb_shared *shared; /* memory that both processes share */
    struct vb_window *spare;  /* window for the next stub, or NULL */
    bool no_spare;            /* the creation of a spare window has failed */
};
/* Starts the tracer. When the tracer exits, the caller gets no SIGCHLD, and waitpid() without __WALL ignores the
 * tracer. l is needed for lookups of devices and may otherwise be NULL. uid is the user to run as, or 0 for the
 * caller's user. */
int vb_tracer_start(struct vb_tracer *t, const struct vb_lookups *l, uid_t uid);
void vb_tracer_end(struct vb_tracer *t);
/* Sends a query and waits for the answer. Returns f->rc, and sets hw_error() if it is an error. given is a descriptor
 * to send with the query, or -1. *fd is set to the descriptor in the answer, which the caller owns, or -1.
 *
 * Fails with -ETIMEDOUT if there is no answer within VB_INJECT_MS. An application can cause this with a path on a file
 * system that it serves, which delays only its container. Fails with -EIO if the process has exited, or with another
 * -errno if the query cannot be sent. */
int vb_tracer_ask(struct vb_tracer *t, const struct vb_lookup *q, int given, struct vb_found *f, int *fd);

struct vb_stub {
    pid_t tid, tgid; /* the stub's thread and process, in the broker's PID namespace */
    int pidfd;       /* pidfd of tgid */
    uint64_t window; /* address of the window in the application; code is at this address, requests at offset
                        VB_WINDOW_CODE */
    uint8_t *mine;   /* the broker's mapping of VB_MINE_SIZE bytes, all writable */
    int file;        /* the window's file, or -1 once it is installed in the stub at VB_STUB_FILE */
    uint64_t parked; /* id of the parked call's notification, or 0 if the stub is running */
    bool dead;
    /* A pidfd of the stub or, if thread_folder is true, its folder in /proc. After the stub has exited, tid may be
     * reused. */
    int thread;
    bool thread_folder;
    uint64_t seq; /* number of the last parked call */
};

/* Checks whether stubs can be injected. Returns 0, or -EOPNOTSUPP if the kernel cannot protect a window or the
 * architecture is not supported. */
int vb_inject_possible(void);
/* Prepares a window for the next vb_inject() if there is none. Call it when the broker is idle. */
void vb_inject_idle(struct vb_tracer *t);
bool vb_inject_waits(const struct vb_tracer *t); /* returns true if a window must be prepared */
/* Injects a stub into the address space of the thread that waits in notification n on listener. Only this thread is
 * stopped. It makes the system calls for the injection and then repeats its call, which causes a new notification. n is
 * answered in any case. Other threads can make the injection fail but cannot gain control of the stub, because
 * everything is verified after the window is protected.
 *
 * Returns 0 if the stub is running; its first notification will follow. Otherwise the thread's call has failed with the
 * returned error:
 * - EPERM: The thread cannot be traced, for example because another program is tracing it.
 * - ESRCH: The thread has died.
 * - EPROTO: The mappings are not as requested, or the thread did not make the injected calls.
 * - EOPNOTSUPP: Stubs cannot be injected into this program or on this kernel.
 * - EEXIST: Something is mapped at VB_WALL_AT.
 * - ETIMEDOUT: The thread did not stop, or the injection took longer than 10 s.
 * - EAGAIN: A signal interrupted the thread's call, which the thread may repeat, or VB_ORDERS injections are in
 *   progress.
 * - EIO: The tracer has exited. It is not restarted.
 * - Other errors, for example from the injected system calls, such as ENOMEM, or EAGAIN from clone(). */
int vb_inject(struct vb_tracer *t, struct vb_stub *s, int listener, const struct seccomp_notif *n);
/* Returns true if the stub has not exited and thread tid has the same address space. */
bool vb_stub_serves(const struct vb_stub *s, pid_t tid);
/* Parks a call of the stub (n->pid == s->tid). Returns:
 * - 1 if *result is the result of the stub's previous work (0 at its first call). *result is read from a register and
 *   cannot be trusted, because a filter of the application may have answered the stub's call.
 * - 2 if calls are missing, because a filter of the application has answered them. The result of the work is then
 *   unknown.
 * - 0 if this is the same call as before. A stop of the process interrupted the call before the stub received its
 *   order, so the order must be repeated.
 * - -EPROTO if the call is not one that the stub makes. The call must be refused.
 * - -ESRCH if the stub has died. The call is then from another thread with the same number. */
int vb_stub_park(struct vb_stub *s, const struct seccomp_notif *n, int64_t *result);
/* Returns true if a call has the same form as the calls of stubs. If the thread is not a known stub, a stop of the
 * process has interrupted a stub that was about to exit, and the call must be answered with VB_STUB_QUIT again. A
 * program that imitates such a call gets this value too. */
bool vb_stub_is_left(const struct seccomp_notif *n);
/* A copy of n bytes from offset `from` (at least VB_REPLY_AT) in the window's file to address `to` in the
 * application. */
struct vb_copy {
    uint64_t to, n, from;
};
/* Makes the stub perform the first n copies in the list at s->mine + VB_COPIES_AT (struct vb_copy). The stub stops at
 * the first failure. The next result of the stub is 0, or 1 after a failure. Fails with -ENOENT and -EBADF like
 * vb_stub_run(). */
int vb_stub_copy(struct vb_stub *s, int listener, unsigned n);
/* Makes the stub run the request in its window on `device`, a descriptor of the broker. Fails with -ENOENT if the
 * stub's call was interrupted and will be repeated, or if the stub has died (s->dead). Fails with -EBADF if the
 * application's limit of open files is too low for VB_STUB_FD. */
int vb_stub_run(struct vb_stub *s, int listener, int device);
/* Makes the stub drop all capabilities. The stub's next call shows only that the stub has tried to do so. A stub has
 * the capabilities of the thread from which it was cloned, and that thread may drop capabilities later. Fails with
 * -ENOENT like vb_stub_run(). */
int vb_stub_drop(struct vb_stub *s, int listener);
/* Checks whether the stub may lock memory without limit (CAP_IPC_LOCK) although thread tid may not. If tid is 0, checks
 * only the stub. Returns 1 if so, 0 if not, or -errno if the capabilities cannot be read. */
int vb_stub_locks(struct vb_tracer *t, const struct vb_stub *s, pid_t tid);
/* Removes the device from the stub's table, while the stub is parked. The caller must not close its own descriptor of
 * the device before this call. If the stub's reference is the last reference, the device is closed only when the stub
 * runs again. */
int vb_stub_clear(struct vb_stub *s, int listener);
/* Returns true if the stub has exited. */
bool vb_stub_gone(const struct vb_stub *s);
/* Returns a descriptor that becomes readable when the stub exits or, if thread_folder is true, when its process
 * exits. */
int vb_stub_watch(const struct vb_stub *s);
/* Returns true if the stub is the last thread of its process, and so keeps the process alive. */
bool vb_stub_alone(struct vb_tracer *t, const struct vb_stub *s);
/* Ends the stub by answering its parked call with VB_STUB_QUIT, and releases the resources of s. If the stub is
 * running, the caller must answer its next call with vb_notify_answer(listener, id, VB_STUB_QUIT, 0). The stub also
 * exits after the broker has exited, because two consecutive calls then fail with ENOSYS. */
#define VB_STUB_QUIT 0x40000000
#define VB_STUB_COPY 0x40000100 /* plus the number of copies, up to VB_COPIES_MAX */
#define VB_STUB_DROP 0x40000200
void vb_stub_end(struct vb_stub *s, int listener);

#endif
