/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a plugin between two processes: the receivers' goodput, or half the round-trip time of 8 bytes. For the
 * goodput, the timed messages have arbitrary contents. Each connection then transfers 16 further messages, which are
 * checked byte by byte. */
#include "driver.h"

#include "base/size.h"
#include "sys/json.h"
#include "tool/report/hist.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* One connection under load. */
struct lane {
    struct comm *c;
    uint8_t *buf;
    size_t len;
    void *mh, *req[FLOW_DEPTH];
    unsigned depth;
    uint64_t posted, done, limit; /* limit is 0 until it is known */
    uint64_t warm, t0, t1;        /* timing starts when message `warm` is done */
    atomic_uint_least64_t *shared_limit;
};

struct worker {
    struct rank *r;
    struct lane *lanes;
    size_t n, first, step; /* this worker has every step-th lane */
    uint64_t stop_at;
    pthread_t t;
    int rc;
    char why[HW_ERR_TEXT];
};

static int lane_open(struct rank *r, struct lane *l, int sender, size_t i)
{
    int rc = comm_open(r, sender, &l->c);
    if (rc)
        return rc;
    l->depth = (unsigned)depth_of(opt.depth);
    l->warm = 2 * (uint64_t)l->depth;
    l->shared_limit = &r->sh->limit[i];
    l->len = l->depth * HW_MAX((opt.size + 4095) / 4096 * 4096, 4096ull);
    l->buf = mmap(NULL, l->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (l->buf == MAP_FAILED)
        return hw_fail(-ENOMEM, "%zu bytes for a connection", l->len);
    return net_fail(net_reg(r, l->c->c, l->buf, l->len, &l->mh), "regMr");
}

static int lane_post(struct rank *r, struct lane *l)
{
    unsigned k = (unsigned)(l->posted % l->depth);
    uint8_t *p = l->buf + k * (l->len / l->depth);
    ncclResult_t rc;

    if (l->posted - l->done == l->depth || (l->limit && l->posted == l->limit))
        return 0;
    if (l->c->sends)
        rc = net_isend(r, l->c->c, p, opt.size, 0, l->mh, &l->req[k], &l->req[k]);
    else
        rc = net_irecv(r, l->c->c, p, opt.size, 0, l->mh, &l->req[k], &l->req[k]);
    if (rc)
        return net_fail(rc, l->c->sends ? "isend" : "irecv");
    l->posted += l->req[k] != NULL;
    return l->req[k] != NULL;
}

static int lane_test(struct rank *r, struct lane *l)
{
    unsigned k = (unsigned)(l->done % l->depth);
    int done = 0, sizes[8], rc;

    if (l->done == l->posted)
        return 0;
    rc = net_fail(net_test(r, l->req[k], &done, sizes), "test");
    if (rc || !done)
        return rc;
    if (!l->c->sends && (rc = comm_arrived(l->c, l->req[k], l->buf + k * (l->len / l->depth), opt.size)))
        return rc;
    if (++l->done == l->warm)
        l->t0 = hw_now();
    return 1;
}

/* Sets the number of messages when the time is up. The sender adds the depth to the number of messages that it has
 * posted, because the receiver may have posted receives for that many, and every receive needs a message. */
static void lane_limit(struct lane *l, uint64_t stop_at)
{
    if (l->limit)
        return;
    if (!l->c->sends) {
        l->limit = atomic_load(l->shared_limit);
    } else if (l->posted > l->warm && hw_now() >= stop_at) {
        l->limit = l->posted + l->depth;
        atomic_store(l->shared_limit, l->limit);
    }
}

static int work(struct worker *w)
{
    uint64_t idle_since = hw_now();
    for (;;) {
        int events = 0, n;
        bool over = true;
        for (size_t i = w->first; i < w->n; i += w->step) {
            struct lane *l = &w->lanes[i];
            if (l->limit && l->done == l->limit)
                continue;
            over = false;
            lane_limit(l, w->stop_at);
            while ((n = lane_post(w->r, l)) > 0)
                events++;
            if (n < 0 || (n = lane_test(w->r, l)) < 0)
                return n;
            events += n;
            if (l->limit && l->done == l->limit)
                l->t1 = hw_now();
        }
        if (over)
            return 0;
        if (events) {
            idle_since = 0;
            continue;
        }
        sched_yield(); /* like NCCL's progress thread */
        if (!idle_since)
            idle_since = hw_now();
        if (hw_now() - idle_since > opt.deadline * 1000 * HW_MS)
            return hw_fail(-ETIMEDOUT, "nothing moved for %llu s", (unsigned long long)opt.deadline);
        if (atomic_load(&w->r->sh->gone) == w->r->step + 1)
            return hw_fail(-ECANCELED, "the other rank has failed");
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->rc = work(w);
    if (w->rc) {
        snprintf(w->why, sizeof(w->why), "%s", hw_error());
        atomic_store(&w->r->sh->gone, w->r->step + 1);
    }
    return NULL;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

struct tally {
    uint64_t bytes, t0, t1; /* bytes received; hw_now() is the same clock on both ranks */
    double cpu;
};

static int run_lanes(struct rank *r, struct lane *lanes, size_t n, struct tally *t)
{
    struct worker w[64];
    size_t threads = HW_MIN(opt.threads, n), started = 0;
    double cpu = cpu_seconds();
    int rc = 0;

    for (; started < threads; started++) {
        w[started] = (struct worker){
            .r = r, .lanes = lanes, .n = n, .first = started, .step = threads, .stop_at = hw_now() + opt.ms * HW_MS};
        if (pthread_create(&w[started].t, NULL, worker_main, &w[started])) {
            rc = hw_fail(-EAGAIN, "no thread");
            break;
        }
    }
    for (size_t i = 0; i < started; i++) {
        pthread_join(w[i].t, NULL);
        if (w[i].rc && (!rc || rc == -ECANCELED))
            rc = hw_fail_copy(w[i].rc, w[i].why);
    }
    *t = (struct tally){.t0 = UINT64_MAX, .cpu = cpu_seconds() - cpu};
    for (size_t i = 0; i < n && !rc; i++) {
        if (lanes[i].c->sends)
            continue;
        t->bytes += (lanes[i].done - lanes[i].warm) * opt.size;
        t->t0 = HW_MIN(t->t0, lanes[i].t0);
        t->t1 = HW_MAX(t->t1, lanes[i].t1);
    }
    return rc;
}

static FILE *open_json(void)
{
    if (!opt.json)
        return NULL;
    return strcmp(opt.json, "-") == 0 ? rank_out : fopen(opt.json, "we");
}

static int json_head(struct hw_json *j, FILE *f, const char *what)
{
    if (!f)
        return hw_fail(-errno, "opening %s", opt.json);
    hw_json_init(j, f);
    hw_json_object(j, NULL);
    hw_json_str(j, "benchmark", what);
    hw_json_str(j, "plugin", net_name());
    hw_json_i64(j, "version", net_version());
    return 0;
}

static int json_end(struct hw_json *j, FILE *f)
{
    int rc;
    hw_json_end(j);
    rc = hw_json_finish(j);
    if (f != rank_out && fclose(f) && !rc)
        rc = hw_fail(-errno, "writing %s", opt.json);
    return rc;
}

static int print_bandwidth(const struct tally *a, const struct tally *b)
{
    uint64_t t0 = HW_MIN(a->t0, b->t0), t1 = HW_MAX(a->t1, b->t1);
    double gb = (double)(a->bytes + b->bytes) / 1e9, s = (double)(t1 - t0) / 1e9, cpu = a->cpu + b->cpu;
    char size[32];
    struct hw_json j;
    FILE *f = open_json();
    int rc;

    if (f != rank_out)
        fprintf(rank_out, "%s v%d: %s, %llu comms%s, depth %llu, %.1f s: %.3f GB/s, %.3f CPU s/GB, verified\n",
                net_name(), net_version(), hw_format_size(opt.size, size, sizeof(size)), (unsigned long long)opt.comms,
                opt.bidir ? " each way" : "", (unsigned long long)depth_of(opt.depth), s, gb / s, cpu / gb);
    fflush(rank_out); /* this process is killed at the end */
    if (!opt.json)
        return 0;
    if ((rc = json_head(&j, f, "bandwidth")))
        return rc;
    hw_json_u64(&j, "size", opt.size);
    hw_json_u64(&j, "comms", opt.comms);
    hw_json_u64(&j, "depth", depth_of(opt.depth));
    hw_json_u64(&j, "threads", opt.threads);
    hw_json_bool(&j, "bidir", opt.bidir);
    hw_json_double(&j, "seconds", s);
    hw_json_double(&j, "gigabytes_per_second", gb / s);
    hw_json_double(&j, "cpu_seconds_per_gigabyte", cpu / gb);
    hw_json_bool(&j, "verified", true);
    return json_end(&j, f);
}

static int bandwidth(struct rank *r)
{
    size_t n = opt.comms * (opt.bidir ? 2 : 1);
    struct lane *lanes = calloc(n, sizeof(*lanes));
    size_t size = opt.size;
    struct flow_spec s = {.what = "the check at the end", .n = 16, .depth = 8, .sizes = &size, .n_sizes = 1};
    struct tally mine, theirs;
    int rc = lanes ? 0 : hw_fail(-ENOMEM, "connections");

    for (size_t i = 0; i < n && !rc; i++)
        rc = lane_open(r, &lanes[i], (int)(i / opt.comms), i);
    if (!rc)
        rc = barrier(r);
    if (!rc)
        rc = run_lanes(r, lanes, n, &mine);
    for (size_t i = 0; i < n && !rc; i++)
        rc = flow_all(lanes[i].c, &s);
    if (!rc)
        rc = swap(r, &mine, &theirs, sizeof(mine));
    if (!rc && r->id == 0)
        rc = print_bandwidth(&mine, &theirs);
    free(lanes);
    return rc;
}

/* ---- latency ---------------------------------------------------------------------------------- */

#define STOP UINT64_MAX

/* Starts a send or a receive of 8 bytes if *req is NULL, and tests it. Returns 1 when it is done. */
static int small(struct comm *c, uint64_t *word, void *mh, void **req)
{
    int done = 0, sizes[8], rc;
    if (!*req) {
        rc = net_fail(c->sends ? net_isend(c->r, c->c, word, 8, 0, mh, word, req)
                               : net_irecv(c->r, c->c, word, 8, 0, mh, word, req),
                      c->sends ? "isend" : "irecv");
        if (rc || !*req)
            return rc;
    }
    if ((rc = net_fail(net_test(c->r, *req, &done, sizes), "test")) || !done)
        return rc;
    if (!c->sends && (rc = comm_arrived(c, *req, (uint8_t *)word, 8)))
        return rc;
    *req = NULL;
    return 1;
}

struct end {
    struct comm *c;
    uint64_t *word;
    void *mh, *req;
};

static int finish(struct rank *r, struct end *e)
{
    uint64_t end = hw_now() + opt.deadline * 1000 * HW_MS;
    for (unsigned i = 1;; i++) {
        int n = small(e->c, e->word, e->mh, &e->req);
        if (n)
            return n < 0 ? n : 0;
        if (i % 32 == 0)
            sched_yield();
        if (i % 4096 == 0 && (hw_now() >= end || atomic_load(&r->sh->gone) == r->step + 1))
            return hw_fail(-ETIMEDOUT, "8 bytes do not arrive");
    }
}

static int print_latency(const struct hw_hist *h)
{
    double p50 = (double)hw_hist_quantile(h, 0.5) / 1e3, p99 = (double)hw_hist_quantile(h, 0.99) / 1e3;
    struct hw_json j;
    FILE *f = open_json();
    int rc;

    if (f != rank_out)
        fprintf(rank_out, "%s v%d: 8B, half a round trip of %llu: p50 %.2f us, p99 %.2f us, every word verified\n",
                net_name(), net_version(), (unsigned long long)h->n, p50, p99);
    fflush(rank_out); /* this process is killed at the end */
    if (!opt.json)
        return 0;
    if ((rc = json_head(&j, f, "latency")))
        return rc;
    hw_json_u64(&j, "round_trips", h->n);
    hw_json_double(&j, "p50_us", p50);
    hw_json_double(&j, "p99_us", p99);
    hw_json_double(&j, "p999_us", (double)hw_hist_quantile(h, 0.999) / 1e3);
    return json_end(&j, f);
}

/* Rank 0 sends increasing numbers, and rank 1 returns them. */
static int ping(struct rank *r, struct end *out, struct end *in, struct hw_hist *h)
{
    uint64_t stop_at = hw_now() + opt.ms * HW_MS;
    int rc = 0;

    for (uint64_t i = 0; !rc; i++) {
        uint64_t t = hw_now();
        *in->word = 0;
        if (r->id == 0) {
            if (t >= stop_at && i > 100)
                i = STOP;
            *out->word = i;
            rc = small(in->c, in->word, in->mh, &in->req); /* posts the receive, usually before the message arrives */
            if (rc >= 0 && !(rc = finish(r, out)))
                rc = finish(r, in);
            if (!rc && *in->word != i)
                return hw_fail(-EBADMSG, "round %llu: %#llx came back", (unsigned long long)i,
                               (unsigned long long)*in->word);
            if (i > 100 && i != STOP)
                hw_hist_add(h, (hw_now() - t) / 2);
        } else if (!(rc = finish(r, in))) {
            i = *in->word;
            *out->word = i;
            rc = finish(r, out);
        }
        if (i == STOP)
            break;
    }
    return rc;
}

static int latency(struct rank *r)
{
    static struct hw_hist h; /* about 60 KB */
    struct end e[2] = {{0}};
    uint64_t *space = aligned_alloc(4096, 8192);
    int rc = space ? 0 : hw_fail(-ENOMEM, "two pages");

    for (int i = 0; i < 2 && !rc; i++) {
        if ((rc = comm_open(r, i, &e[i].c)))
            break;
        e[i].word = space + (size_t)i * 512;
        rc = net_fail(net_reg(r, e[i].c->c, e[i].word, 4096, &e[i].mh), "regMr");
    }
    if (!rc)
        rc = barrier(r);
    if (!rc)
        rc = ping(r, &e[r->id], &e[!r->id], &h);
    if (!rc)
        rc = barrier(r);
    if (!rc && r->id == 0)
        rc = print_latency(&h);
    int rc2 = comm_close_all(r);
    free(space);
    return rc ? rc : rc2;
}

static int bench(struct rank *r)
{
    return opt.latency ? latency(r) : bandwidth(r);
}

const struct step bench_step = {"bench", bench, 0};
