/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HW_TCP_H
#define HW_TCP_H

#include "net/nic.h"

/* The address in a handle of the tcp transport; -EPROTO. */
int hw_tcp_handle_addr(const uint8_t *handle, size_t len, union hw_addr *out);

struct hw_conn;

/* From now on payloads, which are never empty, are sent without their headers: those travel elsewhere. */
void hw_tcp_bare(struct hw_conn *c);

#endif
