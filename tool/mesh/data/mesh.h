/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of `hawser mesh` about a cluster: nodes, and samples of measurements between them. The lead (mesh_lead.c)
 * fills in the data, or mesh_json.c reads the data from a file. The judge (mesh_judge.c) derives findings from the
 * data.
 */
#ifndef HW_MESH_H
#define HW_MESH_H

#include "tool/mesh/run/mesh_proto.h"

#define MESH_WHY     160
#define MESH_SAMPLES 16000000 /* maximum length of each list of samples */
#define MESH_ALL     0xff     /* value of a NIC index: all NICs together */

enum mesh_state {
    MESH_WELL,
    MESH_ABSENT, /* not connected when the measurements began */
    MESH_DIED,   /* process ended */
    MESH_SILENT, /* stopped answering */
};

struct mesh_node {
    char name[MESH_NAME], rack[MESH_NAME], version[16];
    uint32_t rank;
    enum mesh_state state;
    char why[MESH_WHY]; /* the reason for a state other than MESH_WELL, or "" */
    uint32_t n_nics;
    struct mesh_nic_facts nic[TP_MAX_NICS];
};

/* The quantity that a sample measures. */
enum mesh_kind {
    MESH_K_LATENCY = 1, /* us, half a round trip; the 10th percentile, which other load on the CPU disturbs little */
    MESH_K_WAY,         /* GB/s one way */
    MESH_K_BOTH,        /* GB/s one way, with traffic the other way at the same time */
    MESH_K_RAIL,        /* GB/s one way, over a single pair of NICs */
    MESH_K_LOAD,        /* GB/s one way, while each node transfers with several others at once */
    MESH_KINDS
};

struct mesh_sample {
    uint16_t from, to; /* indices of nodes */
    uint8_t kind;
    uint8_t nic, to_nic; /* indices in the nodes' lists of NICs, or MESH_ALL */
    float value;         /* positive if measured */
};

/* A measurement of a pair that failed, or that found wrong bytes. */
struct mesh_fault {
    uint16_t from, to;
    uint64_t bad; /* number of wrong bytes; 0 if the measurement failed for the reason in text */
    char text[MESH_WHY];
};

struct mesh {
    struct mesh_node *node;
    uint32_t n;
    struct mesh_sample *sample;
    size_t n_samples, cap_samples;
    struct mesh_sample *again; /* samples of repeated measurements, possibly several of a pair */
    size_t n_again, cap_again;
    struct mesh_fault *fault;
    size_t n_faults, cap_faults;
    uint64_t checked;                /* bytes that were compared with the expected data */
    double bisection_GBps, all_GBps; /* rates of all nodes together; 0 if not measured */
    uint32_t rounds, of_rounds;      /* number of measured rounds and of all rounds */
    double seconds;
    char date[32], what[160]; /* for reports: time and options of the run */
};

/* Initializes m with n nodes. Fails with -ENOMEM. */
int mesh_init(struct mesh *m, uint32_t n);
void mesh_free(struct mesh *m);
/* Ensures that *list, an allocated array of *cap elements of size bytes, has room for element n. Fails with -ENOMEM;
 * the error text then contains `what`. */
int mesh_grow(void *list, size_t n, size_t *cap, size_t size, const char *what);
/* Adds a sample. Fails with -ENOMEM or -E2BIG. */
int mesh_add(struct mesh *m, const struct mesh_sample *s);
/* Adds a sample of a repeated measurement. Fails with -ENOMEM or -E2BIG. */
int mesh_add_again(struct mesh *m, const struct mesh_sample *s);
/* Records a fault. Fails with -ENOMEM. */
int mesh_add_fault(struct mesh *m, uint16_t from, uint16_t to, uint64_t bad, const char *text);
/* Returns the index of a NIC in the node's list, and adds the NIC if it is missing. Returns MESH_ALL if the list is
 * full. */
uint8_t mesh_nic(struct mesh_node *node, const char *name);
const char *mesh_kind_name(enum mesh_kind kind);

#endif
