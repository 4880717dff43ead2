#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the simulator: each fault below is planted in a copy of the library's source. The seeds in seeds.txt, or 10,000
other seeds, have to find the fault.

    test_planted.py CC SOURCE_ROOT ARCHIVE,ARCHIVE... LINK_ARGS [NAME...]

Each fault is a piece of text in a source file, and its replacement. The test also fails if the source no longer
contains the text, because the table would then prove nothing."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

SEEDS = 10000
LINK, LOOP, RAIL, SESSION, FLUSH = (f"lib/core/{name}.c" for name in ("link", "loop", "rail", "session", "flush"))
OP, DEADLINE, LANDING, REGION, CONTROL, QUEUE, TABLE, STREAM, FLOW_IN, FLOW_OUT = (
    f"lib/message/{name}.c" for name in ("op", "deadline", "landing", "region", "control", "queue", "queue_table", "stream", "flow_in", "flow_out"))
PLANTED = [
    ("the last word is not heeded: all is sent again", LINK,
     "    confirm_upto(l, count);\n    for (uint64_t n = count;", "    for (uint64_t n = count = l->confirmed;"),
    ("the last word is taken for more than it says", LINK,
     "    confirm_upto(l, count);\n    for (uint64_t n = count;", "    confirm_upto(l, l->started);\n    for (uint64_t n = l->started;"),
    ("the last frame that was lost is forgotten", LINK, "n < l->started; n++)\n        l->ops->lost", "n + 1 < l->started; n++)\n        l->ops->lost"),
    ("a frame counts before its payload is there", LINK,
     "    l->rx.in.ext = NULL;", "    l->rx.in.ext = NULL;\n    l->received += !l->rx.in.uncounted;\n    l->rx.in.uncounted = true;"),
    ("an uncounted frame counts", LINK, "if (rc == 0 && !l->rx.in.uncounted)", "if (rc == 0)"),
    ("a confirmation of frames that are not written is believed", LINK,
     "    if (!was_written(l, count))", "    if (count > l->started)"),
    ("a frame is taken for written before its last byte is", LINK, ".end = l->tx.framed,",
     ".end = l->tx.framed - pay,"),
    ("memory is read after its operation was called off", LINK,
     "return left ? copy_unsent(l, owner, left) : 0;", "return left ? 0 : 0;"),
    ("an operation of which one piece was sent is not looked for in the others", LINK,
     "    for (uint32_t i = l->tx.piece_at; i < l->tx.n_pieces; i++)\n        left +=",
     "    for (uint32_t i = l->tx.piece_at + 1; i < l->tx.n_pieces; i++)\n        left +="),
    ("the piece that is sent in part is left out of the copy", LINK,
     "    for (uint32_t i = l->tx.piece_at; i < l->tx.n_pieces; i++) {\n        struct hw_piece *p",
     "    for (uint32_t i = l->tx.piece_at + 1; i < l->tx.n_pieces; i++) {\n        struct hw_piece *p"),
    ("memory of other operations is sent in its place", LINK, "        if (p->owner != owner)\n            continue;\n        int rc", "        int rc"),
    ("memory is written after it was taken back", LINK, "            l->rx.piece[i].ptr = NULL;", "            ;"),
    ("memory that was taken back is written from the buffer", LINK,
     "    for (uint32_t i = l->rx.piece_at; i < l->rx.n_pieces; i++)\n        if (l->rx.piece[i].owner",
     "    for (uint32_t i = l->rx.piece_at + 1; i < l->rx.n_pieces; i++)\n        if (l->rx.piece[i].owner"),
    ("a frame that was placed is not abandoned at the end of its link", LINK, "    if (l->rx.state == HW_LINK_AT_PAYLOAD)\n        l->ops->abandoned", "    if (l->rx.placed)\n        return;\n    if (l->rx.state == HW_LINK_AT_PAYLOAD)\n        l->ops->abandoned"),
    ("the rest of a payload is placed from its beginning", LINK, "&l->rx.in, before, l->rx.piece", "&l->rx.in, before / 2, l->rx.piece"),
    ("what follows the first pieces of a payload is read into the buffer as frames", LINK, "l->rx.placed < l->rx.in.pay ? place_rest(l) : finish_frame(l)", "l->rx.placed + 40 < l->rx.in.pay ? place_rest(l) : finish_frame(l)"),
    ("the mark of a confirmation is taken before the next frames", RAIL, "    r->ops->marked(r->up, hw_get32(in->ext));\n", ""),
    ("a last word carries no mark", SESSION, "    out->ext_len = 4 + hw_word_encode(out->ext + 4, &note->word);",
     "    out->ext_len = 4 + hw_word_encode(out->ext + 4, &note->word);\n    hw_put32(out->ext + 8, 0);"),
    ("the mark of a last word is not told", SESSION, "    if (word->gen)\n        sr->session->ops->marked(sr->session->up, word->mark);\n", ""),
    ("the window leaks", LINK, "        l->in_flight -= f->bytes;\n        l->ops->confirmed",
     "        l->in_flight -= f->bytes - 100;\n        l->ops->confirmed"),
    ("the window is not kept", LINK, "l->window - l->in_flight : 0;", "l->window : 0;"),
    ("a full window holds confirmations up", LINK,
     "    return !l->tx.apart &&", "    return l->in_flight < l->window && !l->tx.apart &&"),
    ("a head is taken for the rest of the piece before it", LINK, "bool follows = ends_at_head(l, head);", "bool follows = l->tx.piece_at < l->tx.n_pieces;"),
    ("a payload that came with its head goes to the piece's start", LINK,
     "            memcpy(p->ptr, l->rx.buf + l->rx.at, part);\n            p->ptr += part;\n", "            memcpy(p->ptr, l->rx.buf + l->rx.at, part);\n"),
    ("bytes to be dropped are read behind others", LINK, "        if (!p->ptr && n && !apart)\n            return n;\n", ""),
    ("a small payload is sent twice", LINK, "+ (copied ? 0 : out.n_pieces);", "+ out.n_pieces;"),
    ("half a head is lost when the buffer is moved", LINK,
     "        memmove(l->rx.buf, l->rx.buf + l->rx.at, l->rx.end - l->rx.at);", ""),
    ("a byte that was read behind a payload is lost", LINK, "    l->rx.end += (uint32_t)n;", "    l->rx.end += (uint32_t)n - (n > 99);"),
    ("the ring of frames in flight is moved as it lies", LINK, "        to[i & (2ull * l->tx.ring - 1)] = *get_flight(l, i);",
     "        to[i & (l->tx.ring - 1)] = *get_flight(l, i);"),
    ("a task that is posted while it runs is forgotten", LOOP,
     "    atomic_store(&t->posted, false); /* from here on, a new post makes the task run once more */\n    t->run(t);",
     "    t->run(t);\n    atomic_store(&t->posted, false);"),
    ("tasks run newest first", LOOP, "**end = &t->next;\n    while (t) {\n        struct hw_task *next", "**end = &t->next;\n    if (t)\n        end = &(oldest = t)->next;\n    while (end && *end)\n        end = &(*end)->next;\n    while (t && !oldest) {\n        struct hw_task *next"),
    ("a loop is woken only for the second task", LOOP, "    if (!head || atomic_load(&l->slow))", "    if (head)"),
    ("what is below a timer is lost with it", LOOP, "    struct hw_timer *below = merge_siblings(t->child);", "    struct hw_timer *below = t->child ? merge_siblings(t->child->next) : NULL;"),
    ("of an odd number of timers the last one is lost", LOOP, "        struct hw_timer *pair = merge_heaps(t, other);", "        struct hw_timer *pair = merge_heaps(t, other);\n        if (!other && pairs)\n            break;"),
    ("a timer fires before its time", LOOP, "    if (!t || t->at > l->now)", "    if (!t || t->at > l->now + 5)"),
    ("the queue's end stays behind", LOOP, "        l->last = end;\n", ""),
    ("parcels that were in flight are forgotten", RAIL, "    atomic_fetch_add(&r->counts.lost_bytes, pay);\n    queue_parcel(r, p);",
     "    atomic_fetch_add(&r->counts.lost_bytes, pay);\n    (void)p;"),
    ("only the first parcel of a rail's inbox is kept", RAIL, "        queue_parcel(r, oldest);\n        oldest = next;",
     "        queue_parcel(r, oldest);\n        oldest = NULL;\n        (void)next;"),
    ("the links of a rail are confirmed by each other's counts", RAIL, "hw_link_confirm(&r->link[i].link,", "hw_link_confirm(&r->link[0].link,"),
    ("a rail ends without closing its connections", RAIL, "        r->io->close(r->link[i].conn);\n        hw_link_end", "        hw_link_end"),
    ("what a rail received is counted before it ends", RAIL, "        r->count[i] = r->link[i].link.received;", "        r->count[i] = r->link[i].told;"),
    ("the peer's last word on one generation is taken for another's", SESSION,
     "    if (word->gen == sr->gen)\n        sr->peers = *word;", "    if (word->gen >= sr->gen)\n        sr->peers = *word, sr->peers.gen = sr->gen;"),
    ("the server forgets its word on the last connection that the client had", SESSION, "    *mine = sr->kept;", "    *mine = sr->mine;"),
    ("the server takes it that the client had each connection up", SESSION, "sr->client.gen < sr->gen;", "sr->client.gen > sr->gen;"),
    ("parcels wait for ever", SESSION, "        route_waiting(s);\n}\n\nvoid hw_session_die", "        ;\n}\n\nvoid hw_session_die"),
    ("what a rail gives back is lost but for the first", SESSION, "        return_parcel(sr->session, list);\n        list = next;",
     "        return_parcel(sr->session, list);\n        list = NULL;\n        (void)next;"),
    ("an order to end outlives its connection", SESSION, "    if (atomic_exchange(&sr->order_end, false))", "    if (order != ORDER_SETTLE && atomic_load(&sr->order_end))"),
    ("a handshake begins while a connection is about to start", SESSION, " || sr->start.is || s->dead)\n        return 0;", " || s->dead)\n        return 0;"),
    ("a ping is not answered", RAIL, "        r->answer_due |= in->type == HW_RAIL_PING;", ""),
    ("a rail stays suspect once nothing is under way", RAIL, "    if (!busy)\n        set_suspect(r, false);\n", ""),
    ("nobody takes what only suspect rails could", SESSION, "            suspect = sr;\n    }\n    return suspect;", "            suspect = sr;\n    }\n    return NULL;"),
    ("a new connection is as silent as the last one", RAIL, "    note_heard(r);\n    hw_timer_set", "    hw_timer_set"),
    ("a silent peer is waited for for ever", RAIL, "    if (silent >= r->limits.dead) {", "    if (silent >= r->limits.dead * 100) {"),
    ("a rail goes on with memory that its owner took back", RAIL, "            rc = hw_link_let_go(&rl->link, owner);", "            rc = hw_link_let_go(&r->link[0].link, owner);"),
    ("memory is given back when the first rail has let go", SESSION, "    if (atomic_fetch_sub(&s->let_go.left, 1) == 1)",
     "    if (atomic_fetch_sub(&s->let_go.left, 1) == s->rails && (atomic_store(&s->let_go.left, 0), 1))"),
    ("memory that is taken back during a round is never asked for", SESSION, "        return; /* a round is in progress */", "        return (void)atomic_exchange(&s->let_go.asked, NULL);"),
    ("a rail that cannot start for want of memory says nothing", SESSION, "        post_report(sr, REPORT_ENDED | REPORT_DOWN);", "        ;"),
    ("memory that cannot be copied is read on", RAIL, "it had read for this memory */\n        if (rc < 0)", "it had read for this memory */\n        if (rc > 0)"),
    ("only the first of the parcels that one confirmation covers is done", RAIL, "        r->ops->done(r->up, r, list);", "        list->next = NULL, r->ops->done(r->up, r, list);"),
    ("what the last word confirms is not passed on", RAIL, "    pass_confirmed(r);\n    free_links(r);", "    free_links(r);"),
    ("an import is found after it was forgotten", REGION, "    if (t->recent == i)\n        t->recent = NULL;\n", ""),
    ("a frame is confirmed while its memory is read by reference", LINK, "get_flight(l, l->confirmed)->apart <= l->released", "true"),
    ("a frame is taken for released before its last byte is", LINK, ".apart = l->tx.apart_framed}", ".apart = l->tx.apart_framed - (l->tx.apart ? pay : 0)}"),
    ("a copy is freed while it is read by reference", LINK, "    while (l->gone > l->released && (copy", "    while (false && (copy"),
    ("a payload that travels apart is taken from behind its head", LINK, "            if (!hw_link_reads_apart(l))\n                store_payload(l);", "            store_payload(l);"),
    ("heads go by the stream for payloads", LINK, "heads ? l->tx.apart_at : l->tx.n_pieces;", "l->tx.n_pieces + 0 * heads;"),
    ("a small payload is read from the other stream", LINK, "(l->tx.apart ? HW_LINK_APART : 0)", "(l->apart.tx && pay ? HW_LINK_APART : 0)"),
    ("a device writes on to memory that was taken back", RAIL, "            rc = r->io->discard(rl->conn);\n", "            rc = 0;\n"),
    ("a device reads on from memory that was taken back", RAIL, "if (rc == 0 && r->io->stop_reading && hw_link_sends_apart(&rl->link))", "if (false)"),
    ("memory is given back while it is read by reference", SESSION, "sr->has_let_go = hw_rail_is_reading(&sr->rail, t);", "sr->has_let_go = false;"),
    ("what is read by reference is not looked at again when a rail ends", RAIL, "    if (r->reading)\n        hw_loop_post(r->loop, r->reading);\n    r->mark", "    r->mark"),
    ("frames that the peer said it has are lost with the rail", LINK, "    confirm_upto(l, l->said);\n    if (l->rx", "    if (l->rx"),
    ("bytes of an abandoned frame stay reserved", LANDING, "        if (atomic_compare_exchange_weak(&g->state, &state, state + n))\n            return HW_LANDING_GOES_ON;", "        return HW_LANDING_GOES_ON;"),
    ("a landing that was given up takes bytes", LANDING, "    *state = atomic_exchange(&g->state, make_state(get_own_generation(g) + 1, 0));", "    *state = atomic_load(&g->state);\n    if (*state & ROOM_MASK)\n        return true;\n    atomic_store(&g->state, make_state(get_own_generation(g) + 1, 0));"),
    ("a handle's number is used again for another region", REGION, "h->number + HW_HANDLES;", "h->number;"),
    ("a region is given back while rails hold its handle", REGION, "        x->left++;\n", ""),
    ("a proof of another secret is taken", REGION, "sodium_memcmp(right, proof, sizeof right) != 0", "sodium_memcmp(right, proof, 0) != 0"),
    ("an operation ends before a refusal is here", OP, "    op->is_fenced = is_fenced(op) && !p->dead &&", "    op->is_fenced = false &&"),
    ("an operation that is called off ends before rails let go of it", OP, "    while (!atomic_compare_exchange_weak(&op->left, &left, left + 1));", "    while (!atomic_compare_exchange_weak(&op->left, &left, left + op->first.parcel.small));"),
    ("pieces of a frame that was given up stay in the next one", RAIL, "        out->n_pieces = out->ext_len = 0;", "    out->ext_len = 0;"),
    ("what a session that died had is taken for done", FLOW_OUT, "        hw_op_set_result(op, p->session.dead);\n", "        ;\n"),
    ("a request that was stopped is never counted down", FLOW_IN, "        p->n_stopping--;\n        hw_request_ended(p);\n", "        p->n_stopping--;\n"),
    ("a request that nobody stopped is counted as stopped", FLOW_IN, "    bool any = p->n_stopping > 0;", "    bool any = p->requests > 0;"),
    ("a refused write is counted", FLOW_IN, "    if (refused)\n        return hw_control_refuse", "    if (refused && in->pay == 7)\n        return hw_control_refuse"),
    ("a notification comes before the last bytes of its write", FLOW_IN, "return (next & COUNT_MASK) == 0;", "return (next & COUNT_MASK) == 0 || bytes > 2000;"),
    ("control messages are read as they come", CONTROL, "        *at = c;\n", "        p->in.ring[atomic_load(&p->in.next) % HW_CONTROL_WINDOW] = c;\n"),
    ("a mark says too little", CONTROL, "        atomic_store(&p->out.refused, (uint32_t)p->out.next);", "        atomic_store(&p->out.refused, (uint32_t)p->out.next - 1);"),
    ("a control message that met a lack of memory is dropped", CONTROL, "            rc = 0;\n            break;\n", "            rc = 0;\n"),
    ("a rail that cannot start leaves a last word without a mark", SESSION, ".gen = sr->order_gen, .mark = get_mark(sr)};", ".gen = sr->order_gen, .mark = 0};"),
    ("a notification behind one that was called off waits for ever", OP, "    hw_notes_resume(p); /* the first", "    /* the first"),
    ("a notification that lost its write stays", OP, "    if (op->noted_sent && atomic_load(&op->result))", "    if (false)"),
    ("a write whose memory was taken back half-way counts", FLOW_IN, "        if (in->dropped)\n", "        if (in->dropped && in->pay == 7)\n"),
    ("an eager message goes to a receive that data is on its way to", QUEUE, "op->granted < h->b)", "op->granted + 99999 < h->b)"),
    ("a receive is used while an eager message may have it", QUEUE, "bool direct = g && !q->unanswered;", "bool direct = g;"),
    ("an eager message says that all receives are taken", QUEUE, ".b = g ? g->number : t->seen,", ".b = t->seen,"),
    ("a message that was called off ends once more with its answer", QUEUE, "    op->match = HW_MATCH_NONE; /* an answer", "    /* an answer"),
    ("a send ends before it reads that its receive was called off", QUEUE, "    atomic_store(&p->out.refused, (uint32_t)p->out.next + 1);\n", ""),
    ("room for eager messages leaks", QUEUE, "    t->sent -= cost;\n", "    t->sent -= cost - (cost > 4000);\n"),
    ("a message that is too long for its receive is cut", QUEUE, "uint64_t error = note->len > op->total ? EMSGSIZE : 0;", "uint64_t error = 0;"),
    ("an eager message that was called off stays", QUEUE, "        drop_held(p, held);\n    hw_queue_put(&p->queues, hw_queue_find(&p->queues, h->c));\n    return rc;", "        drop_held(p, held);\n    return rc;"),
    ("a short message leaves its receive open", FLOW_OUT, "c->from == 0 ? op->rest : 0", "c->from == 1 ? op->rest : 0"),
    ("a receive waits for refusals, and is called off meanwhile", OP, "(op->kind == HW_OP_WRITE || op->kind == HW_OP_SEND) &&", "true &&"),
    ("a chunk of a large operation is never freed", FLOW_OUT, "    if (c != &c->op->first)\n        free(c);\n    else", "    if (c == &c->op->first)"),
    ("room for operations is counted where there was no memory for it", OP, "            struct op_slot *slot = realloc", "            p->slot_room = room;\n            struct op_slot *slot = realloc"),
    ("a side that can send takes the peer for alive", RAIL, "        if (done > 0 && rl->full)\n            note_heard", "        if (done > 0)\n            note_heard"),
    ("a silent peer is not asked for a word", RAIL, "    r->ping_due |= silent >= r->limits.ping;\n", ""),
    ("a link that stands still is waited for for ever", RAIL, "    return still < r->limits.dead\n", "    return still < r->limits.dead * 1000\n"),
    ("a link that moves is taken for one that stands still", RAIL, "    if (progress != rl->progress || rl->link.in_flight == 0) {", "    if (rl->link.in_flight == 0) {"),
    ("deadlines that the clock jumped over are not looked at", DEADLINE, "p->deadlines.looked : tick - HW_TICKS + 1;", "p->deadlines.looked : tick;"),
    ("a peer that does not answer is waited for for ever", DEADLINE, "    else if (now >= op->answer_by)\n        return true;\n", ""),
    ("a peer has no time to answer", DEADLINE, "        op->answer_by = now + op->peer->answer_in;", "        op->answer_by = now + 1;"),
    ("what was called off is put where nobody looks any more", DEADLINE, "HW_MAX(op->deadline / HW_TICK, p->deadlines.looked)", "op->deadline / HW_TICK"),
    ("an operation whose deadline is gone is still counted", DEADLINE, "    op->peer->deadlines.n--;\n", "    op->peer->deadlines.n -= op->kind != HW_OP_READ;\n"),
    ("the window of control messages is twice as long", CONTROL, "    return sequence - p->out.acked < HW_CONTROL_WINDOW;", "    return sequence - p->out.acked < 2 * HW_CONTROL_WINDOW;"),
    ("streams that either side has closed share one bound", STREAM, "    if ((first ? t->n_closed_first : t->n_closed - t->n_closed_first) == HW_QUEUES) {", "    if (t->n_closed >= HW_QUEUES) {"),
    ("a stream that both sides have closed is remembered", STREAM, "    if (c->here != c->there)\n        return;", "    if (c->here != c->there || t->n > 1)\n        return;"),
    ("sends go on once the peer has closed their stream", STREAM, "        cancel_stream(p, stream, false, -ESHUTDOWN);\n", ""),
    ("what is pending when its stream is closed goes on", STREAM, "    cancel_stream(p, stream, true, -ECANCELED);\n", ""),
    ("receives of the peer's stay when their stream is closed", STREAM, "    hw_queues_refuse(p, stream);\n", ""),
    ("a message to a stream that is closed is kept", QUEUE, "    if (hw_stream_is_closed(&p->queues, h->c, true)) {\n        int sent", "    if (false) {\n        int sent"),
    ("room of a message that is refused is never free", QUEUE, "        if (sent == 0)\n            hw_eager_give(p, (*note)->len); /* the caller frees the message */\n", ""),
    ("who closes is not heard", FLOW_IN, "        p->ops->bye(p->up);\n", ""),
    ("a side says twice that it closes", OP, "    if (op->kind == HW_OP_BYE)\n", "    if (op->kind == HW_OP_BYE)\n        (void)hw_control_send_locked(p, &(struct hw_control){.kind = HW_CONTROL_BYE});\n    if (op->kind == HW_OP_BYE)\n"),
    ("a side closes before its confirmations are at the peer", OP, "    hw_session_flush(&op->peer->session);\n",
     "    hw_list_remove(&op->queued);\n    op->flushes = false;\n    hw_op_sub_locked(op, 1);\n"),
    ("a barrier overtakes small parcels", RAIL, "    if (r->small.first)\n        return false;\n    struct hw_parcel *p = take_parcel(&r->barrier)", "    struct hw_parcel *p = take_parcel(&r->barrier)"),
    ("barriers are not sent again when a rail has given parcels back", FLUSH, "    if (atomic_load(&s->flush.again)) {\n", "    if (atomic_load(&s->flush.again) && !s->rail[0].barrier.parcel.barrier) {\n"),
    ("a peer may write behind the end of a region", REGION, "    if (offset > x->len || len > x->len - offset)\n        return -EFAULT;\n", ""),
    ("more data than was asked for is taken", LANDING, "|| (state & ROOM_MASK) < n)", "|| !(state & ROOM_MASK))"),
    ("a control message may come twice", CONTROL, "    if (c->head.sequence - get_next(p) < HW_CONTROL_WINDOW && !*at) {", "    if (c->head.sequence - get_next(p) < HW_CONTROL_WINDOW) {"),
    ("the server keeps no account of a connection that it gave up", SESSION, "        sr->gen = gen;\n        sr->mine = none;\n", ""),
    ("a write does not wait for one that was given up", OP, "op->total && op->peer->deserted) {", "op->total && false) {"),
    ("a caller gets memory back that rails still touch", DEADLINE, "op->let_go_over && !op->deserted", "!op->deserted"),
    ("refusals that a peer has announced are waited for for ever", OP, "    if (op->is_fenced) { /*", "    if (false) { /*"),
    ("a receive that waits for a message to come again is given another", QUEUE,
     "        hw_list_remove(&op->queued);    /* the receive is taken */\n", ""),
    ("a stream is closed by half", STREAM, "    c->here = true; /*", "    c->here = false; /*"),
]


def run_one(cc, root, archives, link, row):
    with tempfile.TemporaryDirectory() as folder:
        return run_in(pathlib.Path(folder), cc, root, archives, link, row)


def run_in(folder, cc, root, archives, link, row):
    name, path, old, new = row
    text = (root / path).read_text(encoding="utf-8")
    if text.count(old) != 1:
        return f"its text stands {text.count(old)} times in {path}"
    source = folder / "planted.c"
    source.write_text(text.replace(old, new), encoding="utf-8")
    sim = folder / "sim"
    build = subprocess.run([*cc.split(), "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-w", f"-I{root}/include", f"-I{root}/lib", source,
                            *archives, "-lsodium", "-lm", "-ldl", "-lpthread", *link.split(), "-o", sim],
                           capture_output=True, text=True, check=False)
    if build.returncode:
        return "it does not compile: " + build.stderr.strip().splitlines()[0]
    try:
        done = subprocess.run([sim, "--list", root / "tests/sim/seeds.txt", "--seeds", f"1:{SEEDS}"],
                              capture_output=True, text=True, check=False, timeout=600)
    except subprocess.TimeoutExpired:
        return "600 s were not enough"
    return None if done.returncode else f"{SEEDS} seeds do not find it"


def main():
    cc, root, archives, link, *names = sys.argv[1:]
    rows = [r for r in PLANTED if not names or r[0] in names]
    failed = 0
    print(f"1..{len(rows)}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda row: run_one(cc, pathlib.Path(root), archives.split(","), link, row), rows)
        for k, (row, why) in enumerate(zip(rows, results), 1):
            failed += why is not None
            print(f"{'ok' if why is None else 'not ok'} {k} - found: {row[0]}" + (f": {why}" if why else ""), flush=True)
    return failed != 0


sys.exit(main())
