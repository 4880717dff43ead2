/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves NICs into a container's network namespace and back, with everything they have. Before it changes anything it
 * writes the previous state to a journal, one file for each container (see journal.h), so that sb_restore() can restore
 * it whatever process died at whatever time. docs/sandbox.md says what moves along and what does not.
 *
 * Call it in the host's network namespace (the NICs' namespace), as root. The calling thread enters the container's
 * namespace and returns. Calls for the same journal folder wait for each other.
 */
#ifndef HW_SANDBOX_MOVE_H
#define HW_SANDBOX_MOVE_H

#include "base/base.h"

#include <net/if.h>
#include <sys/types.h>

#define SB_JOURNAL_DIR "/run/hawser/sandbox" /* must not survive a reboot: network namespaces do not either */
#define SB_ID_MAX      128
#define SB_NICS_MAX    64

struct sb_nic {
    const char *name;
    const char *as; /* its name in the container; NULL: the same */
};

enum sb_rdma {
    /* a NIC's RDMA device moves with it if the kernel's RDMA is in exclusive mode; otherwise it stays, which in
     * shared mode means that every namespace sees it */
    SB_RDMA_AUTO,
    SB_RDMA_REQUIRE, /* -EOPNOTSUPP with the reason if it cannot move, -ENODEV if a NIC has none */
    SB_RDMA_LEAVE,   /* it stays */
};

struct sb_move_options {
    const char *id;    /* the container: letters, digits, '_', '-', '.' and '+', the first a letter or digit */
    const char *netns; /* "4711" (a process in it), "/proc/4711/ns/net" (a path), "blue" (a name of `ip netns`) */
    uint64_t start;    /* start time of the process (sb_process_start()); another one is -ESRCH; 0: any */
    const struct sb_nic *nic;
    size_t n;
    const char *journal_dir; /* NULL: SB_JOURNAL_DIR; created if missing */
    enum sb_rdma rdma;
    bool no_arp;                 /* leaves ARP unchanged in the container: neither sysctls nor routes by source */
    bool force;                  /* also NICs with a default route, devices on top, or nexthop objects */
    const struct hw_logger *log; /* may be NULL */
};

/* Returns when a process started, in the clock ticks of /proc/PID/stat; 0: there is none. A reused PID has another
 * start time. */
uint64_t sb_process_start(pid_t pid);

/* Moves the NICs, all or none: after an error everything is restored, or hw_error() says that it is not and that
 * sb_restore() must be called again. -EINVAL; -ENODEV: no such NIC; -EBUSY: a NIC belongs to another container, is a
 * port of a bridge or bond, or (without force) is needed here; -EEXIST: there is a journal for that id; -ESRCH,
 * -ENOENT: no such namespace; -EPERM. */
int sb_move(const struct sb_move_options *o);

struct sb_restore_options {
    const char *id;
    const char *journal_dir;
    bool forget; /* removes the journal at the end, even if something could not be restored */
    bool ended;  /* -EBUSY if the container runs */
    const struct hw_logger *log;
};

/* Restores what sb_move() moved, from the container, from where the kernel puts NICs of ended namespaces, or from an
 * interrupted move. May be called any number of times; 0 if nothing is left to do. *lost (may be NULL) receives the
 * number of NICs that no longer exist (a veth or macvlan device ends with its namespace): each is logged, and is no
 * error. On an error the journal stays, and a later call continues. */
int sb_restore(const struct sb_restore_options *o, unsigned *lost);

/* Waits until the container has ended (its process, if the namespace was given by one; otherwise: the namespace's path
 * is gone or another namespace's, and no process is in it), then restores. stop_fd (-1: none): when readable, returns
 * -ECANCELED without restoring. -ENOENT: no journal; 0 also if another process has restored meanwhile. */
int sb_watch(const struct sb_restore_options *o, int stop_fd, unsigned *lost);

enum sb_state {
    SB_STATE_RUNNING,   /* moved, and the container lives */
    SB_STATE_ENDED,     /* moved, and the container has ended: call restore */
    SB_STATE_UNDER_WAY, /* a move or restore is in progress */
    SB_STATE_BROKEN,    /* a move or restore was interrupted: call restore */
    SB_STATE_UNREADABLE /* the journal cannot be read: error says why */
};

struct sb_status_nic {
    char name[IFNAMSIZ], as[IFNAMSIZ];
    bool here, there; /* in the caller's namespace; in the container's */
};

struct sb_status {
    char id[SB_ID_MAX + 1];
    enum sb_state state;
    char netns[256]; /* as a path */
    pid_t holder;    /* the process that represents the container; 0: none */
    unsigned n;
    struct sb_status_nic nic[SB_NICS_MAX];
    char error[HW_ERR_TEXT]; /* of SB_STATE_UNREADABLE */
};

/* Calls each for every journal in the folder (NULL: SB_JOURNAL_DIR), or only for id's; *s is valid during the call. A
 * nonzero result of each ends the iteration and is returned. 0 if there is no folder; -ENOENT if there is no journal
 * for that id. */
int sb_status(const char *journal_dir, const char *id, int (*each)(const struct sb_status *s, void *arg), void *arg);
/* Calls each for every address that a NIC had before it moved from the caller's network namespace to a container, if by
 * its journal the NIC is still there. addr: 4 or 16 bytes. A nonzero result of each ends the iteration and is
 * returned. */
struct sb_taken {
    char nic[IFNAMSIZ];
    uint32_t mtu;
    int family; /* AF_INET, AF_INET6 */
    const uint8_t *addr;
    unsigned prefix;
};
int sb_taken(const char *journal_dir, int (*each)(const struct sb_taken *t, void *arg), void *arg);
/* "running", "ended", "under way", "broken", "unreadable" */
const char *sb_state_name(enum sb_state s);

#endif
