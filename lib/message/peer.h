/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message layer of one peer: operations over regions of memory, and notifications, on top of a session.
 *
 * A write is cut into chunks that name remote memory by handles of the peer's regions. A read is cut into requests;
 * each names a landing of this side, which the peer fills with data. Small messages that must arrive in order are
 * control messages (control.c): they announce regions, refusals and notifications.
 *
 * The count of an operation is the number of its bytes that are not confirmed or have not arrived, plus one for each
 * other user of it. It ends when the count is zero and all refusals that the peer gave before its last confirmation
 * have arrived (the session's marks). After its end nothing reads or writes its memory.
 *
 * One mutex protects the lists of a peer. The path of a chunk takes it only when a rail advances to another operation.
 * Lock order: domain, then peer. No function of the layer above is called with a lock held.
 */
#ifndef HW_PEER_H
#define HW_PEER_H

#include "base/list.h"
#include "core/session.h"
#include "message/landing.h"
#include "message/pace.h"
#include "message/region.h"

#include <pthread.h>

#define HW_CONTROL_WINDOW 1024           /* control messages that the peer has not read */
#define HW_READS          256            /* requests of reads that the peer has not answered completely */
#define HW_OPS            65536          /* under way */
#define HW_CONTROLS       (4 * HW_OPS)   /* control messages that wait to be sent: more than a correct peer can cause */
#define HW_NOTES          (1u << 20)     /* bytes of notifications that the application has not taken */
#define HW_NOTE_COST      128            /* of these, the overhead of one besides its own bytes */
#define HW_NOTE_MAX       (HW_NOTES / 4) /* the longest one */
#define HW_NOTED_BYTES    (1ull << 38)   /* the longest write with a notification */
#define HW_QUEUES         65536          /* in use, in either direction */
#define HW_QUEUE_CHAINS   128
#define HW_EAGER_ROOM     (1u << 20) /* bytes of eager messages without a receive, plus HW_NOTE_COST for each */
#define HW_SMALL_OP       8192u      /* bytes of an operation that is sent as one small parcel .. */
#define HW_SMALL_SPANS    64         /* .. and the number of its spans, at most */
#define HW_CHUNK          (256u << 10)
#define HW_STAGED_CHUNK   (4u << 20)  /* likewise the most, where memory is not for the CPU */
#define HW_REQUEST        (64u << 20) /* bytes of one request of a read */
#define HW_COUNT_BLOCK    256
#define HW_TICK           (4 * HW_MS)   /* interval at which deadlines are checked */
#define HW_PATIENCE       (100 * HW_MS) /* as hw_peer.patience */
#define HW_CUT_OFF        10 /* times hw_peer.patience: then rails that may read a cancelled operation's memory end */
#define HW_TICKS          256

struct hw_peer;

/* ---- operations ---------------------------------------------------------------------------------- */

enum hw_op_kind {
    HW_OP_WRITE,
    HW_OP_READ,
    HW_OP_NOTIFY,
    HW_OP_SEND, /* a message to a queue, queue.h */
    HW_OP_RECV,
    HW_OP_BYE,  /* tells the peer that this side closes; ends when the peer has received that */
    HW_OP_SERVE /* the answer to a request of the peer */
};

/* The state of the message of a send or receive. */
enum hw_match {
    HW_MATCH_NONE,
    HW_MATCH_WAITS, /* send: in its queue */
    HW_MATCH_EAGER, /* send: in flight without a grant; receive: it has an eager message */
    HW_MATCH_DIRECT /* in flight to a landing, or may arrive in one */
};

/* A run of local memory and its position in the peer's region. */
struct hw_span {
    const struct hw_space *space;
    uint8_t *ptr;
    uint64_t len;
    uint64_t start;           /* bytes of the operation before it; hw_op_post() sets it */
    struct hw_import *import; /* NULL: no bytes, or no region is needed */
    uint64_t remote;          /* offset in the region; serve: in this side's region */
    uint32_t handle;          /* serve: of this side's region, instead of space and ptr */
};

/* An outgoing control message. */
struct hw_control {
    struct hw_parcel parcel; /* type: HW_MSG_CONTROL */
    struct hw_control *next; /* waits for room in the window */
    uint32_t sequence;
    enum hw_control_kind kind;
    uint64_t a, b, c, d;
    struct hw_note *note; /* HW_CONTROL_NOTE: the payload */
    struct hw_op *op;     /* the operation whose note it carries, under the lock; NULL: that has ended */
    struct hw_op *within; /* it is embedded in this operation, and has a reference to it; NULL: it is allocated */
};

/* A part of an operation that fits one frame. */
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
    void (*over)(struct hw_op *op); /* called once, from any thread: result is set, the caller owns the memory again */
    void *user;                     /* the caller's */
    /* ns of the home loop's clock, HW_NEVER: none; after a cancel, the time of the next check */
    uint64_t deadline;
    struct hw_note *note; /* write, notify: for the peer's application; NULL: none. Owned by the operation */
    atomic_int result;    /* 0, or the first error */
    char *text;           /* the error text; NULL: none. Owned by the operation */
    uint64_t total;       /* bytes; hw_op_post() sets it */
    uint64_t queued_upto; /* value of hw_peer.queued that includes this operation; 0: it is not large */
    uint64_t queue;       /* send, receive: which one */
    _Atomic uint64_t got; /* receive: the message's bytes, once it has ended successfully */
    uint32_t n;

    /* the message layer's */
    uint64_t id;
    atomic_uint refs;
    _Atomic uint64_t cursor; /* bytes that were cut */
    _Atomic uint64_t left;   /* bytes, and one for each other step that has not ended */
    atomic_bool off;         /* cancelled: nothing more is sent */
    atomic_bool first_used;  /* first is */
    atomic_bool was_cut;     /* serve: not counted any more among the serves of the peer */
    struct hw_chunk first;
    struct hw_parcel noted; /* HW_MSG_NOTED, of a write */
    struct hw_control last; /* ends something at the peer, so it must not fail for lack of memory */
    struct hw_let_go let_go;
    bool let_go_over; /* no rail touches its memory any more; used on the home loop */
    bool told;        /* over() was called; under the lock, as .. */
    bool cut_off;     /* rails were ended so that nothing reads its memory; likewise, as .. */
    /* .. this: over() was, or is about to be, called before the peer has confirmed the end */
    bool deserted;
    uint64_t answer_by;         /* after a cancel: the peer dies if it has not confirmed the end by then */
    bool is_fenced;             /* it waits in the peer's list; under the lock */
    uint32_t fence;             /* this many control messages must be read before it ends */
    struct hw_landing *landing; /* read: those that have not ended, under the lock */
    uint64_t serves;            /* serve, send: the peer's landing */
    uint64_t rest;              /* send: the bytes of the landing that the message does not fill */
    enum hw_match match;        /* send, receive */
    uint64_t granted;           /* receive: number of the control message that told the peer */
    bool foreign;               /* the CPU cannot use some of its memory, here or, but for a receive, at the peer */
    struct hw_note *message;    /* receive: an eager one, to be copied */
    uint32_t ready;             /* spans, from the first one on, whose region is known */
    bool pending, started;      /* is in the peer's list; waits for nothing */
    bool has_note, noted_sent;  /* note is, or was, set; its NOTED frame was passed to a rail */
    struct hw_control *control; /* notify, and a write of no bytes: the message with the note */
    struct hw_list all;         /* of the peer's operations */
    struct hw_list queued;      /* in bulk, reads, notes, filling, fenced, over, an import's or a queue's list */
    struct hw_list timed;       /* among those with a deadline */
    struct hw_list serve_at;    /* serve, send: among those of landings with the same remainder, or hash */
    struct hw_span span[];
};

/* Makes an operation of n spans. The caller fills in over, user, deadline, note, and of each span space, ptr, len,
 * import, remote; the imports must remain valid until over(). The caller owns the reference. NULL: no memory. */
struct hw_op *hw_op_new(struct hw_peer *p, enum hw_op_kind kind, uint32_t n);
/* Drops a reference. */
void hw_op_put(struct hw_op *op);
/* Starts it: over() will be called, possibly before this returns. An operation of no bytes and without a note ends at
 * once. After a failure over() is not called: -EAGAIN HW_OPS operations are in flight, -EFAULT outside a region,
 * -EACCES its rights, -ESTALE it was revoked, -E2BIG too many bytes, -ENOMEM, or the error with which the peer died. */
int hw_op_post(struct hw_op *op);
/* Cancels an operation with this error. It ends soon, with this error or with the result that it was about to have. */
void hw_op_cancel(struct hw_op *op, int why);

/* ---- notifications ------------------------------------------------------------------------------- */

struct hw_note {
    struct hw_note *next; /* the holder's */
    uint64_t op;          /* of a write of the peer, until that has landed */
    uint32_t len;
    uint8_t data[];
};
/* A notification with room for len bytes, up to HW_NOTE_MAX. NULL: no memory, or too long. */
struct hw_note *hw_note_new(uint32_t len);

/* ---- a peer -------------------------------------------------------------------------------------- */

/* The callbacks into the layer above. */
struct hw_peer_ops {
    /* On any loop: a notification has arrived. The callee owns it: it calls hw_peer_took() when the application has it,
     * and frees it. */
    void (*noted)(void *up, struct hw_note *note);
    /* On the home loop, like those of struct hw_session_ops; why < 0. */
    void (*ended)(void *up, unsigned rail, int why);
    void (*down)(void *up, unsigned rail);
    void (*died)(void *up, int why);
    /* On a rail's loop, like that of struct hw_session_ops. */
    void (*doubted)(void *up, unsigned rail);
    /* On the home loop: the peer closes. Data that it has confirmed may still arrive, by another rail. */
    void (*bye)(void *up);
};

/* How much of a write of the peer with a notification has landed. */
struct hw_count {
    _Atomic uint64_t state; /* low bits of the operation's generation << 40 | bytes that landed - total bytes */
    struct hw_note *note;   /* under the lock */
};

/* Operations of one kind that have ended: their number, the number that failed, and the bytes of the others. */
struct hw_op_counts {
    uint64_t ended, failed, bytes;
};

/* Queues: under the peer's lock, except for held. */
struct hw_queues {
    /* .. queues, by name */
    struct hw_list queues[HW_QUEUE_CHAINS];   /* .. queues, by name */
    struct hw_list grants[HW_QUEUE_CHAINS];   /* .. receives of the peer that are not used, by landing */
    struct hw_list directs[HW_QUEUE_CHAINS];  /* .. sends to a landing, by that */
    struct hw_list messages[HW_QUEUE_CHAINS]; /* .. eager messages that are held, by operation */
    struct hw_list closed[HW_QUEUE_CHAINS];   /* .. streams that one side has closed, by number */
    struct hw_queue *recent;                  /* the one that was found last; NULL: none, or it was freed */
    struct hw_queue *spare;                   /* memory for the next one; NULL: none */
    uint8_t secret[16];                       /* of the hash */
    uint32_t n, n_grants, n_closed;
    uint32_t n_closed_first; /* of closed, those that this side closed first */
    uint64_t sent;           /* room that eager messages take at the peer */
    uint64_t seen;           /* one more than the number of the last control message about a receive of the peer */
    _Atomic uint64_t held;   /* room that the peer's eager messages take here, of HW_EAGER_ROOM */
};

struct hw_peer {
    struct hw_session session;
    struct hw_domain *domain;
    const struct hw_peer_ops *ops;
    void *up;
    struct hw_op *current[HW_SESSION_RAILS]; /* for each rail: the operation that it cuts */
    struct hw_pace pace[HW_SESSION_RAILS];
    _Atomic uint64_t queued; /* total bytes of all operations that rails were ever given to cut */
    _Atomic uint64_t uncut;  /* of these bytes, those not yet cut */
    atomic_uint large;       /* of these operations, those that have not ended */
    uint32_t relieved;       /* bits: rails of the first one's path on the home loop, which leave large operations .. */
    unsigned relief;         /* .. to this one and others on other loops; 0: none */
    unsigned relief_loops;   /* how many those are */
    atomic_bool small_seen;  /* a small operation was sent or received since the first rail last checked */
    uint64_t small_until;    /* home loop: until then its rails leave large operations to others .. */
    uint64_t small_last;     /* .. because a small operation was seen at this time, after others */

    pthread_mutex_t lock; /* protects all fields below, except for atomics */
    int dead;             /* 0, or why */
    uint64_t answer_in;   /* ns: the peer dies if it has not ended a cancelled operation by then */
    uint64_t patience;    /* ns: how long the caller of a cancelled operation waits for the peer's answer */
    /* memory may be sent by reference: it is read until the peer has confirmed it, or the rail has ended */
    bool by_reference;
    uint64_t started; /* operations below HW_OP_BYE */
    struct hw_op_counts counts[HW_OP_BYE];
    uint32_t deserted;                /* writes that have ended for the caller, but whose frames may still land */
    struct hw_list held;              /* writes that wait until there is none of those */
    struct hw_list all;               /* operations */
    struct hw_list bulk;              /* rails cut chunks of these */
    struct hw_list reads;             /* are cut into requests */
    struct hw_list notes;             /* wait for room for their notifications at the peer */
    struct hw_list fenced;            /* wait until control messages are read */
    struct hw_list filling;           /* receives with a message to be copied */
    struct hw_list over;              /* over() must be called */
    atomic_bool unflushed;            /* an operation has ended, or a receive has its message; set under the lock */
    struct hw_list serving[HW_READS]; /* serves, by the peer's landing */
    struct op_slot {
        struct hw_op *op;
        uint32_t generation, next_free;
    } * slot; /* operations by number */
    uint32_t slots, slot_room, slot_free;
    uint32_t requests;       /* of HW_READS */
    unsigned turn;           /* the rail that was woken last for operations that wait */
    uint64_t stop[HW_READS]; /* landings of requests for which a STOP is still to be sent */
    uint32_t n_stop;
    uint32_t n_stopping;     /* requests that the peer was told to stop, and has not confirmed */
    struct hw_control spare; /* sends one of them if there is no memory */
    bool spare_is_out;
    atomic_uint serves;    /* operations for the peer's requests that are not completely cut, of HW_READS */
    atomic_uint answers;   /* those that the peer has not confirmed completely; the limit: flow_in.c */
    uint64_t noted, taken; /* bytes of notifications: sent; and taken by the peer's application */
    struct hw_queues queues;
    struct hw_landings landings;
    struct hw_imports imports;
    struct hw_handles handles; /* under the domain's lock */

    struct {
        struct hw_list at[HW_TICKS]; /* operations with a deadline, by tick */
        uint32_t n;
        uint64_t looked; /* tick of the last check */
        uint64_t next;   /* time of the home loop's next check; HW_NEVER: none */
        struct hw_timer timer;
        struct hw_task arm; /* sets it, on the home loop */
    } deadlines;

    _Atomic uint64_t notes_held; /* bytes of received notifications, of HW_NOTES */
    uint64_t took, took_told;    /* taken by the application, in total; as the peer knows */
    _Atomic(struct hw_count *) count[HW_OPS / HW_COUNT_BLOCK];

    struct {
        uint64_t next;                    /* number of the next control message; the low half is its sequence */
        _Atomic uint32_t acked;           /* one more than the last one that the peer has read */
        _Atomic uint32_t refused;         /* behind the newest refusal */
        struct hw_control *first, **last; /* wait */
        uint32_t waiting;
    } out;
    struct {
        _Atomic uint64_t next;                         /* number of the next one to be read: home loop only */
        _Atomic uint32_t told;                         /* the peer's newest mark */
        uint32_t acked;                                /* next, as the peer knows */
        bool telling;                                  /* taken is in flight */
        struct hw_parcel taken;                        /* HW_MSG_TAKEN */
        struct hw_control_in *ring[HW_CONTROL_WINDOW]; /* the home loop's */
        _Atomic(struct hw_control_in *) inbox;
        struct hw_task read;
    } in;
};

/* Makes a peer over n rails that are down; the arguments are those of hw_session_init(). binding: bytes that both sides
 * share and that no other session has. -ENOMEM. */
int hw_peer_init(struct hw_peer *p, struct hw_domain *domain, bool client, struct hw_loop *home,
                 struct hw_loop *const *loop, unsigned n, const struct hw_peer_ops *ops, const struct hw_rail_io *io,
                 void *up, const struct hw_rail_limits *limits, const uint8_t binding[HW_BINDING]);
/* Ends the peer: every operation ends, unfinished ones with this error. On the home loop. */
void hw_peer_die(struct hw_peer *p, int why);
/* Cancels the operations that read this side's memory, before the peer dies, so that memory that was sent by reference
 * is not read any more by then. On the home loop. */
void hw_peer_call_off(struct hw_peer *p);
/* True if no operation reads this side's memory. */
bool hw_peer_is_quiet(struct hw_peer *p);
/* Notes that data of a small operation is sent or received. On a rail's loop. */
static inline void hw_peer_note_small(struct hw_peer *p)
{
    if (!atomic_load_explicit(&p->small_seen, memory_order_relaxed))
        atomic_store_explicit(&p->small_seen, true, memory_order_relaxed);
}
/* True once a dead peer holds no more resources. On the home loop. */
bool hw_peer_is_gone(struct hw_peer *p);
/* Frees the memory of a peer that is gone. On the home loop, once all pending tasks on other loops have run. */
void hw_peer_free(struct hw_peer *p);
/* The application took a notification of len bytes. From any thread. */
void hw_peer_took(struct hw_peer *p, uint32_t len);

#endif
