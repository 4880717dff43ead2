/* SPDX-License-Identifier: Apache-2.0 */
/* A brokered program and a broker of the least kind, for the tests of verbs/inject: devices are any files. */
#ifndef VERBS_STUB_H
#define VERBS_STUB_H

#include "verbs/stub/inject_int.h"
#include "verbs/stub/notify.h"

#include <stdatomic.h>
#include <sys/types.h>

#define STUBS_MAX 80
#define WAIT_MAX  256

/* Memory of the test, its programs and its tracers. */
struct common {
    atomic_int listener;     /* the program's number of it */
    atomic_bool taken;       /* the test has it */
    _Atomic uint64_t window; /* of the last stub */
    /* A hook stops at a step until the program has done something. */
    atomic_int at, done; /* enum vb_step + 1 */
    _Atomic uint64_t at_window;
    atomic_int hook_step, hook_nth, hook_seen, hook_kill;
    atomic_bool stop;
    atomic_int broker;       /* who injects */
    _Atomic int64_t out[64]; /* what the program found */
};
extern struct common *common;
void common_reset(void); /* makes it, the first time */

struct app {
    pid_t pid;
    int listener;
    bool killable;
    int status; /* once it has ended */
    bool ended;
};
/* A child that runs fn under a filter that notifies of RDMA_VERBS_IOCTL. killable: WAIT_KILLABLE_RECV. */
void app_start(struct app *a, void (*fn)(void), bool killable);
/* What a program does: its request on a file of its own. 0 or -errno. */
int reg(int fd);

struct mini {
    struct app *a;
    struct vb_tracer tracer; /* from the first injection on */
    struct {
        struct vb_stub stub;
        uint64_t asks; /* the notification that its request is for; 0: idle */
        int device;
    } s[STUBS_MAX];
    unsigned n;
    struct seccomp_notif waits[WAIT_MAX];
    unsigned n_waits;
    unsigned injected, failed, results, again;
    int last_rc;       /* of the last injection that failed */
    char text[256];    /* its reason */
    bool end_each;     /* every stub ends after its first request */
    bool end_alone;    /* stubs that are alone are ended */
    bool fail_through; /* where injection fails with -EAGAIN, the thread's call comes anew: counted, no more */
    bool other_arch;   /* the notification is made to look like i386's */
};
/* Serves until the program ends, or `seconds` are over: it is killed then. True: it ended by itself, with status 0. */
bool mini_serve(struct mini *m, struct app *a, int seconds);
/* Serves for so long, but not on after the program has set common->at to `until`. True: it has. */
bool mini_until(struct mini *m, int until, int ms);
void mini_drop(struct mini *m); /* ends all stubs */
/* Ends stubs and the program. */
void mini_end(struct mini *m);

/* The hook that stops at common->hook_step, the nth time, until the program says done. */
void hook_wait(enum vb_step step, pid_t tid, uint64_t window);
/* The program's side: waits for the hook (true), or for the end of the test. */
bool app_at_step(void);
void app_step_done(void);

int null_fd(void);
/* Its request, and what is left of it: out[0] is the result, out[1] to out[3] how many descriptors, threads and
 * mappings of the window there are that were not there, out[4] whether its signal mask is as before. */
void app_look(void);

#endif
