/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which NICs, RDMA devices and GPUs a sandbox gets, and records the reason for each device that is left out.
 * The plan is always based on a snapshot, and requested names only select among its devices. The rules are in
 * docs/sandbox.md.
 */
#ifndef HW_SANDBOX_PLAN_H
#define HW_SANDBOX_PLAN_H

#include "sandbox/plan/snapshot.h"

#define SBX_WHY             192
#define SBX_EXCLUDE_DEFAULT "^eth[0-9]+$" /* not applied to NICs next to a GPU */

struct sbx_want {
    /* names of netdevs or RDMA devices to use, such as "rdma0,rdma1", or "none"; NULL for all suitable NICs */
    const char *nics;
    const char *only;      /* the tenant's choice among `nics`, in the same form; NULL or "all" for all */
    const char *gpus;      /* GPUs to use, such as "0-3,6" or "none"; NULL or "all" for all */
    const char *only_gpus; /* the tenant's choice among `gpus`, in the same form; NULL or "all" for all */
    const char *exclude;   /* extended regular expression for netdevs; NULL for the default above, "" for none */
    const char *peer_nics; /* use only NICs that the peer also has; NULL for all */
    /* peer that was asked for its NICs, or NULL; if set, peer_nics lists this node's NICs with a counterpart on that
     * peer */
    const char *peer;
    const char *bootstrap; /* the job's bootstrap address; its NIC is left out unless force is set; NULL for none */
    bool require_ipv4;     /* treat a NIC without an IPv4 address as an error */
    bool force;            /* include NICs with a default route or the bootstrap address */
    bool keep_nics;        /* show every NIC's PCI device in sysfs, so that NCCL also sees unusable NICs */
};

struct sbx_plan_nic {
    const char *name;
    int net;           /* index in sbx_snapshot.net */
    char why[SBX_WHY]; /* reason for leaving out the NIC; "" if the sandbox gets the NIC */
};
struct sbx_plan_rdma {
    const char *name;
    int rdma;
    char why[SBX_WHY];
    unsigned *port; /* the usable ports */
    size_t n_port;
    int gid_index; /* GID index for RoCE v2 over IPv4; -1 if there is none or the ports differ */
};
struct sbx_plan_gpu {
    char at[HW_BDF_TEXT];
    int ordinal, pci; /* ordinal is the GPU's number in CUDA; -1 for a GPU of another vendor */
    char why[SBX_WHY];
};

struct sbx_plan {
    struct sbx_plan_nic *nic;   /* one for each netdev of the snapshot, in the same order */
    struct sbx_plan_rdma *rdma; /* one for each RDMA device */
    struct sbx_plan_gpu *gpu;
    const char **pci_why; /* by PCI device: reason for leaving it out of the sysfs; NULL if the sysfs contains it */
    char **warning;
    size_t n_nic, n_rdma, n_gpu, n_warning;
    bool empty; /* no NIC or RDMA device is left, although some were requested */
};

/* Makes the plan. Fails with -EINVAL for an invalid list, regular expression or bootstrap address, -ENODEV for a NIC or
 * GPU that this node lacks, -EPERM for a NIC in `nics` that is loopback or requires force, or for a NIC in `only` or
 * a GPU in `only_gpus` that the other settings leave out, -EADDRNOTAVAIL because of require_ipv4, or -ENOMEM. Fails
 * with -ENXIO if no NIC or RDMA device is left and neither list is "none"; the plan is then complete and contains the
 * reasons. The caller frees the plan in any case. The snapshot must outlive the plan. */
int sbx_plan_make(struct sbx_plan *out, const struct sbx_snapshot *s, const struct sbx_want *want);
void sbx_plan_free(struct sbx_plan *p);

/* Recomputes the plan's RDMA devices, ports, GID indices and PCI devices from s after sbx_snapshot_again(). Keeps the
 * chosen NICs and adds nothing, because the container may have changed its network namespace. Fails with -ENOMEM. */
int sbx_plan_again(struct sbx_plan *p, const struct sbx_snapshot *s, const struct sbx_want *want);
/* Returns the number of GIDs of the plan's ports that are for RoCE v2 over IPv4 and belong to the plan's NICs. */
size_t sbx_plan_gids(const struct sbx_plan *p, const struct sbx_snapshot *s);

static inline bool sbx_nic_in(const struct sbx_plan *p, size_t net)
{
    return !p->nic[net].why[0];
}

/* Returns true if RDMA device r belongs to interface net, according to its GIDs or to its PCI function and port. */
bool sbx_rdma_on(const struct sbx_snapshot *s, size_t r, size_t net);
/* Returns the NICs that the sandbox gets, as in "rdma0,rdma1", or "" for none. The caller frees the string. Returns
 * NULL if out of memory. */
char *sbx_plan_nics(const struct sbx_plan *p);
/* Returns the RDMA devices and ports, as in "mlx5_0:1,mlx5_1:1". The caller frees the string. Returns NULL if out of
 * memory. */
char *sbx_plan_hcas(const struct sbx_plan *p);

/* Write the plan as text, and as JSON with the schema hawser-sandbox-plan-1. Return 0 or -errno. */
int sbx_plan_text(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out);
int sbx_plan_json(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out);

#endif
