/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injects failures. In each run, one allocation or file descriptor fails, or all of them fail from that point on.
 * System calls transfer only a few bytes, are interrupted, or find no buffers. The library has no test hooks: the
 * linker redirects its calls (--wrap, see meson.build). Allocations within libc, such as in getaddrinfo() and
 * pthread_create(), are not redirected; instead, pthread_create() itself fails.
 */
#include "pairhelp.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* ---- allocations and descriptors ------------------------------------------------------------------ */

enum class { MEMORY, DESCRIPTOR, CLASSES };

static struct {
    atomic_bool armed;
    atomic_int of;    /* enum class */
    atomic_long n;    /* number of requests so far */
    atomic_long nth;  /* number of the request that fails */
    atomic_bool all;  /* all later requests fail too */
    atomic_long hits; /* number of failures so far */
} inject;
static atomic_long live;
static __thread bool spared; /* no request of this thread fails */

static bool fails(enum class c)
{
    if (spared || !atomic_load(&inject.armed) || atomic_load(&inject.of) != (int)c)
        return false;
    long n = atomic_fetch_add(&inject.n, 1) + 1, nth = atomic_load(&inject.nth);
    if (n != nth && (n < nth || !atomic_load(&inject.all)))
        return false;
    atomic_fetch_add(&inject.hits, 1);
    return true;
}

#define WRAP(ret, name, ...)        \
    ret __real_##name(__VA_ARGS__); \
    ret __wrap_##name(__VA_ARGS__); \
    ret __wrap_##name(__VA_ARGS__)

WRAP(void *, malloc, size_t n)
{
    if (fails(MEMORY))
        return errno = ENOMEM, NULL;
    void *p = __real_malloc(n);
    atomic_fetch_add(&live, p != NULL);
    return p;
}

WRAP(void *, calloc, size_t n, size_t size)
{
    if (fails(MEMORY))
        return errno = ENOMEM, NULL;
    void *p = __real_calloc(n, size);
    atomic_fetch_add(&live, p != NULL);
    return p;
}

WRAP(void *, realloc, void *old, size_t n)
{
    if (fails(MEMORY))
        return errno = ENOMEM, NULL;
    void *p = __real_realloc(old, n);
    atomic_fetch_add(&live, p != NULL && old == NULL);
    return p;
}

WRAP(char *, strdup, const char *s)
{
    if (fails(MEMORY))
        return errno = ENOMEM, NULL;
    char *p = __real_strdup(s);
    atomic_fetch_add(&live, p != NULL);
    return p;
}

WRAP(void, free, void *p)
{
    atomic_fetch_sub(&live, p != NULL);
    __real_free(p);
}

WRAP(int, socket, int domain, int type, int protocol)
{
    return fails(DESCRIPTOR) ? (errno = EMFILE, -1) : __real_socket(domain, type, protocol);
}

WRAP(int, pipe2, int fd[2], int flags)
{
    return fails(DESCRIPTOR) ? (errno = EMFILE, -1) : __real_pipe2(fd, flags);
}

WRAP(int, eventfd, unsigned n, int flags)
{
    return fails(DESCRIPTOR) ? (errno = EMFILE, -1) : __real_eventfd(n, flags);
}

WRAP(int, epoll_create1, int flags)
{
    return fails(DESCRIPTOR) ? (errno = EMFILE, -1) : __real_epoll_create1(flags);
}

WRAP(int, pthread_create, pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
    return fails(DESCRIPTOR) ? EAGAIN : __real_pthread_create(t, a, f, arg);
}

WRAP(int, accept4, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    return fails(DESCRIPTOR) ? (errno = EMFILE, -1) : __real_accept4(fd, addr, len, flags);
}

/* ---- partial system calls ---------------------------------------------------------------------------- */

static struct {
    atomic_uint shorten;   /* maximum bytes of a call, or 0 for no limit */
    atomic_uint interrupt; /* percentage of interrupted calls */
    atomic_uint starve;    /* percentage of sends that fail with ENOBUFS or ENOMEM */
    atomic_uint again;     /* percentage of calls that fail with EAGAIN and cause a new event */
    atomic_ulong calls, cut, bent;
} io;

static __thread uint64_t seed;
static atomic_ulong seeds;

static unsigned any(unsigned below)
{
    if (!seed)
        seed = (atomic_fetch_add(&seeds, 1) + 1) * 0x9e3779b97f4a7c15ull;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 33) % below;
}

/* Records which epoll instance watches each file descriptor. The kernel reports an edge-triggered event only once, so
 * after a simulated EAGAIN the test modifies the epoll entry to make the kernel report the event again. */
#define FDS 4096
static struct {
    atomic_int epfd;
    _Atomic(void *) ptr;
} watched[FDS];

WRAP(int, epoll_ctl, int epfd, int op, int fd, struct epoll_event *ev)
{
    if (fd >= 0 && fd < FDS) {
        if (op == EPOLL_CTL_DEL) {
            atomic_store(&watched[fd].epfd, -1);
        } else {
            atomic_store(&watched[fd].ptr, ev->data.ptr);
            atomic_store(&watched[fd].epfd, epfd);
        }
    }
    return __real_epoll_ctl(epfd, op, fd, ev);
}

WRAP(int, close, int fd)
{
    if (fd >= 0 && fd < FDS)
        atomic_store(&watched[fd].epfd, -1);
    return __real_close(fd);
}

static void tell_again(int fd)
{
    int saved = errno, epfd = fd >= 0 && fd < FDS ? atomic_load(&watched[fd].epfd) : -1;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    if (epfd >= 0) {
        ev.data.ptr = atomic_load(&watched[fd].ptr);
        (void)__real_epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &ev);
    }
    errno = saved;
}

/* Decides at random whether a call fails. If so, sets errno and returns true. */
static bool bend(int fd, bool sends)
{
    atomic_fetch_add(&io.calls, 1);
    unsigned roll = any(100), at = atomic_load(&io.interrupt);
    int err = 0;
    if (roll < at)
        err = EINTR;
    else if (sends && roll < (at += atomic_load(&io.starve)))
        err = roll & 1 ? ENOBUFS : ENOMEM;
    else if (roll < at + atomic_load(&io.again))
        err = EAGAIN;
    if (!err)
        return false;
    if (err == EAGAIN)
        tell_again(fd);
    atomic_fetch_add(&io.bent, 1);
    errno = err;
    return true;
}

static size_t cut(size_t n)
{
    unsigned most = atomic_load(&io.shorten);
    if (!most || n <= 1)
        return n;
    size_t k = 1 + any(most);
    if (k >= n)
        return n;
    atomic_fetch_add(&io.cut, 1);
    return k;
}

/* Copies the entries for the first `room` bytes of iov to out. Returns the number of entries. */
static int cut_iov(struct iovec *out, const struct iovec *iov, size_t n, size_t room)
{
    size_t i = 0;
    for (; i < n && room; i++) {
        out[i] = iov[i];
        out[i].iov_len = HW_MIN(out[i].iov_len, room);
        room -= out[i].iov_len;
    }
    return (int)i;
}

static size_t iov_sum(const struct iovec *iov, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += iov[i].iov_len;
    return sum;
}

WRAP(ssize_t, recv, int fd, void *buf, size_t n, int flags)
{
    if (bend(fd, false))
        return -1;
    size_t k = cut(n);
    ssize_t got = __real_recv(fd, buf, k, flags);
    if (k < n)
        tell_again(fd);
    return got;
}

WRAP(long, syscall, long nr, long a, long b, long c, long d, long e, long f)
{
    if (nr != SYS_recvfrom)
        return __real_syscall(nr, a, b, c, d, e, f);
    if (bend((int)a, false))
        return -1;
    size_t k = cut((size_t)c);
    long got = __real_syscall(nr, a, b, (long)k, d, e, f);
    if (k < (size_t)c)
        tell_again((int)a);
    return got;
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *m, int flags)
{
    if (bend(fd, false))
        return -1;
    struct iovec iov[64];
    struct msghdr less = *m;
    size_t all = iov_sum(m->msg_iov, m->msg_iovlen), k = cut(all);
    less.msg_iov = iov;
    less.msg_iovlen = (size_t)cut_iov(iov, m->msg_iov, HW_MIN(m->msg_iovlen, HW_ARRAY_LEN(iov)), k);
    ssize_t got = __real_recvmsg(fd, &less, flags);
    if (k < all)
        tell_again(fd);
    return got;
}

WRAP(ssize_t, send, int fd, const void *buf, size_t n, int flags)
{
    if (bend(fd, true))
        return -1;
    return __real_send(fd, buf, cut(n), flags);
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *m, int flags)
{
    if (bend(fd, true))
        return -1;
    struct iovec iov[64];
    struct msghdr less = *m;
    less.msg_iov = iov;
    less.msg_iovlen = (size_t)cut_iov(iov, m->msg_iov, HW_MIN(m->msg_iovlen, HW_ARRAY_LEN(iov)),
                                      cut(iov_sum(m->msg_iov, m->msg_iovlen)));
    return __real_sendmsg(fd, &less, flags);
}

WRAP(ssize_t, splice, int in, off64_t *inoff, int out, off64_t *outoff, size_t n, unsigned flags)
{
    if (bend(out, true))
        return -1;
    return __real_splice(in, inoff, out, outoff, cut(n), flags);
}

WRAP(ssize_t, vmsplice, int fd, const struct iovec *iov, size_t n, unsigned flags)
{
    if (bend(-1, true))
        return -1;
    struct iovec less[64];
    int k = cut_iov(less, iov, HW_MIN(n, HW_ARRAY_LEN(less)), cut(iov_sum(iov, n)));
    return __real_vmsplice(fd, less, (size_t)k, flags);
}

WRAP(int, epoll_wait, int epfd, struct epoll_event *ev, int n, int timeout)
{
    if (any(100) < atomic_load(&io.interrupt))
        return errno = EINTR, -1;
    return __real_epoll_wait(epfd, ev, n, timeout);
}

/* ---- a complete run ----------------------------------------------------------------------------------- */

#define SPACE (1 << 20)
static uint8_t here[SPACE], there[SPACE];

static struct {
    int errors, unclean, wrong, stuck;
    bool shifted;    /* an earlier send or receive failed, so messages may match other receives */
    char first[300]; /* the first unclean error or operation that does not complete */
    char error[300]; /* the first error of any kind */
} life;

static bool patient; /* the timeouts are long */

/* Records an error. An error is clean if it is an errno with an error message. */
static int note(const char *what, int rc)
{
    if (rc == 0)
        return 0;
    if (!life.errors++)
        snprintf(life.error, sizeof(life.error), "%s: %s", what, hawser_error());
    bool clean = rc < 0 && rc > -4096 && strlen(hawser_error()) > 3;
    if (!clean) {
        if (!life.unclean++)
            snprintf(life.first, sizeof(life.first), "%s: %d: %s", what, rc, hawser_error());
    }
    return rc;
}

static void end(const char *what, hawser_op *op)
{
    if (!op)
        return;
    int rc = hawser_wait(op, 4000); /* the operation's own timeout is shorter */
    if (rc == -EAGAIN && strstr(hawser_error(), "has not ended")) {
        if (!life.stuck++)
            snprintf(life.first, sizeof(life.first), "%s does not end", what);
    } else {
        (void)note(what, rc);
    }
    hawser_op_free(op);
    ph_see(ph_far);
}

/* ThreadSanitizer calls this function. The memory of a served read receives the next message. Only the network orders
 * the read's bytes before this message. The sanitizer does not see this order, and ph_see() does not help, because the
 * sending thread may not have taken the lock again. test_twosided tests the delivery of messages. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:hw_op_deliver\nrace:tcp_test_send\nrace:tcp_test_recv\nrace:send_copy\n";
}

static void traffic(hawser_peer *ab, hawser_peer *ba, hawser_mem *ma, hawser_mem *mb, const struct hawser_region *r)
{
    struct hawser_op_options o = {.size = sizeof(o), .timeout_ms = patient ? 3000 : 400};
    static const size_t n[] = {100, 12000, 400000};
    struct hawser_vec list[20];
    hawser_op *op, *rx;
    char got[16];
    size_t len;
    for (size_t i = 0; i < HW_ARRAY_LEN(n); i++) {
        struct hawser_vec v = {ma, 0, n[i], r, 0, NULL}, w = {mb, 0, n[i], NULL, 0, NULL};
        hw_pattern_fill(here, n[i], i, 0);
        memset(there, 0, n[i]);
        op = NULL;
        int rc = note("write", hawser_write(ab, &v, 1, &o, &op));
        rc = rc ? rc : hawser_wait(op, 4000);
        ph_see(ba);
        if (rc == 0)
            life.wrong += hw_pattern_check(there, n[i], i, 0, NULL) != 0;
        end("write", op);
        hw_pattern_fill(there, n[i], i + 100, 0);
        ph_see(ba);
        op = NULL;
        rc = note("read", hawser_read(ab, &v, 1, &o, &op));
        if (rc == 0 && hawser_wait(op, 4000) == 0)
            life.wrong += hw_pattern_check(here, n[i], i + 100, 0, NULL) != 0;
        end("read", op);
        for (int order = 0; order < 2; order++) {
            int errors = life.errors;
            op = rx = NULL;
            if (order)
                (void)note("recv", hawser_recv(ba, &w, 1, &o, &rx));
            (void)note("send", hawser_send(ab, &v, 1, &o, &op));
            if (!order)
                (void)note("recv", hawser_recv(ba, &w, 1, &o, &rx));
            /* after a failure, a receive may match the previous message, because inline data remains available */
            if (rx && hawser_wait(rx, 4000) == 0 && !life.shifted)
                life.wrong += hawser_op_length(rx) != n[i] || memcmp(here, there, n[i]) != 0;
            end("send", op);
            end("recv", rx);
            life.shifted |= life.errors > errors;
        }
    }
    for (size_t i = 0; i < HW_ARRAY_LEN(list); i++)
        list[i] = (struct hawser_vec){ma, i * 1000, 900, r, i * 1000, NULL};
    o.notify = "word";
    o.notify_len = 4;
    op = NULL;
    (void)note("list", hawser_write(ab, list, HW_ARRAY_LEN(list), &o, &op));
    end("list", op);
    op = NULL;
    o.notify = NULL;
    ph_see(ba);
    (void)note("list read", hawser_read(ab, list, HW_ARRAY_LEN(list), &o, &op));
    end("list read", op);
    op = NULL;
    (void)note("notify", hawser_notify(ab, "words", 5, &o, &op));
    end("notify", op);
    for (int i = 0; i < 2; i++) {
        int rc = hawser_notification(ba, got, sizeof(got), &len);
        if (rc != -EAGAIN)
            (void)note("notification", rc);
    }
    /* cancel a write in flight */
    op = rx = NULL;
    struct hawser_vec v = {ma, 0, SPACE, r, 0, NULL};
    (void)note("write", hawser_write(ab, &v, 1, &o, &op));
    if (op)
        (void)note("cancel", hawser_cancel(op));
    if (op && hawser_wait(op, 4000) == -EAGAIN)
        life.stuck++;
    hawser_op_free(op);
    ph_see(ba);
}

static void live_once(void)
{
    static const char *const short_times[] = {"handshake_ms=300",   "peer_timeout_ms=400", "stall_ms=200",
                                              "op_timeout_ms=1000", "channels=2",          NULL};
    static const char *const long_times[] = {"handshake_ms=3000",  "peer_timeout_ms=3000", "stall_ms=2000",
                                             "op_timeout_ms=3000", "channels=2",           NULL};
    struct hawser_options o = {.size = sizeof(o), .knobs = patient ? long_times : short_times};
    hawser *a = NULL, *b = NULL;
    hawser_peer *ab = NULL, *ba = NULL;
    hawser_mem *ma = NULL, *mb = NULL;
    uint8_t key[HAWSER_KEY_SIZE];
    struct hawser_region r;
    uint16_t port = 0;
    memset(&life, 0, sizeof(life));
    (void)note("open", hawser_open(&o, &a));
    (void)note("open", hawser_open(&o, &b));
    if (a && b && note("listen", hawser_listen(b, "127.0.0.1", 0, &port)) == 0) {
        (void)note("connect", hawser_connect(a, "127.0.0.1", port, NULL, patient ? 10000 : 1200, &ab));
        if (ab)
            (void)note("accept", hawser_accept(b, patient ? 5000 : 500, &ba));
        bool ready = note("register", hawser_mem_register(a, HAWSER_MEM_HOST, here, SPACE, &ma)) == 0;
        ready &= note("register", hawser_mem_register(b, HAWSER_MEM_HOST, there, SPACE, &mb)) == 0;
        ready = ready && note("export", hawser_export(mb, 0, SPACE, 3, NULL, key)) == 0;
        ready = ready && note("import", hawser_import(key, &r)) == 0;
        ph_far = ba;
        if (ready && ab && ba)
            traffic(ab, ba, ma, mb, &r);
        ph_far = NULL;
        if (ready)
            (void)note("revoke", hawser_revoke(b, key));
        hawser_peer_close(ab);
    }
    hawser_close(b);
    hawser_close(a);
}

/* Tests that a server without memory for a session refuses the client, which therefore does not try again. */
static void refuse_session(void)
{
    hawser *a, *b;
    hawser_peer *ab = NULL;
    uint16_t port = 0;
    step("a server without memory");
    must(hawser_open(NULL, &a));
    must(hawser_open(NULL, &b));
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    spared = true;
    atomic_store(&inject.of, MEMORY);
    atomic_store(&inject.n, 0);
    atomic_store(&inject.nth, 1);
    atomic_store(&inject.all, true);
    atomic_store(&inject.armed, true);
    int rc = hawser_connect(a, "127.0.0.1", port, NULL, 10000, &ab);
    atomic_store(&inject.armed, false);
    spared = false;
    ok(rc == -ECONNREFUSED && strstr(hawser_error(), "its log has the reason"),
       "a server without memory for a session refuses the client (%d: %s)", rc, hawser_error());
    hawser_peer_close(ab);
    hawser_close(b);
    hawser_close(a);
}

static void every(enum class c, bool all, const char *what)
{
    int fds = ph_fds();
    long mem = atomic_load(&live), n = 0, last = 0;
    int unclean = 0, wrong = 0, stuck = 0, leaks = 0, silent = 0, again = 0;
    uint64_t slowest = 0, until = hw_now() + (PH_SANITIZED ? 360 : 120) * 1000ull * HW_MS;
    static char text[64];
    for (n = 1; hw_now() < until; n++) {
        snprintf(text, sizeof(text), "%s %ld fails%s", what, n, all ? ", and all later ones" : "");
        step(text);
        atomic_store(&inject.of, (int)c);
        atomic_store(&inject.n, 0);
        atomic_store(&inject.nth, n);
        atomic_store(&inject.all, all);
        atomic_store(&inject.hits, 0);
        uint64_t t0 = hw_now();
        atomic_store(&inject.armed, true);
        live_once();
        atomic_store(&inject.armed, false);
        slowest = HW_MAX(slowest, hw_now() - t0);
        unclean += life.unclean;
        wrong += life.wrong;
        stuck += life.stuck;
        if (*life.first)
            diag("%s: %s", text, life.first);
        if (atomic_load(&live) != mem || ph_fds() != fds) {
            if (!leaks++ || getenv("TEST_LOG"))
                diag("%s: %ld allocations and %d descriptors left", text, atomic_load(&live) - mem, ph_fds() - fds);
            mem = atomic_load(&live);
            fds = ph_fds();
        }
        last = atomic_load(&inject.n);
        if (atomic_load(&inject.hits))
            continue;
        silent = life.errors;
        if (!silent || again++ > 2)
            break;
        /* the timeouts are short because of the failing runs, so one may expire on a busy machine */
        diag("%s: without any failure: %s", text, life.error);
        patient = true;
        n--;
    }
    patient = false;
    ok(n > 10 && n > last && silent == 0, "%s: each of %ld fails%s; without a failure all is well (%d errors)", what,
       n - 1, all ? ", and all later ones" : " alone", silent);
    ok(unclean == 0 && stuck == 0 && wrong == 0, "%s: clean errors (%d not), ends (%d not), right bytes (%d not)", what,
       unclean, stuck, wrong);
    ok(leaks == 0, "%s: nothing is left afterwards (%d times there was)", what, leaks);
    ok(slowest < 5000 * HW_MS, "%s: the longest life took %llu ms", what, (unsigned long long)(slowest / HW_MS));
}

/* ---- bent system calls, checked bytes ---------------------------------------------------------------------- */

static struct pair pr;

static void bent(const char *what, unsigned shorten, unsigned interrupt, unsigned starve, unsigned again,
                 size_t largest)
{
    static char text[100];
    snprintf(text, sizeof(text), "%s", what);
    step(text);
    struct ph_buf m = ph_buf(pr.a, largest, 1, 0, NULL), t = ph_buf(pr.b, largest, 3, 3, NULL);
    struct hawser_vec v = {.mem = m.mem, .region = &t.region}, w = {.mem = t.mem};
    unsigned long calls = atomic_load(&io.calls), cuts = atomic_load(&io.cut), bends = atomic_load(&io.bent);
    atomic_store(&io.shorten, shorten);
    atomic_store(&io.interrupt, interrupt);
    atomic_store(&io.starve, starve);
    atomic_store(&io.again, again);
    uint64_t bad = 0, until = hw_now() + 1500 * HW_MS;
    unsigned rounds = 0;
    for (; hw_now() < until && !bad; rounds++) {
        size_t n[] = {1, 100, 5000, 8192, 20000, largest};
        size_t k = n[rounds % HW_ARRAY_LEN(n)];
        hawser_op *op, *rx;
        v.length = w.length = k;
        hw_pattern_fill(m.p, k, rounds, 0);
        must(hawser_write(pr.ab, &v, 1, NULL, &op));
        bad += ph_finish(op) != 0;
        bad += hw_pattern_check(t.p, k, rounds, 0, NULL);
        memset(m.p, 0, k);
        must(hawser_read(pr.ab, &v, 1, NULL, &op));
        bad += ph_finish(op) != 0;
        bad += hw_pattern_check(m.p, k, rounds, 0, NULL);
        hw_pattern_fill(m.p, k, rounds + 1, 0);
        if (rounds & 1)
            must(hawser_recv(pr.ba, &w, 1, NULL, &rx));
        must(hawser_send(pr.ab, &v, 1, NULL, &op));
        if (!(rounds & 1))
            must(hawser_recv(pr.ba, &w, 1, NULL, &rx));
        bad += ph_finish(op) != 0;
        bad += ph_finish(rx) != 0;
        bad += hw_pattern_check(t.p, k, rounds + 1, 0, NULL);
    }
    atomic_store(&io.shorten, 0);
    atomic_store(&io.interrupt, 0);
    atomic_store(&io.starve, 0);
    atomic_store(&io.again, 0);
    calls = atomic_load(&io.calls) - calls;
    cuts = atomic_load(&io.cut) - cuts;
    bends = atomic_load(&io.bent) - bends;
    ok(bad == 0 && rounds > 2 && ph_guards_ok(&t) && ph_guards_ok(&m),
       "%s: %u rounds with every byte right (%lu calls, %lu cut, %lu failed): %s", what, rounds, calls, cuts, bends,
       bad ? hawser_error() : "fine");
    ok(cuts + bends > 20, "and they were bent");
    ph_drop(&m);
    ph_drop(&t);
}

int main(void)
{
    watchdog(580);
    for (int i = 0; i < FDS; i++)
        atomic_store(&watched[i].epfd, -1);
    live_once(); /* libc and libsodium make their one-time allocations now */
    ok(life.errors == 0 && life.wrong == 0, "a life without failures: %s", life.first);
    refuse_session();
    every(MEMORY, false, "allocation");
    every(MEMORY, true, "allocation");
    every(DESCRIPTOR, false, "descriptor");
    every(DESCRIPTOR, true, "descriptor");
    pr = ph_pair(0, NULL, 0, NULL);
    ph_far = pr.ba;
    bent("short calls", 1000, 0, 0, 0, 300000);
    bent("very short calls", 7, 0, 0, 0, 40000);
    bent("long short calls", 100000, 0, 0, 0, 3 << 20);
    bent("interrupted calls", 0, 60, 0, 0, 1 << 20);
    bent("calls without buffers", 0, 0, 10, 0, 1 << 20);
    bent("calls that are told to come again", 0, 0, 0, 30, 1 << 20);
    bent("all of it", 5000, 20, 2, 10, 300000);
    is_rc(hawser_peer_state(pr.ab), 0, "the peer lives through all that");
    is_rc(hawser_peer_state(pr.ba), 0, "on both sides");
    step("closing");
    ph_close(&pr);
    return tap_done();
}
