/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the memory limit for a peer that sends requests but neither reads nor acknowledges the answers, and that this
 * side's own control messages have another limit, which does not end the peer. Also tests that the sequence numbers of
 * control messages may wrap around, that a peer dies with the right error text if it confirms too much, and that a dead
 * peer's operations fail with the same error text. */
#include "message/control.h"
#include "message/op.h"
#include "tests/tap.h"
#include "wire/message.h"

#include <stdlib.h>
#include <string.h>

static struct hw_loop loop, other;
static struct hw_domain domain;
static struct hw_peer peer;
static int died;
static char reason[HW_ERR_TEXT]; /* error text at the time when the peer died */

static void wake(void *arg)
{
    (void)arg;
}

static void ignore_note(void *up, struct hw_note *note)
{
    (void)up;
    hw_peer_took(&peer, note->len);
    free(note);
}

static void ignore_rail(void *up, unsigned rail, int why)
{
    (void)up;
    (void)rail;
    (void)why;
}

static void ignore_down(void *up, unsigned rail)
{
    (void)up;
    (void)rail;
}

static void note_death(void *up, int why)
{
    (void)up;
    died = why;
    snprintf(reason, sizeof reason, "%s", hw_error());
}

static void ignore_bye(void *up)
{
    (void)up;
}

static const struct hw_peer_ops ops = {
    .noted = ignore_note, .ended = ignore_rail, .down = ignore_down, .died = note_death, .bye = ignore_bye};

static int attach(struct hw_conn *c, struct hw_rail *r, unsigned link)
{
    (void)c, (void)r, (void)link;
    return 0;
}

static int64_t move_nothing(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    (void)c, (void)piece, (void)n;
    return -EAGAIN;
}

static void close_conn(struct hw_conn *c)
{
    (void)c;
}

static void run_loop(void)
{
    while (hw_loop_turn(&loop, 1, 1000, NULL, NULL))
        ;
}

/* Runs both loops alternately. Sets another thread's error text before each turn. */
static void run_both_loops(void)
{
    for (bool more = true; more;) {
        (void)hw_fail(-EINVAL, "another error");
        more = hw_loop_turn(&other, 1, 1000, NULL, NULL);
        (void)hw_fail(-EINVAL, "another error");
        more |= hw_loop_turn(&loop, 1, 1000, NULL, NULL) || hw_loop_due(&other) <= 1;
    }
}

/* Creates a peer with one rail, which stays down unless the test starts it: the extreme case of a slow peer. */
static void make_peer(struct hw_loop *rail_loop)
{
    static const uint8_t binding[HW_BINDING] = "a session";
    static const struct hw_rail_io io = {
        .attach = attach, .read = move_nothing, .write = move_nothing, .close = close_conn};
    static const struct hw_rail_limits limits = {.window = 1 << 20, .ping = HW_NEVER / 4, .dead = HW_NEVER / 4};
    hw_loop_init(&loop, wake, NULL);
    hw_loop_init(&other, wake, NULL);
    hw_domain_init(&domain);
    if (hw_peer_init(&peer, &domain, true, &loop, &rail_loop, 1, &ops, &io, NULL, &limits, binding) < 0)
        exit(1);
    died = 0;
}

static void drop_peer(void)
{
    hw_peer_die(&peer, -ESHUTDOWN);
    run_loop();
    ok(hw_peer_is_gone(&peer), "nothing of it stays once it is dead");
    hw_peer_free(&peer);
    hw_domain_free(&domain);
}

/* Tests a peer whose last word on a connection counts frames that were never sent. */
static void confirm_too_much(void)
{
    static char conn;
    struct hw_word mine, theirs = {.n = 1, .count = {5}};
    make_peer(&other);
    theirs.gen = hw_session_hello(&peer.session, 0, &mine);
    int rc = hw_session_start(&peer.session, 0, theirs.gen, &(struct hw_conn *){(void *)&conn}, 1, &theirs);
    run_both_loops();
    ok(rc == 0 && died == -EPROTO && strstr(reason, "frames: 5"), "a peer that confirms too much dies: %s", reason);
    run_both_loops();
    drop_peer();
}

static void ask_to_stop(void)
{
    uint32_t n = 0;
    make_peer(&loop);
    for (; !died && n < 4 * HW_CONTROLS; n++) {
        struct hw_control_in *c = calloc(1, sizeof *c);
        if (!c)
            exit(1);
        c->head = (struct hw_control_head){.sequence = n, .kind = HW_CONTROL_STOP, .a = n};
        hw_control_arrived(&peer, 0, c);
        run_loop();
    }
    ok(died == -EPROTO && n >= HW_CONTROLS && n <= HW_CONTROLS + 2 * HW_CONTROL_WINDOW,
       "a peer that reads no answer has its session for %u of them (%d)", n, died);
    drop_peer();
}

static void end_nothing(struct hw_op *op)
{
    (void)op;
}

/* Tests that receives that are posted and cancelled while the peer is silent are limited, and that the peer does not
 * die for them when its next message arrives. */
static void post_and_cancel(void)
{
    static uint8_t data[100];
    uint32_t n = 0;
    int rc = 0;
    make_peer(&loop);
    for (; rc == 0 && n < 4 * HW_CONTROLS; n++) {
        struct hw_op *op = hw_op_new(&peer, HW_OP_RECV, 1);
        if (!op)
            exit(1);
        op->span[0] = (struct hw_span){.space = &hw_host, .ptr = data, .len = sizeof data};
        op->over = end_nothing;
        rc = hw_op_post(op);
        if (rc == 0)
            hw_op_cancel(op, -ECANCELED);
        hw_op_put(op);
        run_loop();
    }
    ok(rc == -EAGAIN && n <= HW_CONTROLS && strstr(hw_error(), "of this side wait"),
       "receives for a silent peer are refused after %u (%d): %s", n, rc, hw_error());
    struct hw_control_in *c = calloc(1, sizeof *c);
    if (!c)
        exit(1);
    c->head = (struct hw_control_head){.sequence = 0, .kind = HW_CONTROL_STOP, .a = 0};
    hw_control_arrived(&peer, 0, c);
    run_loop();
    ok(!died, "the next message of the peer is processed (%d)", died);
    drop_peer();
}

static void ask_for_bytes(void)
{
    const unsigned most = HW_READS + HW_RAIL_LINKS * HW_LINK_FLIGHT;
    unsigned n = 0;
    int rc = 0;
    make_peer(&loop);
    for (; rc == 0 && n < 2 * most; n++) {
        uint8_t ext[HW_LINK_EXT_MAX];
        struct hw_piece piece[HW_LINK_PIECES];
        uint32_t pieces = 0;
        struct hw_link_in in = {.type = HW_MSG_READ, .ext = ext};
        struct hw_msg_vec v = {.handle = 1, .offset = 0, .len = 64};
        hw_msg_vecs_encode(ext, n, 0, 1);
        hw_msg_vec_encode(ext, 0, &v);
        in.ext_len = HW_MSG_VECS_HEAD + HW_MSG_VEC_SIZE;
        rc = hw_peer_session_ops.place(&peer, 0, &in, piece, &pieces);
        if (rc == 0)
            rc = hw_peer_session_ops.arrived(&peer, 0, &in);
        run_loop();
    }
    ok(rc == -EPROTO && n == most + 1, "a peer that confirms no answer has %u of its requests kept, of %u (%d)", n - 1,
       most, rc);
    drop_peer();
}

/* Tests that the sequence numbers of sent and received control messages wrap around. */
static void count_on(void)
{
    const uint32_t step = 1u << 26;
    bool marks = true, reads = true;
    make_peer(&loop);
    for (unsigned i = 0; i < 200; i++) {
        peer.out.next += step;
        marks = marks && hw_taken_arrived(&peer, (uint32_t)peer.out.next, peer.taken) == 0 &&
                hw_control_mark(&peer) == (uint32_t)peer.out.next;
    }
    ok(marks, "the mark stays the newest message that the peer has read");
    for (unsigned i = 0; i < 200 && !died; i++) {
        struct hw_control_in *c = calloc(1, sizeof *c);
        if (!c)
            exit(1);
        atomic_fetch_add(&peer.in.next, step);
        c->head = (struct hw_control_head){.sequence = (uint32_t)peer.in.next, .kind = HW_CONTROL_STOP, .a = i};
        hw_control_arrived(&peer, 0, c);
        run_loop();
        reads = reads && (int32_t)((uint32_t)peer.in.next - peer.in.told) >= 0;
    }
    ok(reads && !died, "no operation waits for a message that was read long ago (%d)", died);
    drop_peer();
}

static struct hw_op *post_noted(enum hw_op_kind kind, struct hw_import *import)
{
    static uint8_t data[100];
    struct hw_op *op = hw_op_new(&peer, kind, import ? 1 : 0);
    if (!op || !(op->note = hw_note_new(HW_NOTE_MAX)))
        exit(1);
    if (import)
        op->span[0] = (struct hw_span){.space = &hw_host, .ptr = data, .len = sizeof data, .import = import};
    op->over = end_nothing;
    if (hw_op_post(op) < 0)
        exit(1);
    return op;
}

/* Tests that a peer's death fails three writes with notifications that wait for a rail, and a notification that waits
 * for room in the peer's buffer. */
static void lose_notes(void)
{
    struct hw_op *op[4];
    struct hw_control_in *c = calloc(1, sizeof *c);
    unsigned right = 0;
    make_peer(&loop);
    struct hw_import *import;
    pthread_mutex_lock(&peer.lock);
    if (!c || hw_import_get(&peer, 7, 9, &import) < 0)
        exit(1);
    pthread_mutex_unlock(&peer.lock);
    c->head = (struct hw_control_head){.kind = HW_CONTROL_HANDLE, .a = 7, .b = 1, .d = 4096 << 3 | HAWSER_REMOTE_WRITE};
    hw_control_arrived(&peer, 0, c);
    for (unsigned i = 0; i < 4; i++)
        op[i] = i < 3 ? post_noted(HW_OP_WRITE, import) : post_noted(HW_OP_NOTIFY, NULL);
    run_loop();
    hw_peer_die(&peer, hw_fail(-ECONNRESET, "the reason"));
    ok(strcmp(hw_error(), "the reason") == 0, "the error text is still the reason of the death: %s", hw_error());
    run_loop();
    for (unsigned i = 0; i < 3; i++)
        right += atomic_load(&op[i]->result) == -ECONNRESET && op[i]->text && strcmp(op[i]->text, "the reason") == 0;
    is_int((int)right, 3, "the writes fail with it");
    is_int(atomic_load(&op[3]->result), -ECONNRESET, "the notification that waited fails too");
    for (unsigned i = 0; i < 4; i++)
        hw_op_put(op[i]);
    pthread_mutex_lock(&peer.lock);
    hw_import_put(&peer, import);
    pthread_mutex_unlock(&peer.lock);
    drop_peer();
}

int main(void)
{
    count_on();
    ask_to_stop();
    post_and_cancel();
    ask_for_bytes();
    confirm_too_much();
    lose_notes();
    return tap_done();
}
