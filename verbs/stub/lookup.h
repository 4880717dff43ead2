/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracer process also performs every operation that needs a path for the broker. It resolves paths for programs,
 * opens devices, and reads /proc and /sys. The broker, which parses the requests of programs, therefore needs no system
 * call with a path, and no capability except CAP_SYS_PTRACE and, for raw packets and flow steering, CAP_NET_RAW.
 */
#ifndef HW_VERBS_LOOKUP_H
#define HW_VERBS_LOOKUP_H

#include "verbs/broker/broker.h"
#include "verbs/policy/policy.h"

struct vb_lookups {
    const struct vb_kernel *kernel;
    int nodes;   /* descriptor of the folder of device nodes, which is on a separate file system */
    int inotify; /* reports when device files are closed */
    /* Private to the tracer process. */
    int mount, spent; /* descriptors, or negative: the mount for the next open; the mount of the last open, which is
                         unmounted when the tracer is idle */
    uint64_t serial;  /* number of the next node */
    struct vb_device device[VB_DEVICES_MAX];
    unsigned n_devices;
    uint64_t listed; /* time at which the devices were last listed, or 0 */
};

/* A query to the tracer process, and the answer. */
enum vb_lookup_kind {
    VB_LOOKUP_OPEN,    /* opens the device at a path of the program; returns fd */
    VB_LOOKUP_PROCESS, /* finds the process of a thread; returns the PID in tgid and a pidfd in fd */
    VB_LOOKUP_THREAD,  /* returns in fd a pidfd of a thread or, with folder = true, its folder in /proc */
    VB_LOOKUP_ALONE,   /* value is 1 if the thread is the last running thread of process tgid */
    VB_LOOKUP_NAME,    /* returns the name of a thread in text */
    VB_LOOKUP_PKEY,    /* returns the value of a P_Key */
    VB_LOOKUP_LOCKS,   /* value is 1 if thread tgid may lock unlimited memory and, if flags is 1, thread tid may not */
    VB_LOOKUP_REOPEN   /* opens the given descriptor again, read-only; returns fd */
};
struct vb_lookup {
    enum vb_lookup_kind kind;
    pid_t tid, tgid;
    int dirfd, flags; /* arguments of openat(); for flags see also VB_LOOKUP_LOCKS */
    uint64_t name;    /* address of the path in the program */
    char ibdev[64];
    unsigned port, index;
};
struct vb_found {
    int rc; /* 0, or -errno with the reason in text; -ENOENT of VB_LOOKUP_OPEN means that the path is not an RDMA
               device */
    int value;
    pid_t tgid;
    bool folder;
    struct vb_device device;
    int at;    /* a free descriptor of the program from VB_FD_FIRST to VB_FD_LAST, or -errno */
    int watch; /* inotify watch that reports when the node is closed */
    char text[160];
};

/* Opens node_dir and changes its owner to uid, unless uid is 0. Stores the device number of its file system in *dev. */
int vb_lookups_open(struct vb_lookups *l, const struct vb_kernel *kernel, const char *node_dir, uid_t uid, int inotify,
                    dev_t *dev);
void vb_lookups_close(struct vb_lookups *l);
/* Answers query q in the tracer process. given is the descriptor that was received with the query, or -1. *fd is set to
 * the descriptor to send with the answer, or -1. */
void vb_lookup_answer(struct vb_lookups *l, const struct vb_lookup *q, int given, struct vb_found *f, int *fd);
bool vb_lookups_wait(const struct vb_lookups *l); /* returns true if vb_lookups_idle() has work to do */
void vb_lookups_idle(struct vb_lookups *l);

#endif
