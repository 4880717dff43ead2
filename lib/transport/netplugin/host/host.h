/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs any libnccl-net-*.so in a child process, so that a plugin that calls exit(1), crashes or hangs only causes an
 * error in this process.
 *
 * The parent and the child share a ring of requests for each direction of a connection (ring.h), and the memory of the
 * requests (np_mem_alloc()). The child calls the plugin as NCCL would, following the plugin contract and the plugin's
 * quirks (quirks.h): it retries connect and accept, reposts requests that were not accepted, limits the window, tests
 * only the oldest request, reorders scattered receives and returns their pages.
 *
 * Functions return 0, or set hw_error() and return -errno. -EIO means that the child died or that the plugin returned
 * an error. Other errors of the plugin result in -EINVAL, -ECONNRESET or -ENXIO. -ETIMEDOUT means that a deadline has
 * passed or that the child did not return from a plugin call. -EPROTO means that the child or the plugin supplied
 * impossible values. After the child has died or was killed, calls on its host fail with the same error, which contains
 * the plugin's last output. np_output(), np_mem_free() and the close functions still work. An error of a single
 * connection ends only that connection.
 *
 * Any number of threads may use a host at the same time. A connection, a listener or a block of memory may be used by
 * only one thread at a time. A process that was forked from the opening process may close the host, but receives -EPERM
 * from functions that need the child.
 *
 * The child is a fork without an exec. Therefore open a host early:
 *  - The child keeps a copy of the parent's memory at the time of the fork.
 *  - If the parent has used CUDA before, the child cannot use CUDA, and GPU memory cannot be shared with the child.
 *  - If the application calls wait() for any child, the call may collect this child's exit status.
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
    const char *const *env;      /* NULL-terminated list of "NAME=VALUE" for the child only, or NULL */
    const struct hw_logger *log; /* must remain valid as long as the host exists */
    int open_ms;                 /* time limit in ms of loading and init, or 0 for 30 s */
    int call_ms;                 /* time limit in ms of any other plugin call, beyond its known sleep, or 0 for 15 s */
    int spin_us;                 /* time in us for which the child polls for work before it sleeps, or 0 for 2 ms */
    unsigned newest;             /* newest table version to use, or 0 for v12 */
    const char *trace;           /* file to which plugin calls are appended (trace.h), or NULL or "" for none */
    bool trace_polls;            /* also trace polls without a result */
    int unpack;      /* enum hw_gather_way: how to gather received fragments that are scattered in GPU memory */
    bool one_thread; /* make only one plugin call at a time, unless the quirk has setup_threads; a connect or accept
                        that sleeps then blocks all connections */
    bool again;      /* another process of a plugin whose environment was already reported */
    bool any_env;    /* log problems found by np_check_env(), but still start the plugin */
    bool list;       /* the caller handles scattered receives with np_fragments() and np_consumed() */
};

/* Loads a plugin, specified by a path or by a name as in NCCL_NET_PLUGIN. Uses the newest of the plugin's tables from
 * v6 to o->newest. */
int np_open(const char *plugin, const struct np_options *o, struct np_host **out);
/* Closes the host and frees all of its objects. NULL is allowed. Waits up to 2 s for the plugin to close. */
void np_close(struct np_host *h);

/* Properties of the loaded plugin. */
struct np_info {
    const char *table; /* name of the table, for example "GPUDirectTCPX_v7" */
    unsigned version, devices;
    unsigned wait_ms; /* time in ms that listen, connect or accept may take; connection deadlines must allow for it */
    unsigned window;  /* maximum number of requests posted and not yet returned, per connection and direction */
    const struct np_quirk *quirk;
    int pid;
};
const struct np_info *np_info(const struct np_host *h);

struct np_props {
    char name[64], pci[128]; /* "" if not reported by the plugin */
    uint64_t guid;
    int ptr_support; /* set of NCCL_PTR_* flags */
    int speed;       /* in Mbit/s */
    int port, max_comms;
    float latency;     /* in us */
    bool unpacks;      /* the device type is NCCL_NET_DEVICE_UNPACK */
    uint32_t max_size; /* maximum bytes per request: the smallest limit of the plugin, the ABI and the quirk */
};
int np_props(struct np_host *h, unsigned dev, struct np_props *out);

/* Returns a GPU for np_listen() and np_connect(): the given GPU, or the one nearest to the device if gpu is -1. Fails
 * with -ENODEV if there is no driver or no such GPU, and with another error if CUDA was used before the host was opened
 * or if CUDA failed. */
int np_gpu(struct np_host *h, unsigned dev, int gpu);

/* Returns true on the first call. Used for a warning that is logged once. */
bool np_warn_once(struct np_host *h);

/* Returns 0 while the child is alive and responsive. The check is cheap. np_established(), np_test() and np_wait()
 * include it. */
int np_health(struct np_host *h);
/* Copies the last output of the plugin to buf, at most cap - 1 bytes, with newlines. Works after the child's death.
 * Returns the length. */
size_t np_output(struct np_host *h, char *buf, size_t cap);

/* ---- memory --------------------------------------------------------------------------------- */

/* Allocates whole pages that the parent and the child share. */
int np_mem_alloc(struct np_host *h, size_t len, struct np_mem **out);
/* Shares memory of the caller with the child: len bytes at ptr, a MAP_SHARED mapping of the file fd (a memfd) from
 * offset. The file must not be truncated while the memory is in use. Fails with -EOPNOTSUPP if fd is -1, because the
 * child cannot access private memory of this process. Copy such memory through memory from np_mem_alloc(). */
int np_mem_import(struct np_host *h, void *ptr, size_t len, int fd, uint64_t offset, struct np_mem **out);
/* Allocates memory of a GPU (space) that the parent and the child share, in units of 2 MiB. np_mem_ptr() is an address
 * in that space. The child allocates the memory with CUDA, which fails if this process had used CUDA before the host
 * was opened. */
int np_mem_alloc_on(struct np_host *h, const struct hw_space *space, size_t len, struct np_mem **out);
void *np_mem_ptr(const struct np_mem *m);
/* Frees memory. Fails with -EBUSY while the memory is registered. */
int np_mem_free(struct np_mem *m);

/* ---- connections ---------------------------------------------------------------------------- */

/* gpu is the GPU that is current while the plugin sets up the connection, or -1 for none. Some plugins need the GPU.
 * For example, GPUDirect-TCPX places received data in the memory of that GPU. */

/* Creates a listener, which accepts one connection, as in NCCL. The handle must be sent to the peer unchanged. */
int np_listen(struct np_host *h, unsigned dev, int gpu, uint8_t handle[NP_HANDLE_SIZE], struct np_listener **out);
int np_listener_close(struct np_listener *l);

/* Start to connect or accept. np_established() completes the connection. deadline is in hw_now() time. event is a
 * nonblocking eventfd for np_arm(), which the caller owns and which several connections may share, or -1 to create one.
 * The connecting side sends and the accepting side receives. */
int np_connect(struct np_host *h, unsigned dev, int gpu, const uint8_t handle[NP_HANDLE_SIZE], uint64_t deadline,
               int event, struct np_comm **out);
int np_accept(struct np_listener *l, uint64_t deadline, int event, struct np_comm **out);
/* Returns 0 once the connection is established, -EAGAIN until then, or the error. */
int np_established(struct np_comm *c);
/* Closes the connection and drops its posted requests. Afterwards the plugin no longer accesses their memory. */
int np_comm_close(struct np_comm *c);

/* np_event() returns the eventfd, for poll or epoll. If np_arm() returns -EAGAIN, the eventfd is signalled once when
 * the oldest request completes, when the connection is established, or when either fails. If np_arm() returns 0, one of
 * these has already happened. The child's death does not signal the eventfd, so also call np_health(). */
int np_event(const struct np_comm *c);
int np_arm(struct np_comm *c);

/* Registers memory for requests of this connection only. */
int np_reg(struct np_comm *c, struct np_mem *m, size_t offset, size_t len, struct np_mr **out);
int np_dereg(struct np_mr *mr);

/* ---- requests: each direction is a FIFO ----------------------------------------------------- */

/* Post a request for the range [offset, offset+len) of a registration of this connection. deadline is the request's
 * deadline in hw_now() time, or HW_NEVER. Fails with -EAGAIN if the window is full, and with -EMSGSIZE if len exceeds
 * np_props.max_size. */
int np_isend(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag, uint64_t deadline);
int np_irecv(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag, uint64_t deadline);

struct np_result {
    size_t size; /* bytes received, or bytes posted if the plugin does not report the size (GPUDirect-TCPX) */
    bool known;  /* the plugin reported the size */
    uint32_t frags;
};
/* Tests the oldest request that is not yet complete. Returns 0 if the request is now complete and -EAGAIN if it is not.
 * Fails with -EINVAL if no request is posted. After any other error the connection is dead, and the plugin may use the
 * requests' memory until np_comm_close(). */
int np_test(struct np_comm *c, struct np_result *out);
/* Calls np_test() until the request completes or fails, or until the deadline passes (-EAGAIN). */
int np_wait(struct np_comm *c, uint64_t deadline, struct np_result *out);

/* With np_options.list, returns in frags the fragments of the oldest receive that np_test() has completed and that is
 * not yet consumed, for hw_gather_start(). frags should have room for 2048 entries. *n is 0 if the data arrived in one
 * piece and in place. */
int np_fragments(struct np_comm *c, struct hw_frag *frags, size_t room, size_t *n);
/* Consumes the oldest receive that np_test() has completed. Frees its slot in the window and its pages. */
int np_consumed(struct np_comm *c);

#endif
