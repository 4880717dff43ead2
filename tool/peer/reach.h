/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The facts that a node reports about itself, and a test whether two nodes' NICs reach each other: connections from
 * each NIC to each address of the other side in the same subnet, and from NICs without a subnet to all. A connection
 * carries a token and then 128 KiB each way; these never arrive if large packets are lost on the path (a hop with a
 * smaller MTU, and ICMP filtered).
 */
#ifndef HW_TOOL_REACH_H
#define HW_TOOL_REACH_H

#include "net/nic.h"
#include "tool/peer/proto.h"

#define REACH_MS 3000 /* all tests together, which run in parallel */

/* Reads this machine's facts below root. Clock and tests are zero. 0 or -errno. */
int reach_facts(int root, struct tp_facts *f);
/* Adds the NICs that containers have, as far as their journals are readable. */
void reach_contained(int root, struct tp_facts *f);
/* Returns nanoseconds since the epoch. */
uint64_t reach_wall_ns(void);

void reach_to_addr(const struct tp_addr *a, union hw_addr *out); /* port 0 */
/* Returns true if both are in the first one's subnet, with different addresses. */
bool reach_same_subnet(const struct tp_fact_nic *n, const struct tp_addr *a);

/* Returns true if the NIC's address has no subnet (/31, /32, /127, /128), so that its peers are reached by routes. */
bool reach_is_rail(const struct tp_fact_nic *n);
/* Returns true if n may reach a: in its subnet or, for a routed rail, by routes. False for addresses that every node
 * has for itself. */
bool reach_may(const struct tp_fact_nic *n, const struct tp_addr *a);

/* The answering side: connects as requested, and sets f's tried, reached and carried. 0 or -errno. */
int reach_try(const struct tp_reach *q, struct tp_facts *f);

/* The asking side: listens for these connections in a thread. q: receives port and token. -errno. */
struct reach_listener;
int reach_listen(uint16_t port, struct tp_reach *q, struct reach_listener **out);
void reach_listen_end(struct reach_listener *l); /* NULL is allowed */

/* Connects from NIC n to (addr, port) and closes: several in parallel, each with its result. */
struct reach_knock {
    const struct tp_fact_nic *from;
    const struct tp_addr *to;
    int result;   /* 0 or -errno */
    uint32_t mtu; /* of the path, as the kernel knows it (IP_MTU); 0: unknown */
};
void reach_knock(struct reach_knock *k, size_t n, uint16_t port, int timeout_ms);

#endif
