/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hawser.h - the public API of libhawser: verified transfers between the memory of two machines over many TCP
 * connections and NICs.
 *
 * The following holds for every function unless its comment says otherwise:
 *  - Returns 0 on success or a negative errno on failure. After a failure, hawser_error() returns one line that
 *    describes the calling thread's last failure.
 *  - Sizes and offsets are in bytes. Timeouts are in milliseconds, and a timeout of 0 means that the function does not
 *    block.
 *  - Any thread may call any function. A handle must not be used after, or concurrently with, the call that frees the
 *    handle.
 *  - The library never prints, never exits and never installs signal handlers. Every file descriptor is opened with
 *    O_CLOEXEC.
 *
 * Errors with a fixed meaning:
 *   -EAGAIN       the call would block, a wait timed out, or a temporary limit was reached; nothing was lost
 *   -ETIMEDOUT    a deadline has passed, and the operation or the connection has failed
 *   -ECONNRESET   the peer died, or every path to the peer failed
 *   -ESHUTDOWN    the peer or this side closed the connection or the stream
 *   -EPROTO       the peer sent data that the protocol does not allow
 *   -EACCES       the key is wrong, or the rights of a region do not allow the operation
 *   -EFAULT       the range is outside a region or registered memory
 *   -ESTALE       the region was revoked or never existed
 *   -EMSGSIZE     the message is longer than the receive, or the notification is longer than the buffer
 *   -ECANCELED    this side or the peer cancelled the operation
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
#define HAWSER_KEY_SIZE     64     /* size of a remote key in bytes, see hawser_export() */
#define HAWSER_NOTIFY_MAX   262144 /* maximum size of a notification in bytes */
#define HAWSER_NIC_NAME     16     /* size of a NIC's name with the final NUL, equal to the kernel's IFNAMSIZ */
#define HAWSER_ADDR_TEXT    48     /* size of an address as text, such as "198.18.0.1:20000" or "[fe80::1]:20000" */
#define HAWSER_MAX_VECS     65536  /* maximum number of descriptors in one operation */
/* Maximum number of bytes at hawser_vec.data in one operation, over all its descriptors. */
#define HAWSER_INLINE_MAX 4096

typedef struct hawser hawser;           /* a context: threads, listener, peers and registered memory */
typedef struct hawser_peer hawser_peer; /* the remote end of a session */
typedef struct hawser_mem hawser_mem;   /* registered memory */
typedef struct hawser_op hawser_op;     /* an operation that the application started */

enum hawser_log_level { HAWSER_LOG_ERROR = 0, HAWSER_LOG_WARN = 1, HAWSER_LOG_INFO = 2, HAWSER_LOG_DEBUG = 3 };

/* Receives one log line, without a newline. The library calls the function on any thread. The function must not call
 * functions of this library. */
typedef void (*hawser_log_fn)(void *arg, int level, const char *line);

/* Flags of struct hawser_options. */
/* The library starts no progress threads. Its work is done in calls such as hawser_progress() and hawser_wait(), and by
 * the thread of hawser_connect_start(). */
#define HAWSER_CALLER_PROGRESS 1u
#define HAWSER_INSECURE        2u /* Without a key, allows any address, not only loopback and lab addresses. */
#define HAWSER_EVENTS          4u /* hawser_poll() also reports notifications and peers that connect or die. */
/* Sends memory by reference where this is faster (knob splice). A cancelled write or send ends once the peer has
 * reported whether it received the data. If the peer does not report within a second, the library closes the
 * connections to the peer and makes new ones. A peer that reports falsely, or that stalls for more than a second on
 * the same host, may see bytes that the application wrote after the operation ended. Set this flag only if both sides
 * belong to one trust domain. */
#define HAWSER_TRUSTED 8u

struct hawser_options {
    size_t size;       /* sizeof(struct hawser_options), so that old programs can run with newer libraries */
    uint32_t flags;    /* any of HAWSER_CALLER_PROGRESS, HAWSER_INSECURE, HAWSER_EVENTS and HAWSER_TRUSTED */
    hawser_log_fn log; /* receives log lines; NULL disables logging */
    void *log_arg;     /* passed to log as its first argument */
    const void *key;   /* job key that both sides must have, or NULL for no key; the library copies the key */
    size_t key_len;    /* length of key in bytes, 16 to 4096 */
    /* NULL-terminated array of "name=value" strings that override the HAWSER_* environment variables, or NULL. */
    const char *const *knobs;
};

/* Creates a context. opts may be NULL. The caller owns *out and frees the context with hawser_close(). Fails with
 * -EINVAL for a bad option or knob, which the error text names, or with another negative errno such as -ENOMEM or
 * -EMFILE. */
HAWSER_API int hawser_open(const struct hawser_options *opts, hawser **out);

/* Closes every peer, fails pending operations with -ESHUTDOWN, joins the progress threads, and frees the context with
 * its peers and registrations. The handles of these peers and registrations become invalid. This function frees only
 * operations without a handle. Free each other operation with hawser_op_free(), before or after this call. h may be
 * NULL. */
HAWSER_API void hawser_close(hawser *h);

/* Returns the calling thread's last error line, never NULL. The string is valid until this thread's next hawser
 * call. */
HAWSER_API const char *hawser_error(void);

/* Returns the library's version, such as "1.0.0". */
HAWSER_API const char *hawser_version(void);

/* ---- progress ------------------------------------------------------------------------------- */

/* With HAWSER_CALLER_PROGRESS, waits up to timeout_ms for work and does the work. Returns 0, or -EAGAIN (without an
 * error text) if there was no work. Without the flag, does nothing and returns -EAGAIN. */
HAWSER_API int hawser_progress(hawser *h, int timeout_ms);

/* Returns a file descriptor to poll for reading with poll(2). The context owns the file descriptor.
 *
 * If the library runs its own threads, the file descriptor becomes readable when an operation ends, a notification
 * arrives, or a peer connects or dies, also before the first call of this function. Read 8 bytes to clear the file
 * descriptor, then take the completions or test the operations. There may be none. With HAWSER_CALLER_PROGRESS, the
 * file descriptor is readable when hawser_progress() has work. Do not read from the file descriptor in this case. */
HAWSER_API int hawser_eventfd(hawser *h);

/* ---- completions ---------------------------------------------------------------------------- */

enum hawser_event {
    HAWSER_ENDED = 1,     /* an operation that was started without a handle has ended */
    HAWSER_CONNECTED = 2, /* hawser_connect_start() has finished; if the result is not 0, close the peer */
    HAWSER_ARRIVED = 3,   /* a peer has connected, as hawser_accept() would return it (HAWSER_EVENTS) */
    HAWSER_DIED = 4,      /* a peer has died; close the peer (HAWSER_EVENTS) */
    HAWSER_NOTIFIED = 5,  /* a peer has sent a notification (HAWSER_EVENTS) */
};

struct hawser_completion {
    uint32_t event;    /* enum hawser_event */
    int32_t result;    /* 0 or a negative errno */
    uint64_t user;     /* ENDED, CONNECTED: the value that the caller passed as user */
    uint64_t length;   /* ENDED: result of hawser_op_length(); NOTIFIED: number of bytes at data */
    hawser_peer *peer; /* the peer that the event belongs to */
    void *data;        /* NOTIFIED: the notification's bytes, which the caller frees with hawser_data_free() */
};

/* Fills out with up to n completions. If no completion is available, first does the work that is ready, as
 * hawser_test() does. Returns the number of completions, which may be 0, or -EINVAL if n is below 1. The completions
 * of one peer's operations are in the order in which the operations ended. The completions of two operations that end
 * at nearly the same time on different threads may be in either order. The notifications of a peer are in the order of
 * their arrival, after CONNECTED or ARRIVED and before DIED. */
HAWSER_API int hawser_poll(hawser *h, struct hawser_completion *out, int n);

/* Works like hawser_poll(), but waits up to timeout_ms for the first completion. A timeout of -1 means no limit. */
HAWSER_API int hawser_poll_wait(hawser *h, struct hawser_completion *out, int n, int timeout_ms);

/* Frees the bytes of a notification. data may be NULL. */
HAWSER_API void hawser_data_free(void *data);

/* ---- peers ---------------------------------------------------------------------------------- */

/* Listens on one TCP port for all connections. addr is a numeric address, or NULL for all addresses. Port 0 selects a
 * free port. If bound is not NULL, *bound receives the port. Fails with -EBUSY if the context already has a listener,
 * or with another negative errno such as -EADDRINUSE, -EADDRNOTAVAIL or -EINVAL. */
HAWSER_API int hawser_listen(hawser *h, const char *addr, uint16_t port, uint16_t *bound);

/* Returns the next peer that has connected. With HAWSER_EVENTS, hawser_poll() reports these peers instead. Fails with
 * -EAGAIN if no peer connects within timeout_ms, or with the error of a transport that has failed. */
HAWSER_API int hawser_accept(hawser *h, int timeout_ms, hawser_peer **out);

/* Use only the dialled address of the peer if a route from one of the NICs in nics leads to that address. */
#define HAWSER_ONLY_DIALLED 1u

struct hawser_connect_options {
    size_t size; /* sizeof(struct hawser_connect_options) */
    /* Local NICs to use, such as "eth1,eth2". NULL or "" selects the NICs of knob nics, which are all NICs by
     * default. */
    const char *nics;
    /* The peer's NICs. If nics or knob nics is also set, the k-th NIC of that list is paired with the k-th NIC of
     * peer_nics. */
    const char *peer_nics;
    uint32_t channels; /* data connections per pair of NICs, or 0 for the value of knob channels */
    uint32_t flags;    /* HAWSER_ONLY_DIALLED or 0 */
    const void *key;   /* the peer's job key, which the library copies, or NULL for the context's key */
    size_t key_len;    /* length of key in bytes, 16 to 4096 */
    /* HAWSER_GPU(n) if the connections carry memory of this process's CUDA device n, or 0 if not specified. A
     * transport that places data in GPU memory uses the memory of this GPU. */
    uint32_t gpu;
    uint32_t peer_gpu; /* HAWSER_GPU(n) for CUDA device n of the peer's process, or 0 if not specified */
    /* Local NICs that should carry data, such as "eth1,eth2". The library connects other pairs of NICs (at most eight)
     * only while no preferred NIC works. All NICs carry data if this is NULL or "", or if no preferred NIC has a
     * path. */
    const char *prefer;
};
#define HAWSER_GPU(n) ((uint32_t)(n) + 1)

/* Connects to a context that listens. host is a name or a numeric address. opts may be NULL.
 *
 * The library pairs NICs according to the routes, the rail map (knob rails), or the pairs in opts, and probes each pair
 * before use. It waits at most path_ms (a knob) for a pair that does not answer. The function returns at most 200 ms
 * after all working pairs have a channel. If timeout_ms passes first and at least one channel is up, the function
 * succeeds with the channels that are up. If a transport is known to sleep while it opens a connection (GPUDirect-TCPX:
 * 5 s), the function adds this time to timeout_ms.
 *
 * Errors include:
 *   -ECONNREFUSED  no program listens on the port, or the peer has its maximum number of peers (knob max_peers)
 *   -ETIMEDOUT     no channel came up within timeout_ms
 *   -EHOSTUNREACH  the name is unknown, or no path works
 *   -EACCES        the key is wrong
 *   -EPERM         neither a key nor HAWSER_INSECURE is set, and the address is neither a loopback nor a lab address
 *   -ENODEV        a NIC is unknown or cannot be paired, or fewer pairs work than knob require_nics requires
 *   -E2BIG         more than 256 channels in total
 *   -EPROTO        the peer is not hawser, or has another version of the wire protocol
 *   -EPROTONOSUPPORT  the sides use different transports, or have no common version of the session protocol */
HAWSER_API int hawser_connect(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                              int timeout_ms, hawser_peer **out);

/* Starts hawser_connect() and returns at once. A completion HAWSER_CONNECTED with the value user reports the result.
 * The caller owns *out from now on. Before the completion, the caller may only close *out or compare *out with the peer
 * in a completion. Fails with -EINVAL or -ENOMEM, or with -EAGAIN if no thread could be started. */
HAWSER_API int hawser_connect_start(hawser *h, const char *host, uint16_t port,
                                    const struct hawser_connect_options *opts, int timeout_ms, uint64_t user,
                                    hawser_peer **out);

/* Returns 0 while the peer is alive, or else the negative errno that the peer failed with. In the second case,
 * hawser_error() describes the failure. */
HAWSER_API int hawser_peer_state(hawser_peer *p);

/* Returns the peer's address and port, such as "198.18.0.2:20000". The string is valid until the peer is closed. */
HAWSER_API const char *hawser_peer_name(hawser_peer *p);

/* Set and return a pointer that the application attaches to the peer. The pointer is NULL at first. */
HAWSER_API void hawser_peer_set_user(hawser_peer *p, void *user);
HAWSER_API void *hawser_peer_user(hawser_peer *p);

/* Tells a connected peer that the session ends, fails pending operations with -ESHUTDOWN, and frees the handle. An
 * operation of the peer that this side has received completely succeeds at the peer, if the peer answers within a
 * second. p may be NULL. */
HAWSER_API void hawser_peer_close(hawser_peer *p);

/* ---- memory --------------------------------------------------------------------------------- */

enum hawser_mem_kind { HAWSER_MEM_HOST = 0, HAWSER_MEM_CUDA = 1 };

/* Registers [ptr, ptr+len) for the context and all its peers. The caller keeps ownership of the memory. The memory and
 * its CUDA context must outlive the registration.
 *
 * With HAWSER_MEM_CUDA, ptr is a device pointer of any GPU and CUDA context. Pinned host memory is registered as host
 * memory. Fails with -EINVAL for NULL, for a range that overflows, for a pointer that CUDA does not recognize, for
 * managed memory, and for a range that is not entirely in memory of one GPU and CUDA context, with -ENODEV if there is
 * no driver or no GPU, with -EOPNOTSUPP for any other kind, or with another negative errno such as -ENOMEM. */
HAWSER_API int hawser_mem_register(hawser *h, enum hawser_mem_kind kind, void *ptr, size_t len, hawser_mem **out);

/* Allocates len page-aligned bytes and registers them. With HAWSER_MEM_CUDA the memory is on the GPU with CUDA device
 * number `device`, in the primary CUDA context of this GPU. With HAWSER_MEM_HOST the memory is on the host, and device
 * is -1 or 0. hawser_mem_deregister() or hawser_close() frees the memory. Fails with -EINVAL if len is 0, with -ENODEV
 * if the device does not exist, or with another negative errno such as -ENOMEM. */
HAWSER_API int hawser_mem_alloc(hawser *h, enum hawser_mem_kind kind, int device, size_t len, hawser_mem **out);

/* Returns the address of the memory. For GPU memory this is the device address. */
HAWSER_API void *hawser_mem_ptr(hawser_mem *m);

/* Copy len bytes from or to memory of any kind. The copy is complete on return. These functions are for set-up and
 * checks, not for speed. Fail with -EFAULT if the range is outside m, or with another negative errno such as -EIO if
 * the GPU failed. */
HAWSER_API int hawser_mem_load(hawser_mem *m, uint64_t offset, void *buf, size_t len);
HAWSER_API int hawser_mem_store(hawser_mem *m, uint64_t offset, const void *buf, size_t len);

/* Revokes the exports of m, as hawser_revoke() does, and frees the registration. Other threads may be revoking exports
 * of m. Fails with -EBUSY while local operations use m. m may be NULL. */
HAWSER_API int hawser_mem_deregister(hawser_mem *m);

#define HAWSER_REMOTE_READ  1u
#define HAWSER_REMOTE_WRITE 2u

/* Allows a peer to read or write [offset, offset+len) of m. If peer is NULL, any peer of this context that has the
 * remote key is allowed. Fills key with the remote key, which the application sends to the other side by any means.
 * Fails with -EFAULT if the range is outside m, with -EINVAL if rights is 0 or contains unknown bits, or if peer
 * belongs to another context, and with -ENOMEM. */
HAWSER_API int hawser_export(hawser_mem *m, uint64_t offset, uint64_t len, uint32_t rights, hawser_peer *peer,
                             uint8_t key[HAWSER_KEY_SIZE]);

/* Revokes an export. After this function returns 0, the library neither reads nor writes the region for a peer. Fails
 * with -ESTALE if the export is unknown, or if another call has revoked or is revoking it, and with -EINVAL if key is
 * not a remote key. */
HAWSER_API int hawser_revoke(hawser *h, const uint8_t key[HAWSER_KEY_SIZE]);

/* An imported region of a peer. The structure holds no resources and may be copied freely. */
struct hawser_region {
    uint64_t id, secret;
    uint64_t length; /* size of the region in bytes */
    uint32_t rights; /* HAWSER_REMOTE_READ, HAWSER_REMOTE_WRITE, or both */
    uint32_t reserved;
};

/* Decodes a remote key. Fails with -EINVAL if the bytes are not a remote key. */
HAWSER_API int hawser_import(const uint8_t key[HAWSER_KEY_SIZE], struct hawser_region *out);

/* ---- operations ----------------------------------------------------------------------------- */

struct hawser_vec {
    hawser_mem *mem;                    /* local memory; NULL if data is set; may be NULL if length is 0 */
    uint64_t offset;                    /* offset in mem; 0 if data is set */
    uint64_t length;                    /* number of bytes; may be 0 */
    const struct hawser_region *region; /* write and read: the peer's region */
    uint64_t remote_offset;             /* write and read: offset in region */
    /* Write and send only: bytes to send in place of mem, or NULL. The library copies the bytes before the call
     * returns. All descriptors of an operation together may have at most HAWSER_INLINE_MAX such bytes. */
    const void *data;
};

struct hawser_op_options {
    size_t size; /* sizeof(struct hawser_op_options) */
    /* The operation's deadline. 0 means the value of knob op_timeout_ms, or no deadline for a receive. -1 means no
     * deadline. */
    int timeout_ms;
    /* Write only: a notification that the peer's application receives once all data is in the peer's memory, or NULL.
     * The library copies the bytes. */
    const void *notify;
    size_t notify_len; /* length of notify in bytes, up to HAWSER_NOTIFY_MAX; ignored if notify is NULL */
    uint32_t stream;   /* send and receive: the stream of the message; 0 is the peer's default stream */
    uint32_t tag;      /* send and receive: messages match in order within one stream and tag */
    uint64_t user;     /* returned in the completion of an operation that has no handle */
};

/* Start one operation that copies data from the memory of n descriptors to the peer's regions (write), or from these
 * regions to the memory (read). opts may be NULL. The registered memory must not be used until the operation ends. The
 * library copies the bytes at hawser_vec.data, so the caller may reuse their buffer on return.
 *
 * The caller owns *op and frees it with hawser_op_free(). If op is NULL, a completion reports the end of the operation,
 * see hawser_poll(). Operations are not ordered with respect to each other. A write ends when the peer has confirmed
 * that every byte is in its memory.
 *
 * Errors at the start:
 *   -EINVAL        a bad argument, data together with mem or an offset, or data in a read
 *   -EFAULT        a range is outside mem or region
 *   -EACCES        the region's rights do not allow the operation
 *   -EAGAIN        too many operations are pending
 *   -E2BIG         n is above HAWSER_MAX_VECS, the bytes at data exceed HAWSER_INLINE_MAX, or the lengths add up to
 *                  more than 256 GiB (with a notification) or nearly 16 TiB (without)
 *   -ENOMEM        out of memory
 *   other          the error that the peer failed with
 * hawser_test(), hawser_wait() or the completion returns later errors. */
HAWSER_API int hawser_write(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                            const struct hawser_op_options *opts, hawser_op **op);
HAWSER_API int hawser_read(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);

/* Start a send or a receive. The k-th send of a stream and tag matches the k-th receive of the same stream and tag on
 * the other side. Both functions use the descriptors' local memory and ignore the region fields. A send ends when its
 * message is in the receiver's memory.
 *
 * A receive may be longer than its message, see hawser_op_length(). If a receive is too short, the send and the receive
 * fail with -EMSGSIZE, and the message is consumed. A message of up to 8 KiB, in up to 64 descriptors of host memory,
 * may arrive before its receive is posted. The receiver stores up to 1 MiB of such messages for each peer (counting 128
 * bytes of overhead for each message). Other messages wait at the sender. */
HAWSER_API int hawser_send(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);
HAWSER_API int hawser_recv(hawser_peer *p, const struct hawser_vec *vecs, size_t n,
                           const struct hawser_op_options *opts, hawser_op **op);

/* Ends this side's use of a stream, including all its tags. Pending local operations end with -ECANCELED; wait for
 * these operations before you reuse their memory. Operations of the other side that are pending or are started later
 * fail with -ESHUTDOWN once all earlier messages have arrived, or with -ECANCELED for a message that is in flight to a
 * pending receive. The number must not be used again with this peer. Fails with -EINVAL for stream 0, or with another
 * negative errno.
 *
 * The applications on both sides must agree on the numbers of streams, which are above 0. A stream exists from its
 * first use. A peer can have up to 65536 pairs of stream and tag in use at a time. */
HAWSER_API int hawser_stream_close(hawser_peer *p, uint32_t stream);

/* Delivers len bytes (up to HAWSER_NOTIFY_MAX) to the peer's application. Notifications from hawser_notify() arrive in
 * the order of the calls. The notification of a write arrives when the write's data is in place. The operation ends
 * when the peer has received the notification. While the peer's application has 1 MiB of unread notifications (counting
 * 128 bytes of overhead for each), later notifications wait on this side. */
HAWSER_API int hawser_notify(hawser_peer *p, const void *data, size_t len, const struct hawser_op_options *opts,
                             hawser_op **op);

enum hawser_kind { HAWSER_WRITE = 1, HAWSER_READ = 2, HAWSER_SEND = 3, HAWSER_RECV = 4, HAWSER_NOTIFY = 5 };

/* One operation for hawser_submit(): the arguments of the function that kind selects. */
struct hawser_request {
    uint32_t kind;                 /* enum hawser_kind */
    uint32_t flags;                /* must be 0 */
    const struct hawser_vec *vecs; /* n_vecs descriptors; NULL for a notification */
    size_t n_vecs;
    /* Notification: len bytes, which the library copies. Other kinds: NULL, because their inline bytes are in vecs. */
    const void *data;
    size_t len;
    const struct hawser_op_options *opts; /* may be NULL */
    hawser_op **op;                       /* receives the handle; if NULL, a completion reports the end */
};

/* Starts the n operations of reqs in order, as if hawser_write(), hawser_notify() and the other functions were called
 * one after the other. The library passes the data of several small operations to the kernel together, and does not
 * keep the array.
 *
 * Stops at the first operation that fails to start and returns its error. Earlier operations continue. The failed
 * operation and later operations have no handle (*op is NULL). If started is not NULL, *started receives the number of
 * operations that were started, which is n if 0 is returned. Also fails with -EINVAL for an unknown kind, for flags
 * other than 0, for data or len in a request that is not a notification, and for vecs or n_vecs in a notification. */
HAWSER_API int hawser_submit(hawser_peer *p, const struct hawser_request *reqs, size_t n, size_t *started);

/* Takes the oldest notification of p: copies it to buf and sets *len to its length. If there is none, fails with
 * -EAGAIN, or with the peer's error if the peer has died. If cap is below the length, fails with -EMSGSIZE, sets *len,
 * and leaves the notification available. */
HAWSER_API int hawser_notification(hawser_peer *p, void *buf, size_t cap, size_t *len);

/* Returns 0 if the operation succeeded, -EAGAIN while the operation is in flight (without an error text), or the
 * operation's error. Never blocks. If the operation is in flight, first does the work that is ready for its peer,
 * unless another thread is doing this work or is expected to do it. */
HAWSER_API int hawser_test(hawser_op *op);

/* Works like hawser_test(), but waits up to timeout_ms for the operation to end, and sets an error text when returning
 * -EAGAIN. A timeout of -1 means no limit. */
HAWSER_API int hawser_wait(hawser_op *op, int timeout_ms);

/* Requests cancellation. The operation soon ends with -ECANCELED, or with the result that was already known. Wait for
 * the operation to end before you reuse its memory. Bytes of a write may have reached the peer, or may still reach a
 * peer that answers slowly, but never overwrite the data of later writes. A send or receive that is cancelled before it
 * is matched does not count: the next one of its stream and tag is matched in its place. To cancel several, begin with
 * the newest. */
HAWSER_API int hawser_cancel(hawser_op *op);

/* Returns the number of bytes that were confirmed (write, send) or have arrived (read, counted in parts of up to
 * 64 MiB) so far. For a receive, returns the length of the message, or 0 until the receive has succeeded. After a
 * failure of any other operation, the number has no meaning. */
HAWSER_API uint64_t hawser_op_bytes(const hawser_op *op);

/* Returns the length of the message for a receive that has succeeded. Otherwise returns the sum of the descriptors'
 * lengths. */
HAWSER_API uint64_t hawser_op_length(const hawser_op *op);

/* Frees the handle. If the operation is in flight, first cancels the operation and waits for it. op may be NULL. */
HAWSER_API void hawser_op_free(hawser_op *op);

/* ---- statistics ----------------------------------------------------------------------------- */

struct hawser_channel_stats {
    char nic[HAWSER_NIC_NAME];                              /* name of the local NIC */
    char peer_nic[HAWSER_NIC_NAME];                         /* name of the peer's NIC */
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT]; /* "address:port"; "" until the channel is first up */
    uint32_t index;                                         /* number of the channel within its peer */
    uint32_t up;                                            /* 1 if the channel is connected */
    uint32_t lost;                                          /* number of times the channel died */
    /* 1 if the peer's kernel has not acknowledged data for a while. A suspect channel gets no new work. */
    uint32_t suspect;
    uint64_t tx_bytes; /* payload bytes that the peer has confirmed; small operations (up to 8 KiB) are not counted */
    uint64_t rx_bytes; /* payload bytes that have arrived completely; small operations are not counted */
    uint64_t tx_chunks, rx_chunks;
    /* frames, including control messages, that had to be sent again because this channel died, and their payload */
    uint64_t retaken_chunks, retaken_bytes;
    /* Transports devmem and netplugin: payload bytes that the NIC or the plugin placed in device memory, payload bytes
     * that this process copied although the transport could have placed them, and payload bytes that the NIC or the
     * plugin read from device memory. */
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes;
};

struct hawser_nic_stats {
    char nic[HAWSER_NIC_NAME];
    uint32_t channels, channels_up, lost; /* lost: number of times a channel died */
    uint32_t suspect;                     /* number of channels that are suspect */
    uint64_t tx_bytes, rx_bytes;          /* including small operations and notifications */
    uint64_t retaken_bytes;
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes;
};

/* Fill out with up to *n entries and set *n to the number of entries that exist. The NICs are ordered by name, eth2
 * before eth10. The order of the channels differs between peers. */
HAWSER_API int hawser_channel_stats(hawser_peer *p, struct hawser_channel_stats *out, size_t *n);
HAWSER_API int hawser_nic_stats(hawser_peer *p, struct hawser_nic_stats *out, size_t *n);

enum hawser_path_state {
    HAWSER_PATH_USED = 1,
    HAWSER_PATH_AWAITED = 2, /* has not answered in time; the library keeps trying and uses the path once it works */
    HAWSER_PATH_UNUSED = 3,
    HAWSER_PATH_SPARE = 4, /* works, and is used only while no preferred NIC works */
};

struct hawser_path {
    char nic[HAWSER_NIC_NAME];      /* local NIC, or "" for an unused NIC of the peer */
    char peer_nic[HAWSER_NIC_NAME]; /* the peer's NIC that receives the bytes, or "" for an unused local NIC */
    char local[HAWSER_ADDR_TEXT], remote[HAWSER_ADDR_TEXT]; /* addresses, or "" if unknown */
    uint32_t state;                                         /* enum hawser_path_state */
    uint32_t channels, channels_up;
    uint32_t reserved;
    char why[120]; /* why the path carries no data, or "" if its state is HAWSER_PATH_USED */
};

/* Lists the pairs of NICs that connect the two nodes, then the unused NICs with the reasons. On the side that accepted
 * the connection, lists only the local NICs of the channels. Fills up to *n entries, sets *n to the number of entries
 * that exist, and returns 0. */
HAWSER_API int hawser_paths(hawser_peer *p, struct hawser_path *out, size_t *n);

/* ---- knobs ---------------------------------------------------------------------------------- */

/* Calls fn for each knob with its name ("window"), environment variable ("HAWSER_WINDOW"), default value as text, unit
 * ("bytes") and one line of documentation. */
HAWSER_API void hawser_knobs(void (*fn)(void *arg, const char *name, const char *env, const char *def, const char *unit,
                                        const char *doc),
                             void *arg);

#ifdef __cplusplus
}
#endif
#endif
