/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport netplugin: any libnccl-net-*.so, in a child process (host/host.h). Heads and small payloads use a socket as
 * in transport tcp; large payloads use the plugin, as a stream of messages: u32 magic, u32 bytes, zeros up to NP_ROOM
 * bytes, then that many bytes of payload.
 */
#ifndef HW_NETPLUGIN_H
#define HW_NETPLUGIN_H

#include "transport/transport.h"

extern const struct hw_transport hw_netplugin;

#endif
