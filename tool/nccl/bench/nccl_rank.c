/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank: a process with one GPU and one communicator. The declarations of NCCL's functions and constants are ours,
 * written from its public documentation (User Guide, "NCCL API"): float32 is 7, sum is 0, a unique id is 128 bytes
 * passed by value.
 */
#include "base/size.h"
#include "mem/cuda.h"
#include "tool/nccl/bench/nccl_bench.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[NB_UID];
} ncclUniqueId;
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_FLOAT32 = 7, NCCL_SUM = 0 };

#define NCCL_CALLS(X)                                                                                       \
    X(GetVersion, (int *version))                                                                           \
    X(GetUniqueId, (ncclUniqueId * id))                                                                     \
    X(CommInitRank, (ncclComm_t * comm, int n, ncclUniqueId id, int rank))                                  \
    X(CommDestroy, (ncclComm_t comm))                                                                       \
    X(CommGetAsyncError, (ncclComm_t comm, int *rc))                                                        \
    X(GroupStart, (void))                                                                                   \
    X(GroupEnd, (void))                                                                                     \
    X(AllReduce, (const void *in, void *out, size_t n, int type, int op, ncclComm_t comm, CUstream stream)) \
    X(AllGather, (const void *in, void *out, size_t n, int type, ncclComm_t comm, CUstream stream))         \
    X(ReduceScatter, (const void *in, void *out, size_t n, int type, int op, ncclComm_t comm, CUstream s))  \
    X(Broadcast, (const void *in, void *out, size_t n, int type, int root, ncclComm_t comm, CUstream s))    \
    X(Send, (const void *from, size_t n, int type, int peer, ncclComm_t comm, CUstream stream))             \
    X(Recv, (void *to, size_t n, int type, int peer, ncclComm_t comm, CUstream stream))

#define STAGE ((size_t)8 << 20) /* bytes of pinned memory, for filling and checking GPU memory */

struct rank {
    int fd, rank, n, gpu;
    const char *nccl_path;
/* NOLINTBEGIN(bugprone-macro-parentheses): a name and a parameter list */
#define X(name, params) int(*name) params;
    NCCL_CALLS(X)
#undef X
    /* NOLINTEND(bugprone-macro-parentheses) */
    const char *(*GetErrorString)(int rc);
    const char *(*GetLastError)(ncclComm_t comm);
    const struct hw_cuda *cu;
    const struct hw_space *space;
    CUstream stream;
    CUevent begin, end;
    ncclComm_t comm;
    void *in, *out;
    uint32_t *stage;
    uint64_t cap;
    bool connected[NB_OPS]; /* kinds of operations for which NCCL has already connected */
};

static int nccl_fail(const struct rank *k, int rc, const char *what)
{
    const char *last = k->GetLastError ? k->GetLastError(k->comm) : NULL;
    return hw_fail(-EIO, "%s: %s%s%.160s", what, k->GetErrorString(rc), last && *last ? ": " : "", last ? last : "");
}

static int load_nccl(struct rank *k)
{
    void *lib = dlopen(k->nccl_path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return hw_fail(-ENOENT, "cannot load NCCL: %s; give the path of its library with --nccl", dlerror());
#define X(name, params)                                   \
    if (!(*(void **)&k->name = dlsym(lib, "nccl" #name))) \
        return hw_fail(-ENOEXEC, "%s has no nccl" #name ": NCCL 2.7 or later is needed", k->nccl_path);
    NCCL_CALLS(X)
#undef X
    *(void **)&k->GetErrorString = dlsym(lib, "ncclGetErrorString");
    *(void **)&k->GetLastError = dlsym(lib, "ncclGetLastError"); /* since 2.13 */
    return k->GetErrorString ? 0 : hw_fail(-ENOEXEC, "%s has no ncclGetErrorString", k->nccl_path);
}

static int open_rank_gpu(struct rank *k)
{
    CUresult e;
    int rc = hw_cuda(&k->cu);
    if (rc < 0 || (rc = hw_cuda_device(k->gpu, &k->space)) < 0)
        return rc;
    /* This thread keeps the context, because NCCL's CUDA runtime chooses the device by the thread's current context. */
    rc = hw_cuda_enter(k->space);
    if (rc < 0)
        return rc;
    if ((e = k->cu->StreamCreate(&k->stream, CU_STREAM_NON_BLOCKING)) || (e = k->cu->EventCreate(&k->begin, 0)) ||
        (e = k->cu->EventCreate(&k->end, 0)))
        return hw_cuda_fail(e, "creating a stream and events on GPU %d", k->gpu);
    k->stage = hw_pages_alloc(STAGE, k->space->numa);
    if (!k->stage)
        return hw_no_memory("%zu bytes", STAGE);
    return k->space->ops->pin(k->space, k->stage, STAGE);
}

static int join_nccl_comm(struct rank *k, const struct nb_order *o)
{
    ncclUniqueId id;
    memcpy(&id, o->uid, sizeof id);
    k->cap = o->size;
    int rc = k->space->ops->alloc(k->space, k->cap, &k->in);
    if (rc == 0)
        rc = k->space->ops->alloc(k->space, k->cap, &k->out);
    if (rc < 0)
        return rc;
    int e = k->CommInitRank(&k->comm, k->n, id, k->rank);
    return e ? nccl_fail(k, e, "ncclCommInitRank") : 0;
}

/* ---- data: small integers, so that sums are exact in any order ------------------------------- */

/* Returns element i of the input of rank r. Element i has a different value on each rank, and a sum that lacks a rank
 * is wrong in most elements. */
static inline float compute_input_value(uint64_t i, uint32_t seed, unsigned r)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)(i >> 32) + seed;
    return (float)((x >> 24) + r * r);
}

/* Fills len bytes of GPU memory with input or, if poison is set, with NaNs, which no operation produces. */
static int fill_gpu_memory(struct rank *k, void *to, uint64_t len, uint32_t seed, bool poison)
{
    for (uint64_t at = 0; at < len; at += STAGE) {
        size_t n = HW_MIN(STAGE, len - at);
        float *f = (float *)k->stage;
        for (size_t i = 0; i < n / 4; i++)
            f[i] = poison ? NAN : compute_input_value(at / 4 + i, seed, (unsigned)k->rank);
        CUresult e = k->cu->MemcpyHtoDAsync((uintptr_t)to + at, k->stage, n, k->stream);
        if (!e)
            e = k->cu->StreamSynchronize(k->stream);
        if (e)
            return hw_cuda_fail(e, "filling %llu bytes of GPU %d", (unsigned long long)len, k->gpu);
    }
    return 0;
}

/* Fills the input with new data, and overwrites the previous output. */
static int fill_rank_buffers(struct rank *k, uint64_t len, uint32_t seed)
{
    int rc = fill_gpu_memory(k, k->in, len, seed, false);
    return rc < 0 ? rc : fill_gpu_memory(k, k->out, len, 0, true);
}

/* Returns the expected value of element i in the output of an operation of `count` elements. */
static inline float compute_expected_value(const struct rank *k, enum nb_op op, uint64_t count, uint64_t i,
                                           uint32_t seed)
{
    const unsigned n = (unsigned)k->n, me = (unsigned)k->rank;
    const uint64_t part = count / n;
    switch (op) {
    case NB_SENDRECV:
        return compute_input_value(i, seed, (me + n - 1) % n);
    case NB_BROADCAST:
        return compute_input_value(i, seed, 0);
    case NB_ALLTOALL:
        return compute_input_value(me * part + i % part, seed, (unsigned)(i / part));
    case NB_ALL_GATHER:
        return compute_input_value(i % part, seed, (unsigned)(i / part));
    case NB_REDUCE_SCATTER:
        i += me * part;
        break;
    default:
        break;
    }
    /* the expected value is a sum over all ranks; the sum of r * r has a closed form */
    const unsigned squares = (n - 1) * n * (2 * n - 1) / 6;
    return (float)n * compute_input_value(i, seed, 0) + (float)squares;
}

static int check_gpu_output(struct rank *k, enum nb_op op, uint64_t len, uint32_t seed, struct nb_reply *r)
{
    const uint64_t out = op == NB_REDUCE_SCATTER ? len / (unsigned)k->n : len;
    for (uint64_t at = 0; at < out; at += STAGE) {
        size_t n = HW_MIN(STAGE, out - at);
        CUresult e = k->cu->MemcpyDtoHAsync(k->stage, (uintptr_t)k->out + at, n, k->stream);
        if (!e)
            e = k->cu->StreamSynchronize(k->stream);
        if (e)
            return hw_cuda_fail(e, "reading %llu bytes of GPU %d", (unsigned long long)len, k->gpu);
        for (size_t i = 0; i < n / 4; i++) {
            float want = compute_expected_value(k, op, len / 4, at / 4 + i, seed);
            uint32_t bits;
            memcpy(&bits, &want, sizeof bits); /* compare bits: -0 is not 0, and a NaN is never right */
            if (k->stage[i] != bits && r->bad++ == 0)
                r->first = at / 4 + i;
        }
        r->checked += n / 4;
    }
    return 0;
}

/* ---- operations ------------------------------------------------------------------------------ */

static int start_messages(struct rank *k, enum nb_op op, size_t count, size_t part)
{
    int rc = k->GroupStart();
    if (op == NB_SENDRECV) {
        rc = rc ? rc : k->Send(k->in, count, NCCL_FLOAT32, (k->rank + 1) % k->n, k->comm, k->stream);
        rc = rc ? rc : k->Recv(k->out, count, NCCL_FLOAT32, (k->rank + k->n - 1) % k->n, k->comm, k->stream);
    } else
        for (int p = 0; p < k->n && !rc; p++) {
            rc = k->Send((float *)k->in + part * (size_t)p, part, NCCL_FLOAT32, p, k->comm, k->stream);
            rc = rc ? rc : k->Recv((float *)k->out + part * (size_t)p, part, NCCL_FLOAT32, p, k->comm, k->stream);
        }
    return rc ? rc : k->GroupEnd();
}

static int start_op(struct rank *k, enum nb_op op, uint64_t len)
{
    static const char *const what[NB_OPS] = {
        "ncclAllReduce", "ncclSend and ncclRecv", "ncclSend and ncclRecv of an alltoall",
        "ncclAllGather", "ncclReduceScatter",     "ncclBroadcast"};
    const size_t count = len / 4, part = count / (size_t)k->n;
    int rc;
    switch (op) {
    case NB_ALL_REDUCE:
        rc = k->AllReduce(k->in, k->out, count, NCCL_FLOAT32, NCCL_SUM, k->comm, k->stream);
        break;
    case NB_ALL_GATHER:
        rc = k->AllGather(k->in, k->out, part, NCCL_FLOAT32, k->comm, k->stream);
        break;
    case NB_REDUCE_SCATTER:
        rc = k->ReduceScatter(k->in, k->out, part, NCCL_FLOAT32, NCCL_SUM, k->comm, k->stream);
        break;
    case NB_BROADCAST:
        rc = k->Broadcast(k->in, k->out, count, NCCL_FLOAT32, 0, k->comm, k->stream);
        break;
    default:
        rc = start_messages(k, op, count, part);
    }
    return rc ? nccl_fail(k, rc, what[op]) : 0;
}

/* Waits for an event. Sleeps between polls, because the CPU time of a spinning thread would count as NCCL's. The GPU's
 * events time the measured operations, so sleeping does not affect their result. */
static int wait_event(struct rank *k, CUevent e)
{
    for (unsigned i = 0;; i++) {
        CUresult q = k->cu->EventQuery(e);
        int async = NCCL_SUCCESS;
        if (q == CUDA_SUCCESS)
            return 0;
        if (q != CUDA_ERROR_NOT_READY)
            return hw_cuda_fail(q, "waiting for NCCL on GPU %d", k->gpu);
        if (i % 64 == 63) {
            int rc = k->CommGetAsyncError(k->comm, &async);
            if (rc || (async && async != NCCL_IN_PROGRESS))
                return nccl_fail(k, rc ? rc : async, "transferring data with NCCL");
        }
        usleep(i < 200 ? 50 : 500);
    }
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Starts n operations between two events, and waits for the second event. */
static int time_operations(struct rank *k, const struct nb_order *o, uint32_t n, double *seconds)
{
    float ms = 0;
    int rc = 0;
    *seconds = 0;
    CUresult e = k->cu->EventRecord(k->begin, k->stream);
    if (e)
        return hw_cuda_fail(e, "recording an event on GPU %d", k->gpu);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = start_op(k, o->op, o->size);
    if (rc < 0)
        return rc;
    e = k->cu->EventRecord(k->end, k->stream);
    if (e)
        return hw_cuda_fail(e, "recording an event on GPU %d", k->gpu);
    rc = wait_event(k, k->end);
    if (rc < 0)
        return rc;
    e = k->cu->EventElapsedTime(&ms, k->begin, k->end);
    if (e)
        return hw_cuda_fail(e, "reading the time between two events on GPU %d", k->gpu);
    *seconds = (double)ms / 1e3;
    return 0;
}

/* Runs the warm-up operations. Times the communicator's first operation of this kind, in which NCCL connects,
 * separately and by this thread's clock. */
static int warm_up(struct rank *k, const struct nb_order *o, double *first)
{
    double ignored;
    uint32_t n = o->warmup;
    if (n && !k->connected[o->op]) {
        uint64_t start = hw_now();
        int rc = time_operations(k, o, 1, &ignored);
        if (rc < 0)
            return rc;
        *first = (double)(hw_now() - start) / 1e9;
        n--;
    }
    k->connected[o->op] = true;
    return time_operations(k, o, n, &ignored);
}

/* Runs the warm-up and the timed operations, and checks the whole output of the last one. Then runs and checks one more
 * operation with different data, so that leftovers of earlier operations cannot pass the check. */
static int run_rank_test(struct rank *k, const struct nb_order *o, struct nb_reply *r)
{
    double ignored;
    struct nb_counts before;
    if (o->op >= NB_OPS || o->size > k->cap || o->size % 4)
        return hw_fail(-EINVAL, "an invalid order of %llu bytes, with buffers of %llu bytes",
                       (unsigned long long)o->size, (unsigned long long)k->cap);
    nb_count(&before);
    int rc = fill_rank_buffers(k, o->size, 1);
    if (rc < 0 || (rc = warm_up(k, o, &r->first_op)) < 0)
        return rc;
    double cpu = cpu_seconds();
    rc = time_operations(k, o, o->iters, &r->seconds);
    r->cpu = cpu_seconds() - cpu;
    if (rc < 0 || (rc = check_gpu_output(k, o->op, o->size, 1, r)) < 0)
        return rc;
    rc = fill_rank_buffers(k, o->size, 0x9e3779b9u);
    if (rc < 0 || (rc = time_operations(k, o, 1, &ignored)) < 0)
        return rc;
    nb_count(&r->counts);
    nb_count_since(&r->counts, &before);
    return check_gpu_output(k, o->op, o->size, 0x9e3779b9u, r);
}

/* ---- a rank's life --------------------------------------------------------------------------- */

static int handle_rank_order(struct rank *k, const struct nb_order *o, struct nb_reply *r)
{
    ncclUniqueId id;
    int e;
    switch (o->type) {
    case NB_MAKE_UID:
        e = k->GetUniqueId(&id);
        memcpy(r->uid, &id, sizeof id);
        return e ? nccl_fail(k, e, "ncclGetUniqueId") : 0;
    case NB_JOIN_COMM:
        e = k->GetVersion(&r->version);
        return e ? nccl_fail(k, e, "ncclGetVersion") : join_nccl_comm(k, o);
    case NB_RUN:
        return run_rank_test(k, o, r);
    case NB_END:
        e = k->CommDestroy(k->comm);
        return e ? nccl_fail(k, e, "ncclCommDestroy") : 0;
    default:
        return hw_fail(-EINVAL, "unknown order of type %u", o->type);
    }
}

static bool parse_rank_args(const char *told, struct rank *k)
{
    uint64_t v[4];
    HW_AUTO_FREE char *copy = strdup(told);
    char *at = copy;
    for (size_t i = 0; i < HW_ARRAY_LEN(v); i++) {
        char *word = strsep(&at, ",");
        if (!word || hw_parse_u64(word, 0, 4095, &v[i]) < 0)
            return false;
    }
    if (at)
        return false;
    k->fd = (int)v[0];
    k->rank = (int)v[1];
    k->n = (int)v[2];
    k->gpu = (int)v[3];
    return true;
}

int nb_rank(const char *told, const char *nccl)
{
    struct rank k = {.nccl_path = nccl ? nccl : "libnccl.so.2"};
    struct nb_order o = {0};
    if (!parse_rank_args(told, &k))
        return 2;
    (void)prctl(PR_SET_NAME, "hawser-rank");
    setlinebuf(stdout); /* NCCL writes to stdout, and its lines must be visible at once */
    int ready = open_rank_gpu(&k);
    if (ready == 0)
        ready = load_nccl(&k);
    /* If the set-up has failed, its error is the reply to every order. */
    while (o.type != NB_END && recv(k.fd, &o, sizeof o, 0) == sizeof o) {
        struct nb_reply r = {.rc = ready};
        if (ready == 0)
            r.rc = handle_rank_order(&k, &o, &r);
        snprintf(r.text, sizeof r.text, "%s", r.rc ? hw_error() : "");
        if (send(k.fd, &r, sizeof r, MSG_NOSIGNAL) != sizeof r)
            break;
    }
    fflush(NULL);
    return o.type == NB_END ? 0 : 1;
}
