/* SPDX-License-Identifier: Apache-2.0 */
/* The plain plugin (plain.c) behind its tables (plain_tables.c). Its functions have the shape of v9, but for the device
 * handles, which it has none of. */
#ifndef PLAIN_H
#define PLAIN_H

#include "transport/netplugin/table/abi.h"

#define PLAIN_DEVICES 2  /* none of them on PCI... */
#define PLAIN_MOST    16 /* ...unless PLAIN_PCI="/sys/devices/...,/sys/..." names the PCI devices that they are */

ncclResult_t plain_init(ncclDebugLogger_t logger);
ncclResult_t plain_devices(int *n);
char *plain_pci(int dev); /* NULL: on none */
ncclResult_t plain_listen(int dev, void *handle, void **lc);
ncclResult_t plain_connect(int dev, void *handle, void **sc);
ncclResult_t plain_accept(void *lc, void **rc);
ncclResult_t plain_reg(void *comm, void *data, size_t size, int type, void **mh);
ncclResult_t plain_dereg(void *comm, void *mh);
ncclResult_t plain_isend(void *sc, void *data, size_t size, int tag, void *mh, void **req);
ncclResult_t plain_irecv(void *rc, int n, void **data, size_t *sizes, int *tags, void **mhs, void **req);
ncclResult_t plain_iflush(void *rc, int n, void **data, int *sizes, void **mhs, void **req);
ncclResult_t plain_test(void *req, int *done, int *sizes);
ncclResult_t plain_close(void *comm);
ncclResult_t plain_close_listen(void *lc);

#endif
