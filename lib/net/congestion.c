/* SPDX-License-Identifier: Apache-2.0 */
#include "net/congestion.h"

#include "net/nic.h"

#include <linux/tcp.h> /* defines tcpi_min_rtt in struct tcp_info; glibc's copy is older */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Round trips are usually much shorter than this within a site, and longer over a wide area network. */
#define NEAR_US 2000u

static bool set_congestion(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

/* Returns true if fd uses, or would use, BBR. */
static bool is_bbr(int fd)
{
    char now[16] = "";
    socklen_t len = sizeof(now) - 1;
    return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &len) == 0 && strncmp(now, "bbr", 3) == 0;
}

/* Returns true if addr is in a subnet of a local NIC. */
static bool on_link(const union hw_addr *addr)
{
    struct hw_nic nics[HW_NIC_MAX];
    int n = hw_nics_list(nics, HW_NIC_MAX, addr->sa.sa_family == AF_INET6);
    for (int i = 0; i < n; i++)
        if (hw_nic_reaches(&nics[i], addr))
            return true;
    return false;
}

/* Comparing subnets is not sufficient, because on Google's cloud and in layer-3 fabrics no two NICs share a subnet.
 * Round trips are short in both environments. */
bool hw_path_is_near(int fd)
{
    union hw_addr peer;
    struct tcp_info i;
    socklen_t len = sizeof(i);
    memset(&i, 0, sizeof(i));
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len) == 0 && i.tcpi_rtt &&
        HW_MIN(i.tcpi_rtt, i.tcpi_min_rtt) < NEAR_US)
        return true;
    memset(&peer, 0, sizeof(peer));
    len = sizeof(peer);
    if (getpeername(fd, &peer.sa, &len) < 0)
        return true;
    hw_addr_unmap(&peer);
    return on_link(&peer);
}

/*
 * If knob congestion is auto, replaces BBR with cubic or reno. Without an fq qdisc, BBR paces every burst with a timer
 * (net/ipv4/tcp_output.c, tcp_pacing_check), and these timers waste a lot of CPU time (docs/performance.md). BBR is
 * meant for long paths; within a site the classic algorithms perform as well.
 *
 * BBR must never have run on the socket, because once BBR has requested pacing, no other algorithm turns pacing off
 * (net/ipv4/tcp_bbr.c, bbr_init, sk_pacing_status). This function must therefore be called before connect() and, for
 * accepted sockets, on the listener. hw_congestion_settle() restores the system's BBR on a connection to another site.
 */
void hw_congestion_choose(int fd, const struct hw_knobs *k)
{
    if (strcmp(k->congestion, "system") == 0)
        return;
    if (strcmp(k->congestion, "auto") != 0)
        /* if the algorithm does not exist or is not permitted, the system's default remains */
        (void)set_congestion(fd, k->congestion);
    else if (is_bbr(fd) && !set_congestion(fd, "cubic"))
        (void)set_congestion(fd, "reno"); /* always available, and by default permitted for every user */
}

void hw_congestion_settle(int fd, bool near, const struct hw_knobs *k)
{
    if (near || strcmp(k->congestion, "auto") != 0)
        return;
    int plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* a new socket uses the system's default */
    if (plain >= 0 && is_bbr(plain))
        (void)set_congestion(fd, "bbr");
    hw_close(&plain);
}
