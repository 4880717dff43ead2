/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over other plugins: what the context does with it before and after all else. */
#ifndef HW_NETPLUGIN_H
#define HW_NETPLUGIN_H

#include "transport/transport.h"

extern const struct hw_transport hw_netplugin;

/* Loads the plugin (a path or a name) into a child process, into env->state, and fills *tp with the transport, its
 * capabilities those of the plugin. As np_open(); -ENODEV, -EOPNOTSUPP where it is of no use here. */
int hw_netplugin_open(const char *plugin, struct hw_tp_env *env, struct hw_transport *tp);
void hw_netplugin_close(struct hw_tp_env *env); /* its connections are closed */

#endif
