/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/judge/mesh_judge.h"

#include <math.h>
#include <string.h>

#define IDLE_PEERS 3 /* an idle NIC is reported only if its node has sent data to this many nodes, or to all others */
#define CORRUPT    3 /* minimum number of pairs with wrong bytes for which their common node is reported */

int mesh_find(struct mesh_findings *out, const struct mesh_finding *f)
{
    int rc = mesh_grow(&out->f, out->n, &out->cap, sizeof *out->f, "findings");
    if (rc == 0)
        out->f[out->n++] = *f;
    return rc;
}

int mesh_suspect(struct mesh_findings *out, enum mesh_kind kind, uint32_t from, uint32_t to)
{
    int rc = mesh_grow(&out->suspect, out->n_suspects, &out->cap_suspects, sizeof *out->suspect, "pairs");
    if (rc == 0)
        out->suspect[out->n_suspects++] = (struct mesh_suspect){kind, (uint16_t)from, (uint16_t)to};
    return rc;
}

void mesh_findings_free(struct mesh_findings *f)
{
    free(f->f);
    free(f->suspect);
    *f = (struct mesh_findings){0};
}

bool mesh_is_in(const struct mesh *m, uint32_t node)
{
    return node < m->n && m->node[node].state == MESH_WELL;
}

/* ---- states and failures ------------------------------------------------------------------------ */

static struct mesh_finding about_node(enum mesh_fault_kind what, uint32_t node, int nic)
{
    return (struct mesh_finding){.what = what, .node = (int)node, .nic = nic, .peer = -1, .peer_nic = -1};
}

static int judge_states(const struct mesh *m, struct mesh_findings *out)
{
    static const enum mesh_fault_kind of[] = {
        [MESH_ABSENT] = MESH_F_ABSENT, [MESH_DIED] = MESH_F_DIED, [MESH_SILENT] = MESH_F_SILENT};
    int rc = 0;
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        if (m->node[i].state == MESH_WELL)
            continue;
        struct mesh_finding f = about_node(of[m->node[i].state], i, -1);
        f.text = m->node[i].why;
        rc = mesh_find(out, &f);
    }
    return rc;
}

/* Returns true if a pair that failed has worked in a repeated measurement. */
static bool has_worked_since(const struct mesh *m, const struct mesh_fault *f)
{
    for (size_t i = 0; i < m->n_again; i++) {
        const struct mesh_sample *s = &m->again[i];
        if (s->kind == MESH_K_WAY && s->value > 0 &&
            ((s->from == f->from && s->to == f->to) || (s->from == f->to && s->to == f->from)))
            return true;
    }
    return false;
}

/* Returns true if f is a failed measurement between two participating nodes. A measurement with wrong bytes is not a
 * failure, and its fault has no text. */
static bool is_failure(const struct mesh *m, const struct mesh_fault *f)
{
    return f->bad == 0 && mesh_is_in(m, f->from) && mesh_is_in(m, f->to);
}

/* Finds nodes with at least two failures and no successful measurement. Then finds single pairs that failed, unless one
 * of their nodes has such a finding, or the pair has worked since. */
static int judge_failures(const struct mesh *m, struct mesh_findings *out)
{
    HW_AUTO_FREE uint32_t *bad = calloc(m->n + 1, sizeof *bad);
    HW_AUTO_FREE uint32_t *good = calloc(m->n + 1, sizeof *good);
    HW_AUTO_FREE bool *cut = calloc(m->n + 1, sizeof *cut);
    int rc = bad && good && cut ? 0 : hw_no_memory("%u nodes", m->n);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < m->n_samples; i++) {
        const struct mesh_sample *s = &m->sample[i];
        if (s->value > 0 && mesh_is_in(m, s->from) && mesh_is_in(m, s->to)) {
            good[s->from]++;
            good[s->to]++;
        }
    }
    for (size_t i = 0; i < m->n_faults; i++)
        if (is_failure(m, &m->fault[i])) {
            bad[m->fault[i].from]++;
            bad[m->fault[i].to]++;
        }
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        cut[i] = bad[i] > 1 && !good[i] && mesh_is_in(m, i);
        struct mesh_finding f = about_node(MESH_F_CUT, i, -1);
        f.count = bad[i];
        for (size_t k = 0; k < m->n_faults && !f.text; k++)
            if (is_failure(m, &m->fault[k]) && (m->fault[k].from == i || m->fault[k].to == i))
                f.text = m->fault[k].text;
        if (cut[i])
            rc = mesh_find(out, &f);
    }
    for (size_t i = 0; i < m->n_faults && rc == 0; i++) {
        const struct mesh_fault *at = &m->fault[i];
        bool told = false;
        for (size_t k = 0; k < i; k++)
            told |= m->fault[k].bad == 0 && ((m->fault[k].from == at->from && m->fault[k].to == at->to) ||
                                             (m->fault[k].from == at->to && m->fault[k].to == at->from));
        if (!is_failure(m, at) || told || cut[at->from] || cut[at->to])
            continue;
        struct mesh_finding f = about_node(MESH_F_BROKEN, at->from, -1);
        f.peer = at->to;
        f.text = at->text;
        if (has_worked_since(m, at))
            continue;
        rc = mesh_suspect(out, MESH_K_WAY, at->from, at->to);
        if (rc == 0)
            rc = mesh_find(out, &f);
    }
    return rc;
}

/* The wrong bytes that a pair of nodes received, in both directions and in all measurements. */
struct wrong {
    uint16_t low, high; /* the nodes */
    uint64_t bytes;
};

static int compare_wrong(const void *a, const void *b)
{
    const struct wrong *x = a, *y = b;
    return x->low != y->low ? x->low - y->low : x->high - y->high;
}

/* Returns an array with an entry for each of the *n pairs that received wrong bytes, or NULL if out of memory. The
 * caller frees the array. */
static struct wrong *collect_wrong(const struct mesh *m, size_t *n)
{
    struct wrong *w = calloc(m->n_faults + 1, sizeof *w);
    size_t all = 0;
    for (size_t i = 0; w && i < m->n_faults; i++) {
        const struct mesh_fault *f = &m->fault[i];
        if (f->bad)
            w[all++] = (struct wrong){HW_MIN(f->from, f->to), HW_MAX(f->from, f->to), f->bad};
    }
    if (w)
        qsort(w, all, sizeof *w, compare_wrong);
    *n = 0;
    for (size_t i = 0; i < all; i++)
        if (*n > 0 && compare_wrong(&w[*n - 1], &w[i]) == 0)
            w[*n - 1].bytes += w[i].bytes;
        else
            w[(*n)++] = w[i];
    return w;
}

/* Reports the nodes with wrong bytes in several pairs, and the other pairs with wrong bytes. */
static int judge_bytes(const struct mesh *m, struct mesh_findings *out)
{
    size_t n = 0;
    HW_AUTO_FREE struct wrong *wrong = collect_wrong(m, &n);
    HW_AUTO_FREE uint32_t *count = calloc(m->n + 1, sizeof *count);
    HW_AUTO_FREE uint64_t *bytes = calloc(m->n + 1, sizeof *bytes);
    int rc = wrong && count && bytes ? 0 : hw_no_memory("%u nodes", m->n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const uint16_t end[] = {wrong[i].low, wrong[i].high};
        for (unsigned k = 0; k < 2; k++) {
            count[end[k]]++;
            bytes[end[k]] += wrong[i].bytes;
        }
    }
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        struct mesh_finding f = about_node(MESH_F_CORRUPT, i, -1);
        f.count = count[i];
        f.number = bytes[i];
        if (count[i] >= CORRUPT)
            rc = mesh_find(out, &f);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct mesh_finding f = about_node(MESH_F_WRONG, wrong[i].low, -1);
        f.peer = wrong[i].high;
        f.number = wrong[i].bytes;
        if (count[wrong[i].low] < CORRUPT && count[wrong[i].high] < CORRUPT)
            rc = mesh_find(out, &f);
    }
    return rc;
}

/* ---- facts ---------------------------------------------------------------------------------------- */

static const struct mesh_nic_facts *get_nic(const struct mesh *m, uint32_t node, const char *name)
{
    for (uint32_t k = 0; mesh_is_in(m, node) && k < m->node[node].n_nics; k++)
        if (strcmp(m->node[node].nic[k].name, name) == 0)
            return &m->node[node].nic[k];
    return NULL;
}

static uint64_t get_fact(const struct mesh_nic_facts *n, enum mesh_fault_kind what)
{
    return what == MESH_F_SPEED ? n->speed : n->mtu;
}

/* Returns the value that more than half of the NICs with this name have, or 0 if there is none or if there are fewer
 * than three such NICs. */
static uint64_t find_usual(const struct mesh *m, const char *name, enum mesh_fault_kind what)
{
    uint64_t usual = 0;
    size_t lead = 0, with = 0, all = 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < m->n; i++) {
            const struct mesh_nic_facts *n = get_nic(m, i, name);
            if (!n)
                continue;
            if (pass) {
                all++;
                with += get_fact(n, what) == usual;
            } else if (lead == 0) {
                usual = get_fact(n, what);
                lead = 1;
            } else
                lead = get_fact(n, what) == usual ? lead + 1 : lead - 1;
        }
    return all > 2 && 2 * with > all ? usual : 0;
}

static void count_use_in(const struct mesh_sample *sample, size_t n, uint32_t *use)
{
    for (size_t i = 0; i < n; i++) {
        const struct mesh_sample *s = &sample[i];
        if ((s->kind != MESH_K_WAY && s->kind != MESH_K_RAIL) || s->nic == MESH_ALL || !(s->value > 0) ||
            s->to_nic == MESH_ALL)
            continue;
        use[s->from * TP_MAX_NICS + s->nic]++;
        use[s->to * TP_MAX_NICS + s->to_nic]++;
    }
}

/* Counts the samples that show traffic, for each NIC. */
static void count_use(const struct mesh *m, uint32_t *use)
{
    count_use_in(m->sample, m->n_samples, use);
    count_use_in(m->again, m->n_again, use);
}

/* Returns true if the node exchanged data with at least three peers, or with all peers if there are fewer. On a busy
 * machine, even a working NIC may carry nothing in one or two short measurements. */
static bool is_proved_idle(const struct mesh *m, uint32_t node)
{
    uint32_t peers = 0, others = 0;
    for (uint32_t i = 0; i < m->n; i++)
        others += i != node && mesh_is_in(m, i);
    for (size_t i = 0; i < m->n_samples; i++)
        peers += m->sample[i].kind == MESH_K_WAY && m->sample[i].nic == MESH_ALL && m->sample[i].from == node &&
                 m->sample[i].value > 0;
    return peers >= HW_MIN(others, (uint32_t)IDLE_PEERS);
}

/* Returns true if at least three nodes take part, and at least 3 (n - 1) / 4 of these n nodes use a NIC with this name.
 */
static bool is_used_elsewhere(const struct mesh *m, const char *name, const uint32_t *use)
{
    size_t with = 0, all = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct mesh_nic_facts *n = get_nic(m, i, name);
        if (!mesh_is_in(m, i))
            continue;
        all++;
        with += n && use[(size_t)i * TP_MAX_NICS + (size_t)(n - m->node[i].nic)] > 0;
    }
    return all > 2 && 4 * with >= 3 * (all - 1);
}

/* Returns false if an earlier node has a NIC with this name, because the name has then already been judged. */
static bool is_first(const struct mesh *m, uint32_t node, const char *name)
{
    for (uint32_t i = 0; i < node; i++)
        if (get_nic(m, i, name))
            return false;
    return true;
}

static int judge_fact(const struct mesh *m, const char *name, enum mesh_fault_kind what, struct mesh_findings *out)
{
    const uint64_t usual = find_usual(m, name, what);
    int rc = 0;
    for (uint32_t i = 0; i < m->n && usual && rc == 0; i++) {
        const struct mesh_nic_facts *n = get_nic(m, i, name);
        if (!n || get_fact(n, what) == usual || get_fact(n, what) == 0)
            continue;
        struct mesh_finding f = about_node(what, i, (int)(n - m->node[i].nic));
        f.number = get_fact(n, what);
        f.usual = usual;
        rc = mesh_find(out, &f);
    }
    return rc;
}

static int judge_idle(const struct mesh *m, const char *name, const uint32_t *use, struct mesh_findings *out)
{
    int rc = 0;
    if (!is_used_elsewhere(m, name, use))
        return 0;
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        const struct mesh_nic_facts *n = get_nic(m, i, name);
        bool some = false; /* true if any NIC of the node carries traffic */
        for (uint32_t k = 0; k < m->node[i].n_nics; k++)
            some |= use[(size_t)i * TP_MAX_NICS + k] > 0;
        if (!mesh_is_in(m, i) || !some)
            continue;
        if (n && (use[(size_t)i * TP_MAX_NICS + (size_t)(n - m->node[i].nic)] || !is_proved_idle(m, i)))
            continue;
        struct mesh_finding f = about_node(MESH_F_IDLE, i, n ? (int)(n - m->node[i].nic) : -1);
        f.text = name;
        rc = mesh_find(out, &f);
    }
    return rc;
}

/* Finds NICs whose drivers counted more than ten errors, and more than ten times the average of the other NICs with
 * this name. */
static int judge_errors(const struct mesh *m, const char *name, struct mesh_findings *out)
{
    uint64_t sum = 0;
    size_t all = 0;
    int rc = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct mesh_nic_facts *n = get_nic(m, i, name);
        sum += n ? n->rx_errors + n->tx_errors : 0;
        all += n != NULL;
    }
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        const struct mesh_nic_facts *n = get_nic(m, i, name);
        uint64_t own = n ? n->rx_errors + n->tx_errors : 0;
        if (!n || own <= 10 || all < 2 || own <= 10 * ((sum - own) / (all - 1)))
            continue;
        struct mesh_finding f = about_node(MESH_F_ERRORS, i, (int)(n - m->node[i].nic));
        f.number = own;
        rc = mesh_find(out, &f);
    }
    return rc;
}

static int judge_versions(const struct mesh *m, struct mesh_findings *out)
{
    const struct mesh_node *first = NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        if (!mesh_is_in(m, i) || !m->node[i].version[0])
            continue;
        if (!first)
            first = &m->node[i];
        if (strcmp(first->version, m->node[i].version) == 0)
            continue;
        struct mesh_finding f = about_node(MESH_F_VERSION, i, -1);
        f.peer = (int)(first - m->node);
        return mesh_find(out, &f);
    }
    return 0;
}

int mesh_judge_facts(const struct mesh *m, struct mesh_findings *out)
{
    HW_AUTO_FREE uint32_t *use = calloc((size_t)m->n * TP_MAX_NICS + 1, sizeof *use);
    int rc = use ? judge_states(m, out) : hw_no_memory("%u nodes", m->n);
    if (rc == 0)
        rc = judge_failures(m, out);
    if (rc == 0)
        rc = judge_bytes(m, out);
    if (rc == 0)
        rc = judge_versions(m, out);
    if (rc < 0)
        return rc;
    count_use(m, use);
    for (uint32_t i = 0; i < m->n && rc == 0; i++)
        for (uint32_t k = 0; mesh_is_in(m, i) && k < m->node[i].n_nics && rc == 0; k++) {
            const char *name = m->node[i].nic[k].name;
            if (!is_first(m, i, name))
                continue;
            rc = judge_fact(m, name, MESH_F_SPEED, out);
            if (rc == 0)
                rc = judge_fact(m, name, MESH_F_MTU, out);
            if (rc == 0)
                rc = judge_idle(m, name, use, out);
            if (rc == 0)
                rc = judge_errors(m, name, out);
        }
    return rc;
}

/* ---- everything together ---------------------------------------------------------------------------- */

/* Returns true if one of the findings before end already covers f. */
static bool is_told(const struct mesh_findings *all, size_t end, const struct mesh_finding *f)
{
    for (size_t i = 0; i < end; i++) {
        const struct mesh_finding *o = &all->f[i];
        bool whole = o->what == MESH_F_NODE || o->what == MESH_F_SPEED || o->what == MESH_F_SENDS ||
                     o->what == MESH_F_RECEIVES || o->what == MESH_F_PORT;
        if (f->what != MESH_F_PATH && whole && o->node == f->node && (o->nic < 0 || f->nic < 0 || o->nic == f->nic))
            return true;
        if (f->what == MESH_F_PATH && o->what == MESH_F_PATH &&
            ((o->node == f->node && o->peer == f->peer) || (o->node == f->peer && o->peer == f->node)))
            return true;
        if (f->what == MESH_F_PATH && whole && (o->node == f->node || o->node == f->peer))
            return true;
    }
    return false;
}

/* Drops each finding at index `from` or above that a finding below `from` already covers. */
static void drop_told(struct mesh_findings *all, size_t from)
{
    size_t left = from;
    for (size_t i = from; i < all->n; i++)
        if (!is_told(all, from, &all->f[i]))
            all->f[left++] = all->f[i];
    all->n = left;
}

/* Drops findings about slow paths to or from a node with a finding MESH_F_NODE, except for latencies. */
static void drop_explained(struct mesh_findings *all)
{
    size_t left = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct mesh_finding *f = &all->f[i];
        bool explained = false;
        for (size_t k = 0; k < all->n && f->what == MESH_F_PATH && f->kind != MESH_K_LATENCY; k++)
            explained |= all->f[k].what == MESH_F_NODE && (all->f[k].node == f->node || all->f[k].node == f->peer);
        if (!explained)
            all->f[left++] = *f;
    }
    all->n = left;
}

static size_t count_samples(const struct mesh *m, enum mesh_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_samples; i++)
        n += m->sample[i].kind == kind && m->sample[i].nic != MESH_ALL;
    return n;
}

int mesh_judge(const struct mesh *m, struct mesh_findings *out)
{
    *out = (struct mesh_findings){0};
    int rc = mesh_judge_facts(m, out);
    if (rc == 0)
        rc = mesh_judge_rails(m, out);
    size_t told = out->n;
    if (rc == 0) /* first, because other traffic of the node does not disturb these samples */
        rc = mesh_judge_series(m, MESH_K_RAIL, true, out);
    drop_told(out, told);
    told = out->n;
    /* If the rails of nearly every pair were measured alone, shares of transfers over all rails add no information. */
    if (rc == 0 && 10 * count_samples(m, MESH_K_RAIL) < 9 * count_samples(m, MESH_K_WAY))
        rc = mesh_judge_series(m, MESH_K_WAY, true, out);
    drop_told(out, told);
    told = out->n;
    if (rc == 0)
        rc = mesh_judge_series(m, MESH_K_BOTH, false, out);
    drop_told(out, told);
    told = out->n;
    if (rc == 0)
        rc = mesh_judge_series(m, MESH_K_LOAD, false, out);
    drop_told(out, told);
    if (rc == 0) /* long latencies are also reported for nodes and paths that are already known to be slow */
        rc = mesh_judge_series(m, MESH_K_LATENCY, false, out);
    drop_explained(out);
    if (rc < 0)
        mesh_findings_free(out);
    return rc;
}
