/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker of a container: a process with one thread that answers the notifications of the container's seccomp
 * filters.
 *
 * When an application opens /dev/infiniband/uverbsN, the broker's tracer (lookup.h) creates a device node and opens it
 * for the application. The node's inode identifies the open file until the file is closed. The broker keeps descriptors
 * of the file only for a short time: it recognises the file by fstat(), and inotify reports when the file is closed.
 * The kernel then frees the objects of the file.
 *
 * Most requests run in the broker. Requests that access the application's memory run in the stub, which is a thread in
 * the application (inject.h).
 */
#ifndef HW_VERBS_BROKER_H
#define HW_VERBS_BROKER_H

#include "verbs/broker/audit.h"
#include "verbs/policy/policy.h"

#include <sys/types.h>

#define VB_FD_FIRST 960 /* applications get devices at these descriptors; the filter matches write() on them */
#define VB_FD_LAST  1023

/* The kernel's RDMA interface, which tests replace with a fake. */
struct vb_device {
    char node[32];  /* for example "uverbs0" */
    char ibdev[64]; /* for example "rxe0" */
    dev_t rdev;
};
struct vb_kernel {
    int (*devices)(struct vb_device *out, unsigned cap); /* returns the number of devices, or -errno */
    /* Returns true if the device still has the same number. If this member is NULL, the devices are listed again. */
    bool (*still)(const struct vb_device *d);
    int (*ioctl)(int fd, struct ib_uverbs_ioctl_hdr *request);                      /* returns the result, or -errno */
    int (*pkey)(const char *ibdev, unsigned port, unsigned index, uint16_t *value); /* NULL if P_Keys cannot be read */
};
extern const struct vb_kernel vb_kernel; /* the interface of the running kernel */

struct vb_container {
    char id[128];
    pid_t pid;    /* the process with the filter: the container's first process, or an exec's; 0 if unknown */
    int listener; /* listener of the seccomp filter; vb_serve() closes it */
    /* Socket on which the broker receives the listeners of further programs (join.h), or -1. vb_serve() closes it. */
    int join;
    char section[64]; /* container's section of the policy, or empty for the sections without a container */
    struct vb_annotation *annotations;
    unsigned n_annotations;
};

struct vb_broker_options {
    const struct vb_kernel *kernel;
    const struct vb_policy *policy;
    const struct hw_logger *log;
    struct vb_audit *audit;
    const char *state_dir; /* folder for the socket ID.status, which `hawser verbs status` reads */
    const char *node_dir;  /* folder for the device nodes, on a separate file system that is mounted without nodev */
    int stop;              /* descriptor that becomes readable when the broker must exit, or -1 */
    int cgroup;            /* cgroup.procs of the container's cgroup, to charge RDMA objects to it; negative if none */
    uid_t uid;             /* user to run as after setup, or 0 to keep the caller's */
    pid_t shown;           /* PID to show to the operator, or 0 for getpid() */
    bool guarded;          /* drop capabilities and restrict system calls after setup (guard.h) */
};

/* Runs the broker until the last program under the container's filters has exited or o->stop becomes readable. In the
 * latter case, the system calls that the filters pass to the broker then fail with ENOSYS, and the kernel frees objects
 * when the applications close their files. Returns 0 or -errno.
 *
 * Does not change namespaces. For some device operations the kernel checks the network namespace of the caller, which
 * must be the container's. */
int vb_serve(const struct vb_container *c, const struct vb_broker_options *o);

#endif
