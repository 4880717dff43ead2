/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces hawser's header with NCCL's own. nccl/tables.c must also compile with NCCL's header. If it does not, one of
 * its functions has a wrong type. */
#ifndef HW_NETPLUGIN_ABI_H
#define HW_NETPLUGIN_ABI_H

#include <nccl/net.h>
#include <stddef.h>

#endif
