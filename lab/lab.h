/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node lab: a cluster on one machine. Nodes are network namespaces named a, b, c, ..., z, aa, ab, ... with n veth
 * NICs each, eth0 to eth<n-1>; the NICs with the same number are a rail. The fabric defines how they are connected: see
 * enum hw_lab_fabric. A hidden namespace ("switch") has the bridges and the router; in the simplest lab, two nodes with
 * the same number of NICs, a rail is one veth pair, and there is no switch. All NIC addresses are in 198.18.0.0/15 (RFC
 * 2544's range for benchmarks, never routed).
 *
 * Nothing is stored: a lab is what the kernel has. If the caller may (CAP_SYS_ADMIN), its namespaces are kept like
 * those of `ip netns`, in /run/netns as hawser-<lab>-<node>, until hw_lab_down(). Otherwise a process of the caller
 * ("hawser-lab", see holder.c) keeps them inside a user namespace, until hw_lab_down() ends it; only the same user sees
 * such a lab. A name in the abstract socket namespace is the lock of both, and the way to find the second kind.
 */
#ifndef HW_LAB_H
#define HW_LAB_H

#include "sys/rtnl.h"

#include <sys/types.h>

#define HW_LAB_DEFAULT   "lab"
#define HW_LAB_NAME_MAX  32
#define HW_LAB_MIN_NODES 2
#define HW_LAB_MAX_NODES 64 /* a to z, aa to bl */
#define HW_LAB_MAX_NICS  32
#define HW_LAB_PREFIX    12 /* of a NIC's name; shorter than IFNAMSIZ with the number */

/* Address of NIC i of the k-th node (from 0): */
enum hw_lab_fabric {
    HW_LAB_SUBNET, /* 198.18.<i>.<k+1>/24; each rail is a separate network */
    /* 198.18.<i>.<2k+1>/31; a router connects everything; a table for each NIC, by its address (layer 3) */
    HW_LAB_ROUTED,
    /* 198.18.<i>.<k+1>/32; a router for each rail, at 198.18.<i>.254; the default route uses the first NIC */
    HW_LAB_GCP,
    HW_LAB_SHARED, /* 198.18.<i>.<k+1>/16; all NICs on one bridge, no rules */
    /* like SUBNET; and docker0 with 172.17.0.1/16 on every node, cni0 with 198.19.0.<k+1>/24, not connected */
    HW_LAB_BRIDGE,
};

struct hw_lab_spec {
    const char *name; /* letters, digits, '-' and '_', first a letter or digit; NULL: "lab" */
    enum hw_lab_fabric fabric;
    unsigned nodes;                               /* HW_LAB_MIN_NODES to HW_LAB_MAX_NODES */
    unsigned nics;                                /* of each node; 1 to HW_LAB_MAX_NICS */
    unsigned node_nics[HW_LAB_MAX_NODES];         /* of each node, at most nics; 0: nics */
    char prefix[HW_LAB_MAX_NODES][HW_LAB_PREFIX]; /* prefix of its NICs' names; "": "eth" */
    uint32_t mtu;                                 /* 576 to 65535; 0: 1500 */
    uint64_t rate[HW_LAB_MAX_NICS];               /* bits per second, for each rail, both ways; 0: no limit */
    uint32_t delay_us[HW_LAB_MAX_NICS];           /* for each rail: delay of a packet from node to node */
    uint32_t loss_ppm[HW_LAB_MAX_NICS];           /* for each rail: packets lost from node to node, per 1,000,000 */
};

/* Makes a lab, all of it or (on an error) nothing. -EINVAL; -EEXIST: there is a lab of that name, or the rest of a
 * crashed one; -EPERM: neither root's way nor a user namespace is permitted; -EBUSY: another up or down of it is in
 * progress. */
int hw_lab_up(const struct hw_lab_spec *spec);

/* Removes a lab: ends the processes in its nodes (SIGTERM, a second later SIGKILL), then the nodes. Also cleans up
 * after a crash; returns 0 if there is nothing. -EBUSY from inside that lab. */
int hw_lab_down(const char *name);

/* Starts argv (searched for in PATH) in a node, with the right /sys. stdout_fd: its stdout, -1: the caller's. Stdin and
 * stderr are the caller's, the signal mask is empty, descriptors without O_CLOEXEC are inherited. *pid is the command
 * itself, a child of the caller. -ENOENT: no such node or command. */
int hw_lab_spawn(const char *name, const char *node, char *const argv[], int stdout_fd, pid_t *pid);

/* Turns the calling process, which must have one thread, into argv in a node. Returns only on errors: *cannot_run is
 * true if the command and not the lab failed. warn (may be NULL) receives nonfatal faults before the command starts. */
int hw_lab_exec(const char *name, const char *node, char *const argv[], void (*warn)(const char *line),
                bool *cannot_run);

/* Sets a node's NIC up or down, at that node's end. The kernel keeps the address and restores its route on up. */
int hw_lab_link(const char *name, const char *node, unsigned nic, bool up);

/* Sets the rate of a NIC in bits per second, both ways; 0: no limit. */
int hw_lab_rate(const char *name, const char *node, unsigned nic, uint64_t rate);

/* Parses "250mbit", "1.5gbit" (bit, kbit, mbit, gbit, tbit; decimal; case ignored) to bits per second, 64 kbit to 1
 * Tbit; "none" and "" are 0, no limit. -EINVAL echoes the text. */
int hw_lab_parse_rate(const char *text, uint64_t *out);
/* Parses a list of rates into spec->rate: one for all of spec->nics, or one for each. -EINVAL. */
int hw_lab_parse_rates(const char *text, struct hw_lab_spec *spec);
/* Parses "10ms", "250us,1ms" into spec->delay_us, up to 10 s, like rates. -EINVAL. */
int hw_lab_parse_delays(const char *text, struct hw_lab_spec *spec);
/* Parses "0.1%,0%" into spec->loss_ppm, below 100%, to one millionth. -EINVAL. */
int hw_lab_parse_losses(const char *text, struct hw_lab_spec *spec);
/* Parses "4" or "4,3" into spec->nics and spec->node_nics, one for all of spec->nodes or one for each. -EINVAL. */
int hw_lab_parse_nics(const char *text, struct hw_lab_spec *spec);
/* Parses "eth,enp" into spec->prefix, one for all of spec->nodes or one for each; letters. -EINVAL. */
int hw_lab_parse_names(const char *text, struct hw_lab_spec *spec);
/* Parses "subnet", "routed", "gcp", "shared-subnet", "bridge". -EINVAL. */
int hw_lab_parse_fabric(const char *text, enum hw_lab_fabric *out);
/* Writes "1gbit", "1.5gbit", "none", as hw_lab_parse_rate() reads it. Returns buf. */
char *hw_lab_format_rate(uint64_t rate, char *buf, size_t cap);
/* Parses "eth2", "2", or with another prefix "enp2", to 2. -EINVAL. */
int hw_lab_parse_nic(const char *text, unsigned *nic);

struct hw_lab_nic {
    struct hw_rtnl_link link;
    struct in_addr addr; /* 0: none */
    uint64_t rate;       /* of what it sends; bits per second, 0: no limit */
};

struct hw_lab_node {
    char name[8];
    unsigned nics;
    struct hw_lab_nic nic[HW_LAB_MAX_NICS];
};

struct hw_lab_info {
    char name[HW_LAB_NAME_MAX + 1];
    bool user; /* in a user namespace, kept by a process */
    unsigned nodes;
    struct hw_lab_node node[HW_LAB_MAX_NODES];
};

/* Reads the current state of a lab from the kernel. Large: not for the stack. -ENOENT, -EPERM. */
int hw_lab_info(const char *name, struct hw_lab_info *out);
/* Lists the names of existing labs, complete or not; up to cap, unordered. Returns how many there are (may exceed cap),
 * or -errno. */
int hw_lab_names(char (*out)[HW_LAB_NAME_MAX + 1], size_t cap);

#endif
