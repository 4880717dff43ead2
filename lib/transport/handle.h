/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: what a server's SETUP says of a NIC, so that a client can reach the server over it. Every transport connects
 * by TCP first, so a handle is an address: family u8 (4 or 6), reserved u8, port u16, address 16. */
#ifndef HW_HANDLE_H
#define HW_HANDLE_H

#include "net/nic.h"
#include "wire/wire.h"

/* Writes the handle of this address at this port. Returns its size. */
uint16_t hw_address_handle_encode(uint8_t handle[HW_HANDLE_MAX], const union hw_addr *a, uint16_t port);
/* The address in a handle. -EPROTO. */
int hw_address_handle_decode(const uint8_t *handle, size_t len, union hw_addr *out);

#endif
