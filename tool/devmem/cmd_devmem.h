/* SPDX-License-Identifier: Apache-2.0 */
/* What `hawser devmem` finds out about a machine's NICs, and how it is shown. */
#ifndef HW_TOOL_CMD_DEVMEM_H
#define HW_TOOL_CMD_DEVMEM_H

#include "helper/state/state.h"
#include "sys/genl.h"
#include "tool/doctor/doctor.h"

#include <stdio.h>

/* A NIC as the kernel shows it; int fields hold -errno where that could not be had. */
struct devmem_nic {
    struct hd_link link;
    char driver[32];
    int split;   /* ETHTOOL_TCP_DATA_SPLIT_*: what the driver reports */
    int thresh;  /* hds-thresh */
    int buf_len; /* rx-buf-len */
    int gro_hw;  /* rx-gro-hw: enum hd_gro_hw */
    int ntuple;  /* 0 off, 1 on */
    int rules;
    int rss; /* how many queues ordinary traffic uses */
    int n_queues;
    struct hd_queue *queue; /* n_queues of them */
    unsigned pools;         /* page pools of dma-bufs, and the bytes of them that are in flight */
    uint64_t inflight;
    enum dr_can rx, tx;
    const struct hd_nic *ours; /* what the journal says of it, or NULL */
};

struct devmem_view {
    char release[65];
    bool rx, tx; /* the kernel knows the commands */
    int pid;     /* of the living hawserd; 0: none, or -errno */
    int journal; /* 0: read; -ENOENT: none; else why not, in why */
    char why[HW_ERR_TEXT];
    struct devmem_nic *nic;
    size_t n;
};

/* only: names of NICs, NULL-terminated; NULL: all but loopback. -ENODEV. */
int devmem_look(struct devmem_view *v, const struct hd_kernel *k, const struct hd_state *journal, char **only);
void devmem_free(struct devmem_view *v);
void devmem_print(FILE *out, const struct devmem_view *v);
int devmem_print_json(FILE *out, const struct devmem_view *v); /* schema hawser-devmem-1; -EIO */

#endif
