/* SPDX-License-Identifier: Apache-2.0 */
#include "node/plan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { CLASS_NETWORK = 0x02 }; /* from include/linux/pci_ids.h */
enum rank { RANK_PCI, RANK_DEFAULT_ROUTE, RANK_OTHER, RANK_LOOPBACK, RANKS, RANK_NEVER };

struct work {
    const struct hw_node *n;
    struct hw_plan *p;
    bool *may;    /* by netdev: true if it is a candidate */
    double *load; /* by netdev: number of GPUs assigned to it so far */
    int *cost;    /* by netdev, for one GPU: the cost, and then 0 for the nearest NICs and 1 for the others */
    bool *same;   /* by GPU of the plan: true if in the current group */
    bool *done;
    int *order; /* indices of netdevs, sorted by PCI address */
};

/* ---- lists and maps as text ----------------------------------------------------------------- */

/* Parses the digits at *p. Returns false if there are no digits or too many. */
static bool parse_plan_ordinal(const char **p, unsigned *out)
{
    unsigned v = 0, n = 0;
    for (; isdigit((unsigned char)**p) && n < 7; n++, (*p)++)
        v = 10 * v + (unsigned)(**p - '0');
    *out = v;
    return n > 0 && n < 7;
}

/* Sets pick[] for each GPU in a list such as "0,2-3", up to any character in stop. `what` is the whole text, for error
 * messages. */
static int parse_plan_gpus(const char **p, const char *stop, bool *pick, size_t n_gpus, const char *what)
{
    for (;;) {
        unsigned a, b;
        bool good = parse_plan_ordinal(p, &a);
        b = a;
        if (good && **p == '-') {
            (*p)++;
            good = parse_plan_ordinal(p, &b);
        }
        if (good && b < a)
            return hw_fail(-EINVAL, "'%.80s': the range %u-%u ends before it begins", what, a, b);
        if (!good || (**p != ',' && !strchr(stop, **p)))
            return **p ? hw_fail(-EINVAL, "'%.80s': expected GPUs as in 0,2-3, not '%.20s'", what, *p)
                       : hw_fail(-EINVAL, "'%.80s': expected GPUs as in 0,2-3, not the end of the text", what);
        for (unsigned i = a; i <= b; i++) {
            if (i >= n_gpus)
                return hw_fail(-ENODEV, "'%.80s': GPU %u does not exist (GPUs on this node: %zu)", what, i, n_gpus);
            if (pick[i])
                return hw_fail(-EINVAL, "'%.80s': GPU %u is listed twice", what, i);
            pick[i] = true;
        }
        if (**p != ',')
            return 0;
        (*p)++;
    }
}

/* Sets pick[] for each interface in a list such as "eth1,eth2", up to any character in stop. */
static int parse_plan_nics(const char **p, const char *stop, bool *pick, const struct hw_node *n, const char *what)
{
    for (;; (*p)++) {
        size_t len = strcspn(*p, ",;="), i = 0;
        while (i < n->n_netdev && (strlen(n->netdev[i].name) != len || strncmp(n->netdev[i].name, *p, len) != 0))
            i++;
        if (len == 0 || ((*p)[len] != ',' && !strchr(stop, (*p)[len])))
            return **p ? hw_fail(-EINVAL, "'%.80s': expected NICs as in eth1,eth2, not '%.20s'", what, *p)
                       : hw_fail(-EINVAL, "'%.80s': expected NICs as in eth1,eth2, not the end of the text", what);
        if (i == n->n_netdev)
            return hw_fail(-ENODEV, "'%.80s': no NIC '%.*s' on this node", what, (int)HW_MIN(len, 40u), *p);
        if (pick[i])
            return hw_fail(-EINVAL, "'%.80s': NIC %s is listed twice for the same GPUs", what, n->netdev[i].name);
        pick[i] = true;
        *p += len;
        if (**p != ',')
            return 0;
    }
}

static int set_nics(struct hw_plan_gpu *g, const bool *pick, const int *order, size_t n)
{
    g->nic = malloc((n + 1) * sizeof(*g->nic));
    if (!g->nic)
        return hw_no_memory("the plan");
    for (size_t i = 0; i < n; i++)
        if (pick[order[i]])
            g->nic[g->n_nics++] = order[i];
    return 0;
}

/* Applies map to the plan's GPUs. GPUs in the map that are not planned are checked and skipped. */
static int apply_map(struct work *w, const char *map)
{
    size_t n_gpus = w->n->n_cuda, n_nics = w->n->n_netdev;
    HW_AUTO_FREE bool *seen = calloc(n_gpus + 1, 1);
    HW_AUTO_FREE bool *gpus = calloc(n_gpus + 1, 1);
    HW_AUTO_FREE bool *nics = calloc(n_nics + 1, 1);
    if (!seen || !gpus || !nics)
        return hw_no_memory("the map");
    for (const char *p = map;; p++) {
        int rc;
        memset(gpus, 0, n_gpus);
        memset(nics, 0, n_nics);
        if ((rc = parse_plan_gpus(&p, "=", gpus, n_gpus, map)) < 0)
            return rc;
        if (*p != '=') /* strchr() also matches the terminating NUL as a stop character */
            return hw_fail(-EINVAL, "'%.80s': expected a map of the form GPUs=NICs;GPUs=NICs, as in 0,1=eth1;2,3=eth2",
                           map);
        p++;
        if ((rc = parse_plan_nics(&p, ";", nics, w->n, map)) < 0)
            return rc;
        for (size_t i = 0; i < n_gpus; i++) {
            if (gpus[i] && seen[i])
                return hw_fail(-EINVAL, "'%.80s': GPU %zu is listed twice", map, i);
            seen[i] |= gpus[i];
        }
        for (size_t i = 0; i < w->p->n_gpus; i++) {
            struct hw_plan_gpu *g = &w->p->gpu[i];
            if (!gpus[g->gpu])
                continue;
            if ((rc = set_nics(g, nics, w->order, n_nics)) < 0)
                return rc;
            g->mapped = w->done[i] = true;
        }
        if (*p != ';')
            return 0;
    }
}

/* ---- which NICs may serve ------------------------------------------------------------------- */

static const struct hw_netdev *find_lower_netdev(const struct hw_node *n, const struct hw_netdev *d)
{
    for (size_t i = 0; d->over[0] && i < n->n_netdev; i++)
        if (strcmp(n->netdev[i].name, d->over) == 0)
            return &n->netdev[i];
    return NULL;
}

static enum rank rank_of(const struct hw_node *n, const struct hw_netdev *d, const char **why)
{
    const struct hw_netdev *lower = find_lower_netdev(n, d);
    /* loopback and some other virtual interfaces report "unknown" while they are up */
    bool up = strcmp(d->state, "up") == 0 || strcmp(d->state, "unknown") == 0;
    *why = d->master[0] ? "part of another interface" : !up ? "down" : n->live && !d->address ? "no IP address" : NULL;
    if (*why)
        return RANK_NEVER;
    if (d->loopback)
        return RANK_LOOPBACK;
    if (d->pci < 0 || n->pci[d->pci].class >> 16 != CLASS_NETWORK)
        return RANK_OTHER;
    if (lower && strcmp(lower->master, d->name) != 0 && rank_of(n, lower, why) < RANK_OTHER) {
        *why = "uses the same wire as the NIC that it is stacked on";
        return RANK_NEVER;
    }
    *why = NULL;
    return d->default_route ? RANK_DEFAULT_ROUTE : RANK_PCI;
}

static const char *const passed_over[] = {[RANK_DEFAULT_ROUTE] = "default route",
                                          [RANK_OTHER] = "not a network controller on PCI",
                                          [RANK_LOOPBACK] = "loopback"};

static void choose_serving_nics(struct work *w)
{
    const struct hw_node *n = w->n;
    unsigned best = RANKS;
    int64_t fastest = 0;
    for (size_t i = 0; i < n->n_netdev; i++)
        best = HW_MIN(best, (unsigned)rank_of(n, &n->netdev[i], &w->p->why[i]));
    /* RANK_DEFAULT_ROUTE is the best rank only if no NIC has RANK_PCI */
    for (size_t i = 0; i < n->n_netdev; i++) {
        const char *why;
        unsigned r = rank_of(n, &n->netdev[i], &why);
        w->may[i] = r == best && best < RANKS;
        if (!w->may[i] && r < RANKS)
            w->p->why[i] = passed_over[r];
        if (w->may[i])
            fastest = HW_MAX(fastest, n->netdev[i].speed);
    }
    for (size_t i = 0; i < n->n_netdev; i++) {
        if (w->may[i] && n->netdev[i].speed >= 0 && n->netdev[i].speed < fastest / 10) {
            w->may[i] = false;
            w->p->why[i] = "less than a tenth of the fastest NIC's speed";
        }
    }
}

/* ---- which serve a GPU ---------------------------------------------------------------------- */

/* Returns the PCI distance, shifted left by 8 bits. For functions on different NUMA nodes, the low byte contains the
 * firmware's distance. */
static int compute_nic_cost(const struct hw_node *n, const struct hw_gpu *g, const struct hw_netdev *d)
{
    int far = (int)hw_node_distance(n, g->pci, d->pci);
    if (far < HW_DIST_SYS)
        return far << 8;
    unsigned numa = hw_node_numa_distance(n, hw_node_numa_of(n, g->pci), hw_node_numa_of(n, d->pci));
    return far << 8 | (int)HW_MIN(numa, 255u);
}

/* Sets cost[] to 0 for the NICs nearest to GPU g and to 1 for the others. Returns the cost of the nearest NICs. */
static int find_nearest_nics(struct work *w, const struct hw_plan_gpu *g)
{
    int best = INT32_MAX;
    for (size_t i = 0; i < w->n->n_netdev; i++) {
        w->cost[i] = w->may[i] ? compute_nic_cost(w->n, &w->n->gpu[g->gpu], &w->n->netdev[i]) : INT32_MAX;
        best = HW_MIN(best, w->cost[i]);
    }
    for (size_t i = 0; i < w->n->n_netdev; i++)
        w->cost[i] = !w->may[i] || w->cost[i] != best;
    return best;
}

/* Returns the lowest load of the group's nearest NICs after `gpus` more GPUs have been distributed among these NICs,
 * always to the NIC with the lowest load. */
static double compute_load_level(const struct work *w, double gpus)
{
    double lo = 0, hi = gpus;
    for (size_t i = 0; i < w->n->n_netdev; i++)
        if (!w->cost[i])
            hi = HW_MAX(hi, w->load[i] + gpus);
    for (int step = 0; step < 100; step++) { /* down to the last bit of a double */
        double mid = (lo + hi) / 2, room = 0;
        for (size_t i = 0; i < w->n->n_netdev; i++)
            if (!w->cost[i])
                room += HW_MAX(mid - w->load[i], 0.0);
        *(room < gpus ? &lo : &hi) = mid;
    }
    return hi;
}

/* Models the GPUs of the group as intervals of length one on a line. The candidate NICs follow each other on the same
 * line as intervals, each as long as the NIC's free capacity. A NIC serves the GPUs that its interval overlaps. */
static int share_nics_among_gpus(struct work *w, size_t gpus)
{
    double top = compute_load_level(w, (double)gpus), g0 = 0;
    HW_AUTO_FREE bool *pick = calloc(w->n->n_netdev + 1, 1);
    if (!pick)
        return hw_no_memory("the plan");
    for (size_t k = 0; k < w->p->n_gpus; k++) {
        if (!w->same[k])
            continue;
        double n0 = 0;
        for (size_t i = 0; i < w->n->n_netdev; i++) {
            size_t nic = (size_t)w->order[i];
            double len = w->cost[nic] ? 0 : HW_MAX(top - w->load[nic], 0.0);
            /* an overlap below a millionth of a GPU is rounding error */
            pick[nic] = HW_MIN(n0 + len, g0 + 1) - HW_MAX(n0, g0) > 1e-6;
            n0 += len;
        }
        int rc = set_nics(&w->p->gpu[k], pick, w->order, w->n->n_netdev);
        if (rc < 0)
            return rc;
        g0 += 1;
    }
    for (size_t i = 0; i < w->n->n_netdev; i++)
        if (!w->cost[i])
            w->load[i] = HW_MAX(w->load[i], top);
    return 0;
}

/* Assigns NICs to the next group of GPUs. The group consists of the unserved GPU that is closest to its nearest NICs,
 * and of all GPUs with the same nearest NICs. Returns 1, 0 if no GPU is left, or -ENOMEM. */
static int serve_next(struct work *w)
{
    struct hw_plan *p = w->p;
    size_t first = p->n_gpus, gpus = 0;
    int best = INT32_MAX;
    for (size_t k = 0; k < p->n_gpus; k++) {
        int c = w->done[k] ? INT32_MAX : find_nearest_nics(w, &p->gpu[k]);
        if (c < best) {
            best = c;
            first = k;
        }
    }
    if (first == p->n_gpus)
        return 0;
    find_nearest_nics(w, &p->gpu[first]);
    int *mine = malloc((w->n->n_netdev + 1) * sizeof(*mine));
    if (!mine)
        return hw_no_memory("the plan");
    memcpy(mine, w->cost, w->n->n_netdev * sizeof(*mine));
    for (size_t k = 0; k < p->n_gpus; k++) {
        w->same[k] = !w->done[k] && find_nearest_nics(w, &p->gpu[k]) == best &&
                     memcmp(mine, w->cost, w->n->n_netdev * sizeof(*mine)) == 0;
        w->done[k] |= w->same[k];
        gpus += w->same[k];
    }
    memcpy(w->cost, mine, w->n->n_netdev * sizeof(*mine));
    free(mine);
    int rc = share_nics_among_gpus(w, gpus);
    return rc < 0 ? rc : 1;
}

static int serve_all(struct work *w)
{
    bool any = false, left = false;
    for (size_t i = 0; i < w->n->n_netdev; i++)
        any |= w->may[i];
    for (size_t k = 0; k < w->p->n_gpus; k++)
        left |= !w->done[k];
    if (left && !any) {
        const struct hw_netdev *d = w->n->netdev;
        if (w->n->n_netdev == 0)
            return hw_fail(-ENODEV, "this node has no NIC to serve its GPUs");
        return hw_fail(-ENODEV, "no NIC of this node can serve its GPUs: %s: %s%s; use `--map` to assign NICs anyway",
                       d[0].name, w->p->why[0] ? w->p->why[0] : "?", w->n->n_netdev > 1 ? ", and so on" : "");
    }
    int rc;
    do
        rc = serve_next(w);
    while (rc == 1);
    return rc;
}

/* ---- the plan ------------------------------------------------------------------------------- */

/* Sorts the NICs by PCI address, so that neighbours on PCI are neighbours on the line. Virtual NICs come last. */
static void sort_nics(struct work *w)
{
    const struct hw_node *n = w->n;
    for (size_t i = 0; i < n->n_netdev; i++) {
        size_t at = i;
        /* hw_node.pci is sorted by address */
        for (; at > 0 && (unsigned)n->netdev[w->order[at - 1]].pci > (unsigned)n->netdev[i].pci; at--)
            w->order[at] = w->order[at - 1];
        w->order[at] = (int)i;
    }
}

static int pick_node_gpus(struct work *w, const char *gpus)
{
    size_t n = w->n->n_cuda;
    bool all = !gpus || strcmp(gpus, "all") == 0;
    HW_AUTO_FREE bool *pick = calloc(n + 1, 1);
    w->p->gpu = calloc(n + 1, sizeof(*w->p->gpu));
    if (!pick || !w->p->gpu)
        return hw_no_memory("the plan");
    const char *p = gpus;
    int rc = all ? 0 : parse_plan_gpus(&p, "", pick, n, gpus);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (all || pick[i])
            w->p->gpu[w->p->n_gpus++] = (struct hw_plan_gpu){
                .gpu = (int)i, .cpus = hw_node_cpus(w->n, hw_node_numa_of(w->n, w->n->gpu[i].pci))};
    return rc;
}

static int make_node_plan(struct work *w, const struct hw_plan_want *want)
{
    int rc = pick_node_gpus(w, want->gpus);
    if (rc < 0)
        return rc;
    sort_nics(w);
    choose_serving_nics(w);
    if (want->nics) {
        const char *p = want->nics;
        memset(w->may, 0, w->n->n_netdev);
        if ((rc = parse_plan_nics(&p, "", w->may, w->n, want->nics)) < 0)
            return rc;
        for (size_t i = 0; i < w->n->n_netdev; i++)
            w->p->why[i] = w->may[i] ? NULL : "not selected";
    }
    if (want->map && (rc = apply_map(w, want->map)) < 0)
        return rc;
    if ((rc = serve_all(w)) < 0)
        return rc;
    for (size_t i = 0; i < w->n->n_netdev; i++)
        if (w->may[i])
            w->p->why[i] = !w->p->n_gpus ? "no GPU to serve"
                           : want->map   ? "not in the map, and not nearest to a GPU outside the map"
                                         : "farther from every GPU than other NICs";
    for (size_t k = 0; k < w->p->n_gpus; k++)
        for (size_t i = 0; i < w->p->gpu[k].n_nics; i++)
            w->p->why[w->p->gpu[k].nic[i]] = NULL;
    return 0;
}

int hw_plan_make(struct hw_plan *out, const struct hw_node *n, const struct hw_plan_want *want)
{
    *out = (struct hw_plan){0};
    size_t nics = n->n_netdev + 1, gpus = n->n_cuda + 1;
    struct work w = {.n = n, .p = out};
    out->why = calloc(nics, sizeof(*out->why));
    w.may = calloc(nics, sizeof(*w.may));
    w.load = calloc(nics, sizeof(*w.load));
    w.cost = calloc(nics, sizeof(*w.cost));
    w.order = calloc(nics, sizeof(*w.order));
    w.same = calloc(gpus, sizeof(*w.same));
    w.done = calloc(gpus, sizeof(*w.done));
    int rc = out->why && w.may && w.load && w.cost && w.order && w.same && w.done ? make_node_plan(&w, want)
                                                                                  : hw_no_memory("the plan");
    free(w.may);
    free(w.load);
    free(w.cost);
    free(w.order);
    free(w.same);
    free(w.done);
    return rc;
}

void hw_plan_free(struct hw_plan *p)
{
    for (size_t i = 0; i < p->n_gpus; i++)
        free(p->gpu[i].nic);
    free(p->gpu);
    free(p->why);
    *p = (struct hw_plan){0};
}
