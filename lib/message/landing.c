/* SPDX-License-Identifier: Apache-2.0 */
#include "message/landing.h"

#include <assert.h>
#include <stdlib.h>

/* A landing's number on the wire is generation << 32 | index in the table. A landing that ends or is given up moves to
 * the next generation at once, with 0 bytes to reserve. */
#define ROOM_BITS  44
#define ROOM_MASK  ((1ull << ROOM_BITS) - 1)
#define GENERATION ((1u << 20) - 1)

static uint64_t make_state(uint32_t generation, uint64_t room)
{
    return (uint64_t)(generation & GENERATION) << ROOM_BITS | room;
}

static uint32_t get_generation(uint64_t state)
{
    return (uint32_t)(state >> ROOM_BITS);
}

static uint32_t get_own_generation(const struct hw_landing *g)
{
    return (uint32_t)(g->id >> 32);
}

void hw_landings_free(struct hw_landings *t)
{
    for (uint32_t i = 0; i < t->blocks; i++)
        free(atomic_load(&t->block[i]));
    t->blocks = 0;
    t->free = NULL;
}

/* Returns the number of landings in the blocks before this block: 0, 64, 128, 256, ... */
static uint32_t count_before(uint32_t block)
{
    return block ? HW_LANDING_FIRST << (block - 1) : 0;
}

uint32_t hw_landings_count(const struct hw_landings *t)
{
    return count_before(t->blocks);
}

static void add_block(struct hw_landings *t)
{
    uint32_t before = count_before(t->blocks), n = before ? before : HW_LANDING_FIRST;
    struct hw_landing *g = t->blocks < HW_LANDING_BLOCKS ? calloc(n, sizeof *g) : NULL;
    if (!g)
        return;
    for (uint32_t i = n; i-- > 0;) {
        g[i].id = before + i;
        g[i].next = t->free;
        t->free = &g[i];
    }
    atomic_store(&t->block[t->blocks++], g);
}

struct hw_landing *hw_landing_take(struct hw_landings *t, void *op, uint64_t from, uint64_t bytes)
{
    if (!t->free)
        add_block(t);
    struct hw_landing *g = t->free;
    if (!g)
        return NULL;
    t->free = g->next;
    uint32_t generation = get_generation(atomic_load(&g->state));
    g->id = (uint64_t)generation << 32 | (uint32_t)g->id;
    g->op = op;
    g->from = from;
    g->bytes = bytes;
    atomic_store_explicit(&g->left, bytes, memory_order_relaxed);
    atomic_store_explicit(&g->state, make_state(generation, bytes), memory_order_release);
    return g;
}

void hw_landing_give(struct hw_landings *t, struct hw_landing *g)
{
    g->next = t->free;
    t->free = g;
}

/* Returns the landing at the index in this number, regardless of its generation, or NULL if there is none. */
static struct hw_landing *find_place(const struct hw_landings *t, uint64_t id)
{
    uint32_t place = (uint32_t)id, first = place / HW_LANDING_FIRST;
    if (place >= HW_LANDINGS)
        return NULL;
    uint32_t at = first ? 32 - (uint32_t)__builtin_clz(first) : 0; /* number of its block */
    struct hw_landing *block = atomic_load(&t->block[at]);
    return block ? &block[place - count_before(at)] : NULL;
}

bool hw_landing_is_live(const struct hw_landing *g)
{
    return get_generation(atomic_load(&g->state)) == get_own_generation(g);
}

struct hw_landing *hw_landing_find(const struct hw_landings *t, uint64_t id)
{
    struct hw_landing *g = find_place(t, id);
    return g && g->id == id && hw_landing_is_live(g) ? g : NULL;
}

struct hw_landing *hw_landing_reserve(struct hw_landings *t, uint64_t id, uint64_t n)
{
    struct hw_landing *g = find_place(t, id);
    assert(n > 0);
    if (!g)
        return NULL;
    uint64_t state = atomic_load(&g->state);
    do
        if (get_generation(state) != id >> 32 || (state & ROOM_MASK) < n)
            return NULL;
    while (!atomic_compare_exchange_weak(&g->state, &state, state - n));
    return g;
}

bool hw_landing_take_back(struct hw_landing *g)
{
    uint64_t whole = make_state(get_own_generation(g), g->bytes);
    return atomic_compare_exchange_strong(&g->state, &whole, make_state(get_own_generation(g) + 1, 0));
}

/* Moves the landing to the next generation, and stores the previous state in *state. Returns true if no other thread
 * had moved the landing. */
static bool end_generation(struct hw_landing *g, uint64_t *state)
{
    *state = atomic_exchange(&g->state, make_state(get_own_generation(g) + 1, 0));
    return get_generation(*state) == get_own_generation(g);
}

enum hw_landing_end hw_landing_arrived(struct hw_landing *g, uint64_t n)
{
    uint64_t state;
    /* if nothing else is left, no other thread changes the count */
    if (atomic_load(&g->left) != n && atomic_fetch_sub(&g->left, n) != n)
        return HW_LANDING_GOES_ON;
    return end_generation(g, &state) ? HW_LANDING_FULL : HW_LANDING_FREE;
}

enum hw_landing_end hw_landing_abandon(struct hw_landing *g, uint64_t n)
{
    uint64_t state = atomic_load(&g->state);
    while (get_generation(state) == get_own_generation(g))
        if (atomic_compare_exchange_weak(&g->state, &state, state + n))
            return HW_LANDING_GOES_ON;
    return atomic_fetch_sub(&g->left, n) == n ? HW_LANDING_FREE : HW_LANDING_GOES_ON;
}

enum hw_landing_end hw_landing_give_up(struct hw_landing *g)
{
    uint64_t state;
    if (!end_generation(g, &state))
        return HW_LANDING_FULL;
    uint64_t room = state & ROOM_MASK;
    return room && atomic_fetch_sub(&g->left, room) == room ? HW_LANDING_FREE : HW_LANDING_GOES_ON;
}
