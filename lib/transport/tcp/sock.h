/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets with hawser's options, and the bootstrap handshake. Used by the transports, and by lib/context for the
 * first connection of a session and for probes. */
#ifndef HW_SOCK_H
#define HW_SOCK_H

#include "base/knob.h"
#include "net/nic.h"
#include "wire/wire.h"

#include <sys/types.h>

/* Starts a nonblocking connect from nic (NULL: the kernel chooses) to addr. Returns the descriptor or -errno. Binds to
 * the NIC's address and, if permitted, to its device: with several NICs on one subnet only the device binding separates
 * flows. */
int hw_sock_connect(const struct hw_nic *nic, const union hw_addr *addr, const struct hw_knobs *k);

/* Sets the options of every connection: TCP_NODELAY, keepalive, TCP_USER_TIMEOUT. Buffer sizes are for data connections
 * only: hw_sock_buffers(). */
void hw_sock_tune(int fd, const struct hw_knobs *k);
/* Sets all options of an accepted socket, those of hw_sock_tune() included. */
void hw_sock_accepted(int fd, const struct hw_knobs *k);
/* Sets the remaining options of a socket of hw_sock_connect() once it is connected. */
void hw_sock_settled(int fd, const struct hw_knobs *k);
void hw_sock_buffers(int fd, const struct hw_knobs *k);

/* Opens a nonblocking listener on addr. Returns the descriptor or -errno. */
int hw_sock_listen(const union hw_addr *addr, const struct hw_knobs *k);

/* What hw_sock_health() last saw of a connection. All zero at first. */
struct hw_sock_watch {
    uint64_t path;   /* bandwidth-delay product of its path, as TCP measures it, bytes; 0: unknown */
    uint64_t looked; /* when, ns */
    uint64_t acked;  /* what the peer had acknowledged, in bytes and segments */
    uint64_t since;  /* the last time when acked had grown or nothing was in flight; ns */
    uint64_t rtt_us; /* the round trip that TCP measured */
    uint64_t again;  /* retransmitted segments in all */
};

/* Sets w->rtt_us and w->again, as hw_sock_health() does too. */
void hw_sock_look(int fd, struct hw_sock_watch *w);

/* Checks a connection with data in flight; call it every 20 ms. Returns 0; 1: no acknowledgement for longer than usual
 * although the peer answers on other connections; or -ETIMEDOUT if the path looks dead: data was retransmitted and
 * nothing new was acknowledged for stall_ms, or for about 130 ms if the peer answers on other connections. alone_ms:
 * for how long data has been in flight here while the peer answers elsewhere; 0: it does not. A receiver that merely
 * does not read (zero window) is neither suspect nor dead. */
int hw_sock_health(int fd, struct hw_sock_watch *w, uint64_t alone_ms, uint64_t stall_ms, uint64_t peer_timeout_ms);

/* recv(2) without waiting, and send(2), but not cancellation points: the C library's cost two locked instructions a
 * call, and an application's thread that is cancelled inside would leave the library's locks taken. */
ssize_t hw_sock_recv(int fd, void *to, size_t len);
ssize_t hw_sock_send(int fd, const void *from, size_t len, int flags);

/* Makes close() reset the connection: the kernel drops queued data and releases pages held by reference. */
void hw_sock_reset_at_close(int fd);
/* Closes the connection with a reset. */
void hw_sock_abort(int *fd);

/* ---- handshake ------------------------------------------------------------------------------ */

struct hw_hs {
    bool client;
    uint8_t stage;
    uint64_t deadline; /* deadline of the current message, hw_now() */
    uint64_t step_ms;
    uint32_t have, want;
    struct hw_hello hello;
    struct hw_challenge challenge;
    struct hw_welcome welcome; /* client: as received */
    uint8_t key[HW_SECRET];
    uint8_t hello_raw[HW_HELLO_SIZE], challenge_raw[HW_CHALLENGE_SIZE];
    uint8_t in[HW_CHALLENGE_SIZE];
    /* Server: called once a well-formed HELLO has arrived. Fills key and challenge->session; returns enum
     * hw_refusal. */
    unsigned (*admit)(void *arg, const struct hw_hello *hello, struct hw_challenge *challenge, uint8_t key[HW_SECRET]);
    void *admit_arg;
    const uint8_t *after; /* client: after_len bytes sent directly after the proof; they outlive the handshake */
    uint32_t after_len;
};

/* Start a handshake. Client: hello without its nonce; key: see wire.h. */
void hw_hs_client(struct hw_hs *hs, const struct hw_hello *hello, const uint8_t key[HW_SECRET], uint64_t step_ms);
void hw_hs_server(struct hw_hs *hs, bool keyed,
                  unsigned (*admit)(void *, const struct hw_hello *, struct hw_challenge *, uint8_t[HW_SECRET]),
                  void *arg, uint64_t step_ms);

/* Continues as far as the socket allows. 0: done (a server then sends WELCOME with hw_hs_welcome(), once the context
 * has taken the connection). -EAGAIN: wait for the descriptor or hs->deadline. -ETIMEDOUT, -EACCES, -EPERM, -EPROTO,
 * -ECONNRESET ...: failed, with the reason; the caller closes. */
int hw_hs_step(struct hw_hs *hs, int fd);
int hw_hs_welcome(int fd, unsigned refusal, uint16_t via);

/* Copies the secret of the new session; valid after hw_hs_step() returned 0 for HW_BOOT_CONTROL. */
void hw_hs_secret(const struct hw_hs *hs, uint8_t out[HW_SECRET]);

#endif
