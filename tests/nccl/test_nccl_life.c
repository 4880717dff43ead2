/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the lives of communicators that several threads of a process create and abandon at the same time, as an
 * application with several communicators does: init, listen, connect and finalize of one thread happen while others
 * transfer, close the last connection, or give up in the middle. Nothing may be left at the end, and sanitizers watch.
 */
#include "base/base.h"
#include "nccl/inner.h"
#include "tests/tap.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS  4
#define ROUNDS   30
#define MESSAGES 8
#define MOST     100000 /* bytes of a message */
#define LIMIT_S  100
#define STOPPED  3 /* ranks that do not answer */

enum end { ALL_DONE, EARLY_FINALIZE, NO_RECEIVES, MEMORY_FIRST, LISTENER_FIRST, GIVE_UP, ENDS };

static atomic_int failed, rounds;

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)fmt;
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = 200000};
    (void)nanosleep(&t, NULL);
}

struct pair {
    void *listen, *send, *recv, *from_mh, *to_mh;
    char *from, *to;
};

/* Counts a result that must be success. */
static void must(ncclResult_t result)
{
    if (result != ncclSuccess)
        atomic_fetch_add(&failed, 1);
}

/* Connects the pair to itself, or gives up after some turns if turns is not 0. */
static void connect_pair(struct pair *p, int dev, unsigned turns)
{
    uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
    ncclResult_t r = hn_listen(dev, handle, &p->listen);
    for (unsigned i = 0; !r && (!p->send || !p->recv) && (!turns || i < turns); i++) {
        if (!p->send)
            r = hn_connect(dev, handle, &p->send);
        if (!r && !p->recv)
            r = hn_accept(p->listen, &p->recv);
        nap();
    }
    must(r);
}

static void transfer(struct pair *p, enum end end, unsigned *seed)
{
    void *sends[MESSAGES] = {0}, *req;
    must(hn_reg(p->send, p->from, MOST, NCCL_PTR_HOST, &p->from_mh));
    must(hn_reg(p->recv, p->to, MESSAGES * MOST, NCCL_PTR_HOST, &p->to_mh));
    for (unsigned i = 0; i < MESSAGES; i++) {
        void *to[] = {p->to + (size_t)i * MOST}, *mhs[] = {p->to_mh};
        size_t sizes[] = {(size_t)rand_r(seed) % (i % 2 ? MOST : 4000)};
        int tags[] = {0};
        if (end != NO_RECEIVES)
            must(hn_irecv(p->recv, 1, to, sizes, tags, mhs, NULL, &req));
        must(hn_isend(p->send, p->from, sizes[0], 0, p->from_mh, NULL, &sends[i]));
    }
    for (unsigned i = 0; i < MESSAGES && end != NO_RECEIVES && end != MEMORY_FIRST; i++)
        for (int done = 0, size; sends[i] && !done;)
            if (hn_test(sends[i], &done, &size)) {
                must(ncclSystemError);
                break;
            }
}

static void close_pair(struct pair *p, enum end end)
{
    if (end == MEMORY_FIRST) {
        must(hn_dereg(p->send, p->from_mh));
        must(hn_dereg(p->recv, p->to_mh));
        p->from_mh = p->to_mh = NULL;
    }
    must(hn_close_send(p->send));
    must(hn_close_recv(p->recv));
    must(hn_dereg(NULL, p->from_mh));
    must(hn_dereg(NULL, p->to_mh));
    must(hn_close_listen(p->listen));
}

static void *live(void *arg)
{
    unsigned seed = 1 + *(unsigned *)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct pair p = {.from = calloc(1, MOST), .to = calloc(MESSAGES, MOST)};
        enum end end = (enum end)((unsigned)rand_r(&seed) % ENDS);
        int n = 0;
        must(hn_init(logger, NULL)); /* as tables before v10 do */
        must(hn_devices(&n));
        connect_pair(&p, rand_r(&seed) % n, end == GIVE_UP ? 1 + (unsigned)rand_r(&seed) % 20 : 0);
        if (end == LISTENER_FIRST) {
            must(hn_close_listen(p.listen));
            p.listen = NULL;
        }
        if (end == EARLY_FINALIZE)
            must(hn_finalize());
        if (p.send && p.recv)
            transfer(&p, end, &seed);
        close_pair(&p, end);
        if (end != EARLY_FINALIZE)
            must(hn_finalize());
        free(p.from);
        free(p.to);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

/* Tests sends of which a part is outside the registered memory, before and behind it. */
static void send_outside(void)
{
    static const struct {
        long offset;
        size_t size;
        ncclResult_t result;
    } sends[] = {{0, 100, ncclSuccess},          {MOST - 100, 100, ncclSuccess}, {MOST - 99, 100, ncclInvalidArgument},
                 {MOST, 1, ncclInvalidArgument}, {-1, 100, ncclInvalidArgument}, {0, MOST + 1, ncclInvalidArgument}};
    struct pair p = {0};
    void *req;
    char *memory = calloc(3, MOST);
    must(hn_init(logger, NULL));
    connect_pair(&p, 0, 0);
    must(hn_reg(p.send, memory + MOST, MOST, NCCL_PTR_HOST, &p.from_mh));
    for (size_t i = 0; i < HW_ARRAY_LEN(sends); i++)
        ok(hn_isend(p.send, memory + MOST + sends[i].offset, sends[i].size, 0, p.from_mh, NULL, &req) ==
               sends[i].result,
           "a send of %zu bytes at %ld of %d", sends[i].size, sends[i].offset, MOST);
    close_pair(&p, NO_RECEIVES);
    must(hn_finalize());
    free(memory);
}

/* Plays a rank that writes the handle of its listener to fd, and accepts connections until it is killed. */
static void play_listener(int fd)
{
    uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
    void *listen, *recv;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || hn_init(logger, NULL) || hn_listen(0, handle, &listen) ||
        write(fd, handle, sizeof(handle)) != sizeof(handle))
        _exit(1);
    for (;; nap())
        (void)hn_accept(listen, &recv);
}

/* Returns the process ID of a rank that plays a listener, and its handle. */
static pid_t start_listener(uint8_t handle[NCCL_NET_HANDLE_MAXSIZE])
{
    int fd[2];
    if (pipe(fd))
        exit(1);
    pid_t pid = fork();
    if (pid == 0)
        play_listener(fd[1]);
    if (pid < 0 || read(fd[0], handle, NCCL_NET_HANDLE_MAXSIZE) != NCCL_NET_HANDLE_MAXSIZE)
        exit(1);
    (void)close(fd[0]);
    (void)close(fd[1]);
    return pid;
}

/* Tests that the last finalize does not wait for each session to peers that do not answer, one after another. */
static void finalize_with_stopped_peers(void)
{
    pid_t pid[STOPPED];
    uint8_t handle[STOPPED][NCCL_NET_HANDLE_MAXSIZE];
    void *send[STOPPED][HN_LANES] = {0};
    for (size_t i = 0; i < STOPPED; i++)
        pid[i] = start_listener(handle[i]); /* before this process has threads */
    must(hn_init(logger, NULL));
    for (size_t i = 0; i < STOPPED; i++)
        for (unsigned k = 0; k < HN_LANES; k++)
            while (!send[i][k] && hn_connect(0, handle[i], &send[i][k]) == ncclSuccess)
                nap();
    for (size_t i = 0; i < STOPPED; i++) {
        kill(pid[i], SIGSTOP);
        for (unsigned k = 0; k < HN_LANES; k++)
            must(send[i][k] ? hn_close_send(send[i][k]) : ncclSystemError);
    }
    const uint64_t begin = hw_now();
    must(hn_finalize());
    const uint64_t ms = (hw_now() - begin) / HW_MS;
    ok(!hn_g.h && ms < 5000, "finalize with %d sessions to stopped ranks takes %llu ms", STOPPED * HN_LANES,
       (unsigned long long)ms);
    for (size_t i = 0; i < STOPPED; i++) {
        kill(pid[i], SIGKILL);
        (void)waitpid(pid[i], NULL, 0);
    }
}

int main(void)
{
    pthread_t thread[THREADS];
    unsigned number[THREADS];
    alarm(LIMIT_S);
    setenv("HAWSER_NICS", "lo", 1);
    finalize_with_stopped_peers();
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, live, &number[i]))
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    send_outside();
    is_int(atomic_load(&rounds), THREADS * ROUNDS, "all communicators have ended");
    is_int(atomic_load(&failed), 0, "no call failed");
    ok(!hn_g.h && !hn_g.inits && !hn_g.comms, "the context is closed");
    return tap_done();
}
