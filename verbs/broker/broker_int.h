/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker's files share; nobody else includes it. */
#ifndef HW_VERBS_BROKER_INT_H
#define HW_VERBS_BROKER_INT_H

#include "base/list.h"
#include "verbs/broker/broker.h"
#include "verbs/stub/inject.h"
#include "verbs/stub/notify.h"

#define VB_OPENS_MAX     4096 /* of one container: each ends with one event, and inotify's queue holds 16384 by default */
#define VB_CACHE         64   /* descriptors kept for a while; a power of two */
#define VB_CACHE_NS      (50 * HW_MS)
#define VB_KEPT_MAX      64 /* results that could not be delivered */
#define VB_KEPT_NS       (10000 * HW_MS)
#define VB_ALONE_NS      (200 * HW_MS)
#define VB_SWAPS_MAX     4
#define VB_TOLD_MAX      64
#define VB_BARREN_MAX    16
#define VB_BARREN_NS     (1000 * HW_MS) /* until the next try to put a stub in */
#define VB_JOBS_MAX      4096 /* requests that wait for stubs, of a container: each has a descriptor and its inputs here */
#define VB_LISTENERS_MAX 1024 /* of a container: one for its first program, and one for each exec that still runs */
/* How old the kernel's list of a context's objects may be: where the accounts are in doubt, or about to refuse; else */
#define VB_RECONCILE_SOON_NS (1000 * HW_MS)
#define VB_RECONCILE_NS      (10000 * HW_MS)

/* A notification, and the listener that it came from. */
struct vb_call {
    int listener;
    struct seccomp_notif n;
};

/* A device, and what this container has of it. It stays when the device goes, as its contexts may. */
struct vb_slot {
    struct vb_device device;
    struct vb_tracer *tracer;
    struct vb_rules rules;
    struct vb_usage usage;
    uint64_t refused;
};

/* An open of ours that an application has. */
struct vb_context {
    struct hw_list link;
    ino_t ino; /* its name, on the file system of the nodes */
    int watch; /* inotify's */
    pid_t opener;
    struct vb_slot *slot;
    struct vb_objects *objects;
    const struct vb_driver *driver; /* the kernel took a request that named it; NULL: none yet */
    unsigned running;               /* requests that stubs run, or will: what they make is counted, and not there yet */
    bool doubt;                     /* the accounts may have more than there is */
    uint64_t asked;                 /* when the kernel was asked last */
};

/* A descriptor of an application's, fetched: (tid, theirs) was `mine` when last seen, which kcmp() tells. */
struct vb_cached {
    pid_t tid;
    int theirs, mine; /* mine -1: nothing here */
    struct vb_context *context;
    uint64_t used;
};

/* A descriptor in a request, theirs while it is judged, ours while it runs. */
struct vb_swap {
    struct vb_attr *attr; /* it is this one's value; or */
    uint8_t *field;       /* 4 bytes of a core part */
    int theirs, mine;     /* mine -1: left as it is */
};
struct vb_swaps {
    unsigned n;
    struct vb_swap swap[VB_SWAPS_MAX];
};

/* A request that ran, whose application was taken away by a signal before it could be told. */
struct vb_kept {
    struct hw_list link;
    pid_t tid;
    int theirs, rc;
    struct vb_context *context;
    uint64_t since;
    struct vb_request r; /* the last: only what is used of it is there */
};

/* A stub, and the requests that wait for it. */
struct vb_worker {
    struct hw_list link, jobs;
    int listener;
    struct vb_stub stub;
    struct vb_job *running;
    int device;      /* what is at VB_STUB_FD in its table; -1: nothing */
    uint64_t used;   /* when */
    unsigned given;  /* descriptors of a request behind it */
    pid_t made_for;  /* the thread that it was put in by */
    uint64_t looked; /* when whether it is alone was asked last */
    bool unlimited;  /* it may lock memory without a limit, so that whoever asks must have that right, too */
    bool dropping;   /* it was told to give that up */
};

struct vb_broker {
    const struct vb_container *container;
    const struct vb_broker_options *o;
    int listener[VB_LISTENERS_MAX];
    unsigned n_listeners;
    int epoll, inotify, status, null;
    dev_t nodes_dev;
    bool no_thread_pidfds; /* the kernel does not know PIDFD_THREAD */
    pid_t me;
    uint64_t now; /* when the loop woke up */

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
    } barren[VB_BARREN_MAX]; /* threads whose stub has ended before its first call */
    unsigned n_barren;       /* that there ever were */
    struct vb_tracer tracer;

    struct {
        uint16_t object, method;
        uint32_t command;
    } told[VB_TOLD_MAX]; /* what the schema does not have is told once each */
    unsigned n_told;

    uint64_t started, opens, requests, doorbells, refused, redelivered, undone, reconciled;
    struct vb_request request; /* the one at hand */
    uint8_t built[2 * VB_COPY_MAX] __attribute__((aligned(4096)));
};

/* contexts.c */
/* Of an open of ours, fd, with inotify's watch of its end, which is the context's after 0. */
int vb_context_new(struct vb_broker *b, int fd, int watch, struct vb_slot *slot, pid_t opener, struct vb_context **out);
/* The context whose inode fd has; NULL: not of ours. */
struct vb_context *vb_context_of(struct vb_broker *b, int fd);
void vb_contexts_ended(struct vb_broker *b); /* reads inotify */
void vb_contexts_free(struct vb_broker *b);
/* Descriptor `theirs` of thread tid. -ENOTTY: it is none of ours; -EBADF. *fd belongs to the cache and stays until the
 * next call of one of these. */
int vb_fetch(struct vb_broker *b, pid_t tid, int theirs, int *fd, struct vb_context **c);
int vb_fetch_any(struct vb_broker *b, pid_t tid, int theirs); /* of any kind: ours now */
/* mine is the cache's from here on. What it is taken for is looked at again whenever it is used. */
void vb_cache_put(struct vb_broker *b, pid_t tid, int theirs, int mine, struct vb_context *c);
/* Closes what is kept for longer than VB_CACHE_NS; all: everything but `but` (-1: none), in stubs' tables too. */
void vb_cache_sweep(struct vb_broker *b, bool all, int but);

/* open.c */
void vb_open(struct vb_broker *b, const struct vb_call *call);

/* run.c */
void vb_ioctl(struct vb_broker *b, const struct vb_call *call);
/* Runs r on the device fd in the broker: 0 or more, or -errno. */
int vb_run_here(struct vb_broker *b, int fd, struct vb_request *r);
/* What follows a request that is over with rc, and settled: its results are given, its notification is answered. fd:
 * the device here. */
void vb_finish(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd, struct vb_request *r,
               int rc);
/* To the operator. rule, text: why. */
void vb_refused(struct vb_broker *b, pid_t tid, struct vb_slot *slot, const char *command, const char *rule,
                const char *text, int rc);
void vb_request_copy(struct vb_request *to, const struct vb_request *from);

/* swap.c */
/* Puts our numbers of the descriptors that r names in their place: 0; -EBADF: the program has no such; -ENOENT: the
 * program has gone; -EINVAL. To be followed by vb_swap_back() after 0. */
int vb_swap_in(struct vb_broker *b, const struct vb_call *call, struct vb_request *r, struct vb_swaps *s);
void vb_swap_back(struct vb_swaps *s);
void vb_swap_put(const struct vb_swap *s, int fd);
/* Descriptors that the kernel has made here become the program's. 0, or what the program is told: then ours are closed,
 * and the objects gone with them. */
int vb_hand_over(const struct vb_call *call, struct vb_request *r);

/* kept.c */
/* r has ended with rc, and its program does not wait any more. */
void vb_keep(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, const struct vb_request *r, int rc);
/* The same call as one that is kept gets its results. False: it is another call, or none is kept. */
bool vb_redeliver(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd,
                  const struct vb_request *r);
void vb_kept_sweep(struct vb_broker *b, bool all);
void vb_kept_forget(struct vb_broker *b, const struct vb_context *c);

/* reconcile.c */
/* Settles a request that a stub has run, with that result by its word, or VB_UNKNOWN: by the kernel's. */
void vb_settle_stub(struct vb_broker *b, struct vb_context *c, int fd, struct vb_request *r, uint64_t ticket, int rc);
/* Makes the context's accounts what the kernel lists, unless that was done within age_ns, or a stub is at work for the
 * context. True: it was done. fd: the device here. */
bool vb_reconcile(struct vb_broker *b, struct vb_context *c, int fd, uint64_t age_ns);
/* Destroys what r has made. */
void vb_undo(struct vb_broker *b, struct vb_context *c, int fd, const struct vb_request *r);

/* workers.c */
/* The worker whose stub is in the program's memory: 0. 1: a stub is on its way and the program's call comes anew, or
 * the program has been told why not. -EAGAIN, -EOPNOTSUPP: to be told. */
int vb_worker_for(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, const struct vb_request *r,
                  struct vb_worker **out);
/* Has the stub run r (a copy). The notification is answered later. */
void vb_run_in_stub(struct vb_broker *b, struct vb_worker *w, const struct vb_call *call, struct vb_context *c, int fd,
                    const struct vb_request *r, uint64_t ticket);
/* Has the program's stub copy the results of r (a copy), which has ended with rc; then the notification is answered. */
void vb_give(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd, const struct vb_request *r,
             int rc);
bool vb_worker_call(struct vb_broker *b, const struct vb_call *call); /* false: not a stub's */
bool vb_worker_gone(struct vb_broker *b, int pidfd);                  /* false: no worker's */
void vb_workers_sweep(struct vb_broker *b);
/* Takes devices out of stubs' tables that have not been used for a while; all: that are not in use. */
void vb_workers_clear(struct vb_broker *b, bool all);
/* Ends those whose programs are of that listener; -1: all. */
void vb_workers_end(struct vb_broker *b, int listener);

/* doorbell.c */
void vb_doorbell(struct vb_broker *b, const struct vb_call *call);

/* status.c */
int vb_status_open(struct vb_broker *b);
void vb_status_answer(struct vb_broker *b);
void vb_status_close(struct vb_broker *b);

#endif
