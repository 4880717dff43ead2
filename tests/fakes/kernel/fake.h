/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake kernel for hawserd: two NICs in memory that all processes of a test share, so that the NICs survive the death
 * of a process. Calls can be made to fail, before or after they take effect, or to end the process. The fake refuses
 * the same calls as the real kernel, and records in `wrong` the first call that hawserd must never make.
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
    struct fake_driver driver; /* header split and related settings; initially LIKE_PLAIN */
    unsigned mtu;
    bool ntuple;
    uint32_t table[FAKE_TABLE];
    struct hd_set contexts;
    enum hd_user foreign[FAKE_QUEUES]; /* queues bound by other programs */
    struct fake_rule rule[FAKE_RULES];
};

struct fake_bind {
    pid_t pid; /* 0 if unused */
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
    unsigned calls, at; /* at: number of the call that fails, from 1, or 0 for none */
    enum fake_how how;
    bool struck;     /* the fault has occurred */
    uint32_t ended;  /* port of a closed connection to 10.0.0.2 or its IPv6 counterpart */
    uint32_t report; /* port of a socket that the kernel reports once as destroyed */
    bool lose;       /* the next report is lost */
    bool blind;      /* connections are not listed */
    int ports;       /* number of held ports */
    bool watched;
    bool foreign_ns; /* every client is in a different namespace */
    char wrong[160];
};

/* Creates shared memory with two NICs, eth1 (ifindex 11) and eth2 (12), with all queues in RSS and all features off. */
struct fake *fake_new(void);
void fake_free(struct fake *f);
void fake_kernel(struct fake *f, struct hd_kernel *k);
/* Replaces the fake kernel's functions for connections and ports with real ones. The device fake_ifindex represents
 * both NICs. Returns 0 or -errno. */
int fake_kernel_real_sockets(struct hd_kernel *k);
extern int fake_ifindex; /* initially 1, which is lo */
/* Releases all ports, and the bindings of a process that has ended. */
void fake_reap(struct fake *f, pid_t pid);
/* Counts a call if `before` is set. Returns true if the call has to fail now, or ends the process. Tests also use this
 * function for calls outside struct hd_kernel, such as the journal's. */
bool fake_strikes(struct fake *f, bool before);
/* Returns "" if `is` has no bindings and no held ports, and its NICs have the same settings and flow rules as in `was`.
 * Otherwise returns a text that describes the difference. */
const char *fake_differs(const struct fake *was, const struct fake *is);
/* Return a memfd that fake kernels treat as a dma-buf, or as a TCP socket with this remote port (f_connection()). */
int fake_dmabuf(size_t bytes);
int fake_sock(uint32_t port);

#endif
