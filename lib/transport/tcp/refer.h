/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending by reference: vmsplice(2) puts memory into a pipe, and splice(2) moves it to a socket without a copy. The
 * kernel reads the memory until TCP has received the acknowledgement, and no event reports this acknowledgement. Use
 * this method only if the peer is trusted not to acknowledge or confirm data that it has not received.
 */
#ifndef HW_TCP_REFER_H
#define HW_TCP_REFER_H

#include "base/base.h"

#include <sys/uio.h>

#define HW_REFER_MIN (16u << 10) /* bytes; below this size a copy is cheaper than two more system calls */

struct hw_refer {
    int pipe[2];
    uint32_t held; /* bytes in the pipe */
    bool off;      /* data must be copied, because sending by reference is disabled or does not work */
};

void hw_refer_init(struct hw_refer *r);
void hw_refer_free(struct hw_refer *r);
/* Puts memory into the pipe. Returns the number of bytes or -EAGAIN. Returns 0 if the data must be copied now and in
 * future (r->off), because no descriptor or no large pipe is available, or because the memory cannot be referenced. */
int64_t hw_refer_fill(struct hw_refer *r, const struct iovec *iov, size_t n);
/* Moves bytes from the pipe to the socket fd. `more` means that further bytes follow at once. Returns the number of
 * bytes, -EAGAIN, -EBUSY if the kernel lacks memory, or the error of the send. Raises no signal. */
int64_t hw_refer_drain(struct hw_refer *r, int fd, bool more);

#endif
