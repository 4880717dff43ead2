/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections over a plugin under a rail: heads and small payloads by a socket as transport tcp has it, large payloads
 * by the plugin, as a stream of messages: u32 magic, u32 bytes, zeros to NP_ROOM bytes, and so many bytes of payload.
 */
#ifndef HW_NETPLUGIN_CARRIER_H
#define HW_NETPLUGIN_CARRIER_H

#include "transport/carrier.h"

extern const struct hw_carrier hw_netplugin_carrier; /* env->state is of hw_netplugin_open() */

#endif
