/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library does between two processes, over loopback. bench/builds compares two builds of it.
 *
 *     engine_bench CASE SECONDS      prints one figure: microseconds a turn (latency cases), or operations a second
 */
#include "base/base.h"
#include "hawser.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY (64u << 20)
#define DEEP   64

enum what { WRITE, PINGPONG };

static const struct bench_case {
    const char *name;
    enum what what;
    size_t bytes;
    unsigned deep; /* operations under way at a time */
} cases[] = {
    {"write-8", WRITE, 8, 1},
    {"pingpong-8", PINGPONG, 8, 1},
    {"rate-8", WRITE, 8, 64},
    {"write-4K-x16", WRITE, 4096, 16},
    {"write-64K-x8", WRITE, 65536, 8},
    {"write-1M-x4", WRITE, 1 << 20, 4},
    {"write-16M-x2", WRITE, 16 << 20, 2},
};

static void die(const char *what)
{
    fprintf(stderr, "engine_bench: %s: %s\n", what, hawser_error());
    _exit(1);
}

static void check(int rc, const char *what)
{
    if (rc < 0)
        die(what);
}

static void move_bytes(int fd, void *data, size_t len, bool out)
{
    if ((out ? send(fd, data, len, 0) : recv(fd, data, len, MSG_WAITALL)) != (ssize_t)len)
        die("the other process");
}

static hawser *open_context(hawser_mem **mem)
{
    struct hawser_options o = {.size = sizeof o};
    o.flags = getenv("BENCH_TRUSTED") ? HAWSER_TRUSTED : 0;
    hawser *h;
    check(hawser_open(&o, &h), "opening");
    check(hawser_mem_alloc(h, HAWSER_MEM_HOST, -1, MEMORY, mem), "allocating");
    memset(hawser_mem_ptr(*mem), 1, MEMORY);
    return h;
}

static void wait_and_free(hawser_op *op)
{
    check(hawser_wait(op, 30000), "an operation");
    hawser_op_free(op);
}

/* One message there and one back, or back and there. */
static void bounce(hawser_peer *p, hawser_mem *mem, size_t bytes, bool first)
{
    struct hawser_vec out = {.mem = mem, .length = bytes}, in = {.mem = mem, .offset = MEMORY / 2, .length = bytes};
    hawser_op *s, *r;
    check(hawser_recv(p, &in, 1, NULL, &r), "receiving");
    if (!first)
        wait_and_free(r);
    check(hawser_send(p, &out, 1, NULL, &s), "sending");
    if (first)
        wait_and_free(r);
    wait_and_free(s);
}

static void serve(int fd, const struct bench_case *c)
{
    hawser_mem *mem;
    hawser *h = open_context(&mem);
    hawser_peer *p;
    uint16_t port;
    uint8_t key[HAWSER_KEY_SIZE];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    check(hawser_listen(h, "127.0.0.1", 0, &port), "listening");
    check(hawser_export(mem, 0, MEMORY, HAWSER_REMOTE_WRITE, NULL, key), "exporting");
    move_bytes(fd, &port, sizeof port, true);
    move_bytes(fd, key, sizeof key, true);
    check(hawser_accept(h, 10000, &p), "accepting");
    for (;;)
        if (c->what == PINGPONG)
            bounce(p, mem, c->bytes, false);
        else
            pause();
}

static double run(hawser_peer *p, hawser_mem *mem, const struct hawser_region *region, const struct bench_case *c,
                  double seconds)
{
    hawser_op *op[DEEP] = {0};
    uint64_t began = 0, now = 0, n = 0, end = hw_now() + (uint64_t)(seconds * 1e9);
    for (uint64_t i = 0; now < end; i++) {
        unsigned k = (unsigned)(i % c->deep);
        if (c->what == PINGPONG) {
            bounce(p, mem, c->bytes, true);
        } else {
            uint64_t at = k * c->bytes % (MEMORY / 2);
            struct hawser_vec v = {.mem = mem, .offset = at, .length = c->bytes, .region = region, .remote_offset = at};
            if (op[k])
                wait_and_free(op[k]);
            check(hawser_write(p, &v, 1, NULL, &op[k]), "writing");
        }
        now = hw_now();
        if (i == 4 * c->deep) /* warm */
            began = now, n = 0;
        n++;
    }
    double took = (double)(hw_now() - began) / 1e9;
    for (unsigned k = 0; k < c->deep; k++)
        if (op[k])
            wait_and_free(op[k]);
    return c->deep == 1 ? took * 1e6 / (double)n : (double)n / took;
}

int main(int argc, char **argv)
{
    const struct bench_case *c = NULL;
    int fd[2];
    for (size_t i = 0; argc > 2 && i < HW_ARRAY_LEN(cases); i++)
        if (strcmp(cases[i].name, argv[1]) == 0)
            c = &cases[i];
    if (!c || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0) {
        fprintf(stderr, "usage: engine_bench CASE SECONDS; cases:");
        for (size_t i = 0; i < HW_ARRAY_LEN(cases); i++)
            fprintf(stderr, " %s", cases[i].name);
        fprintf(stderr, "\n");
        return 1;
    }
    pid_t child = fork();
    if (child == 0)
        serve(fd[1], c);
    hawser_mem *mem;
    hawser *h = open_context(&mem);
    hawser_peer *p;
    uint16_t port;
    uint8_t key[HAWSER_KEY_SIZE];
    struct hawser_region region;
    move_bytes(fd[0], &port, sizeof port, false);
    move_bytes(fd[0], key, sizeof key, false);
    check(hawser_import(key, &region), "importing");
    check(hawser_connect(h, "127.0.0.1", port, NULL, 10000, &p), "connecting");
    printf("%.2f\n", run(p, mem, &region, c, strtod(argv[2], NULL)));
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    _exit(0);
}
