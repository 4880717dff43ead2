/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/handle.h"

#define HANDLE_SIZE 20

uint16_t hw_address_handle_encode(uint8_t handle[HW_HANDLE_MAX], const union hw_addr *a, uint16_t port)
{
    memset(handle, 0, HANDLE_SIZE);
    hw_put16(handle + 2, port);
    if (a->sa.sa_family == AF_INET) {
        handle[0] = 4;
        memcpy(handle + 4, &a->in.sin_addr, 4);
    } else {
        handle[0] = 6;
        memcpy(handle + 4, &a->in6.sin6_addr, 16);
    }
    return HANDLE_SIZE;
}

int hw_address_handle_decode(const uint8_t *handle, size_t len, union hw_addr *out)
{
    memset(out, 0, sizeof(*out));
    if (len != HANDLE_SIZE || (handle[0] != 4 && handle[0] != 6) || handle[1] != 0 || hw_get16(handle + 2) == 0)
        return hw_fail(-EPROTO, "the peer's SETUP contains an invalid address handle");
    if (handle[0] == 4) {
        out->in.sin_family = AF_INET;
        memcpy(&out->in.sin_addr, handle + 4, 4);
    } else {
        out->in6.sin6_family = AF_INET6;
        memcpy(&out->in6.sin6_addr, handle + 4, 16);
    }
    hw_addr_set_port(out, hw_get16(handle + 2));
    return 0;
}
