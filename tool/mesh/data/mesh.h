/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hawser mesh` knows of a cluster, as plain data: nodes, and samples of what was measured between them. The lead
 * fills it in (mesh_lead.c), or a file does (mesh_read.c); the judge makes findings of it (mesh_judge.c).
 */
#ifndef HW_MESH_H
#define HW_MESH_H

#include "tool/mesh/run/mesh_proto.h"

#define MESH_WHY     160
#define MESH_SAMPLES 16000000 /* at most */
#define MESH_ALL     0xff     /* instead of a NIC: all of them together */

enum mesh_state {
    MESH_WELL,
    MESH_ABSENT, /* never came */
    MESH_LATE,   /* came, and was refused, or after the others had begun */
    MESH_DIED,   /* its process ended */
    MESH_SILENT, /* it stopped answering */
};

struct mesh_node {
    char name[MESH_NAME], rack[MESH_NAME], version[16];
    uint32_t rank;
    enum mesh_state state;
    char why[MESH_WHY]; /* of a state other than MESH_WELL */
    uint32_t n_nics;
    struct mesh_nic_facts nic[TP_MAX_NICS];
};

/* What a sample is of. */
enum mesh_kind {
    MESH_K_LATENCY = 1, /* us, half a round trip: the 10th percentile, which what else a CPU does disturbs least */
    MESH_K_WAY,         /* GB/s one way */
    MESH_K_BOTH,        /* GB/s one way, while the other way was in use too */
    MESH_K_RAIL,        /* GB/s one way, by one pair of NICs alone */
    MESH_K_LOAD,        /* GB/s one way, while each node worked with several at once */
    MESH_KINDS
};

struct mesh_sample {
    uint16_t from, to; /* nodes, by place */
    uint8_t kind;
    uint8_t nic, to_nic; /* places in the nodes' lists; MESH_ALL */
    float value;         /* NAN: it failed */
};

/* A pair that could not be measured, or whose bytes were wrong. */
struct mesh_fault {
    uint16_t from, to;
    uint64_t bad; /* bytes; 0: it failed, for the reason that text gives */
    char text[MESH_WHY];
};

struct mesh {
    struct mesh_node *node;
    uint32_t n;
    struct mesh_sample *sample;
    size_t n_samples, cap_samples;
    struct mesh_sample *again; /* what stood out, measured once more, perhaps several times */
    size_t n_again, cap_again;
    struct mesh_fault *fault;
    size_t n_faults, cap_faults;
    uint64_t checked;                /* bytes that were compared with what was sent */
    double bisection_GBps, all_GBps; /* of all nodes together; 0: not measured */
    uint32_t rounds, of_rounds;      /* measured, and those that there are */
    double seconds;
    char date[32], what[160]; /* when; with which options: for reports */
};

/* Room for n nodes. -ENOMEM. */
int mesh_init(struct mesh *m, uint32_t n);
void mesh_free(struct mesh *m);
/* Makes room for one more than n in *list, an allocated array of *cap elements of that size. -ENOMEM, naming what. */
int mesh_grow(void *list, size_t n, size_t *cap, size_t size, const char *what);
/* Adds a sample. -ENOMEM, -E2BIG. */
int mesh_add(struct mesh *m, const struct mesh_sample *s);
/* Adds a sample of what is measured again. */
int mesh_add_again(struct mesh *m, const struct mesh_sample *s);
/* Notes a fault. -ENOMEM. */
int mesh_add_fault(struct mesh *m, uint16_t from, uint16_t to, uint64_t bad, const char *text);
/* The place of a NIC in a node's list, to which it is added where it is missing; MESH_ALL where the list is full. */
uint8_t mesh_nic(struct mesh_node *node, const char *name);
const char *mesh_kind_name(enum mesh_kind kind);

#endif
