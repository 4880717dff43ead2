/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session connects to one peer over all its rails. Unless the session dies, it delivers each parcel exactly once, in
 * no particular order. Parcels that a failed rail did not deliver are sent by another rail, or wait until a rail is up
 * again. The session does not interpret parcels.
 *
 * The session itself runs on one loop, its home; each rail runs on its own loop. They communicate by mailbox: the home
 * loop sends orders (start, end, settle), and a rail reports that it has ended or is down. A rail's last word is sent
 * to the peer as a parcel over a rail that is up, and in the handshake of the rail's next connection.
 *
 * One side is the client, which connects and reconnects rails. A handshake of a rail carries:
 *
 *   client: the next generation, the number of the last generation that was up, and its last word on that generation
 *   server: its own last word on that generation, or a refusal
 */
#ifndef HW_SESSION_H
#define HW_SESSION_H

#include "core/rail.h"

#define HW_SESSION_RAILS 16

/* Callbacks into the layer above. */
struct hw_session_ops {
    /* Unless their comment says otherwise, the members are called on a rail's loop and do the same as the members of
     * the same name in struct hw_rail_ops. */
    bool (*fill)(void *up, struct hw_parcel *p, struct hw_link_out *out);
    struct hw_parcel *(*cut)(void *up, unsigned rail, uint64_t budget);
    /* Called on the home loop for a parcel that waits for a rail, at the end of each round of hw_session_let_go().
     * Returns false if the parcel must not be sent. The parcel then belongs to the layer above again. */
    bool (*keep)(void *up, struct hw_parcel *p);
    int (*place)(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
    int (*more)(void *up, unsigned rail, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece, uint32_t *n);
    int (*arrived)(void *up, unsigned rail, const struct hw_link_in *in);
    void (*abandoned)(void *up, unsigned rail, const struct hw_link_in *in);
    int (*refused)(void *up, unsigned rail, struct hw_link_in *in);
    void (*faulted)(void *up, unsigned rail, struct hw_parcel *p);
    uint32_t (*mark)(void *up); /* also called on the home loop */
    void (*done)(void *up, unsigned rail, struct hw_parcel *list);
    /* Called on this rail's loop, or on the loop of a rail of the same pair of NICs, when other rails must take this
     * rail's work. */
    void (*suspected)(void *up, unsigned rail);
    /* After hw_session_spare(), called on the rail's loop while the rail's path may be dead and no other rail hears
     * from the peer. */
    void (*doubted)(void *up, unsigned rail);
    /* Called on a rail's loop or the home loop. */
    void (*marked)(void *up, uint32_t mark);
    /* Called on the home loop when a rail is no longer up, unless the session is dead; hw_error() returns the reason.
     * The client decides when to reconnect the rail. */
    void (*ended)(void *up, unsigned rail, int why);
    /* Called on the home loop when a rail is down, unless the session is dead, so that the server may answer a client
     * that waits. */
    void (*down)(void *up, unsigned rail);
    /* Called on the home loop when the session has died with this error, because the peer sent an invalid last word
     * (with an impossible count). */
    void (*died)(void *up, int why);
    /* Called on the home loop when a hw_session_flush() has succeeded. */
    void (*flushed)(void *up);
    /* Called on the home loop if the session is dead and the peer may not have received this parcel. */
    void (*lost)(void *up, struct hw_parcel *p);
};

/* A request that all rails release memory. Provided by the caller; must stay valid until over() runs. */
struct hw_let_go {
    const void *owner;
    void (*over)(struct hw_let_go *g); /* called on the home loop */
    struct hw_let_go *next;            /* for the session's use */
};

/* A last word in transit, to the peer as a parcel or from the peer to the home loop. In a barrier, the last word has
 * the generation 0, which the peer ignores. */
struct session_note {
    struct hw_parcel parcel;
    unsigned rail;
    struct hw_word word;
};

struct session_rail {
    struct hw_rail rail;
    struct hw_session *session;
    unsigned index;
    unsigned pair;    /* see hw_session_pair() */
    atomic_bool live; /* the rail accepts parcels; set by the home loop */

    /* used by the home loop */
    enum { RAIL_IS_DOWN, RAIL_IS_UP, RAIL_IS_ENDED, RAIL_IS_SETTLING } state;
    uint32_t gen, asked;   /* newest generation that was started, and newest that was requested */
    struct hw_word mine;   /* last word on the newest generation that has ended */
    struct hw_word kept;   /* server: last word on the last generation that the client had up */
    struct hw_word peers;  /* the peer's last word on gen, once it has arrived */
    struct hw_word ahead;  /* the peer's last word on the newest generation that this side has not started */
    uint32_t given_up;     /* newest generation that this side gave up without starting the generation */
    struct hw_word client; /* server: last word from the client's request */
    struct {
        bool is;
        uint32_t gen;
        struct hw_conn *conn[HW_RAIL_LINKS];
        unsigned n;
    } start; /* connections that wait until the rail is down */

    /* Orders from the home loop to the rail. After an order to start or settle, the home loop changes order and the
     * next four members only after the rail has reported. */
    atomic_int order; /* ORDER_* */
    uint32_t order_gen;
    struct hw_conn *order_conn[HW_RAIL_LINKS];
    unsigned order_n;
    struct hw_word order_word;
    atomic_bool order_end;
    struct hw_task act;

    /* reports to the home loop that the rail has ended or is down */
    atomic_uint reported; /* bits of REPORT_* */
    int report_why;
    char report_text[HW_ERR_TEXT];
    struct hw_word report_word;
    struct hw_task report;

    struct hw_task let_go; /* takes part in a round of hw_session_let_go() */
    bool has_let_go; /* the rail has released the memory in this round, except for memory that is still being read */

    struct session_note barrier; /* see hw_session_flush(); in use only while it is counted in hw_session.flush.left */
};

struct hw_session {
    bool client;
    unsigned rails;
    int dead; /* 0, or the error that the session died with */
    struct hw_loop *home;
    const struct hw_session_ops *ops;
    void *up;
    struct session_rail *rail; /* array of `rails` elements */

    _Atomic(struct hw_parcel *) returned; /* parcels that need another rail */
    _Atomic(struct hw_parcel *) notes;    /* the peer's last words */
    struct hw_task sort;                  /* processes returned and notes */
    struct hw_parcel *waiting;            /* parcels that no rail can take now */
    unsigned turn;                        /* rail that is tried first for the next parcel, modulo `rails` */

    struct {
        _Atomic(struct hw_let_go *) asked; /* newest request first */
        struct hw_let_go *round;           /* requests that all rails handle; written by the home loop between rounds */
        atomic_uint left;                  /* number of rails that have not finished the round */
        struct hw_task next;               /* ends a round and starts the next one */
    } let_go;

    struct {
        atomic_bool asked; /* hw_session_flush() was called */
        atomic_bool again; /* since the barriers were sent, a rail has given parcels back */
        atomic_uint left;  /* barriers that are in use */
        bool active;       /* the flush has not succeeded yet; used by the home loop */
    } flush;
};

/* First type of frames of the session itself. Types of the layer above are smaller. */
#define HW_SESSION_TYPES 0xe0
#define HW_SESSION_WORD  0xe0 /* u32 rail, then a last word as in wire/word.h */

/* Initializes a session with n rails that are down. Rail i runs on loop[i]. Fails with -ENOMEM. */
int hw_session_init(struct hw_session *s, bool client, struct hw_loop *home, struct hw_loop *const *loop, unsigned n,
                    const struct hw_session_ops *ops, const struct hw_rail_io *io, void *up,
                    const struct hw_rail_limits *limits);
/* Frees the session's memory. No rail may be up, and none of the session's tasks may run any more. */
void hw_session_free(struct hw_session *s);
/* Ends the session: all rails end, and lost() is called, now or later, for each parcel that the peer may not have
 * received. Called on the home loop. */
void hw_session_die(struct hw_session *s, int why);
/* Returns true once a dead session has released everything and none of its tasks will run again. */
bool hw_session_is_gone(const struct hw_session *s);

/* Declares that the caller can start rails that are down when the others seem dead; ops.doubted() then requests this.
 * Must be called before any rail starts. */
void hw_session_spare(struct hw_session *s);

/* Declares which pair of NICs rail i uses. Rails with the same number `pair` use the same pair. If one rail of a pair
 * is suspect, the session does not give new data to the others until they hear from the peer. By default, rail i is the
 * only rail of pair i. Must be called before any rail starts. */
void hw_session_pair(struct hw_session *s, unsigned i, unsigned pair);

/* Passes a parcel to rail i if it is sound, or else to the home loop, which chooses a rail. May be called from any
 * thread. */
void hw_session_send(struct hw_session *s, unsigned i, struct hw_parcel *p);
/* Makes all rails release the memory of g->owner, see hw_rail_let_go(). Once g->over() runs, no rail reads or writes
 * this memory. Before this call, fill(), place() and more() must stop returning this memory. May be called from any
 * thread. */
void hw_session_let_go(struct hw_session *s, struct hw_let_go *g);
/* Sends a barrier on each rail, behind the confirmations and small parcels of this rail. Calls ops->flushed() once the
 * peer has received the barriers, and therefore has read all confirmations of frames that had arrived here, and has all
 * small parcels that were sent before. If a rail ends meanwhile, its last word must reach the peer on another rail, and
 * new barriers are sent. A call during a flush begins the flush again. May be called from any thread. */
void hw_session_flush(struct hw_session *s);
/* Performs the next step of a flush, if it is possible now. Called on the home loop (session.c) whenever that may be.
 */
void hw_flush_step(struct hw_session *s);
/* Returns true if a last word of the peer has arrived and the parcels that it confirms have not ended. Called on the
 * home loop, on which ops->down() will be called unless the session dies. */
bool hw_session_is_settling(const struct hw_session *s);
/* Returns true if rail i is up and neither suspect nor distrusted, so that it will probably deliver soon.
 * May be called from any thread. */
bool hw_session_is_sound(const struct hw_session *s, unsigned i);
/* Tells rail i, or the next sound rail if rail i is not sound, that there may be new parcels to cut. Does nothing if no
 * rail is sound. May be called from any thread. */
void hw_session_wake(struct hw_session *s, unsigned i);

/* ---- handshakes: on the home loop ------------------------------------------------------------- */

/* Client: prepares a handshake of rail i. Returns the generation to request and invalidates all older attempts. *mine
 * receives the last word on the previous generation that was up on this side. Returns 0 if the rail is up or about to
 * be, or if the session is dead. */
uint32_t hw_session_hello(struct hw_session *s, unsigned i, struct hw_word *mine);
/* Server: processes a client's request for generation gen of rail i, with the client's last word. Fails with -ESTALE if
 * this or a newer generation was requested before, and with -EPROTO if the last word is about a newer generation than
 * this side has started. */
int hw_session_ask(struct hw_session *s, unsigned i, uint32_t gen, const struct hw_word *client);
/* Server: prepares the answer after hw_session_ask(). Returns 0 and this side's last word in *mine if the connections
 * may be started. Fails with -EAGAIN if the rail is not down yet (call again after ops.down()), and with -ESTALE if a
 * newer generation was requested or the session is dead. */
int hw_session_answer(struct hw_session *s, unsigned i, uint32_t gen, struct hw_word *mine);
/* Starts generation gen of rail i on the established connections conn[0, n), which the session owns afterwards. On the
 * client, peer is the server's last word. Fails with -ESTALE if the generation is out of date or was started before, or
 * if the session is dead; the caller then keeps the connections. */
int hw_session_start(struct hw_session *s, unsigned i, uint32_t gen, struct hw_conn *const *conn, unsigned n,
                     const struct hw_word *peer);
/* Gives up generation gen of rail i, which this side has requested or answered but will not start. Because the peer may
 * have started the generation, this function tells the peer over another rail that no frame of this generation arrived.
 * Does nothing if the generation is out of date or was started, or if the session is dead. */
void hw_session_give_up(struct hw_session *s, unsigned i, uint32_t gen);
/* Ends rail i, if it is up. Called on the home loop. */
void hw_session_end_rail(struct hw_session *s, unsigned i);
/* Returns true if a rail was started and has not reported its end. Called on the home loop. */
bool hw_session_has_rails(const struct hw_session *s);

#endif
