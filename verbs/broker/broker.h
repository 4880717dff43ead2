/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One container's broker: a process of one thread that answers the notifications of the container's seccomp filter.
 *
 * An open of /dev/infiniband/uverbsN becomes an open of the broker's own on a node of its own making, whose inode is
 * that open's name for as long as it lives: the broker keeps no descriptor of it, finds it by fstat(), and learns of
 * its end, the kernel's objects with it, by inotify. Requests run here on a descriptor that pidfd_getfd() fetched, or,
 * where they pin memory, by the stub in the application (inject.h).
 */
#ifndef HW_VERBS_BROKER_H
#define HW_VERBS_BROKER_H

#include "verbs/broker/audit.h"
#include "verbs/policy/policy.h"

#include <sys/types.h>

#define VB_FD_FIRST 960 /* applications get devices at these numbers, so that a filter knows their write() */
#define VB_FD_LAST  1023

/* What the broker asks of the kernel's RDMA: a fake one in tests. */
struct vb_device {
    char node[32];  /* "uverbs0" */
    char ibdev[64]; /* "rxe0" */
    dev_t rdev;
};
struct vb_kernel {
    int (*devices)(struct vb_device *out, unsigned cap);       /* how many, or -errno */
    bool (*still)(const struct vb_device *d);                  /* has it its number still? NULL: list them anew */
    int (*ioctl)(int fd, struct ib_uverbs_ioctl_hdr *request); /* 0 or more, or -errno */
    int (*pkey)(const char *ibdev, unsigned port, unsigned index, uint16_t *value); /* NULL: nobody knows */
};
extern const struct vb_kernel vb_kernel; /* the true one */

struct vb_container {
    char id[128];
    pid_t pid;        /* of its first process; 0: not known */
    int listener;     /* of its filter; owned by vb_serve() */
    int join;         /* where listeners of its other programs come (join.h); owned by vb_serve(); -1: none come */
    char section[64]; /* of the policy; "" the default */
    struct vb_annotation *annotations;
    unsigned n_annotations;
};

struct vb_broker_options {
    const struct vb_kernel *kernel;
    const struct vb_policy *policy;
    const struct hw_logger *log;
    struct vb_audit *audit;
    const char *state_dir; /* STATE/ID.status answers `hawser verbs status` */
    const char *node_dir;  /* where its device nodes are made: a file system of its own, without nodev */
    int stop;              /* readable: it is time to end; -1: none */
    int cgroup;            /* cgroup.procs of the container's, for the RDMA objects that are made here; -1: none */
    uid_t uid;             /* whom it runs as once it is set up; 0: as the caller */
    pid_t shown;           /* its process's number for the operator; 0: getpid()'s */
    bool guarded;          /* once it is set up, its capabilities and system calls are few (guard.h) */
};

/* Serves until the last program under its filters is gone, or stop: then applications get ENOSYS, and the kernel takes
 * their objects when they close their files. 0 or -errno. The caller's namespaces are left as they are: what the kernel
 * lets a device do may hang on the network namespace, which is to be the container's. */
int vb_serve(const struct vb_container *c, const struct vb_broker_options *o);

#endif
