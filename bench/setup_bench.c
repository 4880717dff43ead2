/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long a process takes to connect to many peers, and the descriptors and memory that it uses for each
 * peer:
 *
 *     setup_bench PEERS [PROCESSES]
 *
 * PROCESSES other processes (default 8) listen on loopback. This process starts PEERS connections to them at the same
 * time, and then writes 8 bytes to each peer. Prints one line of JSON: ms until all were connected, ms until all writes
 * had ended, and per peer the file descriptors and the resident bytes of this process.
 */
#include "base/base.h"
#include "hawser.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define BYTES     4096
#define PROCESSES 8
#define LIMIT_MS  60000

static void check(int rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "setup_bench: %s: %s\n", what, hawser_error());
    exit(1);
}

static hawser *open_context(hawser_mem **mem, uint32_t flags)
{
    const struct hawser_options o = {.size = sizeof o, .flags = flags};
    hawser *h;
    check(hawser_open(&o, &h), "opening");
    check(hawser_mem_alloc(h, HAWSER_MEM_HOST, -1, BYTES, mem), "allocating");
    return h;
}

struct hello {
    uint16_t port;
    uint8_t key[HAWSER_KEY_SIZE];
};

static _Noreturn void serve(int fd)
{
    hawser_mem *mem;
    struct hello hello;
    hawser_peer *p;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hawser *h = open_context(&mem, 0);
    check(hawser_listen(h, "127.0.0.1", 0, &hello.port), "listening");
    check(hawser_export(mem, 0, BYTES, HAWSER_REMOTE_WRITE, NULL, hello.key), "exporting");
    if (write(fd, &hello, sizeof hello) != (ssize_t)sizeof hello)
        exit(1);
    for (;;)
        check(hawser_accept(h, -1, &p), "accepting");
}

static unsigned count_descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static long get_resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Takes completions until n of this kind have arrived. */
static void await(hawser *h, uint32_t kind, unsigned n)
{
    uint64_t end = hw_deadline(LIMIT_MS);
    while (n) {
        struct hawser_completion c[64];
        int got = hawser_poll_wait(h, c, 64, 1000);
        check(got, "waiting");
        for (int i = 0; i < got; i++) {
            if (c[i].event != kind)
                continue;
            if (c[i].result < 0) {
                fprintf(stderr, "setup_bench: %s: %s\n", kind == HAWSER_CONNECTED ? "connecting" : "writing",
                        hawser_peer_state(c[i].peer) < 0 ? hawser_error() : strerror(-c[i].result));
                exit(1);
            }
            n--;
        }
        if (hw_now() > end) {
            fprintf(stderr, "setup_bench: %u are missing after %d s\n", n, LIMIT_MS / 1000);
            exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 8;
    unsigned servers = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : PROCESSES;
    struct rlimit files;
    if (n == 0 || servers == 0 || servers > 64) {
        fprintf(stderr, "usage: setup_bench PEERS [PROCESSES]\n");
        return 2;
    }
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    struct hello hello[64];
    for (unsigned i = 0; i < servers; i++) {
        int fd[2];
        if (pipe(fd) < 0)
            return 1;
        if (fork() == 0)
            serve(fd[1]);
        close(fd[1]);
        if (read(fd[0], &hello[i], sizeof hello[i]) != (ssize_t)sizeof hello[i])
            return 1;
        close(fd[0]);
    }
    hawser_mem *mem;
    hawser *h = open_context(&mem, HAWSER_EVENTS);
    hawser_peer **peer = calloc(n, sizeof *peer);
    struct hawser_region *region = calloc(n, sizeof *region);
    if (!peer || !region)
        return 1;
    long resident = get_resident();
    unsigned descriptors = count_descriptors();
    uint64_t start = hw_now();
    for (unsigned i = 0; i < n; i++)
        check(hawser_connect_start(h, "127.0.0.1", hello[i % servers].port, NULL, LIMIT_MS, 0, &peer[i]), "connecting");
    await(h, HAWSER_CONNECTED, n);
    uint64_t connected = hw_now();
    for (unsigned i = 0; i < n; i++) {
        check(hawser_import(hello[i % servers].key, &region[i]), "importing");
        const struct hawser_vec v = {.mem = mem, .length = 8, .region = &region[i]};
        check(hawser_write(peer[i], &v, 1, NULL, NULL), "writing");
    }
    await(h, HAWSER_ENDED, n);
    uint64_t written = hw_now();
    printf("{\"peers\": %u, \"connected_ms\": %.1f, \"written_ms\": %.1f, \"descriptors_each\": %.1f, \"bytes_each\": "
           "%.0f}\n",
           n, (double)(connected - start) / 1e6, (double)(written - start) / 1e6,
           (double)(count_descriptors() - descriptors) / n, (double)(get_resident() - resident) / n);
    fflush(stdout);
    _exit(0); /* the children end too */
}
