/* SPDX-License-Identifier: Apache-2.0 */
/* Determines whether two processes are on the same machine from the point of view of sockets. Also usable from C++. */
#ifndef HW_HOST_H
#define HW_HOST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a number for this kernel and network namespace. Two processes with the same number reach each other over
 * loopback. If the kernel does not provide the necessary information, the number is random and matches no other
 * process. */
uint64_t hw_host_id(void);

#ifdef __cplusplus
}
#endif
#endif
