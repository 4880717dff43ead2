/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/peer/session.h"

#include "tool/tool.h"

#include <stdlib.h>
#include <string.h>

#define STEP_MS      200
#define MAX_CHANNELS 1024

int session_open(struct session *s, hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *o)
{
    *s = (struct session){.h = h};
    s->msg = calloc(1, TP_REQUEST + TP_REPLY);
    if (!s->msg)
        return hw_no_memory("messages");
    int rc = hawser_mem_register(h, HAWSER_MEM_HOST, s->msg, TP_REQUEST + TP_REPLY, &s->mem);
    if (rc == 0)
        rc = hawser_connect(h, host, port, o, SESSION_CONNECT_MS, &s->peer);
    if (rc == -ECONNREFUSED)
        rc = tool_hint(rc, "no server, such as `hawser serve`, listens on this address and port, or a firewall rejects "
                           "the connection");
    if (rc < 0)
        session_close(s);
    return rc;
}

void session_close(struct session *s)
{
    HW_KEEP_ERROR();
    hawser_peer_close(s->peer);
    hawser_mem_deregister(s->mem);
    free(s->msg);
    *s = (struct session){0};
}

bool session_stopped(const struct session *s)
{
    return tool_stop || (s->stop && __atomic_load_n(s->stop, __ATOMIC_RELAXED));
}

bool session_expired(const struct session *s)
{
    return tool_stopped_ms() > SESSION_FINISH_MS || (s->stop && __atomic_load_n(s->stop, __ATOMIC_RELAXED));
}

void session_drop(hawser_op *op)
{
    HW_KEEP_ERROR();
    hawser_op_free(op);
}

int session_await(const struct session *s, hawser_op *op, int timeout_ms)
{
    uint64_t deadline = hw_deadline(timeout_ms);
    int rc;
    while ((rc = hawser_wait(op, HW_MIN(STEP_MS, timeout_ms))) == -EAGAIN) {
        if (session_expired(s))
            rc = hw_fail(-EINTR, "interrupted");
        else if (hw_now() > deadline)
            rc = hw_fail(-ETIMEDOUT, "an operation with the peer did not end within %d ms", timeout_ms);
        if (rc != -EAGAIN)
            break;
    }
    session_drop(op);
    return rc;
}

int session_patience_ms(uint64_t bytes)
{
    /* memory is filled and checked much faster than 100 MB/s */
    return SESSION_CALL_MS + (int)HW_MIN(bytes / 100000, (uint64_t)INT32_MAX / 2);
}

int session_call(struct session *s, struct tp_request *q, struct tp_reply *r, int timeout_ms)
{
    const struct hawser_op_options o = {.size = sizeof o, .timeout_ms = timeout_ms};
    const struct hawser_vec out = {.mem = s->mem, .length = TP_REQUEST};
    const struct hawser_vec in = {.mem = s->mem, .offset = TP_REQUEST, .length = TP_REPLY};
    hawser_op *send = NULL, *recv = NULL;
    q->id = ++s->next_id;
    int rc = tp_encode_request(q, s->msg);
    if (rc < 0 || (rc = hawser_recv(s->peer, &in, 1, &o, &recv)) < 0)
        return rc;
    rc = hawser_send(s->peer, &out, 1, &o, &send);
    if (rc < 0) {
        session_drop(recv);
        return rc;
    }
    rc = session_await(s, send, timeout_ms);
    if (rc < 0) {
        session_drop(recv);
        return rc;
    }
    /* session_await() cannot be used, because it frees the operation before its length is read */
    uint64_t deadline = hw_deadline(timeout_ms);
    while ((rc = hawser_wait(recv, STEP_MS)) == -EAGAIN && !session_expired(s) && hw_now() < deadline)
        ;
    uint64_t len = hawser_op_length(recv);
    if (rc == -EAGAIN)
        rc = session_expired(s) ? hw_fail(-EINTR, "interrupted")
                                : hw_fail(-ETIMEDOUT, "the serving node did not answer within %d ms", timeout_ms);
    session_drop(recv);
    if (rc == 0)
        rc = tp_decode_reply(s->msg + TP_REQUEST, len, r);
    if (rc < 0)
        return rc;
    if (r->type != q->type || r->id != q->id)
        return hw_fail(
            -EPROTO, "the serving node answered another request (number %u of type %d instead of number %u of type %d)",
            (unsigned)r->id, (int)r->type, (unsigned)q->id, (int)q->type);
    return r->status < 0 ? hw_fail(r->status, "the serving node: %s", r->text) : 0;
}

/* Copies an address such as "1.2.3.4:5" or "[::1]:5" without the brackets and the port. An address that has no port is
 * copied unchanged. */
static void copy_bare_address(char *out, size_t cap, const char *text)
{
    const char *first = strchr(text, ':'), *end = text + strlen(text);
    if (*text == '[') {
        text++;
        end = text + strcspn(text, "]");
    } else if (first && !strchr(first + 1, ':')) {
        end = first;
    }
    snprintf(out, cap, "%.*s", (int)(end - text), text);
}

/* Returns the index of this channel's path: by its addresses or, without addresses, by its NICs. Returns n if there
 * is none. */
static size_t find_path(const struct session_path *path, size_t n, const struct session_path *of)
{
    size_t k = 0;
    if (*of->local)
        while (k < n && (strcmp(path[k].local, of->local) != 0 || strcmp(path[k].remote, of->remote) != 0))
            k++;
    else
        while (k < n && (strcmp(path[k].nic, of->nic) != 0 || strcmp(path[k].peer_nic, of->peer_nic) != 0))
            k++;
    return k;
}

size_t session_paths(struct session *s, struct session_path *out, size_t cap)
{
    size_t n = 0, there = MAX_CHANNELS;
    HW_AUTO_FREE struct hawser_channel_stats *ch = calloc(there, sizeof *ch);
    if (!ch || hawser_channel_stats(s->peer, ch, &there) < 0)
        there = 0;
    there = HW_MIN(there, (size_t)MAX_CHANNELS);
    /* Handle channels that were up before channels that never were. A path with only the latter carries nothing, and is
     * omitted. */
    for (size_t i = 0; i < 2 * there; i++) {
        const struct hawser_channel_stats *c = &ch[i < there ? i : i - there];
        struct session_path p = {0};
        if ((i < there) != (*c->local != 0))
            continue;
        snprintf(p.nic, sizeof p.nic, "%s", c->nic);
        snprintf(p.peer_nic, sizeof p.peer_nic, "%s", c->peer_nic);
        copy_bare_address(p.local, sizeof p.local, c->local);
        copy_bare_address(p.remote, sizeof p.remote, c->remote);
        size_t k = find_path(out, n, &p);
        if (k == n && n < cap && *p.local)
            out[n++] = p;
        if (k < n)
            out[k].channels++;
    }
    return n;
}

/* Prints a line with the reason for each path that is not used. */
static void print_idle_nics(struct session *s, FILE *out)
{
    HW_AUTO_FREE struct hawser_path *path = calloc(MAX_CHANNELS, sizeof *path);
    size_t n = MAX_CHANNELS;
    if (!path || hawser_paths(s->peer, path, &n) < 0)
        n = 0;
    n = HW_MIN(n, (size_t)MAX_CHANNELS);
    for (size_t i = 0; i < n; i++) {
        const struct hawser_path *p = &path[i];
        if (p->state == HAWSER_PATH_USED)
            continue;
        fprintf(out, "# not used: %s", *p->nic ? p->nic : "the peer's");
        if (*p->peer_nic)
            fprintf(out, "%s %s%s%s", *p->nic ? " to" : "", p->peer_nic, *p->remote ? " " : "", p->remote);
        fprintf(out, ": %s\n", p->why);
    }
}

void session_print_head(struct session *s, FILE *out)
{
    struct session_path path[TP_MAX_PATHS];
    size_t n = session_paths(s, path, HW_ARRAY_LEN(path));
    fprintf(out, "# hawser %s, peer %s\n", hawser_version(), hawser_peer_name(s->peer));
    for (size_t i = 0; i < n; i++) {
        const struct session_path *p = &path[i];
        fprintf(out, "# %s %s -> %s %s, %u channel%s\n", p->nic, p->local, p->remote, p->peer_nic, p->channels,
                hw_plural(p->channels));
    }
    print_idle_nics(s, out);
}
