/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests two nodes with eight NICs each in one /16, connected to one switch. After a move, each NIC must send ARP
 * packets only for its own address; the test checks the packets on the switch's ports. Without the sysctls, the same
 * check must detect the fault.
 */
#include "sandbox_move.h"

#include <arpa/inet.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#define NICS 8

struct arp {
    struct arphdr head;
    uint8_t sha[6], spa[4], tha[6], tpa[4];
} __attribute__((packed));

struct nic {
    char name[IFNAMSIZ];
    uint8_t mac[6];
    uint32_t addr; /* network order */
};

struct node {
    struct sm_ns box;
    char id[8];
    struct nic nic[NICS];
};
static struct node node[2];

static struct seen {
    int requests, replies; /* of our NICs */
    int lies;              /* packets in which a NIC uses another NIC's address */
    int twice;             /* addresses for which two NICs answered */
    int silent;            /* addresses without an answer */
    unsigned answered[2][NICS];
} seen;

static int wire = -1;

static void open_wire(void *arg)
{
    (void)arg;
    wire = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
    int size = 8 << 20;
    (void)setsockopt(wire, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

static const struct nic *by_addr(const uint8_t addr[4])
{
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < NICS; i++)
            if (memcmp(&node[n].nic[i].addr, addr, 4) == 0)
                return &node[n].nic[i];
    return NULL;
}

static const struct nic *by_mac(const uint8_t mac[6])
{
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < NICS; i++)
            if (memcmp(node[n].nic[i].mac, mac, 6) == 0)
                return &node[n].nic[i];
    return NULL;
}

/* Returns the number of a NIC, from 0 to 15. */
static unsigned number_of(const struct nic *k)
{
    bool second = k >= node[1].nic && k < node[1].nic + NICS;
    return second ? NICS + (unsigned)(k - node[1].nic) : (unsigned)(k - node[0].nic);
}

/* Receives the packets on the switch's ports. */
static void listen_in(void)
{
    struct arp a = {0};
    struct sockaddr_ll from = {0};
    socklen_t len = sizeof(from);
    while (recvfrom(wire, &a, sizeof(a), 0, (struct sockaddr *)&from, &len) >= 0) {
        /* Skips packets that a port sends or that the bridge passes to itself: they were seen when they arrived. */
        bool came = from.sll_protocol == htons(ETH_P_ARP) && from.sll_pkttype != PACKET_OUTGOING &&
                    from.sll_ifindex != sm_index(&sm_peer, "br0");
        const struct nic *mac = came ? by_mac(a.sha) : NULL, *addr = came ? by_addr(a.spa) : NULL;
        len = sizeof(from);
        if (!mac || !addr)
            continue;
        if (a.head.ar_op == htons(ARPOP_REPLY)) {
            seen.replies++;
            for (int n = 0; n < 2; n++)
                for (int i = 0; i < NICS; i++)
                    if (addr == &node[n].nic[i])
                        seen.answered[n][i] |= 1u << number_of(mac);
        } else {
            seen.requests++;
        }
        seen.lies += mac != addr;
    }
}

/* Sends a datagram from each NIC's address to each address of the other node. Nothing listens there, so the other node
 * returns an ICMP error, and therefore also sends ARP requests. */
struct talk {
    const struct node *from, *to;
};

static void talk_in(void *arg)
{
    const struct talk *t = arg;
    for (int i = 0; i < NICS; i++) {
        for (int k = 0; k < NICS; k++) {
            struct sockaddr_in me = {.sin_family = AF_INET, .sin_addr.s_addr = t->from->nic[i].addr};
            struct sockaddr_in you = {
                .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = t->to->nic[k].addr};
            int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
            if (bind(s, (struct sockaddr *)&me, sizeof(me)) == 0)
                (void)!sendto(s, "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&you, sizeof(you));
            close(s);
        }
    }
}

/* Sends an ARP request for each address from the switch, by broadcast on all ports. */
static void ask_in(void *arg)
{
    (void)arg;
    static const uint8_t us[6] = {0x02, 0, 0, 0, 0, 0x64};
    int br = sm_index(&sm_peer, "br0");
    for (int n = 0; n < 2; n++) {
        for (int i = 0; i < NICS; i++) {
            struct arp a = {.head = {htons(ARPHRD_ETHER), htons(ETH_P_IP), 6, 4, htons(ARPOP_REQUEST)}};
            struct sockaddr_ll to = {.sll_family = AF_PACKET,
                                     .sll_protocol = htons(ETH_P_ARP),
                                     .sll_ifindex = br,
                                     .sll_halen = 6,
                                     .sll_addr = {255, 255, 255, 255, 255, 255}};
            uint32_t me = inet_addr("10.9.200.100");
            memcpy(a.sha, us, 6);
            memcpy(a.spa, &me, 4);
            memcpy(a.tpa, &node[n].nic[i].addr, 4);
            (void)!sendto(wire, &a, sizeof(a), 0, (struct sockaddr *)&to, sizeof(to));
        }
    }
}

static void make(struct node *d, int n)
{
    snprintf(d->id, sizeof(d->id), "node%d", n);
    sm_ns_make(&d->box);
    for (int i = 0; i < NICS; i++) {
        struct nic *k = &d->nic[i];
        char addr[32];
        struct hw_rtnl_link l;
        snprintf(k->name, sizeof(k->name), "%c%d", 'a' + n, i);
        /* The last two NICs of each node are macvlan devices on one veth device. */
        if (i < NICS - 2) {
            sm_nic(k->name);
        } else {
            char low[8];
            snprintf(low, sizeof(low), "low%d", n);
            if (!sm_index(&sm_host, low))
                sm_nic(low);
            sm_macvlan(k->name, low);
        }
        snprintf(addr, sizeof(addr), "10.9.%d.%d/16", n, i + 1);
        sm_addr(&sm_host, k->name, addr);
        *strchr(addr, '/') = 0;
        k->addr = inet_addr(addr);
        if (hw_rtnl_link_get(&sm_host.rt, k->name, &l) == 0)
            memcpy(k->mac, l.mac, 6);
    }
}

static int move(struct node *d, bool no_arp)
{
    struct sb_nic nic[NICS];
    for (int i = 0; i < NICS; i++)
        nic[i] = (struct sb_nic){d->nic[i].name, NULL};
    struct sb_move_options o = {.id = d->id,
                                .netns = d->box.path,
                                .nic = nic,
                                .n = NICS,
                                .journal_dir = sm_dir,
                                .no_arp = no_arp,
                                .log = &sm_log};
    int rc = sb_move(&o);
    if (rc < 0)
        diag("%s", hw_error());
    return rc;
}

/* Moves both nodes' NICs, exchanges packets, checks the packets, and restores the NICs. */
static void round_trip(bool no_arp)
{
    uint64_t deadline = hw_deadline(20000);
    memset(&seen, 0, sizeof(seen));
    ok(move(&node[0], no_arp) == 0 && move(&node[1], no_arp) == 0, "two nodes with eight NICs each%s",
       no_arp ? ", ARP as it was" : "");
    listen_in();
    memset(&seen, 0, sizeof(seen));
    struct talk ab = {&node[0], &node[1]}, ba = {&node[1], &node[0]};
    do {
        sm_in(&sm_peer, ask_in, NULL);
        sm_in(&node[0].box, talk_in, &ab);
        sm_in(&node[1].box, talk_in, &ba);
        for (int i = 0; i < 10; i++) {
            (void)poll(NULL, 0, 20);
            listen_in();
        }
        seen.silent = seen.twice = 0;
        for (int n = 0; n < 2; n++)
            for (int i = 0; i < NICS; i++) {
                seen.silent += seen.answered[n][i] == 0;
                seen.twice += (seen.answered[n][i] & (seen.answered[n][i] - 1)) != 0;
            }
    } while (seen.silent && hw_now() < deadline); /* carrier changes take time */
    diag("%d requests and %d replies, %d for another's address; %d addresses with two answers, %d with none",
         seen.requests, seen.replies, seen.lies, seen.twice, seen.silent);
    for (int n = 0; n < 2; n++) {
        struct sb_restore_options r = {.id = node[n].id, .journal_dir = sm_dir, .log = &sm_log};
        ok(sb_restore(&r, NULL) == 0, "restored");
    }
}

int main(void)
{
    sm_start();
    sm_in(&sm_peer, open_wire, NULL);
    if (wire < 0)
        tap_skip_all("no packet sockets here: %s", strerror(errno));
    make(&node[0], 0);
    make(&node[1], 1);
    round_trip(false);
    is_int(seen.silent, 0, "each of the sixteen addresses is answered for");
    is_int(seen.twice, 0, "by one NIC only");
    is_int(seen.lies, 0, "its own: no NIC asks or answers with another's address");
    ok(seen.requests > 0 && seen.replies >= 2 * NICS, "there was traffic to see that by");
    round_trip(true);
    ok(seen.twice > 0 && seen.lies > 0, "without the sysctls the NICs answer for each other");
    close(wire);
    sm_ns_drop(&node[0].box);
    sm_ns_drop(&node[1].box);
    sm_end();
    return tap_done();
}
