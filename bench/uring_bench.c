/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares methods (WAY) of moving one TCP stream over loopback. One end uses plain send() or recv(), and the other end
 * uses the method under test:
 *
 *     uring_bench WAY SECONDS
 *
 *  - send, recv: send(2) or recv(2) of up to 256 KiB, directly from or to the data's final location, as in the engine
 *  - recv-epoll: recv(2), and epoll_wait(2) when there is no data
 *  - recv-lowat: recv-epoll, woken only for 256 KiB (SO_RCVLOWAT)
 *  - send-uring, recv-uring: one send or receive at a time through io_uring
 *  - send-zc: io_uring's zero-copy send of registered buffers, 8 in flight
 *  - recv-multishot: one request for many receives, into 64 provided buffers of 64 KiB, then a copy to the data's
 *    final location
 *
 * Prints a line of JSON: GB/s, and CPU seconds per GB of the end under test and of the other end.
 */
#include "base/base.h"
#include "bench/measure.h"

#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define CHUNK   (256u << 10)
#define MEMORY  (64u << 20) /* used cyclically; larger than caches usually are */
#define DEEP    8
#define BUFFERS 64
#define BUFFER  (64u << 10)

static char *memory;
static uint64_t moved, until;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "uring_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static char *get_chunk(void)
{
    return memory + moved % MEMORY / CHUNK * CHUNK;
}

static bool goes_on(ssize_t n)
{
    if (n <= 0)
        die("moving bytes");
    moved += (uint64_t)n;
    return hw_now() < until;
}

static void send_plain(int fd)
{
    while (goes_on(send(fd, get_chunk(), CHUNK, MSG_NOSIGNAL)))
        ;
}

static void recv_plain(int fd)
{
    while (goes_on(recv(fd, get_chunk(), CHUNK, 0)))
        ;
}

static void recv_epoll(int fd)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};
    int ep = epoll_create1(0);
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    for (;;) {
        ssize_t n = recv(fd, get_chunk(), CHUNK, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            epoll_wait(ep, &e, 1, -1);
        else if (!goes_on(n))
            return;
    }
}

static void recv_lowat(int fd)
{
    int low = CHUNK;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) < 0)
        die("SO_RCVLOWAT");
    recv_epoll(fd);
}

/* ---- io_uring ------------------------------------------------------------------------------------------- */

static struct io_uring ring;

static void make_ring(void)
{
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    int rc = io_uring_queue_init_params(4 * BUFFERS, &ring, &p);
    if (rc < 0) {
        errno = -rc;
        die("io_uring");
    }
}

static struct io_uring_cqe *take_completion(void)
{
    struct io_uring_cqe *c = NULL;
    int rc = io_uring_submit_and_wait(&ring, 1);
    rc = rc < 0 ? rc : io_uring_wait_cqe(&ring, &c);
    if (rc < 0) {
        errno = -rc;
        die("waiting for io_uring");
    }
    if (c->res < 0) {
        errno = -c->res;
        die("io_uring's request");
    }
    return c;
}

static void put_send(int fd, unsigned i, bool zc)
{
    struct io_uring_sqe *s = io_uring_get_sqe(&ring);
    char *at = memory + (uint64_t)i * CHUNK;
    if (zc)
        io_uring_prep_send_zc_fixed(s, fd, at, CHUNK, MSG_WAITALL, 0, 0);
    else
        io_uring_prep_send(s, fd, at, CHUNK, MSG_WAITALL);
    s->user_data = i;
}

/* Sends the memory cyclically. Plain sends are made one at a time; up to DEEP zero-copy sends are in flight. */
static void send_by_ring(int fd, bool zc)
{
    struct iovec all = {memory, MEMORY};
    unsigned next = 0, under_way = 0;
    make_ring();
    if (zc && io_uring_register_buffers(&ring, &all, 1) < 0)
        die("registering memory");
    for (bool more = true; more;) {
        while (under_way < (zc ? DEEP : 1u)) {
            put_send(fd, next, zc);
            next = (next + 1) % (MEMORY / CHUNK);
            under_way++;
        }
        struct io_uring_cqe *c = take_completion();
        if (!(c->flags & IORING_CQE_F_NOTIF))
            more = goes_on(c->res);
        under_way -= !(c->flags & IORING_CQE_F_MORE);
        io_uring_cqe_seen(&ring, c);
    }
}

static void send_uring(int fd)
{
    send_by_ring(fd, false);
}

static void send_zc(int fd)
{
    send_by_ring(fd, true);
}

static void recv_uring(int fd)
{
    make_ring();
    for (bool more = true; more;) {
        struct io_uring_sqe *s = io_uring_get_sqe(&ring);
        io_uring_prep_recv(s, fd, get_chunk(), CHUNK, 0);
        struct io_uring_cqe *c = take_completion();
        more = goes_on(c->res);
        io_uring_cqe_seen(&ring, c);
    }
}

static void recv_multishot(int fd)
{
    char *buffers = mmap(NULL, (size_t)BUFFERS * BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct io_uring_buf_ring *br = aligned_alloc(4096, BUFFERS * sizeof(struct io_uring_buf));
    struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)br, .ring_entries = BUFFERS};
    make_ring();
    io_uring_buf_ring_init(br);
    if (io_uring_register_buf_ring(&ring, &reg, 0) < 0)
        die("registering buffers");
    for (unsigned i = 0; i < BUFFERS; i++)
        io_uring_buf_ring_add(br, buffers + (size_t)i * BUFFER, BUFFER, (unsigned short)i,
                              io_uring_buf_ring_mask(BUFFERS), (int)i);
    io_uring_buf_ring_advance(br, BUFFERS);
    for (bool more = true, armed = false; more;) {
        if (!armed) {
            struct io_uring_sqe *s = io_uring_get_sqe(&ring);
            io_uring_prep_recv_multishot(s, fd, NULL, 0, 0);
            s->flags |= IOSQE_BUFFER_SELECT;
        }
        struct io_uring_cqe *c = NULL;
        int rc = io_uring_submit_and_wait(&ring, 1);
        if (rc < 0 || io_uring_wait_cqe(&ring, &c) < 0)
            die("waiting for io_uring");
        armed = c->flags & IORING_CQE_F_MORE;
        if (c->res > 0) {
            unsigned id = c->flags >> IORING_CQE_BUFFER_SHIFT;
            memcpy(memory + moved % (MEMORY - BUFFER), buffers + (size_t)id * BUFFER, (size_t)c->res);
            io_uring_buf_ring_add(br, buffers + (size_t)id * BUFFER, BUFFER, (unsigned short)id,
                                  io_uring_buf_ring_mask(BUFFERS), 0);
            io_uring_buf_ring_advance(br, 1);
            more = goes_on(c->res);
        } else if (c->res != -ENOBUFS) {
            errno = -c->res;
            die("io_uring's receive");
        }
        io_uring_cqe_seen(&ring, c);
    }
}

static const struct way {
    const char *name;
    void (*run)(int fd);
    bool sends;
} ways[] = {
    {"send", send_plain, true},        {"recv", recv_plain, false},
    {"recv-epoll", recv_epoll, false}, {"recv-lowat", recv_lowat, false},
    {"send-uring", send_uring, true},  {"send-zc", send_zc, true},
    {"recv-uring", recv_uring, false}, {"recv-multishot", recv_multishot, false},
};

static double get_cpu(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    const struct way *way = NULL;
    int end[2];
    clockid_t far;
    for (size_t i = 0; argc == 3 && i < HW_ARRAY_LEN(ways); i++)
        if (strcmp(ways[i].name, argv[1]) == 0)
            way = &ways[i];
    if (!way) {
        fprintf(stderr, "usage: uring_bench WAY SECONDS\n");
        return 2;
    }
    memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    connect_pair(end);
    until = HW_NEVER;
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        (way->sends ? recv_plain : send_plain)(end[1]);
        _exit(0);
    }
    clock_getcpuclockid(other, &far);
    double seconds = strtod(argv[2], NULL), own = -get_cpu(CLOCK_PROCESS_CPUTIME_ID), others = -get_cpu(far);
    uint64_t start = hw_now();
    until = start + (uint64_t)(seconds * 1e9);
    way->run(end[0]);
    double took = (double)(hw_now() - start) / 1e9, GB = (double)moved / 1e9;
    own += get_cpu(CLOCK_PROCESS_CPUTIME_ID);
    others += get_cpu(far);
    printf("{\"way\": \"%s\", \"GBps\": %.3f, \"cpu\": %.4f, \"other_cpu\": %.4f}\n", way->name, GB / took, own / GB,
           others / GB);
    fflush(stdout);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    return 0;
}
