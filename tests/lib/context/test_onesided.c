/* SPDX-License-Identifier: Apache-2.0 */
/* Tests writes and reads with the public API: sizes, alignment, lists, inline data, refused requests, revocation. */
#include "pairhelp.h"

#include "context/context.h"

static struct pair pr;

/* ---- sizes and alignment ---------------------------------------------------------------------- */

static void one_size(size_t n, size_t skew_a, size_t skew_b)
{
    struct ph_buf a = ph_buf(pr.a, n, skew_a, 0, NULL);
    struct ph_buf b = ph_buf(pr.b, n, skew_b, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL);
    struct ph_buf c = ph_buf(pr.a, n, skew_b, 0, NULL);
    hw_pattern_fill(a.p, n, n + 1, 0);
    int w = ph_one(hawser_write, pr.ab, &a, 0, n, &b.region, 0);
    uint64_t bad = hw_pattern_check(b.p, n, n + 1, 0, NULL);
    int r = ph_one(hawser_read, pr.ab, &c, 0, n, &b.region, 0);
    bad += hw_pattern_check(c.p, n, n + 1, 0, NULL);
    if (!ok(w == 0 && r == 0 && bad == 0 && ph_guards_ok(&a) && ph_guards_ok(&b) && ph_guards_ok(&c),
            "%zu bytes, skewed by %zu and %zu: written, read back, nothing beside them touched", n, skew_a, skew_b))
        diag("write %d, read %d, %llu bad bytes: %s", w, r, (unsigned long long)bad, hawser_error());
    ph_drop(&a);
    ph_drop(&b);
    ph_drop(&c);
}

static void sizes(void)
{
    static const size_t n[] = {0,    1,     7,     4095,  4096,          4097,    8191,          8192,
                               8193, 16383, 16384, 16385, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3000001};
    step("sizes");
    for (size_t i = 0; i < HW_ARRAY_LEN(n); i++)
        one_size(n[i], 0, 0);
    static const size_t skews[][2] = {{1, 0}, {0, 1}, {3, 5}, {4095, 1}, {63, 17}};
    for (size_t i = 0; i < HW_ARRAY_LEN(skews); i++) {
        one_size(5000, skews[i][0], skews[i][1]);
        one_size((2 << 20) + 11, skews[i][0], skews[i][1]);
    }
    one_size((64u << 20) + 3, 1, 2);
}

/* ---- lists -------------------------------------------------------------------------------------- */

#define PIECE 97

/* Writes and reads n descriptors of PIECE bytes in reverse remote order. Every third descriptor is empty. */
static void list_of(size_t n)
{
    struct ph_buf a = ph_buf(pr.a, n * PIECE, 1, 0, NULL);
    struct ph_buf b = ph_buf(pr.b, n * PIECE, 3, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL);
    struct hawser_vec *v = calloc(n + 1, sizeof(*v));
    uint64_t total = 0, bad = 0;
    hw_pattern_fill(a.p, a.len, 5, 0);
    for (size_t i = 0; i < n; i++) {
        v[i] = (struct hawser_vec){.mem = a.mem,
                                   .offset = i * PIECE,
                                   .length = i % 3 == 2 ? 0 : PIECE,
                                   .region = &b.region,
                                   .remote_offset = (n - 1 - i) * PIECE};
        if (v[i].length == 0 && i % 2)
            v[i].mem = NULL; /* allowed for an empty descriptor */
        total += v[i].length;
    }
    hawser_op *op;
    int rc = hawser_write(pr.ab, v, n, NULL, &op);
    if (rc == 0) {
        rc = hawser_wait(op, 30000);
        ph_see(pr.ba);
        ok(hawser_op_length(op) == total && hawser_op_bytes(op) == total, "list of %zu: length and bytes are the sum",
           n);
        hawser_op_free(op);
    }
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = b.p + (n - 1 - i) * PIECE;
        if (v[i].length)
            bad += memcmp(at, a.p + i * PIECE, PIECE) != 0;
        else
            for (size_t k = 0; k < PIECE; k++)
                bad += at[k] != 0;
    }
    ok(rc == 0 && bad == 0 && ph_guards_ok(&b), "list of %zu with empty ones: written (%d, %llu wrong)", n, rc,
       (unsigned long long)bad);
    memset(a.p, 0, a.len);
    rc = hawser_read(pr.ab, v, n, NULL, &op);
    if (rc == 0)
        rc = ph_finish(op);
    bad = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i].length)
            bad += memcmp(b.p + (n - 1 - i) * PIECE, a.p + i * PIECE, PIECE) != 0;
    ok(rc == 0 && bad == 0 && ph_guards_ok(&a), "list of %zu with empty ones: read (%d, %llu wrong)", n, rc,
       (unsigned long long)bad);
    free(v);
    ph_drop(&a);
    ph_drop(&b);
}

static void lists(void)
{
    step("lists");
    list_of(0);
    list_of(1);
    list_of(3);
    list_of(17);
    list_of(1000);
    list_of(HAWSER_MAX_VECS);
    struct hawser_vec *v = calloc(HAWSER_MAX_VECS + 1, sizeof(*v));
    hawser_op *op = (hawser_op *)1;
    is_rc(hawser_write(pr.ab, v, HAWSER_MAX_VECS + 1, NULL, &op), -E2BIG, "65,537 descriptors are too many to write");
    is_rc(hawser_read(pr.ab, v, HAWSER_MAX_VECS + 1, NULL, &op), -E2BIG, "and to read");
    ok(op == NULL, "and there is no operation then");
    is_rc(hawser_write(pr.ab, NULL, 1, NULL, &op), -EINVAL, "no list where one was promised");
    free(v);
}

/* ---- requests that this side refuses --------------------------------------------------------------- */

static void refused_here(void)
{
    step("local checks");
    struct ph_buf a = ph_buf(pr.a, 100, 0, 0, NULL);
    struct ph_buf ro = ph_buf(pr.b, 100, 0, HAWSER_REMOTE_READ, NULL);
    struct ph_buf wo = ph_buf(pr.b, 100, 0, HAWSER_REMOTE_WRITE, NULL);
    struct ph_buf other = ph_buf(pr.b, 100, 0, 0, NULL);
    struct hawser_vec v = {.mem = a.mem, .length = 101, .region = &wo.region};
    hawser_op *op;
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EFAULT, "longer than the memory");
    v = (struct hawser_vec){.mem = a.mem, .offset = 101, .length = 0, .region = &wo.region};
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EFAULT, "beginning outside the memory");
    v = (struct hawser_vec){.mem = a.mem, .offset = UINT64_MAX, .length = 2, .region = &wo.region};
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EFAULT, "an offset that wraps");
    v = (struct hawser_vec){.mem = a.mem, .length = 100, .region = &wo.region, .remote_offset = 1};
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EFAULT, "one byte beyond the region");
    v.remote_offset = UINT64_MAX - 50;
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EFAULT, "a remote offset that wraps");
    v = (struct hawser_vec){.mem = a.mem, .length = 1, .region = &ro.region};
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EACCES, "writing what may only be read");
    v.region = &wo.region;
    is_rc(hawser_read(pr.ab, &v, 1, NULL, &op), -EACCES, "reading what may only be written");
    v.region = NULL;
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EINVAL, "no region");
    v = (struct hawser_vec){.mem = NULL, .length = 1, .region = &wo.region};
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EINVAL, "bytes of no memory");
    v.mem = other.mem;
    is_rc(hawser_write(pr.ab, &v, 1, NULL, &op), -EINVAL, "memory of another context");
    v = (struct hawser_vec){.mem = a.mem, .length = 1, .region = &wo.region};
    struct hawser_op_options o = {.size = sizeof(o), .notify = "x", .notify_len = HAWSER_NOTIFY_MAX + 1};
    is_rc(hawser_write(pr.ab, &v, 1, &o, &op), -EINVAL, "too long a notification");
    o = (struct hawser_op_options){.size = sizeof(o), .timeout_ms = -2};
    is_rc(hawser_write(pr.ab, &v, 1, &o, &op), -EINVAL, "a negative deadline");
    o = (struct hawser_op_options){.size = 1};
    is_rc(hawser_write(pr.ab, &v, 1, &o, &op), -EINVAL, "options of no size");
    o = (struct hawser_op_options){.size = sizeof(o), .notify = "x", .notify_len = 1};
    v.region = &ro.region;
    is_rc(hawser_read(pr.ab, &v, 1, &o, &op), -EINVAL, "a read cannot notify");

    uint8_t key[HAWSER_KEY_SIZE];
    hawser_mem *m;
    is_rc(hawser_export(a.mem, 0, 101, HAWSER_REMOTE_READ, NULL, key), -EFAULT, "exporting more than there is");
    is_rc(hawser_export(a.mem, UINT64_MAX, 2, HAWSER_REMOTE_READ, NULL, key), -EFAULT, "exporting what wraps");
    is_rc(hawser_export(a.mem, 0, 1, 0, NULL, key), -EINVAL, "exporting for nothing");
    is_rc(hawser_export(a.mem, 0, 1, 4, NULL, key), -EINVAL, "exporting for what there is not");
    is_rc(hawser_export(a.mem, 0, 1, HAWSER_REMOTE_READ, pr.ba, key), -EINVAL, "exporting to another context's peer");
    is_rc(hawser_mem_register(pr.a, HAWSER_MEM_HOST, NULL, 10, &m), -EINVAL, "registering nothing");
    is_rc(hawser_mem_register(pr.a, HAWSER_MEM_HOST, a.p, SIZE_MAX, &m), -EINVAL, "registering all and more");
    is_rc(hawser_mem_register(pr.a, (enum hawser_mem_kind)7, a.p, 1, &m), -EOPNOTSUPP, "a kind of memory unheard of");
    struct hawser_region r;
    memset(key, 0, sizeof(key));
    is_rc(hawser_import(key, &r), -EINVAL, "zeros are no key");
    memcpy(key, ro.key, sizeof(key));
    key[HAWSER_KEY_SIZE - 1] = 1;
    is_rc(hawser_import(key, &r), -EINVAL, "a key with more in it than there should be");
    memcpy(key, ro.key, sizeof(key));
    key[16] ^= 1; /* the secret */
    is_rc(hawser_revoke(pr.b, key), -ESTALE, "revoking with a wrong secret");
    ph_drop(&a);
    ph_drop(&ro);
    ph_drop(&wo);
    ph_drop(&other);
}

/* ---- requests that the peer refuses ---------------------------------------------------------------- */

enum { INLINE_N = 64, CHUNK_N = 300000 };

/* Tests a forged region: requests pass the checks on this side and must fail on the other side. */
static void forged(const char *what, const struct hawser_region *r, uint64_t off, struct ph_buf *b, int wr, int rr)
{
    static const size_t n[] = {INLINE_N, CHUNK_N};
    for (size_t i = 0; i < HW_ARRAY_LEN(n); i++) {
        struct ph_buf a = ph_buf(pr.a, n[i], 1, 0, NULL);
        uint64_t at = off;
        memset(a.p, 0x11, a.len);
        char text[128];
        snprintf(text, sizeof(text), "%s: write of %zu", what, n[i]);
        is_rc(ph_one(hawser_write, pr.ab, &a, 0, n[i], r, at), wr, text);
        ok(strlen(hawser_error()) > 10, "in words: %s", hawser_error());
        snprintf(text, sizeof(text), "%s: read of %zu", what, n[i]);
        is_rc(ph_one(hawser_read, pr.ab, &a, 0, n[i], r, at), rr, text);
        uint64_t changed = 0;
        for (size_t k = 0; k < a.len; k++)
            changed += a.p[k] != 0x11;
        ok(changed == 0 && hw_pattern_check(b->p, b->len, 9, 0, NULL) == 0 && ph_guards_ok(b),
           "%s: no byte changed there or here", what);
        ph_drop(&a);
    }
}

static void refused_there(void)
{
    step("forged regions");
    struct ph_buf b = ph_buf(pr.b, 600000, 0, 0, NULL);
    uint8_t key[HAWSER_KEY_SIZE], rokey[HAWSER_KEY_SIZE], wokey[HAWSER_KEY_SIZE];
    struct hawser_region good, r, ro, wo;
    hw_pattern_fill(b.p, b.len, 9, 0);
    /* the middle of the memory, so the bytes before and after the region also belong to the peer */
    must(hawser_export(b.mem, 100000, 400000, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL, key));
    must(hawser_export(b.mem, 100000, 400000, HAWSER_REMOTE_READ, NULL, rokey));
    must(hawser_export(b.mem, 100000, 400000, HAWSER_REMOTE_WRITE, NULL, wokey));
    must(hawser_import(key, &good));
    must(hawser_import(rokey, &ro));
    must(hawser_import(wokey, &wo));
    r = good, r.id ^= 1ull << 32;
    forged("another id", &r, 0, &b, -ESTALE, -ESTALE);
    r = good, r.id = 0xffffffffffffffffull;
    forged("an id out of the table", &r, 0, &b, -ESTALE, -ESTALE);
    r = good, r.secret ^= 1;
    forged("a wrong secret", &r, 0, &b, -ESTALE, -ESTALE);
    r = good, r.length = UINT64_MAX;
    forged("beyond the end", &r, 400000 - 10, &b, -EFAULT, -EFAULT);
    forged("far beyond the end", &r, 1ull << 40, &b, -EFAULT, -EFAULT);
    forged("before the beginning", &r, UINT64_MAX - CHUNK_N, &b, -EFAULT, -EFAULT);
    r = ro, r.rights = HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE;
    struct ph_buf a = ph_buf(pr.a, CHUNK_N, 0, 0, NULL);
    is_rc(ph_one(hawser_write, pr.ab, &a, 0, INLINE_N, &r, 0), -EACCES, "writing with forged rights, small");
    is_rc(ph_one(hawser_write, pr.ab, &a, 0, CHUNK_N, &r, 0), -EACCES, "writing with forged rights, large");
    r = wo, r.rights = HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE;
    is_rc(ph_one(hawser_read, pr.ab, &a, 0, INLINE_N, &r, 0), -EACCES, "reading with forged rights, small");
    is_rc(ph_one(hawser_read, pr.ab, &a, 0, CHUNK_N, &r, 0), -EACCES, "reading with forged rights, large");
    ok(hw_pattern_check(b.p, b.len, 9, 0, NULL) == 0, "and no byte changed");

    /* one bad descriptor in a list fails the operation, but the peer remains connected */
    struct hawser_region bad = good;
    bad.secret++;
    struct hawser_vec v[3] = {{.mem = a.mem, .length = 1000, .region = &good},
                              {.mem = a.mem, .length = 1000, .region = &bad},
                              {.mem = a.mem, .length = 1000, .region = &good, .remote_offset = 5000}};
    hawser_op *op;
    must(hawser_read(pr.ab, v, 3, NULL, &op));
    is_rc(ph_finish(op), -ESTALE, "one bad descriptor of three: the read fails");
    memcpy(a.p, b.p + 100000, 1000); /* so that the writes of the good descriptors change nothing */
    v[2] = v[0];
    must(hawser_write(pr.ab, v, 3, NULL, &op));
    is_rc(ph_finish(op), -ESTALE, "and the write");
    struct hawser_region copy = bad;
    uint32_t imports = pr.ab->peer.imports.n;
    v[0].region = &copy;
    v[1].region = &bad;
    must(hawser_write(pr.ab, v, 2, NULL, &op));
    is_rc(ph_finish(op), -ESTALE, "a write to two copies of a bad region fails");
    is_int(pr.ab->peer.imports.n, imports, "and the refused region is forgotten");
    v[0].region = &good;
    is_rc(ph_one(hawser_read, pr.ab, &a, 0, CHUNK_N, &good, 0), 0, "what is allowed still works");
    is_rc(hawser_peer_state(pr.ab), 0, "and the peer lives");

    must(hawser_revoke(pr.b, key));
    is_rc(hawser_revoke(pr.b, key), -ESTALE, "revoking twice");
    forged("a revoked region", &good, 0, &b, -ESTALE, -ESTALE);
    /* the table entry is reused, and the old key must not be valid for the new export */
    uint8_t again[HAWSER_KEY_SIZE];
    must(hawser_export(b.mem, 0, b.len, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL, again));
    forged("a revoked region whose place was taken", &good, 0, &b, -ESTALE, -ESTALE);
    ph_drop(&a);
    ph_drop(&b); /* while exports still exist */
    is_rc(hawser_revoke(pr.b, again), -ESTALE, "deregistering revoked what was left");
}

static void per_peer(void)
{
    step("per-peer export");
    hawser *c = ph_open(0, NULL);
    hawser_peer *cb, *bc;
    ph_connect(c, pr.b, pr.port, &cb, &bc);
    struct ph_buf b = ph_buf(pr.b, CHUNK_N, 0, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, pr.ba);
    struct ph_buf a = ph_buf(pr.a, CHUNK_N, 0, 0, NULL), o = ph_buf(c, CHUNK_N, 0, 0, NULL);
    hw_pattern_fill(b.p, b.len, 9, 0);
    is_rc(ph_one(hawser_read, pr.ab, &a, 0, CHUNK_N, &b.region, 0), 0, "a peer uses what was exported to it");
    is_rc(ph_one(hawser_read, cb, &o, 0, CHUNK_N, &b.region, 0), -ESTALE, "another cannot read it");
    is_rc(ph_one(hawser_write, cb, &o, 0, CHUNK_N, &b.region, 0), -ESTALE, "nor write it");
    is_rc(ph_one(hawser_write, cb, &o, 0, 8, &b.region, 0), -ESTALE, "nor write a little");
    ok(hw_pattern_check(b.p, b.len, 9, 0, NULL) == 0, "and no byte changed");
    hawser_peer_close(bc);
    hawser_close(c);
    free(o.raw);
    ph_drop(&a);
    ph_drop(&b);
}

/* ---- revocation in flight ------------------------------------------------------------------------- */

struct storm {
    const struct hawser_region *region;
    uint64_t len;
    ph_post post;
    uint8_t fill;
    atomic_bool stop; /* set after the revocation */
    atomic_int done;
    int bad_rc, late; /* read after the thread has ended */
};

/* Waits for the operation to complete. Records any error except -ESTALE, which a revoked region causes. */
static void end_in_storm(struct storm *s, hawser_op *op)
{
    int rc = ph_finish(op);
    atomic_fetch_add(&s->done, 1);
    if (rc && rc != -ESTALE)
        s->bad_rc = rc;
}

/* Keeps four operations in flight until `stop` is set. Then posts one more, because on a busy machine none of the four
 * may complete between the revocation and the test's last check of the memory. */
static void *storm(void *arg)
{
    struct storm *s = arg;
    struct ph_buf a = ph_buf(pr.a, 4 * s->len, 0, 0, NULL); /* one quarter for each operation, on both sides */
    memset(a.p, s->fill, a.len);
    hawser_op *op[4] = {0};
    for (unsigned i = 0; !atomic_load(&s->stop); i++) {
        hawser_op **o = &op[i % 4];
        if (*o)
            end_in_storm(s, *o);
        struct hawser_vec v = {.mem = a.mem,
                               .offset = i % 4 * s->len,
                               .length = s->len,
                               .region = s->region,
                               .remote_offset = i % 4 * s->len};
        if (s->post(pr.ab, &v, 1, NULL, o))
            *o = NULL;
    }
    for (int i = 0; i < 4; i++)
        if (op[i])
            end_in_storm(s, op[i]);
    s->late = ph_one(s->post, pr.ab, &a, 0, s->len, s->region, 0);
    ph_drop(&a);
    return NULL;
}

static void revoke_under_way(ph_post post, uint64_t len, const char *what)
{
    uint64_t changed = 0;
    int bad_rc = 0, told = 0;
    for (int round = 0; round < 12; round++) {
        struct ph_buf b = ph_buf(pr.b, 4 * len, 0, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL);
        struct storm s = {.region = &b.region, .len = len, .post = post, .fill = (uint8_t)(round + 1)};
        pthread_t t;
        pthread_create(&t, NULL, storm, &s);
        while (atomic_load(&s.done) < 3 + round)
            usleep(100);
        must(hawser_revoke(pr.b, b.key));
        hw_pattern_fill(b.p, b.len, 77, 0);
        for (int k = 0; k < 6; k++) {
            usleep(2000);
            changed += hw_pattern_check(b.p, b.len, 77, 0, NULL);
        }
        atomic_store(&s.stop, true);
        pthread_join(t, NULL);
        changed += hw_pattern_check(b.p, b.len, 77, 0, NULL);
        bad_rc = bad_rc ? bad_rc : s.bad_rc;
        told += s.late == -ESTALE;
        ph_drop(&b);
    }
    ok(changed == 0 && bad_rc == 0,
       "%s of %llu while it is revoked, 12 times: no byte changes afterwards (%llu, rc %d)", what,
       (unsigned long long)len, (unsigned long long)changed, bad_rc);
    is_int(told, 12, "and an operation that is posted afterwards hears of it");
}

static void *revoke_key(void *arg)
{
    const struct ph_buf *b = arg;
    (void)hawser_revoke(pr.b, b->key); /* -ESTALE if the deregistration revokes the region first */
    return NULL;
}

/* Deregisters memory while another thread revokes its region. */
static void deregister_beside_revoke(void)
{
    enum { LEN = 1 << 20, ROUNDS = 150 };
    uint64_t changed = 0;
    int failed = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct ph_buf b = ph_buf(pr.b, 4 * LEN, 0, HAWSER_REMOTE_WRITE, NULL);
        struct storm s = {.region = &b.region, .len = LEN, .post = hawser_write, .fill = (uint8_t)(round + 1)};
        pthread_t t, revoker;
        pthread_create(&t, NULL, storm, &s);
        while (atomic_load(&s.done) < 1)
            usleep(100);
        pthread_create(&revoker, NULL, revoke_key, &b);
        for (uint64_t until = hw_now() + round % 50 * 4000; hw_now() < until;)
            ;
        failed += hawser_mem_deregister(b.mem) != 0;
        b.mem = NULL;
        hw_pattern_fill(b.p, b.len, 77, 0);
        pthread_join(revoker, NULL);
        atomic_store(&s.stop, true);
        pthread_join(t, NULL);
        changed += hw_pattern_check(b.p, b.len, 77, 0, NULL);
        ph_drop(&b);
    }
    ok(failed == 0 && changed == 0,
       "memory that is deregistered while another thread revokes its region, %d times: no byte changes afterwards "
       "(%llu, %d failed)",
       ROUNDS, (unsigned long long)changed, failed);
}

static void revocation(void)
{
    step("revoke while operations run");
    revoke_under_way(hawser_write, 512, "writes");
    revoke_under_way(hawser_write, 1 << 20, "writes");
    revoke_under_way(hawser_read, 512, "reads");
    revoke_under_way(hawser_read, 1 << 20, "reads");
    deregister_beside_revoke();
    is_rc(hawser_peer_state(pr.ab), 0, "the peer lives through all that");
}

static void deregistration(void)
{
    step("deregister");
    struct ph_buf a = ph_buf(pr.a, 4096, 0, 0, NULL);
    struct hawser_vec v = {.mem = a.mem, .length = 4096};
    hawser_op *op;
    must(hawser_recv(pr.ab, &v, 1, NULL, &op));
    is_rc(hawser_mem_deregister(a.mem), -EBUSY, "memory in use stays registered");
    must(hawser_cancel(op));
    is_rc(hawser_wait(op, 5000), -ECANCELED, "cancelled");
    is_rc(hawser_mem_deregister(a.mem), 0, "then it can go, even before the operation is freed");
    hawser_op_free(op);
    is_rc(hawser_mem_deregister(NULL), 0, "nothing is deregistered easily");
    free(a.raw);
    /* deregistering memory revokes all of its exports */
    struct ph_buf b = ph_buf(pr.b, 4096, 0, 0, NULL);
    uint8_t key[100][HAWSER_KEY_SIZE];
    for (int i = 0; i < 100; i++)
        must(hawser_export(b.mem, (uint64_t)i, 10, HAWSER_REMOTE_READ, NULL, key[i]));
    ph_drop(&b);
    int stale = 0;
    for (int i = 0; i < 100; i++)
        stale += hawser_revoke(pr.b, key[i]) == -ESTALE;
    is_int(stale, 100, "100 exports went with their memory");
}

#define EXPORTS 100000

/* The cost of revoking an export does not depend on the number of other exports. */
static void revoke_many(void)
{
    step("revoke many");
    struct ph_buf b = ph_buf(pr.b, 4096, 0, 0, NULL);
    uint8_t(*key)[HAWSER_KEY_SIZE] = malloc(sizeof *key * EXPORTS);
    if (!key)
        bail("malloc");
    for (int i = 0; i < EXPORTS; i++)
        must(hawser_export(b.mem, (uint64_t)i % 4096, 1, HAWSER_REMOTE_READ, NULL, key[i]));
    uint64_t start = hw_now();
    for (int i = EXPORTS; i-- > 0;)
        must(hawser_revoke(pr.b, key[i]));
    uint64_t took = hw_now() - start;
    ok(took < (PH_SANITIZED ? 10 : 2) * 1000 * HW_MS, "%d exports are revoked, newest first: %.3f s", EXPORTS,
       (double)took / 1e9);
    free(key);
    ph_drop(&b);
}

/* ---- inline data ------------------------------------------------------------------------------------- */

#define SMALL 64 /* bytes of each small write */

/* Starts a write of len bytes `fill` from memory that is overwritten and freed before this function returns. */
static int write_inline(hawser_peer *p, size_t len, int fill, const struct hawser_region *r, uint64_t at,
                        hawser_op **op)
{
    uint8_t *data = malloc(len + 1);
    memset(data, fill, len);
    struct hawser_vec v = {.data = data, .length = len, .region = r, .remote_offset = at};
    int rc = hawser_write(p, &v, 1, NULL, op);
    memset(data, 0xdd, len);
    free(data);
    return rc;
}

static bool is_only(const uint8_t *p, size_t n, int c)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != c)
            return false;
    return true;
}

static void inline_sizes(struct ph_buf *b)
{
    static const size_t n[] = {0, 1, 8, 97, 4095, HAWSER_INLINE_MAX};
    hawser_op *op;
    for (size_t i = 0; i < HW_ARRAY_LEN(n); i++) {
        memset(b->p, 0, b->len);
        must(write_inline(pr.ab, n[i], 0x31, &b->region, 3, &op));
        uint64_t len = hawser_op_length(op);
        int rc = ph_finish(op);
        ok(rc == 0 && len == n[i] && is_only(b->p, 3, 0) && is_only(b->p + 3, n[i], 0x31) &&
               is_only(b->p + 3 + n[i], b->len - 3 - n[i], 0),
           "%zu bytes of data are written as they were at the call (%d)", n[i], rc);
    }
}

/* Tests inline data and registered memory in one operation that is divided into chunks. */
static void inline_mixed(struct ph_buf *b)
{
    struct ph_buf a = ph_buf(pr.a, b->len, 0, 0, NULL);
    uint8_t data[4][1000];
    struct hawser_vec v[8];
    uint64_t at = 0, piece = (b->len - 4000) / 4, bad = 0;
    hawser_op *op;
    hw_pattern_fill(a.p, a.len, 21, 0);
    for (unsigned i = 0; i < 8; i++) {
        v[i] = (struct hawser_vec){.length = i % 2 ? piece : 1000, .region = &b->region, .remote_offset = at};
        if (i % 2) {
            v[i].mem = a.mem;
            v[i].offset = at;
        } else {
            v[i].data = memcpy(data[i / 2], a.p + at, 1000);
        }
        at += v[i].length;
    }
    must(hawser_write(pr.ab, v, 8, NULL, &op));
    memset(data, 0xdd, sizeof data);
    memset(v, 0xdd, sizeof v);
    int rc = ph_finish(op);
    bad = hw_pattern_check(b->p, at, 21, 0, NULL);
    ok(rc == 0 && bad == 0, "data among registered memory, %llu bytes in all (%d, %llu wrong)", (unsigned long long)at,
       rc, (unsigned long long)bad);
    ph_drop(&a);
}

static void inline_refused(struct ph_buf *b)
{
    struct ph_buf a = ph_buf(pr.a, 100, 0, 0, NULL);
    static uint8_t data[HAWSER_INLINE_MAX + 1];
    struct hawser_vec v[2] = {{.mem = a.mem, .data = data, .length = 8, .region = &b->region}};
    hawser_op *op;
    is_rc(hawser_write(pr.ab, v, 1, NULL, &op), -EINVAL, "both memory and data");
    v[0] = (struct hawser_vec){.data = data, .offset = 1, .length = 8, .region = &b->region};
    is_rc(hawser_write(pr.ab, v, 1, NULL, &op), -EINVAL, "data with an offset");
    v[0] = (struct hawser_vec){.data = data, .length = 8, .region = &b->region};
    is_rc(hawser_read(pr.ab, v, 1, NULL, &op), -EINVAL, "data of a read");
    is_rc(hawser_recv(pr.ab, v, 1, NULL, &op), -EINVAL, "data of a receive");
    v[0].length = HAWSER_INLINE_MAX + 1;
    is_rc(hawser_write(pr.ab, v, 1, NULL, &op), -E2BIG, "one byte too much");
    v[0].length = UINT64_MAX;
    is_rc(hawser_write(pr.ab, v, 1, NULL, &op), -E2BIG, "all there is");
    v[0].length = HAWSER_INLINE_MAX;
    v[1] = (struct hawser_vec){.data = data, .length = 1, .region = &b->region};
    is_rc(hawser_write(pr.ab, v, 2, NULL, &op), -E2BIG, "one byte too much in two descriptors");
    v[0] = (struct hawser_vec){.data = data, .length = 2, .region = &b->region, .remote_offset = b->len - 1};
    is_rc(hawser_write(pr.ab, v, 1, NULL, &op), -EFAULT, "data beyond the region");
    ph_drop(&a);
}

/* Cancels many writes, and frees handles while rails may still be sending the data. Checks that each block is complete
 * or unchanged, and that no other memory of this process was sent. */
static void inline_cancelled(void)
{
    enum { MANY = 500 };
    struct ph_buf b = ph_buf(pr.b, MANY * SMALL, 0, HAWSER_REMOTE_WRITE, NULL);
    hawser_op *op[MANY];
    int torn = 0, wrong = 0, cancelled = 0;
    for (unsigned i = 0; i < MANY; i++) {
        must(write_inline(pr.ab, SMALL, 1 + (int)i % 100, &b.region, i * SMALL, &op[i]));
        if (i % 3 == 0)
            must(hawser_cancel(op[i]));
        if (i % 3 == 1) {
            hawser_op_free(op[i]);
            op[i] = NULL;
        }
    }
    for (unsigned i = 0; i < MANY; i++)
        if (op[i]) {
            int rc = ph_finish(op[i]);
            cancelled += rc == -ECANCELED;
            wrong += rc && (rc != -ECANCELED || i % 3);
        }
    ph_see(pr.ba);
    for (unsigned i = 0; i < MANY; i++) {
        const uint8_t *p = b.p + i * SMALL;
        bool full = is_only(p, SMALL, 1 + (int)i % 100);
        torn += !full && (i % 3 == 2 || !is_only(p, SMALL, 0));
    }
    ok(torn == 0 && wrong == 0,
       "%d writes of data, two of three called off: whole or not at all (%d torn, %d wrong, %d)", MANY, torn, wrong,
       cancelled);
    ph_drop(&b);
}

/* Tests inline writes to a peer that closes. Frees every other handle without waiting for its write to complete. */
static void inline_death(void)
{
    enum { MANY = 300 };
    struct pair q = ph_pair(0, NULL, 0, NULL);
    struct ph_buf b = ph_buf(q.b, MANY * HAWSER_INLINE_MAX, 0, HAWSER_REMOTE_WRITE, NULL);
    hawser_op *op[MANY];
    int n = 0, wrong = 0;
    for (; n < MANY; n++) {
        if (n == MANY / 2)
            hawser_peer_close(q.ba);
        if (write_inline(q.ab, HAWSER_INLINE_MAX, 7, &b.region, (uint64_t)n * HAWSER_INLINE_MAX, &op[n]))
            break;
    }
    for (int i = 0; i < n; i++) {
        int rc = i % 2 ? hawser_wait(op[i], 30000) : 0;
        wrong += rc && rc != -ESHUTDOWN && rc != -ECONNRESET;
        hawser_op_free(op[i]);
    }
    ok(n >= MANY / 2 && wrong == 0, "the peer goes: %d writes of data end (%d not as they should)", n, wrong);
    ph_close(&q);
    free(b.raw);
}

static void inline_data(void)
{
    step("inline data");
    struct ph_buf b = ph_buf(pr.b, (3 << 20) + 5, 0, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL);
    inline_sizes(&b);
    inline_mixed(&b);
    inline_refused(&b);
    inline_cancelled();
    inline_death();
    ph_drop(&b);
}

int main(void)
{
    watchdog(110);
    pr = ph_pair(0, NULL, 0, NULL);
    ph_far = pr.ba;
    sizes();
    lists();
    inline_data();
    refused_here();
    refused_there();
    per_peer();
    deregistration();
    revoke_many();
    revocation();
    is_rc(hawser_peer_state(pr.ab), 0, "the client's peer is alive at the end");
    is_rc(hawser_peer_state(pr.ba), 0, "and the server's");
    step("closing");
    ph_close(&pr);
    return tap_done();
}
