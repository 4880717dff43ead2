/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a TCP connection has ended, by sock_diag. */
#ifndef HW_HELPER_DIAG_H
#define HW_HELPER_DIAG_H

#include "helper/kernel.h"

int hd_diag_open(void); /* a descriptor for looks */
/* 1: packets of these ends that arrive at NIC ifindex find this very socket, and a process has it open; 0: they do not;
 * -errno. */
int hd_diag_alive(int fd, int ifindex, const struct hd_conn *c);

#endif
