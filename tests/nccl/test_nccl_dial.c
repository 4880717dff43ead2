/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the threads that connect links: slow attempts, as at dead peers, do not keep a link to a live peer waiting, and
 * attempts that fail at once are not repeated too often. The linker redirects the calls of libhawser to this test. */
#include "nccl/inner.h"
#include "tests/tap.h"

#include <stdio.h>

#define DEAD_PORT  1
#define WRONG_PORT 3 /* of a peer to which no path leads */
#define THIRD_PORT 4 /* of a peer that is reached at 192.0.2.3 only */

struct hn_global hn_g = {.mu = PTHREAD_MUTEX_INITIALIZER, .host = 7};

static atomic_bool released; /* the attempts at dead peers end */
static atomic_int attempts;  /* attempts at dead peers that have begun */
static atomic_int wrong;     /* attempts at WRONG_PORT */
static int others_answer;    /* of a process at THIRD_PORT that is not the peer */
static char first_host[64];  /* of the first attempt at WRONG_PORT */

int __wrap_hawser_connect(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                          int timeout_ms, hawser_peer **out);
int __wrap_hawser_paths(hawser_peer *peer, struct hawser_path *path, size_t *n);
void __wrap_hawser_peer_set_user(hawser_peer *peer, void *user);

static void nap(void)
{
    struct timespec t = {.tv_nsec = 10000000};
    (void)nanosleep(&t, NULL);
}

int __wrap_hawser_connect(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                          int timeout_ms, hawser_peer **out)
{
    (void)h, (void)opts, (void)timeout_ms;
    *out = NULL;
    if (port == WRONG_PORT && !*first_host)
        snprintf(first_host, sizeof(first_host), "%s", host);
    if (port == WRONG_PORT) {
        atomic_fetch_add(&wrong, 1);
        return hw_fail(-EHOSTUNREACH, "no usable path");
    }
    if (port == THIRD_PORT && strcmp(host, "192.0.2.1") == 0)
        return hw_fail(others_answer, "another process");
    if (port == THIRD_PORT && strcmp(host, "192.0.2.2") == 0) {
        for (unsigned ms = 0; ms < HN_REFUSED_MS + 100; ms += 10)
            nap();
        return hw_fail(-ETIMEDOUT, "no answer");
    }
    if (port != DEAD_PORT)
        return 0;
    atomic_fetch_add(&attempts, 1);
    while (!atomic_load(&released))
        nap();
    return hw_fail(-EPROTO, "released");
}

int __wrap_hawser_paths(hawser_peer *peer, struct hawser_path *path, size_t *n)
{
    (void)peer, (void)path;
    *n = 0;
    return 0;
}

void __wrap_hawser_peer_set_user(hawser_peer *peer, void *user)
{
    (void)peer, (void)user;
}

void hn_say(ncclDebugLogLevel level, const char *fmt, ...)
{
    (void)level, (void)fmt;
}

void hn_group_names(unsigned group, char out[HN_NICS_MAX * HAWSER_NIC_NAME])
{
    (void)group;
    *out = 0;
}

void hn_link_yield(struct hn_link *l)
{
    (void)l;
}

static void dial_at(struct hn_link *l, uint16_t port, uint64_t host)
{
    l->refs = 1;
    l->to.host = host;
    l->to.port = port;
    hw_list_init(&l->wait);
    hw_list_append(&hn_g.links, &l->all);
    is_int(hn_dial(l), 0, "a link is queued");
}

static void dial(struct hn_link *l, uint16_t port)
{
    dial_at(l, port, hn_g.host);
}

/* Returns after how many ms the link has reached the state, or `most`. */
static unsigned wait_for(const struct hn_link *l, int state, unsigned most)
{
    unsigned ms = 0;
    for (; ms < most && atomic_load(&l->state) != state; ms += 10) {
        pthread_mutex_unlock(&hn_g.mu);
        nap();
        pthread_mutex_lock(&hn_g.mu);
        hn_dial_tidy(); /* hn_links_serve() calls it at least every HN_ATTEND_MS */
    }
    return ms;
}

int main(void)
{
    static struct hn_link dead[HN_DIALLERS], live, first, lost;
    pthread_mutex_lock(&hn_g.mu);
    hw_list_init(&hn_g.links);
    hn_dial_begin();
    dial(&first, DEAD_PORT + 1);
    ok(wait_for(&first, HN_UP, 5000) < 5000, "a link is connected");
    for (unsigned i = 0; i < HN_DIALLERS; i++)
        dial(&dead[i], DEAD_PORT);
    for (int i = 0; i < 500 && atomic_load(&attempts) < HN_DIALLERS; i++)
        nap();
    is_int(atomic_load(&attempts), HN_DIALLERS, "all threads try dead peers");
    dial(&live, DEAD_PORT + 1);
    unsigned ms = wait_for(&live, HN_UP, 8000);
    ok(ms < 8000, "a link to a live peer is connected meanwhile, after %u ms", ms);
    atomic_store(&released, true);
    for (unsigned i = 0; i < HN_DIALLERS; i++)
        ok(wait_for(&dead[i], HN_DEAD, 5000) < 5000, "an attempt at a dead peer ends");
    /* A handle of another node. Only the loopback's address can be reached from this process, which uses no other NIC.
     */
    snprintf(hn_g.nics, sizeof(hn_g.nics), "lo");
    hn_g.nnics = 1;
    hn_g.nic[0].ip.sa.sa_family = AF_INET;
    lost.to.addr[0] = (struct hn_addr){.family = 4, .ip = {192, 0, 2, 99}};
    lost.to.addr[1] = (struct hn_addr){.family = 6, .ip = {0x20, 1, 0x0d, 0xb8}};
    lost.to.addr[2] = (struct hn_addr){.family = 4, .ip = {127, 0, 0, 1}};
    dial_at(&lost, WRONG_PORT, hn_g.host + 1);
    (void)wait_for(&lost, HN_DEAD, 3000);
    ok(atomic_load(&wrong) >= 3 && atomic_load(&wrong) <= 22, "a peer without a path is tried %d times in 3 s",
       atomic_load(&wrong));
    is_str(first_host, "127.0.0.1", "the address that can be reached is tried first");
    lost.refs = 0;
    (void)hn_dial_cancel(&lost);
    static const int answers[] = {-ECONNREFUSED, -EACCES, -EPROTO};
    static struct hn_link third[HW_ARRAY_LEN(answers)];
    for (size_t i = 0; i < HW_ARRAY_LEN(answers); i++) {
        others_answer = answers[i];
        for (uint8_t k = 0; k < 3; k++)
            third[i].to.addr[k] = (struct hn_addr){.family = 4, .ip = {192, 0, 2, (uint8_t)(k + 1)}};
        dial_at(&third[i], THIRD_PORT, hn_g.host + 1);
        ok(wait_for(&third[i], HN_UP, 8000) < 8000,
           "the third address works, though another process answers %s at the first", hw_errno_name(answers[i]));
    }
    hn_dial_end();
    unsigned started = 0;
    for (unsigned i = 0; i < HW_ARRAY_LEN(hn_g.dial.thread); i++)
        started += hn_g.dial.thread[i].started;
    is_int(started, 0, "no thread is left");
    pthread_mutex_lock(&hn_g.dial.mu);
    hn_dial_begin();
    is_int(pthread_mutex_trylock(&hn_g.dial.mu), EBUSY, "the context is opened again with the same mutex");
    pthread_mutex_unlock(&hn_g.dial.mu);
    pthread_mutex_unlock(&hn_g.mu);
    return tap_done();
}
