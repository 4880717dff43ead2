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

#define ITEMS 1000

static struct item {
    struct hw_list in_chain;
    uint64_t number;
} item[ITEMS];

static uint64_t get_item_number(const struct hw_list *entry)
{
    return hw_container_of(entry, const struct item, in_chain)->number;
}

/* Counts the entries with this number in the chain in which a search looks for it. */
static unsigned count_found(const struct hw_queues *t, struct hw_chains *c, uint64_t number)
{
    unsigned n = 0;
    hw_list_each(it, tmp, hw_chains_find(t, c, number)) n += get_item_number(it) == number;
    return n;
}

/* Each entry is found, also a recent one and one of several with the same number. Entries that come and go are not
 * hashed, however many others the table holds. */
static void test_entries(void)
{
    struct hw_queues t = {0};
    struct hw_chains *c = &t.directs;
    unsigned all, bad = 0;
    hw_queues_init(&t);
    hw_chains_init(c, get_item_number);
    for (unsigned i = 0; i < ITEMS; i++) {
        item[i].number = i / 2;
        hw_chains_add(&t, c, &item[i].in_chain);
        if (i % 7 == 0)
            bad += count_found(&t, c, i / 2) != 1 + i % 2;
    }
    for (unsigned i = 0; i < ITEMS / 2; i++)
        bad += count_found(&t, c, i) != 2;
    ok(bad == 0, "each entry is found");
    unsigned most = find_longest(c, &all);
    ok(most <= CHAIN && all == ITEMS, "the longest chain has %u of %u entries", most, all);
    for (unsigned i = 0; i < ITEMS; i++)
        hw_list_remove(&item[i].in_chain);
    for (unsigned i = 0; i < 100 * ITEMS; i++) {
        item[i % 4].number = i;
        hw_chains_add(&t, c, &item[i % 4].in_chain);
        bad += find_longest(c, &all) != 0;
        hw_list_remove(&item[(i + 1) % 4].in_chain);
    }
    ok(bad == 0, "entries that are removed soon are not hashed");
    for (unsigned i = 0; i < 4; i++)
        hw_list_remove(&item[i].in_chain);
    for (unsigned i = 0; i < 100; i++)
        bad += count_found(&t, c, i) != 0;
    ok(bad == 0, "a removed entry is not found");
    hw_queues_free(&t);
}

int main(void)
{
    if (sodium_init() < 0)
        return 1;
    test_queues("queues with consecutive names", 1);
    test_queues("queues whose names have equal low bits", 1ull << 32);
    test_entries();
    return tap_done();
}
