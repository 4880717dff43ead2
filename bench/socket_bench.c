/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counterpart of engine_bench that uses sockets directly: transfers between two processes, over loopback.
 *
 *     socket_bench CASE SECONDS      prints a JSON object (measure.h)
 *
 * The kinds of cases:
 *  - write, rate: frames with a header and a payload. One confirmation covers all frames of 8 bytes that one read
 *    returned.
 *  - pingpong: a frame in each direction.
 *  - stream: a number of connections, with a thread for each end, and no confirmations.
 *
 * BENCH_CONGESTION is the congestion control. With BENCH_SPIN=1, threads poll while they wait for data.
 */
#include "measure.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MEMORY  (256u << 20) /* used cyclically, as in engine_bench */
#define HEAD    40           /* size of the engine's headers: 16 bytes for the link, and 24 for a write */
#define ANSWER  24           /* bytes of a confirmation */
#define DEEP    1024
#define CALL    (1u << 20) /* bytes of one send or receive of a stream */
#define STREAMS 16

enum what { WRITE, PINGPONG, STREAM };

static const struct bench_case {
    const char *name;
    enum what what;
    size_t bytes;
    unsigned deep; /* writes in flight; connections of a stream */
} cases[] = {
    {"write-8", WRITE, 8, 1},         {"write-4K", WRITE, 4096, 1},   {"write-64K", WRITE, 65536, 1},
    {"write-1M", WRITE, 1 << 20, 1},  {"pingpong-8", PINGPONG, 8, 1}, {"rate-8", WRITE, 8, 64},
    {"rate-8-x1024", WRITE, 8, 1024}, {"stream-1", STREAM, 0, 1},     {"stream-2", STREAM, 0, 2},
    {"stream-4", STREAM, 0, 4},       {"stream-8", STREAM, 0, 8},     {"stream-16", STREAM, 0, 16},
};

struct stream {
    int fd;
    size_t from, len; /* the stream's part of the memory */
};

static char *memory;
static bool spin;
static _Atomic uint64_t streamed;

static void die(const char *what)
{
    fprintf(stderr, "socket_bench: %s: %s\n", what, strerror(errno));
    _exit(1);
}

/* Reads at least one byte, and up to cap. */
static size_t read_some(int fd, void *to, size_t cap)
{
    ssize_t n;
    do
        n = recv(fd, to, cap, spin ? MSG_DONTWAIT : 0);
    while (n < 0 && errno == EAGAIN);
    if (n <= 0)
        die("receiving");
    return (size_t)n;
}

static void read_all(int fd, char *to, size_t len)
{
    while (len > 0) {
        size_t n = read_some(fd, to, len);
        to += n, len -= n;
    }
}

static void write_all(int fd, struct iovec *v, int n)
{
    while (n > 0) {
        struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)HW_MIN(n, 1024)};
        ssize_t out = sendmsg(fd, &m, MSG_NOSIGNAL);
        if (out < 0)
            die("sending");
        for (; n > 0 && (size_t)out >= v->iov_len; v++, n--)
            out -= (ssize_t)v->iov_len;
        if (n > 0) {
            v->iov_base = (char *)v->iov_base + out;
            v->iov_len -= (size_t)out;
        }
    }
}

/* Stores payloads in memory. Confirms all complete frames of one read with a single answer, which contains their
 * number. */
static void serve_writes(int fd, size_t bytes)
{
    static char buf[DEEP * (HEAD + 8)];
    size_t have = 0, place = 0;
    for (uint32_t n = 0;; n = 0, place = (place + bytes) % MEMORY) {
        char answer[ANSWER] = {0};
        if (bytes > 8) {
            read_all(fd, buf, HEAD);
            read_all(fd, memory + place, bytes);
            n = 1;
        } else {
            size_t at = 0;
            have += read_some(fd, buf + have, sizeof buf - have);
            for (; have - at >= HEAD + bytes; at += HEAD + bytes, n++)
                memcpy(memory + n * bytes, buf + at + HEAD, bytes);
            have -= at;
            memmove(buf, buf + at, have);
        }
        memcpy(answer, &n, sizeof n);
        if (n > 0)
            write_all(fd, &(struct iovec){answer, sizeof answer}, 1);
    }
}

/* Returns the next address in the stream's part of the memory. */
static char *step_through(const struct stream *t, size_t *at)
{
    char *p = memory + t->from + *at;
    *at = (*at + CALL) % t->len;
    return p;
}

static void *take_stream(void *arg)
{
    const struct stream *t = arg;
    for (size_t at = 0;;)
        read_all(t->fd, step_through(t, &at), CALL);
    return NULL;
}

static void *give_stream(void *arg)
{
    const struct stream *t = arg;
    for (size_t at = 0;;) {
        write_all(t->fd, &(struct iovec){step_through(t, &at), CALL}, 1);
        atomic_fetch_add(&streamed, CALL);
    }
    return NULL;
}

static void start_threads(const int *fd, unsigned n, void *(*run)(void *))
{
    static struct stream t[STREAMS];
    pthread_t id;
    for (unsigned i = 0; i < n; i++) {
        t[i] = (struct stream){fd[i], i * (MEMORY / n), MEMORY / n};
        if (pthread_create(&id, NULL, run, &t[i]))
            die("a thread");
    }
}

/* Allocates memory for this process, and writes to all pages. */
static void make_memory(void)
{
    memory = malloc(MEMORY);
    if (!memory)
        die("memory");
    memset(memory, 1, MEMORY);
}

static void serve(int *fd, const struct bench_case *c)
{
    make_memory();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (c->what == WRITE)
        serve_writes(fd[0], c->bytes);
    if (c->what == STREAM)
        start_threads(fd, c->deep, take_stream);
    while (c->what == STREAM)
        pause();
    for (char frame[HEAD + 8];;) {
        read_all(fd[0], frame, sizeof frame);
        write_all(fd[0], &(struct iovec){frame, sizeof frame}, 1);
    }
}

static void run_stream(struct measure *m, int *fd, const struct bench_case *c, pid_t other, double seconds)
{
    start_threads(fd, c->deep, give_stream);
    usleep(100000); /* warm-up of TCP's windows */
    begin_measure(m, other);
    uint64_t before = atomic_load(&streamed);
    usleep((useconds_t)(seconds * 1e6));
    m->bytes = atomic_load(&streamed) - before;
    m->ops = m->bytes / CALL;
}

static void run_writes(struct measure *m, int fd, const struct bench_case *c, pid_t other, double seconds)
{
    static struct iovec v[2 * DEEP];
    static char head[DEEP][HEAD];
    uint64_t now = 0, end = hw_now() + (uint64_t)(seconds * 1e9), turn = 0;
    for (unsigned more = c->deep; now < end; turn++) {
        char answer[ANSWER];
        uint64_t start = hw_now();
        for (unsigned i = 0; i < more; i++) {
            v[2 * i] = (struct iovec){head[i], HEAD};
            v[2 * i + 1] = (struct iovec){memory + (turn + i) * c->bytes % MEMORY, c->bytes};
        }
        write_all(fd, v, (int)(2 * more));
        read_all(fd, answer, c->what == PINGPONG ? HEAD + 8 - ANSWER : sizeof answer);
        if (c->what == PINGPONG)
            read_all(fd, answer, ANSWER);
        else
            memcpy(&more, answer, sizeof more);
        now = hw_now();
        if (turn == 8) /* warm */
            begin_measure(m, other);
        if (turn < 8)
            continue;
        hw_hist_add(&m->took, now - start);
        m->ops += more;
        m->bytes += more * c->bytes;
    }
}

int main(int argc, char **argv)
{
    const struct bench_case *c = NULL;
    static struct measure m;
    int here[STREAMS], there[STREAMS];
    for (size_t i = 0; argc > 2 && i < HW_ARRAY_LEN(cases); i++)
        if (strcmp(cases[i].name, argv[1]) == 0)
            c = &cases[i];
    if (!c) {
        fprintf(stderr, "usage: socket_bench CASE SECONDS; cases:");
        for (size_t i = 0; i < HW_ARRAY_LEN(cases); i++)
            fprintf(stderr, " %s", cases[i].name);
        fprintf(stderr, "\n");
        return 1;
    }
    spin = getenv("BENCH_SPIN") != NULL;
    unsigned n = c->what == STREAM ? c->deep : 1;
    for (unsigned i = 0; i < n; i++) {
        int end[2];
        connect_pair(end);
        here[i] = end[0], there[i] = end[1];
    }
    pid_t child = fork();
    if (child == 0)
        serve(there, c);
    for (unsigned i = 0; i < n; i++)
        hw_close(&there[i]);
    make_memory();
    if (c->what == STREAM)
        run_stream(&m, here, c, child, strtod(argv[2], NULL));
    else
        run_writes(&m, here[0], c, child, strtod(argv[2], NULL));
    print_measure(&m);
    _exit(0); /* the child ends too */
}
