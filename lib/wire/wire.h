/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding and decoding of the library's messages on the network, and the proofs and secrets of the bootstrap. The
 * decoders trust no input. Integers are little-endian. docs/wire.md shows the messages.
 */
#ifndef HW_WIRE_H
#define HW_WIRE_H

#include "base/base.h"

#include <endian.h>
#include <string.h>

/* ---- little-endian access ------------------------------------------------------------------- */

/* memcpy() compiles to one instruction, which does not always hold for an expression of single bytes. */
static inline void hw_put16(uint8_t *p, uint16_t v)
{
    v = htole16(v);
    memcpy(p, &v, sizeof v);
}

static inline void hw_put32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof v);
}

static inline void hw_put64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof v);
}

static inline uint16_t hw_get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return le16toh(v);
}

static inline uint32_t hw_get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static inline uint64_t hw_get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

/* ---- bootstrap: the first messages of every connection --------------------------------------- */
/*
 *   client -> server  HELLO      identity, purpose, a nonce
 *   server -> client  CHALLENGE  a nonce, and the proof that the server holds the key
 *   client -> server  PROOF      the proof that the client holds the key
 *   server -> client  WELCOME    accepted, or refused
 *
 * For a new session, the key is the hash of the job key, or all zeros without a job key. For every later connection,
 * the key is the session's secret. Both proofs cover HELLO and CHALLENGE (the server's proof does not cover itself),
 * with different labels, which prevents replay and reflection.
 */
#define HW_WIRE_MAGIC     0x52535748u /* "HWSR" */
#define HW_WIRE_VERSION   2
#define HW_NONCE          32
#define HW_SECRET         32
#define HW_HELLO_SIZE     64
#define HW_CHALLENGE_SIZE 96
#define HW_PROOF_SIZE     32
#define HW_WELCOME_SIZE   16

enum hw_boot_kind {
    HW_BOOT_CONTROL = 1, /* first connection of a new session */
    HW_BOOT_DATA = 2,    /* link of a rail */
    HW_BOOT_SIDE = 3,    /* second connection of a link, for transports that need one */
    HW_BOOT_PROBE = 4    /* tests whether a path leads to the session's server; ends with WELCOME */
};

enum hw_refusal {
    HW_OK = 0,
    HW_REFUSE_VERSION,      /* the sides have different versions of the protocol */
    HW_REFUSE_KEY_NEEDED,   /* the server has a key and the client has none */
    HW_REFUSE_KEY_UNWANTED, /* the client has a key and the server has none */
    HW_REFUSE_ADDRESS,      /* no key is set, and the address is neither a loopback nor a lab address */
    HW_REFUSE_FULL,         /* the limit max_peers is reached */
    HW_REFUSE_SESSION,      /* the server does not know the session */
    HW_REFUSE_PROOF,        /* the key is wrong */
    HW_REFUSE_STALE,        /* the connection belongs to an outdated generation of a rail, or is not expected */
    HW_REFUSE_FAILED,       /* the server cannot set up the session; its log contains the reason */
    HW_REFUSE_COUNT
};

struct hw_hello {
    uint8_t kind;     /* enum hw_boot_kind */
    bool keyed;       /* the client uses a job key */
    uint64_t session; /* 0 for a new session */
    uint32_t channel, gen;
    uint8_t nonce[HW_NONCE];
};

struct hw_challenge {
    uint8_t refusal; /* enum hw_refusal */
    bool keyed;
    uint64_t session;
    uint8_t nonce[HW_NONCE];
    uint8_t proof[HW_PROOF_SIZE];
};

struct hw_welcome {
    uint8_t refusal;
    uint16_t via; /* PROBE: 1 + index of the server's SETUP entry that the probe reached, or 0 if none */
};

/* The decoders of these messages return 0, or -EPROTO with the reason. hw_hello_decode() returns -EPROTONOSUPPORT for
 * another version. */
void hw_hello_encode(uint8_t out[HW_HELLO_SIZE], const struct hw_hello *h);
int hw_hello_decode(const uint8_t in[HW_HELLO_SIZE], struct hw_hello *h);
/* Checks the first 4 bytes of a connection. Returns 0 if a HELLO begins with these bytes, or else -EPROTO; if another
 * protocol is recognized, the error text names it. */
int hw_hello_sniff(const uint8_t in[4]);
/* Encodes c. The server then writes its proof (hw_boot_prove_server()) to the end of out. */
void hw_challenge_encode(uint8_t out[HW_CHALLENGE_SIZE], const struct hw_challenge *c);
int hw_challenge_decode(const uint8_t in[HW_CHALLENGE_SIZE], struct hw_challenge *c);
void hw_welcome_encode(uint8_t out[HW_WELCOME_SIZE], const struct hw_welcome *w);
int hw_welcome_decode(const uint8_t in[HW_WELCOME_SIZE], struct hw_welcome *w);

/* Compute the proofs: BLAKE2b keyed with key over a label, HELLO and CHALLENGE (libsodium's crypto_generichash). */
void hw_boot_prove_server(uint8_t out[HW_PROOF_SIZE], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                          const uint8_t challenge[HW_CHALLENGE_SIZE]);
void hw_boot_prove_client(uint8_t out[HW_PROOF_SIZE], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                          const uint8_t challenge[HW_CHALLENGE_SIZE]);
/* Derives the secret of the session that this HELLO and CHALLENGE start. */
void hw_boot_secret(uint8_t out[HW_SECRET], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                    const uint8_t challenge[HW_CHALLENGE_SIZE]);
/* Compares two proofs in constant time. */
bool hw_boot_same(const uint8_t a[HW_PROOF_SIZE], const uint8_t b[HW_PROOF_SIZE]);
/* Hashes a job key of any length to the fixed size. Without a key (len 0), the result is all zeros. */
void hw_boot_key(uint8_t out[HW_SECRET], const void *job_key, size_t len);
/* Fills out with unpredictable bytes. */
void hw_random(void *out, size_t len);
/* Initializes libsodium if necessary. Fails with -EIO. */
int hw_crypto_init(void);
const char *hw_refusal_text(unsigned refusal);

/* ---- SETUP: exchanged by the two sides of a new session over its first connection ---------------- */

/* A SETUP consists of u16 n, u16 via, n entries, and items {u16 type, u16 size, bytes}. A receiver skips items of
 * unknown types, so that later builds can add items. */
#define HW_HANDLE_MAX 128
#define HW_SETUP_MAX  256 /* maximum number of entries */
#define HW_SETUP_HEAD 4
#define HW_READY      0x59444152u /* the bytes "RADY": the client may now connect the session's rails */

struct hw_setup_entry {
    char nic[HAWSER_NIC_NAME]; /* the sender's NIC, NUL-padded */
    uint16_t handle_index; /* index of an entry of the server's SETUP: from the server, of this entry; from the client,
                              of the entry that the rail leads to */
    uint16_t handle_len;
    uint8_t handle[HW_HANDLE_MAX]; /* from the server: address of the NIC; from the client: name of the server's NIC */
};

struct hw_setup {
    uint16_t n;
    uint16_t via; /* from the server: 1 + index of the entry that the first connection reached, or 0 if none */
};

/* Maximum size of an entry in bytes. */
#define HW_SETUP_ENTRY_MAX (HAWSER_NIC_NAME + 4 + HW_HANDLE_MAX)
/* Encodes the header of a SETUP. */
void hw_setup_head(uint8_t out[HW_SETUP_HEAD], const struct hw_setup *s);
/* Encodes an entry. Returns its size, which is at most HW_SETUP_ENTRY_MAX. */
size_t hw_setup_entry_encode(uint8_t *out, const struct hw_setup_entry *e);
/* Decodes the header of a SETUP. Fails with -EPROTO. */
int hw_setup_decode(const uint8_t *body, size_t len, struct hw_setup *s);

#define HW_TRANSPORT_TEXT 96                          /* maximum size of a transport's name, including the final NUL */
#define HW_SETUP_ITEM_MAX (4 + HW_TRANSPORT_TEXT + 8) /* maximum size of all items together */
/* Encodes an item with the transport of the chunks, such as "tcp", "devmem" or "netplugin Plain". Returns the item's
 * size. */
size_t hw_setup_transport_encode(uint8_t *out, const char *text);
/* Searches a whole body for the transport. text becomes "" if there is no such item. Fails with -EPROTO. */
int hw_setup_transport_decode(const uint8_t *body, size_t len, char text[HW_TRANSPORT_TEXT]);
/* Encodes an item with the range of versions that the sender supports. In a client's choice of rails, both ends of the
 * range are equal. Returns the item's size. */
size_t hw_setup_versions_encode(uint8_t *out, uint16_t least, uint16_t most);
/* Searches a whole body for the range of versions, which is 1 to 1 if there is no such item. Fails with -EPROTO. */
int hw_setup_versions_decode(const uint8_t *body, size_t len, uint16_t *least, uint16_t *most);
/* Reads the entry at *at and moves *at past the entry. Fails with -EPROTO. */
int hw_setup_entry_decode(const uint8_t *body, size_t len, size_t *at, struct hw_setup_entry *e);

/* ---- greeting of transport netplugin: sent by both sides on a link's connection after ASK ---- */

#define HW_PLUGIN_MAGIC      0x504e5748u /* "HWNP" */
#define HW_PLUGIN_VERSION    2
#define HW_PLUGIN_HANDLE     128
#define HW_PLUGIN_HEAD       8   /* magic, version and size of the greeting */
#define HW_PLUGIN_GREET      148 /* size of the greeting in this version */
#define HW_PLUGIN_GREET_MOST 512 /* maximum size in later versions, which only append members */
#define HW_GPU_MOST          4096

struct hw_plugin_greet {
    uint32_t longest;  /* longest message in bytes */
    int gpu, peer_gpu; /* GPU of the connection's memory at the sender and at the receiver, or -1 if not specified */
    uint32_t wait_ms;  /* known sleep of the sender's accept() in ms */
    uint8_t handle[HW_PLUGIN_HANDLE];
};

void hw_plugin_greet_encode(uint8_t out[HW_PLUGIN_GREET], const struct hw_plugin_greet *g);
/* Reads the first HW_PLUGIN_HEAD bytes. Returns the size of the greeting, from HW_PLUGIN_GREET to HW_PLUGIN_GREET_MOST.
 * Fails with -EPROTO. */
int hw_plugin_greet_size(const uint8_t head[HW_PLUGIN_HEAD]);
/* Decodes a greeting of len bytes. Fails with -EPROTO. */
int hw_plugin_greet_decode(const uint8_t *in, size_t len, struct hw_plugin_greet *g);

/* ---- the remote key of an exported region --------------------------------------------------------------- */

void hw_region_encode(uint8_t out[HAWSER_KEY_SIZE], const struct hawser_region *r);
int hw_region_decode(const uint8_t in[HAWSER_KEY_SIZE], struct hawser_region *r); /* fails with -EINVAL */

#endif
