/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stub: a thread of ours in the application's address space that runs the requests which pin memory. It runs only
 * code that the application cannot change, on requests that it cannot change: pages of a memfd sealed against the
 * application's writes, mapped where no mapping can be changed. The stub has its own, empty descriptor table, and
 * blocks all signals.
 *
 * Protection of the mapping: mseal() (Linux 6.10), at any address. On older kernels a wall: the window is at
 * VB_WALL_AT, and the application's filter (filter.c) refuses every call that could map, unmap or protect anything
 * there, from any thread and from the start. The stub is injected with the filter suspended. A wall is only as good as
 * its list of calls, while the kernel enforces a seal; so mseal() is used where it exists.
 *
 * Communication: the stub's loop is ioctl(VB_STUB_FD, RDMA_VERBS_IOCTL, window). The container's seccomp filter
 * notifies the broker, which leaves the call waiting (parked). For a request the broker writes the window through its
 * own mapping, puts the device at VB_STUB_FD (SECCOMP_IOCTL_NOTIF_ADDFD) and lets the call continue
 * (SECCOMP_USER_NOTIF_FLAG_CONTINUE): none of its arguments is in memory, and its registers are its own. The result
 * arrives as the sixth argument of its next call.
 *
 * The stub also copies the results of every request to the application: the broker writes no memory of the application.
 * Each copy is a pread() of the window's file, so a bad address gives EFAULT, memory that the application may not write
 * stays unchanged, and a page that takes long to arrive delays only the stub.
 */
#ifndef HW_VERBS_INJECT_H
#define HW_VERBS_INJECT_H

#include "base/base.h"

#include <linux/seccomp.h>
#include <sys/types.h>

#define VB_STUB_FD      100
#define VB_STUB_FILE    99     /* the window's file in the stub's table, for reading results */
#define VB_WINDOW_SIZE  0x8000 /* code, requests (read-only), results (writable) */
#define VB_WINDOW_CODE  4096
#define VB_WINDOW_SPLIT 0x4000 /* the application can write from here on */
/* Results to copy are in the window's file after the mapped part: the application cannot write them. */
#define VB_REPLY_AT   VB_WINDOW_SPLIT
#define VB_REPLY_SIZE 0x12000
#define VB_MINE_SIZE  (VB_WINDOW_SIZE + VB_REPLY_SIZE) /* the broker's mapping: the window, then results */
/* The list of copies is in the page of the code. */
#define VB_COPIES_AT  0x400
#define VB_COPIES_MAX 128
/* The wall surrounds the lowest addresses that a program may map (vm.mmap_min_addr is 65536 or less): for mappings that
 * begin below the window the filter would have to compute their end, and it cannot add. */
#define VB_WALL_AT  0x10000ull
#define VB_WALL_END 0x20000ull
/* A request's header is always here, because the stub's registers are set in advance: 24 bytes, this many attributes of
 * 16 bytes, and the first 4 bytes of the attribute across the split (request.h). */
#define VB_WINDOW_INPUTS 24
#define VB_WINDOW_HEADER (VB_WINDOW_SPLIT - 4 - 16 * VB_WINDOW_INPUTS - 24)

struct vb_lookup;
struct vb_lookups;
struct vb_found;
/* The process from which stubs are injected into applications (tracer.c), and which resolves paths (lookup.h): started
 * before the caller has a filter of system calls; it ends with the caller. */
struct vb_tracer {
    int sock; /* -1: none */
    pid_t pid;
    uint32_t serial;          /* of questions */
    struct vb_shared *shared; /* with it */
    struct vb_window *spare;  /* the next stub's, or NULL */
    bool no_spare;            /* making it failed */
};
/* Starts the process, which sends no SIGCHLD, and which waitpid() without __WALL does not see. l: for lookups of
 * devices; NULL: none are made. uid: user to run as; 0: the caller's. */
int vb_tracer_start(struct vb_tracer *t, const struct vb_lookups *l, uid_t uid);
void vb_tracer_end(struct vb_tracer *t);
/* Sends a query: returns f->rc, with hw_error(). *fd: a descriptor from the answer, which the caller owns; or -1.
 * given: a descriptor to send with the query; or -1. -ETIMEDOUT: no answer within VB_INJECT_MS, which a path of the
 * application can cause (a file system of its own), and which delays only that container; -EIO: the process has
 * ended. */
int vb_tracer_ask(struct vb_tracer *t, const struct vb_lookup *q, int given, struct vb_found *f, int *fd);

struct vb_stub {
    pid_t tid, tgid; /* in the broker's namespace; tgid: its process */
    int pidfd;       /* tgid's */
    uint64_t window; /* address in the application: code there, requests at VB_WINDOW_CODE after it */
    uint8_t *mine;   /* the same pages here, all writable: VB_MINE_SIZE */
    int file;        /* of the window, until the stub has it at VB_STUB_FILE; -1 */
    uint64_t parked; /* its waiting notification; 0: it runs */
    bool dead;
    /* A pidfd of the stub itself, or its folder in /proc (thread_folder): tid is its number as long as that lives, and
     * may be reused afterwards. */
    int thread;
    bool thread_folder;
    uint64_t seq; /* number of its last parked call */
};

/* Checks the requirements. 0, or -EOPNOTSUPP with the reason (neither mseal() nor a wall; another architecture). */
int vb_inject_possible(void);
/* Prepares the next vb_inject() if needed: for idle moments. */
void vb_inject_idle(struct vb_tracer *t);
bool vb_inject_waits(const struct vb_tracer *t); /* returns true if there is something to prepare */
/* Injects a stub into the address space of the thread that waits in notification n on listener. Only that thread is
 * stopped; it makes the system calls for the injection, and then repeats its own call, as a new notification: n is
 * answered in any case. Other threads can spoil the injection, which is detected, but cannot exploit it: everything is
 * verified after it is sealed. 0: the stub's first notification will come. Otherwise n's thread has got -rc: -EPERM: it
 * is being traced; -ESRCH: it has died; -EPROTO: the mappings are not the requested ones; -EOPNOTSUPP; -EEXIST:
 * something is mapped at the walled window's address; -ETIMEDOUT: it did not stop, or the injection took longer than 10
 * s; -EAGAIN: a signal interrupted its call, which it repeats if it still wants it; -EIO: the tracer has ended, for
 * good; or the errno of the failed call there (-ENOMEM, -EAGAIN of clone()). */
int vb_inject(struct vb_tracer *t, struct vb_stub *s, int listener, const struct seccomp_notif *n);
/* Returns true if thread tid shares s's memory. */
bool vb_stub_serves(const struct vb_stub *s, pid_t tid);
/* Parks a notification of the stub (n->pid == s->tid). 1: *result is the result of its previous work (0 at its first
 * call, before which it did nothing), unless a filter added by the application answered the stub's call: *result is a
 * register of the application and cannot be trusted. 2: calls are missing, which such a filter has answered: the stub's
 * work is unknown. 0: the same call as before, interrupted by a stop of the process: the order was not carried out, so
 * repeat it. -EPROTO: not the stub's call; -ESRCH: tid was reused (s is dead): refuse it. */
int vb_stub_park(struct vb_stub *s, const struct seccomp_notif *n, int64_t *result);
/* Returns true for a call in the form that stubs make. If it belongs to no known stub, a stop of its process has
 * interrupted the end of a stub (VB_STUB_QUIT): repeat that. A program that makes such a call gets that number. */
bool vb_stub_is_left(const struct seccomp_notif *n);
/* Copies n bytes of the window's file at `from` (VB_REPLY_AT or above) to address `to` of the application. */
struct vb_copy {
    uint64_t to, n, from;
};
/* Makes the stub do the first n copies of the list at s->mine + VB_COPIES_AT (struct vb_copy), up to the first failure:
 * its next result is 0, or 1 after a failure. -ENOENT, -EBADF: as vb_stub_run(). */
int vb_stub_copy(struct vb_stub *s, int listener, unsigned n);
/* Makes the stub run the request in its window on `device` (a descriptor here). -ENOENT: its call was interrupted and
 * will be repeated; or it has died (s->dead). -EBADF: the application's descriptor limit is below VB_STUB_FD. */
int vb_stub_run(struct vb_stub *s, int listener, int device);
/* Makes the stub drop all capabilities: its next call reports the attempt. A stub has the capabilities of the thread it
 * was cloned from, and a program may drop its own later. -ENOENT: as vb_stub_run(). */
int vb_stub_drop(struct vb_stub *s, int listener);
/* Returns 1: the stub may lock memory beyond its process's limit (CAP_IPC_LOCK), and thread tid may not; tid 0: the
 * stub may. 0: no; -errno: unknown. */
int vb_stub_locks(struct vb_tracer *t, const struct vb_stub *s, pid_t tid);
/* Removes the device from the stub's table, after the result, while the stub is parked. Close `device` here only
 * afterwards: if the stub's reference is the last, the close takes effect when the stub runs next. */
int vb_stub_clear(struct vb_stub *s, int listener);
/* Returns true once the stub has ended. Its end, or its process's, makes vb_stub_watch() readable. */
bool vb_stub_gone(const struct vb_stub *s);
int vb_stub_watch(const struct vb_stub *s);
/* Returns true if the stub is the only thread left of its process, which it would keep alive. */
bool vb_stub_alone(struct vb_tracer *t, const struct vb_stub *s);
/* Ends the stub (answers its parked call with VB_STUB_QUIT) and frees s. If the stub is running, answer its next call
 * with vb_notify_answer(listener, id, VB_STUB_QUIT, 0). It also ends when the broker does (ENOSYS, twice). */
#define VB_STUB_QUIT 0x40000000
#define VB_STUB_COPY 0x40000100 /* plus the number of copies, up to VB_COPIES_MAX */
#define VB_STUB_DROP 0x40000200
void vb_stub_end(struct vb_stub *s, int listener);

#endif
