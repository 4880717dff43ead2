/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the plain plugin (plain.c), which its tables (plain_tables.c) and other plugins use. Functions that
 * correspond to table entries have the prototypes of v9, but without device handles. */
#ifndef PLAIN_H
#define PLAIN_H

#include "transport/netplugin/table/abi.h"

#define PLAIN_DEVICES 2  /* not on PCI... */
#define PLAIN_MOST    16 /* ...unless PLAIN_PCI="/sys/devices/...,/sys/..." gives their PCI devices */

ncclResult_t plain_init(ncclDebugLogger_t logger);
ncclResult_t plain_devices(int *n);
char *plain_pci(int dev); /* NULL if not on PCI */
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
