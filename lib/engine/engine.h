/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: loops, peers, their control connection, channels, operations, regions.
 *
 * Who may touch what:
 *  - A *loop* (epoll) has one driver at a time: its thread, or a caller who waits (loop.c). Reading a descriptor, and
 *    closing one, is its driver's alone, so that taking the driver's role stops all movement on that loop.
 *  - peer->mu guards everything of a peer that is not marked "driver". Sending on the control connection happens under
 * it.
 *  - Order of locks: driving a loop -> peer->mu -> h->mu -> loop->mu, loop->qmu. Never the other way.
 */
#ifndef HW_ENGINE_H
#define HW_ENGINE_H

#include "base/base.h"
#include "base/knob.h"
#include "base/list.h"
#include "base/thread.h"
#include "mem/space.h"
#include "net/nic.h"
#include "transport/pairing.h"
#include "transport/tcp/sock.h"
#include "transport/transport.h"
#include "wire/wire.h"

#include <pthread.h>
#include <stdatomic.h>

#define HW_TICK_MS        50 /* how often deadlines, stalls and reconnects are looked at while anything is under way */
#define HW_LOOPS_MAX      64
#define HW_BACKOFF_MIN_MS 100 /* before a channel's first attempt to reconnect */
/* Control bytes waiting above which data goes by the channels, however short it is. */
#define HW_INLINE_BACKLOG (256ul * 1024)
#define HW_KEY_MIN        16 /* bytes of a job key */
#define HW_KEY_MAX        4096
#define HW_HANDSHAKES     256 /* half-open connections a listener holds; the next wait in the kernel's queue */

/* ---- loop.c ------------------------------------------------------------------------------------ */

struct hw_source {
    void (*ready)(struct hw_source *s, uint32_t events); /* driver */
};

struct hw_loop {
    struct hawser *h;
    unsigned index;
    int epfd, wakefd, timerfd; /* timerfd: only where a caller polls epfd, else -1 */
    struct hw_source wake_src, timer_src;

    pthread_mutex_t mu; /* guards the next group */
    pthread_cond_t cv;  /* callers who wait to drive, or for their operation while another drives */
    pthread_cond_t thread_cv;
    pthread_cond_t watch_cv; /* callers who wait for something rare, and do not drive */
    bool driven, stop, thread_deep;
    bool offered;        /* the next turn belongs to one of those who wait */
    atomic_uint want;    /* callers in cv */
    atomic_uint callers; /* in hawser_wait() or hawser_cancel(), counted before they look: not freed under them */
    uint64_t wait_seq;   /* counts callers' turns at driving */
    bool has_thread;
    pthread_t thread;

    pthread_mutex_t qmu;  /* guards the next group */
    struct hw_list runq;  /* lanes with work */
    struct hw_list lanes; /* all of them */

    atomic_bool sleeping; /* the driver is, or is about to be, blocked in epoll_wait */
    atomic_bool polled;   /* by a caller: the thread stays away for another nap; or, with busy_us, polls on */
    atomic_bool napping;  /* its thread stays away for a moment, for a caller's sake */
    atomic_bool nudged;   /* and is not to be, this once */
    atomic_bool tick_on;  /* something has a deadline */

    /* driver */
    unsigned polls;
    unsigned spin_skip, spin_fails; /* polling that did not pay is left out for a while */

    /* driver */
    struct hw_list owing; /* peers that an acknowledgement is owed to */
    uint64_t next_tick;
    uint64_t busy_until; /* polled until then (knob busy_us); 0: not */
    uint64_t timer_at;   /* what timerfd is set to, 0: nothing */
    bool pinned;
};

int hw_loop_init(struct hw_loop *l, struct hawser *h, unsigned index);
int hw_loop_start(struct hw_loop *l); /* its thread */
/* From here on epfd is readable while there is work and nobody drives, deadlines included. */
int hw_loop_pollable(struct hw_loop *l);
void hw_loop_stop(struct hw_loop *l); /* joins it */
void hw_loop_free(struct hw_loop *l);
int hw_loop_add(struct hw_loop *l, int fd, struct hw_source *s); /* edge-triggered, in and out */
/* Before it is closed: a child of a fork() that holds it too would keep it in the set, and its source is gone. */
void hw_loop_forget(struct hw_loop *l, int fd);
/* The driver, if asleep, looks around again; callers in cv too. */
void hw_loop_notify(struct hw_loop *l);
/* And those in hw_loop_watch(). */
void hw_loop_alert(struct hw_loop *l);
/* Turns the periodic look at deadlines on, as something now has one. */
void hw_loop_want_tick(struct hw_loop *l);
/* Pins l's thread to the CPUs near the first NIC it serves (knob pin), where the machine says which those are. */
void hw_loop_pin(struct hw_loop *l, const char *nic);
/* Become / stop being the driver. Not for a thread that drives a loop already. */
void hw_loop_acquire(struct hw_loop *l);
void hw_loop_release(struct hw_loop *l);
/* done() is called with loop->mu held: it must take no lock. */
/* Some of the work that is ready, of op's peer first, where nobody else drives; a thread asleep in its loop is woken to
 * leave it to the caller for as long as he comes back. */
void hw_loop_poll(struct hw_loop *l, struct hawser_op *op);
/* Drives l until done(arg) or the deadline. spin: the peer whose control connection is polled hard at first, or NULL.
 * True if done. */
bool hw_loop_wait(struct hw_loop *l, bool (*done)(void *), void *arg, uint64_t deadline, struct hawser_peer *spin);
/* As hw_loop_wait(), but leaves the driving to the loop's thread where there is one: for what is rare, so that the one
 * who waits for it is not in the way of those who wait for messages. hw_loop_alert() makes it look. */
bool hw_loop_watch(struct hw_loop *l, bool (*done)(void *), void *arg, uint64_t deadline);
/* One pass, as driver, sleeping until the deadline at most. True if anything happened. */
bool hw_loop_drive(struct hw_loop *l, uint64_t deadline);

/* ---- a peer's share of one loop ------------------------------------------------------------------ */

struct hw_lane {
    struct hawser_peer *peer;
    struct hw_loop *loop;
    struct hw_list run, all; /* under loop->qmu */
    atomic_bool queued;
    atomic_bool quiet; /* queued by one who polls: nobody was woken */
    atomic_bool scan;  /* look for aborted operations, kill requests, a dead peer */
};

void hw_lane_queue(struct hw_lane *lane);
/* The calling thread will poll for what it queues: nobody is woken for it. */
extern __thread bool hw_will_poll;
bool hw_lane_run(struct hw_lane *lane);                /* driver; true if more is left */
bool hw_lane_tick(struct hw_lane *lane, uint64_t now); /* driver; true if it wants the next tick too */

/* ---- regions --------------------------------------------------------------------------------------- */

struct hw_region {
    uint64_t id, secret;
    uint8_t *base; /* in mem->space */
    uint64_t length;
    uint32_t rights;
    struct hawser_peer *peer; /* NULL: any */
    struct hawser_mem *mem;
    struct hw_list in_mem;
};

struct hawser_mem {
    struct hawser *h;
    const struct hw_space *space;
    uint8_t *ptr; /* in space */
    size_t len;
    bool own;               /* allocated by hawser_mem_alloc() */
    atomic_uint busy;       /* operations that use it */
    struct hw_list regions; /* under h->mu */
    struct hw_list in_ctx;  /* under h->mu */
};

/* Checks a peer's request for [offset, offset+len) with right. 0, *ptr and its *space; -ESTALE, -EACCES, -EFAULT. The
 * pointer is good for as long as the caller drives its loop: hawser_revoke() takes every loop in turn before it
 * returns. */
int hw_region_find(struct hawser_peer *p, uint64_t id, uint64_t secret, uint64_t offset, uint64_t len, uint32_t right,
                   const struct hw_space **space, uint8_t **ptr);

/* ---- operations ------------------------------------------------------------------------------------- */

enum hw_op_type { HW_OP_WRITE, HW_OP_READ, HW_OP_SEND, HW_OP_RECV, HW_OP_NOTIFY, HW_OP_SERVE /* a peer's READ */ };

struct hw_vec {
    const struct hw_space *space;
    uint8_t *ptr;        /* in space */
    uint64_t len, start; /* start: of this descriptor in the operation's bytes */
    uint64_t region, secret, remote;
    struct hawser_mem *mem;
};

struct hawser_op {
    struct hawser_peer *peer; /* not to be followed once done, nor without driving home: it may be being freed */
    struct hw_loop *home;     /* the peer's */
    enum hw_op_type type;
    uint64_t id; /* ours; SERVE: the peer's */
    atomic_int done;
    int rc;                  /* once done */
    char *err;               /* once failed; may be NULL */
    _Atomic uint64_t moved;  /* bytes confirmed or arrived */
    _Atomic uint64_t length; /* of the whole; a receive: of its message once matched */

    /* under peer->mu */
    struct hw_list pending; /* peer->ops or peer->served */
    struct hawser_op *hash_next;
    struct hw_list queue; /* txq, recvq, await_ack or await_match */
    uint64_t deadline;
    int failing;              /* soft failure: ends with this once nothing is in flight */
    int aborting;             /* hard: ends with this once every lane has let go */
    uint64_t lanes_left;      /* bit per loop, while aborting */
    uint64_t remote_id;       /* RECV of a large message: the peer's operation */
    bool in_txq;              /* `queue` is in txq or txq_small */
    struct hw_stream *stream; /* NULL: the peer's own */
    uint64_t number;          /* of the message in its stream */
    bool granted;             /* RECV of a stream: the sender knows of it */
    bool eager;               /* SEND of a stream: one chunk that finds its receive by itself */
    bool rts;                 /* SEND: announced, and not to be forgotten by the peer without a word */
    bool bound;               /* RECV: matched to remote_id; SEND: CTS seen; SERVE: its list is complete */
    uint64_t seq;   /* inline SEND: which of our messages; WRITE, NOTIFY: control offset that acknowledges it */
    size_t cut_vec; /* next byte to cut */
    uint64_t cut_off, cut_total;
    uint32_t inflight; /* chunks in windows or to be retaken */
    uint8_t *notify;
    uint32_t notify_len;
    size_t nvecs;
    struct hw_vec *vecs; /* one_vec, or allocated */
    struct hw_vec one_vec;
};

/* ---- channels ----------------------------------------------------------------------------------------- */

enum hw_chan_state {
    HW_CH_DOWN,
    HW_CH_CONNECTING,
    HW_CH_UP,
    HW_CH_DRAIN /* closed; the peer's last word is awaited */
};

struct hw_sent {          /* a chunk posted and not confirmed */
    struct hawser_op *op; /* NULL: cancelled meanwhile */
    size_t vec;
    uint64_t off; /* in the vec */
    uint32_t len;
};

/* Server: an authenticated connection that waits to be taken over. */
struct hw_arrival {
    int fd; /* -1: none */
    uint32_t gen;
};

struct hw_chan {
    struct hawser_peer *peer;
    struct hw_lane *lane;
    uint32_t index;
    struct hw_nic nic;
    char peer_nic[HAWSER_NIC_NAME];
    uint8_t handle[HW_HANDLE_MAX]; /* client */
    uint16_t handle_len;

    /* driver of lane->loop */
    struct hw_source src;
    struct hw_conn *conn;
    bool rd, wr;  /* readable, writable as far as known */
    bool sending; /* posted bytes wait for room */
    struct hw_chunk_head rx_head;
    uint32_t rx_piece; /* bytes of the chunk that the posted receive takes */
    uint32_t rx_done;  /* bytes of the chunk before it */
    bool rx_dropped;   /* a piece of it went nowhere */
    uint64_t rx_seq;
    uint64_t tx_released; /* chunks */

    /* under h->mu */
    struct hw_arrival fresh, side; /* side: a second connection for the transport */

    /* under peer->mu */
    atomic_int state; /* enum hw_chan_state; its loop looks without the lock, others end DRAIN */
    uint32_t gen;
    bool kill;   /* the peer, or an abort, wants conn dead; counted in peer->kills */
    bool fence;  /* closed with bytes of an aborted write under way: counted in peer->fences */
    bool was_up; /* in this generation */
    uint64_t retry_at;
    uint32_t backoff_ms;
    int connect_rc;      /* of the last attempt */
    struct hw_sent *win; /* ring of `window` */
    uint32_t win_head, win_n, window;
    uint64_t tx_seq, tx_confirmed; /* chunks */
    uint64_t tx_claimed;           /* what the peer confirmed, were it to be believed */
    atomic_bool early;             /* tx_claimed is ahead: see hw_chan_confirmed() */
    uint64_t rx_count, rx_told;    /* chunks received whole; of these, the peer was told */
    bool confirm_owed;             /* its lane is to look whether it has to tell, and to send */
    bool down_seen;                /* the peer's CHAN_DOWN for gen */
    uint64_t down_count;
    struct hawser_op *rx_op;   /* receives into it right now */
    uint64_t rx_region;        /* receives into this region right now, or 0 */
    struct hw_message *rx_msg; /* receives into this message right now */
    uint64_t inflight_bytes;
    double rate;      /* bytes/ns, of confirmations */
    uint64_t rate_at; /* when it was last measured */
    uint64_t rate_bytes;
    struct hawser_channel_stats st;
};

/* All under peer->mu, by the driver of its loop, unless said otherwise. */
int hw_chan_init(struct hw_chan *c, struct hawser_peer *p, uint32_t index);
void hw_chan_free(struct hw_chan *c);
void hw_chan_connect(struct hw_chan *c);
/* Adds what the connection at hand has counted itself. */
void hw_chan_counts(const struct hw_chan *c, struct hawser_channel_stats *st);
void hw_chan_kill(struct hw_chan *c, int rc, const char *why);
void hw_chan_attach(struct hw_chan *c);                                  /* takes fresh and side */
void hw_chan_confirmed(struct hw_chan *c, uint64_t count);               /* any thread */
void hw_chan_peer_down(struct hw_chan *c, uint32_t gen, uint64_t count); /* any thread */
bool hw_chan_recv(struct hw_chan *c);                                    /* without peer->mu; true if more is left */
bool hw_chan_send(struct hw_chan *c);            /* without peer->mu; true if more could be done */
void hw_chan_confirm_claimed(struct hw_chan *c); /* see channel.c */
void hw_chan_establish(struct hw_chan *c);       /* without peer->mu */
/* Puts what arrived on it into the control stream, if the peer was not told; false: no memory, the count stays owed. */
bool hw_chan_confirm(struct hw_chan *c);
/* All that arrived on any, which then is known to the peer before anything that is said afterwards. Not flushed. */
void hw_peer_confirm(struct hawser_peer *p);

/* ---- control connection -------------------------------------------------------------------------------- */

struct hw_control {
    /* driver of peer->home */
    struct hw_source src;
    struct hw_hs *hs; /* client: being (re)connected */
    int hs_fd;
    struct hw_source hs_src;
    bool rd;
    bool paused; /* frames in rx wait for a channel's end */
    bool ending; /* epoll has told of the end already: only recv() still does */
    uint8_t *rx;
    size_t rx_len;
    struct hw_list owing; /* in home->owing */
    unsigned candidate;   /* which way the next reconnect goes */
    unsigned refused;     /* reconnects refused in a row */

    /* under h->mu */
    int new_fd; /* server: a connection to take over */
    uint64_t new_rx_offset;
    bool new_first;      /* the session's first, not a resumption */
    atomic_bool has_new; /* a hint without the lock */

    /* under peer->mu */
    int fd;              /* -1: down */
    bool blocked;        /* the socket's send buffer is full */
    bool was_reset;      /* ended by a reset from the other side */
    bool broken;         /* the home loop must close it */
    char why[128];       /* why it broke */
    uint64_t down_since; /* hw_now(), while down */
    uint64_t retry_at;
    uint8_t *tx;
    size_t tx_cap, tx_len, tx_sent; /* tx[0] is stream offset tx_base */
    uint64_t tx_base, tx_acked;     /* what the peer has taken in may stand in tx for a while */
    uint64_t rx_offset, rx_acked;
    bool ack_owed;
    uint64_t last_ping;
    union hw_addr local, remote;
};

/* Under peer->mu. Adds a frame; body in up to two parts. -ENOBUFS when the peer has stopped taking frames in (it then
 * fails); -ENOMEM likewise. */
int hw_ctl_add(struct hawser_peer *p, uint8_t type, uint8_t flags, uint64_t id, const void *a, size_t na, const void *b,
               size_t nb);
void hw_ctl_flush(struct hawser_peer *p); /* sends what can be sent */
size_t hw_ctl_backlog(const struct hawser_peer *p);
/* Sends a failing operation of the peer's its reason. */
void hw_ctl_error(struct hawser_peer *p, uint64_t id, int rc, const char *text);
bool hw_ctl_recv(struct hawser_peer *p, bool polling); /* driver of home, without peer->mu; true if anything came */
void hw_ctl_break(struct hawser_peer *p, const char *fmt, ...) HW_PRINTF(2, 3);
void hw_ctl_service(struct hawser_peer *p);            /* driver of home: broken, new_fd */
void hw_ctl_tick(struct hawser_peer *p, uint64_t now); /* driver of home, under peer->mu */
void hw_ctl_ready(struct hw_source *s, uint32_t events);
int hw_ctl_install(struct hawser_peer *p, int fd, uint64_t peer_rx_offset); /* driver of home, under peer->mu */
void hw_ctl_frame(struct hawser_peer *p, const struct hw_frame *f); /* frames.c; under peer->mu, driver of home */

/* ---- peers ---------------------------------------------------------------------------------------------- */

struct hw_message { /* arrived before its receive */
    struct hw_list link;
    uint64_t id;
    bool cancelled;
    bool large; /* an announcement of length bytes, else data */
    uint64_t length;
    uint64_t number; /* in its stream */
    int rc;          /* why it is cancelled */
    uint64_t cost;   /* counted in early_held; 0: announced only */
    bool whole;      /* else it is to come over a channel */
    bool filling;    /* it is coming right now */
    bool orphan;     /* its stream is gone: the channel that fills it frees it */
    uint8_t data[];
};

/* ---- streams (stream.c) ---------------------------------------------------------------------------------- */

struct hw_grant { /* a receive at the other end, for a message not sent yet */
    struct hw_list link;
    uint64_t number, op, length;
    int rc; /* it is off */
};

struct hw_unasked { /* takes up what the other end will keep of messages, until a receive is known to be there */
    struct hw_list link;
    uint64_t number, cost;
};

struct hw_stream { /* under peer->mu */
    struct hw_stream *hash_next;
    uint32_t id;
    uint32_t nops; /* operations that point here */
    uint32_t ngrants;
    uint64_t tx_next;        /* number of the next message */
    struct hw_list waiting;  /* sends whose receive is not known yet, by queue */
    struct hw_list grants;   /* hw_grant, in order */
    uint64_t rx_next;        /* number of the next receive */
    struct hw_list receives; /* posted and not over, by queue, in order */
    struct hw_list early;    /* hw_message before their receive, in order */
    struct hw_list unasked;  /* hw_unasked: messages sent before anything was known of their receives, in order */
    struct hw_list owing;    /* in peer->owing: the sender is to be told of receives */
    uint64_t owed;           /* cost of the messages that he can then forget */
    bool bulk;               /* the last message was long, so the next one will be */
    bool closed, peer_closed;
};

#define HW_STREAMS_MAX 65536

struct hw_stream *hw_stream_get(struct hawser_peer *p, uint32_t id); /* NULL: no memory, or too many; hw_error() */
void hw_stream_unref(struct hw_stream *st, struct hawser_peer *p);   /* an operation of it is over */
void hw_stream_send(struct hawser_peer *p, struct hawser_op *op);
void hw_stream_recv(struct hawser_peer *p, struct hawser_op *op);
void hw_stream_close(struct hawser_peer *p, struct hw_stream *st);
void hw_stream_frame(struct hawser_peer *p, const struct hw_frame *f);
void hw_stream_free_all(struct hawser_peer *p);
/* An operation of a stream is being aborted: the other end is told. */
void hw_stream_aborted(struct hawser_op *op, int rc);
/* Has the next message of a stream come whole? Then it can be received though its sender is gone. */
bool hw_stream_left(struct hawser_peer *p, uint32_t id);
/* What a long message was promised by: the sends it may hold at the other end at a time. -EAGAIN. */
int hw_stream_room(struct hawser_peer *p);
/* A chunk of a stream's message: the receive it is for. NULL: nobody wants it. */
struct hawser_op *hw_stream_chunk(struct hawser_peer *p, const struct hw_chunk_head *h);
/* The same of an EAGER one, which is a whole message. Where its receive is not there yet: *to, a place to keep it. */
struct hawser_op *hw_stream_eager(struct hw_chan *c, uint8_t **to);
void hw_stream_eager_done(struct hw_chan *c); /* it has come whole */
void hw_stream_eager_lost(struct hw_chan *c); /* its channel has ended before that */

struct hw_note {
    struct hw_list link;
    uint32_t len;
    uint8_t data[];
};

#define HW_HASH_MIN 64

/* Descriptors of reads that are served to one peer at a time: 64 MB of them. A list's end may never come, so that only
 * a bound on all of them is one on the memory. */
#define HW_SERVED_VECS (16ul * HAWSER_MAX_VECS)

struct hw_hash {    /* operations by id */
    bool by_remote; /* by remote_id instead */
    struct hawser_op **slot;
    size_t cap, n;
};

struct hawser_peer {
    struct hawser *h;
    struct hw_loop *home;
    struct hw_lane *lanes; /* one a loop */
    pthread_mutex_t mu;
    atomic_int state; /* 0 alive, 1 being set up, else -errno */
    char err[HW_ERR_TEXT];
    char name[HAWSER_ADDR_TEXT + 8];
    bool client;
    bool keyed;    /* by a job key */
    bool closing;  /* under h->mu: out of the context's lists, and not to come back */
    bool known;    /* server: was set up, so that the application is told of it whatever becomes of it */
    uint64_t born; /* hw_now() */
    void *user;
    struct hw_list in_ctx, in_accept; /* under h->mu */
    uint64_t session;
    uint8_t secret[HW_SECRET];

    struct hw_control ctl;
    bool remote_gone; /* a connection ended in a FIN without BYE: the process is dead */
    bool bye, said_bye;
    bool setup_sent, setup_acked;
    uint64_t setup_end; /* control offset */
    uint32_t peer_unexpected, peer_max_ops;
    char *want_nics, *want_peer_nics; /* client's options */
    uint32_t want_channels;
    bool only_dialled;
    bool set_up;                          /* client: hawser_connect() is through with `pairing` */
    struct hw_dial dial;                  /* client: what the pairing works on */
    _Atomic(struct hw_pairing *) pairing; /* client: between the server's SETUP and ours */
    struct hawser_path *paths;            /* client: set once, with chans */
    uint32_t npaths;
    union hw_addr *offers; /* server: our addresses, an entry of our SETUP each */
    uint16_t n_offers;     /* under h->mu */
    int gpu, peer_gpu;     /* client's options: hw_conn_ident */

    struct hw_chan *chans; /* nchans; set once */
    atomic_uint nchans;
    uint32_t npairs, npairs_sure;   /* sure: client: they worked when they were tried */
    atomic_uint chans_up, pairs_up; /* channels that are up; NIC pairs that have one */
    uint32_t hopeless;              /* channels that there is no device for */
    struct hw_sent *retry;          /* chunks to retake; room for every window */
    uint32_t nretry, retry_cap;

    uint64_t next_id;
    struct hw_list ops;       /* pending, ours */
    struct hw_list served;    /* the peer's READs */
    struct hw_list aborting;  /* by `queue` */
    struct hw_hash by_id;     /* ours */
    struct hw_hash by_remote; /* receives bound to a large message */
    uint32_t nops, nserved;
    size_t served_vecs; /* descriptors of what is in served */
    uint64_t next_deadline;
    struct hw_list txq_small, txq; /* with bytes to cut */
    uint32_t small_run, wake_next;
    uint64_t tx_left;          /* bytes in txq and txq_small that are not cut yet */
    atomic_uint tx_work;       /* entries in txq_small, txq, retry: a hint without the lock */
    struct hw_list recvq;      /* posted receives */
    struct hw_list unexpected; /* hw_message */
    uint64_t unexpected_bytes, nunexpected;
    struct hw_list await_match, await_ack;
    uint64_t send_seq;         /* our messages */
    uint64_t send_matched;     /* of them: met a receive, or were dropped, as far as the peer has said */
    uint64_t unmatched_inline; /* bytes of them */
    uint64_t matched;          /* the peer's messages that met a receive */

    /* what no new chunk may overtake: see fenced() in op.c */
    uint32_t fences;    /* channels */
    uint64_t fence_seq; /* control offset */
    atomic_uint kills;  /* channels that the peer wants closed: no control frame is heeded meanwhile */

    struct hw_list notes;
    uint64_t nnotes;
    struct hw_stream **streams; /* by id; NULL until one is used */
    uint32_t nstreams, nannounced;
    uint64_t unasked;     /* cost of the messages in the streams' unasked */
    uint64_t early_held;  /* of the peer's: waiting here */
    struct hw_list owing; /* streams with something owed */
    uint64_t owed;        /* the sum */
};

struct hawser_peer *hw_peer_new(struct hawser *h, bool client);
void hw_peer_free(struct hawser_peer *p); /* all loops have let go of it */
/* Under peer->mu: everything pending ends with rc; connections are closed by their loops. */
void hw_peer_fail(struct hawser_peer *p, int rc, const char *fmt, ...) HW_PRINTF(3, 4);
/* The same of one who breaks the protocol. */
void hw_peer_violation(struct hawser_peer *p, const char *what);
/* Sends the scan through every lane. */
void hw_peer_scan(struct hawser_peer *p);
void hw_peer_queue_all(struct hawser_peer *p); /* every lane: there may be something to send */
struct hawser_peer *hw_peer_by_session(struct hawser *h, uint64_t session); /* that came here; under h->mu */
int hw_setup_send(struct hawser_peer *p);                                   /* server */
int hw_setup_answer(struct hawser_peer *p, const struct hw_pairing *g);     /* client; under peer->mu, driver of home */
int hw_setup_received(struct hawser_peer *p, const struct hw_frame *f);     /* setup.c; under peer->mu */

/* The largest chunk that goes to p. */
uint64_t hw_chunk_max(const struct hawser_peer *p);

/* op.c; all under peer->mu */
void hw_op_complete(struct hawser_op *op, int rc, const char *text);
/* What the peer gives as the reason of an end, or `other` where it is none. EAGAIN is none: whoever asks how an
 * operation goes would be told for ever that it is not over. */
static inline int hw_peer_errno(uint32_t code, int other)
{
    return code > 0 && code < 4096 && code != EAGAIN ? -(int)code : other;
}
/* What is said where a message of len bytes met a receive of cap. Returns text. */
const char *hw_op_misfit(char text[HW_ERR_TEXT], uint64_t len, uint64_t cap);
/* n more bytes of a READ or a RECV are in place. */
void hw_op_arrived(struct hawser_op *op, uint64_t n);
void hw_op_soft_fail(struct hawser_op *op, int rc, const char *text);
void hw_op_abort(struct hawser_op *op, int rc, const char *text);
void hw_op_check(struct hawser_op *op);                     /* all sent and confirmed? */
void hw_op_lane_scan(struct hw_lane *lane);                 /* driver of lane->loop */
bool hw_op_cut(struct hawser_peer *p, struct hw_sent *out); /* the next chunk to send */
uint8_t *hw_op_at(struct hawser_op *op, uint64_t offset, const struct hw_space **space, uint64_t *room);
struct hawser_op *hw_hash_get(const struct hw_hash *t, uint64_t id);
int hw_hash_put(struct hw_hash *t, struct hawser_op *op, uint64_t id);
void hw_hash_del(struct hw_hash *t, struct hawser_op *op, uint64_t id);
void hw_op_match(struct hawser_peer *p); /* receives meet unexpected messages */
void hw_op_deadlines(struct hawser_peer *p, uint64_t now);
void hw_op_queue_tx(struct hawser_op *op);
int hw_op_serve(struct hawser_peer *p, const struct hw_frame *f);
void hw_op_notify_now(struct hawser_op *op);
void hw_op_free_memory(struct hawser_op *op);
/* Scatters data, which came in one piece, to byte `at` of the operation and on. 0 or -errno of the memory's device. */
int hw_op_deliver(struct hawser_op *op, uint64_t at, const uint8_t *data, uint64_t len);
/* The bytes of a short operation in one piece: in place, or in buf. NULL: there are none, or its device failed. */
const uint8_t *hw_op_flat(struct hawser_op *op, uint8_t buf[HW_INLINE_MAX]);
/* The bytes of a descriptor where the CPU can read them: in place, or in buf. NULL: its device failed. */
const uint8_t *hw_vec_load(const struct hw_vec *v, void *buf);

/* ---- context ---------------------------------------------------------------------------------------------- */

struct hw_listener;

struct hawser {
    struct hw_knobs k;
    struct hw_logger log;
    uint32_t flags;
    bool keyed;
    uint8_t key[HW_SECRET];
    const struct hw_transport *tp;
    struct hw_transport own_tp; /* what tp is where its capabilities are not known before */
    struct hw_tp_env env;
    unsigned nloops;
    struct hw_loop *loops;
    struct hw_listener *listener;
    pthread_mutex_t mu;
    struct hw_list peers, accepts, mems;
    atomic_uint naccepts;  /* in accepts */
    struct hw_list graves; /* peers that died before the application knew of them; by in_accept */
    atomic_uint ngraves;
    unsigned npeers;
    atomic_uint next_home;
    struct hw_region **regions; /* by the low 32 bits of the id */
    uint32_t nregions;
    uint32_t region_gen;
    int event_fd;
    atomic_bool event_wanted;
};

/* Something a caller may wait for has happened. */
void hw_event(struct hawser *h);
bool hw_listener_takes(const struct hawser *h, const union hw_addr *a); /* does it listen on this address of ours? */

/* listener.c */
int hw_listener_start(struct hawser *h, const char *addr, uint16_t port, uint16_t *bound);
void hw_listener_stop(struct hawser *h);               /* its loop is acquired, or stopped */
bool hw_listener_tick(struct hawser *h, uint64_t now); /* driver of loop 0; true while handshakes are under way */
uint16_t hw_listener_port(const struct hawser *h);

#endif
