/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wire.h"

/* The remote key: magic, rights, id, secret, length, then zeros that are reserved for later transports. */
#define REGION_MAGIC 0x4b525748u /* "HWRK" */

void hw_region_encode(uint8_t out[HAWSER_KEY_SIZE], const struct hawser_region *r)
{
    memset(out, 0, HAWSER_KEY_SIZE);
    hw_put32(out, REGION_MAGIC);
    hw_put32(out + 4, r->rights);
    hw_put64(out + 8, r->id);
    hw_put64(out + 16, r->secret);
    hw_put64(out + 24, r->length);
}

int hw_region_decode(const uint8_t in[HAWSER_KEY_SIZE], struct hawser_region *r)
{
    static const uint8_t zero[HAWSER_KEY_SIZE - 32];
    if (hw_get32(in) != REGION_MAGIC || memcmp(in + 32, zero, sizeof(zero)) != 0)
        return hw_fail(-EINVAL, "these %d bytes are not a remote key made by hawser_export()", HAWSER_KEY_SIZE);
    *r = (struct hawser_region){
        .rights = hw_get32(in + 4), .id = hw_get64(in + 8), .secret = hw_get64(in + 16), .length = hw_get64(in + 24)};
    if (r->rights == 0 || r->rights & ~(HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE))
        return hw_fail(-EINVAL, "the remote key has invalid rights: 0x%x", r->rights);
    return 0;
}
