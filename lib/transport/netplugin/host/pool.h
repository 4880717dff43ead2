/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of one plugin: one for a thread-safe plugin; for another plugin as many as connections are expected,
 * each with a loop that calls the plugin from one thread. */
#ifndef HW_NETPLUGIN_POOL_H
#define HW_NETPLUGIN_POOL_H

#include "transport/netplugin/host/host.h"

#define NP_POOL_MOST 16

struct np_pool;

/* Opens n processes, at most NP_POOL_MOST. Otherwise as np_open(). */
int np_pool_open(const char *plugin, const struct np_options *o, unsigned n, struct np_pool **out);
void np_pool_close(struct np_pool *p);
/* Returns the process that answers questions about devices. */
struct np_host *np_pool_first(struct np_pool *p);
/* Returns the process with the fewest connections, for one more connection. Return it with np_pool_give(). */
struct np_host *np_pool_take(struct np_pool *p);
void np_pool_give(struct np_pool *p, const struct np_host *h);
/* Returns 0 while all processes live. */
int np_pool_health(struct np_pool *p);

#endif
