/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the lab: a lab as its namespaces, and the two ways to keep those. */
#ifndef HW_LAB_INT_H
#define HW_LAB_INT_H

#include "lab/lab.h"
#include "lab/netns.h"

#define LAB_SWITCH "switch" /* the node name of the namespace with the bridges */

struct lab_ns {
    int ns; /* -1: there is none */
    struct hw_rtnl rt;
};

/* An open lab. node[0..nodes) are a, b, ...; sw.ns is -1 in a lab of two nodes. */
struct lab {
    int user; /* its user namespace; -1: the caller's own */
    unsigned nodes;
    struct lab_ns node[HW_LAB_MAX_NODES];
    struct lab_ns sw;
};

void lab_init(struct lab *l);
void lab_close(struct lab *l);

/* hawser-<lab>-<node>; node HW_LAB_MAX_NODES is the switch. */
void lab_ns_name(const char *lab, unsigned node, char *out, size_t cap);

/* Opens a lab (*name NULL: the default, which *name becomes) and finds a node of it. To be closed only on success. */
int lab_open_node(const char **name, const char *node, struct lab *l, unsigned *k);

/* Wires up namespaces that are there: veth pairs, bridges, addresses, rates. */
int lab_build(struct lab *l, const struct hw_lab_spec *spec);
/* The rate at one end of a link: burst and limit follow from it. */
int lab_set_rate(struct hw_rtnl *rt, int index, uint64_t rate);

/* ---- holder.c: the lock, and labs kept by a process ------------------------------------------- */

/* Takes the lab's name: *fd, until closed or the process is gone. -EBUSY where another process has it. */
int holder_lock(const char *name, int *fd);
/* Starts the process that builds and keeps a lab; lock becomes its. Returns once the lab stands, or not (-errno). */
int holder_start(const struct hw_lab_spec *spec, int lock);
/* Asks a lab's process for it. -ENOENT where there is none. */
int holder_open(const char *name, struct lab *l);
/* Ends a lab's process and waits for that. -ENOENT where there is none; -EAGAIN where an up or down is under way. */
int holder_end(const char *name);
/* As hw_lab_names(), of labs kept by a process of this user's. Appends to the n that are there; returns the sum. */
int holder_names(char (*out)[HW_LAB_NAME_MAX + 1], size_t cap, size_t n);

#endif
