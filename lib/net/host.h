/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two processes are on one machine, as far as sockets see it. For C++ too. */
#ifndef HW_HOST_H
#define HW_HOST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A number for this kernel and network namespace: two processes that have it in common reach each other by the
 * loopback. Where the kernel does not say, it is a random one, like no other. */
uint64_t hw_host_id(void);

#ifdef __cplusplus
}
#endif
#endif
