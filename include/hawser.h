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
#define HAWSER_KEY_SIZE     64     /* bytes of an exported region's key, see hawser_export() */
#define HAWSER_NOTIFY_MAX   262144 /* largest notification, bytes */
#define HAWSER_NIC_NAME     16     /* as the kernel's IFNAMSIZ */
#define HAWSER_ADDR_TEXT    48     /* an IP address and a port as text: "198.18.0.1:20000", "[fe80::1]:20000" */
#define HAWSER_MAX_VECS     65536  /* longest list of descriptors in one operation */
#define HAWSER_INLINE_MAX   4096   /* most bytes of hawser_vec.data in all of an operation */

typedef struct hawser hawser;           /* a context: threads, listener, peers, memory */
typedef struct hawser_peer hawser_peer; /* the other end */
typedef struct hawser_mem hawser_mem;   /* registered memory */
typedef struct hawser_op hawser_op;     /* an operation under way */

enum hawser_log_level { HAWSER_LOG_ERROR = 0, HAWSER_LOG_WARN = 1, HAWSER_LOG_INFO = 2, HAWSER_LOG_DEBUG = 3 };

/* Called with one finished line, without a newline. From any thread; must not call into hawser. */
typedef void (*hawser_log_fn)(void *arg, int level, const char *line);

/* flags of struct hawser_options */
#define HAWSER_CALLER_PROGRESS 1u /* no threads: the caller drives by hawser_progress() and hawser_wait() */
#define HAWSER_INSECURE        2u /* without a key, talk to any address and not only to loopback and lab ones */
#define HAWSER_EVENTS          4u /* peers that arrive or die, and notifications, are completions, see hawser_poll() */
/* Memory is sent by reference where that pays (knob splice): faster. A write or a send that is called off while it is
 * under way ends once the peer has said what became of it, or, after a second without that, with the connections that
 * may read it. A peer that lies about what it has read, or on the same host stands still for longer, may see bytes that
 * were written after an operation's end. For both ends within one domain of trust. */
#define HAWSER_TRUSTED 8u

struct hawser_options {
    size_t size;              /* sizeof(struct hawser_options): lets old programs meet new libraries */
    uint32_t flags;           /* HAWSER_CALLER_PROGRESS, HAWSER_INSECURE, HAWSER_EVENTS, HAWSER_TRUSTED */
    hawser_log_fn log;        /* NULL: silence */
    void *log_arg;            /* handed to log */
    const void *key;          /* job key that both sides must hold; NULL: none. Copied. */
    size_t key_len;           /* 16 to 4096 bytes */
    const char *const *knobs; /* "name=value" strings, NULL-terminated, over HAWSER_* environment; or NULL */
};

/* Makes a context. opts may be NULL. *out is the caller's, to free by hawser_close().
 * -EINVAL bad option or knob (the text names it), -ENOMEM, -EMFILE. */
HAWSER_API int hawser_open(const struct hawser_options *opts, hawser **out);

/* Closes every peer, fails what is pending with -ESHUTDOWN, joins all threads, frees everything:
 * all peers and memory of the context too, so that their handles are dead. Operations are not freed:
 * free each by hawser_op_free() before or after. NULL is allowed. */
HAWSER_API void hawser_close(hawser *h);

/* The calling thread's last error line; never NULL; valid until its next failing hawser call. */
HAWSER_API const char *hawser_error(void);

/* "1.0.0" */
HAWSER_API const char *hawser_version(void);

/* ---- progress ------------------------------------------------------------------------------- */

/* Does the work that is ready, waiting up to timeout_ms for some. Needed only with
 * HAWSER_CALLER_PROGRESS (harmless otherwise). Returns 0, or -EAGAIN where nothing happened. */
HAWSER_API int hawser_progress(hawser *h, int timeout_ms);

/* Returns a descriptor to poll(2) for reading, or -errno; the context owns it. With library threads it becomes readable
 * when an operation ends, a notification or a peer arrives, or a peer dies: read 8 bytes to clear it, then take the
 * completions, or test what you wait for. With HAWSER_CALLER_PROGRESS it is readable when hawser_progress() has work;
 * do not read it. */
HAWSER_API int hawser_eventfd(hawser *h);

/* ---- completions ---------------------------------------------------------------------------- */

enum hawser_event {
    HAWSER_ENDED = 1,     /* an operation that was started without a handle has ended */
    HAWSER_CONNECTED = 2, /* hawser_connect_start() is over; where result is not 0, close the peer */
    HAWSER_ARRIVED = 3,   /* a peer has connected: as hawser_accept() gives it (HAWSER_EVENTS) */
    HAWSER_DIED = 4,      /* a peer died; close it (HAWSER_EVENTS) */
    HAWSER_NOTIFIED = 5,  /* a notification of the peer's (HAWSER_EVENTS) */
};

struct hawser_completion {
    uint32_t event;    /* enum hawser_event */
    int32_t result;    /* 0 or -errno, as the errors at the top */
    uint64_t user;     /* ENDED, CONNECTED: what the caller gave */
    uint64_t length;   /* ENDED: bytes of the operation, of a receive: of its message; NOTIFIED: bytes at data */
    hawser_peer *peer; /* whose it is */
    void *data;        /* NOTIFIED: the bytes; the caller's, to free by hawser_data_free() */
};

/* Fills out with up to n completions, oldest first; does the work that is ready if there are none, as hawser_test().
 * Returns how many, 0 too. Completions of one peer's operations come in the order in which these ended. */
HAWSER_API int hawser_poll(hawser *h, struct hawser_completion *out, int n);

/* As hawser_poll(), but waits up to timeout_ms (-1: without end) for the first one. */
HAWSER_API int hawser_poll_wait(hawser *h, struct hawser_completion *out, int n, int timeout_ms);

/* Frees a notification's bytes. NULL is allowed. */
HAWSER_API void hawser_data_free(void *data);

/* ---- peers ---------------------------------------------------------------------------------- */

/* Listens on one TCP port for everything. addr: a numeric address, or NULL for all. port 0 picks one.
 * *bound (may be NULL) receives the port. One listener a context: -EBUSY for a second.
 * -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL. */
HAWSER_API int hawser_listen(hawser *h, const char *addr, uint16_t port, uint16_t *bound);

/* Takes the next peer that has connected. -EAGAIN when none came within timeout_ms. */
HAWSER_API int hawser_accept(hawser *h, int timeout_ms, hawser_peer **out);

/* No path to another address of the peer than the one that is connected to, if a route leads to that from nics. */
#define HAWSER_ONLY_DIALLED 1u

struct hawser_connect_options {
    size_t size;           /* sizeof */
    const char *nics;      /* "eth1,eth2": the local NICs to use; NULL or "": knob nics, by default all */
    const char *peer_nics; /* the peer's; with nics these are pairs, the k-th of the one with the k-th of the other */
    uint32_t channels;     /* data connections per NIC; 0: the knob's value */
    uint32_t flags;        /* HAWSER_ONLY_DIALLED, or 0 */
    const void *key;       /* the peer's job key, where it is not the context's own; NULL: the context's. Copied. */
    size_t key_len;        /* 16 to 4096 bytes */
    uint32_t gpu;          /* HAWSER_GPU(n): these connections carry memory of this process's CUDA device n. A transport
                            * that lands data in one GPU's memory lands it in that one's. 0: not said. */
    uint32_t peer_gpu;     /* the same of the peer's */
    const char *prefer;    /* "eth1,eth2": of the local NICs those that are to carry; the others (eight of them at most)
                            * are connected while none of these works. NULL or "", or none has a path: all carry. */
};
#define HAWSER_GPU(n) ((uint32_t)(n) + 1)

/* Connects to a listening context. host: name or numeric address; opts may be NULL. NICs are joined by routes, by the
 * map of rails (knob rails) or by the pairs that opts names, after each pair was seen to lead to the peer; a pair that
 * does not answer is waited for no longer than knob path_ms. Returns once at least one channel on each
 * pair that works stands; where timeout_ms passes first, with what there is, if that is one channel at
 * least. -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH (no such name, no route), -EACCES (key), -EPERM (no key, and an
 * address that is neither loopback nor a lab's), -ENODEV (unknown NIC, also in prefer; fewer pairs than knob
 * require_nics), -E2BIG (more than 256 channels in all), -EPROTO (not hawser, or another version). What a transport is
 * known to sleep while it makes a connection (GPUDirect-TCPX: 5 s) comes on top of timeout_ms. */
HAWSER_API int hawser_connect(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                              int timeout_ms, hawser_peer **out);

/* Starts hawser_connect() and returns; a completion HAWSER_CONNECTED with this user value tells how that ended. *out is
 * the caller's at once, to close and to see in completions, and for nothing else before that. -EINVAL, -ENOMEM,
 * -EAGAIN: no thread could be started. */
HAWSER_API int hawser_connect_start(hawser *h, const char *host, uint16_t port,
                                    const struct hawser_connect_options *opts, int timeout_ms, uint64_t user,
                                    hawser_peer **out);

/* 0 while the peer lives; else the -errno it died of, the text in hawser_error(). */
HAWSER_API int hawser_peer_state(hawser_peer *p);

/* "198.18.0.2:20000", valid as long as the peer. */
HAWSER_API const char *hawser_peer_name(hawser_peer *p);

/* Attaches a pointer of the caller's to the peer / gives it back (NULL at first). */
HAWSER_API void hawser_peer_set_user(hawser_peer *p, void *user);
HAWSER_API void *hawser_peer_user(hawser_peer *p);

/* Tells the peer, fails pending operations with -ESHUTDOWN, frees the handle. NULL is allowed. */
HAWSER_API void hawser_peer_close(hawser_peer *p);

/* ---- memory --------------------------------------------------------------------------------- */

enum hawser_mem_kind { HAWSER_MEM_HOST = 0, HAWSER_MEM_CUDA = 1 };

/* Registers [ptr, ptr+len) once per context. The memory stays the caller's and must outlive the registration, its CUDA
 * context too. HAWSER_MEM_CUDA: a device pointer of any GPU and context (or pinned host memory: then as host memory).
 * -EINVAL NULL, an overflowing range, a pointer that is not CUDA's, is managed, or not all of it one GPU's memory;
 * -ENODEV no driver, no GPU; -EOPNOTSUPP another kind. */
HAWSER_API int hawser_mem_register(hawser *h, enum hawser_mem_kind kind, void *ptr, size_t len, hawser_mem **out);

/* Allocates len bytes, aligned to pages, and registers them: of the GPU `device` as the driver counts them
 * (HAWSER_MEM_CUDA, in its primary context), or of the host (device -1). Freed by hawser_mem_deregister(). -ENOMEM;
 * -ENODEV there is no such GPU; as hawser_mem_register(). */
HAWSER_API int hawser_mem_alloc(hawser *h, enum hawser_mem_kind kind, int device, size_t len, hawser_mem **out);

/* Its address: the GPU's where it is GPU memory. */
HAWSER_API void *hawser_mem_ptr(hawser_mem *m);

/* Copy len bytes from or to memory of any kind, done on return; for set-up and checks, not for speed. -EFAULT outside
 * of it, -EIO the GPU failed. */
HAWSER_API int hawser_mem_load(hawser_mem *m, uint64_t offset, void *buf, size_t len);
HAWSER_API int hawser_mem_store(hawser_mem *m, uint64_t offset, const void *buf, size_t len);

/* Revokes its exports, then forgets it. -EBUSY while own operations use it. NULL is allowed. */
HAWSER_API int hawser_mem_deregister(hawser_mem *m);

#define HAWSER_REMOTE_READ  1u
#define HAWSER_REMOTE_WRITE 2u

/* Lets a peer (or, with NULL, any peer of this context that shows the key) read and/or write
 * [offset, offset+len) of m. Fills key, which the application carries to the other side by any means.
 * -EFAULT outside m, -EINVAL no or unknown rights. */
HAWSER_API int hawser_export(hawser_mem *m, uint64_t offset, uint64_t len, uint32_t rights, hawser_peer *peer,
                             uint8_t key[HAWSER_KEY_SIZE]);

/* Takes an export back: once it returns, no byte of a peer lands in or leaves the region. -ESTALE if unknown. */
HAWSER_API int hawser_revoke(hawser *h, const uint8_t key[HAWSER_KEY_SIZE]);

/* A region of a peer's, as imported. Plain data: copy it freely, it holds nothing. */
struct hawser_region {
    uint64_t id, secret;
    uint64_t length; /* bytes */
    uint32_t rights; /* HAWSER_REMOTE_* */
    uint32_t reserved;
};

/* Reads a key. -EINVAL where it is not one. */
HAWSER_API int hawser_import(const uint8_t key[HAWSER_KEY_SIZE], struct hawser_region *out);

/* ---- operations ----------------------------------------------------------------------------- */

struct hawser_vec {
    hawser_mem *mem;                    /* local memory (may be NULL when length is 0, or with data) */
    uint64_t offset;                    /* in mem; 0 with data */
    uint64_t length;                    /* bytes, 0 allowed */
    const struct hawser_region *region; /* write and read: the peer's region */
    uint64_t remote_offset;             /* write and read: offset in it */
    const void *data;                   /* in place of mem: bytes that are copied before the call returns; write and
                                         * send only; up to HAWSER_INLINE_MAX in all of an operation; NULL: none */
};

struct hawser_op_options {
    size_t size;        /* sizeof */
    int timeout_ms;     /* the operation's deadline; 0: knob op_timeout_ms, of a receive none; -1: none */
    const void *notify; /* write: delivered to the peer's application once all data is in place. Copied. */
    size_t notify_len;  /* up to HAWSER_NOTIFY_MAX; with notify NULL: none */
    uint32_t stream;    /* send, recv: which stream of messages it belongs to; 0: the peer's own one */
    uint32_t tag;       /* send, recv: messages of one stream and tag meet in order, and no others do */
    uint64_t user;      /* given back with the completion of an operation that has no handle */
};

/* Starts moving the n descriptors to (write) or from (read) the peer's regions, as one operation.
 * Registered memory is the library's until the operation ends; the bytes at hawser_vec.data are copied, and the
 * caller's again on return. opts may be NULL. *op is the caller's, to free by hawser_op_free(); with op NULL the
 * operation's end is a completion (hawser_poll()). Two operations have no order between them. A write ends when the
 * peer has confirmed that every byte is in place.
 * At once: -EINVAL (data together with mem or an offset, or in a read, too), -EFAULT (outside mem or region), -EACCES
 * (rights), -EAGAIN (too many pending), -E2BIG (n above HAWSER_MAX_VECS, or data above HAWSER_INLINE_MAX), -ENOMEM, or
 * what the peer died of. Later, from test or wait: the errors at the top. */
HAWSER_API int hawser_write(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                            const struct hawser_op_options *opts, hawser_op **op);
HAWSER_API int hawser_read(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);

/* Two-sided: the k-th send of a stream and tag meets the k-th receive of the same stream and tag at the other end, both
 * gathered from or scattered to their descriptors (region fields ignored). A send ends when its message is in the
 * receiver's memory. A receive may be longer than its message, see hawser_op_length(); one that is too short fails on
 * both sides with -EMSGSIZE and consumes the message. A message that does not fit into what the receiver keeps for
 * messages without a receive (1 MiB a peer, messages of up to 8 KiB in host memory) waits for its receive. */
HAWSER_API int hawser_send(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);
HAWSER_API int hawser_recv(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);

/* Streams: both sides choose the numbers, above 0, by agreement; a stream exists from its first use. A peer carries up
 * to 65536 pairs of stream and tag with something under way.
 * hawser_stream_close() ends this side's use of a stream, all its tags: what is pending here ends with -ECANCELED (wait
 * for it before its memory is used again), what is pending or posted later at the other end fails with -ESHUTDOWN once
 * all that was sent before has arrived. The number must not be used again with this peer. -EINVAL for 0. */
HAWSER_API int hawser_stream_close(hawser_peer *p, uint32_t stream);

/* Delivers len bytes (up to HAWSER_NOTIFY_MAX) to the peer's application. Notifications come in the order in which they
 * were started. Ends when they are with the peer; while 1 MiB of notifications waits there to be taken, later ones wait
 * here. Likewise a write's notification. */
HAWSER_API int hawser_notify(hawser_peer *p, const void *data, size_t len, const struct hawser_op_options *opts,
                             hawser_op **op);

enum hawser_kind { HAWSER_WRITE = 1, HAWSER_READ = 2, HAWSER_SEND = 3, HAWSER_RECV = 4, HAWSER_NOTIFY = 5 };

/* One operation that hawser_submit() starts: the arguments of the function of that name. */
struct hawser_request {
    uint32_t kind;                 /* enum hawser_kind */
    uint32_t flags;                /* 0 */
    const struct hawser_vec *vecs; /* n_vecs of them; notify: NULL */
    size_t n_vecs;
    const void *data; /* notify: len bytes, which are copied; all others: NULL, as their bytes are in vecs */
    size_t len;
    const struct hawser_op_options *opts; /* or NULL */
    hawser_op **op;                       /* receives the handle; NULL: the operation's end is a completion */
};

/* Starts the n operations of reqs in their order, as hawser_write(), .., hawser_notify() would one after the other,
 * with one visit to the peer's loop: what several small ones have to send goes to the kernel together. The list is not
 * kept. Stops at the first one that fails at once, and returns its error; those in front of it go on, and it and those
 * behind it have no handle (*op NULL). *started (may be NULL) receives how many were started: n where 0 is returned.
 * -EINVAL also: an unknown kind, flags, data and len of another than a notification, vecs of a notification. */
HAWSER_API int hawser_submit(hawser_peer *p, const struct hawser_request *reqs, size_t n, size_t *started);

/* Takes the oldest notification of p: copies up to cap bytes to buf, its true length to *len.
 * -EAGAIN when there is none; -EMSGSIZE (and it stays) when cap is too small. */
HAWSER_API int hawser_notification(hawser_peer *p, void *buf, size_t cap, size_t *len);

/* 0: ended well; -EAGAIN, without an error text: still under way; else why it failed. Never blocks, and does the work
 * that is ready for the operation's peer where nobody else is at it, so that what arrives needs no thread to wake. */
HAWSER_API int hawser_test(hawser_op *op);

/* As test, but waits up to timeout_ms (-1: until it ends, which its own deadline bounds). */
HAWSER_API int hawser_wait(hawser_op *op, int timeout_ms);

/* Asks for the end: the operation ends soon with -ECANCELED (or as it ended already). Wait for it before the
 * memory is used again. Bytes of a write may have landed at the peer; none lands over what is written
 * there afterwards. */
HAWSER_API int hawser_cancel(hawser_op *op);

/* Bytes confirmed (write, send) or arrived (read, recv) so far. */
HAWSER_API uint64_t hawser_op_bytes(const hawser_op *op);

/* Length of the message that a receive matched; of any other operation the sum of its descriptors. */
HAWSER_API uint64_t hawser_op_length(const hawser_op *op);

/* Frees the handle; one still under way is cancelled and waited for first. NULL is allowed. */
HAWSER_API void hawser_op_free(hawser_op *op);

/* ---- statistics ----------------------------------------------------------------------------- */

struct hawser_channel_stats {
    char nic[HAWSER_NIC_NAME];                              /* local NIC */
    char peer_nic[HAWSER_NIC_NAME];                         /* the peer's */
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT]; /* "address:port"; "" until it first was up */
    uint32_t index;                                         /* of the channel within its peer */
    uint32_t up;                                            /* 1: connected now */
    uint32_t lost;                                          /* times it died */
    uint32_t suspect;  /* 1: the peer's kernel has not acknowledged anything for a while; it is given nothing new */
    uint64_t tx_bytes; /* payload confirmed by the peer */
    uint64_t rx_bytes; /* payload that arrived whole */
    uint64_t tx_chunks, rx_chunks;
    uint64_t retaken_chunks; /* chunks of this channel that others had to take up when it died */
    uint64_t retaken_bytes;  /* their payload: these bytes are sent again */
    /* Transports devmem and netplugin, payload: put into device memory by the NIC or the plugin; copied by this
     * process, where it might have been; taken from device memory by the NIC or the plugin. */
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes;
};

struct hawser_nic_stats {
    char nic[HAWSER_NIC_NAME];
    uint32_t channels, channels_up, lost; /* lost: deaths of channels so far */
    uint32_t suspect;                     /* channels that are */
    uint64_t tx_bytes, rx_bytes;
    uint64_t retaken_bytes;
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes;
};

/* Fill up to *n entries, set *n to the number there are. */
HAWSER_API int hawser_channel_stats(hawser_peer *p, struct hawser_channel_stats *out, size_t *n);
HAWSER_API int hawser_nic_stats(hawser_peer *p, struct hawser_nic_stats *out, size_t *n);

enum hawser_path_state {
    HAWSER_PATH_USED = 1,
    HAWSER_PATH_AWAITED = 2, /* it did not answer in time; its channels are tried on, and it is used once they stand */
    HAWSER_PATH_UNUSED = 3,
    HAWSER_PATH_SPARE = 4, /* it was shown to work, and is used while no preferred NIC works */
};

struct hawser_path {
    char nic[HAWSER_NIC_NAME];      /* local; "" for a NIC of the peer's that is not used */
    char peer_nic[HAWSER_NIC_NAME]; /* the peer's, by where the bytes come in there; "" for a local one not used */
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT]; /* addresses, "" where not known */
    uint32_t state;                                         /* enum hawser_path_state */
    uint32_t channels, channels_up;
    uint32_t reserved;
    char why[120]; /* why it is not used; "" where it is */
};

/* The NICs that join the two nodes, then those that do not, with the reason. On the side that accepted: those that its
 * channels came in by. Fills up to *n entries, sets *n to the number there are. 0. */
HAWSER_API int hawser_paths(hawser_peer *p, struct hawser_path *out, size_t *n);

/* ---- knobs ---------------------------------------------------------------------------------- */

/* Calls fn for each knob of the one table: name ("window"), environment variable ("HAWSER_WINDOW"), default as
 * text, unit ("bytes"), one-line documentation. */
HAWSER_API void hawser_knobs(void (*fn)(void *arg, const char *name, const char *env, const char *def, const char *unit,
                                        const char *doc),
                             void *arg);

#ifdef __cplusplus
}
#endif
#endif
