/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: one peer, over all its rails. It carries parcels, each exactly once and in no order, for as long as it
 * lives: what a rail that died did not deliver goes by another, or waits until one is back. It does not know what
 * parcels mean.
 *
 * The session itself lives on one loop, its home; each rail lives on a loop of its own. They talk by mailbox: the home
 * orders (start, end, settle), a rail reports that it has ended. A rail's last word goes to the peer as a parcel over
 * another rail, or in the handshake of the rail's next connection, whichever comes first.
 *
 * One side is the client: it connects rails, and connects them again. A handshake carries, of that rail:
 *
 *     client: the generation to come, the last one that it had up, its last word on that one
 *     server: its own last word on that one; or a refusal
 */
#ifndef HW_SESSION_H
#define HW_SESSION_H

#include "core/rail.h"

#define HW_SESSION_RAILS 16

/* What the layer above provides. */
struct hw_session_ops {
    /* On a rail's loop, as those of struct hw_rail_ops. */
    bool (*fill)(void *up, struct hw_parcel *p, struct hw_link_out *out);
    struct hw_parcel *(*cut)(void *up, unsigned rail, uint64_t budget);
    /* On the home loop, at the end of each round of letting go: a parcel waits for a rail. False: it is not to be sent
     * any more, and is the upper layer's again. */
    bool (*keep)(void *up, struct hw_parcel *p);
    int (*place)(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
    int (*more)(void *up, unsigned rail, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece, uint32_t *n);
    int (*arrived)(void *up, unsigned rail, const struct hw_link_in *in);
    void (*abandoned)(void *up, unsigned rail, const struct hw_link_in *in);
    int (*refused)(void *up, unsigned rail, struct hw_link_in *in);
    void (*faulted)(void *up, unsigned rail, struct hw_parcel *p);
    uint32_t (*mark)(void *up);
    void (*done)(void *up, unsigned rail, struct hw_parcel *p);
    /* On the rail's loop: others are to take what this one does not. */
    void (*suspected)(void *up, unsigned rail);
    /* On the rail's loop, where hw_session_spare() was called: the rail's path may be dead, and no other is up. */
    void (*doubted)(void *up, unsigned rail);
    /* On a rail's loop or the home loop. */
    void (*marked)(void *up, uint32_t mark);
    /* On the home loop: a rail is not up any more, why is in hw_error(): the client connects it again, when it likes.
     */
    void (*ended)(void *up, unsigned rail, int why);
    /* On the home loop: a rail is down: the server answers the client who waits. */
    void (*down)(void *up, unsigned rail);
    /* On the home loop: the session has died, for this reason, by the peer's fault. */
    void (*died)(void *up, int why);
    /* On the home loop: the session is dead, and the peer perhaps does not have this parcel. */
    void (*lost)(void *up, struct hw_parcel *p);
};

/* Memory is taken back from all rails. The caller's, until over() runs. */
struct hw_let_go {
    const void *owner;
    void (*over)(struct hw_let_go *g); /* on the home loop */
    struct hw_let_go *next;            /* the session's */
};

/* A last word on its way: to the peer as a parcel, or from the peer to the home loop. */
struct session_note {
    struct hw_parcel parcel;
    unsigned rail;
    struct hw_word word;
};

struct session_rail {
    struct hw_rail rail;
    struct hw_session *session;
    unsigned index;
    atomic_bool live; /* parcels may be sent by it; set by the home */

    /* the home's */
    enum { RAIL_IS_DOWN, RAIL_IS_UP, RAIL_IS_ENDED, RAIL_IS_SETTLING } state;
    uint32_t gen, asked;   /* newest that was started; newest that was asked for */
    struct hw_word mine;   /* last word on gen, once that has ended */
    struct hw_word kept;   /* server: on the last generation that the client had up */
    struct hw_word peers;  /* the peer's on gen, once it is here */
    struct hw_word ahead;  /* the peer's on the newest generation that this side has not started */
    uint32_t given_up;     /* newest generation that this side gave up before it started */
    struct hw_word client; /* server: what the client said when it asked */
    struct {
        bool is;
        uint32_t gen;
        struct hw_conn *conn[HW_RAIL_LINKS];
        unsigned n;
    } start; /* connections that wait until the rail is down */

    /* orders: written by the home where none is out, read by the rail */
    atomic_int order; /* ORDER_NONE: the fields below are the home's */
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

    struct hw_task let_go; /* goes through the session's round */
    bool has_let_go;       /* in this round, and memory that was sent by reference is read still */
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
        struct hw_let_go *round;           /* all rails go through these; written by the home between rounds */
        atomic_uint left;                  /* rails that have not */
        struct hw_task next;               /* ends a round, begins the next one */
    } let_go;
};

/* Types of frames that are the session's own; those of the layer above are below. */
#define HW_SESSION_TYPES 0xe0
#define HW_SESSION_WORD  0xe0 /* u32 rail, u32 generation, u32 mark; then u64 frames received, of each link */

/* Makes a session over n rails that are down; loop[i] is the i-th's. -ENOMEM. */
int hw_session_init(struct hw_session *s, bool client, struct hw_loop *home, struct hw_loop *const *loop, unsigned n,
                    const struct hw_session_ops *ops, const struct hw_rail_io *io, void *up,
                    const struct hw_rail_limits *limits);
/* Frees what it has. No rail is up; its loops run no more, or this is their thread. */
void hw_session_free(struct hw_session *s);
/* Ends the session: all rails end, and lost() is called for what was not delivered, from the home's tasks. */
void hw_session_die(struct hw_session *s, int why);
/* True once a dead session has let go of everything: no task of it runs any more. */
bool hw_session_is_gone(const struct hw_session *s);

/* The caller can start rails that are down when the others look dead: ops.doubted() asks for that. Before any starts.
 */
void hw_session_spare(struct hw_session *s);

/* Hands a parcel over: from any thread, to rail i (another takes it where that one is down). */
void hw_session_send(struct hw_session *s, unsigned i, struct hw_parcel *p);
/* Takes the memory of g->owner back, from any thread: once g->over() runs, no rail reads or writes it
 * (hw_rail_let_go()). From before this call on, fill() and place() must not name that memory. */
void hw_session_let_go(struct hw_session *s, struct hw_let_go *g);
/* True if rail i is up and not suspect: it is likely to deliver soon what it takes. From any thread. */
bool hw_session_is_sound(const struct hw_session *s, unsigned i);
/* There may be something to cut for rail i, or, where that takes nothing now, for another that does. From any thread.
 */
void hw_session_wake(struct hw_session *s, unsigned i);

/* ---- handshakes: on the home loop ------------------------------------------------------------- */

/* Client: what to say when rail i is connected: returns the generation to ask for, and makes all older attempts void;
 * *mine is the last word on the one before that this side had up. 0: the rail is up, or about to be. */
uint32_t hw_session_hello(struct hw_session *s, unsigned i, struct hw_word *mine);
/* Server: a client asks for generation gen of rail i, and says its last word. 0; -ESTALE: a newer one was asked for;
 * -EPROTO: its last word is of a generation that never was. */
int hw_session_ask(struct hw_session *s, unsigned i, uint32_t gen, const struct hw_word *client);
/* Server, after hw_session_ask(): 0 with its last word in *mine: the connections may be started; -EAGAIN: an older
 * connection has not ended yet, ask again after ops.down(); -ESTALE: a newer one was asked for. */
int hw_session_answer(struct hw_session *s, unsigned i, uint32_t gen, struct hw_word *mine);
/* Connections of generation gen of rail i stand, conn[0, n): they are the session's from here on. peer: the server's
 * last word, where this is the client. -ESTALE: too late; they are not taken. */
int hw_session_start(struct hw_session *s, unsigned i, uint32_t gen, struct hw_conn *const *conn, unsigned n,
                     const struct hw_word *peer);
/* Generation gen of rail i, which this side has asked for or answered, does not come to be here, while the peer may
 * have started it: tells the peer, by the other rails, that nothing of it arrived. */
void hw_session_give_up(struct hw_session *s, unsigned i, uint32_t gen);
/* Ends rail i, if it is up: its path is dead. On the home loop. */
void hw_session_end_rail(struct hw_session *s, unsigned i);
/* True if a rail's connections may stand. On the home loop. */
bool hw_session_has_rails(const struct hw_session *s);

#endif
