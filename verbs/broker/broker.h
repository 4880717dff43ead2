/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One container's broker: a process with one thread that answers the notifications of the container's seccomp filter.
 *
 * For an open of /dev/infiniband/uverbsN the broker opens a node of its own making; the node's inode identifies that
 * open as long as it lives. The broker keeps no descriptor of it, recognises it by fstat(), and learns by inotify of
 * its end, with which the kernel's objects end. Requests run in the broker on a descriptor that pidfd_getfd() fetched,
 * or, if they pin memory, in the stub in the application (inject.h).
 */
#ifndef HW_VERBS_BROKER_H
#define HW_VERBS_BROKER_H

#include "verbs/broker/audit.h"
#include "verbs/policy/policy.h"

#include <sys/types.h>

#define VB_FD_FIRST 960 /* applications get devices at these numbers, so that a filter recognises write() on them */
#define VB_FD_LAST  1023

/* The kernel's RDMA interface for the broker: a fake in tests. */
struct vb_device {
    char node[32];  /* "uverbs0" */
    char ibdev[64]; /* "rxe0" */
    dev_t rdev;
};
struct vb_kernel {
    int (*devices)(struct vb_device *out, unsigned cap); /* returns how many, or -errno */
    /* returns true if the device still has its number; NULL: list them again */
    bool (*still)(const struct vb_device *d);
    int (*ioctl)(int fd, struct ib_uverbs_ioctl_hdr *request);                      /* returns 0 or more, or -errno */
    int (*pkey)(const char *ibdev, unsigned port, unsigned index, uint16_t *value); /* NULL: nobody knows */
};
extern const struct vb_kernel vb_kernel; /* the true one */

struct vb_container {
    char id[128];
    pid_t pid;    /* of its first process; 0: unknown */
    int listener; /* of its filter; owned by vb_serve() */
    /* socket that receives the listeners of further programs (join.h); owned by vb_serve(); -1: none */
    int join;
    char section[64]; /* section of the policy; "": the default */
    struct vb_annotation *annotations;
    unsigned n_annotations;
};

struct vb_broker_options {
    const struct vb_kernel *kernel;
    const struct vb_policy *policy;
    const struct hw_logger *log;
    struct vb_audit *audit;
    const char *state_dir; /* STATE/ID.status answers `hawser verbs status` */
    const char *node_dir;  /* folder for the device nodes: a separate file system, without nodev */
    int stop;              /* readable: time to end; -1: none */
    int cgroup;            /* the container's cgroup.procs, for the RDMA objects made here; -1: none */
    uid_t uid;             /* user to run as after setup; 0: the caller's */
    pid_t shown;           /* process number to show to the operator; 0: getpid() */
    bool guarded;          /* after setup, reduce capabilities and system calls (guard.h) */
};

/* Serves until the last program under the container's filters has gone, or until stop: then applications get ENOSYS,
 * and the kernel frees their objects when they close their files. 0 or -errno. Does not change namespaces: the kernel
 * may check the network namespace for a device operation, and that must be the container's. */
int vb_serve(const struct vb_container *c, const struct vb_broker_options *o);

#endif
