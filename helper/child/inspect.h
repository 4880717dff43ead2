/* SPDX-License-Identifier: Apache-2.0 */
/* Inspects the descriptor of a request. A child process receives the descriptor, inspects it, and reports the result to
 * hawserd. The only client descriptors that hawserd receives are dma-bufs that a child has inspected;
 * helper/child/child.h explains why. */
#ifndef HW_HELPER_INSPECT_H
#define HW_HELPER_INSPECT_H

#include "helper/child/child.h"
#include "helper/kernel/kernel.h"

struct hd_facts {
    bool many; /* more than one descriptor was sent */
    int rc;    /* 0, or the descriptor's error, with the reason in why */
    char why[HW_ERR_TEXT];
    uint64_t bytes;      /* size of a dma-buf */
    struct hd_conn conn; /* ends and cookie of a TCP connection */
};

/* Inspects the descriptor of a request of the given type (lib/wire/helper.h). May block. */
void hd_inspect(const struct hd_kernel *k, uint16_t type, int fd, struct hd_facts *out);
/* Starts a child that receives the client's next message, which must be a request of the given type, and inspects its
 * descriptor. *pair becomes readable when the answer is available, and reports POLLHUP when the child has exited. */
int hd_inspect_start(const struct hd_kernel *k, uint16_t type, int client, int *pair);
/* Receives the answer. *fd is set to the dma-buf, which the caller owns, or -1. Fails with -ECHILD if there is no
 * answer. */
int hd_inspect_answer(int pair, struct hd_facts *out, int *fd);

#endif
