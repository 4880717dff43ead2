/* SPDX-License-Identifier: Apache-2.0 */
/* A handle is the part of a server's SETUP that a client uses to reach the server over one NIC. Every transport
 * connects by TCP first, so a handle is an address: u8 family (4 or 6), u8 reserved, u16 port, 16 bytes of address. */
#ifndef HW_HANDLE_H
#define HW_HANDLE_H

#include "net/nic.h"
#include "wire/wire.h"

/* Encodes an address and port as a handle. Returns the size of the handle. */
uint16_t hw_address_handle_encode(uint8_t handle[HW_HANDLE_MAX], const union hw_addr *a, uint16_t port);
/* Decodes the address in a handle. Fails with -EPROTO. */
int hw_address_handle_decode(const uint8_t *handle, size_t len, union hw_addr *out);

#endif
