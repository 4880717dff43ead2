/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the broker's files; not for others. */
#ifndef HW_VERBS_BROKER_INT_H
#define HW_VERBS_BROKER_INT_H

#include "base/list.h"
#include "verbs/broker/broker.h"
#include "verbs/stub/inject.h"
#include "verbs/stub/notify.h"

#define VB_OPENS_MAX  4096 /* of one container: each end is an event, and inotify's queue holds 16384 by default */
#define VB_CACHE      64   /* descriptors cached for a short time; a power of two */
#define VB_CACHE_NS   (50 * HW_MS)
#define VB_KEPT_MAX   64 /* undeliverable results kept */
#define VB_KEPT_NS    (10000 * HW_MS)
#define VB_ALONE_NS   (200 * HW_MS)
#define VB_SWAPS_MAX  4
#define VB_TOLD_MAX   64
#define VB_BARREN_MAX 16
#define VB_BARREN_NS  (1000 * HW_MS) /* until the next attempt to inject a stub */
/* requests of a container waiting for stubs: each holds a descriptor and its inputs here */
#define VB_JOBS_MAX      4096
#define VB_LISTENERS_MAX 1024 /* of a container: one for its first program, and one for each running exec */
/* Greatest age of the kernel's list of a context's objects: SOON if the accounts are in doubt or about to refuse. */
#define VB_RECONCILE_SOON_NS (1000 * HW_MS)
#define VB_RECONCILE_NS      (10000 * HW_MS)

/* A notification and the listener that delivered it. */
struct vb_call {
    int listener;
    struct seccomp_notif n;
};

/* A device, and what this container holds on it. Remains when the device goes, because its contexts may remain. */
struct vb_slot {
    struct vb_device device;
    struct vb_tracer *tracer;
    struct vb_rules rules;
    struct vb_usage usage;
    uint64_t refused;
};

/* An open of the broker that an application holds. */
struct vb_context {
    struct hw_list link;
    ino_t ino; /* identifies it, on the nodes' file system */
    int watch; /* inotify's */
    pid_t opener;
    struct vb_slot *slot;
    struct vb_objects *objects;
    const struct vb_driver *driver; /* the kernel accepted a request that named it; NULL: none yet */
    /* requests that stubs run or will run: their objects are counted, but may not exist yet */
    unsigned running;
    bool doubt;     /* the accounts may be higher than the truth */
    uint64_t asked; /* when the kernel was last asked */
};

/* A fetched descriptor of an application: (tid, theirs) was `mine` when last checked with kcmp(). */
struct vb_cached {
    pid_t tid;
    int theirs, mine; /* mine -1: empty entry */
    struct vb_context *context;
    uint64_t used;
};

/* A descriptor in a request: theirs during the judgement, ours while it runs. */
struct vb_swap {
    struct vb_attr *attr; /* attribute whose value it is; or */
    uint8_t *field;       /* 4 bytes in a core part */
    int theirs, mine;     /* mine -1: unchanged */
};
struct vb_swaps {
    unsigned n;
    struct vb_swap swap[VB_SWAPS_MAX];
};

/* A request that ran, but a signal took its application out of the call before the answer. */
struct vb_kept {
    struct hw_list link;
    pid_t tid;
    int theirs, rc;
    struct vb_context *context;
    uint64_t since;
    struct vb_request r; /* last member: only the used part is allocated */
};

/* A stub, and the requests waiting for it. */
struct vb_worker {
    struct hw_list link, jobs;
    int listener;
    struct vb_stub stub;
    struct vb_job *running;
    int device;      /* the device at VB_STUB_FD in its table; -1: none */
    uint64_t used;   /* when */
    unsigned given;  /* descriptors of a request after VB_STUB_FD */
    pid_t made_for;  /* the thread that was used to inject it */
    uint64_t looked; /* when it was last checked whether it is the only thread */
    bool unlimited;  /* it may lock memory without limit, so the caller must have that right too */
    bool dropping;   /* it was told to drop that right */
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
    } barren[VB_BARREN_MAX]; /* threads whose stub ended before its first call */
    unsigned n_barren;       /* total number so far */
    struct vb_tracer tracer;

    struct {
        uint16_t object, method;
        uint32_t command;
    } told[VB_TOLD_MAX]; /* what the schema lacks is reported once each */
    unsigned n_told;

    uint64_t started, opens, requests, doorbells, refused, redelivered, undone, reconciled;
    struct vb_request request; /* the current request */
    uint8_t built[2 * VB_COPY_MAX] __attribute__((aligned(4096)));
};

/* contexts.c */
/* Makes the context of an open, fd, with the inotify watch for its end; on 0 the context owns the watch. */
int vb_context_new(struct vb_broker *b, int fd, int watch, struct vb_slot *slot, pid_t opener, struct vb_context **out);
/* Returns the context with fd's inode; NULL: not one of ours. */
struct vb_context *vb_context_of(struct vb_broker *b, int fd);
void vb_contexts_ended(struct vb_broker *b); /* reads inotify */
void vb_contexts_free(struct vb_broker *b);
/* Fetches descriptor `theirs` of thread tid. -ENOTTY: not one of ours; -EBADF. *fd belongs to the cache and stays valid
 * until the next call of one of these functions. */
int vb_fetch(struct vb_broker *b, pid_t tid, int theirs, int *fd, struct vb_context **c);
int vb_fetch_any(struct vb_broker *b, pid_t tid, int theirs); /* of any kind; the caller owns it */
/* Adds a descriptor to the cache, which owns mine from now on. Its identity is checked again at every use. */
void vb_cache_put(struct vb_broker *b, pid_t tid, int theirs, int mine, struct vb_context *c);
/* Closes cached descriptors older than VB_CACHE_NS; all: every one except `but` (-1: none), in stubs' tables too. */
void vb_cache_sweep(struct vb_broker *b, bool all, int but);

/* open.c */
void vb_open(struct vb_broker *b, const struct vb_call *call);

/* run.c */
void vb_ioctl(struct vb_broker *b, const struct vb_call *call);
/* Runs r on the device fd in the broker: 0 or more, or -errno. */
int vb_run_here(struct vb_broker *b, int fd, struct vb_request *r);
/* Completes a request that ended with rc and is settled: delivers its results and answers its notification. fd: the
 * device here. */
void vb_finish(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd, struct vb_request *r,
               int rc);
/* Reports a refusal to the operator. rule, text: the reason. */
void vb_refused(struct vb_broker *b, pid_t tid, struct vb_slot *slot, const char *command, const char *rule,
                const char *text, int rc);
void vb_request_copy(struct vb_request *to, const struct vb_request *from);

/* swap.c */
/* Replaces the descriptors that r names by our numbers: 0; -EBADF: the program has no such descriptor; -ENOENT: the
 * program has gone; -EINVAL. After 0, call vb_swap_back(). */
int vb_swap_in(struct vb_broker *b, const struct vb_call *call, struct vb_request *r, struct vb_swaps *s);
void vb_swap_back(struct vb_swaps *s);
void vb_swap_put(const struct vb_swap *s, int fd);
/* Moves descriptors that the kernel has made here to the program. 0, or the error for the program: ours are then
 * closed, and the objects with them. */
int vb_hand_over(const struct vb_call *call, struct vb_request *r);

/* kept.c */
/* Keeps the result rc of r, whose program no longer waits. */
void vb_keep(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, const struct vb_request *r, int rc);
/* Delivers a kept result to the same call. Returns false if the call differs or nothing is kept. */
bool vb_redeliver(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd,
                  const struct vb_request *r);
void vb_kept_sweep(struct vb_broker *b, bool all);
void vb_kept_forget(struct vb_broker *b, const struct vb_context *c);

/* reconcile.c */
/* Settles a request that a stub has run, with the result that the stub reports, or VB_UNKNOWN: by asking the kernel. */
void vb_settle_stub(struct vb_broker *b, struct vb_context *c, int fd, struct vb_request *r, uint64_t ticket, int rc);
/* Sets the context's accounts to what the kernel lists, unless that was done within age_ns or a stub is working for the
 * context. Returns true if it was done. fd: the device here. */
bool vb_reconcile(struct vb_broker *b, struct vb_context *c, int fd, uint64_t age_ns);
/* Destroys what r has made. */
void vb_undo(struct vb_broker *b, struct vb_context *c, int fd, const struct vb_request *r);

/* workers.c */
/* Finds the worker whose stub is in the program's memory: 0. 1: a stub is being injected and the program will repeat
 * its call, or the program has got the error. -EAGAIN, -EOPNOTSUPP: the error for the program. */
int vb_worker_for(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, const struct vb_request *r,
                  struct vb_worker **out);
/* Makes the stub run r (a copy). The notification is answered later. */
void vb_run_in_stub(struct vb_broker *b, struct vb_worker *w, const struct vb_call *call, struct vb_context *c, int fd,
                    const struct vb_request *r, uint64_t ticket);
/* Makes the program's stub copy the results of r (a copy), which ended with rc; then the notification is answered. */
void vb_give(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd, const struct vb_request *r,
             int rc);
bool vb_worker_call(struct vb_broker *b, const struct vb_call *call); /* false: not a call of a stub */
bool vb_worker_gone(struct vb_broker *b, int pidfd);                  /* false: no worker's */
void vb_workers_sweep(struct vb_broker *b);
/* Removes devices from stubs' tables that were not used for a while; all: every one that is not in use. */
void vb_workers_clear(struct vb_broker *b, bool all);
/* Ends the workers whose programs belong to that listener; -1: all. */
void vb_workers_end(struct vb_broker *b, int listener);

/* doorbell.c */
void vb_doorbell(struct vb_broker *b, const struct vb_call *call);

/* status.c */
int vb_status_open(struct vb_broker *b);
void vb_status_answer(struct vb_broker *b);
void vb_status_close(struct vb_broker *b);

#endif
