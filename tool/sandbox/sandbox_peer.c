/* SPDX-License-Identifier: Apache-2.0 */
/* Queries the peer's `hawser serve` for the peer's NICs, and finds this node's NICs that have a partner at the peer. */
#include "tool/peer/reach.h"
#include "tool/peer/session.h"
#include "tool/sandbox/sandbox.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define NICS_MS 10000

/* ---- matching ----------------------------------------------------------------------------------- */

static bool has_rdma_device(const struct sbx_snapshot *s, size_t net)
{
    for (size_t r = 0; r < s->n_rdma; r++)
        if (sbx_rdma_on(s, r, net))
            return true;
    return false;
}

/* Converts an address of one of our NICs to the peer's form. */
static struct tp_fact_nic as_fact(const struct sbx_addr *a)
{
    struct tp_fact_nic f = {.addr.family = a->family == AF_INET ? 4 : 6, .prefix = (uint16_t)a->prefix};
    memcpy(f.addr.byte, &a->v4, a->family == AF_INET ? 4 : 16);
    return f;
}

/* Ways to match NICs, in the order in which they are tried. Both nodes of a pair should reach the same result. */
enum way { WAY_NAME, WAY_SUBNET, WAY_RAIL, WAY_NAME_ALONE, WAYS };

static bool matches_peer_nic(const struct sbx_snapshot *s, size_t net, const struct tp_fact_nic *p, enum way way)
{
    const struct sbx_netdev *d = &s->net[net];
    bool name = strcmp(d->name, p->nic) == 0, near = false, rails = false;
    for (size_t i = 0; i < d->n_addr; i++) {
        const struct tp_fact_nic f = as_fact(&d->addr[i]);
        near |= reach_same_subnet(&f, &p->addr);
        rails |= reach_is_rail(&f) && reach_is_rail(p) && f.addr.family == p->addr.family;
    }
    switch (way) {
    case WAY_NAME:
        return name && (near || rails || !s->addresses);
    case WAY_SUBNET:
        return near && has_rdma_device(s, net) == (p->rdma[0] != 0);
    case WAY_RAIL:
        return rails && has_rdma_device(s, net) == (p->rdma[0] != 0);
    default:
        return name;
    }
}

static int compare_peer_nics(const void *a, const void *b)
{
    return strverscmp(((const struct tp_fact_nic *)a)->nic, ((const struct tp_fact_nic *)b)->nic);
}

void sandbox_match(const struct sbx_snapshot *s, struct tp_facts *peer, int partner[TP_MAX_NICS])
{
    qsort(peer->nic, peer->n_nics, sizeof(*peer->nic), compare_peer_nics);
    for (uint32_t k = 0; k < peer->n_nics; k++)
        partner[k] = -1;
    for (enum way way = 0; way < WAYS; way++)
        for (size_t i = 0; i < s->n_net; i++) {
            uint32_t k = 0;
            bool taken = s->net[i].loopback;
            for (uint32_t n = 0; n < peer->n_nics; n++)
                taken |= partner[n] == (int)i;
            while (!taken && k < peer->n_nics && (partner[k] >= 0 || !matches_peer_nic(s, i, &peer->nic[k], way)))
                k++;
            for (uint32_t n = 0; !taken && k < peer->n_nics && n < peer->n_nics; n++)
                if (strcmp(peer->nic[n].nic, peer->nic[k].nic) == 0) /* for all addresses of the NIC */
                    partner[n] = (int)i;
        }
}

/* ---- asking -------------------------------------------------------------------------------------- */

static int call_for_facts(struct sandbox_args *a, struct session *s, hawser **h, struct tp_facts *out)
{
    struct tp_request q = {.type = TP_FACTS, .flags = TP_CONTAINED};
    HW_AUTO_FREE struct tp_reply *r = calloc(1, sizeof(*r));
    const struct hawser_connect_options any = {.size = sizeof(any), .channels = 1};
    char host[256];
    uint16_t port = HAWSER_DEFAULT_PORT;
    int rc = r ? opts_host(a->peer, host, sizeof(host), &port) : hw_no_memory("the peer's answer");
    if (rc < 0 || (rc = common_open(&a->common, h)) < 0)
        return rc;
    rc = session_open(s, *h, host, port, &any);
    if (rc < 0 || (rc = session_call(s, &q, r, NICS_MS)) < 0)
        return rc;
    *out = r->facts;
    return 0;
}

static int ask_peer_facts(struct sandbox_args *a, struct tp_facts *out)
{
    struct session session = {0};
    hawser *h = NULL;
    int rc = call_for_facts(a, &session, &h, out);
    if (rc < 0)
        (void)hw_wrap(rc, "asking %s for the list of its NICs", a->peer);
    HW_KEEP_ERROR();
    session_close(&session);
    if (h)
        hawser_close(h);
    common_free(&a->common);
    return rc;
}

/* ---- saying -------------------------------------------------------------------------------------- */

static void print_peer_nic(const struct sbx_snapshot *s, const struct tp_fact_nic *p, int partner)
{
    char ip[INET6_ADDRSTRLEN], rdma[64] = "no RDMA device";
    inet_ntop(p->addr.family == 4 ? AF_INET : AF_INET6, p->addr.byte, ip, sizeof(ip));
    if (p->rdma[0])
        snprintf(rdma, sizeof(rdma), "%s GID %u", p->rdma, p->gid);
    fprintf(stderr, "# the peer's %s %s/%u, %s%s: %s%s\n", p->nic, ip, p->prefix, rdma,
            p->contained ? ", in a container" : "", partner < 0 ? "no partner on this node" : "with ",
            partner < 0 ? "" : s->net[partner].name);
}

static void warn_of_peer_nics(const char *cmd, const struct sbx_snapshot *s, const struct tp_facts *peer,
                              const int *partner, const char *host)
{
    for (uint32_t k = 0; k < peer->n_nics; k++) {
        const struct tp_fact_nic *p = &peer->nic[k];
        bool again = k && strcmp(p->nic, p[-1].nic) == 0, v4 = false;
        for (uint32_t n = 0; n < peer->n_nics; n++)
            v4 |= strcmp(p->nic, peer->nic[n].nic) == 0 && peer->nic[n].rdma[0];
        if (again)
            continue;
        if (partner[k] < 0 && v4)
            fprintf(stderr,
                    "hawser %s: warning: no NIC of this node is a partner of %s's %s: use --peer on that node, too\n",
                    cmd, host, p->nic);
        else if (partner[k] >= 0 && has_rdma_device(s, (size_t)partner[k]) != v4)
            fprintf(stderr,
                    "hawser %s: warning: %s of this node has %s RDMA device, but %s's %s has %s with a RoCE v2 GID\n",
                    cmd, s->net[partner[k]].name, v4 ? "no" : "an", host, p->nic, v4 ? "one" : "none");
    }
    if (peer->n_nics == TP_MAX_NICS)
        fprintf(stderr, "hawser %s: warning: %s reports at most %d addresses; use --peer-nics if it has more\n", cmd,
                host, TP_MAX_NICS);
}

char *sandbox_ask_peer(const char *cmd, struct sandbox_args *a, const struct sbx_snapshot *s, bool verbose)
{
    struct tp_facts *peer = calloc(1, sizeof(*peer));
    int partner[TP_MAX_NICS];
    char *list = NULL;
    size_t len, n = 0;
    int rc = peer ? ask_peer_facts(a, peer) : hw_no_memory("the peer's answer");
    FILE *f = rc == 0 ? open_memstream(&list, &len) : NULL;
    if (rc == 0 && !f)
        hw_no_memory("the peer's NICs");
    if (f) {
        sandbox_match(s, peer, partner);
        for (uint32_t k = 0; k < peer->n_nics; k++) {
            if (verbose)
                print_peer_nic(s, &peer->nic[k], partner[k]);
            if (partner[k] >= 0 && (k == 0 || partner[k] != partner[k - 1]))
                fprintf(f, "%s%s", n++ ? "," : "", s->net[partner[k]].name);
        }
        warn_of_peer_nics(cmd, s, peer, partner, a->peer);
        if (fclose(f) != 0) {
            free(list);
            list = NULL;
            hw_no_memory("the peer's NICs");
        }
    }
    free(peer);
    return list;
}
