/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds faults of a cluster by comparing measurements, without I/O. docs/mesh.md describes the method. The judge
 * compares a NIC with the NICs of the same rail on other nodes, a path with the other paths of its two NICs, and a rail
 * with the other rails. An outlier that neither noise nor chance explains becomes a finding.
 */
#ifndef HW_MESH_JUDGE_H
#define HW_MESH_JUDGE_H

#include "tool/mesh/data/mesh.h"

#include <stdio.h>

enum mesh_fault_kind {
    /* faults of a node */
    MESH_F_ABSENT = 1, /* was not connected when the measurements began */
    MESH_F_DIED,
    MESH_F_SILENT,
    MESH_F_CUT,     /* answers, but every transfer with the node failed */
    MESH_F_CORRUPT, /* data exchanged with several nodes arrived corrupted */
    MESH_F_NODE,    /* all NICs of the node are slow */
    /* faults of a NIC, or of all NICs of a node together */
    MESH_F_SENDS,
    MESH_F_RECEIVES,
    MESH_F_PORT,   /* sends and receives slowly */
    MESH_F_IDLE,   /* carries no traffic, or is missing, while the NIC of that name on most other nodes carries some */
    MESH_F_SOME,   /* slow, but only with some of the other nodes */
    MESH_F_SPEED,  /* link speed differs from that of most NICs of this name */
    MESH_F_MTU,    /* MTU differs from that of most NICs of this name */
    MESH_F_ERRORS, /* driver counted many more errors than for other NICs of this name */
    /* other findings */
    MESH_F_RAIL,   /* a rail is slow on most nodes */
    MESH_F_PATH,   /* a path between two nodes is slow */
    MESH_F_BROKEN, /* a pair of nodes cannot transfer */
    MESH_F_WRONG,  /* a pair of nodes received wrong bytes */
    MESH_F_MANY,   /* more slow paths than can be listed one by one */
    MESH_F_VERSION,
    MESH_F_CHANGED, /* slower than in the baseline */
    MESH_FAULTS
};

struct mesh_finding {
    enum mesh_fault_kind what;
    enum mesh_kind kind; /* kind of the samples that showed the fault, or 0 */
    int node, nic;       /* -1 for none; for a path, the sender; for a rail, any node with a NIC of the rail */
    int peer, peer_nic;  /* receiver of a path, or the other node of a pair */
    bool mutual;         /* the path is slow in the reverse direction, too; for MESH_F_SOME: the NIC receives slowly */
    double ratio; /* value divided by that of the others or of the baseline: below 1 is slow; for a latency, above 1 */
    double limit; /* series_log() of the ratio at which a value becomes a finding */
    uint32_t count, of;     /* numbers of paths, nodes or failures, depending on `what` */
    uint64_t number, usual; /* speed, MTU, errors or bytes: the value of this node or NIC, and that of most others */
    bool confirmed;         /* a repeated measurement gave the same result */
    const char *text;       /* reason, or name of an idle NIC; owned by the mesh; may be NULL */
};

/* A pair that should be measured again. */
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

/* Judges m. Drops findings that a repeated measurement refutes. The caller frees *out. Fails with -ENOMEM. */
int mesh_judge(const struct mesh *m, struct mesh_findings *out);
void mesh_findings_free(struct mesh_findings *f);

/* Writes a sentence such as "node7 eth2 receives at 41 % of the median, from most peers; check its NIC, cable and
 * port". */
void mesh_say(const struct mesh *m, const struct mesh_finding *f, char *buf, size_t cap);
/* Returns one word for programs, such as "receives". */
const char *mesh_fault_name(enum mesh_fault_kind what);

/* ---- functions shared by the parts of the judge ----------------------------------------------- */

int mesh_find(struct mesh_findings *out, const struct mesh_finding *f);
int mesh_suspect(struct mesh_findings *out, enum mesh_kind kind, uint32_t from, uint32_t to);
/* Returns true if the node exists and its state is MESH_WELL. */
bool mesh_is_in(const struct mesh *m, uint32_t node);
/* Compares the samples of one kind: those of single NICs if nics is set, otherwise those of all NICs together. */
int mesh_judge_series(const struct mesh *m, enum mesh_kind kind, bool nics, struct mesh_findings *out);
/* Compares rails with each other, by samples of MESH_K_RAIL. */
int mesh_judge_rails(const struct mesh *m, struct mesh_findings *out);
/* Finds faults that need no statistics: states, failures, wrong bytes, speeds, MTUs, errors, versions, and NICs without
 * traffic. */
int mesh_judge_facts(const struct mesh *m, struct mesh_findings *out);

#endif
