/* SPDX-License-Identifier: Apache-2.0 */
/* bench --per-process: starts, binds and reaps a child process for each worker. A child executes this program again,
 * bound to the CPUs and the memory near its GPU if these are known and permitted. */
#include "base/size.h"
#include "tool/bench/bench.h"
#include "tool/child.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKER_FD   3    /* descriptor of a child's connection to its supervisor */
#define REAP_MS     3000 /* ms to wait for a child's exit before child_reap() kills the child */
#define MPOL_PREFER 1    /* MPOL_PREFERRED (linux/mempolicy.h): this node if possible, else any node */
#define NODES_MAX   1024 /* bits of a node mask; the kernel's maximum (CONFIG_NODES_SHIFT is at most 10) */

/* ---- child process -------------------------------------------------------------------------- */

/* Parses the value of --worker that start_bench_child() writes: "FD,CROWD,GPU,PEER,OP,NICS". */
static bool parse_worker(const char *text, struct bench_work *w, struct gpu_pair *p)
{
    uint64_t v[5];
    HW_AUTO_FREE char *copy = strdup(text);
    char *at = copy;
    for (size_t i = 0; i < HW_ARRAY_LEN(v); i++) {
        char *word = strsep(&at, ",");
        if (!word || !at || hw_parse_u64(word, 0, GPUS_TOP, &v[i]) < 0)
            return false;
    }
    if (strlen(at) >= sizeof p->nics)
        return false;
    w->fd = (int)v[0];
    w->crowd = v[1];
    p->gpu = (int)v[2];
    p->peer = (int)v[3];
    w->op = (enum tp_op)v[4];
    snprintf(p->nics, sizeof p->nics, "%s", at);
    return true;
}

int bench_child(struct bench *b)
{
    struct gpu_pair pair = {.numa = -1};
    struct bench_work w = {.b = b, .pair = &pair, .own_cpu = true};
    if (!parse_worker(b->worker, &w, &pair)) {
        tool_usage("bench", "--worker is only for `hawser bench --per-process`");
        return -EINVAL;
    }
    (void)fcntl(w.fd, F_SETFD, FD_CLOEXEC);
    int rc = hw_knobs_load(&b->knobs, (const char *const *)b->common.knobs);
    if (rc == 0)
        rc = common_open(&b->common, &b->h);
    if (rc < 0) {
        const char *why = hw_error();
        (void)crew_say(w.fd, CREW_ERROR, why, strlen(why));
        return rc;
    }
    w.h = b->h;
    rc = bench_work(&w);
    hawser_close(b->h);
    return rc;
}

/* ---- parent process ------------------------------------------------------------------------- */

/* Runs in the child after fork() and executes this program again. Makes only async-signal-safe calls. */
static void exec_bench_child(char **argv, pid_t parent, int fd, int err, const struct gpu_pair *p)
{
    unsigned long nodes[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof nodes[0];
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(127);
    /* If the kernel refuses the CPU or memory policy, the child is only slower. */
    if (p->has_cpus)
        (void)sched_setaffinity(0, sizeof p->cpus, &p->cpus);
    if (p->numa >= 0 && p->numa < NODES_MAX) {
        nodes[(size_t)p->numa / bits] = 1ul << ((size_t)p->numa % bits);
        (void)syscall(SYS_set_mempolicy, MPOL_PREFER, nodes, NODES_MAX + 1ul);
    }
    child_take_ends(fd, WORKER_FD, err);
    execv("/proc/self/exe", argv);
    _exit(127);
}

static int start_bench_child(const struct bench *b, struct crew *c, size_t i, pid_t *out)
{
    struct crew_member *m = &c->m[i];
    const struct gpu_pair *p = bench_worker_pair(b, i);
    const enum tp_op op = bench_worker_op(b, i);
    const size_t crowd = c->n;
    int talk[2] = {-1, -1}, err[2] = {-1, -1};
    char worker[sizeof p->nics + 80];
    static char self[] = "hawser", cmd[] = "bench";
    HW_AUTO_FREE char **argv = calloc((size_t)b->argc + 3, sizeof(char *));
    if (!argv)
        return hw_no_memory("a command line");
    snprintf(worker, sizeof worker, "--worker=%d,%zu,%d,%d,%d,%s", WORKER_FD, crowd, p->gpu, p->peer, (int)op, p->nics);
    argv[0] = self;
    argv[1] = cmd;
    argv[2] = worker;
    for (int k = 1; k < b->argc; k++)
        argv[k + 2] = b->argv[k];
    int rc = child_ends(SOCK_STREAM, WORKER_FD, "a child", talk, err);
    pid_t parent = getpid();
    pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0)
        exec_bench_child(argv, parent, talk[1], err[1], p);
    if (rc == 0 && pid < 0)
        rc = hw_fail(-errno, "starting a worker process: %s", strerror(errno));
    hw_close(&talk[1]);
    hw_close(&err[1]);
    if (rc < 0) {
        hw_close(&talk[0]);
        hw_close(&err[0]);
        return rc;
    }
    (void)fcntl(err[0], F_SETFL, O_NONBLOCK);
    m->fd = talk[0];
    m->err = err[0];
    m->gone = false;
    *out = pid;
    return 0;
}

static void kill_child(void *arg, size_t i)
{
    struct bench_child *c = (struct bench_child *)arg + i;
    if (c->pid > 0)
        kill(c->pid, SIGKILL);
}

static void interrupt_child(void *arg, size_t i)
{
    const struct bench_child *c = (struct bench_child *)arg + i;
    if (c->pid > 0)
        kill(c->pid, SIGINT);
}

static void child_ended(void *arg, size_t i, char *why, size_t cap)
{
    int status = child_reap(&((struct bench_child *)arg)[i].pid, REAP_MS);
    if (why[0])
        return;
    if (WIFSIGNALED(status))
        snprintf(why, cap, "the worker's process was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status) && WEXITSTATUS(status))
        snprintf(why, cap, "the worker's process exited with status %d", WEXITSTATUS(status));
}

int bench_children_start(const struct bench *b, struct crew *c, struct bench_child *child)
{
    c->arg = child;
    c->give_up = kill_child;
    c->interrupt = interrupt_child;
    c->ended = child_ended;
    int rc = 0;
    fflush(NULL); /* print the heading before the children start */
    for (size_t i = 0; i < c->n && rc == 0; i++)
        rc = start_bench_child(b, c, i, &child[i].pid);
    return rc;
}

void bench_children_end(struct bench_child *child, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (child[i].pid > 0)
            kill(child[i].pid, SIGKILL);
    for (size_t i = 0; i < n; i++)
        (void)child_reap(&child[i].pid, REAP_MS);
}
