/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the table of a peer's queues: with as many queues as a peer can have, each is found, and no chain is long. */
#include "message/op.h"
#include "message/queue_table.h"
#include "tests/tap.h"

#include <sodium.h>

#define CHAIN 64 /* With a random hash and no more than two entries a chain on average, none has so many. */

/* Returns the number of entries of the longest chain. *all: the number of all entries. */
static unsigned find_longest(const struct hw_chains *c, unsigned *all)
{
    unsigned most = 0;
    *all = 0;
    for (uint32_t i = 0; i < c->size; i++) {
        unsigned n = 0;
        hw_list_each(it, tmp, &c->list[i]) n++;
        most = HW_MAX(most, n);
        *all += n;
    }
    return most;
}

/* The names of the queues are multiples of by. */
static void test_queues(const char *what, uint64_t by)
{
    struct hw_queues t = {0};
    struct hw_queue *q;
    unsigned all, bad = 0;
    hw_queues_init(&t);
    for (uint64_t i = 0; i < HW_QUEUES; i++)
        bad += hw_queue_get(&t, i * by, HW_QUEUES, &q) != 0 || q->name != i * by;
    is_int((int)bad, 0, what);
    is_int(hw_queue_get(&t, HW_QUEUES * by, HW_QUEUES, &q), -EAGAIN, "one more is refused");
    unsigned most = find_longest(&t.queues, &all);
    ok(most <= CHAIN && all == HW_QUEUES, "the longest chain has %u of %u queues", most, all);
    for (uint64_t i = 0; i < HW_QUEUES; i++) {
        q = hw_queue_find(&t, i * by);
        bad += !q || q->name != i * by;
    }
    is_int((int)bad, 0, "each queue is found");
    ok(!hw_queue_find(&t, HW_QUEUES * by), "and no other");
    /* freed and made again in turn, many times as many as fit: the table does not grow */
    for (uint64_t i = 0; i < HW_QUEUES; i++)
        hw_queue_put(&t, hw_queue_find(&t, i * by));
    is_int((int)t.n, 0, "all queues are freed");
    const uint32_t size = t.queues.size;
    for (uint64_t i = 0; i < 4ull * HW_QUEUES; i++) {
        bad += hw_queue_get(&t, i * by, HW_QUEUES, &q) != 0;
        hw_queue_put(&t, q);
    }
    ok(bad == 0 && t.queues.size == size && find_longest(&t.queues, &all) == 0 && all == 0,
       "queues that come and go do not enlarge the table");
    hw_queues_free(&t);
}

int main(void)
{
    if (sodium_init() < 0)
        return 1;
    test_queues("queues with consecutive names", 1);
    test_queues("queues whose names have equal low bits", 1ull << 32);
    return tap_done();
}
