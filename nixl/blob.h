/* SPDX-License-Identifier: Apache-2.0 */
/* The NIXL backend's messages: the connection information, which NIXL's metadata carries, and libhawser notifications,
 * each with a piece of a NIXL notification. Pure functions except hx_list_addresses(). In C, so that fuzz/ can use
 * them. */
#ifndef HX_BLOB_H
#define HX_BLOB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_ADDRS    16 /* addresses in the connection information */
#define HX_KEY      32
#define HX_INFO     368         /* bytes of the connection information */
#define HX_NAME_MAX 1024        /* bytes of an agent's name */
#define HX_NOTE_MAX (256 << 20) /* most bytes of a NIXL notification */
#define HX_NOTE     32          /* bytes before the name in a piece */

struct hx_addr {
    uint8_t family; /* 4 or 6; 0: no address */
    uint8_t ip[16];
    uint16_t port; /* 0: the port of hx_info */
};

struct hx_info {
    uint16_t port;
    uint64_t host;    /* identifies kernel and network namespace */
    uint64_t process; /* identifies the engine there */
    uint8_t key[HX_KEY];
    struct hx_addr addr[HX_ADDRS];
};

/* A piece of a notification: bytes [offset, offset + len) of total. */
struct hx_note {
    uint64_t id; /* unique among the notifications of its sender */
    uint32_t total, offset;
    const char *name; /* of the sending agent; not terminated */
    uint32_t name_len;
    const uint8_t *data;
    uint32_t len;
};

/* Lists the addresses by which others reach this node: those of knob `advertise` if it is not empty, else those of the
 * NICs, limited to `nics` (comma-separated) if that is not empty. -EINVAL (address.c). */
int hx_list_addresses(const char *advertise, const char *nics, struct hx_addr out[HX_ADDRS]);

void hx_info_encode(uint8_t out[HX_INFO], const struct hx_info *info);
int hx_info_decode(const uint8_t *in, size_t len, struct hx_info *info); /* -EPROTO */
/* Writes a piece without its data, HX_NOTE + name_len bytes; the data follows. */
void hx_note_encode(uint8_t *out, const struct hx_note *note);
/* Reads a piece; name and data point into in. -EPROTO */
int hx_note_decode(const uint8_t *in, size_t len, struct hx_note *note);

#ifdef __cplusplus
}
#endif
#endif
