/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's own header instead of hawser's: nccl/tables.c must compile with either, otherwise one of its functions has a
 * wrong type. */
#ifndef HW_NETPLUGIN_ABI_H
#define HW_NETPLUGIN_ABI_H

#include <nccl/net.h>
#include <stddef.h>

#endif
