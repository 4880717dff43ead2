/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's NICs, as far as sockets need them. */
#ifndef HW_NIC_H
#define HW_NIC_H

#include "base/base.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

union hw_addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

struct hw_nic {
    char name[HAWSER_NIC_NAME];
    union hw_addr addr; /* port 0 */
    unsigned prefix;    /* bits of the subnet */
    bool loopback;
};

#define HW_NIC_MAX 64

/* Lists the interfaces that are up and have an IP address (IPv4; with want_v6 also IPv6 other than link-local), one
 * entry per address, in the kernel's order. Returns the count (at most max) or -errno. */
int hw_nics_list(struct hw_nic *out, size_t max, bool want_v6);

/* Returns true if name is in the comma-separated list. */
bool hw_nic_listed(const char *list, const char *name);

/* Returns true if a is in n's subnet; false across address families. */
bool hw_nic_reaches(const struct hw_nic *n, const union hw_addr *a);

/* Writes the name of the NIC that has fd's local address; "" if there is none. */
void hw_nic_of_socket(int fd, char name[HAWSER_NIC_NAME]);

/* Returns true if the NIC has lost its carrier or is set down; false also if there is no NIC of that name. fd: any
 * socket of its network namespace. */
bool hw_nic_is_down(int fd, const char *name);

/* Returns the speed of the NIC in Mb/s, as its driver reports it; 0: not reported (loopback), or no link. */
uint64_t hw_nic_mbps(const char *name);

/* Returns the CPUs near the NIC (sysfs local_cpulist) that this process may use. -ENOENT if the machine does not report
 * them (virtual devices, one NUMA node): pinning gains nothing then. */
int hw_nic_cpus(const char *name, cpu_set_t *out);

/* Writes "198.18.0.1:20000", "[fd00::1]:20000"; without the port if it is 0. buf holds HAWSER_ADDR_TEXT + 8 bytes.
 * Returns buf. */
char *hw_addr_text(const union hw_addr *a, char *buf, size_t cap);
socklen_t hw_addr_len(const union hw_addr *a);
uint16_t hw_addr_port(const union hw_addr *a);
void hw_addr_set_port(union hw_addr *a, uint16_t port);
/* Turns an IPv4-mapped IPv6 address into IPv4, so that comparisons work. */
void hw_addr_unmap(union hw_addr *a);
bool hw_addr_same_host(const union hw_addr *a, const union hw_addr *b);
/* Loopback (127/8, ::1), and the lab's addresses (198.18.0.0/15, RFC 2544: reserved for tests, never routed). */
bool hw_addr_is_loopback(const union hw_addr *a);
bool hw_addr_is_private_ground(const union hw_addr *a);

#endif
