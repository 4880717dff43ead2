/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message layer of one peer: operations over regions of memory, and notifications, on top of a session.
 *
 * A write is cut into chunks that name their places by handles of the peer's regions. A read is cut into requests; each
 * names a landing of this side's, which the peer fills with data. What must come in order, and is small, is a control
 * message (control.c): regions are made known, refusals and notifications told.
 *
 * An operation counts what is left of it: bytes that are not confirmed or have not arrived, and one for each other
 * thing that still touches it. It ends when nothing is left, and when all refusals are here that the peer gave before
 * its last confirmation (the session's marks). After its end nothing reads or writes its memory.
 *
 * One mutex guards the lists of a peer. A chunk's path takes it when a rail moves on to another operation, and not
 * otherwise. Lock order: domain, then peer. No function of the layer above is called with a lock held.
 */
#ifndef HW_PEER_H
#define HW_PEER_H

#include "base/list.h"
#include "core/session.h"
#include "message/landing.h"
#include "message/pace.h"
#include "message/region.h"

#include <pthread.h>

#define HW_CONTROL_WINDOW 1024         /* control messages that the peer has not read */
#define HW_READS          256          /* requests of reads that the peer has not answered whole */
#define HW_OPS            65536        /* under way */
#define HW_CONTROLS       (4 * HW_OPS) /* control messages that wait to be sent: more than a peer that reads can cause */
#define HW_NOTES          (1u << 20)   /* bytes of notifications that the application has not taken */
#define HW_NOTE_COST      128          /* of these, what one takes besides its own bytes */
#define HW_NOTE_MAX       (HW_NOTES / 4) /* the longest one */
#define HW_NOTED_BYTES    (1ull << 38)   /* the longest write with a notification */
#define HW_QUEUES         65536          /* in use, in either direction */
#define HW_QUEUE_CHAINS   128
#define HW_EAGER_ROOM     (1u << 20) /* bytes of eager messages that no receive has, with HW_NOTE_COST for each */
#define HW_SMALL_OP       8192u      /* bytes of an operation that goes as one small parcel .. */
#define HW_SMALL_SPANS    64         /* .. and how many spans it may have */
#define HW_CHUNK          (256u << 10)
#define HW_STAGED_CHUNK   (4u << 20)  /* likewise the most, where memory is not for the CPU */
#define HW_REQUEST        (64u << 20) /* bytes of one request of a read */
#define HW_COUNT_BLOCK    256
#define HW_TICK           (4 * HW_MS)   /* deadlines are looked at so often */
#define HW_PATIENCE       (100 * HW_MS) /* as hw_peer.patience */
#define HW_CUT_OFF        10 /* times hw_peer.patience: after that rails that may read a cancelled operation's memory end */
#define HW_TICKS          256

struct hw_peer;

/* ---- operations ---------------------------------------------------------------------------------- */

enum hw_op_kind {
    HW_OP_WRITE,
    HW_OP_READ,
    HW_OP_NOTIFY,
    HW_OP_SEND, /* a message to a queue, queue.h */
    HW_OP_RECV,
    HW_OP_BYE,  /* says that this side closes; ends when the peer has that */
    HW_OP_SERVE /* the answer to a request of the peer's */
};

/* Where the message of a send or receive is. */
enum hw_match {
    HW_MATCH_NONE,
    HW_MATCH_WAITS, /* send: in its queue */
    HW_MATCH_EAGER, /* send: on its way without being asked for; receive: it has an eager message */
    HW_MATCH_DIRECT /* on its way to a landing, or may come to one */
};

/* A run of local memory and where it is in the peer's region. */
struct hw_span {
    const struct hw_space *space;
    uint8_t *ptr;
    uint64_t len;
    uint64_t start;           /* bytes of the operation in front of it; hw_op_post() sets it */
    struct hw_import *import; /* NULL: no bytes, or no region is needed */
    uint64_t remote;          /* offset in the region; serve: in the own one */
    uint32_t handle;          /* serve: of the own region, instead of space and ptr */
};

/* A control message, on its way out. */
struct hw_control {
    struct hw_parcel parcel; /* type: HW_MSG_CONTROL */
    struct hw_control *next; /* waits for room in the window */
    uint32_t sequence;
    enum hw_control_kind kind;
    uint64_t a, b, c, d;
    struct hw_note *note; /* HW_CONTROL_NOTE: the payload */
    struct hw_op *op;     /* whose note it is, under the lock; NULL: that is over */
    struct hw_op *within; /* it is a part of this operation, and has a reference to it; NULL: it is allocated */
};

/* A frame's worth of an operation. */
struct hw_chunk {
    struct hw_parcel parcel; /* type: HW_MSG_WRITE, HW_MSG_READ, HW_MSG_DATA */
    struct hw_op *op;
    uint64_t from, len;
    uint64_t landing; /* read: its number */
    bool stop;        /* read: the landing was given up */
};

struct hw_op {
    struct hw_peer *peer;
    enum hw_op_kind kind;
    void (*over)(struct hw_op *op); /* once, from any thread: result is set, the memory is the caller's */
    void *user;                     /* the caller's */
    uint64_t deadline;              /* ns of the home loop's clock, HW_NEVER: none; once it is off, the next look */
    struct hw_note *note;           /* write, notify: for the peer's application; NULL: none. The operation's */
    atomic_int result;              /* 0, or the first error */
    char *text;                     /* why; NULL: not known. The operation's */
    uint64_t total;                 /* bytes; hw_op_post() sets it */
    uint64_t queued_upto;           /* of hw_peer.queued, with its own; 0: it is not large */
    uint64_t queue;                 /* send, receive: which one */
    _Atomic uint64_t got;           /* receive: the message's bytes, once it has ended well */
    uint32_t n;

    /* the message layer's */
    uint64_t id;
    atomic_uint refs;
    _Atomic uint64_t cursor; /* bytes that were cut */
    _Atomic uint64_t left;   /* bytes, and one for each other thing that is not over */
    atomic_bool off;         /* called off: nothing more is sent */
    atomic_bool first_used;  /* first is */
    atomic_bool was_cut;     /* serve: counts no more as one of the peer's serves */
    struct hw_chunk first;
    struct hw_parcel noted; /* HW_MSG_NOTED, of a write */
    struct hw_control last; /* ends something at the peer, so it may not fail for want of memory */
    struct hw_let_go let_go;
    bool let_go_over;           /* no rail touches its memory any more; the home loop's */
    bool told;                  /* over() was called; under the lock, as .. */
    bool cut_off;               /* rails were ended so that nothing reads its memory; likewise, as .. */
    bool deserted;              /* .. this: it was, or is about to be, before the peer has said what became of it */
    uint64_t answer_by;         /* once it is off: the peer dies if it has not said by then what became of it */
    bool is_fenced;             /* it waits in the peer's list; under the lock */
    uint32_t fence;             /* this many control messages have to be read before it ends */
    struct hw_landing *landing; /* read: those that have not ended, under the lock */
    uint64_t serves;            /* serve, send: the peer's landing */
    uint64_t rest;              /* send: what the message leaves of it */
    enum hw_match match;        /* send, receive */
    uint64_t granted;           /* receive: number of the control message that told the peer */
    bool foreign;               /* the CPU cannot use some of its memory, here or, but for a receive, at the peer */
    struct hw_note *message;    /* receive: an eager one, to be copied */
    uint32_t ready;             /* spans, from the first one on, whose region is known */
    bool pending, started;      /* is in the peer's list; waits for nothing */
    bool has_note, noted_sent;  /* note is, or was, there; its NOTED frame was given to a rail */
    struct hw_control *control; /* notify, and a write of no bytes: that carries the note */
    struct hw_list all;         /* of the peer's operations */
    struct hw_list queued;      /* in bulk, reads, notes, filling, fenced, over, an import's or a queue's list */
    struct hw_list timed;       /* among those with a deadline */
    struct hw_list serve_at;    /* serve, send: among those of landings with the same remainder, or hash */
    struct hw_span span[];
};

/* Makes an operation of n spans. The caller fills in over, user, deadline, note, and of each span space, ptr, len,
 * import, remote; the imports stay until over(). The reference is the caller's. NULL: no memory. */
struct hw_op *hw_op_new(struct hw_peer *p, enum hw_op_kind kind, uint32_t n);
/* Drops a reference. */
void hw_op_put(struct hw_op *op);
/* Starts it: over() will be called, even before this returns. One of no bytes, and without a note, ends at once. On
 * failure it will not: -EAGAIN HW_OPS are under way, -EFAULT outside a region, -EACCES its rights, -ESTALE it was taken
 * back, -E2BIG too many bytes, -ENOMEM, or why the peer died. */
int hw_op_post(struct hw_op *op);
/* Asks for the end, with this error. The operation ends soon, with that or as it was about to. */
void hw_op_cancel(struct hw_op *op, int why);

/* ---- notifications ------------------------------------------------------------------------------- */

struct hw_note {
    struct hw_note *next; /* the holder's */
    uint64_t op;          /* of a write of the peer's, until that has landed */
    uint32_t len;
    uint8_t data[];
};
/* A notification with room for len bytes, up to HW_NOTE_MAX. NULL: no memory, or too long. */
struct hw_note *hw_note_new(uint32_t len);

/* ---- a peer -------------------------------------------------------------------------------------- */

/* What the layer above provides. */
struct hw_peer_ops {
    /* On any loop: a notification is here. The caller's: it tells hw_peer_took() when the application has it, and frees
     * it. */
    void (*noted)(void *up, struct hw_note *note);
    /* On the home loop, as those of struct hw_session_ops; why < 0. */
    void (*ended)(void *up, unsigned rail, int why);
    void (*down)(void *up, unsigned rail);
    void (*died)(void *up, int why);
    /* On a rail's loop, as that of struct hw_session_ops. */
    void (*doubted)(void *up, unsigned rail);
    /* On the home loop: the peer closes. What it has confirmed may come later, by another rail. */
    void (*bye)(void *up);
};

/* How much of a write of the peer's, which has a notification, has landed. */
struct hw_count {
    _Atomic uint64_t state; /* low bits of the operation's generation << 40 | bytes that landed - bytes in all */
    struct hw_note *note;   /* under the lock */
};

/* Operations of one kind that have ended: how many, of these failed, and the bytes of the others. */
struct hw_op_counts {
    uint64_t ended, failed, bytes;
};

/* Queues: under the peer's lock, but for held. */
struct hw_queues {
    /* chains by hash, of .. */
    struct hw_list queues[HW_QUEUE_CHAINS];   /* .. queues, by name */
    struct hw_list grants[HW_QUEUE_CHAINS];   /* .. receives of the peer's that are not used, by landing */
    struct hw_list directs[HW_QUEUE_CHAINS];  /* .. sends that go to a landing, by that */
    struct hw_list messages[HW_QUEUE_CHAINS]; /* .. eager messages that are held, by operation */
    struct hw_list closed[HW_QUEUE_CHAINS];   /* .. streams that one side has closed, by number */
    struct hw_queue *recent;                  /* that was found last; NULL: none, or it has gone */
    struct hw_queue *spare;                   /* memory for the next one; NULL: none */
    uint8_t secret[16];                       /* of the hash */
    uint32_t n, n_grants, n_closed;
    uint32_t n_closed_first; /* of closed, those that this side closed first */
    uint64_t sent;           /* room that eager messages take at the peer */
    uint64_t seen;           /* number behind the last control message about a receive of the peer's */
    _Atomic uint64_t held;   /* room that the peer's eager messages take here, of HW_EAGER_ROOM */
};

struct hw_peer {
    struct hw_session session;
    struct hw_domain *domain;
    const struct hw_peer_ops *ops;
    void *up;
    struct hw_op *current[HW_SESSION_RAILS]; /* each rail's: what it cuts */
    struct hw_pace pace[HW_SESSION_RAILS];
    _Atomic uint64_t queued; /* bytes of all operations that rails were given to cut, ever */
    _Atomic uint64_t uncut;  /* of these bytes, those that are still to be cut */
    atomic_uint large;       /* of these operations, those that have not ended */
    uint32_t relieved;       /* bits: rails of the first one's path on the home loop, which leave large operations .. */
    unsigned relief;         /* .. to this one and others on other loops; 0: none */
    unsigned relief_loops;   /* how many those are */
    atomic_bool small_seen;  /* a small operation has come or gone since the first rail looked */
    uint64_t small_until;    /* the home loop's: until then its rails leave large operations to others .. */
    uint64_t small_last;     /* .. because of one that was seen then, and others before */

    pthread_mutex_t lock; /* over what follows, but for atomics */
    int dead;             /* 0, or why */
    uint64_t answer_in;   /* ns: the peer dies if it has not ended a cancelled operation by then */
    uint64_t patience;    /* ns: the caller of a cancelled operation waits no longer for the peer's answer */
    bool by_reference; /* memory may be sent so, and is read until the peer has confirmed it, or the rail has ended */
    uint64_t started;  /* operations below HW_OP_BYE */
    struct hw_op_counts counts[HW_OP_BYE];
    uint32_t deserted;                /* writes that the caller was told of, and frames of which may land still */
    struct hw_list held;              /* writes that wait until there is none */
    struct hw_list all;               /* operations */
    struct hw_list bulk;              /* rails cut chunks of these */
    struct hw_list reads;             /* are cut into requests */
    struct hw_list notes;             /* wait for room for their notifications at the peer */
    struct hw_list fenced;            /* wait until control messages are read */
    struct hw_list filling;           /* receives that have a message to be copied */
    struct hw_list over;              /* over() is to be called */
    atomic_bool unflushed;            /* an operation has ended, or a receive has its message; set under the lock */
    struct hw_list serving[HW_READS]; /* serves, by the peer's landing */
    struct op_slot {
        struct hw_op *op;
        uint32_t generation, next_free;
    } * slot; /* operations by number */
    uint32_t slots, slot_room, slot_free;
    uint32_t requests;       /* of HW_READS */
    unsigned turn;           /* the rail that was woken last for operations that wait */
    uint64_t stop[HW_READS]; /* landings of requests that the peer is still to be told to stop */
    uint32_t n_stop;
    uint32_t n_stopping;     /* requests that the peer was told to stop, and has not said that it has */
    struct hw_control spare; /* says one of them where there is no memory */
    bool spare_is_out;
    atomic_uint serves;    /* operations for the peer's requests of which not all was cut, of HW_READS */
    atomic_uint answers;   /* those of which the peer has not confirmed all; of how many: flow_in.c */
    uint64_t noted, taken; /* bytes of notifications: sent; and taken by the peer's application */
    struct hw_queues queues;
    struct hw_landings landings;
    struct hw_imports imports;
    struct hw_handles handles; /* under the domain's lock */

    struct {
        struct hw_list at[HW_TICKS]; /* operations with a deadline, by tick */
        uint32_t n;
        uint64_t looked; /* tick of the last look */
        uint64_t next;   /* when the home loop looks next; HW_NEVER: not */
        struct hw_timer timer;
        struct hw_task arm; /* sets it, on the home loop */
    } deadlines;

    _Atomic uint64_t notes_held; /* bytes of notifications that came, of HW_NOTES */
    uint64_t took, took_told;    /* by the application, in all; as the peer knows */
    _Atomic(struct hw_count *) count[HW_OPS / HW_COUNT_BLOCK];

    struct {
        uint64_t next;                    /* number of the next control message; the low half is its sequence */
        _Atomic uint32_t acked;           /* behind the last one that the peer has read */
        _Atomic uint32_t refused;         /* behind the newest refusal */
        struct hw_control *first, **last; /* wait */
        uint32_t waiting;
    } out;
    struct {
        _Atomic uint64_t next;                         /* number of the next one to be read: the home loop's */
        _Atomic uint32_t told;                         /* the peer's newest mark */
        uint32_t acked;                                /* next, as the peer knows */
        bool telling;                                  /* taken is on its way */
        struct hw_parcel taken;                        /* HW_MSG_TAKEN */
        struct hw_control_in *ring[HW_CONTROL_WINDOW]; /* the home loop's */
        _Atomic(struct hw_control_in *) inbox;
        struct hw_task read;
    } in;
};

/* Makes a peer over n rails that are down; the arguments are hw_session_init()'s. binding: bytes that both sides have
 * and that no other session has. -ENOMEM. */
int hw_peer_init(struct hw_peer *p, struct hw_domain *domain, bool client, struct hw_loop *home,
                 struct hw_loop *const *loop, unsigned n, const struct hw_peer_ops *ops, const struct hw_rail_io *io,
                 void *up, const struct hw_rail_limits *limits, const uint8_t binding[HW_BINDING]);
/* Ends it: every operation ends, those with something left with this error. On the home loop. */
void hw_peer_die(struct hw_peer *p, int why);
/* Calls off what reads this side's memory: before the peer dies, so that memory that was sent by reference is read no
 * more by then. On the home loop. */
void hw_peer_call_off(struct hw_peer *p);
/* True if no operation reads this side's memory. */
bool hw_peer_is_quiet(struct hw_peer *p);
/* A small operation's data comes or goes. On a rail's loop. */
static inline void hw_peer_note_small(struct hw_peer *p)
{
    if (!atomic_load_explicit(&p->small_seen, memory_order_relaxed))
        atomic_store_explicit(&p->small_seen, true, memory_order_relaxed);
}
/* True once a dead peer has let go of everything. On the home loop. */
bool hw_peer_is_gone(struct hw_peer *p);
/* Frees what a peer that is gone holds. On the home loop, once all tasks that were under way on others are through. */
void hw_peer_free(struct hw_peer *p);
/* The application took a notification of len bytes. From any thread. */
void hw_peer_took(struct hw_peer *p, uint32_t len);

#endif
