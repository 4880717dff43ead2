/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the rules of docs/sandbox.md, in the same order. */
#include "sandbox/plan/plan.h"
#include "node/node.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* from include/linux/pci_ids.h */
enum { CLASS_NETWORK = 0x02, CLASS_DISPLAY = 0x03, CLASS_BRIDGE = 0x06, CLASS_ACCEL = 0x12, CLASS_INFINIBAND = 0x0c06 };
enum { VENDOR_NVIDIA = 0x10de };

struct work {
    const struct sbx_snapshot *s;
    const struct sbx_want *want;
    struct sbx_plan *p;
    bool has_exclude;
    regex_t exclude;
    struct sbx_addr bootstrap; /* family is AF_UNSPEC if not specified */
    int rc;                    /* error of add_plan_warning(), or 0 */
};

static int fail_plan_memory(void)
{
    return hw_no_memory("the sandbox's plan");
}

#define WHY(x, ...) (snprintf((x)->why, SBX_WHY, __VA_ARGS__), 0)

static void add_plan_warning(struct work *w, const char *fmt, ...) HW_PRINTF(2, 3);
static void add_plan_warning(struct work *w, const char *fmt, ...)
{
    struct sbx_plan *p = w->p;
    char **more = realloc(p->warning, (p->n_warning + 1) * sizeof(*more));
    p->warning = more ? more : p->warning;
    va_list ap;
    va_start(ap, fmt);
    int n = more ? vasprintf(&more[p->n_warning], fmt, ap) : -1;
    va_end(ap);
    if (n < 0)
        w->rc = fail_plan_memory();
    else
        p->n_warning++;
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* Returns true if name is an element of a list such as "a,b,c". */
static bool is_in_plan_list(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == len && strncmp(p, name, len) == 0)
            return true;
    return false;
}

static bool is_none(const char *list)
{
    return list && strcmp(list, "none") == 0;
}

static bool is_all(const char *list)
{
    return !list || strcmp(list, "all") == 0;
}

/* Checks that this node has each NIC in the list, because a misspelled name would make NCCL hang later. */
static int check_listed_nics(const struct work *w, const char *list)
{
    if (!list || is_none(list))
        return 0;
    for (const char *p = list;;) {
        char name[SBX_NAME];
        size_t len = strcspn(p, ",");
        snprintf(name, sizeof(name), "%.*s", (int)HW_MIN(len, sizeof(name)), p);
        if (!sbx_name_ok(name) || len >= sizeof(name))
            return *p ? hw_fail(-EINVAL, "'%.80s': expected NICs as in rdma0,rdma1, not '%.20s'", list, p)
                      : hw_fail(-EINVAL, "'%.80s': expected NICs as in rdma0,rdma1, not the end of the text", list);
        if (sbx_find_net(w->s, name) < 0 && sbx_find_rdma(w->s, name) < 0)
            return hw_fail(-ENODEV, "'%.80s': no NIC or RDMA device '%s' on this node", list, name);
        p += len;
        if (!*p)
            return 0;
        p++;
    }
}

static int parse_plan_options(struct work *w)
{
    const char *exclude = w->want->exclude ? w->want->exclude : SBX_EXCLUDE_DEFAULT;
    int rc = check_listed_nics(w, w->want->nics);
    if (rc < 0)
        return rc;
    if (!is_all(w->want->only) && (rc = check_listed_nics(w, w->want->only)) < 0)
        return hw_wrap(rc, "the annotation hawser.nics");
    int bad = *exclude ? regcomp(&w->exclude, exclude, REG_EXTENDED | REG_NOSUB) : 0;
    if (bad) {
        char why[128];
        regerror(bad, &w->exclude, why, sizeof(why));
        return hw_fail(-EINVAL, "'%.80s' is not a regular expression: %s", exclude, why);
    }
    w->has_exclude = *exclude;
    const char *b = w->want->bootstrap;
    if (!b)
        return 0;
    w->bootstrap.family = strchr(b, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(w->bootstrap.family, b, &w->bootstrap.v4) != 1)
        return hw_fail(-EINVAL, "'%.60s' is not an IP address: --bootstrap needs an address of this node", b);
    return 0;
}

/* ---- NICs ----------------------------------------------------------------------------------- */

static bool port_is_nics(const struct sbx_snapshot *s, const struct sbx_rdma *r, const struct sbx_port *p, size_t net)
{
    const struct sbx_netdev *d = &s->net[net];
    for (size_t i = 0; i < p->n_gid; i++)
        if (strcmp(p->gid[i].ndev, d->name) == 0)
            return true;
    if (r->pci < 0 || d->pci != r->pci || d->over[0])
        return false;
    /* the two ports of one function (ConnectX-3) differ in dev_port */
    const char *port = sbx_attr(&d->attr, "dev_port");
    return r->n_port == 1 || !port || strtoul(port, NULL, 0) + 1 == p->port;
}

bool sbx_rdma_on(const struct sbx_snapshot *s, size_t r, size_t net)
{
    for (size_t k = 0; k < s->rdma[r].n_port; k++)
        if (port_is_nics(s, &s->rdma[r], &s->rdma[r].port[k], net))
            return true;
    return false;
}

/* Returns true if the list contains the interface or an RDMA device on it. */
static bool is_nic_named(const struct work *w, const char *list, size_t net)
{
    if (!list)
        return false;
    bool yes = is_in_plan_list(list, w->s->net[net].name);
    for (size_t r = 0; r < w->s->n_rdma && !yes; r++)
        yes = is_in_plan_list(list, w->s->rdma[r].name) && sbx_rdma_on(w->s, r, net);
    return yes;
}

static bool has_bootstrap(const struct work *w, const struct sbx_netdev *d)
{
    size_t n = w->bootstrap.family == AF_INET ? 4 : 16;
    for (size_t i = 0; i < d->n_addr; i++)
        if (d->addr[i].family == w->bootstrap.family && memcmp(&d->addr[i].v4, &w->bootstrap.v4, n) == 0)
            return true;
    return false;
}

static bool has_v4(const struct sbx_netdev *d)
{
    for (size_t i = 0; i < d->n_addr; i++)
        if (d->addr[i].family == AF_INET)
            return true;
    return false;
}

/* Returns the reason why the NIC is not chosen by default, or NULL. */
static const char *find_unfit_reason(const struct work *w, size_t net)
{
    const struct sbx_netdev *d = &w->s->net[net];
    bool rdma = false;
    for (size_t r = 0; r < w->s->n_rdma && !rdma; r++)
        rdma = sbx_rdma_on(w->s, r, net);
    if (rdma)
        return NULL;
    if (d->pci < 0 || w->s->pci[d->pci].class >> 16 != CLASS_NETWORK)
        return "not a PCI network controller";
    return w->s->n_rdma ? "the node has RDMA devices, but this NIC has none" : NULL;
}

static bool is_snapshot_gpu(const struct sbx_pci *d);

/* Returns true if a GPU is below the same PCI root complex as the NIC. */
static bool gpu_beside(const struct work *w, const struct sbx_netdev *d)
{
    for (size_t i = 0; d->pci >= 0 && i < w->s->n_pci; i++) {
        const struct sbx_pci *g = &w->s->pci[i];
        if (is_snapshot_gpu(g) && hw_pci_distance(&w->s->pci[d->pci].way, -1, &g->way, -1) <= HW_DIST_PHB)
            return true;
    }
    return false;
}

/* Returns true if --exclude leaves out the NIC. The default expression only guesses the NIC's purpose from its name. On
 * Google's A3 machines, eth1 to eth4 are the GPUs' NICs, so the guess is not applied to a NIC next to a GPU. */
static bool is_excluded_nic(const struct work *w, const struct sbx_netdev *d)
{
    return w->has_exclude && regexec(&w->exclude, d->name, 0, NULL, 0) == 0 && (w->want->exclude || !gpu_beside(w, d));
}

static int choose_sandbox_nic(struct work *w, size_t i)
{
    const struct sbx_netdev *d = &w->s->net[i];
    const struct sbx_want *want = w->want;
    struct sbx_plan_nic *n = &w->p->nic[i];
    bool asked = is_nic_named(w, want->nics, i);
    if (d->loopback)
        return asked ? hw_fail(-EPERM, "%s is the loopback device: every sandbox has its own", d->name)
                     : WHY(n, "loopback");
    if (want->nics && !asked)
        return WHY(n, "not in the given list of NICs");
    const char *cut = d->default_route      ? "it has a default route"
                      : has_bootstrap(w, d) ? "it has the bootstrap address"
                                            : NULL;
    if (cut && !want->force)
        return asked ? hw_fail(-EPERM,
                               "%s: %s, without which this machine may become unreachable; --force, or force=yes in "
                               "the hook, takes "
                               "the NIC anyway",
                               d->name, cut)
                     : WHY(n, "%s", cut);
    const char *no = asked ? NULL : find_unfit_reason(w, i);
    if (!asked && d->master[0])
        return WHY(n, "part of %s", d->master);
    if (no)
        return WHY(n, "%s", no);
    if (!asked && is_excluded_nic(w, d))
        return WHY(n, "--exclude %.100s", want->exclude ? want->exclude : SBX_EXCLUDE_DEFAULT);
    if (want->peer_nics && !is_in_plan_list(want->peer_nics, d->name) && want->peer)
        return WHY(n, "the peer %.100s has no corresponding NIC (--peer)", want->peer);
    if (want->peer_nics && !is_in_plan_list(want->peer_nics, d->name))
        return WHY(n, "the peer has no NIC with this name (--peer-nics)");
    if (w->s->addresses && !has_v4(d)) {
        if (want->require_ipv4)
            return hw_fail(-EADDRNOTAVAIL, "%s has no IPv4 address; give it one, %s, or drop --require-ipv4", d->name,
                           asked ? "remove it from the list of NICs" : "exclude it with --exclude");
        return WHY(n, "no IPv4 address");
    }
    return 0;
}

/* Applies the tenant's choice, which can only restrict the plan. Listing a NIC that the operator's settings leave out
 * is an error. */
static int apply_nic_annotation(struct work *w, size_t i)
{
    struct sbx_plan_nic *n = &w->p->nic[i];
    if (is_all(w->want->only))
        return 0;
    bool asked = is_nic_named(w, w->want->only, i);
    if (asked && n->why[0])
        return hw_fail(-EPERM,
                       "the annotation hawser.nics requests %s, which the operator's settings leave out: %.120s; an "
                       "annotation can only choose among the NICs that the settings include",
                       n->name, n->why);
    return asked || n->why[0] ? 0 : WHY(n, "not named by the annotation hawser.nics");
}

/* ---- RDMA devices --------------------------------------------------------------------------- */

/* Returns true if the GID's NIC is in the sandbox and, if v4 is set, the GID is RoCE v2 over IPv4. */
static bool gid_usable(const struct sbx_plan *p, const struct sbx_snapshot *s, const struct sbx_gid *g, bool v4)
{
    int net = g->ndev[0] ? sbx_find_net(s, g->ndev) : -1;
    bool mapped = strncmp(g->gid, "0000:0000:0000:0000:0000:ffff:", 30) == 0 && strcmp(g->type, "RoCE v2") == 0;
    return net >= 0 && sbx_nic_in(p, (size_t)net) && (mapped || !v4);
}

/* Returns the index of a GID of p with a NIC in the sandbox, for RoCE v2 over IPv4 if v4 is set, or -1 if there is
 * none. */
static int live_gid(const struct work *w, const struct sbx_port *p, bool v4)
{
    for (size_t i = 0; i < p->n_gid; i++)
        if (gid_usable(w->p, w->s, &p->gid[i], v4))
            return (int)p->gid[i].index;
    return -1;
}

static bool port_usable(const struct work *w, size_t r, const struct sbx_port *p)
{
    const struct sbx_rdma *d = &w->s->rdma[r];
    const char *layer = sbx_attr(&p->attr, "link_layer");
    bool ib = layer && strcmp(layer, "InfiniBand") == 0, nic = false;
    for (size_t i = 0; i < w->s->n_net && !nic; i++)
        nic = sbx_nic_in(w->p, i) && port_is_nics(w->s, d, p, i);
    /* InfiniBand needs no interface. If the snapshot has no GIDs, only the interface is checked. */
    if (ib)
        return nic || ((!w->want->nics || is_in_plan_list(w->want->nics, d->name)) &&
                       (is_all(w->want->only) || is_in_plan_list(w->want->only, d->name)));
    return w->s->gids ? live_gid(w, p, false) >= 0 : nic;
}

static int why_no_rdma(const struct work *w, size_t r)
{
    struct sbx_plan_rdma *out = &w->p->rdma[r];
    bool in = false;
    for (size_t i = 0; i < w->s->n_net; i++) {
        if (!sbx_rdma_on(w->s, r, i))
            continue;
        if (!sbx_nic_in(w->p, i))
            return WHY(out, "its NIC %s is left out: %.100s", w->s->net[i].name, w->p->nic[i].why);
        in = true;
    }
    return WHY(out, !in && (w->want->nics || !is_all(w->want->only))
                        ? "neither the device nor one of its NICs was requested"
                        : "no GID of a NIC in the sandbox");
}

static bool has_port(const struct sbx_plan_rdma *r, unsigned port)
{
    for (size_t i = 0; i < r->n_port; i++)
        if (r->port[i] == port)
            return true;
    return false;
}

/* Chooses the ports of device r. If `was` is not NULL, chooses only among its ports. */
static int choose_rdma(struct work *w, size_t r, const struct sbx_plan_rdma *was)
{
    const struct sbx_rdma *d = &w->s->rdma[r];
    struct sbx_plan_rdma *out = &w->p->rdma[r];
    *out = (struct sbx_plan_rdma){.name = d->name, .rdma = (int)r, .gid_index = -1};
    out->port = calloc(d->n_port + 1, sizeof(*out->port));
    if (!out->port)
        return fail_plan_memory();
    for (size_t k = 0; k < d->n_port; k++) {
        if (is_none(w->want->nics) || is_none(w->want->only) || !port_usable(w, r, &d->port[k]) ||
            (was && !has_port(was, d->port[k].port)))
            continue;
        int index = live_gid(w, &d->port[k], true);
        out->gid_index = out->n_port == 0 || out->gid_index == index ? index : -1;
        out->port[out->n_port++] = d->port[k].port;
    }
    return out->n_port ? 0 : why_no_rdma(w, r);
}

/* ---- GPUs ----------------------------------------------------------------------------------- */

/* Returns true for GPUs, but not for the display controller of a baseboard management controller (BMC). */
static bool is_snapshot_gpu(const struct sbx_pci *d)
{
    return (d->class >> 16 == CLASS_DISPLAY || d->class >> 16 == CLASS_ACCEL) && *hw_pci_vendor(d->vendor);
}

/* Parses digits at *p. Returns false if there are none or too many. */
static bool parse_sandbox_ordinal(const char **p, unsigned *out)
{
    unsigned v = 0, n = 0;
    for (; isdigit((unsigned char)**p) && n < 7; n++, (*p)++)
        v = 10 * v + (unsigned)(**p - '0');
    *out = v;
    return n > 0 && n < 7;
}

/* Selects the GPUs in a list such as "0-3,6": clears why for these and sets it for all others. */
/* Parses a list such as "0-3,6" or "none", and sets named[i] for each GPU i of the plan that the list names. */
static int parse_sandbox_gpus(const struct sbx_plan *p, const char *list, bool *named)
{
    for (const char *at = list; !is_none(list);) {
        unsigned a, b;
        bool good = parse_sandbox_ordinal(&at, &a);
        b = a;
        if (good && *at == '-') {
            at++;
            good = parse_sandbox_ordinal(&at, &b);
        }
        if (!good || b < a || (*at && *at != ','))
            return hw_fail(-EINVAL, "'%.80s': expected GPUs as in 0-3,6", list);
        for (unsigned g = a; g <= b; g++) {
            if (g >= p->n_gpu || p->gpu[g].ordinal != (int)g)
                return hw_fail(-ENODEV, "'%.80s': no GPU %u on this node", list, g);
            named[g] = true;
        }
        if (!*at++)
            break;
    }
    return 0;
}

/* Leaves out the GPUs that the list does not name. `who` describes the list. Naming a GPU that an earlier list has left
 * out is an error. */
static int pick_sandbox_gpus(struct work *w, const char *list, const char *who)
{
    struct sbx_plan *p = w->p;
    if (is_all(list))
        return 0;
    HW_AUTO_FREE bool *named = calloc(p->n_gpu + 1, sizeof(*named));
    int rc = named ? parse_sandbox_gpus(p, list, named) : hw_no_memory("a list of GPUs");
    for (size_t i = 0; i < p->n_gpu && rc == 0; i++) {
        if (named[i] && p->gpu[i].why[0])
            rc = hw_fail(-EPERM,
                         "%s requests GPU %zu, which the operator's settings leave out: %.120s; an annotation can only "
                         "choose among the GPUs that the settings include",
                         who, i, p->gpu[i].why);
        else if (!named[i] && !p->gpu[i].why[0])
            snprintf(p->gpu[i].why, SBX_WHY, "not named by %s", who);
    }
    return rc;
}

/* Lists CUDA's GPUs first, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID. */
static int choose_gpus(struct work *w)
{
    struct sbx_plan *p = w->p;
    for (int cuda = 1; cuda >= 0; cuda--) {
        for (size_t i = 0; i < w->s->n_pci; i++) {
            const struct sbx_pci *d = &w->s->pci[i];
            if (!is_snapshot_gpu(d) || (d->vendor == VENDOR_NVIDIA) != cuda)
                continue;
            struct sbx_plan_gpu *g = &p->gpu[p->n_gpu];
            *g = (struct sbx_plan_gpu){.ordinal = cuda ? (int)p->n_gpu : -1, .pci = (int)i};
            hw_bdf_text(d->way.at[d->way.depth - 1], g->at);
            p->n_gpu++;
        }
    }
    int rc = pick_sandbox_gpus(w, w->want->gpus, "--gpus");
    return rc < 0 ? rc : pick_sandbox_gpus(w, w->want->only_gpus, "the annotation hawser.gpus");
}

/* ---- PCI devices ---------------------------------------------------------------------------- */

/* Returns the reason for leaving a PCI device out of the sandbox's sysfs, or NULL. NCCL would treat a network
 * controller with an unusable RDMA device as usable, and then find no path to it. */
static const char *why_no_pci(const struct work *w, int pci)
{
    const struct sbx_pci *d = &w->s->pci[pci];
    const struct sbx_plan *p = w->p;
    bool rdma = false, in = false;
    for (size_t i = 0; i < p->n_gpu; i++)
        if (p->gpu[i].pci == pci)
            return p->gpu[i].why[0] ? p->gpu[i].why : NULL;
    if (d->class >> 16 == CLASS_BRIDGE)
        return NULL;
    for (size_t i = 0; i < p->n_rdma; i++) {
        rdma |= w->s->rdma[i].pci == pci;
        in |= w->s->rdma[i].pci == pci && !p->rdma[i].why[0];
    }
    for (size_t i = 0; i < p->n_nic && !rdma; i++)
        in |= w->s->net[i].pci == pci && sbx_nic_in(p, i);
    bool nic = d->class >> 16 == CLASS_NETWORK || d->class >> 8 == CLASS_INFINIBAND;
    if (in || (nic && w->want->keep_nics))
        return NULL;
    return !nic ? "neither a bridge, a GPU nor a NIC" : rdma ? "its RDMA device is left out" : "no NIC in the sandbox";
}

/* ---- the plan ------------------------------------------------------------------------------- */

static int collect_plan_warnings(struct work *w)
{
    const struct sbx_snapshot *s = w->s;
    size_t in = 0, bootstrap = 0;
    for (size_t i = 0; i < s->n_net; i++) {
        const char *state = sbx_attr(&s->net[i].attr, "operstate");
        bootstrap += has_bootstrap(w, &s->net[i]);
        if (!sbx_nic_in(w->p, i))
            continue;
        in++;
        for (size_t r = 0; r < s->n_rdma; r++)
            if (w->p->rdma[r].why[0] && sbx_rdma_on(s, r, i))
                add_plan_warning(w, "%s moves without its RDMA device %s: %s", s->net[i].name, s->rdma[r].name,
                                 w->p->rdma[r].why);
        if (state && strcmp(state, "down") == 0)
            add_plan_warning(w, "%s is down", s->net[i].name);
        if (s->net[i].master[0])
            add_plan_warning(w, "%s is part of %s, so no container can get it: take it out of %s first", s->net[i].name,
                             s->net[i].master, s->net[i].master);
        if (s->net[i].default_route)
            add_plan_warning(w, "%s has a default route, which this machine will lose (--force)", s->net[i].name);
    }
    if (in && !s->addresses)
        add_plan_warning(w, "IP addresses are unknown, so NICs without an IPv4 address are not left out");
    if (in && w->want->nics && s->n_rdma == 0)
        add_plan_warning(w, "no RDMA device was found: if the listed NICs have RDMA devices, set NCCL_IB_HCA manually");
    if (w->bootstrap.family && !s->addresses)
        add_plan_warning(w, "IP addresses are unknown, so the NIC with the bootstrap address %s is not left out",
                         w->want->bootstrap);
    else if (w->bootstrap.family && !bootstrap)
        add_plan_warning(w, "no NIC has the bootstrap address %s: it must be an address of this node",
                         w->want->bootstrap);
    return w->rc;
}

/* Warns about NICs in --peer-nics that the sandbox lacks, because NCCL hangs if one node has more NICs than another.
 * With --peer, the list contains only this node's NICs and is not checked. */
static int check_peer(struct work *w)
{
    for (const char *p = w->want->peer_nics && !w->want->peer ? w->want->peer_nics : ""; *p && w->rc == 0;) {
        char name[SBX_NAME];
        size_t len = strcspn(p, ",");
        snprintf(name, sizeof(name), "%.*s", (int)HW_MIN(len, sizeof(name)), p);
        if (!sbx_name_ok(name) || len >= sizeof(name))
            return hw_fail(-EINVAL, "'%.80s': expected the peer's NICs as in rdma0,rdma1", w->want->peer_nics);
        int at = sbx_find_net(w->s, name);
        if (at < 0 || !sbx_nic_in(w->p, (size_t)at))
            add_plan_warning(w, "the peer's NIC %s is %s: repeat the plan on the peer with --peer-nics as below", name,
                             at < 0 ? "not on this node" : "left out here");
        p += len;
        p += *p == ',';
    }
    return w->rc;
}

/* Prints the names of the NICs that were left out for the same reason as NIC i, which is the first of them. */
static void put_group(const struct sbx_plan *p, size_t i, FILE *f)
{
    size_t n = 0;
    for (size_t k = i; k < p->n_nic; k++)
        if (strcmp(p->nic[k].why, p->nic[i].why) == 0)
            fprintf(f, "%s%s", n++ ? ", " : "", p->nic[k].name);
    fprintf(f, ": %s", p->nic[i].why);
}

/* Fails if the plan has neither a NIC nor an RDMA device and such a plan was not requested. The error text lists the
 * reason for each NIC except loopback. */
static int check_left(const struct work *w)
{
    struct sbx_plan *p = w->p;
    size_t groups = 0, len;
    char *text = NULL;
    for (size_t i = 0; i < p->n_nic; i++)
        if (sbx_nic_in(p, i))
            return 0;
    for (size_t i = 0; i < p->n_rdma; i++)
        if (!p->rdma[i].why[0])
            return 0;
    if (is_none(w->want->nics) || is_none(w->want->only))
        return 0;
    p->empty = true;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return fail_plan_memory();
    for (size_t i = 0; i < p->n_nic; i++) {
        bool first = !w->s->net[i].loopback;
        for (size_t k = 0; first && k < i; k++)
            first = strcmp(p->nic[k].why, p->nic[i].why) != 0;
        if (first) {
            fputs(groups++ ? "; " : "", f);
            put_group(p, i, f);
        }
    }
    int rc = fclose(f) == 0
                 ? hw_fail(-ENXIO, "no NIC is left for the sandbox (use --nics none if that is intended): %s",
                           groups ? text : "this node has none")
                 : fail_plan_memory();
    free(text);
    return rc;
}

static int fill_sandbox_plan(struct work *w)
{
    const struct sbx_snapshot *s = w->s;
    struct sbx_plan *p = w->p;
    p->nic = calloc(s->n_net + 1, sizeof(*p->nic));
    p->rdma = calloc(s->n_rdma + 1, sizeof(*p->rdma));
    p->gpu = calloc(s->n_pci + 1, sizeof(*p->gpu));
    p->pci_why = calloc(s->n_pci + 1, sizeof(*p->pci_why));
    if (!p->nic || !p->rdma || !p->gpu || !p->pci_why)
        return fail_plan_memory();
    int rc = parse_plan_options(w);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < s->n_net; i++) {
        p->nic[p->n_nic++] = (struct sbx_plan_nic){.name = s->net[i].name, .net = (int)i};
        rc = choose_sandbox_nic(w, i);
        if (rc < 0 || (rc = apply_nic_annotation(w, i)) < 0)
            return rc;
    }
    for (size_t i = 0; i < s->n_rdma; i++) {
        p->n_rdma++;
        rc = choose_rdma(w, i, NULL);
        if (rc < 0)
            return rc;
    }
    rc = choose_gpus(w);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < s->n_pci; i++)
        p->pci_why[i] = why_no_pci(w, (int)i);
    rc = check_peer(w);
    if (rc < 0 || (rc = collect_plan_warnings(w)) < 0)
        return rc;
    return check_left(w);
}

int sbx_plan_make(struct sbx_plan *out, const struct sbx_snapshot *s, const struct sbx_want *want)
{
    *out = (struct sbx_plan){0};
    struct work w = {.s = s, .want = want, .p = out};
    int rc = fill_sandbox_plan(&w);
    if (w.has_exclude)
        regfree(&w.exclude);
    return rc;
}

size_t sbx_plan_gids(const struct sbx_plan *p, const struct sbx_snapshot *s)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_rdma; i++)
        for (size_t k = 0; k < s->rdma[i].n_port; k++) {
            const struct sbx_port *port = &s->rdma[i].port[k];
            for (size_t g = 0; has_port(&p->rdma[i], port->port) && g < port->n_gid; g++)
                n += gid_usable(p, s, &port->gid[g], true);
        }
    return n;
}

int sbx_plan_again(struct sbx_plan *p, const struct sbx_snapshot *s, const struct sbx_want *want)
{
    struct work w = {.s = s, .want = want, .p = p};
    for (size_t i = 0; i < p->n_rdma; i++) {
        struct sbx_plan_rdma was = p->rdma[i];
        if (was.why[0])
            continue;
        int rc = choose_rdma(&w, i, &was);
        free(was.port);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < s->n_pci; i++)
        p->pci_why[i] = why_no_pci(&w, (int)i);
    return 0;
}

void sbx_plan_free(struct sbx_plan *p)
{
    for (size_t i = 0; i < p->n_rdma; i++)
        free(p->rdma[i].port);
    for (size_t i = 0; i < p->n_warning; i++)
        free(p->warning[i]);
    free(p->nic);
    free(p->rdma);
    free(p->gpu);
    free(p->pci_why);
    free(p->warning);
    *p = (struct sbx_plan){0};
}
