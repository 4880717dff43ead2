/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake's state machines over a socket pair. The first byte selects the side and its initial state. Each of the
 * other bytes selects a step: raw bytes, the next message of an honest peer (optionally with one byte changed), the end
 * of the stream, or an expired deadline. The handshake must not succeed without the proof, and must not read bytes that
 * follow the handshake.
 */
#include "fuzz.h"
#include "transport/tcp/sock.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t the_key[HW_SECRET] = "what only honest peers have";
static const uint8_t other_key[HW_SECRET] = "another";

struct run {
    struct hw_hs hs;
    int fd, far; /* the state machine's end of the pair, and the test's end */
    bool server;
    uint8_t sent[4096]; /* bytes that the test sent */
    size_t nsent;
    uint8_t got[1024]; /* bytes that the state machine sent */
    size_t ngot;
    uint8_t key[HW_SECRET]; /* the test's key */
};

static unsigned admit(void *arg, const struct hw_hello *hello, struct hw_challenge *c, uint8_t key[HW_SECRET])
{
    FUZZ_CHECK(hello->kind >= HW_BOOT_CONTROL && hello->kind <= HW_BOOT_PROBE);
    memcpy(key, the_key, HW_SECRET);
    c->session = hello->session ? hello->session : 1;
    (void)arg;
    return hello->channel == 99 ? HW_REFUSE_SESSION : HW_OK;
}

static void give(struct run *r, const uint8_t *p, size_t n)
{
    n = HW_MIN(n, sizeof(r->sent) - r->nsent);
    if (n && send(r->far, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n) {
        memcpy(r->sent + r->nsent, p, n);
        r->nsent += n;
    }
}

static void take(struct run *r)
{
    ssize_t n = recv(r->far, r->got + r->ngot, sizeof(r->got) - r->ngot, MSG_DONTWAIT);
    if (n > 0)
        r->ngot += (size_t)n;
}

/* Stores the message that an honest peer would send next. Returns its length, or 0 if there is none. */
static size_t honest(struct run *r, uint8_t out[HW_CHALLENGE_SIZE])
{
    take(r);
    if (r->server && r->nsent < HW_HELLO_SIZE) {
        struct hw_hello h = {.kind = HW_BOOT_CONTROL, .nonce = "once"};
        hw_hello_encode(out, &h);
        return HW_HELLO_SIZE;
    }
    if (r->server && r->ngot >= HW_CHALLENGE_SIZE) {
        hw_boot_prove_client(out, r->key, r->sent, r->got);
        return HW_PROOF_SIZE;
    }
    if (!r->server && r->ngot >= HW_HELLO_SIZE && r->nsent < HW_CHALLENGE_SIZE) {
        struct hw_challenge c = {.session = 7, .nonce = "twice"};
        hw_challenge_encode(out, &c);
        hw_boot_prove_server(out + HW_CHALLENGE_SIZE - HW_PROOF_SIZE, r->key, r->got, out);
        return HW_CHALLENGE_SIZE;
    }
    if (!r->server && r->ngot >= HW_HELLO_SIZE) {
        hw_welcome_encode(out, &(struct hw_welcome){.via = 5});
        return HW_WELCOME_SIZE;
    }
    return 0;
}

/* After the state machine has reported success, checks that the other side has proved its identity. */
static void check_done(struct run *r)
{
    uint8_t proof[HW_PROOF_SIZE], secret[HW_SECRET];
    size_t used = r->server ? HW_HELLO_SIZE + HW_PROOF_SIZE : HW_CHALLENGE_SIZE + HW_WELCOME_SIZE;
    int left = -1;
    take(r);
    FUZZ_CHECK(r->nsent >= used);
    if (r->server) {
        FUZZ_CHECK(r->ngot == HW_CHALLENGE_SIZE);
        hw_boot_prove_client(proof, the_key, r->sent, r->got);
        FUZZ_CHECK(memcmp(proof, r->sent + HW_HELLO_SIZE, sizeof(proof)) == 0);
    } else {
        FUZZ_CHECK(r->ngot == HW_HELLO_SIZE + HW_PROOF_SIZE);
        hw_boot_prove_server(proof, the_key, r->got, r->sent);
        FUZZ_CHECK(memcmp(proof, r->sent + HW_CHALLENGE_SIZE - HW_PROOF_SIZE, sizeof(proof)) == 0);
    }
    FUZZ_CHECK(ioctl(r->fd, FIONREAD, &left) == 0 && (size_t)left == r->nsent - used);
    hw_hs_secret(&r->hs, secret);
    FUZZ_CHECK(hw_hs_step(&r->hs, r->fd) == 0); /* a further step also succeeds */
}

/* Performs one step. Returns false when the handshake has ended. */
static bool step(struct run *r)
{
    hw_fail(0, "%s", "");
    int rc = hw_hs_step(&r->hs, r->fd);
    FUZZ_CHECK(rc <= 0 && rc > -4096);
    if (rc == -EAGAIN)
        return true;
    if (rc == 0)
        check_done(r);
    else
        FUZZ_CHECK(*hw_error());
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    struct run r = {.server = size && data[0] & 1};
    int pair[2];
    if (size == 0)
        return 0;
    if (!ready) {
        FUZZ_CHECK(hw_crypto_init() == 0);
        ready = true;
    }
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    r.fd = pair[0];
    r.far = pair[1];
    memcpy(r.key, data[0] & 2 ? other_key : the_key, HW_SECRET);
    if (r.server) {
        hw_hs_server(&r.hs, data[0] & 4, admit, &r, 60000);
    } else {
        struct hw_hello h = {.kind = (uint8_t)(1 + (data[0] >> 3) % 5), .session = (data[0] >> 3) % 5 ? 7 : 0};
        hw_hs_client(&r.hs, &h, the_key, 60000);
    }
    bool on = step(&r);
    for (size_t at = 1; on && at < size;) {
        uint8_t op = data[at++];
        if (op < 128) { /* raw: up to 127 bytes */
            size_t n = HW_MIN((size_t)op, size - at);
            give(&r, data + at, n);
            at += n;
        } else if (op < 192) { /* honest, possibly with one byte changed, in one or two pieces */
            uint8_t msg[HW_CHALLENGE_SIZE] = {0};
            size_t n = honest(&r, msg), cut = op & 32 ? n / 2 : n;
            if (op & 1 && at + 1 < size && n) {
                msg[data[at] % n] ^= data[at + 1];
                at += 2;
            }
            give(&r, msg, cut);
            if (cut < n) {
                on = step(&r);
                give(&r, msg + cut, n - cut);
            }
        } else if (op < 224) {
            (void)shutdown(r.far, SHUT_WR);
        } else if (op < 240) {
            r.hs.deadline = 0;
            on = step(&r);
            FUZZ_CHECK(!on || r.hs.deadline > 0); /* ended, or waiting for the next message */
        } else {
            (void)shutdown(r.far, SHUT_RDWR);
        }
        on = on && step(&r);
    }
    close(r.fd);
    close(r.far);
    return 0;
}
