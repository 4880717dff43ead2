/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies the descriptor of a request: a child process receives it, inspects it, and reports to hawserd. hawserd
 * itself receives no descriptors from clients other than dma-bufs (helper/child/child.h says why). */
#ifndef HW_HELPER_INSPECT_H
#define HW_HELPER_INSPECT_H

#include "helper/child/child.h"
#include "helper/kernel/kernel.h"

struct hd_facts {
    bool many; /* more than one descriptor was sent */
    int rc;    /* 0, or what is wrong with it; then why is set */
    char why[HW_ERR_TEXT];
    uint64_t bytes; /* of a dma-buf */
    struct hd_conn conn;
};

/* Inspects the descriptor of a request of that type (lib/wire/helper.h). May block. */
void hd_inspect(const struct hd_kernel *k, uint16_t type, int fd, struct hd_facts *out);
/* Starts a child that receives the next message of a client, which is such a request. *pair becomes readable when the
 * answer is there, and hangs up when the child is gone. */
int hd_inspect_start(const struct hd_kernel *k, uint16_t type, int client, int *pair);
/* Receives the answer. *fd: the dma-buf, or -1. -ECHILD: there is no answer. */
int hd_inspect_answer(int pair, struct hd_facts *out, int *fd);

#endif
