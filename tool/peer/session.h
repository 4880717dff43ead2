/* SPDX-License-Identifier: Apache-2.0 */
/* The client side of commands such as bench and validate: a peer that runs `hawser serve`, and requests to it, one at a
 * time. */
#ifndef HW_TOOL_SESSION_H
#define HW_TOOL_SESSION_H

#include "tool/peer/proto.h"

#include <stdio.h>

#define SESSION_CONNECT_MS 10000
#define SESSION_CALL_MS    30000
/* ms after a signal in which operations in flight may still complete and be reported */
#define SESSION_FINISH_MS 2000

struct session {
    hawser *h;
    hawser_peer *peer;
    hawser_mem *mem; /* registration of msg */
    uint8_t *msg;
    uint32_t next_id;
    const bool *stop; /* like tool_stop, for this session only; NULL if unused; read atomically */
};

/* Connects to the serving node. Returns 0 or a negative errno. */
int session_open(struct session *s, hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *o);
/* Sends q, after setting its id, and waits for the reply. A failure on the server is returned as the server's
 * negative errno with the text "the serving node: ...". timeout_ms limits the whole call. Returns -EINTR if the
 * session has expired. */
int session_call(struct session *s, struct tp_request *q, struct tp_reply *r, int timeout_ms);
/* Returns the timeout in ms for a request that touches this many bytes of memory on the peer. */
int session_patience_ms(uint64_t bytes);
/* Closes the peer and frees the session's memory. The struct may be zeroed. */
void session_close(struct session *s);
/* Returns true if the session was told to end, so that nothing new may be started. */
bool session_stopped(const struct session *s);
/* Returns true if the session must end at once, even with operations in flight: SESSION_FINISH_MS after a signal, or
 * once *stop is set. */
bool session_expired(const struct session *s);
/* Frees op, after cancelling the operation if it is in flight. Preserves the calling thread's error text. op may be
 * NULL. */
void session_drop(hawser_op *op);
/* Waits for op in short steps, so that a signal is noticed, and frees op. Returns -EINTR if the session has expired. */
int session_await(const struct session *s, hawser_op *op, int timeout_ms);

/* Lists the address pairs of the peer's channels, each once, in the order of the channels. Address pairs whose channels
 * never came up are omitted. Returns the number of pairs, up to cap. */
struct session_path {
    char nic[HAWSER_NIC_NAME], peer_nic[HAWSER_NIC_NAME];
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT];
    uint32_t channels;
};
size_t session_paths(struct session *s, struct session_path *out, size_t cap);
/* Prints the version, the peer, a line for each of up to TP_MAX_PATHS paths, and a line with the reason for each path
 * that is not used. */
void session_print_head(struct session *s, FILE *out);

#endif
