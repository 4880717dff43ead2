/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devmem connections under a rail: heads and small payloads by a socket as transport tcp has it, large payloads by a
 * second one, from and into device memory. Where a direction cannot be so, all of it goes by the first.
 */
#ifndef HW_DEVMEM_CONN_H
#define HW_DEVMEM_CONN_H

#include "transport/carrier.h"

extern const struct hw_carrier hw_devmem_carrier; /* env->state is of hw_devmem_open() */

#endif
