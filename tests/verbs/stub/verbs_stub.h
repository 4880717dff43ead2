/* SPDX-License-Identifier: Apache-2.0 */
/* A brokered program and a minimal broker for the tests of verbs/stub. The minimal broker serves every kind of file as
 * a device. */
#ifndef VERBS_STUB_H
#define VERBS_STUB_H

#include "verbs/stub/inject_int.h"
#include "verbs/stub/notify.h"

#include <stdatomic.h>
#include <sys/types.h>

#define STUBS_MAX 80
#define WAIT_MAX  256

/* Memory that the test, its programs and its tracers share. */
struct common {
    atomic_int listener;     /* the listener's descriptor number in the program */
    atomic_bool taken;       /* the test has a copy of the listener */
    _Atomic uint64_t window; /* of the most recent stub */
    /* hook_wait() pauses at a step until the program has reacted. */
    atomic_int at, done; /* in hook_wait(): enum vb_step + 1 */
    _Atomic uint64_t at_window;
    atomic_int hook_step, hook_nth, hook_seen, hook_kill;
    atomic_bool stop;
    atomic_int broker;       /* the process that injects stubs */
    _Atomic int64_t out[64]; /* the program's results */
};
extern struct common *common;
void common_reset(void); /* creates the memory on the first call */

struct app {
    pid_t pid;
    int listener;
    bool killable;
    int status; /* valid if `ended` is set */
    bool ended;
};
/* Starts a child that runs fn under a filter with a notification for RDMA_VERBS_IOCTL. killable: use
 * WAIT_KILLABLE_RECV. */
void app_start(struct app *a, void (*fn)(void), bool killable);
/* Calls RDMA_VERBS_IOCTL on fd with a dummy request. Returns 0 or -errno. */
int reg(int fd);

struct mini {
    struct app *a;
    struct vb_tracer tracer; /* valid after the first injection */
    struct {
        struct vb_stub stub;
        uint64_t asks; /* id of the notification that the stub is serving; 0 if idle */
        int device;
    } s[STUBS_MAX];
    unsigned n;
    struct seccomp_notif waits[WAIT_MAX];
    unsigned n_waits;
    unsigned injected, failed, results, again;
    int last_rc;       /* error of the most recent failed injection */
    char text[256];    /* reason for the failure */
    bool end_each;     /* end each stub after its first request */
    bool end_alone;    /* end stubs that are the last thread of their process */
    bool fail_through; /* if injection fails with -EAGAIN, only count the failure: the thread's call is repeated */
    bool other_arch;   /* change the notification's architecture to i386 */
};
/* Serves the program until it exits, but no longer than `seconds`. Returns true if the program exited with status 0. */
bool mini_serve(struct mini *m, struct app *a, int seconds);
/* Serves until the program sets common->at to `until`, but no longer than `ms` milliseconds. Returns true if the
 * program set this value. */
bool mini_until(struct mini *m, int until, int ms);
void mini_drop(struct mini *m); /* ends all stubs */
/* Ends all stubs, and kills the program if it is still running. */
void mini_end(struct mini *m);

/* A hook that pauses when an injection reaches common->hook_step for the nth time (hook_nth, counted from 0), until the
 * program calls app_step_done(). */
void hook_wait(enum vb_step step, pid_t tid, uint64_t window);
/* Called by the program. Waits until the hook pauses, and returns true. Returns false if the test ends first. */
bool app_at_step(void);
void app_step_done(void);

int null_fd(void);
/* Makes a request, and records its effects: out[0] is the result; out[1] to out[3] are the numbers of additional file
 * descriptors, additional threads and mappings of the window; out[4] is 1 if the signal mask is unchanged. */
void app_look(void);

#endif
