/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a plugin's table of any version through one interface. The parent process calls only np_table_reg_max(). */
#ifndef HW_NETPLUGIN_TABLE_H
#define HW_NETPLUGIN_TABLE_H

#include "transport/netplugin/table/abi.h"

#include <stdbool.h>

enum { NP_OLDEST = 6, NP_NEWEST = 12 };

struct np_table {
    unsigned version; /* from NP_OLDEST to NP_NEWEST */
    const void *t;
    void *ctx; /* created by init, since v11 */
};

/* Finds the newest table, up to version `newest`, of a library opened with dlopen(). Returns false if the library has
 * no such table. */
bool np_table_find(void *library, unsigned newest, struct np_table *out);
const char *np_table_name(const struct np_table *t);
/* Returns the name of a mandatory entry that is NULL, or NULL if all entries are present. */
const char *np_table_lacks(const struct np_table *t);

ncclResult_t np_table_init(struct np_table *t, ncclDebugLogger_t log, ncclProfilerCallback_t prof);
ncclResult_t np_table_devices(const struct np_table *t, int *n);
/* Fields that a version lacks are 0, except that maxP2pBytes and maxCollBytes are 1 GiB. vProps and the fields that v11
 * and v12 have added are always 0. */
ncclResult_t np_table_properties(const struct np_table *t, int dev, ncclNetProperties_v12_t *out);
ncclResult_t np_table_listen(const struct np_table *t, int dev, void *handle, void **lc);
ncclResult_t np_table_connect(const struct np_table *t, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh);
ncclResult_t np_table_accept(const struct np_table *t, void *lc, void **rc, ncclNetDeviceHandle_t **dh);
/* type is NCCL_PTR_HOST or NCCL_PTR_CUDA. */
ncclResult_t np_table_reg(const struct np_table *t, void *comm, void *data, size_t size, int type, void **mh);
bool np_table_has_dmabuf(const struct np_table *t);
/* Registers GPU memory with its dma-buf, which starts at the same address. */
ncclResult_t np_table_reg_dmabuf(const struct np_table *t, void *comm, void *data, size_t size, int fd, void **mh);
ncclResult_t np_table_dereg(const struct np_table *t, void *comm, void *mh);
ncclResult_t np_table_isend(const struct np_table *t, void *sc, void *data, size_t size, int tag, void *mh, void **req);
ncclResult_t np_table_irecv(const struct np_table *t, void *rc, void *data, size_t size, int tag, void *mh, void **req);
bool np_table_has_flush(const struct np_table *t);
/* Starts a flush. *req is NULL if there is nothing to wait for. */
ncclResult_t np_table_flush(const struct np_table *t, void *rc, void *data, int size, void *mh, void **req);
ncclResult_t np_table_test(const struct np_table *t, void *req, int *done, int *size);
ncclResult_t np_table_close_send(const struct np_table *t, void *sc);
ncclResult_t np_table_close_recv(const struct np_table *t, void *rc);
ncclResult_t np_table_close_listen(const struct np_table *t, void *lc);
bool np_table_has_consumed(const struct np_table *t);
ncclResult_t np_table_consumed(const struct np_table *t, void *rc, void *req);
ncclResult_t np_table_finalize(const struct np_table *t);

/* Returns the maximum bytes of one regMr, which has an int size up to v7. The limit of requests is NCCL_MAX_NET_SIZE in
 * all versions, because test() reports the size as an int. */
size_t np_table_reg_max(unsigned version);

#endif
