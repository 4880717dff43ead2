/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending by reference: memory goes into a pipe by vmsplice(2), and from there to a socket by splice(2), uncopied. The
 * kernel reads it until TCP has the acknowledgement, and no call tells when that is; so whoever cannot trust the peer
 * not to acknowledge, or to confirm, what it has not read must not send this way.
 */
#ifndef HW_TCP_REFER_H
#define HW_TCP_REFER_H

#include "base/base.h"

#include <sys/uio.h>

#define HW_REFER_MIN (16u << 10) /* bytes: below this a copy is cheaper than two more system calls */

struct hw_refer {
    int pipe[2];
    uint32_t held; /* bytes in the pipe */
    bool off;      /* it does not work here: copy */
};

void hw_refer_init(struct hw_refer *r);
void hw_refer_free(struct hw_refer *r);
/* Puts memory into the pipe. Bytes, -EAGAIN; 0: copy it, now and from here on (r->off) - there is no descriptor, no
 * room for a large pipe, or the memory cannot be referred to. */
int64_t hw_refer_fill(struct hw_refer *r, const struct iovec *iov, size_t n);
/* From the pipe to the socket fd. more: other bytes follow at once. Bytes, -EAGAIN, or why sending failed. No signal is
 * raised. */
int64_t hw_refer_drain(struct hw_refer *r, int fd, bool more);

#endif
