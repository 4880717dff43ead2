/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher has put into the environment: rank, size, where to meet. Pure. */
#ifndef HW_MESH_ENV_H
#define HW_MESH_ENV_H

#include "tool/mesh/run/mesh_proto.h"

#define MESH_PORT  20100 /* the first of those that jobs meet at */
#define MESH_PORTS 8     /* from a job's first port on: the lead takes the first one that is free */
#define MESH_HOST  256

struct mesh_seat {
    const char *launcher; /* "hawser", "openmpi", "torchrun", "slurm", "pmix" */
    uint32_t rank, size;
    char meet[MESH_HOST]; /* where rank 0 is; "": PMIx knows it */
    uint16_t port;
    char name[MESH_NAME], rack[MESH_NAME]; /* of this node; "": not known */
    char **names;                          /* of all ranks' nodes; NULL: not known */
    uint32_t n_names;
};

/* Reads variables, NAME=VALUE each, ended by NULL. *out is to be freed by mesh_seat_free() also after a failure.
 * -ENOENT: no launcher's; -EINVAL: a variable that is missing or none of that launcher's, which the text names. */
int mesh_env(const char *const *vars, struct mesh_seat *out);
void mesh_seat_free(struct mesh_seat *seat);

/* "node[01-03,7],login" as SLURM writes lists of hosts: the names, to be freed by mesh_names_free(). -EINVAL, -E2BIG
 * (more than MESH_RANKS), -ENOMEM. */
int mesh_nodelist(const char *text, char ***names, uint32_t *n);
void mesh_names_free(char **names, uint32_t n);

#endif
