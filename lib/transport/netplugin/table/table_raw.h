/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a table without tracing. The functions of table.h add the trace. */
#ifndef HW_NETPLUGIN_TABLE_RAW_H
#define HW_NETPLUGIN_TABLE_RAW_H

#include "transport/netplugin/table/table.h"

ncclResult_t np_raw_init(struct np_table *t, ncclDebugLogger_t log, ncclProfilerCallback_t prof);
ncclResult_t np_raw_devices(const struct np_table *t, int *n);
ncclResult_t np_raw_properties(const struct np_table *t, int dev, ncclNetProperties_v12_t *out);
ncclResult_t np_raw_listen(const struct np_table *t, int dev, void *handle, void **lc);
ncclResult_t np_raw_connect(const struct np_table *t, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh);
ncclResult_t np_raw_accept(const struct np_table *t, void *lc, void **rc, ncclNetDeviceHandle_t **dh);
ncclResult_t np_raw_reg(const struct np_table *t, void *comm, void *data, size_t size, int type, void **mh);
ncclResult_t np_raw_reg_dmabuf(const struct np_table *t, void *comm, void *data, size_t size, int fd, void **mh);
ncclResult_t np_raw_dereg(const struct np_table *t, void *comm, void *mh);
ncclResult_t np_raw_isend(const struct np_table *t, void *sc, void *data, size_t size, int tag, void *mh, void **req);
ncclResult_t np_raw_irecv(const struct np_table *t, void *rc, void *data, size_t size, int tag, void *mh, void **req);
ncclResult_t np_raw_flush(const struct np_table *t, void *rc, void *data, int size, void *mh, void **req);
ncclResult_t np_raw_test(const struct np_table *t, void *req, int *done, int *size);
ncclResult_t np_raw_close_send(const struct np_table *t, void *sc);
ncclResult_t np_raw_close_recv(const struct np_table *t, void *rc);
ncclResult_t np_raw_close_listen(const struct np_table *t, void *lc);
ncclResult_t np_raw_consumed(const struct np_table *t, void *rc, void *req);
ncclResult_t np_raw_finalize(const struct np_table *t);

#endif
