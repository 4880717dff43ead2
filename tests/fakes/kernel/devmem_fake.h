/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake hawserd, which is a thread that grants requests, and a fake of the kernel's devmem TCP: recvmsg, sendmsg and
 * setsockopt that treat sockets of this process as steered sockets. The device memory is the memory of the fake CUDA
 * driver (tests/fakes/cuda), whose dma-bufs are files.
 */
#ifndef DEVMEM_FAKE_H
#define DEVMEM_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct df_faults {
    atomic_bool plain;     /* data of steered connections arrives in ordinary memory */
    atomic_bool host;      /* headers are not split: all data is in host memory and is reported as host memory */
    atomic_uint linear;    /* one in `linear` pieces, on average, is in host memory; 0: none */
    atomic_uint short_of;  /* one in `short_of` sends or receives, on average, fails with ENOBUFS; 0: none */
    atomic_bool shift;     /* the NIC writes 64 bytes after the offset that it reports */
    atomic_bool no_tx;     /* device memory cannot be sent */
    atomic_bool wedge;     /* recvmsg fails with ENODEV */
    atomic_bool lie;       /* recvmsg returns one byte more than its control messages describe */
    atomic_bool stray_now; /* like plain, but set during a transfer */
    atomic_uint queues;    /* limit on the sum of a client's receive bindings and requested queues; 0: none */
};
extern struct df_faults df_faults;
void df_well(void); /* turns off all faults except `queues` */

struct df_counts {
    /* rules: number of rules that exist now */
    uint64_t steered, rules, released, bound_rx, bound_tx, device_sends, pages_out, pages_most;
};
struct df_counts df_counts(void);

/* df_start() starts the helper, which listens at path. df_stop() stops the helper and revokes all its grants; it can be
 * started again. */
void df_start(const char *path);
void df_stop(void);
/* Installs the fake kernel's functions in dm_sys. */
void df_kernel(void);

#endif
