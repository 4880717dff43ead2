/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that verbs_fake.c and verbs_fake_mlx5.c share. */
#ifndef VERBS_FAKE_INT_H
#define VERBS_FAKE_INT_H

#include "verbs_fake.h"

extern pid_t fake_stub; /* thread that makes the current call; 0 for this process */

int fake_make(struct fake_file *f, enum vb_type t, uint32_t *number);
int fake_unmake(struct fake_file *f, enum vb_type t, uint64_t number);
struct ib_uverbs_attr *fake_attr(struct ib_uverbs_ioctl_hdr *h, uint16_t id); /* NULL if there is no such attribute */
void *fake_bytes(struct ib_uverbs_attr *a, bool in);
int fake_give(struct ib_uverbs_attr *a, const void *src, size_t n);
/* Returns true if the caller's file descriptor fd is a completion channel of this fake. */
bool fake_is_channel(int64_t fd);

/* fake_invoke_mlx5() runs REREG_MR and mlx5's INVOKE_WRITE requests that pin memory of objects other than MRs, and
 * returns -EOPNOTSUPP for other requests. The other two functions run the methods that register an MR. */
int fake_invoke_mlx5(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, const struct fake_op *op);
int fake_reg_method(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h);
int fake_reg_dmabuf(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h);

#endif
