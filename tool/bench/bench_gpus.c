/* SPDX-License-Identifier: Apache-2.0 */
/* bench --gpus: a worker for each pair of GPUs, here as threads of this process; what they measured as one table. */
#include "tool/bench/bench.h"

#include "base/size.h"
#include "tool/load/stats.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a worker ------------------------------------------------------------------------------- */

struct at_work {
    const struct bench_work *w;
    struct session s;
    struct session_path path[TP_MAX_NICS];
    size_t n_paths;
    uint32_t size; /* its index */
};

static int wait_for_crew_gate(void *arg)
{
    struct at_work *a = arg;
    return crew_gate(a->w->fd, &a->s, (struct crew_ready){a->size, 1});
}

static void send_worker_heartbeat(void *arg, bool flying)
{
    struct at_work *a = arg;
    struct hawser_nic_stats st[TP_MAX_NICS];
    size_t n = TP_MAX_NICS;
    struct crew_beat b = {.flying = flying};
    if (hawser_nic_stats(a->s.peer, st, &n) == 0)
        for (size_t i = 0; i < HW_MIN(n, (size_t)TP_MAX_NICS); i++)
            b.moved += st[i].tx_bytes + st[i].rx_bytes;
    (void)crew_say(a->w->fd, CREW_BEAT, &b, sizeof b); /* who hears nothing will act; so will the next gate */
}

static int send_worker_result(struct at_work *a, const struct row *r, const struct measure *m)
{
    HW_AUTO_FREE char *json = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&json, &len);
    if (!f)
        return hw_no_memory("a line");
    int rc = output_json(f, r);
    if (fclose(f) != 0 && rc == 0)
        rc = hw_no_memory("a line");
    return rc < 0 ? rc : crew_say_result(a->w->fd, r, m, json, len);
}

static int run_worker_size(struct at_work *a, struct measure *m, struct row *r)
{
    const struct bench *b = a->w->b;
    const struct gpu_pair *p = a->w->pair;
    struct measure_plan plan;
    uint64_t size = b->sizes[a->size], iters = bench_iters(b, size);
    int rc = crew_gate(a->w->fd, &a->s, (struct crew_ready){a->size, 0});
    if (rc == 0)
        rc = bench_plan(b, size, &plan);
    if (rc < 0)
        return rc;
    plan.gpu = p->gpu;
    plan.peer_gpu = (uint16_t)p->peer;
    m->beat = send_worker_heartbeat;
    m->gate = wait_for_crew_gate;
    m->progress_arg = a;
    rc = bench_start(b, &a->s, &plan, bench_warmup(b, iters), m, r);
    if (rc < 0)
        return rc;
    r->of = ROW_GPU;
    r->gpu = p->gpu;
    r->peer_gpu = p->peer;
    rc = measure_run(m, iters, b->duration_ms, &r->sum);
    if (rc == 0 || (rc == -EINTR && r->sum.iters > 0)) {
        if (rc < 0)
            snprintf(r->early, sizeof r->early, "%s", hw_error());
        bench_finish(b, m, a->path, a->n_paths, r);
        r->GBps = r->sum.seconds > 0 ? (double)r->sum.bytes / 1e9 / r->sum.seconds : 0;
        if (!a->w->own_cpu && a->w->crowd > 1)
            r->cpu_s_per_GB = NAN; /* threads share the process's clock; all of them together is in the last line */
        if (a->w->crowd > 1)
            r->peer_cpu_s_per_GB = NAN;
        const int sent = send_worker_result(a, r, m);
        rc = rc < 0 ? hw_fail(rc, "interrupted") : sent;
    }
    HW_KEEP_ERROR();
    measure_close(m);
    return HW_MIN(rc, 0);
}

static int connect_and_measure(struct at_work *a)
{
    const struct bench_work *w = a->w;
    const struct hawser_connect_options o = {.size = sizeof o,
                                             .nics = w->pair->nics,
                                             .channels = (uint32_t)w->b->channels,
                                             .gpu = HAWSER_GPU(w->pair->gpu),
                                             .peer_gpu = HAWSER_GPU(w->pair->peer)};
    HW_AUTO_FREE struct measure *m = calloc(1, sizeof *m);
    HW_AUTO_FREE struct row *r = calloc(1, sizeof *r);
    if (!m || !r)
        return hw_no_memory("the results");
    int rc = session_open(&a->s, w->h, w->b->host, w->b->port, &o);
    if (rc < 0)
        return rc;
    a->n_paths = session_paths(&a->s, a->path, HW_ARRAY_LEN(a->path));
    a->s.stop = w->stop;
    for (; rc == 0 && a->size < w->b->n_sizes; a->size++)
        rc = run_worker_size(a, m, r);
    return rc;
}

int bench_work(const struct bench_work *w)
{
    struct at_work a = {.w = w};
    int rc = connect_and_measure(&a);
    if (rc < 0) {
        const char *why = hw_error();
        (void)crew_say(w->fd, CREW_ERROR, why, strlen(why));
    }
    session_close(&a.s);
    return rc;
}

/* ---- as threads ----------------------------------------------------------------------------- */

struct thread {
    struct bench_work w;
    pthread_t id;
    bool started, stop;
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    if (t->w.pair->has_cpus) /* where the machine does not let us, it is only slower */
        (void)pthread_setaffinity_np(pthread_self(), sizeof t->w.pair->cpus, &t->w.pair->cpus);
    (void)bench_work(&t->w);
    shutdown(t->w.fd, SHUT_RDWR); /* the supervisor sees the end; the number stays ours until the thread is joined */
    return NULL;
}

static void stop_thread(void *arg, size_t i)
{
    struct thread *t = (struct thread *)arg + i;
    __atomic_store_n(&t->stop, true, __ATOMIC_RELAXED);
}

static int start_threads(struct bench *b, struct crew *c, struct thread *t)
{
    for (size_t i = 0; i < c->n; i++) {
        int fd[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
            return hw_fail(-errno, "a socket for a worker: %s", strerror(errno));
        c->m[i].fd = fd[0];
        t[i].w = (struct bench_work){
            .b = b, .pair = &b->gpus.pair[i], .h = b->h, .fd = fd[1], .crowd = c->n, .stop = &t[i].stop};
        int e = pthread_create(&t[i].id, NULL, thread_main, &t[i]);
        if (e) {
            hw_close(&t[i].w.fd);
            return hw_fail(-e, "a thread for a worker: %s", hw_errno_name(e));
        }
        t[i].started = true;
        c->m[i].gone = false;
    }
    return 0;
}

/* True: all are joined. */
static bool end_threads(struct thread *t, size_t n)
{
    bool all = true;
    struct timespec until;
    for (size_t i = 0; i < n; i++)
        __atomic_store_n(&t[i].stop, true, __ATOMIC_RELAXED);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CREW_PATIENCE / 1000;
    for (size_t i = 0; i < n; i++) {
        if (!t[i].started)
            continue;
        if (pthread_timedjoin_np(t[i].id, NULL, &until) != 0)
            all = false;
        else
            hw_close(&t[i].w.fd);
    }
    return all;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int by_start(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Seconds in which any of the clocks ran; NAN: no memory. */
static double compute_clocked_seconds(const struct crew *c, size_t size)
{
    size_t n = 0;
    uint64_t ns = 0, upto = 0;
    for (size_t i = 0; i < c->n; i++)
        n += c->m[i].result[size] ? c->m[i].result[size]->n_spans : 0;
    HW_AUTO_FREE uint64_t(*v)[2] = calloc(HW_MAX(n, (size_t)1), sizeof *v);
    if (!v)
        return NAN;
    n = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; c->m[i].result[size] && k < c->m[i].result[size]->n_spans; k++)
            memcpy(v[n++], c->m[i].result[size]->span[k], sizeof *v);
    qsort(v, n, sizeof *v, by_start);
    for (size_t i = 0; i < n; i++) {
        uint64_t from = HW_MAX(v[i][0], upto);
        ns += v[i][1] > from ? v[i][1] - from : 0;
        upto = HW_MAX(upto, v[i][1]);
    }
    return (double)ns / 1e9;
}

/* Payload adds up; the kernel counts each NIC once for all who share it, so the largest window is the nearest. */
static void add_nics(struct tp_nic *into, size_t *n, const struct tp_nic *from, size_t n_from)
{
    for (size_t i = 0; i < n_from; i++) {
        size_t k = 0;
        while (k < *n && strcmp(into[k].nic, from[i].nic) != 0)
            k++;
        if (k == TP_MAX_NICS)
            continue;
        if (k == *n) {
            into[(*n)++] = from[i];
            continue;
        }
        into[k].tx_bytes += from[i].tx_bytes;
        into[k].rx_bytes += from[i].rx_bytes;
        into[k].tx_device_bytes += from[i].tx_device_bytes;
        into[k].rx_device_bytes += from[i].rx_device_bytes;
        into[k].rx_copied_bytes += from[i].rx_copied_bytes;
        into[k].kernel_tx_bytes = HW_MAX(into[k].kernel_tx_bytes, from[i].kernel_tx_bytes);
        into[k].kernel_rx_bytes = HW_MAX(into[k].kernel_rx_bytes, from[i].kernel_rx_bytes);
        into[k].devmem_pkts = HW_MAX(into[k].devmem_pkts, from[i].devmem_pkts);
        into[k].has_devmem_pkts &= from[i].has_devmem_pkts;
        into[k].devmem_before = HW_MIN(into[k].devmem_before, from[i].devmem_before);
        into[k].devmem_after = HW_MAX(into[k].devmem_after, from[i].devmem_after);
    }
}

/* All of a size's results as one row: what they moved, over the time in which any clock ran. */
static bool sum_up(const struct bench *b, const struct crew *c, size_t size, struct row *all, struct measure *m)
{
    *all = (struct row){.of = ROW_GPUS,
                        .op = output_op_name(b->op),
                        .devmem = strcmp(b->knobs.transport, "devmem") == 0,
                        .size = b->sizes[size],
                        .raw_GBps = NAN,
                        .ratio_raw = NAN,
                        .raw_cpu_s_per_GB = NAN,
                        .raw_peer_cpu_s_per_GB = NAN,
                        .raw_spin_us = NAN,
                        .raw_block_us = NAN,
                        .m = m};
    uint64_t longest = 0, added = 0, peer = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct crew_result *r = c->m[i].result[size];
        if (!r) {
            all->failed++;
            continue;
        }
        if (all->gpus++ == 0)
            all->here.passed = all->there.passed = true;
        verdict_add(&all->here, &r->row.here);
        verdict_add(&all->there, &r->row.there);
        if (*r->row.early)
            memcpy(all->early, r->row.early, sizeof all->early);
        all->window = r->row.window;
        all->depth += r->row.depth;
        all->channels = HW_MAX(all->channels, r->row.channels);
        all->iters += r->row.iters;
        all->lost_channels += r->row.lost_channels;
        all->sum.bytes += r->row.sum.bytes;
        all->sum.iters += r->row.sum.iters;
        all->sum.verified += r->row.sum.verified;
        all->sum.bad += r->row.sum.bad;
        longest = HW_MAX(longest, r->row.sum.cpu_us);
        added += r->row.sum.cpu_us;
        peer = HW_MAX(peer, r->row.sum.peer_cpu_us); /* one process there */
        size_t had = all->sum.n_own;
        add_nics(all->sum.own, &all->sum.n_own, r->row.sum.own, r->row.sum.n_own);
        add_nics(all->sum.peer, &all->sum.n_peer, r->row.sum.peer, r->row.sum.n_peer);
        for (; had < all->sum.n_own; had++) {
            size_t at = strlen(all->nics);
            snprintf(all->nics + at, sizeof all->nics - at, "%s%s", at ? "," : "", all->sum.own[had].nic);
        }
        hw_hist_merge(m->hist, &r->hist);
    }
    all->sum.seconds = compute_clocked_seconds(c, size);
    all->GBps = all->sum.seconds > 0 ? (double)all->sum.bytes / 1e9 / all->sum.seconds : 0;
    all->p50_us = (double)hw_hist_quantile(m->hist, 0.5) / 1e3;
    all->p99_us = (double)hw_hist_quantile(m->hist, 0.99) / 1e3;
    all->p999_us = (double)hw_hist_quantile(m->hist, 0.999) / 1e3;
    all->cpu_s_per_GB = bench_per_GB(b->per_process ? added : longest, all->sum.bytes);
    all->peer_cpu_s_per_GB = bench_per_GB(peer, all->sum.bytes);
    return all->gpus > 0;
}

struct table {
    struct bench *b;
    struct crew *c;
    struct thread *thread;
    struct bench_child *child;
    bool indirect; /* some GPU's data went another way than is required */
    int rc;
};

static void print_gpu_row(FILE *out, const char *who, const struct row *r)
{
    fprintf(out, "%-14s", who);
    output_table_row(out, r);
}

/* How each GPU's data came to it, after the last size; what is required and is not so, after each. */
static void print_verdicts(struct table *t, size_t size, bool last)
{
    struct bench *b = t->b;
    FILE *out = bench_table(b);
    if (last)
        fprintf(out,
                "\nHow received bytes came into GPU memory: by the NIC (device path), through host memory (staged), "
                "by a CPU (copied)\n");
    for (size_t i = 0; i < t->c->n; i++) {
        const struct crew_result *r = t->c->m[i].result[size];
        if (r && last)
            output_verdict(out, t->c->m[i].name, &r->row);
        if (r && b->knobs.require_direct && !(r->row.here.passed && r->row.there.passed)) {
            char text[32];
            tool_fail("bench", "%s, %s: not all of it went by the device path, which --require-direct asks for",
                      t->c->m[i].name, hw_format_size(b->sizes[size], text, sizeof text));
            t->indirect = true;
        }
    }
    fflush(out);
}

/* A size is through. */
static void print_size(void *arg, size_t size)
{
    struct table *t = arg;
    struct bench *b = t->b;
    FILE *out = bench_table(b);
    HW_AUTO_FREE struct row *all = calloc(1, sizeof *all);
    HW_AUTO_FREE struct measure *m = calloc(1, sizeof *m);
    HW_AUTO_FREE struct hw_hist *hist = calloc(1, sizeof *hist);
    if (!all || !m || !hist) {
        t->rc = hw_no_memory("the table");
        return;
    }
    m->hist = hist;
    output_progress(NULL);
    for (size_t i = 0; i < t->c->n; i++) {
        struct crew_result *r = t->c->m[i].result[size];
        if (!r)
            continue;
        r->row.op = output_op_name(b->op);
        print_gpu_row(out, t->c->m[i].name, &r->row);
        b->bad += r->row.sum.bad;
        if (b->json_out && fputs(r->json, b->json_out) < 0)
            t->rc = hw_fail(-EIO, "writing the JSON line: %s", strerror(errno));
    }
    if (!sum_up(b, t->c, size, all, m))
        return;
    char who[40];
    snprintf(who, sizeof who, all->failed ? "%u of %u GPUs" : "%u GPUs", all->gpus, all->gpus + all->failed);
    print_gpu_row(out, who, all);
    if (b->json_out && output_json(b->json_out, all) < 0)
        t->rc = -EIO;
    if (size + 1 == b->n_sizes)
        output_nics(out, all);
    print_verdicts(t, size, size + 1 == b->n_sizes);
}

/* ---- the run -------------------------------------------------------------------------------- */

static void print_gpu_bench_head(const struct bench *b, bool wrapped, int there)
{
    FILE *out = bench_table(b);
    fprintf(out, "# hawser %s, peer %s port %u, GPU memory, %s\n", hawser_version(), b->host, b->port,
            b->per_process ? "a process for each GPU" : "one process");
    for (size_t i = 0; i < b->gpus.n; i++) {
        const struct gpu_pair *p = &b->gpus.pair[i];
        fprintf(out, "# GPU %d -> %d on %s", p->gpu, p->peer, p->nics[0] ? p->nics : "every NIC that reaches the peer");
        if (p->numa >= 0)
            fprintf(out, ", NUMA node %d", p->numa);
        fputc('\n', out);
    }
    if (wrapped)
        fprintf(out, "# the serving node has %d GPU%s: beyond these its numbers start again from 0\n", there,
                there == 1 ? "" : "s");
    bench_print_knobs(b, out);
    fprintf(out, "%-14s", "GPU");
    output_table_head(out);
}

static int run_gpu_workers(struct bench *b, struct table *t)
{
    struct crew *c = t->c;
    for (size_t i = 0; i < c->n; i++)
        snprintf(c->m[i].name, sizeof c->m[i].name, "GPU %d -> %d", b->gpus.pair[i].gpu, b->gpus.pair[i].peer);
    c->verbose = b->common.verbose > 0;
    c->sized = print_size;
    c->table = t;
    int rc = b->per_process ? bench_children_start(b, c, t->child) : start_threads(b, c, t->thread);
    if (rc == 0)
        rc = crew_run(c);
    b->failed = rc > 0 || t->indirect;
    HW_KEEP_ERROR();
    if (b->per_process)
        bench_children_end(t->child, c->n);
    else
        b->abandoned = !end_threads(t->thread, c->n);
    return rc < 0 ? rc : t->rc;
}

static int open_gpu_bench(struct bench *b)
{
    bool wrapped = false;
    int there = 0, rc = common_open(&b->common, &b->h);
    if (rc == 0)
        rc = gpus_fit(&b->gpus, b->h, b->host, b->port, b->nics, b->map, &there, &wrapped);
    if (b->per_process) { /* a process for each: nothing of hawser's in this one */
        hawser_close(b->h);
        b->h = NULL;
    }
    if (rc == 0)
        print_gpu_bench_head(b, wrapped, there);
    return rc;
}

static int run_gpu_bench(struct bench *b, struct table *t)
{
    struct crew *c = t->c;
    int rc = open_gpu_bench(b);
    if (rc < 0 || (rc = crew_open(c, b->gpus.n, b->n_sizes)) < 0)
        return rc;
    t->thread = calloc(c->n, sizeof *t->thread);
    t->child = calloc(c->n, sizeof *t->child);
    c->arg = b->per_process ? (void *)t->child : t->thread;
    c->give_up = stop_thread;
    return t->thread && t->child ? run_gpu_workers(b, t) : hw_no_memory("the workers");
}

int bench_gpus(struct bench *b)
{
    struct crew c = {0};
    struct table t = {.b = b, .c = &c};
    int rc = run_gpu_bench(b, &t);
    if (b->abandoned)
        return rc; /* its memory is still in use */
    HW_KEEP_ERROR();
    crew_close(&c);
    free(t.thread);
    free(t.child);
    hawser_close(b->h);
    return HW_MIN(rc, 0);
}
