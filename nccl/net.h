/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The implementation behind all versions of NCCL's net table (tables.c), on top of libhawser's public API.
 *
 * All functions return an ncclResult_t (transport/netplugin/table/abi.h). On failure they log the reason once through
 * NCCL's logger. abi.h describes which of NCCL's threads calls which function. Only hn_init(), hn_finalize(), hn_reg(),
 * hn_dereg() and the close functions may block.
 */
#ifndef HN_NET_H
#define HN_NET_H

#include "transport/netplugin/table/abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hn_props {
    char *name;     /* static storage, distinct for each device */
    char *pci_path; /* static storage; NULL if the NIC has no PCI path */
    uint64_t guid;
    int ptr_support; /* combination of NCCL_PTR_* */
    int speed;       /* Mbit/s; constant, because ranks of NCCL before 2.29.2 derive settings from it and must agree */
    int real_speed;  /* Mbit/s; hn_device.mbps */
    int rail;        /* NCCL_NET_ID_UNDEF if unknown */
    int port;
    float latency; /* us */
    int max_comms;
    size_t max_p2p_bytes, max_coll_bytes;
};

/* Stores the logger and the profiler's callback, which is NULL if the table has none, and finds the usable NICs. The
 * first logger and callback are kept, since they live as long as NCCL. Never fails, because after a failure NCCL 2.28
 * would call finalize through a NULL pointer: an error is logged, and hn_devices() reports 0 devices. Each call must be
 * matched by one hn_finalize(), if the table has a finalize. The context is closed, and its threads are joined, after
 * the last finalize and the last close. The last finalize also ends unfinished connects. */
ncclResult_t hn_init(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
ncclResult_t hn_finalize(void);

ncclResult_t hn_devices(int *n);
ncclResult_t hn_properties(int dev, struct hn_props *p);

ncclResult_t hn_listen(int dev, void *handle, void **lc);  /* handle: NCCL_NET_HANDLE_MAXSIZE bytes */
ncclResult_t hn_connect(int dev, void *handle, void **sc); /* if *sc is NULL, call again */
ncclResult_t hn_accept(void *lc, void **rc);               /* if *rc is NULL, call again */

ncclResult_t hn_reg(void *comm, void *data, size_t size, int type, void **mh);
ncclResult_t hn_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);
ncclResult_t hn_dereg(void *comm, void *mh);

/* Logs that NCCL passed a negative size to the function `what`, and returns an error. Only tables up to v8 have signed
 * sizes. */
ncclResult_t hn_refuse_size(const char *what, int size);

/* If hn_isend() or hn_irecv() sets *req to NULL, call it again. hn_iflush() always sets *req to NULL, because there is
 * nothing to flush. */
ncclResult_t hn_isend(void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req);
ncclResult_t hn_irecv(void *rc, int n, void **data, const size_t *sizes, const int *tags, void **mhs, void **phandles,
                      void **req);
ncclResult_t hn_iflush(void *rc, int n, void **data, const int *sizes, void **mhs, void **req);
ncclResult_t hn_test(void *req, int *done, int *sizes);

ncclResult_t hn_close_send(void *sc);
ncclResult_t hn_close_recv(void *rc);
ncclResult_t hn_close_listen(void *lc);

#endif
