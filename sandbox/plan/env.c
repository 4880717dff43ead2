/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/plan/env.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_VARS = 32 };

struct work {
    struct sbx_env *e;
    char *const *caller;
};

/* Returns the value of name in a list of NAME=VALUE, or NULL if it is not set. */
static const char *find_caller_value(char *const *list, const char *name)
{
    size_t n = strlen(name);
    for (; list && *list; list++)
        if (strncmp(*list, name, n) == 0 && (*list)[n] == '=')
            return *list + n + 1;
    return NULL;
}

/* Adds variable name with the caller's value, if there is one, or with value. If value is NULL, adds the variable only
 * if the caller has a value. */
static int add_sandbox_var(struct work *w, const char *name, const char *value, const char *why)
{
    const char *own = find_caller_value(w->caller, name);
    if (!own && !value)
        return 0;
    if (w->e->n == MAX_VARS)
        return hw_fail(-E2BIG, "too many variables");
    struct sbx_var *v = &w->e->v[w->e->n];
    *v = (struct sbx_var){.name = name, .value = strdup(own ? own : value), .callers = own};
    if (!v->value)
        return hw_no_memory("the environment");
    snprintf(v->why, sizeof(v->why), "%s%s", own ? "the caller's own value; without it: " : "",
             value ? why : "nothing");
    w->e->n++;
    return 0;
}

/* Returns the list in the form "=a,b", or NULL for an empty list or if out of memory. NCCL matches names after "="
 * exactly. Without "=", mlx5_1 also matches mlx5_10. */
static char *format_exact_list(const char *list)
{
    char *text = NULL;
    return list && *list && asprintf(&text, "=%s", list) >= 0 ? text : NULL;
}

/* Returns the GID index that all RDMA devices of the sandbox share, or -1 if there is none. */
static int gid_index(const struct sbx_plan *p)
{
    int index = -1;
    bool first = true;
    for (size_t i = 0; i < p->n_rdma; i++) {
        if (p->rdma[i].why[0])
            continue;
        if (!first && index != p->rdma[i].gid_index)
            return -1;
        index = p->rdma[i].gid_index;
        first = false;
    }
    return index;
}

/* Adds the variables that tell NCCL which RDMA devices, NICs and GID index to use. */
static int add_sandbox_nic_vars(struct work *w, const struct sbx_plan *p, char *hcas, char *list, bool moved)
{
    HW_AUTO_FREE char *hca = format_exact_list(hcas), *ifs = format_exact_list(list);
    char index[16];
    /* before the move the indices are unknown, because moving a NIC changes its GIDs */
    int gid = moved ? gid_index(p) : -1;
    snprintf(index, sizeof(index), "%d", gid);
    if ((*hcas && !hca) || (*list && !ifs))
        return hw_no_memory("the environment");
    int rc = add_sandbox_var(w, "NCCL_IB_HCA", hca, "the sandbox's RDMA devices and their ports, by their exact names");
    if (rc < 0)
        return rc;
    rc = add_sandbox_var(w, "NCCL_SOCKET_IFNAME", ifs, "the sandbox's NICs, by their exact names");
    if (rc < 0)
        return rc;
    return add_sandbox_var(w, "NCCL_IB_GID_INDEX", gid >= 0 ? index : NULL,
                           "the index of the RoCE v2 GID over IPv4, the same on all RDMA ports of the sandbox");
}

/* The variables that help to debug NCCL in a sandbox. */
static const struct {
    const char *name, *value, *why;
} debug[] = {
    {"NCCL_DEBUG", "INFO", "--debug-all: NCCL logs its actions, which slows the start of each rank"},
    {"NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,NET,GRAPH", "--debug-all: the parts of NCCL that log"},
    {"NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p.log", "--debug-all: one log file per process"},
    {"NCCL_TOPO_DUMP_FILE", "/tmp/nccl_topo.xml", "--debug-all: the file for the topology that NCCL found"},
    {"RUNSC_DEBUG", "1", "--debug-all: gVisor's own log"},
    {"RUNSC_DEBUG_LOG", "/tmp/runsc/", "--debug-all: the folder of gVisor's log"},
    {"RUNSC_STRACE", "1",
     "--debug-all: gVisor logs system calls (those of RUNSC_STRACE_SYSCALLS), which makes a sandbox 5 to 10 times "
     "slower"},
    {"RUNSC_STRACE_SYSCALLS", "openat,readlinkat,ioctl,mmap", "--debug-all: the system calls to log"},
};

static int fill_sandbox_env(struct work *w, const struct sbx_plan *p, const struct sbx_env_want *want)
{
    HW_AUTO_FREE char *hcas = sbx_plan_hcas(p), *list = sbx_plan_nics(p);
    int rc = hcas && list ? add_sandbox_nic_vars(w, p, hcas, list, want->moved) : hw_no_memory("the environment");
    if (rc < 0)
        return rc;
    rc = add_sandbox_var(w, "NCCL_NET_PLUGIN",
                         want->net_plugin  ? want->net_plugin
                         : !*hcas && *list ? "hawser"
                                           : NULL,
                         want->net_plugin
                             ? "--net-plugin"
                             : "the sandbox has no RDMA device, so hawser carries NCCL's data over the sandbox's NICs");
    if (rc < 0)
        return rc;
    rc = add_sandbox_var(w, "NCCL_TOPO_FILE", want->nccl_topo,
                         "--nccl-topo; without it, NCCL finds the same data in /sys");
    for (size_t i = 0; i < HW_ARRAY_LEN(debug) && rc == 0; i++)
        rc = add_sandbox_var(w, debug[i].name, want->debug_all ? debug[i].value : NULL, debug[i].why);
    return rc;
}

int sbx_env_make(struct sbx_env *out, const struct sbx_plan *p, const struct sbx_env_want *want)
{
    *out = (struct sbx_env){.v = calloc(MAX_VARS, sizeof(*out->v))};
    struct work w = {out, want->caller};
    return out->v ? fill_sandbox_env(&w, p, want) : hw_no_memory("the environment");
}

void sbx_env_free(struct sbx_env *e)
{
    for (size_t i = 0; i < e->n; i++)
        free(e->v[i].value);
    free(e->v);
    *e = (struct sbx_env){0};
}
