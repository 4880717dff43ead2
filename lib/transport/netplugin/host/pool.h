/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a plugin. If knob plugin_threads is set, a plugin has one process. Otherwise the plugin has as many
 * processes as four pairs of NICs have channels, up to NP_POOL_MOST, and each process calls the plugin from one thread,
 * unless the plugin's quirk has setup_threads. */
#ifndef HW_NETPLUGIN_POOL_H
#define HW_NETPLUGIN_POOL_H

#include "transport/netplugin/host/host.h"

#define NP_POOL_MOST 16

struct np_pool;

/* Opens min(n, NP_POOL_MOST) processes. The other arguments and the errors are those of np_open(). */
int np_pool_open(const char *plugin, const struct np_options *o, unsigned n, struct np_pool **out);
void np_pool_close(struct np_pool *p);
/* Returns the first process, with which np_device_of() is called. */
struct np_host *np_pool_first(struct np_pool *p);
/* Returns the process with the fewest connections, for a new connection. Release it with np_pool_give(). */
struct np_host *np_pool_take(struct np_pool *p);
void np_pool_give(struct np_pool *p, const struct np_host *h);
/* Returns 0 while all processes are alive and responsive. */
int np_pool_health(struct np_pool *p);

#endif
