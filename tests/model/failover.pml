/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failover of a session with two rails: a spin model of lib/core/session.c, rail.c and link.c. failover.py runs it, and
 * plants defects in it.
 *
 * Events: the client connects each rail, and reconnects it; a connection breaks, a handshake is given up, a rail cannot
 * start: up to FAILURES of these failures, at any time, on either rail. Each side notices independently that a
 * connection has ended, and until then receives what was sent. Last words go to the peer in handshakes and by rails,
 * and those that a rail loses are sent again.
 *
 * Claims, in each reachable state:
 *   - no parcel is delivered twice; a parcel that is done was delivered;
 *   - a rail is settled with a count of its own generation, which is no less than what was acknowledged, and no more
 *     than what was sent;
 *   - a handshake is never refused, and only a failure makes the client reconnect a rail;
 *   - if nothing can happen any more except failures, everything that was posted is delivered and acknowledged. No step
 *     except a failure can be repeated endlessly (failover.py looks for cycles), so this state is reached once failures
 *     stop.
 *
 * Simplifications:
 *   - One parcel is watched; of the others only the number of frames before and after it on the connection matters. The
 *     protocol does not look into parcels, so what holds for the watched one holds for all. A connection carries up to
 *     FRAMES frames.
 *   - Data goes one way: SENDER is CLIENT or SERVER, and both are run. No step of the protocol depends on a count of
 *     data, so the two directions do not influence each other. Last words go both ways in each run.
 *   - A connection is not a queue, but the number of frames that were sent, the watched one's place among them, and the
 *     number that was received.
 *   - A rail has two links here: last words use link 0, data link 1, each with its own count, as in a rail of several
 *     links. Link 0 has no count in the model: the words that arrived by it are known one by one, and may overtake each
 *     other, which the session's lists permit as well.
 *   - A word that has no information for its reader any more is removed: the reader ignores it, so no later state
 *     differs.
 *   - The home loop and a rail's loop are one. A late report equals a late end, before which the rail received nothing:
 *     the search covers that. A parcel in the queue of a rail that ends returns to the home loop, so it equals one that
 *     waits there.
 *   - hello and ask are one step: a lost ASK changes nothing at the server, and the last word in it does not change
 *     while the client is not up. At most one attempt per rail is in progress: the server cannot distinguish an older
 *     ASK that arrives late from one that arrived before the client gave it up.
 *
 * Not modelled: a session that dies, marks, the release of memory, acknowledgements that contradict what was sent (the
 * simulator has them), more than two rails. The model assumes that the server starts a rail when it answers, as with
 * TCP, and that each rail can be reconnected eventually. Two options remove these assumptions:
 *   MEETS  the server starts a rail some time after its answer, perhaps later than the client, or not at all
 *   CUTS   a rail may be cut permanently, at the cost of one failure, unless the other one is cut
 * They require two properties of lib/core, and spin finds the fault if a DEFECT removes one of these:
 *   DEFECT_VOID_UNSAID      a side that gives up a generation which the peer may have started sends "0 frames" as its
 *                           last word on it, by another rail; the server counts it as started and ended
 *                           (hw_session_give_up)
 *   DEFECT_OLDER_DISPLACES  an older last word does not displace a newer one in `ahead`
 */
#define CLIENT 0
#define SERVER 1
#ifndef SENDER
#define SENDER CLIENT
#endif
#ifndef FAILURES
#define FAILURES 2
#endif
#ifndef FRAMES
#define FRAMES 2
#endif
#define RECEIVER (1 - SENDER)
#define GENS     (FAILURES + 1) /* each connection of a rail except the first follows a failure */

/* State of a rail on one side. */
#define DOWN  0
#define UP    1
#define ENDED 2 /* but not settled */

/* A handshake. */
#define NONE     0
#define ASKED    1 /* the server knows of it, and has not answered */
#define WELCOME  2 /* the server's answer is in flight */
#define STARTING 3 /* the client has the answer, and first settles the previous connection */

/* Where a word or the watched parcel is. */
#define NO      0 /* a word: none exists */
#define WAITING 1
#define BY(q)   (2 + (q)) /* in flight on rail q */
#define READ    4         /* a word: the link has counted it, but the home loop has not seen it */
#define DONE    4         /* the parcel: acknowledged */

/* For side s and rail r, at index AT(s, r). */
#define AT(s, r) ((s) * 2 + (r))
byte state[4];
byte gen[4];   /* newest generation that was started */
byte asked[4]; /* newest generation that was requested */
byte peers[4]; /* generation of the peer's last word, if that is gen; else 0 */
byte truth[4]; /* the real generation of that word */
byte ahead[4]; /* a generation that this side has not started, but has the peer's last word on; or 0 */

/* For rail r. */
byte hand[2];   /* the handshake */
byte client[2]; /* server: generation of the client's last word when it asked */
byte kept[2];   /* server: generation of its word that the answer carries */
bit meets[2];   /* MEETS: the server has answered, and not started yet */
bit broken[2];  /* the newest connection is broken */
bit cut[2];

/* The last words of side s on generation n of rail r: where each one is, and its count of data, if s receives. */
#define WORD(s, r, n) (AT(s, r) * GENS + (n) - 1)
#define COUNT(r, n)   ((r) * GENS + (n) - 1)
byte word[4 * GENS];
byte count[2 * GENS]; /* 0 again once the sender no longer needs it */

/* The data on rail r's connection. */
byte sent[2];
byte place[2]; /* place of the watched parcel among these; 0: not there */
byte said[2];  /* number that the sender knows to have arrived */
byte got[2];   /* number that the receiver has got, while it is up */

byte where = WAITING;
bit delivered;
byte failures;
byte k; /* for loops: 0 between steps */

#ifdef DEFECT_OLD_WORD
#define is_stale(s, r, n) false
#else
#define is_stale(s, r, n)                                                                                              \
    (gen[AT(1 - (s), r)] > n ||                                                                                        \
     (gen[AT(1 - (s), r)] == n && (state[AT(1 - (s), r)] == DOWN || peers[AT(1 - (s), r)] == n)))
#endif

#define may_fail      (failures < FAILURES)
#define same_gen(r)   (gen[AT(CLIENT, r)] == gen[AT(SERVER, r)])
#define is_told(s, r) (peers[AT(s, r)] == gen[AT(s, r)])
#define is_newer(r)   (asked[AT(SERVER, r)] > gen[AT(SERVER, r)])

/* ---- last words ----------------------------------------------------------------------------------- */

/* Removes words without new information for side s on rail r. */
inline forget_stale(s, r)
{
    k = 1;
    do
    :: k <= GENS ->
        if
        :: is_stale(1 - (s), r, k) -> word[WORD(1 - (s), r, k)] = NO
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0;
    if
    :: ahead[AT(s, r)] <= gen[AT(s, r)] -> ahead[AT(s, r)] = 0
    :: else
    fi
}

inline send_word(s, r, n)
{
    if
    :: !is_stale(s, r, n) -> word[WORD(s, r, n)] = WAITING
    :: else
    fi
}

/* note_word() of session.c */
inline note_word(s, r, n)
{
    if
    :: n && n == gen[AT(s, r)] && state[AT(s, r)] != DOWN -> peers[AT(s, r)] = n; truth[AT(s, r)] = n
#ifdef DEFECT_OLD_WORD
    :: n && n < gen[AT(s, r)] && state[AT(s, r)] != DOWN -> peers[AT(s, r)] = gen[AT(s, r)]; truth[AT(s, r)] = n
#endif
#ifdef DEFECT_NEW_WORD
    :: n > gen[AT(s, r)] && state[AT(s, r)] != DOWN -> peers[AT(s, r)] = gen[AT(s, r)]; truth[AT(s, r)] = n
    :: n > gen[AT(s, r)] && state[AT(s, r)] == DOWN -> ahead[AT(s, r)] = n
#elif !defined(DEFECT_OLDER_DISPLACES)
    :: n > gen[AT(s, r)] && n > ahead[AT(s, r)] -> ahead[AT(s, r)] = n
#else
    :: n > gen[AT(s, r)] -> ahead[AT(s, r)] = n
#endif
    :: else
    fi;
    forget_stale(s, r)
}

/* Words that were in flight on rail r when it ended, and did not arrive, wait again. */
inline return_words(s, r)
{
    k = 0;
    do
    :: k < 2 * GENS ->
        if
#ifdef DEFECT_WORD_NOT_SENT_AGAIN
        :: word[AT(s, 0) * GENS + k] == BY(r) -> word[AT(s, 0) * GENS + k] = NO
#else
        :: word[AT(s, 0) * GENS + k] == BY(r) -> word[AT(s, 0) * GENS + k] = WAITING
#endif
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* ---- a rail starts, ends, is settled --------------------------------------------------------------- */

/* order_start() of session.c */
inline start_rail(s, r)
{
    gen[AT(s, r)] = asked[AT(s, r)];
    state[AT(s, r)] = UP;
    if
    :: s == SENDER -> sent[r] = 0; place[r] = 0; said[r] = 0
    :: else -> got[r] = 0
    fi;
    peers[AT(s, r)] = 0;
    truth[AT(s, r)] = 0;
    if
    :: ahead[AT(s, r)] == gen[AT(s, r)] -> peers[AT(s, r)] = gen[AT(s, r)]; truth[AT(s, r)] = gen[AT(s, r)]
    :: else
    fi;
    forget_stale(s, r)
}

/* hw_rail_start() has failed: down again at once, with a last word of 0. */
inline fail_start(s, r)
{
    gen[AT(s, r)] = asked[AT(s, r)];
    state[AT(s, r)] = DOWN;
    send_word(s, r, gen[AT(s, r)]);
    forget_stale(s, r)
}

/* MEETS: the server gives up a generation that it has answered and not started. */
inline drop_meeting(r)
{
    meets[r] = 0;
#ifndef DEFECT_VOID_UNSAID
    gen[AT(SERVER, r)] = asked[AT(SERVER, r)];
    send_word(SERVER, r, gen[AT(SERVER, r)]);
    forget_stale(SERVER, r)
#endif
}

inline give_up(r)
{
    hand[r] = NONE;
#ifndef DEFECT_VOID_UNSAID
    send_word(CLIENT, r, asked[AT(CLIENT, r)])
#endif
}

/* hw_session_answer() */
inline answer_ask(r)
{
#ifdef DEFECT_SERVER_FORGETS
    kept[r] = gen[AT(SERVER, r)];
#else
    if
    :: gen[AT(SERVER, r)] == client[r] -> kept[r] = gen[AT(SERVER, r)]
    :: else
    fi;
#endif
    broken[r] = 0;
    hand[r] = WELCOME
}

/* hw_rail_end(), and take_report() of session.c */
inline end_rail(s, r)
{
    state[AT(s, r)] = ENDED;
    if
    :: s == RECEIVER ->
#ifdef DEFECT_NOT_COUNTED
        count[COUNT(r, gen[AT(s, r)])] = (got[r] > 0 -> got[r] - 1 : 0);
#elif defined(DEFECT_COUNTED_EARLY)
        count[COUNT(r, gen[AT(s, r)])] = (same_gen(r) && sent[r] > got[r] -> got[r] + 1 : got[r]);
#else
        count[COUNT(r, gen[AT(s, r)])] = got[r];
#endif
        got[r] = 0
    :: else
    fi;
    send_word(s, r, gen[AT(s, r)])
}

/* hw_rail_settle(), with the peer's count. */
inline settle_data(r, n)
{
    assert(n >= said[r] && n <= sent[r]);
    if
    :: where == BY(r) && place[r] <= n -> where = DONE; assert(delivered)
    :: where == BY(r) && place[r] > n -> where = WAITING
    :: else
    fi;
    count[COUNT(r, gen[AT(SENDER, r)])] = 0;
    said[r] = 0;
    if
    :: state[AT(RECEIVER, r)] == UP && same_gen(r) /* a defect: what was sent may still arrive */
    :: else -> sent[r] = 0; place[r] = 0
    fi
}

inline settle_rail(s, r)
{
    if
    :: is_told(s, r) -> assert(truth[AT(s, r)] == gen[AT(s, r)])
    :: else
    fi;
    if
#ifdef DEFECT_WORD_IGNORED
    :: s == SENDER && is_told(s, r) -> settle_data(r, said[r])
#elif defined(DEFECT_WORD_EXAGGERATED)
    :: s == SENDER && is_told(s, r) -> settle_data(r, sent[r])
#else
    :: s == SENDER && is_told(s, r) -> settle_data(r, count[COUNT(r, truth[AT(s, r)])])
#endif
    :: s == SENDER && !is_told(s, r) -> settle_data(r, said[r])
    :: else
    fi;
    return_words(s, r);
    state[AT(s, r)] = DOWN;
    peers[AT(s, r)] = 0;
    truth[AT(s, r)] = 0;
    forget_stale(s, r);
    if
    :: s == CLIENT && hand[r] == STARTING -> start_rail(CLIENT, r); hand[r] = NONE
    :: else
    fi
}

/* ---- when a step can be taken ----------------------------------------------------------------------- */

#define can_ask(r)     (state[AT(CLIENT, r)] != UP && hand[r] == NONE && !cut[r])
#define can_answer(r)  (hand[r] == ASKED && state[AT(SERVER, r)] == DOWN)
#define can_give_up(r) (hand[r] == ASKED || hand[r] == WELCOME)
#define has_conn(r)    (state[AT(CLIENT, r)] == UP || state[AT(SERVER, r)] == UP || hand[r] == STARTING || meets[r])

/* The client has the server's newest connection, or may still take it; and the other way round. */
#define client_wants(r)                                                                                                \
    (hand[r] == WELCOME || hand[r] == STARTING ||                                                                      \
     (state[AT(CLIENT, r)] == UP && gen[AT(CLIENT, r)] == asked[AT(SERVER, r)]))
#define server_wants(r)                                                                                                \
    (meets[r] || (state[AT(SERVER, r)] == UP && gen[AT(SERVER, r)] == gen[AT(CLIENT, r)]))
#define is_alone(s, r) ((s) == SERVER -> !client_wants(r) : !server_wants(r))
#define can_end(s, r)                                                                                                  \
    (state[AT(s, r)] == UP && (broken[r] || is_alone(s, r) || is_told(s, r) || ((s) == SERVER && is_newer(r))))

#if defined(DEFECT_SETTLED_EARLY)
#define can_settle(s, r) (state[AT(s, r)] == ENDED)
#elif defined(DEFECT_CLIENT_HAD_ALL)
#define can_settle(s, r) (state[AT(s, r)] == ENDED && is_told(s, r))
#else
#define can_settle(s, r)                                                                                               \
    (state[AT(s, r)] == ENDED &&                                                                                       \
     (is_told(s, r) || ((s) == SERVER && is_newer(r) && client[r] < gen[AT(SERVER, r)])))
#endif

#define can_send(r) (state[AT(SENDER, r)] == UP && sent[r] < FRAMES)
#define can_post(r) (can_send(r) && where == WAITING)
#define can_pad(r)  (can_send(r) && (place[r] > 0 || sent[r] + 1 < FRAMES)) /* leaves room for the watched parcel */
#ifdef DEFECT_RECEIVED_LATE
#define can_get(r) (state[AT(RECEIVER, r)] != DOWN && same_gen(r) && got[r] < sent[r])
#else
#define can_get(r) (state[AT(RECEIVER, r)] == UP && same_gen(r) && got[r] < sent[r])
#endif
#define can_hear(r)                                                                                                    \
    (state[AT(SENDER, r)] == UP && same_gen(r) &&                                                                      \
     (said[r] < got[r] || (state[AT(RECEIVER, r)] == ENDED && said[r] < count[COUNT(r, gen[AT(SENDER, r)])])))

#define can_pull(s, r, n, q) (word[WORD(s, r, n)] == WAITING && state[AT(s, q)] == UP)
#define can_read(s, r, n, q) (word[WORD(s, r, n)] == BY(q) && state[AT(1 - (s), q)] == UP && same_gen(q))
#define can_note(s, r, n)    (word[WORD(s, r, n)] == READ)
#define can_move(s, r, n)                                                                                              \
    (can_pull(s, r, n, 0) || can_pull(s, r, n, 1) || can_read(s, r, n, 0) || can_read(s, r, n, 1) || can_note(s, r, n))

/* Steps that are not failures. */
#define rail_can(r)                                                                                                    \
    (can_ask(r) || can_answer(r) || hand[r] == WELCOME || meets[r] || (cut[r] && can_give_up(r)) ||                    \
     can_end(CLIENT, r) || can_end(SERVER, r) || can_settle(CLIENT, r) || can_settle(SERVER, r) || can_post(r) ||      \
     can_pad(r) || can_get(r) || can_hear(r))
#define word_can(n) (can_move(0, 0, n) || can_move(0, 1, n) || can_move(1, 0, n) || can_move(1, 1, n))
#if FAILURES == 1
#define words_can (word_can(1) || word_can(2))
#elif FAILURES == 2
#define words_can (word_can(1) || word_can(2) || word_can(3))
#elif FAILURES == 3
#define words_can (word_can(1) || word_can(2) || word_can(3) || word_can(4))
#elif FAILURES == 4
#define words_can (word_can(1) || word_can(2) || word_can(3) || word_can(4) || word_can(5))
#else
#error "FAILURES is 1, 2, 3 or 4"
#endif

/* ---- steps -------------------------------------------------------------------------------------------- */

proctype connect_rail(byte r)
{
end:
    do
    :: d_step { /* hw_session_hello(), hw_session_ask() */
        can_ask(r) ->
        assert(asked[AT(CLIENT, r)] < GENS);
        asked[AT(CLIENT, r)]++;
        if
        :: meets[r] -> drop_meeting(r)
        :: else
        fi;
        assert(gen[AT(CLIENT, r)] <= gen[AT(SERVER, r)]); /* otherwise it would be refused */
        asked[AT(SERVER, r)] = asked[AT(CLIENT, r)];
        client[r] = gen[AT(CLIENT, r)];
#ifndef DEFECT_SILENT_ASK
        note_word(SERVER, r, client[r]);
#endif
        hand[r] = ASKED
    }
#ifdef MEETS
    :: d_step { can_answer(r) -> answer_ask(r); meets[r] = 1 }
    :: d_step { meets[r] -> start_rail(SERVER, r); meets[r] = 0 }
    :: d_step { meets[r] && may_fail -> failures++; fail_start(SERVER, r); meets[r] = 0 }
    :: d_step { meets[r] && may_fail -> failures++; drop_meeting(r) }
    :: d_step { meets[r] && (broken[r] || !client_wants(r)) -> drop_meeting(r) }
#else
    :: d_step { can_answer(r) -> answer_ask(r); start_rail(SERVER, r) }
    :: d_step { can_answer(r) && may_fail -> failures++; answer_ask(r); fail_start(SERVER, r) }
#endif
    :: d_step { /* hw_session_start() of the client */
        hand[r] == WELCOME ->
        note_word(CLIENT, r, kept[r]);
        hand[r] = STARTING;
        if
#ifdef DEFECT_STARTED_UNSETTLED
        :: true -> start_rail(CLIENT, r); hand[r] = NONE
#else
        :: state[AT(CLIENT, r)] == DOWN -> start_rail(CLIENT, r); hand[r] = NONE
        :: else
#endif
        fi
    }
    :: d_step {
        hand[r] == WELCOME && state[AT(CLIENT, r)] == DOWN && may_fail ->
        failures++;
        fail_start(CLIENT, r);
        hand[r] = NONE
    }
    :: d_step { may_fail && has_conn(r) && !broken[r] -> failures++; broken[r] = 1 }
    :: d_step { may_fail && can_give_up(r) -> failures++; give_up(r) }
#ifdef CUTS
    :: d_step { may_fail && !cut[0] && !cut[1] -> failures++; cut[r] = 1; broken[r] = 1 }
    :: d_step { cut[r] && can_give_up(r) -> give_up(r) }
#endif
    od
}

proctype end_and_settle(byte s; byte r)
{
end:
    do
    :: d_step { can_end(s, r) -> end_rail(s, r) }
    :: d_step { can_settle(s, r) -> settle_rail(s, r) }
    od
}

proctype carry_data(byte r)
{
end:
    do
    :: d_step { can_post(r) -> sent[r]++; place[r] = sent[r]; where = BY(r) }
    :: d_step { can_pad(r) -> sent[r]++ }
    :: d_step {
        can_get(r) ->
        got[r]++;
        if
        :: got[r] == place[r] -> assert(!delivered); delivered = 1
        :: else
        fi
    }
    :: d_step { /* an acknowledgement */
        can_hear(r) ->
        said[r]++;
        if
        :: where == BY(r) && place[r] == said[r] -> where = DONE; assert(delivered)
        :: else
        fi
    }
    od
}

/* Carries the last word of a side on one generation of a rail. */
proctype carry_word(byte side; byte rail; byte of_gen)
{
end:
    do
    :: d_step { can_pull(side, rail, of_gen, 0) -> word[WORD(side, rail, of_gen)] = BY(0) }
    :: d_step { can_pull(side, rail, of_gen, 1) -> word[WORD(side, rail, of_gen)] = BY(1) }
    :: d_step {
        can_read(side, rail, of_gen, 0) || can_read(side, rail, of_gen, 1) ->
        word[WORD(side, rail, of_gen)] = READ
    }
    :: d_step { can_note(side, rail, of_gen) -> word[WORD(side, rail, of_gen)] = NO; note_word(1 - side, rail, of_gen) }
    od
}

init
{
    atomic {
        run connect_rail(0);
        run connect_rail(1);
        run end_and_settle(CLIENT, 0);
        run end_and_settle(CLIENT, 1);
        run end_and_settle(SERVER, 0);
        run end_and_settle(SERVER, 1);
        run carry_data(0);
        run carry_data(1);
        k = 1;
        do
        :: k <= GENS ->
            run carry_word(CLIENT, 0, k);
            run carry_word(CLIENT, 1, k);
            run carry_word(SERVER, 0, k);
            run carry_word(SERVER, 1, k);
            k++
        :: else -> break
        od;
        k = 0
    }
end:
    d_step { !rail_can(0) && !rail_can(1) && !words_can -> assert(where == DONE) }
}
