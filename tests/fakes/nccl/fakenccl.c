/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake NCCL for tests, which needs no GPU. It has the functions that `hawser nccl bench` calls, uses the memory of
 * tests/fakes/cuda, and transfers data over shared memory between processes. An operation is complete when its call, or
 * ncclGroupEnd() for its group, returns.
 *
 *   FAKENCCL_DIR=/tmp          folder for the communicators' files
 *   FAKENCCL_FAULT=what:r:n    rank r's n-th operation (0: CommInitRank) has this fault: wrong, die, crash, hang,
 *                              error or async
 *   FAKENCCL_FAULT_NET=name    injects the fault only on this network
 *   FAKENCCL_SLOW=name:us      adds this delay to each operation over this network
 *   FAKENCCL_DEAF=1            never uses a plugin, so the network is always Socket
 *   FAKENCCL_MUTE=1            does not log the network
 *   FAKENCCL_REPORT=file       CommInitRank appends a line with the rank, the network, the network namespace, and the
 *                              variables NCCL_* and LD_LIBRARY_PATH
 */
#include "tests/fakes/cuda/fakecuda.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define API   __attribute__((visibility("default")))
#define RANKS 8
#define PIECE ((size_t)64 << 10)
#define OPS   (2 * RANKS)

enum { OK = 0, SYSTEM = 2, USAGE = 5, REMOTE = 6, FLOAT = 7, VERSION = 22809 };

typedef struct {
    char internal[128];
} ncclUniqueId;

/* A buffer that carries one piece at a time from one rank to another. */
struct box {
    atomic_uint full;
    uint32_t len;
    char data[PIECE];
};

struct meeting {
    atomic_uint joined;
    struct box box[RANKS][RANKS];
};

struct ncclComm {
    int rank, n, ops;
    struct meeting *m;
    const char *network;
    bool async;
};
typedef struct ncclComm *ncclComm_t;

struct op {
    ncclComm_t comm;
    bool send;
    int peer;
    char *at;
    size_t left;
};

static struct op group[OPS];
static int n_group, depth;
static char last_error[128];

API int ncclGetVersion(int *version);
API int ncclGetUniqueId(ncclUniqueId *id);
API int ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank);
API int ncclCommDestroy(ncclComm_t comm);
API int ncclCommGetAsyncError(ncclComm_t comm, int *rc);
API int ncclGroupStart(void);
API int ncclGroupEnd(void);
API int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm, CUstream stream);
API int ncclAllGather(const void *in, void *out, size_t n, int type, ncclComm_t comm, CUstream stream);
API int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm, CUstream stream);
API int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, ncclComm_t comm, CUstream stream);
API int ncclSend(const void *from, size_t n, int type, int peer, ncclComm_t comm, CUstream stream);
API int ncclRecv(void *to, size_t n, int type, int peer, ncclComm_t comm, CUstream stream);
API const char *ncclGetErrorString(int rc);
API const char *ncclGetLastError(ncclComm_t comm);

static int fail(int rc, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
    return rc;
}

/* ---- faults ----------------------------------------------------------------------------------- */

/* Returns the fault to inject into this operation, or "". */
static const char *fault(ncclComm_t c)
{
    static char what[16];
    const char *f = getenv("FAKENCCL_FAULT"), *net = getenv("FAKENCCL_FAULT_NET");
    int rank, nth;
    if (!f || sscanf(f, "%15[^:]:%d:%d", what, &rank, &nth) != 3 || rank != c->rank || nth != c->ops ||
        (net && strcmp(net, c->network) != 0))
        return "";
    return what;
}

static int suffer(ncclComm_t c)
{
    const char *what = fault(c);
    if (strcmp(what, "die") == 0) {
        fprintf(stderr, "fakenccl: rank %d dies as it was told\n", c->rank);
        exit(3);
    }
    if (strcmp(what, "crash") == 0)
        abort();
    if (strcmp(what, "hang") == 0) {
        fprintf(stderr, "fakenccl: rank %d hangs as it was told\n", c->rank);
        for (;;)
            pause();
    }
    if (strcmp(what, "error") == 0)
        return fail(REMOTE, "the fault that was asked for");
    if (strcmp(what, "async") == 0) {
        c->async = true;
        for (int gpu = 0; gpu < RANKS; gpu++)
            fakecuda_stall(gpu, true); /* like a kernel that waits for a broken network */
    }
    return OK;
}

/* ---- communicators ---------------------------------------------------------------------------- */

int ncclGetVersion(int *version)
{
    *version = VERSION;
    return OK;
}

int ncclGetUniqueId(ncclUniqueId *id)
{
    const char *dir = getenv("FAKENCCL_DIR");
    snprintf(id->internal, sizeof id->internal, "%s/fakenccl-XXXXXX", dir ? dir : "/tmp");
    int fd = mkstemp(id->internal);
    if (fd < 0 || ftruncate(fd, sizeof(struct meeting)) < 0)
        return fail(SYSTEM, "no file for a communicator");
    close(fd);
    return OK;
}

static void report(ncclComm_t c)
{
    extern char **environ;
    const char *path = getenv("FAKENCCL_REPORT");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    char line[8192];
    struct stat ns;
    size_t at = (size_t)snprintf(line, sizeof line, "rank=%d network=%s netns=%llu", c->rank, c->network,
                                 (unsigned long long)(stat("/proc/self/ns/net", &ns) < 0 ? 0 : ns.st_ino));
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "NCCL_", 5) == 0 || strncmp(*e, "LD_LIBRARY_PATH=", 16) == 0)
            at += (size_t)snprintf(line + at, sizeof line - at, " %s", *e);
    line[at++] = '\n';
    if (write(fd, line, at) != (ssize_t)at) /* a single write, because the ranks append concurrently */
        abort();
    close(fd);
}

static const char *choose_network(void)
{
    const char *net = getenv("NCCL_NET"), *plugin = getenv("NCCL_NET_PLUGIN");
    if (getenv("FAKENCCL_DEAF"))
        return "Socket";
    if (net)
        return net;
    return plugin && strcmp(plugin, "none") != 0 ? plugin : "Socket";
}

int ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
    if (n < 1 || n > RANKS || rank < 0 || rank >= n)
        return fail(USAGE, "a rank out of range");
    ncclComm_t c = calloc(1, sizeof *c);
    int fd = open(id.internal, O_RDWR | O_CLOEXEC);
    if (!c || fd < 0)
        return fail(SYSTEM, "no such communicator");
    *c = (struct ncclComm){.rank = rank, .n = n, .network = choose_network()};
    c->m = mmap(NULL, sizeof *c->m, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->m == MAP_FAILED)
        return fail(SYSTEM, "no memory for a communicator");
    int rc = suffer(c);
    if (rc)
        return rc;
    report(c);
    const char *debug = getenv("NCCL_DEBUG");
    if (debug && strcmp(debug, "INFO") == 0 && !getenv("FAKENCCL_MUTE")) {
        printf("fake:%d:%d [%d] NCCL INFO Using network %s\n", (int)getpid(), (int)getpid(), rank, c->network);
        fflush(stdout);
    }
    /* the last rank to join removes the file */
    if (atomic_fetch_add(&c->m->joined, 1) + 1 == (unsigned)n)
        unlink(id.internal);
    while (atomic_load(&c->m->joined) < (unsigned)n)
        usleep(200);
    *comm = c;
    return OK;
}

int ncclCommDestroy(ncclComm_t comm)
{
    munmap(comm->m, sizeof *comm->m);
    free(comm);
    return OK;
}

int ncclCommGetAsyncError(ncclComm_t comm, int *rc)
{
    *rc = comm->async ? REMOTE : OK;
    return OK;
}

const char *ncclGetErrorString(int rc)
{
    return rc == OK ? "no error" : rc == REMOTE ? "remote process exited or there was a network error" : "fake error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

/* ---- operations ------------------------------------------------------------------------------- */

static bool earlier(const struct op *o)
{
    for (const struct op *p = group; p < o; p++)
        if (p->left && p->send == o->send && p->peer == o->peer)
            return true;
    return false;
}

static bool step(struct op *o)
{
    ncclComm_t c = o->comm;
    struct box *b = o->send ? &c->m->box[c->rank][o->peer] : &c->m->box[o->peer][c->rank];
    if (o->left == 0 || earlier(o) || (atomic_load(&b->full) != 0) == o->send)
        return false;
    size_t n = o->left < PIECE ? o->left : PIECE;
    if (o->send) {
        b->len = (uint32_t)n;
        memcpy(b->data, o->at, n);
    } else {
        n = b->len < n ? b->len : n;
        memcpy(o->at, b->data, n);
    }
    atomic_store(&b->full, o->send);
    o->at += n;
    o->left -= n;
    return true;
}

static void run_group(void)
{
    for (;;) {
        bool left = false, moved = false;
        for (int i = 0; i < n_group; i++) {
            moved = step(&group[i]) || moved;
            left = left || group[i].left;
        }
        if (!left)
            break;
        if (!moved)
            usleep(50);
    }
    n_group = 0;
}

static int slow(ncclComm_t c)
{
    const char *s = getenv("FAKENCCL_SLOW");
    char name[32];
    unsigned us;
    if (s && sscanf(s, "%31[^:]:%u", name, &us) == 2 && strcmp(name, c->network) == 0)
        usleep(us);
    return OK;
}

static int add(bool send, void *at, size_t len, int peer, ncclComm_t c)
{
    if (n_group == OPS || peer < 0 || peer >= c->n)
        return fail(USAGE, "too many operations, or no such peer");
    void *cpu = fakecuda_alias((uintptr_t)at, len);
    if (!cpu)
        return fail(USAGE, "an address outside of the GPU's memory");
    group[n_group++] = (struct op){c, send, peer, cpu, len};
    return OK;
}

static int point_to_point(bool send, void *at, size_t n, int type, int peer, ncclComm_t comm)
{
    if (type != FLOAT || depth == 0)
        return fail(USAGE, "floats only, and in groups");
    return add(send, at, n * 4, peer, comm);
}

int ncclSend(const void *from, size_t n, int type, int peer, ncclComm_t comm, CUstream stream)
{
    (void)stream;
    return point_to_point(true, (void *)(uintptr_t)from, n, type, peer, comm);
}

int ncclRecv(void *to, size_t n, int type, int peer, ncclComm_t comm, CUstream stream)
{
    (void)stream;
    return point_to_point(false, to, n, type, peer, comm);
}

int ncclGroupStart(void)
{
    depth++;
    return OK;
}

/* Corrupts one element in the middle, if the operation's fault is "wrong". */
static void spoil(ncclComm_t c, char *out, size_t len)
{
    if (strcmp(fault(c), "wrong") == 0)
        out[len / 8 * 4] ^= 1;
}

int ncclGroupEnd(void)
{
    if (--depth > 0 || n_group == 0)
        return OK;
    ncclComm_t c = group[0].comm;
    char *out = NULL;
    size_t len = 0;
    c->ops++;
    int rc = suffer(c);
    for (int i = 0; i < n_group; i++)
        if (!group[i].send) {
            out = group[i].at;
            len = group[i].left;
        }
    if (rc) {
        n_group = 0;
        return rc;
    }
    run_group();
    if (out)
        spoil(c, out, len);
    return slow(c);
}

/* Data that one rank exchanges with all ranks: the buffers (NULL for none) and the length of each send and receive. */
struct exchange {
    const char *to[RANKS];
    char *from[RANKS];
    size_t send, receive;
};

static int exchange(ncclComm_t c, const struct exchange *x)
{
    c->ops++;
    int rc = suffer(c);
    for (int p = 0; p < c->n && !rc; p++) {
        if (x->to[p])
            group[n_group++] = (struct op){c, true, p, (char *)(uintptr_t)x->to[p], x->send};
        if (x->from[p])
            group[n_group++] = (struct op){c, false, p, x->from[p], x->receive};
    }
    if (!rc)
        run_group();
    return rc;
}

/* Sums n floats from each rank. The floats for rank p start at in + p * step. */
static int sum(const void *in, void *out, size_t n, size_t step, int type, int op, ncclComm_t comm)
{
    const float *mine = fakecuda_alias((uintptr_t)in, (n + step * (size_t)(comm->n - 1)) * 4);
    float *to = fakecuda_alias((uintptr_t)out, n * 4), *theirs = calloc((size_t)comm->n * n, 4);
    struct exchange x = {.send = n * 4, .receive = n * 4};
    if (type != FLOAT || op != 0 || !mine || !to || !theirs || depth)
        return fail(USAGE, "sums of floats in the GPU's memory only, outside of groups");
    for (int p = 0; p < comm->n; p++) {
        x.to[p] = (const char *)(mine + (size_t)p * step);
        x.from[p] = (char *)(theirs + (size_t)p * n);
    }
    int rc = exchange(comm, &x);
    for (size_t i = 0; i < n && !rc; i++) {
        to[i] = 0;
        for (int p = 0; p < comm->n; p++)
            to[i] += theirs[(size_t)p * n + i];
    }
    free(theirs);
    if (rc)
        return rc;
    spoil(comm, (char *)to, n * 4);
    return slow(comm);
}

int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm, CUstream stream)
{
    (void)stream;
    return sum(in, out, n, 0, type, op, comm);
}

int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm, CUstream stream)
{
    (void)stream;
    return sum(in, out, n, n, type, op, comm);
}

static int copy(const void *in, void *out, size_t n, int type, int root, ncclComm_t comm)
{
    const size_t len = n * 4;
    const char *mine = fakecuda_alias((uintptr_t)in, len);
    char *to = fakecuda_alias((uintptr_t)out, root < 0 ? len * (size_t)comm->n : len);
    struct exchange x = {.send = len, .receive = len};
    if (type != FLOAT || !mine || !to || depth)
        return fail(USAGE, "floats in the GPU's memory only, outside of groups");
    for (int p = 0; p < comm->n; p++) {
        x.to[p] = root < 0 || root == comm->rank ? mine : NULL;
        x.from[p] = root < 0 ? to + (size_t)p * len : root == p ? to : NULL;
    }
    int rc = exchange(comm, &x);
    if (rc)
        return rc;
    spoil(comm, to, len);
    return slow(comm);
}

int ncclAllGather(const void *in, void *out, size_t n, int type, ncclComm_t comm, CUstream stream)
{
    (void)stream;
    return copy(in, out, n, type, -1, comm);
}

int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, ncclComm_t comm, CUstream stream)
{
    (void)stream;
    return copy(in, out, n, type, root, comm);
}
