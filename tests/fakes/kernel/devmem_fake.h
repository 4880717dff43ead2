/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hawserd and the kernel's devmem TCP as tests want them: a thread that grants whatever is asked, and recvmsg, sendmsg
 * and setsockopt that do to sockets of this process what the kernel does to steered ones. The device memory is the
 * driver's for tests (tests/fakes/cuda), whose dma-buf is a file.
 */
#ifndef DEVMEM_FAKE_H
#define DEVMEM_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct df_faults {
    atomic_bool plain;     /* what is steered arrives as ordinary data all the same */
    atomic_bool host;      /* headers are not split: all of it in host memory, and told so */
    atomic_uint linear;    /* the first bytes of every so many pieces stay in host memory; 0: of none */
    atomic_bool shift;     /* the NIC writes 64 bytes beside the place that it names */
    atomic_bool no_tx;     /* no sending from device memory */
    atomic_bool wedge;     /* ENODEV from now on */
    atomic_bool lie;       /* sizes that do not add up, from now on */
    atomic_bool stray_now; /* ordinary data from now on */
    atomic_uint queues;    /* so many can each client bind for receiving; 0: any number */
};
extern struct df_faults df_faults;
void df_well(void); /* none of them */

struct df_counts {
    /* rules: that stand now */
    uint64_t steered, rules, released, bound_rx, bound_tx, device_sends, pages_out, pages_most;
};
struct df_counts df_counts(void);

/* Listens at path; dies, with all that it granted, and comes back. */
void df_start(const char *path);
void df_stop(void);
/* Both in dm_sys. */
void df_kernel(void);

#endif
