/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of one plugin. For a plugin that is safe for threads there is one; for another one as many as
 * connections are expected, each with a loop that calls the plugin from one thread. */
#ifndef HW_NETPLUGIN_POOL_H
#define HW_NETPLUGIN_POOL_H

#include "transport/netplugin/host/host.h"

#define NP_POOL_MOST 16

struct np_pool;

/* Opens n processes, NP_POOL_MOST at most. As np_open(). */
int np_pool_open(const char *plugin, const struct np_options *o, unsigned n, struct np_pool **out);
void np_pool_close(struct np_pool *p);
/* The process that is asked about devices. */
struct np_host *np_pool_first(struct np_pool *p);
/* A process for one more connection: the one that has the fewest. To be given back. */
struct np_host *np_pool_take(struct np_pool *p);
void np_pool_give(struct np_pool *p, const struct np_host *h);
/* 0 while all of them live. */
int np_pool_health(struct np_pool *p);

#endif
