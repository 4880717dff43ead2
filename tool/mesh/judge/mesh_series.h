/* SPDX-License-Identifier: Apache-2.0 */
/* The judge's statistics (mesh_series.c), used by mesh_outlier.c to make findings. */
#ifndef HW_MESH_SERIES_H
#define HW_MESH_SERIES_H

#include "tool/mesh/judge/mesh_judge.h"

#define SERIES_PORTS  (TP_MAX_NICS + 1) /* per node; the last one: all NICs together */
#define SERIES_GROUPS 512

enum { SENDS, RECEIVES, SIDES };

struct point {
    uint32_t port[SIDES]; /* the sender's, the receiver's */
    uint16_t group;
    bool slow;      /* named, or explained by one that is */
    double y, rest; /* the logarithm; without the rail's median */
    double best;    /* the best logarithm, of y and what was measured again */
};

struct group {
    uint32_t from, to; /* hashes of NICs' names */
    bool same_rack;
    double median;
    double usual; /* the median of the samples of the series' proof */
};

struct series {
    const struct mesh *m;
    enum mesh_kind kind;
    /* The kind of sample that confirms a suspicion: shares of transfers over all NICs scatter with other load of the
     * node, so an outlier NIC in these is measured alone. */
    enum mesh_kind proof;
    bool nics;
    struct point *p;
    size_t n;
    struct group *group;
    size_t n_groups;
    size_t n_ports;
    double *effect[SIDES]; /* of each port; NAN: no sample */
    bool *named[SIDES];
    uint32_t *count[SIDES];
    double *room; /* for medians: room for as many values as there are points */
    struct retry {
        uint64_t key;            /* 0: free */
        struct mesh_sample best; /* of several */
        double y;                /* its logarithm */
    } * retry;                   /* repeated measurements, by nodes and NICs */
    size_t mask;
    double port_limit, path_limit;
    bool noisy; /* all pairs are to be measured again */
    bool few;   /* too few samples to tell what is a port's and what a path's */
};

/* Reads the samples of s->kind, and those of s->proof. The caller has set m, kind, proof and nics in s, and closes s
 * also after a failure. -ENOMEM. */
int series_open(struct series *s);
void series_close(struct series *s);
/* Estimates the medians, what ports add, and the limits; names ports. -ENOMEM. */
int series_fit(struct series *s);
/* Computes the rails' medians over the samples of the proof. */
void series_prove(struct series *s);
/* Marks the points that named ports explain. */
void series_mark(struct series *s);
/* The value of a point minus the contributions of its rail and ports. */
double series_rest(const struct series *s, const struct point *p);

/* The index of a port: of a node's NIC, or MESH_ALL. */
uint32_t series_port(uint32_t node, uint8_t nic);
/* The index of a sample's rail. -1: too many rails. */
int series_group(struct series *s, const struct mesh_sample *sample);
uint32_t series_hash_nic(const struct mesh *m, uint32_t node, uint8_t nic);
bool series_is_proof(const struct series *s, const struct mesh_sample *sample);
double series_log(enum mesh_kind kind, double value);
/* The repeated measurements of a sample's nodes and NICs; key 0 if there are none. */
uint64_t series_key(const struct mesh_sample *sample);
struct retry *series_retry(const struct series *s, uint64_t key);
/* The median of v[0..n), n above 0 (for an even number the larger one of the two in the middle); and the element at
 * position k in sorted order. v is reordered. */
double series_median(double *v, size_t n);
double series_select(double *v, size_t n, size_t k);

#endif
