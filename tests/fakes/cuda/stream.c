/* SPDX-License-Identifier: Apache-2.0 */
/* Streams (one thread each), their items (copies, events and kernels), and modules. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PARAMS 8

struct item {
    struct item *next;
    enum { COPY, MARK, KERNEL } what;
    /* copy */
    uint64_t to, from;
    size_t len;
    enum place to_place, from_place; /* determined at the time of the call */
    /* mark */
    CUevent event;
    uint64_t record;
    /* kernel */
    struct CUfunc_st *fn;
    unsigned grid[3], block[3];
    uint64_t params[MAX_PARAMS][128]; /* 1 KiB each, because hw_gather_few takes a list as a parameter */
};

struct CUstream_st {
    struct CUstream_st *next;
    CUcontext ctx;
    bool dead; /* the thread ends after the last item */
    struct item *first, **end;
    pthread_cond_t wake;
};

struct CUevent_st {
    struct CUevent_st *next;
    CUcontext ctx;
    bool timed, dead;
    unsigned refs; /* records of this event that streams have not reached yet */
    uint64_t records, reached, ns;
};

struct CUmod_st {
    struct CUmod_st *next;
};

struct CUfunc_st {
    struct CUfunc_st *next;
    char *name;
    fakecuda_fn *fn;
    unsigned n;
    size_t sizes[MAX_PARAMS];
};

static struct CUstream_st *streams;
static struct CUevent_st *events;
static struct CUmod_st *modules;
static struct CUfunc_st *functions;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER; /* signalled when an item ends, and by fake_streams_wake() */

#define UNLINK(list, it)                 \
    do {                                 \
        __typeof__(list) *at_ = &(list); \
        while (*at_ && *at_ != (it))     \
            at_ = &(*at_)->next;         \
        if (*at_)                        \
            *at_ = (it)->next;           \
    } while (0)

/* ---- the stream's thread -------------------------------------------------------------------- */

/* Performs a copy. The caller holds the lock, which is released during the copy. */
static CUresult do_copy(struct item *i)
{
    char *to, *from;
    /* A real GPU would fault on memory that was freed or unpinned after the call. */
    if (fake_place(i->to, i->len, &to) != i->to_place || fake_place(i->from, i->len, &from) != i->from_place)
        return fake_misuse(CUDA_ERROR_ILLEGAL_ADDRESS);
    pthread_mutex_unlock(&fake_lock);
    if (fake_copy_us)
        usleep(fake_copy_us);
    memmove(to, from, i->len);
    pthread_mutex_lock(&fake_lock);
    fake_counts.copies++;
    *(i->to_place != ON_DEVICE     ? &fake_counts.from_device
      : i->from_place != ON_DEVICE ? &fake_counts.to_device
                                   : &fake_counts.within) += i->len;
    return CUDA_SUCCESS;
}

static CUresult do_kernel(struct item *i)
{
    void *args[MAX_PARAMS];
    for (unsigned p = 0; p < i->fn->n; p++)
        args[p] = i->params[p];
    pthread_mutex_unlock(&fake_lock);
    CUresult rc = i->fn->fn(i->grid, i->block, args);
    pthread_mutex_lock(&fake_lock);
    fake_counts.kernels++;
    return rc;
}

static void drop_event(CUevent e)
{
    if (e->dead && e->refs == 0)
        free(e);
}

static bool held_up(struct CUstream_st *s)
{
    struct gpu *g = &fake_gpus[s->ctx->device];
    if (!g->stalled && s->first && s->first->what == COPY && g->stall_at && g->copies + 1 >= g->stall_at) {
        g->stalled = true;
        g->stall_at = 0;
    }
    return g->stalled && !s->ctx->broken;
}

static void *run_stream(void *arg)
{
    struct CUstream_st *s = arg;
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        while (s->first ? held_up(s) : !s->dead)
            pthread_cond_wait(&s->wake, &fake_lock);
        struct item *i = s->first;
        if (!i)
            break;
        CUresult rc = CUDA_SUCCESS;
        if (i->what == COPY) {
            fake_gpus[s->ctx->device].copies++;
            rc = s->ctx->broken ? s->ctx->broken : do_copy(i);
        } else if (i->what == KERNEL) {
            rc = s->ctx->broken ? s->ctx->broken : do_kernel(i);
        } else {
            i->event->reached = HW_MAX(i->event->reached, i->record);
            i->event->ns = hw_now();
            i->event->refs--;
            drop_event(i->event);
        }
        if (rc)
            s->ctx->broken = rc; /* permanent, as after a fault in real CUDA */
        s->first = i->next;
        if (!s->first)
            s->end = &s->first;
        free(i);
        pthread_cond_broadcast(&progress);
    }
    UNLINK(streams, s);
    pthread_mutex_unlock(&fake_lock);
    pthread_cond_destroy(&s->wake);
    free(s);
    return NULL;
}

void fake_streams_wake(void)
{
    for (struct CUstream_st *s = streams; s; s = s->next)
        pthread_cond_signal(&s->wake);
    pthread_cond_broadcast(&progress);
}

void fake_streams_forget(CUcontext ctx)
{
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s->ctx == ctx && !s->dead) {
            s->dead = true;
            fake_counts.streams--;
        }
    fake_streams_wake();
}

/* ---- streams -------------------------------------------------------------------------------- */

static CUstream new_stream(CUcontext ctx)
{
    CUstream s = calloc(1, sizeof(*s));
    pthread_t thread;
    pthread_attr_t detached;
    *s = (struct CUstream_st){.next = streams, .ctx = ctx};
    s->end = &s->first;
    pthread_cond_init(&s->wake, NULL);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &detached, run_stream, s);
    pthread_attr_destroy(&detached);
    if (rc) {
        free(s);
        return NULL;
    }
    streams = s;
    return s;
}

/* Returns the context's stream with this handle (NULL: the default stream). If the stream does not exist, counts a
 * misuse and returns NULL. */
static CUstream stream_of(CUcontext ctx, CUstream handle)
{
    if (!handle) {
        if (!ctx->null_stream)
            ctx->null_stream = new_stream(ctx);
        return ctx->null_stream;
    }
    for (CUstream s = streams; s; s = s->next)
        if (s == handle && !s->dead && s->ctx == ctx)
            return s;
    fake_counts.misuse++;
    return NULL;
}

static void put(CUstream s, struct item *i)
{
    *s->end = i;
    s->end = &i->next;
    pthread_cond_signal(&s->wake);
}

static CUresult drain(CUstream s)
{
    CUcontext ctx = s->ctx;
    while (s->first && !ctx->broken)
        pthread_cond_wait(&progress, &fake_lock);
    return ctx->broken;
}

CUresult fake_StreamCreate(CUstream *stream, unsigned flags)
{
    ENTER_CONTEXT("cuStreamCreate", ctx);
    fake_counts.blocking += !(flags & CU_STREAM_NON_BLOCKING);
    *stream = new_stream(ctx);
    if (!*stream)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    fake_counts.streams++;
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_StreamDestroy(CUstream stream)
{
    ENTER_CONTEXT("cuStreamDestroy_v2", ctx);
    CUstream s = stream ? stream_of(ctx, stream) : NULL;
    if (!s)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    s->dead = true;
    fake_counts.streams--;
    pthread_cond_signal(&s->wake);
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_StreamSynchronize(CUstream stream)
{
    ENTER_CONTEXT("cuStreamSynchronize", ctx);
    CUstream s = stream_of(ctx, stream);
    return fake_leave(s ? drain(s) : CUDA_ERROR_INVALID_HANDLE);
}

CUresult fake_CtxSynchronize(void)
{
    ENTER_CONTEXT("cuCtxSynchronize", ctx);
    fake_counts.blocking++;
    for (bool busy = true; busy && !ctx->broken;) {
        busy = false;
        for (CUstream s = streams; s; s = s->next)
            busy |= s->ctx == ctx && s->first;
        if (busy)
            pthread_cond_wait(&progress, &fake_lock);
    }
    return fake_leave(ctx->broken);
}

/* ---- events --------------------------------------------------------------------------------- */

static CUevent event_of(CUevent handle)
{
    for (CUevent e = events; e; e = e->next)
        if (e == handle)
            return e;
    fake_counts.misuse++;
    return NULL;
}

CUresult fake_EventCreate(CUevent *event, unsigned flags)
{
    ENTER_CONTEXT("cuEventCreate", ctx);
    CUevent e = calloc(1, sizeof(*e));
    *e = (struct CUevent_st){.next = events, .ctx = ctx, .timed = !(flags & CU_EVENT_DISABLE_TIMING)};
    events = *event = e;
    fake_counts.events++;
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_EventDestroy(CUevent event)
{
    ENTER("cuEventDestroy_v2");
    CUevent e = event_of(event);
    if (!e)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    UNLINK(events, e);
    fake_counts.events--;
    e->dead = true;
    drop_event(e);
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_EventRecord(CUevent event, CUstream stream)
{
    ENTER_CONTEXT("cuEventRecord", ctx);
    CUevent e = event_of(event);
    CUstream s = stream_of(ctx, stream);
    if (!e || !s || e->ctx != ctx)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    struct item *i = calloc(1, sizeof(*i));
    *i = (struct item){.what = MARK, .event = e, .record = ++e->records};
    e->refs++;
    put(s, i);
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_EventQuery(CUevent event)
{
    ENTER("cuEventQuery");
    CUevent e = event_of(event);
    if (!e)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (e->ctx->broken)
        return fake_leave(e->ctx->broken);
    return fake_leave(e->reached >= e->records ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult fake_EventElapsedTime(float *ms, CUevent from, CUevent to)
{
    ENTER("cuEventElapsedTime");
    CUevent a = event_of(from), b = event_of(to);
    if (!a || !b || !a->timed || !b->timed || !a->records || !b->records)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (a->reached < a->records || b->reached < b->records)
        return fake_leave(CUDA_ERROR_NOT_READY);
    *ms = (float)((double)(b->ns - a->ns) / 1e6);
    return fake_leave(CUDA_SUCCESS);
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Starts a copy. If `typed` is set, to_device and from_device specify which addresses have to be device addresses. */
static CUresult copy(CUcontext ctx, uint64_t to, uint64_t from, size_t len, CUstream stream, bool to_device,
                     bool from_device, bool typed)
{
    char *cpu;
    CUstream s = stream_of(ctx, stream);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    enum place to_place = fake_place(to, len, &cpu), from_place = fake_place(from, len, &cpu);
    if (to_place == NOWHERE || from_place == NOWHERE ||
        (typed && ((to_place == ON_DEVICE) != to_device || (from_place == ON_DEVICE) != from_device)))
        return fake_misuse(CUDA_ERROR_INVALID_VALUE);
    struct item *i = calloc(1, sizeof(*i));
    *i =
        (struct item){.what = COPY, .to = to, .from = from, .len = len, .to_place = to_place, .from_place = from_place};
    bool pageable = to_place == PAGEABLE || from_place == PAGEABLE;
    fake_counts.pageable += pageable;
    put(s, i);
    return pageable ? drain(s) : CUDA_SUCCESS; /* real CUDA does not copy pageable memory asynchronously either */
}

CUresult fake_MemcpyDtoHAsync(void *to, CUdeviceptr from, size_t len, CUstream stream)
{
    ENTER_CONTEXT("cuMemcpyDtoHAsync_v2", ctx);
    return fake_leave(copy(ctx, (uintptr_t)to, from, len, stream, false, true, true));
}

CUresult fake_MemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t len, CUstream stream)
{
    ENTER_CONTEXT("cuMemcpyHtoDAsync_v2", ctx);
    return fake_leave(copy(ctx, to, (uintptr_t)from, len, stream, true, false, true));
}

CUresult fake_MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t len, CUstream stream)
{
    ENTER_CONTEXT("cuMemcpyDtoDAsync_v2", ctx);
    return fake_leave(copy(ctx, to, from, len, stream, true, true, true));
}

/* ---- kernels -------------------------------------------------------------------------------- */

void fakecuda_kernel(const char *name, fakecuda_fn *fn, const size_t *sizes, unsigned n)
{
    struct CUfunc_st *f = calloc(1, sizeof(*f));
    *f = (struct CUfunc_st){.name = strdup(name), .fn = fn, .n = n};
    if (n > MAX_PARAMS)
        abort();
    for (unsigned i = 0; i < n; i++) {
        if (sizes[i] > sizeof(((struct item *)0)->params[0]))
            abort();
        f->sizes[i] = sizes[i];
    }
    pthread_mutex_lock(&fake_lock);
    f->next = functions;
    functions = f;
    pthread_mutex_unlock(&fake_lock);
}

CUresult fake_ModuleLoadData(CUmodule *module, const void *image)
{
    ENTER_CONTEXT("cuModuleLoadData", ctx);
    if (!image)
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    CUmodule m = calloc(1, sizeof(*m));
    m->next = modules;
    modules = *module = m;
    fake_counts.modules++;
    return fake_leave(CUDA_SUCCESS);
}

static CUmodule module_of(CUmodule handle)
{
    for (CUmodule m = modules; m; m = m->next)
        if (m == handle)
            return m;
    fake_counts.misuse++;
    return NULL;
}

CUresult fake_ModuleUnload(CUmodule module)
{
    ENTER_CONTEXT("cuModuleUnload", ctx);
    CUmodule m = module_of(module);
    if (!m)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    UNLINK(modules, m);
    free(m);
    fake_counts.modules--;
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_ModuleGetFunction(CUfunction *fn, CUmodule module, const char *name)
{
    ENTER("cuModuleGetFunction");
    if (!module_of(module))
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    for (struct CUfunc_st *f = functions; f; f = f->next)
        if (strcmp(f->name, name) == 0) {
            *fn = f;
            return fake_leave(CUDA_SUCCESS);
        }
    return fake_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult fake_LaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, CUstream stream, void **args, void **extra)
{
    ENTER_CONTEXT("cuLaunchKernel", ctx);
    (void)shared;
    CUstream s = stream_of(ctx, stream);
    if (!s)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    /* Limits for compute capability 9.0, from the CUDA programming guide, "Technical specifications". */
    if (!gx || !gy || !gz || !bx || !by || !bz || gy > 65535 || gz > 65535 || (uint64_t)bx * by * bz > 1024 ||
        bz > 64 || extra || (fn->n && !args))
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    struct item *i = calloc(1, sizeof(*i));
    *i = (struct item){.what = KERNEL, .fn = fn, .grid = {gx, gy, gz}, .block = {bx, by, bz}};
    for (unsigned p = 0; p < fn->n; p++)
        memcpy(i->params[p], args[p], fn->sizes[p]);
    put(s, i);
    return fake_leave(CUDA_SUCCESS);
}
