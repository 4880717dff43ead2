/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the NCCL plugin tells NCCL's profiler: of each message, its beginning and its end, as NET/Socket tells of its
 * tasks, so that profilers which know NCCL's own networks show them. docs/nccl.md says what is in it. It is good during
 * the callback only.
 */
#ifndef HN_EVENT_H
#define HN_EVENT_H

#include "transport/netplugin/table/abi.h"

#define HN_EVENT_ID ((int64_t)(NCCL_PROFILER_NET_TYPE_SOCK | 1))

#endif
