/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests peers that are killed, stopped or idle, with real processes over loopback. Kills 100 clients and 100 servers at
 * random points (1000 each with HAWSER_TEST_LONG=1, 24 each with a sanitizer). The surviving side must get a typed
 * error in time, continue to serve other peers, and leak no file descriptors or memory.
 */
#include "faults.h"

#include "tests/tap.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS    4
#define SIZE     (8u << 20)
#define LIMIT_S  110
#define LOCAL    "127.0.0.1"
#define SLACK_MS 3000 /* for a busy machine */
/* The heap may grow by this much, because a transfer of another peer is in progress. A leak for each killed peer would
 * be larger. */
#define HEAP_SLACK (8u << 10)

static const char *const quick[] = {"peer_timeout_ms=1500", "handshake_ms=1000", "keepalive_ms=1000", "channels=2",
                                    NULL};
#define PEER_MS      1500
#define HANDSHAKE_MS 1000

static unsigned kills = 100;

/* The state for one victim at a time. */
struct slot {
    struct f_server sv; /* used if the victim is a server */
    atomic_int phase;   /* phase of the client, which is the victim or the survivor */
    atomic_int turn;    /* number of the current server, if servers are killed */
    atomic_int done;    /* number of the last server whose death the survivor has detected */
    atomic_int rc;
    atomic_ullong ended;
    char text[200];
};

struct side { /* a client that is never killed and runs throughout the test */
    atomic_int rc, rounds, stop, ready, warm;
    atomic_ullong bad;
    char text[200];
};

struct all {
    struct f_server sv, sv2;
    struct slot slot[SLOTS];
    struct side side;
    atomic_int rc, step, go, want, got;
    atomic_ullong ns, bad, lost, value;
    atomic_uint fds[2];
    atomic_ullong heap[2];
    char text[400];
};

static struct all *sh;

static pid_t start_server(struct f_server *sv, size_t size, const char *const *knobs)
{
    memset(sv, 0, sizeof(*sv));
    pid_t pid = f_fork(LIMIT_S);
    if (pid == 0)
        _exit(f_serve(sv, LOCAL, size, knobs));
    f_reaches(&sv->port, 1, 10000);
    return pid;
}

static bool gone(void *arg)
{
    struct f_server *sv = arg;
    return atomic_load(&sv->sessions) == 0;
}

/* Waits for all sessions to end, and stops the server. Returns true if the server exits with status 0. */
static bool stop_server(struct f_server *sv, pid_t pid)
{
    f_until(gone, sv, PEER_MS + SLACK_MS);
    atomic_store(&sv->stop, 1);
    int st = f_reap(pid, 10000);
    if (st)
        diag("the server ended with %d", st);
    return st == 0;
}

static hawser *open_context(const char *const *knobs)
{
    struct hawser_options o = {.size = sizeof(o), .knobs = knobs};
    hawser *h;
    if (hawser_open(&o, &h)) {
        fprintf(stderr, "# %s\n", hawser_error());
        _exit(99);
    }
    return h;
}

/* Connects, sleeps briefly, makes one transfer of each kind, and closes the connection. */
static int life(hawser *h, uint16_t port, atomic_int *phase, uint64_t seed)
{
    struct f_client c = {.phase = phase, .timeout_ms = 5000};
    int rc = f_connect(&c, h, LOCAL, port, SIZE, NULL, 5000);
    if (rc == 0)
        f_sleep_ms(4);
    for (unsigned op = F_WRITE; op <= F_SEND && rc == 0; op++)
        rc = f_transfer(&c, op, seed + op, SIZE, NULL, NULL);
    f_close(&c);
    return rc;
}

/* ---- a client that must not be affected ------------------------------------------------------------------------- */

/* Returns true if all channels have carried data. A channel creates its pipe when it first sends a lot of data. */
static bool all_carried(hawser_peer *p)
{
    struct hawser_channel_stats st[F_CHANS_MAX];
    size_t n = F_CHANS_MAX;
    hawser_channel_stats(p, st, &n);
    for (size_t i = 0; i < n; i++)
        if (!st[i].tx_bytes || !st[i].rx_bytes)
            return false;
    return n > 0;
}

static void be_healthy(hawser *h, uint16_t port)
{
    struct side *s = &sh->side;
    struct f_client c = {.timeout_ms = 20000};
    uint64_t bad = 0;
    int rc = f_connect(&c, h, LOCAL, port, SIZE, NULL, 10000);
    atomic_store(&s->ready, 1);
    for (unsigned i = 0; rc == 0 && !atomic_load(&s->stop); i++) {
        rc = f_transfer(&c, i % 3, i, atomic_load(&s->warm) ? 1u << 20 : SIZE, NULL, &bad);
        atomic_fetch_add(&s->rounds, 1);
        if (rc == 0 && all_carried(c.p))
            atomic_store(&s->warm, 1);
        f_sleep_ms(5);
    }
    if (rc)
        snprintf(s->text, sizeof(s->text), "%s", hawser_error());
    atomic_store(&s->bad, bad);
    atomic_store(&s->rc, rc);
    f_close(&c);
}

static void check_healthy(const char *whom)
{
    struct side *s = &sh->side;
    is_int(atomic_load(&s->rc), 0, "another peer saw nothing of it");
    if (atomic_load(&s->rc))
        diag("%s", s->text);
    is_int(atomic_load(&s->bad), 0, "and had every byte in place");
    ok(atomic_load(&s->rounds) >= 20, "in %d transfers while %s were killed", atomic_load(&s->rounds), whom);
}

/* ---- killing ---------------------------------------------------------------------------------------- */

static unsigned rnd;
static unsigned draw(unsigned n)
{
    rnd = rnd * 1103515245u + 12345u; /* any generator suffices; the seed is printed */
    return (rnd >> 8) % n;
}

struct aim {
    pid_t pid;
    int phase;      /* phase in which the victim is killed */
    uint64_t kill;  /* time of the kill, 0 until the victim reaches the phase */
    uint64_t start; /* time at which the wait for the phase began */
};

/* The maximum time from the start of a phase to the kill, in us. Most kills occur within the phase. */
static const unsigned spread[F_PHASES] = {
    [F_BORN] = 2000,     [F_CONNECT] = 2500, [F_SETUP] = 200,    [F_IDLE] = 4000,
    [F_IN_WRITE] = 3000, [F_IN_READ] = 3000, [F_IN_SEND] = 3000, [F_CLOSING] = 900};

static void aim_at(struct aim *a, pid_t pid, unsigned i)
{
    *a = (struct aim){.pid = pid, .phase = (int)(i % F_PHASES), .start = hw_now()};
}

/* Kills the victim at a random time after it reaches its phase, or after 4 s. Returns true once the victim is dead. */
static bool fire(struct aim *a, const atomic_int *phase, unsigned *missed)
{
    uint64_t now = hw_now();
    if (!a->kill && (a->phase == F_BORN || atomic_load(phase) == a->phase || now - a->start > 4000 * HW_MS)) {
        if (a->phase != F_BORN && atomic_load(phase) != a->phase) {
            ++*missed;
            diag("a victim was never seen in phase %d", a->phase);
        }
        a->kill = now + draw(spread[a->phase]) * 1000ull;
    }
    if (!a->kill || now < a->kill)
        return false;
    a->kill = hw_now();
    kill(a->pid, SIGKILL);
    (void)f_reap(a->pid, 1000);
    return true;
}

static void pause_us(long us)
{
    struct timespec t = {.tv_nsec = us * 1000};
    nanosleep(&t, NULL);
}

/* The number of file descriptors and the heap bytes of a process. */
struct room {
    unsigned fds;
    uint64_t heap;
};

static struct room own_room(void)
{
    return (struct room){f_fds(), f_heap()};
}

static struct room server_room(void)
{
    if (!f_probe(&sh->sv))
        return (struct room){UINT32_MAX, UINT64_MAX};
    return (struct room){atomic_load(&sh->sv.fds), atomic_load(&sh->sv.heap)};
}

/* If `was` is NULL, returns the smallest values seen within slightly more than handshake_ms, because a peer that was
 * killed in its handshake is freed only after this time. Otherwise, returns the current values as soon as they are back
 * at `was`, or when a timeout expires. */
static struct room settled(struct room (*look)(void), const struct room *was)
{
    struct room r = look();
    uint64_t end = hw_deadline(was ? PEER_MS + SLACK_MS : HANDSHAKE_MS + 200);
    while (hw_now() < end && !(was && r.fds == was->fds && r.heap < was->heap + HEAP_SLACK)) {
        f_sleep_ms(20);
        struct room n = look();
        r = was ? n : (struct room){HW_MIN(n.fds, r.fds), HW_MIN(n.heap, r.heap)};
    }
    return r;
}

static bool only_side_left(void *arg)
{
    struct f_server *sv = arg;
    return atomic_load(&sv->sessions) == 1;
}

static void kill_clients(void)
{
    struct f_server *sv = &sh->sv;
    memset(&sh->side, 0, sizeof(sh->side));
    pid_t server = start_server(sv, SIZE, quick), side = f_fork(LIMIT_S);
    if (side == 0) {
        hawser *h = open_context(quick);
        be_healthy(h, (uint16_t)atomic_load(&sv->port));
        hawser_close(h);
        _exit(0);
    }
    f_reaches(&sh->side.ready, 1, 10000);
    struct aim aim[SLOTS] = {0};
    unsigned begun = 0, dead = 0, missed = 0, warm = SLOTS * 2;
    struct room was = {0};
    while (dead < kills + warm) {
        for (unsigned k = 0; k < SLOTS; k++) {
            if (aim[k].pid && fire(&aim[k], &sh->slot[k].phase, &missed)) {
                aim[k].pid = 0;
                dead++;
            }
            /* the first victims only warm up caches and are not counted */
            if (!aim[k].pid && begun < (dead >= warm ? kills + warm : warm)) {
                if (begun == warm) {
                    f_reaches(&sh->side.warm, 1, 20000);
                    f_until(only_side_left, sv, PEER_MS + SLACK_MS);
                    was = settled(server_room, NULL);
                }
                atomic_store(&sh->slot[k].phase, F_BORN);
                pid_t pid = f_fork(30);
                if (pid == 0) {
                    hawser *h = open_context(quick);
                    for (uint64_t seed = 1;; seed += 10)
                        (void)life(h, (uint16_t)atomic_load(&sv->port), &sh->slot[k].phase, seed);
                }
                aim_at(&aim[k], pid, begun++);
            }
        }
        pause_us(100);
    }
    uint64_t last = hw_now();
    bool all = f_until(only_side_left, sv, PEER_MS + SLACK_MS);
    ok(all, "%u clients killed (%u not where they should): the server has noticed all %llu ms after the last", kills,
       missed, (unsigned long long)((hw_now() - last) / HW_MS));
    is_int(atomic_load(&sv->untyped), 0, "each by -ECONNRESET, -ESHUTDOWN or -ETIMEDOUT");
    is_int(atomic_load(&sv->bad), 0, "no byte that arrived was wrong or out of place");
    diag("%u sessions were begun, %u ended without a word", atomic_load(&sv->accepted), atomic_load(&sv->died));
    struct room now = settled(server_room, &was);
    ok(atomic_load(&sh->side.warm) && was.fds != UINT32_MAX && now.fds != UINT32_MAX, "the server answers");
    long long grown = (long long)now.heap - (long long)was.heap;
    ok(grown < (long long)HEAP_SLACK, "its heap has grown by %lld bytes from %llu", grown,
       (unsigned long long)was.heap);
    is_int(now.fds, was.fds, "and it has the descriptors that it had");
    atomic_store(&sh->side.stop, 1);
    is_int(f_reap(side, 30000), 0, "the other peer ends well");
    check_healthy("clients");
    ok(stop_server(sv, server), "the server ends well");
}

/* ---- servers are killed; the survivor has a thread per slot ----------------------------------------- */

struct job {
    hawser *h;
    struct slot *s;
};

static void *survivor_thread(void *arg)
{
    struct job *j = arg;
    for (int turn = 1; f_reaches(&j->s->turn, turn, 60000); turn++) {
        if (atomic_load(&j->s->turn) == INT32_MAX)
            break;
        int rc = 0;
        for (uint64_t seed = 1; rc == 0; seed += 10)
            rc = life(j->h, (uint16_t)atomic_load(&j->s->sv.port), &j->s->phase, seed);
        snprintf(j->s->text, sizeof(j->s->text), "%s", hawser_error());
        atomic_store(&j->s->rc, rc);
        atomic_store(&j->s->ended, hw_now());
        atomic_store(&j->s->done, turn);
    }
    return NULL;
}

static void *side_thread(void *arg)
{
    be_healthy(arg, (uint16_t)atomic_load(&sh->sv.port));
    return NULL;
}

static int survivor(void)
{
    hawser *h = open_context(quick);
    pthread_t t[SLOTS], st;
    struct job job[SLOTS];
    pthread_create(&st, NULL, side_thread, h);
    for (unsigned k = 0; k < SLOTS; k++) {
        job[k] = (struct job){.h = h, .s = &sh->slot[k]};
        pthread_create(&t[k], NULL, survivor_thread, &job[k]);
    }
    for (int i = 1; i <= 2; i++) { /* measure this process when the test requests it */
        if (!f_reaches(&sh->want, i, 100000))
            return 3;
        const struct room was = {atomic_load(&sh->fds[0]), atomic_load(&sh->heap[0])};
        const struct room now = settled(own_room, i == 1 ? NULL : &was);
        atomic_store(&sh->fds[i - 1], now.fds);
        atomic_store(&sh->heap[i - 1], now.heap);
        atomic_store(&sh->got, i);
    }
    for (unsigned k = 0; k < SLOTS; k++)
        pthread_join(t[k], NULL);
    pthread_join(st, NULL);
    hawser_close(h);
    return 0;
}

static void kill_servers(void)
{
    memset(&sh->side, 0, sizeof(sh->side));
    for (unsigned k = 0; k < SLOTS; k++)
        memset(&sh->slot[k], 0, sizeof(sh->slot[k]));
    pid_t server = start_server(&sh->sv, SIZE, quick), pid = f_fork(LIMIT_S);
    if (pid == 0)
        _exit(survivor());
    f_reaches(&sh->side.ready, 1, 10000);
    struct aim aim[SLOTS] = {0};
    int turn[SLOTS] = {0};
    bool shot[SLOTS] = {false};
    unsigned begun = 0, ended = 0, missed = 0, warm = SLOTS * 2, untyped = 0, late = 0, refused = 0;
    uint64_t worst = 0, give_up = hw_deadline(80000);
    while (ended < kills + warm && hw_now() < give_up) {
        for (unsigned k = 0; k < SLOTS; k++) {
            struct slot *s = &sh->slot[k];
            if (aim[k].pid && !shot[k])
                shot[k] = fire(&aim[k], &s->phase, &missed);
            if (shot[k] && atomic_load(&s->done) == turn[k]) {
                int rc = atomic_load(&s->rc);
                uint64_t end = atomic_load(&s->ended), took = end > aim[k].kill ? end - aim[k].kill : 0;
                refused += rc == -ECONNREFUSED; /* the server was killed before or between connections */
                if (!f_typed(rc) && rc != -ECONNREFUSED) {
                    untyped++;
                    diag("killed in phase %d: %d %s", aim[k].phase, rc, s->text);
                }
                if (took > (PEER_MS + SLACK_MS) * HW_MS) {
                    late++;
                    diag("killed in phase %d: %llu ms: %s", aim[k].phase, (unsigned long long)(took / HW_MS), s->text);
                }
                worst = HW_MAX(worst, took);
                shot[k] = false;
                aim[k].pid = 0;
                ended++;
            }
            if (!aim[k].pid && begun < (ended >= warm ? kills + warm : warm)) {
                if (begun == warm) {
                    f_reaches(&sh->side.warm, 1, 20000);
                    atomic_store(&sh->want, 1);
                    f_reaches(&sh->got, 1, 10000);
                }
                atomic_store(&s->phase, F_BORN);
                aim_at(&aim[k], start_server(&s->sv, SIZE, quick), begun++);
                atomic_store(&s->turn, ++turn[k]);
            }
        }
        pause_us(100);
    }
    is_int(ended, kills + warm, "servers killed, and each client knows");
    ok(untyped == 0, "each by -ECONNRESET, -ESHUTDOWN or -ETIMEDOUT (%u by -ECONNREFUSED; %u killed elsewhere)",
       refused, missed);
    ok(late == 0, "the slowest after %llu ms", (unsigned long long)(worst / HW_MS));
    atomic_store(&sh->want, 2);
    ok(f_reaches(&sh->got, 2, 10000) && atomic_load(&sh->side.warm), "the survivor answers");
    long long grown = (long long)atomic_load(&sh->heap[1]) - (long long)atomic_load(&sh->heap[0]);
    ok(grown < (long long)HEAP_SLACK, "the survivor's heap has grown by %lld bytes from %llu", grown,
       (unsigned long long)atomic_load(&sh->heap[0]));
    is_int(atomic_load(&sh->fds[1]), atomic_load(&sh->fds[0]), "and it has the descriptors that it had");
    atomic_store(&sh->side.stop, 1);
    for (unsigned k = 0; k < SLOTS; k++)
        atomic_store(&sh->slot[k].turn, INT32_MAX);
    is_int(f_reap(pid, 30000), 0, "the survivor ends well");
    check_healthy("servers");
    ok(stop_server(&sh->sv, server), "the server that was let live too");
}

/* ---- stopped ---------------------------------------------------------------------------------------- */

struct stop_case {
    const char *what;
    enum f_op op;
    unsigned stop_ms, op_ms, peer_ms;
    bool client; /* true if the client is stopped instead of the server */
};

/* Runs the client, which may itself be stopped. Makes one transfer and then, if the peer is still alive, a second
 * transfer over a new connection. Meanwhile, a thread makes transfers with another peer of the same context. */
static int stop_client(const struct stop_case *t)
{
    char peer_ms[40];
    const char *knobs[] = {peer_ms, "channels=2", NULL};
    snprintf(peer_ms, sizeof(peer_ms), "peer_timeout_ms=%u", t->peer_ms);
    hawser *h = open_context(knobs);
    struct f_client c = {.phase = &sh->slot[0].phase, .timeout_ms = (int)t->op_ms};
    uint64_t ns = 0, bad = 0;
    pthread_t side;
    pthread_create(&side, NULL, side_thread, h);
    int rc = f_connect(&c, h, LOCAL, (uint16_t)atomic_load(&sh->sv2.port), 64u << 20, NULL, 10000);
    if (rc == 0) {
        atomic_store(&sh->step, 1);
        rc = f_transfer(&c, t->op, 1, 64u << 20, &ns, &bad);
    }
    snprintf(sh->text, sizeof(sh->text), "%s", rc ? hawser_error() : "");
    atomic_store(&sh->rc, rc);
    atomic_store(&sh->ns, ns);
    struct hawser_channel_stats st[F_CHANS_MAX];
    size_t n = F_CHANS_MAX;
    uint64_t lost = 0;
    hawser_channel_stats(c.p, st, &n);
    for (size_t i = 0; i < n; i++)
        lost += st[i].lost;
    atomic_store(&sh->lost, lost);
    atomic_store(&sh->step, 2);
    f_reaches(&sh->go, 1, 20000); /* wait until the stopped process has continued */
    /* The reply to a cancelled command may still be in flight, so use a new connection for the next command, but only
     * if the old connection still works. */
    int rc2 = hawser_peer_state(c.p);
    f_close(&c);
    c.timeout_ms = 10000;
    if (rc2 == 0)
        rc2 = f_connect(&c, h, LOCAL, (uint16_t)atomic_load(&sh->sv2.port), 64u << 20, NULL, 5000);
    if (rc2 == 0)
        rc2 = f_transfer(&c, t->op, 2, 1u << 20, NULL, &bad);
    f_close(&c);
    atomic_store(&sh->bad, bad);
    atomic_store(&sh->side.stop, 1);
    pthread_join(side, NULL);
    hawser_close(h);
    return rc2 ? 1 : 0;
}

/* Stops a process during an operation. Returns false if the operation completed before the stop and this is not the
 * last try, so the test must be repeated. */
static bool stopped(const struct stop_case *t, bool last)
{
    char peer_ms[40];
    const char *knobs[] = {peer_ms, "keepalive_ms=1000", NULL};
    snprintf(peer_ms, sizeof(peer_ms), "peer_timeout_ms=%u", t->peer_ms);
    memset(&sh->side, 0, sizeof(sh->side));
    memset(&sh->slot[0], 0, sizeof(sh->slot[0]));
    atomic_store(&sh->step, 0);
    atomic_store(&sh->go, 0);
    pid_t other = start_server(&sh->sv, SIZE, knobs), server = start_server(&sh->sv2, 64u << 20, knobs),
          client = f_fork(LIMIT_S), victim = t->client ? client : server;
    if (client == 0)
        _exit(stop_client(t));
    f_reaches(&sh->slot[0].phase, F_IN_WRITE + (int)t->op, 10000);
    f_sleep_ms(2);
    kill(victim, SIGSTOP);
    bool mid = atomic_load(&sh->step) == 1;
    int rounds = atomic_load(&sh->side.rounds);
    uint64_t end = hw_deadline((int)t->stop_ms);
    while (hw_now() < end && atomic_load(&sh->step) != 2) /* the operation may expire before the stop ends */
        f_sleep_ms(2);
    rounds = atomic_load(&sh->side.rounds) - rounds;
    kill(victim, SIGCONT);
    bool through = f_reaches(&sh->step, 2, 30000);
    atomic_store(&sh->go, 1);
    int rc = atomic_load(&sh->rc);
    unsigned long long ms = atomic_load(&sh->ns) / HW_MS;
    bool expires = t->op_ms < t->stop_ms, dies = !expires && t->peer_ms < t->stop_ms;
    int want = expires ? -ETIMEDOUT : dies ? -ECONNRESET : 0;
    if (!last && through && rc == 0 && ms < t->op_ms && ms < t->stop_ms) {
        int well = f_reap(client, 30000), bad = (int)(atomic_load(&sh->bad) + atomic_load(&sh->sv2.bad));
        if (stop_server(&sh->sv2, server) && stop_server(&sh->sv, other) && well == 0 && bad == 0)
            return false;
    }
    ok(mid && through, "%s, stopped in the middle: it ends", t->what);
    is_int(rc, want,
           expires ? "it fails by its deadline"
           : dies  ? "it fails, as the peer gives no sign of life"
                   : "it is complete once the peer goes on");
    if (*sh->text)
        diag("%s", sh->text);
    if (expires) /* before the process continues */
        ok(ms + 50 >= t->op_ms && ms < t->stop_ms, "after %llu ms of %u", ms, t->op_ms);
    else if (dies) /* after peer_timeout_ms; a stopped client detects this when it continues */
        ok(ms + 100 >= t->peer_ms && ms <= (t->client ? t->stop_ms : t->peer_ms) + SLACK_MS, "after %llu ms of %u", ms,
           t->peer_ms);
    else
        ok(ms + 100 >= t->stop_ms && ms <= t->stop_ms + 10000, "after %llu ms, %u of them stopped", ms, t->stop_ms);
    if (want == 0) /* a zero window is not a dead path */
        is_int(atomic_load(&sh->lost), 0, "and no channel was given up");
    if (!t->client)
        ok(rounds >= 3, "%d transfers with another peer meanwhile", rounds);
    is_int(f_reap(client, 30000), dies,
           dies ? "the client knows that it is dead" : "the peer is well, and new transfers with it");
    is_int(atomic_load(&sh->bad) + atomic_load(&sh->sv2.bad), 0, "no byte is wrong or out of place");
    is_int(atomic_load(&sh->side.rc), dies && t->client ? -ECONNRESET : 0,
           dies && t->client ? "the other server gave the client up too" : "nor did the other peer notice");
    ok(stop_server(&sh->sv2, server) && stop_server(&sh->sv, other), "the servers end well");
    return true;
}

/* ---- idle; connections ----------------------------------------------------------------------------- */

/* Stores the number of this machine's connections to the port in *n. Returns a checksum of the inode numbers of their
 * sockets. */
static uint64_t connections(uint16_t port, unsigned *n)
{
    char line[512];
    uint64_t sum = 0;
    FILE *f = fopen("/proc/self/net/tcp", "re");
    *n = 0;
    while (f && fgets(line, sizeof(line), f)) {
        /* The fields are slot, local, remote, state, queues, timer, retransmissions, user, timeout and inode; see
         * Documentation/networking/proc_net_tcp.rst. */
        char *word[10] = {0}, *rest = line;
        size_t k = 0;
        while (k < HW_ARRAY_LEN(word) && (word[k] = strtok_r(rest, " ", &rest)))
            k++;
        char *colon = k == HW_ARRAY_LEN(word) ? strchr(word[2], ':') : NULL;
        if (colon && strtoul(colon + 1, NULL, 16) == port && strcmp(word[3], "01") == 0) { /* TCP_ESTABLISHED */
            ++*n;
            sum += strtoul(word[9], NULL, 10) * 0x9e3779b97f4a7c15ull;
        }
    }
    if (f)
        fclose(f);
    return sum;
}

/* Waits up to 10 s until every channel is up and two consecutive results of connections() are equal, and returns this
 * result. A single result may be wrong, because the file is not read atomically and other sockets may change
 * meanwhile. */
static uint64_t all_made(struct f_client *c, uint16_t port, unsigned want, unsigned *n)
{
    uint64_t was = 0, now = 0;
    for (int i = 0; i < 1000; i++, was = now) {
        struct hawser_channel_stats st[F_CHANS_MAX];
        size_t chans = F_CHANS_MAX, up = 0;
        hawser_channel_stats(c->p, st, &chans);
        for (size_t k = 0; k < chans && k < F_CHANS_MAX; k++)
            up += st[k].up;
        now = connections(port, n);
        if (up + 1 >= want && *n == want && now == was)
            break;
        f_sleep_ms(10);
    }
    return now;
}

struct idle {
    struct f_server sv;
    atomic_int rc, same;
    atomic_uint n;
    atomic_ullong ns, lost, bad;
};

static int idle_client(struct idle *r, unsigned idle_ms, unsigned transfers)
{
    static const char *const knobs[] = {"keepalive_ms=1000", "channels=3", "stall_ms=500", "peer_timeout_ms=2000",
                                        NULL};
    hawser *h = open_context(knobs);
    struct f_client c = {0};
    uint16_t port = (uint16_t)atomic_load(&r->sv.port);
    uint64_t bad = 0, ns = 0;
    unsigned before, after;
    int rc = f_connect(&c, h, LOCAL, port, SIZE, NULL, 10000);
    uint64_t a = all_made(&c, port, 4, &before); /* f_connect() returns when one channel is up */
    f_sleep_ms(idle_ms);
    for (unsigned i = 0; i < transfers && rc == 0; i++)
        rc = f_transfer(&c, i % 3, i, i % 10 ? 64u << 10 : 2u << 20, idle_ms ? &ns : NULL, &bad);
    uint64_t b = all_made(&c, port, 4, &after);
    struct hawser_channel_stats st[F_CHANS_MAX];
    size_t n = F_CHANS_MAX;
    hawser_channel_stats(c.p, st, &n);
    for (size_t i = 0; i < n; i++)
        atomic_fetch_add(&r->lost, st[i].lost);
    atomic_store(&r->same, a == b && before == after);
    atomic_store(&r->n, after);
    atomic_store(&r->ns, ns);
    atomic_store(&r->bad, bad);
    atomic_store(&r->rc, rc);
    f_close(&c);
    hawser_close(h);
    return 0;
}

static pid_t start_idle(struct idle *r, pid_t *server, unsigned idle_ms, unsigned transfers)
{
    static const char *const knobs[] = {"keepalive_ms=1000", "peer_timeout_ms=2000", NULL};
    *server = start_server(&r->sv, SIZE, knobs);
    pid_t pid = f_fork(LIMIT_S);
    if (pid == 0)
        _exit(idle_client(r, idle_ms, transfers));
    return pid;
}

static void end_idle(struct idle *r, pid_t client, pid_t server, const char *what)
{
    is_int(f_reap(client, 60000), 0, what);
    is_int(atomic_load(&r->rc), 0, "every transfer is complete");
    is_int(atomic_load(&r->bad) + atomic_load(&r->sv.bad), 0, "and correct");
    ok(atomic_load(&r->same) && atomic_load(&r->n) == 4, "over the very same %u connections", atomic_load(&r->n));
    is_int(atomic_load(&r->lost) + atomic_load(&r->sv.lost), 0, "of which none was lost");
    ok(stop_server(&r->sv, server), "the server ends well");
}

int main(int argc, char **argv)
{
    /* Disables malloc's per-thread caches, whose contents (tens of KiB) would be counted as used memory. */
    if (argc && !getenv("GLIBC_TUNABLES") && !setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1))
        execv("/proc/self/exe", argv);
    static const struct stop_case stops[] = {
        {"write", F_WRITE, 3000, 1000, 10000, false},
        {"read", F_READ, 3000, 1000, 10000, false},
        {"send", F_SEND, 3000, 1000, 10000, false},
        {"write", F_WRITE, 2500, 20000, 10000, false},
        {"read", F_READ, 1500, 20000, 10000, false},
        {"send", F_SEND, 1500, 20000, 10000, false},
        {"write, longer than peer_timeout_ms", F_WRITE, 3000, 20000, 1000, false},
        {"write, the client, longer than peer_timeout_ms", F_WRITE, 3000, 20000, 1000, true},
        {"read, the client, longer than peer_timeout_ms", F_READ, 3000, 20000, 1000, true},
    };
    if (getenv("HAWSER_TEST_LONG"))
        kills = 1000;
    else if (f_sanitized())
        kills = 24; /* a sanitizer makes everything ten times slower */
    rnd = (unsigned)hw_now();
    diag("random seed %u", rnd);
    sh = f_shared(sizeof(*sh), NULL);
    struct idle *idle = f_shared(sizeof(*idle), NULL), *many = f_shared(sizeof(*many), NULL);
    pid_t idle_server, many_server;
    alarm(LIMIT_S * (getenv("HAWSER_TEST_LONG") ? 8u : f_sanitized() ? 3u : 1u));
    pid_t idler = start_idle(idle, &idle_server, 12000, 1);
    for (size_t i = 0; i < HW_ARRAY_LEN(stops); i++)
        for (int tries = 1; !stopped(&stops[i], tries == 5); tries++)
            diag("the stop came after the end: again");
    end_idle(idle, idler, idle_server, "idle for 12 s with keepalive_ms=1000, then a transfer");
    ok(atomic_load(&idle->ns) < 1000 * HW_MS, "that is not held up: %llu us", atomic_load(&idle->ns) / 1000);
    pid_t worker = start_idle(many, &many_server, 0, 1000);
    end_idle(many, worker, many_server, "1000 transfers");
    kill_clients();
    kill_servers();
    return tap_done();
}
