/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap handshake (wire.h) as a state machine on a nonblocking socket. Its whole state is one struct of fixed
 * size, so a server allocates nothing else for a connection before the client has proved that it has the key. */
#include "transport/tcp/sock.h"

#include <string.h>
#include <sys/socket.h>

enum { C_CONNECT, C_CHALLENGE, C_WELCOME, S_HELLO, S_PROOF, DONE };

static void enter_stage(struct hw_hs *hs, uint8_t stage, uint32_t want)
{
    hs->stage = stage;
    hs->have = 0;
    hs->want = want;
    hs->deadline = hw_now() + hs->step_ms * HW_MS;
}

void hw_hs_client(struct hw_hs *hs, const struct hw_hello *hello, const uint8_t key[HW_SECRET], uint64_t step_ms)
{
    memset(hs, 0, sizeof(*hs));
    hs->client = true;
    hs->step_ms = step_ms;
    hs->hello = *hello;
    hw_random(hs->hello.nonce, HW_NONCE);
    memcpy(hs->key, key, HW_SECRET);
    enter_stage(hs, C_CONNECT, 0);
}

void hw_hs_server(struct hw_hs *hs, bool keyed,
                  unsigned (*admit)(void *, const struct hw_hello *, struct hw_challenge *, uint8_t[HW_SECRET]),
                  void *arg, uint64_t step_ms)
{
    memset(hs, 0, sizeof(*hs));
    hs->step_ms = step_ms;
    hs->challenge.keyed = keyed;
    hs->admit = admit;
    hs->admit_arg = arg;
    enter_stage(hs, S_HELLO, HW_HELLO_SIZE);
}

/* Sends a message, which fits into the empty send buffer of a new connection. */
static int send_bytes(int fd, const void *p, size_t n)
{
    ssize_t r;
    do {
        r = send(fd, p, n, MSG_NOSIGNAL);
    } while (r < 0 && errno == EINTR);
    if (r < 0) /* not -EAGAIN, which would make callers wait */
        return hw_fail(errno == EAGAIN ? -ENOBUFS : -errno, "sending a bootstrap message: %s", strerror(errno));
    if ((size_t)r != n)
        return hw_fail(-EIO, "a bootstrap message did not fit into an empty send buffer");
    return 0;
}

/* Reads up to hs->want bytes without waiting. Returns 0 once all of them have arrived, -EAGAIN until then, or another
 * negative errno. Never reads more, because the following bytes belong to the user of the connection. */
static int receive_bytes(struct hw_hs *hs, int fd)
{
    while (hs->have < hs->want) {
        ssize_t r = recv(fd, hs->in + hs->have, hs->want - hs->have, MSG_DONTWAIT);
        if ((r == 0 || (r < 0 && errno == ECONNRESET)) && hs->stage == S_PROOF &&
            hs->have == 0) /* the client checks the server's proof first, and closes the connection without a message if
                              the proof is wrong */
            return hw_fail(
                -EACCES, hs->hello.kind == HW_BOOT_CONTROL && hs->hello.keyed
                             ? "the client closed the connection without proving that it has the job key: it probably "
                               "has a different key"
                             : "the client closed the connection during the handshake");
        if (r == 0)
            return hw_fail(-ECONNRESET, "the peer closed the connection after %u of %u bytes of a bootstrap message",
                           hs->have, hs->want);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno == EAGAIN) {
            if (hw_now() >= hs->deadline)
                return hw_fail(-ETIMEDOUT, "the peer sent only %u of %u bytes of a bootstrap message within %llu ms",
                               hs->have, hs->want, (unsigned long long)hs->step_ms);
            return -EAGAIN;
        }
        if (r < 0)
            return hw_fail(-errno, "receiving a bootstrap message: %s", strerror(errno));
        hs->have += (uint32_t)r;
        if (hs->stage == S_HELLO && hs->have >= 4) {
            int rc = hw_hello_sniff(hs->in);
            if (rc)
                return rc; /* the first four bytes identify clients that use another protocol */
        }
    }
    return 0;
}

static int report_refusal(unsigned refusal)
{
    static const int code[HW_REFUSE_COUNT] = {
        [HW_REFUSE_VERSION] = -EPROTO, [HW_REFUSE_KEY_NEEDED] = -EACCES, [HW_REFUSE_KEY_UNWANTED] = -EACCES,
        [HW_REFUSE_ADDRESS] = -EPERM,  [HW_REFUSE_FULL] = -ECONNREFUSED, [HW_REFUSE_SESSION] = -ECONNRESET,
        [HW_REFUSE_PROOF] = -EACCES,   [HW_REFUSE_STALE] = -EBUSY,       [HW_REFUSE_FAILED] = -ECONNREFUSED,
    };
    return hw_fail(code[refusal], "the peer refused the connection: %s", hw_refusal_text(refusal));
}

static int client_challenge(struct hw_hs *hs, int fd)
{
    memcpy(hs->challenge_raw, hs->in, HW_CHALLENGE_SIZE);
    int rc = hw_challenge_decode(hs->in, &hs->challenge);
    if (rc)
        return rc;
    if (hs->challenge.refusal)
        return report_refusal(hs->challenge.refusal);
    uint8_t proof[HW_PROOF_SIZE];
    hw_boot_prove_server(proof, hs->key, hs->hello_raw, hs->challenge_raw);
    if (!hw_boot_same(proof, hs->challenge.proof))
        return hw_fail(-EACCES, hs->hello.kind == HW_BOOT_CONTROL ? "the peer does not have the same job key"
                                                                  : "the peer does not have the session's key");
    hw_boot_prove_client(proof, hs->key, hs->hello_raw, hs->challenge_raw);
    rc = send_bytes(fd, proof, sizeof(proof));
    return rc == 0 && hs->after ? send_bytes(fd, hs->after, hs->after_len) : rc;
}

static int server_hello(struct hw_hs *hs, int fd)
{
    memcpy(hs->hello_raw, hs->in, HW_HELLO_SIZE);
    int rc = hw_hello_decode(hs->in, &hs->hello);
    unsigned refusal = HW_OK;
    if (rc == -EPROTONOSUPPORT)
        refusal = HW_REFUSE_VERSION;
    else if (rc)
        return rc;
    else if (hs->hello.keyed != hs->challenge.keyed)
        refusal = hs->hello.keyed ? HW_REFUSE_KEY_UNWANTED : HW_REFUSE_KEY_NEEDED;
    else
        refusal = hs->admit(hs->admit_arg, &hs->hello, &hs->challenge, hs->key);
    hs->challenge.refusal = (uint8_t)refusal;
    hw_random(hs->challenge.nonce, HW_NONCE);
    hw_challenge_encode(hs->challenge_raw, &hs->challenge);
    if (!refusal)
        hw_boot_prove_server(hs->challenge_raw + HW_CHALLENGE_SIZE - HW_PROOF_SIZE, hs->key, hs->hello_raw,
                             hs->challenge_raw);
    int sent = send_bytes(fd, hs->challenge_raw, HW_CHALLENGE_SIZE);
    if (refusal)
        return rc ? rc : hw_fail(-EACCES, "%s", hw_refusal_text(refusal));
    return sent;
}

int hw_hs_step(struct hw_hs *hs, int fd)
{
    for (;;) {
        int rc;
        switch (hs->stage) {
        case C_CONNECT: {
            int err = 0;
            socklen_t len = sizeof(err);
            union hw_addr peer;
            socklen_t plen = sizeof(peer);
            if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
                err = errno;
            if (err)
                return hw_fail(-err, "%s", strerror(err));
            if (getpeername(fd, &peer.sa, &plen) < 0) {
                if (hw_now() < hs->deadline)
                    return -EAGAIN;
                return hw_fail(-ETIMEDOUT, "no answer within %llu ms", (unsigned long long)hs->step_ms);
            }
            hw_hello_encode(hs->hello_raw, &hs->hello);
            if ((rc = send_bytes(fd, hs->hello_raw, HW_HELLO_SIZE)))
                return rc;
            enter_stage(hs, C_CHALLENGE, HW_CHALLENGE_SIZE);
            break;
        }
        case C_CHALLENGE:
            if ((rc = receive_bytes(hs, fd)) || (rc = client_challenge(hs, fd)))
                return rc;
            enter_stage(hs, C_WELCOME, HW_WELCOME_SIZE);
            break;
        case C_WELCOME:
            if ((rc = receive_bytes(hs, fd)) || (rc = hw_welcome_decode(hs->in, &hs->welcome)))
                return rc;
            if (hs->welcome.refusal)
                return report_refusal(hs->welcome.refusal);
            hs->stage = DONE;
            return 0;
        case S_HELLO:
            if ((rc = receive_bytes(hs, fd)) || (rc = server_hello(hs, fd)))
                return rc;
            enter_stage(hs, S_PROOF, HW_PROOF_SIZE);
            break;
        case S_PROOF: {
            uint8_t proof[HW_PROOF_SIZE];
            if ((rc = receive_bytes(hs, fd)))
                return rc;
            hw_boot_prove_client(proof, hs->key, hs->hello_raw, hs->challenge_raw);
            if (!hw_boot_same(proof, hs->in)) {
                (void)hw_hs_welcome(fd, HW_REFUSE_PROOF, 0);
                return hw_fail(-EACCES, hs->hello.kind == HW_BOOT_CONTROL
                                            ? "the client does not have the job key"
                                            : "the client does not have the session's key");
            }
            hs->stage = DONE;
            return 0;
        }
        default:
            return 0;
        }
    }
}

int hw_hs_welcome(int fd, unsigned refusal, uint16_t via)
{
    uint8_t raw[HW_WELCOME_SIZE];
    hw_welcome_encode(raw, &(struct hw_welcome){.refusal = (uint8_t)refusal, .via = via});
    return send_bytes(fd, raw, sizeof(raw));
}

void hw_hs_secret(const struct hw_hs *hs, uint8_t out[HW_SECRET])
{
    hw_boot_secret(out, hs->key, hs->hello_raw, hs->challenge_raw);
}
