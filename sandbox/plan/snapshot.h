/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot: the parts of a machine's sysfs from which a sandbox's own sysfs is rebuilt, as one JSON file
 * (docs/sandbox.md). Paths are relative to /sys and canonical ("devices/pci0000:00/0000:00:01.0"); contents are as in
 * the files, without the trailing newline.
 */
#ifndef HW_SANDBOX_SNAPSHOT_H
#define HW_SANDBOX_SNAPSHOT_H

#include "net/pci.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>

#define SBX_SNAPSHOT_VERSION 1
#define SBX_NAME             64 /* IFNAMSIZ is 16, IB_DEVICE_NAME_MAX 64, with their NULs */
#define SBX_PATH             1024

/* A file below an object's folder; the name may contain slashes: "topology/core_id". */
struct sbx_attr {
    char *name, *value;
};
struct sbx_attrs {
    struct sbx_attr *v; /* by name */
    size_t n;
};
/* NULL: there is none. */
const char *sbx_attr(const struct sbx_attrs *a, const char *name);

struct sbx_pci {
    char *path;
    struct hw_pci_path way;
    uint32_t class;
    uint16_t vendor, device;
    char driver[SBX_NAME]; /* "": none */
    struct sbx_attrs attr;
    uint8_t *config; /* NULL: unreadable */
    size_t n_config;
};

struct sbx_addr {
    int family; /* AF_INET, AF_INET6 */
    union {
        struct in_addr v4;
        struct in6_addr v6;
    };
    unsigned prefix;
};

struct sbx_netdev {
    char name[SBX_NAME];
    char *path;
    int pci;                              /* index in sbx_snapshot.pci, its own; -1: virtual */
    char driver[SBX_NAME], bus[SBX_NAME]; /* of the device below it, "virtio"; "": none */
    /* interface that contains it; first interface that it is stacked on; "": none */
    char master[SBX_NAME], over[SBX_NAME];
    bool loopback, default_route;
    struct sbx_attrs attr; /* address, mtu, speed, flags, operstate, dev_port... */
    struct sbx_addr *addr; /* see sbx_snapshot.addresses */
    size_t n_addr;
};

struct sbx_gid {
    unsigned index;
    char gid[40];  /* "fe80:0000:0000:0000:..." */
    char type[24]; /* "IB/RoCE v1", "RoCE v2"; "": unreadable */
    char ndev[SBX_NAME];
};

struct sbx_port {
    unsigned port;
    struct sbx_attrs attr; /* state, rate, lid, link_layer, "counters/port_xmit_data", "hw_counters/...", "pkeys/0" */
    unsigned gids;         /* the table's length */
    struct sbx_gid *gid;   /* the nonzero ones, by index */
    size_t n_gid;
};

struct sbx_rdma {
    char name[SBX_NAME], uverbs[SBX_NAME]; /* uverbs "": none */
    char *path, *uverbs_path;              /* uverbs_path "": none */
    int pci;                               /* -1: software */
    struct sbx_attrs attr, uverbs_attr;    /* node_type, node_guid, board_id...; dev, abi_version */
    struct sbx_port *port;
    size_t n_port;
};

/* node3, cpu17. */
struct sbx_numbered {
    unsigned id;
    struct sbx_attrs attr;
};

struct sbx_snapshot {
    bool addresses, gids;   /* IP addresses are known; GIDs are known */
    struct sbx_pci *pci;    /* by address */
    struct sbx_netdev *net; /* by name, eth2 before eth10 */
    struct sbx_rdma *rdma;
    struct sbx_numbered *numa, *cpu;
    struct sbx_attrs file; /* other files by path: "devices/system/cpu/online", "module/nvidia/version" */
    size_t n_pci, n_net, n_rdma, n_numa, n_cpu;
    size_t skipped; /* of a scan: devices with names that a sandbox cannot get, see sbx_name_ok() */
};

struct sbx_take {
    bool live;         /* root is this machine's: ask the kernel for the addresses */
    bool no_addresses; /* omit MAC and IP addresses, GIDs and GUIDs, and the host's name in node_desc */
};

/* Reads a snapshot from root (hw_root_open()). The caller frees out, also after a failure. */
int sbx_snapshot_take(struct sbx_snapshot *out, int root, const struct sbx_take *opt);
/* Reads again what changes when NICs move: the files of each NIC i with moved[i] true, and the GIDs of every RDMA
 * device. sysfs: a descriptor of the sysfs of the NICs' current network namespace. An RDMA device that is not in that
 * sysfs has no GIDs afterwards. */
int sbx_snapshot_again(struct sbx_snapshot *s, int sysfs, const bool *moved);
/* As JSON. */
int sbx_snapshot_write(const struct sbx_snapshot *s, FILE *out);
/* Parse untrusted text: -EINVAL says where it is wrong. The caller frees out, also after a failure. */
int sbx_snapshot_parse(struct sbx_snapshot *out, const char *text, size_t len);
int sbx_snapshot_load(struct sbx_snapshot *out, const char *file);
void sbx_snapshot_free(struct sbx_snapshot *s);

/* Return the index in s->net, s->rdma, s->pci; -1: none. */
int sbx_find_net(const struct sbx_snapshot *s, const char *name);
int sbx_find_rdma(const struct sbx_snapshot *s, const char *name);
int sbx_find_pci(const struct sbx_snapshot *s, struct hw_bdf at);
/* For both sources of snapshots: sorts, fills in derived fields (pci, way, class...), and refuses inconsistent data. */
int sbx_snapshot_settle(struct sbx_snapshot *s);
/* Adds a file; name and value are copied. -ENOMEM. */
int sbx_attr_add(struct sbx_attrs *a, const char *name, const char *value);
void sbx_attrs_free(struct sbx_attrs *a);
/* Returns true for a valid name of a device or file: ^[A-Za-z0-9][A-Za-z0-9_.:+-]*$, shorter than SBX_NAME. */
bool sbx_name_ok(const char *name);
/* Returns true for such names separated by slashes, at most SBX_PATH bytes. */
bool sbx_path_ok(const char *path);

#endif
