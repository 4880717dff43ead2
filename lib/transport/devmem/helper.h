/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of hawserd, the small privileged helper that binds a NIC's queues to a dma-buf and steers connections to
 * these queues, so that this process needs no privilege. Every request blocks, at most for the time given to
 * dm_helper_open(). Only one thread at a time may use a struct dm_helper.
 *
 * Functions return 0, or set hw_error() and return a negative errno. The error text is hawserd's own if hawserd refused
 * the request. -EPIPE means that hawserd has exited or the connection is broken. A call that times out (-ETIMEDOUT), an
 * error of the socket and an invalid reply also break the connection. Then all grants are invalid, and further calls
 * fail with -EPIPE.
 */
#ifndef HW_DEVMEM_HELPER_H
#define HW_DEVMEM_HELPER_H

#include "wire/helper.h"

struct dm_helper;

struct dm_binding {
    uint32_t id;        /* for dm_helper_steer() and dm_helper_release(); never 0 */
    uint32_t dmabuf_id; /* the kernel's ID, used in the control messages of receives and sends */
    unsigned nqueues;   /* 0 in a binding for sending */
    uint32_t page;      /* size of each buffer in bytes, as requested, or 0 for the kernel's page size */
    uint32_t queues[HW_HELPER_QUEUES];
};

/* Connects to hawserd. If path is NULL, HW_HELPER_SOCKET is used. timeout_ms limits this call and each later call.
 * Errors include -ENOENT or -ECONNREFUSED (no hawserd runs there), -EACCES (the policy or the socket's mode does not
 * admit this user) and -EXDEV (hawserd serves another network namespace). */
int dm_helper_open(const char *path, int timeout_ms, struct dm_helper **out);

/* Closes the connection. hawserd then releases every grant: first the rules, then the bindings, after which the queues
 * return to RSS. h may be NULL. */
void dm_helper_close(struct dm_helper *h);

/* Returns a descriptor for poll(), which must not be read. POLLIN or POLLHUP means that the connection has ended,
 * because hawserd sends nothing without a request. */
int dm_helper_fd(const struct dm_helper *h);

/* Binds the dma-buf to nqueues (1 to HW_HELPER_QUEUES) receive queues of the NIC, which are removed from RSS if
 * necessary, and turns header split on if needed. page is the requested size of each buffer that the NIC fills, 0 or a
 * power of two. If the kernel, the driver or the memory does not support this size, the kernel's page size is used. The
 * caller keeps the descriptor and may close it after the call. Errors include -EACCES (the policy does not allow this
 * NIC), -EDQUOT (a limit of the policy), -EBUSY (no queue is free), -EOPNOTSUPP (kernel or driver), -ENODEV (unknown
 * NIC) and -EINVAL (size or alignment of the dma-buf). */
int dm_helper_bind_rx(struct dm_helper *h, const char *nic, int dmabuf_fd, unsigned nqueues, uint32_t page,
                      struct dm_binding *out);

/* Binds the dma-buf for sending; out->nqueues is 0. Fails with -EOPNOTSUPP on kernels before 6.16 and with drivers that
 * lack netmem_tx. */
int dm_helper_bind_tx(struct dm_helper *h, const char *nic, int dmabuf_fd, struct dm_binding *out);

/*
 * Installs a flow rule for one connection. Data that arrives on the connected TCP socket sock goes to the queue of the
 * receive binding that has the fewest rules. The socket proves that the connection is the caller's. hawserd reads both
 * ends from the socket, so no user can steer another user's traffic. The caller keeps the socket.
 *
 * The rule exists until the rule or its binding is released. hawserd also removes the rule after the connection has
 * ended, usually within a second, even if the socket stays open. While the rule exists, the connection's local port
 * cannot be reused if it is an ephemeral port.
 *
 * Errors include -ENOTCONN (also if the connection ends during the call), -EINVAL (not a TCP socket, both ends on one
 * host, or a binding for sending), -EXDEV (another network namespace), -EEXIST (the connection has a rule), -EDQUOT (a
 * limit of the policy) and -ENOSPC (the NIC's table is full).
 */
int dm_helper_steer(struct dm_helper *h, uint32_t binding, int sock, uint32_t *rule, uint32_t *queue);

/* Releases a binding with its rules, or one rule. Fails with -ENOENT if this client has no such object, or if the rule
 * ended with its connection. */
int dm_helper_release(struct dm_helper *h, uint32_t id);

#endif
