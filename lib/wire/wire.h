/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every byte that crosses the network as a message. Pure functions over byte ranges: they allocate nothing, touch no
 * descriptor and trust nothing. Integers are little-endian. docs/wire.md draws the messages.
 */
#ifndef HW_WIRE_H
#define HW_WIRE_H

#include "base/base.h"

#include <string.h>

/* ---- little-endian access ------------------------------------------------------------------- */

static inline void hw_put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void hw_put32(uint8_t *p, uint32_t v)
{
    hw_put16(p, (uint16_t)v);
    hw_put16(p + 2, (uint16_t)(v >> 16));
}

static inline void hw_put64(uint8_t *p, uint64_t v)
{
    hw_put32(p, (uint32_t)v);
    hw_put32(p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t hw_get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t hw_get32(const uint8_t *p)
{
    return (uint32_t)hw_get16(p) | (uint32_t)hw_get16(p + 2) << 16;
}

static inline uint64_t hw_get64(const uint8_t *p)
{
    return (uint64_t)hw_get32(p) | (uint64_t)hw_get32(p + 4) << 32;
}

/* ---- bootstrap: the first messages of every connection --------------------------------------- */
/*
 *   client -> server  HELLO      who I am and what for, a nonce
 *   server -> client  CHALLENGE  a nonce, and the proof that the server holds the key
 *   client -> server  PROOF      the proof that the client does
 *   server -> client  WELCOME    accepted (and, for a resumed control connection, where to go on), or refused
 *
 * The key is the job key's hash for a new session (all zero where there is none), the session's secret for every
 * later connection of it. Both proofs cover HELLO and CHALLENGE whole, with different labels, so that neither a
 * replay nor a reflection passes.
 */
#define HW_WIRE_MAGIC     0x52535748u /* "HWSR" */
#define HW_WIRE_VERSION   1
#define HW_NONCE          32
#define HW_SECRET         32
#define HW_HELLO_SIZE     64
#define HW_CHALLENGE_SIZE 96
#define HW_PROOF_SIZE     32
#define HW_WELCOME_SIZE   16

enum hw_boot_kind {
    HW_BOOT_CONTROL = 1, /* a new session's */
    HW_BOOT_DATA = 2,    /* a channel's */
    HW_BOOT_RESUME = 3,  /* a session's control connection, again */
    HW_BOOT_SIDE = 4,    /* a second one of a channel's, for transports that want it */
    HW_BOOT_PROBE = 5    /* does this path lead to the session's server? It ends with WELCOME */
};

enum hw_refusal {
    HW_OK = 0,
    HW_REFUSE_VERSION,      /* another version of the protocol */
    HW_REFUSE_KEY_NEEDED,   /* the server holds a key, the client none */
    HW_REFUSE_KEY_UNWANTED, /* the other way round */
    HW_REFUSE_ADDRESS,      /* no key, and the address is neither loopback nor a lab's */
    HW_REFUSE_FULL,         /* max_peers reached */
    HW_REFUSE_SESSION,      /* no such session here */
    HW_REFUSE_PROOF,        /* wrong key */
    HW_REFUSE_STALE,        /* an older generation of a channel, or one still in use */
    HW_REFUSE_COUNT
};

struct hw_hello {
    uint8_t kind;     /* enum hw_boot_kind */
    bool keyed;       /* a job key is in use */
    uint64_t session; /* 0 for a new one */
    uint32_t channel, gen;
    uint64_t rx_offset; /* RESUME: bytes of control stream the client has taken in */
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
    uint64_t rx_offset; /* RESUME: bytes of control stream the server has taken in */
};

/* Decoders return 0, or -EPROTO with the reason. hw_hello_decode gives -EPROTONOSUPPORT for another version. */
void hw_hello_encode(uint8_t out[HW_HELLO_SIZE], const struct hw_hello *h);
int hw_hello_decode(const uint8_t in[HW_HELLO_SIZE], struct hw_hello *h);
/* Looks at the first n (>= 4) bytes of a connection: 0 if they begin a HELLO, else -EPROTO with a guess at what it is.
 */
int hw_hello_sniff(const uint8_t *in, size_t n);
/* Encodes all but the proof, which hw_challenge_sign() adds. */
void hw_challenge_encode(uint8_t out[HW_CHALLENGE_SIZE], const struct hw_challenge *c);
int hw_challenge_decode(const uint8_t in[HW_CHALLENGE_SIZE], struct hw_challenge *c);
void hw_welcome_encode(uint8_t out[HW_WELCOME_SIZE], const struct hw_welcome *w);
int hw_welcome_decode(const uint8_t in[HW_WELCOME_SIZE], struct hw_welcome *w);

/* Proofs: BLAKE2b keyed with key over label, HELLO and CHALLENGE (libsodium's crypto_generichash). */
void hw_boot_prove_server(uint8_t out[HW_PROOF_SIZE], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                          const uint8_t challenge[HW_CHALLENGE_SIZE]);
void hw_boot_prove_client(uint8_t out[HW_PROOF_SIZE], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                          const uint8_t challenge[HW_CHALLENGE_SIZE]);
/* The secret of the session that this HELLO and CHALLENGE begin. */
void hw_boot_secret(uint8_t out[HW_SECRET], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                    const uint8_t challenge[HW_CHALLENGE_SIZE]);
/* Constant-time comparison. */
bool hw_boot_same(const uint8_t a[HW_PROOF_SIZE], const uint8_t b[HW_PROOF_SIZE]);
/* A job key of any length to the fixed size. */
void hw_boot_key(uint8_t out[HW_SECRET], const void *job_key, size_t len);
/* Unpredictable bytes. */
void hw_random(void *out, size_t len);
/* libsodium's once-only initialisation; -EIO where it fails. */
int hw_crypto_init(void);
const char *hw_refusal_text(unsigned refusal);

/* ---- control frames --------------------------------------------------------------------------- */

#define HW_FRAME_MAGIC 0x5748u
#define HW_FRAME_HEAD  16
#define HW_FRAME_MAX   (40ul * 1024) /* header and body */
#define HW_INLINE_MAX  (16 * 1024)

enum hw_frame_type {
    HW_F_SETUP = 1, /* first frame each way: limits, then handles (server) or channels (client) */
    HW_F_ACK,       /* id: control bytes taken in; body: u64 messages matched */
    HW_F_CONFIRM,   /* id: chunks received on the channel; body: u32 channel, u32 generation */
    HW_F_WRITE,     /* id: operation; body: u64 region, u64 secret, u64 offset, then the data */
    HW_F_SEND,      /* id: operation; body: the data */
    HW_F_RTS,       /* id: operation; body: u64 length; answered by CTS once a receive is posted */
    HW_F_CTS,       /* id: the operation of the RTS */
    HW_F_READ,      /* id: operation; flags HW_FF_MORE; body: n x {u64 region, u64 secret, u64 offset, u64 length} */
    HW_F_READ_DATA, /* id: the operation of the READ; body: u64 offset in it, then the data */
    HW_F_NOTIFY,    /* id: operation; body: the notification */
    HW_F_ERROR,     /* id: an operation of the receiver of this frame; body: u32 errno, then text */
    HW_F_CANCEL,    /* id: an operation of the sender of this frame (READ, RTS) that is off; body: u32 errno */
    HW_F_CHAN_DOWN, /* id: chunks received on the channel, the last word on it; body: u32 channel, u32 generation */
    HW_F_PING,      /* forces an ACK */
    HW_F_BYE,       /* orderly end; body empty */
    HW_F_MESSAGE,   /* id: operation; body: HW_STREAM_HEAD, then the data */
    HW_F_ANNOUNCE,  /* id: operation; body: HW_STREAM_HEAD, u64 length; answered by GRANT, unless one is on its way */
    HW_F_GRANT,     /* id: the receive; body: HW_STREAM_HEAD, u64 length of the receive */
    HW_F_OFF,       /* id: operation; body: HW_STREAM_HEAD with an errno: this message will not come */
    HW_F_REFUSE,    /* body: HW_STREAM_HEAD with an errno: the receive of this message is off */
    HW_F_POSTED,    /* body: HW_STREAM_HEAD, whose number is that of receives posted so far */
    HW_F_END,       /* body: HW_STREAM_HEAD: nothing more on this stream, either way */
    HW_F_COUNT
};

#define HW_FF_MORE 1u /* HW_F_READ: the list goes on in the next frame */

struct hw_frame {
    uint8_t type, flags;
    uint64_t id;
    const uint8_t *body;
    uint32_t body_len;
};

void hw_frame_head(uint8_t out[HW_FRAME_HEAD], uint8_t type, uint8_t flags, uint64_t id, uint32_t body_len);
/* Finds the frame at the start of in. Returns its whole size; 0 if more bytes are needed; -EPROTO. Checks the header
 * and that the body's length is possible for the type; a body's fields are read by the functions below. */
int64_t hw_frame_parse(const uint8_t *in, size_t n, struct hw_frame *f);

#define HW_WRITE_HEAD 24 /* of HW_F_WRITE's body */

/* In front of the bodies that concern a stream: u32 stream, u32 errno (OFF, REFUSE; else 0), u64 number of the message
 * in the stream, from 0 on (END: 0). */
#define HW_STREAM_HEAD 16
/* What a message or OFF that waits for its receive counts for, besides its bytes. */
#define HW_MESSAGE_COST 256
#define HW_READ_ENTRY   32

/* SETUP's body: u32 unexpected, u32 max_ops, u16 n, then n entries, then items {u16 type, u16 size, bytes}: who does
 * not know a type passes over it, and older versions send none. */
#define HW_HANDLE_MAX 128
#define HW_SETUP_MAX  256 /* entries */
#define HW_SETUP_HEAD 12

struct hw_setup_entry {
    char nic[HAWSER_NIC_NAME]; /* the sender's NIC, NUL-padded */
    uint16_t handle_index;     /* from the client: the server's handle that the channel goes to */
    uint16_t handle_len;       /* from the server */
    uint8_t handle[HW_HANDLE_MAX];
};

struct hw_setup {
    uint32_t unexpected, max_ops;
    uint16_t n;
    uint16_t via; /* from the server: 1 + the entry that the control connection came in by; 0: none of them */
};

/* Appends entry e at out (room HW_SETUP_ENTRY_MAX). Returns its size. */
#define HW_SETUP_ENTRY_MAX (HAWSER_NIC_NAME + 4 + HW_HANDLE_MAX)
void hw_setup_head(uint8_t out[HW_SETUP_HEAD], const struct hw_setup *s);
size_t hw_setup_entry_encode(uint8_t *out, const struct hw_setup_entry *e);
/* -EPROTO. */
int hw_setup_decode(const uint8_t *body, size_t len, struct hw_setup *s);
/* What carries chunks: "tcp", "devmem", "netplugin Plain". */
#define HW_TRANSPORT_TEXT 96                          /* with its NUL */
#define HW_SETUP_ITEM_MAX (4 + HW_TRANSPORT_TEXT + 8) /* of all items */
size_t hw_setup_transport_encode(uint8_t *out, const char *text);
/* Of a whole body: text is "" where it is not said. -EPROTO. */
int hw_setup_transport_decode(const uint8_t *body, size_t len, char text[HW_TRANSPORT_TEXT]);
/* The versions that its sender speaks; the client's choice has one. */
size_t hw_setup_versions_encode(uint8_t *out, uint16_t least, uint16_t most);
/* Of a whole body: 1 and 1 where it is not said. -EPROTO. */
int hw_setup_versions_decode(const uint8_t *body, size_t len, uint16_t *least, uint16_t *most);
/* Reads the entry at *at and moves *at past it. -EPROTO. */
int hw_setup_entry_decode(const uint8_t *body, size_t len, size_t *at, struct hw_setup_entry *e);

/* ---- the netplugin transport's greeting: the first bytes each way on a channel's connection ----- */

#define HW_PLUGIN_MAGIC      0x504e5748u /* "HWNP" */
#define HW_PLUGIN_VERSION    2
#define HW_PLUGIN_HANDLE     128
#define HW_PLUGIN_HEAD       8   /* magic, version, size: how much there is to read */
#define HW_PLUGIN_GREET      148 /* of this version */
#define HW_PLUGIN_GREET_MOST 512 /* of later ones, which only add to its end */
#define HW_GPU_MOST          4096

struct hw_plugin_greet {
    uint32_t longest;  /* message, bytes */
    int gpu, peer_gpu; /* whose memory the connection carries: the sender's, the receiver's; -1: not said */
    uint32_t wait_ms;  /* what the sender's accept() is known to sleep */
    uint8_t handle[HW_PLUGIN_HANDLE];
};

void hw_plugin_greet_encode(uint8_t out[HW_PLUGIN_GREET], const struct hw_plugin_greet *g);
/* Of the first HW_PLUGIN_HEAD bytes: the size of the whole, HW_PLUGIN_GREET to HW_PLUGIN_GREET_MOST, or -EPROTO. */
int hw_plugin_greet_size(const uint8_t head[HW_PLUGIN_HEAD]);
/* Of so many bytes. -EPROTO. */
int hw_plugin_greet_decode(const uint8_t *in, size_t len, struct hw_plugin_greet *g);

/* ---- chunks: the header in front of each payload on a data connection --------------------------- */

#define HW_CHUNK_MAGIC 0x4b435748u /* "HWCK" */
#define HW_CHUNK_HEAD  56
#define HW_CHUNK_MAX   (64u << 20)

enum hw_chunk_type { HW_C_WRITE = 1, HW_C_SEND = 2, HW_C_READ = 3, HW_C_STREAM = 4, HW_C_EAGER = 5, HW_C_COUNT };

struct hw_chunk_head {
    uint8_t type;
    uint32_t len;
    uint64_t op;     /* WRITE, SEND, EAGER: the sender's operation; READ, STREAM: the receiver's */
    uint64_t seq;    /* 1, 2, .. on this connection */
    uint64_t region; /* WRITE; STREAM: length of the message; EAGER: the stream */
    uint64_t secret; /* WRITE; STREAM: the sender's operation; EAGER: number of the message */
    uint64_t offset; /* WRITE: in the region; else in the operation */
};

void hw_chunk_encode(uint8_t out[HW_CHUNK_HEAD], const struct hw_chunk_head *c);
int hw_chunk_decode(const uint8_t in[HW_CHUNK_HEAD], struct hw_chunk_head *c); /* -EPROTO */

/* ---- the key of an exported region --------------------------------------------------------------- */

void hw_region_encode(uint8_t out[HAWSER_KEY_SIZE], const struct hawser_region *r);
int hw_region_decode(const uint8_t in[HAWSER_KEY_SIZE], struct hawser_region *r); /* -EINVAL */

#endif
