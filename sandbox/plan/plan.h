/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which NICs, RDMA devices and GPUs a sandbox gets, with the reason for each other one. Always based on a
 * snapshot's facts: requested names only filter. The rules are in docs/sandbox.md.
 */
#ifndef HW_SANDBOX_PLAN_H
#define HW_SANDBOX_PLAN_H

#include "sandbox/plan/snapshot.h"

#define SBX_WHY             192
#define SBX_EXCLUDE_DEFAULT "^eth[0-9]+$" /* not applied to a NIC next to a GPU */

struct sbx_want {
    const char *nics;      /* "rdma0,rdma1": only these, names of netdevs or RDMA devices; NULL: all suitable ones */
    const char *only;      /* the tenant's choice among the result, named likewise; NULL or "all": all of it */
    const char *gpus;      /* "0-3,6", "none"; NULL or "all": all */
    const char *exclude;   /* extended regular expression of netdevs; NULL: the default above; "": none */
    const char *peer_nics; /* only NICs that the peer has too; NULL: all */
    /* the peer that was asked; peer_nics are then this node's NICs with a partner there; NULL: none */
    const char *peer;
    const char *bootstrap; /* the address where the nodes meet: its NIC stays; NULL: not specified */
    bool require_ipv4;     /* a NIC without an IPv4 address is an error */
    bool force;            /* include NICs with a default route or the bootstrap address */
    bool keep_nics;        /* show every NIC's PCI device in sysfs: NCCL then sees unusable ones */
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
    unsigned *port; /* the usable ports */
    size_t n_port;
    int gid_index; /* of RoCE v2 over IPv4, the same on each of these ports; -1: none, or not the same */
};
struct sbx_plan_gpu {
    char at[HW_BDF_TEXT];
    int ordinal, pci; /* ordinal -1: not a CUDA GPU */
    char why[SBX_WHY];
};

struct sbx_plan {
    struct sbx_plan_nic *nic;   /* one for each netdev of the snapshot, in its order */
    struct sbx_plan_rdma *rdma; /* and RDMA devices */
    struct sbx_plan_gpu *gpu;
    const char **pci_why; /* by PCI device: why the sandbox's sysfs omits it; NULL: it is there */
    char **warning;
    size_t n_nic, n_rdma, n_gpu, n_warning;
    bool empty; /* no NIC is left, although that was not requested */
};

/* Makes the plan. -EINVAL: an invalid list or regular expression; -ENODEV: a NIC or GPU that this node lacks; -EPERM: a
 * NIC in `nics` that would need force, or one in `only` that the rest omits; -EADDRNOTAVAIL with require_ipv4; -ENXIO:
 * no NIC is left and neither list says "none": the plan is then complete and has the reasons. The caller frees the plan
 * after each of these; the snapshot must outlive it. */
int sbx_plan_make(struct sbx_plan *out, const struct sbx_snapshot *s, const struct sbx_want *want);
void sbx_plan_free(struct sbx_plan *p);

/* Recomputes the plan's RDMA devices, ports, GID indexes and PCI devices, from s after sbx_snapshot_again(). The chosen
 * NICs stay, and nothing is added, because a container may change its network namespace. -ENOMEM. */
int sbx_plan_again(struct sbx_plan *p, const struct sbx_snapshot *s, const struct sbx_want *want);
/* Returns how many GIDs of RoCE v2 over IPv4 the plan's ports have on the plan's NICs. */
size_t sbx_plan_gids(const struct sbx_plan *p, const struct sbx_snapshot *s);

static inline bool sbx_nic_in(const struct sbx_plan *p, size_t net)
{
    return !p->nic[net].why[0];
}

/* Returns true if RDMA device r belongs to interface net: by its GIDs, or without GIDs by its PCI function and port. */
bool sbx_rdma_on(const struct sbx_snapshot *s, size_t r, size_t net);
/* Returns "rdma0,rdma1", the NICs that the sandbox gets; "" for none. The caller frees it; NULL: no memory. */
char *sbx_plan_nics(const struct sbx_plan *p);
/* Returns "mlx5_0:1,mlx5_1:1". The caller frees it; NULL: no memory. */
char *sbx_plan_hcas(const struct sbx_plan *p);

/* Write the plan. 0 or -errno. The JSON has the schema hawser-sandbox-plan-1. */
int sbx_plan_text(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out);
int sbx_plan_json(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out);

#endif
