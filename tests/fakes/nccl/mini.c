/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A net plugin that transfers nothing, for the tests of `hawser nccl check`. It can be started and queried, and
 * misbehaves on request. The environment variable MINI_FAULT selects the fault: load-crash, init-exit, init-crash,
 * init-hang, init-fail, devices-fail, properties-crash, finalize-exit or none. MINI_NAME sets the plugin's name
 * (default "hawser"), and MINI_DEVICES sets the number of devices (default 2). Built with MINI_OLD, the plugin has only
 * tables that current versions of NCCL do not accept. Built with MINI_V8, the plugin has only table v8.
 */
#include "transport/netplugin/table/abi.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

static bool told(const char *what)
{
    const char *f = getenv("MINI_FAULT");
    return f && strcmp(f, what) == 0;
}

__attribute__((constructor)) static void load(void)
{
    if (told("load-crash"))
        abort();
}

#ifdef MINI_OLD
API extern const int ncclNetPlugin_v4, ncclNetPlugin_v5;
const int ncclNetPlugin_v4 = 4, ncclNetPlugin_v5 = 5;
#else

static ncclResult_t start(ncclDebugLogger_t log)
{
    log(NCCL_LOG_INFO, NCCL_INIT, "mini.c", 1, "mini: starting, %s", "as it should");
    if (told("init-exit")) {
        log(NCCL_LOG_WARN, NCCL_INIT, "mini.c", 2, "mini: no luck today");
        exit(1);
    }
    if (told("init-crash"))
        abort();
    while (told("init-hang"))
        pause();
    return told("init-fail") ? ncclInternalError : ncclSuccess;
}

static ncclResult_t devices(int *n)
{
    const char *want = getenv("MINI_DEVICES");
    *n = want ? atoi(want) : 2;
    return told("devices-fail") ? ncclSystemError : ncclSuccess;
}

static char *name_of(int dev)
{
    static char name[2][8] = {"lane0", "lane1"};
    return name[dev % 2];
}

static ncclResult_t properties_v8(int dev, ncclNetProperties_v8_t *p)
{
    *p =
        (ncclNetProperties_v8_t){.name = name_of(dev), .ptrSupport = NCCL_PTR_HOST, .speed = 8000 + dev, .maxRecvs = 1};
    return ncclSuccess;
}

static ncclResult_t init_v8(ncclDebugLogger_t log)
{
    return start(log);
}

API extern ncclNet_v8_t ncclNetPlugin_v8;
ncclNet_v8_t ncclNetPlugin_v8 = {.name = "hawser", .init = init_v8, .devices = devices, .getProperties = properties_v8};

#ifndef MINI_V8
static ncclResult_t properties_v11(int dev, ncclNetProperties_v11_t *p)
{
    if (told("properties-crash"))
        abort();
    *p = (ncclNetProperties_v11_t){
        .name = name_of(dev), .ptrSupport = NCCL_PTR_HOST | NCCL_PTR_CUDA, .speed = 24000 + dev, .maxRecvs = 1};
    return ncclSuccess;
}

static ncclResult_t init_v11(void **ctx, uint64_t id, ncclNetCommConfig_v11_t *config, ncclDebugLogger_t log,
                             ncclProfilerCallback_t profiler)
{
    (void)id;
    (void)config;
    (void)profiler;
    *ctx = NULL;
    return start(log);
}

static ncclResult_t finalize(void *ctx)
{
    (void)ctx;
    if (told("finalize-exit"))
        exit(0);
    return ncclSuccess;
}

API extern ncclNet_v11_t ncclNetPlugin_v11;
ncclNet_v11_t ncclNetPlugin_v11 = {
    .name = "hawser", .init = init_v11, .devices = devices, .getProperties = properties_v11, .finalize = finalize};

/* runs before the tables are read */
__attribute__((constructor)) static void rename_tables(void)
{
    const char *name = getenv("MINI_NAME");
    if (name)
        ncclNetPlugin_v8.name = ncclNetPlugin_v11.name = name;
}
#endif
#endif
