/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the NCCL plugin: one context of the process, the links of that context, and the communicators on them.
 *
 * A *link* is a peer of libhawser, between two processes; documents call a link a session (docs/glossary.md). Each
 * communicator is a stream on one of them, whatever their numbers. A process that has few others connects up to `lanes`
 * links to each, and sends on them. One that has many connects fewer, and takes one that the other has connected where
 * there is such (hn_link_get()). A link has one connection per pair of NICs, of its group or of all (devices.h), and
 * what libhawser does about a slow NIC or a dead one.
 *
 * g.mu guards all of it but what only one thread of NCCL's touches: a communicator's requests are its progress
 * thread's.
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

#define HN_LANES      6  /* links from one process to another: docs/performance.md has the measurement */
#define HN_LINKS      48 /* that a process connects before it is sparing with them: HN_LANES to each of eight */
#define HN_DIALLERS   8  /* threads that connect */
#define HN_LANES_MAX  64
#define HN_SPEED      24000 /* Mbit/s of each device, a constant, for an NCCL whose ranks do not agree on channels */
#define HN_REQUESTS   64    /* of a communicator: twice what NCCL posts */
#define HN_CONNECT_MS 30000 /* from the first try on, until a process that does not answer is given up */
#define HN_REFUSED_MS 3000  /* likewise one that refuses: its handle says that it listened */
#define HN_LINGER_MS  1000  /* at most until the peer has received what NCCL was told is sent, before it is closed */
#define HN_ATTEND_MS  500   /* how often somebody looks for who has come, where NCCL does not ask */
#define HN_SERVE_US   50    /* no more often than that where NCCL does: it asks for each of its connections */

/* ---- what crosses the network (wire.c) --------------------------------------------------------------- */

#define HN_CANCEL_MS 10000 /* for requests that were called off to end */

#define HN_ADDRS 3 /* in a handle */
#define HN_KEY   32
#define HN_HELLO 32 /* bytes */

struct hn_addr {
    uint8_t family; /* 4, 6; 0: none */
    uint8_t ip[16];
};

struct hn_handle {
    uint16_t port;
    uint64_t host;    /* which kernel and network namespace */
    uint64_t process; /* which context there */
    uint8_t key[HN_KEY];
    uint32_t listen;
    uint64_t secret; /* of that listen */
    struct hn_addr addr[HN_ADDRS];
    uint32_t attempt; /* the connecting side's own note */
};

/* The first word on a stream, as a notification: it belongs to that listen. */
struct hn_hello {
    uint32_t listen, stream;  /* stream: odd where the process that connected the link opens it, else even */
    uint64_t secret, process; /* of who says hello */
};

void hn_handle_encode(uint8_t out[NCCL_NET_HANDLE_MAXSIZE], const struct hn_handle *h);
int hn_handle_decode(const uint8_t in[NCCL_NET_HANDLE_MAXSIZE], struct hn_handle *h); /* -EPROTO */
void hn_handle_note(uint8_t handle[NCCL_NET_HANDLE_MAXSIZE], uint32_t attempt);
void hn_hello_encode(uint8_t out[HN_HELLO], const struct hn_hello *h);
int hn_hello_decode(const uint8_t *in, size_t len, struct hn_hello *h); /* -EPROTO */

/* ---- links (links.c) ------------------------------------------------------------------------------------ */

enum hn_link_state { HN_WAITING, HN_DIALLING, HN_UP, HN_DEAD };

/* Another process, as long as there is a link to it. */
struct hn_process {
    struct hw_list all; /* in g.processes */
    uint64_t id;
    struct hw_list links;
};

struct hn_link {
    struct hw_list all;         /* in g.links */
    struct hw_list of;          /* in its process's */
    struct hw_list wait;        /* in g.dial.waiting */
    struct hn_process *process; /* NULL: nothing was heard of it yet */
    bool out;                   /* this side connected */
    unsigned group;             /* of NICs that it prefers, where out */
    unsigned number;            /* of those that this process has made */
    hawser_peer *peer;
    unsigned refs; /* communicators */
    uint32_t next_stream;
    atomic_int state; /* enum hn_link_state */
    int rc;           /* once dead before it was up */
    char err[256];
    /* while it is being connected (dial.c) */
    struct hn_handle to;
    unsigned turn;                         /* tries so far */
    uint64_t give_up, refused, not_before; /* times; 0: not tried yet; never refused */
};

/* Under g.mu. The link that a new communicator to that process is to use, by NICs of that group, counted in its refs.
 * Where there is none it is being connected; -ENOMEM, -EAGAIN: no thread for that. */
int hn_link_get(const struct hn_handle *to, unsigned group, struct hn_link **out);
void hn_link_put(struct hn_link *l);
uint32_t hn_link_stream(struct hn_link *l); /* one that nobody has used */
bool hn_link_is_dead(struct hn_link *l);
/* Under g.mu. Its communicators, none of which has said hello yet, go to another link of the same process, if there is
 * one. */
void hn_link_yield(struct hn_link *l);
/* Takes in who has connected and what they say; frees links that are dead and unused, and tidies the dialling threads.
 */
void hn_links_serve(void);
void hn_links_close(void); /* all; they must be unused, and nobody connects any more */
/* The thread that does hn_links_serve() now and then; it must be gone before the context is closed, and g.mu is let go
 * of meanwhile. */
int hn_attend(void);
void hn_attend_no_more(void);

/* ---- connecting links (dial.c) ------------------------------------------------------------------------------ */

void hn_dial_begin(void);
/* Under g.mu. l will be HN_UP, or HN_DEAD with rc and err. -EAGAIN: no thread could be started. */
int hn_dial(struct hn_link *l);
/* Under g.mu. False: it is too late. Else l is HN_DEAD. */
bool hn_dial_cancel(struct hn_link *l);
/* Under g.mu. Joins the threads that have ended: before version 11 of the table NCCL never says that it is done, and
 * their stacks would stay until the process exits. */
void hn_dial_tidy(void);
/* Under g.mu, which is let go of meanwhile. Links that nobody waits for are not connected any more, and the threads
 * end. */
void hn_dial_end(void);

/* ---- communicators (comm.c) -------------------------------------------------------------------------------- */

struct hn_comm;

struct hn_req {
    struct hn_comm *comm;
    hawser_op *op;   /* NULL: free */
    const void *mem; /* the registration that it is on; NULL: none */
    bool copied;     /* a send of which libhawser has a copy: NCCL has its memory back at once .. */
    bool told;       /* .. and has been told; the operation goes on */
    void *event;     /* the profiler's; NULL: it has none */
};

struct hn_comm {
    struct hn_link *link;
    uint32_t stream;
    bool out;
    bool failed;        /* told once */
    unsigned at;        /* where to look for a free request first */
    hawser_op *hello;   /* out: under way */
    pthread_mutex_t mu; /* of the requests: NCCL deregisters memory in another thread than it posts and tests */
    struct hn_req req[HN_REQUESTS];
};

struct hn_listen {
    struct hw_list all; /* in g.listens */
    uint32_t id;
    uint64_t secret;
    struct hw_list arrived; /* hn_arrival: those who have shown the secret */
};

struct hn_arrival {
    struct hw_list link;
    struct hn_comm *comm;
};

/* Under g.mu: a hello has come by l. False: nobody waits for it, or it does not show the secret. */
bool hn_arrived(struct hn_link *l, const struct hn_hello *h);
/* Under g.mu. The communicators of a link that is not up go to another. */
void hn_attempts_move(struct hn_link *from, struct hn_link *to);

/* ---- the profiler (event.c): only where there is one to be told, hn_g.profiler or r->event ------------------------
 */

void hn_event_start(struct hn_req *r, void *phandle, uint64_t room);
void hn_event_done(struct hn_req *r, uint64_t length);
void hn_event_lost(struct hn_req *r); /* it failed, or was given up */

/* ---- CPUs (cpus.c) -------------------------------------------------------------------------------------------- */

struct hn_threads {
    unsigned loops;
    bool poll; /* for a while after they had work */
};

/* Under g.mu. Shows other processes that this one is there, or not any more. */
void hn_cpus_begin(void);
void hn_cpus_end(void);
/* For so many CPUs and processes that share them. */
struct hn_threads hn_choose_threads(unsigned cpus, unsigned processes);
/* Under g.mu. Processes with this plugin in this network namespace, this one too. */
unsigned hn_count_processes(void);
/* Under g.mu. For those that there are now. */
struct hn_threads hn_threads_wanted(void);

/* ---- the context (net.c) -------------------------------------------------------------------------------------- */

struct hn_global {
    pthread_mutex_t mu;
    ncclDebugLogger_t logger;
    ncclProfilerCallback_t profiler; /* NULL: a table of before v10 */
    unsigned inits, comms;           /* finalizes wanted; communicators and listens alive */
    hawser *h;                       /* NULL: not open */
    uint16_t port;
    uint8_t key[HN_KEY];
    uint64_t host, process;
    unsigned lanes;
    int presence; /* the socket that shows this process to others; -1: none */
    struct hw_cpus cpus;
    bool surveyed; /* the next group is known */
    bool gpu;      /* GPU memory is taken, too */
    unsigned nnics, ndevices;
    struct hn_nic nic[HN_NICS_MAX];
    char nics[HN_NICS_MAX * HAWSER_NIC_NAME]; /* "eth0,eth1" */
    struct hn_device device[HN_NICS_MAX];
    uint8_t group[HN_NICS_MAX]; /* of each NIC */
    unsigned groups;            /* with a GPU */
    bool near;                  /* a device sends by the NICs of its group; else by all. Set by hn_open() */
    struct hw_list links, listens, attempts, processes;
    uint32_t next_listen, next_attempt;
    unsigned next_link, links_max; /* links_max: that this process connects to all others before it is sparing */
    uint64_t served;
    pthread_t attendant;
    pthread_cond_t leave;
    bool leaving;
    struct {
        pthread_mutex_t mu;     /* after g.mu; over waiting, the states of its links, and the threads' */
        pthread_cond_t more;    /* a link waits */
        struct hw_list waiting; /* links to be connected */
        struct hn_dialler {
            pthread_t id;
            bool started, ended;
        } thread[HN_DIALLERS];
        bool ending; /* under g.mu */
    } dial;
};

extern struct hn_global hn_g;

/* Under g.mu. Opens the context, if it is not; 0 or -errno. */
int hn_open(void);
/* Once it is open: the group of a device, 0 where all devices send by all NICs; the names of a group's NICs
 * ("eth0,eth1";
 * "": all); addresses at which other nodes reach this one, those of the group first. */
unsigned hn_group_of(int dev);
void hn_group_names(unsigned group, char out[HN_NICS_MAX * HAWSER_NIC_NAME]);
void hn_group_addresses(unsigned group, struct hn_addr out[HN_ADDRS]);
/* Under g.mu. One communicator or listen less; the last one after the last finalize closes the context. */
void hn_drop(void);
void hn_say(ncclDebugLogLevel level, const char *fmt, ...) HW_PRINTF(2, 3);
/* Says why, and gives NCCL's code for it. */
ncclResult_t hn_error(int rc, const char *what);

#endif
