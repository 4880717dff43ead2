/* SPDX-License-Identifier: Apache-2.0 */
#include "message/queue_table.h"

#include "message/peer.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>

#define RECENT_MOST 16 /* maximum number of entries of a table that are not hashed yet */

/* Hashes with a key, because the peer chooses the numbers and must not be able to choose the chains. */
static uint64_t hash_number(const struct hw_queues *t, uint64_t number)
{
    uint64_t hash;
    _Static_assert(sizeof t->secret == crypto_shorthash_KEYBYTES && sizeof hash == crypto_shorthash_BYTES, "siphash");
    crypto_shorthash((uint8_t *)&hash, (const uint8_t *)&number, sizeof number, t->secret);
    return hash;
}

void hw_chains_init(struct hw_chains *c, uint64_t (*number)(const struct hw_list *entry))
{
    c->list = c->first;
    c->size = HW_CHAINS_FIRST;
    c->added = 0;
    c->n_recent = 0;
    c->number = number;
    hw_list_init(&c->recent);
    for (unsigned i = 0; i < c->size; i++)
        hw_list_init(&c->list[i]);
}

static void remove_entries(struct hw_list *chain, void (*gone)(struct hw_list *entry))
{
    hw_list_each(it, tmp, chain)
    {
        hw_list_remove(it);
        if (gone)
            gone(it);
    }
}

void hw_chains_free(struct hw_chains *c, void (*gone)(struct hw_list *entry))
{
    remove_entries(&c->recent, gone);
    for (uint32_t i = 0; i < c->size; i++)
        remove_entries(&c->list[i], gone);
    if (c->list != c->first)
        free(c->list);
    c->size = 0;
}

static struct hw_list *get_chain(const struct hw_queues *t, const struct hw_chains *c, uint64_t number)
{
    return &c->list[hash_number(t, number) & (c->size - 1)];
}

/* Replaces the chains by `size` others. Without memory for them, the table keeps its chains. */
static void grow_chains(const struct hw_queues *t, struct hw_chains *c, uint32_t size)
{
    struct hw_list *was = c->list;
    const uint32_t n = c->size;
    assert(size > n);
    struct hw_list *list = malloc(size * sizeof *list);
    if (!list)
        return;
    for (uint32_t i = 0; i < size; i++)
        hw_list_init(&list[i]);
    c->list = list;
    c->size = size;
    for (uint32_t i = 0; i < n; i++)
        hw_list_each(it, tmp, &was[i])
        {
            hw_list_remove(it);
            hw_list_append(get_chain(t, c, c->number(it)), it);
        }
    if (was != c->first)
        free(was);
}

/* Counts an entry that is about to be added. Returns true if the table has other chains from now on. */
static bool count_entry(const struct hw_queues *t, struct hw_chains *c)
{
    if (++c->added <= 2 * c->size)
        return false;
    const uint32_t size = c->size;
    uint32_t n = 1; /* count the entries, because removing one does not change `added` */
    for (uint32_t i = 0; i < c->size; i++)
        hw_list_each(it, tmp, &c->list[i]) n++;
    if (n > c->size)
        grow_chains(t, c, 4 * c->size);
    c->added = HW_MIN(n, c->size);
    return c->size != size;
}

/* Moves all recent entries to their chains. */
static void hash_recent(const struct hw_queues *t, struct hw_chains *c)
{
    hw_list_each(it, tmp, &c->recent)
    {
        hw_list_remove(it);
        (void)count_entry(t, c);
        hw_list_append(get_chain(t, c, c->number(it)), it);
    }
    c->n_recent = 0;
}

struct hw_list *hw_chains_find(const struct hw_queues *t, struct hw_chains *c, uint64_t number)
{
    hash_recent(t, c);
    return get_chain(t, c, number);
}

void hw_chains_add(const struct hw_queues *t, struct hw_chains *c, struct hw_list *entry)
{
    if (c->n_recent == RECENT_MOST) {
        c->n_recent = 0; /* count the entries, because removing one does not change n_recent */
        hw_list_each(it, tmp, &c->recent) c->n_recent++;
        if (c->n_recent > RECENT_MOST / 2)
            hash_recent(t, c);
    }
    hw_list_append(&c->recent, entry);
    c->n_recent++;
}

/* Returns the queue or NULL. *chain is the queue's chain, or NULL if the chain was not searched. */
static struct hw_queue *find_queue_in(struct hw_queues *t, uint64_t name, struct hw_list **chain)
{
    *chain = NULL;
    if (t->recent && t->recent->name == name)
        return t->recent;
    *chain = get_chain(t, &t->queues, name);
    hw_list_each(it, tmp, *chain)
    {
        struct hw_queue *q = hw_container_of(it, struct hw_queue, in_chain);
        if (q->name == name)
            return t->recent = q;
    }
    return NULL;
}

struct hw_queue *hw_queue_find(struct hw_queues *t, uint64_t name)
{
    struct hw_list *chain;
    return find_queue_in(t, name, &chain);
}

int hw_queue_get(struct hw_queues *t, uint64_t name, uint32_t most, struct hw_queue **out)
{
    struct hw_list *chain;
    struct hw_queue *q = *out = find_queue_in(t, name, &chain);
    if (q)
        return 0;
    if (t->n >= most)
        return hw_fail(-EAGAIN, "all %u queues (streams and tags) of the peer are in use", most);
    q = t->spare ? t->spare : malloc(sizeof *q);
    if (!q)
        return hw_no_memory("a queue");
    t->spare = NULL;
    *q = (struct hw_queue){.name = name};
    hw_list_init(&q->sends);
    hw_list_init(&q->grants);
    hw_list_init(&q->receives);
    hw_list_init(&q->held);
    hw_list_init(&q->of_stream);
    if (name >> 32)
        hw_chains_add(t, &t->stream_queues, &q->of_stream);
    if (count_entry(t, &t->queues))
        chain = get_chain(t, &t->queues, name);
    hw_list_append(chain, &q->in_chain);
    t->n++;
    *out = t->recent = q;
    return 0;
}

/* Keeps the memory of the freed queue for the next queue. */
void hw_queue_put(struct hw_queues *t, struct hw_queue *q)
{
    if (!q || !hw_list_empty(&q->sends) || !hw_list_empty(&q->grants) || q->unanswered ||
        !hw_list_empty(&q->receives) || !hw_list_empty(&q->held))
        return;
    hw_list_remove(&q->in_chain);
    hw_list_remove(&q->of_stream);
    t->n--;
    t->recent = NULL;
    free(t->spare);
    t->spare = q;
}

void hw_grant_unlist(struct hw_queues *t, struct hw_grant *g)
{
    hw_list_remove(&g->of_queue);
    hw_list_remove(&g->in_chain);
    t->n_grants--;
}

void hw_grant_drop(struct hw_queues *t, struct hw_grant *g)
{
    hw_grant_unlist(t, g);
    free(g);
}
