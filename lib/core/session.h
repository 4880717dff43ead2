/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: one peer, over all its rails. It carries parcels, each exactly once and in no order, for as long as it
 * exists: parcels that a failed rail did not deliver are sent by another one, or wait until a rail is up again. It does
 * not interpret parcels.
 *
 * The session itself runs on one loop, its home; each rail runs on a loop of its own. They communicate by mailbox: the
 * home orders (start, end, settle), a rail reports that it has ended. A rail's last word is sent to the peer as a
 * parcel over another rail, or in the handshake of the rail's next connection, whichever is first.
 *
 * One side is the client: it connects and reconnects rails. A handshake of a rail carries:
 *
 *     client: the next generation, the last one that it had up, its last word on that one
 *     server: its own last word on that one; or a refusal
 */
#ifndef HW_SESSION_H
#define HW_SESSION_H

#include "core/rail.h"

#define HW_SESSION_RAILS 16

/* The callbacks into the layer above. */
struct hw_session_ops {
    /* On a rail's loop, like those of struct hw_rail_ops. */
    bool (*fill)(void *up, struct hw_parcel *p, struct hw_link_out *out);
    struct hw_parcel *(*cut)(void *up, unsigned rail, uint64_t budget);
    /* On the home loop, at the end of each round of hw_session_let_go(): a parcel waits for a rail. False: it must not
     * be sent any more, and belongs to the upper layer again. */
    bool (*keep)(void *up, struct hw_parcel *p);
    int (*place)(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
    int (*more)(void *up, unsigned rail, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece, uint32_t *n);
    int (*arrived)(void *up, unsigned rail, const struct hw_link_in *in);
    void (*abandoned)(void *up, unsigned rail, const struct hw_link_in *in);
    int (*refused)(void *up, unsigned rail, struct hw_link_in *in);
    void (*faulted)(void *up, unsigned rail, struct hw_parcel *p);
    uint32_t (*mark)(void *up);
    void (*done)(void *up, unsigned rail, struct hw_parcel *p);
    /* On the rail's loop: other rails must take the work that this one does not. */
    void (*suspected)(void *up, unsigned rail);
    /* On the rail's loop, if hw_session_spare() was called: the rail's path may be dead, and no other rail is up. */
    void (*doubted)(void *up, unsigned rail);
    /* On a rail's loop or the home loop. */
    void (*marked)(void *up, uint32_t mark);
    /* On the home loop: a rail is not up any more, hw_error() has the reason: the client connects it again when it
     * chooses. */
    void (*ended)(void *up, unsigned rail, int why);
    /* On the home loop: a rail is down: the server answers the waiting client. */
    void (*down)(void *up, unsigned rail);
    /* On the home loop: the session has died with this error because of the peer. */
    void (*died)(void *up, int why);
    /* On the home loop: the session is dead, and the peer may not have this parcel. */
    void (*lost)(void *up, struct hw_parcel *p);
};

/* A request that all rails release memory. Provided by the caller; must stay valid until over() runs. */
struct hw_let_go {
    const void *owner;
    void (*over)(struct hw_let_go *g); /* on the home loop */
    struct hw_let_go *next;            /* the session's */
};

/* A last word in transit: to the peer as a parcel, or from the peer to the home loop. */
struct session_note {
    struct hw_parcel parcel;
    unsigned rail;
    struct hw_word word;
};

struct session_rail {
    struct hw_rail rail;
    struct hw_session *session;
    unsigned index;
    atomic_bool live; /* it accepts parcels; set by the home */

    /* the home's */
    enum { RAIL_IS_DOWN, RAIL_IS_UP, RAIL_IS_ENDED, RAIL_IS_SETTLING } state;
    uint32_t gen, asked;   /* newest generation that was started; newest that was asked for */
    struct hw_word mine;   /* last word on gen, once that has ended */
    struct hw_word kept;   /* server: on the last generation that the client had up */
    struct hw_word peers;  /* the peer's on gen, once it has arrived */
    struct hw_word ahead;  /* the peer's on the newest generation that this side has not started */
    uint32_t given_up;     /* newest generation that this side gave up before it started */
    struct hw_word client; /* server: from the client's request */
    struct {
        bool is;
        uint32_t gen;
        struct hw_conn *conn[HW_RAIL_LINKS];
        unsigned n;
    } start; /* connections that wait until the rail is down */

    /* orders: written by the home if none is pending, read by the rail */
    atomic_int order; /* ORDER_NONE: the home owns the fields below */
    uint32_t order_gen;
    struct hw_conn *order_conn[HW_RAIL_LINKS];
    unsigned order_n;
    struct hw_word order_word;
    atomic_bool order_end;
    struct hw_task act;

    /* reports: written by the rail, once for each order */
    atomic_uint reported; /* bits */
    int report_why;
    char report_text[HW_ERR_TEXT];
    struct hw_word report_word;
    struct hw_task report;

    struct hw_task let_go; /* takes part in the session's round */
    bool has_let_go;       /* in this round, and memory that was sent by reference is still being read */
};

struct hw_session {
    bool client;
    unsigned rails;
    int dead; /* 0, or why */
    struct hw_loop *home;
    const struct hw_session_ops *ops;
    void *up;
    struct session_rail *rail; /* [rails] */

    _Atomic(struct hw_parcel *) returned; /* by rails that are down */
    _Atomic(struct hw_parcel *) notes;    /* the peer's last words */
    struct hw_task sort;                  /* looks at both */
    struct hw_parcel *waiting;            /* parcels that no rail can take now */
    unsigned turn;                        /* the rail that takes the next one */

    struct {
        _Atomic(struct hw_let_go *) asked; /* newest first */
        struct hw_let_go *round;           /* all rails handle these; written by the home between rounds */
        atomic_uint left;                  /* rails that have not */
        struct hw_task next;               /* ends a round, starts the next one */
    } let_go;
};

/* Types of frames of the session itself; those of the layer above are smaller. */
#define HW_SESSION_TYPES 0xe0
#define HW_SESSION_WORD  0xe0 /* u32 rail, u32 generation, u32 mark; then u64 frames received, of each link */

/* Makes a session over n rails that are down; rail i runs on loop[i]. -ENOMEM. */
int hw_session_init(struct hw_session *s, bool client, struct hw_loop *home, struct hw_loop *const *loop, unsigned n,
                    const struct hw_session_ops *ops, const struct hw_rail_io *io, void *up,
                    const struct hw_rail_limits *limits);
/* Frees its memory. No rail may be up; its loops do not run any more, or this is their thread. */
void hw_session_free(struct hw_session *s);
/* Ends the session: all rails end, and lost() is called for undelivered parcels, from tasks of the home. */
void hw_session_die(struct hw_session *s, int why);
/* True once a dead session has released everything: none of its tasks runs any more. */
bool hw_session_is_gone(const struct hw_session *s);

/* Declares that the caller can start rails that are down when the others look dead: ops.doubted() requests that. Before
 * any rail starts. */
void hw_session_spare(struct hw_session *s);

/* Passes a parcel to rail i (another one takes it if that is down), from any thread. */
void hw_session_send(struct hw_session *s, unsigned i, struct hw_parcel *p);
/* Has all rails release the memory of g->owner, from any thread: once g->over() runs, no rail reads or writes it
 * (hw_rail_let_go()). From before this call on, fill() and place() must not return that memory. */
void hw_session_let_go(struct hw_session *s, struct hw_let_go *g);
/* True if rail i is up and not suspect: it will probably deliver soon. From any thread. */
bool hw_session_is_sound(const struct hw_session *s, unsigned i);
/* There may be work to cut for rail i, or, if that takes nothing now, for another one. From any thread. */
void hw_session_wake(struct hw_session *s, unsigned i);

/* ---- handshakes: on the home loop ------------------------------------------------------------- */

/* Client, for the handshake of rail i: returns the generation to ask for, and invalidates all older attempts; *mine is
 * the last word on the previous generation that this side had up. 0: the rail is up, or about to be. */
uint32_t hw_session_hello(struct hw_session *s, unsigned i, struct hw_word *mine);
/* Server: a client asks for generation gen of rail i, with its last word. 0; -ESTALE: a newer one was asked for;
 * -EPROTO: its last word is about a generation that never existed. */
int hw_session_ask(struct hw_session *s, unsigned i, uint32_t gen, const struct hw_word *client);
/* Server, after hw_session_ask(): 0 with its last word in *mine: the connections may be started; -EAGAIN: an older
 * connection has not ended yet, ask again after ops.down(); -ESTALE: a newer one was asked for. */
int hw_session_answer(struct hw_session *s, unsigned i, uint32_t gen, struct hw_word *mine);
/* The connections of generation gen of rail i are established, conn[0, n): the session owns them from here on. peer: on
 * the client, the server's last word. -ESTALE: too late; the caller keeps them. */
int hw_session_start(struct hw_session *s, unsigned i, uint32_t gen, struct hw_conn *const *conn, unsigned n,
                     const struct hw_word *peer);
/* Generation gen of rail i, which this side has asked for or answered, will not start here, while the peer may have
 * started it: tells the peer, by the other rails, that nothing of it arrived. */
void hw_session_give_up(struct hw_session *s, unsigned i, uint32_t gen);
/* Ends rail i, if it is up: its path is dead. On the home loop. */
void hw_session_end_rail(struct hw_session *s, unsigned i);
/* True if a rail's connections may exist. On the home loop. */
bool hw_session_has_rails(const struct hw_session *s);

#endif
