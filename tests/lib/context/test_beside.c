/* SPDX-License-Identifier: Apache-2.0 */
/* Tests small writes during large writes to the same peer: the rail that carries the small writes must leave almost all
 * bytes of the large writes to other rails. Also tests small writes while a thread waits in hawser_accept(): the writes
 * must not wake this thread. */
#include "context/context.h"
#include "pairhelp.h"

#include <sys/resource.h>

#define LARGE (32u << 20)
#define SMALL 8
#define ALONE 400 /* small writes while another thread accepts */
#define TRIES 5   /* for machines that complete small writes too slowly */

static atomic_bool stop;
static atomic_uint done; /* number of completed large writes */

struct stream {
    struct pair *p;
    struct ph_buf *from, *to;
    uint64_t at;
};

static void write_bytes(struct pair *p, struct ph_buf *from, struct ph_buf *to, uint64_t at, uint64_t len)
{
    must(ph_one(hawser_write, p->ab, from, at, len, &to->region, at));
}

/* Makes large writes. Two threads run this function, so that at least one large write is always in flight. */
static void *write_large(void *arg)
{
    struct stream *s = arg;
    while (!atomic_load(&stop)) {
        write_bytes(s->p, s->from, s->to, s->at, LARGE);
        atomic_fetch_add(&done, 1);
    }
    return NULL;
}

/* Returns the first rail's share of the bytes sent since `before`, or -1 if none were sent. Updates `before`. */
static double get_share(const struct pair *p, uint64_t *before)
{
    uint64_t all = 0, first = 0;
    for (unsigned i = 0; i < p->ab->n_ways; i++) {
        uint64_t n = atomic_load(&p->ab->peer.session.rail[i].rail.counts.tx_bytes), part = n - before[i];
        before[i] = n;
        all += part;
        first += i == 0 ? part : 0;
    }
    return all ? (double)first / (double)all : -1;
}

/* Returns how often this thread has slept. */
static long count_sleeps(void)
{
    struct rusage u;
    must(getrusage(RUSAGE_THREAD, &u) < 0 ? -errno : 0);
    return u.ru_nvcsw;
}

struct acceptor {
    hawser *h;
    long slept;
};

static void *accept_peers(void *arg)
{
    hawser_peer *none;
    struct acceptor *a = arg;
    long before = count_sleeps();
    while (!atomic_load(&stop))
        if (hawser_accept(a->h, 100, &none) == 0)
            bail("a peer from nowhere");
    a->slept = count_sleeps() - before;
    return NULL;
}

/* Tests that completed operations do not wake a thread that waits in hawser_accept(). */
static void test_accepting(struct pair *p, struct ph_buf *from, struct ph_buf *to)
{
    struct acceptor w = {.h = p->a};
    pthread_t t;
    atomic_store(&stop, false);
    if (pthread_create(&t, NULL, accept_peers, &w))
        bail("no thread");
    usleep(20000);
    for (int i = 0; i < ALONE; i++)
        write_bytes(p, from, to, 0, SMALL);
    atomic_store(&stop, true);
    pthread_join(t, NULL);
    ok(w.slept < ALONE / 4, "a thread that accepts was woken %ld times during %d writes", w.slept, ALONE);
}

/* Makes small writes one after the other during at least 12 large writes. Stores the average duration of a small write
 * in *each_ms. Returns the first rail's share of the bytes sent. */
static double write_beside(struct pair *p, struct ph_buf *from, struct ph_buf *to, uint64_t *before, double *each_ms)
{
    struct stream s[2] = {{p, from, to, SMALL}, {p, from, to, SMALL + LARGE}};
    pthread_t t[2];
    atomic_store(&stop, false);
    atomic_store(&done, 0);
    write_bytes(p, from, to, 0, SMALL);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&t[i], NULL, write_large, &s[i]))
            bail("no thread");
    uint64_t began = hw_now();
    unsigned small = 0;
    for (; small < 20 || atomic_load(&done) < 12; small++)
        write_bytes(p, from, to, 0, SMALL);
    *each_ms = (double)(hw_now() - began) / (double)HW_MS / small;
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    return get_share(p, before);
}

/* Small writes affect the large writes only if they are less than 2 ms apart (lib/message/flow_out.c). */
static void test_beside(struct pair *p, struct ph_buf *from, struct ph_buf *to, uint64_t *before)
{
    double share = 1, each_ms = 0;
    for (int i = 0; i < TRIES && share >= 0.1; i++)
        share = write_beside(p, from, to, before, &each_ms);
    if (share >= 0.1 && each_ms > 1)
        tap_skip("beside small ones they leave it to the others", "a small write takes longer than 1 ms here");
    else
        ok(share >= 0 && share < 0.1, "beside small ones, %.3f ms each, they leave it to the others: %.3f", each_ms,
           share);
}

int main(void)
{
    static const char *const knobs[] = {"threads=4", "channels=4", "spin_us=0", NULL};
    static uint64_t before[HW_SESSION_RAILS];
    watchdog(100);
    struct pair p = ph_pair(0, knobs, 0, knobs);
    struct ph_buf from = ph_buf(p.a, 2 * LARGE + SMALL, 0, 0, NULL),
                  to = ph_buf(p.b, 2 * LARGE + SMALL, 0, HAWSER_REMOTE_WRITE, NULL);
    for (int i = 0; i < 8; i++)
        write_bytes(&p, &from, &to, SMALL, LARGE);
    diag("of large writes alone %.3f go by the first rail", get_share(&p, before));

    test_beside(&p, &from, &to, before);
    test_accepting(&p, &from, &to);
    ph_drop(&from);
    ph_drop(&to);
    ph_close(&p);
    return tap_done();
}
