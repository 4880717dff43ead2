/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the table, and traces the calls if tracing is enabled. */
#include "transport/netplugin/table/table_raw.h"
#include "transport/netplugin/table/trace.h"

#include <stdio.h>
#include <string.h>

#define RC(rc) ((int)(rc))

ncclResult_t np_table_init(struct np_table *t, ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_init(t, log, prof);
    np_trace_call(begin, "init", "table=%s version=%u = %d", np_table_name(t), t->version, RC(rc));
    return rc;
}

ncclResult_t np_table_devices(const struct np_table *t, int *n)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_devices(t, n);
    np_trace_call(begin, "devices", "= %d n=%d", RC(rc), *n);
    return rc;
}

ncclResult_t np_table_properties(const struct np_table *t, int dev, ncclNetProperties_v12_t *out)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_properties(t, dev, out);
    if (begin && rc == ncclSuccess)
        np_trace_call(
            begin, "getProperties",
            "dev=%d = %d name=%.60s pci=%.120s guid=%llx ptr=%d speed=%d port=%d comms=%d recvs=%d device=%d.%d", dev,
            RC(rc), out->name ? out->name : "-", out->pciPath ? out->pciPath : "-", (unsigned long long)out->guid,
            out->ptrSupport, out->speed, out->port, out->maxComms, out->maxRecvs, (int)out->netDeviceType,
            out->netDeviceVersion);
    else
        np_trace_call(begin, "getProperties", "dev=%d = %d", dev, RC(rc));
    return rc;
}

/* Formats the first 48 bytes of a handle, where most plugins store an address. */
static const char *show_handle(const void *handle, char text[2 * 48 + 1])
{
    const uint8_t *p = handle;
    for (int i = 0; i < 48; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", p[i]);
    return text;
}

ncclResult_t np_table_listen(const struct np_table *t, int dev, void *handle, void **lc)
{
    char hex[97];
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_listen(t, dev, handle, lc);
    if (begin)
        np_trace_call(begin, "listen", "dev=%d gpu=%d = %d comm=%s handle=%s", dev, np_trace_gpu_now(), RC(rc),
                      rc == ncclSuccess ? np_trace_new('L', *lc) : "-", show_handle(handle, hex));
    return rc;
}

ncclResult_t np_table_connect(const struct np_table *t, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh)
{
    char hex[97];
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_connect(t, dev, handle, sc, dh);
    if (!begin)
        return rc;
    const bool nothing = rc == ncclSuccess && !*sc;
    if (nothing)
        np_trace_again(handle);
    if (!nothing || np_trace_polls())
        np_trace_call(begin, "connect", "dev=%d gpu=%d handle=%s = %d comm=%s polls=%llu", dev, np_trace_gpu_now(),
                      show_handle(handle, hex), RC(rc), nothing ? "again" : np_trace_new('S', *sc),
                      nothing ? 0ull : (unsigned long long)np_trace_agains(handle));
    return rc;
}

ncclResult_t np_table_accept(const struct np_table *t, void *lc, void **rc, ncclNetDeviceHandle_t **dh)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t result = np_raw_accept(t, lc, rc, dh);
    if (!begin)
        return result;
    const bool nothing = result == ncclSuccess && !*rc;
    if (nothing)
        np_trace_again(lc);
    if (!nothing || np_trace_polls())
        np_trace_call(begin, "accept", "listener=%s gpu=%d = %d comm=%s polls=%llu device=%d.%d", np_trace_name(lc),
                      np_trace_gpu_now(), RC(result), nothing ? "again" : np_trace_new('R', *rc),
                      nothing ? 0ull : (unsigned long long)np_trace_agains(lc),
                      dh && *dh ? (int)(*dh)->netDeviceType : 0, dh && *dh ? (*dh)->netDeviceVersion : 0);
    return result;
}

static const char *get_memory_type_name(int type)
{
    return type == NCCL_PTR_CUDA ? "cuda" : "host";
}

ncclResult_t np_table_reg(const struct np_table *t, void *comm, void *data, size_t size, int type, void **mh)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_reg(t, comm, data, size, type, mh);
    if (begin)
        np_trace_call(begin, "regMr", "comm=%s type=%s gpu=%d size=%zu ptr=%p = %d mr=%s", np_trace_name(comm),
                      get_memory_type_name(type), np_trace_gpu_now(), size, data, RC(rc),
                      rc == ncclSuccess ? np_trace_new('M', *mh) : "-");
    return rc;
}

ncclResult_t np_table_reg_dmabuf(const struct np_table *t, void *comm, void *data, size_t size, int fd, void **mh)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_reg_dmabuf(t, comm, data, size, fd, mh);
    if (begin)
        np_trace_call(begin, "regMrDmaBuf", "comm=%s gpu=%d size=%zu ptr=%p = %d mr=%s", np_trace_name(comm),
                      np_trace_gpu_now(), size, data, RC(rc), rc == ncclSuccess ? np_trace_new('M', *mh) : "-");
    return rc;
}

ncclResult_t np_table_dereg(const struct np_table *t, void *comm, void *mh)
{
    const uint64_t begin = np_trace_begin();
    const char *name = np_trace_name(mh);
    np_trace_gone(mh); /* before the address can be reused */
    ncclResult_t rc = np_raw_dereg(t, comm, mh);
    if (begin)
        np_trace_call(begin, "deregMr", "comm=%s mr=%s = %d", np_trace_name(comm), name, RC(rc));
    return rc;
}

static void trace_request(uint64_t begin, const char *call, void *comm, size_t size, int tag, const void *mh,
                          ncclResult_t rc, const void *req)
{
    const bool nothing = rc == ncclSuccess && !req;
    if (nothing)
        np_trace_again(comm);
    if (nothing && !np_trace_polls())
        return;
    np_trace_call(begin, call, "comm=%s size=%zu tag=%d mr=%s = %d req=%s polls=%llu", np_trace_name(comm), size, tag,
                  np_trace_name(mh), RC(rc), nothing ? "again" : np_trace_request(comm, req),
                  nothing ? 0ull : (unsigned long long)np_trace_agains(comm));
}

ncclResult_t np_table_isend(const struct np_table *t, void *sc, void *data, size_t size, int tag, void *mh, void **req)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_isend(t, sc, data, size, tag, mh, req);
    if (begin)
        trace_request(begin, "isend", sc, size, tag, mh, rc, *req);
    return rc;
}

ncclResult_t np_table_irecv(const struct np_table *t, void *rc, void *data, size_t size, int tag, void *mh, void **req)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t result = np_raw_irecv(t, rc, data, size, tag, mh, req);
    if (begin)
        trace_request(begin, "irecv", rc, size, tag, mh, result, *req);
    return result;
}

ncclResult_t np_table_flush(const struct np_table *t, void *rc, void *data, int size, void *mh, void **req)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t result = np_raw_flush(t, rc, data, size, mh, req);
    if (begin)
        np_trace_call(begin, "iflush", "comm=%s size=%d mr=%s = %d req=%s", np_trace_name(rc), size, np_trace_name(mh),
                      RC(result), np_trace_request(rc, *req));
    return result;
}

ncclResult_t np_table_test(const struct np_table *t, void *req, int *done, int *size)
{
    const uint64_t begin = np_trace_begin();
    const int before = *size;
    ncclResult_t rc = np_raw_test(t, req, done, size);
    if (!begin)
        return rc;
    const bool nothing = rc == ncclSuccess && !*done;
    char text[24] = "unsaid";
    if (nothing)
        np_trace_again(req);
    if (nothing && !np_trace_polls())
        return rc;
    if (*size != before)
        snprintf(text, sizeof(text), "%d", *size);
    np_trace_call(begin, "test", "req=%s = %d done=%d size=%s polls=%llu", np_trace_name(req), RC(rc), *done, text,
                  nothing ? 0ull : (unsigned long long)np_trace_agains(req));
    return rc;
}

static ncclResult_t trace_close(const char *call, const struct np_table *t, void *comm,
                                ncclResult_t (*fn)(const struct np_table *, void *))
{
    const uint64_t begin = np_trace_begin();
    const char *name = np_trace_name(comm);
    np_trace_gone(comm);
    ncclResult_t rc = fn(t, comm);
    np_trace_call(begin, call, "comm=%s = %d", name, RC(rc));
    return rc;
}

ncclResult_t np_table_close_send(const struct np_table *t, void *sc)
{
    return trace_close("closeSend", t, sc, np_raw_close_send);
}

ncclResult_t np_table_close_recv(const struct np_table *t, void *rc)
{
    return trace_close("closeRecv", t, rc, np_raw_close_recv);
}

ncclResult_t np_table_close_listen(const struct np_table *t, void *lc)
{
    return trace_close("closeListen", t, lc, np_raw_close_listen);
}

ncclResult_t np_table_consumed(const struct np_table *t, void *rc, void *req)
{
    const uint64_t begin = np_trace_begin();
    const char *name = np_trace_name(req);
    ncclResult_t result = np_raw_consumed(t, rc, req);
    if (begin)
        np_trace_call(begin, "irecvConsumed", "comm=%s req=%s = %d", np_trace_name(rc), name, RC(result));
    return result;
}

ncclResult_t np_table_finalize(const struct np_table *t)
{
    const uint64_t begin = np_trace_begin();
    ncclResult_t rc = np_raw_finalize(t);
    np_trace_call(begin, "finalize", "= %d", RC(rc));
    return rc;
}
