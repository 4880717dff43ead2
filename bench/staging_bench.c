/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a machine's maximum rate for transfers of GPU memory over TCP, with a minimal program that stages the data
 * in host memory, and with each half of that program alone.
 *
 *     staging_bench WHAT CONNECTIONS [RING_KIB [PART_KIB [SECONDS]]]
 *
 * WHAT is copy (from the GPU into pinned rings, and from other rings to the GPU, without network), socket (from ring to
 * ring over loopback, without GPU), or both (from GPU memory through a ring, a loopback connection and another ring to
 * GPU memory). Each end of each connection has a thread. With BENCH_PAGES=huge, the rings use transparent huge pages.
 * Prints one JSON object: decimal GB/s out of and into GPU memory (or the sockets), and CPU seconds per GB.
 */
#include "measure.h"
#include "mem/space.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define MOST   64          /* connections */
#define MEMORY (64u << 20) /* GPU memory of each end */
#define DEPTH  64u

struct end {
    pthread_t thread;
    int fd;
    bool sends;
    uint8_t *ring, *gpu;
    struct hw_copyq *q;
    uint64_t over; /* number of copies that have ended */
    _Atomic uint64_t bytes;
};

static struct {
    bool copies, sockets;
    size_t ring, part;
    const struct hw_space *space;
    struct end end[2 * MOST];
    atomic_bool stop;
} b;

static void die(const char *what)
{
    fprintf(stderr, "staging_bench: %s: %s\n", what, errno ? strerror(errno) : hw_error());
    _exit(1);
}

static void check(int rc, const char *what)
{
    errno = 0;
    if (rc < 0)
        die(what);
}

/* Waits until n copies of this end have ended. */
static void wait_for_copy(struct end *e, uint64_t n)
{
    while (b.copies && e->over < n)
        check(b.space->ops->done(e->q, &e->over), "a copy");
}

static void start_copy(struct end *e, uint64_t n)
{
    uint8_t *host = e->ring + n * b.part % b.ring, *gpu = e->gpu + n * b.part % MEMORY;
    if (b.copies)
        check(b.space->ops->copy(e->q, e->sends ? host : gpu, e->sends ? gpu : host, b.part), "copying");
}

static bool move_part(const struct end *e, uint64_t n)
{
    uint8_t *host = e->ring + n * b.part % b.ring;
    for (size_t at = 0; b.sockets && at < b.part;) {
        ssize_t done =
            e->sends ? send(e->fd, host + at, b.part - at, MSG_NOSIGNAL) : recv(e->fd, host + at, b.part - at, 0);
        if (done <= 0)
            return false;
        at += (size_t)done;
    }
    return true;
}

static void *run_end(void *arg)
{
    struct end *e = arg;
    uint64_t parts = HW_MIN(b.ring / b.part, DEPTH), started = 0;
    for (uint64_t n = 0; !atomic_load(&b.stop); n++) {
        if (e->sends) {
            for (; started < n + parts; started++)
                start_copy(e, started);
            wait_for_copy(e, n + 1);
        } else if (n >= parts) {
            wait_for_copy(e, n + 1 - parts);
        }
        if (!move_part(e, n))
            break;
        if (!e->sends)
            start_copy(e, n);
        atomic_fetch_add(&e->bytes, b.part);
    }
    return NULL;
}

static uint8_t *take_ring(void)
{
    uint8_t *ring = NULL;
    const char *pages = getenv("BENCH_PAGES");
    if (pages && strcmp(pages, "huge") == 0) {
        if (posix_memalign((void **)&ring, 2u << 20, b.ring) == 0)
            (void)madvise(ring, b.ring, MADV_HUGEPAGE);
    } else {
        ring = hw_pages_alloc(b.ring, -1);
    }
    if (!ring)
        die("a ring");
    memset(ring, 1, b.ring);
    if (b.copies)
        check(b.space->ops->pin(b.space, ring, b.ring), "pinning a ring");
    return ring;
}

static void prepare_end(struct end *e, int fd, bool sends)
{
    void *gpu = NULL;
    e->fd = fd;
    e->sends = sends;
    e->ring = take_ring();
    if (!b.copies)
        return;
    check(b.space->ops->queue_open(b.space, DEPTH + 1, &e->q), "a queue of copies");
    check(b.space->ops->alloc(b.space, MEMORY, &gpu), "memory of the GPU");
    e->gpu = gpu;
}

static uint64_t count_bytes(unsigned n, bool sent)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < n; i++)
        all += b.end[i].sends == sent ? atomic_load(&b.end[i].bytes) : 0;
    return all;
}

static double get_cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    const char *what = argc > 1 ? argv[1] : "";
    b.copies = strcmp(what, "socket") != 0;
    b.sockets = strcmp(what, "copy") != 0;
    b.ring = (argc > 3 ? (size_t)atoi(argv[3]) : 8192) << 10;
    b.part = (argc > 4 ? (size_t)atoi(argv[4]) : 512) << 10;
    double seconds = argc > 5 ? atof(argv[5]) : 2;
    if (n < 1 || n > MOST || !b.part || b.ring % b.part || MEMORY % b.part) {
        fprintf(stderr, "usage: staging_bench copy|socket|both CONNECTIONS [RING_KIB [PART_KIB [SECONDS]]]\n");
        return 1;
    }
    if (b.copies)
        check(hw_space_device(HAWSER_MEM_CUDA, 0, &b.space), "the GPU");
    for (unsigned i = 0; i < n; i++) {
        int fd[2];
        connect_pair(fd);
        prepare_end(&b.end[2 * i], fd[0], true);
        prepare_end(&b.end[2 * i + 1], fd[1], false);
    }
    for (unsigned i = 0; i < 2 * n; i++)
        if (pthread_create(&b.end[i].thread, NULL, run_end, &b.end[i]))
            die("a thread");
    (void)usleep(300000); /* warm */
    uint64_t began = hw_now(), out = count_bytes(2 * n, true), in = count_bytes(2 * n, false);
    double cpu = get_cpu();
    (void)usleep((useconds_t)(seconds * 1e6));
    double took = (double)(hw_now() - began);
    out = count_bytes(2 * n, true) - out;
    in = count_bytes(2 * n, false) - in;
    printf("{\"what\": \"%s\", \"connections\": %u, \"ring_KiB\": %zu, \"part_KiB\": %zu, \"out_GBps\": %.2f, "
           "\"in_GBps\": "
           "%.2f, \"cpu_s_per_GB\": %.3f}\n",
           what, n, b.ring >> 10, b.part >> 10, (double)out / took, (double)in / took,
           (get_cpu() - cpu) * 1e9 / (double)in);
    fflush(stdout);
    _exit(0); /* without waiting for threads and copies */
}
