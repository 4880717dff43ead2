/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver: loads any libnccl-net-*.so and exercises its table as NCCL does, between two ranks.
 *
 * An overseer (driver_run.c), which never loads the plugin itself, forks the ranks: two processes, or one process with
 * two threads. Both ranks run the same list of steps, one at a time; each tells the overseer how it went. What they
 * agree on between themselves (handles, barriers) goes over a socketpair. A call that hangs, a crash, an exit(1) in the
 * plugin are a failed step that names the call, and the next step runs in new processes.
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
    const char *plugin;  /* a path, or NAME of libnccl-net-NAME.so */
    const char *only;    /* a glob of steps' names */
    const char *without; /* another */
    const char *modes;   /* "processes", "threads"; NULL: both */
    const char *json;    /* bench: a file, "-": stdout */
    uint64_t version;    /* 0: the newest that the plugin has */
    uint64_t deadline;   /* seconds for every wait */
    uint64_t dev, depth_max, comms_max, churn, max_size, align, slow_ms, repeat;
    uint64_t size, comms, depth, threads, ranks, ms; /* bench, crowd */
    bool list, verbose, strict, bidir, latency;
    bool no_sizes;     /* test never writes the size */
    bool consumed;     /* irecvConsumed after each receive */
    bool flush;        /* iflush after receives */
    bool no_hint;      /* irecv's *request never says "optional completion" */
    bool no_alternate; /* connect and accept of one rank do not take turns */
    bool profile;      /* set for all, not for bench: a profiler is there */
    bool cuda;         /* GPU memory must be taken */
    bool ends;         /* what ours promises of ends, beyond NCCL's contract */
    bool no_stray, no_death, no_abort, no_fork;
};
extern struct options opt;

/* Seen by the overseer and all ranks. Pointers are to literals: all are forked from one program. */
struct shared {
    atomic_int gone; /* the step, plus 1, in which a rank failed or died: the other one need not wait for it */
    struct {
        _Atomic(const char *) call;  /* what it called last */
        atomic_uint_least64_t since; /* hw_now() of its begin; 0: it has returned */
    } at[2];
    char warn[2][512];          /* the plugin's last warning, of each process; read without a lock, for people only */
    atomic_int children_go;     /* those of dead_parent may end */
    atomic_uint_least64_t died; /* hw_now() of its end */
    atomic_uint_least64_t limit[64]; /* bench: messages that the sender will have sent, for each comm; 0: not known */
};

struct rank {
    int id;  /* 0, 1 */
    int fd;  /* to the other rank */
    int ctl; /* to the overseer */
    struct shared *sh;
    bool threads; /* both ranks are in this process */
    bool loaded;
    int tasks, fds, inherited; /* of the process, before anything was loaded */
    bool cuda;                 /* it has a CUDA driver since, whose threads and descriptors stay */
    int step;                  /* its number */
    const char *name;          /* and name */
    void *ctx;                 /* of the table's init, from v11 */
    struct comm *comms;        /* all that are open in this step */
    unsigned made;             /* comms so far: both ranks make them in one order */
};

/* A step returns 0, -errno with hw_error() saying why, or SKIP() */
#define STEP_SKIPPED 1
#define SKIP(...)    (hw_fail(0, __VA_ARGS__), STEP_SKIPPED)

enum {
    STEP_PROCESSES = 1, /* means nothing between threads of one process */
    STEP_DIES = 2,      /* rank 1 kills itself */
    STEP_ALONE = 4,     /* never loads for it: it does so itself */
    STEP_BENCH = 8,     /* no part of the suite */
};

struct step {
    const char *name;
    int (*fn)(struct rank *r);
    unsigned flags;
};

/* driver_run.c */
int run_suite(const struct step *steps, size_t n);
int run_bench(const struct step *step);
extern FILE *rank_out; /* in a rank: where results go; stdout is stderr there, for plugins print what they like */

/* driver_load.c: the plugin, once for each process; what is asked of it has the shape of the newest table whatever the
 * version. The result is NCCL's, which net_fail() turns into words. */
struct props {
    const char *name, *pci_path;
    uint64_t guid;
    int ptr_support, speed, port, max_comms, max_recvs, device_type, device_version;
    float latency;
    int reg_is_global, force_flush; /* 0 in tables that have none */
    int ndevs, devs[NCCL_NET_MAX_DEVS_PER_NIC_V12];
    size_t max_p2p, max_coll; /* likewise */
};

int net_load(struct rank *r);   /* dlopen, the table, init */
int net_unload(struct rank *r); /* finalize, dlclose after the last rank of the process */
/* From v11 on: another communicator of this process begins, or ends; the library stays. */
int net_init_again(struct rank *r, void **ctx);
int net_finalize(struct rank *r, void *ctx);
int net_version(void);
const char *net_name(void);
const char *net_versions(char *buf, size_t cap);              /* all that the plugin has: "v8 v9" */
int net_required(char *missing, size_t cap, int ptr_support); /* entries that are NULL and may not be */
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

/* driver_profiler.c: what isend and irecv get as phandle, and what the plugin says of it. */
struct phandle {
    uint64_t magic;
    bool sends;
    size_t size, room; /* of the message; of the receive */
    atomic_uint told;  /* events begun */
};
ncclResult_t profiler(void **handle, int type, void *phandle, int64_t id, void *ext);
void prof_begin(struct phandle *p, bool sends, size_t size, size_t room); /* before isend or irecv */
/* The message is over: so must be its events, and -EPROTO where they are not. */
int prof_end(struct phandle *p, const char *when);
int step_profiler(struct rank *r);

/* driver_comm.c: waiting, agreeing, connections. */
struct wait {
    uint64_t end;
    unsigned idle;
    const char *what;
};
struct wait wait_for(const char *what);
/* One turn of a poll loop in which nothing happened: 0, -ETIMEDOUT, or -ECANCELED where the other rank has failed. */
int wait_turn(struct rank *r, struct wait *w);
void nap_ms(unsigned ms);

/* Gives the other rank len bytes and takes as many of its. */
int swap(struct rank *r, const void *mine, void *theirs, size_t len);
int barrier(struct rank *r);

struct comm {
    struct rank *r;
    struct comm *next;
    uint64_t id; /* the same on both ranks */
    bool sends;
    int dev;                                                    /* --dev, unless set before listen or connect */
    _Alignas(16) uint8_t guarded[NCCL_NET_HANDLE_MAXSIZE + 16]; /* the handle; plugins lay structs over it */
    void *lc, *c;
    ncclNetDeviceHandle_t dev_space, *dh;
    uint64_t received; /* irecvs so far */
};

/* One rank sends, the other receives. All of these are freed by comm_close(), or at the step's end. */
struct comm *comm_new(struct rank *r, int sender);
int comm_listen(struct comm *c); /* where it receives */
int comm_handle(struct comm *c); /* carries the handle over */
int comm_try(struct comm *c);    /* one call of connect or accept: 0 done, -EAGAIN */
int comm_link(struct comm *c);   /* until it is done */
int comm_close_listen(struct comm *c);
int comm_open(struct rank *r, int sender, struct comm **out); /* all of that */
int comm_close(struct comm *c);
int comm_close_all(struct rank *r);

/* driver_flow.c: messages over one comm, every byte checked. */
#define FLOW_DEPTH 32
struct flow_spec {
    const char *what;
    unsigned n, depth; /* messages; in flight at once */
    const size_t *sizes;
    size_t n_sizes; /* used in turn; 0: as chance has it, in [min, max] */
    size_t min, max;
    size_t slack;       /* a receive is up to this much larger than its message */
    bool hint;          /* *request of every other irecv says "optional completion" */
    bool register_each; /* memory is registered anew for each message */
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
int flow_post(struct flow *f);  /* one more message: 1, or 0 where there is no room */
int flow_test(struct flow *f);  /* the oldest: 1 where it is done */
int flow_step(struct flow *f);  /* both: how many things happened */
int flow_close(struct flow *f); /* deregisters and frees; of a flow that failed, nothing is freed */
/* As NCCL does after an abort: deregisters and closes the comm, whatever is in flight. What comes after the close may
 * not touch the memory: it is gone. */
int flow_abandon(struct flow *f);
/* All flows to their end, from this thread. */
int flow_run(struct rank *r, struct flow *f, size_t n);
/* Opens, runs and closes one over c. */
int flow_all(struct comm *c, const struct flow_spec *s);
/* One new comm each way, with traffic in both. */
int exchange(struct rank *r, const struct flow_spec *s);
/* As flow_run(), but an error of the plugin is what is wanted: 0 where one came in time. */
int flow_until_error(struct flow *f);
/* All of them, until each has done so many messages. */
int flow_some(struct flow *f, size_t n, unsigned want);
/* A receive is done: fetches the fragments of an unpacking plugin, and consumes (--consumed). */
int comm_arrived(struct comm *c, void *req, uint8_t *p, size_t room);
size_t depth_of(size_t want); /* no more than the plugin is good for */

int entries(const char *dir); /* how many */
int inherited(void);          /* descriptors that a program started from here would have */

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
int step_dead_parent(struct rank *r);
int step_stopped_deadline(struct rank *r);
int step_dead_sender(struct rank *r);
int step_dead_receiver(struct rank *r);
int step_dead_idle(struct rank *r);
int step_after(struct rank *r);
int step_recreate(struct rank *r);
int step_fork_uses(struct rank *r);
int step_stopped_peer(struct rank *r);
int step_dead_connector(struct rank *r);
int step_dead_many(struct rank *r);

/* driver_bench.c */
extern const struct step bench_step;

#define CROWD_MAX 1024 /* ranks */
/* driver_crowd.c: a line of JSON; 0, or 1 where a rank failed. */
int run_crowd(void);

/* driver_facts.c: likewise. */
int run_facts(void);

#endif
