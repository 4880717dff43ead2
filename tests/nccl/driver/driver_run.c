/* SPDX-License-Identifier: Apache-2.0 */
/* The overseer: creates the ranks, tells them which step to run, and detects failures, hangs and deaths. It never loads
 * the plugin. */
#include "base/sanitizers.h"
#include "driver.h"

#include "tests/tap.h"

#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUIT (-1)

struct order {
    int run; /* number of steps run, including this step */
    int index;
};

struct reply {
    int run, rc;
    char text[HW_ERR_TEXT];
};

static struct overseer {
    struct shared *sh;
    const struct step *steps;
    bool threads;
    int runs;
    int swap[2]; /* the ranks' sockets to each other, kept for replacement ranks */
    int ctl[2];
    pid_t pid[2]; /* pid[1] is 0 with threads */
} os;

FILE *rank_out;

/* ---- in a rank ------------------------------------------------------------------------------ */

static void run_step(struct rank *r, const struct order *o)
{
    const struct step *s = &os.steps[o->index];
    struct reply a = {.run = o->run};
    int rc2;

    r->step = o->run;
    r->name = s->name;
    r->made = 0;
    if (!(s->flags & STEP_ALONE) && !r->loaded)
        a.rc = net_load(r);
    if (!a.rc)
        a.rc = s->fn(r);
    if (a.rc) {
        snprintf(a.text, sizeof(a.text), "%s", hw_error());
        if (a.rc < 0)
            atomic_store(&r->sh->gone, r->step + 1);
    }
    rc2 = comm_close_all(r);
    if (rc2 && !a.rc) {
        a.rc = rc2;
        snprintf(a.text, sizeof(a.text), "%s", hw_error());
    }
    if (send(r->ctl, &a, sizeof(a), MSG_NOSIGNAL) < 0)
        _exit(3); /* the overseer has ended */
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct order o;
    while (recv(r->ctl, &o, sizeof(o), 0) == sizeof(o) && o.index != QUIT)
        run_step(r, &o);
    return NULL;
}

#if HW_TSAN
static void *nothing(void *arg)
{
    return arg;
}
#endif

static void rank_process(int first, int n, const int *ctl)
{
    struct rank ranks[2];
    pthread_t t;

    for (int i = first; i < first + n; i++)
        ranks[i] = (struct rank){.id = i, .fd = os.swap[i], .ctl = ctl[i], .sh = os.sh, .threads = n == 2};
    rank_out = fdopen(dup(STDOUT_FILENO), "w");
    if (!rank_out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(6);
#if HW_TSAN
    /* The sanitizer starts its own thread with the program's first thread. */
    if (!pthread_create(&t, NULL, nothing, NULL) && !pthread_join(t, NULL))
        nap_ms(50);
#endif
    for (int i = first; i < first + n; i++) {
        ranks[i].tasks = entries("/proc/self/task") + n - 1;
        ranks[i].fds = entries("/proc/self/fd");
        ranks[i].inherited = inherited();
    }
    if (n == 2 && pthread_create(&t, NULL, rank_main, &ranks[1]))
        _exit(4);
    rank_main(&ranks[first]);
    if (n == 2)
        pthread_join(t, NULL);
    exit(0); /* runs all destructors, including the plugin's and the leak checker's */
}

/* ---- the overseer --------------------------------------------------------------------------- */

static int overseer_init(const struct step *list)
{
    os = (struct overseer){.steps = list, .ctl = {-1, -1}};
    os.sh = mmap(NULL, sizeof(*os.sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (os.sh == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, os.swap) < 0)
        return hw_fail(-errno, "making what the ranks share");
    return 0;
}

static int spawn(int first, int n)
{
    int pairs[2][2], theirs[2] = {-1, -1};
    pid_t parent = getpid(), pid;

    for (int i = first; i < first + n; i++) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pairs[i]) < 0)
            return hw_fail(-errno, "making a rank's socketpair");
        os.ctl[i] = pairs[i][0];
        theirs[i] = pairs[i][1];
    }
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return hw_fail(-errno, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(5);
        for (int i = 0; i < 2; i++) /* otherwise a rank would not notice when the overseer exits */
            hw_close(&os.ctl[i]);
        rank_process(first, n, theirs);
    }
    for (int i = first; i < first + n; i++)
        close(theirs[i]);
    os.pid[first] = pid;
    return 0;
}

static int ensure_ranks(void)
{
    int rc = 0;
    if (os.threads)
        return os.pid[0] ? 0 : spawn(0, 2);
    for (int i = 0; i < 2 && !rc; i++)
        if (!os.pid[i])
            rc = spawn(i, 1);
    return rc;
}

/* Waits for a process to exit, and kills the process at time `until`. Returns a text that describes the exit status, or
 * NULL for exit(0). */
static const char *reap(int i, uint64_t until, char *buf, size_t cap)
{
    int st = 0;
    bool killed = false;
    pid_t pid = os.pid[i];

    os.pid[i] = 0;
    while (waitpid(pid, &st, WNOHANG) == 0) {
        if (hw_now() >= until) {
            killed = true;
            kill(pid, SIGKILL);
        }
        nap_ms(2);
    }
    hw_close(&os.ctl[i]);
    if (os.threads)
        hw_close(&os.ctl[1]);
    if (killed)
        snprintf(buf, cap, "did not end");
    else if (WIFSIGNALED(st))
        snprintf(buf, cap, "was killed by %s", strsignal(WTERMSIG(st)));
    else if (WEXITSTATUS(st))
        snprintf(buf, cap, "ended with exit(%d)", WEXITSTATUS(st));
    else
        return NULL;
    return buf;
}

static void kill_ranks(void)
{
    char buf[64];
    for (int i = 0; i < 2; i++) {
        if (!os.pid[i])
            continue;
        kill(os.pid[i], SIGKILL);
        (void)reap(i, HW_NEVER, buf, sizeof(buf));
    }
}

struct outcome {
    struct reply a[2];
    bool pending[2];
};

static void lost(struct outcome *out, int i, const char *how)
{
    struct reply *a = &out->a[i];
    const char *call = atomic_load(&os.sh->at[i].call);
    a->rc = -ESRCH;
    snprintf(a->text, sizeof(a->text), "%s (%s %s)", how,
             atomic_load(&os.sh->at[i].since) ? "in the plugin's" : "its last call was", call ? call : "nothing yet");
    out->pending[i] = false;
    atomic_store(&os.sh->gone, os.runs + 1);
}

/* Handles data or end-of-file on a rank's socket. */
static void hear(const struct step *s, struct outcome *out, int i)
{
    struct reply a;
    char how[64];
    ssize_t n = recv(os.ctl[i], &a, sizeof(a), 0);

    if (n == sizeof(a)) {
        out->a[i] = a;
        out->pending[i] = false;
        return;
    }
    if (os.threads) {
        if (!out->pending[0] && !out->pending[1])
            return;
        const char *words = reap(0, hw_now() + 2000 * HW_MS, how, sizeof(how));
        for (int k = 0; k < 2; k++)
            if (out->pending[k])
                lost(out, k, words ? words : "ended with exit(0)");
        return;
    }
    if (i == 1 && (s->flags & STEP_DIES)) {
        const char *words = reap(1, hw_now() + 2000 * HW_MS, how, sizeof(how));
        out->pending[1] = false;
        if (!words || strcmp(words, "was killed by Killed") != 0)
            lost(out, 1, words ? words : "ended with exit(0)");
        return;
    }
    const char *words = reap(i, hw_now() + 2000 * HW_MS, how, sizeof(how));
    lost(out, i, words ? words : "ended with exit(0)");
}

static bool hung(int i, uint64_t end)
{
    uint64_t since = atomic_load(&os.sh->at[i].since), now = hw_now();
    return now >= end || (since && now > since && now - since > (opt.deadline + 2) * 1000 * HW_MS);
}

static void await(const struct step *s, struct outcome *out)
{
    uint64_t end = hw_now() + (opt.deadline * 6 + 20) * 1000 * HW_MS;

    while (out->pending[0] || out->pending[1]) {
        struct pollfd p[2] = {{.fd = os.ctl[0], .events = POLLIN}, {.fd = os.ctl[1], .events = POLLIN}};
        (void)poll(p, 2, 100);
        for (int i = 0; i < 2; i++)
            if (p[i].revents && out->pending[i] && os.ctl[i] >= 0)
                hear(s, out, i);
        for (int i = 0; i < 2; i++)
            if (out->pending[i] && hung(i, end))
                lost(out, i, "hangs");
    }
}

static void print_outcome(const struct step *s, const struct outcome *out)
{
    bool bad = out->a[0].rc < 0 || out->a[1].rc < 0;
    char what[128];

    snprintf(what, sizeof(what), "%s: %s", os.threads ? "threads" : "processes", s->name);
    if (!bad && (out->a[0].rc == STEP_SKIPPED || out->a[1].rc == STEP_SKIPPED)) {
        tap_skip(what, out->a[out->a[0].rc == STEP_SKIPPED ? 0 : 1].text);
        return;
    }
    ok(!bad, "%s", what);
    for (int i = 0; i < 2 && bad; i++)
        if (out->a[i].rc < 0)
            diag("rank %d: %s", i, out->a[i].text);
    for (int i = 0; i < 2; i++) {
        if (bad && os.sh->warn[i][0])
            diag("the plugin's last warning in rank %d: %.*s", i, (int)sizeof(os.sh->warn[0]), os.sh->warn[i]);
        os.sh->warn[i][0] = 0;
    }
}

static void left_out(const struct step *s)
{
    char what[128], why[128];
    snprintf(what, sizeof(what), "%s: %s", os.threads ? "threads" : "processes", s->name);
    snprintf(why, sizeof(why), "--without %s", opt.without);
    tap_skip(what, why);
}

static int run_one(int index, struct outcome *out)
{
    const struct step *s = &os.steps[index];
    struct order o = {.run = ++os.runs, .index = index};
    int rc = ensure_ranks();

    if (rc)
        return rc;
    *out = (struct outcome){.pending = {true, true}};
    for (int i = 0; i < 2; i++)
        atomic_store(&os.sh->at[i].since, 0);
    for (int i = 0; i < 2; i++)
        if (send(os.ctl[i], &o, sizeof(o), MSG_NOSIGNAL) < 0 && errno != EPIPE)
            return hw_fail(-errno, "ordering a step");
    await(s, out);
    for (int i = 0; i < 2; i++)
        if (out->a[i].rc == -ESRCH) {
            kill_ranks();
            break;
        }
    return 0;
}

/* Asks all ranks to exit, and checks that they do, with or without the plugin loaded. */
static void dismiss(void)
{
    struct order o = {.index = QUIT};
    char buf[64];
    for (int i = 0; i < 2; i++)
        if (os.ctl[i] >= 0)
            (void)!send(os.ctl[i], &o, sizeof(o), MSG_NOSIGNAL);
    for (int i = 0; i < 2; i++) {
        if (!os.pid[i])
            continue;
        const char *how = reap(i, hw_now() + opt.deadline * 1000 * HW_MS, buf, sizeof(buf));
        if (!ok(!how, "%s: rank %d's process ends well", os.threads ? "threads" : "processes", i))
            diag("it %s", how);
    }
}

int run_suite(const struct step *list, size_t n)
{
    struct outcome out;
    bool any = false;

    if (overseer_init(list)) {
        printf("Bail out! %s\n", hw_error());
        return 1;
    }
    for (int threads = 0; threads < 2; threads++) {
        os.threads = threads;
        if (opt.modes && strcmp(opt.modes, threads ? "threads" : "processes") != 0)
            continue;
        for (uint64_t round = 0; round < opt.repeat; round++)
            for (size_t i = 0; i < n; i++) {
                if ((threads && (list[i].flags & (STEP_PROCESSES | STEP_DIES))) ||
                    (opt.only && fnmatch(opt.only, list[i].name, 0) != 0))
                    continue;
                any = true;
                if (opt.without && fnmatch(opt.without, list[i].name, 0) == 0) {
                    left_out(&list[i]);
                    continue;
                }
                if (run_one((int)i, &out)) {
                    printf("Bail out! %s\n", hw_error());
                    kill_ranks();
                    return 1;
                }
                print_outcome(&list[i], &out);
            }
        dismiss();
    }
    if (!any)
        ok(false, "some step is named %s", opt.only ? opt.only : "at all");
    return tap_done();
}

int run_bench(const struct step *step)
{
    struct outcome out;
    int rc = overseer_init(step);

    if (!rc)
        rc = run_one(0, &out);
    if (rc) {
        fprintf(stderr, "driver: %s\n", hw_error());
        return 1;
    }
    for (int i = 0; i < 2; i++)
        if (out.a[i].rc < 0) {
            fprintf(stderr, "driver: rank %d: %s\n", i, out.a[i].text);
            rc = 1;
        }
    kill_ranks();
    return rc;
}
