/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include "base/list.h"
#include "base/pattern.h"
#include "tests/proc.h"

#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GUARD   4096
#define POISON  0xa5
#define REPLIES 16

enum { CMD_PREPARE = 1, CMD_CHECK, CMD_FILL, CMD_RECV, REPLY = 100, REPLY_RECV };

struct msg { /* both sides are the same program, so no encoding is needed */
    uint32_t what;
    int32_t rc;
    uint64_t seed, len, bad;
    uint8_t key[HAWSER_KEY_SIZE];
    uint64_t size;
};

const char *f_job_key;

/* Returns the heap bytes in use under AddressSanitizer or ThreadSanitizer, which glibc does not count. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

bool f_sanitized(void)
{
    return __sanitizer_get_current_allocated_bytes != NULL;
}

size_t f_heap(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

unsigned f_fds(void)
{
    int n = proc_entries("/proc/self/fd");
    return n < 0 ? 0 : (unsigned)n - 1; /* excludes the file descriptor of the folder itself */
}

size_t f_rss(void)
{
    char line[128];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = strtoul(line + 6, NULL, 10);
    if (f)
        fclose(f);
    return kb * 1024;
}

void f_sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

bool f_until(bool (*done)(void *), void *arg, int timeout_ms)
{
    uint64_t end = hw_deadline(timeout_ms);
    while (!done(arg)) {
        if (hw_now() >= end)
            return done(arg);
        f_sleep_ms(2);
    }
    return true;
}

bool f_reaches(atomic_int *v, int want, int timeout_ms)
{
    uint64_t end = hw_deadline(timeout_ms);
    while (atomic_load(v) < want) {
        if (hw_now() >= end)
            return atomic_load(v) >= want;
        f_sleep_ms(1);
    }
    return true;
}

void *f_shared(size_t size, int *out)
{
    int fd = memfd_create("hawser-test", 0);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        abort();
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        abort();
    if (out)
        *out = fd;
    else
        close(fd);
    return p;
}

pid_t f_fork(unsigned limit_s)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        alarm(limit_s);
    }
    return pid;
}

int f_reap(pid_t pid, int timeout_ms)
{
    uint64_t end = hw_deadline(timeout_ms);
    int st;
    for (;;) {
        pid_t got = waitpid(pid, &st, WNOHANG);
        if (got == pid)
            return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
        if (got < 0 && errno != EINTR)
            return -1;
        if (hw_now() >= end)
            break;
        f_sleep_ms(2);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    return -1;
}

bool f_typed(int rc)
{
    return rc == -ECONNRESET || rc == -ESHUTDOWN || rc == -ETIMEDOUT;
}

const char *f_op_name(enum f_op op)
{
    static const char *const name[] = {"write", "read", "send"};
    return name[op];
}

/* ---- buffers between guards ------------------------------------------------------------------------------------ */

static uint8_t *buf_new(size_t size, uint8_t **raw)
{
    *raw = mmap(NULL, size + 2 * GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*raw == MAP_FAILED)
        abort();
    memset(*raw, POISON, GUARD);
    memset(*raw + GUARD + size, POISON, GUARD);
    return *raw + GUARD;
}

static uint64_t not_poison(const uint8_t *p, size_t n)
{
    uint64_t bad = 0;
    if (n == 0 || (p[0] == POISON && memcmp(p, p + 1, n - 1) == 0))
        return 0;
    for (size_t i = 0; i < n; i++)
        bad += p[i] != POISON;
    return bad;
}

static uint64_t guards_hurt(const uint8_t *buf, size_t size)
{
    return not_poison(buf - GUARD, GUARD) + not_poison(buf + size, GUARD);
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

struct session {
    struct hw_list link;
    hawser_peer *p;
    uint8_t *raw, *buf;
    hawser_mem *mem;
    bool poisoned;
    uint64_t used; /* bytes that the last transfer filled */
    hawser_op *recv;
    struct msg recv_cmd;
    hawser_op *reply[REPLIES];
};

struct server {
    struct f_server *sv;
    hawser *h;
    size_t size;
    struct hw_list sessions;
};

static void server_log(void *arg, int level, const char *line)
{
    struct f_server *sv = arg;
    size_t n = strlen(line) + 1;
    if (getenv("FAULTS_LOG"))
        fprintf(stderr, "# server %5llu.%03llu %d %s\n", (unsigned long long)(hw_now() / 1000000000),
                (unsigned long long)(hw_now() / 1000000 % 1000), level, line);
    unsigned at = atomic_fetch_add(&sv->log_len, (unsigned)n);
    if (at + n >= F_LOG_SIZE) {
        atomic_fetch_sub(&sv->log_len, (unsigned)n);
        return;
    }
    memcpy(sv->log + at, line, n);
    sv->log[at + n - 1] = '\n';
}

static void reply(struct session *s, const struct msg *m)
{
    for (int i = 0; i < REPLIES; i++) {
        if (s->reply[i] && hawser_test(s->reply[i]) != -EAGAIN) {
            hawser_op_free(s->reply[i]);
            s->reply[i] = NULL;
        }
        if (!s->reply[i]) {
            (void)hawser_notify(s->p, m, sizeof(*m), NULL,
                                &s->reply[i]); /* fails if the peer has died, which session_run() detects */
            return;
        }
    }
    abort(); /* unreachable, because a client sends one command at a time */
}

static void session_end(struct server *v, struct session *s, int rc)
{
    struct f_server *sv = v->sv;
    struct hawser_channel_stats st[F_CHANS_MAX];
    size_t n = F_CHANS_MAX;
    hawser_channel_stats(s->p, st, &n);
    for (size_t i = 0; i < n; i++)
        atomic_fetch_add(&sv->rx_bytes, st[i].rx_bytes);
    hawser_op_free(s->recv);
    for (int i = 0; i < REPLIES; i++)
        hawser_op_free(s->reply[i]);
    hawser_peer_close(s->p);
    if (s->mem && hawser_mem_deregister(s->mem))
        abort();
    atomic_fetch_add(&sv->bad, guards_hurt(s->buf, v->size) + (s->poisoned ? not_poison(s->buf, s->used) : 0));
    munmap(s->raw, v->size + 2 * GUARD);
    hw_list_remove(&s->link);
    free(s);
    atomic_store(&sv->last_rc, rc);
    atomic_store(&sv->last_end, hw_now());
    if (rc != -ESHUTDOWN)
        atomic_fetch_add(&sv->died, 1);
    if (!f_typed(rc))
        atomic_fetch_add(&sv->untyped, 1);
    atomic_fetch_sub(&sv->sessions, 1);
}

static void session_begin(struct server *v, hawser_peer *p)
{
    struct session *s = calloc(1, sizeof(*s));
    struct msg m = {.what = REPLY, .size = v->size};
    if (!s)
        abort();
    hw_list_init(&s->link);
    s->p = p;
    s->buf = buf_new(v->size, &s->raw);
    if (hawser_mem_register(v->h, HAWSER_MEM_HOST, s->buf, v->size, &s->mem) ||
        hawser_export(s->mem, 0, v->size, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, p, m.key))
        abort();
    hw_list_append(&v->sessions, &s->link);
    atomic_fetch_add(&v->sv->sessions, 1);
    atomic_fetch_add(&v->sv->accepted, 1);
    reply(s, &m);
}

static uint64_t check_and_poison(struct server *v, struct session *s, const struct msg *m)
{
    uint64_t bad = hw_pattern_check(s->buf, m->len, m->seed, 0, NULL) + guards_hurt(s->buf, v->size);
    memset(s->buf, POISON, m->len);
    s->used = m->len;
    s->poisoned = true;
    return bad;
}

static uint64_t end_poison(struct session *s)
{
    uint64_t bad = s->poisoned ? not_poison(s->buf, s->used) : 0;
    s->poisoned = false;
    return bad;
}

static void command(struct server *v, struct session *s, const struct msg *m)
{
    struct msg r = {.what = REPLY, .rc = m->len > v->size ? -EINVAL : 0};
    struct hawser_vec vec = {.mem = s->mem, .length = m->len};
    if (r.rc == 0) {
        switch (m->what) {
        case CMD_PREPARE:
            r.bad = end_poison(s);
            break;
        case CMD_CHECK:
            r.bad = check_and_poison(v, s, m);
            break;
        case CMD_FILL:
            r.bad = end_poison(s);
            hw_pattern_fill(s->buf, m->len, m->seed, 0);
            break;
        case CMD_RECV:
            r.bad = end_poison(s);
            s->recv_cmd = *m;
            hawser_op_free(s->recv);
            s->recv = NULL;
            struct hawser_op_options o = {.size = sizeof(o), .timeout_ms = -1};
            r.rc = hawser_recv(s->p, &vec, 1, &o, &s->recv);
            break;
        default:
            r.rc = -EINVAL;
        }
    }
    atomic_fetch_add(&v->sv->bad, r.bad);
    reply(s, &r);
}

/* Processes a session's pending commands. Returns false if the session has ended. */
static bool session_run(struct server *v, struct session *s, unsigned *lost)
{
    struct msg m;
    size_t len;
    int rc;
    while (hawser_notification(s->p, &m, sizeof(m), &len) == 0 && len == sizeof(m))
        command(v, s, &m);
    if (s->recv && (rc = hawser_test(s->recv)) != -EAGAIN) {
        struct msg r = {.what = REPLY_RECV, .rc = rc};
        if (rc == 0)
            r.bad = check_and_poison(v, s, &s->recv_cmd);
        if (rc == 0 && hawser_op_length(s->recv) != s->recv_cmd.len)
            r.bad++;
        atomic_fetch_add(&v->sv->bad, r.bad);
        hawser_op_free(s->recv);
        s->recv = NULL;
        reply(s, &r);
    }
    struct hawser_channel_stats st[F_CHANS_MAX];
    size_t n = F_CHANS_MAX;
    hawser_channel_stats(s->p, st, &n);
    rc = hawser_peer_state(s->p); /* the channels of a lost peer do not count */
    for (size_t i = 0; i < n && rc == 0; i++)
        *lost += st[i].lost;
    if (rc == 0)
        return true;
    session_end(v, s, rc);
    return false;
}

static void measure(struct f_server *sv)
{
    unsigned want = atomic_load(&sv->probe);
    if (want == atomic_load(&sv->seen))
        return;
    atomic_store(&sv->fds, f_fds());
    atomic_store(&sv->heap, f_heap());
    malloc_trim(0);
    atomic_store(&sv->rss, f_rss());
    atomic_store(&sv->seen, want);
}

bool f_probe(struct f_server *sv)
{
    unsigned want = atomic_fetch_add(&sv->probe, 1) + 1;
    for (int i = 0; i < 2500 && atomic_load(&sv->seen) != want; i++)
        f_sleep_ms(2);
    return atomic_load(&sv->seen) == want;
}

int f_serve(struct f_server *sv, const char *addr, size_t size, const char *const *knobs)
{
    struct hawser_options o = {.size = sizeof(o),
                               .log = server_log,
                               .log_arg = sv,
                               .knobs = knobs,
                               .key = f_job_key,
                               .key_len = f_job_key ? strlen(f_job_key) : 0};
    struct server v = {.sv = sv, .size = size};
    uint16_t port = 0;
    hw_list_init(&v.sessions);
    int rc = hawser_open(&o, &v.h);
    if (rc == 0)
        rc = hawser_listen(v.h, addr, 0, &port);
    if (rc) {
        fprintf(stderr, "# server: %s\n", hawser_error());
        atomic_store(&sv->port, rc);
        return 1;
    }
    struct pollfd pfd = {.fd = hawser_eventfd(v.h), .events = POLLIN};
    atomic_store(&sv->port, port);
    while (!atomic_load(&sv->stop)) {
        uint64_t n;
        unsigned lost = 0;
        if (poll(&pfd, 1, 10) > 0)
            (void)!read(pfd.fd, &n, sizeof(n));
        hawser_peer *p;
        while (hawser_accept(v.h, 0, &p) == 0)
            session_begin(&v, p);
        hw_list_each(it, tmp, &v.sessions)
        {
            (void)session_run(&v, hw_container_of(it, struct session, link), &lost);
        }
        atomic_store(&sv->lost, lost);
        measure(sv);
    }
    hw_list_each(it, tmp, &v.sessions)
    {
        session_end(&v, hw_container_of(it, struct session, link), -ESHUTDOWN);
    }
    hawser_close(v.h);
    return 0;
}

/* ---- the client -------------------------------------------------------------------------------------------------- */

static void phase(struct f_client *c, enum f_phase ph)
{
    if (c->phase)
        atomic_store(c->phase, (int)ph);
}

/* Waits for a message of type `what` from the server. Returns the result in the message, -EPROTO if another message
 * arrives, the peer's error, or -ETIMEDOUT. Waits 2 s longer than the operation timeout, or 30 s without a timeout. */
static int hear(struct f_client *c, uint32_t what, struct msg *m)
{
    uint64_t end = hw_deadline(c->timeout_ms ? c->timeout_ms + 2000 : 30000);
    size_t len;
    for (unsigned i = 0;; i++) {
        int rc = hawser_notification(c->p, m, sizeof(*m), &len);
        if (rc == 0)
            return len == sizeof(*m) && m->what == what ? m->rc : -EPROTO;
        if (rc != -EAGAIN)
            return rc;
        if ((rc = hawser_peer_state(c->p)))
            return rc;
        if (hw_now() >= end)
            return -ETIMEDOUT;
        struct timespec t = {.tv_nsec = i < 100 ? 50000 : 1000000};
        nanosleep(&t, NULL);
    }
}

static int tell(struct f_client *c, const struct msg *m)
{
    struct hawser_op_options o = {.size = sizeof(o), .timeout_ms = c->timeout_ms ? c->timeout_ms : 30000};
    hawser_op *op;
    int rc = hawser_notify(c->p, m, sizeof(*m), &o, &op);
    if (rc)
        return rc;
    rc = hawser_wait(op, -1);
    hawser_op_free(op);
    return rc;
}

static int ask(struct f_client *c, struct msg *m)
{
    struct msg r;
    int rc = tell(c, m);
    if (rc == 0)
        rc = hear(c, REPLY, &r);
    m->bad = rc == 0 ? r.bad : 0;
    return rc;
}

int f_connect(struct f_client *c, hawser *h, const char *addr, uint16_t port, size_t size,
              const struct hawser_connect_options *o, int timeout_ms)
{
    atomic_int *ph = c->phase;
    atomic_ullong *moved = c->moved;
    int op_ms = c->timeout_ms;
    memset(c, 0, sizeof(*c));
    c->phase = ph;
    c->moved = moved;
    c->timeout_ms = op_ms;
    c->h = h;
    c->size = size;
    phase(c, F_CONNECT);
    int rc = hawser_connect(h, addr, port, o, timeout_ms, &c->p);
    if (rc)
        return rc;
    phase(c, F_SETUP);
    c->buf = buf_new(size, &c->raw);
    struct msg m;
    if ((rc = hawser_mem_register(h, HAWSER_MEM_HOST, c->buf, size, &c->mem)) || (rc = hear(c, REPLY, &m)) ||
        (rc = hawser_import(m.key, &c->region)))
        return rc;
    phase(c, F_IDLE);
    return m.size == size ? 0 : -EPROTO;
}

void f_close(struct f_client *c)
{
    phase(c, F_CLOSING);
    if (c->phase) { /* time for the test to see this phase, in which it may kill the process */
        struct timespec t = {.tv_nsec = 300000};
        nanosleep(&t, NULL);
    }
    hawser_peer_close(c->p);
    if (c->mem && hawser_mem_deregister(c->mem))
        abort();
    if (c->raw)
        munmap(c->raw, c->size + 2 * GUARD);
    c->p = NULL;
    c->mem = NULL;
    c->raw = NULL;
}

static int run_op(struct f_client *c, enum f_op kind, size_t len, uint64_t *ns)
{
    struct hawser_vec v = {.mem = c->mem, .length = len, .region = &c->region};
    struct hawser_op_options o = {.size = sizeof(o), .timeout_ms = c->timeout_ms ? c->timeout_ms : 30000};
    hawser_op *op;
    uint64_t t0 = hw_now();
    int rc = kind == F_WRITE  ? hawser_write(c->p, &v, 1, &o, &op)
             : kind == F_READ ? hawser_read(c->p, &v, 1, &o, &op)
                              : hawser_send(c->p, &v, 1, &o, &op);
    if (rc)
        return rc;
    phase(c, F_IN_WRITE + kind);
    if (c->moved)
        while ((rc = hawser_wait(op, 5)) == -EAGAIN)
            atomic_store(c->moved, hawser_op_bytes(op));
    else
        rc = hawser_wait(op, -1);
    if (ns)
        *ns = hw_now() - t0;
    hawser_op_free(op);
    phase(c, F_IDLE);
    return rc;
}

int f_transfer(struct f_client *c, enum f_op op, uint64_t seed, size_t len, uint64_t *ns, uint64_t *bad)
{
    struct msg first = {.what = op == F_WRITE  ? CMD_PREPARE
                                : op == F_READ ? CMD_FILL
                                               : CMD_RECV,
                        .seed = seed,
                        .len = len};
    struct msg last = {.what = CMD_CHECK, .seed = seed, .len = len};
    /* checks that no data arrived after the end of the last read */
    uint64_t b = c->poisoned ? not_poison(c->buf, c->size) : 0;
    c->poisoned = false;
    if (op == F_READ)
        memset(c->buf, POISON, c->size);
    else
        hw_pattern_fill(c->buf, len, seed, 0);
    int rc = ask(c, &first);
    if (rc == 0)
        rc = run_op(c, op, len, ns);
    if (rc == 0 && op == F_WRITE) {
        rc = ask(c, &last);
    } else if (rc == 0 && op == F_SEND) {
        rc = hear(c, REPLY_RECV, &last);
    } else if (rc == 0) {
        last.bad = hw_pattern_check(c->buf, len, seed, 0, NULL) + not_poison(c->buf + len, c->size - len);
        memset(c->buf, POISON, c->size);
        c->poisoned = true;
    }
    if (rc)
        return rc;
    b += first.bad + last.bad + guards_hurt(c->buf, c->size);
    if (bad)
        *bad += b;
    return b ? -EBADMSG : 0;
}
