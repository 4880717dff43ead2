/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node tells another about itself, and whether their NICs reach each other: connections from each NIC to each
 * address of the other side in the same subnet, and from NICs without one to all. One that stands carries a token and
 * then 128 KiB each way, which where large packets vanish on the path (a hop with a smaller MTU, and ICMP filtered)
 * never arrive.
 */
#ifndef HW_TOOL_REACH_H
#define HW_TOOL_REACH_H

#include "net/nic.h"
#include "tool/peer/proto.h"

#define REACH_MS 3000 /* all tries together, they go at once */

/* This machine's facts, read below root. Clock and tries are zero. 0 or -errno. */
int reach_facts(int root, struct tp_facts *f);
/* Adds the NICs that containers have, as far as their journals may be read. */
void reach_contained(int root, struct tp_facts *f);
/* Nanoseconds since the epoch. */
uint64_t reach_wall_ns(void);

void reach_to_addr(const struct tp_addr *a, union hw_addr *out); /* port 0 */
/* Are both in the first one's subnet, and not the same address? */
bool reach_same_subnet(const struct tp_fact_nic *n, const struct tp_addr *a);

/* Has the NIC's address no subnet of its own (/31, /32, /127, /128), so that its peers are reached by routes? */
bool reach_is_rail(const struct tp_fact_nic *n);
/* May a be reached from n: in its subnet, or, as n is a routed rail, behind routes? Not what every node has for itself.
 */
bool reach_may(const struct tp_fact_nic *n, const struct tp_addr *a);

/* The answering side: connects as asked, fills f's tried, reached and carried. 0 or -errno. */
int reach_try(const struct tp_reach *q, struct tp_facts *f);

/* The asking side: listens for that in a thread. q: gets port and token. -errno. */
struct reach_listener;
int reach_listen(uint16_t port, struct tp_reach *q, struct reach_listener **out);
void reach_listen_end(struct reach_listener *l); /* NULL is allowed */

/* Connects from NIC n to (addr, port) and hangs up: several at once, each with its result. */
struct reach_knock {
    const struct tp_fact_nic *from;
    const struct tp_addr *to;
    int result;   /* 0 or -errno */
    uint32_t mtu; /* of the path as the kernel knows it (IP_MTU); 0: unknown */
};
void reach_knock(struct reach_knock *k, size_t n, uint16_t port, int timeout_ms);

#endif
