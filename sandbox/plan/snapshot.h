/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot contains the parts of a machine's sysfs from which a sandbox's sysfs is rebuilt, and the interfaces' IP
 * addresses and default routes. It can be written as one JSON file (docs/sandbox.md). Paths are relative to /sys and
 * canonical ("devices/pci0000:00/0000:00:01.0"). Contents are as in the files, without leading and trailing blanks and
 * newlines.
 */
#ifndef HW_SANDBOX_SNAPSHOT_H
#define HW_SANDBOX_SNAPSHOT_H

#include "net/pci.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>

#define SBX_SNAPSHOT_VERSION 1
#define SBX_NAME             64 /* maximum bytes of a name with its NUL; IFNAMSIZ is 16, IB_DEVICE_NAME_MAX 64 */
#define SBX_PATH             1024

/* A file below an object's folder. The name may contain slashes, as in "topology/core_id". */
struct sbx_attr {
    char *name, *value;
};
struct sbx_attrs {
    struct sbx_attr *v; /* sorted by name */
    size_t n;
};
/* Returns the value of a file, or NULL if there is no such file. */
const char *sbx_attr(const struct sbx_attrs *a, const char *name);

struct sbx_pci {
    char *path;
    struct hw_pci_path way;
    uint32_t class;
    uint16_t vendor, device;
    char driver[SBX_NAME]; /* "" if none */
    struct sbx_attrs attr;
    uint8_t *config; /* configuration space; NULL if it could not be read */
    size_t n_config;
};

struct sbx_addr {
    int family; /* AF_INET or AF_INET6 */
    union {
        struct in_addr v4;
        struct in6_addr v6;
    };
    unsigned prefix;
};

struct sbx_netdev {
    char name[SBX_NAME];
    char *path;
    int pci;                              /* index in sbx_snapshot.pci of the parent PCI function; -1 if none */
    char driver[SBX_NAME], bus[SBX_NAME]; /* of the interface's device, such as "virtio_net" and "virtio"; "" if none */
    /* master is the interface that contains this interface. If this interface has no PCI function, over is the first
     * interface below it. Both are "" if there is none. */
    char master[SBX_NAME], over[SBX_NAME];
    bool loopback, default_route;
    struct sbx_attrs attr; /* address, mtu, speed, flags, operstate, dev_port and others */
    struct sbx_addr *addr; /* known only if sbx_snapshot.addresses is set */
    size_t n_addr;
};

struct sbx_gid {
    unsigned index;
    char gid[40];  /* such as "fe80:0000:0000:0000:..." */
    char type[24]; /* "IB/RoCE v1" or "RoCE v2"; "" if it could not be read */
    char ndev[SBX_NAME];
};

struct sbx_port {
    unsigned port;
    /* state, rate, lid, link_layer, "counters/port_xmit_data", "hw_counters/...", "pkeys/0" and others */
    struct sbx_attrs attr;
    unsigned gids;       /* length of the GID table */
    struct sbx_gid *gid; /* the nonzero GIDs, sorted by index */
    size_t n_gid;
};

struct sbx_rdma {
    char name[SBX_NAME], uverbs[SBX_NAME]; /* uverbs is "" if there is none */
    char *path, *uverbs_path;              /* uverbs_path is NULL if there is none */
    int pci;                               /* index in sbx_snapshot.pci; -1 if none, as for a software device */
    struct sbx_attrs attr, uverbs_attr;    /* node_type, node_guid, board_id and others; dev and abi_version */
    struct sbx_port *port;
    size_t n_port;
};

/* An object with a number, such as node3 or cpu17. */
struct sbx_numbered {
    unsigned id;
    struct sbx_attrs attr;
};

struct sbx_snapshot {
    bool addresses, gids;   /* whether IP addresses are known; whether GIDs are known */
    struct sbx_pci *pci;    /* sorted by address */
    struct sbx_netdev *net; /* sorted by name, eth2 before eth10 */
    struct sbx_rdma *rdma;
    struct sbx_numbered *numa, *cpu;
    struct sbx_attrs file; /* other files by path, such as "devices/system/cpu/online" or "module/nvidia/version" */
    size_t n_pci, n_net, n_rdma, n_numa, n_cpu;
    /* number of devices that a scan left out because of their names or paths, see sbx_name_ok() and sbx_path_ok() */
    size_t skipped;
};

struct sbx_take {
    bool live;         /* root belongs to this machine, so the kernel is asked for the addresses */
    bool no_addresses; /* leave out MAC and IP addresses, GIDs, GUIDs, and the host's name in node_desc */
};

/* Takes a snapshot from root (hw_root_open()). The caller frees out, even after a failure. */
int sbx_snapshot_take(struct sbx_snapshot *out, int root, const struct sbx_take *opt);
/* Reads again the parts that change when NICs move: the files of each NIC i with moved[i] set, and the GIDs of every
 * RDMA device. sysfs is a file descriptor of the sysfs of the NICs' current network namespace. RDMA devices that are
 * not in that sysfs have no GIDs afterwards. */
int sbx_snapshot_again(struct sbx_snapshot *s, int sysfs, const bool *moved);
/* Writes the snapshot as JSON. */
int sbx_snapshot_write(const struct sbx_snapshot *s, FILE *out);
/* Parse untrusted text. Fail with -EINVAL or -E2BIG and a text that gives the position of the error, or with another
 * -errno. The caller frees out, even after a failure. */
int sbx_snapshot_parse(struct sbx_snapshot *out, const char *text, size_t len);
int sbx_snapshot_load(struct sbx_snapshot *out, const char *file);
void sbx_snapshot_free(struct sbx_snapshot *s);

/* Return the index in s->net, s->rdma or s->pci, or -1 if there is none. */
int sbx_find_net(const struct sbx_snapshot *s, const char *name);
int sbx_find_rdma(const struct sbx_snapshot *s, const char *name);
int sbx_find_pci(const struct sbx_snapshot *s, struct hw_bdf at);
/* Completes a snapshot from either source: sorts it, sets derived fields (pci, way, class...), and refuses inconsistent
 * data. */
int sbx_snapshot_settle(struct sbx_snapshot *s);
/* Adds a file. Copies name and value. Fails with -ENOMEM. */
int sbx_attr_add(struct sbx_attrs *a, const char *name, const char *value);
void sbx_attrs_free(struct sbx_attrs *a);
/* Returns true for a valid name of a device or file: ^[A-Za-z0-9][A-Za-z0-9_.:+-]*$, shorter than SBX_NAME. */
bool sbx_name_ok(const char *name);
/* Returns true if the path consists of names that sbx_name_ok() accepts, separated by slashes, and has at most SBX_PATH
 * bytes. */
bool sbx_path_ok(const char *path);

#endif
