/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport devmem uses the kernel's devmem TCP (Linux 6.12 and later to receive, 6.16 to send). Headers and small
 * payloads use a socket as in transport tcp. Large payloads use a second socket, and the receiving NIC places them in
 * device memory. They are also sent from device memory if the kernel and the driver support this. If the receiver of a
 * direction cannot use device memory, everything in this direction is sent on the first socket.
 */
#ifndef HW_DEVMEM_H
#define HW_DEVMEM_H

#include "transport/transport.h"

extern const struct hw_transport hw_devmem;

#endif
