/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: the part of a server's SETUP by which a client reaches the server over one NIC. Every transport connects by
 * TCP first, so a handle is an address: family u8 (4 or 6), reserved u8, port u16, address 16. */
#ifndef HW_HANDLE_H
#define HW_HANDLE_H

#include "net/nic.h"
#include "wire/wire.h"

/* Encodes an address and port as a handle. Returns its size. */
uint16_t hw_address_handle_encode(uint8_t handle[HW_HANDLE_MAX], const union hw_addr *a, uint16_t port);
/* Decodes the address of a handle. -EPROTO. */
int hw_address_handle_decode(const uint8_t *handle, size_t len, union hw_addr *out);

#endif
