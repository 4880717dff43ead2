/* SPDX-License-Identifier: Apache-2.0 */
/* The asking half of bench and validate: a peer that runs `hawser serve`, and one request at a time to it. */
#ifndef HW_TOOL_SESSION_H
#define HW_TOOL_SESSION_H

#include "tool/peer/proto.h"

#include <stdio.h>

#define SESSION_CONNECT_MS 10000
#define SESSION_CALL_MS    30000
#define SESSION_FINISH_MS  2000 /* after a signal: what is under way may end, so that it can be reported */

struct session {
    hawser *h;
    hawser_peer *peer;
    hawser_mem *mem; /* of msg */
    uint8_t *msg;
    uint32_t next_id;
    const bool *stop; /* as tool_stop, for this session alone; NULL: none. Atomic. */
};

/* Connects. 0 or -errno. */
int session_open(struct session *s, hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *o);
/* Sends q (its id is set here) and waits for the reply. A failure on the server's side comes back as its -errno with
 * "the serving node: ..." as text. timeout_ms bounds the whole. -EINTR once the session has expired. */
int session_call(struct session *s, struct tp_request *q, struct tp_reply *r, int timeout_ms);
/* How long a request may take that touches so many bytes of memory on the other side. */
int session_patience_ms(uint64_t bytes);
/* Closes the peer. All zero is allowed. */
void session_close(struct session *s);
/* Is this session asked to end? Nothing new is started then. */
bool session_stopped(const struct session *s);
/* Is it to be left at once, with what is under way? SESSION_FINISH_MS after a signal, or once *stop is set. */
bool session_expired(const struct session *s);
/* Frees op, ending it where it is under way, and keeps the calling thread's error line. NULL is allowed. */
void session_drop(hawser_op *op);
/* Waits for op in steps, so that a signal is seen; frees it. -EINTR once the session has expired. */
int session_await(const struct session *s, hawser_op *op, int timeout_ms);

/* The pairs of addresses that the peer's channels use, each once, in the order of their NICs; none by which no channel
 * ever came up. Returns how many. */
struct session_path {
    char nic[HAWSER_NIC_NAME], peer_nic[HAWSER_NIC_NAME];
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT];
    uint32_t channels;
};
size_t session_paths(struct session *s, struct session_path *out, size_t cap);
/* Versions, the peer, a line for each path, and one with the reason for each NIC that carries nothing. */
void session_print_head(struct session *s, FILE *out);

#endif
