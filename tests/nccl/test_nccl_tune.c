/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the parameters that the NCCL plugin sets in the environment (nccl/params.c). Each case runs in a child process,
 * because the plugin sets the parameters only once. Also tests the tuner (nccl/tuner.c) with cost tables.
 */
#include "base/base.h"
#include "nccl/params.h"
#include "tests/tap.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

extern const ncclTuner_v4_t ncclTunerPlugin_v4;
extern const ncclTuner_v5_t ncclTunerPlugin_v5;
extern const ncclTuner_v6_t ncclTunerPlugin_v6;

static int infos, warns;
static char warned[256];

__attribute__((format(printf, 5, 6))) static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                                         int line, const char *fmt, ...)
{
    va_list ap;

    (void)flags, (void)file, (void)line;
    va_start(ap, fmt);
    if (level == NCCL_LOG_WARN) {
        warns++;
        vsnprintf(warned, sizeof(warned), fmt, ap);
    } else if (level == NCCL_LOG_INFO) {
        infos++;
    }
    va_end(ap);
}

/* Runs fn in a child whose environment has only PATH and `vars`. Returns fn's result. */
static bool in_child(bool (*fn)(void), const char *const *vars)
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        clearenv();
        setenv("PATH", "/bin", 1);
        for (; vars && *vars; vars += 2)
            setenv(vars[0], vars[1], 1);
        _exit(fn() ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#define VARS(...) ((const char *const[]){__VA_ARGS__, NULL})

static bool is(const char *name, const char *value)
{
    const char *v = getenv(name);

    if (v && value ? strcmp(v, value) == 0 : v == value)
        return true;
    diag("%s is '%s', wanted '%s'", name, v ? v : "(not there)", value ? value : "(not there)");
    return false;
}

/* Returns whether all of the plugin's parameters are set, except those in `except`. */
static bool all_set(const char *const *except)
{
    for (const struct hn_param *p = hn_params; p->name; p++) {
        const char *want = p->value;
        for (const char *const *e = except; e && *e; e++)
            if (strcmp(*e, p->name) == 0)
                want = NULL;
        if (want && !is(p->name, want))
            return false;
    }
    return true;
}

static bool sets_all(void)
{
    char **before = environ, *first = environ[0];

    hn_params_set(logger);
    return all_set(NULL) && is("PATH", "/bin") && environ != before && before[0] == first && infos > 0 && warns == 0;
}

static bool sets_once(void)
{
    char **ours;

    hn_params_set(NULL); /* without a logger */
    ours = environ;
    unsetenv("NCCL_NTHREADS");
    hn_params_set(logger);
    return environ == ours && is("NCCL_NTHREADS", NULL) && infos == 0;
}

/* Tests that libc can add variables to the plugin's environment array, remove variables, and pass the array to a
 * program. */
static bool libc_goes_on(void)
{
    hn_params_set(NULL);
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof(name), "AFTER_%d", i);
        setenv(name, "x", 1);
    }
    setenv("NCCL_NTHREADS", "256", 1);
    unsetenv("NCCL_BUFFSIZE");
    return is("NCCL_NTHREADS", "256") && is("NCCL_BUFFSIZE", NULL) && is("AFTER_99", "x") && is("PATH", "/bin") &&
           system("test \"$NCCL_NTHREADS\" = 256 && test \"$NCCL_P2P_NET_CHUNKSIZE\" -gt 0") == 0;
}

static bool empty_environment(void)
{
    clearenv();
    hn_params_set(NULL);
    return all_set(NULL);
}

static bool users_stay(void)
{
    hn_params_set(logger);
    return is("NCCL_NTHREADS", "256") && is("NCCL_BUFFSIZE", "") && all_set(VARS("NCCL_NTHREADS", "NCCL_BUFFSIZE"));
}

static bool yields_to_channels(void)
{
    hn_params_set(logger);
    return is("NCCL_P2P_PER_CHANNEL_NET_BW", NULL) && all_set(VARS("NCCL_P2P_PER_CHANNEL_NET_BW"));
}

static bool off(void)
{
    char **before = environ;

    hn_params_set(logger);
    return environ == before && warns == 0;
}

static bool on(void)
{
    hn_params_set(logger);
    return all_set(NULL) && warns == 0;
}

static bool bad_word(void)
{
    hn_params_set(logger);
    return all_set(NULL) && warns == 1 && strstr(warned, "HAWSER_NCCL_TUNE='maybe': must be 0 or 1");
}

static atomic_bool stop;
static atomic_int lost;

static void *reads(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        const char *p = getenv("PATH"), *n = getenv(hn_params[0].name);
        if (!p || strcmp(p, "/bin") != 0 || (n && strcmp(n, hn_params[0].value) != 0))
            atomic_fetch_add(&lost, 1);
    }
    return NULL;
}

static void *sets(void *arg)
{
    (void)arg;
    hn_params_set(NULL);
    return NULL;
}

/* Tests that readers in other threads see valid variables while two threads set the environment. */
static bool readers_go_on(void)
{
    pthread_t r[2], s[2];

    for (int i = 0; i < 2; i++)
        if (pthread_create(&r[i], NULL, reads, NULL) != 0)
            return false;
    usleep(2000);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&s[i], NULL, sets, NULL) != 0)
            return false;
    for (int i = 0; i < 2; i++)
        pthread_join(s[i], NULL);
    usleep(2000);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(r[i], NULL);
    return atomic_load(&lost) == 0 && all_set(NULL);
}

static const struct hn_param *find(const char *name)
{
    for (const struct hn_param *p = hn_params; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

static void table(void)
{
    const struct hn_param *p, *chunk = find("NCCL_P2P_NET_CHUNKSIZE"), *buff = find("NCCL_BUFFSIZE");
    bool whole = true;
    char set[128];

    for (p = hn_params; p->name; p++) {
        for (const struct hn_param *q = hn_params; q < p; q++)
            whole = whole && strcmp(p->name, q->name) != 0;
        snprintf(set, sizeof(set), "%s=%s", p->name, p->value);
        whole =
            whole && strncmp(p->name, "NCCL_", 5) == 0 && *p->value && strlen(p->why) > 10 && strcmp(p->set, set) == 0;
    }
    ok(whole && p != hn_params, "each parameter is NCCL's, there once, and has a value and a reason");
    if (chunk) {
        long long bytes = atoll(chunk->value), room = (buff ? atoll(buff->value) : 4 << 20) / 8;
        ok(bytes <= room, "a chunk of send/recv has room in the buffer: NCCL does not cut it");
        ok(bytes * 16 * 64 <= INT32_MAX, "the pool of 64 channels of such chunks fits NCCL's int");
    }
}

static bool says_who(void)
{
    const struct hn_param *p = find("NCCL_P2P_PER_CHANNEL_NET_BW"), *q = find("NCCL_NTHREADS");

    return p && q && strcmp(hn_param_user(p), "NCCL_NCHANNELS_PER_NET_PEER") == 0 &&
           strcmp(hn_param_user(q), "NCCL_NTHREADS") == 0 && !hn_param_user(find("NCCL_ALLOC_P2P_NET_LL_BUFFERS"));
}

static void parameters(void)
{
    table();
    ok(in_child(sets_all, NULL), "all are set, in an array of their own, and the old one stays as it was");
    ok(in_child(sets_once, NULL), "once: what changes later stays changed");
    ok(in_child(libc_goes_on, NULL), "setenv, unsetenv and children go on from there");
    ok(in_child(empty_environment, NULL), "an empty environment gets them too");
    ok(in_child(users_stay, VARS("NCCL_NTHREADS", "256", "NCCL_BUFFSIZE", "")),
       "what the user set stays, if it is empty");
    ok(in_child(yields_to_channels, VARS("NCCL_NCHANNELS_PER_NET_PEER", "4")),
       "a user's number of channels wins over what ours would make of it");
    ok(in_child(says_who, VARS("NCCL_NCHANNELS_PER_NET_PEER", "4", "NCCL_NTHREADS", "64")), "who decided is told");
    ok(in_child(off, VARS("HAWSER_NCCL_TUNE", "0")), "HAWSER_NCCL_TUNE=0: nothing is touched");
    ok(in_child(off, VARS("HAWSER_NCCL_TUNE", "Off")), "off likewise");
    ok(in_child(on, VARS("HAWSER_NCCL_TUNE", "1")), "HAWSER_NCCL_TUNE=1: on");
    ok(in_child(on, VARS("HAWSER_NCCL_TUNE", "")), "empty: on");
    ok(in_child(bad_word, VARS("HAWSER_NCCL_TUNE", "maybe")), "another word is warned of, and on");
    ok(in_child(readers_go_on, NULL), "other threads' getenv goes on meanwhile");
}

#define N NCCL_ALGO_PROTO_IGNORE
#define X 1e30F /* excluded by the tuner; positive, because NCCL 2.32 would prefer a negative cost */

/* The cost table as NCCL makes it. N means that NCCL or the user has excluded the combination. */
static const float before[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS] = {
    {10, 20, 30},             /* all */
    {N, 20, 30},  {10, N, N}, /* only the low-latency protocol */
    {N, N, 30},   {N, N, N},  {0, 0, 0}, {10, 20, N},
};
static const float after[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS] = {
    {X, X, 30}, {N, X, 30}, {10, N, N}, {N, N, 30}, {N, N, N}, {X, X, 0}, {10, 20, N},
};

/* The table after the tuner, if a ring's steps are still small. */
static const float after_but_ring[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS] = {
    {X, X, 30}, {N, 20, 30}, {10, N, N}, {N, N, 30}, {N, N, N}, {X, X, 0}, {10, 20, N},
};

typedef ncclResult_t (*coll_info)(void *, ncclFunc_t, size_t, int, float **, int, int, int, int *);

/* Returns whether fn changes the cost table of an operation of this many bytes to `want`, and changes nothing else. */
static bool becomes(coll_info fn, void *ctx, size_t bytes, const float want[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS])
{
    float cost[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];
    int channels = 0;

    memcpy(cost, before, sizeof(cost));
    return fn(ctx, ncclFuncAllReduce, bytes, 1, (float **)(void *)cost, NCCL_NUM_ALGORITHMS, NCCL_NUM_PROTOCOLS, 0,
              &channels) == ncclSuccess &&
           memcmp(cost, want, sizeof(cost)) == 0 && channels == 0;
}

/* Returns the protocol that NCCL chooses for a large operation if only this algorithm is possible. Version 2.28 ignores
 * negative costs. Version 2.32 takes the lowest cost of the entries that were possible before NCCL called the tuner
 * (src/tuning/tuning.cc). */
static int chosen_protocol(int algo, bool ignores_negative)
{
    float cost[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS], lowest = 3600000000.0F;
    int channels = 0, best = -1;
    void *ctx = NULL;

    memcpy(cost, before, sizeof(cost));
    if (ncclTunerPlugin_v6.init(&ctx, 1, 16, 2, logger, NULL, NULL) != ncclSuccess ||
        ncclTunerPlugin_v6.getCollInfo(ctx, ncclFuncAllReduce, 1 << 30, 1, (float **)(void *)cost, NCCL_NUM_ALGORITHMS,
                                       NCCL_NUM_PROTOCOLS, 0, &channels) != ncclSuccess)
        return -1;
    (void)ncclTunerPlugin_v6.finalize(ctx);
    for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++)
        if (before[algo][p] >= 0 && !(ignores_negative && cost[algo][p] < 0) && cost[algo][p] < lowest) {
            lowest = cost[algo][p];
            best = p;
        }
    return best;
}

static bool chooses_simple(void)
{
    bool good = true;
    for (int old = 0; old < 2; old++)
        good = good && chosen_protocol(NCCL_ALGO_TREE, old) == NCCL_PROTO_SIMPLE &&
               chosen_protocol(NCCL_ALGO_RING, old) == NCCL_PROTO_SIMPLE;
    return good;
}

static bool leaves_all_alone(void)
{
    ncclTunerConstants_v5_t constants = {.value = {1, 2, 3}}, same = constants;
    void *v4 = NULL, *v5 = NULL;

    return ncclTunerPlugin_v4.init(16, 2, logger, &v4) == ncclSuccess &&
           ncclTunerPlugin_v5.init(&v5, 1, 16, 2, logger, NULL, &constants) == ncclSuccess &&
           memcmp(&constants, &same, sizeof(same)) == 0 &&
           becomes(ncclTunerPlugin_v4.getCollInfo, v4, 1 << 30, before) &&
           becomes(ncclTunerPlugin_v5.getCollInfo, v5, 1 << 30, before);
}

static bool narrow_table(void)
{
    float cost[2][2] = {{1, 2}, {3, 4}}, same[2][2] = {{1, 2}, {3, 4}};
    int channels = 0;
    void *ctx = NULL;

    return ncclTunerPlugin_v5.init(&ctx, 1, 16, 2, logger, NULL, NULL) == ncclSuccess &&
           ncclTunerPlugin_v5.getCollInfo(ctx, ncclFuncAllReduce, 1 << 30, 1, (float **)(void *)cost, 2, 2, 0,
                                          &channels) == ncclSuccess &&
           memcmp(cost, same, sizeof(cost)) == 0;
}

static bool forbids(void)
{
    ncclTunerConstants_v5_t constants = {.value = {1, 2, 3}}, same = constants;
    ncclNvlDomainInfo_v5_t nvl = {2, 8, 8};
    coll_info v4 = ncclTunerPlugin_v4.getCollInfo, v5 = ncclTunerPlugin_v5.getCollInfo;
    void *one = NULL, *two = NULL;
    bool good = ncclTunerPlugin_v5.init(&one, 1, 8, 1, logger, &nvl, &constants) == ncclSuccess &&
                ncclTunerPlugin_v5.init(&two, 2, 16, 2, logger, &nvl, &constants) == ncclSuccess &&
                memcmp(&constants, &same, sizeof(same)) == 0;

    good = good && becomes(v5, two, 256 * 1024 + 2, after_but_ring) && becomes(v5, two, 2 << 20, after_but_ring);
    good = good && becomes(v5, two, (2 << 20) + 16, after) && becomes(v5, two, (size_t)1 << 40, after);
    good = good && becomes(v5, two, 256 * 1024, before) && becomes(v5, two, 0, before);
    good = good && becomes(v5, one, (size_t)1 << 30, before); /* with one node, there is no network */
    good = good && ncclTunerPlugin_v5.finalize(one) == ncclSuccess && ncclTunerPlugin_v5.finalize(two) == ncclSuccess;

    good = good && ncclTunerPlugin_v4.init(8, 1, logger, &one) == ncclSuccess;
    good = good && ncclTunerPlugin_v4.init(16, 2, logger, &two) == ncclSuccess;
    good = good && becomes(v4, two, 1 << 20, after_but_ring) && becomes(v4, two, 4 << 20, after);
    good = good && becomes(v4, two, 4096, before) && becomes(v4, one, 4 << 20, before);
    return good && ncclTunerPlugin_v4.destroy(one) == ncclSuccess && ncclTunerPlugin_v4.destroy(two) == ncclSuccess;
}

/* Returns the smallest power of two, in bytes, at which the tuner excludes LL128 for a ring of this many ranks. */
static size_t ring_limit(ncclFunc_t func, size_t ranks)
{
    size_t bytes = 1024;
    void *ctx = NULL;
    if (ncclTunerPlugin_v5.init(&ctx, 1, ranks, ranks / 2, logger, NULL, NULL) != ncclSuccess)
        return 0;
    for (; bytes < (size_t)1 << 40; bytes *= 2) {
        float cost[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];
        int channels = 0;
        memcpy(cost, before, sizeof(cost));
        if (ncclTunerPlugin_v5.getCollInfo(ctx, func, bytes, 1, (float **)(void *)cost, NCCL_NUM_ALGORITHMS,
                                           NCCL_NUM_PROTOCOLS, 0, &channels) != ncclSuccess)
            return 0;
        if (cost[NCCL_ALGO_RING][NCCL_PROTO_LL128] == X)
            break;
    }
    (void)ncclTunerPlugin_v5.finalize(ctx);
    return bytes;
}

/* Tests that a ring keeps its low-latency protocols while its steps are at most 128 KiB. */
static bool grows_with_ranks(void)
{
    const ncclFunc_t pieces[] = {ncclFuncAllReduce, ncclFuncAllGather, ncclFuncReduceScatter};
    bool good = true;
    for (size_t ranks = 4; ranks <= 1024; ranks *= 2) {
        for (size_t i = 0; i < HW_ARRAY_LEN(pieces); i++)
            good = good && ring_limit(pieces[i], ranks) == ranks * (256 << 10);
        good =
            good && ring_limit(ncclFuncBroadcast, ranks) == 256 << 10 && ring_limit(ncclFuncReduce, ranks) == 256 << 10;
    }
    return good;
}

/* Returns the number of channels that the tuner requests for an operation of this many bytes. */
static int channels_of_func(ncclFunc_t func, size_t ranks, size_t nodes, size_t bytes)
{
    float cost[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];
    int channels = 0;
    void *ctx = NULL;

    memcpy(cost, before, sizeof(cost));
    if (ncclTunerPlugin_v5.init(&ctx, 1, ranks, nodes, logger, NULL, NULL) != ncclSuccess ||
        ncclTunerPlugin_v5.getCollInfo(ctx, func, bytes, 1, (float **)(void *)cost, NCCL_NUM_ALGORITHMS,
                                       NCCL_NUM_PROTOCOLS, 0, &channels) != ncclSuccess)
        return -1;
    (void)ncclTunerPlugin_v5.finalize(ctx);
    return channels;
}

static int channels_of(size_t ranks, size_t nodes, size_t bytes)
{
    return channels_of_func(ncclFuncAllReduce, ranks, nodes, bytes);
}

static bool few_channels(void)
{
    return channels_of(2, 2, 8) == 4 && channels_of(2, 2, 1 << 20) == 4 && channels_of(64, 64, 1 << 30) == 6 &&
           channels_of(16, 2, 1 << 20) == 0 && channels_of(1, 1, 1 << 20) == 0 &&
           channels_of_func(ncclFuncBroadcast, 2, 2, 64 << 10) == 4 &&
           channels_of_func(ncclFuncBroadcast, 2, 2, 1 << 20) == 6 &&
           channels_of_func(ncclFuncReduce, 2, 2, 1 << 20) == 6;
}

static bool as_many_as_nccl_wants(void)
{
    return channels_of(2, 2, 1 << 20) == 0 && channels_of(2, 2, 8) == 0;
}

#define CHUNK ((size_t)4 << 20)

/* Returns the size to which the tuner changes a 4 MiB chunk. */
static size_t chunk_of(size_t ranks, size_t nodes, int algo, int proto, size_t bytes, int channels)
{
    size_t chunk = CHUNK;
    void *ctx = NULL;
    if (ncclTunerPlugin_v6.init(&ctx, 1, ranks, nodes, logger, NULL, NULL) != ncclSuccess ||
        ncclTunerPlugin_v6.getChunkSize(ctx, ncclFuncAllReduce, bytes, algo, proto, channels, &chunk) != ncclSuccess ||
        ncclTunerPlugin_v6.finalize(ctx) != ncclSuccess)
        return 0;
    return chunk;
}

static bool leaves_chunks(void)
{
    return chunk_of(8, 1, NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, 1 << 30, 8) == CHUNK &&
           chunk_of(16, 2, NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, 1 << 30, 8) == CHUNK;
}

/* Sets the plugin's parameters first, because NCCL calls the net plugin's init before the tuner. */
static bool halves_chunks_within_a_node(void)
{
    hn_params_set(NULL);
    bool good = chunk_of(8, 1, NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, 1 << 30, 8) == CHUNK / 2 &&
                chunk_of(8, 1, NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, 8, 1) == CHUNK / 2 &&
                chunk_of(8, 1, NCCL_ALGO_TREE, NCCL_PROTO_SIMPLE, 1 << 30, 8) == CHUNK / 2;
    /* the other algorithms and protocols do not take chunks from this buffer */
    good = good && chunk_of(8, 1, NCCL_ALGO_NVLS, NCCL_PROTO_SIMPLE, 1 << 30, 8) == CHUNK &&
           chunk_of(8, 1, NCCL_ALGO_RING, NCCL_PROTO_LL, 1 << 30, 8) == CHUNK &&
           chunk_of(8, 1, NCCL_ALGO_TREE, NCCL_PROTO_LL128, 1 << 30, 8) == CHUNK;
    for (size_t nodes = 2; nodes <= 128; nodes *= 2)
        good = good && chunk_of(8 * nodes, nodes, NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, 1 << 30, 8) == CHUNK;
    return good;
}

static bool leaves_users_chunks(void)
{
    hn_params_set(NULL);
    return leaves_chunks();
}

static void tuner(void)
{
    is_str(ncclTunerPlugin_v4.name, "hawser", "the tuner's name, v4");
    is_str(ncclTunerPlugin_v5.name, "hawser", "and v5");
    is_str(ncclTunerPlugin_v6.name, "hawser", "and v6");
    ok(ncclTunerPlugin_v6.getCollInfo == ncclTunerPlugin_v5.getCollInfo, "v6 answers as v5 does");
    ok(in_child(halves_chunks_within_a_node, NULL), "within a node chunks are as NCCL's own buffers make them");
    ok(in_child(halves_chunks_within_a_node, VARS("NCCL_BUFFSIZE", "0x800000")),
       "also if a rank's user has set the plugin's value in another spelling");
    ok(in_child(leaves_users_chunks, VARS("NCCL_BUFFSIZE", "16777216")), "not of the user's buffers");
    ok(in_child(leaves_users_chunks, VARS("HAWSER_NCCL_TUNE", "0")), "nor without tuning");
    ok(in_child(forbids, NULL),
       "between nodes, where steps are large, only the simple protocol is left if there is it");
    ok(in_child(grows_with_ranks, NULL), "a ring's steps are the smaller the more ranks there are");
    ok(in_child(chooses_simple, NULL), "NCCL 2.28 and 2.32 choose the simple protocol for a large operation");
    ok(in_child(narrow_table, NULL), "a table without the simple protocol is left alone");
    ok(in_child(leaves_all_alone, VARS("HAWSER_NCCL_TUNE", "0")), "HAWSER_NCCL_TUNE=0: nothing is touched");
    ok(in_child(leaves_all_alone, VARS("NCCL_PROTO", "LL,Simple")), "nor where the user chose protocols");
    ok(in_child(few_channels, NULL), "one GPU in each node: four channels, six for much; else as many as NCCL wants");
    ok(in_child(few_channels, VARS("NCCL_PROTO", "LL,Simple")), "whatever protocols the user chose");
    ok(in_child(as_many_as_nccl_wants, VARS("NCCL_MAX_NCHANNELS", "8")), "not where the user chose their number");
    ok(in_child(as_many_as_nccl_wants, VARS("NCCL_MIN_CTAS", "2")), "by whatever name");
    ok(in_child(as_many_as_nccl_wants, VARS("HAWSER_NCCL_TUNE", "0")), "nor without tuning");
}

int main(void)
{
    mallopt(M_PERTURB, 0x5a); /* fills allocated memory with a value other than 0 */
    parameters();
    tuner();
    return tap_done();
}
