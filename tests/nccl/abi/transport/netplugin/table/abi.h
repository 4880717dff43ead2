/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's own header in the place of ours: nccl/tables.c compiles with either, or one of its functions has a wrong type.
 */
#ifndef HW_NETPLUGIN_ABI_H
#define HW_NETPLUGIN_ABI_H

#include <nccl/net.h>
#include <stddef.h>

#endif
