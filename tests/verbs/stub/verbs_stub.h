/* SPDX-License-Identifier: Apache-2.0 */
/* A brokered program and a minimal broker, for the tests of verbs/stub: devices are any files. */
#ifndef VERBS_STUB_H
#define VERBS_STUB_H

#include "verbs/stub/inject_int.h"
#include "verbs/stub/notify.h"

#include <stdatomic.h>
#include <sys/types.h>

#define STUBS_MAX 80
#define WAIT_MAX  256

/* Shared memory of the test, its programs and its tracers. */
struct common {
    atomic_int listener;     /* the number that it has in the program */
    atomic_bool taken;       /* the test has taken it */
    _Atomic uint64_t window; /* of the last stub */
    /* A hook stops at a step until the program has done something. */
    atomic_int at, done; /* in hook_wait(): enum vb_step + 1 */
    _Atomic uint64_t at_window;
    atomic_int hook_step, hook_nth, hook_seen, hook_kill;
    atomic_bool stop;
    atomic_int broker;       /* the process that injects */
    _Atomic int64_t out[64]; /* results of the program */
};
extern struct common *common;
void common_reset(void); /* creates it at the first call */

struct app {
    pid_t pid;
    int listener;
    bool killable;
    int status; /* valid once it has ended */
    bool ended;
};
/* Starts a child that runs fn under a filter that notifies of RDMA_VERBS_IOCTL. killable: WAIT_KILLABLE_RECV. */
void app_start(struct app *a, void (*fn)(void), bool killable);
/* Makes the program's request on a file of its own. Returns 0 or -errno. */
int reg(int fd);

struct mini {
    struct app *a;
    struct vb_tracer tracer; /* valid from the first injection on */
    struct {
        struct vb_stub stub;
        uint64_t asks; /* the notification that its request belongs to; 0: idle */
        int device;
    } s[STUBS_MAX];
    unsigned n;
    struct seccomp_notif waits[WAIT_MAX];
    unsigned n_waits;
    unsigned injected, failed, results, again;
    int last_rc;       /* of the last failed injection */
    char text[256];    /* reason for the failure */
    bool end_each;     /* every stub ends after its first request */
    bool end_alone;    /* stubs that are alone are ended */
    bool fail_through; /* if injection fails with -EAGAIN, the thread's call is repeated: that is only counted */
    bool other_arch;   /* the notification is modified to look like one of i386 */
};
/* Serves until the program ends, but at most for `seconds`. Returns true if it has ended with status 0. */
bool mini_serve(struct mini *m, struct app *a, int seconds);
/* Serves for this long, or until the program sets common->at to `until`. Returns true if it has. */
bool mini_until(struct mini *m, int until, int ms);
void mini_drop(struct mini *m); /* ends all stubs */
/* Ends stubs and the program. */
void mini_end(struct mini *m);

/* A hook that stops at common->hook_step, the nth time, until the program is done. */
void hook_wait(enum vb_step step, pid_t tid, uint64_t window);
/* For the program: waits for the hook (returns true), or for the end of the test. */
bool app_at_step(void);
void app_step_done(void);

int null_fd(void);
/* Makes a request, and records what is left of it: out[0] is the result, out[1] to out[3] the numbers of additional
 * file descriptors, threads and mappings of the window, out[4] whether the signal mask is as before. */
void app_look(void);

#endif
