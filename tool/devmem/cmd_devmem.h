/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a machine's NICs for `hawser devmem`, and its display. */
#ifndef HW_TOOL_CMD_DEVMEM_H
#define HW_TOOL_CMD_DEVMEM_H

#include "helper/state/state.h"
#include "sys/genl.h"
#include "tool/doctor/doctor.h"

#include <stdio.h>

/* A NIC as the kernel reports it; int fields hold -errno if they could not be read. */
struct devmem_nic {
    struct hd_link link;
    char driver[32];
    int split;   /* ETHTOOL_TCP_DATA_SPLIT_*: what the driver reports */
    int thresh;  /* hds-thresh */
    int buf_len; /* rx-buf-len */
    int gro_hw;  /* rx-gro-hw: enum hd_gro_hw */
    int ntuple;  /* 0 off, 1 on */
    int rules;
    int rss; /* number of queues that ordinary traffic uses */
    int n_queues;
    struct hd_queue *queue; /* n_queues of them */
    unsigned pools;         /* page pools with dma-bufs, and their bytes in flight */
    uint64_t inflight;
    enum dr_can rx, tx;
    const struct hd_nic *ours; /* the journal's entry for it, or NULL */
};

struct devmem_view {
    char release[65];
    bool rx, tx; /* the kernel has the commands */
    int pid;     /* of the live hawserd; 0: none, or -errno */
    int journal; /* 0: read; -ENOENT: none; otherwise not readable, see why */
    char why[HW_ERR_TEXT];
    struct devmem_nic *nic;
    size_t n;
};

/* Reads the state. only: names of NICs, NULL-terminated; NULL: all except loopback. -ENODEV. */
int devmem_look(struct devmem_view *v, const struct hd_kernel *k, const struct hd_state *journal, char **only);
void devmem_free(struct devmem_view *v);
void devmem_print(FILE *out, const struct devmem_view *v);
int devmem_print_json(FILE *out, const struct devmem_view *v); /* schema hawser-devmem-1; -EIO */

#endif
