/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds what is wrong with a cluster by comparing measurements. No I/O. docs/mesh.md describes the method: the judge
 * compares a NIC with the NICs of the same rail on other nodes, a path with what its two NICs show with all others, a
 * rail with the other rails; an outlier beyond the noise that chance does not explain is a finding.
 */
#ifndef HW_MESH_JUDGE_H
#define HW_MESH_JUDGE_H

#include "tool/mesh/data/mesh.h"

#include <stdio.h>

enum mesh_fault_kind {
    /* of a node */
    MESH_F_ABSENT = 1, /* it never came */
    MESH_F_DIED,
    MESH_F_SILENT,
    MESH_F_CUT,     /* it is present, but no other node could transfer to or from it */
    MESH_F_CORRUPT, /* data that it exchanged with several nodes arrived corrupted */
    MESH_F_NODE,    /* all its NICs are slow */
    /* of a NIC */
    MESH_F_SENDS,
    MESH_F_RECEIVES,
    MESH_F_PORT, /* it sends and receives slowly */
    MESH_F_IDLE, /* it carries no traffic, or is missing, while the NIC of that name on most other nodes carries some */
    MESH_F_SOME, /* it is slow with only some of the others */
    MESH_F_SPEED,  /* its link speed differs from the others' */
    MESH_F_MTU,    /* its MTU differs */
    MESH_F_ERRORS, /* its driver counted errors */
    /* findings about more than one node */
    MESH_F_RAIL,   /* a rail is slow everywhere */
    MESH_F_PATH,   /* a pair of nodes is slow */
    MESH_F_BROKEN, /* a pair of nodes cannot transfer */
    MESH_F_WRONG,  /* a pair of nodes received wrong bytes */
    MESH_F_MANY,   /* more slow paths than can be named one by one */
    MESH_F_VERSION,
    MESH_F_CHANGED, /* slower than in the baseline */
    MESH_FAULTS
};

struct mesh_finding {
    enum mesh_fault_kind what;
    enum mesh_kind kind;    /* of the samples that showed it; 0: none */
    int node, nic;          /* -1: none. A path's sender; for a rail: one node that has the NIC */
    int peer, peer_nic;     /* a path's receiver */
    bool mutual;            /* a path: the reverse direction, too */
    double ratio;           /* its value divided by that of the others: below 1 is slow; for a latency, above 1 */
    double limit;           /* the logarithm of the ratio at which it would be no finding */
    uint32_t count, of;     /* paths or nodes, depending on `what` */
    uint64_t number, usual; /* speed, MTU, errors, bytes: its own, and the others' */
    bool confirmed;         /* a repeated measurement gave the same result */
    const char *text;       /* a reason, owned by the mesh; NULL: none */
};

/* A pair that must be measured again because something about it is an outlier. */
struct mesh_suspect {
    enum mesh_kind kind;
    uint16_t from, to;
};

struct mesh_findings {
    struct mesh_finding *f;
    size_t n, cap;
    struct mesh_suspect *suspect;
    size_t n_suspects, cap_suspects;
};

/* Judges m. Drops findings that a repeated measurement refutes. The caller frees *out. -ENOMEM. */
int mesh_judge(const struct mesh *m, struct mesh_findings *out);
void mesh_findings_free(struct mesh_findings *f);

/* Writes a sentence such as "node7 eth2 receives at 41 % of the median, from every peer: its NIC, cable or port". */
void mesh_say(const struct mesh *m, const struct mesh_finding *f, char *buf, size_t cap);
/* One word for programs: "receives". */
const char *mesh_fault_name(enum mesh_fault_kind what);

/* ---- functions shared by the parts of the judge ----------------------------------------------- */

int mesh_find(struct mesh_findings *out, const struct mesh_finding *f);
int mesh_suspect(struct mesh_findings *out, enum mesh_kind kind, uint32_t from, uint32_t to);
/* True if the node takes part in measurements. */
bool mesh_is_in(const struct mesh *m, uint32_t node);
/* Compares the samples of one kind. nics: those of single NICs, else those of all NICs together. */
int mesh_judge_series(const struct mesh *m, enum mesh_kind kind, bool nics, struct mesh_findings *out);
/* Compares rails with each other, by samples of MESH_K_RAIL. */
int mesh_judge_rails(const struct mesh *m, struct mesh_findings *out);
/* Finds what needs no statistics: states, failures, wrong bytes, speeds, MTUs, errors, versions, NICs without
 * traffic. */
int mesh_judge_facts(const struct mesh *m, struct mesh_findings *out);

#endif
