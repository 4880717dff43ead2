/* SPDX-License-Identifier: Apache-2.0 */
#include "core/link.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_RING 16 /* initial limit of frames in flight, a power of two */
/* No frame is added to a batch with at least this many bytes of payload outside the buffer. */
#define BATCH_BYTES (256u << 10)
#define BEHIND_MUCH 512 /* maximum number of bytes that are read after a large payload */
/* Maximum length of a payload that is copied after the frame's header, so that small frames are sent in one piece. */
#define SMALL_PAYLOAD 1024

int hw_link_init(struct hw_link *l, const struct hw_link_ops *ops, void *up, uint64_t window)
{
    *l = (struct hw_link){.ops = ops, .up = up, .window = window};
    l->tx.buf = malloc(HW_LINK_BUF);
    l->rx.buf = malloc(HW_LINK_BUF);
    l->tx.ring = FIRST_RING;
    l->tx.flight = malloc(FIRST_RING * sizeof *l->tx.flight);
    if (l->tx.buf && l->rx.buf && l->tx.flight)
        return 0;
    hw_link_free(l);
    return hw_no_memory("a connection's buffers");
}

/* Frees the copies that are no longer read once the first n bytes of the second stream are released. The newest copy is
 * the first in the list. */
static void free_copies(struct hw_link_copy **list, uint64_t n)
{
    while (*list && (*list)->until > n)
        list = &(*list)->next;
    while (*list) {
        struct hw_link_copy *next = (*list)->next;
        free(*list);
        *list = next;
    }
}

/* Returns the place in the ring of the frame with this number. The size of the ring is a power of two. */
static struct hw_link_flight *get_flight(const struct hw_link *l, uint64_t number)
{
    return &l->tx.flight[number & (l->tx.ring - 1)];
}

void hw_link_free(struct hw_link *l)
{
    free(l->tx.buf);
    free(l->rx.buf);
    free(l->tx.flight);
    free_copies(&l->tx.copies, UINT64_MAX);
    free_copies(&l->tx.held, UINT64_MAX);
    l->tx.buf = l->rx.buf = NULL;
    l->tx.flight = NULL;
}

/* ---- sending ---------------------------------------------------------------------------------- */

/* Returns true if the last piece to be sent ends where the next frame's header begins. */
static bool ends_at_head(const struct hw_link *l, const uint8_t *head)
{
    if (l->tx.piece_at == l->tx.n_pieces)
        return false;
    const struct hw_piece *last = &l->tx.piece[l->tx.n_pieces - 1];
    return last->ptr + last->len == head;
}

/* Copies a small payload after its header, if the CPU can access the payload. Returns true if it was copied. */
static bool copy_small_payload(struct hw_link *l, const struct hw_piece *piece, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!piece[i].space->direct)
            return false;
    for (uint32_t i = 0; i < n; i++) {
        if (piece[i].len)
            memcpy(l->tx.buf + l->tx.end, piece[i].ptr, piece[i].len);
        l->tx.end += (uint32_t)piece[i].len;
    }
    return true;
}

/* Appends a frame to the pieces to be sent. Returns false if there was no frame. */
static bool append_link_frame(struct hw_link *l, uint64_t budget)
{
    uint8_t *head = l->tx.buf + l->tx.end;
    bool follows = ends_at_head(l, head);
    /* the header's piece, which precedes the payload's pieces */
    struct hw_piece *run = &l->tx.piece[follows ? l->tx.n_pieces - 1 : l->tx.n_pieces];
    struct hw_link_out out = {.ext = head + HW_LINK_HEAD, .piece = run + 1};
    if (!l->ops->pull(l->up, l, budget, &out))
        return false;
    uint64_t pay = 0;
    for (uint32_t i = 0; i < out.n_pieces; i++)
        pay += out.piece[i].len;
    assert(out.ext_len <= HW_LINK_EXT_MAX && out.n_pieces <= HW_LINK_PIECES && pay <= HW_LINK_PAY_MAX);
    l->tx.apart = l->apart.tx && pay > SMALL_PAYLOAD;
    struct hw_link_head h = {.type = out.type,
                             .flags = (out.uncounted ? HW_LINK_UNCOUNTED : 0) | (out.patient ? HW_LINK_PATIENT : 0) |
                                      (l->tx.apart ? HW_LINK_APART : 0) | (out.bulk ? HW_LINK_BULK : 0),
                             .ext = out.ext_len,
                             .pay = (uint32_t)pay,
                             .number = (uint32_t)l->started};
    hw_link_head_encode(head, &h);
    l->tx.end += HW_LINK_HEAD + out.ext_len;
    uint64_t bytes = HW_LINK_HEAD + out.ext_len + pay;
    l->tx.framed += bytes;
    l->tx.apart_framed += l->tx.apart ? pay : 0;
    if (!out.uncounted) {
        *get_flight(l, l->started++) = (struct hw_link_flight){
            .token = out.token, .bytes = bytes, .pay = (uint32_t)pay, .end = l->tx.framed, .apart = l->tx.apart_framed};
        l->in_flight += bytes;
    }
    bool copied = pay <= SMALL_PAYLOAD && copy_small_payload(l, out.piece, out.n_pieces);
    if (!follows)
        *run = (struct hw_piece){&hw_host, head, 0, NULL};
    run->len = (uint64_t)(l->tx.buf + l->tx.end - run->ptr);
    l->tx.apart_at = (uint32_t)(run + 1 - l->tx.piece);
    l->tx.n_pieces = l->tx.apart_at + (copied ? 0 : out.n_pieces);
    l->tx.payload += copied ? 0 : pay;
    return true;
}

static bool has_room_for_frame(const struct hw_link *l)
{
    return !l->tx.apart && l->tx.payload < BATCH_BYTES && l->tx.n_pieces <= HW_LINK_BATCH &&
           HW_LINK_BUF - l->tx.end >= HW_LINK_HEAD + HW_LINK_EXT_MAX + SMALL_PAYLOAD;
}

/* Returns true if one more frame may be in flight. Enlarges the ring if necessary and possible. */
static bool has_place_in_flight(struct hw_link *l)
{
    uint64_t n = l->started - l->confirmed;
    if (n < l->tx.ring)
        return true;
    if (n == HW_LINK_FLIGHT)
        return false;
    struct hw_link_flight *to = malloc(2ull * l->tx.ring * sizeof *to);
    if (!to)
        return false; /* the ring has free entries again when frames are confirmed */
    for (uint64_t i = l->confirmed; i < l->started; i++)
        to[i & (2ull * l->tx.ring - 1)] = *get_flight(l, i);
    free(l->tx.flight);
    l->tx.flight = to;
    l->tx.ring *= 2;
    return true;
}

static uint64_t count_budget(struct hw_link *l)
{
    return l->in_flight < l->window && has_place_in_flight(l) ? l->window - l->in_flight : 0;
}

uint32_t hw_link_tx(struct hw_link *l, struct hw_piece *out, uint32_t cap)
{
    uint32_t n = 0;
    if (l->ended)
        return 0;
    l->tx.dry = false;
    while (!l->tx.dry && has_room_for_frame(l))
        l->tx.dry = !append_link_frame(l, count_budget(l));
    /* headers must be sent separately from the second stream */
    bool heads = l->tx.apart && l->tx.piece_at < l->tx.apart_at;
    uint32_t end = heads ? l->tx.apart_at : l->tx.n_pieces;
    for (uint32_t i = l->tx.piece_at; i < end && n < cap; i++)
        out[n++] = l->tx.piece[i];
    return n;
}

bool hw_link_has_unsent(const struct hw_link *l)
{
    return l->tx.piece_at < l->tx.n_pieces;
}

bool hw_link_is_dry(const struct hw_link *l)
{
    return l->tx.dry && !hw_link_has_unsent(l);
}

bool hw_link_sends_apart(const struct hw_link *l)
{
    return l->tx.apart && l->tx.piece_at >= l->tx.apart_at && l->tx.piece_at < l->tx.n_pieces;
}

/* Resets the batch after everything in it was sent. */
static void finish_batch(struct hw_link *l)
{
    struct hw_link_copy *copy;
    while (l->gone > l->released && (copy = l->tx.copies)) { /* the transport may still read the copies */
        l->tx.copies = copy->next;
        copy->until = l->gone;
        copy->next = l->tx.held;
        l->tx.held = copy;
    }
    free_copies(&l->tx.copies, UINT64_MAX);
    l->tx.n_pieces = l->tx.piece_at = l->tx.end = 0;
    l->tx.payload = 0;
    l->tx.apart = false;
}

void hw_link_sent(struct hw_link *l, uint64_t n)
{
    l->tx.written += n;
    if (hw_link_sends_apart(l)) {
        l->gone += n;
        l->released = l->apart.held ? l->released : l->gone;
    }
    while (n) {
        assert(l->tx.piece_at < l->tx.n_pieces);
        struct hw_piece *p = &l->tx.piece[l->tx.piece_at];
        uint64_t part = HW_MIN(n, p->len);
        p->ptr += part;
        p->len -= part;
        n -= part;
        if (p->len == 0)
            l->tx.piece_at++;
    }
    /* skip empty pieces after the bytes that were sent */
    while (l->tx.piece_at < l->tx.n_pieces && l->tx.piece[l->tx.piece_at].len == 0)
        l->tx.piece_at++;
    if (l->tx.piece_at == l->tx.n_pieces)
        finish_batch(l);
}

/* Returns the number of unsent bytes in memory of this owner. */
static uint64_t count_unsent(const struct hw_link *l, const void *owner)
{
    uint64_t left = 0;
    for (uint32_t i = l->tx.piece_at; i < l->tx.n_pieces; i++)
        left += l->tx.piece[i].owner == owner ? l->tx.piece[i].len : 0;
    return left;
}

/* Copies the unsent bytes in memory of this owner and replaces the pieces. */
static int copy_unsent(struct hw_link *l, const void *owner, uint64_t left)
{
    struct hw_link_copy *copy = malloc(sizeof *copy + left);
    uint64_t at = 0;
    if (!copy)
        return hw_no_memory("a copy of %llu bytes that were not sent yet", (unsigned long long)left);
    copy->until = 0;
    copy->next = l->tx.copies;
    l->tx.copies = copy;
    for (uint32_t i = l->tx.piece_at; i < l->tx.n_pieces; i++) {
        struct hw_piece *p = &l->tx.piece[i];
        if (p->owner != owner)
            continue;
        int rc = 0;
        if (!p->space->direct)
            rc = l->ops->load(l->up, l, p, copy->data + at);
        else if (p->len)
            memcpy(copy->data + at, p->ptr, p->len);
        if (rc < 0)
            return rc;
        *p = (struct hw_piece){&hw_host, copy->data + at, p->len, NULL};
        at += p->len;
    }
    return 0;
}

/* ---- receiving -------------------------------------------------------------------------------- */

/* Skips pieces that are full. */
static void skip_full_pieces(struct hw_link *l)
{
    while (l->rx.piece_at < l->rx.n_pieces && l->rx.piece[l->rx.piece_at].len == 0)
        l->rx.piece_at++;
}

bool hw_link_reads_apart(const struct hw_link *l)
{
    return l->rx.state == HW_LINK_AT_PAYLOAD && l->rx.head.flags & HW_LINK_APART;
}

uint32_t hw_link_rx(struct hw_link *l, struct hw_piece *out, uint32_t cap)
{
    uint32_t n = 0;
    bool much = false, apart = hw_link_reads_apart(l);
    assert(cap >= 2 && !l->ended);
    /* while a payload that follows its header is read directly into place, the buffer is empty: parse_buffer() has
     * consumed the bytes, or hw_link_unread() has given them back */
    skip_full_pieces(l);
    for (uint32_t i = l->rx.piece_at; i < l->rx.n_pieces; i++) {
        const struct hw_piece *p = &l->rx.piece[i];
        if (p->len == 0)
            continue;
        if (!p->ptr && n && !apart)
            return n;
        if (!p->ptr && !apart) { /* read into the buffer and discard */
            out[0] = (struct hw_piece){&hw_host, l->rx.buf, HW_MIN(p->len, HW_LINK_BUF), NULL};
            return 1;
        }
        if (n == cap)
            return n;
        much |= p->len > HW_LINK_BUF;
        out[n++] = *p;
    }
    if (n == cap || apart || (l->rx.state == HW_LINK_AT_PAYLOAD && l->rx.placed < l->rx.in.pay))
        return n;
    if (l->rx.at) {
        memmove(l->rx.buf, l->rx.buf + l->rx.at, l->rx.end - l->rx.at);
        l->rx.end -= l->rx.at;
        l->rx.at = 0;
    }
    /* A large payload is usually followed by another, whose bytes would have to be copied from the buffer, so read
     * little. A transport does not read a header together with a payload for a device, so such a payload has ended when
     * this code runs. */
    if (l->rx.state == HW_LINK_AT_HEAD && l->rx.end == 0 && l->rx.n_pieces && l->rx.in.pay > HW_LINK_BUF)
        much |= !l->rx.piece[l->rx.n_pieces - 1].space->direct;
    uint64_t room = HW_LINK_BUF - l->rx.end;
    out[n] = (struct hw_piece){&hw_host, l->rx.buf + l->rx.end, much ? HW_MIN(room, BEHIND_MUCH) : room, NULL};
    return n + 1;
}

static int finish_frame(struct hw_link *l)
{
    l->rx.state = HW_LINK_AT_HEAD;
    int rc = l->ops->arrived(l->up, l, &l->rx.in);
    if (rc == 0 && !l->rx.in.uncounted) {
        l->received++;
        if (!(l->rx.head.flags & HW_LINK_PATIENT))
            l->awaited = l->received;
    }
    return rc;
}

static int parse_head(struct hw_link *l)
{
    int rc = hw_link_head_decode(l->rx.buf + l->rx.at, &l->rx.head);
    if (rc < 0)
        return rc;
    if (l->rx.head.number != (uint32_t)l->received)
        return hw_fail(-EPROTO, "frame %u arrived where frame %u was expected", l->rx.head.number,
                       (uint32_t)l->received);
    if (l->rx.head.flags & HW_LINK_APART && !l->apart.rx)
        return hw_fail(-EPROTO,
                       "a frame of type %u is marked APART (separate payload), which this connection does not support",
                       l->rx.head.type);
    l->rx.at += HW_LINK_HEAD;
    l->rx.state = HW_LINK_AT_EXT;
    return 0;
}

/* Checks the pieces that the layer above has provided, and counts their bytes. */
static void take_pieces(struct hw_link *l)
{
    uint64_t room = 0;
    assert(l->rx.n_pieces <= HW_LINK_PIECES);
    for (uint32_t i = 0; i < l->rx.n_pieces; i++)
        room += l->rx.piece[i].len;
    l->rx.placed += room;
    assert(l->rx.placed <= l->rx.in.pay);
}

static int place_link_payload(struct hw_link *l)
{
    l->rx.in = (struct hw_link_in){.type = l->rx.head.type,
                                   .uncounted = l->rx.head.flags & HW_LINK_UNCOUNTED,
                                   .ext = l->rx.buf + l->rx.at,
                                   .ext_len = l->rx.head.ext,
                                   .pay = l->rx.head.pay,
                                   .bulk = l->rx.head.flags & HW_LINK_BULK};
    l->rx.n_pieces = l->rx.piece_at = 0;
    l->rx.placed = 0;
    int rc = l->ops->place(l->up, l, &l->rx.in, l->rx.piece, &l->rx.n_pieces);
    if (rc < 0)
        return rc;
    l->rx.in.ext = NULL;
    l->rx.at += l->rx.head.ext;
    l->rx.state = HW_LINK_AT_PAYLOAD;
    take_pieces(l);
    return 0;
}

/* Requests memory for the next bytes of the payload after all pieces are full. */
static int place_rest(struct hw_link *l)
{
    uint64_t before = l->rx.placed;
    l->rx.n_pieces = l->rx.piece_at = 0;
    int rc = l->ops->more(l->up, l, &l->rx.in, before, l->rx.piece, &l->rx.n_pieces);
    if (rc < 0)
        return rc;
    take_pieces(l);
    assert(l->rx.placed > before);
    return 0;
}

/* Returns true if the CPU cannot write the next bytes of the payload to their memory. */
static bool is_next_piece_foreign(const struct hw_link *l)
{
    const struct hw_piece *p = &l->rx.piece[l->rx.piece_at];
    return l->rx.piece_at < l->rx.n_pieces && p->ptr && !p->space->direct;
}

/* Moves payload bytes from the buffer into place. Stops at memory that the CPU cannot access. */
static void store_payload(struct hw_link *l)
{
    for (skip_full_pieces(l); l->rx.at < l->rx.end && l->rx.piece_at < l->rx.n_pieces; skip_full_pieces(l)) {
        struct hw_piece *p = &l->rx.piece[l->rx.piece_at];
        uint64_t part = HW_MIN(p->len, l->rx.end - l->rx.at);
        if (is_next_piece_foreign(l))
            return;
        if (p->ptr) {
            memcpy(p->ptr, l->rx.buf + l->rx.at, part);
            p->ptr += part;
        }
        p->len -= part;
        l->rx.at += (uint32_t)part;
    }
}

uint32_t hw_link_unread(struct hw_link *l, const uint8_t **data)
{
    uint32_t n = l->rx.end - l->rx.at;
    if (l->rx.state != HW_LINK_AT_PAYLOAD || hw_link_reads_apart(l) || !is_next_piece_foreign(l))
        return 0;
    *data = l->rx.buf + l->rx.at;
    l->rx.at = l->rx.end = 0;
    return n;
}

/* Parses as much of the buffer as possible: frames, and the part of a payload that arrived with its header. */
static int parse_buffer(struct hw_link *l)
{
    for (int rc = 0;;) {
        uint32_t have = l->rx.end - l->rx.at;
        switch (l->rx.state) {
        case HW_LINK_AT_HEAD:
            if (have < HW_LINK_HEAD)
                return 0;
            rc = parse_head(l);
            break;
        case HW_LINK_AT_EXT:
            if (have < l->rx.head.ext)
                return 0;
            rc = place_link_payload(l);
            break;
        default:
            skip_full_pieces(l);
            if (!hw_link_reads_apart(l))
                store_payload(l);
            if (l->rx.piece_at < l->rx.n_pieces)
                return 0;
            rc = l->rx.placed < l->rx.in.pay ? place_rest(l) : finish_frame(l);
        }
        if (rc < 0)
            return rc;
    }
}

int hw_link_got(struct hw_link *l, uint64_t n)
{
    bool apart = hw_link_reads_apart(l);
    assert(!l->ended);
    skip_full_pieces(l);
    if (l->rx.piece_at < l->rx.n_pieces && !l->rx.piece[l->rx.piece_at].ptr && !apart) {
        l->rx.piece[l->rx.piece_at].len -= n;
        return parse_buffer(l);
    }
    for (; n && l->rx.piece_at < l->rx.n_pieces; skip_full_pieces(l)) {
        struct hw_piece *p = &l->rx.piece[l->rx.piece_at];
        uint64_t part = HW_MIN(n, p->len);
        assert(p->ptr || apart);
        p->ptr = p->ptr ? p->ptr + part : NULL;
        p->len -= part;
        n -= part;
    }
    assert(n == 0 || !apart);
    l->rx.end += (uint32_t)n;
    assert(l->rx.end <= HW_LINK_BUF);
    return parse_buffer(l);
}

struct hw_link_in *hw_link_drop(struct hw_link *l)
{
    bool any = false;
    for (uint32_t i = l->rx.piece_at; i < l->rx.n_pieces; i++) {
        any |= l->rx.piece[i].ptr && l->rx.piece[i].len;
        l->rx.piece[i].ptr = NULL;
    }
    return any && l->rx.state == HW_LINK_AT_PAYLOAD ? &l->rx.in : NULL;
}

void *hw_link_get_sending(const struct hw_link *l)
{
    for (uint64_t i = l->confirmed; i < l->started; i++)
        if (get_flight(l, i)->end > l->tx.written)
            return get_flight(l, i)->token;
    return NULL;
}

bool hw_link_fills_apart(const struct hw_link *l, const void *owner)
{
    uint32_t i = l->rx.piece_at;
    while (i < l->rx.n_pieces && l->rx.piece[i].len == 0)
        i++;
    return !l->ended && hw_link_reads_apart(l) && i < l->rx.n_pieces && l->rx.piece[i].owner == owner;
}

bool hw_link_uses(const struct hw_link *l, const void *owner)
{
    bool fills = false;
    for (uint32_t i = l->rx.piece_at; i < l->rx.n_pieces; i++)
        fills |= l->rx.piece[i].owner == owner && l->rx.piece[i].len;
    return !l->ended && (fills || count_unsent(l, owner));
}

int hw_link_let_go(struct hw_link *l, const void *owner)
{
    if (l->ended)
        return 0;
    for (uint32_t i = l->rx.piece_at; i < l->rx.n_pieces; i++)
        if (l->rx.piece[i].owner == owner) {
            l->rx.in.dropped |= l->rx.piece[i].ptr && l->rx.piece[i].len;
            l->rx.piece[i].ptr = NULL;
        }
    uint64_t left = count_unsent(l, owner);
    return left ? copy_unsent(l, owner, left) : 0;
}

/* ---- confirmation and end ------------------------------------------------------------------------ */

/* Confirms the first count frames, but stops at a frame whose memory is still being read. */
static void confirm_upto(struct hw_link *l, uint64_t count)
{
    l->said = count;
    while (l->confirmed < count && get_flight(l, l->confirmed)->apart <= l->released) {
        const struct hw_link_flight *f = get_flight(l, l->confirmed++);
        l->in_flight -= f->bytes;
        l->ops->confirmed(l->up, l, f->token, f->pay);
    }
}

/* Returns true if the last byte of the first count frames, some of which are not confirmed, was handed to the
 * transport. */
static bool was_written(const struct hw_link *l, uint64_t count)
{
    return count <= l->started && get_flight(l, count - 1)->end <= l->tx.written;
}

int hw_link_confirm(struct hw_link *l, uint64_t count)
{
    if (l->ended)
        return 0; /* the last word will include this confirmation */
    if (count <= l->said)
        return 0; /* confirmed before */
    if (!was_written(l, count))
        return hw_fail(-EPROTO, "the peer confirms %llu frames, more than were sent", (unsigned long long)count);
    confirm_upto(l, count);
    return 0;
}

void hw_link_released(struct hw_link *l, uint64_t n)
{
    assert(n >= l->released && n <= l->gone);
    if (l->ended || n == l->released)
        return;
    l->released = n;
    free_copies(&l->tx.held, n);
    confirm_upto(l, l->said);
}

void hw_link_end(struct hw_link *l, int why)
{
    assert(why != 0);
    if (l->ended)
        return;
    l->ended = why;
    l->released = UINT64_MAX; /* no memory is read from here on */
    free_copies(&l->tx.copies, UINT64_MAX);
    free_copies(&l->tx.held, UINT64_MAX);
    confirm_upto(l, l->said);
    if (l->rx.state == HW_LINK_AT_PAYLOAD)
        l->ops->abandoned(l->up, l, &l->rx.in);
}

bool hw_link_can_settle(const struct hw_link *l, uint64_t count)
{
    return count == l->said || (count > l->said && was_written(l, count));
}

int hw_link_settle(struct hw_link *l, uint64_t count)
{
    assert(l->ended);
    if (!hw_link_can_settle(l, count))
        return hw_fail(
            -EPROTO, "the peer's final confirmation is for %llu frames; %llu were sent, and %llu were confirmed before",
            (unsigned long long)count, (unsigned long long)l->started, (unsigned long long)l->said);
    confirm_upto(l, count);
    for (uint64_t n = count; n < l->started; n++)
        l->ops->lost(l->up, l, get_flight(l, n)->token, get_flight(l, n)->pay);
    l->started = count;
    l->in_flight = 0;
    return 0;
}
