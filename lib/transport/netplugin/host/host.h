/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any libnccl-net-*.so, run in a child process, so that its exit(1), its crash and its hang are errors here and no
 * more.
 *
 * Parent and child share a ring of requests for each direction of a connection (ring.h) and the memory that requests
 * are about: np_mem_alloc(). The child does all that NCCL would do with the plugin, as its contract has it and its
 * quirks (quirks.h) want it: connect and accept tried again, requests that were not taken posted again, the window
 * counted, the oldest request alone tested, scattered receives put in order and their pages given back.
 *
 * Errors: 0 or -errno with hw_error(), as everywhere. -EIO: the child died, or the plugin gave an error; -ETIMEDOUT: a
 * deadline has passed, or the child did not come back from a call of the plugin; -EPROTO: what the child says cannot
 * be. After the child's death, and when it had to be ended, everything of this host gives that error, with what the
 * plugin was doing and what it said last; only closing is left. What failed on one connection alone ends that one.
 *
 * Threads: a host is used by any of them; a connection, a listener, a piece of memory by one at a time. A process that
 * was forked from the one that opened the host may close it, and gets -EPERM for all else.
 *
 * The child is a fork, without an exec. So open a host early: the child keeps what memory the parent had then as it
 * was; CUDA, once used in the parent, cannot be used in the child (and then GPU memory cannot be shared with it); and a
 * wait() of the application's for any child may take away how it ended.
 */
#ifndef HW_NETPLUGIN_HOST_H
#define HW_NETPLUGIN_HOST_H

#include "base/base.h"
#include "mem/gather.h"
#include "transport/netplugin/table/quirks.h"

#define NP_HANDLE_SIZE 128

struct np_host;
struct np_listener;
struct np_comm;
struct np_mem;
struct np_mr;

struct np_options {
    const char *const *env;      /* "NAME=VALUE" for the child alone, NULL at the end; NULL: none */
    const struct hw_logger *log; /* as long as the host */
    int open_ms;                 /* for loading and init; 0: 30 s */
    int call_ms;                 /* for any other call of the plugin: it hangs after this; 0: 15 s */
    int spin_us;                 /* how long the child looks without a nap for something to do; 0: 2 ms */
    unsigned newest;             /* table to look for first; 0: v12 */
    const char *trace;           /* a file for every call of the plugin, appended to; NULL or "": none */
    bool trace_polls;            /* with those that come to nothing */
    int unpack;                  /* enum hw_gather_way: how scattered GPU memory is put in order */
    bool one_thread; /* the plugin is never in two calls at once: a connect or accept that sleeps holds all */
    bool again;      /* another process of a plugin whose environment was told of already */
    bool any_env;    /* np_check_env()'s faults are logged, and no reason to refuse */
    bool list;       /* scattered receives are left to the caller: np_fragments(), np_consumed() */
};

/* plugin: a path, or a name as NCCL_NET_PLUGIN has it. The newest table that it has from v12 down to v6 is used. */
int np_open(const char *plugin, const struct np_options *o, struct np_host **out);
/* With all that is left of it; NULL is allowed. Takes as long as the plugin does to close, 2 s at most. */
void np_close(struct np_host *h);

/* What was opened. */
struct np_info {
    const char *table; /* "GPUDirectTCPX_v7" */
    unsigned version, devices;
    unsigned wait_ms; /* what its accept() sleeps: for the deadlines of connections */
    unsigned window;  /* requests on a connection and direction: at most so many posted and not given back */
    const struct np_quirk *quirk;
    int pid;
};
const struct np_info *np_info(const struct np_host *h);

struct np_props {
    char name[64], pci[128]; /* "" where the plugin has none */
    uint64_t guid;
    int ptr_support; /* NCCL_PTR_* */
    int speed;       /* Mbit/s */
    int port, max_comms;
    float latency;     /* us */
    bool unpacks;      /* NCCL_NET_DEVICE_UNPACK */
    uint32_t max_size; /* of one request: the plugin's, the ABI's and the quirk's limits together */
};
int np_props(struct np_host *h, unsigned dev, struct np_props *out);

/* A GPU for np_listen() and np_connect(): this one, or (-1) the nearest to the device. Returns which it is; -ENODEV: no
 * driver, or no such GPU; others: CUDA was in use before the host was opened, or fails. */
int np_gpu(struct np_host *h, unsigned dev, int gpu);

/* True once, for a warning of which one is enough. */
bool np_warn_once(struct np_host *h);

/* 0 while the child lives and answers. Costs little; the others ask it themselves. */
int np_health(struct np_host *h);
/* The plugin's last output as text with newlines, at most cap - 1 bytes; also after its death. Returns its length. */
size_t np_output(struct np_host *h, char *buf, size_t cap);

/* ---- memory --------------------------------------------------------------------------------- */

/* Whole pages that child and parent both see. */
int np_mem_alloc(struct np_host *h, size_t len, struct np_mem **out);
/* Memory of the caller's own: len bytes at ptr, which map the file fd (a memfd) from offset, MAP_SHARED. fd -1: memory
 * that is this process's alone, which is refused (-EOPNOTSUPP): the child cannot reach it; it must be copied through
 * np_mem_alloc()'s. The file must not be cut short while it is in use. */
int np_mem_import(struct np_host *h, void *ptr, size_t len, int fd, uint64_t offset, struct np_mem **out);
/* Memory of a GPU (space) that child and parent both see, in pieces of 2 MiB; np_mem_ptr() is good in that space. It is
 * the child's: CUDA is put to use there, which fails where it was in use here before the host was opened. */
int np_mem_alloc_on(struct np_host *h, const struct hw_space *space, size_t len, struct np_mem **out);
void *np_mem_ptr(const struct np_mem *m);
/* -EBUSY while it is registered. */
int np_mem_free(struct np_mem *m);

/* ---- connections ---------------------------------------------------------------------------- */

/* gpu: which one is set when the plugin makes the connection, which some ask for: GPUDirect-TCPX lands a connection's
 * data in that GPU's memory. -1: none. */

/* One listener takes one connection, as in NCCL. The handle goes to the peer as it is. */
int np_listen(struct np_host *h, unsigned dev, int gpu, uint8_t handle[NP_HANDLE_SIZE], struct np_listener **out);
int np_listener_close(struct np_listener *l);

/* Both start something that np_established() finishes; deadline in hw_now() terms. event: an eventfd (non-blocking)
 * that is rung for np_arm(), not taken, which several may share; -1: one of its own. np_connect's is the side that
 * sends. */
int np_connect(struct np_host *h, unsigned dev, int gpu, const uint8_t handle[NP_HANDLE_SIZE], uint64_t deadline,
               int event, struct np_comm **out);
int np_accept(struct np_listener *l, uint64_t deadline, int event, struct np_comm **out);
/* 0, -EAGAIN, or why not. */
int np_established(struct np_comm *c);
/* What is posted is dropped: when this returns the plugin does not touch its memory any more. */
int np_comm_close(struct np_comm *c);

/* The eventfd, for poll or epoll. After np_arm() has given -EAGAIN it is rung once, when the oldest request is over,
 * the connection is made, or either failed; 0: that is so already. The child's death does not ring it: np_health(). */
int np_event(const struct np_comm *c);
int np_arm(struct np_comm *c);

/* For requests of this connection alone. */
int np_reg(struct np_comm *c, struct np_mem *m, size_t offset, size_t len, struct np_mr **out);
int np_dereg(struct np_mr *mr);

/* ---- requests: each direction is a FIFO ----------------------------------------------------- */

/* [offset, offset+len) of a registration of this connection. -EAGAIN: the window is full; -EMSGSIZE: longer than
 * np_props.max_size. deadline: for the request to be over, in hw_now() terms; HW_NEVER is allowed. */
int np_isend(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag, uint64_t deadline);
int np_irecv(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag, uint64_t deadline);

struct np_result {
    size_t size; /* of a receive: what came; where the plugin does not say (TCPX), what was posted */
    bool known;  /* it did say */
    uint32_t frags;
};
/* The oldest one not yet tested: 0 it is over; -EAGAIN; else the connection is dead (its memory is the plugin's until
 * np_comm_close()). -EINVAL: nothing is posted. */
int np_test(struct np_comm *c, struct np_result *out);
/* The same, waiting until then. */
int np_wait(struct np_comm *c, uint64_t deadline, struct np_result *out);

/* With np_options.list: the fragments of the oldest receive that np_test() gave and that is not consumed, for
 * hw_gather_start(). room for 2048; *n may be 0: it came in one piece, in its place. */
int np_fragments(struct np_comm *c, struct hw_frag *frags, size_t room, size_t *n);
/* The oldest receive that np_test() gave is done with: its place in the window, and its pages, go back. */
int np_consumed(struct np_comm *c);

#endif
