/* SPDX-License-Identifier: Apache-2.0 */
/* Tells whether two processes are on one machine, as sockets see it. For C++ too. */
#ifndef HW_HOST_H
#define HW_HOST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a number for this kernel and network namespace: two processes with the same number reach each other over
 * loopback. Random, so that it matches no other process, if the kernel does not provide the facts. */
uint64_t hw_host_id(void);

#ifdef __cplusplus
}
#endif
#endif
