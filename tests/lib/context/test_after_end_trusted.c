/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests sending by reference (HAWSER_TRUSTED). Messages that arrive must have their original bytes, even if the sender
 * cancelled them or closed the connection while the receiver was stopped, and then reused the memory. On one host, the
 * receiver's socket refers to the sender's pages until the receiver reads the data.
 */
#include "tests/lib/context/pairhelp.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define MESSAGES 64
#define LEN      (1u << 20)
#define OLD      0x11 /* the sent bytes */
#define AFTER    0x99 /* the bytes that the sender writes afterwards */
#define TRIES    8
#define PAUSE_MS 600 /* longer than a sender waits if it sends copies */

/* State that both processes share. */
struct shared {
    _Atomic uint32_t port, rounds, arrived, wrong, failed, over, done;
    uint8_t mem[MESSAGES][LEN]; /* the receiver's memory */
};

static struct shared *sh;
static uint8_t *own;

static void wait_for(_Atomic uint32_t *at, uint32_t value)
{
    for (int i = 0; i < 60000 && atomic_load(at) < value; i++)
        usleep(1000);
    if (atomic_load(at) < value)
        bail("the other process does not come to %u", value);
}

static hawser *open_trusted(void)
{
    struct hawser_options o = {.size = sizeof o, .flags = HAWSER_TRUSTED};
    hawser *h;
    must(hawser_open(&o, &h));
    return h;
}

static bool is_as_sent(const uint8_t *p)
{
    for (size_t i = 0; i < LEN; i++)
        if (p[i] != OLD)
            return false;
    return true;
}

static void take_messages(hawser_peer *p, hawser_mem *mem)
{
    hawser_op *op[MESSAGES];
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct hawser_vec v = {.mem = mem, .offset = (uint64_t)i * LEN, .length = LEN};
        must(hawser_recv(p, &v, 1, NULL, &op[i]));
    }
    atomic_fetch_add(&sh->rounds, 1);
    for (unsigned i = 0; i < MESSAGES; i++) {
        int rc;
        do {
            if (atomic_load(&sh->over) == atomic_load(&sh->rounds)) /* messages of cancelled sends never arrive */
                (void)hawser_cancel(op[i]);
            rc = hawser_wait(op[i], 50);
        } while (rc == -EAGAIN);
        atomic_fetch_add(rc ? &sh->failed : &sh->arrived, 1);
        atomic_fetch_add(&sh->wrong, rc == 0 && !is_as_sent(sh->mem[i]));
        hawser_op_free(op[i]);
    }
}

static void be_receiver(void)
{
    hawser *h = open_trusted();
    hawser_mem *mem;
    uint16_t port;
    must(hawser_listen(h, "127.0.0.1", 0, &port));
    must(hawser_mem_register(h, HAWSER_MEM_HOST, sh->mem, sizeof sh->mem, &mem));
    atomic_store(&sh->port, port);
    for (uint32_t n = 1;; n++) {
        hawser_peer *p;
        must(hawser_accept(h, 100000, &p));
        take_messages(p, mem);
        hawser_peer_close(p);
        atomic_store(&sh->done, n);
    }
}

static void wake_later(pid_t peer)
{
    pid_t helper = fork();
    if (helper == 0) {
        usleep(PAUSE_MS * 1000);
        kill(peer, SIGCONT);
        _exit(0);
    }
}

/* Runs one round. Returns false if all messages arrived, so none was in flight when the sender cancelled or closed. */
static bool send_and_reuse(hawser *h, pid_t peer, bool cancel, uint32_t round)
{
    hawser_op *op[MESSAGES];
    hawser_peer *p;
    hawser_mem *mem;
    memset(own, OLD, (size_t)MESSAGES * LEN);
    memset(sh->mem, 0, sizeof sh->mem);
    atomic_store(&sh->arrived, 0);
    atomic_store(&sh->failed, 0);
    must(hawser_mem_register(h, HAWSER_MEM_HOST, own, (size_t)MESSAGES * LEN, &mem));
    must(hawser_connect(h, "127.0.0.1", (uint16_t)atomic_load(&sh->port), NULL, 10000, &p));
    wait_for(&sh->rounds, round);
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct hawser_vec v = {.mem = mem, .offset = (uint64_t)i * LEN, .length = LEN};
        must(hawser_send(p, &v, 1, NULL, &op[i]));
    }
    wait_for(&sh->arrived, 1);
    kill(peer, SIGSTOP);
    waitpid(peer, NULL, WUNTRACED);
    wake_later(peer);
    for (unsigned i = 0; i < MESSAGES && cancel; i++)
        (void)hawser_cancel(op[i]);
    for (unsigned i = 0; i < MESSAGES && cancel; i++) {
        (void)hawser_wait(op[i], -1);
        memset(own + (size_t)i * LEN, AFTER, LEN);
    }
    if (!cancel) {
        hawser_peer_close(p);
        memset(own, AFTER, (size_t)MESSAGES * LEN);
    }
    wait(NULL);
    for (unsigned i = 0; i < MESSAGES; i++)
        hawser_op_free(op[i]);
    usleep(200000); /* time for messages in flight to arrive */
    atomic_store(&sh->over, round);
    if (cancel)
        hawser_peer_close(p);
    must(hawser_mem_deregister(mem));
    wait_for(&sh->done, round);
    return atomic_load(&sh->failed) > 0;
}

static void check_way(hawser *h, pid_t peer, bool cancel, const char *what)
{
    static uint32_t round;
    int tries = 1;
    ph_step = what;
    while (!send_and_reuse(h, peer, cancel, ++round) && tries < TRIES)
        tries++;
    ok(atomic_load(&sh->failed) > 0, "%s: %u of %d messages arrive", what, atomic_load(&sh->arrived), MESSAGES);
    is_int(atomic_exchange(&sh->wrong, 0), 0, "each of them as it was sent");
}

int main(void)
{
    watchdog(110);
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* shared, because private pages become copy-on-write after fork() */
    own = mmap(NULL, (size_t)MESSAGES * LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED || own == MAP_FAILED)
        bail("no memory");
    pid_t peer = fork();
    if (peer == 0)
        be_receiver();
    wait_for(&sh->port, 1);
    hawser *h = open_trusted();
    check_way(h, peer, true, "called off while the receiver stands still");
    check_way(h, peer, false, "closed while the receiver stands still");
    hawser_close(h);
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    return tap_done();
}
