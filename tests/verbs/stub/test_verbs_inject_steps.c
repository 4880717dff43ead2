/* SPDX-License-Identifier: Apache-2.0 */
/* Tests programs that are killed, stopped and continued, or replaced by exec() during each step of an injection. */
#include "tests/proc.h"
#include "tests/tap.h"
#include "verbs_stub.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct app a;
static struct mini m;

/* --- killed --- */
static void hook_kill(enum vb_step step, pid_t tid, uint64_t window)
{
    (void)window;
    if ((int)step == common->hook_step && common->hook_seen++ == common->hook_nth)
        kill(tid, SIGKILL);
}

static void app_dies(void)
{
    reg(null_fd());
    for (;;) /* SIGKILL at the last step may arrive after the request */
        usleep(1000);
}

static void *other_thread(void *arg)
{
    reg(*(int *)arg);
    for (;;)
        usleep(1000);
    return NULL;
}

static void app_dies_threads(void)
{
    pthread_t t;
    int fd = null_fd();
    pthread_create(&t, NULL, other_thread, &fd);
    for (;;)
        usleep(1000);
}

static const unsigned times[VB_STEPS] = {[VB_STEP_MMAP] = 3};

static void test_killed(void)
{
    unsigned tried = 0, ended = 0, killed = 0, unknown = 0, stubs = 0;
    for (int i = 0; i < VB_STEPS; i++)
        for (unsigned nth = 0; nth < HW_MAX(times[i], 1u); nth++)
            for (int threads = 0; threads < 2; threads++) {
                common_reset();
                common->hook_step = i;
                common->hook_nth = (int)nth;
                vb_inject_hook = hook_kill;
                m = (struct mini){.n = 0};
                app_start(&a, threads ? app_dies_threads : app_dies, true);
                mini_serve(&m, &a, 20);
                tried++;
                ended += a.ended;
                killed += a.ended && WIFSIGNALED(a.status) && WTERMSIG(a.status) == SIGKILL;
                /* Until the thread is stopped, the broker may notice the thread's death only because its call has
                 * ended. */
                bool known = m.last_rc == -ESRCH || (i <= VB_STEP_GIVE && m.last_rc == -EAGAIN);
                if (m.failed && !known)
                    diag("step %d: %d, %s", i, m.last_rc, m.text);
                unknown += m.failed && !known;
                stubs += m.n;
                mini_end(&m);
            }
    is_int(ended, tried, "killed at every step, every program ends");
    is_int(killed, tried, "by that signal");
    is_int(unknown, 0, "and the broker knows that it has died");
    is_int(stubs, 0, "no stub is taken for alive");
}

/* --- stopped --- */
static void hook_stop(enum vb_step step, pid_t tid, uint64_t window)
{
    (void)window;
    if ((int)step == common->hook_step && common->hook_seen++ == common->hook_nth) {
        kill(tid, SIGSTOP);
        common->at = 1;
    }
}

static void *look(void *arg)
{
    app_look();
    common->out[5] = 1;
    return arg;
}

static void app_looks(void)
{
    look(NULL);
}

static void app_looks_thread(void)
{
    pthread_t t;
    pthread_create(&t, NULL, look, NULL);
    pthread_join(t, NULL);
}

/* Waits until the program has stopped, checks that it has reported no result yet, and continues it. */
static void continue_later(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    for (uint64_t end = hw_deadline(20000); state != 'T' && hw_now() < end; usleep(500)) {
        FILE *f = common->at == 1 ? fopen(path, "re") : NULL;
        if (f && fscanf(f, "%*d %*s %c", &state) != 1)
            state = 0;
        if (f)
            fclose(f);
    }
    usleep(2000);
    common->out[6] = state == 'T' && common->out[5] == 0;
    kill(pid, SIGCONT);
    _exit(0);
}

static void test_stopped(void)
{
    unsigned tried = 0, stood = 0, well = 0, right = 0, known = 0, anew = 0;
    for (int i = 0; i < VB_STEPS; i++)
        for (unsigned nth = 0; nth < HW_MAX(times[i], 1u); nth++)
            for (int way = 0; way < 4 && right == tried; way++) {
                const bool thread = way & 1, takes_back = way & 2; /* in a second thread; SIGSTOP interrupts the call */
                common_reset();
                common->hook_step = i;
                common->hook_nth = (int)nth;
                vb_inject_hook = hook_stop;
                m = (struct mini){.n = 0};
                app_start(&a, thread ? app_looks_thread : app_looks, !takes_back);
                fflush(NULL);
                pid_t other = fork();
                if (other == 0)
                    continue_later(a.pid);
                tried++;
                well += mini_serve(&m, &a, 60);
                waitpid(other, NULL, 0);
                stood += common->out[6] == 1;
                /* the program's stub exists: one thread and three mappings */
                bool is = common->out[0] == -ENOTTY && common->out[1] == 0 && common->out[2] == 1 &&
                          common->out[3] == 3 && common->out[4];
                right += is && m.injected == 1 && common->out[6] == 1;
                known += m.failed == 0 || (m.failed == 1 && m.last_rc == -EAGAIN);
                anew += m.failed;
                if (!is || m.injected != 1 || m.failed > 1 || common->out[6] != 1)
                    diag("step %d, %u, way %d: stood %d, %u injected, %u not: %d, %s; %d, %d fds, %d threads, %d maps",
                         i, nth, way, (int)common->out[6], m.injected, m.failed, m.last_rc, m.text, (int)common->out[0],
                         (int)common->out[1], (int)common->out[2], (int)common->out[3]);
                mini_end(&m);
            }
    is_int(stood, tried, "stopped at every step, every program stands still until it is told to go on");
    is_int(well, tried, "and ends well then");
    is_int(right, tried, "its request is done, by one stub, with nothing else left behind");
    is_int(known, tried, "or was done anew, which the broker knows");
    diag("%u were done anew", anew);
}

/* Only reports the step, so that the program can be killed while its thread runs. */
static void hook_tell(enum vb_step step, pid_t tid, uint64_t window)
{
    (void)tid, (void)window;
    if ((int)step == common->hook_step)
        common->at = 1;
}

static void kill_soon(pid_t victim, unsigned us)
{
    for (int i = 0; i < 100000 && common->at != 1; i++)
        usleep(20);
    for (uint64_t until = hw_now() + us * 1000ull; hw_now() < until;)
        continue;
    kill(victim, SIGKILL);
    _exit(0);
}

static void test_killed_running(void)
{
    int before = proc_children(getpid());
    unsigned killed = 0, n = 0, slow = 0;
    for (int i = VB_STEP_STOP; i <= VB_STEP_CLOSE; i++)
        for (unsigned us = 0; us < 100; us += 10) {
            common_reset();
            common->hook_step = i;
            vb_inject_hook = hook_tell;
            m = (struct mini){.n = 0};
            app_start(&a, us % 20 ? app_dies : app_dies_threads, true);
            fflush(NULL);
            pid_t killer = fork();
            if (killer == 0)
                kill_soon(a.pid, us);
            mini_serve(&m, &a, 20);
            waitpid(killer, NULL, 0);
            n++;
            killed += a.ended && WIFSIGNALED(a.status);
            slow += m.last_rc == -ETIMEDOUT;
            mini_end(&m);
        }
    for (int i = 0; i < 1000 && proc_children(getpid()) > before; i++)
        usleep(5000);
    is_int(killed, n, "killed at any time, every program ends");
    is_int(slow, 0, "no tracer waits in vain");
    is_int(proc_children(getpid()) - before, 0, "nor goes on doing so");
}

/* --- another thread replaces the program --- */
static const char *self;

static void hook_exec(enum vb_step step, pid_t tid, uint64_t window)
{
    (void)tid, (void)window;
    if ((int)step == common->hook_step && common->hook_seen++ == 0) {
        common->at = 1;
        usleep(20000); /* time for exec() to kill the thread and wait for its tracer */
    }
}

static int shared_null;

static void *replace(void *arg)
{
    (void)arg;
    char n[16];
    while (common->at != 1)
        usleep(100);
    snprintf(n, sizeof(n), "%d", shared_null);
    execl(self, self, "again", n, NULL);
    _exit(98);
}

static void *ask_on(void *arg)
{
    (void)arg;
    reg(shared_null);
    for (;;)
        usleep(1000);
    return NULL;
}

static void app_exec_other(void)
{
    pthread_t t;
    shared_null = open("/dev/null", O_RDWR);
    pthread_create(&t, NULL, replace, NULL);
    ask_on(NULL);
}

static void app_exec_leader(void)
{
    pthread_t t;
    shared_null = open("/dev/null", O_RDWR);
    pthread_create(&t, NULL, ask_on, NULL);
    replace(NULL);
}

static void test_exec(void)
{
    static const int steps[] = {VB_STEP_SEIZE, VB_STEP_STOP,  VB_STEP_MMAP,  VB_STEP_CLONE,
                                VB_STEP_MSEAL, VB_STEP_TABLE, VB_STEP_READY, VB_STEP_LEAVE};
    unsigned well = 0, known = 0, again = 0, n = 0;
    for (unsigned i = 0; i < HW_ARRAY_LEN(steps); i++)
        for (int leader = 0; leader < 2; leader++) {
            common_reset();
            common->hook_step = steps[i];
            vb_inject_hook = hook_exec;
            m = (struct mini){.n = 0};
            app_start(&a, leader ? app_exec_leader : app_exec_other, true);
            bool ended = mini_serve(&m, &a, 60);
            if (!ended || m.failed > 1 || m.injected < 1)
                diag("step %d, %d: %u injected, %u not: %d, %s", steps[i], leader, m.injected, m.failed, m.last_rc,
                     m.text);
            n++;
            well += ended;
            known += m.failed == 0 || m.last_rc == -ESRCH || m.last_rc == -EAGAIN;
            again += m.injected >= 1;
            mini_end(&m);
        }
    is_int(well, n, "replaced at every step, every program goes on, and ends well");
    is_int(known, n, "the broker knows that its thread has gone");
    is_int(again, n, "and gives the new one a stub");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "again") == 0)
        _exit(reg(atoi(argv[2])) == -ENOTTY ? 0 : 97); /* skips LeakSanitizer, which would wait for the stub to stop */
    self = argv[0];
    int rc = vb_inject_possible();
    if (rc)
        tap_skip_all("%s", hw_error());
    test_killed();
    test_stopped();
    test_killed_running();
    test_exec();
    return tap_done();
}
