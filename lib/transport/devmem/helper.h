/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of hawserd, the small privileged helper that binds a NIC's queues to a dma-buf and steers connections to
 * them, so that this process needs no privilege. Every call blocks, for at most the time given at the opening; a
 * struct dm_helper is for one thread at a time.
 *
 * 0 or -errno with hw_error(), which is the daemon's own text where it refused. -EPIPE: the daemon is gone, or the
 * conversation is broken (a call that ran into its deadline, -ETIMEDOUT, breaks it: what comes late belongs to nobody);
 * then nothing that it granted holds any more, and only dm_helper_close() is left to call.
 */
#ifndef HW_DEVMEM_HELPER_H
#define HW_DEVMEM_HELPER_H

#include "wire/helper.h"

struct dm_helper;

struct dm_binding {
    uint32_t id;        /* for dm_helper_steer() and dm_helper_release(); never 0 */
    uint32_t dmabuf_id; /* the kernel's: in receive cmsgs, and in the cmsg of a send */
    unsigned nqueues;   /* 0 for a send binding */
    uint32_t page;      /* bytes of the pieces, as asked for; 0: the kernel's page */
    uint32_t queues[HW_HELPER_QUEUES];
};

/* path NULL: HW_HELPER_SOCKET. -ENOENT, -ECONNREFUSED: no hawserd runs there; -EACCES: it, or the socket's file, does
 * not let this user in; -EXDEV: it serves another network namespace. The text says what to do. timeout_ms: of this
 * and of each later call. */
int dm_helper_open(const char *path, int timeout_ms, struct dm_helper **out);

/* Everything granted goes back: rules first, then bindings, then queues into RSS. NULL is allowed. */
void dm_helper_close(struct dm_helper *h);

/* For poll, never to be read: readable or HUP says that the daemon is gone. It never speaks unasked. */
int dm_helper_fd(const struct dm_helper *h);

/* The dma-buf bound to nqueues (1 to HW_HELPER_QUEUES) receive queues of the NIC that ordinary traffic does not use;
 * header split is turned on where it is off. page: of how many bytes the pieces are to be that the NIC fills, 0 or a
 * power of two; where kernel, driver or memory do not have that they are the kernel's pages. The descriptor stays the
 * caller's and may be closed at once. -EACCES (policy, NIC), -EDQUOT (a limit of the policy), -EBUSY (no queue is
 * free), -EOPNOTSUPP (kernel or driver), -ENODEV (no such NIC), -EINVAL (the dma-buf: size or alignment). */
int dm_helper_bind_rx(struct dm_helper *h, const char *nic, int dmabuf_fd, unsigned nqueues, uint32_t page,
                      struct dm_binding *out);

/* For sending: out->nqueues is 0. -EOPNOTSUPP on kernels before 6.16 and with drivers that lack netmem_tx. */
int dm_helper_bind_tx(struct dm_helper *h, const char *nic, int dmabuf_fd, struct dm_binding *out);

/*
 * A flow rule for one connection: what arrives on the connected TCP socket sock goes to a queue of the receive binding
 * (that with the fewest rules). The socket is the proof that the connection is the caller's: hawserd reads both ends
 * off it, and so nobody steers somebody else's traffic into memory of his own. It stays the caller's. The rule lives
 * until it, or its binding, is released; hawserd removes it by itself when the connection ends, within a second where
 * the socket goes on. As long as it lives, the connection's local port cannot be had anew, if it is one that the kernel
 * gives out by itself. -ENOTCONN, also where the connection ends meanwhile; -EINVAL (no TCP socket, both ends on one
 * host, a send binding); -EXDEV (another network namespace); -EEXIST (has a rule); -EDQUOT; -ENOSPC (the NIC's table is
 * full).
 */
int dm_helper_steer(struct dm_helper *h, uint32_t binding, int sock, uint32_t *rule, uint32_t *queue);

/* A binding, with its rules, or a rule. -ENOENT: no such thing of this client, or a rule that went with its
 * connection. */
int dm_helper_release(struct dm_helper *h, uint32_t id);

#endif
