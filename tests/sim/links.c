/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two nodes, connected by up to four links that fail and recover. One node writes to the other node's memory, or both
 * do. The layer above the links is small: any link can carry chunks of any operation. If a link fails, both sides close
 * it and tell each other how many frames they have received. Only then do they send the remaining chunks over other
 * links and reconnect the link.
 *
 * Checks: each byte that arrives is the byte that the operation's source held when the operation was posted. (So
 * nothing is read after an operation has ended and its source is overwritten, even if the peer lies about what it has
 * received.) No chunk arrives twice. No chunk is acknowledged before it arrives, unless the peer lies. No byte is
 * written to memory after the operation has ended or its memory was revoked. Every operation ends. Windows are
 * respected.
 */
#include "core/link.h"
#include "sim.h"

#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS   4
#define OPS     6    /* in flight per side */
#define OP_MAX  6000 /* bytes */
#define WINDOW  3000 /* per link: smaller than an operation */
#define CHUNKS  64   /* in flight per side */
#define PIECES  8
#define POISON  SIM_POISON
#define STEPS   60000
#define ENTRIES 12 /* extension of a chunk: u32 offset, u32 length, u32 serial number of the operation */

enum { T_CHUNK = 1, T_CONFIRM, T_LAST };

struct op {
    bool used, off, revoked; /* off: cancelled; revoked: the receiver has revoked the memory */
    bool read; /* the operation is cancelled, but links may still read its source; link k has stopped reading it .. */
    uint64_t let_go[SLOTS];     /* .. once it has released this many bytes .. */
    uint32_t let_go_gen[SLOTS]; /* .. or has another generation */
    uint32_t serial;
    uint32_t len, cut, confirmed; /* bytes */
    uint32_t under_way;           /* chunks that a link holds, or that wait to be retransmitted */
    uint32_t hole, hole_end;      /* range of the target whose bytes are discarded */
    uint8_t src[OP_MAX];
    uint8_t dst[OP_MAX];  /* in the other node's memory */
    bool arrived[OP_MAX]; /* bytes of complete chunks */
};

struct chunk {
    bool used, retry;
    struct op *op;
    uint32_t offset, len;
};

struct slot {
    struct hw_link link;
    bool made;      /* link has buffers */
    uint32_t gen;   /* generation of the link, as known to this side */
    bool up;        /* the link works */
    bool peer_word; /* the other side's final count for gen has arrived, and is in peer_count */
    bool settled;   /* .. and nothing of generation gen is left */
    uint64_t peer_count;
    bool tell_confirm, tell_last;
    bool placing;                  /* a frame is between place() and its end */
    uint32_t in_serial, in_offset; /* of the incoming chunk */
    bool in_scratch;               /* the liar stores chunks in scratch, because its peer's operations may end early */
    uint8_t scratch[OP_MAX];
};

struct node {
    struct world *w;
    int side;
    struct slot slot[SLOTS];
    struct op op[OPS];
    struct chunk chunk[CHUNKS];
    uint32_t posted, ended;
};

struct world {
    struct sim *s;
    struct node node[2];
    struct sim_conn conn[SLOTS];
    uint32_t slots, ops;
    uint32_t faults; /* faults left to inject; without any, everything has to end */
};

static uint8_t expected_byte(int side, uint32_t serial, uint32_t offset)
{
    /* never returns POISON */
    return (uint8_t)((hw_hash(HW_HASH_START, (uint32_t[]){(uint32_t)side, serial, offset}, 12) >> 17) % POISON);
}

static struct slot *find_slot(struct node *n, const struct hw_link *l)
{
    for (uint32_t i = 0; i < n->w->slots; i++)
        if (&n->slot[i].link == l)
            return &n->slot[i];
    return NULL;
}

/* frames that a link requests from its upper layer */

static bool pull_word(struct node *n, struct hw_link_out *out)
{
    for (uint32_t i = 0; i < n->w->slots; i++) {
        struct slot *sl = &n->slot[i];
        if (!sl->tell_confirm && !sl->tell_last)
            continue;
        out->type = sl->tell_last ? T_LAST : T_CONFIRM;
        out->uncounted = true;
        hw_put32(out->ext, i);
        hw_put32(out->ext + 4, sl->gen);
        uint64_t count = sl->link.received;
        if (sim_has(n->w->s, SIM_LIAR) && n->side == 1 && sim_chance(n->w->s, 4))
            count += sim_random(n->w->s, 3);
        hw_put64(out->ext + 8, count);
        out->ext_len = 16;
        sl->tell_confirm = sl->tell_last = false;
        return true;
    }
    return false;
}

static struct chunk *cut_chunk(struct node *n, uint64_t budget)
{
    struct sim *s = n->w->s;
    struct chunk *free_one = NULL;
    for (int i = 0; i < CHUNKS; i++) {
        struct chunk *c = &n->chunk[i];
        if (c->used && c->retry && c->len <= budget) {
            c->retry = false;
            return c;
        }
        if (!c->used)
            free_one = c;
    }
    if (!free_one)
        return NULL;
    for (int i = 0; i < OPS; i++) {
        struct op *op = &n->op[i];
        if (!op->used || op->off || op->cut == op->len)
            continue;
        uint64_t most = 1 + sim_random(s, 2000);
        most = HW_MIN(most, budget);
        uint32_t len = HW_MIN(op->len - op->cut, (uint32_t)most);
        *free_one = (struct chunk){.used = true, .op = op, .offset = op->cut, .len = len};
        op->cut += len;
        op->under_way++;
        return free_one;
    }
    return NULL;
}

/* Splits len bytes of the owner at ptr (NULL: discard) into up to `most` pieces. */
static uint32_t scatter(struct sim *s, const struct op *owner, uint8_t *ptr, uint32_t len, struct hw_piece *piece,
                        uint32_t most)
{
    uint32_t n = 0;
    while (n + 1 < most && len && sim_has(s, SIM_SCATTER)) {
        uint32_t part = (uint32_t)sim_random(s, len + 1);
        piece[n++] = (struct hw_piece){&hw_host, ptr, part, owner};
        if (ptr)
            ptr += part;
        len -= part;
    }
    piece[n++] = (struct hw_piece){&hw_host, ptr, len, owner};
    return n;
}

/* Places the range [from, to) of an operation, and discards the part in the hole of the target. */
static uint32_t place_chunk(struct sim *s, struct op *op, uint32_t from, uint32_t to, struct hw_piece *piece)
{
    uint32_t a = HW_MIN(HW_MAX(op->hole, from), to), b = HW_MIN(HW_MAX(op->hole_end, from), to), n = 0;
    n += scatter(s, op, op->revoked ? NULL : op->dst + from, a - from, piece, PIECES);
    n += scatter(s, NULL, NULL, b - a, piece + n, PIECES);
    n += scatter(s, op, op->revoked ? NULL : op->dst + b, to - b, piece + n, PIECES);
    return n;
}

static bool pull(void *up, struct hw_link *l, uint64_t budget, struct hw_link_out *out)
{
    struct node *n = up;
    struct sim *s = n->w->s;
    if (l->in_flight > l->window + HW_LINK_HEAD + ENTRIES)
        sim_fail(s, "%llu bytes in flight, of a window of %llu", (unsigned long long)l->in_flight,
                 (unsigned long long)l->window);
    if (pull_word(n, out))
        return true;
    struct chunk *c = budget ? cut_chunk(n, budget) : NULL;
    if (!c)
        return false;
    out->type = T_CHUNK;
    out->token = c;
    hw_put32(out->ext, c->offset);
    hw_put32(out->ext + 4, c->len);
    hw_put32(out->ext + 8, c->op->serial);
    out->ext_len = ENTRIES;
    out->n_pieces = scatter(s, c->op, c->op->src + c->offset, c->len, out->piece, PIECES);
    sim_say(s, "node %d sends [%u, %u) of %u by link %ld", n->side, c->offset, c->offset + c->len, c->op->serial,
            (long)(find_slot(n, l) - n->slot));
    return true;
}

static struct op *find_op(struct node *n, uint32_t serial)
{
    for (int i = 0; i < OPS; i++)
        if (n->op[i].used && n->op[i].serial == serial)
            return &n->op[i];
    return NULL;
}

/* Places all or some of the remaining bytes of the chunk's payload, starting at `at`. */
static int place_more(void *up, struct hw_link *l, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                      uint32_t *n_pieces)
{
    struct node *n = up;
    struct sim *s = n->w->s;
    struct slot *sl = find_slot(n, l);
    struct op *op = sl->in_scratch ? NULL : find_op(&n->w->node[!n->side], sl->in_serial);
    uint32_t left = in->pay - (uint32_t)at, from = sl->in_offset + (uint32_t)at;
    if (left > 1 && sim_has(s, SIM_SCATTER) && sim_chance(s, 2))
        left = 1 + (uint32_t)sim_random(s, left);
    *n_pieces =
        op ? place_chunk(s, op, from, from + left, piece) : scatter(s, NULL, sl->scratch + from, left, piece, PIECES);
    return 0;
}

static int place(void *up, struct hw_link *l, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n_pieces)
{
    struct node *n = up;
    struct sim *s = n->w->s;
    if (find_slot(n, l)->placing)
        sim_fail(s, "a frame is placed before the one in front of it has ended");
    if (in->type == T_CONFIRM || in->type == T_LAST) {
        uint32_t i = hw_get32(in->ext);
        struct slot *sl = &n->slot[i];
        uint64_t count = hw_get64(in->ext + 8);
        int rc = 0;
        *n_pieces = 0;
        find_slot(n, l)->placing = true;
        if (hw_get32(in->ext + 4) != sl->gen)
            return 0; /* the connection was settled long ago, or this side does not know it yet */
        if (in->type == T_CONFIRM && sl->up)
            rc = hw_link_confirm(&sl->link, count);
        else if (in->type == T_LAST && !sl->peer_word) {
            sl->peer_word = true;
            sl->peer_count = count;
        }
        if (rc < 0 && !sim_has(s, SIM_LIAR))
            sim_fail(s, "a true confirmation is refused: %s", hw_error());
        find_slot(n, l)->placing = rc == 0;
        return rc;
    }
    struct slot *sl = find_slot(n, l);
    uint32_t offset = hw_get32(in->ext), len = hw_get32(in->ext + 4);
    sl->in_serial = hw_get32(in->ext + 8);
    sl->in_offset = offset;
    struct op *op = find_op(&n->w->node[!n->side], sl->in_serial);
    if (sim_has(s, SIM_LIAR) && n->side == 1)
        op = NULL;
    else if (!op)
        sim_fail(s, "bytes of operation %u arrive after its end", sl->in_serial);
    if (len != in->pay || offset + len > (op ? op->len : OP_MAX)) {
        sim_fail(s, "a chunk of %u bytes says that it is [%u, %u)", in->pay, offset, offset + len);
        return -EPROTO;
    }
    sl->in_scratch = sim_has(s, SIM_LIAR) && n->side == 1;
    sl->placing = true;
    return place_more(up, l, in, 0, piece, n_pieces);
}

static int arrived(void *up, struct hw_link *l, const struct hw_link_in *in)
{
    struct node *n = up;
    struct sim *s = n->w->s;
    struct slot *sl = find_slot(n, l);
    if (!sl->placing)
        sim_fail(s, "a frame ends that was not placed");
    sl->placing = false;
    if (in->type != T_CHUNK)
        return 0;
    sl->tell_confirm = true;
    struct op *op = sl->in_scratch ? NULL : find_op(&n->w->node[!n->side], sl->in_serial);
    for (uint32_t i = sl->in_offset; i < sl->in_offset + in->pay; i++) {
        uint8_t want = expected_byte(!n->side, sl->in_serial, i), is = op ? op->dst[i] : sl->scratch[i];
        if (op && (op->revoked || (i >= op->hole && i < op->hole_end)))
            want = POISON;
        if (is != want)
            sim_fail(s, "byte %u of operation %u arrives as 0x%02x, not 0x%02x", i, sl->in_serial, is, want);
        if (op && op->arrived[i])
            sim_fail(s, "byte %u of operation %u arrives twice", i, op->serial);
        if (op)
            op->arrived[i] = true;
    }
    return 0;
}

static void abandoned(void *up, struct hw_link *l, const struct hw_link_in *in)
{
    struct node *n = up;
    struct slot *sl = find_slot(n, l);
    if (!sl->placing)
        sim_fail(n->w->s, "a frame of type %u is abandoned that was not placed", in->type);
    sl->placing = false;
}

static void end_chunk(struct node *n, struct chunk *c)
{
    c->used = false;
    c->op->under_way--;
    (void)n;
}

static void confirmed(void *up, struct hw_link *l, void *token, uint32_t pay)
{
    struct node *n = up;
    struct chunk *c = token;
    struct sim *s = n->w->s;
    (void)l, (void)pay;
    for (uint32_t i = c->offset; i < c->offset + c->len; i++)
        if (!c->op->arrived[i] && !sim_has(s, SIM_LIAR))
            sim_fail(s, "byte %u of operation %u is confirmed and has not arrived", i, c->op->serial);
    c->op->confirmed += c->len;
    end_chunk(n, c);
}

static void lost(void *up, struct hw_link *l, void *token, uint32_t pay)
{
    struct node *n = up;
    struct chunk *c = token;
    (void)l, (void)pay;
    if (c->op->off)
        end_chunk(n, c);
    else
        c->retry = true;
}

/* All memory is host memory: load() is never called. */
static const struct hw_link_ops link_ops = {pull, place, place_more, arrived, abandoned, confirmed, lost, NULL};

/* events */

static void end_link(struct node *n, uint32_t i)
{
    struct slot *sl = &n->slot[i];
    if (!sl->up)
        return;
    sim_say(n->w->s, "node %d ends link %u, generation %u: %llu frames received", n->side, i, sl->gen,
            (unsigned long long)sl->link.received);
    sim_conn_close(n->w->s, &n->w->conn[i], n->side);
    hw_link_end(&sl->link, -ECONNRESET);
    sl->up = false;
    sl->tell_confirm = false;
    sl->tell_last = true;
    for (uint32_t k = 0; k < n->w->slots; k++) /* the link may have carried acknowledgements for other links */
        n->slot[k].tell_confirm = n->slot[k].up;
}

static void settle_link(struct node *n, uint32_t i)
{
    struct slot *sl = &n->slot[i];
    if (sl->up && sl->peer_word)
        end_link(n, i); /* the other side has closed it */
    if (sl->up || !sl->peer_word || sl->settled)
        return;
    sl->settled = true;
    while (hw_link_settle(&sl->link, sl->peer_count) < 0) {
        if (!sim_has(n->w->s, SIM_LIAR))
            sim_fail(n->w->s, "a true last word is refused: %s", hw_error());
        sl->peer_count = sl->link.said; /* a real session would end here, but this one continues */
    }
    sim_say(n->w->s, "node %d settles link %u: the peer has %llu frames", n->side, i,
            (unsigned long long)sl->peer_count);
}

static void start_link(struct node *n, uint32_t i)
{
    struct slot *sl = &n->slot[i];
    if (sl->made)
        hw_link_free(&sl->link);
    uint32_t gen = sl->gen + 1;
    *sl = (struct slot){.gen = gen, .made = true, .up = true};
    if (hw_link_init(&sl->link, &link_ops, n, WINDOW) < 0)
        abort();
    sl->link.apart = sim_conn_apart(&n->w->conn[i], n->side);
}

/* Both sides also exchange their final counts in the handshake of a new connection, because all links may be down. */
static void connect_link(struct world *w, uint32_t i)
{
    struct slot *a = &w->node[0].slot[i], *b = &w->node[1].slot[i];
    if (a->up)
        return;
    end_link(&w->node[1], i);
    a->peer_word = b->peer_word = true;
    a->peer_count = b->link.received;
    b->peer_count = a->link.received;
    settle_link(&w->node[0], i);
    settle_link(&w->node[1], i);
    sim_conn_open(w->s, &w->conn[i]);
    start_link(&w->node[0], i);
    start_link(&w->node[1], i);
    sim_say(w->s, "link %u is up, generation %u", i, a->gen);
}

static void write_some(struct world *w, struct node *n, uint32_t i)
{
    struct hw_piece piece[3];
    struct hw_link *l = &n->slot[i].link;
    uint32_t k = hw_link_tx(l, piece, HW_ARRAY_LEN(piece));
    int64_t done =
        (hw_link_sends_apart(l) ? sim_conn_move_apart : sim_conn_move)(w->s, &w->conn[i], n->side, piece, k, true);
    if (done >= 0)
        hw_link_sent(l, (uint64_t)done);
    else if (done != -EAGAIN && done != -EBUSY)
        end_link(n, i);
}

static void read_some(struct world *w, struct node *n, uint32_t i)
{
    struct hw_piece piece[3];
    struct hw_link *l = &n->slot[i].link;
    if (l->released < l->gone)
        hw_link_released(l, w->conn[i].apart[n->side].released);
    uint32_t k = hw_link_rx(l, piece, 2 + (uint32_t)sim_random(w->s, 2));
    int64_t done =
        (hw_link_reads_apart(l) ? sim_conn_move_apart : sim_conn_move)(w->s, &w->conn[i], n->side, piece, k, false);
    if (done < 0 && done != -EAGAIN && done != -EBUSY)
        end_link(n, i);
    if (done > 0 && hw_link_got(l, (uint64_t)done) < 0) {
        if (!sim_has(w->s, SIM_LIAR))
            sim_fail(w->s, "a link breaks on what an honest peer sends: %s", hw_error());
        end_link(n, i);
    }
}

static void post_op(struct world *w, struct node *n)
{
    struct sim *s = w->s;
    if (n->posted == w->ops || (n->side == 1 && !sim_has(s, SIM_BOTH)))
        return;
    for (int i = 0; i < OPS; i++) {
        struct op *op = &n->op[i];
        if (op->used)
            continue;
        memset(op, 0, sizeof *op);
        op->used = true;
        op->serial = n->posted++;
        op->len = sim_chance(s, 4) ? 1 + (uint32_t)sim_random(s, 8) : 1 + (uint32_t)sim_random(s, OP_MAX);
        if (sim_has(s, SIM_SCATTER)) {
            op->hole = (uint32_t)sim_random(s, op->len);
            op->hole_end = op->hole + (uint32_t)sim_random(s, op->len - op->hole);
        }
        memset(op->dst, POISON, sizeof op->dst);
        for (uint32_t k = 0; k < op->len; k++)
            op->src[k] = expected_byte(n->side, op->serial, k);
        sim_say(s, "node %d posts operation %u of %u bytes", n->side, op->serial, op->len);
        return;
    }
}

/* Once no link reads the operation's source any more, returns the source to the application, which overwrites it. */
static void take_source_back(struct world *w, struct node *n, struct op *op)
{
    for (uint32_t k = 0; k < w->slots; k++) {
        const struct slot *sl = &n->slot[k];
        if (sl->up && sl->gen == op->let_go_gen[k] && sl->link.released < op->let_go[k])
            return;
    }
    op->read = false;
    memset(op->src, POISON, sizeof op->src);
}

static void cancel_op(struct world *w, struct node *n, struct op *op)
{
    op->off = true;
    sim_say(w->s, "node %d calls operation %u off", n->side, op->serial);
    for (int i = 0; i < CHUNKS; i++) {
        struct chunk *c = &n->chunk[i];
        if (!c->used || c->op != op)
            continue;
        if (c->retry)
            end_chunk(n, c);
    }
    for (uint32_t k = 0; k < w->slots; k++) {
        if (n->slot[k].up && hw_link_sends_apart(&n->slot[k].link))
            sim_conn_stop_reading(&w->conn[k], n->side);
        if (n->slot[k].made && hw_link_let_go(&n->slot[k].link, op) < 0)
            abort();
        op->let_go[k] = n->slot[k].link.gone;
        op->let_go_gen[k] = n->slot[k].gen;
    }
    op->read = true;
}

static void revoke_op(struct world *w, struct node *n, struct op *op)
{
    struct node *peer = &w->node[!n->side];
    op->revoked = true;
    sim_say(w->s, "node %d takes the memory of operation %u back", peer->side, op->serial);
    for (uint32_t k = 0; k < w->slots; k++) {
        if (hw_link_fills_apart(&peer->slot[k].link, op))
            sim_conn_discard(&w->conn[k], peer->side);
        if (peer->slot[k].up && hw_link_let_go(&peer->slot[k].link, op) < 0)
            abort();
    }
    memset(op->dst, POISON, sizeof op->dst);
}

static void look_at_op(struct world *w, struct node *n, struct op *op)
{
    if (op->read)
        take_source_back(w, n, op);
    bool over = op->under_way == 0 && (op->off || op->confirmed == op->len);
    if (!over && w->s->step % 256)
        return; /* checking takes longer than the rest of the step */
    if (op->off)
        for (uint32_t k = 0; k < op->len; k++)
            if (op->dst[k] != POISON && op->dst[k] != expected_byte(n->side, op->serial, k))
                sim_fail(w->s, "byte %u of operation %u, which was called off, arrives as 0x%02x", k, op->serial,
                         op->dst[k]);
    if (op->revoked)
        for (uint32_t k = 0; k < op->len; k++)
            if (op->dst[k] != POISON)
                sim_fail(w->s, "byte %u of operation %u lands in memory that was taken back", k, op->serial);
    if (!over)
        return;
    sim_say(w->s, "node %d: operation %u ends", n->side, op->serial);
    memset(op->src, POISON, sizeof op->src);
    op->used = false;
    n->ended++;
}

static void fault(struct world *w, uint32_t i)
{
    struct sim_conn *c = &w->conn[i];
    if (w->faults == 0)
        return;
    w->faults--;
    sim_say(w->s, "link %u %s", i, sim_conn_break(w->s, c));
}

/* Lets a side detect a failure late, as if by a timer or a late reset. */
static void notice(struct world *w, struct node *n, uint32_t i)
{
    struct sim_conn *c = &w->conn[i];
    if (sim_conn_is_dead(c) || c->hung || c->closed[!n->side] || c->told[!n->side])
        c->told[n->side] = true;
}

/* Sends all final counts again. A link that carried a final count may have failed, so final counts are repeated until
 * the link is up again. */
static void repeat_words(struct node *n)
{
    for (uint32_t i = 0; i < n->w->slots; i++)
        if (n->slot[i].made && !n->slot[i].up)
            n->slot[i].tell_last = true;
}

static void take_step(struct world *w)
{
    struct sim *s = w->s;
    struct node *n = &w->node[sim_random(s, 2)];
    uint32_t i = (uint32_t)sim_random(s, w->slots);
    struct op *op = &n->op[sim_random(s, OPS)];
    switch (sim_random(s, 64)) {
    case 0:
    case 1:
    case 2:
        post_op(w, n);
        break;
    case 3:
        if (sim_has(s, SIM_CANCEL) && op->used && !op->off && sim_chance(s, 4))
            cancel_op(w, n, op);
        break;
    case 4:
        if (sim_has(s, SIM_REVOKE) && op->used && !op->revoked && sim_chance(s, 4) && op->confirmed == 0)
            revoke_op(w, n, op);
        break;
    case 5:
        if (sim_chance(s, 4))
            fault(w, i);
        break;
    case 6:
        notice(w, n, i);
        break;
    case 7:
        if (sim_chance(s, 4))
            connect_link(w, i);
        break;
    case 8:
        repeat_words(n);
        break;
    case 9:
        settle_link(n, i);
        break;
    default:
        if (sim_chance(s, 3))
            sim_conn_deliver(s, &w->conn[i]);
        else if (n->slot[i].up && sim_chance(s, 2))
            write_some(w, n, i);
        else if (n->slot[i].up)
            read_some(w, n, i);
    }
    for (int k = 0; k < OPS; k++)
        if (n->op[k].used)
            look_at_op(w, n, &n->op[k]);
}

static bool all_ended(const struct world *w)
{
    uint32_t want = sim_has(w->s, SIM_BOTH) ? 2 * w->ops : w->ops;
    return w->node[0].ended + w->node[1].ended == want;
}

void sim_run_links(struct sim *s)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    s->state = s->seed;
    w->s = s;
    w->slots = sim_has(s, SIM_LINKS) ? 1 + (uint32_t)sim_random(s, SLOTS) : 1;
    w->ops = sim_pick_ops(s, 12);
    w->faults = sim_pick_faults(s);
    for (int side = 0; side < 2; side++) {
        w->node[side].w = w;
        w->node[side].side = side;
    }
    for (uint32_t i = 0; i < w->slots; i++) {
        sim_conn_open(w->s, &w->conn[i]);
        start_link(&w->node[0], i);
        start_link(&w->node[1], i);
    }
    for (s->step = 0; s->step < STEPS && !s->failed[0] && !all_ended(w); s->step++) {
        take_step(w);
    }
    if (!s->failed[0] && !all_ended(w))
        sim_fail(s, "operations have not ended after %d steps", STEPS);
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < w->slots; i++)
            hw_link_free(&w->node[side].slot[i].link);
    free(w);
}
