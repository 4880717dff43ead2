/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread of ours in the application's mm, that runs the requests which pin memory. It runs only code that the
 * application cannot change, on requests that it cannot change: pages of a memfd sealed against its writing, mapped
 * where no mapping can be changed. It has a descriptor table of its own, which is empty, and all signals blocked.
 *
 * What holds the mapping: mseal() (Linux 6.10), at any address. On older kernels, a wall: the window lies at
 * VB_WALL_AT, and the application's filter (filter.c) refuses every call that could map, unmap or protect anything
 * there, from any thread and from the beginning on. The stub is put in with the filter suspended. A wall is as good as
 * its list of calls, a seal is the kernel's; so where there is mseal(), it is used.
 *
 * How it talks: its loop is ioctl(VB_STUB_FD, RDMA_VERBS_IOCTL, window), which the container's seccomp filter hands to
 * the broker, which leaves it waiting (parked). For a request the broker writes the window through a mapping of its
 * own, puts the device at VB_STUB_FD (SECCOMP_IOCTL_NOTIF_ADDFD) and lets the call go on
 * (SECCOMP_USER_NOTIF_FLAG_CONTINUE): none of its arguments is in memory, and registers are its own. The result comes
 * as the sixth argument of its next call.
 *
 * The stub also copies the results of every request to the application: the broker writes no memory of the
 * application's. Each copy is a pread() of the window's file, so that a bad address is an EFAULT, what the application
 * may not write stays as it is, and a page that takes long to come holds up the stub and nobody else.
 */
#ifndef HW_VERBS_INJECT_H
#define HW_VERBS_INJECT_H

#include "base/base.h"

#include <linux/seccomp.h>
#include <sys/types.h>

#define VB_STUB_FD      100
#define VB_STUB_FILE    99     /* the window's file in the stub's table: results are read from it */
#define VB_WINDOW_SIZE  0x8000 /* code, requests (read-only), results (can be written) */
#define VB_WINDOW_CODE  4096
#define VB_WINDOW_SPLIT 0x4000 /* from here on it can be written by the application */
/* Results to be copied lie in the window's file behind what is mapped of it: the application cannot write them. */
#define VB_REPLY_AT   VB_WINDOW_SPLIT
#define VB_REPLY_SIZE 0x12000
#define VB_MINE_SIZE  (VB_WINDOW_SIZE + VB_REPLY_SIZE) /* of the broker's mapping: the window, then results */
/* The list of copies lies in the page of the code. */
#define VB_COPIES_AT  0x400
#define VB_COPIES_MAX 128
/* The wall is round the lowest addresses that a program may map (vm.mmap_min_addr is 65536 or less), since of all that
 * begins below the window the filter would have to know where it ends, and it cannot add. */
#define VB_WALL_AT  0x10000ull
#define VB_WALL_END 0x20000ull
/* A request's header lies here, whatever it has, as the stub's registers are set before anybody knows: 24 bytes, so
 * many attributes of 16, and the first 4 bytes of the one that lies across the split (request.h). */
#define VB_WINDOW_INPUTS 24
#define VB_WINDOW_HEADER (VB_WINDOW_SPLIT - 4 - 16 * VB_WINDOW_INPUTS - 24)

struct vb_lookup;
struct vb_lookups;
struct vb_found;
/* The process that stubs are put into applications from (tracer.c), and that looks up what takes a path (lookup.h):
 * started before the caller has a filter of system calls, and ends with it. */
struct vb_tracer {
    int sock; /* -1: none */
    pid_t pid;
    uint32_t serial;          /* of questions */
    struct vb_shared *shared; /* with it */
    struct vb_window *spare;  /* the next stub's, or NULL */
    bool no_spare;            /* it could not be made */
};
/* Its process sends no SIGCHLD, and waitpid() without __WALL does not see it. l: for what takes devices; NULL: nobody
 * asks for that. uid: whom it runs as; 0: as the caller. */
int vb_tracer_start(struct vb_tracer *t, const struct vb_lookups *l, uid_t uid);
void vb_tracer_end(struct vb_tracer *t);
/* Asks it: f->rc, with hw_error(). *fd: what comes with the answer, the caller's; or -1. given: a descriptor that goes
 * with the question; or -1. -ETIMEDOUT: no answer within VB_INJECT_MS, which a path of the application's can bring
 * about (a file system of its own), and holds up that container alone; -EIO: it has ended. */
int vb_tracer_ask(struct vb_tracer *t, const struct vb_lookup *q, int given, struct vb_found *f, int *fd);

struct vb_stub {
    pid_t tid, tgid; /* of the broker's namespace; tgid of the process it is in */
    int pidfd;       /* tgid's */
    uint64_t window; /* address in the application: code at it, requests VB_WINDOW_CODE behind */
    uint8_t *mine;   /* the same pages here, all writable: VB_MINE_SIZE */
    int file;        /* of the window, until the stub has it at VB_STUB_FILE; -1 */
    uint64_t parked; /* its notification that waits; 0: it runs */
    bool dead;
    /* A pidfd of the stub itself, or its folder in /proc (thread_folder): tid is its number while that lives, and
     * anybody's later. */
    int thread;
    bool thread_folder;
    uint64_t seq; /* of its calls: the last that was parked */
};

/* Is there what it needs? 0, or -EOPNOTSUPP with the reason (neither mseal() nor a wall; another architecture). */
int vb_inject_possible(void);
/* Makes what the next vb_inject() takes, if it is not there: for a moment in which nobody waits. */
void vb_inject_idle(struct vb_tracer *t);
bool vb_inject_waits(const struct vb_tracer *t); /* is there something to make? */
/* Puts a stub into the mm of the thread that waits in notification n on listener. That thread alone is stopped, makes
 * the system calls for it, and then its own call again, as a notification anew: n is answered in any case. What other
 * threads do meanwhile can spoil it, which is seen, but not use it: all is looked at once it is sealed. 0: the stub's
 * first notification is to come. Else n's thread has been told -rc, and: -EPERM somebody traces it; -ESRCH it has died;
 * -EPROTO what is mapped is not what was asked for; -EOPNOTSUPP; -EEXIST something is where the walled window would be;
 * -ETIMEDOUT it did not stop, or what it was made to do took longer than 10 s; -EAGAIN a signal took it out of its
 * call, which comes anew if it still wants it; -EIO the tracer has ended, for good; or the errno of the call that
 * failed there (-ENOMEM, -EAGAIN of clone()). */
int vb_inject(struct vb_tracer *t, struct vb_stub *s, int listener, const struct seccomp_notif *n);
/* True if thread tid shares s's memory. */
bool vb_stub_serves(const struct vb_stub *s, pid_t tid);
/* Takes up a notification of the stub's (n->pid == s->tid): it is parked. 1: *result is of what it did before (0 of its
 * first call, before which it did nothing), unless a filter that the application has added answered the stub's call:
 * *result is a register of the application's, and no more than its word. 2: calls are missing, which such a filter has
 * answered: nothing is known of what the stub did. 0: the same call as before, which a stop of the process had taken
 * back: what it was told has not been done, so tell it again. -EPROTO: not the stub's call, -ESRCH: tid is somebody
 * else's by now (s is dead): refuse it. */
int vb_stub_park(struct vb_stub *s, const struct seccomp_notif *n, int64_t *result);
/* True for a call as stubs make it. Where it is no stub's that the caller knows, it is one whose end (VB_STUB_QUIT) a
 * stop of its process has taken back: tell it again. A program that makes such a call gets that number. */
bool vb_stub_is_left(const struct seccomp_notif *n);
/* n bytes of the window's file at `from` (VB_REPLY_AT and up) go to address `to` of the application. */
struct vb_copy {
    uint64_t to, n, from;
};
/* Has it copy what the first n of the list at s->mine + VB_COPIES_AT (struct vb_copy) say, as far as the first that
 * fails: its next result is 0, or 1 where one has failed. -ENOENT, -EBADF: as vb_stub_run(). */
int vb_stub_copy(struct vb_stub *s, int listener, unsigned n);
/* Lets it run the request that is in its window on `device` (a descriptor here). -ENOENT: its call was taken back, and
 * comes again; or it has died (s->dead). -EBADF: the application's limit of descriptors is below VB_STUB_FD. */
int vb_stub_run(struct vb_stub *s, int listener, int device);
/* Has it give up all capabilities: its next call says that it has tried to. A stub has those that the thread had which
 * it was made from, and a program may give up its own later. -ENOENT: as vb_stub_run(). */
int vb_stub_drop(struct vb_stub *s, int listener);
/* 1: it may lock memory beyond the limit of its process (CAP_IPC_LOCK), and thread tid may not; tid 0: it may. 0: no;
 * -errno: nobody knows. */
int vb_stub_locks(struct vb_tracer *t, const struct vb_stub *s, pid_t tid);
/* After the result, while it is parked: the device leaves its table. Close `device` here only then: a last close that
 * is the stub's takes effect when the stub runs next. */
int vb_stub_clear(struct vb_stub *s, int listener);
/* True once it has ended. Its end makes vb_stub_watch() readable, or its process's. */
bool vb_stub_gone(const struct vb_stub *s);
int vb_stub_watch(const struct vb_stub *s);
/* True where it is the only thread left of its process, which it would keep alive. */
bool vb_stub_alone(struct vb_tracer *t, const struct vb_stub *s);
/* It ends itself (its parked call is answered VB_STUB_QUIT); frees what is here. Of one that runs, answer the next call
 * so: vb_notify_answer(listener, id, VB_STUB_QUIT, 0). It also ends when the broker does (ENOSYS, twice). */
#define VB_STUB_QUIT 0x40000000
#define VB_STUB_COPY 0x40000100 /* plus the number of copies, up to VB_COPIES_MAX */
#define VB_STUB_DROP 0x40000200
void vb_stub_end(struct vb_stub *s, int listener);

#endif
