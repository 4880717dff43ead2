/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves NICs into a container's network namespace and back, with their settings. Before anything changes, the previous
 * state is written to a journal, one file per container (see journal.h), so that sb_restore() can restore it whichever
 * process dies, at any time. docs/sandbox.md lists the settings that move with a NIC.
 *
 * Call these functions as root in the host's network namespace, where the NICs are. The calling thread temporarily
 * enters the container's namespace. Calls of sb_move() and sb_restore() with the same journal folder are serialized. A
 * call waits for up to a minute.
 */
#ifndef HW_SANDBOX_MOVE_H
#define HW_SANDBOX_MOVE_H

#include "base/base.h"

#include <net/if.h>
#include <sys/types.h>

/* This folder must not survive a reboot, because network namespaces do not survive a reboot either. */
#define SB_JOURNAL_DIR "/run/hawser/sandbox"
#define SB_ID_MAX      128
#define SB_NICS_MAX    64

struct sb_nic {
    const char *name;
    const char *as; /* name in the container; NULL to keep the name */
};

enum sb_rdma {
    /* Moves a NIC's RDMA device with the NIC if the kernel's RDMA subsystem is in exclusive mode. In shared mode, every
       namespace sees the device, and nothing is moved. */
    SB_RDMA_AUTO,
    SB_RDMA_REQUIRE, /* fails with -EOPNOTSUPP without RDMA or in shared mode, and with -ENODEV if a NIC has no RDMA
                        device */
    SB_RDMA_LEAVE,   /* leaves the RDMA device where it is */
};

struct sb_move_options {
    /* the container's ID: letters, digits, '_', '-', '.' and '+', beginning with a letter or digit */
    const char *id;
    const char *netns; /* "4711" (PID of a process in it), "/proc/4711/ns/net" (path) or "blue" (name of `ip netns`) */
    uint64_t start;    /* required start time of the process (sb_process_start()), 0 for any; checked (-ESRCH) */
    const struct sb_nic *nic;
    size_t n;
    const char *journal_dir; /* created if missing; NULL means SB_JOURNAL_DIR */
    enum sb_rdma rdma;
    bool no_arp; /* leave ARP in the container unchanged: set no sysctls or source-based routes */
    bool force;  /* also move NICs with a default route, with devices stacked on them, with routes that use nexthop
                    objects, or with attributes that cannot be saved */
    const struct hw_logger *log; /* may be NULL */
};

/* Returns the time at which a process started, in clock ticks as in /proc/PID/stat, or 0 if the process does not exist
 * or has exited. A later process with the same PID has a different start time. */
uint64_t sb_process_start(pid_t pid);

/* Moves all the NICs or none. After an error, either everything has been restored, or hw_error() reports that restoring
 * failed and sb_restore() must be called. Errors include -EINVAL; -ENODEV for an unknown NIC; -EBUSY if a NIC belongs
 * to another container, is a port of a bridge or bond, or (without force) is needed here; -EEXIST if there is a journal
 * for that ID or the container already has a device with the name of a NIC; -ESRCH or -ENOENT for an unknown namespace;
 * and -EPERM. */
int sb_move(const struct sb_move_options *o);

struct sb_restore_options {
    const char *id;
    const char *journal_dir;
    bool forget; /* remove the journal at the end, even if something could not be restored */
    bool ended;  /* fail with -EBUSY if the state is SB_STATE_RUNNING */
    const struct hw_logger *log;
};

/* Undoes sb_move(), even if it was interrupted. Moves the NICs back from the container, or from any other namespace to
 * which the kernel or the container has moved them, and restores their settings. May be called any number of times, and
 * returns 0 if nothing is left to do. *lost (unless lost is NULL) receives the number of virtual NICs that were
 * deleted, such as a veth or macvlan device, which is deleted with its namespace. Lost NICs are logged and are not an
 * error. On an error the journal is kept, so that a later call can continue. */
int sb_restore(const struct sb_restore_options *o, unsigned *lost);

/* Waits until the container has ended, and then restores. If the namespace was specified by a process (by PID or by
 * path in /proc), the container has ended when the process has exited. Otherwise, the container has ended when the
 * namespace's path no longer exists or refers to another namespace, and no process is in the namespace. stop_fd is -1
 * or a file descriptor; when it becomes readable, returns -ECANCELED without restoring. Fails with -ENOENT if there is
 * no journal. Also returns 0 if another process restores the NICs first. */
int sb_watch(const struct sb_restore_options *o, int stop_fd, unsigned *lost);

enum sb_state {
    SB_STATE_RUNNING,   /* moved, and the container is running */
    SB_STATE_ENDED,     /* moved, and the container has ended: call sb_restore() */
    SB_STATE_UNDER_WAY, /* a move or restore is in progress */
    SB_STATE_BROKEN,    /* a move or restore was interrupted or has failed: call sb_restore() */
    SB_STATE_UNREADABLE /* the journal cannot be read, see error */
};

struct sb_status_nic {
    char name[IFNAMSIZ], as[IFNAMSIZ];
    bool here, there; /* the NIC is in the caller's namespace, or in the container's */
};

struct sb_status {
    char id[SB_ID_MAX + 1];
    enum sb_state state;
    char netns[256]; /* path of the namespace */
    pid_t holder;    /* the process that represents the container; 0 if none */
    bool elsewhere;  /* the NICs come from a network namespace other than the caller's, so `here` is unknown */
    unsigned n;
    struct sb_status_nic nic[SB_NICS_MAX];
    char error[HW_ERR_TEXT]; /* reason for SB_STATE_UNREADABLE */
};

/* Calls each() for every journal in the folder (SB_JOURNAL_DIR if NULL), or only for the journal of id. *s is valid
 * only during the call of each(). A nonzero result of each(), except -ENOENT, ends the iteration and is returned.
 * Without id, returns 0 if there is no folder. With id, returns -ENOENT if there is no journal for that ID. */
int sb_status(const char *journal_dir, const char *id, int (*each)(const struct sb_status *s, void *arg), void *arg);
/* An address of a NIC that is in a container. */
struct sb_taken {
    char nic[IFNAMSIZ];
    uint32_t mtu;
    int family; /* AF_INET or AF_INET6 */
    const uint8_t *addr;
    unsigned prefix;
};
/* Calls each() for every address of a NIC that moved from the caller's network namespace to a container that is running
 * (SB_STATE_RUNNING). addr has 4 or 16 bytes. A nonzero result of each(), except -ENOENT, ends the iteration and is
 * returned. */
int sb_taken(const char *journal_dir, int (*each)(const struct sb_taken *t, void *arg), void *arg);
/* Returns "running", "ended", "under way", "broken" or "unreadable". */
const char *sb_state_name(enum sb_state s);

#endif
