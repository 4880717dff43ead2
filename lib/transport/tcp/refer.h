/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending by reference: vmsplice(2) puts memory into a pipe and splice(2) moves it to a socket, without a copy. The
 * kernel reads the memory until TCP has the acknowledgement, and no call reports that moment. So do not send this way
 * unless the peer is trusted not to acknowledge, or confirm, data that it has not read.
 */
#ifndef HW_TCP_REFER_H
#define HW_TCP_REFER_H

#include "base/base.h"

#include <sys/uio.h>

#define HW_REFER_MIN (16u << 10) /* bytes: below this a copy is cheaper than two more system calls */

struct hw_refer {
    int pipe[2];
    uint32_t held; /* bytes in the pipe */
    bool off;      /* does not work here: copy */
};

void hw_refer_init(struct hw_refer *r);
void hw_refer_free(struct hw_refer *r);
/* Puts memory into the pipe. Returns bytes, or -EAGAIN; 0: copy it, now and from now on (r->off), because there is no
 * descriptor, no large pipe, or the memory cannot be referenced. */
int64_t hw_refer_fill(struct hw_refer *r, const struct iovec *iov, size_t n);
/* Moves bytes from the pipe to the socket fd. more: further bytes follow at once. Returns bytes, -EAGAIN, or the send
 * error. Raises no signal. */
int64_t hw_refer_drain(struct hw_refer *r, int fd, bool more);

#endif
