/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message layer of one peer: operations on memory regions, messages to queues, and notifications, on top of a
 * session.
 *
 * A write is cut into chunks, which address remote memory by handles of the peer's regions. A read is cut into
 * requests. Each request carries the number of a landing of this side, which the peer fills with data. Messages that
 * must be read in order are control messages (control.c), for example about regions, receives and refusals.
 *
 * The count of an operation is the number of its bytes that are not confirmed or have not arrived, plus one for each
 * other step that has not ended; a receive is a single step. The operation ends when the count is zero. A write or send
 * also waits for all refusals that the peer sent before its last confirmation (see the marks of struct hw_session_ops),
 * unless the operation was cancelled. After the end nothing reads or writes the operation's memory.
 *
 * One mutex protects the lists of a peer. The path of a chunk takes the mutex only when a rail moves to another
 * operation, and when an operation or landing ends. Lock order: domain, then peer. Callbacks into the layer above are
 * made without a lock.
 */
#ifndef HW_PEER_H
#define HW_PEER_H

#include "base/list.h"
#include "core/session.h"
#include "message/landing.h"
#include "message/pace.h"
#include "message/region.h"

#include <pthread.h>

#define HW_CONTROL_WINDOW 1024  /* maximum number of control messages that the peer has not read */
#define HW_READS          256   /* maximum number of read requests that the peer has not answered completely */
#define HW_OPS            65536 /* maximum number of operations of this side in flight */
/* Limit of answers to the peer that wait to be sent, and of other control messages that wait. A correct peer cannot
 * cause this many answers. This side's operations can cause this many messages while the peer is silent, because they
 * can be cancelled. */
#define HW_CONTROLS    (4 * HW_OPS)
#define HW_NOTES       (1u << 20)     /* limit of bytes of notifications that the application has not taken */
#define HW_NOTE_COST   128            /* overhead of one notification, counted in addition to its bytes */
#define HW_NOTE_MAX    (HW_NOTES / 4) /* maximum length of a notification in bytes */
#define HW_NOTED_BYTES (1ull << 38)   /* maximum number of bytes of a write that has a notification */
#define HW_QUEUES      65536 /* maximum number of queues; an operation of this side that needs another queue fails */
/* Like HW_QUEUES, for messages and receives of the peer. The peer itself is limited to HW_QUEUES, but does not yet know
 * which queues the newest operations of this side use. */
#define HW_QUEUES_BOTH  (2 * HW_QUEUES)
#define HW_CHAINS_FIRST 16 /* number of chains of a new hash table */
/* Limit of bytes of eager messages without a receive, including HW_NOTE_COST for each. */
#define HW_EAGER_ROOM   (1u << 20)
#define HW_SMALL_OP     8192u /* maximum size in bytes of an operation that is sent as one small parcel */
#define HW_SMALL_SPANS  64    /* maximum number of spans of an operation that is sent as one small parcel */
#define HW_CHUNK        (256u << 10)
#define HW_STAGED_CHUNK (4u << 20)  /* maximum chunk size for memory that the CPU cannot access */
#define HW_REQUEST      (64u << 20) /* maximum size of one read request in bytes */
#define HW_COUNT_BLOCK  256
#define HW_TICK         (4 * HW_MS)   /* resolution of the deadline checks */
#define HW_PATIENCE     (100 * HW_MS) /* default of hw_peer.patience */
/* Multiple of hw_peer.patience after which all rails end if they may still read a cancelled operation's memory. */
#define HW_CUT_OFF 10
#define HW_TICKS   256

struct hw_peer;

/* ---- operations ---------------------------------------------------------------------------------- */

enum hw_op_kind {
    HW_OP_WRITE,
    HW_OP_READ,
    HW_OP_NOTIFY,
    HW_OP_SEND, /* sends a message to a queue (queue.h) */
    HW_OP_RECV,
    /* tells the peer that this side closes; ends when the peer has received this message, and all confirmations and
     * control messages that were due when the operation was posted */
    HW_OP_BYE,
    HW_OP_SERVE /* answers a read request of the peer */
};

/* State of the message of a send or receive. */
enum hw_match {
    HW_MATCH_NONE,
    HW_MATCH_WAITS, /* send: waits in its queue */
    HW_MATCH_EAGER, /* send: in flight without a grant; receive: has an eager message */
    HW_MATCH_DIRECT /* the message is in flight to a landing, or may arrive in a landing */
};

/* A contiguous piece of local memory and its position in the peer's region. */
struct hw_span {
    const struct hw_space *space;
    uint8_t *ptr;
    uint64_t len;
    uint64_t start;           /* offset in the operation; set by hw_op_post() */
    struct hw_import *import; /* NULL if the span needs no region; may be NULL if the span is empty */
    uint64_t remote;          /* offset in the peer's region; SERVE: in this side's region */
    uint32_t handle;          /* SERVE: handle of this side's region, used in place of space and ptr */
};

/* An outgoing control message. */
struct hw_control {
    struct hw_parcel parcel; /* its type is HW_MSG_CONTROL */
    struct hw_control *next; /* next message that waits for the window */
    uint32_t sequence;
    enum hw_control_kind kind;
    uint64_t a, b, c, d;
    struct hw_note *note; /* NOTE and EAGER: the payload */
    struct hw_op *op;     /* NOTE and BYE: the operation that this message belongs to, or NULL; protected by the lock */
    /* the operation that contains this message, to which the message has a reference, or NULL if there is none */
    struct hw_op *within;
};

/* A part of an operation that fits into one frame. */
struct hw_chunk {
    struct hw_parcel parcel; /* its type is HW_MSG_WRITE, HW_MSG_READ or HW_MSG_DATA */
    struct hw_op *op;
    uint64_t from, len;
    uint64_t landing; /* READ: number of the landing */
    bool stop;        /* READ: the landing was given up */
};

struct hw_op {
    struct hw_peer *peer;
    enum hw_op_kind kind;
    /* called once, on any thread, when result is final and the caller owns the memory again */
    void (*over)(struct hw_op *op);
    void *user; /* for the caller's use */
    /* In ns of the home loop's clock, or HW_NEVER. After a cancellation, the time of the next check. */
    uint64_t deadline;
    struct hw_note *note; /* write and notify: notification for the peer, or NULL; owned by the operation */
    atomic_int result;    /* 0 or the first error */
    char *text;           /* error text or NULL; owned by the operation */
    uint64_t total;       /* bytes; set by hw_op_post() */
    uint64_t queued_upto; /* value of hw_peer.queued that includes this operation; 0 if it is not in `queued` */
    uint64_t queue;       /* send and receive: name of the queue */
    _Atomic uint64_t got; /* receive: length of the message, once the receive has succeeded */
    uint32_t n;

    /* for the message layer's use */
    uint64_t id;
    atomic_uint refs;
    _Atomic uint64_t cursor; /* bytes that were cut into chunks or requests; `total` if nothing is left to cut */
    _Atomic uint64_t left;   /* the count, see the top of this file */
    atomic_bool off;         /* the operation is cancelled, and its data and requests are no longer sent */
    atomic_bool first_used;  /* `first` is in use */
    atomic_bool was_cut;     /* SERVE: no longer counted in hw_peer.serves */
    struct hw_chunk first;
    struct hw_parcel noted; /* frame HW_MSG_NOTED of a write */
    struct hw_control last; /* used by hw_control_send_within() */
    struct hw_let_go let_go;
    bool let_go_over; /* no rail accesses the memory; used on the home loop */
    bool told;        /* over() was called, or is about to be; protected by the lock */
    bool flushes;     /* BYE: in hw_peer.flushing; protected by the lock */
    bool cut_off;     /* all rails were ended for this operation, or are about to be; protected by the lock */
    /* over() was called, or is about to be, before the peer has confirmed the end; protected by the lock */
    bool deserted;
    uint64_t answer_by; /* after a cancellation: time at which the peer dies if it has not confirmed the end; 0 if not
                           set yet */
    bool is_fenced;     /* the operation was put into hw_peer.fenced; protected by the lock */
    uint32_t fence;     /* the operation ends only when the control messages before this sequence number are read */
    struct hw_landing *landing; /* read and receive: landings that have not ended; protected by the lock */
    uint64_t serves;            /* SERVE and send: the peer's landing */
    uint64_t rest;              /* send: bytes of the landing that the message does not fill */
    enum hw_match match;        /* send and receive */
    uint64_t granted;           /* receive: number of the control message that announced the receive */
    bool foreign;               /* the CPU cannot access some of the memory, here or (unless two-sided) at the peer */
    struct hw_note *message;    /* receive: an eager message that must be copied */
    uint32_t ready;             /* number of leading spans whose region is known */
    bool pending, started;      /* pending: in hw_peer.all; started: no longer waits to start */
    bool holds_imports;         /* see hw_op_import(); protected by the lock */
    bool has_note, noted_sent;  /* note is or was set; its NOTED frame was passed to the session */
    struct hw_control *control; /* notify, BYE, and write of no bytes with a note: the message to the peer */
    struct hw_list all;         /* entry in hw_peer.all */
    /* entry in bulk, reads, notes, filling, flushing, fenced, held or over, or in a list of an import or a queue */
    struct hw_list queued;
    struct hw_list timed;     /* entry in one of the lists hw_peer.deadlines.at */
    struct hw_list serve_at;  /* SERVE and send: entry in hw_queues.answers or hw_queues.directs */
    struct hw_list of_stream; /* send and receive: entry in hw_queues.stream_ops, unless the stream is 0 */
    struct hw_span span[];
};

/* Creates an operation of n spans. The caller sets over, user, deadline, note and queue, and space, ptr, len, import
 * and remote of each span. Imports that hw_op_import() did not set must remain valid until over() is called. The caller
 * owns the reference. Returns NULL if out of memory. */
struct hw_op *hw_op_new(struct hw_peer *p, enum hw_op_kind kind, uint32_t n);
/* Allocates memory for an operation of up to n spans, which hw_op_init() initializes. Returns NULL if out of memory. */
struct hw_op *hw_op_alloc(uint32_t n);
/* Initializes an operation of n spans in such memory. The caller sets all members of the spans. */
void hw_op_init(struct hw_op *op, struct hw_peer *p, enum hw_op_kind kind, uint32_t n);
/* Drops a reference. Frees the operation if this was the last one. */
void hw_op_put(struct hw_op *op);
/* Works like hw_op_put(), but does not free the memory of the operation itself. Returns true if this was the last
 * reference: the memory then belongs to the caller. */
bool hw_op_drop(struct hw_op *op);
/* Imports the peer's region `id` for span i, and fails like hw_import_get(). The operation holds one reference for
 * successive spans with the same import, and releases it when the operation is over or cannot be posted. Called with
 * the peer's lock held, in ascending order of i. */
int hw_op_import(struct hw_op *op, uint32_t i, uint64_t id, uint64_t secret);
/* Releases the references of an operation that is not posted. Called with the peer's lock held. */
void hw_op_drop_imports(struct hw_op *op);
/* Starts an operation. over() will be called, possibly before this function returns. After a failure over() is not
 * called. Fails with -EAGAIN if HW_OPS operations are in flight, too many queues are in use or too many control
 * messages wait, -ESHUTDOWN for a closed stream, -EFAULT for a range outside a region, -EACCES if the region's rights
 * do not allow the operation, -E2BIG for too many bytes, -ENOMEM, the error with which the peer refused access to a
 * region (such as -ESTALE), or the error that the peer died with. */
int hw_op_post(struct hw_op *op);
/* Works like hw_op_post(), but is called with the peer's lock held, and calls over() only in hw_ops_unlock(). */
int hw_op_post_locked(struct hw_op *op);
/* Releases the peer's lock, copies eager messages to their receives, and calls over() of the operations that have ended
 * or are deserted. */
void hw_ops_unlock(struct hw_peer *p);
/* Cancels an operation with this error. The operation ends soon, with this error or with the result that was already
 * known. */
void hw_op_cancel(struct hw_op *op, int why);

/* ---- notifications ------------------------------------------------------------------------------- */

struct hw_note {
    struct hw_note *next; /* for the holder's use */
    uint64_t op; /* number of the peer's operation: the notification's write, or the send of an eager message */
    uint32_t len;
    uint8_t data[];
};
/* Allocates a notification of len bytes, up to HW_NOTE_MAX. Returns NULL if out of memory or if len is too large. */
struct hw_note *hw_note_new(uint32_t len);

/* ---- a peer -------------------------------------------------------------------------------------- */

/* Callbacks into the layer above. */
struct hw_peer_ops {
    /* Passes a notification that has arrived, on any loop. The callee owns and frees the notification, and must call
     * hw_peer_took() when the application has taken the notification. */
    void (*noted)(void *up, struct hw_note *note);
    /* Called on the home loop, like the members of the same name in struct hw_session_ops. why is negative. died() is
     * also called after the message layer has ended the peer. */
    void (*ended)(void *up, unsigned rail, int why);
    void (*down)(void *up, unsigned rail);
    void (*died)(void *up, int why);
    /* Called on a rail's loop, like the member of the same name in struct hw_session_ops. */
    void (*doubted)(void *up, unsigned rail);
    /* Called on the home loop when the peer closes. Confirmations that the peer sent before may still arrive over
     * another rail, until the peer closes its connections. */
    void (*bye)(void *up);
};

/* Progress of a peer's write that has a notification. */
struct hw_count {
    /* low bits of the operation's generation << 40 | (bytes that arrived - total bytes); the total is subtracted when
     * the notification arrives */
    _Atomic uint64_t state;
    struct hw_note *note; /* protected by the lock */
};

/* Operations of one kind that have ended: their number, the number that failed, and the bytes of those that succeeded.
 */
struct hw_op_counts {
    uint64_t ended, failed, bytes;
};

/* A hash table of lists. The number of chains grows with the number of entries. Most entries are removed soon after
 * they were added, without a search. Therefore an entry is only hashed when a search or a number of newer entries needs
 * it. */
struct hw_chains {
    struct hw_list recent;                           /* entries that were not hashed yet, oldest first */
    uint32_t n_recent;                               /* upper bound of their number */
    struct hw_list *list;                            /* the chains; their number is a power of two */
    uint32_t size;                                   /* number of chains */
    uint32_t added;                                  /* entries at the last count, and entries added since */
    uint64_t (*number)(const struct hw_list *entry); /* returns the number by which an entry is found */
    struct hw_list first[HW_CHAINS_FIRST];           /* the chains before the table first grows */
};

/* The queues of a peer, protected by the peer's lock except for held. */
struct hw_queues {
    struct hw_chains queues;   /* queues by name */
    struct hw_chains grants;   /* unused receives of the peer, by landing */
    struct hw_chains directs;  /* sends to a landing, by landing */
    struct hw_chains messages; /* eager messages that are held, by operation */
    struct hw_chains answers;  /* answers to the peer's requests, by landing */
    struct hw_chains closed;   /* streams that one side has closed */
    /* Operations and queues by stream. Stream 0 is left out, because it cannot be closed. */
    struct hw_chains stream_ops, stream_queues;
    struct hw_queue *recent; /* queue that was found last; NULL if none, or after a queue was freed */
    struct hw_queue *spare;  /* memory for the next queue, or NULL */
    uint8_t secret[16];      /* key of the hash function */
    uint32_t n, n_grants, n_closed;
    uint32_t n_closed_first; /* number of records in `closed` whose stream this side closed first */
    uint64_t sent;           /* buffer space that eager messages take at the peer */
    uint64_t seen;           /* one more than the number of the last GRANT, WITHDRAW or MATCHED that was read */
    _Atomic uint64_t held;   /* buffer space that the peer's eager messages take here, up to HW_EAGER_ROOM */
};

struct hw_peer {
    struct hw_session session;
    struct hw_domain *domain;
    const struct hw_peer_ops *ops;
    void *up;
    struct hw_op *current[HW_SESSION_RAILS]; /* operation that each rail cuts */
    struct hw_pace pace[HW_SESSION_RAILS];
    _Atomic uint64_t queued; /* total bytes of all operations that were ever queued for rails to cut */
    _Atomic uint64_t uncut;  /* bytes of `queued` that are not cut yet */
    atomic_uint large;       /* number of operations in `queued` that have not ended */
    uint32_t relieved;       /* bit mask of the home loop's rails on the first rail's path; they leave large operations
                                to others */
    unsigned relief;         /* a rail on another loop that takes these operations, or 0 if there is none */
    unsigned relief_loops;   /* number of other loops with rails that take these operations */
    atomic_bool small_seen;  /* a small operation was sent or received since a relieved rail last checked */
    uint64_t small_until;    /* time until which the relieved rails leave large operations to others */
    uint64_t small_last;     /* time at which a small operation was last seen */

    pthread_mutex_t lock; /* protects the following members except atomics, timers and tasks, unless stated otherwise */
    int dead;             /* 0, or the error that the peer died with */
    uint64_t answer_in;   /* ns: the peer dies unless it confirms the end of a cancelled operation within this time */
    uint64_t patience;    /* ns: how long the caller of a cancelled operation waits for the peer's answer */
    /* Memory may be sent by reference. Such memory is read until the peer has confirmed the bytes or the rail has
     * ended. */
    bool by_reference;
    uint64_t started; /* number of started operations of kinds below HW_OP_BYE */
    atomic_uint
        in_flight; /* operations in flight of kinds below HW_OP_BYE, except receives; written with the lock held */
    struct hw_op_counts counts[HW_OP_BYE];
    uint32_t deserted;       /* writes that have ended for the caller, but whose frames may still arrive */
    struct hw_list held;     /* writes that wait until no write is deserted */
    struct hw_list all;      /* operations that have not ended */
    struct hw_list bulk;     /* operations that rails cut into chunks */
    struct hw_list reads;    /* operations that are cut into requests */
    struct hw_list notes;    /* operations that wait for buffer space for their notification at the peer */
    struct hw_list fenced;   /* operations that wait until control messages are read */
    struct hw_list filling;  /* receives with a message that must be copied */
    struct hw_list flushing; /* BYE operations that wait for hw_session_flush() */
    struct hw_list over;     /* operations that have ended or are deserted, for flush_some() */
    atomic_bool unflushed;   /* see hw_ops_need_flush(); set with the lock held */
    struct op_slot {
        struct hw_op *op;
        uint32_t generation, next_free;
    } * slot; /* table of operations by number */
    uint32_t slots, slot_room, slot_free;
    uint32_t requests;       /* number of requests in flight, up to HW_READS */
    unsigned turn;           /* rail that wake_in_turn() last woke */
    uint64_t stop[HW_READS]; /* landings of requests that still need a STOP */
    uint32_t n_stop;
    uint32_t n_stopping;     /* requests for which STOP was sent and STOPPED has not arrived */
    struct hw_control spare; /* message for a STOP if no memory is available */
    bool spare_is_out;
    atomic_uint serves;  /* answers to the peer's requests that are not completely cut, up to HW_READS */
    atomic_uint answers; /* answers that the peer has not confirmed completely; see count_most_answers() in flow_in.c */
    uint64_t noted, taken; /* bytes of notifications that were sent, and that the peer's application has taken */
    struct hw_queues queues;
    struct hw_landings landings; /* rails also use it without the lock, see landing.h */
    struct hw_imports imports;
    struct hw_handles handles; /* written with the domain's lock held, and read without a lock */

    struct {
        struct hw_list at[HW_TICKS]; /* operations with a deadline, by tick modulo HW_TICKS */
        uint32_t n;
        uint64_t looked; /* tick of the last check */
        uint64_t next;   /* time of the home loop's next check, or HW_NEVER */
        struct hw_timer timer;
        struct hw_task arm; /* checks on the home loop and sets timer */
    } deadlines;

    _Atomic uint64_t notes_held; /* bytes of notifications that the application has not taken, up to HW_NOTES */
    uint64_t took, took_told;    /* total bytes that the application has taken, and the value last sent to the peer */
    _Atomic(struct hw_count *) count[HW_OPS / HW_COUNT_BLOCK];

    struct {
        uint64_t next;            /* number of the next control message; the low half is its sequence number */
        _Atomic uint32_t acked;   /* one more than the sequence number of the last message that the peer has read */
        _Atomic uint32_t refused; /* sequence number after the newest refusal */
        struct hw_control *first, **last; /* messages that wait to be sent */
        uint32_t waiting;                 /* number of these messages */
        uint32_t answers;                 /* number of them that answer messages of the peer */
    } out;
    struct {
        _Atomic uint64_t next;  /* number of the next message to be read; changed only on the home loop */
        _Atomic uint32_t told;  /* newest mark that the peer has sent */
        uint32_t acked;         /* value of next that was last sent to the peer */
        bool telling;           /* `taken` is in flight */
        struct hw_parcel taken; /* frame HW_MSG_TAKEN */
        struct hw_control_in *ring[HW_CONTROL_WINDOW]; /* used only by the home loop */
        _Atomic(struct hw_control_in *) inbox;
        struct hw_task read;
    } in;
};

/* Initializes a peer with n rails that are down. Apart from domain, ops and binding, the arguments are those
 * of hw_session_init(). binding is a value that both sides share and that no other session has. Fails with -ENOMEM. */
int hw_peer_init(struct hw_peer *p, struct hw_domain *domain, bool client, struct hw_loop *home,
                 struct hw_loop *const *loop, unsigned n, const struct hw_peer_ops *ops, const struct hw_rail_io *io,
                 void *up, const struct hw_rail_limits *limits, const uint8_t binding[HW_BINDING]);
/* Declares which pair of NICs rail i uses, see hw_session_pair(). Must be called before any rail starts. */
void hw_peer_pair(struct hw_peer *p, unsigned i, unsigned pair);
/* Ends the peer. Operations that have no result yet end with this error. Called on the home loop. */
void hw_peer_die(struct hw_peer *p, int why);
/* Cancels the operations that read this side's memory. Called before the peer dies, so that memory sent by reference is
 * no longer read when the peer is closed. Called on the home loop. */
void hw_peer_call_off(struct hw_peer *p);
/* Returns true if no operation reads this side's memory. */
bool hw_peer_is_quiet(struct hw_peer *p);
/* Records that a small operation's data is sent or received. Called on a rail's loop. */
static inline void hw_peer_note_small(struct hw_peer *p)
{
    if (!atomic_load_explicit(&p->small_seen, memory_order_relaxed))
        atomic_store_explicit(&p->small_seen, true, memory_order_relaxed);
}
/* Returns true once a dead peer has no operations and none of its tasks will run again. Called on the home loop. */
bool hw_peer_is_gone(struct hw_peer *p);
/* Frees the memory of a peer that is gone. Called on the home loop, after all pending tasks on other loops have run. */
void hw_peer_free(struct hw_peer *p);
/* Counts a notification of len bytes that the application has taken. May be called from any thread. */
void hw_peer_took(struct hw_peer *p, uint32_t len);

#endif
