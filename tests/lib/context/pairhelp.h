/* SPDX-License-Identifier: Apache-2.0 */
/* Two connected contexts in one process, over loopback, and helpers for tests of the API. A failure that makes
 * further tests useless ends the program. A watchdog turns a hang into a failure that names the current step. */
#ifndef PAIRHELP_H
#define PAIRHELP_H

#include "base/base.h"
#include "base/pattern.h"
#include "base/sanitizers.h"
#include "hawser.h"
#include "tests/proc.h"
#include "tests/tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PH_SANITIZED (HW_ASAN || HW_TSAN)

static const char *volatile ph_step = "start";

__attribute__((unused)) static void ph_bark(int sig)
{
    (void)sig;
    static const char head[] = "Bail out! hung, the last step was: ";
    const char *s = ph_step;
    if (write(1, head, sizeof(head) - 1) < 0 || write(1, s, strlen(s)) < 0 || write(1, "\n", 1) < 0)
        _exit(2);
    _exit(1);
}

/* Ends the program after this time, with an error message that contains the text from step(). */
__attribute__((unused)) static void watchdog(unsigned seconds)
{
    (void)signal(SIGALRM, ph_bark);
    (void)alarm(seconds * (PH_SANITIZED ? 4 : 1));
}

#define step(text) (ph_step = (text))

#define bail(...) (printf("Bail out! "), printf(__VA_ARGS__), printf(" (%s:%d)\n", __FILE__, __LINE__), exit(1))
#define must(call)                                                              \
    do {                                                                        \
        int must_rc_ = (call);                                                  \
        if (must_rc_ < 0)                                                       \
            bail("%s: %s: %s", #call, hw_errno_name(must_rc_), hawser_error()); \
    } while (0)
/* Like is_int, but for return codes: also prints the names of the codes and the library's error message. */
#define is_rc(got, want, what)                                                                                  \
    do {                                                                                                        \
        int g_ = (got), w_ = (want);                                                                            \
        if (!tap_ok(g_ == w_, __FILE__, __LINE__, "%s", (what)))                                                \
            printf("# got %d (%s: %s), wanted %d (%s)\n", g_, g_ ? hw_errno_name(g_) : "0", hawser_error(), w_, \
                   w_ ? hw_errno_name(w_) : "0");                                                               \
    } while (0)

/* ---- logs ---------------------------------------------------------------------------------- */

struct ph_log {
    pthread_mutex_t mu;
    size_t len;
    char text[64 * 1024];
};

__attribute__((unused)) static void ph_logger(void *arg, int level, const char *line)
{
    struct ph_log *l = arg;
    (void)level;
    pthread_mutex_lock(&l->mu);
    size_t n = strlen(line);
    if (l->len + n + 2 < sizeof(l->text)) {
        memcpy(l->text + l->len, line, n);
        l->text[l->len + n] = '\n';
        l->len += n + 1;
        l->text[l->len] = 0;
    }
    pthread_mutex_unlock(&l->mu);
}

/* Waits up to 3 s for the words to appear in the log. Returns true if they do. */
__attribute__((unused)) static bool ph_logged(struct ph_log *l, const char *words)
{
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&l->mu);
        bool found = strstr(l->text, words) != NULL;
        pthread_mutex_unlock(&l->mu);
        if (found)
            return true;
        usleep(10000);
    }
    return false;
}

__attribute__((unused)) static void ph_print(void *arg, int level, const char *line)
{
    (void)arg;
    fprintf(stderr, "# %.6f [%d] %s\n", (double)hw_now() / 1e9, level, line);
}

/* ---- a pair --------------------------------------------------------------------------------- */

struct pair {
    hawser *a, *b;        /* a connects to b */
    hawser_peer *ab, *ba; /* a's handle for b, b's handle for a */
    uint16_t port;
};

__attribute__((unused)) static hawser *ph_open(uint32_t flags, const char *const *knobs)
{
    struct hawser_options o = {.size = sizeof(o), .flags = flags, .knobs = knobs};
    hawser *h;
    if (getenv("TEST_TRUSTED"))
        o.flags |= HAWSER_TRUSTED;
    if (getenv("TEST_LOG")) /* for debugging */
        o.log = ph_print;
#ifdef __SANITIZE_ADDRESS__
    /* A plugin runs in a forked child. AddressSanitizer's allocator does not support fork(): if another thread holds an
     * allocator lock at that time, as a starting thread may, the child waits for the lock forever. */
    proc_wait_idle();
#endif
    must(hawser_open(&o, &h));
    return h;
}

struct ph_join {
    hawser *h;
    uint16_t port;
    hawser_peer *out;
    int rc;
    const struct hawser_connect_options *opts; /* or NULL */
};

__attribute__((unused)) static void *ph_connector(void *arg)
{
    struct ph_join *j = arg;
    j->rc = hawser_connect(j->h, "127.0.0.1", j->port, j->opts, 10000, &j->out);
    return NULL;
}

/* Connects a to b, which listens on port. Uses a separate thread, because b may progress only in its caller. */
__attribute__((unused)) static void ph_connect_by(hawser *a, hawser *b, uint16_t port,
                                                  const struct hawser_connect_options *opts, hawser_peer **ab,
                                                  hawser_peer **ba)
{
    struct ph_join j = {.h = a, .port = port, .opts = opts};
    pthread_t t;
    if (pthread_create(&t, NULL, ph_connector, &j))
        bail("no thread");
    int rc = hawser_accept(b, 10000, ba);
    while (b && rc == 0 && pthread_tryjoin_np(t, NULL) != 0) {
        (void)hawser_progress(b, 1);
        usleep(200);
    }
    if (rc || j.rc)
        bail("connecting: accept %d, connect %d: %s", rc, j.rc, hawser_error());
    *ab = j.out;
}

__attribute__((unused)) static void ph_connect(hawser *a, hawser *b, uint16_t port, hawser_peer **ab, hawser_peer **ba)
{
    ph_connect_by(a, b, port, NULL, ab, ba);
}

__attribute__((unused)) static struct pair ph_pair(uint32_t aflags, const char *const *aknobs, uint32_t bflags,
                                                   const char *const *bknobs)
{
    struct pair p;
    p.a = ph_open(aflags, aknobs);
    p.b = ph_open(bflags, bknobs);
    must(hawser_listen(p.b, "127.0.0.1", 0, &p.port));
    ph_connect(p.a, p.b, p.port, &p.ab, &p.ba);
    return p;
}

__attribute__((unused)) static void ph_close(struct pair *p)
{
    hawser_close(p->a);
    hawser_close(p->b);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define PH_GUARD 4096 /* bytes before and after a buffer, which must not be written */

struct ph_buf {
    uint8_t *raw, *p;
    size_t len;
    hawser_mem *mem; /* [p, p+len) */
    struct hawser_region region;
    uint8_t key[HAWSER_KEY_SIZE];
};

/* Allocates len bytes, `skew` bytes after an aligned address, and registers them with h. Unless rights is 0, exports
 * them to peer `only`, or to all peers if `only` is NULL. */
__attribute__((unused)) static struct ph_buf ph_buf(hawser *h, size_t len, size_t skew, uint32_t rights,
                                                    hawser_peer *only)
{
    struct ph_buf b = {.len = len};
    b.raw = malloc(len + skew + 2 * PH_GUARD);
    if (!b.raw)
        bail("no memory");
    b.p = b.raw + PH_GUARD + skew;
    memset(b.raw, 0xee, PH_GUARD + skew);
    memset(b.p, 0, len);
    memset(b.p + len, 0xee, PH_GUARD);
    must(hawser_mem_register(h, HAWSER_MEM_HOST, b.p, len, &b.mem));
    if (rights) {
        must(hawser_export(b.mem, 0, len, rights, only, b.key));
        must(hawser_import(b.key, &b.region));
    }
    return b;
}

__attribute__((unused)) static bool ph_guards_ok(const struct ph_buf *b)
{
    for (const uint8_t *c = b->raw; c < b->p; c++)
        if (*c != 0xee)
            return false;
    for (size_t i = 0; i < PH_GUARD; i++)
        if (b->p[b->len + i] != 0xee)
            return false;
    return true;
}

/* Deregisters and frees the memory. The context must still be open. */
__attribute__((unused)) static void ph_drop(struct ph_buf *b)
{
    must(hawser_mem_deregister(b->mem));
    free(b->raw);
    b->raw = NULL;
}

/* ---- operations -------------------------------------------------------------------------------- */

/* Orders memory accesses by p's side before later accesses by this thread. The network already orders them, but
 * ThreadSanitizer sees only the order that p's lock imposes. */
__attribute__((unused)) static void ph_see(hawser_peer *p)
{
    size_t n = 0;
    must(hawser_channel_stats(p, NULL, &n));
}

/* The remote side of the operations that ph_finish() waits for, if one-sided operations access its memory; otherwise
 * NULL. */
static hawser_peer *ph_far;

/* Waits up to 30 s for the operation to complete, and frees it. */
__attribute__((unused)) static int ph_finish(hawser_op *op)
{
    int rc = hawser_wait(op, 30000);
    hawser_op_free(op);
    if (ph_far)
        ph_see(ph_far);
    return rc;
}

typedef int (*ph_post)(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                       hawser_op **op);

/* Posts an operation with one descriptor, and waits for it to complete. */
__attribute__((unused)) static int ph_one(ph_post f, hawser_peer *p, struct ph_buf *m, uint64_t at, uint64_t len,
                                          const struct hawser_region *r, uint64_t rat)
{
    struct hawser_vec v = {.mem = m->mem, .offset = at, .length = len, .region = r, .remote_offset = rat};
    hawser_op *op;
    int rc = f(p, &v, 1, NULL, &op);
    return rc ? rc : ph_finish(op);
}

/* ---- resources of the process -------------------------------------------------------------------- */

#if HW_TSAN
void __sanitizer_symbolize_pc(void *pc, const char *format, char *out, size_t size);
#endif

/* Returns the number of open file descriptors of this process. Once clang's ThreadSanitizer has resolved an address,
 * for example for a suppressed report, it keeps two file descriptors open. Therefore, this function first makes
 * ThreadSanitizer resolve an address. */
__attribute__((unused)) static int ph_fds(void)
{
#if HW_TSAN
    char name[64];
    __sanitizer_symbolize_pc(__builtin_return_address(0), "%f", name, sizeof(name));
#endif
    int n = proc_entries("/proc/self/fd");
    if (n < 0)
        bail("no /proc");
    return n - 1; /* excludes the file descriptor of the folder itself */
}

#endif
