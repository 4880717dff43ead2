/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void must(int rc, const char *what)
{
    if (rc >= 0)
        return;
    perror(what);
    abort();
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd, path);
    must((int)write(fd, text, strlen(text)), path);
    close(fd);
}

void net_ports(unsigned from, unsigned to)
{
    char text[32];
    snprintf(text, sizeof(text), "%u %u", from, to);
    write_file("/proc/sys/net/ipv4/ip_local_port_range", text);
}

static void add_address(int sock, const char *name, const char *address)
{
    struct ifreq r = {0};
    struct sockaddr_in *a = (struct sockaddr_in *)(void *)&r.ifr_addr;
    snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
    a->sin_family = AF_INET;
    must(inet_pton(AF_INET, address, &a->sin_addr) - 1, address);
    must(ioctl(sock, SIOCSIFADDR, &r), "SIOCSIFADDR");
    r.ifr_flags = IFF_UP;
    must(ioctl(sock, SIOCSIFFLAGS, &r), "SIOCSIFFLAGS");
}

bool net_make(void)
{
    if (unshare(CLONE_NEWNET) < 0)
        return false;
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    must(ioctl(s, SIOCSIFFLAGS, &r), "lo up");
    add_address(s, "lo:1", "10.9.0.1");
    add_address(s, "lo:2", "10.9.0.2");
    close(s);
    return true;
}

union hw_addr net_address(const char *text, unsigned port, int v6)
{
    char mapped[64];
    union hw_addr a = {0};
    a.sa.sa_family = v6 ? AF_INET6 : AF_INET;
    snprintf(mapped, sizeof(mapped), "%s%s", v6 ? "::ffff:" : "", text);
    must(inet_pton(a.sa.sa_family, mapped, v6 ? (void *)&a.in6.sin6_addr : &a.in.sin_addr) - 1, mapped);
    hw_addr_set_port(&a, (uint16_t)port);
    return a;
}

int net_server(void)
{
    union hw_addr a = net_address("10.9.0.2", 9999, 0);
    int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), "SO_REUSEADDR");
    must(bind(l, &a.sa, hw_addr_len(&a)), "bind");
    must(listen(l, 1000), "listen");
    return l;
}

void net_reset(int *fd)
{
    struct linger now = {.l_onoff = 1};
    must(setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), "SO_LINGER");
    hw_close(fd);
}

void net_dissolve(int fd)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    must(connect(fd, &none, sizeof(none)), "AF_UNSPEC");
}
