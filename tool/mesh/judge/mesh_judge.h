/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with a cluster, by comparing what was measured. Pure. docs/mesh.md has the method: a NIC is compared
 * with the NICs of the same rail on other nodes, a path with what its two NICs do with all others, a rail with the
 * other rails; what stands out from the noise by more than chance allows is a finding.
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
    MESH_F_CUT,     /* it is there, and no other node could transfer to or from it */
    MESH_F_CORRUPT, /* bytes that arrived were not those that were sent, with several nodes */
    MESH_F_NODE,    /* all its NICs are slow */
    /* of a NIC */
    MESH_F_SENDS,
    MESH_F_RECEIVES,
    MESH_F_PORT,   /* it sends and receives slowly */
    MESH_F_IDLE,   /* it carries nothing, where the others' do */
    MESH_F_SOME,   /* it is slow with some of the others only */
    MESH_F_SPEED,  /* it runs at another speed than the others' */
    MESH_F_MTU,    /* it has another MTU */
    MESH_F_ERRORS, /* its driver counted errors */
    /* of more than one node */
    MESH_F_RAIL,   /* a rail is slow everywhere */
    MESH_F_PATH,   /* a pair of nodes is slow */
    MESH_F_BROKEN, /* a pair of nodes cannot transfer */
    MESH_F_WRONG,  /* a pair of nodes got wrong bytes */
    MESH_F_MANY,   /* too many paths are slow to be named one by one */
    MESH_F_VERSION,
    MESH_F_CHANGED, /* slower than in the baseline */
    MESH_FAULTS
};

struct mesh_finding {
    enum mesh_fault_kind what;
    enum mesh_kind kind;    /* of the samples that it was found by; 0: none */
    int node, nic;          /* -1: none. A path's sender; a rail: one node that has the NIC */
    int peer, peer_nic;     /* a path's receiver */
    bool mutual;            /* a path: the other way too */
    double ratio;           /* of its value to that of the others: below 1 is slow; of a latency, above 1 */
    double limit;           /* the logarithm of the ratio at which it would be none */
    uint32_t count, of;     /* paths, nodes: see what */
    uint64_t number, usual; /* speed, MTU, errors, bytes: its own, the others' */
    bool confirmed;         /* it was measured again, and came out the same */
    const char *text;       /* a reason, the mesh's; NULL: none */
};

/* A pair that is to be measured again, since something about it stood out. */
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

/* Judges m. A finding that what was measured again refutes is dropped. *out is to be freed. -ENOMEM. */
int mesh_judge(const struct mesh *m, struct mesh_findings *out);
void mesh_findings_free(struct mesh_findings *f);

/* "node7 eth2 receives at 41 % of the median, from every peer: its NIC, cable or port" */
void mesh_say(const struct mesh *m, const struct mesh_finding *f, char *buf, size_t cap);
/* One word for programs: "receives". */
const char *mesh_fault_name(enum mesh_fault_kind what);

/* ---- the parts of it, for one another --------------------------------------------------------- */

int mesh_find(struct mesh_findings *out, const struct mesh_finding *f);
int mesh_suspect(struct mesh_findings *out, enum mesh_kind kind, uint32_t from, uint32_t to);
/* Is this node measured with? */
bool mesh_is_in(const struct mesh *m, uint32_t node);
/* Compares the samples of one kind. nics: those of each NIC, else those of all together. */
int mesh_judge_series(const struct mesh *m, enum mesh_kind kind, bool nics, struct mesh_findings *out);
/* Compares rails with each other, by samples of MESH_K_RAIL. */
int mesh_judge_rails(const struct mesh *m, struct mesh_findings *out);
/* What needs no statistics: states, failures, wrong bytes, speeds, MTUs, errors, versions, NICs that carry nothing. */
int mesh_judge_facts(const struct mesh *m, struct mesh_findings *out);

#endif
