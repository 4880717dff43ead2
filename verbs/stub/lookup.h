/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Services of the tracer's process for the broker besides tracing: everything that needs a path. It resolves a
 * program's names, opens devices, and reads /proc and /sys; so the broker, which parses programs' requests, needs no
 * system call with a path, and no capability except CAP_SYS_PTRACE.
 */
#ifndef HW_VERBS_LOOKUP_H
#define HW_VERBS_LOOKUP_H

#include "verbs/broker/broker.h"
#include "verbs/policy/policy.h"

struct vb_lookups {
    const struct vb_kernel *kernel;
    int nodes;   /* the folder of device nodes, on a file system of its own */
    int inotify; /* reports the ends of opens */
    /* private to the tracer's process */
    int mount, spent; /* for the next open, and of the last one, which is unmounted when idle; -1: none */
    uint64_t serial;  /* of nodes */
    struct vb_device device[VB_DEVICES_MAX];
    unsigned n_devices;
    uint64_t listed; /* when; 0: never */
};

/* What is asked, and the answer. */
enum vb_lookup_kind {
    VB_LOOKUP_OPEN,    /* opens the device that a path means: fd */
    VB_LOOKUP_PROCESS, /* number of a thread's process in tgid, and a pidfd: fd */
    VB_LOOKUP_THREAD,  /* a descriptor of a thread: a pidfd (folder false), or its folder in /proc: fd */
    VB_LOOKUP_ALONE,   /* value 1: the thread is the only live one of its process, tgid */
    VB_LOOKUP_NAME,    /* a thread's name, in text */
    VB_LOOKUP_PKEY,    /* the value of a P_Key */
    VB_LOOKUP_LOCKS,   /* value 1: thread tgid may lock memory without limit and, if flags is 1, thread tid may not */
    VB_LOOKUP_REOPEN   /* reopens the attached descriptor read-only: fd */
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
    int rc; /* 0 or -errno, with text; VB_LOOKUP_OPEN -ENOENT: not one of the devices */
    int value;
    pid_t tgid;
    bool folder;
    struct vb_device device;
    int at;    /* a free number in the program from VB_FD_FIRST to VB_FD_LAST; -errno */
    int watch; /* inotify's watch for the node's end */
    char text[160];
};

/* Opens node_dir and gives it to uid (0: no change). *dev: its file system. */
int vb_lookups_open(struct vb_lookups *l, const struct vb_kernel *kernel, const char *node_dir, uid_t uid, int inotify,
                    dev_t *dev);
void vb_lookups_close(struct vb_lookups *l);
/* In the tracer's process: answers q. given: the descriptor that came with it, or -1; *fd: the descriptor to send with
 * the answer, or -1. */
void vb_lookup_answer(struct vb_lookups *l, const struct vb_lookup *q, int given, struct vb_found *f, int *fd);
bool vb_lookups_wait(const struct vb_lookups *l); /* returns true if there is idle work */
void vb_lookups_idle(struct vb_lookups *l);

#endif
