/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tracer's process does for the broker besides tracing: all that takes a path. It follows a program's names,
 * opens devices, and reads /proc and /sys; so the broker, which takes programs' requests apart, needs no system call
 * with a path in it, and no capability but CAP_SYS_PTRACE.
 */
#ifndef HW_VERBS_LOOKUP_H
#define HW_VERBS_LOOKUP_H

#include "verbs/broker/broker.h"
#include "verbs/policy/policy.h"

struct vb_lookups {
    const struct vb_kernel *kernel;
    int nodes;   /* the folder where device nodes are made, on a file system of its own */
    int inotify; /* that learns of the ends of opens */
    /* private, to the tracer's process */
    int mount, spent; /* the next open's, and the last one's, which is let go when there is time; -1: none */
    uint64_t serial;  /* of nodes */
    struct vb_device device[VB_DEVICES_MAX];
    unsigned n_devices;
    uint64_t listed; /* when; 0: never */
};

/* What is asked, and the answer. */
enum vb_lookup_kind {
    VB_LOOKUP_OPEN,    /* the device that an open means, and an open of it: fd */
    VB_LOOKUP_PROCESS, /* of a thread: its number in tgid, and a pidfd: fd */
    VB_LOOKUP_THREAD,  /* a thread by a descriptor: a pidfd (folder false), or its folder below /proc: fd */
    VB_LOOKUP_ALONE,   /* value 1: the thread is the only living one of its process, tgid */
    VB_LOOKUP_NAME,    /* a thread's name, in text */
    VB_LOOKUP_PKEY,    /* the value of a P_Key */
    VB_LOOKUP_LOCKS,   /* value 1: thread tgid may lock memory without a limit and, where flags is 1, thread tid may not
                        */
    VB_LOOKUP_REOPEN   /* the descriptor that comes with it, for reading only: fd */
};
struct vb_lookup {
    enum vb_lookup_kind kind;
    pid_t tid, tgid;
    int dirfd, flags; /* of openat() */
    uint64_t name;    /* its address */
    char ibdev[64];
    unsigned port, index;
};
struct vb_found {
    int rc; /* 0 or -errno, with text; of VB_LOOKUP_OPEN -ENOENT: it is none of the devices */
    int value;
    pid_t tgid;
    bool folder;
    struct vb_device device;
    int at;    /* a number of VB_FD_FIRST to VB_FD_LAST that the program does not have open; -errno */
    int watch; /* inotify's, of the node's end */
    char text[160];
};

/* Opens node_dir, which uid is to own (0: as it is). *dev: of its file system. */
int vb_lookups_open(struct vb_lookups *l, const struct vb_kernel *kernel, const char *node_dir, uid_t uid, int inotify,
                    dev_t *dev);
void vb_lookups_close(struct vb_lookups *l);
/* In the tracer's process: answers q. given: the descriptor that came with it, or -1; *fd: the one that goes with the
 * answer, or -1. */
void vb_lookup_answer(struct vb_lookups *l, const struct vb_lookup *q, int given, struct vb_found *f, int *fd);
bool vb_lookups_wait(const struct vb_lookups *l); /* is there something to do when nobody asks? */
void vb_lookups_idle(struct vb_lookups *l);

#endif
