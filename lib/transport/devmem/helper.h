/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of hawserd, the small privileged helper that binds a NIC's queues to a dma-buf and steers connections to
 * them, so that this process needs no privilege. Every call blocks, at most for the time given to dm_helper_open();
 * only one thread at a time may use a struct dm_helper.
 *
 * Functions return 0 or -errno with hw_error(), which has the daemon's text if the daemon refused. -EPIPE: the daemon
 * is gone, or the connection is broken (a call that times out, -ETIMEDOUT, breaks it, because a late reply would match
 * no request); all grants are void then, and only dm_helper_close() may be called.
 */
#ifndef HW_DEVMEM_HELPER_H
#define HW_DEVMEM_HELPER_H

#include "wire/helper.h"

struct dm_helper;

struct dm_binding {
    uint32_t id;        /* for dm_helper_steer() and dm_helper_release(); never 0 */
    uint32_t dmabuf_id; /* the kernel's number, in the control messages of receives and sends */
    unsigned nqueues;   /* 0 in a send binding */
    uint32_t page;      /* bytes of each buffer, as requested; 0: the kernel's page size */
    uint32_t queues[HW_HELPER_QUEUES];
};

/* Connects. path NULL: HW_HELPER_SOCKET. -ENOENT, -ECONNREFUSED: no hawserd runs there; -EACCES: the policy or the
 * socket's mode does not admit this user; -EXDEV: it serves another network namespace. The text says what to do.
 * timeout_ms: of this call and of each later one. */
int dm_helper_open(const char *path, int timeout_ms, struct dm_helper **out);

/* Releases every grant: rules first, then bindings, then the queues return to RSS. NULL is allowed. */
void dm_helper_close(struct dm_helper *h);

/* Returns the descriptor for poll(), never to be read: readable or HUP means that the daemon is gone. The daemon sends
 * nothing unasked. */
int dm_helper_fd(const struct dm_helper *h);

/* Binds the dma-buf to nqueues (1 to HW_HELPER_QUEUES) receive queues of the NIC that ordinary traffic does not use;
 * turns header split on if needed. page: the requested bytes of each buffer that the NIC fills, 0 or a power of two; if
 * kernel, driver or memory do not support that size, the kernel's page size is used. The caller keeps the descriptor
 * and may close it at once. -EACCES (policy, NIC), -EDQUOT (a limit of the policy), -EBUSY (no queue is free),
 * -EOPNOTSUPP (kernel or driver), -ENODEV (no such NIC), -EINVAL (the dma-buf: size or alignment). */
int dm_helper_bind_rx(struct dm_helper *h, const char *nic, int dmabuf_fd, unsigned nqueues, uint32_t page,
                      struct dm_binding *out);

/* Binds the dma-buf for sending: out->nqueues is 0. -EOPNOTSUPP on kernels before 6.16 and with drivers that lack
 * netmem_tx. */
int dm_helper_bind_tx(struct dm_helper *h, const char *nic, int dmabuf_fd, struct dm_binding *out);

/*
 * Installs a flow rule for one connection: data that arrives on the connected TCP socket sock goes to the queue of the
 * receive binding that has the fewest rules. The socket proves that the connection is the caller's: hawserd reads both
 * ends from it, so nobody can steer another user's traffic into his own memory. The caller keeps the socket. The rule
 * lives until it or its binding is released; hawserd removes the rule by itself within a second after the connection
 * ends, even if the socket stays open. While the rule lives, the connection's local port cannot be reused if it is an
 * ephemeral port. -ENOTCONN, also if the connection ends meanwhile; -EINVAL (no TCP socket, both ends on one host, a
 * send binding); -EXDEV (another network namespace); -EEXIST (has a rule); -EDQUOT; -ENOSPC (the NIC's table is full).
 */
int dm_helper_steer(struct dm_helper *h, uint32_t binding, int sock, uint32_t *rule, uint32_t *queue);

/* Releases a binding with its rules, or one rule. -ENOENT: this client has no such object, or the rule ended with its
 * connection. */
int dm_helper_release(struct dm_helper *h, uint32_t id);

#endif
