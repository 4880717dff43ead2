/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets with hawser's options, and the bootstrap handshake. Used by the transports, by pairing.c for probes, and
 * by lib/context for the other connections of a session. */
#ifndef HW_SOCK_H
#define HW_SOCK_H

#include "base/knob.h"
#include "net/nic.h"
#include "wire/wire.h"

#include <sys/types.h>

/* Starts a nonblocking connect to addr from nic, or from the NIC that the kernel chooses if nic is NULL. Returns the
 * descriptor or a negative errno. Binds to the address of nic. Unless nic->loopback is set, also binds to the device,
 * if permitted: with several NICs on one subnet, only the binding to the device separates the flows. */
int hw_sock_connect(const struct hw_nic *nic, const union hw_addr *addr, const struct hw_knobs *k);

/* Sets the options of every connection: TCP_NODELAY, keepalive and TCP_USER_TIMEOUT. hw_sock_buffers() sets the buffer
 * sizes, which are only for data connections. */
void hw_sock_tune(int fd, const struct hw_knobs *k);
/* Sets the options of an accepted socket: those of hw_sock_tune() and hw_sock_settled(). */
void hw_sock_accepted(int fd, const struct hw_knobs *k);
/* Sets the remaining options of a socket from hw_sock_connect() once the socket is connected. */
void hw_sock_settled(int fd, const struct hw_knobs *k);
void hw_sock_buffers(int fd, const struct hw_knobs *k);

/* Opens a nonblocking listener on addr. Returns the descriptor or a negative errno. */
int hw_sock_listen(const union hw_addr *addr, const struct hw_knobs *k);

/* State of hw_sock_health() between its calls for one connection. All zero at first. */
struct hw_sock_watch {
    uint64_t path;   /* bandwidth-delay product of the path in bytes, as TCP measures it, or 0 if unknown */
    uint64_t looked; /* time of the last check in ns */
    uint64_t acked;  /* data that the peer had acknowledged, as a sum of bytes and segments */
    uint64_t since;  /* last time in ns at which acked had grown, nothing was in flight, or checks had paused */
    uint64_t rtt_us; /* round-trip time that TCP measured */
    uint64_t again;  /* total number of retransmitted segments */
};

/* Sets w->rtt_us and w->again. hw_sock_health() sets them too. */
void hw_sock_look(int fd, struct hw_sock_watch *w);

/* Checks a connection with data in flight. Should be called every 20 ms. alone_ms is the parameter alone of
 * hw_rail_io.check(), in ms. Returns 1 if no acknowledgement has arrived for longer than usual and alone_ms is longer
 * than usual too, otherwise 0. Fails with -ETIMEDOUT if the path seems dead: data was retransmitted or a closed window
 * was probed, and nothing was acknowledged for stall_ms, or for 130 ms or more if the peer answers on other
 * connections. The path of a receiver that does not read (zero window) but answers probes does not count as dead. */
int hw_sock_health(int fd, struct hw_sock_watch *w, uint64_t alone_ms, uint64_t stall_ms, uint64_t peer_timeout_ms);

/* Receive like recv(2) with MSG_DONTWAIT, and send like send(2), but without cancellation points. A cancellation point
 * of the C library costs two locked instructions per call, and an application thread that is cancelled at such a point
 * would never release the library's locks. */
ssize_t hw_sock_recv(int fd, void *to, size_t len);
ssize_t hw_sock_send(int fd, const void *from, size_t len, int flags);

/* Returns the error of a call that has failed to move bytes, from errno: -EAGAIN, -EBUSY if the kernel lacks memory (no
 * event reports when memory is available), or another error, for which it records what failed. */
int hw_sock_explain(const char *what);
/* Does the same for a call that accesses host memory of a transfer. Returns -ENXIO if the memory is not mapped. */
int hw_sock_explain_host(const char *what);

/* Makes close() reset the connection, so that the kernel drops queued data and releases pages held by reference. */
void hw_sock_reset_at_close(int fd);
/* Closes the connection with a reset. */
void hw_sock_abort(int *fd);

/* ---- handshake ------------------------------------------------------------------------------ */

struct hw_hs {
    bool client;
    uint8_t stage;
    uint64_t deadline; /* deadline of the current message, in hw_now() time */
    uint64_t step_ms;
    uint32_t have, want;
    struct hw_hello hello;
    struct hw_challenge challenge;
    struct hw_welcome welcome; /* client: as received */
    uint8_t key[HW_SECRET];
    uint8_t hello_raw[HW_HELLO_SIZE], challenge_raw[HW_CHALLENGE_SIZE];
    uint8_t in[HW_CHALLENGE_SIZE];
    /* Server: called when a valid HELLO with the right `keyed` has arrived. Fills key and challenge->session. Returns
     * enum hw_refusal. */
    unsigned (*admit)(void *arg, const struct hw_hello *hello, struct hw_challenge *challenge, uint8_t key[HW_SECRET]);
    void *admit_arg;
    const uint8_t
        *after; /* client: after_len bytes that are sent directly after the proof; they must outlive the handshake */
    uint32_t after_len;
};

/* Start a handshake. The client passes hello without its nonce. wire.h describes the key. */
void hw_hs_client(struct hw_hs *hs, const struct hw_hello *hello, const uint8_t key[HW_SECRET], uint64_t step_ms);
void hw_hs_server(struct hw_hs *hs, bool keyed,
                  unsigned (*admit)(void *, const struct hw_hello *, struct hw_challenge *, uint8_t[HW_SECRET]),
                  void *arg, uint64_t step_ms);

/* Advances the handshake. Returns 0 when it is complete; a server then sends WELCOME with hw_hs_welcome(), once the
 * context has taken the connection. Returns -EAGAIN to wait for the descriptor or for hs->deadline. Otherwise fails
 * with -ETIMEDOUT, -EACCES, -EPERM, -EPROTO, -ECONNRESET or another error, and the caller closes the socket. */
int hw_hs_step(struct hw_hs *hs, int fd);
int hw_hs_welcome(int fd, unsigned refusal, uint16_t via);

/* Derives the secret of the new session. Valid after hw_hs_step() has returned 0 for HW_BOOT_CONTROL. */
void hw_hs_secret(const struct hw_hs *hs, uint8_t out[HW_SECRET]);

#endif
