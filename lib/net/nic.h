/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's NICs, some of the NICs' properties, and functions for addresses. */
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
    union hw_addr addr; /* with port 0 */
    unsigned prefix;    /* prefix length of the subnet in bits */
    bool loopback;
};

#define HW_NIC_MAX 64

/* Lists the interfaces that are up and have an IP address, with one entry per address, in the kernel's order. Includes
 * IPv4 addresses and, with want_v6, IPv6 addresses except link-local addresses. If there are more than max, NICs with
 * many addresses of one family have fewer entries. Returns the number of entries (at most max) or a negative errno. */
int hw_nics_list(struct hw_nic *out, size_t max, bool want_v6);

/* Returns true if name is in the comma-separated list. */
bool hw_nic_listed(const char *list, const char *name);

/* Returns the number of names in the comma-separated list that no network interface has, and describes the first of
 * them in text, with the interface whose name is nearest. */
size_t hw_nics_missing(const char *list, char *text, size_t cap);

/* Returns true if a is in n's subnet. Returns false if the address families differ. */
bool hw_nic_reaches(const struct hw_nic *n, const union hw_addr *a);

/* Writes the name of the NIC that has fd's local address, or "" if no NIC has this address. */
void hw_nic_of_socket(int fd, char name[HAWSER_NIC_NAME]);

/* Returns true if the NIC has lost its carrier or is administratively down. Returns false if no NIC has this name. fd
 * is any socket of the NIC's network namespace. */
bool hw_nic_is_down(int fd, const char *name);

/* Returns the NIC's speed in Mb/s as reported by the driver, or 0 if there is no link or the speed is not reported
 * (loopback). */
uint64_t hw_nic_mbps(const char *name);

/* Sets *out to the CPUs near the NIC (sysfs local_cpulist) that this thread may use. Fails with -ENOENT if the machine
 * does not report these CPUs (virtual devices), if there are no such CPUs, or if they are all the CPUs that the thread
 * may use, because pinning would then have no advantage. */
int hw_nic_cpus(const char *name, cpu_set_t *out);

/* Writes the address as text, such as "198.18.0.1:20000" or "[fd00::1]:20000", without the port if it is 0. buf should
 * hold HAWSER_ADDR_TEXT + 8 bytes. Returns buf. */
char *hw_addr_text(const union hw_addr *a, char *buf, size_t cap);
socklen_t hw_addr_len(const union hw_addr *a);
uint16_t hw_addr_port(const union hw_addr *a);
void hw_addr_set_port(union hw_addr *a, uint16_t port);
/* Converts an IPv4-mapped IPv6 address to IPv4, so that comparisons work. */
void hw_addr_unmap(union hw_addr *a);
bool hw_addr_same_host(const union hw_addr *a, const union hw_addr *b);
/* Return true for loopback addresses (127/8, ::1). The second function also returns true for lab addresses
 * (198.18.0.0/15, which RFC 2544 reserves for tests; they are not routed on the Internet). */
bool hw_addr_is_loopback(const union hw_addr *a);
bool hw_addr_is_private_ground(const union hw_addr *a);

#endif
