/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/devmem/unpack.h"

#include <assert.h>
#include <stddef.h>

static_assert(sizeof(struct hw_gather_entry) == 16, "loadMeta");
static_assert(offsetof(struct dm_unpack_queue, cnt) == 524288 && sizeof(struct dm_unpack_queue) == 524416,
              "tcpx-plugin.md");

void dm_unpack_begin(struct dm_unpack_queue *q, uint64_t request)
{
    __atomic_store_n(&q->cnt[request % DM_UNPACK_REQUESTS], 0, __ATOMIC_RELEASE);
}

int dm_unpack_add(struct dm_unpack_queue *q, uint64_t request, const struct hw_frag *f)
{
    uint64_t slot = request % DM_UNPACK_REQUESTS, n = q->cnt[slot];
    if (n == DM_UNPACK_FRAGS)
        return hw_fail(-EOVERFLOW, "a message in more than %d pieces: smaller messages, or a larger MTU, are needed",
                       DM_UNPACK_FRAGS);
    if (f->src_off > UINT32_MAX || f->len > UINT32_MAX)
        return hw_fail(-EOVERFLOW, "a piece of %llu bytes at %llu: NCCL's kernels reach 4 GiB of device memory",
                       (unsigned long long)f->len, (unsigned long long)f->src_off);
    q->mem[slot][n] =
        (struct hw_gather_entry){.src_off = (uint32_t)f->src_off, .len = (uint32_t)f->len, .dst_off = f->dst_off};
    /* the entry before its being counted: the GPU may look at any time */
    __atomic_store_n(&q->cnt[slot], n + 1, __ATOMIC_RELEASE);
    return 0;
}
