/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hawser.h - the public API of libhawser: verified transfers between the memory of two machines
 * over many TCP connections and NICs.
 *
 * Conventions, for every function unless it says otherwise:
 *  - Returns 0 or a negative errno. hawser_error() then holds one line for the calling thread that
 *    says what was tried, on what, and what to do about it.
 *  - Sizes and offsets are bytes; timeouts are milliseconds, 0 means "do not block".
 *  - All functions may be called from any thread. A handle must not be used after, or concurrently
 *    with, the call that frees it.
 *  - The library never prints, exits, or installs signal handlers; every descriptor is O_CLOEXEC.
 *
 * Errors with a fixed meaning:
 *   -EAGAIN       not done yet (would block, or a wait's timeout passed); nothing was lost
 *   -ETIMEDOUT    a deadline passed and the operation has failed
 *   -ECONNRESET   the peer died, or every path to it did
 *   -ESHUTDOWN    the peer, or this side, closed the connection in an orderly way
 *   -EPROTO       the peer sent something the protocol does not allow
 *   -EACCES       wrong key, or a region's rights do not allow the operation
 *   -EFAULT       outside a region's bounds
 *   -ESTALE       the region was revoked, or never existed
 *   -EMSGSIZE     the message is larger than the receive it matched
 *   -ECANCELED    hawser_cancel() was called on it
 */
#ifndef HAWSER_H
#define HAWSER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HAWSER_API __attribute__((visibility("default")))
#else
#define HAWSER_API
#endif

#define HAWSER_VERSION_MAJOR 1
#define HAWSER_VERSION_MINOR 0

#define HAWSER_DEFAULT_PORT 20000
#define HAWSER_KEY_SIZE     64     /* bytes of an exported region's remote key, see hawser_export() */
#define HAWSER_NOTIFY_MAX   262144 /* largest notification, bytes */
#define HAWSER_NIC_NAME     16     /* the kernel's IFNAMSIZ */
#define HAWSER_ADDR_TEXT    48     /* an IP address and a port as text: "198.18.0.1:20000", "[fe80::1]:20000" */
#define HAWSER_MAX_VECS     65536  /* most descriptors in one operation */
#define HAWSER_INLINE_MAX   4096   /* most bytes of hawser_vec.data in one operation, over all its descriptors */

typedef struct hawser hawser;           /* a context: threads, listener, peers, memory */
typedef struct hawser_peer hawser_peer; /* the other end */
typedef struct hawser_mem hawser_mem;   /* registered memory */
typedef struct hawser_op hawser_op;     /* an operation in flight */

enum hawser_log_level { HAWSER_LOG_ERROR = 0, HAWSER_LOG_WARN = 1, HAWSER_LOG_INFO = 2, HAWSER_LOG_DEBUG = 3 };

/* Receives one complete line, without a newline. The library may call it from any thread; it must not call into
 * hawser. */
typedef void (*hawser_log_fn)(void *arg, int level, const char *line);

/* flags of struct hawser_options */
#define HAWSER_CALLER_PROGRESS 1u /* no threads: the caller calls hawser_progress() and hawser_wait() */
#define HAWSER_INSECURE        2u /* without a key, accept any address, not only loopback and lab addresses */
#define HAWSER_EVENTS          4u /* hawser_poll() also reports peers that arrive or die, and notifications */
/* Sends memory by reference where that is faster (knob splice). A cancelled write or send ends when the peer has
 * reported what became of it; if the peer does not report within a second, the library closes the connections that may
 * still read the memory. A peer that lies about what it has read, or that stalls for longer on the same host, may see
 * bytes written after the operation ended. Set it only if both ends are in one trust domain. */
#define HAWSER_TRUSTED 8u

struct hawser_options {
    size_t size;              /* sizeof(struct hawser_options): lets old programs run with new libraries */
    uint32_t flags;           /* HAWSER_CALLER_PROGRESS, HAWSER_INSECURE, HAWSER_EVENTS, HAWSER_TRUSTED */
    hawser_log_fn log;        /* NULL: silence */
    void *log_arg;            /* passed to log */
    const void *key;          /* job key that both sides must hold; NULL: none. The library copies it. */
    size_t key_len;           /* 16 to 4096 bytes */
    const char *const *knobs; /* NULL-terminated "name=value" strings that override HAWSER_* variables; NULL: none */
};

/* Makes a context. opts may be NULL. The caller owns *out and frees it with hawser_close(). -EINVAL: bad option or knob
 * (the error text names it); -ENOMEM; -EMFILE. */
HAWSER_API int hawser_open(const struct hawser_options *opts, hawser **out);

/* Closes every peer, fails pending operations with -ESHUTDOWN, joins all threads and frees the context with its peers
 * and memory: their handles are invalid afterwards. Does not free operations: free each with hawser_op_free(), before
 * or after. NULL is allowed. */
HAWSER_API void hawser_close(hawser *h);

/* Returns the calling thread's last error line; never NULL; valid until the thread's next failing hawser call. */
HAWSER_API const char *hawser_error(void);

/* "1.0.0" */
HAWSER_API const char *hawser_version(void);

/* ---- progress ------------------------------------------------------------------------------- */

/* Does the work that is ready, waiting up to timeout_ms for work. Needed only with HAWSER_CALLER_PROGRESS (harmless
 * otherwise). Returns 0, or -EAGAIN if there was nothing to do. */
HAWSER_API int hawser_progress(hawser *h, int timeout_ms);

/* Returns a descriptor to poll(2) for reading, or -errno; the context owns the descriptor. With library threads the
 * descriptor becomes readable when an operation ends, a notification or a peer arrives, or a peer dies: read 8 bytes to
 * clear it, then take the completions or test the operations you wait for. With HAWSER_CALLER_PROGRESS the descriptor
 * is readable when hawser_progress() has work; do not read from it. */
HAWSER_API int hawser_eventfd(hawser *h);

/* ---- completions ---------------------------------------------------------------------------- */

enum hawser_event {
    HAWSER_ENDED = 1,     /* an operation that was started without a handle has ended */
    HAWSER_CONNECTED = 2, /* hawser_connect_start() has ended; if result is not 0, close the peer */
    HAWSER_ARRIVED = 3,   /* a peer has connected, as hawser_accept() returns it (HAWSER_EVENTS) */
    HAWSER_DIED = 4,      /* a peer died; close it (HAWSER_EVENTS) */
    HAWSER_NOTIFIED = 5,  /* the peer sent a notification (HAWSER_EVENTS) */
};

struct hawser_completion {
    uint32_t event;    /* enum hawser_event */
    int32_t result;    /* 0 or -errno, see the errors at the top */
    uint64_t user;     /* ENDED, CONNECTED: the value that the caller gave */
    uint64_t length;   /* ENDED: bytes of the operation (receive: of its message); NOTIFIED: bytes at data */
    hawser_peer *peer; /* the peer of the event */
    void *data;        /* NOTIFIED: the bytes; the caller frees them with hawser_data_free() */
};

/* Fills out with up to n completions, oldest first. If there are none, first does the work that is ready, like
 * hawser_test(). Returns the number of completions, which may be 0. Completions of one peer's operations come in the
 * order in which the operations ended. */
HAWSER_API int hawser_poll(hawser *h, struct hawser_completion *out, int n);

/* Like hawser_poll(), but waits up to timeout_ms (-1: forever) for the first completion. */
HAWSER_API int hawser_poll_wait(hawser *h, struct hawser_completion *out, int n, int timeout_ms);

/* Frees a notification's bytes. NULL is allowed. */
HAWSER_API void hawser_data_free(void *data);

/* ---- peers ---------------------------------------------------------------------------------- */

/* Listens on one TCP port for all connections. addr: a numeric address, or NULL for all. port 0 picks a free port.
 * *bound (may be NULL) receives the port. A context has one listener: -EBUSY for a second. -EADDRINUSE, -EADDRNOTAVAIL,
 * -EINVAL. */
HAWSER_API int hawser_listen(hawser *h, const char *addr, uint16_t port, uint16_t *bound);

/* Takes the next peer that has connected. -EAGAIN if no peer connected within timeout_ms. */
HAWSER_API int hawser_accept(hawser *h, int timeout_ms, hawser_peer **out);

/* Use no other address of the peer than the one dialled, if a route from nics leads to that address. */
#define HAWSER_ONLY_DIALLED 1u

struct hawser_connect_options {
    size_t size;           /* sizeof */
    const char *nics;      /* "eth1,eth2": the local NICs to use; NULL or "": those of knob nics, by default all */
    const char *peer_nics; /* the peer's NICs; with nics: pairs, the k-th of nics with the k-th of peer_nics */
    uint32_t channels;     /* data connections per NIC; 0: the value of knob channels */
    uint32_t flags;        /* HAWSER_ONLY_DIALLED, or 0 */
    const void *key;       /* the peer's job key, which the library copies; NULL: the context's own */
    size_t key_len;        /* 16 to 4096 bytes */
    uint32_t gpu; /* HAWSER_GPU(n): these connections carry memory of this process's CUDA device n. A transport that
                     places data in one GPU's memory places it in this one's. 0: not specified. */
    uint32_t peer_gpu; /* the same for the peer's process */
    /* "eth1,eth2": the local NICs that should carry data; the library connects the other NICs (at most eight) only
     * while no preferred NIC works. All NICs carry if this is NULL or "", or if no preferred NIC has a path. */
    const char *prefer;
};
#define HAWSER_GPU(n) ((uint32_t)(n) + 1)

/* Connects to a listening context. host: name or numeric address; opts may be NULL. The library pairs NICs by routes,
 * by the map of rails (knob rails) or by the pairs in opts, and probes each pair before it uses the pair; it waits at
 * most knob path_ms for a pair that does not answer. Returns once each working pair has at least one channel; if
 * timeout_ms passes first, succeeds with the channels that are up if there is at least one. -ECONNREFUSED, -ETIMEDOUT,
 * -EHOSTUNREACH (no such name, no route), -EACCES (key), -EPERM (no key, and the address is neither loopback nor a
 * lab's), -ENODEV (unknown NIC, also in prefer; fewer pairs than knob require_nics), -E2BIG (more than 256 channels in
 * all), -EPROTO (not hawser, or another version). The time that a transport is known to sleep while it makes a
 * connection (GPUDirect-TCPX: 5 s) is added to timeout_ms. */
HAWSER_API int hawser_connect(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                              int timeout_ms, hawser_peer **out);

/* Starts hawser_connect() and returns; a completion HAWSER_CONNECTED with this user value reports the result. The
 * caller owns *out at once; until the completion the caller may only close it and compare it with the peer of a
 * completion. -EINVAL, -ENOMEM, -EAGAIN: no thread could be started. */
HAWSER_API int hawser_connect_start(hawser *h, const char *host, uint16_t port,
                                    const struct hawser_connect_options *opts, int timeout_ms, uint64_t user,
                                    hawser_peer **out);

/* Returns 0 while the peer lives, else the -errno that it died of; hawser_error() has the text. */
HAWSER_API int hawser_peer_state(hawser_peer *p);

/* Returns "198.18.0.2:20000", valid as long as the peer. */
HAWSER_API const char *hawser_peer_name(hawser_peer *p);

/* Attach a pointer of the caller's to the peer, and return it (NULL at first). */
HAWSER_API void hawser_peer_set_user(hawser_peer *p, void *user);
HAWSER_API void *hawser_peer_user(hawser_peer *p);

/* Tells the peer, fails pending operations with -ESHUTDOWN and frees the handle. NULL is allowed. */
HAWSER_API void hawser_peer_close(hawser_peer *p);

/* ---- memory --------------------------------------------------------------------------------- */

enum hawser_mem_kind { HAWSER_MEM_HOST = 0, HAWSER_MEM_CUDA = 1 };

/* Registers [ptr, ptr+len) for the context and all its peers. The caller keeps ownership of the memory; the memory and
 * its CUDA context must outlive the registration. HAWSER_MEM_CUDA: a device pointer of any GPU and CUDA context (pinned
 * host memory is registered as host memory). -EINVAL: NULL, an overflowing range, a pointer that is not CUDA's, managed
 * memory, or a range that is not entirely in one GPU's memory; -ENODEV: no driver, no GPU; -EOPNOTSUPP: another
 * kind. */
HAWSER_API int hawser_mem_register(hawser *h, enum hawser_mem_kind kind, void *ptr, size_t len, hawser_mem **out);

/* Allocates len page-aligned bytes and registers them: on the GPU with the driver's number `device` (HAWSER_MEM_CUDA,
 * in its primary context), or on the host (device -1). hawser_mem_deregister() frees them. -ENOMEM; -ENODEV: no such
 * GPU; the errors of hawser_mem_register(). */
HAWSER_API int hawser_mem_alloc(hawser *h, enum hawser_mem_kind kind, int device, size_t len, hawser_mem **out);

/* Returns the address of the memory; for GPU memory the device address. */
HAWSER_API void *hawser_mem_ptr(hawser_mem *m);

/* Copy len bytes from or to memory of any kind; the copy is done on return. For set-up and checks, not for speed.
 * -EFAULT: outside m; -EIO: the GPU failed. */
HAWSER_API int hawser_mem_load(hawser_mem *m, uint64_t offset, void *buf, size_t len);
HAWSER_API int hawser_mem_store(hawser_mem *m, uint64_t offset, const void *buf, size_t len);

/* Revokes the exports of m and frees the registration. -EBUSY while local operations use it. NULL is allowed. */
HAWSER_API int hawser_mem_deregister(hawser_mem *m);

#define HAWSER_REMOTE_READ  1u
#define HAWSER_REMOTE_WRITE 2u

/* Lets a peer (NULL: any peer of this context that presents the remote key) read and/or write [offset, offset+len) of
 * m. Fills key, the remote key, which the application sends to the other side by any means. -EFAULT: outside m;
 * -EINVAL: no rights or unknown rights. */
HAWSER_API int hawser_export(hawser_mem *m, uint64_t offset, uint64_t len, uint32_t rights, hawser_peer *peer,
                             uint8_t key[HAWSER_KEY_SIZE]);

/* Revokes an export: after it returns, no byte of a peer is written to or read from the region. -ESTALE if unknown. */
HAWSER_API int hawser_revoke(hawser *h, const uint8_t key[HAWSER_KEY_SIZE]);

/* An imported region of a peer. Plain data without resources: it may be copied freely. */
struct hawser_region {
    uint64_t id, secret;
    uint64_t length; /* bytes */
    uint32_t rights; /* HAWSER_REMOTE_* */
    uint32_t reserved;
};

/* Decodes a remote key. -EINVAL if the bytes are not a remote key. */
HAWSER_API int hawser_import(const uint8_t key[HAWSER_KEY_SIZE], struct hawser_region *out);

/* ---- operations ----------------------------------------------------------------------------- */

struct hawser_vec {
    hawser_mem *mem;                    /* local memory (may be NULL when length is 0, or with data) */
    uint64_t offset;                    /* in mem; 0 with data */
    uint64_t length;                    /* bytes, 0 allowed */
    const struct hawser_region *region; /* write and read: the region of the peer */
    uint64_t remote_offset;             /* write and read: offset in region */
    const void *data; /* write and send only: bytes that are copied before the call returns, instead of mem; at most
                         HAWSER_INLINE_MAX over all descriptors of an operation; NULL: none */
};

struct hawser_op_options {
    size_t size;        /* sizeof */
    int timeout_ms;     /* the operation's deadline; 0: knob op_timeout_ms (receive: none); -1: none */
    const void *notify; /* write: delivered to the peer's application once all data is in the peer's memory. The library
                           copies it. */
    size_t notify_len;  /* up to HAWSER_NOTIFY_MAX; 0 with notify NULL */
    uint32_t stream;    /* send, recv: the stream of the message; 0: the peer's default stream */
    uint32_t tag;       /* send, recv: messages match in order within one stream and tag only */
    uint64_t user;      /* returned in the completion of an operation without a handle */
};

/* Start to move the n descriptors to (write) or from (read) the peer's regions, as one operation. The library owns the
 * registered memory until the operation ends; it copies the bytes at hawser_vec.data, which the caller may reuse on
 * return. opts may be NULL. The caller owns *op and frees it with hawser_op_free(); if op is NULL, a completion reports
 * the end of the operation (hawser_poll()). Two operations are not ordered. A write ends when the peer has confirmed
 * that every byte is in its memory. Errors at the start: -EINVAL (data together with mem or an offset, or data in a
 * read, too), -EFAULT (outside mem or region), -EACCES (rights), -EAGAIN (too many pending operations), -E2BIG (n above
 * HAWSER_MAX_VECS, or data above HAWSER_INLINE_MAX), -ENOMEM, or the error that the peer died of. Errors later, from
 * test or wait: see the top. */
HAWSER_API int hawser_write(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                            const struct hawser_op_options *opts, hawser_op **op);
HAWSER_API int hawser_read(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);

/* Two-sided operations: the k-th send of a stream and tag matches the k-th receive of the same stream and tag at the
 * other end. Both gather from or scatter to their descriptors and ignore the region fields. A send ends when its
 * message is in the receiver's memory. A receive may be longer than its message, see hawser_op_length(); a receive that
 * is too short fails on both sides with -EMSGSIZE and consumes the message. The receiver keeps messages that arrive
 * before their receive (1 MiB for each peer, messages of up to 8 KiB in host memory); a message that does not fit there
 * waits at the sender. */
HAWSER_API int hawser_send(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);
HAWSER_API int hawser_recv(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);

/* Streams: both sides agree on the numbers, above 0; a stream exists from its first use. A peer can have up to 65536
 * pairs of stream and tag in use at a time.
 *
 * hawser_stream_close() ends this side's use of a stream with all its tags: local pending operations end with
 * -ECANCELED (wait for them before you reuse their memory); operations that are pending or posted later at the other
 * end fail with -ESHUTDOWN once everything that was sent before has arrived. The number must not be used again with
 * this peer. -EINVAL for 0. */
HAWSER_API int hawser_stream_close(hawser_peer *p, uint32_t stream);

/* Delivers len bytes (up to HAWSER_NOTIFY_MAX) to the peer's application. Notifications, also those of writes, arrive
 * in the order in which they were started. The operation ends when the peer has the notification. While 1 MiB of
 * notifications waits at the peer for its application, later ones wait at this side. */
HAWSER_API int hawser_notify(hawser_peer *p, const void *data, size_t len, const struct hawser_op_options *opts,
                             hawser_op **op);

enum hawser_kind { HAWSER_WRITE = 1, HAWSER_READ = 2, HAWSER_SEND = 3, HAWSER_RECV = 4, HAWSER_NOTIFY = 5 };

/* One operation for hawser_submit(): the arguments of the function that kind names. */
struct hawser_request {
    uint32_t kind;                 /* enum hawser_kind */
    uint32_t flags;                /* 0 */
    const struct hawser_vec *vecs; /* n_vecs descriptors; notify: NULL */
    size_t n_vecs;
    const void *data; /* notify: len bytes, which are copied; other kinds: NULL, their inline bytes are in vecs */
    size_t len;
    const struct hawser_op_options *opts; /* or NULL */
    hawser_op **op;                       /* receives the handle; NULL: a completion reports the end */
};

/* Starts the n operations of reqs in order, like hawser_write() to hawser_notify() called one after the other, but
 * enters the peer's loop once: the library hands the data of several small operations to the kernel together. It does
 * not keep the list. Stops at the first operation that fails at the start and returns its error; the operations before
 * it continue, the failed one and those after it have no handle (*op NULL). *started (may be NULL) receives the number
 * of operations started: n if 0 is returned. -EINVAL also: an unknown kind; flags; data or len in another kind than a
 * notification; vecs in a notification. */
HAWSER_API int hawser_submit(hawser_peer *p, const struct hawser_request *reqs, size_t n, size_t *started);

/* Takes the oldest notification of p: copies up to cap bytes to buf and sets *len to its full length. -EAGAIN: there is
 * none; -EMSGSIZE: cap is too small, and the notification stays. */
HAWSER_API int hawser_notification(hawser_peer *p, void *buf, size_t cap, size_t *len);

/* Returns 0 if the operation succeeded, -EAGAIN without an error text while it is in flight, else its error. Never
 * blocks. Does the work that is ready for the operation's peer unless another thread is doing it, so that data that has
 * arrived needs no thread to wake up. */
HAWSER_API int hawser_test(hawser_op *op);

/* Like hawser_test(), but waits up to timeout_ms (-1: until the operation ends; its own deadline bounds that). */
HAWSER_API int hawser_wait(hawser_op *op, int timeout_ms);

/* Requests cancellation: the operation ends soon with -ECANCELED, or with the result that it already had. Wait for it
 * before you reuse its memory. Bytes of a write may have reached the peer; none overwrites what the peer stores there
 * after the operation ended. */
HAWSER_API int hawser_cancel(hawser_op *op);

/* Returns the bytes confirmed (write, send) or arrived (read, recv) so far. */
HAWSER_API uint64_t hawser_op_bytes(const hawser_op *op);

/* Returns the length of the message that a receive matched; for other operations the sum of the descriptors. */
HAWSER_API uint64_t hawser_op_length(const hawser_op *op);

/* Frees the handle; first cancels an operation in flight and waits for it. NULL is allowed. */
HAWSER_API void hawser_op_free(hawser_op *op);

/* ---- statistics ----------------------------------------------------------------------------- */

struct hawser_channel_stats {
    char nic[HAWSER_NIC_NAME];                              /* local NIC */
    char peer_nic[HAWSER_NIC_NAME];                         /* the peer's */
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT]; /* "address:port"; "" until the channel first came up */
    uint32_t index;                                         /* number of the channel within its peer */
    uint32_t up;                                            /* 1: connected now */
    uint32_t lost;                                          /* times the channel died */
    uint32_t suspect;  /* 1: the peer's kernel has not acknowledged data for a while; the channel gets no new work */
    uint64_t tx_bytes; /* payload confirmed by the peer */
    uint64_t rx_bytes; /* payload that arrived completely */
    uint64_t tx_chunks, rx_chunks;
    uint64_t retaken_chunks; /* chunks of this channel that other channels sent again after it died */
    uint64_t retaken_bytes;  /* payload of those chunks */
    /* Transports devmem and netplugin, payload bytes: placed in device memory by the NIC or the plugin; copied by this
     * process although the transport could have placed them; read from device memory by the NIC or the plugin. */
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes;
};

struct hawser_nic_stats {
    char nic[HAWSER_NIC_NAME];
    uint32_t channels, channels_up, lost; /* lost: deaths of channels so far */
    uint32_t suspect;                     /* number of suspect channels */
    uint64_t tx_bytes, rx_bytes;
    uint64_t retaken_bytes;
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes;
};

/* Fill up to *n entries and set *n to the number of entries that exist. */
HAWSER_API int hawser_channel_stats(hawser_peer *p, struct hawser_channel_stats *out, size_t *n);
HAWSER_API int hawser_nic_stats(hawser_peer *p, struct hawser_nic_stats *out, size_t *n);

enum hawser_path_state {
    HAWSER_PATH_USED = 1,
    HAWSER_PATH_AWAITED = 2, /* did not answer in time; the library keeps trying, and uses it once it is up */
    HAWSER_PATH_UNUSED = 3,
    HAWSER_PATH_SPARE = 4, /* works, and is used only while no preferred NIC works */
};

struct hawser_path {
    char nic[HAWSER_NIC_NAME];      /* local NIC; "" for an unused NIC of the peer */
    char peer_nic[HAWSER_NIC_NAME]; /* the peer's NIC on which the bytes arrive; "" for an unused local NIC */
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT]; /* addresses; "" if unknown */
    uint32_t state;                                         /* enum hawser_path_state */
    uint32_t channels, channels_up;
    uint32_t reserved;
    char why[120]; /* reason why it is not used; "" if it is used */
};

/* Lists the NIC pairs that connect the two nodes, then the unused NICs with the reason. On the accepting side: the
 * pairs that the peer's channels use. Fills up to *n entries and sets *n to the number that exist. Returns 0. */
HAWSER_API int hawser_paths(hawser_peer *p, struct hawser_path *out, size_t *n);

/* ---- knobs ---------------------------------------------------------------------------------- */

/* Calls fn for each knob: name ("window"), environment variable ("HAWSER_WINDOW"), default as text, unit ("bytes"),
 * one-line documentation. */
HAWSER_API void hawser_knobs(void (*fn)(void *arg, const char *name, const char *env, const char *def, const char *unit,
                                        const char *doc),
                             void *arg);

#ifdef __cplusplus
}
#endif
#endif
