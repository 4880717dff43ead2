/* SPDX-License-Identifier: Apache-2.0 */
/* Reads rank, size and meeting place from the environment that a launcher has set. No I/O. */
#ifndef HW_MESH_ENV_H
#define HW_MESH_ENV_H

#include "tool/mesh/run/mesh_proto.h"

#define MESH_PORT  20100 /* the first of the ports at which jobs meet */
#define MESH_PORTS 8     /* per job: the lead takes the first free one */
#define MESH_HOST  256

struct mesh_seat {
    const char *launcher; /* "hawser", "openmpi", "torchrun", "slurm", "pmix" */
    uint32_t rank, size;
    char meet[MESH_HOST]; /* the host of rank 0; "": only PMIx knows it */
    uint16_t port;
    char name[MESH_NAME], rack[MESH_NAME]; /* of this node; "": unknown */
    char **names;                          /* of all ranks' nodes; NULL: unknown */
    uint32_t n_names;
};

/* Reads variables, NAME=VALUE each, ended by NULL. The caller frees *out by mesh_seat_free() also after a failure.
 * -ENOENT: no launcher's variables; -EINVAL: a variable is missing or malformed, and the message names it. */
int mesh_env(const char *const *vars, struct mesh_seat *out);
void mesh_seat_free(struct mesh_seat *seat);

/* Expands "node[01-03,7],login", the format of SLURM for lists of hosts. The caller frees the names by
 * mesh_names_free(). -EINVAL, -E2BIG (more than MESH_RANKS), -ENOMEM. */
int mesh_nodelist(const char *text, char ***names, uint32_t *n);
void mesh_names_free(char **names, uint32_t n);

#endif
