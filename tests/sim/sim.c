/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const sim_feature_name[SIM_FEATURES] = {"partial", "reset", "silent",  "cancel", "revoke",
                                                    "both",    "links", "scatter", "memory", "liar"};

uint64_t sim_random(struct sim *s, uint64_t n)
{
    /* splitmix64 (public domain, Sebastiano Vigna): every seed gives a sequence of its own */
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return n ? (z ^ (z >> 31)) % n : 0;
}

bool sim_chance(struct sim *s, uint64_t n)
{
    return sim_random(s, n) == 0;
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

/* ---- memory: the linker leads malloc() and calloc() here ------------------------------------------ */

static struct sim *failing;

/* In one seed of four memory is scarce. */
static bool is_short(void)
{
    return failing && sim_chance(failing, failing->seed % 4 ? 20 : 3);
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t n)
{
    return is_short() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_short() ? NULL : __real_calloc(n, size);
}

void sim_fail_memory(struct sim *s)
{
    failing = s && sim_has(s, SIM_MEMORY) ? s : NULL;
}

/* ---- connections ---------------------------------------------------------------------------------- */

void sim_conn_open(struct sim *s, struct sim_conn *c)
{
    memset(c, 0, sizeof *c);
    c->room = sim_has(s, SIM_PARTIAL) && sim_chance(s, 2) ? 200 + (uint32_t)sim_random(s, 1000) : SIM_PIPE;
}

void sim_conn_deliver(struct sim *s, struct sim_conn *c)
{
    struct sim_pipe *p = &c->pipe[sim_random(s, 2)];
    if (c->silent || p->ready == p->n)
        return;
    uint32_t left = p->n - p->ready;
    p->ready += sim_has(s, SIM_PARTIAL) ? 1 + (uint32_t)sim_random(s, left) : left;
}

void sim_conn_close(struct sim *s, struct sim_conn *c, int side)
{
    struct sim_pipe *out = &c->pipe[side], *in = &c->pipe[!side];
    if (c->closed[side])
        return;
    c->closed[side] = true;
    /* a reset overtakes what was sent: the other side gets a part of it */
    out->n = out->ready + (uint32_t)sim_random(s, out->n - out->ready + 1);
    in->n = in->ready = 0;
}

static int64_t write_conn(struct sim *s, struct sim_conn *c, int side, const void *buf, uint64_t n)
{
    struct sim_pipe *p = &c->pipe[side];
    if (c->told[side])
        return -ECONNRESET;
    n = HW_MIN(n, c->room - p->n);
    if (n && sim_has(s, SIM_PARTIAL))
        n = 1 + sim_random(s, n);
    if (n == 0)
        return -EAGAIN;
    /* who writes to a closed connection does not learn it at once */
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
    if (n == 0)
        return c->told[side] ? -ECONNRESET : -EAGAIN;
    if (sim_has(s, SIM_PARTIAL))
        n = 1 + sim_random(s, n);
    memcpy(buf, p->buf, n);
    memmove(p->buf, p->buf + n, p->n - n);
    p->n -= (uint32_t)n;
    p->ready -= (uint32_t)n;
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
