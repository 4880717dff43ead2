/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher has put into the environment: rank, size, where to meet. Pure. */
#ifndef HW_LAUNCH_ENV_H
#define HW_LAUNCH_ENV_H

#include "base/base.h"

#define LAUNCH_RANKS 4096  /* at most */
#define LAUNCH_NAME  64    /* of a node or rack, with the NUL */
#define LAUNCH_PORT  20100 /* the first of those that jobs meet at */
#define LAUNCH_PORTS 8     /* from a job's first port on: the lead takes the first one that is free */
#define LAUNCH_HOST  256

struct launch_seat {
    const char *launcher; /* "hawser", "openmpi", "torchrun", "slurm", "pmix" */
    uint32_t rank, size;
    char meet[LAUNCH_HOST]; /* where rank 0 is; "": PMIx knows it */
    uint16_t port;
    char name[LAUNCH_NAME], rack[LAUNCH_NAME]; /* of this node; "": not known */
    char **names;                              /* of all ranks' nodes; NULL: not known */
    uint32_t n_names;
};

/* Reads variables, NAME=VALUE each, ended by NULL. *out is to be freed by launch_seat_free() also after a failure.
 * -ENOENT: no launcher's; -EINVAL: a variable that is missing or none of that launcher's, which the text names. */
int launch_env(const char *const *vars, struct launch_seat *out);
void launch_seat_free(struct launch_seat *seat);

/* "node[01-03,7],login" as SLURM writes lists of hosts: the names, to be freed by launch_names_free(). -EINVAL, -E2BIG
 * (more than LAUNCH_RANKS), -ENOMEM. */
int launch_nodelist(const char *text, char ***names, uint32_t *n);
void launch_names_free(char **names, uint32_t n);

#endif
