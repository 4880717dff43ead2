/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements delay and loss for kernels without netem. A process in the lab's switch forwards packets between two
 * links, the veth peer of a node's NIC ("a0n") and the veth peer of its port ("a0r"), with a packet socket on each
 * link. Packets from the node pass at once. Packets to the node wait for the rail's delay or are lost, so a packet from
 * node to node is delayed only once. All packets of a rail wait for the same time, so each rail has one queue, ordered
 * by arrival.
 *
 * Packets carry a virtio_net_hdr (PACKET_VNET_HDR), which preserves offloaded segmentation and checksums. The process
 * exits when all its links have been deleted; the kernel deletes links together with their nodes.
 */
#include "lab/lab_int.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUEUE_MAX  (64u << 20) /* limit for the queued bytes of a rail: about 50 ms at 10 Gbit/s */
#define PACKET_MAX (sizeof(struct virtio_net_hdr) + ETH_HLEN + 4 + 65536)
#define LOOK_MS    2000 /* ms without a packet after which the process checks whether its links exist */
#define BATCH      64   /* packets from one link before other links are served */

struct packet {
    struct packet *next;
    uint64_t due;
    struct end *to;
    size_t len;
    uint8_t data[];
};

struct rail {
    uint64_t delay; /* time from node to node, ns */
    uint32_t loss;  /* probability of a loss, times 2^32 */
    size_t bytes;
    struct packet *first, **last;
};

struct end {
    int fd, index;
    struct end *to;    /* the end to which packets are forwarded */
    struct rail *rail; /* delay and loss of packets from this end; NULL to send at once */
};

struct relay {
    struct rail rail[HW_LAB_MAX_NICS];
    struct end *end; /* two for each relayed NIC */
    unsigned n, alive;
    int poll, timer;
    uint64_t random;
    uint8_t buf[PACKET_MAX];
};

/* Vigna's xorshift64*. Runs with the same packets in the same order have the same losses. */
static uint32_t draw_random(struct relay *r)
{
    r->random ^= r->random >> 12;
    r->random ^= r->random << 25;
    r->random ^= r->random >> 27;
    return (uint32_t)(r->random * 0x2545f4914f6cdd1dull >> 32);
}

static int open_end(struct relay *r, struct end *e)
{
    int one = 1, room = 8 << 20;
    struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = e->index};
    /* protocol 0 receives nothing before bind() */
    e->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (e->fd < 0)
        return hw_fail(-errno, "creating a packet socket for delay and loss: %s", strerror(errno));
    if (setsockopt(e->fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) < 0)
        (void)setsockopt(e->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = e};
    if (setsockopt(e->fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) < 0 ||
        setsockopt(e->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) < 0 ||
        bind(e->fd, (struct sockaddr *)&a, sizeof(a)) < 0 || epoll_ctl(r->poll, EPOLL_CTL_ADD, e->fd, &ev) < 0)
        return hw_fail(-errno, "setting up a packet socket for delay and loss: %s", strerror(errno));
    r->alive++;
    return 0;
}

static int open_relay(struct relay *r, const struct lab *l, const struct hw_lab_spec *spec)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    r->random = 0x9e3779b97f4a7c15ull;
    r->end = calloc(2 * (size_t)spec->nodes * spec->nics, sizeof(*r->end));
    r->poll = epoll_create1(EPOLL_CLOEXEC);
    r->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event ev = {.events = EPOLLIN};
    if (!r->end)
        return hw_no_memory("the relay that adds delay and loss");
    if (r->poll < 0 || r->timer < 0 || epoll_ctl(r->poll, EPOLL_CTL_ADD, r->timer, &ev) < 0)
        return hw_fail(-errno, "creating a timer for delay and loss: %s", strerror(errno));
    if (setns(l->sw.ns, CLONE_NEWNET) < 0)
        return hw_fail(-errno, "entering the switch's namespace: %s", strerror(errno));
    for (unsigned nic = 0; nic < spec->nics; nic++) {
        struct rail *rail = &r->rail[nic];
        rail->delay = spec->delay_us[nic] * 1000ull;
        rail->loss = (uint32_t)(((uint64_t)spec->loss_ppm[nic] << 32) / 1000000);
        rail->last = &rail->first;
        for (unsigned k = 0; k < spec->nodes && lab_is_relayed(spec, nic); k++) {
            if (nic >= lab_nics_of(spec, k))
                continue;
            struct end *near = &r->end[r->n++], *far = &r->end[r->n++];
            *near = (struct end){.index = lab_index(k, nic, LAB_END_NEAR), .to = far};
            *far = (struct end){.index = lab_index(k, nic, LAB_END_FAR), .to = near, .rail = rail};
            int rc = open_end(r, near);
            if (rc < 0 || (rc = open_end(r, far)) < 0)
                return rc;
        }
    }
    return 0;
}

/* Closes an end whose link has been deleted, together with the other end of the pair. */
static void close_if_gone(struct relay *r, struct end *e)
{
    struct ifreq q = {.ifr_ifindex = e->index};
    if (e->fd < 0 || ioctl(e->fd, SIOCGIFNAME, &q) == 0)
        return;
    hw_close(&e->fd);
    hw_close(&e->to->fd);
    r->alive -= 2;
}

/* Sends a packet. The packet is lost, as on a wire, if the kernel's queue is full or the link is down. */
static void send_packet(const struct end *to, const void *data, size_t len)
{
    if (to->fd >= 0)
        (void)!send(to->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static uint32_t add_words(const uint8_t *at, size_t len)
{
    uint32_t sum = 0;
    for (size_t i = 0; i + 1 < len; i += 2)
        sum += (uint32_t)at[i] << 8 | at[i + 1];
    return sum;
}

static uint16_t fold_sum(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)(sum + (sum >> 16));
}

static void put_word(uint8_t *at, uint32_t v)
{
    at[0] = (uint8_t)(v >> 8);
    at[1] = (uint8_t)v;
}

/*
 * Determines at random how many of the segments into which a large packet would be split on the wire are lost, and cuts
 * this number of segments from the packet's end. A packet that is not a segmented IPv4 TCP packet, or that has FIN, is
 * lost or sent as a whole. Returns the remaining length, or 0 if nothing remains.
 */
static size_t cut_segments(struct relay *r, const struct rail *rail, size_t len)
{
    struct virtio_net_hdr v;
    memcpy(&v, r->buf, sizeof(v));
    uint8_t *ip = r->buf + sizeof(v) + ETH_HLEN;
    size_t head = sizeof(v) + ETH_HLEN + 20u, each = v.gso_size, lost = 0;
    bool whole = len < head + 20 || (v.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) != VIRTIO_NET_HDR_GSO_TCPV4 || !each ||
                 ip[0] != 0x45 || !(v.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM);
    uint8_t *tcp = ip + 20;
    head += whole ? 0 : (size_t)(tcp[12] >> 4) * 4;
    whole = whole || len <= head || tcp[13] & 1; /* FIN belongs to the last segment */
    size_t n = whole ? 1 : (len - head + each - 1) / each;
    for (size_t i = 0; i < n; i++)
        lost += draw_random(r) < rail->loss;
    if (lost == 0)
        return len;
    if (lost == n)
        return 0;
    len = head + (n - lost) * each;
    if (n - lost == 1)
        v.gso_type = VIRTIO_NET_HDR_GSO_NONE;
    memcpy(r->buf, &v, sizeof(v));
    size_t datagram = len - sizeof(v) - ETH_HLEN;
    put_word(ip + 2, (uint32_t)datagram);
    put_word(ip + 10, 0);
    put_word(ip + 10, ~(uint32_t)fold_sum(add_words(ip, 20)));
    /* the partial checksum over the pseudo header (RFC 9293, 3.1) with protocol 6; the NIC completes the checksum */
    put_word(tcp + 16, fold_sum(add_words(ip + 12, 8) + 6 + (uint32_t)datagram - 20));
    return len;
}

static void queue_packet(struct relay *r, const struct end *from, size_t len)
{
    struct rail *rail = from->rail;
    if (rail->loss)
        len = cut_segments(r, rail, len);
    if (len == 0)
        return;
    if (rail->delay == 0) {
        send_packet(from->to, r->buf, len);
        return;
    }
    struct packet *p = rail->bytes + len <= QUEUE_MAX ? malloc(sizeof(*p) + len) : NULL;
    if (!p)
        return;
    *p = (struct packet){.due = hw_now() + rail->delay, .to = from->to, .len = len};
    memcpy(p->data, r->buf, len);
    *rail->last = p;
    rail->last = &p->next;
    rail->bytes += len;
}

static void read_end(struct relay *r, struct end *e)
{
    for (unsigned i = 0; i < BATCH && e->fd >= 0; i++) {
        ssize_t n = recv(e->fd, r->buf, sizeof(r->buf), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR) /* such as ENETDOWN */
                close_if_gone(r, e);
            return;
        }
        if ((size_t)n > sizeof(r->buf))
            continue;
        if (e->rail)
            queue_packet(r, e, (size_t)n);
        else
            send_packet(e->to, r->buf, (size_t)n);
    }
}

/* Sends the packets that are due, and sets the timer for the next packet. */
static void send_due(struct relay *r)
{
    uint64_t next = UINT64_MAX, now = hw_now();
    for (unsigned i = 0; i < HW_LAB_MAX_NICS; i++) {
        struct rail *rail = &r->rail[i];
        struct packet *p;
        while ((p = rail->first) && p->due <= now) {
            send_packet(p->to, p->data, p->len);
            rail->first = p->next;
            rail->bytes -= p->len;
            if (!rail->first)
                rail->last = &rail->first;
            free(p);
        }
        if (p)
            next = HW_MIN(next, p->due);
    }
    struct itimerspec t = {0};
    if (next != UINT64_MAX)
        t.it_value = (struct timespec){.tv_sec = (time_t)(next / 1000000000u), .tv_nsec = (long)(next % 1000000000u)};
    (void)timerfd_settime(r->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static _Noreturn void run_relay(const struct lab *l, const struct hw_lab_spec *spec, int report, pid_t parent)
{
    struct holder_verdict v = {0};
    struct lab own = {.user = -1, .sw = {.ns = l->sw.ns}};
    struct relay *r = calloc(1, sizeof(*r));
    int fd[] = {own.sw.ns, report};
    if (holder_detach("hawser-relay", fd, 2) < 0)
        _exit(1);
    own.sw.ns = fd[0];
    report = fd[1];
    if (parent) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    v.rc = r ? open_relay(r, &own, spec) : hw_no_memory("the relay that adds delay and loss");
    if (v.rc < 0)
        snprintf(v.text, sizeof(v.text), "%s", hw_error());
    hw_close(&own.sw.ns);
    (void)!write(report, &v, sizeof(v));
    hw_close(&report);
    while (r && v.rc == 0 && r->alive) {
        struct epoll_event ev[64];
        int n = epoll_wait(r->poll, ev, HW_ARRAY_LEN(ev), LOOK_MS);
        /* ENETDOWN is reported only once, possibly before the link is deleted */
        for (unsigned i = 0; n == 0 && i < r->n; i++)
            close_if_gone(r, &r->end[i]);
        for (int i = 0; i < n; i++)
            if (ev[i].data.ptr)
                read_end(r, ev[i].data.ptr);
        send_due(r);
    }
    _exit(v.rc < 0 ? 1 : 0);
}

int lab_relay_start(const struct lab *l, const struct hw_lab_spec *spec, bool child)
{
    int p[2];
    pid_t parent = getpid();
    if (pipe2(p, O_CLOEXEC) < 0)
        return hw_fail(-errno, "creating a pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        /* Fork again to detach the process, unless it is supposed to be a child. */
        pid_t again = child ? 0 : fork();
        if (again == 0)
            run_relay(l, spec, p[1], child ? parent : 0);
        _exit(again < 0 ? 1 : 0);
    }
    int rc = pid < 0 ? hw_fail(-errno, "starting the process that adds delay and loss: %s", strerror(errno)) : 0;
    hw_close(&p[1]);
    while (pid > 0 && !child && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (pid > 0)
        rc = holder_verdict_read(p[0], "the process that adds delay and loss");
    hw_close(&p[0]);
    return rc;
}
