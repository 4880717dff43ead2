/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the NCCL plugin: the one context of the process, its links, and the communicators on these links.
 *
 * A *link* is a libhawser peer between two processes; the documents call a link a session (docs/glossary.md). Each
 * communicator is a stream on one link, and a link carries any number of streams. A process that has few peers connects
 * up to `lanes` links to each of them and sends on these links. A process that has many peers connects fewer links, and
 * may send on a link that the peer has connected (hn_link_get()). A link prefers the NICs of its group, or uses all
 * NICs (devices.h), and libhawser handles slow and failed NICs.
 *
 * hn_g.mu, called g.mu below, guards the state that changes after hn_init(), except the requests of a communicator
 * (hn_comm.mu), the queue of links to be connected (hn_g.dial.mu), and a link while a thread connects it.
 */
#ifndef HN_INNER_H
#define HN_INNER_H

#include "base/base.h"
#include "base/list.h"
#include "devices.h"
#include "hawser.h"
#include "net.h"
#include "net/cpus.h"

#include <pthread.h>
#include <stdatomic.h>

#define HN_LANES 6 /* default number of links from one process to another (docs/performance.md has the measurement) */
/* default maximum number of outgoing links of a process: HN_LANES to each of eight peers; a peer gets at least one */
#define HN_LINKS    48
#define HN_DIALLERS 8 /* maximum number of threads that connect links, without slow ones */
/* ms after which an attempt to connect is slow: another thread may be started, for the links that wait */
#define HN_SLOW_MS       2000
#define HN_DIALLERS_MOST 32 /* maximum number of threads that connect links */
#define HN_LANES_MAX     64
/* Mbit/s that each device reports in tables up to v11; constant, because ranks must agree on it before NCCL 2.29.2 */
#define HN_SPEED    24000
#define HN_REQUESTS 64 /* requests of a communicator: twice NCCL's maximum */
/* ms from the first attempt to connect a link until a failed attempt is no longer repeated */
#define HN_CONNECT_MS 30000
/* ms from the first refused attempt until a failed attempt is no longer repeated; short, because the remote process
 * started to listen before it sent its handle */
#define HN_REFUSED_MS 3000
#define HN_LINGER_MS  1000 /* ms; longest wait at close for the peer to receive the data of copied sends */
#define HN_ATTEND_MS  500  /* ms between two checks for new connections by the thread of hn_attend() */
/* us; shortest interval between two checks for new connections, because NCCL calls accept very often */
#define HN_SERVE_US 50

#define HN_CANCEL_MS 10000 /* ms; longest wait for the end of a canceled request */

/* ---- network messages (wire.c) ---------------------------------------------------------------------- */

#define HN_ADDRS 10 /* maximum number of addresses in a handle: 10 of IPv4, or 3 of IPv6 */
#define HN_KEY   32
#define HN_HELLO 32 /* bytes of an encoded hello */

struct hn_addr {
    uint8_t family; /* 4 or 6; 0 if the entry is unused */
    uint8_t ip[16];
};

struct hn_handle {
    uint16_t port;
    uint64_t host;    /* ID of the kernel and network namespace */
    uint64_t process; /* ID of the context on that host */
    uint8_t key[HN_KEY];
    uint32_t listen;
    uint64_t secret;               /* of the listener */
    struct hn_addr addr[HN_ADDRS]; /* the used entries come first */
    uint32_t attempt;              /* number of the connecting side's attempt, or 0 */
};

/* The first message on a stream, sent as a notification. The hello states to which listener the stream belongs. */
struct hn_hello {
    uint32_t listen, stream;  /* stream: odd if the side that connected the link opens the stream */
    uint64_t secret, process; /* secret: the listener's; process: the sender's */
};

/* Leaves out the last addresses if there is no room for them. */
void hn_handle_encode(uint8_t out[NCCL_NET_HANDLE_MAXSIZE], const struct hn_handle *h);
/* -EPROTO if malformed or of another version */
int hn_handle_decode(const uint8_t in[NCCL_NET_HANDLE_MAXSIZE], struct hn_handle *h);
void hn_handle_note(uint8_t handle[NCCL_NET_HANDLE_MAXSIZE], uint32_t attempt);
void hn_hello_encode(uint8_t out[HN_HELLO], const struct hn_hello *h);
int hn_hello_decode(const uint8_t *in, size_t len, struct hn_hello *h); /* -EPROTO if malformed */

/* ---- links (links.c) ------------------------------------------------------------------------------------ */

enum hn_link_state { HN_WAITING, HN_DIALLING, HN_UP, HN_DEAD };

/* A process to which this process has links. The entry exists while there is at least one such link. */
struct hn_process {
    struct hw_list all; /* entry in g.processes */
    uint64_t id;
    struct hw_list links;
};

struct hn_link {
    struct hw_list all;         /* entry in g.links */
    struct hw_list of;          /* entry in process->links */
    struct hw_list wait;        /* entry in g.dial.waiting */
    struct hn_process *process; /* NULL on an incoming link before its first valid hello */
    bool out;                   /* connected by this side */
    unsigned group;             /* group of NICs that an outgoing link prefers */
    unsigned number;            /* sequence number among the links of this process */
    hawser_peer *peer;
    unsigned refs; /* number of communicators on this link */
    uint32_t next_stream;
    atomic_int state; /* an enum hn_link_state */
    int rc;           /* -errno if the link died before it was up */
    char err[256];
    /* Used while the link is being connected (dial.c). */
    struct hn_handle to;
    unsigned turn;     /* next entry of to.addr, modulo the number of used entries */
    unsigned failures; /* failed attempts */
    /* times in ns; give_up is 0 before the first attempt, refused is 0 before the first refusal */
    uint64_t give_up, refused, not_before;
};

/* Sets *out to a link for a new communicator to the process in the handle, preferably over the NICs of a group, and
 * counts the communicator in the link's refs. If a new link is needed, starts to connect it. Fails with -ENOMEM, or as
 * hn_dial() does. Call under g.mu. */
int hn_link_get(const struct hn_handle *to, unsigned group, struct hn_link **out);
void hn_link_put(struct hn_link *l);
uint32_t hn_link_stream(struct hn_link *l); /* returns a stream number that is not in use */
bool hn_link_is_dead(struct hn_link *l);
/* Moves the communicators of a link, none of which has sent its hello yet, to another link that is up and leads to the
 * same process, if there is one. Call under g.mu. */
void hn_link_yield(struct hn_link *l);
/* Accepts new connections and hellos, frees links that are dead and unused, and calls hn_dial_tidy(), unless this was
 * done less than HN_SERVE_US ago. */
void hn_links_serve(void);
void hn_links_close(void); /* frees all links; no communicator may use them, and no dialling thread may run */
/* hn_attend() starts the thread that calls hn_links_serve() periodically. hn_attend_no_more() stops the thread and must
 * be called before the context is closed. hn_attend_no_more() releases g.mu while waiting for the thread. */
int hn_attend(void);
void hn_attend_no_more(void);

/* ---- connecting links (dial.c) ------------------------------------------------------------------------------ */

/* Called each time the context is opened. Only the first call in a process has an effect. */
void hn_dial_begin(void);
/* Queues a link for connecting. The link becomes HN_UP, or HN_DEAD with rc and err set. Fails with -EAGAIN if no
 * dialling thread is running and none could be started. Call under g.mu. */
int hn_dial(struct hn_link *l);
/* Removes a link from the queue and marks it HN_DEAD. Returns false if the link is not queued. Call under g.mu. */
bool hn_dial_cancel(struct hn_link *l);
/* Starts another dialling thread if a link waits and the running threads are slow. Joins the dialling threads that have
 * ended: before version 11 of its net table, NCCL never calls finalize, and the stacks of these threads would remain
 * until the process exits. Call under g.mu. */
void hn_dial_tidy(void);
/* Cancels the queued links that no communicator uses, and joins the dialling threads. If links are still queued
 * afterwards, starts a new thread. Call under g.mu, which is released during each join. */
void hn_dial_end(void);

/* ---- communicators (comm.c) -------------------------------------------------------------------------------- */

struct hn_comm;

struct hn_req {
    struct hn_comm *comm;
    hawser_op *op;   /* NULL if the request is free */
    uint64_t number; /* counts the communicator's requests */
    const void *mem; /* registration that the operation uses, or NULL */
    bool copied;     /* a send whose data libhawser has copied, so NCCL may reuse its memory at once */
    bool told;       /* NCCL knows that the copied send is done; the operation is still in flight */
    void *event;     /* the profiler's handle, or NULL */
};

struct hn_comm {
    struct hn_link *link;
    uint32_t stream;
    bool out;
    bool failed;      /* the failure of a request was reported to NCCL */
    bool cut;         /* requests were cancelled, so later ones would get the wrong messages and are refused */
    uint64_t posted;  /* number of requests so far */
    unsigned at;      /* index of the request to try first */
    hawser_op *hello; /* outgoing only: the operation that sends the hello */
    /* guards req: NCCL deregisters memory in a different thread from the one in which it posts and tests */
    pthread_mutex_t mu;
    struct hn_req req[HN_REQUESTS];
};

struct hn_listen {
    struct hw_list all; /* entry in g.listens */
    uint32_t id;
    uint64_t secret;
    struct hw_list arrived; /* struct hn_arrival: communicators of peers that have presented the secret */
};

struct hn_arrival {
    struct hw_list link;
    struct hn_comm *comm;
};

/* Hands a hello that arrived on link l to its listener. Returns false, and closes the stream, if no listener has that
 * number and secret, or if memory runs out. Call under g.mu. */
bool hn_arrived(struct hn_link *l, const struct hn_hello *h);
/* Moves each communicator of `from` whose connection attempt is in progress to the link `to`. `from` must not be up.
 * Call under g.mu. */
void hn_attempts_move(struct hn_link *from, struct hn_link *to);
/* Ends all connection attempts. Call under g.mu, if the context is open. */
void hn_attempts_drop(void);

/* ---- the profiler (event.c): call only if hn_g.profiler or r->event is set ------------------------------------ */

void hn_event_start(struct hn_req *r, void *phandle, uint64_t room);
void hn_event_done(struct hn_req *r, uint64_t length);
void hn_event_lost(struct hn_req *r); /* the request failed or was abandoned */

/* ---- CPUs (cpus.c) -------------------------------------------------------------------------------------------- */

struct hn_threads {
    unsigned loops;
    bool poll;           /* the threads keep polling for a short time after they run out of work */
    uint64_t poll_below; /* Mbit/s in one direction above which they do not; 0: no limit */
};

/* Make this process visible to other processes with this plugin, and invisible again. Call under g.mu. */
void hn_cpus_begin(void);
void hn_cpus_end(void);
/* Chooses the threads of a process. `processes` processes share `cpus` CPUs. The speeds of the NICs, which `all`
 * processes share, add up to `mbps` Mb/s (0 if unknown). */
struct hn_threads hn_choose_threads(unsigned cpus, unsigned processes, uint64_t mbps, unsigned all);
/* Returns how many processes in this network namespace use this plugin, this process included. Call under g.mu. */
unsigned hn_count_processes(void);
/* Chooses the threads for the current CPUs, processes and NICs, and logs the choice. Call under g.mu. */
struct hn_threads hn_threads_wanted(void);

/* ---- the context (net.c) -------------------------------------------------------------------------------------- */

struct hn_global {
    pthread_mutex_t mu;
    ncclDebugLogger_t logger;
    ncclProfilerCallback_t profiler; /* NULL for tables before v10 */
    unsigned inits, comms;           /* inits not yet finalized; communicators and listeners that are open */
    hawser *h;                       /* NULL if the context is not open */
    uint16_t port;
    uint8_t key[HN_KEY];
    uint64_t host, process;
    unsigned lanes;
    int presence; /* file descriptor of the socket that makes this process visible to others, or -1 */
    struct hw_cpus cpus;
    bool surveyed; /* the fields from gpu to groups are set */
    bool gpu;      /* GPU memory can be registered */
    unsigned nnics, ndevices;
    struct hn_nic nic[HN_NICS_MAX];
    char nics[HN_NICS_MAX * HAWSER_NIC_NAME]; /* comma-separated names, such as "eth0,eth1" */
    atomic_uint absent;                       /* bit i is set after the log has reported that NIC i is not usable now */
    struct hn_device device[HN_NICS_MAX];
    uint8_t group[HN_NICS_MAX]; /* group of each NIC */
    unsigned groups;            /* number of groups that have a GPU; with HAWSER_NCCL_NEAR, of all groups */
    bool near;                  /* devices prefer the NICs of their groups; else they use all NICs; set by hn_open() */
    struct hw_list links, listens, attempts, processes;
    uint32_t next_listen, next_attempt;
    /* links_max: limit for the outgoing links to all peers together, but each peer gets at least one */
    unsigned next_link, links_max;
    uint64_t served;
    pthread_t attendant;
    pthread_cond_t leave;
    bool attending; /* the attendant thread exists, and has not been told to end */
    bool leaving;
    struct {
        pthread_mutex_t mu;     /* taken after g.mu; guards waiting, the states of the links in it, and the threads */
        pthread_cond_t more;    /* signaled when a link is queued */
        struct hw_list waiting; /* links to be connected */
        struct hn_dialler {
            pthread_t id;
            bool started, ended;
            uint64_t since; /* start of the current attempt, or 0 if there is none */
        } thread[HN_DIALLERS_MOST];
        bool begun, ending; /* guarded by g.mu; begun: mu, more and waiting are initialized */
    } dial;
};

extern struct hn_global hn_g;

/* Opens the context if it is not open. Returns 0 or -errno. Call under g.mu. */
int hn_open(void);
/* The following functions use hn_g.near, which hn_open() sets. hn_group_of() returns the group of a device, or 0 if all
 * devices send over all NICs. hn_group_names() writes the names of a group's NICs, such as "eth0,eth1", or "" for all
 * NICs. hn_group_addresses() writes up to HN_ADDRS current addresses at which other nodes reach this node. The
 * addresses of the group's NICs come first. */
unsigned hn_group_of(int dev);
void hn_group_names(unsigned group, char out[HN_NICS_MAX * HAWSER_NIC_NAME]);
void hn_group_addresses(unsigned group, struct hn_addr out[HN_ADDRS]);
/* Fails with -EINVAL if there is no device with this number. */
int hn_check_device(int dev);
/* Decrements the number of open communicators and listeners. If none is open and every init has been finalized, closes
 * the context. Call under g.mu. */
void hn_drop(void);
void hn_say(ncclDebugLogLevel level, const char *fmt, ...) HW_PRINTF(2, 3);
/* Logs the current error after the text `what`, and returns NCCL's code for rc. */
ncclResult_t hn_error(int rc, const char *what);

#endif
