/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain plugin with the behaviour of RDMA plugins. It accepts CUDA memory, registered through a dma-buf if the
 * driver supports that. Data received into CUDA memory may be read only after iflush(), because this plugin does not
 * store the data earlier. The current GPU must be set in the calls that copy, which are isend and the test of a flush.
 * With NETPLUGIN_CUDA_REPORT=file, the plugin appends a line with the numbers of calls at exit.
 */
#include "mem/cuda.h"
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    unsigned pointers, dmabufs, sends, receives, flushes;
} count;

struct mr {
    int type;
};

/* A request for CUDA memory. All other requests belong to plain.c. */
struct request {
    enum { SEND, RECEIVE, FLUSH } what;
    struct request *next; /* next in the list of received requests that were not flushed yet */
    void *inner;
    uint8_t *host; /* the bytes in host memory, which plain.c transfers */
    CUdeviceptr device;
    size_t size;
};
static struct request *landed;

/* All existing requests for CUDA memory. */
static struct request *living[4096];

static struct request *new_request(int what, void *device, size_t size)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(living); i++)
        if (!living[i]) {
            struct request *r = living[i] = calloc(1, sizeof(*r));
            *r = (struct request){.what = what, .device = (uintptr_t)device, .size = size, .host = malloc(size + 1)};
            return r;
        }
    abort();
}

static void end(struct request *r)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(living); i++)
        if (living[i] == r)
            living[i] = NULL;
    free(r->host);
    free(r);
}

static struct request *ours(void *p)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(living); i++)
        if (living[i] == p)
            return p;
    return NULL;
}

/* Copies with the current GPU. Fails if no GPU is set. */
static ncclResult_t copy(struct request *r, bool up)
{
    const struct hw_cuda *cu;
    CUstream stream;
    if (hw_cuda(&cu) < 0 || cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING))
        return ncclUnhandledCudaError;
    CUresult rc = cu->MemHostRegister(r->host, r->size, 0);
    if (!rc) {
        rc = up ? cu->MemcpyHtoDAsync(r->device, r->host, r->size, stream)
                : cu->MemcpyDtoHAsync(r->host, r->device, r->size, stream);
        rc = rc ? rc : cu->StreamSynchronize(stream);
        (void)cu->MemHostUnregister(r->host);
    }
    (void)cu->StreamDestroy(stream);
    return rc ? ncclUnhandledCudaError : ncclSuccess;
}

static ncclResult_t properties(int dev, ncclNetProperties_v8_t *p)
{
    static char name[] = "lo";
    *p = (ncclNetProperties_v8_t){.name = name,
                                  .guid = (uint64_t)dev,
                                  .ptrSupport = NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF,
                                  .speed = 1000,
                                  .maxComms = 100,
                                  .maxRecvs = 1};
    return ncclSuccess;
}

static ncclResult_t new_mr(int type, void **mh)
{
    struct mr *m = malloc(sizeof(*m));
    m->type = type;
    *mh = m;
    return ncclSuccess;
}

static ncclResult_t reg(void *comm, void *data, size_t size, int type, void **mh)
{
    if (!comm || !data || !size || (type != NCCL_PTR_HOST && type != NCCL_PTR_CUDA))
        return ncclInvalidArgument;
    count.pointers += type == NCCL_PTR_CUDA;
    return new_mr(type, mh);
}

static ncclResult_t reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh)
{
    if (!comm || !data || !size || type != NCCL_PTR_CUDA || offset != 0 || lseek(fd, 0, SEEK_END) <= 0)
        return ncclInvalidArgument;
    count.dmabufs++;
    return new_mr(type, mh);
}

static ncclResult_t dereg(void *comm, void *mh)
{
    free(mh);
    return comm && mh ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t isend(void *sc, void *data, int size, int tag, void *mh, void **req)
{
    if (((struct mr *)mh)->type == NCCL_PTR_HOST || size == 0)
        return plain_isend(sc, data, (size_t)size, tag, mh, req);
    struct request *r = new_request(SEND, data, (size_t)size);
    ncclResult_t rc = copy(r, false);
    if (rc == ncclSuccess)
        rc = plain_isend(sc, r->host, (size_t)size, tag, mh, &r->inner);
    *req = r->inner ? r : NULL;
    count.sends += r->inner != NULL;
    if (!r->inner)
        end(r);
    return rc;
}

static ncclResult_t irecv(void *rc, int n, void **data, int *sizes, int *tags, void **mhs, void **req)
{
    size_t size = (size_t)sizes[0];
    if (((struct mr *)mhs[0])->type == NCCL_PTR_HOST || size == 0)
        return plain_irecv(rc, n, data, &size, tags, mhs, req);
    struct request *r = new_request(RECEIVE, data[0], size);
    void *host = r->host;
    ncclResult_t result = plain_irecv(rc, n, &host, &size, tags, mhs, &r->inner);
    *req = r->inner ? r : NULL;
    count.receives += r->inner != NULL;
    if (!r->inner)
        end(r);
    return result;
}

static ncclResult_t iflush(void *rc, int n, void **data, int *sizes, void **mhs, void **req)
{
    struct request **at = &landed;
    (void)rc, (void)mhs;
    while (*at && (*at)->device != (uintptr_t)data[0])
        at = &(*at)->next;
    struct request *r = *at;
    if (n != 1 || !r || (size_t)sizes[0] != r->size)
        return ncclInvalidUsage;
    *at = r->next;
    r->what = FLUSH;
    *req = r;
    count.flushes++;
    return ncclSuccess;
}

static ncclResult_t test(void *req, int *done, int *sizes)
{
    struct request *r = ours(req);
    if (!r)
        return plain_test(req, done, sizes);
    ncclResult_t rc;
    int size = 0;
    if (r->what == FLUSH) {
        rc = copy(r, true);
        *done = 1;
        end(r);
        return rc;
    }
    rc = plain_test(r->inner, done, &size);
    if (rc != ncclSuccess || !*done)
        return rc;
    if (r->what == SEND) {
        end(r);
        return rc;
    }
    *sizes = size;
    r->size = (size_t)size;
    r->next = landed;
    landed = r;
    return rc;
}

static ncclResult_t connect_to(int dev, void *handle, void **sc, ncclNetDeviceHandle_v8_t **dh)
{
    (void)dh;
    return plain_connect(dev, handle, sc);
}

static ncclResult_t accept_from(void *lc, void **rc, ncclNetDeviceHandle_v8_t **dh)
{
    (void)dh;
    return plain_accept(lc, rc);
}

static ncclResult_t device_mr(void *comm, void *mh, void **out)
{
    (void)comm, (void)mh, (void)out;
    return ncclInternalError;
}

__attribute__((destructor)) static void report(void)
{
    const char *file = getenv("NETPLUGIN_CUDA_REPORT");
    FILE *f = file && count.pointers + count.dmabufs > 0 ? fopen(file, "ae") : NULL;
    if (!f)
        return;
    fprintf(f, "pointers=%u dmabufs=%u sends=%u receives=%u flushes=%u\n", count.pointers, count.dmabufs, count.sends,
            count.receives, count.flushes);
    fclose(f);
}

__attribute__((visibility("default"))) extern const ncclNet_v8_t ncclNetPlugin_v8;
const ncclNet_v8_t ncclNetPlugin_v8 = {
    .name = "CudaLike",
    .init = plain_init,
    .devices = plain_devices,
    .getProperties = properties,
    .listen = plain_listen,
    .connect = connect_to,
    .accept = accept_from,
    .regMr = reg,
    .regMrDmaBuf = reg_dmabuf,
    .deregMr = dereg,
    .isend = isend,
    .irecv = irecv,
    .iflush = iflush,
    .test = test,
    .closeSend = plain_close,
    .closeRecv = plain_close,
    .closeListen = plain_close_listen,
    .getDeviceMr = device_mr,
    .irecvConsumed = NULL,
};
