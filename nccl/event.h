/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the NCCL plugin tells NCCL's profiler: of each message, its beginning and its end. A profiler plugin finds it in
 * its ncclProfileNetPlugin events as netPlugin.id and netPlugin.data; docs/nccl.md says what is in it. It is good
 * during the callback only.
 */
#ifndef HN_EVENT_H
#define HN_EVENT_H

#include <stdint.h>

/* The kind of plugin, "hw", above 16 bits that are the version of what follows: as NCCL lays out its own. */
#define HN_EVENT_KIND 0x6877
#define HN_EVENT_ID   ((int64_t)HN_EVENT_KIND << 16 | 1)

#define HN_EVENT_MESSAGE 1

struct hn_event_v1 {
    uint8_t type; /* HN_EVENT_MESSAGE; first, as in NCCL's own */
    uint8_t received;
    uint16_t link;   /* which of the process's links, from 0 */
    uint32_t stream; /* on that link: one connection of one communicator's */
    uint64_t length; /* bytes; of a receive its room at the start, and what came at the end */
};

_Static_assert(sizeof(struct hn_event_v1) == 16, "an ABI of ours");

#endif
