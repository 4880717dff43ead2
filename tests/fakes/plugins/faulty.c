/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain plugin with a fault or special behaviour that the environment variable FAULTY selects, for tests of the
 * code that drives plugins. It has only table v11.
 */
#include "plain.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static pid_t owner;
static ncclProfilerCallback_t prof;

static bool fault(const char *name)
{
    const char *f = getenv("FAULTY");
    return f && strcmp(f, name) == 0;
}

static void nap(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Returns the comm's socket, which is the first member of plain.c's struct listener and struct conn. */
static int socket_of(const void *comm)
{
    int fd;
    memcpy(&fd, comm, sizeof(fd));
    return fd;
}

/* The arguments of an irecv, which f_test() needs to corrupt the data. */
static struct posted {
    void *req;
    uint8_t *data, *shadow;
    size_t room;
    int size; /* -1 until all data is in the shadow, then the number of bytes */
} posted[4096];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

static void remember(struct posted p)
{
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < sizeof(posted) / sizeof(posted[0]); i++)
        if (!posted[i].req || posted[i].req == p.req) {
            posted[i] = p;
            break;
        }
    pthread_mutex_unlock(&mu);
}

static struct posted recall(void *req)
{
    struct posted found = {0};
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < sizeof(posted) / sizeof(posted[0]) && !found.req; i++)
        if (posted[i].req == req) {
            found = posted[i];
            posted[i].req = NULL;
        }
    pthread_mutex_unlock(&mu);
    return found;
}

/* Runs when the library is unloaded or the process exits. */
__attribute__((destructor)) static void gone(void)
{
    if (fault("fork") && owner && owner != getpid())
        (void)pause(); /* simulates a wait for a thread that fork() did not copy */
}

static void *sleeper(void *arg)
{
    nap(60000);
    return arg;
}

/* Reports to the profiler that a message was posted. FAULTY=profiler reports it correctly; values that begin with
 * "profiler-" report it incorrectly. */
static void tell(void *phandle)
{
    const char *f = getenv("FAULTY");
    void *handle = NULL;
    if (!f || strncmp(f, "profiler", 8) != 0)
        return;
    (void)prof(&handle, ncclProfilerNetEventStart, fault("profiler-parent") ? &handle : phandle, 0x7f0001, NULL);
    if (!fault("profiler-open"))
        (void)prof(&handle, ncclProfilerNetEventStop, NULL, 0x7f0001, NULL);
    if (fault("profiler-twice"))
        (void)prof(&handle, ncclProfilerNetEventStop, NULL, 0x7f0001, NULL);
}

static ncclResult_t f_init(void **ctx, uint64_t id, ncclNetCommConfig_v11_t *config, ncclDebugLogger_t logger,
                           ncclProfilerCallback_t profiler)
{
    pthread_t t;
    (void)id;
    (void)config;
    prof = profiler;
    owner = getpid();
    *ctx = &owner;
    if (fault("thread") && pthread_create(&t, NULL, sleeper, NULL) == 0)
        pthread_detach(t);
    return fault("init") ? ncclInternalError : plain_init(logger);
}

static ncclResult_t f_properties(int dev, ncclNetProperties_v11_t *p)
{
    static char name[PLAIN_DEVICES][8] = {"plain0", "plain1"};
    int garbage = p->vProps.ndevs;

    if (dev < 0 || dev >= PLAIN_DEVICES)
        return ncclInvalidArgument;
    *p = (ncclNetProperties_v11_t){.name = name[fault("names") ? 0 : dev],
                                   .guid = (uint64_t)dev + 1,
                                   .ptrSupport = NCCL_PTR_HOST,
                                   .speed = fault("speed") ? 0 : 10000,
                                   .maxComms = 1024,
                                   .maxRecvs = 1,
                                   .vProps = {.ndevs = 1, .devs = {dev}},
                                   .maxP2pBytes = 1 << 30,
                                   .maxCollBytes = 1 << 30};
    if (fault("ndevs"))
        p->vProps.ndevs = garbage;
    return ncclSuccess;
}

static ncclResult_t f_listen(void *ctx, int dev, void *handle, void **lc)
{
    (void)ctx;
    if (fault("handle"))
        memset(handle, 1, NCCL_NET_HANDLE_MAXSIZE + 2);
    return plain_listen(dev, handle, lc);
}

static ncclResult_t f_connect(void *ctx, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh)
{
    (void)ctx;
    *dh = NULL;
    if (fault("connect"))
        nap(600);
    ncclResult_t rc = plain_connect(dev, handle, sc);
    return fault("silent") ? ncclSuccess : rc;
}

/* With FAULTY=stray, fails on the first connection, whatever it sends. */
static ncclResult_t f_accept(void *lc, void **rc, ncclNetDeviceHandle_t **dh)
{
    char said[4];
    int fd;

    *dh = NULL;
    if (fault("accept"))
        nap(600);
    if (!fault("stray"))
        return plain_accept(lc, rc);
    *rc = NULL;
    fd = accept4(socket_of(lc), NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return ncclSuccess;
    ssize_t n = recv(fd, said, sizeof(said), MSG_WAITALL);
    close(fd);
    return n == sizeof(said) && memcmp(said, "GET ", 4) == 0 ? ncclInternalError : ncclSystemError;
}

static ncclResult_t f_isend(void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req)
{
    if (fault("crash"))
        (void)raise(SIGSEGV);
    if (fault("exit"))
        exit(1);
    if (fault("lost") && size == 8)
        size = 0;
    ncclResult_t rc = plain_isend(sc, data, size, tag, mh, req);
    if (*req)
        tell(phandle);
    return fault("silent") ? ncclSuccess : rc;
}

static ncclResult_t f_irecv(void *rc, int n, void **data, size_t *sizes, int *tags, void **mhs, void **phandles,
                            void **req)
{
    static atomic_uint calls;
    ncclResult_t ret;
    void *to = data[0];

    if (fault("lines") && !(to = calloc(1, sizes[0] + 1)))
        return ncclSystemError;
    if (fault("hang"))
        nap(1000000);
    if (fault("stale") && atomic_fetch_add(&calls, 1) % 5 == 4)
        return ncclSuccess; /* means "try again later", but *req is not set */
    ret = plain_irecv(rc, n, &to, sizes, tags, mhs, req);
    if (*req)
        tell(phandles[0]);
    if (*req)
        remember((struct posted){*req, data[0], to == data[0] ? NULL : to, sizes[0], -1});
    else if (to != data[0])
        free(to);
    return fault("silent") ? ncclSuccess : ret;
}

/* For FAULTY=lines: stores the second half of each 128 bytes first. Returns true when all data is stored. */
static bool backwards(struct posted *p, int *sizes)
{
    if (p->size < 0) {
        p->size = *sizes;
        for (int i = 64; i + 64 <= p->size; i += 128)
            memcpy(p->data + i, p->shadow + i, 64);
        remember(*p);
        return false;
    }
    *sizes = p->size;
    memcpy(p->data, p->shadow, (size_t)p->size);
    free(p->shadow);
    return true;
}

static ncclResult_t f_test(void *req, int *done, int *sizes)
{
    int before = *done;
    ncclResult_t rc = ncclSuccess;
    struct posted p = recall(req);

    if (p.shadow && p.size >= 0) {
        *done = backwards(&p, sizes);
        return ncclSuccess;
    }
    rc = plain_test(req, done, sizes);
    if (!*done && p.req)
        remember(p);
    if (fault("silent") && rc != ncclSuccess) {
        *done = 0;
        return ncclSuccess;
    }
    if (fault("done") && !*done)
        *done = before;
    if (!*done)
        return rc;
    if (!p.req)
        return rc;
    if (p.shadow)
        *done = backwards(&p, sizes);
    if (fault("corrupt") && *sizes > 1000)
        p.data[*sizes / 2] ^= 1;
    if (fault("beyond"))
        p.data[p.room] = 1;
    if (fault("before"))
        p.data[-1] = 1;
    if (fault("size"))
        ++*sizes;
    return rc;
}

static ncclResult_t f_close(void *comm)
{
    static const struct linger reset = {.l_onoff = 1};
    if (fault("leak"))
        (void)dup(socket_of(comm));
    if (fault("reset"))
        (void)setsockopt(socket_of(comm), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    return fault("close") ? ncclSystemError : plain_close(comm);
}

static ncclResult_t f_finalize(void *ctx)
{
    return ctx == &owner ? ncclSuccess : ncclInvalidArgument;
}

__attribute__((visibility("default"))) extern ncclNet_v11_t ncclNetPlugin_v11;
ncclNet_v11_t ncclNetPlugin_v11 = {
    .name = "Faulty",
    .init = f_init,
    .devices = plain_devices,
    .getProperties = f_properties,
    .listen = f_listen,
    .connect = f_connect,
    .accept = f_accept,
    .regMr = plain_reg,
    .deregMr = plain_dereg,
    .isend = f_isend,
    .irecv = f_irecv,
    .iflush = plain_iflush,
    .test = f_test,
    .closeSend = f_close,
    .closeRecv = f_close,
    .closeListen = plain_close_listen,
    .finalize = f_finalize,
};

__attribute__((constructor)) static void incomplete(void)
{
    if (fault("table"))
        ncclNetPlugin_v11.deregMr = NULL;
}
