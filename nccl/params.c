/* SPDX-License-Identifier: Apache-2.0 */
#include "params.h"
#include "base/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SET(name, value) name, value, name "=" value

/* NCCL reads its configuration files into the environment before it loads the plugin, so their contents also count as
 * the user's settings. */
const struct hn_param hn_params[] = {
    {SET("NCCL_NTHREADS", "512"),
     "by default, NCCL halves the GPU threads of a ring's channels if all channels together carry at most 12 GB/s, but "
     "the copies need these threads",
     {NULL}},
    {SET("NCCL_BUFFSIZE", "8388608"), "messages of 2 MiB instead of 1 MiB in a ring", {NULL}},
    /* 2 MiB would be too large: the size of NCCL's shared buffer pool, 64 channels * 16 steps * 2 MiB, would overflow
     * an int (transport/net.cc). NCCL limits this value to an eighth of NCCL_BUFFSIZE (init.cc, computeBuffSizes), so a
     * smaller buffer size set by the user still takes effect. */
    {SET("NCCL_P2P_NET_CHUNKSIZE", "524288"),
     "larger messages for send/recv and alltoall; the default is 128 KiB, and each message costs a pass through NCCL's "
     "proxy thread",
     {NULL}},
    {SET("NCCL_ALLOC_P2P_NET_LL_BUFFERS", "1"),
     "lets small send/recv use the low-latency protocol over a network",
     {NULL}},
    {SET("NCCL_P2P_PER_CHANNEL_NET_BW", "3"),
     "since NCCL 2.29.2, the number of channels per peer of send/recv is the NIC's GB/s divided by this value "
     "(default: 14)",
     {"NCCL_NCHANNELS_PER_NET_PEER"}},
    {NULL, NULL, NULL, NULL, {NULL}},
};

const char *hn_param_user(const struct hn_param *p)
{
    if (getenv(p->name))
        return p->name;
    for (size_t i = 0; i < HW_ARRAY_LEN(p->yields) && p->yields[i]; i++)
        if (getenv(p->yields[i]))
            return p->yields[i];
    return NULL;
}

#define SAY(logger, level, ...)                                                                \
    do {                                                                                       \
        if (logger)                                                                            \
            (logger)(level, NCCL_INIT | NCCL_ENV | NCCL_NET, __func__, __LINE__, __VA_ARGS__); \
    } while (0)

bool hn_tune(ncclDebugLogger_t logger)
{
    static const struct {
        const char *word;
        bool tune;
    } words[] = {
        {"0", false}, {"no", false}, {"off", false}, {"false", false},
        {"1", true},  {"yes", true}, {"on", true},   {"true", true},
    };
    const char *s = getenv("HAWSER_NCCL_TUNE");

    if (!s || !*s)
        return true;
    for (size_t i = 0; i < HW_ARRAY_LEN(words); i++)
        if (strcasecmp(s, words[i].word) == 0)
            return words[i].tune;
    SAY(logger, NCCL_LOG_WARN, "NET/hawser : HAWSER_NCCL_TUNE='%.60s': must be 0 or 1, the same on every rank; using 1",
        s);
    return true;
}

/* Builds a new array and then replaces the environment with it. setenv() could move or modify the array that getenv()
 * in another thread may be reading, and the old array is kept for the same reason. The new array is never freed, and
 * the plugin with its strings is never unmapped (-z nodelete), because the process continues to use them. */
static void set_all(ncclDebugLogger_t logger)
{
    size_t n = 0;
    char **old = environ, **env;

    while (old && old[n])
        n++;
    /* the unnamed last entry of hn_params leaves room for the NULL */
    env = malloc((n + HW_ARRAY_LEN(hn_params)) * sizeof(*env));
    if (!env) {
        SAY(logger, NCCL_LOG_WARN,
            "NET/hawser : out of memory, NCCL's parameters are not set: ranks may disagree on them and hang");
        return;
    }
    if (n > 0)
        memcpy(env, old, n * sizeof(*env));
    for (const struct hn_param *p = hn_params; p->name; p++) {
        const char *user = hn_param_user(p);
        if (user) {
            SAY(logger, NCCL_LOG_INFO, "NET/hawser : %s unchanged: the environment sets %s", p->name, user);
            continue;
        }
        env[n++] = (char *)p->set; /* libc replaces environment strings but does not write to them */
        SAY(logger, NCCL_LOG_INFO, "NET/hawser : %s set: %s", p->set, p->why);
    }
    env[n] = NULL;
    __atomic_store_n(&environ, env, __ATOMIC_RELEASE);
}

void hn_params_set(ncclDebugLogger_t logger)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool done;

    pthread_mutex_lock(&lock);
    if (!done) {
        done = true;
        if (hn_tune(logger))
            set_all(logger);
        else
            SAY(logger, NCCL_LOG_INFO, "NET/hawser : HAWSER_NCCL_TUNE is off: NCCL's parameters are unchanged");
    }
    pthread_mutex_unlock(&lock);
}
