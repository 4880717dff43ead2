/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public API on top of the message layer: contexts and their loops, memory, peers and their connections,
 * operations, and completions.
 *
 * Locking: the state of connecting a peer belongs to the peer's home loop, that is, to the thread that has the role of
 * the loop's driver (hw_driver_enter() takes the role). The context's lock protects the context's lists. Locks are
 * taken in this order: role of a driver, context, message layer, queue of completions. A thread has at most one role at
 * a time.
 */
#ifndef HW_CONTEXT_H
#define HW_CONTEXT_H

#include "base/list.h"
#include "context/metrics.h"
#include "core/driver.h"
#include "message/op.h"
#include "message/queue.h"
#include "transport/pairing.h"
#include "transport/transport.h"

#define HW_LOOPS_MAX 64
#define HW_KEY_MIN   16 /* minimum length of a job key in bytes */
#define HW_KEY_MAX   4096

/* ---- completions (complete.c) -------------------------------------------------------------------- */

/* An event that hawser_poll() must report. Embedded in the operation or peer that the event is about. */
struct hw_event {
    struct hw_list in_queue;
    struct hw_event *next; /* in hawser.ended */
    unsigned tellers;      /* number of threads that are reporting the event, unless it is the end of an operation */
    enum hawser_event kind;
};

/* Adds an event to the context's queue unless it is queued already. May be called from any thread that holds no lock
 * except a driver's role. */
void hw_event_push(struct hawser *h, struct hw_event *e);
/* Works like hw_event_push() for the end of an operation without a handle, which is never removed from the queue. */
void hw_event_push_end(struct hawser *h, struct hw_event *e);
/* Removes the event of a peer from the queue if it is queued, and waits for threads that are reporting it. */
void hw_event_drop(struct hawser *h, struct hw_event *e);
/* Empties the queue, and frees the operations without a handle whose ends were not reported. Called when no peer and no
 * thread exists any more. */
void hw_events_free(struct hawser *h);
/* Drops a reference to an operation. If this was the last one and the memory is a block of idle.c, adds the block to
 * *idle, unless idle is NULL. */
void hw_op_unref(struct hawser_op *op, struct hw_op **idle);
/* Wakes callers that wait at driver 0, for example for completions, or at `home`. If the library has threads, also
 * makes the descriptor of hawser_eventfd() readable, once before the application's first call of hawser_eventfd(), and
 * always afterwards. */
void hw_event_signal(struct hawser *h, struct hw_driver *home);

/* ---- memory of operations (idle.c) ------------------------------------------------------------------ */

#define HW_IDLE_SPANS 4    /* spans for which each block has room, including those that struct hawser_op occupies */
#define HW_IDLE_MOST  1024 /* maximum number of blocks that a context keeps */

/* Blocks of memory of operations that have ended, for hawser_submit(): malloc() would return a long list of such blocks
 * to the kernel, and fetch it back. */
struct hw_idle {
    pthread_mutex_t lock;
    struct hw_op *first; /* linked by hw_op.user */
    unsigned n;
};

void hw_idle_init(struct hw_idle *i);
void hw_idle_free(struct hw_idle *i); /* frees all blocks */
/* Takes up to n blocks. Returns a list, linked by hw_op.user, or NULL. */
struct hw_op *hw_idle_take(struct hw_idle *i, unsigned n);
/* Keeps the blocks of this list, or frees them if there are too many. */
void hw_idle_keep(struct hw_idle *i, struct hw_op *list);

/* ---- the context (context.c) ----------------------------------------------------------------------- */

struct hawser {
    uint32_t flags;
    struct hw_knobs k;
    struct hw_logger log;
    bool keyed;
    uint8_t key[HW_SECRET];
    const struct hw_transport *tp; /* creates the connections of rails */
    struct hw_tp_env env;
    struct hw_driver *driver;
    unsigned n_drivers;
    struct hw_domain domain; /* regions that peers may access */
    struct hw_rail_limits limits;

    pthread_mutex_t lock; /* protects the following members; atomic members may be read without it */
    struct hw_list peers;
    struct hw_list accepts; /* peers that wait for hawser_accept() */
    struct hw_list graves;  /* peers that died before they were reported to the application */
    struct hw_list mems;
    unsigned n_peers;
    atomic_uint n_accepts, n_graves;
    pthread_cond_t someone;         /* signals a new entry in accepts or graves */
    unsigned next_home, next_first; /* counters that choose the next peer's home, and the pair of its first rail */

    pthread_mutex_t queue_lock; /* protects queue */
    struct hw_list queue;       /* list of struct hw_event to report */
    atomic_uint n_queued;
    _Atomic(struct hw_event *) ended; /* ends of operations that are not in queue yet, newest first */
    struct hw_idle idle;
    int event_fd;
    atomic_bool event_wanted, event_missed; /* hawser_eventfd() was called; something has happened before */

    struct hw_listener *listener; /* protected by the role of driver 0 */
    struct hw_source carrier;     /* reports changes of NICs' links; protected by the role of driver 0 */
    int carrier_fd;               /* -1 if link changes cannot be watched */
    struct hw_metrics metrics;
};

/* Takes and releases the role of each driver in turn. Afterwards every turn that was in progress has ended. */
void hw_context_visit(struct hawser *h);
/* ---- memory (memory.c) ------------------------------------------------------------------------------ */

struct hawser_mem {
    struct hawser *h;
    const struct hw_space *space;
    uint8_t *ptr; /* address in space */
    size_t len;
    bool own;               /* allocated by hawser_mem_alloc() */
    atomic_uint busy;       /* number of uses by operations in flight */
    atomic_uint revoking;   /* number of regions that are in no list any more, and that rails may still access */
    struct hw_list exports; /* protected by the context's lock */
    struct hw_list in_context;
};

/* Makes the exports that were made only for this peer inaccessible. */
void hw_memory_forget_peer(struct hawser *h, const struct hw_peer *p);
void hw_memory_free_all(struct hawser *h);

/* ---- operations (ops.c) ------------------------------------------------------------------------------ */

struct hawser_op {
    struct hawser_peer *peer; /* counted reference */
    struct hw_op *op;         /* counted reference; the memory of this handle is part of op */
    uint8_t *data;            /* copy of the inline bytes of the request's descriptors */
    struct hw_event event;
    bool has_handle;
    bool is_block; /* the memory is a block of idle.c */
    atomic_bool over;
    uint64_t user;
    uint32_t n_mems;
    struct hawser_mem *mem[]; /* registrations in use until the operation is over */
};

/* ---- peers (peer.c) ------------------------------------------------------------------------------------ */

/* The client's attempt to connect one link of a rail. */
struct hw_attempt {
    struct hw_source source;
    struct hw_task task;
    struct hw_way *way;
    int fd; /* -1 if closed */
    bool greeted, done;
    struct hw_hs hs;
    uint8_t ask[HW_ASK_SIZE], answer[HW_ASK_SIZE];
    uint32_t have; /* bytes of answer that were received */
};

/* A connection that the listener has accepted, on its way to the peer's home loop. */
struct hw_arrival {
    struct hw_list of_peer;
    int fd;
    bool side; /* true for a second connection that the transport needs */
    uint32_t rail, link, gen;
    uint8_t ask[HW_ASK_SIZE]; /* not used if side is true */
};

/* Established connections on which the transports of both sides run their handshake. */
struct hw_meeting {
    struct hw_task task;
    struct hw_timer timer;
    uint32_t gen;
    int fd;                /* descriptor of the last connection, which the transport owns */
    struct hw_word theirs; /* client: the last word that the server sent */
    unsigned n;            /* number of connections; 0 if no handshake is running */
    struct hw_conn *conn[HW_RAIL_LINKS];
    struct meeting_watch {
        struct hw_source source;
        struct hw_way *way;
    } watch[HW_RAIL_LINKS];
};

/* The state of connecting and reconnecting one rail. */
struct hw_way {
    struct hawser_peer *peer;
    unsigned index, pair; /* number of the rail, and of its pair of NICs */
    unsigned links;
    atomic_bool up;
    atomic_uint lost;   /* number of times that the rail went down, not counting a spare that was no longer needed */
    atomic_uint failed; /* like `lost`, but only while neither side was closing */
    atomic_int carrier; /* the latest report about the NIC's link that hw_nics_judge() has not evaluated */
    int lost_level;     /* HAWSER_LOG_ level at which the loss of the rail was logged */
    struct hw_driver *driver;
    char nic[HAWSER_NIC_NAME], peer_nic[HAWSER_NIC_NAME];
    /* Addresses of the rail's last link, "" until the rail is first up. Written with the context's lock held. */
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT];
    struct hw_meeting meeting;
    struct hw_tp_counts counts;
    struct hw_rail_totals folded; /* totals that hw_metrics_fold() has added; protected by the context's lock */

    /* client only */
    struct hw_nic from;
    union hw_addr to;
    uint32_t gen;
    unsigned n_done;
    struct hw_attempt *attempt; /* one per link */
    struct hw_timer timer;      /* fires at the next attempt, or at the deadline of the current attempt */
    bool dialling, refused;     /* refused: the last attempt failed because nothing listened */
    bool hopeless;              /* the transport has no device for the NIC */
    bool disowned;              /* the last attempt failed because the server did not know the session */
    bool spare;                 /* connected only if the rails that are not spare may have failed */
    unsigned failures;          /* consecutive failures */

    /* server only: connections of generation in_gen, until all have arrived and the rail is down */
    uint32_t in_gen;
    unsigned in_links, in_have;
    int in_fd[HW_RAIL_LINKS]; /* -1 if the connection has not arrived */
};

/* Versions of the session protocol that this build supports. The protocol consists of the frames on a session's rails
 * and of the SETUP messages that create the rails. A test overrides these values. */
#ifndef HW_SESSION_LEAST
#define HW_SESSION_LEAST 1
#define HW_SESSION_MOST  1
#endif

enum {
    HW_PEER_NEW = 1,
    HW_PEER_LIVES = 0
}; /* values of hawser_peer.state; a negative value is the errno that the peer died with */

struct hawser_peer {
    struct hawser *h;
    struct hw_driver *home;
    bool client, keyed;
    atomic_bool known; /* the application has received the peer or is about to receive it */
    uint16_t version;  /* version of the session protocol that both sides agreed on */
    int gpu, peer_gpu; /* client: numbers of the GPUs, here and at the peer, whose memory the connections carry, or -1
                          if not specified */
    uint64_t session;
    uint8_t secret[HW_SECRET];
    char name[HAWSER_ADDR_TEXT + 8];
    void *user;
    atomic_uint refs; /* references of the application, operations and the listener */
    struct hw_list in_context, in_accept;
    /* Place of the peer in the metrics, or 0 if no reader has seen the peer or the place was given up
     * (hw_metrics_fold()). Values from 1 to HW_METRICS_PEERS are the peer's number plus 1. A larger value means that
     * the metrics count the peer as part of the peer "other". */
    unsigned metrics_place;
    struct hw_op_totals folded;
    pthread_mutex_t door; /* protects closed, because handles of operations may outlive parts of the peer */
    bool closed;
    /* Number of threads that use the loops on behalf of an operation with a handle. hawser_peer_close() waits for these
     * threads, because the loops may be freed next. */
    atomic_uint callers;

    atomic_int state;
    char why[HW_ERR_TEXT]; /* written before state is set */
    struct hw_event arrived, died, notified, connected;
    uint64_t connect_user;
    int connect_result;

    /* the rails, and the state of agreeing on them; has_rails: the rails were created */
    bool has_rails;
    unsigned n_ways, n_pairs,
        n_sure;       /* number of rails, of pairs of NICs, and of pairs that were shown to work and are not spare */
    unsigned n_spare; /* client: number of spare rails, which are the last entries of way */
    struct hw_way *way;
    struct hw_peer peer;
    struct hawser_path *paths; /* client: result of the pairing for hawser_paths() */
    uint32_t n_paths;
    struct hw_connect *connecting;   /* state of hawser_connect_start() and its thread */
    union hw_addr offer[HW_NIC_MAX]; /* server: addresses of the NICs that were offered to the client */
    unsigned n_offers;

    atomic_uint rails_up;
    atomic_uint pairs_up;  /* pairs that have had a rail up at least once */
    struct hw_timer dead;  /* kills the peer if no rail comes up */
    struct hw_timer bye;   /* kills a peer that has closed, after its last confirmations have had time to arrive */
    atomic_bool abandoned; /* server: set-up with the client failed before the rails were agreed on */
    bool closing;          /* this side is closing; belongs to the home loop */
    bool heard_bye;        /* the peer is closing; belongs to the home loop */
    atomic_bool said_bye;  /* the operation that sends BYE has ended */
    struct hw_task nics;   /* evaluates changes of the NICs' links */
    struct {
        struct hw_task call;  /* connects the spare rails, because a rail may be dead */
        struct hw_timer rest; /* checks whether the spare rails are still needed */
        bool called;          /* spare rails are connected or will be; belongs to the home loop */
    } spares;
    struct hw_task arrive;
    struct hw_list arrivals; /* protected by the context's lock */

    pthread_mutex_t note_lock;
    struct hw_note *note, **last_note; /* notifications that the application has not taken */
};

/* Creates a peer that is in no list yet. Returns NULL if out of memory. */
struct hawser_peer *hw_peer_new(struct hawser *h, bool client);
/* Gives the peer n rails. The caller then fills in p->way. Fails with -ENOMEM. */
int hw_peer_set_rails(struct hawser_peer *p, unsigned n);
/* Selects the rails that take large operations from the rails on the home loop (see struct hw_peer). Called once the
 * pairs in p->way are set. Does nothing if fewer than three rails are not spare. */
void hw_peer_share_path(struct hawser_peer *p);
/* Marks the peer as known to the application, which receives the events of the peer from now on. Called with the role
 * of the peer's home. */
void hw_peer_make_known(struct hawser_peer *p);
void hw_peer_ref(struct hawser_peer *p);
void hw_peer_unref(struct hawser_peer *p);
/* Kills the peer with this error, unless the peer is already dead. hw_error() returns the reason. Called with the role
 * of the peer's home. */
void hw_peer_kill(struct hawser_peer *p, int why);
/* Kills the peer with this error, or with -ESHUTDOWN if either side was closing. */
void hw_peer_lose(struct hawser_peer *p, int why);
/* Ends the peer if it has sent BYE, all rails have ended, and everything that the peer confirmed has ended here. Called
 * when a rail has ended or is down. */
void hw_peer_look_if_closed(struct hawser_peer *p);
/* Returns the peer of this session that connected to this context, or NULL. Called with the context's lock held. */
struct hawser_peer *hw_peer_by_session(struct hawser *h, uint64_t session);

/* ---- NICs (nics.c) ---------------------------------------------------------------------------------------- */

/* Starts to watch the NICs. From now on, a rail ends when the kernel reports that its NIC has lost its link. Has no
 * effect if the kernel's reports are not available. */
void hw_nics_watch(struct hawser *h);
/* Evaluates the kernel's reports about the NICs of the peer's rails. Runs on the peer's home. */
void hw_nics_judge(struct hw_task *t);

/* ---- rails (ways.c): with the role of the peer's home ---------------------------------------------------- */

/* Client: starts to connect all rails that are not spare. */
void hw_ways_dial(struct hawser_peer *p);
/* Stops all connection attempts, and the transports' handshakes. */
void hw_ways_stop(struct hawser_peer *p);
/* Returns true if no task of a connection attempt or of a transports' handshake is posted. */
bool hw_ways_are_idle(const struct hawser_peer *p);
void hw_ways_free(struct hawser_peer *p);
/* Handle the callbacks `ended` and `down` of struct hw_peer_ops. */
void hw_way_ended(struct hawser_peer *p, unsigned rail, int why);
void hw_way_down(struct hawser_peer *p, unsigned rail);
/* Task and timer of hawser_peer.spares. */
void hw_ways_call_spares(struct hw_task *t);
void hw_ways_rest_spares(struct hw_timer *t);
/* Takes the connections that the listener has accepted. */
void hw_ways_arrive(struct hw_task *t);
/* Handles a failure of a rail's connections before the rail has started. */
void hw_way_failed(struct hw_way *w, int why);

/* ---- the transports' handshake (meeting.c): with the role of the peer's home ------------------------------ */

/* Begins the transports' handshake on the sockets fd[0, n), after which the rail starts. On the client, theirs is the
 * server's last word. Takes ownership of each socket and sets its fd[k] to -1. After a failure, the caller closes the
 * sockets that were not taken. Later failures are passed to hw_way_failed(). */
int hw_meeting_begin(struct hw_way *w, uint32_t gen, int *fd, unsigned n, const struct hw_word *theirs);
/* Takes a second connection for the link. If the connection is not wanted, leaves *fd to the caller, which then refuses
 * the connection. */
void hw_meeting_side(struct hw_way *w, uint32_t gen, unsigned link, int *fd);
/* Closes the connections that are still in the transports' handshake. */
void hw_meeting_stop(struct hw_way *w);
bool hw_meeting_is_idle(const struct hw_way *w);

/* ---- set-up (setup.c): messages of the first connection ------------------------------------------------------- */

#define HW_SETUP_FRAME (HW_SETUP_HEAD + HW_SETUP_MAX * HW_SETUP_ENTRY_MAX + HW_SETUP_ITEM_MAX)

/* Writes the server's offer, preceded by its length, to out, which has 4 + HW_SETUP_FRAME bytes. Returns the size or a
 * negative errno. */
int hw_setup_offer(struct hawser_peer *p, const union hw_addr *local, const union hw_addr *remote, uint8_t *out);
/* Fails with -EPROTONOSUPPORT if the sides use different transports, or with -EPROTO. */
int hw_setup_check_transport(const struct hawser *h, const uint8_t *body, size_t len);
/* Sets p's version to the newest version that both sides support. body is the other side's SETUP. Fails with
 * -EPROTONOSUPPORT if no such version exists, or with -EPROTO. */
int hw_setup_agree_on_version(struct hawser_peer *p, const uint8_t *body, size_t len);
/* Writes an empty choice, with which the client refuses a server that uses another transport or version. Returns the
 * size. */
int hw_setup_refuse(const struct hawser *h, uint8_t *out);
/* Reads the client's choice and creates the rails. */
int hw_setup_take_choice(struct hawser_peer *p, const uint8_t *body, size_t len);
/* Creates the client's rails from the result of the pairing and writes the client's choice, preceded by its length, to
 * out. The last `spares` pairs are spare. Returns the size or a negative errno. */
int hw_setup_choose(struct hawser_peer *p, const struct hw_pairing *g, unsigned spares, uint64_t channels,
                    uint8_t *out);

/* ---- listener.c ---------------------------------------------------------------------------------------------- */

int hw_listener_start(struct hawser *h, const char *addr, uint16_t port, uint16_t *bound);
/* Closes all descriptors of the listener. Called with the role of driver 0. */
void hw_listener_stop(struct hawser *h);
/* Frees the listener after all drivers have stopped. */
void hw_listener_free(struct hawser *h);
uint16_t hw_listener_port(const struct hawser *h);
/* Returns true if the listener accepts connections to this local address. */
bool hw_listener_takes(const struct hawser *h, const union hw_addr *a);

/* ---- connect.c ---------------------------------------------------------------------------------------------- */

/* If a thread connects this peer, waits for the thread and frees the state of the attempt. */
void hw_connect_join(struct hawser_peer *p);

/* ---- lookup.c -------------------------------------------------------------------------------------------------- */

/* Resolves a host's name to at most max addresses in out. Returns the number of addresses. Fails with a negative errno
 * such as -ETIMEDOUT, -EHOSTUNREACH or -ENOMEM. */
int hw_lookup(const char *host, uint16_t port, uint64_t deadline, union hw_addr *out, size_t max);

#endif
