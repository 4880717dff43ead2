/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport devmem, the kernel's devmem TCP (Linux 6.12 and later to receive, 6.16 to send): heads and small payloads
 * by a socket as transport tcp has it, large payloads by a second one, from and into device memory. Where a direction
 * cannot be so, all of it goes by the first.
 */
#ifndef HW_DEVMEM_H
#define HW_DEVMEM_H

#include "transport/transport.h"

extern const struct hw_transport hw_devmem;

#endif
