/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public API over the message layer: contexts and their loops, memory, peers and how they are connected, operations
 * with handles, and completions.
 *
 * Who may touch what: everything of a peer's connections is its home loop's, which means: whoever has the role of that
 * driver (hw_driver_enter() takes it). The context's lock guards its lists. Order: role of a driver, context, message
 * layer, queue of completions. A thread has one role at a time.
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
#define HW_KEY_MIN   16 /* bytes of a job key */
#define HW_KEY_MAX   4096

/* ---- completions (complete.c) -------------------------------------------------------------------- */

/* An event that hawser_poll() must report. Part of the object that it reports. */
struct hw_event {
    struct hw_list in_queue;
    enum hawser_event kind;
};

/* Puts an event into the context's queue, unless it is there; from any thread, no lock held except a driver's role. */
void hw_event_push(struct hawser *h, struct hw_event *e);
/* Removes it from the queue, if it is there. */
void hw_event_drop(struct hawser *h, struct hw_event *e);
/* Wakes callers that may wait for a change: at driver 0, as for completions, or at a peer's home. */
void hw_event_signal(struct hawser *h, struct hw_driver *home);

/* ---- the context (context.c) ----------------------------------------------------------------------- */

struct hawser {
    uint32_t flags;
    struct hw_knobs k;
    struct hw_logger log;
    bool keyed;
    uint8_t key[HW_SECRET];
    const struct hw_transport *tp; /* makes the connections of rails */
    struct hw_tp_env env;
    struct hw_driver *driver;
    unsigned n_drivers;
    struct hw_domain domain; /* regions that peers may access */
    struct hw_rail_limits limits;

    pthread_mutex_t lock;   /* over what follows */
    struct hw_list peers;   /* all of them */
    struct hw_list accepts; /* for hawser_accept() */
    struct hw_list graves;  /* died before the application knew of them */
    struct hw_list mems;
    unsigned n_peers;
    atomic_uint n_accepts, n_graves;
    pthread_cond_t someone; /* signals a new entry in one of them */
    unsigned next_home;

    pthread_mutex_t queue_lock; /* over the queue */
    struct hw_list queue;       /* of struct hw_event */
    atomic_uint n_queued;
    int event_fd;
    atomic_bool event_wanted;

    struct hw_listener *listener; /* the role of driver 0 */
    struct hw_source carrier;     /* likewise: NICs that lose their link */
    int carrier_fd;               /* -1: nobody tells */
    struct hw_metrics metrics;
};

/* Runs fn(arg) with the role of each driver, one after the other: afterwards all earlier work of the drivers is
 * finished. */
void hw_context_visit(struct hawser *h);
/* ---- memory (memory.c) ------------------------------------------------------------------------------ */

struct hawser_mem {
    struct hawser *h;
    const struct hw_space *space;
    uint8_t *ptr; /* in space */
    size_t len;
    bool own;               /* allocated by hawser_mem_alloc() */
    atomic_uint busy;       /* operations that use it */
    struct hw_list exports; /* under the context's lock */
    struct hw_list in_context;
};

/* Bars all peers from exports that were for this peer alone. */
void hw_memory_forget_peer(struct hawser *h, const struct hw_peer *p);
void hw_memory_free_all(struct hawser *h);

/* ---- operations (ops.c) ------------------------------------------------------------------------------ */

struct hawser_op {
    struct hawser_peer *peer; /* a reference */
    struct hw_op *op;         /* a reference; this is part of it */
    uint8_t *data;            /* of the request's descriptors */
    struct hw_event event;
    bool has_handle;
    atomic_bool over;
    uint64_t user;
    uint32_t n_mems;
    struct hawser_mem *mem[]; /* used by it until it is over */
};

/* ---- peers (peer.c) ------------------------------------------------------------------------------------ */

/* A connection that the client is making. */
struct hw_attempt {
    struct hw_source source;
    struct hw_task task;
    struct hw_way *way;
    int fd; /* -1: none */
    bool greeted, done;
    struct hw_hs hs;
    uint8_t ask[HW_ASK_SIZE], answer[HW_ASK_SIZE];
    uint32_t have; /* bytes of answer */
};

/* A connection that the listener has accepted, on its way to the peer's home loop. */
struct hw_arrival {
    struct hw_list of_peer;
    int fd;
    bool side; /* a second connection, for the transport */
    uint32_t rail, link, gen;
    uint8_t ask[HW_ASK_SIZE]; /* but for that */
};

/* Established connections on which the transports at both ends do their handshake. */
struct hw_meeting {
    struct hw_task task;
    struct hw_timer timer;
    uint32_t gen;
    int fd;                /* of the last one, for the transport */
    struct hw_word theirs; /* client: the server's last word */
    unsigned n;            /* connections; 0: nothing meets */
    struct hw_conn *conn[HW_RAIL_LINKS];
    struct meeting_watch {
        struct hw_source source;
        struct hw_way *way;
    } watch[HW_RAIL_LINKS];
};

/* The state of connecting and reconnecting one rail. */
struct hw_way {
    struct hawser_peer *peer;
    unsigned index, pair; /* the rail; the pair of NICs to which it belongs */
    unsigned links;
    atomic_bool up;
    atomic_uint lost;   /* times that it ended .. */
    atomic_uint failed; /* .. while neither side was closing the peer */
    atomic_int carrier; /* what the kernel has reported about its NIC since hw_nics_judge() */
    int lost_level;     /* HAWSER_LOG_ level at which its loss was logged */
    struct hw_driver *driver;
    char nic[HAWSER_NIC_NAME], peer_nic[HAWSER_NIC_NAME];
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT]; /* of its first bulk link, once it was up; context's lock */
    struct hw_meeting meeting;
    struct hw_tp_counts counts;
    struct hw_rail_totals folded; /* included by hw_metrics_fold(); context's lock */

    /* client */
    struct hw_nic from;
    union hw_addr to;
    uint32_t gen;
    unsigned n_done;
    struct hw_attempt *attempt; /* one for each link */
    struct hw_timer timer;      /* the next attempt, or the end of this one */
    bool dialling, refused;     /* refused: nobody listened there at the last attempt */
    bool hopeless;              /* the transport has no device for the NIC */
    bool spare;                 /* connected only while no other rail is sound */
    unsigned failures;          /* in a row */

    /* server: connections of generation in_gen, until all have arrived and the rail is down */
    uint32_t in_gen;
    unsigned in_links, in_have;
    int in_fd[HW_RAIL_LINKS]; /* -1: has not come */
};

/* The versions of the session's protocol that this build speaks: what goes over a session's rails, and the SETUPs that
 * make them. A test builds others. */
#ifndef HW_SESSION_LEAST
#define HW_SESSION_LEAST 1
#define HW_SESSION_MOST  1
#endif

enum { HW_PEER_NEW = 1, HW_PEER_LIVES = 0 }; /* .state; below 0: why it died */

struct hawser_peer {
    struct hawser *h;
    struct hw_driver *home;
    bool client, keyed, known; /* known: the application has it, or is about to get it */
    uint16_t version;          /* of the session's protocol, as agreed */
    int gpu, peer_gpu;         /* client: the GPU whose memory it is for; -1: not given */
    uint64_t session;
    uint8_t secret[HW_SECRET];
    char name[HAWSER_ADDR_TEXT + 8];
    void *user;
    atomic_uint refs;     /* the application's, operations', arrivals' */
    atomic_int under_way; /* operations, without receives */
    struct hw_list in_context, in_accept;
    unsigned
        metrics_place; /* 0: no reader has seen it; up to HW_METRICS_PEERS: its number + 1; else one of the others */
    struct hw_op_totals folded;
    pthread_mutex_t door; /* protects closed: operations' handles may outlive the parts of the peer */
    bool closed;

    atomic_int state;
    char why[HW_ERR_TEXT]; /* written before state */
    struct hw_event arrived, died, notified, connected;
    uint64_t connect_user;
    int connect_result;

    /* set once the rails are agreed on */
    bool has_rails;
    unsigned n_ways, n_pairs,
        n_sure;       /* rails; pairs of NICs; of these, those that were shown to work and are not spare */
    unsigned n_spare; /* client: spare rails; the last ones */
    struct hw_way *way;
    struct hw_peer peer;
    struct hawser_path *paths; /* client: the report */
    uint32_t n_paths;
    struct hw_connect *connecting;   /* hawser_connect_start(): the thread that connects */
    union hw_addr offer[HW_NIC_MAX]; /* server: addresses of the NICs that were offered to the client */
    unsigned n_offers;

    atomic_uint rails_up;
    atomic_uint pairs_up;  /* pairs that had a rail up at least once */
    struct hw_timer dead;  /* no rail is up: the peer dies */
    struct hw_timer bye;   /* the peer has closed: likewise, once its last confirmations have arrived */
    atomic_bool abandoned; /* server: the client left before its rails were agreed on */
    bool closing;          /* this side closes: the home's, as .. */
    bool heard_bye;        /* .. this: the peer does */
    atomic_bool said_bye;  /* the peer has received the BYE of this side, or never will */
    struct hw_task nics;   /* its rails' NICs have changed */
    struct {
        struct hw_task call;  /* .. because one that is up may be dead */
        struct hw_timer rest; /* checks whether they are still needed */
        bool called;          /* spare rails are connected: the home's */
    } spares;
    struct hw_task arrive;
    struct hw_list arrivals; /* under the context's lock */

    pthread_mutex_t note_lock;
    struct hw_note *note, **last_note; /* received and not taken */
};

/* Makes a peer for set-up, in no list. NULL: no memory. */
struct hawser_peer *hw_peer_new(struct hawser *h, bool client);
/* Gives it n rails; the caller then fills in the ways. -ENOMEM. */
int hw_peer_set_rails(struct hawser_peer *p, unsigned n);
/* Finds a rail to relieve the first one (struct hw_peer), once the ways know their pairs. */
void hw_peer_share_path(struct hawser_peer *p);
void hw_peer_ref(struct hawser_peer *p);
void hw_peer_unref(struct hawser_peer *p);
/* Kills a peer with this error: with the role of its home. */
void hw_peer_kill(struct hawser_peer *p, int why);
/* Its last path is lost: the peer dies with this error, or because it has closed. */
void hw_peer_lose(struct hawser_peer *p, int why);
/* The session's peer, or NULL. Under the context's lock. */
struct hawser_peer *hw_peer_by_session(struct hawser *h, uint64_t session);

/* ---- NICs (nics.c) ---------------------------------------------------------------------------------------- */

/* From now on rails end at once when their NIC loses its link; has no effect if the kernel does not report it. */
void hw_nics_watch(struct hawser *h);
/* Evaluates the kernel's reports about the peer's NICs. On its home. */
void hw_nics_judge(struct hw_task *t);

/* ---- rails (ways.c): with the role of the peer's home ---------------------------------------------------- */

/* Starts connecting all rails. Client. */
void hw_ways_dial(struct hawser_peer *p);
/* Stops all connection attempts. */
void hw_ways_stop(struct hawser_peer *p);
/* True if none of its tasks will run any more. */
bool hw_ways_are_idle(const struct hawser_peer *p);
void hw_ways_free(struct hawser_peer *p);
/* Of struct hw_peer_ops. */
void hw_way_ended(struct hawser_peer *p, unsigned rail, int why);
void hw_way_down(struct hawser_peer *p, unsigned rail);
/* Tasks and timers of hawser_peer.spares. */
void hw_ways_call_spares(struct hw_task *t);
void hw_ways_rest_spares(struct hw_timer *t);
/* Takes the connections that the listener has accepted. */
void hw_ways_arrive(struct hw_task *t);
/* The rail's connections died before the handshake of the transports had ended. */
void hw_way_failed(struct hw_way *w, int why);

/* ---- the transport's part (meeting.c): with the role of the peer's home -------------------------------------- */

/* Takes fd[0, n) as connections; the rail starts after the handshake of the transports. theirs: client: the server's
 * last word. 0; otherwise they are closed. hw_way_failed() reports later failures. */
int hw_meeting_begin(struct hw_way *w, uint32_t gen, int *fd, unsigned n, const struct hw_word *theirs);
/* Takes a second connection for link number `link`, or leaves it to the caller, who then refuses it. */
void hw_meeting_side(struct hw_way *w, uint32_t gen, unsigned link, int *fd);
/* Closes what is meeting. */
void hw_meeting_stop(struct hw_way *w);
bool hw_meeting_is_idle(const struct hw_way *w);

/* ---- set-up (setup.c): the first connection's messages ----------------------------------------------------- */

#define HW_SETUP_FRAME (HW_SETUP_HEAD + HW_SETUP_MAX * HW_SETUP_ENTRY_MAX + HW_SETUP_ITEM_MAX)

/* Writes the server's offer, preceded by its length, to out (4 + HW_SETUP_FRAME bytes). Returns the size. */
int hw_setup_offer(struct hawser_peer *p, const union hw_addr *local, const union hw_addr *remote, uint8_t *out);
/* 0 if both sides have the same transport. */
int hw_setup_check_transport(const struct hawser *h, const uint8_t *body, size_t len);
/* Sets p's version to the newest one that both sides speak. body: the other side's SETUP. -EPROTONOSUPPORT. */
int hw_setup_agree_on_version(struct hawser_peer *p, const uint8_t *body, size_t len);
/* Writes the empty choice of a client with another transport or other versions. Returns the size. */
int hw_setup_refuse(const struct hawser *h, uint8_t *out);
/* Reads the client's choice, and makes the rails. */
int hw_setup_take_choice(struct hawser_peer *p, const uint8_t *body, size_t len);
/* Makes the client's rails from the result of the pairing, and writes its choice likewise. The last `spares` pairs are
 * spare. */
int hw_setup_choose(struct hawser_peer *p, const struct hw_pairing *g, unsigned spares, uint64_t channels,
                    uint8_t *out);

/* ---- listener.c ---------------------------------------------------------------------------------------------- */

int hw_listener_start(struct hawser *h, const char *addr, uint16_t port, uint16_t *bound);
/* Closes all its descriptors. With the role of driver 0. */
void hw_listener_stop(struct hawser *h);
/* Frees it after all drivers have stopped. */
void hw_listener_free(struct hawser *h);
uint16_t hw_listener_port(const struct hawser *h);
/* True if it listens on this address of this side. */
bool hw_listener_takes(const struct hawser *h, const union hw_addr *a);

/* ---- connect.c ---------------------------------------------------------------------------------------------- */

/* Waits for the thread that connects this peer, if there is one. */
void hw_connect_join(struct hawser_peer *p);

/* ---- lookup.c -------------------------------------------------------------------------------------------------- */

/* Resolves the addresses of a host by name, into out[0, max). Returns their number; -ETIMEDOUT, -EHOSTUNREACH, -ENOMEM,
 * -EAGAIN. */
int hw_lookup(const char *host, uint16_t port, uint64_t deadline, union hw_addr *out, size_t max);

#endif
