/* SPDX-License-Identifier: Apache-2.0 */
/* Is a TCP connection still that of the socket that it was? */
#ifndef HW_HELPER_DIAG_H
#define HW_HELPER_DIAG_H

#include "node/nic.h"

int hd_diag_open(void); /* a descriptor */
/* 1: there is a socket with these ends, and it is this one; 0: not any more; -errno. One that is bound to a device
 * (SO_BINDTODEVICE) is found by that device only: ifindex is the NIC that it would be. */
int hd_diag_alive(int fd, int ifindex, const union hw_addr *local, const union hw_addr *remote, uint64_t inode);

#endif
