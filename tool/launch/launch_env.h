/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the environment variables that a launcher sets: the rank, the number of ranks, and the host of rank 0. Has no
 * side effects. */
#ifndef HW_LAUNCH_ENV_H
#define HW_LAUNCH_ENV_H

#include "base/base.h"

#define LAUNCH_RANKS 4096  /* maximum number of ranks */
#define LAUNCH_NAME  64    /* bytes of a node's or rack's name, including the NUL */
#define LAUNCH_PORT  20100 /* first of the ports at which jobs meet */
#define LAUNCH_PORTS 8     /* ports per job; rank 0 listens on the first free one */
#define LAUNCH_HOST  256

struct launch_seat {
    const char *launcher; /* "hawser", "openmpi", "torchrun", "slurm", "pmix" */
    uint32_t rank, size;
    char meet[LAUNCH_HOST]; /* host of rank 0; "" means that PMIx must be asked */
    uint16_t port;
    char name[LAUNCH_NAME], rack[LAUNCH_NAME]; /* names of this node and its rack; "" if unknown */
    char **names;                              /* node names of all ranks, or NULL if unknown */
    uint32_t n_names;
};

/* Reads vars, an array of NAME=VALUE that ends with NULL. The caller frees *out with launch_seat_free(), even after a
 * failure. Fails with -ENOENT if no launcher set variables, with -EINVAL for a missing or invalid variable, or with
 * another -errno. */
int launch_env(const char *const *vars, struct launch_seat *out);
void launch_seat_free(struct launch_seat *seat);

/* Expands a list of hosts in SLURM's syntax, such as "node[01-03,7],login". The caller frees the names with
 * launch_names_free(). Fails with -EINVAL, -E2BIG (more than LAUNCH_RANKS names) or -ENOMEM. */
int launch_nodelist(const char *text, char ***names, uint32_t *n);
void launch_names_free(char **names, uint32_t n);

#endif
