/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver: loads any libnccl-net-*.so and uses its table like NCCL.
 *
 * For the suite and the benchmark, the overseer (driver_run.c), which never loads the plugin, forks two ranks: two
 * processes, or one process with two threads. Both ranks run the same steps in the same order, and each reports the
 * result of each step to the overseer. The ranks exchange handles and meet at barriers over a socketpair. If the plugin
 * hangs, crashes or calls exit(1), the step fails, the report names the call, and the next step runs in new processes.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include "base/base.h"
#include "transport/netplugin/table/abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

struct options {
    const char *plugin;  /* a path, or the NAME in libnccl-net-NAME.so */
    const char *only;    /* glob pattern for names of steps to run */
    const char *without; /* glob pattern for names of steps to leave out */
    const char *modes;   /* "processes" or "threads"; NULL for both */
    const char *json;    /* bench: a file, or "-" for stdout */
    uint64_t version;    /* version of the table; 0 for the plugin's newest */
    uint64_t deadline;   /* seconds after which a wait for the plugin fails */
    uint64_t dev, depth_max, comms_max, churn, max_size, align, slow_ms, repeat;
    uint64_t size, comms, depth, threads, ranks, ms; /* bench, crowd */
    bool list, verbose, strict, bidir, latency;
    bool no_sizes;     /* the plugin's test never writes the size */
    bool consumed;     /* calls irecvConsumed after each receive */
    bool flush;        /* calls iflush after receives */
    bool no_hint;      /* never passes irecv the hint "optional completion" in *request */
    bool no_alternate; /* a rank does not alternate between connect and accept */
    bool profile;      /* passes a profiler to init; set only for the suite */
    bool cuda;         /* the plugin must accept GPU memory */
    bool ends;         /* also tests hawser's guarantees about failed peers, which NCCL does not require */
    bool no_stray, no_death, no_abort, no_fork;
};
extern struct options opt;

/* Shared by the overseer and its ranks. Pointers to literals are valid in every rank, because ranks are forked without
 * exec. */
struct shared {
    atomic_int gone; /* 1 + number of the step in which a rank failed or died; tells the other rank to stop waiting */
    struct {
        _Atomic(const char *) call;  /* name of the last call */
        atomic_uint_least64_t since; /* start time of the call; 0 after it returns */
    } at[2];
    char warn[2][512]; /* the plugin's last warning in each process; read without a lock, but used only in messages */
    atomic_int children_go;          /* tells the children of step dead_parent to exit */
    atomic_uint_least64_t died;      /* hw_now() just before the rank was killed */
    atomic_uint_least64_t limit[64]; /* bench: the sender's total messages for each comm; 0 if not yet known */
};

struct rank {
    int id;  /* 0 or 1 */
    int fd;  /* socket to the other rank */
    int ctl; /* socket to the overseer */
    struct shared *sh;
    bool threads; /* both ranks are threads of this process */
    bool loaded;
    int tasks, fds, inherited; /* the process's counts before it loaded the plugin */
    bool cuda;          /* the process has since loaded a CUDA driver, whose threads and file descriptors remain */
    int step;           /* number of the step */
    const char *name;   /* name of the step */
    void *ctx;          /* context that the table's init returned, from v11 on */
    struct comm *comms; /* all open comms of this step */
    unsigned made;      /* number of comms made so far; both ranks make comms in the same order */
};

/* A step returns 0 on success, -errno with a text in hw_error(), or SKIP(). */
#define STEP_SKIPPED 1
#define SKIP(...)    (hw_fail(0, __VA_ARGS__), STEP_SKIPPED)

enum {
    STEP_PROCESSES = 1, /* not run with two threads of one process */
    STEP_DIES = 2,      /* rank 1 is killed */
    STEP_ALONE = 4,     /* the step loads the plugin itself */
    STEP_BENCH = 8,     /* not part of the suite */
};

struct step {
    const char *name;
    int (*fn)(struct rank *r);
    unsigned flags;
};

/* driver_run.c */
int run_suite(const struct step *steps, size_t n);
int run_bench(const struct step *step);
extern FILE *rank_out; /* a rank's results; its stdout is stderr, because plugins may print */

/* driver_load.c: the plugin, which each process loads once. The functions have the same parameters for every version of
 * the table. net_fail() turns an ncclResult_t into an error. */
struct props {
    const char *name, *pci_path;
    uint64_t guid;
    int ptr_support, speed, port, max_comms, max_recvs, device_type, device_version;
    float latency;
    int reg_is_global, force_flush; /* 0 in tables without the field */
    int ndevs, devs[NCCL_NET_MAX_DEVS_PER_NIC_V12];
    size_t max_p2p, max_coll; /* 0 in tables without the fields */
};

int net_load(struct rank *r);   /* dlopen, the table, init, setNetAttr */
int net_unload(struct rank *r); /* finalize, dlclose after the last rank of the process */
/* From v11 on, these begin or end another communicator of this process. The library stays loaded. */
int net_init_again(struct rank *r, void **ctx);
int net_finalize(struct rank *r, void *ctx);
int net_version(void);
const char *net_name(void);
const char *net_versions(char *buf, size_t cap);              /* the plugin's tables from v6 on, such as "v8 v9" */
int net_required(char *missing, size_t cap, int ptr_support); /* lists required entries that are NULL */
int net_fail(ncclResult_t rc, const char *call);              /* -EREMOTEIO, or 0 for ncclSuccess */

ncclResult_t net_devices(struct rank *r, int *n);
ncclResult_t net_props(struct rank *r, int dev, struct props *p);
ncclResult_t net_listen(struct rank *r, int dev, void *handle, void **lc);
ncclResult_t net_connect(struct rank *r, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh);
ncclResult_t net_accept(struct rank *r, void *lc, void **rc, ncclNetDeviceHandle_t **dh);
ncclResult_t net_reg(struct rank *r, void *comm, void *data, size_t size, void **mh);
ncclResult_t net_reg_as(struct rank *r, void *comm, void *data, size_t size, int type, void **mh); /* NCCL_PTR_* */
ncclResult_t net_dereg(struct rank *r, void *comm, void *mh);
ncclResult_t net_isend(struct rank *r, void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req);
ncclResult_t net_irecv(struct rank *r, void *rc, void *data, size_t size, int tag, void *mh, void *phandle, void **req);
ncclResult_t net_flush(struct rank *r, void *rc, void *data, size_t size, void *mh, void **req);
ncclResult_t net_test(struct rank *r, void *req, int *done, int *size);
ncclResult_t net_consumed(struct rank *r, void *rc, void *req);
ncclResult_t net_close_send(struct rank *r, void *sc);
ncclResult_t net_close_recv(struct rank *r, void *rc);
ncclResult_t net_close_listen(struct rank *r, void *lc);

/* driver_profiler.c: the phandle that isend and irecv get, and the plugin's events for it. */
struct phandle {
    uint64_t magic;
    bool sends;
    size_t size, room; /* sizes of the message and of the receive's buffer */
    atomic_uint told;  /* number of events begun */
};
ncclResult_t profiler(void **handle, int type, void *phandle, int64_t id, void *ext);
void prof_begin(struct phandle *p, bool sends, size_t size, size_t room); /* before isend or irecv */
/* Checks at the end of a message that the message's events have ended, and that hawser's plugin began an event. Returns
 * -EPROTO otherwise. */
int prof_end(struct phandle *p, const char *when);
int step_profiler(struct rank *r);

/* driver_comm.c: waits, exchanges between the ranks, and connections. */
struct wait {
    uint64_t end;
    unsigned idle;
    const char *what;
};
struct wait wait_for(const char *what);
/* Pauses a poll loop after an iteration in which nothing happened. Returns 0, -ETIMEDOUT, or -ECANCELED if the other
 * rank has failed. */
int wait_turn(struct rank *r, struct wait *w);
void nap_ms(unsigned ms);

/* Sends len bytes to the other rank, and receives the same number of bytes. */
int swap(struct rank *r, const void *mine, void *theirs, size_t len);
int barrier(struct rank *r);

struct comm {
    struct rank *r;
    struct comm *next;
    uint64_t id; /* the same number on both ranks */
    bool sends;
    int dev;                                                    /* --dev, unless set before listen or connect */
    _Alignas(16) uint8_t guarded[NCCL_NET_HANDLE_MAXSIZE + 16]; /* the handle, aligned because plugins cast it */
    void *lc, *c;
    ncclNetDeviceHandle_t dev_space, *dh;
    uint64_t received; /* number of irecvs so far */
};

/* Makes this rank's end of a connection on which one rank sends and the other receives. comm_close() or the end of the
 * step frees it. */
struct comm *comm_new(struct rank *r, int sender);
int comm_listen(struct comm *c); /* on the receiving rank */
int comm_handle(struct comm *c); /* transfers the handle */
int comm_try(struct comm *c);    /* calls connect or accept once; -EAGAIN if unfinished */
int comm_link(struct comm *c);   /* calls comm_try() until the comm is connected */
int comm_close_listen(struct comm *c);
int comm_open(struct rank *r, int sender, struct comm **out); /* comm_new() to comm_link() */
int comm_close(struct comm *c);
int comm_close_all(struct rank *r);

/* driver_flow.c: messages over comms, checked byte by byte. */
#define FLOW_DEPTH 32
struct flow_spec {
    const char *what;
    unsigned n, depth; /* number of messages; maximum in flight */
    const size_t *sizes;
    size_t n_sizes; /* the sizes are used cyclically; 0 for random sizes in [min, max] */
    size_t min, max;
    size_t slack;       /* maximum bytes by which a receive is larger than its message */
    bool hint;          /* every other irecv has the hint "optional completion" in *request */
    bool register_each; /* registers memory again for each message */
};

struct flow {
    struct comm *c;
    struct flow_spec s;
    uint8_t *raw, *base;
    size_t raw_len, stride;
    void *mh;
    unsigned posted, done;
    struct flow_slot {
        void *req, *mh;
        uint8_t *p;
        size_t size, room;
        bool hinted;
        struct phandle ph;
    } slot[FLOW_DEPTH];
};

int flow_open(struct flow *f, struct comm *c, const struct flow_spec *s);
int flow_post(struct flow *f);  /* posts one more message; returns 1, or 0 if impossible */
int flow_test(struct flow *f);  /* tests the oldest request; returns 1 if it is done */
int flow_step(struct flow *f);  /* posts and tests; returns the number of events */
int flow_close(struct flow *f); /* deregisters and frees */
/* Acts like NCCL after an abort: deregisters the memory and closes the comm, even with messages in flight. Unmaps the
 * memory after the close, so the plugin must not access it. */
int flow_abandon(struct flow *f);
/* Runs all flows to completion in this thread. */
int flow_run(struct rank *r, struct flow *f, size_t n);
/* Opens, runs and closes a flow over c. */
int flow_all(struct comm *c, const struct flow_spec *s);
/* Makes a new comm in each direction, and transfers messages over both. */
int exchange(struct rank *r, const struct flow_spec *s);
/* Like flow_run(), but expects an error from the plugin. Returns 0 if the plugin reports an error in time. */
int flow_until_error(struct flow *f);
/* Runs all flows until each has transferred at least `want` messages. */
int flow_some(struct flow *f, size_t n, unsigned want);
/* Finishes a receive: copies the fragments of an unpacking plugin, and calls irecvConsumed with --consumed. */
int comm_arrived(struct comm *c, void *req, uint8_t *p, size_t room);
size_t depth_of(size_t want); /* limits want to NCCL's maximum and to --depth-max */

int entries(const char *dir); /* number of entries in a folder */
int inherited(void);          /* number of file descriptors without close-on-exec */

/* Steps, in driver_steps*.c */
extern const struct step steps[];
extern const size_t n_steps;
int step_reload(struct rank *r);
int step_lines(struct rank *r);
int step_cuda(struct rank *r);
int step_each_device(struct rank *r);
int step_listen_closed(struct rank *r);
int step_dead_listener(struct rank *r);
int step_churn(struct rank *r);
int step_abort_both(struct rank *r);
int step_abort_receiver(struct rank *r);
int step_abort_sender(struct rank *r);
int step_close_late(struct rank *r);
int step_unload_late(struct rank *r);
int step_fork(struct rank *r);
int step_stray(struct rank *r);
int step_oversize(struct rank *r);
int step_deregister_one(struct rank *r);
int step_deregister_first(struct rank *r);
int step_dead_parent(struct rank *r);
int step_stopped_deadline(struct rank *r);
int step_dead_sender(struct rank *r);
int step_dead_receiver(struct rank *r);
int step_dead_idle(struct rank *r);
int step_after(struct rank *r);
int step_recreate(struct rank *r);
int step_abort_connect(struct rank *r);
int step_fork_uses(struct rank *r);
int step_stopped_peer(struct rank *r);
int step_dead_connector(struct rank *r);
int step_dead_many(struct rank *r);

/* driver_bench.c */
extern const struct step bench_step;

#define CROWD_MAX 1024 /* ranks */
/* driver_crowd.c: prints a line of JSON and returns 0. Returns 1 after an error. */
int run_crowd(void);

/* driver_facts.c: prints JSON. Returns 0 or 1. */
int run_facts(void);

#endif
