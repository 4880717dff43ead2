/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which pairs of NICs are chosen in given and in random networks, rail maps, and advertised addresses. */
#include "net/advertise.h"
#include "net/paths.h"
#include "net/rails.h"
#include "tests/tap.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NICS_MAX 16

/*
 * The entries of mine, theirs and routes are separated by semicolons.
 *   mine    this node's NICs, "NAME ADDRESS[/BITS] [HARDWARE]"; HARDWARE is a device number, 0 if there is no device,
 *           and by default a number that depends on the name
 *   theirs  the peer's NICs, "NAME ADDRESS"
 *   routes  this node's routes in addition to those of its own subnets, "NAME SUBNET [via]"
 *   policy  true if each source address has its own routing table, so the kernel can use every NIC; without such
 *           tables, the kernel uses the first of the routes with the longest prefix
 *   want    the expected pairs, "mine-theirs", in the order of mine, or in the user's order if nics and peer_nics
 *           specify the pairs
 *   failed  pairs that do not work
 */
struct network {
    const char *what, *mine, *theirs, *routes;
    bool policy;
    const char *nics, *peer_nics, *rails, *dialled, *failed, *want;
    bool only_dialled;
    int rc;
};

static const struct network networks[] = {
    {.what = "one subnet a NIC",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.1.1/24;eth2 10.0.2.1/24",
     .theirs = "eth0 10.0.0.2;eth1 10.0.1.2;eth2 10.0.2.2",
     .want = "eth0-eth0 eth1-eth1 eth2-eth2"},
    {.what = "other names, another order, one subnet a NIC",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.1.1/24;eth2 10.0.2.1/24",
     .theirs = "enp9s0 10.0.2.2;enp6s0 10.0.0.2;enp7s0 10.0.1.2",
     .want = "eth0-enp6s0 eth1-enp7s0 eth2-enp9s0"},
    {.what = "Google's cloud: /32 and a route by each NIC, a default route by the first",
     .mine = "eth0 10.0.0.2/32;eth1 10.1.0.2/32;eth2 10.2.0.2/32;eth3 10.3.0.2/32;eth4 10.4.0.2/32",
     .theirs = "eth0 10.0.0.3;eth1 10.1.0.3;eth2 10.2.0.3;eth3 10.3.0.3;eth4 10.4.0.3",
     .routes = "eth0 10.0.0.0/16 via;eth0 0.0.0.0/0 via;eth1 10.1.0.0/16 via;eth2 10.2.0.0/16 via;"
               "eth3 10.3.0.0/16 via;eth4 10.4.0.0/16 via",
     .want = "eth0-eth0 eth1-eth1 eth2-eth2 eth3-eth3 eth4-eth4"},
    {.what = "the same, named otherwise there",
     .mine = "eth0 10.0.0.2/32;eth1 10.1.0.2/32;eth2 10.2.0.2/32",
     .theirs = "ens5 10.2.0.3;ens3 10.0.0.3;ens4 10.1.0.3",
     .routes = "eth0 10.0.0.0/16 via;eth0 0.0.0.0/0 via;eth1 10.1.0.0/16 via;eth2 10.2.0.0/16 via",
     .want = "eth0-ens3 eth1-ens4 eth2-ens5"},
    {.what = "a layer-3 fabric: /31 a port, everything behind each gateway, by source",
     .mine = "eth1 10.10.0.0/31;eth2 10.10.0.2/31;eth3 10.10.0.4/31;eth4 10.10.0.6/31",
     .theirs = "eth1 10.10.1.0;eth2 10.10.1.2;eth3 10.10.1.4;eth4 10.10.1.6",
     .routes = "eth1 10.10.0.0/16 via;eth2 10.10.0.0/16 via;eth3 10.10.0.0/16 via;eth4 10.10.0.0/16 via",
     .policy = true,
     .want = "eth1-eth1 eth2-eth2 eth3-eth3 eth4-eth4"},
    {.what = "the same without routes by source, and other names: in order",
     .mine = "eth1 10.10.0.0/31;eth2 10.10.0.2/31;eth3 10.10.0.4/31",
     .theirs = "enp1s0 10.10.1.0;enp2s0 10.10.1.2;enp3s0 10.10.1.4",
     .routes = "eth1 10.10.0.0/16 via;eth2 10.10.0.0/16 via;eth3 10.10.0.0/16 via",
     .want = "eth1-enp1s0 eth2-enp2s0 eth3-enp3s0"},
    {.what = "a device that leads nowhere has no place in the order: lo, and one NIC more there",
     .mine = "lo 127.0.0.1/8;eth1 10.10.0.0/31;eth2 10.10.0.2/31;eth3 10.10.0.4/31",
     .theirs = "enp1s0 10.10.1.0;enp2s0 10.10.1.2;enp3s0 10.10.1.4;enp4s0 10.10.1.6",
     .routes = "eth1 10.10.0.0/16 via;eth2 10.10.0.0/16 via;eth3 10.10.0.0/16 via",
     .policy = true,
     .dialled = "enp1s0",
     .want = "eth1-enp1s0 eth2-enp2s0 eth3-enp3s0"},
    {.what = "nor has a bridge of the peer's that no NIC has a route to",
     .mine = "eth1 10.10.0.0/31;eth2 10.10.0.2/31;eth3 10.10.0.4/31;eth4 10.10.0.6/31",
     .theirs = "enp1s0 10.10.1.0;virbr0 192.168.122.1;enp2s0 10.10.1.2;enp3s0 10.10.1.4",
     .routes = "eth1 10.10.0.0/16 via;eth2 10.10.0.0/16 via;eth3 10.10.0.0/16 via;"
               "eth4 10.10.0.0/16 via",
     .policy = true,
     .dialled = "enp1s0",
     .want = "eth1-enp1s0 eth2-enp2s0 eth3-enp3s0"},
    {.what = "several NICs in one subnet",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.0.2/24;eth2 10.0.0.3/24;eth3 10.0.0.4/24",
     .theirs = "eth0 10.0.0.11;eth1 10.0.0.12;eth2 10.0.0.13;eth3 10.0.0.14",
     .want = "eth0-eth0 eth1-eth1 eth2-eth2 eth3-eth3"},
    {.what = "the same, another order there",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.0.2/24;eth2 10.0.0.3/24",
     .theirs = "eth2 10.0.0.13;eth0 10.0.0.11;eth1 10.0.0.12",
     .want = "eth0-eth0 eth1-eth1 eth2-eth2"},
    {.what = "the same, and one way does not work: others make up for it",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.0.2/24",
     .theirs = "eth0 10.0.0.11;eth1 10.0.0.12",
     .failed = "eth0-eth0",
     .want = "eth0-eth1 eth1-eth0"},
    {.what = "docker0 with one address on every node",
     .mine = "eth0 10.0.0.1/24;docker0 172.17.0.1/16 0;eth1 10.0.1.1/24",
     .theirs = "eth0 10.0.0.2;docker0 172.17.0.1;eth1 10.0.1.2",
     .want = "eth0-eth0 eth1-eth1"},
    {.what = "an overlay that works runs over the other NICs",
     .mine = "eth0 10.0.0.1/24;flannel.1 10.244.1.0/32 0",
     .theirs = "eth0 10.0.0.2;flannel.1 10.244.2.0",
     .routes = "flannel.1 10.244.2.0/24 via",
     .want = "eth0-eth0"},
    {.what = "unless there is nothing else",
     .mine = "eth0 10.0.0.1/24;flannel.1 10.244.1.0/32 0",
     .theirs = "flannel.1 10.244.2.0",
     .routes = "flannel.1 10.244.2.0/24 via",
     .want = "flannel.1-flannel.1"},
    {.what = "or it is named",
     .mine = "eth0 10.0.0.1/24;flannel.1 10.244.1.0/32 0",
     .theirs = "eth0 10.0.0.2;flannel.1 10.244.2.0",
     .routes = "flannel.1 10.244.2.0/24 via",
     .nics = "flannel.1,eth0",
     .want = "eth0-eth0 flannel.1-flannel.1"},
    {.what = "a VLAN on the same hardware: once",
     .mine = "eth0 10.0.0.1/24 7;eth0.5 10.5.0.1/24 7;eth1 10.0.1.1/24 8",
     .theirs = "eth0 10.0.0.2;eth0.5 10.5.0.2;eth1 10.0.1.2",
     .want = "eth0-eth0 eth1-eth1"},
    {.what = "more NICs here",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.1.1/24;eth2 10.0.2.1/24",
     .theirs = "eth9 10.0.1.2",
     .want = "eth1-eth9"},
    {.what = "more there, behind gateways: the first",
     .mine = "eth0 10.0.0.1/31",
     .theirs = "eth1 10.9.0.1;eth2 10.9.0.3",
     .routes = "eth0 0.0.0.0/0 via",
     .want = "eth0-eth1"},
    {.what = "and the one that was dialled before that",
     .mine = "eth0 10.0.0.1/31",
     .theirs = "eth1 10.9.0.1;eth2 10.9.0.3",
     .routes = "eth0 0.0.0.0/0 via",
     .dialled = "eth2",
     .want = "eth0-eth2"},
    {.what = "two addresses of a NIC are one NIC",
     .mine = "eth0 10.0.0.1/24;eth0 10.0.7.1/24;eth1 10.0.1.1/24",
     .theirs = "eth0 10.0.0.2;eth0 10.0.7.2;eth1 10.0.1.2",
     .want = "eth0-eth0 eth1-eth1"},
    {.what = "IPv6, /64 a NIC",
     .mine = "eth0 fd00::1/64;eth1 fd00:0:0:1::1/64",
     .theirs = "a fd00:0:0:1::2;b fd00::2",
     .want = "eth0-b eth1-a"},
    {.what = "IPv6 here and IPv4 there", .mine = "eth0 fd00::1/64", .theirs = "eth0 10.0.0.2", .want = ""},
    {.what = "no route", .mine = "eth0 10.0.0.1/24", .theirs = "eth0 10.9.0.2", .want = ""},
    {.what = "some are named here",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.1.1/24;eth2 10.0.2.1/24",
     .theirs = "eth0 10.0.0.2;eth1 10.0.1.2;eth2 10.0.2.2",
     .nics = "eth2,eth0",
     .want = "eth0-eth0 eth2-eth2"},
    {.what = "one is named there",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.1.1/24",
     .theirs = "eth0 10.0.0.2;eth1 10.0.1.2",
     .peer_nics = "eth1",
     .want = "eth1-eth1"},
    {.what = "pairs as the user has them, in his order and not the system's",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.0.2/24;eth2 10.0.0.3/24",
     .theirs = "eth0 10.0.0.11;eth1 10.0.0.12;eth2 10.0.0.13",
     .nics = "eth2,eth0,eth1",
     .peer_nics = "eth1,eth0,eth2",
     .want = "eth2-eth1 eth0-eth0 eth1-eth2"},
    {.what = "also where no route is known",
     .mine = "eth0 10.0.0.1/24",
     .theirs = "eth0 10.9.0.2",
     .nics = "eth0",
     .peer_nics = "eth0",
     .want = "eth0-eth0"},
    {.what = "two of ours to one of theirs",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.0.2/24",
     .theirs = "eth0 10.0.0.11",
     .nics = "eth0,eth1",
     .peer_nics = "eth0,eth0",
     .want = "eth0-eth0 eth1-eth0"},
    {.what = "pairs of which one has no partner",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.1.1/24",
     .theirs = "eth0 10.0.0.2;eth1 10.0.1.2",
     .nics = "eth0,eth1",
     .peer_nics = "eth0",
     .rc = -ENODEV},
    {.what = "a NIC that is not here",
     .mine = "eth0 10.0.0.1/24",
     .theirs = "eth0 10.0.0.2",
     .nics = "eth7",
     .rc = -ENODEV},
    {.what = "a NIC that is not there",
     .mine = "eth0 10.0.0.1/24",
     .theirs = "eth0 10.0.0.2",
     .peer_nics = "eth0,eth7",
     .rc = -ENODEV},
    {.what = "rails by name",
     .mine = "eth1 10.10.0.0/31;eth2 10.10.0.2/31",
     .theirs = "enp7s0 10.10.1.0;enp6s0 10.10.1.2",
     .routes = "eth1 10.10.0.0/16 via;eth2 10.10.0.0/16 via",
     .rails = "eth1,enp6s0;eth2,enp7s0",
     .want = "eth1-enp6s0 eth2-enp7s0"},
    {.what = "rails by subnet, a file's text",
     .mine = "eth1 10.10.0.0/31;eth2 10.10.0.2/31;eth3 10.10.0.4/31",
     .theirs = "a 10.10.8.4;b 10.10.8.0;c 10.10.8.2",
     .routes = "eth1 10.10.0.0/16 via;eth2 10.10.0.0/16 via;eth3 10.10.0.0/16 via",
     .rails =
         "# the cluster's rails\n10.10.0.0/31 10.10.8.0/31\n\n10.10.0.2/31\t10.10.8.2/31 # second\n10.10.0.4/31 a\n",
     .want = "eth1-b eth2-c eth3-a"},
    {.what = "a NIC on no rail is not used",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.1.1/24",
     .theirs = "eth0 10.0.0.2;eth1 10.0.1.2",
     .rails = "eth1",
     .want = "eth1-eth1"},
    {.what = "a map that is none",
     .mine = "eth0 10.0.0.1/24",
     .theirs = "eth0 10.0.0.2",
     .rails = "eth0,10.0.0.0/33",
     .rc = -EINVAL},
    {.what = "only the address that was dialled, from the NIC that was named",
     .mine = "eth0 10.0.0.1/24;eth1 10.0.1.1/24;eth2 10.0.0.3/24",
     .theirs = "eth0 10.0.0.11;eth1 10.0.1.2;eth2 10.0.0.13",
     .nics = "eth2",
     .dialled = "eth0",
     .only_dialled = true,
     .want = "eth2-eth0"},
};

/* ---- parsing the networks --------------------------------------------------------------------------------------- */

struct route {
    char nic[HAWSER_NIC_NAME];
    struct hw_nic net;
    bool link;
};

struct world {
    struct hw_path_end mine[NICS_MAX], theirs[NICS_MAX];
    struct route route[2 * NICS_MAX];
    unsigned n_mine, n_theirs, n_routes;
    uint8_t way[NICS_MAX * NICS_MAX];
};

static void parse_net(const char *text, struct hw_nic *out)
{
    char buf[64];
    snprintf(buf, sizeof(buf), "%s", text);
    char *slash = strchr(buf, '/');
    if (slash)
        *slash = 0;
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, buf, &out->addr.in.sin_addr) == 1)
        out->addr.sa.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, buf, &out->addr.in6.sin6_addr) == 1)
        out->addr.sa.sa_family = AF_INET6;
    else
        abort();
    out->prefix = slash ? (unsigned)atoi(slash + 1) : out->addr.sa.sa_family == AF_INET ? 32 : 128;
}

/* Splits entry k of a semicolon-separated list into words. Returns the number of words, or 0 at the end of the list. */
static int words_of(const char *list, unsigned k, char word[3][64])
{
    const char *p = list ? list : "";
    for (; k && *p; k--) {
        p += strcspn(p, ";");
        p += *p == ';';
    }
    char part[200];
    snprintf(part, sizeof(part), "%.*s", (int)strcspn(p, ";"), p);
    return *part ? sscanf(part, "%63s %63s %63s", word[0], word[1], word[2]) : 0;
}

static void read_world(const struct network *n, struct world *w)
{
    char word[3][64];
    int k;
    memset(w, 0, sizeof(*w));
    for (; (k = words_of(n->mine, w->n_mine, word)) > 0; w->n_mine++) {
        struct hw_path_end *e = &w->mine[w->n_mine];
        struct route *r = &w->route[w->n_routes++];
        parse_net(word[1], &r->net);
        memcpy(r->nic, word[0], HAWSER_NIC_NAME - 1);
        memcpy(e->name, word[0], HAWSER_NIC_NAME - 1);
        r->link = true;
        e->addr = r->net.addr;
        e->device = k == 3 ? (uint64_t)atoi(word[2]) : 1000;
        for (const char *c = e->name; *c && k < 3; c++)
            e->device = e->device * 131 + (uint8_t)*c;
    }
    for (; words_of(n->theirs, w->n_theirs, word) > 0; w->n_theirs++) {
        struct hw_nic net;
        parse_net(word[1], &net);
        memcpy(w->theirs[w->n_theirs].name, word[0], HAWSER_NIC_NAME - 1);
        w->theirs[w->n_theirs].addr = net.addr;
    }
    for (unsigned i = 0; (k = words_of(n->routes, i, word)) > 0; i++) {
        struct route *r = &w->route[w->n_routes++];
        parse_net(word[1], &r->net);
        memcpy(r->nic, word[0], HAWSER_NIC_NAME - 1);
        r->link = k < 3;
    }
}

/* Returns the route to address a with the longest prefix. If nic is not NULL, considers only routes of that NIC. */
static const struct route *route_to(const struct world *w, const union hw_addr *a, const char *nic)
{
    const struct route *best = NULL;
    for (unsigned i = 0; i < w->n_routes; i++) {
        const struct route *r = &w->route[i];
        if (hw_nic_reaches(&r->net, a) && (!nic || strcmp(nic, r->nic) == 0) &&
            (!best || r->net.prefix > best->net.prefix))
            best = r;
    }
    return best;
}

static void find_ways(const struct network *n, struct world *w)
{
    for (unsigned i = 0; i < w->n_mine; i++)
        for (unsigned j = 0; j < w->n_theirs; j++) {
            const union hw_addr *to = &w->theirs[j].addr;
            const struct route *r = route_to(w, to, w->mine[i].name), *first = route_to(w, to, NULL);
            uint8_t way = !r ? HW_WAY_NONE : r->link ? HW_WAY_LINK : HW_WAY_GATEWAY;
            if (r && (n->policy || strcmp(first->nic, w->mine[i].name) == 0))
                way |= HW_WAY_NATURAL;
            for (unsigned k = 0; k < w->n_mine; k++)
                if (hw_addr_same_host(&w->mine[k].addr, to))
                    way = HW_WAY_NEVER;
            w->way[i * w->n_theirs + j] = way;
        }
}

static void test_network(const struct network *n)
{
    struct world w;
    struct hw_paths p;
    read_world(n, &w);
    find_ways(n, &w);
    struct hw_paths_in in = {.mine = w.mine,
                             .theirs = w.theirs,
                             .n_mine = w.n_mine,
                             .n_theirs = w.n_theirs,
                             .way = w.way,
                             .dialled = -1,
                             .only_dialled = n->only_dialled,
                             .nics = n->nics,
                             .peer_nics = n->peer_nics,
                             .rails = n->rails};
    for (unsigned j = 0; n->dialled && j < w.n_theirs; j++)
        if (strcmp(w.theirs[j].name, n->dialled) == 0)
            in.dialled = (int)j;
    int rc = hw_paths_find(&in, &p);
    if (n->rc || rc) {
        ok(rc == n->rc, "%s: refused: %d", n->what, rc);
        diag("%s", hw_error());
        return;
    }
    bool *out = calloc(p.n + 1, sizeof(*out)), *pick = calloc(p.n + 1, sizeof(*pick));
    char got[400] = "", pair[64];
    if (!out || !pick)
        abort();
    for (unsigned k = 0; k < p.n; k++) {
        snprintf(pair, sizeof(pair), "%s-%s", w.mine[p.list[k].mine].name, w.theirs[p.list[k].theirs].name);
        out[k] = n->failed && strstr(n->failed, pair);
    }
    int chosen = hw_paths_assign(&in, &p, out, pick), shown = 0;
    for (unsigned i = 0; i < (p.exact ? 1 : w.n_mine); i++)
        for (unsigned k = 0; k < p.n; k++) {
            if (!pick[k] || (!p.exact && p.list[k].mine != i))
                continue;
            size_t at = strlen(got);
            snprintf(got + at, sizeof(got) - at, "%s%s-%s", at ? " " : "", w.mine[p.list[k].mine].name,
                     w.theirs[p.list[k].theirs].name);
            shown++;
        }
    is_str(got, n->want, n->what);
    ok(chosen == shown, "%s: as many as it says", n->what);
    for (unsigned i = 0; i < w.n_mine; i++) {
        const char *why = hw_paths_why(&in, &p, true, i);
        bool any = false;
        for (unsigned k = 0; k < p.n; k++)
            any |= strcmp(w.mine[p.list[k].mine].name, w.mine[i].name) == 0;
        if (!p.exact && any != !why)
            ok(false, "%s: %s has %s candidate, and the reason is %s", n->what, w.mine[i].name, any ? "a" : "no", why);
    }
    free(out);
    free(pick);
    hw_paths_free(&p);
}

/* Returns a pseudo-random number below n from Knuth's MMIX linear congruential generator. */
static unsigned draw(unsigned n)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

struct best {
    const struct hw_paths *p;
    unsigned n_theirs;
    uint64_t most;
};

static void search(struct best *b, unsigned i, unsigned n, unsigned taken, uint64_t sum)
{
    if (i == n) {
        b->most = HW_MAX(b->most, sum);
        return;
    }
    search(b, i + 1, n, taken, sum);
    for (unsigned k = 0; k < b->p->n; k++)
        if (b->p->list[k].mine == i && !(taken & 1u << b->p->list[k].theirs))
            search(b, i + 1, n, taken | 1u << b->p->list[k].theirs, sum + (1u << 20) + b->p->list[k].weight);
}

/* Compares the chosen pairs with all possible assignments, in random networks of up to five NICs per side. */
static void test_best(void)
{
    unsigned wrong = 0;
    for (int round = 0; round < 2000; round++) {
        struct world w = {.n_mine = 1 + draw(5), .n_theirs = 1 + draw(5)};
        for (unsigned i = 0; i < w.n_mine; i++) {
            snprintf(w.mine[i].name, HAWSER_NIC_NAME, "n%u", draw(3) * 10 + i);
            w.mine[i].addr.sa.sa_family = AF_INET;
            w.mine[i].device = i + 1;
        }
        for (unsigned j = 0; j < w.n_theirs; j++) {
            snprintf(w.theirs[j].name, HAWSER_NIC_NAME, "n%u", draw(3) * 10 + j);
            w.theirs[j].addr.sa.sa_family = AF_INET;
        }
        for (unsigned k = 0; k < w.n_mine * w.n_theirs; k++)
            w.way[k] = draw(3) ? (uint8_t)(draw(3) | draw(2) * 4) : 0;
        for (unsigned k = 0; k < w.n_mine * w.n_theirs; k++)
            if (w.way[k] == HW_WAY_NATURAL)
                w.way[k] = HW_WAY_NONE;
        struct hw_paths_in in = {.mine = w.mine,
                                 .theirs = w.theirs,
                                 .n_mine = w.n_mine,
                                 .n_theirs = w.n_theirs,
                                 .way = w.way,
                                 .dialled = -1};
        struct hw_paths p;
        bool pick[32];
        if (hw_paths_find(&in, &p))
            abort();
        struct best b = {.p = &p, .n_theirs = w.n_theirs};
        search(&b, 0, w.n_mine, 0, 0);
        uint64_t sum = 0;
        unsigned rows = 0, columns = 0;
        (void)hw_paths_assign(&in, &p, NULL, pick);
        for (unsigned k = 0; k < p.n; k++) {
            if (!pick[k])
                continue;
            sum += (1u << 20) + p.list[k].weight;
            wrong += (rows >> p.list[k].mine & 1) + (columns >> p.list[k].theirs & 1);
            rows |= 1u << p.list[k].mine;
            columns |= 1u << p.list[k].theirs;
        }
        wrong += sum != b.most;
        hw_paths_free(&p);
    }
    is_int(wrong, 0, "2000 random networks: no assignment is better, no NIC is used twice");
}

static void test_advertise(void)
{
    static const char *const bad[] = {"eth1=",
                                      "=10.0.0.1",
                                      "eth1=10.0.0.1:0",
                                      "eth1=10.0.0.1:70000",
                                      "eth1=[fd00::1",
                                      "eth1=[fd00::1]x",
                                      "averyveryverylongname=10.0.0.1",
                                      "eth1=here",
                                      "10.0.0.256"};
    char text[HAWSER_ADDR_TEXT + 8];
    union hw_addr a;
    const char *list = "eth1=203.0.113.5,eth2=203.0.113.6:7001,eth3=[2001:db8::1]:7002,eth4=2001:db8::2,198.51.100.9";
    is_int(hw_advertise_check(list), 0, "addresses to advertise");
    is_int(hw_advertise_check(""), 0, "none");
    ok(hw_advertise_find(list, "eth1", false, 20000, &a), "the address of eth1");
    is_str(hw_addr_text(&a, text, sizeof(text)), "203.0.113.5:20000", "with the listener's port");
    ok(hw_advertise_find(list, "eth2", false, 20000, &a), "of eth2");
    is_str(hw_addr_text(&a, text, sizeof(text)), "203.0.113.6:7001", "with its own");
    ok(hw_advertise_find(list, "eth3", false, 20000, &a), "of eth3");
    is_str(hw_addr_text(&a, text, sizeof(text)), "[2001:db8::1]:7002", "IPv6");
    ok(hw_advertise_find(list, "eth4", false, 20000, &a), "of eth4");
    is_str(hw_addr_text(&a, text, sizeof(text)), "[2001:db8::2]:20000", "IPv6 without a port");
    ok(!hw_advertise_find(list, "eth5", false, 20000, &a), "another NIC has its own");
    is_str(hw_addr_text(&a, text, sizeof(text)), "[2001:db8::2]:20000", "which stays as it was");
    ok(hw_advertise_find(list, "eth5", true, 20000, &a), "but where the connection came in by it");
    is_str(hw_addr_text(&a, text, sizeof(text)), "198.51.100.9:20000", "the one without a name");
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++)
        ok(hw_advertise_check(bad[i]) == -EINVAL, "not \"%s\"", bad[i]);
}

static void test_rails(void)
{
    char *text, path[] = "/tmp/hawser-rails-XXXXXX", knob[64];
    int fd = mkstemp(path);
    snprintf(knob, sizeof(knob), "@%s", path);
    ok(fd >= 0 && write(fd, "eth1 enp6s0\n", 12) == 12, "a file of rails");
    is_int(hw_rails_read(knob, &text), 0, "is read");
    is_str(text, "eth1 enp6s0\n", "whole");
    free(text);
    ok(ftruncate(fd, HW_RAILS_MAX) == 0, "one of zeros, and too long");
    ok(hw_rails_read(knob, &text) == -EINVAL, "is refused: %s", hw_error());
    close(fd);
    unlink(path);
    ok(hw_rails_read(knob, &text) == -ENOENT, "so is one that is not there: %s", hw_error());
    is_int(hw_rails_read("eth1,eth2", &text), 0, "text is text");
    is_str(text, "eth1,eth2", "as it is");
    free(text);
}

int main(void)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(networks); i++)
        test_network(&networks[i]);
    test_best();
    test_rails();
    test_advertise();
    return tap_done();
}
