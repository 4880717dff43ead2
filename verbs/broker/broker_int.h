/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the broker share. */
#ifndef HW_VERBS_BROKER_INT_H
#define HW_VERBS_BROKER_INT_H

#include "base/list.h"
#include "verbs/broker/broker.h"
#include "verbs/stub/inject.h"
#include "verbs/stub/notify.h"

/* Maximum number of device files that a container may have open. inotify's queue holds 16384 events by default. */
#define VB_OPENS_MAX  4096
#define VB_CACHE      64 /* maximum number of cached descriptors; a power of two */
#define VB_CACHE_NS   (50 * HW_MS)
#define VB_KEPT_MAX   64 /* maximum number of results that are kept because they could not be delivered */
#define VB_KEPT_NS    (10000 * HW_MS)
#define VB_ALONE_NS   (200 * HW_MS)
#define VB_SWAPS_MAX  4
#define VB_TOLD_MAX   64
#define VB_BARREN_MAX 16
/* Time until a thread whose stub exited before its first call may get another stub. */
#define VB_BARREN_NS (1000 * HW_MS)
/* Maximum number of requests of a container that wait for stubs. The broker keeps a descriptor and the inputs of
 * each. */
#define VB_JOBS_MAX 4096
/* Maximum number of listeners of a container: one for its first program and one for each running exec. */
#define VB_LISTENERS_MAX 1024
/* Maximum age of the kernel's list of a context's objects. The shorter age applies if the counts are in doubt or would
 * lead to a refusal. If both are true, the kernel lists the objects again regardless of the age. */
#define VB_RECONCILE_SOON_NS (1000 * HW_MS)
#define VB_RECONCILE_NS      (10000 * HW_MS)

/* A notification and the listener that it was read from. */
struct vb_call {
    int listener;
    struct seccomp_notif n;
};

/* A device, with the container's rules and usage. Kept when the device is removed, because contexts of the device may
 * still exist. */
struct vb_slot {
    struct vb_device device;
    struct vb_tracer *tracer;
    struct vb_rules rules;
    struct vb_usage usage;
    uint64_t refused;
};

/* A device file that the tracer has opened for an application. Freed when the file is closed. */
struct vb_context {
    struct hw_list link;
    ino_t ino; /* inode on the file system of the device nodes */
    int watch; /* inotify watch of the inode */
    pid_t opener;
    struct vb_slot *slot;
    struct vb_objects *objects;
    const struct vb_driver *driver; /* driver in a request that the broker ran successfully, or NULL before that */
    /* Number of requests that stubs run or will run. Their objects are counted, but may not exist yet. */
    unsigned running;
    bool doubt;     /* the counts may be too high */
    uint64_t asked; /* time at which the kernel last listed the objects, or at which the context was created */
};

/* A cached descriptor of a device. When the entry was made or last used, `mine` referred to the same open file as
 * descriptor `theirs` of thread tid. */
struct vb_cached {
    pid_t tid;
    int theirs, mine; /* mine is -1 if the entry is empty */
    struct vb_context *context;
    uint64_t used;
};

/* A descriptor in a request. An input has the application's number while the broker checks the request, and the
 * broker's or the stub's number while the request runs. */
struct vb_swap {
    struct vb_attr *attr; /* attribute that contains the descriptor, or NULL */
    uint8_t *field;       /* otherwise: 4 bytes in a core part */
    int theirs, mine;     /* mine is -1 if the number was not replaced */
};
struct vb_swaps {
    unsigned n;
    struct vb_swap swap[VB_SWAPS_MAX];
};

/* The result of a request whose system call a signal interrupted before the broker could answer. */
struct vb_kept {
    struct hw_list link;
    pid_t tid;
    int theirs, rc;
    struct vb_context *context;
    uint64_t since;
    struct vb_request r; /* must be last, because only the used part is allocated */
};

/* A stub and the requests that wait for it. */
struct vb_worker {
    struct hw_list link, jobs;
    int listener;
    struct vb_stub stub;
    struct vb_job *running;
    int device;      /* the broker's descriptor of the device at VB_STUB_FD in the stub's table, or -1 */
    uint64_t used;   /* time when the device was last used */
    unsigned given;  /* number of a request's descriptors in the stub's table, after VB_STUB_FD */
    pid_t made_for;  /* the thread that was used to inject the stub */
    uint64_t looked; /* time of the stub's injection, of its last call, or of the last check by vb_workers_sweep() */
    /* When the stub was injected, it could lock memory without limit, or its capabilities could not be read
     * (check_rights()). */
    bool unlimited;
    bool dropping; /* the stub was told to drop this right */
};

struct vb_broker {
    const struct vb_container *container;
    const struct vb_broker_options *o;
    int listener[VB_LISTENERS_MAX];
    unsigned n_listeners;
    int epoll, inotify, status, null;
    dev_t nodes_dev;
    bool no_thread_pidfds; /* the kernel lacks PIDFD_THREAD */
    pid_t me;
    uint64_t now; /* time of the loop's last wake-up */

    struct vb_slot *slot[VB_DEVICES_MAX];
    unsigned n_slots;

    struct hw_list contexts;
    unsigned n_contexts;
    struct vb_cached cache[VB_CACHE];
    unsigned n_cached;
    struct hw_list kept;
    unsigned n_kept;
    struct hw_list workers;
    unsigned n_jobs;
    struct {
        pid_t tid;
        uint64_t since;
    } barren[VB_BARREN_MAX]; /* threads whose stub exited before its first call */
    unsigned n_barren;       /* number of such stubs so far */
    struct vb_tracer tracer;

    struct {
        uint16_t object, method;
        uint32_t command;
    } told[VB_TOLD_MAX]; /* unsupported commands that were reported, because each is reported only once */
    unsigned n_told;

    uint64_t started, opens, requests, doorbells, refused, redelivered, undone, reconciled;
    struct vb_request request; /* the current request */
    uint8_t built[2 * VB_COPY_MAX] __attribute__((aligned(4096)));
};

/* contexts.c */
/* Creates the context of the open file fd. watch is the inotify watch that reports when the file is closed. */
int vb_context_new(struct vb_broker *b, int fd, int watch, struct vb_slot *slot, pid_t opener, struct vb_context **out);
/* Returns the context with the inode of fd, or NULL if the broker did not open the file. */
struct vb_context *vb_context_of(struct vb_broker *b, int fd);
/* Reads the events of inotify and frees the contexts whose files were closed. */
void vb_contexts_ended(struct vb_broker *b);
void vb_contexts_free(struct vb_broker *b);
/* Fetches descriptor `theirs` of thread tid. Fails with -ENOTTY if the broker did not open the file, with -EBADF if the
 * thread has no such descriptor, or with another -errno. *fd belongs to the cache and is valid until the next
 * vb_fetch(), vb_cache_put() or vb_cache_sweep(). */
int vb_fetch(struct vb_broker *b, pid_t tid, int theirs, int *fd, struct vb_context **c);
/* Fetches a descriptor of any file. Returns a descriptor that the caller must close, or -errno. */
int vb_fetch_any(struct vb_broker *b, pid_t tid, int theirs);
/* Adds a descriptor to the cache, which then owns mine. At each use the cache checks again that both descriptors refer
 * to the same file. */
void vb_cache_put(struct vb_broker *b, pid_t tid, int theirs, int mine, struct vb_context *c);
/* Closes cached descriptors that have been unused for VB_CACHE_NS, or all except `but` (-1 for no exception) if all is
 * true. Also calls vb_workers_clear(). */
void vb_cache_sweep(struct vb_broker *b, bool all, int but);

/* open.c */
void vb_open(struct vb_broker *b, const struct vb_call *call);

/* run.c */
void vb_ioctl(struct vb_broker *b, const struct vb_call *call);
/* Runs r in the broker on the device fd. Returns the kernel's result (0 or more), or -errno. */
int vb_run_here(struct vb_broker *b, int fd, struct vb_request *r);
/* Completes a request that ended with rc, after vb_settle(): delivers its results and answers its notification, or
 * keeps the results if the program was interrupted. fd is the broker's descriptor of the device. */
void vb_finish(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd, struct vb_request *r,
               int rc);
/* Reports a refusal to the operator. rule and text are the reason. */
void vb_refused(struct vb_broker *b, pid_t tid, struct vb_slot *slot, const char *command, const char *rule,
                const char *text, int rc);
/* Like vb_refused(), but without a device and the program's name. Used if the tracer, which supplies the name, does not
 * answer. */
void vb_refused_unnamed(struct vb_broker *b, pid_t tid, const char *command, const char *text, int rc);
void vb_request_copy(struct vb_request *to, const struct vb_request *from);

/* swap.c */
/* Replaces the program's descriptors in r with descriptors of the broker. On success, the caller must call
 * vb_swap_back(). Fails with -EBADF if a descriptor cannot be fetched, with -ENOENT if the program is no longer
 * waiting, and with -EINVAL if there are too many descriptors. */
int vb_swap_in(struct vb_broker *b, const struct vb_call *call, struct vb_request *r, struct vb_swaps *s);
void vb_swap_back(struct vb_swaps *s);
void vb_swap_put(const struct vb_swap *s, int fd);
/* Moves the descriptors that the kernel has created in the broker to the program. Returns 0, -ENOENT if the program is
 * no longer waiting, or the error that the program gets. Always closes the broker's descriptors. After an error, this
 * close also frees their objects. */
int vb_hand_over(const struct vb_call *call, struct vb_request *r);

/* kept.c */
/* Keeps the result rc of r after the program was interrupted. */
void vb_keep(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, const struct vb_request *r, int rc);
/* Answers a call with a kept result and returns true if the thread has repeated the same call. Otherwise returns false.
 * If a result of another request is then kept for this thread, destroys the object of that request. */
bool vb_redeliver(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd,
                  const struct vb_request *r);
void vb_kept_sweep(struct vb_broker *b, bool all);
void vb_kept_forget(struct vb_broker *b, const struct vb_context *c);

/* reconcile.c */
/* Settles a request that a stub has run or may have run. rc is the result that the stub reports, or VB_UNKNOWN. Queries
 * the kernel if the stub's report cannot be trusted. */
void vb_settle_stub(struct vb_broker *b, struct vb_context *c, int fd, struct vb_request *r, uint64_t ticket, int rc);
/* Sets the context's counts to the numbers of objects that the kernel lists. Does nothing and returns false if this was
 * done (or the context was created) within the last age_ns, if c->running is not 0, or if the context's driver is
 * unknown. fd is the broker's descriptor of the device. */
bool vb_reconcile(struct vb_broker *b, struct vb_context *c, int fd, uint64_t age_ns);
/* Destroys the object that r has created, if any, unless the object is a context or a file descriptor. */
void vb_undo(struct vb_broker *b, struct vb_context *c, int fd, const struct vb_request *r);

/* workers.c */
/* Stores in *out the worker whose stub is in the program's memory, and returns 0. Returns 1 if the call needs no
 * answer: either a stub was injected and the program will repeat the call, or the program has already received an
 * error. Otherwise returns the error that the program must get, such as -EAGAIN or -EOPNOTSUPP. */
int vb_worker_for(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, const struct vb_request *r,
                  struct vb_worker **out);
/* Queues a copy of r for the stub. The notification is answered when the stub has run the copy and has copied the
 * results, or earlier with an error. */
void vb_run_in_stub(struct vb_broker *b, struct vb_worker *w, const struct vb_call *call, struct vb_context *c, int fd,
                    const struct vb_request *r, uint64_t ticket);
/* Makes the program's stub copy the results of r, which ended with rc, to the program, and then answers the
 * notification. Keeps the results if the program was interrupted. Without a stub or enough memory, destroys the object
 * that r has created and answers with an error. */
void vb_give(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd, const struct vb_request *r,
             int rc);
/* Handles a call of a stub. Returns false if the call is not from a stub. */
bool vb_worker_call(struct vb_broker *b, const struct vb_call *call);
/* Frees the worker with this pidfd if its stub has exited. Returns false otherwise. */
bool vb_worker_gone(struct vb_broker *b, int pidfd);
void vb_workers_sweep(struct vb_broker *b);
/* Removes from the stubs' tables the devices that were not used recently. If all is true, removes all devices that are
 * not in use. */
void vb_workers_clear(struct vb_broker *b, bool all);
/* Ends the workers of a listener's programs, or all workers if listener is -1. */
void vb_workers_end(struct vb_broker *b, int listener);

/* doorbell.c */
void vb_doorbell(struct vb_broker *b, const struct vb_call *call);

/* status.c */
int vb_status_open(struct vb_broker *b);
void vb_status_answer(struct vb_broker *b);
void vb_status_close(struct vb_broker *b);

#endif
