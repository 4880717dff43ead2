/* SPDX-License-Identifier: Apache-2.0 */
/* The NIXL backend's messages: the connection information, which NIXL's metadata carries, and libhawser notifications,
 * each with a piece of a NIXL notification. Only hx_list_addresses() makes system calls. The code is in C so that the
 * fuzz targets can use it. */
#ifndef HX_BLOB_H
#define HX_BLOB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HX_ADDRS    16 /* maximum number of addresses in the connection information */
#define HX_KEY      32
#define HX_INFO     368         /* bytes of the connection information */
#define HX_NAME_MAX 1024        /* maximum size of an agent's name in bytes */
#define HX_NOTE_MAX (256 << 20) /* maximum size of a NIXL notification in bytes */
#define HX_NOTE     32          /* bytes of a piece before the name */

struct hx_addr {
    uint8_t family; /* 4 or 6; 0 if unused */
    uint8_t ip[16];
    uint16_t port; /* 0 means the port of hx_info */
};

struct hx_info {
    uint16_t port;
    uint64_t host;    /* ID of the kernel and network namespace */
    uint64_t process; /* ID of the engine on that host */
    uint8_t key[HX_KEY];
    struct hx_addr addr[HX_ADDRS];
};

/* A piece of a notification: bytes [offset, offset + len) of total. */
struct hx_note {
    uint64_t id; /* unique among the notifications of its sender */
    uint32_t total, offset;
    const char *name; /* name of the sending agent; not NUL-terminated */
    uint32_t name_len;
    const uint8_t *data;
    uint32_t len;
};

/* Lists the addresses at which other nodes reach this node: the addresses in knob `advertise` if it is not empty, else
 * those of the NICs. If `nics` (comma-separated) is not empty, only these NICs count. Fails with -EINVAL if `advertise`
 * is invalid (address.c). */
int hx_list_addresses(const char *advertise, const char *nics, struct hx_addr out[HX_ADDRS]);

void hx_info_encode(uint8_t out[HX_INFO], const struct hx_info *info);
/* -EPROTO if malformed or of another version */
int hx_info_decode(const uint8_t *in, size_t len, struct hx_info *info);
/* Writes a piece without its data, HX_NOTE + name_len bytes. The caller appends the data. */
void hx_note_encode(uint8_t *out, const struct hx_note *note);
/* Parses a piece. name and data point into in. Fails with -EPROTO if the piece is malformed or of another version. */
int hx_note_decode(const uint8_t *in, size_t len, struct hx_note *note);

#ifdef __cplusplus
}
#endif
#endif
