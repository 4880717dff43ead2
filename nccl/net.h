/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one implementation behind all versions of NCCL's net table (tables.c), on the public API of libhawser.
 *
 * All functions return a ncclResult_t (transport/netplugin/table/abi.h) and tell NCCL's logger why, once, where it is
 * not success. Which of NCCL's threads calls what, and what may block, is in the facts of abi.h: nothing here blocks
 * but hn_init(), hn_reg() and the close functions.
 */
#ifndef HN_NET_H
#define HN_NET_H

#include "transport/netplugin/table/abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hn_props {
    char *name;     /* of static storage, distinct for each device */
    char *pci_path; /* likewise; NULL: none */
    uint64_t guid;
    int ptr_support; /* NCCL_PTR_* */
    int speed;       /* Mbit/s, a constant: NCCL up to 2.29 does not agree on what follows from it */
    int real_speed;  /* Mbit/s of its NIC that are this device's */
    int rail;        /* NCCL_NET_ID_UNDEF: not known */
    int port;
    float latency; /* us */
    int max_comms;
    size_t max_p2p_bytes, max_coll_bytes;
};

/* Takes the logger and the profiler's callback, NULL where the table has none (the first ones stay: they live as long
 * as NCCL) and opens the context. It never fails, since
 * NCCL 2.28 then calls finalize through NULL: what went wrong is logged, and hn_devices() says 0. Counted: each call
 * wants one hn_finalize(), where the table has a finalize; the last one closes the context and joins its threads. */
ncclResult_t hn_init(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
ncclResult_t hn_finalize(void);

ncclResult_t hn_devices(int *n);
ncclResult_t hn_properties(int dev, struct hn_props *p);

ncclResult_t hn_listen(int dev, void *handle, void **lc);  /* handle: NCCL_NET_HANDLE_MAXSIZE bytes */
ncclResult_t hn_connect(int dev, void *handle, void **sc); /* *sc NULL: call again */
ncclResult_t hn_accept(void *lc, void **rc);               /* *rc NULL: call again */

ncclResult_t hn_reg(void *comm, void *data, size_t size, int type, void **mh);
ncclResult_t hn_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);
ncclResult_t hn_dereg(void *comm, void *mh);

/* *req NULL: call again. */
ncclResult_t hn_isend(void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req);
ncclResult_t hn_irecv(void *rc, int n, void **data, const size_t *sizes, const int *tags, void **mhs, void **phandles,
                      void **req);
ncclResult_t hn_iflush(void *rc, int n, void **data, const int *sizes, void **mhs, void **req);
ncclResult_t hn_test(void *req, int *done, int *sizes);

ncclResult_t hn_close_send(void *sc);
ncclResult_t hn_close_recv(void *rc);
ncclResult_t hn_close_listen(void *lc);

#endif
