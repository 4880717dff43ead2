/* SPDX-License-Identifier: Apache-2.0 */
#include "params.h"
#include "base/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SET(name, value) name, value, name "=" value

/* NCCL has read its configuration files into the environment before it loads us, so that what they say is the user's
 * too. Its minima win over its maxima (graph/connect.cc, graph/paths.cc), hence `yields`. */
const struct hn_param hn_params[] = {
    {SET("NCCL_NTHREADS", "512"),
     "NCCL halves the GPU threads of a channel where a NIC is slower than the GPU's link; the copies want them",
     {NULL}},
    {SET("NCCL_BUFFSIZE", "8388608"),
     "messages of 2 MiB instead of 1 in a ring, and room for eight chunks of NCCL_P2P_NET_CHUNKSIZE",
     {NULL}},
    /* Not 2 MiB: 64 channels x 16 x 2 MiB, the size of a pool, overflows NCCL's int (transport/net.cc). NCCL itself
     * cuts it to an eighth of NCCL_BUFFSIZE (init.cc, computeBuffSizes), so that a user's smaller one stays in force.
     */
    {SET("NCCL_P2P_NET_CHUNKSIZE", "524288"),
     "messages of send/recv and alltoall, 128 KiB by default: each costs a round through NCCL's proxy thread",
     {NULL}},
    {SET("NCCL_ALLOC_P2P_NET_LL_BUFFERS", "1"),
     "lets small send/recv use the low-latency protocol over a network",
     {NULL}},
    {SET("NCCL_P2P_PER_CHANNEL_NET_BW", "3"),
     "from NCCL 2.29.2: channels per peer of send/recv are the NIC's GB/s over this, 14 by default",
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

/* One array, made whole and then put in the place of the process's: setenv() would move or edit the one that other
 * threads' getenv() may be walking at this moment. The old one is left where it is for the same reason. Ours is never
 * freed, and the plugin with its strings is never unmapped (-z nodelete), since the process goes on with them. */
static void set_all(ncclDebugLogger_t logger)
{
    size_t n = 0;
    char **old = environ, **env;

    while (old && old[n])
        n++;
    env = malloc((n + HW_ARRAY_LEN(hn_params)) * sizeof(*env)); /* with the NULL that ends both */
    if (!env) {
        SAY(logger, NCCL_LOG_WARN,
            "NET/hawser : out of memory for NCCL's parameters: ranks may disagree on them, and hang");
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
        env[n++] = (char *)p->set; /* libc replaces such strings and does not write to them */
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
