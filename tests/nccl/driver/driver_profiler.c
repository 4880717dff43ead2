/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulates NCCL's profiler, and checks the events that the plugin reports for a message's phandle. Each event must
 * begin with a valid phandle and end once, before the message is done. As in NCCL, the profiler may ignore an event:
 * the profiler leaves *handle unchanged, and ignores later calls for the event.
 *
 * Event pointers from the plugin are compared with known addresses, but not dereferenced. The same holds for phandles,
 * except the phandle with which an event begins, which NCCL also trusts.
 */
#include "driver.h"

#include "nccl/event.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC    0x70726f66696c6572ull
#define UNWANTED 5 /* every fifth event is ignored */

struct event {
    struct event *next;
    struct phandle *of; /* only compared, because the phandle may no longer exist */
    int64_t id;
    bool sends;
    size_t size;
};

static struct {
    pthread_mutex_t mu;
    struct event *live;
    uint64_t begun, wanted;
    bool ours;       /* hawser's plugin has reported events */
    char wrong[256]; /* the first error */
} prof = {.mu = PTHREAD_MUTEX_INITIALIZER};

__attribute__((format(printf, 1, 2))) static void wrong(const char *fmt, ...)
{
    va_list ap;
    if (prof.wrong[0])
        return;
    va_start(ap, fmt);
    vsnprintf(prof.wrong, sizeof(prof.wrong), fmt, ap);
    va_end(ap);
}

static struct event **find(const void *handle)
{
    for (struct event **at = &prof.live; *at; at = &(*at)->next)
        if (*at == handle)
            return at;
    return NULL;
}

/* Checks an event of hawser's plugin, all of whose fields are known (nccl/event.h). */
static void check_ours(const ncclProfilerNetSockDescr_v1_t *e, bool sends, uint64_t length, const char *when)
{
    const int op = sends ? NCCL_SOCKET_SEND : NCCL_SOCKET_RECV;
    if (!e || e->type != ncclProfileSocket || e->sock.op != op || e->sock.length != length)
        wrong("hawser's event at its %s: type %d, op %d, %llu bytes; wanted 1, %d, %llu", when, e ? e->type : -1,
              e ? e->sock.op : -1, e ? (unsigned long long)e->sock.length : 0ull, op, (unsigned long long)length);
}

static void start(void **handle, struct phandle *p, int64_t id, const void *ext)
{
    if (!p || p->magic != MAGIC) {
        wrong("an event begins with a phandle that is none");
        return;
    }
    if (id >> 16 == 0 || (id & 0xffff) == 0 || id >> 32 != 0) {
        wrong("the plugin's id is %#llx: a type above 16 bits of a version", (unsigned long long)id);
        return;
    }
    if (id == HN_EVENT_ID) {
        prof.ours = true;
        check_ours(ext, p->sends, p->room, "start");
    }
    atomic_fetch_add(&p->told, 1);
    if (++prof.begun % UNWANTED == 0)
        return;
    struct event *e = malloc(sizeof(*e));
    if (!e)
        return;
    *e = (struct event){.next = prof.live, .of = p, .id = id, .sends = p->sends, .size = p->size};
    prof.live = *handle = e;
    prof.wanted++;
}

static void change(void *handle, int type, const void *ext)
{
    struct event **at = find(handle), *e;
    if (!handle)
        return; /* an ignored event */
    if (!at) {
        wrong("an event ends, or changes, that is not there (any more)");
        return;
    }
    e = *at;
    if (e->id == HN_EVENT_ID && type != ncclProfilerNetEventStop)
        check_ours(ext, e->sends, e->size, "end");
    if (type == ncclProfilerNetEventUpdate)
        return;
    *at = e->next;
    free(e);
}

ncclResult_t profiler(void **handle, int type, void *phandle, int64_t id, void *ext)
{
    if (!opt.profile) /* like NCCL without a profiler */
        return ncclSuccess;
    pthread_mutex_lock(&prof.mu);
    if (!handle)
        wrong("no place for an event's handle");
    else if (type == ncclProfilerNetEventStart)
        start(handle, phandle, id, ext);
    else if (type >= ncclProfilerNetEventStop && type <= ncclProfilerNetEventUpdateAndStop)
        change(*handle, type, ext);
    else
        wrong("an event of type %d", type);
    pthread_mutex_unlock(&prof.mu);
    return ncclSuccess;
}

void prof_begin(struct phandle *p, bool sends, size_t size, size_t room)
{
    p->magic = MAGIC;
    p->sends = sends;
    p->size = size;
    p->room = room;
    atomic_store(&p->told, 0);
}

int prof_end(struct phandle *p, const char *when)
{
    unsigned open = 0;
    bool missing;

    pthread_mutex_lock(&prof.mu);
    for (const struct event *e = prof.live; e; e = e->next)
        open += e->of == p;
    missing = prof.ours && atomic_load(&p->told) != 1;
    pthread_mutex_unlock(&prof.mu);
    p->magic = 0;
    if (open)
        return hw_fail(-EPROTO, "a message is %s, and %u of its events in the profiler go on", when, open);
    if (missing)
        return hw_fail(-EPROTO, "a message is %s, and the profiler was told of %u events", when, atomic_load(&p->told));
    return 0;
}

/* A thread and the flow that the thread runs. */
struct watched {
    struct rank *r;
    struct flow f;
    pthread_t t;
    int rc;
    char why[HW_ERR_TEXT];
};

static void *watched_main(void *arg)
{
    struct watched *w = arg;
    w->rc = flow_run(w->r, &w->f, 1);
    if (w->rc) {
        snprintf(w->why, sizeof(w->why), "%s", hw_error());
        atomic_store(&w->r->sh->gone, w->r->step + 1);
    }
    return NULL;
}

#define THREADS 4

static int on_threads(struct rank *r)
{
    struct flow_spec s = {
        .what = "watched messages on threads", .n = 200, .depth = 8, .max = 100000, .slack = 500, .hint = true};
    struct watched w[THREADS] = {{0}};
    struct comm *c;
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < THREADS && !rc; i++) {
        w[i].r = r;
        if (!(rc = comm_open(r, (int)(i % 2), &c)))
            rc = flow_open(&w[i].f, c, &s);
    }
    for (; n < THREADS && !rc; n++)
        if (pthread_create(&w[n].t, NULL, watched_main, &w[n])) {
            rc = hw_fail(-EAGAIN, "no thread");
            break;
        }
    for (size_t i = 0; i < n; i++)
        pthread_join(w[i].t, NULL);
    for (size_t i = 0; i < n && !rc; i++)
        rc = w[i].rc ? hw_fail_copy(w[i].rc, w[i].why) : flow_close(&w[i].f);
    return rc;
}

/* Closes with messages in flight. flow_abandon() checks that the close ends the events. */
static int given_up(struct rank *r)
{
    struct flow_spec s = {.what = "watched messages given up", .n = 1000, .depth = 8, .min = 1 << 20, .max = 1 << 20};
    struct comm *c;
    struct flow f;
    int rc = comm_open(r, 0, &c);

    if (!rc)
        rc = flow_open(&f, c, &s);
    if (!rc)
        rc = flow_some(&f, 1, 6);
    if (rc && rc != -EREMOTEIO) /* the other rank may have closed by now */
        return rc;
    if (!(rc = flow_abandon(&f)))
        rc = barrier(r);
    return rc;
}

int step_profiler(struct rank *r)
{
    static const size_t sizes[] = {0, 8, 1, 4096, 100000, 0, 1 << 20};
    struct flow_spec s = {
        .what = "watched messages", .n = 70, .depth = 8, .sizes = sizes, .n_sizes = HW_ARRAY_LEN(sizes), .slack = 100};
    uint64_t before, after, wanted;
    char words[sizeof(prof.wrong)];
    int rc;

    if (net_version() < 10)
        return SKIP("no profiler before v10");
    pthread_mutex_lock(&prof.mu);
    before = prof.begun;
    pthread_mutex_unlock(&prof.mu);
    if ((rc = exchange(r, &s)) || (rc = on_threads(r)) || (rc = given_up(r)) || (rc = barrier(r)))
        return rc;
    pthread_mutex_lock(&prof.mu);
    after = prof.begun;
    wanted = prof.wanted;
    memcpy(words, prof.wrong, sizeof(words));
    pthread_mutex_unlock(&prof.mu);
    if (words[0])
        return hw_fail(-EPROTO, "the profiler: %s", words);
    if (after == before)
        return SKIP("the plugin tells the profiler nothing");
    return wanted ? 0 : hw_fail(-EPROTO, "the profiler was told of events, and none had a handle");
}
