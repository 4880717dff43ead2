/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node lab is a cluster on one machine. Each node is a network namespace with veth NICs, by default eth0, eth1 and
 * so on. The nodes are named a to z, then aa, ab and so on. The NICs with the same number are a rail. The fabric
 * defines how the NICs are connected (see enum hw_lab_fabric). A hidden namespace ("switch") contains the bridges and
 * the router. A simple lab with two nodes has no switch, and a rail is one veth pair (see lab_has_switch()). All NIC
 * addresses are in 198.18.0.0/15 (RFC 2544's range for benchmarks, which the Internet does not route).
 *
 * Nothing is stored on disk. If the caller is privileged (see hw_netns_privileged()), the namespaces are kept like
 * those of `ip netns`, in /run/netns as hawser-<lab>-<node>, until hw_lab_down(). Otherwise a process of the caller
 * ("hawser-lab", see holder.c) keeps them inside a user namespace until hw_lab_down() ends the process; only the same
 * user sees such a lab. The name of an abstract socket serves as the lock for labs of both kinds, and for finding the
 * labs of unprivileged callers.
 */
#ifndef HW_LAB_H
#define HW_LAB_H

#include "sys/rtnl.h"

#include <sys/types.h>

#define HW_LAB_DEFAULT   "lab"
#define HW_LAB_NAME_MAX  32
#define HW_LAB_MIN_NODES 2
#define HW_LAB_MAX_NODES 64 /* named a to z, aa to bl */
#define HW_LAB_MAX_NICS  32
#define HW_LAB_PREFIX    12 /* size of a prefix of NIC names; with the number, a name is shorter than IFNAMSIZ */

/* The fabrics, with the address of NIC i of the k-th node (from 0). */
enum hw_lab_fabric {
    HW_LAB_SUBNET, /* 198.18.<i>.<k+1>/24; each rail is a separate network */
    /* 198.18.<i>.<2k+1>/31; a router connects everything, and each NIC's address selects its own routing table (layer
     * 3) */
    HW_LAB_ROUTED,
    /* 198.18.<i>.<k+1>/32; each rail has a router at 198.18.<i>.254, and the default route uses the first NIC */
    HW_LAB_GCP,
    HW_LAB_SHARED, /* 198.18.<i>.<k+1>/16; all NICs are on one bridge, without routing rules */
    /* like SUBNET, with docker0 (172.17.0.1/16 on every node) and cni0 (198.19.0.<k+1>/24), which have no link to other
     * nodes */
    HW_LAB_BRIDGE,
};

struct hw_lab_spec {
    const char *name; /* letters, digits, '-' and '_', beginning with a letter or digit; NULL means "lab" */
    enum hw_lab_fabric fabric;
    unsigned nodes;                               /* HW_LAB_MIN_NODES to HW_LAB_MAX_NODES */
    unsigned nics;                                /* NICs of each node, 1 to HW_LAB_MAX_NICS */
    unsigned node_nics[HW_LAB_MAX_NODES];         /* number of NICs of individual nodes, at most nics; 0 means nics */
    char prefix[HW_LAB_MAX_NODES][HW_LAB_PREFIX]; /* prefix of the names of a node's NICs; "" means "eth" */
    uint32_t mtu;                                 /* 576 to 65535; 0 means 1500 */
    uint64_t rate[HW_LAB_MAX_NICS];               /* bits per second, for each rail and direction; 0 means no limit */
    uint32_t delay_us[HW_LAB_MAX_NICS];           /* for each rail, the delay of a packet from node to node */
    uint32_t loss_ppm[HW_LAB_MAX_NICS];           /* for each rail, the packets lost between nodes, per 1,000,000 */
};

/* Creates a lab. On failure, nothing is created. Fails with -EINVAL for an invalid spec, with -EEXIST if a lab of that
 * name or a remnant of a crashed lab exists, or if another up or down of that lab is in progress, with -EPERM or
 * -EACCES if an unprivileged caller cannot use a user namespace, or with another -errno. */
int hw_lab_up(const struct hw_lab_spec *spec);

/* Removes a lab. Ends the processes in its nodes (SIGTERM, followed by SIGKILL after a second), and then removes the
 * nodes. Also cleans up after a crash. Succeeds if there is nothing to remove. Fails with -EBUSY if called inside that
 * lab or if another up or down takes too long, with -EPERM if the lab belongs to root, or with another -errno. */
int hw_lab_down(const char *name);

/* Starts argv (searched for in PATH) in a node, with the node's /sys if it can be mounted. stdout_fd is the command's
 * stdout, or -1 for the caller's. Stdin and stderr are the caller's, the signal mask is empty, and file descriptors
 * without O_CLOEXEC are inherited. *pid is the PID of the command itself, which is a child of the caller. Fails with
 * -ENOENT if there is no such lab, node or command. */
int hw_lab_spawn(const char *name, const char *node, char *const argv[], int stdout_fd, pid_t *pid);

/* Replaces the calling process, which must have a single thread, with argv in a node. Returns only on errors. Sets
 * *cannot_run to true if the failure is due to the command and not the lab. Unless warn is NULL, calls warn for each
 * nonfatal fault before the command starts. */
int hw_lab_exec(const char *name, const char *node, char *const argv[], void (*warn)(const char *line),
                bool *cannot_run);

/* Sets a node's NIC up or down. The kernel keeps the address, and restores its connected route when the NIC comes up.
 */
int hw_lab_link(const char *name, const char *node, unsigned nic, bool up);

/* Sets the rate of a NIC in both directions, in bits per second; 0 means no limit. */
int hw_lab_rate(const char *name, const char *node, unsigned nic, uint64_t rate);

/* Parses a rate such as "250mbit" or "1.5gbit" (bit, kbit, mbit, gbit, tbit; decimal; case is ignored) into bits per
 * second, from 64 kbit to 1 Tbit. "none" and "" result in 0, which means no limit. Fails with -EINVAL, and the error
 * quotes the text. */
int hw_lab_parse_rate(const char *text, uint64_t *out);
/* Parses a list of rates into spec->rate: one rate for all of spec->nics, or one for each. Fails with -EINVAL. */
int hw_lab_parse_rates(const char *text, struct hw_lab_spec *spec);
/* Parses a list of delays such as "10ms" or "250us,1ms", up to 10 s each, into spec->delay_us. Fails with -EINVAL. */
int hw_lab_parse_delays(const char *text, struct hw_lab_spec *spec);
/* Parses a list of losses such as "0.1%,0%" into spec->loss_ppm. A loss is below 100% and has a resolution of one
 * millionth. Fails with -EINVAL. */
int hw_lab_parse_losses(const char *text, struct hw_lab_spec *spec);
/* Parses "4" or "4,3" into spec->nics and spec->node_nics: one number for all of spec->nodes, or one for each. Fails
 * with -EINVAL. */
int hw_lab_parse_nics(const char *text, struct hw_lab_spec *spec);
/* Parses a list of prefixes such as "eth,enp" into spec->prefix: one prefix for all of spec->nodes, or one for each.
 * Fails with -EINVAL. */
int hw_lab_parse_names(const char *text, struct hw_lab_spec *spec);
/* Parses "subnet", "routed", "gcp", "shared-subnet" or "bridge". Fails with -EINVAL. */
int hw_lab_parse_fabric(const char *text, enum hw_lab_fabric *out);
/* Writes a rate such as "1gbit", "1.5gbit" or "none", in a form that hw_lab_parse_rate() reads. Returns buf. */
char *hw_lab_format_rate(uint64_t rate, char *buf, size_t cap);
/* Parses the name or number of a NIC, such as "eth2", "enp2" or "2", into its number. Fails with -EINVAL. */
int hw_lab_parse_nic(const char *text, unsigned *nic);

struct hw_lab_nic {
    struct hw_rtnl_link link;
    struct in_addr addr; /* 0 if none */
    uint64_t rate;       /* limit on sending, in bits per second; 0 means no limit */
};

struct hw_lab_node {
    char name[8];
    unsigned nics;
    struct hw_lab_nic nic[HW_LAB_MAX_NICS];
};

struct hw_lab_info {
    char name[HW_LAB_NAME_MAX + 1];
    bool user; /* in a user namespace that the process hawser-lab keeps alive */
    unsigned nodes;
    struct hw_lab_node node[HW_LAB_MAX_NODES];
};

/* Reads the current state of a lab from the kernel. The struct takes about 150 KB, so allocate it on the heap. Fails
 * with -ENOENT if there is no such lab, and with -EPERM if the lab belongs to root. */
int hw_lab_info(const char *name, struct hw_lab_info *out);
/* Lists the names of up to cap existing labs, complete or not, in no particular order. Returns the number of labs,
 * which may exceed cap. */
int hw_lab_names(char (*out)[HW_LAB_NAME_MAX + 1], size_t cap);

#endif
