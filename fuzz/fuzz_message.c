/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of a hostile peer for the message layer, in any order, complete or abandoned, while this side has a
 * writable region, a readable region, and a read, a write, a notification, two sends and two receives in flight. Only
 * memory that the peer may write is written, and nothing is stored beyond its bound. At the end, all operations
 * have ended, and the peer can be freed.
 *
 * A frame in the input consists of a byte for the type, a byte for flags, two bytes for the extension's length, two for
 * the payload's length, and the extension.
 */
#include "fuzz.h"
#include "message/op.h"

#include <sodium.h>

#define REGION 4096ul

struct node {
    struct hw_loop loop;
    struct hw_domain domain;
    struct hw_peer peer;
    struct hw_export writable, readable;
    unsigned notes, over;
    bool died;
};

static void take_note(void *up, struct hw_note *note)
{
    struct node *n = up;
    n->notes++;
    if (note->len % 2) /* the application reads some notifications */
        hw_peer_took(&n->peer, note->len);
    free(note);
}

static void note_rail(void *up, unsigned rail, int why)
{
    (void)up, (void)rail, (void)why;
}

static void note_down(void *up, unsigned rail)
{
    (void)up, (void)rail;
}

static void note_death(void *up, int why)
{
    struct node *n = up;
    n->died = true;
    FUZZ_CHECK(why < 0);
}

static void wake_nobody(void *arg)
{
    (void)arg;
}

static void end_op(struct hw_op *op)
{
    struct node *n = hw_container_of(op->peer, struct node, peer);
    n->over++;
}

static void end_export(struct hw_export *x)
{
    x->ptr = NULL;
}

static void note_bye(void *up)
{
    (void)up;
}

static const struct hw_peer_ops ops = {
    .noted = take_note, .ended = note_rail, .down = note_down, .died = note_death, .bye = note_bye};
static const struct hw_rail_io io = {0}; /* no rail ever comes up */
static const struct hw_rail_limits limits = {.window = 1 << 20, .ping = (1000 * HW_MS), .dead = 2 * (1000 * HW_MS)};
static const uint8_t binding[HW_BINDING] = "of this session";

static void export_memory(struct node *n, struct hw_export *x, uint8_t *memory, uint32_t rights)
{
    uint8_t proof[HW_IMPORT_PROOF];
    *x = (struct hw_export){.space = &hw_host, .ptr = memory, .len = REGION, .rights = rights, .secret = 7};
    x->revoked = end_export;
    if (hw_export_add(&n->domain, x) < 0)
        abort();
    hw_import_proof(proof, x->id, x->secret, binding);
    if (hw_handle_ask(&n->peer, x->id, proof) < 0)
        abort();
}

static void post_op(struct node *n, enum hw_op_kind kind, uint8_t *memory, struct hw_import *import)
{
    struct hw_op *op = hw_op_new(&n->peer, kind, kind == HW_OP_NOTIFY ? 0 : 2);
    if (!op)
        abort();
    for (uint32_t i = 0; i < op->n; i++)
        op->span[i] =
            (struct hw_span){.space = &hw_host, .ptr = memory + i * REGION / 2, .len = REGION / 2, .import = import};
    op->over = end_op;
    op->queue = 5;
    op->note = kind == HW_OP_WRITE || kind == HW_OP_NOTIFY ? hw_note_new(5) : NULL;
    if (hw_op_post(op) < 0)
        abort();
    hw_op_put(op);
}

/* Passes one frame of the input to the peer. Returns false if no frame is left, the frame was refused, or the peer has
 * died. */
static bool feed_frame(struct node *n, const uint8_t **data, size_t *size)
{
    struct hw_piece piece[HW_LINK_PIECES];
    uint32_t pieces = 0;
    if (*size < 6)
        return false;
    const uint8_t *head = *data;
    struct hw_link_in in = {.type = head[0] % 8,
                            .ext_len = (head[2] | head[3] << 8) % HW_LINK_EXT_MAX,
                            .pay = (uint32_t)(head[4] | head[5] << 8)};
    *data += 6;
    *size -= 6;
    in.ext_len = in.ext_len < *size ? in.ext_len : (uint32_t)*size;
    uint8_t *ext = malloc(in.ext_len ? in.ext_len : 1);
    if (!ext)
        abort();
    if (in.ext_len)
        memcpy(ext, *data, in.ext_len);
    in.ext = ext;
    *data += in.ext_len;
    *size -= in.ext_len;
    int rc = hw_peer_session_ops.place(&n->peer, 0, &in, piece, &pieces);
    free(ext);
    FUZZ_CHECK(rc == 0 || rc == -EPROTO);
    uint64_t at = 0;
    while (rc == 0) {
        FUZZ_CHECK(pieces <= HW_LINK_PIECES);
        for (uint32_t i = 0; i < pieces; i++) {
            if (piece[i].ptr)
                memset(piece[i].ptr, 0x5a, piece[i].len);
            at += piece[i].len;
        }
        FUZZ_CHECK(at <= in.pay);
        if (at == in.pay || head[1] & 1)
            break;
        rc = hw_peer_session_ops.more(&n->peer, 0, &in, at, piece, &pieces);
    }
    if (rc == 0 && at == in.pay && !(head[1] & 1))
        rc = hw_peer_session_ops.arrived(&n->peer, 0, &in);
    else if (rc == 0)
        hw_peer_session_ops.abandoned(&n->peer, 0, &in);
    FUZZ_CHECK(rc == 0 || rc == -EPROTO);
    if (head[1] & 2)
        hw_loop_turn(&n->loop, (1000 * HW_MS), 10, NULL, NULL);
    if (head[1] & 4)
        hw_peer_session_ops.marked(&n->peer, (uint32_t)at);
    return rc == 0 && !n->died;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct node *n = calloc(1, sizeof *n);
    /* the readable region, the writable region, and the memory of the operations */
    uint8_t *memory = calloc(3, REGION);
    struct hw_loop *loop[1];
    if (!n || !memory || sodium_init() < 0)
        abort();
    loop[0] = &n->loop;
    hw_loop_init(&n->loop, wake_nobody, NULL);
    hw_domain_init(&n->domain);
    if (hw_peer_init(&n->peer, &n->domain, false, &n->loop, loop, 1, &ops, &io, n, &limits, binding) < 0)
        abort();
    export_memory(n, &n->readable, memory, HAWSER_REMOTE_READ);
    export_memory(n, &n->writable, memory + REGION, HAWSER_REMOTE_WRITE);
    struct hw_import *import;
    if (hw_import_get(&n->peer, 1, 2, &import) < 0)
        abort();
    import->state = HW_IMPORT_READY;
    import->len = REGION;
    import->rights = HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE;
    post_op(n, HW_OP_READ, memory + 2 * REGION, import);
    post_op(n, HW_OP_WRITE, memory + 2 * REGION, import);
    post_op(n, HW_OP_NOTIFY, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        post_op(n, HW_OP_RECV, memory + 2 * REGION, NULL);
        post_op(n, HW_OP_SEND, memory + 2 * REGION, NULL);
    }
    while (feed_frame(n, &data, &size))
        FUZZ_CHECK(atomic_load(&n->peer.notes_held) <= HW_NOTES && atomic_load(&n->peer.serves) <= HW_READS &&
                   atomic_load(&n->peer.queues.held) <= HW_EAGER_ROOM && n->peer.queues.n <= HW_QUEUES);
    for (size_t i = 0; i < REGION; i++)
        FUZZ_CHECK(memory[i] == 0);
    hw_import_put(&n->peer, import);
    hw_peer_die(&n->peer, -ESHUTDOWN);
    for (int i = 0; i < 1000 && !hw_peer_is_gone(&n->peer); i++)
        hw_loop_turn(&n->loop, 2 * (1000 * HW_MS), 100, NULL, NULL);
    FUZZ_CHECK(hw_peer_is_gone(&n->peer) && n->over == 7);
    hw_peer_free(&n->peer);
    hw_domain_free(&n->domain);
    free(memory);
    free(n);
    return 0;
}
