/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport netplugin: runs any libnccl-net-*.so in child processes (host/pool.h). Headers and small payloads use a
 * socket as in transport tcp. Large payloads use the plugin, as a stream of messages. A message consists of a u32
 * magic, a u32 payload length, zeros up to NP_ROOM bytes, and the payload.
 */
#ifndef HW_NETPLUGIN_H
#define HW_NETPLUGIN_H

#include "transport/transport.h"

extern const struct hw_transport hw_netplugin;

#endif
