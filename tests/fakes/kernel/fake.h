/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel of our own for hawserd: two NICs in memory that all processes of a test share, so that they outlive the one
 * that is killed. Any call can be made to fail, before or behind its effect, or to end the process there. What the real
 * kernel would refuse it refuses; what hawserd must never do it remembers in wrong.
 */
#ifndef TESTS_HELPER_FAKE_H
#define TESTS_HELPER_FAKE_H

#include "drivers.h"
#include "helper/kernel/kernel.h"

#include <sys/types.h>

#define FAKE_QUEUES 8
#define FAKE_TABLE  32
#define FAKE_RULES  24
#define FAKE_BINDS  32

struct fake_rule {
    bool used, foreign;
    struct hd_rule rule;
};

struct fake_nic {
    int ifindex;
    char name[HAWSER_NIC_NAME];
    bool gone, down, no_tx, no_rss;
    struct fake_driver driver; /* header split, and what goes with it; at first LIKE_PLAIN */
    unsigned mtu;
    bool ntuple;
    uint32_t table[FAKE_TABLE];
    struct hd_set contexts;
    enum hd_user foreign[FAKE_QUEUES]; /* queues that others have bound */
    struct fake_rule rule[FAKE_RULES];
};

struct fake_bind {
    pid_t pid; /* 0: none */
    int fd, ifindex;
    uint32_t id, queue[16];
    unsigned n;
    uint32_t page;
};

enum fake_how { FAKE_BEFORE, FAKE_BEHIND, FAKE_DIE_BEFORE, FAKE_DIE_BEHIND };

struct fake {
    struct fake_nic nic[2];
    struct fake_bind bind[FAKE_BINDS];
    uint32_t last_id;
    unsigned calls, at; /* the at-th call (1, ..) goes wrong; 0: none */
    enum fake_how how;
    bool struck;     /* it has */
    uint32_t ended;  /* the connection to 10.0.0.2:ended, or its like of IPv6, is over */
    uint32_t report; /* the kernel reports that its socket is destroyed: once */
    bool lose;       /* the next report is lost */
    bool blind;      /* no connection is shown */
    int ports;       /* that are held, by this process */
    bool watched;
    bool foreign_ns; /* every client is in another namespace */
    char wrong[160];
};

/* Shared memory with two NICs, eth1 (ifindex 11) and eth2 (12), all queues in RSS, nothing turned on. */
struct fake *fake_new(void);
void fake_free(struct fake *f);
void fake_kernel(struct fake *f, struct hd_kernel *k);
/* Of a fake kernel, what is about connections by this machine's, whose device fake_ifindex plays each NIC. -errno. */
int fake_kernel_real_sockets(struct hd_kernel *k);
extern int fake_ifindex; /* 1: lo */
/* What the kernel does when a process is gone. */
void fake_reap(struct fake *f, pid_t pid);
/* One more call: true where it is to fail now. For what is no call of struct hd_kernel, the journal's. */
bool fake_strikes(struct fake *f, bool before);
/* "" where both are the same, bindings and foreign things included; else what differs. */
const char *fake_differs(const struct fake *was, const struct fake *is);
/* A memfd that fake kernels take for a dma-buf, or for a TCP socket whose other end is 10.0.0.2:port. */
int fake_dmabuf(size_t bytes);
int fake_sock(uint32_t port);

#endif
