/* SPDX-License-Identifier: Apache-2.0 */
#include "net/nic.h"

#include "base/guess.h"
#include "net/sysfs.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static unsigned prefix_of(const struct sockaddr *mask)
{
    if (!mask)
        return 0;
    const uint8_t *p;
    size_t n;
    if (mask->sa_family == AF_INET) {
        p = (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
        n = 4;
    } else {
        p = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
        n = 16;
    }
    unsigned bits = 0;
    for (size_t i = 0; i < n; i++)
        bits += (unsigned)__builtin_popcount(p[i]);
    return bits;
}

static bool is_same_nic(const struct hw_nic *a, const struct hw_nic *b)
{
    return a->addr.sa.sa_family == b->addr.sa.sa_family && strcmp(a->name, b->name) == 0;
}

/* Makes room for another NIC in a full list: removes the last entry that has an earlier entry with the same NIC and
 * address family. Returns the number of remaining entries, which is n if there is no such entry, or if the other NIC
 * has an entry of this family already. */
static size_t drop_second_address(struct hw_nic *out, size_t n, const struct hw_nic *other)
{
    for (size_t i = 0; i < n; i++)
        if (is_same_nic(&out[i], other))
            return n;
    for (size_t i = n; i-- > 1;)
        for (size_t k = 0; k < i; k++)
            if (is_same_nic(&out[i], &out[k])) {
                memmove(&out[i], &out[i + 1], (n - i - 1) * sizeof(*out));
                return n - 1;
            }
    return n;
}

/* Converts an entry of getifaddrs(). Returns false if the interface is down or if the entry has no usable address. */
static bool read_nic(const struct ifaddrs *i, bool want_v6, struct hw_nic *out)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || strlen(i->ifa_name) >= HAWSER_NIC_NAME)
        return false;
    struct hw_nic nic = {.loopback = i->ifa_flags & IFF_LOOPBACK, .prefix = prefix_of(i->ifa_netmask)};
    if (i->ifa_addr->sa_family == AF_INET)
        memcpy(&nic.addr.in, i->ifa_addr, sizeof(nic.addr.in));
    else if (i->ifa_addr->sa_family == AF_INET6 && want_v6)
        memcpy(&nic.addr.in6, i->ifa_addr, sizeof(nic.addr.in6));
    else
        return false;
    if (nic.addr.sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&nic.addr.in6.sin6_addr))
        return false;
    memcpy(nic.name, i->ifa_name, strlen(i->ifa_name) + 1); /* the length was checked above */
    /* an alias such as "eth0:1" is the same NIC */
    nic.name[strcspn(nic.name, ":")] = 0;
    *out = nic;
    return true;
}

int hw_nics_list(struct hw_nic *out, size_t max, bool want_v6)
{
    struct ifaddrs *list;
    struct hw_nic nic;
    if (getifaddrs(&list) < 0)
        return hw_fail(-errno, "listing network interfaces: %s", strerror(errno));
    size_t n = 0;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!read_nic(i, want_v6, &nic))
            continue;
        if (n == max)
            n = drop_second_address(out, n, &nic);
        if (n < max)
            out[n++] = nic;
    }
    freeifaddrs(list);
    return (int)n;
}

bool hw_nic_listed(const char *list, const char *name)
{
    size_t n = strlen(name), len;
    for (const char *p = list; *p; p += len + (p[len] == ',')) {
        len = strcspn(p, ",");
        if (len == n && memcmp(p, name, n) == 0)
            return true;
    }
    return false;
}

size_t hw_nics_missing(const char *list, char *text, size_t cap)
{
    struct if_nameindex *all = *list ? if_nameindex() : NULL;
    size_t n = 0, len;
    if (!all)
        return 0;
    for (const char *p = list; *p; p += len + (p[len] == ',')) {
        char name[HAWSER_NIC_NAME];
        struct hw_guess g = {.word = name};
        bool found = false;
        len = strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", (int)len, p);
        for (const struct if_nameindex *i = all; i->if_index && len < sizeof name; i++) {
            found |= strcmp(i->if_name, name) == 0;
            hw_guess(&g, i->if_name);
        }
        if (found || len == 0)
            continue;
        if (n++ == 0)
            snprintf(text, cap, "\"%.*s\"%s%s%s", (int)len, p, g.near ? " (did you mean " : "", g.near ? g.near : "",
                     g.near ? "?)" : "");
    }
    if_freenameindex(all);
    return n;
}

static const uint8_t *get_addr_bytes(const union hw_addr *a, size_t *n)
{
    if (a->sa.sa_family == AF_INET) {
        *n = 4;
        return (const uint8_t *)&a->in.sin_addr;
    }
    *n = 16;
    return (const uint8_t *)&a->in6.sin6_addr;
}

bool hw_nic_reaches(const struct hw_nic *n, const union hw_addr *a)
{
    if (n->addr.sa.sa_family != a->sa.sa_family)
        return false;
    size_t len;
    const uint8_t *x = get_addr_bytes(&n->addr, &len), *y = get_addr_bytes(a, &len);
    unsigned bits = HW_MIN(n->prefix, (unsigned)(8 * len));
    if (memcmp(x, y, bits / 8) != 0)
        return false;
    return bits % 8 == 0 || ((x[bits / 8] ^ y[bits / 8]) >> (8 - bits % 8)) == 0;
}

void hw_nic_of_socket(int fd, char name[HAWSER_NIC_NAME])
{
    union hw_addr local;
    struct ifaddrs *list;
    struct hw_nic nic;
    socklen_t len = sizeof(local);
    memset(&local, 0, sizeof(local));
    memset(name, 0, HAWSER_NIC_NAME);
    (void)getsockname(fd, &local.sa, &len);
    hw_addr_unmap(&local);
    if (getifaddrs(&list) < 0)
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (read_nic(i, local.sa.sa_family == AF_INET6, &nic) && hw_addr_same_host(&nic.addr, &local))
            memcpy(name, nic.name, HAWSER_NIC_NAME);
    freeifaddrs(list);
}

bool hw_nic_is_down(int fd, const char *name)
{
    struct ifreq r;
    memset(&r, 0, sizeof(r));
    snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
    return ioctl(fd, SIOCGIFFLAGS, &r) == 0 && (r.ifr_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING);
}

uint64_t hw_nic_mbps(const char *name)
{
    int64_t mbps = 0;
    int root = hw_root_open("/");
    if (root < 0 || hw_root_i64(root, &mbps, "sys/class/net/%s/speed", name) < 0 || mbps < 0) /* -1 means unknown */
        mbps = 0;
    hw_close(&root);
    return (uint64_t)mbps;
}

int hw_nic_cpus(const char *name, cpu_set_t *out)
{
    char text[HW_ATTR_MAX];
    cpu_set_t may, near;
    size_t count;
    int root = hw_root_open("/");
    if (root < 0)
        return -ENOENT;
    int rc = hw_root_text(root, text, sizeof(text), "sys/class/net/%s/device/local_cpulist", name);
    hw_close(&root);
    if (rc < 0 || hw_text_cpulist(text, &near, &count) < 0 || sched_getaffinity(0, sizeof(may), &may) < 0)
        return -ENOENT;
    CPU_AND(out, &near, &may);
    return CPU_COUNT(out) == 0 || CPU_EQUAL(out, &may) ? -ENOENT : 0;
}

char *hw_addr_text(const union hw_addr *a, char *buf, size_t cap)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    bool v6 = a->sa.sa_family == AF_INET6;
    if (v6)
        inet_ntop(AF_INET6, &a->in6.sin6_addr, ip, sizeof(ip));
    else if (a->sa.sa_family == AF_INET)
        inet_ntop(AF_INET, &a->in.sin_addr, ip, sizeof(ip));
    if (hw_addr_port(a))
        snprintf(buf, cap, v6 ? "[%s]:%u" : "%s:%u", ip, hw_addr_port(a));
    else
        snprintf(buf, cap, "%s", ip);
    return buf;
}

socklen_t hw_addr_len(const union hw_addr *a)
{
    return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

uint16_t hw_addr_port(const union hw_addr *a)
{
    if (a->sa.sa_family == AF_INET6)
        return ntohs(a->in6.sin6_port);
    return a->sa.sa_family == AF_INET ? ntohs(a->in.sin_port) : 0;
}

void hw_addr_set_port(union hw_addr *a, uint16_t port)
{
    if (a->sa.sa_family == AF_INET6)
        a->in6.sin6_port = htons(port);
    else
        a->in.sin_port = htons(port);
}

void hw_addr_unmap(union hw_addr *a)
{
    if (a->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
        return;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = a->in6.sin6_port};
    memcpy(&v4.sin_addr, a->in6.sin6_addr.s6_addr + 12, 4);
    memset(a, 0, sizeof(*a));
    a->in = v4;
}

bool hw_addr_same_host(const union hw_addr *a, const union hw_addr *b)
{
    size_t n;
    if (a->sa.sa_family != b->sa.sa_family)
        return false;
    const uint8_t *x = get_addr_bytes(a, &n), *y = get_addr_bytes(b, &n);
    return memcmp(x, y, n) == 0;
}

bool hw_addr_is_loopback(const union hw_addr *a)
{
    if (a->sa.sa_family == AF_INET)
        return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
    return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

bool hw_addr_is_private_ground(const union hw_addr *a)
{
    if (a->sa.sa_family == AF_INET && ntohl(a->in.sin_addr.s_addr) >> 17 == (198u << 24 | 18u << 16) >> 17)
        return true;
    return hw_addr_is_loopback(a);
}
