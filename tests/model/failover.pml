/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failover of a session with two rails: a spin model of lib/core/session.c, rail.c and link.c. failover.py runs the
 * model, and plants defects in it.
 *
 * Events: the client connects each rail and reconnects it. At any time, and on either rail, a connection can break, a
 * handshake can be given up, or a rail can fail to start. Up to FAILURES of these failures happen. Each side notices
 * independently that a connection has ended, and until then receives the data that was sent. Last words are sent to the
 * peer in handshakes and over rails. Last words that a rail loses are sent again.
 *
 * Claims, in each reachable state:
 *   - No parcel is delivered twice. A parcel that is done was delivered.
 *   - A rail is settled with a count of its own generation. The count is at least the number of acknowledged frames,
 *     and at most the number of sent frames.
 *   - A handshake is never refused, and only a failure makes the client reconnect a rail.
 *   - If nothing can happen any more except failures, everything that was posted is delivered and acknowledged. No step
 *     except a failure can be repeated endlessly (failover.py looks for cycles), so this state is reached once failures
 *     stop.
 *
 * Simplifications:
 *   - The model tracks one parcel. Of all other parcels, it only tracks the number of frames before and after that
 *     parcel on the connection. The protocol does not interpret parcels, so every result for the watched parcel holds
 *     for all parcels. A connection carries up to FRAMES frames.
 *   - Data is sent in one direction: SENDER is CLIENT or SERVER, and both are run. No step of the protocol depends on a
 *     count of data, so the two directions do not influence each other. Last words are sent in both directions in each
 *     run.
 *   - A connection is not modelled as a queue, but as the number of frames that were sent, the position of the watched
 *     parcel among these frames, and the number of frames that were received.
 *   - A rail has two links here: last words use link 0, and data uses link 1 with a separate count, as in a rail of
 *     several links. The model does not count the words on link 0, but records the arrival of each word. Words may
 *     overtake each other, which the session's lists also permit.
 *   - A word is removed once it has no information for its reader. The reader would ignore such a word, so no later
 *     state differs.
 *   - The home loop and a rail's loop are a single loop. A late report is equivalent to a late end before which the
 *     rail received nothing, and the search covers that case. When a rail ends, a parcel in its queue returns to the
 *     home loop, so such a parcel is equivalent to a parcel that waits there.
 *   - hello and ask are one step. A lost ASK changes nothing on the server, and the last word in the ASK does not
 *     change while the client is not up. At most one attempt per rail is in progress, because the server cannot
 *     distinguish an older ASK that arrives late from an ASK that arrived before the client gave it up.
 *
 * Not modelled: a session that dies, marks, the release of memory, acknowledgements that contradict the sent data (the
 * simulator covers these), and more than two rails. The model assumes that the server starts a rail when it answers, as
 * with TCP, and that each rail can be reconnected eventually. Two options remove these assumptions:
 *   MEETS  the server starts a rail some time after its answer, perhaps later than the client, or not at all
 *   CUTS   a rail may be cut permanently, unless the other rail is cut; each cut counts as a failure
 * These options require two properties of lib/core. A defect removes each property, and spin then finds the fault:
 *   DEFECT_VOID_UNSAID      If a side gives up a generation that the peer may have started, it sends "0 frames" as its
 *                           last word on the generation over the other rail. The server then counts the generation as
 *                           started and ended (hw_session_give_up).
 *   DEFECT_OLDER_DISPLACES  An older last word does not displace a newer last word in `ahead`.
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

/* State of a rail's handshake. */
#define NONE     0
#define ASKED    1 /* the server has the request, and has not answered yet */
#define WELCOME  2 /* the server's answer is in flight */
#define STARTING 3 /* the client has the answer, and first settles the previous connection */

/* State of a word or of the watched parcel. */
#define NO      0 /* word: does not exist */
#define WAITING 1
#define BY(q)   (2 + (q)) /* in flight on rail q */
#define READ    4         /* word: the link has counted it, but the home loop has not processed it */
#define DONE    4         /* parcel: acknowledged */

/* Indexed by AT(s, r), for side s and rail r. */
#define AT(s, r) ((s) * 2 + (r))
byte state[4];
byte gen[4];   /* newest generation that was started, or whose start was abandoned */
byte asked[4]; /* newest generation that the client has requested, as known to this side */
byte peers[4]; /* equals gen if the peer's last word on gen has arrived; else 0 */
byte truth[4]; /* the actual generation of that last word */
byte ahead[4]; /* generation that this side has not started, but whose last word from the peer has arrived; else 0 */

/* Indexed by rail. */
byte hand[2];   /* handshake state */
byte client[2]; /* server: generation of the last word in the client's request */
byte kept[2];   /* server: generation of the last word in the server's answer */
bit meets[2];   /* MEETS: the server has answered, but has not started the rail yet */
bit broken[2];  /* the newest connection is broken */
bit cut[2];

/* The last words of side s on generation n of rail r: the state of each word, and the data count if s is the
 * receiver. */
#define WORD(s, r, n) (AT(s, r) * GENS + (n) - 1)
#define COUNT(r, n)   ((r) * GENS + (n) - 1)
byte word[4 * GENS];
byte count[2 * GENS]; /* reset to 0 once the sender no longer needs it */

/* The data on rail r's connection, as numbers of frames. */
byte sent[2];
byte place[2]; /* position of the watched parcel among the sent frames; 0: not on this connection */
byte said[2];  /* frames that were acknowledged to the sender */
byte got[2];   /* frames that the receiver has received while the rail is up */

byte where = WAITING;
bit delivered;
byte failures;
byte k; /* loop counter; 0 between steps */

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

/* Removes words that have no new information for side s on rail r. */
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

/* Models note_word() of session.c. */
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

/* Returns words that were in flight on rail r when the rail ended, and did not arrive, to the waiting state. */
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

/* ---- a rail starts, ends and is settled ------------------------------------------------------------- */

/* Models order_start() of session.c. */
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

/* Models a failed hw_rail_start(): the rail is down again at once, with a last word of 0. */
inline fail_start(s, r)
{
    gen[AT(s, r)] = asked[AT(s, r)];
    state[AT(s, r)] = DOWN;
    send_word(s, r, gen[AT(s, r)]);
    forget_stale(s, r)
}

/* MEETS: the server gives up a generation for which it has sent an answer, but which it has not started. */
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

/* Models hw_session_answer(). */
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

/* Models hw_rail_end(), and take_report() of session.c. */
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

/* Models hw_rail_settle() with the peer's count. */
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
    :: state[AT(RECEIVER, r)] == UP && same_gen(r) /* only with a defect: sent frames may still arrive */
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

/* client_wants: the client has the server's newest connection, or may still get it. server_wants: vice versa. */
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

/* True if rail r can take a step that is not a failure. */
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
        assert(gen[AT(CLIENT, r)] <= gen[AT(SERVER, r)]); /* otherwise, the server would refuse the request */
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
    :: d_step { /* the client's hw_session_start() */
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

/* Carries the last word of one side on one generation of a rail. */
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
