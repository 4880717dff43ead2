/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a NIC's RSS and flow rules as bindings require, and undoes the changes. */
#include "helper/state/state.h"

#include <stdlib.h>

struct hd_nic *hd_nic_find(const struct hd_state *s, int ifindex)
{
    hw_list_each(it, tmp, &s->nics)
    {
        struct hd_nic *n = hw_container_of(it, struct hd_nic, node);
        if (n->ifindex == ifindex && !n->gone) /* a new device may have the index of a removed one */
            return n;
    }
    return NULL;
}

struct hd_nic *hd_nic_add(struct hd_state *s, int ifindex, const char *name)
{
    struct hd_nic *n = s->n_nics < HD_NICS_MAX ? calloc(1, sizeof(*n)) : NULL;
    if (!n) {
        hw_fail(-ENOMEM,
                s->n_nics < HD_NICS_MAX ? "out of memory for NIC %.16s" : "cannot add NIC %.16s: too many NICs", name);
        return NULL;
    }
    n->ifindex = ifindex;
    memcpy(n->name, name, strnlen(name, sizeof(n->name) - 1));
    hw_list_append(&s->nics, &n->node);
    s->n_nics++;
    return n;
}

void hd_nic_free(struct hd_state *s, struct hd_nic *nic)
{
    hw_list_remove(&nic->node);
    s->n_nics--;
    free(nic->was);
    free(nic);
}

/* ---- forth -------------------------------------------------------------------------------------- */

int hd_ntuple_on(struct hd_state *s, struct hd_nic *nic)
{
    bool on;
    int rc = s->k->ntuple_get(s->k->arg, nic->ifindex, &on);
    if (rc || on)
        return rc;
    if (!nic->ntuple_set) {
        nic->ntuple_set = true;
        rc = hd_journal_write(s);
        if (rc)
            return rc;
    }
    rc = s->k->ntuple_set(s->k->arg, nic->ifindex, true);
    if (rc == 0)
        hw_log(s->log, HAWSER_LOG_INFO, "%s: flow rules turned on", nic->name);
    return rc;
}

/* Finds the queues that flow rules use. Such a queue must not be bound, because other programs' traffic would then
 * arrive in the client's memory. */
static int find_queues_with_rules(struct hd_state *s, int ifindex, struct hd_set *out)
{
    HW_AUTO_FREE struct hd_rule *r = NULL;
    unsigned n = 0;
    int rc = s->k->rules(s->k->arg, ifindex, &r, &n);
    for (unsigned i = 0; rc == 0 && i < n; i++)
        hd_put(out, r[i].queue);
    return rc;
}

static bool in_table(const uint32_t *table, uint32_t n, uint32_t q)
{
    for (uint32_t i = 0; i < n; i++)
        if (table[i] == q)
            return true;
    return false;
}

/* Returns the number of different queues in the table that are not in the set `without`. */
static unsigned others_in(const struct hd_rss *rss, const struct hd_set *without)
{
    struct hd_set seen = {0};
    unsigned n = 0;
    for (uint32_t i = 0; i < rss->n; i++) {
        n += !hd_has(&seen, rss->queue[i]) && !hd_has(without, rss->queue[i]);
        hd_put(&seen, rss->queue[i]);
    }
    return n;
}

int hd_choose(struct hd_state *s, const struct hd_link *link, const struct hd_rights *r, unsigned n, uint32_t *queue,
              const struct hd_rss *rss)
{
    HW_AUTO_FREE struct hd_queue *q = calloc(HD_QUEUES_MAX, sizeof(*q));
    struct hd_set rules = {0};
    struct hd_nic *nic = hd_nic_find(s, link->ifindex);
    unsigned n_q = 0, got = 0, bound = 0, with_rules = 0, denied = 0, last = 0;
    if (!q)
        return hw_no_memory("the queues of %s", link->name);
    int rc = s->k->queues(s->k->arg, link->ifindex, q, HD_QUEUES_MAX, &n_q);
    if (rc)
        return rc;
    rc = find_queues_with_rules(s, link->ifindex, &rules);
    if (rc)
        return rc;

    /* Queues that ordinary traffic does not use are chosen first, because RSS then stays unchanged. The other queues
     * are chosen from the highest number down, so that RSS uses the queues 0 to N-1, as with `ethtool -X equal N`. */
    struct hd_set mine = {0};
    for (int in_rss = 0; in_rss < 2; in_rss++) {
        for (unsigned i = HW_MIN(n_q, link->rx_queues); i-- > 0 && got < n;) {
            if (in_table(rss->queue, rss->n, i) != (in_rss == 1))
                continue;
            if (r->queues_set && !hd_has(&r->queues, i)) {
                denied++;
                continue;
            }
            if (q[i].user != HD_FREE || hd_has(&rss->others, i) || (nic && hd_has(&nic->taken, i))) {
                bound++;
                continue;
            }
            if (hd_has(&rules, i)) {
                with_rules++;
                continue;
            }
            hd_put(&mine, i);
            if (in_rss && others_in(rss, &mine) == 0) { /* ordinary traffic needs at least one queue */
                hd_cut(&mine, i);
                last = 1;
                continue;
            }
            queue[got++] = i;
        }
    }
    if (got == n)
        return 0;
    return hw_fail(
        -EBUSY,
        "%s: %u queue%s requested, %u available (queues of the NIC: %u; already bound or reserved: %u; with flow "
        "rules: %u; not allowed by the policy: %u; needed for ordinary traffic: %u)%s%s",
        link->name, n, hw_plural(n), got, n_q, bound, with_rules, denied, last,
        n_q < link->rx_queues || n_q < 2 ? "; for more queues, use ethtool -L " : "",
        n_q < link->rx_queues || n_q < 2 ? link->name : "");
}

/* Returns a copy of the previous table in which the remaining queues cyclically replace the taken queues. The caller
 * must free the copy. Returns NULL if out of memory. */
static uint32_t *make_rss_table_without(const struct hd_nic *nic, const struct hd_set *taken)
{
    uint32_t *t = calloc(nic->n_was, sizeof(*t));
    uint32_t left[HD_QUEUES_MAX], n = 0, turn = 0;
    struct hd_set seen = *taken;
    for (uint32_t i = 0; t && i < nic->n_was; i++) {
        t[i] = nic->was[i];
        if (!hd_has(&seen, t[i]) && n < HD_QUEUES_MAX && t[i] < HD_QUEUES_MAX)
            left[n++] = t[i];
        hd_put(&seen, t[i]);
    }
    for (uint32_t i = 0; t && n && i < nic->n_was; i++)
        if (hd_has(taken, t[i]))
            t[i] = left[turn++ % n];
    return t;
}

/* Returns true if another program has changed the table since hawserd set it. hawserd's table differs from the previous
 * table only in the entries of taken queues. */
static bool is_foreign_rss_table(const struct hd_nic *nic, const struct hd_rss *now)
{
    if (now->n != nic->n_was)
        return true;
    for (uint32_t i = 0; i < now->n; i++)
        if (now->queue[i] != nic->was[i] && !hd_has(&nic->taken, nic->was[i]))
            return true;
    return false;
}

/* Saves the current table as the table to restore, if none was saved or another program has changed the table in the
 * meantime. */
static int save_rss_table(struct hd_state *s, struct hd_nic *nic, const struct hd_rss *now)
{
    if (nic->n_was && !is_foreign_rss_table(nic, now))
        return 0;
    uint32_t *copy = calloc(now->n ? now->n : 1, sizeof(*copy));
    if (!copy)
        return hw_no_memory("the RSS table of %s", nic->name);
    if (nic->n_was)
        hw_log(s->log, HAWSER_LOG_WARN,
               "%s: another program has changed the RSS table; hawserd will restore the new table", nic->name);
    memcpy(copy, now->queue, now->n * sizeof(*copy));
    free(nic->was);
    nic->was = copy;
    nic->n_was = now->n;
    return 0;
}

static int table_set(struct hd_state *s, struct hd_nic *nic, const struct hd_rss *now)
{
    HW_AUTO_FREE uint32_t *want = make_rss_table_without(nic, &nic->taken);
    if (!want)
        return hw_no_memory("the RSS table of %s", nic->name);
    if (memcmp(want, now->queue, nic->n_was * sizeof(*want)) == 0)
        return 0;
    return s->k->rss_set(s->k->arg, nic->ifindex, want, nic->n_was);
}

int hd_take(struct hd_state *s, struct hd_nic *nic, const struct hd_rss *rss, const uint32_t *queue, unsigned n)
{
    int rc = save_rss_table(s, nic, rss);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        hd_put(&nic->taken, queue[i]);
    rc = hd_journal_write(s);
    return rc ? rc : table_set(s, nic, rss);
}

/* ---- back --------------------------------------------------------------------------------------- */

static bool is_empty_queue_set(const struct hd_set *set)
{
    static const struct hd_set none;
    return memcmp(set, &none, sizeof(none)) == 0;
}

bool hd_any_bound(const struct hd_queue *q, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (q[i].user == HD_DMABUF || q[i].user == HD_IO_URING)
            return true;
    return false;
}

/* Restores to RSS the queues that are not bound, and adds their number to *back. Queues that another program has bound
 * are not restored, because programs without devmem cannot read ordinary traffic on a bound queue. */
static int return_idle_queues(struct hd_state *s, struct hd_nic *nic, const struct hd_queue *q, unsigned n_q,
                              struct hd_rss *rss, unsigned *back)
{
    int rc = s->k->rss_get(s->k->arg, nic->ifindex, rss);
    if (rc)
        return rc;
    rc = save_rss_table(s, nic, rss);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < HD_QUEUES_MAX; i++) {
        if (!hd_has(&nic->taken, i) || hd_has(&nic->held, i))
            continue;
        if (i < n_q && q[i].user != HD_FREE) {
            hw_log(s->log, HAWSER_LOG_WARN, "%s: queue %u is not returned to RSS, because another program has bound it",
                   nic->name, i);
            continue;
        }
        hd_cut(&nic->taken, i);
        ++*back;
    }
    return table_set(s, nic, rss);
}

static int queues_back(struct hd_state *s, struct hd_nic *nic, const struct hd_queue *q, unsigned n_q)
{
    struct hd_set was = nic->taken;
    unsigned back = 0;
    struct hd_rss rss = {0};
    if (is_empty_queue_set(&nic->taken) && nic->n_was == 0)
        return 0;
    int rc = return_idle_queues(s, nic, q, n_q, &rss, &back);
    free(rss.queue);
    if (rc) {
        nic->taken = was;
        return hw_wrap(rc, "cannot return queues of %s to RSS", nic->name);
    }
    if (back)
        hw_log(s->log, HAWSER_LOG_INFO, "%s: number of queues returned to RSS: %u", nic->name, back);
    if (is_empty_queue_set(&nic->taken)) {
        free(nic->was);
        nic->was = NULL;
        nic->n_was = 0;
    }
    return 0;
}

static int ntuple_back(struct hd_state *s, struct hd_nic *nic)
{
    HW_AUTO_FREE struct hd_rule *r = NULL;
    unsigned n = 0;
    bool on = false;
    if (!nic->ntuple_set || nic->bindings)
        return 0;
    int rc = s->k->ntuple_get(s->k->arg, nic->ifindex, &on);
    if (rc == 0 && on)
        rc = s->k->rules(s->k->arg, nic->ifindex, &r, &n);
    if (rc)
        return rc;
    if (n) /* with most drivers, turning flow rules off would delete the rules */
        return hw_fail(-EBUSY, "%s: flow rules stay turned on, because other programs use them (rules: %u)", nic->name,
                       n);
    if (on)
        rc = s->k->ntuple_set(s->k->arg, nic->ifindex, false);
    if (rc == 0)
        nic->ntuple_set = false;
    return rc;
}

static unsigned rules_on(const struct hd_state *s, const struct hd_nic *nic)
{
    unsigned n = 0;
    hw_list_each(it, tmp, &s->rules) n += hw_container_of(it, struct hd_held_rule, node)->nic == nic;
    return n;
}

/* Frees the state of a removed NIC, except for bindings and their rules, which their owners must release. */
static void release_gone_nic(struct hd_state *s, struct hd_nic *nic)
{
    if (!nic->gone)
        hw_log(s->log, HAWSER_LOG_WARN, "%s no longer exists, so there is nothing to undo on it", nic->name);
    nic->gone = true;
    hw_list_each(it, tmp, &s->rules)
    {
        struct hd_held_rule *r = hw_container_of(it, struct hd_held_rule, node);
        if (r->nic == nic && !r->binding)
            hd_rule_free(s, r);
    }
    if (nic->bindings == 0 && rules_on(s, nic) == 0)
        hd_nic_free(s, nic);
}

/* Returns true if an undo step has succeeded. Logs a failure other than -ENODEV, at debug level if this is a retry. */
static bool check_undo_step(struct hd_state *s, int rc)
{
    if (rc && rc != -ENODEV)
        hw_log(s->log, s->retrying ? HAWSER_LOG_DEBUG : HAWSER_LOG_WARN, "%s; the change has not been undone yet",
               hw_error());
    return rc == 0;
}

void hd_settle(struct hd_state *s, struct hd_nic *nic)
{
    if (nic->gone) {
        release_gone_nic(s, nic);
        return;
    }
    struct hd_queue *q = calloc(HD_QUEUES_MAX, sizeof(*q));
    unsigned n_q = 0;
    int rc =
        q ? s->k->queues(s->k->arg, nic->ifindex, q, HD_QUEUES_MAX, &n_q) : hw_no_memory("the queues of %s", nic->name);
    bool clean = check_undo_step(s, rc);
    if (rc == 0) {
        rc = queues_back(s, nic, q, n_q);
        clean &= check_undo_step(s, rc);
    }
    if (rc != -ENODEV && q) {
        rc = hd_split_back(s, nic, hd_any_bound(q, n_q));
        clean &= check_undo_step(s, rc);
    }
    if (rc != -ENODEV) {
        rc = hd_gro_back(s, nic);
        clean &= check_undo_step(s, rc);
    }
    if (rc != -ENODEV && rules_on(s, nic) == 0) {
        rc = ntuple_back(s, nic);
        clean &= check_undo_step(s, rc);
    }
    free(q);
    if (rc == -ENODEV)
        release_gone_nic(s, nic);
    else if (clean && nic->bindings == 0 && nic->n_was == 0 && rules_on(s, nic) == 0)
        hd_nic_free(s, nic);
    if (hd_journal_write(s) < 0)
        hw_log(s->log, HAWSER_LOG_ERROR, "%s", hw_error());
}

void hd_rule_free(struct hd_state *s, struct hd_held_rule *r)
{
    if (r->port >= 0)
        s->k->port_free(s->k->arg, &r->port);
    hw_list_remove(&r->node);
    free(r);
}

int hd_unplace(struct hd_state *s, struct hd_held_rule *r)
{
    struct hd_rule at, *all = NULL;
    unsigned n = 0;
    if (r->nic->gone)
        return 0;
    if (r->placed) {
        int rc = s->k->rule_at(s->k->arg, r->nic->ifindex, r->rule.loc, &at);
        if (rc == 0 && hd_rule_same(&at, &r->rule))
            rc = s->k->rule_del(s->k->arg, r->nic->ifindex, r->rule.loc);
        return rc == -ENOENT ? 0 : rc;
    }
    /* The rule's location is unknown if rule_add() failed, or if hawserd died before it recorded the location. */
    int rc = s->k->rules(s->k->arg, r->nic->ifindex, &all, &n);
    for (unsigned i = 0; rc == 0 && i < n; i++)
        if (hd_rule_same(&all[i], &r->rule))
            rc = s->k->rule_del(s->k->arg, r->nic->ifindex, all[i].loc);
    free(all);
    return rc;
}

bool hd_rule_same(const struct hd_rule *a, const struct hd_rule *b)
{
    return a->exact && b->exact && a->queue == b->queue && hw_addr_same_host(&a->local, &b->local) &&
           hw_addr_same_host(&a->remote, &b->remote) && hw_addr_port(&a->local) == hw_addr_port(&b->local) &&
           hw_addr_port(&a->remote) == hw_addr_port(&b->remote);
}

unsigned hd_left(const struct hd_state *s)
{
    unsigned left = 0;
    hw_list_each(it, tmp, &s->rules) left += !hw_container_of(it, struct hd_held_rule, node)->binding;
    hw_list_each(it, tmp, &s->nics)
    {
        const struct hd_nic *nic = hw_container_of(it, struct hd_nic, node);
        left += !nic->gone && (memcmp(&nic->taken, &nic->held, sizeof(nic->held)) != 0 || nic->bindings == 0);
    }
    return left;
}

unsigned hd_settle_all(struct hd_state *s)
{
    hw_list_each(it, tmp, &s->rules)
    {
        struct hd_held_rule *r = hw_container_of(it, struct hd_held_rule, node);
        if (r->binding)
            continue;
        int rc = hd_unplace(s, r);
        if (!check_undo_step(s, rc) && rc != -ENODEV)
            continue;
        hd_rule_free(s, r);
    }
    hw_list_each(it, tmp, &s->nics) hd_settle(s, hw_container_of(it, struct hd_nic, node));
    return hd_left(s);
}
