/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that a sandbox's programs need, each with its reason: at its start and at each exec. The caller's own
 * value always has precedence. */
#ifndef HW_SANDBOX_ENV_H
#define HW_SANDBOX_ENV_H

#include "sandbox/plan/plan.h"

struct sbx_env_want {
    const char *nccl_topo;  /* NCCL_TOPO_FILE, path in the sandbox; NULL: none */
    const char *net_plugin; /* NCCL_NET_PLUGIN; NULL: hawser if the plan has NICs and no RDMA device */
    bool debug_all;
    bool moved;          /* the plan was made after the NICs' move (sbx_again()): its GID indexes are the container's */
    char *const *caller; /* "NAME=VALUE", NULL-terminated: variables that the caller has set; NULL: none */
};

struct sbx_var {
    const char *name;
    char *value;
    char why[SBX_WHY];
    bool callers; /* the caller's value was kept */
};
struct sbx_env {
    struct sbx_var *v;
    size_t n;
};

/* Makes the variables. The caller frees out in any case. */
int sbx_env_make(struct sbx_env *out, const struct sbx_plan *p, const struct sbx_env_want *want);
void sbx_env_free(struct sbx_env *e);

#endif
