/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs any libnccl-net-*.so in a child process, so that its exit(1), crash or hang is only an error here.
 *
 * Parent and child share a ring of requests for each direction of a connection (ring.h), and the memory of the
 * requests: np_mem_alloc(). The child does what NCCL would do with the plugin, following the plugin contract and the
 * plugin's quirks (quirks.h): it retries connect and accept, reposts requests that were not taken, limits the window,
 * tests only the oldest request, reorders scattered receives and returns their pages.
 *
 * Errors: 0 or -errno with hw_error(). -EIO: the child died, or the plugin returned an error; -ETIMEDOUT: a deadline
 * has passed, or the child did not return from a plugin call; -EPROTO: the child sent impossible values. After the
 * child died or had to be killed, every call on this host returns that error, with the plugin call in progress and the
 * plugin's last output; only closing still works. An error of one connection ends only that connection.
 *
 * Threads: any threads may use a host; one thread at a time a connection, a listener, a block of memory. A process
 * forked from the one that opened the host may close it, and gets -EPERM from everything else.
 *
 * The child is a fork without an exec. So open a host early: the child keeps a copy of the parent's memory of that
 * time; if the parent has used CUDA before, the child cannot use CUDA (and GPU memory cannot be shared with it); and a
 * wait() of the application for any child may take the child's exit status.
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
    const char *const *env;      /* "NAME=VALUE" for the child only, NULL-terminated; NULL: none */
    const struct hw_logger *log; /* must live as long as the host */
    int open_ms;                 /* deadline of loading and init; 0: 30 s */
    int call_ms;                 /* deadline of any other plugin call, after which it counts as hung; 0: 15 s */
    int spin_us;                 /* how long the child polls for work without sleeping; 0: 2 ms */
    unsigned newest;             /* newest table to look for; 0: v12 */
    const char *trace;           /* a file to which every plugin call is appended; NULL or "": none */
    bool trace_polls;            /* trace polls without a result too */
    int unpack;                  /* enum hw_gather_way: how to reorder scattered GPU memory */
    bool one_thread; /* the plugin is never in two calls at once: a connect or accept that sleeps blocks everything */
    bool again;      /* a further process of a plugin whose environment was reported already */
    bool any_env;    /* faults found by np_check_env() are logged, but do not refuse the plugin */
    bool list;       /* the caller handles scattered receives: np_fragments(), np_consumed() */
};

/* plugin: a path, or a name as in NCCL_NET_PLUGIN. Uses the newest table that the plugin has, from v12 down to v6. */
int np_open(const char *plugin, const struct np_options *o, struct np_host **out);
/* Closes the host with everything left of it; NULL is allowed. Waits for the plugin to close, at most 2 s. */
void np_close(struct np_host *h);

/* Facts of the opened plugin. */
struct np_info {
    const char *table; /* "GPUDirectTCPX_v7" */
    unsigned version, devices;
    unsigned wait_ms; /* how long its accept() sleeps: for the deadlines of connections */
    unsigned window;  /* most requests posted and not returned on a connection and direction */
    const struct np_quirk *quirk;
    int pid;
};
const struct np_info *np_info(const struct np_host *h);

struct np_props {
    char name[64], pci[128]; /* "" if the plugin reports none */
    uint64_t guid;
    int ptr_support; /* NCCL_PTR_* */
    int speed;       /* Mbit/s */
    int port, max_comms;
    float latency;     /* us */
    bool unpacks;      /* NCCL_NET_DEVICE_UNPACK */
    uint32_t max_size; /* of one request: the smallest limit of plugin, ABI and quirk */
};
int np_props(struct np_host *h, unsigned dev, struct np_props *out);

/* Returns a GPU for np_listen() and np_connect(): this one, or (-1) the nearest to the device. -ENODEV: no driver, or
 * no such GPU; others: CUDA was in use before the host was opened, or CUDA failed. */
int np_gpu(struct np_host *h, unsigned dev, int gpu);

/* Returns true the first time, for a warning that is given once. */
bool np_warn_once(struct np_host *h);

/* Returns 0 while the child lives and answers. Cheap; the other functions call it themselves. */
int np_health(struct np_host *h);
/* Copies the plugin's last output as text with newlines, at most cap - 1 bytes; also after its death. Returns the
 * length. */
size_t np_output(struct np_host *h, char *buf, size_t cap);

/* ---- memory --------------------------------------------------------------------------------- */

/* Allocates whole pages that child and parent share. */
int np_mem_alloc(struct np_host *h, size_t len, struct np_mem **out);
/* Shares memory of the caller: len bytes at ptr, which map the file fd (a memfd) from offset, MAP_SHARED. fd -1:
 * private memory of this process, which is refused (-EOPNOTSUPP), because the child cannot reach it; copy it through
 * memory of np_mem_alloc(). The file must not be truncated while it is in use. */
int np_mem_import(struct np_host *h, void *ptr, size_t len, int fd, uint64_t offset, struct np_mem **out);
/* Allocates memory of a GPU (space) that child and parent share, in pieces of 2 MiB; np_mem_ptr() is valid in that
 * space. The child allocates it with CUDA, which fails if this process had used CUDA before the host was opened. */
int np_mem_alloc_on(struct np_host *h, const struct hw_space *space, size_t len, struct np_mem **out);
void *np_mem_ptr(const struct np_mem *m);
/* -EBUSY while it is registered. */
int np_mem_free(struct np_mem *m);

/* ---- connections ---------------------------------------------------------------------------- */

/* gpu: the GPU that is set while the plugin makes the connection. Some plugins need it: GPUDirect-TCPX places a
 * connection's data in that GPU's memory. -1: none. */

/* A listener accepts one connection, as in NCCL. The handle is sent to the peer unchanged. */
int np_listen(struct np_host *h, unsigned dev, int gpu, uint8_t handle[NP_HANDLE_SIZE], struct np_listener **out);
int np_listener_close(struct np_listener *l);

/* Start a connection that np_established() finishes; deadline in hw_now() time. event: a nonblocking eventfd that is
 * signalled for np_arm(), which the caller keeps and several connections may share; -1: one of its own. The connecting
 * side is the one that sends. */
int np_connect(struct np_host *h, unsigned dev, int gpu, const uint8_t handle[NP_HANDLE_SIZE], uint64_t deadline,
               int event, struct np_comm **out);
int np_accept(struct np_listener *l, uint64_t deadline, int event, struct np_comm **out);
/* Returns 0 once the connection is up, -EAGAIN, or the error. */
int np_established(struct np_comm *c);
/* Drops what is posted: on return the plugin no longer accesses the memory. */
int np_comm_close(struct np_comm *c);

/* The eventfd, for poll or epoll. After np_arm() returned -EAGAIN it is signalled once, when the oldest request is
 * complete, the connection is up, or either failed; 0: that is already so. The child's death does not signal it:
 * np_health(). */
int np_event(const struct np_comm *c);
int np_arm(struct np_comm *c);

/* Registers memory for requests of this connection only. */
int np_reg(struct np_comm *c, struct np_mem *m, size_t offset, size_t len, struct np_mr **out);
int np_dereg(struct np_mr *mr);

/* ---- requests: each direction is a FIFO ----------------------------------------------------- */

/* Post a request for [offset, offset+len) of a registration of this connection. -EAGAIN: the window is full; -EMSGSIZE:
 * longer than np_props.max_size. deadline: of the request, in hw_now() time; HW_NEVER is allowed. */
int np_isend(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag, uint64_t deadline);
int np_irecv(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag, uint64_t deadline);

struct np_result {
    size_t size; /* receive: bytes that arrived; bytes posted if the plugin does not report them (TCPX) */
    bool known;  /* the plugin reported the size */
    uint32_t frags;
};
/* Tests the oldest request not yet tested: 0: complete; -EAGAIN; else the connection is dead (the plugin may use its
 * memory until np_comm_close()). -EINVAL: nothing is posted. */
int np_test(struct np_comm *c, struct np_result *out);
/* Like np_test(), but waits until the deadline. */
int np_wait(struct np_comm *c, uint64_t deadline, struct np_result *out);

/* With np_options.list: returns the fragments of the oldest receive that np_test() reported and that is not consumed,
 * for hw_gather_start(). room for 2048; *n may be 0: it arrived in one piece, in place. */
int np_fragments(struct np_comm *c, struct hw_frag *frags, size_t room, size_t *n);
/* Consumes the oldest receive that np_test() reported: returns its place in the window and its pages. */
int np_consumed(struct np_comm *c);

#endif
