/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/kernel/port.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>

static int read_range(unsigned *from, unsigned *to)
{
    static const char path[] = "/proc/sys/net/ipv4/ip_local_port_range"; /* also applies to IPv6 */
    FILE *f = fopen(path, "re");
    char line[64] = "", *next;
    bool got = f && fgets(line, sizeof(line), f);
    if (f)
        (void)fclose(f);
    *from = (unsigned)strtoul(line, &next, 10);
    *to = (unsigned)strtoul(next, NULL, 10);
    return got && *to ? 0 : hw_fail(-EIO, "cannot read %s", path);
}

int hd_port_hold(const union hw_addr *local, int *sock)
{
    unsigned from = 0, to = 0, port = hw_addr_port(local);
    char text[HAWSER_ADDR_TEXT + 8];
    int on = 1, off = TCP_REPAIR_OFF_NO_WP;
    *sock = -1;
    int rc = read_range(&from, &to);
    if (rc || port < from || port > to)
        return rc;
    int fd = socket(local->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* In repair mode, which requires CAP_NET_ADMIN, bind() ignores sockets that are already bound to the port
     * (SK_FORCE_REUSE in net/ipv4/inet_connection_sock.c). After repair mode is turned off, the socket does not share
     * the port with later sockets. */
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) < 0 ||
        bind(fd, &local->sa, hw_addr_len(local)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)) < 0) {
        rc = hw_fail(-errno, "cannot reserve the port of the local address %s: %s",
                     hw_addr_text(local, text, sizeof(text)), hw_errno_text(errno));
        hw_close(&fd);
        return rc;
    }
    *sock = fd;
    return 0;
}
