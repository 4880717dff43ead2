/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker's files share; nobody else includes it. */
#ifndef HW_VERBS_BROKER_INT_H
#define HW_VERBS_BROKER_INT_H

#include "base/list.h"
#include "verbs/broker.h"
#include "verbs/inject.h"
#include "verbs/notify.h"

#define VB_OPENS_MAX 4096 /* of one container: each ends with one event, and inotify's queue holds 16384 by default */
#define VB_CACHE     64   /* descriptors kept for a while; a power of two */
#define VB_CACHE_NS  (50 * HW_MS)
#define VB_KEPT_MAX  64 /* results that could not be delivered */
#define VB_KEPT_NS   (10000 * HW_MS)
#define VB_ALONE_NS  (200 * HW_MS)
#define VB_SWAPS_MAX 4
#define VB_TOLD_MAX  64

/* A device, and what this container has of it. It stays when the device goes, as its contexts may. */
struct vb_slot {
    struct vb_device device;
    const struct vb_kernel *kernel;
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
    struct vb_request r;
};

/* A stub, and the requests that wait for it. */
struct vb_worker {
    struct hw_list link, jobs;
    struct vb_stub stub;
    struct vb_job *running;
    int device;      /* what is at VB_STUB_FD in its table; -1: nothing */
    uint64_t used;   /* when */
    unsigned given;  /* descriptors of a request behind it */
    uint64_t looked; /* when whether it is alone was asked last */
};

struct vb_broker {
    const struct vb_container *container;
    const struct vb_broker_options *o;
    int listener, epoll, inotify, nodes, status, state, null;
    int mount, spent; /* the next open's, and the last one's, which is let go when there is time; -1: none */
    dev_t nodes_dev;
    uint64_t serial; /* of nodes */
    pid_t me;
    uint64_t now; /* when the loop woke up */

    struct vb_device device[VB_DEVICES_MAX];
    unsigned n_devices;
    uint64_t listed; /* when; 0: never */
    struct vb_slot *slot[VB_DEVICES_MAX];
    unsigned n_slots;

    struct hw_list contexts;
    unsigned n_contexts;
    struct vb_cached cache[VB_CACHE];
    unsigned n_cached;
    struct hw_list kept;
    unsigned n_kept;
    struct hw_list workers;
    struct vb_tracer tracer;

    struct {
        uint16_t object, method;
        uint32_t command;
    } told[VB_TOLD_MAX]; /* what the schema does not have is told once each */
    unsigned n_told;

    uint64_t started, opens, requests, doorbells, refused, redelivered, undone;
    struct vb_request request; /* the one at hand */
    uint8_t built[2 * VB_COPY_MAX] __attribute__((aligned(4096)));
};

/* contexts.c */
int vb_context_new(struct vb_broker *b, int fd, struct vb_slot *slot, pid_t opener, struct vb_context **out);
/* The context whose inode fd has; NULL: not of ours. */
struct vb_context *vb_context_of(struct vb_broker *b, int fd);
void vb_contexts_ended(struct vb_broker *b); /* reads inotify */
void vb_contexts_free(struct vb_broker *b);
/* Descriptor `theirs` of thread tid. -ENOTTY: it is none of ours; -EBADF. *fd belongs to the cache and stays until the
 * next call of one of these. */
int vb_fetch(struct vb_broker *b, pid_t tid, int theirs, int *fd, struct vb_context **c);
int vb_fetch_any(pid_t tid, int theirs); /* of any kind: ours now */
/* mine is the cache's from here on. What it is taken for is looked at again whenever it is used. */
void vb_cache_put(struct vb_broker *b, pid_t tid, int theirs, int mine, struct vb_context *c);
/* Closes what is kept for longer than VB_CACHE_NS; all: everything but `but` (-1: none), in stubs' tables too. */
void vb_cache_sweep(struct vb_broker *b, bool all, int but);

/* open.c */
void vb_open(struct vb_broker *b, const struct seccomp_notif *n);
int vb_nodes_open(struct vb_broker *b);
void vb_nodes_idle(struct vb_broker *b); /* nobody waits at the moment */

/* run.c */
void vb_ioctl(struct vb_broker *b, const struct seccomp_notif *n);
int vb_swap_in(pid_t tid, struct vb_request *r, struct vb_swaps *s);
void vb_swap_back(struct vb_swaps *s);
void vb_swap_put(const struct vb_swap *s, int fd);
void vb_request_copy(struct vb_request *to, const struct vb_request *from);
/* What follows a request that the kernel has answered with rc: reserved things are settled, results given, the
 * notification answered. fd: the device here. */
void vb_finish(struct vb_broker *b, const struct seccomp_notif *n, struct vb_context *c, int fd, struct vb_request *r,
               uint64_t ticket, int rc, bool trusted);
void vb_kept_sweep(struct vb_broker *b, bool all);
void vb_kept_forget(struct vb_broker *b, const struct vb_context *c);
/* To the operator. rule, text: why. */
void vb_refused(struct vb_broker *b, pid_t tid, struct vb_slot *slot, const char *command, const char *rule,
                const char *text, int rc);

/* memory.c */
/* Takes r over (a copy). The notification is answered later. */
void vb_memory(struct vb_broker *b, const struct seccomp_notif *n, struct vb_context *c, int fd,
               const struct vb_request *r, uint64_t ticket);
bool vb_worker_call(struct vb_broker *b, const struct seccomp_notif *n); /* false: not a stub's */
bool vb_worker_gone(struct vb_broker *b, int pidfd);                     /* false: no worker's */
void vb_workers_sweep(struct vb_broker *b);
/* Takes devices out of stubs' tables that have not been used for a while; all: that are not in use. */
void vb_workers_clear(struct vb_broker *b, bool all);
void vb_workers_end(struct vb_broker *b);

/* doorbell.c */
void vb_doorbell(struct vb_broker *b, const struct seccomp_notif *n);

/* status.c */
int vb_status_open(struct vb_broker *b);
void vb_status_answer(struct vb_broker *b);
void vb_status_close(struct vb_broker *b);

#endif
