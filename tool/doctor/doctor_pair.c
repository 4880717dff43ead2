/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's checks of a pair of nodes: compares the facts of both nodes and tests the network between them. */
#include "tool/doctor/doctor_pair.h"
#include "net/sysfs.h"
#include "tool/doctor/doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_ROUNDS 8
#define FACTS_MS     5000

/* Measures the clock offset as NTP does (RFC 5905, section 8), and keeps the round with the shortest round-trip
 * time. */
static int ask_clock(struct dr_pair *p, struct session *s, struct tp_reply *r)
{
    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        struct tp_request q = {.type = TP_FACTS};
        uint64_t t1 = reach_wall_ns(), m1 = hw_now();
        int rc = session_call(s, &q, r, FACTS_MS);
        uint64_t spent = hw_now() - m1, there = r->facts.wall_out_ns - r->facts.wall_in_ns, t4 = t1 + spent;
        if (rc < 0)
            return rc;
        if (there > spent) /* the peer's clock was set during the answer, or the peer's times are wrong */
            continue;
        if (p->clock && spent - there >= p->round_trip_ns)
            continue;
        p->clock = true;
        p->round_trip_ns = spent - there;
        p->offset_ns = (int64_t)(r->facts.wall_in_ns - t1) / 2 + (int64_t)(r->facts.wall_out_ns - t4) / 2;
    }
    return 0;
}

static int ask_reach(struct dr_pair *p, struct session *s, uint16_t reverse_port, struct tp_reply *r)
{
    struct tp_request q = {.type = TP_FACTS};
    struct reach_listener *l = NULL;
    int rc = reach_listen(reverse_port, &q.reach, &l);
    if (rc < 0)
        return rc;
    q.reach.n_addrs = p->here.n_nics;
    for (uint32_t i = 0; i < p->here.n_nics; i++)
        q.reach.addr[i] = p->here.nic[i].addr;
    if (q.reach.n_addrs == 0)
        q.reach.port = 0;
    rc = session_call(s, &q, r, REACH_MS + FACTS_MS);
    reach_listen_end(l);
    p->there = r->facts;
    return rc;
}

static bool is_working_link(const struct dr_link *l)
{
    return l->forward == 0 || l->reverse == 0 || l->reverse == -EBADMSG;
}

/* Returns true if one of the two NICs of link l has another working link. */
static bool has_other(const struct dr_pair *p, const struct dr_link *l)
{
    for (size_t i = 0; i < p->n_links; i++) {
        const struct dr_link *o = &p->link[i];
        if (is_working_link(o) && (strcmp(p->here.nic[o->here].nic, p->here.nic[l->here].nic) == 0 ||
                                   strcmp(p->there.nic[o->there].nic, p->there.nic[l->there].nic) == 0))
            return true;
    }
    return false;
}

void dr_pair_prune(struct dr_pair *p)
{
    bool keep[DR_MAX_LINKS];
    size_t n = 0;
    for (size_t i = 0; i < p->n_links; i++)
        keep[i] = !p->link[i].routed || is_working_link(&p->link[i]) || !has_other(p, &p->link[i]);
    for (size_t i = 0; i < p->n_links; i++)
        if (keep[i])
            p->link[n++] = p->link[i];
    p->n_links = n;
}

static int try_links(struct dr_pair *p, uint16_t port)
{
    struct reach_knock *k = calloc(DR_MAX_LINKS, sizeof *k);
    if (!k)
        return hw_no_memory("%zu connections", DR_MAX_LINKS);
    for (uint32_t i = 0; i < p->here.n_nics; i++)
        for (uint32_t j = 0; j < p->there.n_nics && p->n_links < DR_MAX_LINKS; j++) {
            const struct tp_fact_nic *from = &p->here.nic[i], *to = &p->there.nic[j];
            bool routed = reach_is_rail(from) && reach_is_rail(to);
            if (routed ? !reach_may(from, &to->addr) : !reach_same_subnet(from, &to->addr))
                continue;
            k[p->n_links] = (struct reach_knock){.from = from, .to = &to->addr};
            p->link[p->n_links++] = (struct dr_link){.here = (uint8_t)i,
                                                     .there = (uint8_t)j,
                                                     .routed = routed,
                                                     .reverse = p->there.carried[j] >> i & 1   ? 0
                                                                : p->there.reached[j] >> i & 1 ? -EBADMSG
                                                                : p->there.tried[j] >> i & 1   ? -EHOSTUNREACH
                                                                                               : -ENODATA};
        }
    reach_knock(k, p->n_links, port, REACH_MS);
    for (size_t i = 0; i < p->n_links; i++) {
        p->link[i].forward = k[i].result;
        p->link[i].mtu = k[i].mtu;
    }
    free(k);
    dr_pair_prune(p);
    return 0;
}

void dr_pair_ask(struct dr_pair *p, int root, struct session *s, uint16_t port, uint16_t reverse_port)
{
    struct tp_reply *r = calloc(1, sizeof *r);
    p->asked = r ? reach_facts(root, &p->here) : hw_no_memory("a reply");
    if (p->asked == 0)
        p->asked = ask_clock(p, s, r);
    if (p->asked == 0)
        p->asked = ask_reach(p, s, reverse_port, r);
    if (p->asked == 0)
        p->asked = try_links(p, port);
    if (p->asked < 0)
        snprintf(p->why, sizeof p->why, "%s", hw_error());
    free(r);
}

/* Returns true, and reports SKIP, if the facts of the peer are missing. */
static bool skip_without_facts(struct dr_report *d)
{
    if (d->pair->asked < 0)
        dr_say(d, DR_SKIP, NULL, "no information about the peer is available");
    return d->pair->asked < 0;
}

/* Returns true if both sides run on the same machine and have an address in common. Different machines may have an
 * address in common too, such as the address of docker0. */
static bool is_same_nics(const struct dr_pair *p)
{
    const struct tp_facts *a = &p->here, *b = &p->there;
    for (uint32_t i = 0; i < a->n_nics && memcmp(a->boot, b->boot, TP_HASH) == 0; i++)
        for (uint32_t k = 0; k < b->n_nics; k++)
            if (memcmp(&a->nic[i].addr, &b->nic[k].addr, sizeof a->nic[i].addr) == 0)
                return true;
    return false;
}

/* Returns true, and reports SKIP, if the facts are missing or no pair of NICs was tested. */
static bool skip_without_links(struct dr_report *d)
{
    if (skip_without_facts(d))
        return true;
    if (d->pair->n_links == 0)
        dr_say(d, DR_SKIP, NULL, "%s",
               is_same_nics(d->pair) ? "both sides use the same NICs"
                                     : "the two nodes have no NICs in the same subnet, and no routed rails");
    return d->pair->n_links == 0;
}

void dr_pair_session(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    if (p->connected < 0) {
        dr_say(d, DR_FAIL, NULL, "%s", p->why);
        if (p->connected == -EACCES)
            dr_mend(
                d,
                "hawser doctor HOST --key-file FILE   # FILE has the key that `hawser serve` uses on the other node");
        else if (p->connected == -EHOSTUNREACH)
            dr_mend(d, "getent ahosts HOST   # prints the addresses of the name; check the route to them");
        else
            dr_mend(d, "hawser serve   # run on the other node; it prints HOST and the options to give here");
    } else
        dr_say(d, DR_PASS, NULL, "%s", p->peer);
}

void dr_pair_version(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    if (p->connected < 0) {
        dr_say(d, DR_SKIP, NULL, "no session");
    } else if (p->asked < 0) {
        dr_say(d, DR_FAIL, NULL, "%s here, but the peer's version is unknown: %s", hawser_version(), p->why);
        if (p->asked == -EADDRINUSE)
            dr_mend(d, "hawser doctor HOST --reverse-port PORT   # a port that no program on this node uses");
        else
            dr_mend(d, "hawser --version   # on both nodes; if the versions differ, install the newer one on both");
    } else if (strcmp(p->here.hawser, p->there.hawser) != 0) {
        dr_say(d, DR_WARN, NULL, "here %s, there %s", p->here.hawser, p->there.hawser);
        dr_mend(d, "hawser --version   # on both nodes; install the same version");
    } else
        dr_say(d, DR_PASS, NULL, "%s on both", p->here.hawser);
}

void dr_pair_machine(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    if (skip_without_facts(d))
        return;
    if (memcmp(p->here.boot, p->there.boot, TP_HASH) != 0) {
        dr_say(d, DR_PASS, NULL, "two machines");
        return;
    }
    dr_say(d, dr_tcpx_meant(d->m) ? DR_FAIL : DR_WARN, NULL,
           "both sides run on one machine, under the same kernel: host memory works, but devmem and TCPX do not");
    dr_mend(d, "hawser serve   # run on another machine; then run doctor with the name of that machine");
}

void dr_pair_kernel(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    if (skip_without_facts(d))
        return;
    unsigned a = dr_kernel(p->here.kernel), b = dr_kernel(p->there.kernel);
    if (strcmp(p->here.kernel, p->there.kernel) == 0) {
        dr_say(d, DR_PASS, NULL, "%s on both", p->here.kernel);
        return;
    }
    bool differ = (a >= 6012) != (b >= 6012) || (a >= 6016) != (b >= 6016);
    dr_say(d, DR_WARN, NULL, "here %s, there %s%s", p->here.kernel, p->there.kernel,
           differ ? ": the kernels differ in devmem support" : "");
    dr_mend(d, "uname -r   # on both nodes; boot the newer kernel on both");
}

/* Returns true if the named NIC of this node (or of the peer, if here is false) has a link to a NIC of the other
 * node. */
static bool has_partner(const struct dr_pair *p, bool here, const char *nic)
{
    for (size_t k = 0; k < p->n_links; k++) {
        const struct dr_link *l = &p->link[k];
        if (strcmp(here ? p->here.nic[l->here].nic : p->there.nic[l->there].nic, nic) == 0)
            return true;
    }
    return false;
}

static size_t nics_of(struct dr_report *d, bool here, uint32_t fastest)
{
    const struct tp_facts *f = here ? &d->pair->here : &d->pair->there;
    size_t n = 0;
    for (uint32_t i = 0; i < f->n_nics; i++) {
        char subject[48];
        uint32_t k = 0;
        while (strcmp(f->nic[k].nic, f->nic[i].nic) != 0)
            k++;
        if (k < i)
            continue; /* this entry is another address of a NIC that was already examined */
        snprintf(subject, sizeof subject, "%s %s", here ? "here" : "there", f->nic[i].nic);
        if (has_partner(d->pair, here, f->nic[i].nic)) {
            n++;
        } else if (f->nic[i].speed < fastest) {
            dr_say(d, DR_SKIP, subject, "no NIC of the other node that is up is in its subnet; %s",
                   f->nic[i].speed ? "this NIC is slower than others and is probably for management"
                                   : "the speed of this NIC is unknown");
        } else if (reach_is_rail(&f->nic[i])) {
            dr_say(d, DR_WARN, subject,
                   "the prefix is /%u, and no connection with a routed NIC of the other node worked", f->nic[i].prefix);
            dr_mend(d, "ip route get PEER oif %s   # %s; each rail needs a route to the other node's NIC",
                    f->nic[i].nic, here ? "here" : "there");
        } else {
            dr_say(d, DR_WARN, subject, "not used, because no NIC of the other node that is up is in its subnet");
            dr_mend(d, "ip -br addr   # on both nodes; look for a NIC that is DOWN, and compare the addresses and "
                       "prefixes of the NICs that belong together");
        }
    }
    return n;
}

void dr_pair_nics(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    uint32_t fastest = 0;
    if (skip_without_facts(d))
        return;
    if (is_same_nics(p)) {
        dr_say(d, DR_SKIP, NULL, "both sides use the same NICs");
        return;
    }
    for (size_t k = 0; k < p->n_links; k++)
        fastest = HW_MAX(fastest, HW_MIN(p->here.nic[p->link[k].here].speed, p->there.nic[p->link[k].there].speed));
    size_t a = nics_of(d, true, fastest), b = nics_of(d, false, fastest);
    if (a == 0) {
        dr_say(d, DR_WARN, NULL, "no subnet has NICs of both nodes, so all traffic is routed over one NIC");
        dr_mend(d, "ip addr   # on both nodes; or pair the NICs explicitly: hawser bench --nics A,B --peer-nics C,D");
    } else if (a != b) {
        dr_say(d, DR_WARN, NULL, "%zu here, %zu there: the node with fewer NICs may limit the transfer", a, b);
        dr_mend(d, "ip addr   # on both nodes; or choose the NICs: hawser bench --nics A,B --peer-nics C,D");
    } else
        dr_say(d, DR_PASS, NULL, "%zu on each node", a);
}

static const char *format_link_ends(const struct dr_pair *p, const struct dr_link *l, bool back, char buf[48])
{
    const char *here = p->here.nic[l->here].nic, *there = p->there.nic[l->there].nic;
    /* distinguishes the two links of NICs that have addresses of both families */
    const char *kind = p->here.nic[l->here].addr.family == 6 ? " (IPv6)" : "";
    snprintf(buf, 48, "%s %s %s%s", here, back ? "<-" : "->", there, kind);
    return buf;
}

void dr_pair_mtu(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    char s[48];
    if (skip_without_links(d))
        return;
    for (size_t i = 0; i < p->n_links; i++) {
        const struct tp_fact_nic *a = &p->here.nic[p->link[i].here], *b = &p->there.nic[p->link[i].there];
        format_link_ends(p, &p->link[i], false, s);
        if (!a->mtu || !b->mtu)
            dr_say(d, DR_SKIP, s, "the MTU of one or both NICs is unknown");
        else if (a->mtu == b->mtu)
            dr_say(d, DR_PASS, s, "%u on both", a->mtu);
        else {
            dr_say(d, DR_WARN, s, "here %u, there %u", a->mtu, b->mtu);
            dr_mend(d, "ip link set %s mtu %u   # %s", a->mtu < b->mtu ? a->nic : b->nic, HW_MAX(a->mtu, b->mtu),
                    a->mtu < b->mtu ? "here" : "there");
        }
    }
}

/* Why a connection over a link may fail although the network is good. */
enum blame { NO_BLAME, SAME_ADDRESS, SHARED_SUBNET };

/* Returns true if another NIC of the same node is in the subnet of NIC i. */
static bool shares_subnet(const struct tp_facts *f, uint32_t i)
{
    for (uint32_t k = 0; k < f->n_nics; k++)
        if (strcmp(f->nic[k].nic, f->nic[i].nic) != 0 && reach_same_subnet(&f->nic[i], &f->nic[k].addr))
            return true;
    return false;
}

static enum blame find_blame(const struct dr_pair *p, const struct dr_link *l)
{
    for (uint32_t i = 0; i < p->here.n_nics; i++)
        for (uint32_t j = 0; j < p->there.n_nics; j++)
            if ((i == l->here || j == l->there) &&
                memcmp(&p->here.nic[i].addr, &p->there.nic[j].addr, sizeof p->here.nic[i].addr) == 0)
                return SAME_ADDRESS;
    return shares_subnet(&p->here, l->here) || shares_subnet(&p->there, l->there) ? SHARED_SUBNET : NO_BLAME;
}

/* Adds a result about a failed link, and the fix, if the addresses of the NICs explain the failure. Names no NICs, so
 * that equal results of several links share one line. Returns false if the addresses do not explain it. */
static bool say_blame(struct dr_report *d, const struct dr_link *l, const char *subject, const char *what)
{
    switch (find_blame(d->pair, l)) {
    case SAME_ADDRESS:
        dr_say(d, DR_FAIL, subject, "%s: both nodes have the same address", what);
        dr_mend(d, "ip addr   # on both nodes; give each NIC an address of its own");
        return true;
    case SHARED_SUBNET:
        dr_say(d, DR_FAIL, subject,
               "%s, probably because NICs of one node share a subnet, so that packets use the wrong NIC", what);
        if (d->pair->here.nic[l->here].addr.family == 4)
            dr_mend(d,
                    "hawser doctor --only rdma   # on both nodes; prints the sysctls for NICs that share a subnet; or "
                    "give each NIC of a node a subnet of its own");
        else
            dr_mend(d, "ip -6 addr   # on both nodes; give each NIC of a node a subnet of its own");
        return true;
    default:
        return false;
    }
}

void dr_pair_forward(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    char s[48], to[HAWSER_ADDR_TEXT + 8];
    union hw_addr a;
    if (skip_without_links(d))
        return;
    for (size_t i = 0; i < p->n_links; i++) {
        const struct dr_link *l = &p->link[i];
        format_link_ends(p, l, false, s);
        reach_to_addr(&p->there.nic[l->there].addr, &a);
        hw_addr_text(&a, to, sizeof to);
        if (l->forward == 0)
            dr_say(d, DR_PASS, s, "connected");
        else if (l->forward == -ECONNREFUSED) {
            dr_say(d, DR_WARN, s,
                   "refused: no program listens at %s, a firewall refuses the connection, or another machine has this "
                   "address",
                   to);
            dr_mend(d,
                    "hawser serve   # run on the other node, without --bind; or open its port in that node's firewall; "
                    "ip neigh show %s   # must print the Ethernet address of %s there",
                    to, p->there.nic[l->there].nic);
        } else if (!say_blame(d, l, s, strerror(-l->forward))) {
            dr_say(d, DR_FAIL, s, "%s", strerror(-l->forward));
            dr_mend(
                d,
                "ping -I %s %s; ip neigh show %s   # must print the Ethernet address of %s there, or another machine "
                "has the address; also check VLAN, switch and firewall",
                p->here.nic[l->here].nic, to, to, p->there.nic[l->there].nic);
        }
    }
}

void dr_pair_reverse(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    char s[48], to[HAWSER_ADDR_TEXT + 8], what[64];
    union hw_addr a;
    if (skip_without_links(d))
        return;
    for (size_t i = 0; i < p->n_links; i++) {
        const struct dr_link *l = &p->link[i];
        format_link_ends(p, l, true, s);
        reach_to_addr(&p->here.nic[l->here].addr, &a);
        hw_addr_text(&a, to, sizeof to);
        if (l->reverse == -ENODATA) {
            dr_say(d, DR_SKIP, s, "the peer did not try to connect back");
            continue;
        }
        if (l->reverse != -EHOSTUNREACH) {
            dr_say(d, DR_PASS, s, "connected");
            continue;
        }
        snprintf(what, sizeof what, "no connection from the peer arrived within %d s", REACH_MS / 1000);
        if (say_blame(d, l, s, what))
            continue;
        dr_say(d, DR_FAIL, s, "%s: the network or a firewall drops it, or another machine has this node's address",
               what);
        dr_mend(
            d,
            "ping -I %s %s; ip neigh show %s   # on the other node; if an answer comes from the Ethernet address of "
            "%s here, a firewall of this node blocks new connections: open a port for --reverse-port",
            p->there.nic[l->there].nic, to, to, p->here.nic[l->here].nic);
    }
}

void dr_pair_path_mtu(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    char s[48];
    if (skip_without_links(d))
        return;
    for (size_t i = 0; i < p->n_links; i++) {
        const struct dr_link *l = &p->link[i];
        uint32_t least = HW_MIN(p->here.nic[l->here].mtu, p->there.nic[l->there].mtu);
        format_link_ends(p, l, false, s);
        if (l->reverse == -EBADMSG) {
            dr_say(d, DR_FAIL, s,
                   "a connection from the peer was established, but 128 KiB did not arrive within %d s: large packets "
                   "are probably "
                   "lost",
                   REACH_MS / 1000);
            dr_mend(d, "ip link set %s mtu 1500   # on both nodes; then find the hop with the smaller MTU",
                    p->here.nic[l->here].nic);
        } else if (l->forward < 0 || !l->mtu || !least)
            dr_say(d, DR_SKIP, s, "unknown, because no connection was established or an MTU is unknown");
        else if (l->mtu < least) {
            dr_say(d, DR_WARN, s, "%u, less than the NICs' %u: the route or a hop between them has a smaller MTU",
                   l->mtu, least);
            dr_mend(d, "tracepath -n PEER   # shows the hop");
        } else if (l->reverse < 0)
            dr_say(d, DR_SKIP, s,
                   "%u according to the NICs and the route, but no large packet was tested, because no connection back "
                   "was established",
                   least);
        else
            dr_say(d, DR_PASS, s, "%u, and 128 KiB arrived in both directions", least);
    }
}

void dr_pair_clock(struct dr_report *d)
{
    const struct dr_pair *p = d->pair;
    if (skip_without_facts(d))
        return;
    if (!p->clock) {
        dr_say(d, DR_SKIP, NULL, "the peer's times are inconsistent: its clock probably jumped during the measurement");
        return;
    }
    double ms = (double)p->offset_ns / 1e6, error = (double)p->round_trip_ns / 2e6, size = ms < 0 ? -ms : ms;
    dr_say(d,
           size < 10     ? DR_PASS
           : size < 5000 ? DR_WARN
                         : DR_FAIL,
           NULL, "the peer's clock is %.3f ms %s, with an error of up to %.3f ms", size, ms < 0 ? "behind" : "ahead",
           error);
    if (size >= 10)
        dr_mend(d, "chronyc makestep   # on both nodes, if chrony runs there; if not, start it or another NTP client");
}
