/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const sim_feature_name[SIM_FEATURES] = {"partial", "reset",   "silent", "cancel", "revoke", "both",
                                                    "links",   "scatter", "memory", "liar",   "apart",  "half",
                                                    "slow",    "jump",    "stuck",  "close"};

uint64_t sim_random(struct sim *s, uint64_t n)
{
    /* splitmix64 (public domain, Sebastiano Vigna): every seed gives a different sequence */
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return n ? (z ^ (z >> 31)) % n : 0;
}

bool sim_chance(struct sim *s, uint64_t n)
{
    return sim_random(s, n) == 0;
}

uint32_t sim_pick_faults(struct sim *s)
{
    return HW_MIN((uint32_t)sim_random(s, SIM_FAULTS), s->most_faults);
}

uint32_t sim_pick_ops(struct sim *s, uint32_t most)
{
    return HW_MIN(1 + (uint32_t)sim_random(s, most), s->most_ops);
}

bool sim_has(const struct sim *s, enum sim_feature f)
{
    return s->features & 1u << f;
}

void sim_say(struct sim *s, const char *fmt, ...)
{
    if (!s->trace)
        return;
    va_list ap;
    va_start(ap, fmt);
    printf("%6llu  ", (unsigned long long)s->step);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    if (s->failed[0])
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->failed, sizeof s->failed, fmt, ap);
    va_end(ap);
    sim_say(s, "FAILED: %s", s->failed);
}

/* memory: the linker redirects malloc() and similar functions to this file */

static struct sim *failing;

/* Returns true if this allocation has to fail: one in 3 for every fourth seed, and one in 20 for all others. */
static bool is_short(void)
{
    return failing && sim_chance(failing, failing->seed % 4 ? 20 : 3);
}

static long live;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *text);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n)
{
    void *p = is_short() ? NULL : __real_malloc(n);
    live += p != NULL;
    return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *p = is_short() ? NULL : __real_calloc(n, size);
    live += p != NULL;
    return p;
}

void *__wrap_realloc(void *p, size_t n)
{
    void *to = is_short() ? NULL : __real_realloc(p, n);
    live += !p && to;
    return to;
}

char *__wrap_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    void *p = __wrap_malloc(n);
    return p ? memcpy(p, text, n) : NULL;
}

void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}

long sim_count_memory(void)
{
    return live;
}

void sim_fail_memory(struct sim *s)
{
    failing = s && sim_has(s, SIM_MEMORY) ? s : NULL;
}

/* libsodium's random numbers, which queues use to hash their names */

static struct sim library;

static const char *name_library(void)
{
    return "simulated";
}

static uint32_t draw_word(void)
{
    return (uint32_t)sim_random(&library, 1ull << 32);
}

static void draw_bytes(void *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)to)[i] = (uint8_t)sim_random(&library, 256);
}

void sim_seed_library(uint64_t seed)
{
    static struct randombytes_implementation numbers = {
        .implementation_name = name_library, .random = draw_word, .buf = draw_bytes};
    library.state = seed;
    randombytes_set_implementation(&numbers);
}

/* ---- connections ---------------------------------------------------------------------------------- */

void sim_conn_open(struct sim *s, struct sim_conn *c)
{
    memset(c, 0, sizeof *c);
    c->room = sim_has(s, SIM_PARTIAL) && sim_chance(s, 2) ? 200 + (uint32_t)sim_random(s, 1000) : SIM_PIPE;
    for (int side = 0; side < 2 && sim_has(s, SIM_APART); side++) {
        struct sim_apart *a = &c->apart[side];
        a->is.tx = a->is.rx = !sim_chance(s, 4);
        a->is.held = !sim_chance(s, 3);
    }
}

static uint32_t deliver_pipe(struct sim *s, struct sim_pipe *p)
{
    uint32_t left = p->n - p->ready, n = left && sim_has(s, SIM_PARTIAL) ? 1 + (uint32_t)sim_random(s, left) : left;
    p->ready += n;
    return n;
}

/* payloads on the second stream */

struct hw_link_apart sim_conn_apart(const struct sim_conn *c, int side)
{
    return (struct hw_link_apart){
        .tx = c->apart[side].is.tx, .rx = c->apart[!side].is.rx, .held = c->apart[side].is.held};
}

/* Reads the next n bytes that are sent by reference, as the network would, and stores them in the pipe before `end`. */
static void fetch_held(struct sim_apart *a, uint32_t end, uint32_t n)
{
    for (uint32_t i = 0; i < n && a->is.held; i++)
        a->pipe.buf[end - n + i] = *a->from[(a->delivered + i) % SIM_HELD];
    a->delivered += n;
}

/* Reads some or all of the delivered memory again, and releases it. */
static void release_held(struct sim *s, struct sim_apart *a)
{
    uint64_t some = a->released + sim_random(s, a->delivered - a->released + 1);
    for (uint64_t end = sim_chance(s, 2) ? a->delivered : some; a->released < end; a->released++) {
        a->poison = *a->from[a->released % SIM_HELD] == SIM_POISON ? a->poison + 1 : 0;
        if (a->poison == SIM_POISON_ROW)
            sim_fail(s, "memory that is sent by reference is the application's again");
    }
}

/* Performs the device's pending read. */
static void run_fetch(struct sim_apart *a)
{
    if (a->fetch.from)
        memcpy(a->fetch.buf, a->fetch.from, a->fetch.n);
    a->fetch.from = NULL;
}

/* Performs the device's pending write. */
static void run_gather(struct sim_apart *a)
{
    if (a->gather.to)
        memcpy(a->gather.to, a->gather.buf, a->gather.n);
}

/* Moves data on the second stream. Releases memory only if the acknowledgements arrive (acked). */
static void step_apart(struct sim *s, struct sim_apart *a, bool acked)
{
    uint32_t n = deliver_pipe(s, &a->pipe);
    fetch_held(a, a->pipe.ready, n);
    if (a->is.held && sim_chance(s, 2) && acked)
        release_held(s, a);
    if (sim_chance(s, 2))
        run_gather(a);
    if (sim_chance(s, 2))
        run_fetch(a);
}

static int64_t write_apart(struct sim *s, struct sim_conn *c, int side, const struct hw_piece *piece)
{
    struct sim_apart *a = &c->apart[side];
    const uint8_t *from = piece->ptr;
    uint64_t n = a->fetch.n ? a->fetch.n : HW_MIN(piece->len, c->room - a->pipe.n - a->pipe.unacked);
    if (a->is.held)
        n = HW_MIN(n, SIM_HELD - (a->sent - a->released));
    if (n && !a->fetch.n && sim_has(s, SIM_PARTIAL))
        n = 1 + sim_random(s, n);
    if (n == 0)
        return -EAGAIN;
    if (a->fetch.n) {
        run_fetch(a);
        a->fetch.n = 0;
        from = a->fetch.buf;
    } else if (!a->is.held && sim_chance(s, 8)) {
        a->fetch.from = piece->ptr;
        a->fetch.n = (uint32_t)n;
        return -EBUSY;
    }
    for (uint64_t i = 0; i < n && a->is.held; i++)
        a->from[(a->sent + i) % SIM_HELD] = piece->ptr + i;
    a->sent += n;
    if (c->closed[!side]) { /* the sent bytes do not arrive */
        a->delivered += n;
        return (int64_t)n;
    }
    memcpy(a->pipe.buf + a->pipe.n, from, n);
    a->pipe.n += (uint32_t)n;
    return (int64_t)n;
}

static uint64_t take_from_pipe(struct sim *s, struct sim_pipe *p, void *to, uint64_t most)
{
    uint64_t n = HW_MIN(most, p->ready);
    if (n && sim_has(s, SIM_PARTIAL))
        n = 1 + sim_random(s, n);
    if (to)
        memcpy(to, p->buf, n);
    memmove(p->buf, p->buf + n, p->n - n);
    p->n -= (uint32_t)n;
    p->ready -= (uint32_t)n;
    return n;
}

/* Reads bytes through a device that writes them to the target with a delay. */
static int64_t read_apart(struct sim *s, struct sim_conn *c, int side, const struct hw_piece *piece)
{
    struct sim_apart *a = &c->apart[!side];
    if (a->gather.n == 0) {
        a->gather.to = piece->ptr;
        a->gather.n = (uint32_t)take_from_pipe(s, &a->pipe, a->gather.buf, piece->len);
        a->pipe.unacked += c->lost[side] ? a->gather.n : 0;
        if (a->gather.n == 0)
            return c->told[side] ? -ECONNRESET : -EAGAIN;
    }
    if (sim_chance(s, 8))
        return -EBUSY;
    run_gather(a);
    uint32_t n = a->gather.n;
    a->gather.n = 0;
    a->gather.to = NULL;
    return n;
}

int64_t sim_conn_move_apart(struct sim *s, struct sim_conn *c, int side, const struct hw_piece *piece, uint32_t n,
                            bool out)
{
    if (out && c->told[side])
        return -ECONNRESET;
    if (c->hung)
        return c->told[side] ? -ECONNRESET : -EAGAIN;
    if (out && sim_chance(s, 4))
        return -EBUSY;
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (piece[i].len == 0)
            continue;
        int64_t done = out ? write_apart(s, c, side, &piece[i]) : read_apart(s, c, side, &piece[i]);
        if (done < 0)
            return sum ? sum : done;
        sum += done;
        if ((uint64_t)done < piece[i].len)
            break;
    }
    return sum;
}

void sim_conn_stop_reading(struct sim_conn *c, int side)
{
    run_fetch(&c->apart[side]);
}

void sim_conn_discard(struct sim_conn *c, int side)
{
    c->apart[!side].gather.to = NULL;
}

static void close_apart(struct sim *s, struct sim_conn *c, int side)
{
    struct sim_apart *out = &c->apart[side], *in = &c->apart[!side];
    uint32_t left = (uint32_t)sim_random(s, out->pipe.n - out->pipe.ready + 1);
    out->pipe.n = out->pipe.ready + left;
    fetch_held(out, out->pipe.n, left);
    out->is.held = false; /* the memory is no longer read */
    out->fetch.n = 0;
    out->fetch.from = NULL;
    in->pipe.n = in->pipe.ready = in->gather.n = 0;
    in->delivered = in->sent;
    in->gather.to = NULL;
}

/* ---- both streams */

void sim_conn_deliver(struct sim *s, struct sim_conn *c)
{
    uint64_t side = sim_random(s, 2);
    if (c->silent || c->hung || c->lost[side])
        return;
    (void)deliver_pipe(s, &c->pipe[side]);
    if (sim_has(s, SIM_APART))
        step_apart(s, &c->apart[side], !c->lost[!side]);
}

const char *sim_conn_break(struct sim *s, struct sim_conn *c)
{
    if (sim_has(s, SIM_RESET) && sim_chance(s, 2)) {
        c->told[sim_random(s, 2)] = true; /* one side learns of the reset now, the other later */
        return "is reset";
    }
    if (sim_has(s, SIM_HALF) && sim_chance(s, 2)) {
        c->lost[sim_random(s, 2)] = true;
        return "carries nothing more in one direction";
    }
    if (sim_has(s, SIM_SLOW) && sim_chance(s, 2)) {
        c->hung = true;
        return "stands still";
    }
    c->silent |= sim_has(s, SIM_SILENT);
    return c->silent ? "falls silent" : "is spared";
}

bool sim_conn_is_dead(const struct sim_conn *c)
{
    return c->silent || c->lost[0] || c->lost[1];
}

void sim_conn_close(struct sim *s, struct sim_conn *c, int side)
{
    struct sim_pipe *out = &c->pipe[side], *in = &c->pipe[!side];
    if (c->closed[side])
        return;
    c->closed[side] = true;
    /* a reset overtakes sent data, so the other side gets only part of the data */
    out->n = out->ready + (uint32_t)sim_random(s, out->n - out->ready + 1);
    in->n = in->ready = 0;
    if (sim_has(s, SIM_APART))
        close_apart(s, c, side);
}

static int64_t write_conn(struct sim *s, struct sim_conn *c, int side, const void *buf, uint64_t n)
{
    struct sim_pipe *p = &c->pipe[side];
    if (c->told[side])
        return -ECONNRESET;
    n = c->hung ? 0 : HW_MIN(n, c->room - p->n - p->unacked);
    if (n && sim_has(s, SIM_PARTIAL))
        n = 1 + sim_random(s, n);
    if (n == 0)
        return -EAGAIN;
    /* a writer does not learn at once that the peer has closed the connection */
    if (!c->closed[!side]) {
        memcpy(p->buf + p->n, buf, n);
        p->n += (uint32_t)n;
    }
    return (int64_t)n;
}

static int64_t read_conn(struct sim *s, struct sim_conn *c, int side, void *buf, uint64_t n)
{
    struct sim_pipe *p = &c->pipe[!side];
    n = HW_MIN(n, p->ready);
    if (n == 0 || c->hung)
        return c->told[side] ? -ECONNRESET : -EAGAIN;
    n = take_from_pipe(s, p, buf, n);
    p->unacked += c->lost[side] ? (uint32_t)n : 0;
    return (int64_t)n;
}

int64_t sim_conn_move(struct sim *s, struct sim_conn *c, int side, const struct hw_piece *piece, uint32_t n, bool out)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (piece[i].len == 0)
            continue;
        int64_t done = out ? write_conn(s, c, side, piece[i].ptr, piece[i].len)
                           : read_conn(s, c, side, piece[i].ptr, piece[i].len);
        if (done < 0)
            return sum ? sum : done;
        sum += done;
        if ((uint64_t)done < piece[i].len)
            break;
    }
    return sum;
}

bool sim_conn_is_sending(const struct sim_conn *c, int side)
{
    const struct sim_apart *a = &c->apart[side];
    return c->pipe[side].n || c->pipe[side].unacked || a->pipe.n || a->pipe.unacked ||
           (a->is.held && a->released < a->sent);
}
