/* SPDX-License-Identifier: Apache-2.0 */
/* bench --gpus and --bidir: runs workers, one for each pair of GPUs and each direction, as threads of this process or
 * as child processes, and prints the workers' results in one table. */
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

const struct gpu_pair *bench_worker_pair(const struct bench *b, size_t i)
{
    return &b->gpus.pair[b->both ? i / 2 : i];
}

enum tp_op bench_worker_op(const struct bench *b, size_t i)
{
    return !b->both ? b->op : i % 2 ? TP_READ : TP_WRITE;
}

/* ---- one worker ----------------------------------------------------------------------------- */

struct at_work {
    const struct bench_work *w;
    struct session s;
    struct session_path path[TP_MAX_NICS];
    size_t n_paths;
    uint32_t size; /* index of the current size */
    uint32_t turn; /* 0 before the measured part; from 1 up, hawser and plain sockets take turns */
    const struct measure *m;
    struct rival rival;
    struct session plain;   /* with GPUs: a second session, for the host memory that plain sockets use */
    struct measure *memory; /* host memory that plain sockets use */
};

static int wait_for_crew_gate(void *arg)
{
    struct at_work *a = arg;
    return crew_gate(a->w->fd, &a->s, (struct crew_ready){a->size, a->turn});
}

/* Waits before a turn of plain sockets, because one worker's plain sockets must not run while another worker measures
 * hawser. */
static int begin_worker_turn(void *arg, size_t turn)
{
    struct at_work *a = arg;
    a->turn = (uint32_t)turn + 1;
    return turn % 2 ? wait_for_crew_gate(a)
                    : 0; /* measure_run() waits at the gate before each batch of hawser's turn */
}

/* Prepares plain sockets. With host memory, they use the worker's session and memory, and otherwise a second session
 * with host memory. */
static int prepare_worker_rival(struct at_work *a, struct measure *m)
{
    const struct bench_work *w = a->w;
    const bool host = w->pair->gpu == BUFFER_HOST;
    const struct hawser_connect_options o = {
        .size = sizeof o, .nics = w->pair->nics[0] ? w->pair->nics : NULL, .channels = (uint32_t)w->b->channels};
    struct measure_plan plan;
    int rc = 0;
    a->memory = m;
    if (!host && !a->plain.peer)
        rc = session_open(&a->plain, w->h, w->b->host, w->b->port, &o);
    if (!a->rival.s && rc == 0)
        rc = rival_open(&a->rival, host ? &a->s : &a->plain, &w->b->knobs);
    if (host || rc < 0)
        return rc;
    a->plain.stop = w->stop;
    a->memory = calloc(1, sizeof *a->memory);
    rc = a->memory ? bench_plan(w->b, a->size, &plan) : hw_no_memory("the memory of plain sockets");
    plan.op = w->op;
    plan.blocks = 0;
    return rc < 0 ? rc : measure_open(a->memory, &a->plain, &plan);
}

static void end_worker_rival(struct at_work *a, const struct measure *m)
{
    if (a->memory && a->memory != m) {
        measure_close(a->memory);
        free(a->memory);
    }
    a->memory = NULL;
}

static void send_worker_interval(void *arg, const struct measure_mark *from, const struct measure_mark *to)
{
    const struct at_work *a = arg;
    const struct crew_interval v = {*from, *to};
    (void)crew_say(a->w->fd, CREW_INTERVAL, &v, sizeof v);
}

static void send_worker_heartbeat(void *arg, bool flying)
{
    struct at_work *a = arg;
    struct hawser_nic_stats st[TP_MAX_NICS];
    size_t n = TP_MAX_NICS;
    struct crew_beat b = {.flying = flying, .ops = a->m ? a->m->ops : 0};
    if (hawser_nic_stats(a->s.peer, st, &n) == 0)
        for (size_t i = 0; i < HW_MIN(n, (size_t)TP_MAX_NICS); i++)
            b.moved += st[i].tx_bytes + st[i].rx_bytes;
    /* a failure is ignored, because the next gate or the result then fails too */
    (void)crew_say(a->w->fd, CREW_BEAT, &b, sizeof b);
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
    a->turn = 0;
    int rc = wait_for_crew_gate(a);
    if (rc == 0)
        rc = bench_plan(b, a->size, &plan);
    if (rc < 0)
        return rc;
    plan.op = a->w->op;
    plan.gpu = p->gpu;
    plan.peer_gpu = (uint16_t)p->peer;
    m->beat = send_worker_heartbeat;
    m->interval = send_worker_interval;
    a->m = m;
    m->gate = wait_for_crew_gate;
    m->progress_arg = a;
    rc = bench_start(b, &a->s, &plan, bench_warmup(b, iters), m, r);
    if (rc < 0)
        return rc;
    r->of = p->gpu == BUFFER_HOST ? ROW_HOST : ROW_GPU;
    r->gpu = p->gpu;
    r->peer_gpu = p->peer;
    const bool rival = b->compare_raw && size > 0;
    if (rival)
        rc = prepare_worker_rival(a, m);
    const struct bench_turns turns = {
        .m = m, .rival = rival ? &a->rival : NULL, .raw = a->memory, .before = begin_worker_turn, .arg = a};
    if (rc == 0)
        rc = bench_rounds(b, &turns, iters, r);
    if (rc == 0 || (rc == -EINTR && r->sum.iters > 0)) {
        if (rc < 0)
            snprintf(r->early, sizeof r->early, "%s", hw_error());
        bench_finish(b, m, a->path, a->n_paths, r);
        if (!a->w->own_cpu && a->w->crowd > 1)
            r->cpu_s_per_GB = NAN; /* threads share one CPU clock; the row for all workers has the total */
        if (a->w->crowd > 1)
            r->peer_cpu_s_per_GB = NAN;
        const int sent = send_worker_result(a, r, m);
        rc = rc < 0 ? hw_fail(rc, "interrupted") : sent;
    }
    HW_KEEP_ERROR();
    end_worker_rival(a, m);
    measure_close(m);
    return HW_MIN(rc, 0);
}

static int connect_and_measure(struct at_work *a)
{
    const struct bench_work *w = a->w;
    const bool host = w->pair->gpu == BUFFER_HOST;
    const struct hawser_connect_options o = {.size = sizeof o,
                                             .nics = w->pair->nics,
                                             .channels = (uint32_t)w->b->channels,
                                             .gpu = host ? 0 : HAWSER_GPU(w->pair->gpu),
                                             .peer_gpu = host ? 0 : HAWSER_GPU(w->pair->peer)};
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
    session_close(&a.plain);
    session_close(&a.s);
    return rc;
}

/* ---- workers as threads --------------------------------------------------------------------- */

struct thread {
    struct bench_work w;
    pthread_t id;
    bool started, stop;
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    if (t->w.pair->has_cpus) /* if the kernel refuses, the thread is only slower */
        (void)pthread_setaffinity_np(pthread_self(), sizeof t->w.pair->cpus, &t->w.pair->cpus);
    (void)bench_work(&t->w);
    /* The supervisor sees end of file. The descriptor stays open until the thread is joined. */
    shutdown(t->w.fd, SHUT_RDWR);
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
            return hw_fail(-errno, "creating sockets for a worker: %s", strerror(errno));
        c->m[i].fd = fd[0];
        t[i].w = (struct bench_work){.b = b,
                                     .pair = bench_worker_pair(b, i),
                                     .op = bench_worker_op(b, i),
                                     .h = b->h,
                                     .fd = fd[1],
                                     .crowd = c->n,
                                     .stop = &t[i].stop};
        int e = pthread_create(&t[i].id, NULL, thread_main, &t[i]);
        if (e) {
            hw_close(&t[i].w.fd);
            return hw_fail(-e, "starting a thread for a worker: %s", hw_errno_text(e));
        }
        t[i].started = true;
        c->m[i].gone = false;
    }
    return 0;
}

/* Stops and joins all threads. Returns false if a thread does not end within CREW_PATIENCE. */
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

/* ---- table of results ----------------------------------------------------------------------- */

struct gpu_table {
    struct bench *b;
    struct crew *c;
    struct thread *thread;
    struct bench_child *child;
    bool indirect; /* data of a GPU took a path that --require-direct does not allow */
    int rc;
};

/* After the last size, prints how each GPU's data arrived. After each size, reports the workers that violate
 * --require-direct. */
static void print_verdicts(struct gpu_table *t, size_t size, bool last)
{
    struct bench *b = t->b;
    FILE *out = bench_table(b);
    if (last)
        fprintf(out, "\nHow received bytes reached GPU memory: by the NIC or a net plugin (device path),\nthrough host "
                     "memory (staged), or by a CPU (copied)\n");
    for (size_t i = 0; i < t->c->n; i++) {
        const struct crew_result *r = t->c->m[i].result[size];
        if (r && last)
            output_verdict(out, t->c->m[i].name, &r->row);
        if (r && b->knobs.require_direct && !(r->row.here.passed && r->row.there.passed)) {
            char text[32];
            tool_fail("bench", "%s, %s: not all data used the device path, which --require-direct requires",
                      t->c->m[i].name, hw_format_size(b->sizes[size], text, sizeof text));
            t->indirect = true;
        }
    }
    fflush(out);
}

/* Returns the name, without a leading "GPU " if the name would not fit in the column. */
static const char *get_row_name(const char *name)
{
    return strlen(name) > 12 && strncmp(name, "GPU ", 4) == 0 ? name + 4 : name;
}

static void print_size(void *arg, size_t size)
{
    struct gpu_table *t = arg;
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
        r->row.op = output_op_name(bench_worker_op(b, i));
        table_row(&b->table, get_row_name(t->c->m[i].name), &r->row);
        b->bad += r->row.sum.bad;
        if (b->json_out && fputs(r->json, b->json_out) < 0)
            t->rc = hw_fail(-EIO, "writing the JSON line: %s", strerror(errno));
    }
    if (!bench_sum_up(b, t->c, size, all, m))
        return;
    char who[40];
    snprintf(who, sizeof who,
             all->failed           ? "%u of %u"
             : all->of == ROW_BOTH ? "both"
                                   : "all %u",
             all->gpus, all->gpus + all->failed);
    table_row(&b->table, who, all);
    if (b->json_out && output_json(b->json_out, all) < 0)
        t->rc = -EIO;
    const bool last = size + 1 == b->n_sizes || tool_stop;
    if (last) {
        table_end(&b->table);
        bench_print_channels(out, b->channels ? b->channels : b->knobs.channels, all->channels);
        bench_print_congestion(out, all);
        output_nics(out, all);
    }
    if (all->of == ROW_GPUS)
        print_verdicts(t, size, last);
}

/* ---- running all workers -------------------------------------------------------------------- */

static void print_gpu_bench_head(struct bench *b, bool wrapped, int there)
{
    FILE *out = bench_table(b);
    fprintf(out, "# hawser %s, peer %s port %u, %s%s\n", hawser_version(), b->host, b->port,
            b->gpus_text ? "GPU memory, " : "host memory, ", b->per_process ? "one process per worker" : "one process");
    for (size_t i = 0; i < b->gpus.n && b->gpus_text; i++) {
        const struct gpu_pair *p = &b->gpus.pair[i];
        fprintf(out, "# GPU %d -> %d on %s", p->gpu, p->peer, p->nics[0] ? p->nics : "every NIC that reaches the peer");
        if (p->numa >= 0)
            fprintf(out, ", NUMA node %d", p->numa);
        fputc('\n', out);
    }
    if (wrapped)
        fprintf(out, "# the serving node has only %d GPU%s, so remote GPU numbers wrap around to GPU 0\n", there,
                hw_plural(there));
    bench_print_knobs(b, out);
    if (b->compare_raw && b->gpus_text)
        fprintf(out, "# plain sockets use host memory\n");
    table_begin(&b->table, out, b->op == TP_PINGPONG, b->compare_raw, true);
}

static void print_crew_interval(void *table, const char *name, const struct crew_interval *v)
{
    const struct gpu_table *t = table;
    output_progress(NULL);
    table_interval(bench_table(t->b), name, &v->from, &v->to);
}

static int run_gpu_workers(struct bench *b, struct gpu_table *t)
{
    struct crew *c = t->c;
    for (size_t i = 0; i < c->n; i++) {
        const struct gpu_pair *p = bench_worker_pair(b, i);
        const char *op = b->both ? output_op_name(bench_worker_op(b, i)) : "";
        if (p->gpu == BUFFER_HOST)
            snprintf(c->m[i].name, sizeof c->m[i].name, "%s", op);
        else
            snprintf(c->m[i].name, sizeof c->m[i].name, "GPU %d -> %d%s%s", p->gpu, p->peer, *op ? " " : "", op);
    }
    c->interval = print_crew_interval;
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
    if (rc == 0 && b->gpus_text)
        rc = gpus_fit(&b->gpus, b->h, b->host, b->port, b->nics, b->map, &there, &wrapped);
    if (!b->gpus_text) {
        b->gpus = (struct gpus){.pair = {{.gpu = BUFFER_HOST, .peer = TP_HOST, .numa = -1}}, .n = 1};
        snprintf(b->gpus.pair[0].nics, sizeof b->gpus.pair[0].nics, "%s", b->nics ? b->nics : "");
    }
    if (b->per_process) { /* the children have their own contexts, so this process needs none */
        hawser_close(b->h);
        b->h = NULL;
    }
    if (rc == 0)
        print_gpu_bench_head(b, wrapped, there);
    return rc;
}

static int run_gpu_bench(struct bench *b, struct gpu_table *t)
{
    struct crew *c = t->c;
    int rc = open_gpu_bench(b);
    if (rc < 0 || (rc = crew_open(c, b->gpus.n * (b->both ? 2 : 1), b->n_sizes)) < 0)
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
    struct gpu_table t = {.b = b, .c = &c};
    int rc = run_gpu_bench(b, &t);
    if (b->abandoned)
        return rc; /* a thread that did not end still uses the memory */
    HW_KEEP_ERROR();
    snprintf(b->files.run.peer, sizeof b->files.run.peer, "%s", b->host);
    crew_close(&c);
    free(t.thread);
    free(t.child);
    hawser_close(b->h);
    return HW_MIN(rc, 0);
}
