/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail: one peer over one pair of NICs. It owns up to HW_RAIL_LINKS links, which start and end together, on one loop:
 * link 0 (express) carries small parcels and the confirmations of all links of the rail; the others carry the rest.
 * Each connection of a rail has a generation number. A rail knows nothing of other rails, except whether the peer is
 * heard there: while it is, a rail whose path may be dead is suspect, and gets nothing new.
 *
 *     down --hw_rail_start()--> up --hw_rail_end(), an error--> ended --hw_rail_settle()--> down
 *
 * All functions are called on the rail's loop, except hw_rail_send().
 */
#ifndef HW_RAIL_H
#define HW_RAIL_H

#include "core/link.h"
#include "core/loop.h"
#include "wire/word.h"

/* A frame that the layer above sends, exactly once. Part of the upper layer's own object. */
struct hw_parcel {
    struct hw_parcel *next;
    bool small;   /* sent first, by the express link */
    bool session; /* the session's own */
    uint8_t type; /* the upper layer's */
};

/* Pushes a parcel onto a stack that any thread may push to; its single reader takes all by atomic_exchange(). */
static inline void hw_parcel_push(_Atomic(struct hw_parcel *) *stack, struct hw_parcel *p)
{
    p->next = atomic_load(stack);
    while (!atomic_compare_exchange_weak(stack, &p->next, p))
        ;
}

struct hw_rail;
struct hw_conn;

/* The callbacks into the layer above; on the rail's loop. */
struct hw_rail_ops {
    /* Writes the parcel's frame to *out (except for the token). False: it must not be sent any more, and belongs to the
     * upper layer again. */
    bool (*fill)(void *up, struct hw_parcel *p, struct hw_link_out *out);
    /* Returns a new parcel with a payload of at most budget bytes, NULL if there is none. */
    struct hw_parcel *(*cut)(void *up, struct hw_rail *r, uint64_t budget);
    /* Like those of struct hw_link_ops. */
    int (*place)(void *up, struct hw_rail *r, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
    int (*more)(void *up, struct hw_rail *r, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                uint32_t *n);
    int (*arrived)(void *up, struct hw_rail *r, const struct hw_link_in *in);
    void (*abandoned)(void *up, struct hw_rail *r, const struct hw_link_in *in);
    /* A number that is sent to the peer with each confirmation and last word: the value at the time they are made. */
    uint32_t (*mark)(void *up);
    /* The peer's mark, before done() is called for the parcels confirmed with it. */
    void (*marked)(void *up, uint32_t mark);
    /* The peer has it. */
    void (*done)(void *up, struct hw_rail *r, struct hw_parcel *p);
    /* The rail is down and will not carry these parcels: a list, oldest first. */
    void (*give_back)(void *up, struct hw_rail *r, struct hw_parcel *list);
    /* The rail changed from up to ended: count[] is final; hw_error() is as it was at hw_rail_end(). */
    void (*ended)(void *up, struct hw_rail *r);
    /* True if the peer was heard on another rail since then (ns). ask: if not, the other rails send a request for an
     * answer. */
    bool (*heard)(void *up, struct hw_rail *r, uint64_t since, bool ask);
    /* The rail has become suspect. Its waiting parcels are given back after this. */
    void (*suspected)(void *up, struct hw_rail *r);
    /* The path may be dead, and no other rail hears the peer: called every limits.check as long as that lasts, if
     * hw_rail.spared is set. */
    void (*doubted)(void *up, struct hw_rail *r);
    /* A device failed (hw_error() has the reason) and cannot take the rest of this frame's payload: it is discarded,
     * and the frame arrives like any other. 0, or -errno, which ends the rail. */
    int (*refused)(void *up, struct hw_rail *r, struct hw_link_in *in);
    /* The same for memory from which this parcel was to be sent: the rail ends, and gives the parcel back. */
    void (*faulted)(void *up, struct hw_rail *r, struct hw_parcel *p);
};

/* A connection as the rail uses it. On the rail's loop, except for close() of a connection without a rail. A connection
 * with one stream each way omits the members after check(). */
struct hw_rail_io {
    /* The rail has started with this connection: from here on it must call hw_rail_ready() when there may be more to
     * read or room to write. 0, or -errno. */
    int (*attach)(struct hw_conn *c, struct hw_rail *r);
    /* Returns bytes written or read, -EAGAIN, -EBUSY (a device is not ready, and there will be no event: the rail calls
     * again soon), -ENXIO (the device of the first piece failed: bytes that were read for it and not counted are
     * counted next, for a piece without ptr), or the error with which the connection ended. */
    int64_t (*write)(struct hw_conn *c, const struct hw_piece *piece, uint32_t n);
    int64_t (*read)(struct hw_conn *c, const struct hw_piece *piece, uint32_t n);
    /* The next n bytes for read() are these, which were read before. -ENOMEM. */
    int (*unread)(struct hw_conn *c, const uint8_t *data, uint32_t n);
    /* Copies a piece that the CPU cannot access to host memory, after settle(). -errno. NULL: hw_load() does. */
    int (*load)(struct hw_conn *c, const struct hw_piece *piece, uint8_t *to);
    /* After its return, memory that was passed to write() and read() and not counted is neither read nor written: the
     * same bytes may be sent from, or received into, other memory. NULL: it never is. -errno: the rail ends. */
    int (*settle)(struct hw_conn *c);
    /* Immediately discards unread data and data that the network has not taken; no memory that was passed is read or
     * written any more. */
    void (*close)(struct hw_conn *c);
    /* For a connection with data in flight: 0, 1 (the path may be dead), or the error if it looks dead. Called each
     * limits.check. alone: ns for which data has been in flight while the peer was heard on other rails; 0: it was not.
     * May lower *window to the useful number of bytes in flight. */
    int (*check)(struct hw_conn *c, uint64_t alone, uint64_t *window);

    /* How payloads are carried, after attach(). */
    struct hw_link_apart (*apart)(const struct hw_conn *c);
    /* Like write() and read(), for the stream of payloads. A piece without ptr is discarded. Bytes on their way to the
     * first piece need not be counted yet: the same piece is then passed again. */
    int64_t (*write_apart)(struct hw_conn *c, const struct hw_piece *piece, uint32_t n);
    int64_t (*read_apart)(struct hw_conn *c, const struct hw_piece *piece, uint32_t n);
    /* Discards data on its way to the first piece: its memory is not accessed again. -errno: the rail ends. */
    int (*discard)(struct hw_conn *c);
    /* Memory that was passed to write_apart() and not counted is not read any more: the data may be sent from other
     * memory. NULL: it never is. -errno: the rail ends. */
    int (*stop_reading)(struct hw_conn *c);
    /* Of the bytes that write_apart() took: the number whose memory is not read any more (struct hw_link_apart,
     * held). */
    uint64_t (*released)(struct hw_conn *c);
};

/* The parameters of a rail: read from knobs, the same for all rails of a session. */
struct hw_rail_limits {
    uint64_t window; /* bytes in flight, of each link */
    /* ns: interval at which the transport is asked about the path while data is in flight; 0: never */
    uint64_t check;
    uint64_t patience; /* ns: after this time the peer is told of frames that arrived and for which it does not wait */
    uint64_t ping;     /* ns: a peer that was silent for this time is asked to answer .. */
    /* .. and after this much silence the rail ends with -ETIMEDOUT; more than ping. Likewise if a link has frames in
     * flight, and none of their bytes is sent or confirmed for this time. */
    uint64_t dead;
};

enum hw_rail_state { HW_RAIL_DOWN, HW_RAIL_UP, HW_RAIL_ENDED };

/* The totals of a rail over all its generations: frames of parcels that are not small, and their payloads. Any thread
 * may read them. */
struct hw_rail_counts {
    _Atomic uint64_t tx_bytes, tx_frames; /* that the peer has */
    _Atomic uint64_t rx_bytes, rx_frames; /* in place here */
    _Atomic uint64_t lost, lost_bytes;    /* that the peer did not have when the rail ended: frames, payload */
};

struct hw_rail {
    enum hw_rail_state state;
    uint32_t gen;
    unsigned links;                /* of this generation */
    uint64_t count[HW_RAIL_LINKS]; /* ended: the last word */
    uint32_t mark;                 /* the error with which it ended */
    int why;                       /* it ended */
    struct hw_loop *loop;
    struct hw_rail_counts counts;

    /* the rail's own */
    const struct hw_rail_ops *ops;
    const struct hw_rail_io *io;
    void *up;
    struct hw_rail_limits limits;
    /* The time of the peer's last byte, or of progress on a full connection, which shows that the peer's kernel has
     * acknowledged data. ns of the loop's clock; any thread may read it. */
    _Atomic uint64_t heard;
    bool spared;               /* set before the rail starts: rails that are down can be started (ops.doubted) */
    atomic_bool suspect;       /* up, and perhaps dead, while the peer is heard elsewhere: it gets nothing new */
    atomic_bool asked;         /* hw_rail_ask() */
    struct hw_timer watch;     /* the flags below share no word with those above, which other threads write */
    bool ping_due, answer_due; /* frames to be sent */
    bool confirm_due;          /* all frames that arrived are confirmed, not only those for which the peer waits */
    struct rail_link {
        struct hw_link link;
        struct hw_conn *conn;
        uint64_t told;       /* received, as last sent to the peer */
        uint64_t let_go;     /* of link.gone, at the last hw_rail_let_go() */
        bool full;           /* the connection accepted no more bytes */
        uint64_t progress;   /* bytes handed over plus frames confirmed, at the last check .. */
        uint64_t since;      /* .. and when a check first saw that value, ns */
        uint64_t began;      /* when it last changed from idle to having data in flight, ns */
    } * link;                /* of this generation; NULL if down */
    struct hw_task *reading; /* see hw_rail_is_reading() */
    struct rail_queue {
        struct hw_parcel *first, **last;
    } small, bulk;
    _Atomic(struct hw_parcel *) inbox; /* newest first */
    struct hw_task work;               /* reads .. */
    /* .. and writes, once all tasks that reading has posted have run: in one batch */
    struct hw_task flush;
};

/* Types of frames of the rail itself; those of the layer above are smaller. */
#define HW_RAIL_TYPES   0xf0
#define HW_RAIL_CONFIRM 0xf0 /* u32 mark; then u32 link, u64 frames received, for each link with news */
#define HW_RAIL_PING    0xf1 /* asks for an ANSWER */
#define HW_RAIL_ANSWER  0xf2

/* Makes a rail that is down. */
void hw_rail_init(struct hw_rail *r, struct hw_loop *loop, const struct hw_rail_ops *ops, const struct hw_rail_io *io,
                  void *up, const struct hw_rail_limits *limits);
/* Gives all parcels back and frees the rail. It must not be up; its loop does not run any more, or this is its
 * thread. */
void hw_rail_free(struct hw_rail *r);

/* Brings a rail that is down up, on established connections: the rail owns conn[0, n) and closes them. -errno: still
 * down, and they are closed. */
int hw_rail_start(struct hw_rail *r, uint32_t gen, struct hw_conn *const *conn, unsigned n);
/* Ends a rail that is up: closes all connections. Calls ended(). Otherwise does nothing. */
void hw_rail_end(struct hw_rail *r, int why);
/* For a rail that has ended: count[0, n) is the peer's last word. Calls done() and give_back(). -EPROTO: the count
 * contradicts what was sent, and nothing changes. */
int hw_rail_settle(struct hw_rail *r, const uint64_t *count, unsigned n);

/* After this call no memory of this owner is accessed, see hw_link_let_go(), except as hw_rail_is_reading() reports.
 * Parcels end as usual; before this call, fill(), place() and more() must know that the owner has released the memory.
 * Without memory for a copy the rail ends. */
void hw_rail_let_go(struct hw_rail *r, const void *owner);
/* True if memory that was sent by reference before the last hw_rail_let_go() may still be read: t, one at a time, is
 * posted on the rail's loop once it is not. */
bool hw_rail_is_reading(struct hw_rail *r, struct hw_task *t);

/* Passes a parcel to the rail, from any thread. A rail that is not up gives it back. */
void hw_rail_send(struct hw_rail *r, struct hw_parcel *p);
/* There may be new parcels to cut, or a connection is readable or writable: the rail works in a task of its own. From
 * any thread. */
void hw_rail_ready(struct hw_rail *r);
/* Asks the peer to answer on this rail, if it is up. From any thread. */
void hw_rail_ask(struct hw_rail *r);
/* Reads available data at once. True: there was some, and the rail does the rest in a task of its own. On the rail's
 * loop. */
bool hw_rail_look(struct hw_rail *r);

#endif
