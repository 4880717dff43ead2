/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the environment variables that programs need when a sandbox is started and on each exec, with the reason for
 * each variable. Values that the caller has set always take precedence. */
#ifndef HW_SANDBOX_ENV_H
#define HW_SANDBOX_ENV_H

#include "sandbox/plan/plan.h"

struct sbx_env_want {
    const char *nccl_topo;  /* path in the sandbox for NCCL_TOPO_FILE, or NULL */
    const char *net_plugin; /* NCCL_NET_PLUGIN; NULL means hawser if the plan has NICs and no RDMA device */
    bool debug_all;
    /* the plan was updated after the NICs were moved (sbx_again()), so its GID indices are valid in the container */
    bool moved;
    char *const *caller; /* NULL-terminated list of "NAME=VALUE" with the variables that the caller has set, or NULL */
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

/* Computes the variables. The caller frees out in any case. */
int sbx_env_make(struct sbx_env *out, const struct sbx_plan *p, const struct sbx_env_want *want);
void sbx_env_free(struct sbx_env *e);

#endif
