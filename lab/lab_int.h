/* SPDX-License-Identifier: Apache-2.0 */
/* Internal definitions of the lab: its namespaces, their network, and the two ways to keep the namespaces. */
#ifndef HW_LAB_INT_H
#define HW_LAB_INT_H

#include "lab/lab.h"
#include "sys/netns.h"

#define LAB_SWITCH "switch" /* node name of the namespace with the bridges and the router */

struct lab_ns {
    int ns; /* -1 if there is none */
    struct hw_netlink rt;
};

/* An open lab. node[0] to node[nodes - 1] are nodes a, b and so on. sw.ns is -1 if lab_has_switch() is false. */
struct lab {
    int user; /* the lab's user namespace, or -1 if it is the caller's */
    unsigned nodes;
    struct lab_ns node[HW_LAB_MAX_NODES];
    struct lab_ns sw;
};

void lab_init(struct lab *l);
void lab_close(struct lab *l);

/* Convert between node numbers and the names "a" to "z" and "aa" to "bl". lab_node_name() returns name.
 * lab_parse_node() returns true if text is such a name. */
#define LAB_NODE_NAME 8
char *lab_node_name(unsigned node, char name[LAB_NODE_NAME]);
bool lab_parse_node(const char *text, unsigned *node);

/* Writes hawser-<lab>-<node>. Node HW_LAB_MAX_NODES is the switch. */
void lab_ns_name(const char *lab, unsigned node, char *out, size_t cap);

/* Opens a lab and finds one of its nodes. If *name is NULL, it becomes the default name. The caller must close the lab
 * only if this succeeds. */
int lab_open_node(const char **name, const char *node, struct lab *l, unsigned *k);

/* ---- fabric.c: the network of a spec ----------------------------------------------------------- */

/* The links of a NIC: the NIC itself, its port in the switch and, if a relay connects them, the relay's two links. */
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
/* Sets the rate at one end of a link, and derives the burst and the limit from the rate. */
int lab_set_rate(struct hw_netlink *rt, int index, uint64_t rate);

/* ---- relay.c: delay and loss ------------------------------------------------------------------ */

/* Starts the process that carries packets between the links of relayed NICs in the switch. The process exits when these
 * links have been deleted or, if child is set, when the caller exits. Returns 0 once packets can pass, or -errno. */
int lab_relay_start(const struct lab *l, const struct hw_lab_spec *spec, bool child);

/* ---- holder.c: the lock, and labs kept by a process ------------------------------------------- */

/* Locks the lab's name with *fd until *fd is closed or the process exits. Fails with -EBUSY if the name is locked. */
int holder_lock(const char *name, int *fd);
/* Detaches the process from its terminal, sets the process name to title, redirects stdin, stdout and stderr to
 * /dev/null, ignores SIGHUP and SIGPIPE, and resets other signals to their defaults. Closes all other file descriptors
 * (such as a pipe that a reader waits on) except the n in fd, which are renumbered. */
int holder_detach(const char *title, int *fd, unsigned n);
/* The result that a child process reports to its parent over a pipe. */
struct holder_verdict {
    int rc;
    char text[HW_ERR_TEXT];
};
/* Reads the result from fd, the other end of the pipe. Returns 0 or -errno. `what` names the process in the error if
 * there is no result. */
int holder_verdict_read(int fd, const char *what);
/* Starts the process that builds and keeps a lab, and passes lock to that process. Returns 0 once the lab is up, or
 * -errno. */
int holder_start(const struct hw_lab_spec *spec, int lock);
/* Opens a lab with the descriptors that its process sends. Fails with -ENOENT if no such process is listening. */
int holder_open(const char *name, struct lab *l);
/* Ends a lab's process and waits for its exit. Fails with -ENOENT if there is no such process, with -EAGAIN if an up or
 * down is in progress, or with another -errno. */
int holder_end(const char *name);
/* Like hw_lab_names(), but for labs that processes of this user keep. Appends to the n names in out. Returns the
 * total. */
int holder_names(char (*out)[HW_LAB_NAME_MAX + 1], size_t cap, size_t n);

#endif
