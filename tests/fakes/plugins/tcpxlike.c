/* SPDX-License-Identifier: Apache-2.0 */
/* The table, properties and registrations; see tcpxlike.h. */
#include "tcpxlike.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "GPUDirectTCPX_v7"

static ncclResult_t init(ncclDebugLogger_t log)
{
    tcpx_read_environment(log);
    INFO("%s, as tests have it", NAME);
    while (tcpx_opt.hang_init)
        pause();
    return ncclSuccess;
}

static ncclResult_t devices(int *n)
{
    *n = (int)tcpx_opt.devices;
    return ncclSuccess;
}

/* Returns the speed in Mbit/s that the kernel reports, or a gVNIC's speed if the kernel reports none. */
static int speed_of(const char *interface)
{
    char path[128];
    int speed = 0;
    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", interface);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%d", &speed) != 1)
        speed = 0;
    if (f)
        fclose(f);
    return speed > 0 ? speed : 200000;
}

static ncclResult_t get_properties(int dev, ncclNetProperties_v7_t *p)
{
    static char paths[MAX_DEVICES][PATH_MAX];
    if (dev < 0 || (unsigned)dev >= tcpx_opt.devices)
        return FAIL("device %d is not there", dev);
    char link[128];
    char *name = getenv("TCPXLIKE_NAME");
    snprintf(link, sizeof(link), "/sys/class/net/%s/device", tcpx_opt.interface[dev]);
    *p = (ncclNetProperties_v7_t){
        .name = name && *name ? name : tcpx_opt.interface[dev],
        .pciPath = realpath(link, paths[dev]),
        .guid = (uint64_t)dev,
        .ptrSupport = NCCL_PTR_HOST | NCCL_PTR_CUDA,
        .speed = speed_of(tcpx_opt.interface[dev]),
        .maxComms = 65536,
        .maxRecvs = 1,
        .netDeviceType = NCCL_NET_DEVICE_UNPACK,
        .netDeviceVersion = NCCL_NET_DEVICE_UNPACK_VERSION,
    };
    return ncclSuccess;
}

/* Returns the reason why this CUDA memory cannot be used, or NULL if it can. */
static const char *cuda_fault(const struct comm *c, uint64_t ptr, size_t len)
{
    struct gpu_side now;
    tcpx_gpu_now(&now);
    if (!now.ctx || !c->gpu.ctx)
        return now.ctx ? "no CUDA device was set when the connection was made" : "no CUDA device is set";
    if (tcpx_opt.unpack_host)
        return "TCPXLIKE_UNPACK_HOST=1: the bounce buffer is the host's";
    if (ptr % PAGE)
        return "it is not aligned to 4096";
    unsigned type = 0;
    int device = -1;
    CUdeviceptr start = 0;
    size_t size = 0;
    if (now.cu->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr) || type != CU_MEMORYTYPE_DEVICE ||
        now.cu->PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr) ||
        now.cu->PointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr) ||
        now.cu->PointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr))
        return "it is no GPU's memory";
    if (device != c->gpu.device)
        return "it is another GPU's than the connection's";
    return ptr + len <= start + size ? NULL : "it ends before that";
}

static ncclResult_t reg_mr(void *comm, void *data, int size, int type, void **mhandle)
{
    struct comm *c = comm;
    const char *fault = NULL;
    if (tcpx_opt.fail_regmr)
        fault = "TCPXLIKE_FAULT=fail-regmr";
    else if (size <= 0 || !data)
        fault = "it is empty";
    else if (type == NCCL_PTR_CUDA)
        fault = cuda_fault(c, (uintptr_t)data, (size_t)size);
    else if (type != NCCL_PTR_HOST)
        fault = "memory of an unknown kind";
    if (fault)
        return FAIL("registering %d bytes at %p, type %d: %s", size, data, type, fault);

    struct registration *r = malloc(sizeof(*r));
    *r = (struct registration){.comm = c, .data = data, .len = (size_t)size, .type = type};
    tcpx_regs++;
    *mhandle = r;
    return ncclSuccess;
}

static ncclResult_t dereg_mr(void *comm, void *mhandle)
{
    struct registration *r = mhandle;
    if (r->comm != comm)
        return FAIL("deregistering on another connection than the registration's");
    tcpx_regs--;
    free(r);
    return ncclSuccess;
}

static ncclResult_t get_device_mr(void *comm, void *mhandle, void **device)
{
    (void)comm, (void)mhandle;
    *device = NULL;
    return ncclSuccess;
}

static ncclResult_t close_comm(void *comm)
{
    tcpx_comm_free(comm);
    return ncclSuccess;
}

__attribute__((visibility("default"))) extern const ncclNet_v7_t ncclNetPlugin_v7;
const ncclNet_v7_t ncclNetPlugin_v7 = {
    .name = NAME,
    .init = init,
    .devices = devices,
    .getProperties = get_properties,
    .listen = tcpx_listen,
    .connect = tcpx_connect,
    .accept = tcpx_accept,
    .regMr = reg_mr,
    .regMrDmaBuf = NULL,
    .deregMr = dereg_mr,
    .isend = tcpx_isend,
    .irecv = tcpx_irecv,
    .iflush = tcpx_iflush,
    .test = tcpx_test,
    .closeSend = close_comm,
    .closeRecv = close_comm,
    .closeListen = tcpx_close_listen,
    .getDeviceMr = get_device_mr,
    .irecvConsumed = tcpx_irecv_consumed,
};
