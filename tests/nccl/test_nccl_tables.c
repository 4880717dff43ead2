/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests NCCL's net tables (nccl/tables.c) with an implementation that records its calls. The functions of each version
 * must call the right function with the right arguments, always write their outputs, and return the result. Also
 * compares the properties of each version byte by byte, at the offsets of NCCL's ABI.
 */
#include "nccl/net.h"
#include "nccl/params.h"
#include "tests/tap.h"

extern const ncclNet_v6_t ncclNetPlugin_v6;
extern const ncclNet_v7_t ncclNetPlugin_v7;
extern const ncclNet_v8_t ncclNetPlugin_v8;
extern const ncclNet_v9_t ncclNetPlugin_v9;
extern const ncclNet_v10_t ncclNetPlugin_v10;
extern const ncclNet_v11_t ncclNetPlugin_v11;
extern const ncclNet_v12_t ncclNetPlugin_v12;

/* The last call to the implementation. */
static struct {
    const char *fn;
    int dev, type, tag, n, fd;
    size_t size;
    uint64_t offset;
    const void *comm, *handle, *data, *mh, *phandle, *sizes, *tags, *done, *logger, *profiler;
} last;
static int params_set;
static ncclResult_t result; /* the result that the implementation returns */
static void *output;        /* the value that the implementation writes to void **; NULL to write nothing */
static char token, stale;   /* only their addresses are used */

#define RECORD(...) (memset(&last, 0, sizeof(last)), last.fn = __func__, __VA_ARGS__)

static ncclResult_t answer(void **out)
{
    if (output)
        *out = output;
    return result;
}

void hn_params_set(ncclDebugLogger_t logger)
{
    (void)logger;
    params_set++;
}

ncclResult_t hn_init(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
    RECORD(last.logger = (const void *)(uintptr_t)logger, last.profiler = (const void *)(uintptr_t)profiler);
    return result;
}

ncclResult_t hn_finalize(void)
{
    RECORD(last.n = 0);
    return result;
}

ncclResult_t hn_devices(int *n)
{
    RECORD(last.n = 0);
    *n = 5;
    return result;
}

static char name[] = "hawser3", pci[] = "/sys/bus/pci/devices/0000:3b:00.0";

ncclResult_t hn_properties(int dev, struct hn_props *p)
{
    RECORD(last.dev = dev);
    if (result == ncclSuccess)
        *p = (struct hn_props){.name = name,
                               .pci_path = pci,
                               .guid = 0x1122334455667788,
                               .ptr_support = NCCL_PTR_HOST | NCCL_PTR_DMABUF,
                               .speed = 24000,
                               .real_speed = 50000,
                               .rail = 5,
                               .port = 7,
                               .latency = 12.5f,
                               .max_comms = 65536,
                               .max_p2p_bytes = 0x123456789a,
                               .max_coll_bytes = 0x987654321};
    return result;
}

ncclResult_t hn_listen(int dev, void *handle, void **lc)
{
    RECORD(last.dev = dev, last.handle = handle);
    return answer(lc);
}

ncclResult_t hn_connect(int dev, void *handle, void **sc)
{
    RECORD(last.dev = dev, last.handle = handle);
    return answer(sc);
}

ncclResult_t hn_accept(void *lc, void **rc)
{
    RECORD(last.comm = lc);
    return answer(rc);
}

ncclResult_t hn_reg(void *comm, void *data, size_t size, int type, void **mh)
{
    RECORD(last.comm = comm, last.data = data, last.size = size, last.type = type);
    return answer(mh);
}

ncclResult_t hn_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh)
{
    RECORD(last.comm = comm, last.data = data, last.size = size, last.type = type, last.offset = offset, last.fd = fd);
    return answer(mh);
}

ncclResult_t hn_refuse_size(const char *what, int size)
{
    RECORD(last.data = what, last.n = size);
    return ncclInvalidArgument;
}

ncclResult_t hn_dereg(void *comm, void *mh)
{
    RECORD(last.comm = comm, last.mh = mh);
    return result;
}

ncclResult_t hn_isend(void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req)
{
    RECORD(last.comm = sc, last.data = data, last.size = size, last.tag = tag, last.mh = mh, last.phandle = phandle);
    return answer(req);
}

ncclResult_t hn_irecv(void *rc, int n, void **data, const size_t *sizes, const int *tags, void **mhs, void **phandles,
                      void **req)
{
    RECORD(last.comm = rc, last.n = n, last.data = data, last.size = sizes[0], last.tags = tags, last.mh = mhs,
           last.phandle = phandles);
    return answer(req);
}

ncclResult_t hn_iflush(void *rc, int n, void **data, const int *sizes, void **mhs, void **req)
{
    RECORD(last.comm = rc, last.n = n, last.data = data, last.sizes = sizes, last.mh = mhs);
    return answer(req);
}

ncclResult_t hn_test(void *req, int *done, int *sizes)
{
    RECORD(last.comm = req, last.done = done, last.sizes = sizes);
    return result;
}

ncclResult_t hn_close_send(void *sc)
{
    RECORD(last.comm = sc);
    return result;
}

ncclResult_t hn_close_recv(void *rc)
{
    RECORD(last.comm = rc);
    return result;
}

ncclResult_t hn_close_listen(void *lc)
{
    RECORD(last.comm = lc);
    return result;
}

static bool called(const char *fn)
{
    return last.fn && strcmp(last.fn, fn) == 0;
}

/* Arguments with distinct addresses, so that the test detects swapped arguments. */
static char comm_, data_, mh_, phandle_, handle_[NCCL_NET_HANDLE_MAXSIZE];
static void *datas[] = {&data_}, *mhs[] = {&mh_}, *phandles[] = {&phandle_};
static int tags[] = {41}, int_sizes[] = {4321};
static size_t sizes[] = {4321}, big_sizes[] = {5ull << 32};

/* Tests a call with one void ** output. The table's function must pass on its arguments (checked by `args`), the output
 * and the result. If the implementation writes no output, the output must be NULL instead of a stale value. */
#define OUTPUT(v, hn, args, ...)                                                                                \
    do {                                                                                                        \
        void *out = &stale;                                                                                     \
        output = &token, result = ncclSuccess, last.fn = NULL;                                                  \
        ncclResult_t rc = (__VA_ARGS__);                                                                        \
        ok(called(#hn) && rc == ncclSuccess && out == &token && (args), "v" #v ": " #hn " with its arguments"); \
        output = NULL, out = (void *)NCCL_NET_OPTIONAL_RECV_COMPLETION;                                         \
        rc = (__VA_ARGS__);                                                                                     \
        ok(rc == ncclSuccess && !out, "v" #v ": what was stale is gone where " #hn " has nothing");             \
        result = ncclRemoteError, out = &stale;                                                                 \
        rc = (__VA_ARGS__);                                                                                     \
        ok(rc == ncclRemoteError && !out, "v" #v ": and where it fails, as its result says");                   \
        result = ncclSuccess;                                                                                   \
    } while (0)

/* Tests the arguments and results of a call without such an output. */
#define PLAIN(v, hn, args, ...)                                                                \
    do {                                                                                       \
        last.fn = NULL, result = ncclSuccess;                                                  \
        ncclResult_t rc = (__VA_ARGS__);                                                       \
        ok(called(#hn) && rc == ncclSuccess && (args), "v" #v ": " #hn " with its arguments"); \
        result = ncclSystemError;                                                              \
        rc = (__VA_ARGS__);                                                                    \
        ok(rc == ncclSystemError, "v" #v ": its result");                                      \
        result = ncclSuccess;                                                                  \
    } while (0)

/* Tests a call with a negative size: the table's function must log the size, and the output must be NULL. */
#define REFUSED(v, what, call, ...)                                                                      \
    do {                                                                                                 \
        void *out = &stale;                                                                              \
        output = &token, last.fn = NULL;                                                                 \
        ncclResult_t rc = (__VA_ARGS__);                                                                 \
        ok(rc == ncclInvalidArgument && called("hn_refuse_size") && !out && last.n == -1 && last.data && \
               strcmp(last.data, call) == 0,                                                             \
           "v" #v ": " what " is refused, and logged");                                                  \
    } while (0)

#define COMM(v)    (last.comm == &comm_)
#define REG(bytes) (last.comm == &comm_ && last.data == &data_ && last.size == (bytes) && last.type == NCCL_PTR_HOST)
#define SEND(bytes, ph)                                                                                         \
    (last.comm == &comm_ && last.data == &data_ && last.size == (bytes) && last.tag == 41 && last.mh == &mh_ && \
     last.phandle == (ph))
#define RECV(bytes, ph)                                                                                       \
    (last.comm == &comm_ && last.n == 1 && last.data == datas && last.size == (bytes) && last.tags == tags && \
     last.mh == mhs && last.phandle == (ph))

/* Functions that are the same in all versions. */
#define COMMON(v, t)                                                                                                  \
    do {                                                                                                              \
        int n = 0, done = 0;                                                                                          \
        is_str((t)->name, "hawser", "v" #v ": its name");                                                             \
        PLAIN(v, hn_devices, n == 5, (t)->devices(&n));                                                               \
        OUTPUT(v, hn_reg_dmabuf,                                                                                      \
               last.comm == &comm_ && last.data == &data_ && last.size == 5ull << 32 && last.type == NCCL_PTR_CUDA && \
                   last.offset == 6ull << 32 && last.fd == 9,                                                         \
               (t)->regMrDmaBuf(&comm_, &data_, 5ull << 32, NCCL_PTR_CUDA, 6ull << 32, 9, &out));                     \
        PLAIN(v, hn_dereg, last.comm == &comm_ && last.mh == &mh_, (t)->deregMr(&comm_, &mh_));                       \
        OUTPUT(v, hn_iflush,                                                                                          \
               last.comm == &comm_ && last.n == 1 && last.data == datas && last.sizes == int_sizes && last.mh == mhs, \
               (t)->iflush(&comm_, 1, datas, int_sizes, mhs, &out));                                                  \
        PLAIN(v, hn_test, last.comm == &token && last.done == &done && last.sizes == int_sizes,                       \
              (t)->test(&token, &done, int_sizes));                                                                   \
        PLAIN(v, hn_close_send, COMM(v), (t)->closeSend(&comm_));                                                     \
        PLAIN(v, hn_close_recv, COMM(v), (t)->closeRecv(&comm_));                                                     \
        PLAIN(v, hn_close_listen, COMM(v), (t)->closeListen(&comm_));                                                 \
    } while (0)

/* Versions 6 to 10, in which listen has no context. */
#define LISTEN_V6(v, t) OUTPUT(v, hn_listen, last.dev == 3 && last.handle == handle_, (t)->listen(3, handle_, &out))

/* Versions with 32-bit sizes. */
#define TRANSFERS_V6(v, t)                                                                                     \
    do {                                                                                                       \
        int negative[] = {-1};                                                                                 \
        OUTPUT(v, hn_isend, SEND(INT32_MAX, NULL), (t)->isend(&comm_, &data_, INT32_MAX, 41, &mh_, &out));     \
        OUTPUT(v, hn_isend, SEND(0, NULL), (t)->isend(&comm_, &data_, 0, 41, &mh_, &out));                     \
        OUTPUT(v, hn_irecv, RECV(4321, NULL), (t)->irecv(&comm_, 1, datas, int_sizes, tags, mhs, &out));       \
        REFUSED(v, "a send of -1 bytes", "isend", (t)->isend(&comm_, &data_, -1, 41, &mh_, &out));             \
        REFUSED(v, "a receive of -1 bytes", "irecv", (t)->irecv(&comm_, 1, datas, negative, tags, mhs, &out)); \
        OUTPUT(v, hn_irecv, last.n == 2, (t)->irecv(&comm_, 2, datas, int_sizes, tags, mhs, &out));            \
        OUTPUT(v, hn_irecv, last.n == 0, (t)->irecv(&comm_, 0, datas, int_sizes, tags, mhs, &out));            \
    } while (0)

#define REG_V6(v, t)                                                                                    \
    do {                                                                                                \
        OUTPUT(v, hn_reg, REG(INT32_MAX), (t)->regMr(&comm_, &data_, INT32_MAX, NCCL_PTR_HOST, &out));  \
        REFUSED(v, "memory of -1 bytes", "regMr", (t)->regMr(&comm_, &data_, -1, NCCL_PTR_HOST, &out)); \
    } while (0)
#define REG_V8(v, t) OUTPUT(v, hn_reg, REG(5ull << 32), (t)->regMr(&comm_, &data_, 5ull << 32, NCCL_PTR_HOST, &out))

/* Tests calls with and without a pointer for a device handle. The function writes NULL through a pointer that is given.
 */
#define CONNECT_V7(v, t, ...)                                                                         \
    do {                                                                                              \
        ncclNetDeviceHandle_t garbage, *dh = &garbage;                                                \
        OUTPUT(v, hn_connect, last.dev == 3 && last.handle == handle_ && !dh,                         \
               (dh = &garbage, (t)->connect(__VA_ARGS__, handle_, &out, &dh)));                       \
        OUTPUT(v, hn_connect, last.dev == 3 && last.handle == handle_,                                \
               (t)->connect(__VA_ARGS__, handle_, &out, NULL));                                       \
        OUTPUT(v, hn_accept, COMM(v) && !dh, (dh = &garbage, (t)->accept(&comm_, &out, &dh)));        \
        OUTPUT(v, hn_accept, COMM(v), (t)->accept(&comm_, &out, NULL));                               \
        ok(!(t)->getDeviceMr && !(t)->irecvConsumed, "v" #v ": no functions of devices that unpack"); \
    } while (0)

#define TRANSFERS_V10(v, t)                                                                                \
    do {                                                                                                   \
        OUTPUT(v, hn_isend, SEND(5ull << 32, &phandle_),                                                   \
               (t)->isend(&comm_, &data_, 5ull << 32, 41, &mh_, &phandle_, &out));                         \
        OUTPUT(v, hn_irecv, RECV(5ull << 32, phandles),                                                    \
               (t)->irecv(&comm_, 1, datas, big_sizes, tags, mhs, phandles, &out));                        \
        OUTPUT(v, hn_irecv, RECV(4321, NULL), (t)->irecv(&comm_, 1, datas, sizes, tags, mhs, NULL, &out)); \
        ok(!(t)->makeVDevice, "v" #v ": no makeVDevice, which would merge devices");                       \
    } while (0)

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)fmt;
}

static ncclResult_t prof(void **eHandle, int type, void *pHandle, int64_t pluginId, void *extData)
{
    (void)eHandle, (void)type, (void)pHandle, (void)pluginId, (void)extData;
    return ncclSuccess;
}

/* From version 10 on, init passes on a profiler. */
#define INIT(v, ...)                                                                  \
    do {                                                                              \
        params_set = 0;                                                               \
        PLAIN(v, hn_init,                                                             \
              last.logger == (const void *)(uintptr_t)logger && params_set == 1 &&    \
                  last.profiler == ((v) < 10 ? NULL : (const void *)(uintptr_t)prof), \
              __VA_ARGS__);                                                           \
    } while (0)

#define CONTEXT_V11(v, t)                                                                                  \
    do {                                                                                                   \
        ncclNetCommConfig_v11_t config = {.trafficClass = -1};                                             \
        ncclNetAttr_v11_t attr = {.op = 1};                                                                \
        void *ctx = NULL, *second = NULL;                                                                  \
        INIT(v, (t)->init(&ctx, 0x1234, &config, logger, prof));                                           \
        ok((t)->init(&second, 0x5678, &config, logger, NULL) == ncclSuccess && ctx && second,              \
           "v" #v ": each communicator gets a context");                                                   \
        OUTPUT(v, hn_listen, last.dev == 3 && last.handle == handle_, (t)->listen(ctx, 3, handle_, &out)); \
        CONNECT_V7(v, t, ctx, 3);                                                                          \
        last.fn = NULL;                                                                                    \
        ok((t)->setNetAttr(ctx, &attr) == ncclSuccess && !last.fn, "v" #v ": setNetAttr is accepted");     \
        PLAIN(v, hn_finalize, true, (t)->finalize(ctx));                                                   \
    } while (0)

static void calls_v6_to_v8(void)
{
    INIT(6, ncclNetPlugin_v6.init(logger));
    COMMON(6, &ncclNetPlugin_v6);
    LISTEN_V6(6, &ncclNetPlugin_v6);
    OUTPUT(6, hn_connect, last.dev == 3 && last.handle == handle_, ncclNetPlugin_v6.connect(3, handle_, &out));
    OUTPUT(6, hn_accept, COMM(6), ncclNetPlugin_v6.accept(&comm_, &out));
    REG_V6(6, &ncclNetPlugin_v6);
    TRANSFERS_V6(6, &ncclNetPlugin_v6);

    INIT(7, ncclNetPlugin_v7.init(logger));
    COMMON(7, &ncclNetPlugin_v7);
    LISTEN_V6(7, &ncclNetPlugin_v7);
    CONNECT_V7(7, &ncclNetPlugin_v7, 3);
    REG_V6(7, &ncclNetPlugin_v7);
    TRANSFERS_V6(7, &ncclNetPlugin_v7);

    INIT(8, ncclNetPlugin_v8.init(logger));
    COMMON(8, &ncclNetPlugin_v8);
    LISTEN_V6(8, &ncclNetPlugin_v8);
    CONNECT_V7(8, &ncclNetPlugin_v8, 3);
    REG_V8(8, &ncclNetPlugin_v8);
    TRANSFERS_V6(8, &ncclNetPlugin_v8);
}

static void calls_v9_v10(void)
{
    const ncclNet_v9_t *v9 = &ncclNetPlugin_v9;
    const ncclNet_v10_t *v10 = &ncclNetPlugin_v10;
    ncclNetCommConfig_v10_t config = {.trafficClass = 3};

    INIT(9, v9->init(logger));
    COMMON(9, v9);
    LISTEN_V6(9, v9);
    CONNECT_V7(9, v9, 3);
    REG_V8(9, v9);
    OUTPUT(9, hn_isend, SEND(5ull << 32, NULL), v9->isend(&comm_, &data_, 5ull << 32, 41, &mh_, &out));
    OUTPUT(9, hn_irecv, RECV(5ull << 32, NULL), v9->irecv(&comm_, 1, datas, big_sizes, tags, mhs, &out));
    ok(!v9->makeVDevice, "v9: no makeVDevice, which would merge devices");

    INIT(10, v10->init(logger, prof));
    COMMON(10, v10);
    LISTEN_V6(10, v10);
    CONNECT_V7(10, v10, 3, &config);
    REG_V8(10, v10);
    TRANSFERS_V10(10, v10);
}

static void calls_v11_v12(void)
{
    COMMON(11, &ncclNetPlugin_v11);
    CONTEXT_V11(11, &ncclNetPlugin_v11);
    REG_V8(11, &ncclNetPlugin_v11);
    TRANSFERS_V10(11, &ncclNetPlugin_v11);
    COMMON(12, &ncclNetPlugin_v12);
    CONTEXT_V11(12, &ncclNetPlugin_v12);
    REG_V8(12, &ncclNetPlugin_v12);
    TRANSFERS_V10(12, &ncclNetPlugin_v12);
}

/* Properties: the expected value of each byte, and whether the byte belongs to a field. */
struct image {
    unsigned char byte[128], mine[128];
};

#define PUT(img, off, type, value) put(img, off, &(type){value}, sizeof(type))

static void put(struct image *img, size_t off, const void *value, size_t n)
{
    memcpy(img->byte + off, value, n);
    memset(img->mine + off, 1, n);
}

/* Stores the fields whose offsets are the same from v6 to v12, and the consecutive fields that begin at offset `speed`.
 */
static void put_common(struct image *img, size_t speed)
{
    memset(img, 0, sizeof(*img));
    PUT(img, 0, char *, name);
    PUT(img, 8, char *, pci);
    PUT(img, 16, uint64_t, 0x1122334455667788);
    PUT(img, 24, int32_t, 5);
    PUT(img, speed, int32_t, 24000);
    PUT(img, speed + 4, int32_t, 7);
    PUT(img, speed + 8, float, 12.5f);
    PUT(img, speed + 12, int32_t, 65536);
    PUT(img, speed + 16, int32_t, 1);
}

/* Stores the further fields of v9 to v12, including the virtual device, which consists only of this device. */
static void put_vprops(struct image *img, size_t max_devs)
{
    size_t end = 64 + 4 + 4 * max_devs;

    PUT(img, 28, int32_t, 0); /* regIsGlobal */
    PUT(img, 32, int32_t, 0); /* forceFlush */
    PUT(img, 56, int32_t, NCCL_NET_DEVICE_HOST);
    PUT(img, 60, int32_t, 0);
    PUT(img, 64, int32_t, 1);
    PUT(img, 68, int32_t, 3);
    for (size_t i = 1; i < max_devs; i++)
        PUT(img, 68 + 4 * i, int32_t, 0);
    end = (end + 7) / 8 * 8;
    PUT(img, end, uint64_t, 0x123456789a);
    PUT(img, end + 8, uint64_t, 0x987654321);
}

static void compare(const char *what, const struct image *img, const void *got, size_t n, size_t padding)
{
    const unsigned char *b = got;
    size_t bad = 0, holes = 0;

    for (size_t i = 0; i < n; i++) {
        if (!img->mine[i])
            holes++;
        else if (b[i] != img->byte[i] && bad++ < 8)
            diag("%s: byte %zu is 0x%02x, wanted 0x%02x", what, i, b[i], img->byte[i]);
    }
    ok(bad == 0, "%s: every byte of the properties", what);
    is_int(holes, padding, "all but the padding was looked at");
}

/* Tests the properties of device 3, written over garbage, as on NCCL's stack. Also tests that an error is passed on. */
#define PROPERTIES(v, type, t, img, padding)                                                             \
    do {                                                                                                 \
        type p;                                                                                          \
        memset(&p, 0xa5, sizeof(p));                                                                     \
        result = ncclSuccess;                                                                            \
        ok((t)->getProperties(3, &p) == ncclSuccess && called("hn_properties") && last.dev == 3,         \
           "v" #v ": properties of device 3");                                                           \
        compare("v" #v, img, &p, sizeof(p), padding);                                                    \
        result = ncclInvalidArgument;                                                                    \
        ok((t)->getProperties(99, &p) == ncclInvalidArgument, "v" #v ": of a device that is not there"); \
        result = ncclSuccess;                                                                            \
    } while (0)

static void properties(void)
{
    struct image img;

    put_common(&img, 28);
    PROPERTIES(6, ncclNetProperties_v6_t, &ncclNetPlugin_v6, &img, 0);
    PUT(&img, 48, int32_t, NCCL_NET_DEVICE_HOST);
    PUT(&img, 52, int32_t, 0);
    PROPERTIES(7, ncclNetProperties_v7_t, &ncclNetPlugin_v7, &img, 0);

    put_common(&img, 32);
    PUT(&img, 28, int32_t, 0);
    PUT(&img, 52, int32_t, NCCL_NET_DEVICE_HOST);
    PUT(&img, 56, int32_t, 0);
    PROPERTIES(8, ncclNetProperties_v8_t, &ncclNetPlugin_v8, &img, 4);

    put_common(&img, 36);
    put_vprops(&img, 4);
    PROPERTIES(9, ncclNetProperties_v9_t, &ncclNetPlugin_v9, &img, 4);
    PROPERTIES(10, ncclNetProperties_v10_t, &ncclNetPlugin_v10, &img, 4);
    PUT(&img, 104, int32_t, 1);
    PROPERTIES(11, ncclNetProperties_v11_t, &ncclNetPlugin_v11, &img, 8);

    put_common(&img, 36);
    put_vprops(&img, 8);
    PUT(&img, 36, int32_t, 50000); /* the speed on which ranks of NCCL 2.30 and later agree */
    PUT(&img, 120, int32_t, 1);
    PUT(&img, 124, int16_t, 5);
    PUT(&img, 126, int16_t, -1);
    PROPERTIES(12, ncclNetProperties_v12_t, &ncclNetPlugin_v12, &img, 4);
}

int main(void)
{
    calls_v6_to_v8();
    calls_v9_v10();
    calls_v11_v12();
    properties();
    return tap_done();
}
