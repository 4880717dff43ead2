/* SPDX-License-Identifier: Apache-2.0 */
/* Values of include/uapi/rdma/ib_user_ioctl_cmds.h that Debian 12's headers (Linux 6.1) do not define. */
#ifndef HW_VERBS_NEWER_H
#define HW_VERBS_NEWER_H

#include <rdma/ib_user_ioctl_cmds.h>

/* From enum uverbs_methods_device of Linux 7.0. */
enum { METHOD_QUERY_PORT_SPEED = UVERBS_METHOD_QUERY_GID_ENTRY + 1 };
/* From the enums uverbs_methods_mr and uverbs_attrs_reg_mr_cmd_attr_ids of Linux 6.17. */
enum { METHOD_REG_MR = UVERBS_METHOD_REG_DMABUF_MR + 1 };
enum {
    REG_MR_HANDLE,
    REG_MR_PD_HANDLE,
    REG_MR_DMA_HANDLE,
    REG_MR_IOVA,
    REG_MR_ADDR,
    REG_MR_LENGTH,
    REG_MR_ACCESS_FLAGS,
    REG_MR_FD,
    REG_MR_FD_OFFSET,
    REG_MR_RESP_LKEY,
    REG_MR_RESP_RKEY
};
_Static_assert(METHOD_QUERY_PORT_SPEED == 7 && METHOD_REG_MR == 5 && REG_MR_FD == 7,
               "values must equal those of newer kernel headers");

#endif
