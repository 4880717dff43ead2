/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps the plugin's table of any version in functions that have the same parameters for all versions. */
#include "driver.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The plugin that this process has loaded. */
static struct lib {
    pthread_mutex_t mu;
    unsigned users;
    void *dl;
    int version;
    union {
        const ncclNet_v6_t *v6;
        const ncclNet_v7_t *v7;
        const ncclNet_v8_t *v8;
        const ncclNet_v9_t *v9;
        const ncclNet_v10_t *v10;
        const ncclNet_v11_t *v11;
        const ncclNet_v12_t *v12;
        const void *any;
    } t;
    const char *name;
    ncclResult_t (*devices)(int *);
    ncclResult_t (*dereg)(void *, void *);
    ncclResult_t (*flush)(void *, int, void **, int *, void **, void **);
    ncclResult_t (*test)(void *, int *, int *);
    ncclResult_t (*close_send)(void *);
    ncclResult_t (*close_recv)(void *);
    ncclResult_t (*close_listen)(void *);
    ncclResult_t (*consumed)(void *, int, void *);
    const void *reg_dmabuf;
    struct shared *sh; /* for the logger, which has no argument to pass a context */
    int who;
} lib = {.mu = PTHREAD_MUTEX_INITIALIZER};

static const char *const result_names[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                           "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                           "ncclRemoteError",   "ncclInProgress"};

int net_fail(ncclResult_t rc, const char *call)
{
    if (rc == ncclSuccess)
        return 0;
    return hw_fail(-EREMOTEIO, "%s returned %s (%d)", call,
                   (unsigned)rc < HW_ARRAY_LEN(result_names) ? result_names[rc] : "what is no ncclResult_t", (int)rc);
}

__attribute__((format(printf, 5, 6))) static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                                         int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text[strcspn(text, "\n")] = 0;
    for (char *c = text; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
    if (level == NCCL_LOG_WARN) {
        static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&mu);
        snprintf(lib.sh->warn[lib.who], sizeof(lib.sh->warn[0]), "%s", text);
        pthread_mutex_unlock(&mu);
    }
    if (opt.verbose)
        fprintf(stderr, "# %d of %d at %.3f s: log level %d flags %#lx %s:%d: %s\n", lib.who, (int)getpid(),
                (double)hw_now() / 1e9, (int)level, flags, file ? file : "?", line, text);
}

/* Opens the library like NCCL: first with the given name, then with libnccl-net-NAME.so unless the name is a path or
 * begins with lib. */
static void *open_library(void)
{
    char file[512];
    void *dl = dlopen(opt.plugin, RTLD_NOW | RTLD_LOCAL);
    if (dl || strchr(opt.plugin, '/') || strncmp(opt.plugin, "lib", 3) == 0)
        return dl;
    snprintf(file, sizeof(file), "libnccl-net-%s.so", opt.plugin);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

static const void *table_of(int version)
{
    char sym[32];
    snprintf(sym, sizeof(sym), "ncclNetPlugin_v%d", version);
    return dlsym(lib.dl, sym);
}

#define COMMON(v)                            \
    do {                                     \
        lib.name = (v)->name;                \
        lib.devices = (v)->devices;          \
        lib.dereg = (v)->deregMr;            \
        lib.flush = (v)->iflush;             \
        lib.test = (v)->test;                \
        lib.close_send = (v)->closeSend;     \
        lib.close_recv = (v)->closeRecv;     \
        lib.close_listen = (v)->closeListen; \
    } while (0)

static void take_table(void)
{
    switch (lib.version) {
    case 6:
        COMMON(lib.t.v6);
        break;
    case 7:
        COMMON(lib.t.v7);
        break;
    case 8:
        COMMON(lib.t.v8);
        break;
    case 9:
        COMMON(lib.t.v9);
        break;
    case 10:
        COMMON(lib.t.v10);
        break;
    case 11:
        COMMON(lib.t.v11);
        break;
    default:
        COMMON(lib.t.v12);
        break;
    }
    /* irecvConsumed has the same type and offset from v7 on, as abi.h asserts. */
    lib.consumed = lib.version >= 7 ? lib.t.v7->irecvConsumed : NULL;
    lib.reg_dmabuf = (const void *)lib.t.v6->regMrDmaBuf;
}

static int load_table(void)
{
    lib.dl = open_library();
    if (!lib.dl) {
        const char *why = dlerror();
        return hw_fail(-ENOENT, "loading %s: %s", opt.plugin, why ? why : "dlopen says nothing");
    }
    lib.version = opt.version ? (int)opt.version : 12;
    while (!(lib.t.any = table_of(lib.version)) && !opt.version && lib.version > 6)
        lib.version--;
    if (!lib.t.any) {
        dlclose(lib.dl);
        if (opt.version)
            return hw_fail(-ENOENT, "%s has no ncclNetPlugin_v%d", opt.plugin, lib.version);
        return hw_fail(-ENOENT, "%s has no ncclNetPlugin_v6 to v12: is it a net plugin?", opt.plugin);
    }
    take_table();
    return 0;
}

int net_version(void)
{
    return lib.version;
}

const char *net_name(void)
{
    return lib.name;
}

const char *net_versions(char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = 0;
    for (int v = 6; v <= 12 && at < cap; v++)
        if (table_of(v))
            at += (size_t)snprintf(buf + at, cap - at, "%sv%d", at ? " " : "", v);
    return buf;
}

int net_required(char *missing, size_t cap, int ptr_support)
{
    const ncclNet_v6_t *t = lib.t.v6; /* all tables begin with these entries, but with different arguments */
    const struct {
        const char *name;
        bool there;
    } entries[] = {
        {"name", t->name},
        {"init", t->init},
        {"devices", t->devices},
        {"getProperties", t->getProperties},
        {"listen", t->listen},
        {"connect", t->connect},
        {"accept", t->accept},
        {"regMr", t->regMr},
        {"regMrDmaBuf", t->regMrDmaBuf || !(ptr_support & NCCL_PTR_DMABUF)},
        {"deregMr", t->deregMr},
        {"isend", t->isend},
        {"irecv", t->irecv},
        {"iflush", t->iflush || !(ptr_support & (NCCL_PTR_CUDA | NCCL_PTR_DMABUF))},
        {"test", t->test},
        {"closeSend", t->closeSend},
        {"closeRecv", t->closeRecv},
        {"closeListen", t->closeListen},
        {"finalize", lib.version < 11 || lib.t.v11->finalize},
    };
    size_t at = 0;
    missing[0] = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(entries) && at < cap; i++)
        if (!entries[i].there)
            at += (size_t)snprintf(missing + at, cap - at, " %s", entries[i].name);
    return at ? hw_fail(-EINVAL, "NULL in the table:%s", missing) : 0;
}

/* Records a call, so that the overseer can name the call in which a rank hangs or dies. */
static void enter(struct rank *r, const char *call)
{
    atomic_store_explicit(&r->sh->at[r->id].call, call, memory_order_relaxed);
    atomic_store_explicit(&r->sh->at[r->id].since, hw_now_coarse(), memory_order_relaxed);
}

static ncclResult_t leave(struct rank *r, ncclResult_t rc)
{
    atomic_store_explicit(&r->sh->at[r->id].since, 0, memory_order_relaxed);
    return rc;
}

#define CALL(r, name, expr) (enter((r), (name)), leave((r), (expr)))

static ncclResult_t init(struct rank *r)
{
    static ncclNetCommConfig_v11_t config = {.trafficClass = -1}; /* -1: undefined, NCCL's default */
    if (lib.version >= 11)
        return CALL(r, "init", lib.t.v11->init(&r->ctx, 0x68777472 + (unsigned)r->id, &config, logger, profiler));
    if (lib.users) /* only once per process */
        return ncclSuccess;
    if (lib.version == 10)
        return CALL(r, "init", lib.t.v10->init(logger, profiler));
    return CALL(r, "init", lib.t.v6->init(logger)); /* v6 to v9 */
}

int net_init_again(struct rank *r, void **ctx)
{
    static ncclNetCommConfig_v11_t config = {.trafficClass = -1};
    *ctx = NULL;
    return net_fail(CALL(r, "init", lib.t.v11->init(ctx, 0x616761696e, &config, logger, profiler)), "init");
}

int net_finalize(struct rank *r, void *ctx)
{
    return net_fail(CALL(r, "finalize", lib.t.v11->finalize(ctx)), "finalize");
}

/* Sets the attributes before connecting, like NCCL. */
static ncclResult_t set_attributes(struct rank *r)
{
    ncclNetAttr_v11_t a = {.sendCommAttr = {1, 1, 2, 1}, .recvCommAttr = {1, 1, 2, 1}, .op = 1, .algo = 2, .proto = 4};
    if (lib.version < 11 || !lib.t.v11->setNetAttr)
        return ncclSuccess;
    return CALL(r, "setNetAttr", lib.t.v11->setNetAttr(r->ctx, &a));
}

int net_load(struct rank *r)
{
    int rc = 0;

    pthread_mutex_lock(&lib.mu);
    if (!lib.users) {
        lib.sh = r->sh;
        lib.who = r->id;
        enter(r, "dlopen");
        rc = load_table();
        leave(r, ncclSuccess);
        if (rc)
            goto unlock;
    }
    rc = net_fail(init(r), "init");
    if (!rc)
        rc = net_fail(set_attributes(r), "setNetAttr");
    if (!rc) {
        lib.users++;
        r->loaded = true;
    } else if (!lib.users) {
        dlclose(lib.dl);
    }
unlock:
    pthread_mutex_unlock(&lib.mu);
    return rc;
}

int net_unload(struct rank *r)
{
    int rc = 0;

    pthread_mutex_lock(&lib.mu);
    r->loaded = false;
    if (lib.version >= 11) {
        if (lib.t.v11->finalize)
            rc = net_fail(CALL(r, "finalize", lib.t.v11->finalize(r->ctx)), "finalize");
        r->ctx = NULL;
    }
    if (--lib.users == 0) {
        enter(r, "dlclose");
        if (dlclose(lib.dl) && !rc)
            rc = hw_fail(-EIO, "dlclose failed");
        leave(r, ncclSuccess);
        lib.t.any = NULL;
    }
    pthread_mutex_unlock(&lib.mu);
    return rc;
}

ncclResult_t net_devices(struct rank *r, int *n)
{
    return CALL(r, "devices", lib.devices(n));
}

#define COPY_V6(p, q)                                        \
    do {                                                     \
        *(p) = (struct props){.name = (q).name,              \
                              .pci_path = (q).pciPath,       \
                              .guid = (q).guid,              \
                              .ptr_support = (q).ptrSupport, \
                              .speed = (q).speed,            \
                              .port = (q).port,              \
                              .latency = (q).latency,        \
                              .max_comms = (q).maxComms,     \
                              .max_recvs = (q).maxRecvs};    \
    } while (0)
#define COPY_V7(p, q)                               \
    do {                                            \
        COPY_V6(p, q);                              \
        (p)->device_type = (int)(q).netDeviceType;  \
        (p)->device_version = (q).netDeviceVersion; \
    } while (0)
#define COPY_V8(p, q)                         \
    do {                                      \
        COPY_V7(p, q);                        \
        (p)->reg_is_global = (q).regIsGlobal; \
    } while (0)
#define COPY_V9(p, q)                                                \
    do {                                                             \
        COPY_V8(p, q);                                               \
        (p)->force_flush = (q).forceFlush;                           \
        (p)->ndevs = (q).vProps.ndevs;                               \
        memcpy((p)->devs, (q).vProps.devs, sizeof((q).vProps.devs)); \
        (p)->max_p2p = (q).maxP2pBytes;                              \
        (p)->max_coll = (q).maxCollBytes;                            \
    } while (0)

ncclResult_t net_props(struct rank *r, int dev, struct props *p)
{
    ncclResult_t rc;
    union {
        ncclNetProperties_v6_t v6;
        ncclNetProperties_v7_t v7;
        ncclNetProperties_v8_t v8;
        ncclNetProperties_v9_t v9;
        ncclNetProperties_v11_t v11;
        ncclNetProperties_v12_t v12;
        char bytes[256];
    } u;

    memset(u.bytes, 0xa5, sizeof(u.bytes)); /* NCCL does not clear the struct either */
    switch (lib.version) {
    case 6:
        rc = CALL(r, "getProperties", lib.t.v6->getProperties(dev, &u.v6));
        COPY_V6(p, u.v6);
        break;
    case 7:
        rc = CALL(r, "getProperties", lib.t.v7->getProperties(dev, &u.v7));
        COPY_V7(p, u.v7);
        break;
    case 8:
        rc = CALL(r, "getProperties", lib.t.v8->getProperties(dev, &u.v8));
        COPY_V8(p, u.v8);
        break;
    case 9:
    case 10:
        rc = CALL(r, "getProperties", lib.t.v9->getProperties(dev, &u.v9));
        COPY_V9(p, u.v9);
        break;
    case 11:
        rc = CALL(r, "getProperties", lib.t.v11->getProperties(dev, &u.v11));
        COPY_V9(p, u.v11);
        break;
    default:
        rc = CALL(r, "getProperties", lib.t.v12->getProperties(dev, &u.v12));
        COPY_V9(p, u.v12);
        break;
    }
    return rc;
}

ncclResult_t net_listen(struct rank *r, int dev, void *handle, void **lc)
{
    if (lib.version >= 11)
        return CALL(r, "listen", lib.t.v11->listen(r->ctx, dev, handle, lc));
    return CALL(r, "listen", lib.t.v6->listen(dev, handle, lc));
}

ncclResult_t net_connect(struct rank *r, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh)
{
    ncclNetCommConfig_v10_t config = {.trafficClass = -1};
    if (lib.version >= 11)
        return CALL(r, "connect", lib.t.v11->connect(r->ctx, dev, handle, sc, dh));
    if (lib.version == 10)
        return CALL(r, "connect", lib.t.v10->connect(dev, &config, handle, sc, dh));
    if (lib.version >= 7)
        return CALL(r, "connect", lib.t.v7->connect(dev, handle, sc, dh));
    return CALL(r, "connect", lib.t.v6->connect(dev, handle, sc));
}

ncclResult_t net_accept(struct rank *r, void *lc, void **rc, ncclNetDeviceHandle_t **dh)
{
    if (lib.version >= 7)
        return CALL(r, "accept", lib.t.v7->accept(lc, rc, dh));
    return CALL(r, "accept", lib.t.v6->accept(lc, rc));
}

ncclResult_t net_reg_as(struct rank *r, void *comm, void *data, size_t size, int type, void **mh)
{
    if (lib.version >= 8)
        return CALL(r, "regMr", lib.t.v8->regMr(comm, data, size, type, mh));
    if (size > INT32_MAX)
        return ncclInvalidArgument;
    return CALL(r, "regMr", lib.t.v6->regMr(comm, data, (int)size, type, mh));
}

ncclResult_t net_reg(struct rank *r, void *comm, void *data, size_t size, void **mh)
{
    return net_reg_as(r, comm, data, size, NCCL_PTR_HOST, mh);
}

ncclResult_t net_dereg(struct rank *r, void *comm, void *mh)
{
    return CALL(r, "deregMr", lib.dereg(comm, mh));
}

ncclResult_t net_isend(struct rank *r, void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req)
{
    if (lib.version >= 10)
        return CALL(r, "isend", lib.t.v10->isend(sc, data, size, tag, mh, phandle, req));
    if (lib.version == 9)
        return CALL(r, "isend", lib.t.v9->isend(sc, data, size, tag, mh, req));
    return CALL(r, "isend", lib.t.v6->isend(sc, data, (int)size, tag, mh, req));
}

ncclResult_t net_irecv(struct rank *r, void *rc, void *data, size_t size, int tag, void *mh, void *phandle, void **req)
{
    int old = (int)size;
    if (lib.version >= 10)
        return CALL(r, "irecv", lib.t.v10->irecv(rc, 1, &data, &size, &tag, &mh, &phandle, req));
    if (lib.version == 9)
        return CALL(r, "irecv", lib.t.v9->irecv(rc, 1, &data, &size, &tag, &mh, req));
    return CALL(r, "irecv", lib.t.v6->irecv(rc, 1, &data, &old, &tag, &mh, req));
}

ncclResult_t net_flush(struct rank *r, void *rc, void *data, size_t size, void *mh, void **req)
{
    int n = (int)size;
    if (!lib.flush)
        return ncclInvalidUsage;
    return CALL(r, "iflush", lib.flush(rc, 1, &data, &n, &mh, req));
}

ncclResult_t net_test(struct rank *r, void *req, int *done, int *size)
{
    return CALL(r, "test", lib.test(req, done, size));
}

ncclResult_t net_consumed(struct rank *r, void *rc, void *req)
{
    if (!lib.consumed)
        return ncclInvalidUsage;
    return CALL(r, "irecvConsumed", lib.consumed(rc, 1, req));
}

ncclResult_t net_close_send(struct rank *r, void *sc)
{
    return CALL(r, "closeSend", lib.close_send(sc));
}

ncclResult_t net_close_recv(struct rank *r, void *rc)
{
    return CALL(r, "closeRecv", lib.close_recv(rc));
}

ncclResult_t net_close_listen(struct rank *r, void *lc)
{
    return CALL(r, "closeListen", lib.close_listen(lc));
}
