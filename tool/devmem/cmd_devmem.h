/* SPDX-License-Identifier: Apache-2.0 */
/* Collects and prints the state of a machine's NICs for `hawser devmem`. */
#ifndef HW_TOOL_CMD_DEVMEM_H
#define HW_TOOL_CMD_DEVMEM_H

#include "helper/state/state.h"
#include "sys/genl.h"
#include "tool/doctor/doctor.h"

#include <stdio.h>

/* A NIC as the kernel reports it. An int field holds a negative errno if the value could not be read. */
struct devmem_nic {
    struct hd_link link;
    char driver[32];
    int split;   /* ETHTOOL_TCP_DATA_SPLIT_*, as the driver reports the setting */
    int thresh;  /* hds-thresh in bytes */
    int buf_len; /* rx-buf-len in bytes */
    int gro_hw;  /* rx-gro-hw: enum hd_gro_hw */
    int ntuple;  /* n-tuple filters: 0 off, 1 on */
    int rules;
    int rss; /* number of queues that ordinary traffic uses */
    int n_queues;
    struct hd_queue *queue; /* array of n_queues entries */
    unsigned pools;         /* number of page pools with dma-bufs, and their bytes in flight */
    uint64_t inflight;
    enum dr_can rx, tx;
    const struct hd_nic *ours; /* entry of hawserd's journal for this NIC, or NULL */
};

struct devmem_view {
    char release[65];
    bool rx, tx; /* the kernel has the commands that bind device memory for receiving and for sending */
    int pid;     /* process ID of the running hawserd, or 1 if not known; 0 if none runs; or a negative errno */
    int journal; /* 0 if the journal was read, -ENOENT if there is none, else another -errno with the reason in why */
    char why[HW_ERR_TEXT];
    struct devmem_nic *nic;
    size_t n;
};

/* Reads the state of the NICs in `only`, a NULL-terminated array of names, or of all NICs except loopback if `only` is
 * empty or NULL. Returns 0 or -errno, which is -ENODEV if a named NIC does not exist. */
int devmem_look(struct devmem_view *v, const struct hd_kernel *k, const struct hd_state *journal, char **only);
void devmem_free(struct devmem_view *v);
void devmem_print(FILE *out, const struct devmem_view *v);
/* Prints JSON, schema hawser-devmem-1. Returns 0, or a negative errno such as -EIO. */
int devmem_print_json(FILE *out, const struct devmem_view *v);

#endif
