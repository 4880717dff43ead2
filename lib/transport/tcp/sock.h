/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets as hawser wants them, and the bootstrap handshake on one. Used by the transports, and by lib/context for
 * the first connection of a session and for probes. */
#ifndef HW_SOCK_H
#define HW_SOCK_H

#include "base/knob.h"
#include "net/nic.h"
#include "wire/wire.h"

/* Starts a non-blocking connect from nic (NULL: the kernel chooses) to addr. Returns the descriptor or -errno. Binds to
 * the NIC's address and, where permitted, its device: with several NICs on one subnet only that keeps flows apart. */
int hw_sock_connect(const struct hw_nic *nic, const union hw_addr *addr, const struct hw_knobs *k);

/* Options every connection gets: TCP_NODELAY, keepalive, TCP_USER_TIMEOUT. Buffer sizes for data connections only. */
void hw_sock_tune(int fd, const struct hw_knobs *k);
/* What an accepted socket needs, hw_sock_tune() included. */
void hw_sock_accepted(int fd, const struct hw_knobs *k);
/* What a socket of hw_sock_connect() needs once it is connected. */
void hw_sock_settled(int fd, const struct hw_knobs *k);
void hw_sock_buffers(int fd, const struct hw_knobs *k);

/* Non-blocking listener on addr. Returns the descriptor or -errno. */
int hw_sock_listen(const union hw_addr *addr, const struct hw_knobs *k);

/* What hw_sock_health() saw of a connection last. All zero before. */
struct hw_sock_watch {
    uint64_t path;   /* bytes that its path holds: rate times round trip, as TCP has measured them; 0: not known */
    uint64_t looked; /* when, ns */
    uint64_t acked;  /* what its peer had acknowledged, in bytes and segments .. */
    uint64_t since;  /* .. and the last time at which that was more than before, or all there was; ns */
    uint64_t rtt_us; /* the round trip as TCP has it */
    uint64_t again;  /* segments that were sent again, in all */
};

/* Fills in w->rtt_us and w->again, as hw_sock_health() does too. */
void hw_sock_look(int fd, struct hw_sock_watch *w);

/* Looks at a connection with something under way, each 20 ms. 0; 1: no acknowledgement has come for longer than is
 * usual, while the peer is heard elsewhere; or -ETIMEDOUT when the path looks dead: data was sent again, and nothing
 * new was acknowledged for stall_ms, or for some 130 ms where the peer is heard elsewhere. alone_ms: for so long
 * something has been under way here, where the peer is heard elsewhere; 0: it is not. A receiver that merely does not
 * read (zero window) is neither silent nor dead. */
int hw_sock_health(int fd, struct hw_sock_watch *w, uint64_t alone_ms, uint64_t stall_ms, uint64_t peer_timeout_ms);

/* Closing it resets the connection: what is queued is dropped, pages held by reference are let go. */
void hw_sock_reset_at_close(int fd);
/* The same, and closes it. */
void hw_sock_abort(int *fd);

/* ---- handshake ------------------------------------------------------------------------------ */

struct hw_hs {
    bool client;
    uint8_t stage;
    uint64_t deadline; /* of the message under way, hw_now() */
    uint64_t step_ms;
    uint32_t have, want;
    struct hw_hello hello;
    struct hw_challenge challenge;
    struct hw_welcome welcome; /* client: as received */
    uint8_t key[HW_SECRET];
    uint8_t hello_raw[HW_HELLO_SIZE], challenge_raw[HW_CHALLENGE_SIZE];
    uint8_t in[HW_CHALLENGE_SIZE];
    /* Server: asked once HELLO is known and well-formed. Fills key and challenge->session; returns enum hw_refusal. */
    unsigned (*admit)(void *arg, const struct hw_hello *hello, struct hw_challenge *challenge, uint8_t key[HW_SECRET]);
    void *admit_arg;
    const uint8_t *after; /* client: goes right behind the proof; after_len bytes that outlive the handshake */
    uint32_t after_len;
};

/* Client: hello without its nonce; key as wire.h says. */
void hw_hs_client(struct hw_hs *hs, const struct hw_hello *hello, const uint8_t key[HW_SECRET], uint64_t step_ms);
void hw_hs_server(struct hw_hs *hs, bool keyed,
                  unsigned (*admit)(void *, const struct hw_hello *, struct hw_challenge *, uint8_t[HW_SECRET]),
                  void *arg, uint64_t step_ms);

/* Moves on as far as the socket allows. 0: done (the server has yet to send WELCOME, by hw_hs_welcome(), once the
 * context has taken the connection). -EAGAIN: wait for the descriptor or hs->deadline. -ETIMEDOUT, -EACCES, -EPERM,
 * -EPROTO, -ECONNRESET ...: over, with the reason; the caller closes. */
int hw_hs_step(struct hw_hs *hs, int fd);
int hw_hs_welcome(int fd, unsigned refusal, uint16_t via);

/* The secret of the session begun; valid after hw_hs_step() gave 0 for HW_BOOT_CONTROL. */
void hw_hs_secret(const struct hw_hs *hs, uint8_t out[HW_SECRET]);

#endif
