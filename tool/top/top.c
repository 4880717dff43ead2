/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/top/top.h"

static const struct gather_source *find_source(const struct gather *g, const struct gather_source *s)
{
    for (size_t i = 0; g && i < g->n; i++)
        if (g->source[i].pid == s->pid && g->source[i].context == s->context && g->source[i].state == GATHER_ANSWERED)
            return &g->source[i];
    return NULL;
}

static bool is_same_series(const struct prom_sample *a, const struct prom_sample *b)
{
    bool same = a->metric == b->metric;
    for (unsigned k = 0; k < PROM_LABELS && same; k++)
        same = strcmp(a->label[k], b->label[k]) == 0;
    return same;
}

/* Returns the increase of sample i of `now`, or 0 if `before` is NULL or lacks the sample's series. If the value has
 * become smaller, the counter has restarted from 0, and the new value is the increase. */
static double count_growth(const struct gather_source *before, const struct gather_source *now, size_t i)
{
    const struct prom_sample *s = &now->data.sample[i], *old = NULL;
    if (!before)
        return 0;
    if (i < before->data.n && is_same_series(s, &before->data.sample[i])) /* the usual case */
        old = &before->data.sample[i];
    for (size_t k = 0; k < before->data.n && !old; k++)
        if (is_same_series(s, &before->data.sample[k]))
            old = &before->data.sample[k];
    return !old ? 0 : s->value < old->value ? s->value : s->value - old->value;
}

static struct top_rail *find_rail(struct top_process *p, const struct prom_sample *s)
{
    for (size_t i = p->n_rails; i-- > 0;) {
        struct top_rail *r = &p->rail[i];
        if (strcmp(r->peer, s->label[0]) == 0 && strcmp(r->id, s->label[1]) == 0 && strcmp(r->nic, s->label[2]) == 0 &&
            strcmp(r->peer_nic, s->label[3]) == 0)
            return r;
    }
    struct top_rail *r = &p->rail[p->n_rails++];
    memcpy(r->peer, s->label[0], sizeof r->peer);
    memcpy(r->id, s->label[1], sizeof r->id);
    memcpy(r->nic, s->label[2], sizeof r->nic);
    memcpy(r->peer_nic, s->label[3], sizeof r->peer_nic);
    return r;
}

static void take_rail_sample(struct top_process *p, const struct prom_sample *s, double rate)
{
    struct top_rail *r = find_rail(p, s);
    switch (s->metric) {
    case HW_METRIC_SENT:
        r->sent = rate;
        p->sent += rate;
        break;
    case HW_METRIC_RECEIVED:
        r->received = rate;
        p->received += rate;
        break;
    case HW_METRIC_RESENT:
        r->resent = s->value;
        break;
    case HW_METRIC_FAILOVERS:
        r->failovers = s->value;
        break;
    case HW_METRIC_RAILS:
        r->rails = s->value;
        break;
    case HW_METRIC_RAILS_UP:
        r->up = s->value;
        break;
    case HW_METRIC_RAILS_SUSPECT:
        r->suspect = s->value;
        break;
    case HW_METRIC_RETRANSMITS:
        r->retransmits = s->value;
        break;
    default:
        r->rtt = s->value;
    }
}

static void take_sample(struct top_process *p, const struct prom_sample *s, double rate)
{
    switch (s->metric) {
    case HW_METRIC_CPU:
        p->threads = rate;
        break;
    case HW_METRIC_PROCESS_CPU:
        p->cpu = rate;
        break;
    case HW_METRIC_PEERS:
        p->peers = s->value;
        break;
    case HW_METRIC_PEERS_LOST:
        p->lost = s->value;
        break;
    case HW_METRIC_OPS:
        p->ops += rate;
        break;
    case HW_METRIC_OPS_FAILED:
        p->failed += s->value;
        break;
    case HW_METRIC_OPS_IN_FLIGHT:
        p->in_flight = s->value;
        break;
    default:
        if (s->metric >= HW_METRIC_SENT)
            take_rail_sample(p, s, rate);
    }
}

static int order_rails(const void *a, const void *b)
{
    const struct top_rail *x = a, *y = b;
    double d = y->sent + y->received - x->sent - x->received;
    int peer = strcmp(x->peer, y->peer), id = strcmp(x->id, y->id);
    return d > 0 ? 1 : d < 0 ? -1 : peer ? peer : id ? id : strcmp(x->nic, y->nic);
}

static int order_processes(const void *a, const void *b)
{
    const struct top_process *x = a, *y = b;
    double d = y->sent + y->received - x->sent - x->received;
    if (d != 0)
        return d > 0 ? 1 : -1;
    return x->source->pid != y->source->pid ? (x->source->pid < y->source->pid ? -1 : 1)
                                            : (int)x->source->context - (int)y->source->context;
}

static int compare_one(const struct gather_source *before, const struct gather_source *now, double seconds,
                       struct top_process *p)
{
    *p = (struct top_process){.source = now, .rail = calloc(now->data.n + 1, sizeof *p->rail)};
    if (!p->rail)
        return hw_no_memory("%zu rails", now->data.n);
    for (size_t i = 0; i < now->data.n; i++) {
        const struct prom_sample *s = &now->data.sample[i];
        double growth = hw_metrics[s->metric].counter ? count_growth(before, now, i) : 0;
        take_sample(p, s, seconds > 0 ? growth / seconds : 0);
    }
    qsort(p->rail, p->n_rails, sizeof *p->rail, order_rails);
    return 0;
}

int top_compare(const struct gather *before, const struct gather *g, struct top_view *v)
{
    *v = (struct top_view){.process = calloc(g->n + 1, sizeof *v->process)};
    if (!v->process)
        return hw_no_memory("%zu processes", g->n);
    v->seconds = before ? (double)(g->when - before->when) / 1e9 : 0;
    for (; v->n < g->n; v->n++) {
        const struct gather_source *now = &g->source[v->n];
        int rc = compare_one(find_source(before, now), now, v->seconds, &v->process[v->n]);
        if (rc < 0)
            return rc;
    }
    qsort(v->process, v->n, sizeof *v->process, order_processes);
    return 0;
}

void top_free(struct top_view *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->process[i].rail);
    free(v->process);
    *v = (struct top_view){0};
}
