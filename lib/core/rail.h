/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail connects to one peer over one pair of NICs. It owns up to HW_RAIL_LINKS links, which start and end together,
 * on one loop. Link 0 (express) carries small parcels, keepalives and the confirmations of all links of the rail. The
 * other links carry the rest; a rail with one link carries everything on link 0. Each set of connections of a rail has
 * a generation number. A rail knows nothing about other rails, except whether other rails hear from the peer. If so, a
 * rail whose path may be dead is suspect and gets no new data.
 *
 *   down --hw_rail_start()--> up --hw_rail_end(), an error--> ended --hw_rail_settle()--> down
 *
 * All functions are called on the rail's loop, unless their comment says otherwise.
 */
#ifndef HW_RAIL_H
#define HW_RAIL_H

#include "core/link.h"
#include "core/loop.h"
#include "wire/word.h"

/* A frame that the layer above wants to be delivered exactly once. Embedded in an object of the layer above. */
struct hw_parcel {
    struct hw_parcel *next;
    bool small;   /* sent first, over the express link */
    bool session; /* belongs to the session itself */
    /* Sent after the confirmations of all frames that have arrived and after the rail's small parcels, even if the rail
     * is suspect. A rail has at most one such parcel, and gives this parcel back only when it is not up. */
    bool barrier;
    uint8_t type; /* defined by the layer above */
};

/* Pushes a parcel onto a stack. Any thread may push; the only reader takes all parcels with atomic_exchange(). */
static inline void hw_parcel_push(_Atomic(struct hw_parcel *) *stack, struct hw_parcel *p)
{
    p->next = atomic_load(stack);
    while (!atomic_compare_exchange_weak(stack, &p->next, p))
        ;
}

struct hw_rail;
struct hw_conn;

/* Callbacks into the layer above, on the rail's loop. */
struct hw_rail_ops {
    /* Writes the parcel's frame to *out, except for token and bulk. Returns false if the parcel must not be sent. The
     * parcel then belongs to the layer above again. */
    bool (*fill)(void *up, struct hw_parcel *p, struct hw_link_out *out);
    /* Returns a new parcel with a payload of at most budget bytes, or NULL if there is none. */
    struct hw_parcel *(*cut)(void *up, struct hw_rail *r, uint64_t budget);
    /* Like the members of the same name in struct hw_link_ops. */
    int (*place)(void *up, struct hw_rail *r, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
    int (*more)(void *up, struct hw_rail *r, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                uint32_t *n);
    int (*arrived)(void *up, struct hw_rail *r, const struct hw_link_in *in);
    void (*abandoned)(void *up, struct hw_rail *r, const struct hw_link_in *in);
    /* Returns the mark: a number of the layer above, which the rail sends with each confirmation and last word. */
    uint32_t (*mark)(void *up);
    /* Reports the peer's mark, before done() is called for the parcels that are confirmed together with the mark. */
    void (*marked)(void *up, uint32_t mark);
    /* Called for a list of parcels when the peer has received them and the memory of their payloads on this side is no
     * longer read. The list is in the order in which the parcels were sent on each link. */
    void (*done)(void *up, struct hw_rail *r, struct hw_parcel *list);
    /* Returns parcels that the rail will not carry, because it is not up, is suspect or is distrusted. Small parcels
     * come first in the list. */
    void (*give_back)(void *up, struct hw_rail *r, struct hw_parcel *list);
    /* Called when the rail has changed from up to ended. count[] is final, and hw_error() is the same as at the
     * call of hw_rail_end(). */
    void (*ended)(void *up, struct hw_rail *r);
    /* Returns true if another rail has heard from the peer since the given time (ns). If not and ask is true, the other
     * rails ask the peer for an answer. */
    bool (*heard)(void *up, struct hw_rail *r, uint64_t since, bool ask);
    /* Called when the rail has become suspect, before its waiting parcels are given back. */
    void (*suspected)(void *up, struct hw_rail *r);
    /* With hw_rail.spared, called every limits.check while the path may be dead and no other rail hears from the
     * peer. */
    void (*doubted)(void *up, struct hw_rail *r);
    /* Called when a device has failed (hw_error() returns the reason) and cannot take the rest of this frame's payload.
     * The payload is discarded, and the frame arrives like any other. Returns 0, or a negative errno that ends the
     * rail. */
    int (*refused)(void *up, struct hw_rail *r, struct hw_link_in *in);
    /* Called when the device that holds this parcel's payload has failed. The rail then ends, and gives the parcel back
     * once the rail is settled. */
    void (*faulted)(void *up, struct hw_rail *r, struct hw_parcel *p);
};

/* A connection as the rail uses it. The members are called on the rail's loop, except for close() of a connection
 * without a rail. A connection with one stream in each direction omits the members after check(). */
struct hw_rail_io {
    /* Called while the rail starts with this connection, which is link number `link` of the rail. From now on the
     * connection must call hw_rail_ready() when it may be readable or writable. Returns 0 or a negative errno. */
    int (*attach)(struct hw_conn *c, struct hw_rail *r, unsigned link);
    /* Returns the number of bytes written or read, or one of the following errors. -EAGAIN: nothing can be transferred
     * now. -EBUSY: a device or the kernel is not ready and there will be no event, so the rail calls again soon.
     * -ENXIO: the device of the first piece failed. After a write, the rail ends. After a read, the next calls count
     * the bytes that were read for this piece and not counted yet, and the rail discards them. Other errors: the
     * connection ended with this error. */
    int64_t (*write)(struct hw_conn *c, const struct hw_piece *piece, uint32_t n);
    int64_t (*read)(struct hw_conn *c, const struct hw_piece *piece, uint32_t n);
    /* Makes read() return these n bytes, which read() has already returned once, before all other bytes. Fails with
     * -ENOMEM. */
    int (*unread)(struct hw_conn *c, const uint8_t *data, uint32_t n);
    /* Copies the bytes of a piece, which the CPU cannot access, to host memory. Called after settle(). Fails with a
     * negative errno. If NULL, hw_load() is used. */
    int (*load)(struct hw_conn *c, const struct hw_piece *piece, uint8_t *to);
    /* Ensures that memory that was passed to write() and read() and not counted is no longer accessed, so that the same
     * bytes may be sent from, or received into, other memory. NULL if such memory is never accessed. If it fails with a
     * negative errno, the rail ends. */
    int (*settle)(struct hw_conn *c);
    /* Closes the connection at once. Data that was not read is lost, and data that was written may be lost. Afterwards
     * the connection does not access memory that was passed to it. */
    void (*close)(struct hw_conn *c);
    /* Checks the connection's path. Called every limits.check for each connection of a rail with data in flight.
     * Returns 0 if the path seems to work, 1 if it may be dead, or the error if it seems dead. alone is the time in ns
     * for which data has been in flight on the connection, if other rails hear from the peer. Otherwise alone is 0, or
     * limited if hw_rail.spared is set. May lower *window to the useful number of bytes in flight. */
    int (*check)(struct hw_conn *c, uint64_t alone, uint64_t *window);

    /* Returns the connection's capabilities. Called after attach(). */
    struct hw_link_apart (*apart)(const struct hw_conn *c);
    /* Like write() and read(), for the stream of payloads. A piece without ptr is discarded. Bytes that are being
     * transferred into or from the first piece need not be counted yet; in this case the same piece is passed again. */
    int64_t (*write_apart)(struct hw_conn *c, const struct hw_piece *piece, uint32_t n);
    int64_t (*read_apart)(struct hw_conn *c, const struct hw_piece *piece, uint32_t n);
    /* Discards data that is being received into the first piece, so that its memory is no longer accessed. If it fails
     * with a negative errno, the rail ends. */
    int (*discard)(struct hw_conn *c);
    /* Ensures that memory that was passed to write_apart() and not counted is no longer read, so that the data may be
     * sent from other memory. NULL if such memory is never read. If it fails with a negative errno, the rail ends. */
    int (*stop_reading)(struct hw_conn *c);
    /* Returns how many of the bytes that write_apart() accepted are in memory that is no longer read (see held in
     * struct hw_link_apart). */
    uint64_t (*released)(struct hw_conn *c);
};

/* Parameters of a rail, which are the same for all rails of a session. */
struct hw_rail_limits {
    uint64_t window; /* limit of bytes in flight on each link */
    /* ns: interval of the checks of the path while data is in flight; 0 disables the checks */
    uint64_t check;
    uint64_t patience; /* ns: time after which frames that the peer does not wait for are confirmed */
    uint64_t ping;     /* ns: time of silence after which the peer is asked to answer */
    /* ns: time of silence after which the rail ends with -ETIMEDOUT; greater than ping. Unless checks are disabled, the
     * rail also ends if a link has frames in flight and none of their bytes is sent or confirmed for this time. */
    uint64_t dead;
};

enum hw_rail_state { HW_RAIL_DOWN, HW_RAIL_UP, HW_RAIL_ENDED };

/* Totals of a rail over all its generations. Any thread may read them. */
struct hw_rail_counts {
    _Atomic uint64_t tx_bytes, tx_frames; /* bulk payload, and its frames, that the peer has received */
    _Atomic uint64_t rx_bytes, rx_frames; /* bulk payload, and its frames, that have arrived completely */
    _Atomic uint64_t tx_small, rx_small;  /* the same for the payload of small parcels */
    /* frames, and their payload, that the peer had not received when the rail ended */
    _Atomic uint64_t lost, lost_bytes;
};

struct hw_rail {
    enum hw_rail_state state;
    uint32_t gen;
    unsigned links;                /* number of links of this generation */
    uint64_t count[HW_RAIL_LINKS]; /* ended: counts of the last word */
    uint32_t mark;                 /* ended: mark of the last word */
    int why;                       /* ended: the error that the rail ended with */
    struct hw_loop *loop;
    struct hw_rail_counts counts;

    /* for the rail's use */
    const struct hw_rail_ops *ops;
    const struct hw_rail_io *io;
    void *up;
    struct hw_rail_limits limits;
    /* Time at which the rail started, the peer's last byte arrived, or a full connection made progress, which shows
     * that the peer's kernel has acknowledged data. In ns of the loop's clock; any thread may read it. */
    _Atomic uint64_t heard;
    bool spared;         /* the layer above can start other rails, see ops.doubted; set before the rail starts */
    atomic_bool suspect; /* up but perhaps dead, while other rails hear from the peer; the rail gets no new data */
    /* Set by hw_rail_distrust() on any thread: no new data until the rail hears from the peer at this time or later. */
    _Atomic uint64_t quiet;
    atomic_bool asked;         /* set by hw_rail_ask() */
    struct hw_timer watch;     /* separates the flags below from the atomics above, which other threads write */
    bool ping_due, answer_due; /* frames to be sent */
    bool dry;                  /* in this run of `flush`, an idle link found nothing to send */
    bool confirm_due; /* the next confirmation is sent even if it covers only frames that the peer does not wait for */
    struct rail_link {
        struct hw_link link;
        struct hw_conn *conn;
        uint64_t told;       /* value of link.received that was last sent to the peer */
        uint64_t let_go;     /* value of link.gone at the last hw_rail_let_go() */
        bool full;           /* the connection accepted no more bytes */
        bool ready;          /* the connection may have bytes to read */
        uint64_t progress;   /* bytes written plus frames confirmed, at the last check */
        uint64_t since;      /* time since which there has been no progress, in ns */
        uint64_t began;      /* time at which the link last changed from idle to having data in flight, in ns */
    } * link;                /* links of this generation, or NULL if the rail is down */
    struct hw_task *reading; /* see hw_rail_is_reading() */
    struct rail_queue {
        struct hw_parcel *first, **last;
    } small, bulk, barrier, confirmed; /* confirmed: for pass_confirmed() */
    _Atomic(struct hw_parcel *) inbox; /* newest parcel first */
    struct hw_task work;               /* empties the inbox and reads data */
    /* Writes data at the end of a turn, so that frames of the turn's tasks are sent together. */
    struct hw_task flush;
};

/* First type of frames of the rail itself. Types of the layer above are smaller. */
#define HW_RAIL_TYPES   0xf0
#define HW_RAIL_CONFIRM 0xf0 /* u32 mark; then for each link with news: u32 link, u64 frames received */
#define HW_RAIL_PING    0xf1 /* requests an ANSWER */
#define HW_RAIL_ANSWER  0xf2

/* Initializes a rail that is down. May be called from any thread. */
void hw_rail_init(struct hw_rail *r, struct hw_loop *loop, const struct hw_rail_ops *ops, const struct hw_rail_io *io,
                  void *up, const struct hw_rail_limits *limits);
/* Gives back all parcels and frees the rail. The rail must not be up. Called on the rail's loop, or when none of the
 * rail's tasks can run any more. */
void hw_rail_free(struct hw_rail *r);

/* Starts a rail that is down on established connections. The rail owns conn[0, n) and closes them. Fails with a
 * negative errno, after which the rail is still down and the connections are closed. */
int hw_rail_start(struct hw_rail *r, uint32_t gen, struct hw_conn *const *conn, unsigned n);
/* Ends a rail that is up: closes all connections and calls ended(). Otherwise does nothing. */
void hw_rail_end(struct hw_rail *r, int why);
/* Settles a rail that has ended. count[0, n) is the peer's last word; for other links, their last confirmation counts.
 * Calls done() and give_back(). Fails with -EPROTO if a count contradicts the frames that were sent, in which case
 * nothing changes. */
int hw_rail_settle(struct hw_rail *r, const uint64_t *count, unsigned n);

/* Releases memory: after this call no memory of this owner is accessed, see hw_link_let_go(), except as
 * hw_rail_is_reading() reports. Parcels end as usual. Before this call, fill(), place() and more() must know that the
 * owner has released the memory. If the release fails, for example for lack of memory, the rail ends. */
void hw_rail_let_go(struct hw_rail *r, const void *owner);
/* Returns true if memory that was sent by reference before the last hw_rail_let_go() may still be read. In this case t
 * is posted on the rail's loop once the memory is no longer read. Only one task can wait at a time. */
bool hw_rail_is_reading(struct hw_rail *r, struct hw_task *t);

/* Passes a parcel to the rail. A rail that is not up gives the parcel back. May be called from any thread. */
void hw_rail_send(struct hw_rail *r, struct hw_parcel *p);
/* Reports that there may be new parcels to cut. The rail cuts them in its own task. May be called from any thread. */
void hw_rail_wake(struct hw_rail *r);
/* Reports that the connection of this link may be readable or writable. The rail reads and writes in its own tasks. */
void hw_rail_ready(struct hw_rail *r, unsigned link);
/* Asks the peer to answer on this rail, if the rail is up. May be called from any thread. */
void hw_rail_ask(struct hw_rail *r);
/* Gives this rail no new data until it has heard from the peer at the time `since` or later, because another rail of
 * the same pair of NICs, which last heard from the peer then, is suspect. Asks the peer to answer. Returns false and
 * does nothing if the rail has heard from the peer since then. May be called from any thread. */
bool hw_rail_distrust(struct hw_rail *r, uint64_t since);
/* Returns true if the rail, which must be up, is neither suspect nor distrusted. May be called from any thread. */
bool hw_rail_is_sound(const struct hw_rail *r);
/* Reads available data of this link at once. Returns true if there was data, the connection failed, or the rail must
 * read again soon. The rail does the remaining work in its own tasks. */
bool hw_rail_look(struct hw_rail *r, unsigned link);

#endif
