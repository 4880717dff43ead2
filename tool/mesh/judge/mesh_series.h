/* SPDX-License-Identifier: Apache-2.0 */
/* The judge's statistics (mesh_series.c), from which mesh_outlier.c makes findings. */
#ifndef HW_MESH_SERIES_H
#define HW_MESH_SERIES_H

#include "tool/mesh/judge/mesh_judge.h"

#define SERIES_PORTS  (TP_MAX_NICS + 1) /* ports per node; the last one stands for all NICs together */
#define SERIES_GROUPS 512

enum { SENDS, RECEIVES, SIDES };

struct point {
    uint32_t port[SIDES]; /* ports of the sender and the receiver */
    uint16_t group;
    bool slow;      /* explained by a port in `named` */
    double y, rest; /* series_log() of the value; the same minus the group's median */
    double best;    /* the largest of y and the logarithms of repeated measurements */
};

struct group {
    uint32_t from, to; /* hashes of the NICs' names */
    bool same_rack;
    double median;
    double usual; /* series_log() of the usual value of the samples of kind `proof` */
};

struct series {
    const struct mesh *m;
    enum mesh_kind kind;
    /* Kind of the samples that confirm a suspicion. In a transfer over all NICs, the share of each NIC varies with
     * other load on the node, so a NIC whose share is an outlier is measured alone. */
    enum mesh_kind proof;
    bool nics;
    struct point *p;
    size_t n;
    struct group *group;
    size_t n_groups;
    size_t n_ports;
    double *effect[SIDES]; /* effect of each port; NAN without samples */
    bool *named[SIDES];
    uint32_t *count[SIDES];
    double *room; /* scratch space for the values of a median */
    struct retry {
        uint64_t key;            /* 0 if the slot is free */
        struct mesh_sample best; /* best of several samples */
        double y;                /* logarithm of the best sample */
    } * retry;                   /* hash table of repeated measurements, by nodes and NICs */
    size_t mask;
    double port_limit, path_limit;
    bool noisy; /* noise could hide a slow NIC */
    bool few;   /* too few samples to separate the effects of ports and paths */
};

/* Reads the samples of s->kind, and the repeated measurements of s->proof. The caller has set m, kind, proof and nics
 * in s, and calls series_close() even after a failure. Fails with -ENOMEM. */
int series_open(struct series *s);
void series_close(struct series *s);
/* Estimates the medians, the effects of ports, and the limits, and sets `named` for the ports that are outliers. Fails
 * with -ENOMEM. */
int series_fit(struct series *s);
/* Computes the groups' usual values for repeated measurements. */
void series_prove(struct series *s);
/* Marks the points that ports in `named` explain. */
void series_mark(struct series *s);
/* Returns the value of a point without the contributions of its rail and, unless s->few is set, of its ports. */
double series_rest(const struct series *s, const struct point *p);

/* Returns the index of a port: a NIC of a node, or all its NICs if nic is MESH_ALL. */
uint32_t series_port(uint32_t node, uint8_t nic);
/* Returns the index of a sample's group (a rail, within or between racks), or -1 if there are too many groups. */
int series_group(struct series *s, const struct mesh_sample *sample);
uint32_t series_hash_nic(const struct mesh *m, uint32_t node, uint8_t nic);
bool series_is_proof(const struct series *s, const struct mesh_sample *sample);
double series_log(enum mesh_kind kind, double value);
/* series_key() returns the hash key for a sample's nodes and NICs. series_retry() returns the slot for
 * a key; the slot's key is 0 if there are no repeated measurements. */
uint64_t series_key(const struct mesh_sample *sample);
struct retry *series_retry(const struct series *s, uint64_t key);
/* series_median() returns the median of v[0..n), n > 0: for an even n, the larger of the two middle values.
 * series_select() returns the element at position k in sorted order. Both reorder v. */
double series_median(double *v, size_t n);
double series_select(double *v, size_t n, size_t k);

#endif
