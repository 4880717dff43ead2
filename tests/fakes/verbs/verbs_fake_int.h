/* SPDX-License-Identifier: Apache-2.0 */
/* Between verbs_fake.c and verbs_fake_mlx5.c. */
#ifndef VERBS_FAKE_INT_H
#define VERBS_FAKE_INT_H

#include "verbs_fake.h"

extern pid_t fake_stub; /* who makes the call at hand; 0: this process */

int fake_make(struct fake_file *f, enum vb_type t, uint32_t *number);
int fake_unmake(struct fake_file *f, enum vb_type t, uint64_t number);
struct ib_uverbs_attr *fake_attr(struct ib_uverbs_ioctl_hdr *h, uint16_t id); /* NULL: it is not there */
void *fake_bytes(struct ib_uverbs_attr *a, bool in);
int fake_give(struct ib_uverbs_attr *a, const void *src, size_t n);
/* Is descriptor fd of the caller's a completion channel of ours? */
bool fake_is_channel(int64_t fd);

/* Requests with memory that is not an MR's first, as mlx5 takes them: by INVOKE_WRITE, and of MRs by method.
 * -EOPNOTSUPP: no such. */
int fake_invoke_mlx5(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, const struct fake_op *op);
int fake_reg_method(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h);
int fake_reg_dmabuf(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h);

#endif
