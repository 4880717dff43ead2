/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NICs, RDMA devices and GPUs a sandbox gets, and why each other one does not. Always from a snapshot's facts:
 * names that were asked for only filter it. The rules are in docs/sandbox.md.
 */
#ifndef HW_SANDBOX_PLAN_H
#define HW_SANDBOX_PLAN_H

#include "sandbox/plan/snapshot.h"

#define SBX_WHY             192
#define SBX_EXCLUDE_DEFAULT "^eth[0-9]+$" /* spares a NIC with a GPU beside it */

struct sbx_want {
    const char *nics;      /* "rdma0,rdma1": only these, names of netdevs or RDMA devices; NULL: all that fit */
    const char *only;      /* the tenant's choice among what the rest gives, named likewise; NULL or "all": all of it */
    const char *gpus;      /* "0-3,6", "none"; NULL or "all": all */
    const char *exclude;   /* extended regular expression of netdevs; NULL: the default above; "": none */
    const char *peer_nics; /* only those that the peer has too; NULL: all */
    const char *peer; /* whom peer_nics was asked of, which then are this node's NICs that have a partner there; NULL */
    const char *bootstrap; /* the address that the nodes meet at: its NIC stays; NULL: not said */
    bool require_ipv4;     /* a NIC without one is an error */
    bool force;            /* take those with a default route or the bootstrap address too */
    bool keep_nics;        /* show every NIC's PCI device in sysfs: NCCL then meets the dangling ones */
};

struct sbx_plan_nic {
    const char *name;
    int net;           /* in sbx_snapshot.net */
    char why[SBX_WHY]; /* why not; "": the sandbox gets it */
};
struct sbx_plan_rdma {
    const char *name;
    int rdma;
    char why[SBX_WHY];
    unsigned *port; /* those that the sandbox can use */
    size_t n_port;
    int gid_index; /* of RoCE v2 over IPv4, the same on each of these ports; -1: none, or not the same */
};
struct sbx_plan_gpu {
    char at[HW_BDF_TEXT];
    int ordinal, pci; /* ordinal -1: not of CUDA's */
    char why[SBX_WHY];
};

struct sbx_plan {
    struct sbx_plan_nic *nic;   /* one for each of the snapshot's netdevs, in its order */
    struct sbx_plan_rdma *rdma; /* and RDMA devices */
    struct sbx_plan_gpu *gpu;
    const char **pci_why; /* of each PCI device: why the sandbox's sysfs leaves it out; NULL: it is there */
    char **warning;
    size_t n_nic, n_rdma, n_gpu, n_warning;
    bool empty; /* no NIC is left, and nobody asked for that */
};

/* Returns 0; -EINVAL for what is no list or regular expression; -ENODEV for a NIC or GPU that this node lacks; -EPERM
 * for a NIC in `nics` that would need force, or one in `only` that the rest leaves out; -EADDRNOTAVAIL with
 * require_ipv4; -ENXIO where no NIC is left and neither list says "none": then the plan is whole and says why of each.
 * Free the plan after each of these; the snapshot must outlive the plan. */
int sbx_plan_make(struct sbx_plan *out, const struct sbx_snapshot *s, const struct sbx_want *want);
void sbx_plan_free(struct sbx_plan *p);

/* Makes the plan's RDMA devices, ports, GID indexes and PCI devices again, of s as sbx_snapshot_again() has left it.
 * The NICs stay as they were chosen, and nothing is added: a container may write to its network namespace. -ENOMEM. */
int sbx_plan_again(struct sbx_plan *p, const struct sbx_snapshot *s, const struct sbx_want *want);
/* Returns how many GIDs of RoCE v2 over IPv4 the plan's ports have on the plan's NICs. */
size_t sbx_plan_gids(const struct sbx_plan *p, const struct sbx_snapshot *s);

static inline bool sbx_nic_in(const struct sbx_plan *p, size_t net)
{
    return !p->nic[net].why[0];
}

/* Does RDMA device r hang on interface net? By its GIDs, or for one that has none by its PCI function and port. */
bool sbx_rdma_on(const struct sbx_snapshot *s, size_t r, size_t net);
/* "rdma0,rdma1", those that the sandbox gets; "" for none. To be freed; NULL: no memory. */
char *sbx_plan_nics(const struct sbx_plan *p);
/* "mlx5_0:1,mlx5_1:1". To be freed; NULL: no memory. */
char *sbx_plan_hcas(const struct sbx_plan *p);

/* 0 or -errno. The JSON is of schema hawser-sandbox-plan-1. */
int sbx_plan_text(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out);
int sbx_plan_json(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out);

#endif
