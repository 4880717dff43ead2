/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/netplugin/host/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct np_pool {
    unsigned n;
    struct np_host *h[NP_POOL_MOST];
    pthread_mutex_t lock;
    unsigned used[NP_POOL_MOST]; /* number of connections of each process; guarded by the lock */
};

int np_pool_open(const char *plugin, const struct np_options *o, unsigned n, struct np_pool **out)
{
    struct np_pool *p = calloc(1, sizeof(*p));
    struct np_options each = *o;
    int rc = 0;
    if (!p)
        return hw_no_memory("plugin %s", plugin);
    pthread_mutex_init(&p->lock, NULL);
    while (rc == 0 && p->n < HW_MIN(n, (unsigned)NP_POOL_MOST)) {
        each.again = p->n > 0;
        if ((rc = np_open(plugin, &each, &p->h[p->n])) == 0)
            p->n++;
    }
    if (rc) {
        HW_KEEP_ERROR();
        np_pool_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void np_pool_close(struct np_pool *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < p->n; i++)
        np_close(p->h[i]);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

struct np_host *np_pool_first(struct np_pool *p)
{
    return p->h[0];
}

struct np_host *np_pool_take(struct np_pool *p)
{
    unsigned best = 0;
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 1; i < p->n; i++)
        if (p->used[i] < p->used[best])
            best = i;
    p->used[best]++;
    pthread_mutex_unlock(&p->lock);
    return p->h[best];
}

void np_pool_give(struct np_pool *p, const struct np_host *h)
{
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; i < p->n; i++)
        p->used[i] -= p->h[i] == h;
    pthread_mutex_unlock(&p->lock);
}

int np_pool_health(struct np_pool *p)
{
    int rc = 0;
    for (unsigned i = 0; i < p->n && rc == 0; i++)
        rc = np_health(p->h[i]);
    return rc;
}
