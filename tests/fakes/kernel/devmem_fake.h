/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake hawserd, which is a thread that grants requests, and a fake of the kernel's devmem TCP: recvmsg, sendmsg
 * and setsockopt that treat sockets of this process like steered ones. The device memory is that of the fake CUDA
 * driver (tests/fakes/cuda), whose dma-buf is a file.
 */
#ifndef DEVMEM_FAKE_H
#define DEVMEM_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct df_faults {
    atomic_bool plain;     /* data of steered connections arrives in ordinary memory */
    atomic_bool host;      /* headers are not split: all data is in host memory, and is reported as such */
    atomic_uint linear;    /* on average, one piece in `linear` is in host memory; 0: none */
    atomic_uint short_of;  /* on average, one send or receive in `short_of` fails with ENOBUFS; 0: none */
    atomic_bool shift;     /* the NIC writes 64 bytes after the place that it reports */
    atomic_bool no_tx;     /* no sending from device memory */
    atomic_bool wedge;     /* recvmsg fails with ENODEV */
    atomic_bool lie;       /* recvmsg returns one byte more than it describes */
    atomic_bool stray_now; /* like plain, but set during a transfer */
    atomic_uint queues;    /* limit of a client's receive bindings plus requested queues; 0: none */
};
extern struct df_faults df_faults;
void df_well(void); /* turns off all faults except `queues` */

struct df_counts {
    /* rules: number of current rules */
    uint64_t steered, rules, released, bound_rx, bound_tx, device_sends, pages_out, pages_most;
};
struct df_counts df_counts(void);

/* df_start() listens at path. df_stop() ends the helper with all its grants; it can be started again. */
void df_start(const char *path);
void df_stop(void);
/* Installs the fake kernel's calls in dm_sys. */
void df_kernel(void);

#endif
