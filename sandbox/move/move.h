/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NICs into a container's network namespace and back: all of what they had goes with them and comes back with them.
 * What was there is in a journal, one file for each container (see journal.h), before anything is touched, so that
 * sb_restore() gives it back whatever died when. docs/sandbox.md says what goes along and what does not.
 *
 * To be called in the host's network namespace (the one that the NICs are in), as root. The calling thread visits the
 * container's namespace and is back on return. Calls for the same journal folder wait for each other.
 */
#ifndef HW_SANDBOX_MOVE_H
#define HW_SANDBOX_MOVE_H

#include "base/base.h"

#include <net/if.h>
#include <sys/types.h>

#define SB_JOURNAL_DIR "/run/hawser/sandbox" /* must not outlive a reboot: neither do network namespaces */
#define SB_ID_MAX      128
#define SB_NICS_MAX    64

struct sb_nic {
    const char *name;
    const char *as; /* its name in the container; NULL: the same */
};

enum sb_rdma {
    SB_RDMA_AUTO, /* a NIC's RDMA device goes with it where the kernel's RDMA is in exclusive mode; else it stays, which
                     in shared mode means that every namespace sees it */
    SB_RDMA_REQUIRE, /* -EOPNOTSUPP with the reason where it would not go, -ENODEV where a NIC has none */
    SB_RDMA_LEAVE,   /* it stays */
};

struct sb_move_options {
    const char *id;    /* the container: letters, digits, '_', '-', '.' and '+', the first a letter or digit */
    const char *netns; /* "4711" (a process in it), "/proc/4711/ns/net" (a path), "blue" (of `ip netns`) */
    uint64_t start;    /* of a process: its start time (sb_process_start()); another one is -ESRCH; 0: any */
    const struct sb_nic *nic;
    size_t n;
    const char *journal_dir; /* NULL: SB_JOURNAL_DIR; made where there is none */
    enum sb_rdma rdma;
    bool no_arp;                 /* leaves ARP as the container has it: neither the sysctls nor routes by source */
    bool force;                  /* NICs with a default route, with devices on top, with nexthop objects too */
    const struct hw_logger *log; /* may be NULL */
};

/* When a process began, in the clock ticks of /proc/PID/stat; 0: there is none. A PID is soon another process's, with
 * another start. */
uint64_t sb_process_start(pid_t pid);

/* Moves the NICs, all of them or none: after an error everything is as it was, or hw_error() says that it is not and
 * that sb_restore() has to be called again. -EINVAL; -ENODEV no such NIC; -EBUSY a NIC that is another container's, a
 * bridge's or bond's port, or (without force) needed here; -EEXIST there is a journal of that id; -ESRCH, -ENOENT no
 * such namespace; -EPERM. */
int sb_move(const struct sb_move_options *o);

struct sb_restore_options {
    const char *id;
    const char *journal_dir;
    bool forget; /* ends by dropping the journal, whatever could not be given back */
    bool ended;  /* -EBUSY where the container runs */
    const struct hw_logger *log;
};

/* Gives back what sb_move() took, from the container, from where the kernel puts NICs whose namespace ended, or from
 * half the way. May be called any number of times; 0 where there is nothing (left) to do. *lost (may be NULL) gets the
 * number of NICs that are no more (a veth or macvlan device ends with its namespace): each is told by a log line, and
 * is no error. On an error the journal stays, and a later call goes on. */
int sb_restore(const struct sb_restore_options *o, unsigned *lost);

/* Waits until the container has ended (its process, where the namespace was given by one; else: the namespace's path
 * is another's or gone, and no process is in it), then restores. stop_fd (-1: none): readable: -ECANCELED, and nothing
 * is restored. -ENOENT where there is no journal; 0 where somebody else has restored meanwhile. */
int sb_watch(const struct sb_restore_options *o, int stop_fd, unsigned *lost);

enum sb_state {
    SB_STATE_RUNNING,   /* moved, and the container lives */
    SB_STATE_ENDED,     /* moved, and the container has ended: to be restored */
    SB_STATE_UNDER_WAY, /* a move or restore runs just now */
    SB_STATE_BROKEN,    /* a move or restore died half the way: to be restored */
    SB_STATE_UNREADABLE /* the journal cannot be read: error says why */
};

struct sb_status_nic {
    char name[IFNAMSIZ], as[IFNAMSIZ];
    bool here, there; /* in the caller's namespace, in the container's */
};

struct sb_status {
    char id[SB_ID_MAX + 1];
    enum sb_state state;
    char netns[256]; /* as a path */
    pid_t holder;    /* the process that stands for the container; 0: none */
    unsigned n;
    struct sb_status_nic nic[SB_NICS_MAX];
    char error[HW_ERR_TEXT]; /* of SB_STATE_UNREADABLE */
};

/* Calls each for every journal in the folder (NULL: SB_JOURNAL_DIR), or for id's alone; *s is valid during the call.
 * What each returns other than 0 ends it and is returned. 0 where there is no folder; -ENOENT where there is no journal
 * of that id. */
int sb_status(const char *journal_dir, const char *id, int (*each)(const struct sb_status *s, void *arg), void *arg);
/* Calls each for every address that a NIC had, before it went from the caller's network namespace to a container, where
 * the NIC is still there by its journal. addr: 4 or 16 bytes. What each returns other than 0 ends it and is returned.
 */
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
