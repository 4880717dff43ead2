/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's NICs, as far as sockets need to know them. */
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

/* Lists the interfaces that are up and have an IP address (IPv4; IPv6 other than link-local where want_v6), one
 * entry an address, in the kernel's order. Returns the count (at most max) or -errno. */
int hw_nics_list(struct hw_nic *out, size_t max, bool want_v6);

/* Is name in the comma-separated list? */
bool hw_nic_listed(const char *list, const char *name);

/* Is a in n's subnet? False across families. */
bool hw_nic_reaches(const struct hw_nic *n, const union hw_addr *a);

/* The name of the NIC that fd's local address is one of; "" where there is none. */
void hw_nic_of_socket(int fd, char name[HAWSER_NIC_NAME]);

/* Has NIC name, by name, lost its carrier or been set down? fd: any socket of its network namespace. False where it is
 * not known by that name. */
bool hw_nic_is_down(int fd, const char *name);

/* Mb/s of NIC name, as its driver says; 0: it does not (loopback), or has no link. */
uint64_t hw_nic_mbps(const char *name);

/* The CPUs near NIC name (sysfs local_cpulist), cut to those this process may use. -ENOENT where the machine does not
 * say (virtual devices, one NUMA node): then nothing is worth pinning. */
int hw_nic_cpus(const char *name, cpu_set_t *out);

/* "198.18.0.1:20000", "[fd00::1]:20000"; without the port where it is 0. buf of HAWSER_ADDR_TEXT + 8. Returns buf. */
char *hw_addr_text(const union hw_addr *a, char *buf, size_t cap);
socklen_t hw_addr_len(const union hw_addr *a);
uint16_t hw_addr_port(const union hw_addr *a);
void hw_addr_set_port(union hw_addr *a, uint16_t port);
/* IPv4-mapped IPv6 to plain IPv4, so that comparisons work. */
void hw_addr_unmap(union hw_addr *a);
bool hw_addr_same_host(const union hw_addr *a, const union hw_addr *b);
/* Loopback (127/8, ::1) or the lab's own (198.18.0.0/15, RFC 2544: set aside for tests, never routed). */
bool hw_addr_is_loopback(const union hw_addr *a);
bool hw_addr_is_private_ground(const union hw_addr *a);

#endif
