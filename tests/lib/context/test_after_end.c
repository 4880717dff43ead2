/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that the application can reuse memory once an operation has completed or a region has been revoked: data that
 * the application then writes to this memory never reaches the peer, even if the peer reads its sockets later. The peer
 * is a process that is stopped during a transfer.
 */
#include "tests/lib/context/pairhelp.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LEN   (256u << 20)
#define OLD   0x11 /* the transferred bytes */
#define AFTER 0x99 /* the bytes that the application writes afterwards */
#define TRIES 8

/* State that both processes share. */
struct shared {
    _Atomic uint32_t port, ready, order, done;
    uint8_t key[2][HAWSER_KEY_SIZE]; /* keys of the parent's region and of the peer's region */
    uint8_t mem[LEN];                /* the peer's memory */
};

static struct shared *sh;

static void wait_for(_Atomic uint32_t *at, uint32_t value)
{
    for (int i = 0; i < 60000 && atomic_load(at) < value; i++)
        usleep(1000);
    if (atomic_load(at) < value)
        bail("the other process does not come to %u", value);
}

/* Runs the peer process, which exports a region for the parent's writes and reads the parent's region on command. */
static void be_peer(void)
{
    hawser *h = ph_open(0, NULL);
    hawser_peer *p;
    hawser_mem *mem;
    struct hawser_region region;
    uint16_t port;
    must(hawser_listen(h, "127.0.0.1", 0, &port));
    must(hawser_mem_register(h, HAWSER_MEM_HOST, sh->mem, LEN, &mem));
    must(hawser_export(mem, 0, LEN, HAWSER_REMOTE_WRITE, NULL, sh->key[1]));
    atomic_store(&sh->port, port);
    must(hawser_accept(h, 10000, &p));
    atomic_store(&sh->ready, 1);
    for (uint32_t n = 1;; n++) {
        wait_for(&sh->order, n);
        must(hawser_import(sh->key[0], &region));
        struct hawser_vec v = {.mem = mem, .length = LEN, .region = &region};
        hawser_op *op;
        must(hawser_read(p, &v, 1, NULL, &op));
        (void)ph_finish(op);
        atomic_store(&sh->done, n);
    }
}

/* Stops the peer after the first byte has arrived. Returns false if the last byte has also arrived. */
static bool stop_in_the_middle(pid_t peer, const volatile uint8_t *first, const volatile uint8_t *last)
{
    uint64_t end = hw_deadline(20000);
    while (*first != OLD && hw_now() < end)
        ;
    kill(peer, SIGSTOP);
    waitpid(peer, NULL, WUNTRACED);
    return *last != OLD;
}

static uint64_t count_after(void)
{
    uint64_t n = 0;
    for (size_t i = 0; i < LEN; i++)
        n += sh->mem[i] == AFTER;
    return n;
}

enum way { REVOKE, CANCEL, DEADLINE };

struct parent {
    pid_t peer;
    hawser *h;
    hawser_peer *p;
    hawser_mem *mem;
    uint8_t *own;
    uint32_t reads;
};

/* Cancels a transfer, lets its deadline expire, or revokes its region while the peer is stopped. Returns false if the
 * last byte arrived before the stop, or if the result is wrong. */
static bool end_early(struct parent *t, enum way way, uint64_t *ms)
{
    struct hawser_region region;
    hawser_op *op = NULL;
    memset(t->own, OLD, LEN);
    memset(sh->mem, 0, LEN);
    must(hawser_import(sh->key[1], &region));
    struct hawser_vec v = {.mem = t->mem, .length = LEN, .region = &region};
    struct hawser_op_options o = {.size = sizeof o, .timeout_ms = way == DEADLINE ? 300 : 20000};
    if (way == REVOKE) {
        must(hawser_export(t->mem, 0, LEN, HAWSER_REMOTE_READ, NULL, sh->key[0]));
        atomic_store(&sh->order, ++t->reads);
    } else {
        must(hawser_write(t->p, &v, 1, &o, &op));
    }
    bool middle = stop_in_the_middle(t->peer, sh->mem, sh->mem + LEN - 1);
    uint64_t began = hw_now();
    if (way == REVOKE)
        must(hawser_revoke(t->h, sh->key[0]));
    if (way == CANCEL)
        must(hawser_cancel(op));
    int rc = op ? hawser_wait(op, 15000) : 0;
    *ms = (hw_now() - began) / HW_MS;
    hawser_op_free(op);
    memset(t->own, AFTER, LEN);
    kill(t->peer, SIGCONT);
    if (way == REVOKE)
        wait_for(&sh->done, t->reads);
    else /* an empty write completes after all data in flight */
        must(ph_one(hawser_write, t->p, &(struct ph_buf){.mem = t->mem}, 0, 0, &region, 0));
    usleep(50000);
    return middle && (way == REVOKE || rc == (way == CANCEL ? -ECANCELED : -ETIMEDOUT));
}

static void check_way(struct parent *t, enum way way, const char *what)
{
    uint64_t ms = 0;
    int tries = 0;
    ph_step = what;
    while (!end_early(t, way, &ms) && ++tries < TRIES)
        ;
    ok(tries < TRIES, "%s: in the middle of a transfer", what);
    ok(ms < 3000, "and it is over after %llu ms, although the peer stands still", (unsigned long long)ms);
    is_int(count_after(), 0, "no byte that was written afterwards reaches the peer");
}

int main(void)
{
    struct parent t = {0};
    watchdog(110);
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    t.own = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED || t.own == MAP_FAILED)
        bail("no memory");
    t.peer = fork();
    if (t.peer == 0)
        be_peer();
    wait_for(&sh->port, 1);
    t.h = ph_open(0, NULL);
    must(hawser_connect(t.h, "127.0.0.1", (uint16_t)atomic_load(&sh->port), NULL, 10000, &t.p));
    wait_for(&sh->ready, 1);
    must(hawser_mem_register(t.h, HAWSER_MEM_HOST, t.own, LEN, &t.mem));
    check_way(&t, REVOKE, "a revoked region");
    check_way(&t, CANCEL, "a write that is cancelled");
    check_way(&t, DEADLINE, "a write whose deadline passes");
    hawser_close(t.h);
    kill(t.peer, SIGKILL);
    waitpid(t.peer, NULL, 0);
    return tap_done();
}
