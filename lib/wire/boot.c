/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wire.h"

#include <sodium.h>

int hw_crypto_init(void)
{
    if (sodium_init() < 0)
        return hw_fail(-EIO, "libsodium found no source of random numbers");
    return 0;
}

void hw_random(void *out, size_t len)
{
    randombytes_buf(out, len);
}

static void encode_boot_head(uint8_t *out, size_t size, uint8_t b6, bool keyed)
{
    memset(out, 0, size);
    hw_put32(out, HW_WIRE_MAGIC);
    hw_put16(out + 4, HW_WIRE_VERSION);
    out[6] = b6;
    out[7] = keyed;
}

static int decode_boot_head(const uint8_t *in, const char *what)
{
    if (hw_get32(in) != HW_WIRE_MAGIC)
        return hw_fail(-EPROTO, "%s does not begin with hawser's magic number", what);
    if (in[7] > 1)
        return hw_fail(-EPROTO, "%s has unknown flags 0x%02x", what, in[7]);
    return 0;
}

void hw_hello_encode(uint8_t out[HW_HELLO_SIZE], const struct hw_hello *h)
{
    encode_boot_head(out, HW_HELLO_SIZE, h->kind, h->keyed);
    hw_put64(out + 8, h->session);
    hw_put32(out + 16, h->channel);
    hw_put32(out + 20, h->gen);
    memcpy(out + 32, h->nonce, HW_NONCE);
}

int hw_hello_decode(const uint8_t in[HW_HELLO_SIZE], struct hw_hello *h)
{
    int rc = decode_boot_head(in, "a HELLO");
    if (rc)
        return rc;
    if (hw_get16(in + 4) != HW_WIRE_VERSION)
        return hw_fail(-EPROTONOSUPPORT,
                       "the peer uses protocol version %u, but this side uses version %u: upgrade the older hawser",
                       hw_get16(in + 4), HW_WIRE_VERSION);
    h->kind = in[6];
    h->keyed = in[7];
    h->session = hw_get64(in + 8);
    h->channel = hw_get32(in + 16);
    h->gen = hw_get32(in + 20);
    memcpy(h->nonce, in + 32, HW_NONCE);
    if (hw_get64(in + 24) != 0)
        return hw_fail(-EPROTO, "invalid HELLO: a reserved byte is not 0");
    if (h->kind < HW_BOOT_CONTROL || h->kind > HW_BOOT_PROBE)
        return hw_fail(-EPROTO, "invalid HELLO: unknown kind %u", h->kind);
    if ((h->kind == HW_BOOT_CONTROL) != (h->session == 0))
        return hw_fail(-EPROTO, "invalid HELLO: kind %u with session %016llx", h->kind, (unsigned long long)h->session);
    return 0;
}

int hw_hello_sniff(const uint8_t in[4])
{
    uint32_t magic = hw_get32(in);
    if (magic == HW_WIRE_MAGIC)
        return 0;
    if (__builtin_bswap32(magic) == HW_WIRE_MAGIC)
        return hw_fail(-EPROTO, "the peer has the opposite byte order");
    static const char *const http[] = {"GET ", "POST", "HEAD", "PUT ", "OPTI", "CONN", "PRI "};
    for (size_t i = 0; i < HW_ARRAY_LEN(http); i++)
        if (memcmp(in, http[i], 4) == 0)
            return hw_fail(-EPROTO, "received an HTTP request, not hawser's protocol");
    if (in[0] == 0x16 && in[1] == 0x03) /* RFC 8446, section 5.1: a handshake record with the legacy version */
        return hw_fail(-EPROTO, "received a TLS handshake, not hawser's protocol");
    if (memcmp(in, "SSH-", 4) == 0)
        return hw_fail(-EPROTO, "received an SSH greeting, not hawser's protocol");
    return hw_fail(-EPROTO, "not hawser's protocol: the first bytes are %02x %02x %02x %02x", in[0], in[1], in[2],
                   in[3]);
}

void hw_challenge_encode(uint8_t out[HW_CHALLENGE_SIZE], const struct hw_challenge *c)
{
    encode_boot_head(out, HW_CHALLENGE_SIZE, c->refusal, c->keyed);
    hw_put64(out + 8, c->session);
    memcpy(out + 32, c->nonce, HW_NONCE);
    memcpy(out + 64, c->proof, HW_PROOF_SIZE);
}

int hw_challenge_decode(const uint8_t in[HW_CHALLENGE_SIZE], struct hw_challenge *c)
{
    int rc = decode_boot_head(in, "the answer to this side's HELLO");
    if (rc)
        return rc;
    c->refusal = in[6];
    c->keyed = in[7];
    c->session = hw_get64(in + 8);
    memcpy(c->nonce, in + 32, HW_NONCE);
    memcpy(c->proof, in + 64, HW_PROOF_SIZE);
    if (hw_get16(in + 4) != HW_WIRE_VERSION)
        return hw_fail(-EPROTO,
                       "the peer uses protocol version %u, but this side uses version %u: upgrade the older hawser",
                       hw_get16(in + 4), HW_WIRE_VERSION);
    if (c->refusal >= HW_REFUSE_COUNT)
        return hw_fail(-EPROTO, "the peer refused the connection for unknown reason %u", c->refusal);
    return 0;
}

void hw_welcome_encode(uint8_t out[HW_WELCOME_SIZE], const struct hw_welcome *w)
{
    encode_boot_head(out, HW_WELCOME_SIZE, w->refusal, false);
    hw_put16(out + 8, w->via);
}

int hw_welcome_decode(const uint8_t in[HW_WELCOME_SIZE], struct hw_welcome *w)
{
    int rc = decode_boot_head(in, "the peer's WELCOME");
    if (rc)
        return rc;
    w->refusal = in[6];
    w->via = hw_get16(in + 8);
    if (w->refusal >= HW_REFUSE_COUNT)
        return hw_fail(-EPROTO, "the peer refused the connection for unknown reason %u", w->refusal);
    return 0;
}

static void keyed_hash(uint8_t out[32], const char *label, const uint8_t key[HW_SECRET], const uint8_t *hello,
                       const uint8_t *challenge, size_t challenge_len)
{
    crypto_generichash_state st;
    crypto_generichash_init(&st, key, HW_SECRET, 32);
    crypto_generichash_update(&st, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&st, hello, HW_HELLO_SIZE);
    crypto_generichash_update(&st, challenge, challenge_len);
    crypto_generichash_final(&st, out, 32);
}

void hw_boot_prove_server(uint8_t out[HW_PROOF_SIZE], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                          const uint8_t challenge[HW_CHALLENGE_SIZE])
{
    /* without the proof field, which the caller fills in next */
    keyed_hash(out, "hawser 1 server", key, hello, challenge, HW_CHALLENGE_SIZE - HW_PROOF_SIZE);
}

void hw_boot_prove_client(uint8_t out[HW_PROOF_SIZE], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                          const uint8_t challenge[HW_CHALLENGE_SIZE])
{
    keyed_hash(out, "hawser 1 client", key, hello, challenge, HW_CHALLENGE_SIZE);
}

void hw_boot_secret(uint8_t out[HW_SECRET], const uint8_t key[HW_SECRET], const uint8_t hello[HW_HELLO_SIZE],
                    const uint8_t challenge[HW_CHALLENGE_SIZE])
{
    keyed_hash(out, "hawser 1 session", key, hello, challenge, HW_CHALLENGE_SIZE);
}

bool hw_boot_same(const uint8_t a[HW_PROOF_SIZE], const uint8_t b[HW_PROOF_SIZE])
{
    return crypto_verify_32(a, b) == 0;
}

void hw_boot_key(uint8_t out[HW_SECRET], const void *job_key, size_t len)
{
    static const uint8_t label[] = "hawser 1 job key";
    if (len == 0) {
        memset(out, 0, HW_SECRET);
        return;
    }
    crypto_generichash(out, HW_SECRET, job_key, len, label, sizeof(label));
}

const char *hw_refusal_text(unsigned refusal)
{
    static const char *const text[HW_REFUSE_COUNT] = {
        [HW_OK] = "accepted",
        [HW_REFUSE_VERSION] = "the server speaks another protocol version: upgrade the older hawser",
        [HW_REFUSE_KEY_NEEDED] = "the server requires a job key, but the client gave none (--key-file)",
        [HW_REFUSE_KEY_UNWANTED] = "the server has no job key, but the client gave one",
        [HW_REFUSE_ADDRESS] = "without a job key, only loopback and lab addresses (198.18.0.0/15) are served",
        [HW_REFUSE_FULL] = "the server has as many peers as it allows (knob max_peers)",
        [HW_REFUSE_SESSION] = "the server does not know the session, or no longer does",
        [HW_REFUSE_PROOF] = "the client's proof of its key is wrong",
        [HW_REFUSE_STALE] = "the connection is out of date",
        [HW_REFUSE_FAILED] = "the server cannot set up the session; its log has the reason",
    };
    return refusal < HW_REFUSE_COUNT ? text[refusal] : "unknown reason";
}
