/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the table, with their faults; see rude.h. */
#include "rude.h"
#include "rude_world.h"
#include "wire.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static uint64_t chance = 1; /* seed of the random errors, which are the same in every run */

/* Counts a call if the way is selected, and returns true for the call that has the selected number. */
static bool is_turn(enum rude_way way, atomic_long *calls)
{
    return rude(way) && atomic_fetch_add(calls, 1) + 1 == rude_number(way);
}

static ncclResult_t code(enum rude_way way)
{
    return (ncclResult_t)rude_number(way);
}

/* Returns a random error for some of the calls, if RUDE_ERRORS is set. */
static ncclResult_t any_error(void)
{
    if (!rude(RUDE_ERRORS) || wire_random(&chance) % (uint64_t)rude_number(RUDE_ERRORS))
        return ncclSuccess;
    return (ncclResult_t)(1 + wire_random(&chance) % 7);
}

/* ---- devices ---------------------------------------------------------------------------------- */

static ncclResult_t init(ncclDebugLogger_t log)
{
    rude_world(log);
    if (rude(RUDE_INIT_CRASH))
        rude_crash();
    if (rude(RUDE_INIT_HANG))
        rude_hang();
    if (rude(RUDE_INIT_EXIT)) {
        if (log)
            log(NCCL_LOG_WARN, NCCL_INIT, "rude", __LINE__, "NET/rude : leaving in init");
        exit((int)rude_number(RUDE_INIT_EXIT));
    }
    rude_sleep(RUDE_INIT_SLOW);
    return rude(RUDE_INIT_FAIL) ? code(RUDE_INIT_FAIL) : ncclSuccess;
}

static ncclResult_t devices(int *n)
{
    if (rude(RUDE_DEVICES_FAIL))
        return code(RUDE_DEVICES_FAIL);
    if (!rude(RUDE_DEVICES_NONE))
        *n = rude(RUDE_DEVICES) ? (int)rude_number(RUDE_DEVICES) : 1;
    return ncclSuccess;
}

static char *long_name(void)
{
    static char *name;
    size_t len = (size_t)rude_number(RUDE_PROPS_LONG);
    if (!name) {
        name = malloc(len + 1);
        for (size_t i = 0; i < len; i++)
            name[i] = (char)(1 + i % 255);
        name[len] = 0;
    }
    return name;
}

static ncclResult_t get_properties(int dev, ncclNetProperties_v9_t *p)
{
    static char name[] = "rude0";
    if (rude(RUDE_PROPS_FAIL))
        return code(RUDE_PROPS_FAIL);
    if (rude(RUDE_PROPS_NONE))
        return ncclSuccess;
    *p = (ncclNetProperties_v9_t){
        .name = name,
        .guid = (uint64_t)dev,
        .ptrSupport = NCCL_PTR_HOST,
        .speed = 10000,
        .maxComms = 1024,
        .maxRecvs = 1,
        .netDeviceType = NCCL_NET_DEVICE_HOST,
        .netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION,
        .vProps = {.ndevs = 1, .devs = {dev}},
        .maxP2pBytes = NCCL_MAX_NET_SIZE,
        .maxCollBytes = NCCL_MAX_NET_SIZE,
    };
    if (rude(RUDE_PROPS_NAME))
        p->name = NULL;
    if (rude(RUDE_PROPS_LONG))
        p->name = p->pciPath = long_name();
    if (rude(RUDE_PROPS_WILD))
        p->name = (char *)16;
    if (rude(RUDE_PROPS_GARBAGE)) {
        p->guid = UINT64_MAX;
        p->ptrSupport = ~NCCL_PTR_HOST;
        p->regIsGlobal = p->forceFlush = INT_MIN;
        p->speed = -1;
        p->port = INT_MIN;
        p->latency = NAN;
        p->maxComms = 0;
        p->maxRecvs = INT_MAX;
        p->netDeviceType = (ncclNetDeviceType)-7;
        p->netDeviceVersion = INT_MAX;
        p->vProps.ndevs = INT_MAX;
        p->maxP2pBytes = SIZE_MAX;
        p->maxCollBytes = 0;
    }
    return ncclSuccess;
}

/* ---- connections ------------------------------------------------------------------------------ */

static ncclResult_t listen_(int dev, void *handle, void **comm)
{
    if (rude(RUDE_LISTEN_FAIL))
        return code(RUDE_LISTEN_FAIL);
    if (rude(RUDE_LISTEN_OVERRUN))
        memset((char *)handle + NCCL_NET_HANDLE_MAXSIZE, 0xbd, (size_t)rude_number(RUDE_LISTEN_OVERRUN));
    if (rude(RUDE_LISTEN_NULL)) {
        *comm = NULL;
        return ncclSuccess;
    }
    return net_listen(dev, handle, comm);
}

static ncclResult_t connect_(int dev, void *handle, void **comm, ncclNetDeviceHandle_v9_t **device)
{
    static atomic_int codes;
    *comm = NULL;
    rude_sleep(RUDE_CONNECT_SLOW);
    if (rude(RUDE_CONNECT_FAIL))
        return code(RUDE_CONNECT_FAIL);
    if (rude(RUDE_CONNECT_CODES) && codes < 7)
        return (ncclResult_t)++codes;
    return rude(RUDE_CONNECT_NEVER) ? ncclSuccess : net_connect(dev, handle, comm, device);
}

static ncclResult_t accept_(void *listener, void **comm, ncclNetDeviceHandle_v9_t **device)
{
    *comm = NULL;
    if (rude(RUDE_ACCEPT_FAIL))
        return code(RUDE_ACCEPT_FAIL);
    return rude(RUDE_ACCEPT_NEVER) ? ncclSuccess : net_accept(listener, comm, device);
}

static ncclResult_t reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
    static atomic_long calls;
    (void)comm, (void)size;
    if (type != NCCL_PTR_HOST || (rude(RUDE_REGMR_EVERY) && ++calls % rude_number(RUDE_REGMR_EVERY) == 0))
        return ncclInternalError;
    *mhandle = rude(RUDE_REGMR_NULL) ? NULL : data;
    return ncclSuccess;
}

static ncclResult_t dereg_mr(void *comm, void *mhandle)
{
    (void)comm, (void)mhandle;
    return ncclSuccess;
}

static ncclResult_t in_close(ncclResult_t (*close)(void *), void *comm)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (rude(RUDE_CLOSE_CRASH))
        rude_crash();
    if (rude(RUDE_CLOSE_HANG)) {
        pthread_mutex_lock(&lock);
        pthread_mutex_lock(&lock);
    }
    ncclResult_t rc = close(comm);
    return rude(RUDE_CLOSE_FAIL) ? code(RUDE_CLOSE_FAIL) : rc;
}

static ncclResult_t close_comm(void *comm)
{
    return in_close(net_close, comm);
}

static ncclResult_t close_listen(void *listener)
{
    return in_close(net_close_listen, listener);
}

/* ---- messages --------------------------------------------------------------------------------- */

/* Returns true if the call must return no request. Always returns true if `never` is selected. If `some` is selected,
 * returns true for the selected number of calls before each real request. */
static bool no_request(enum rude_way some, enum rude_way never, atomic_long *calls)
{
    return rude(never) || (rude(some) && ++*calls % (rude_number(some) + 1) != 0);
}

static ncclResult_t isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
    static atomic_long empty, turn;
    *request = NULL;
    if (no_request(RUDE_ISEND_NULL, RUDE_ISEND_NEVER, &empty))
        return ncclSuccess;
    if (is_turn(RUDE_ISEND_FAIL, &turn))
        return ncclSystemError;
    ncclResult_t rc = any_error();
    return rc ? rc : net_isend(comm, data, size, tag, mhandle, request);
}

static ncclResult_t irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
    static atomic_long empty, turn;
    *request = NULL;
    if (no_request(RUDE_IRECV_NULL, RUDE_IRECV_NEVER, &empty))
        return ncclSuccess;
    if (is_turn(RUDE_IRECV_FAIL, &turn))
        return ncclSystemError;
    ncclResult_t rc = any_error();
    return rc ? rc : net_irecv(comm, n, data, sizes, tags, mhandles, request);
}

static ncclResult_t iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
    (void)comm, (void)n, (void)data, (void)sizes, (void)mhandles;
    *request = NULL; /* host memory needs no flush */
    return ncclSuccess;
}

/* Applies the selected faults to a received message. */
static void spoil(void *request)
{
    unsigned char *data;
    size_t posted;
    net_posted(request, &data, &posted);
    if (!net_is_receive(request))
        return;
    if (rude(RUDE_RECV_CORRUPT) && posted)
        data[posted / 2] ^= 1;
    if (rude(RUDE_RECV_OVERRUN))
        memset(data + posted, 0xbd, (size_t)rude_number(RUDE_RECV_OVERRUN));
}

static ncclResult_t done_lie(void *request, int *done, int *size, int truth)
{
    unsigned char *data;
    size_t posted;
    net_posted(request, &data, &posted);
    if (rude(RUDE_TEST_EARLY) && !*done) {
        *done = 1;
        truth = (int)posted;
        net_forget(request); /* its bytes still arrive later */
    }
    if (rude(RUDE_TEST_NEVER))
        *done = 0;
    if (*done && size && !rude(RUDE_TEST_SIZE))
        *size = rude(RUDE_TEST_LARGER)     ? (int)(posted + (size_t)rude_number(RUDE_TEST_LARGER))
                : rude(RUDE_TEST_NEGATIVE) ? -1
                                           : truth;
    if (*done && rude(RUDE_TEST_GARBAGE))
        *done = 0x5a5a5a5a;
    return ncclSuccess;
}

static ncclResult_t test(void *request, int *done, int *size)
{
    static atomic_long crash, leave, hang;
    rude_sleep(RUDE_TEST_SLOW);
    if (is_turn(RUDE_TEST_CRASH, &crash))
        rude_crash();
    if (is_turn(RUDE_TEST_EXIT, &leave))
        exit(1);
    if (is_turn(RUDE_TEST_HANG, &hang))
        rude_hang();
    int truth = 0, over = 0;
    ncclResult_t rc = any_error();
    rc = rc ? rc : net_test(request, &over, &truth);
    if (rc || (!over && rude(RUDE_TEST_UNWRITTEN)))
        return rc;
    if (over)
        spoil(request);
    *done = over;
    return done_lie(request, done, size, truth);
}

__attribute__((visibility("default"))) extern ncclNet_v9_t ncclNetPlugin_v9;
ncclNet_v9_t ncclNetPlugin_v9 = {
    .name = "rude",
    .init = init,
    .devices = devices,
    .getProperties = get_properties,
    .listen = listen_,
    .connect = connect_,
    .accept = accept_,
    .regMr = reg_mr,
    .deregMr = dereg_mr,
    .isend = isend,
    .irecv = irecv,
    .iflush = iflush,
    .test = test,
    .closeSend = close_comm,
    .closeRecv = close_comm,
    .closeListen = close_listen,
};

__attribute__((constructor)) static void loaded(void)
{
    rude_read();
    if (rude(RUDE_LOAD_CRASH))
        rude_crash();
    if (rude(RUDE_LOAD_HANG))
        rude_hang();
    if (rude(RUDE_LOAD_EXIT))
        _Exit((int)rude_number(RUDE_LOAD_EXIT));
    if (rude(RUDE_TABLE_NULL))
        ncclNetPlugin_v9.isend = NULL;
    if (rude(RUDE_TABLE_NAME))
        ncclNetPlugin_v9.name = NULL;
}
