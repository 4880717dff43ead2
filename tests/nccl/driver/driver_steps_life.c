/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that test the start and end of communicators: repeated creation, a communicator in a child process, a stopped
 * peer, a peer that dies while connecting, and a peer that dies with many connections. */
#include "base/sanitizers.h"
#include "driver.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024u * 1024)

static const struct flow_spec stream = {.what = "a stream", .n = 100000, .depth = 8, .min = MIB, .max = MIB};
static const struct flow_spec talk = {
    .what = "a talk of a short life", .n = 6, .depth = 4, .min = 0, .max = 30000, .slack = 10};

static int turn_over(struct rank *r, bool overlap)
{
    void *old = r->ctx, *next;
    int rc = 0;

    if (overlap && (rc = net_init_again(r, &next)))
        return rc;
    if ((rc = net_finalize(r, old)))
        return rc;
    r->ctx = NULL;
    if (!overlap && ((rc = barrier(r)) || (rc = net_init_again(r, &next)))) /* no communicator exists for a moment */
        return rc;
    r->ctx = next;
    return 0;
}

/* Acts like a program that repeatedly creates and destroys communicators, each with an init and a finalize. Some
 * communicators are created before the previous one is destroyed. */
int step_recreate(struct rank *r)
{
    const uint64_t n = opt.churn / 10;
    int fds = 0, tasks = 0, now_fds = 0, now_tasks = 0, rc = 0;

    if (net_version() < 11)
        return SKIP("no finalize before v11");
    for (uint64_t i = 0; i < n && !rc; i++) {
        if (!(rc = barrier(r)) && !(rc = turn_over(r, i % 4 == 3)))
            rc = exchange(r, &talk);
        if (i == 2 && !rc) {
            fds = entries("/proc/self/fd");
            tasks = entries("/proc/self/task");
        }
    }
    if (rc || n < 8)
        return hw_wrap(rc, "of %llu communicators, one after another", (unsigned long long)n);
    for (int i = 0; i < 200; i++) {
        now_fds = entries("/proc/self/fd");
        now_tasks = entries("/proc/self/task");
        if (now_fds <= fds + 8 && now_tasks <= tasks + 2)
            break;
        nap_ms(10);
    }
    if (now_fds > fds + 8 || now_tasks > tasks + 2)
        return hw_fail(-EMFILE, "%d descriptors and %d threads after 3 communicators, %d and %d after %llu", fds, tasks,
                       now_fds, now_tasks, (unsigned long long)n);
    return barrier(r);
}

/* ---- a child that continues to use the plugin ------------------------------------------------------- */

/* Uses a communicator whose only rank is the child that runs this function. */
static int alone(struct rank *r)
{
    struct flow_spec s = {.what = "a child's own messages", .n = 20, .depth = 4, .min = 1, .max = 200000};
    struct comm *in, *out;
    struct wait w = wait_for("a child's own connection");
    struct flow f[2];
    void *ctx;
    int rc = net_init_again(r, &ctx);

    if (rc)
        return rc;
    r->ctx = ctx;
    r->comms = NULL; /* the parent's comms */
    in = comm_new(r, 1 - r->id);
    out = comm_new(r, r->id);
    out->id = in->id; /* both ends of the connection are in this process */
    if ((rc = comm_listen(in)))
        return rc;
    for (size_t i = 0; i < NCCL_NET_HANDLE_MAXSIZE; i++)
        out->guarded[i] = in->guarded[i];
    while (!in->c || !out->c) {
        if ((!out->c && (rc = comm_try(out)) && rc != -EAGAIN) || (!in->c && (rc = comm_try(in)) && rc != -EAGAIN) ||
            (rc = wait_turn(r, &w)))
            return rc;
    }
    if ((rc = flow_open(&f[0], out, &s)) || (rc = flow_open(&f[1], in, &s)) || (rc = flow_run(r, f, 2)))
        return rc;
    if ((rc = flow_close(&f[0])) || (rc = flow_close(&f[1])) || (rc = comm_close_all(r)))
        return rc;
    return net_finalize(r, ctx);
}

/* Forks a child, which has none of the plugin's threads. The child makes a new connection, and the parent's connections
 * continue to work. Runs only on request, because the ABI does not define this case. */
int step_fork_uses(struct rank *r)
{
    struct flow_spec s = {.what = "messages around a fork", .n = 60, .depth = 8, .min = 0, .max = 300000};
    struct wait w = wait_for("the child's end");
    struct comm *c[2];
    struct flow f[2] = {{0}};
    int rc = 0, st = 0;
    pid_t pid, got;

#if HW_ASAN || HW_TSAN
    return SKIP("the sanitizers do not stand threads in a child");
#endif
    if (opt.no_fork || !opt.strict || net_version() < 11)
        return SKIP("only with --strict, without --no-fork, from v11 on");
    for (int i = 0; i < 2 && !rc; i++)
        if (!(rc = comm_open(r, i, &c[i])))
            rc = flow_open(&f[i], c[i], &s);
    if (rc || (rc = flow_some(f, 2, 10)))
        return rc;
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return hw_fail(-errno, "fork");
    if (pid == 0) {
        rc = alone(r);
        if (rc)
            fprintf(stderr, "# a child of rank %d: %s\n", r->id, hw_error());
        _exit(rc ? 1 : 0);
    }
    rc = flow_run(r, f, 2);
    while ((got = waitpid(pid, &st, WNOHANG)) == 0 && hw_now() < w.end)
        nap_ms(1);
    if (got == 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &st, 0);
    }
    if (!rc && (got == 0 || st != 0))
        rc = hw_fail(-ECHILD, "a child that makes communicators of its own %s (status %#x)",
                     got == 0 ? "does not end" : "fails", (unsigned)st);
    for (int i = 0; i < 2 && !rc; i++)
        rc = flow_close(&f[i]);
    return rc ? rc : barrier(r);
}

/* ---- peers ------------------------------------------------------------------------------------------ */

#define STILL_MS 3000

static void stand_still(void)
{
    pid_t me = getpid(), child = fork();
    if (child == 0) {
        nap_ms(STILL_MS);
        _exit(kill(me, SIGCONT) ? 1 : 0);
    }
    if (child < 0)
        return;
    (void)raise(SIGSTOP);
    (void)waitpid(child, NULL, 0);
}

/* Rank 1 is stopped, as under a debugger. Rank 0 aborts, and must not wait for rank 1 if --strict is given. */
int step_stopped_peer(struct rank *r)
{
    struct comm *c[2];
    struct flow f[2] = {{0}};
    int rc = 0, n = 0;

    if (opt.no_abort)
        return SKIP("--no-abort");
    for (int i = 0; i < 2 && !rc; i++)
        if (!(rc = comm_open(r, i, &c[i])))
            rc = flow_open(&f[i], c[i], &stream);
    if (rc || (rc = flow_some(f, 2, 4)) || (rc = barrier(r)))
        return rc;
    if (r->id == 1) {
        stand_still();
    } else {
        for (uint64_t end = hw_now() + 300 * HW_MS; hw_now() < end && n >= 0; nap_ms(1)) /* until progress stops */
            for (int i = 0; i < 2 && n >= 0; i++)
                n = flow_step(&f[i]);
        if (n < 0)
            return n;
        uint64_t t = hw_now();
        for (int i = 0; i < 2; i++)
            if ((rc = flow_abandon(&f[i])))
                return rc;
        uint64_t ms = (hw_now() - t) / HW_MS;
        if (opt.strict && ms > STILL_MS - 1000)
            return hw_fail(-EBUSY, "giving up took %llu ms, with a peer that stood still for %u",
                           (unsigned long long)ms, STILL_MS);
        return barrier(r);
    }
    for (int i = 0; i < 2; i++)
        if ((rc = flow_abandon(&f[i])))
            return rc;
    return barrier(r);
}

/* Rank 1 dies while connecting. Rank 0 may get no connection, an error from accept, or a connection that then fails. */
int step_dead_connector(struct rank *r)
{
    struct comm *c = comm_new(r, 1);
    struct flow f;
    int rc = c->sends ? 0 : comm_listen(c);

    if (!rc)
        rc = comm_handle(c);
    if (rc)
        return rc;
    if (opt.no_death)
        return SKIP("--no-death");
    if (c->sends) {
        if ((rc = comm_try(c)) && rc != -EAGAIN)
            return rc;
        return raise(SIGKILL);
    }
    for (uint64_t end = hw_now() + 1500 * HW_MS; hw_now() < end && !c->c; nap_ms(1))
        if ((rc = comm_try(c)) && rc != -EAGAIN)
            return rc == -EREMOTEIO ? 0 : rc;
    if (!c->c)
        return 0;
    if ((rc = flow_open(&f, c, &stream)) || (rc = flow_until_error(&f)))
        return rc;
    return flow_abandon(&f);
}

/* Acts like NCCL if a communicator is aborted while it connects: nothing closes the unfinished connection. The finalize
 * of the last communicator must free it, and end the plugin's threads. */
int step_abort_connect(struct rank *r)
{
    struct comm *c;
    int fds = 0, tasks = 0, rc;

    if (!opt.ends || net_version() < 11)
        return SKIP("only with --ends, from v11 on");
    if ((rc = exchange(r, &talk)))
        return rc;
    c = comm_new(r, 1);
    if (!c->sends && (rc = comm_listen(c)))
        return rc;
    if ((rc = comm_handle(c)))
        return rc;
    if (c->sends && (rc = comm_try(c)) && rc != -EAGAIN)
        return rc;
    /* if the connect has finished at once, only the listener's side is unfinished; both ranks must do the same steps */
    if ((rc = comm_close_all(r)) || (rc = net_finalize(r, r->ctx)))
        return rc;
    r->ctx = NULL;
    for (int i = 0; i < 200; i++) {
        fds = entries("/proc/self/fd");
        tasks = entries("/proc/self/task");
        if (fds <= r->fds + 2 && tasks <= r->tasks)
            break;
        nap_ms(10);
    }
    if (fds > r->fds + 2 || tasks > r->tasks)
        return hw_fail(-EMFILE, "%d descriptors and %d threads before init, %d and %d after an aborted connect", r->fds,
                       r->tasks, fds, tasks);
    if ((rc = barrier(r)) || (rc = net_init_again(r, &r->ctx)))
        return rc;
    return exchange(r, &talk);
}

#define MANY 8

/* Rank 1 dies. Each of rank 0's connections must report an error. */
int step_dead_many(struct rank *r)
{
    const size_t n = HW_MIN((size_t)MANY, opt.comms_max);
    struct flow_spec s = stream;
    struct comm *c[MANY];
    struct flow f[MANY] = {{0}};
    int rc = 0;

    s.min = s.max = 256 * 1024;
    for (size_t i = 0; i < n && !rc; i++)
        if (!(rc = comm_open(r, (int)(i % 2), &c[i])))
            rc = flow_open(&f[i], c[i], &s);
    if (opt.no_death && !rc)
        return SKIP("--no-death");
    if (rc || (rc = barrier(r)))
        return rc;
    if (r->id == 1) {
        rc = flow_some(f, n, 5);
        return rc ? rc : raise(SIGKILL);
    }
    rc = flow_some(f, n, 5);
    if (rc && rc != -EREMOTEIO)
        return rc;
    for (size_t i = 0; i < n; i++)
        if ((rc = flow_until_error(&f[i])))
            return hw_wrap(rc, "connection %zu of %zu", i, n);
    for (size_t i = 0; i < n; i++)
        if ((rc = flow_abandon(&f[i])))
            return rc;
    return 0;
}
