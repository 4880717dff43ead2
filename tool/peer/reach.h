/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the facts that a node reports about itself, and tests whether the NICs of two nodes reach each other. The
 * test connects from each NIC to each address of the other node in the same subnet, and from NICs without a subnet to
 * the addresses that routes may reach. A connection carries a token and then 128 KiB in each direction. The 128 KiB
 * never arrive if the path loses large packets, for example at a hop with a smaller MTU whose ICMP messages are
 * filtered.
 */
#ifndef HW_TOOL_REACH_H
#define HW_TOOL_REACH_H

#include "net/nic.h"
#include "tool/peer/proto.h"

#define REACH_MS 3000 /* ms for all tests of one direction, which run in parallel */

/* Reads this machine's facts; root is the folder of sys and proc (see hw_root_open()). Leaves the clocks, the number of
 * GPUs and the test results zero. Returns 0 or a negative errno. */
int reach_facts(int root, struct tp_facts *f);
/* Adds the NICs that containers have, if the sandbox's journals are readable. */
void reach_contained(int root, struct tp_facts *f);
/* Returns nanoseconds since the epoch. */
uint64_t reach_wall_ns(void);

void reach_to_addr(const struct tp_addr *a, union hw_addr *out); /* sets the port to 0 */
/* Returns true if a is another address in the subnet of n. */
bool reach_same_subnet(const struct tp_fact_nic *n, const struct tp_addr *a);

/* Returns true if the NIC's address has no subnet (/31, /32, /127, /128), so that its peers are reached only by
 * routes. */
bool reach_is_rail(const struct tp_fact_nic *n);
/* Returns true if n may reach a: in the same subnet or, for a routed rail, by routes. Special addresses, such as
 * loopback, link-local and multicast addresses, do not count as reached by routes. */
bool reach_may(const struct tp_fact_nic *n, const struct tp_addr *a);

/* Runs on the serving node: connects as q requests, and sets tried, reached and carried of f. Returns 0 or a
 * negative errno. */
int reach_try(const struct tp_reach *q, struct tp_facts *f);

/* Runs on the client: listens in a thread for the connections that reach_try() makes. q receives the port and token.
 * Returns 0 or a negative errno. */
struct reach_listener;
int reach_listen(uint16_t port, struct tp_reach *q, struct reach_listener **out);
void reach_listen_end(struct reach_listener *l); /* l may be NULL */

/* Connects from NICs to addresses at this port, in parallel, and closes the connections. Each entry receives its
 * result. */
struct reach_knock {
    const struct tp_fact_nic *from;
    const struct tp_addr *to;
    int result;   /* 0 or a negative errno */
    uint32_t mtu; /* path MTU that the kernel reports (IP_MTU); 0 if unknown */
};
void reach_knock(struct reach_knock *k, size_t n, uint16_t port, int timeout_ms);

#endif
