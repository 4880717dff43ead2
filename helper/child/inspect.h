/* SPDX-License-Identifier: Apache-2.0 */
/* What the descriptor is that comes with a request: a child process takes it, looks at it, and tells hawserd. hawserd
 * itself gets no descriptor from a client but a dma-buf (helper/child/child.h says why). */
#ifndef HW_HELPER_INSPECT_H
#define HW_HELPER_INSPECT_H

#include "helper/child/child.h"
#include "helper/kernel/kernel.h"

struct hd_facts {
    bool many; /* more than one descriptor came */
    int rc;    /* 0, or what is wrong with it: with why */
    char why[HW_ERR_TEXT];
    uint64_t bytes; /* of a dma-buf */
    struct hd_conn conn;
};

/* Looks at the descriptor of a request of that type (lib/wire/helper.h). May block. */
void hd_inspect(const struct hd_kernel *k, uint16_t type, int fd, struct hd_facts *out);
/* Starts a child that takes the next message of a client, which is such a request. *pair is readable when its answer is
 * there, and hangs up when the child is gone. */
int hd_inspect_start(const struct hd_kernel *k, uint16_t type, int client, int *pair);
/* Takes the answer. *fd: the dma-buf, or -1. -ECHILD: there is none. */
int hd_inspect_answer(int pair, struct hd_facts *out, int *fd);

#endif
