/* SPDX-License-Identifier: Apache-2.0 */
/* Private definitions of the lab: its namespaces, their network, and the two ways to keep them. */
#ifndef HW_LAB_INT_H
#define HW_LAB_INT_H

#include "lab/lab.h"
#include "sys/netns.h"

#define LAB_SWITCH "switch" /* the node name of the namespace with bridges and router */

struct lab_ns {
    int ns; /* -1: there is none */
    struct hw_netlink rt;
};

/* An open lab. node[0..nodes) are a, b, ...; sw.ns is -1 if lab_has_switch() is false. */
struct lab {
    int user; /* its user namespace; -1: the caller's */
    unsigned nodes;
    struct lab_ns node[HW_LAB_MAX_NODES];
    struct lab_ns sw;
};

void lab_init(struct lab *l);
void lab_close(struct lab *l);

/* "a" to "z", "aa" to "bl". lab_node_name() returns name; lab_parse_node() returns whether text is such a name. */
#define LAB_NODE_NAME 8
char *lab_node_name(unsigned node, char name[LAB_NODE_NAME]);
bool lab_parse_node(const char *text, unsigned *node);

/* hawser-<lab>-<node>; node HW_LAB_MAX_NODES is the switch. */
void lab_ns_name(const char *lab, unsigned node, char *out, size_t cap);

/* Opens a lab (*name NULL: the default, which *name becomes) and finds one of its nodes. The caller closes it only on
 * success. */
int lab_open_node(const char **name, const char *node, struct lab *l, unsigned *k);

/* ---- fabric.c: the network of a spec ----------------------------------------------------------- */

/* The links of a NIC: the NIC, its port in the switch, and with a relay in between its two ends. */
enum lab_end { LAB_END_NODE, LAB_END_PORT, LAB_END_NEAR, LAB_END_FAR };

int lab_index(unsigned node, unsigned nic, enum lab_end end);
unsigned lab_prefix(enum hw_lab_fabric f);
unsigned lab_nics_of(const struct hw_lab_spec *spec, unsigned node);
void lab_nic_name(const struct hw_lab_spec *spec, unsigned node, unsigned nic, char out[IFNAMSIZ]);
bool lab_has_switch(const struct hw_lab_spec *spec);
bool lab_has_relay(const struct hw_lab_spec *spec);
bool lab_is_relayed(const struct hw_lab_spec *spec, unsigned nic);
/* Builds the network of existing namespaces: links, addresses, routes, rates. */
int lab_build(struct lab *l, const struct hw_lab_spec *spec);
/* Sets the rate at one end of a link; burst and limit are derived. */
int lab_set_rate(struct hw_netlink *rt, int index, uint64_t rate);

/* ---- relay.c: delay and loss ------------------------------------------------------------------ */

/* Starts the process that carries packets between the ends of relayed NICs, in the switch: it ends with their links, or
 * (child) with the caller. Returns once packets pass, or -errno. */
int lab_relay_start(const struct lab *l, const struct hw_lab_spec *spec, bool child);

/* ---- holder.c: the lock, and labs kept by a process ------------------------------------------- */

/* Takes the lab's name: *fd, until it is closed or the process ends. -EBUSY if another process holds it. */
int holder_lock(const char *name, int *fd);
/* Detaches the process: no terminal, no inherited descriptors (a pipe that a reader waits on, for example) except the n
 * in fd, which are renumbered, default signals. title: its name. */
int holder_detach(const char *title, int *fd, unsigned n);
/* The result that a started process reports to its starter over a pipe. */
struct holder_verdict {
    int rc;
    char text[HW_ERR_TEXT];
};
/* Reads the result from the other end of fd: 0 or -errno. what: for the error if there is none. */
int holder_verdict_read(int fd, const char *what);
/* Starts the process that builds and keeps a lab, and passes lock to it. Returns once the lab is up, or -errno. */
int holder_start(const struct hw_lab_spec *spec, int lock);
/* Gets a lab from its process. -ENOENT: there is none. */
int holder_open(const char *name, struct lab *l);
/* Ends a lab's process and waits for that. -ENOENT: there is none; -EAGAIN: an up or down is in progress. */
int holder_end(const char *name);
/* Like hw_lab_names(), for labs kept by a process of this user. Appends to the n present ones; returns the sum. */
int holder_names(char (*out)[HW_LAB_NAME_MAX + 1], size_t cap, size_t n);

#endif
