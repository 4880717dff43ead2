/* SPDX-License-Identifier: Apache-2.0 */
/* Tests closing a peer: the other side confirms the BYE before it closes its connections. Otherwise, the closing side
 * would consider its connections broken, try to reconnect, and be refused. A send succeeds if the receiver closes as
 * soon as it has the message. A context may be closed while other threads use handles of its operations, and a
 * peer while another thread revokes its regions. */
#include "tests/lib/context/pairhelp.h"

#include <malloc.h>

static struct ph_log heard = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void *accept_nobody(void *arg)
{
    hawser_peer *p;
    return hawser_accept(arg, 50, &p) == -EAGAIN ? arg : NULL;
}

/* Closes a connected peer while another thread waits in hawser_accept(). That thread must not get or close the peer. */
static void close_beside_accept(hawser *a, hawser *b, uint16_t port)
{
    int well = 0;
    for (int i = 0; i < 20; i++) {
        hawser_peer *ab, *ba;
        pthread_t thread;
        void *got;
        must(hawser_connect(a, "127.0.0.1", port, NULL, 10000, &ab));
        must(hawser_accept(b, 10000, &ba));
        must(-pthread_create(&thread, NULL, accept_nobody, b));
        hawser_peer_close(ba);
        must(-pthread_join(thread, &got));
        well += got == b;
        hawser_peer_close(ab);
    }
    is_int(well, 20, "a peer is closed beside a thread that accepts, and that gets no peer");
}

#define ROUNDS  100
#define MESSAGE 300000

/* The receiver of a message closes at once. Some of the message's confirmations are then still to be sent, on rails
 * whose loops have other threads. */
static void close_after_receive(void)
{
    static const char *const knobs[] = {"threads=4", NULL};
    hawser *a = ph_open(0, knobs), *b = ph_open(0, knobs);
    struct hawser_vec out = {.length = MESSAGE}, in = out;
    uint16_t port;
    int sent = 0;
    must(hawser_mem_alloc(a, HAWSER_MEM_HOST, -1, MESSAGE, &out.mem));
    must(hawser_mem_alloc(b, HAWSER_MEM_HOST, -1, MESSAGE, &in.mem));
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    for (int i = 0; i < ROUNDS; i++) {
        hawser_peer *ab, *ba;
        hawser_op *send, *receive;
        must(hawser_connect(a, "127.0.0.1", port, NULL, 10000, &ab));
        must(hawser_accept(b, 10000, &ba));
        must(hawser_recv(ba, &in, 1, NULL, &receive));
        must(hawser_send(ab, &out, 1, NULL, &send));
        must(hawser_wait(receive, 10000));
        hawser_peer_close(ba);
        sent += hawser_wait(send, 10000) == 0;
        hawser_op_free(send);
        hawser_op_free(receive);
        hawser_peer_close(ab);
    }
    is_int(sent, ROUNDS, "a send succeeds although its receiver closes at once");
    hawser_close(a);
    hawser_close(b);
}

#define CALLERS 8

static struct caller {
    hawser_op *op;
    int how, rc;
} caller[CALLERS];

/* Waits for the end of the operation in one of several ways. */
static void *wait_in_some_way(void *arg)
{
    struct caller *c = arg;
    do
        c->rc = c->how == 0 ? hawser_test(c->op) : hawser_wait(c->op, c->how == 1 ? 0 : c->how == 2 ? 1 : -1);
    while (c->rc == -EAGAIN);
    hawser_op_free(c->op);
    return NULL;
}

/* Closes a context while other threads use the handles of its operations. The loops must not be freed before these
 * threads have left them. Freed memory is overwritten, so that a late access is noticed without a sanitizer, too. */
static void close_beside_callers(uint32_t flags)
{
    struct hawser_vec v = {.length = 100};
    int well = 0;
    step("a context is closed beside threads that use handles");
    (void)mallopt(M_PERTURB, 0xa5);
    for (int i = 0; i < ROUNDS; i++) {
        hawser *a = ph_open(flags, NULL), *b = ph_open(0, NULL);
        hawser_peer *ab;
        pthread_t thread[CALLERS];
        uint16_t port;
        must(hawser_listen(b, "127.0.0.1", 0, &port));
        must(hawser_connect(a, "127.0.0.1", port, NULL, 10000, &ab));
        must(hawser_mem_alloc(a, HAWSER_MEM_HOST, -1, v.length, &v.mem));
        for (int k = 0; k < CALLERS; k++) {
            caller[k].how = k % 4;
            must(hawser_recv(ab, &v, 1, NULL, &caller[k].op));
            must(-pthread_create(&thread[k], NULL, wait_in_some_way, &caller[k]));
        }
        usleep((unsigned)i * 37 % 2000);
        hawser_close(a);
        for (int k = 0; k < CALLERS; k++) {
            must(-pthread_join(thread[k], NULL));
            well += caller[k].rc == -ESHUTDOWN;
        }
        hawser_close(b);
    }
    (void)mallopt(M_PERTURB, 0);
    ok(well == ROUNDS * CALLERS, "a context%s is closed beside threads that use handles of its operations",
       flags ? " without threads" : "");
}

#define REGIONS 300

static uint8_t key[REGIONS][HAWSER_KEY_SIZE];

static void *revoke_all(void *arg)
{
    for (int i = 0; i < REGIONS; i++)
        must(hawser_revoke(arg, key[i]));
    return NULL;
}

/* Closes a peer while another thread revokes the regions for which the peer has handles. */
static void close_beside_revoke(void)
{
    hawser *a = ph_open(0, NULL), *b = ph_open(0, NULL);
    hawser_mem *m;
    uint16_t port;
    step("a peer is closed beside a thread that revokes");
    (void)mallopt(M_PERTURB, 0xa5);
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    must(hawser_mem_alloc(b, HAWSER_MEM_HOST, -1, REGIONS, &m));
    for (int i = 0; i < ROUNDS; i++) {
        hawser_peer *ab, *ba;
        pthread_t thread;
        struct hawser_region region[REGIONS];
        struct hawser_vec v[REGIONS];
        hawser_op *op;
        must(hawser_connect(a, "127.0.0.1", port, NULL, 10000, &ab));
        must(hawser_accept(b, 10000, &ba));
        for (int k = 0; k < REGIONS; k++) {
            must(hawser_export(m, (uint64_t)k, 1, HAWSER_REMOTE_WRITE, NULL, key[k]));
            must(hawser_import(key[k], &region[k]));
            v[k] = (struct hawser_vec){.data = "x", .length = 1, .region = &region[k]};
        }
        must(hawser_write(ab, v, REGIONS, NULL, &op)); /* the peer gets its handles */
        must(hawser_wait(op, 10000));
        hawser_op_free(op);
        hawser_peer_close(ab);
        while (i % 2 && hawser_peer_state(ba) == 0)
            usleep(100);
        must(-pthread_create(&thread, NULL, revoke_all, b));
        usleep((unsigned)i * 7 % 300);
        hawser_peer_close(ba);
        must(-pthread_join(thread, NULL));
    }
    (void)mallopt(M_PERTURB, 0);
    ok(true, "a peer is closed beside a thread that revokes its regions");
    hawser_close(a);
    hawser_close(b);
}

int main(void)
{
    struct hawser_options o = {.size = sizeof o, .log = ph_logger, .log_arg = &heard};
    hawser *a = ph_open(0, NULL), *b;
    uint16_t port;
    int died = 0;
    watchdog(60);
    must(hawser_open(&o, &b));
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    for (int i = 0; i < 10; i++) {
        hawser_peer *ab, *ba;
        hawser_op *op;
        must(hawser_connect(a, "127.0.0.1", port, NULL, 10000, &ab));
        must(hawser_accept(b, 10000, &ba));
        must(hawser_notify(ab, "here", 4, NULL, &op));
        must(hawser_wait(op, 10000));
        hawser_op_free(op);
        hawser_peer_close(ab);
        for (int k = 0; k < 1000 && hawser_peer_state(ba) == 0; k++)
            usleep(10000);
        died += hawser_peer_state(ba) == -ESHUTDOWN;
        hawser_peer_close(ba);
    }
    is_int(died, 10, "a peer that closes is told apart from one that died");
    ok(!strstr(heard.text, "refused"), "and does not connect again for that: %s", heard.text);
    close_beside_accept(a, b, port);
    hawser_close(a);
    hawser_close(b);
    close_after_receive();
    close_beside_callers(0);
    close_beside_callers(HAWSER_CALLER_PROGRESS);
    close_beside_revoke();
    return tap_done();
}
