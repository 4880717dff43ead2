/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports the start and the end of messages to NCCL's profiler. The events have the form in which NET/Socket reports
 * its tasks, so profilers that know NCCL's own transports display them. docs/nccl.md describes the fields. An event
 * descriptor is valid only during the callback.
 */
#ifndef HN_EVENT_H
#define HN_EVENT_H

#include "transport/netplugin/table/abi.h"

#define HN_EVENT_ID ((int64_t)(NCCL_PROFILER_NET_TYPE_SOCK | 1))

#endif
