/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of the child process of transport netplugin. Messages between two ends of one process go through a
 * plugin, which this thread calls directly or which the host runs in a child process, alternately in the same run.
 *   netplugin_bench PLUGIN [BYTES [MESSAGES [ROUNDS]]]
 * Prints the median of host / direct for one message and for eight messages at a time. Not a test: the figures are
 * meaningful only on an idle machine.
 *
 * The plugin's TCP sockets use reno, which every kernel has. BBR would pace each connection by the rate that it has
 * measured, which differs between connections of one machine, so that one of the two would be slower during a whole
 * run.
 */
#include "tests/lib/transport/netplugin_pair.h"
#include "transport/netplugin/table/table.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define WINDOW 8

/* Also replaces socket() for the plugin, because this program exports the symbol. */
__attribute__((visibility("default"))) int socket(int domain, int type, int protocol)
{
    int fd = (int)syscall(SYS_socket, domain, type, protocol);
    if (fd >= 0 && (domain == AF_INET || domain == AF_INET6))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    return fd;
}

struct direct {
    struct np_table t;
    void *lc, *sc, *rc, *smh, *rmh;
    uint8_t *mem;
};

static size_t bytes = 1 << 20;
static unsigned messages = 2000, rounds = 7;

static void quiet(ncclDebugLogLevel level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)fmt;
}

static void need(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s: %d: %s\n", what, rc, hw_error());
    exit(1);
}

static void direct_open(struct direct *d, const char *plugin)
{
    static ncclNetDeviceHandle_t sroom, rroom;
    ncclNetDeviceHandle_t *sdh = &sroom, *rdh = &rroom;
    uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
    void *lib = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    int n = 0;
    if (!lib || !np_table_find(lib, NP_NEWEST, &d->t)) {
        fprintf(stderr, "%s\n", lib ? "no table" : dlerror());
        exit(1);
    }
    need(np_table_init(&d->t, quiet, NULL), "init");
    need(np_table_devices(&d->t, &n), "devices");
    need(np_table_listen(&d->t, 0, handle, &d->lc), "listen");
    while (!d->sc || !d->rc) {
        if (!d->sc)
            need(np_table_connect(&d->t, 0, handle, &d->sc, &sdh), "connect");
        if (!d->rc)
            need(np_table_accept(&d->t, d->lc, &d->rc, &rdh), "accept");
    }
    d->mem = mmap(NULL, 2 * WINDOW * bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(d->mem, 1, 2 * WINDOW * bytes);
    need(np_table_reg(&d->t, d->sc, d->mem, WINDOW * bytes, NCCL_PTR_HOST, &d->smh), "regMr");
    need(np_table_reg(&d->t, d->rc, d->mem + WINDOW * bytes, WINDOW * bytes, NCCL_PTR_HOST, &d->rmh), "regMr");
}

/* Returns the seconds for all messages, with up to `window` of them in flight. */
static double direct_run(struct direct *d, unsigned window)
{
    void *sreq[WINDOW], *rreq[WINDOW];
    unsigned sp = 0, sd = 0, rp = 0, rd = 0;
    int done, size;
    const uint64_t from = hw_now();
    while (rd < messages || sd < messages) {
        while (rp < messages && rp - rd < window) {
            void *at = d->mem + (WINDOW + rp % window) * bytes;
            need(np_table_irecv(&d->t, d->rc, at, bytes, 0, d->rmh, &rreq[rp % window]), "irecv");
            if (!rreq[rp % window])
                break;
            rp++;
        }
        while (sp < messages && sp - sd < window && sp - rd < window) {
            need(np_table_isend(&d->t, d->sc, d->mem + sp % window * bytes, bytes, 0, d->smh, &sreq[sp % window]),
                 "isend");
            if (!sreq[sp % window])
                break;
            sp++;
        }
        for (done = 1; done && sd < sp; sd += done != 0)
            need(np_table_test(&d->t, sreq[sd % window], &done, &size), "test");
        for (done = 1; done && rd < rp; rd += done != 0)
            need(np_table_test(&d->t, rreq[rd % window], &done, &size), "test");
    }
    return (double)(hw_now() - from) / 1e9;
}

static double host_run(struct pair *p, unsigned window)
{
    unsigned sp = 0, sd = 0, rp = 0, rd = 0;
    struct np_result r;
    const uint64_t from = hw_now();
    while (rd < messages || sd < messages) {
        int rc;
        while (sd < sp && (rc = np_test(p->send, &r)) != -EAGAIN) {
            need(rc, "test");
            sd++;
        }
        while (rp < messages && rp - rd < window) {
            need(np_irecv(p->recv, p->rmr, rp % window * bytes, bytes, 0, HW_NEVER), "irecv");
            rp++;
        }
        while (sp < messages && sp - sd < window && sp - rd < window) {
            need(np_isend(p->send, p->smr, sp % window * bytes, bytes, 0, HW_NEVER), "isend");
            sp++;
        }
        if (rd < rp) {
            rc = np_wait(p->recv, hw_deadline(1), &r);
            if (rc == -EAGAIN)
                continue;
            need(rc, "test");
            need(np_consumed(p->recv), "consumed");
            rd++;
        }
    }
    return (double)(hw_now() - from) / 1e9;
}

/* Returns the CPU time of a process so far, in seconds. pid 0 is this process. */
static double cpu_of(int pid)
{
    struct timespec t = {0};
    clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
    if (pid)
        need(clock_getcpuclockid(pid, &clock), "the child's clock");
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 5) {
        fprintf(stderr, "usage: netplugin_bench PLUGIN [BYTES [MESSAGES [ROUNDS]]]\n");
        return 2;
    }
    bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : bytes;
    messages = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : messages;
    rounds = argc > 4 ? HW_MIN((unsigned)strtoul(argv[4], NULL, 10), 99u) : rounds;
    static const char *const window_names[] = {"one at a time", "8 at a time"};

    struct np_host *h = open_host(argv[1], &(struct np_options){.any_env = true});
    struct pair p = {.event = -1};
    struct direct d = {.lc = NULL};
    need(pair_make(&p, h, 0, 2 * WINDOW * bytes), "connecting");
    memset(np_mem_ptr(p.mem), 1, 2 * WINDOW * bytes);
    direct_open(&d, argv[1]);
    for (unsigned w = 0; w < 2; w++) {
        double ratio[99], direct = 0, host = 0, cpu[3] = {0};
        for (unsigned i = 0; i < rounds; i++) {
            const double start = cpu_of(0), a = direct_run(&d, w ? WINDOW : 1), between = cpu_of(0);
            const double child = cpu_of(np_info(h)->pid), b = host_run(&p, w ? WINDOW : 1);
            cpu[0] += between - start;
            cpu[1] += cpu_of(0) - between;
            cpu[2] += cpu_of(np_info(h)->pid) - child;
            ratio[i] = a / b;
            direct += a / rounds;
            host += b / rounds;
        }
        qsort(ratio, rounds, sizeof(ratio[0]), by_size);
        printf("%zu bytes, %s: direct %.3f GB/s (%.2f us each), host %.3f GB/s (%.2f us each), host / direct %.3f\n",
               bytes, window_names[w], (double)bytes * messages / direct / 1e9, direct / messages * 1e6,
               (double)bytes * messages / host / 1e9, host / messages * 1e6, ratio[rounds / 2]);
        const double each = 1e6 / messages / rounds;
        printf("  CPU, us each: direct %.2f; host %.2f and its child %.2f\n", cpu[0] * each, cpu[1] * each,
               cpu[2] * each);
    }
    pair_unmake(&p);
    np_close(h);
    return 0;
}
