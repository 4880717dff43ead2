/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests GPU memory that two processes share, and two plugins that use such memory. One plugin behaves like
 * GPUDirect-TCPX (tests/fakes/plugins/tcpxlike.h), the other like plugins over RDMA
 * (tests/fakes/plugins/netplugin_cuda.c). Runs on a GPU and, as test_netplugin_cuda, with the driver of
 * tests/fakes/cuda. The processes that use CUDA are forked before this process first uses CUDA.
 */
#include "base/base.h"
#include "mem/cuda.h"
#include "mem/fill.h"
#include "tests/lib/context/pairhelp.h"
#include "transport/netplugin/host/host.h"

#include <libgen.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define LEN ((size_t)8 << 20)

static struct ph_log logs = {.mu = PTHREAD_MUTEX_INITIALIZER};

/* Returns the path of a plugin. Searches the build folders, and the folders to which the test may have been copied. */
static const char *plugin(const char *name)
{
    static char path[2 * PATH_MAX];
    static const char *const folders[] = {"../fakes/plugins", "../../fakes/plugins", ".", ".."};
    char self[PATH_MAX] = "";
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        bail("no /proc");
    const char *folder = dirname(self);
    for (size_t i = 0; i < HW_ARRAY_LEN(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s/libnccl-net-%s.so", folder, folders[i], name);
        if (access(path, R_OK) == 0)
            return path;
    }
    bail("no libnccl-net-%s.so near %s", name, folder);
}

/* ---- memory of another process ------------------------------------------------------------------------- */

struct shared {
    CUipcMemHandle handle;
    uint64_t offset;
    int rc;
};

/* Runs in the other process: on request, shares GPU memory that contains a pattern, and then waits to be killed. */
static void sharer(int fd)
{
    const struct hw_space *s;
    struct shared out = {.rc = 0};
    void *p = NULL;
    char go;
    if (read(fd, &go, 1) != 1)
        _exit(0);
    out.rc = hw_space_device(HAWSER_MEM_CUDA, 0, &s);
    if (out.rc == 0)
        out.rc = s->ops->alloc(s, LEN, &p);
    if (out.rc == 0)
        out.rc = hw_fill(s, p, LEN, 5, 0);
    if (out.rc == 0)
        out.rc = hw_cuda_ipc_share(s, p, &out.handle, &out.offset);
    if (write(fd, &out, sizeof(out)) != (ssize_t)sizeof(out))
        _exit(1);
    for (;;)
        pause();
}

static void test_share(const struct hw_space *s, int fd, int pid)
{
    struct shared in = {.rc = -EIO};
    CUipcMemHandle none = {.reserved = {1, 2, 3}};
    uint64_t bad = 9, offset;
    void *p = NULL, *mine = NULL, *q = NULL;
    step("memory of another process");
    if (write(fd, "g", 1) != 1 || read(fd, &in, sizeof(in)) != (ssize_t)sizeof(in) || in.rc)
        bail("the other process: %d", in.rc);
    is_int(hw_cuda_ipc_open(s, &in.handle, in.offset, LEN, &p), 0, "another process's memory is opened");
    is_int(hw_check(s, p, LEN, 5, 0, &bad, NULL), 0, "and read");
    is_int(bad, 0, "with what that has written");
    is_int(hw_cuda_ipc_open(s, &in.handle, in.offset, (size_t)1 << 40, &q), -EPROTO, "more than there is: -EPROTO");
    ok(strstr(hw_error(), "are needed"), "%s", hw_error());
    ok(hw_cuda_ipc_open(s, &none, 0, LEN, &q) < 0, "what is no handle: %s", hw_error());
    is_int(s->ops->alloc(s, LEN, &mine), 0, "memory of our own");
    is_int(hw_cuda_ipc_share(s, mine, &none, &offset), 0, "can be shared");
    ok(hw_cuda_ipc_open(s, &none, offset, LEN, &q) < 0, "but not with ourselves: %s", hw_error());
    s->ops->free(s, mine, LEN);

    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    bad = 9;
    is_int(hw_check(s, p, LEN, 5, 0, &bad, NULL), 0, "once that is dead it can still be read");
    is_int(bad, 0, "unchanged");
    hw_cuda_ipc_close(s, p, in.offset);
    ok(hw_cuda_rest(s, p, &(size_t){0}) < 0, "closed: %s", hw_error());
}

/* ---- contexts ------------------------------------------------------------------------------------------- */

#define STEERING "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS"

static hawser *open_context(const char *name)
{
    char knob[2 * PATH_MAX + 32];
    snprintf(knob, sizeof(knob), "transport=netplugin:%s", plugin(name));
    const char *const knobs[] = {knob, "channels=2", NULL};
    struct hawser_options o = {
        .size = sizeof(o), .knobs = knobs, .log = getenv("TEST_LOG") ? ph_print : ph_logger, .log_arg = &logs};
    hawser *h;
    /* hawser_open() forks, and GCC 12's ASan does not lock its allocator during fork(). If another thread holds the
     * allocator's lock, the child inherits the held lock. Threads of a context that was just opened may still be
     * allocating or freeing memory. */
    if (PH_SANITIZED)
        proc_wait_idle();
    must(hawser_open(&o, &h));
    return h;
}

static void forget_logs(void)
{
    pthread_mutex_lock(&logs.mu);
    logs.len = 0;
    logs.text[0] = 0;
    pthread_mutex_unlock(&logs.mu);
}

static int times_logged(const char *words)
{
    int n = 0;
    pthread_mutex_lock(&logs.mu);
    for (const char *p = logs.text; (p = strstr(p, words)); p++)
        n++;
    pthread_mutex_unlock(&logs.mu);
    return n;
}

/* Transfers LEN bytes `times` times, and returns the rate in MB/s. */
static double moved(ph_post f, hawser_peer *p, hawser_mem *mine, const struct hawser_region *theirs, int times)
{
    const uint64_t begin = hw_now();
    for (int i = 0; i < times; i++) {
        struct hawser_vec v = {.mem = mine, .length = LEN, .region = theirs};
        hawser_op *op;
        must(f(p, &v, 1, NULL, &op));
        must(ph_finish(op));
    }
    return (double)LEN * times / 1e6 / ((double)(hw_now() - begin) / 1e9);
}

/* Writes and reads between the GPU memory of two contexts, often enough to use every slot more than once. */
static void test_transfers(const struct hw_space *s, const char *name, hawser *a, hawser *b)
{
    hawser_peer *ab, *ba;
    hawser_mem *from, *to;
    struct hawser_region r;
    uint8_t key[HAWSER_KEY_SIZE];
    uint64_t bad;
    uint16_t port;
    step(name);
    must(hawser_mem_alloc(a, HAWSER_MEM_CUDA, s->device, LEN, &from));
    must(hawser_mem_alloc(b, HAWSER_MEM_CUDA, s->device, LEN, &to));
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    ph_connect(a, b, port, &ab, &ba);
    must(hawser_export(to, 0, LEN, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL, key));
    must(hawser_import(key, &r));
    for (uint64_t round = 1; round <= 4; round++) {
        const bool up = round % 2;
        must(hw_fill(s, hawser_mem_ptr(up ? from : to), LEN, round, 0));
        must(hw_fill(s, hawser_mem_ptr(up ? to : from), LEN, 99, 0));
        double rate = moved(up ? hawser_write : hawser_read, ab, from, &r, 5);
        bad = 9;
        must(hw_check(s, hawser_mem_ptr(up ? to : from), LEN, round, 0, &bad, NULL));
        is_int(bad, 0, up ? "written between GPUs' memory, every byte right" : "and read");
        diag("%s: %.0f MB/s", name, rate);
    }
    must(hawser_mem_deregister(from));
    must(hawser_mem_deregister(to));
    hawser_peer_close(ab);
    hawser_close(a);
    hawser_close(b);
}

static void test_report(const char *file)
{
    char line[200] = "";
    unsigned n[5] = {0};
    int lines = 0;
    FILE *f = fopen(file, "re");
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = 0;
        lines++;
        ok(sscanf(line, "pointers=%u dmabufs=%u sends=%u receives=%u flushes=%u", &n[0], &n[1], &n[2], &n[3], &n[4]) ==
                   5 &&
               n[0] + n[1] > 0 && n[2] > 0 && n[3] > 0 && n[4] > 0,
           "the plugin had GPU memory registered, sent, received and flushed: %s", line);
    }
    is_int(lines, 2, "on both sides");
    if (f)
        fclose(f);
    unlink(file);
}

/* Tests that the time that the plugin's accept() sleeps, which exceeds the caller's timeout, is added to that timeout.
 */
static void test_patience(void)
{
    hawser_peer *peer = NULL;
    uint16_t port;
    step("an accept() that sleeps");
    setenv(STEERING, "3000000", 1);
    hawser *a = open_context("tcpxlike"), *b = open_context("tcpxlike");
    setenv(STEERING, "0", 1);
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    const uint64_t began = hw_now();
    int rc = hawser_connect(a, "127.0.0.1", port, NULL, 2500, &peer);
    if (rc < 0)
        diag("after %llu ms: %s", (unsigned long long)((hw_now() - began) / HW_MS), hawser_error());
    is_int(rc, 0, "connecting with a timeout of 2.5 s succeeds, although accept() sleeps for 3 s");
    hawser_close(a);
    hawser_close(b);
}

int main(void)
{
    char report[64];
    int pair[2];
    snprintf(report, sizeof(report), "/tmp/hawser-netplugin-gpu-%d", (int)getpid());
    setenv("NETPLUGIN_CUDA_REPORT", report, 1);
    setenv("NCCL_DYNAMIC_CHUNK_SIZE", "524288", 1);
    setenv("TCPXLIKE_LOOPBACK", "1", 1);
    setenv("HAWSER_SAME_MACHINE", "yes", 1);
    setenv(STEERING, "0", 1);
    char folder[] = "/tmp/hawser-netplugin-XXXXXX", manager[64];
    if (!mkdtemp(folder) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        bail("no folder or socket");
    watchdog(100);

    /* Start the processes that use CUDA. */
    step("forking");
    int pid = fork();
    if (pid == 0) {
        close(pair[1]);
        sharer(pair[0]);
    }
    close(pair[0]);
    snprintf(manager, sizeof(manager), "%s/rx_rule_manager", folder);
    setenv("NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX", folder, 1);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", manager);
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(sock, (const struct sockaddr *)&at, sizeof(at)) < 0)
        bail("no socket for the manager");
    hawser *a = open_context("tcpxlike"), *b = open_context("tcpxlike");
    hawser *c = open_context("cuda"), *d = open_context("cuda");
    hawser *e = open_context("tcpxlike"), *f = open_context("tcpxlike");

    const struct hw_space *s;
    int rc = hw_space_device(HAWSER_MEM_CUDA, 0, &s);
    if (rc == -ENODEV) {
        printf("1..0 # SKIP %s\n", hw_error());
        fflush(stdout);
        kill(pid, SIGKILL);
        unlink(manager);
        rmdir(folder);
        _exit(77);
    }
    must(rc);
    test_share(s, pair[1], pid);
    test_transfers(s, "like TCPX", a, b);
    test_transfers(s, "like RDMA", c, d);
    is_int(times_logged("is staged through host memory"), 0, "nothing went by way of the host");
    ok(times_logged("messages are placed in memory of GPU 0") >= 4, "but in memory of the GPU");
    test_report(report);
    if (hw_cuda_count() > 1) {
        const struct hw_space *second;
        forget_logs();
        must(hw_space_device(HAWSER_MEM_CUDA, 1, &second));
        test_transfers(second, "like TCPX, on another GPU", e, f);
        ok(times_logged("messages are placed in memory of GPU 1") >= 2, "in that one's memory");
    } else {
        tap_skip("another GPU", "there is one");
        hawser_close(e);
        hawser_close(f);
    }

    /* A child that is forked now cannot use CUDA, because this process has already used CUDA. */
    forget_logs();
    a = open_context("tcpxlike");
    b = open_context("tcpxlike");
    test_transfers(s, "CUDA was in use before", a, b);
    is_int(times_logged("is staged through host memory"), 2,
           "each of both says once that GPU memory goes by way of the host");
    ok(strstr(logs.text, "fork"), "and why");
    test_patience();
    unlink(manager);
    rmdir(folder);
    return tap_done();
}
