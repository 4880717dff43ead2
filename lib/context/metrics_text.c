/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a context's metrics as text in Prometheus's format. */
#include "context/context.h"

#include "base/metric.h"

#include <pthread.h>
#include <stdio.h>

/* ---- totals: with the context's lock held ------------------------------------------------------------------ */

/* Computes a += b - c for arrays of n counters; c may be NULL. */
static void add_counters(uint64_t *a, const uint64_t *b, const uint64_t *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] += b[i] - (c ? c[i] : 0);
}

void hw_metrics_add_rail(struct hw_rail_totals *a, const struct hw_rail_totals *b, const struct hw_rail_totals *c)
{
    add_counters((uint64_t *)a, (const uint64_t *)b, (const uint64_t *)c, sizeof *a / sizeof(uint64_t));
}

void hw_metrics_add_ops(struct hw_op_totals *a, const struct hw_op_totals *b, const struct hw_op_totals *c)
{
    add_counters((uint64_t *)a, (const uint64_t *)b, (const uint64_t *)c, sizeof *a / sizeof(uint64_t));
}

struct hw_rail_totals hw_metrics_rail(const struct hawser_peer *p, unsigned rail)
{
    const struct hw_way *w = &p->way[rail];
    const struct hw_rail_counts *c = &p->peer.session.rail[rail].rail.counts;
    return (struct hw_rail_totals){
        .sent = atomic_load(&c->tx_bytes) + atomic_load(&c->tx_small),
        .received = atomic_load(&c->rx_bytes) + atomic_load(&c->rx_small),
        .resent = atomic_load(&c->lost_bytes),
        .failovers = atomic_load(&w->failed),
        .retransmits = atomic_load(&w->counts.retransmits),
        .device_in = atomic_load(&w->counts.rx_device),
        .device_out = atomic_load(&w->counts.tx_device),
        .copied = atomic_load(&w->counts.rx_copied),
        .staged_in = atomic_load(&w->counts.rx_staged),
        .staged_out = atomic_load(&w->counts.tx_staged),
        .referenced = atomic_load(&w->counts.tx_referenced),
    };
}

struct hw_op_totals hw_metrics_ops(struct hawser_peer *p)
{
    struct hw_op_totals t;
    pthread_mutex_lock(&p->peer.lock);
    t.started = p->peer.started;
    memcpy(t.of, p->peer.counts, sizeof t.of);
    pthread_mutex_unlock(&p->peer.lock);
    return t;
}

struct hw_metrics_other *hw_metrics_other(struct hw_metrics *m, const char *nic)
{
    for (unsigned i = 0; i < m->n_others; i++)
        if (strcmp(m->other[i].nic, nic) == 0)
            return &m->other[i];
    if (m->n_others == HW_METRICS_NICS)
        return &m->other[HW_METRICS_NICS - 1];
    struct hw_metrics_other *o = &m->other[m->n_others++];
    memcpy(o->nic, nic, sizeof o->nic);
    return o;
}

static bool is_listed(const struct hawser_peer *p)
{
    return p->metrics_place >= 1 && p->metrics_place <= HW_METRICS_PEERS;
}

void hw_metrics_fold(struct hawser_peer *p)
{
    struct hw_metrics *m = &p->h->metrics;
    if (!p->has_rails)
        return;
    for (unsigned i = 0; i < p->n_ways; i++) {
        struct hw_rail_totals now = hw_metrics_rail(p, i);
        hw_metrics_add_rail(&m->gone, &now, &p->way[i].folded);
        if (p->metrics_place && !is_listed(p))
            hw_metrics_add_rail(&hw_metrics_other(m, p->way[i].nic)->gone, &now, &p->way[i].folded);
        p->way[i].folded = now;
    }
    struct hw_op_totals ops = hw_metrics_ops(p);
    hw_metrics_add_ops(&m->gone_ops, &ops, &p->folded);
    p->folded = ops;
    if (is_listed(p)) {
        m->listed[p->metrics_place - 1] = false;
        m->rows -= HW_MAX(p->n_pairs, 1u);
        p->metrics_place = 0;
    }
}

/* Assigns the peer a number, or makes it part of peer "other", when a reader first sees the peer. */
static void place_peer(struct hw_metrics *m, struct hawser_peer *p)
{
    unsigned cost = HW_MAX(p->n_pairs, 1u), i = 0;
    if (p->metrics_place)
        return;
    while (i < HW_METRICS_PEERS && m->listed[i])
        i++;
    p->metrics_place = HW_METRICS_PEERS + 1;
    if (i == HW_METRICS_PEERS || m->rows + cost > HW_METRICS_ROWS)
        return;
    p->metrics_place = i + 1;
    m->listed[i] = true;
    m->rows += cost;
}

/* ---- snapshot of the counters ------------------------------------------------------------------------------ */

struct row {
    char peer[HAWSER_ADDR_TEXT + 8], nic[HAWSER_NIC_NAME], peer_nic[HAWSER_NIC_NAME];
    int id; /* -1 for the other peers */
    unsigned rails, up, suspect;
    uint64_t rtt_us;
    struct hw_rail_totals t;
};

/* Upper bound of the number of rows: one for each rail of the listed peers, and the rows of the others. */
#define ROWS_MAX (HW_METRICS_PEERS * HW_SESSION_RAILS + HW_METRICS_NICS)

struct view {
    unsigned peers;
    uint64_t lost, registered[2];
    struct hw_rail_totals all;
    struct hw_op_totals ops;
    unsigned n, room;
    struct row *row;
    bool failed; /* out of memory */
};

/* Copies a label. Replaces quotes and backslashes, which the format requires to be escaped, and all characters other
 * than printable ASCII. */
static void copy_label(char *to, size_t cap, const char *from)
{
    size_t n = 0;
    for (; from[n] && n + 1 < cap; n++) {
        bool plain = from[n] >= ' ' && from[n] <= '~' && from[n] != '"' && from[n] != '\\';
        memcpy(&to[n], plain ? &from[n] : "_", 1);
    }
    to[n] = 0;
}

/* Writes the peer's name. For a peer that connected to this side, this is only the address, because the port is
 * arbitrary. */
static void name_peer(const struct hawser_peer *p, char *to, size_t cap)
{
    copy_label(to, cap, p->name);
    char *port = p->client ? NULL : strrchr(to, ':');
    if (port)
        *port = 0;
}

static struct row *find_row(struct view *v, int id, const char *nic, const char *peer_nic)
{
    for (unsigned i = v->n; i-- > 0 && v->row[i].id == id;)
        if (strcmp(v->row[i].nic, nic) == 0 && strcmp(v->row[i].peer_nic, peer_nic) == 0)
            return &v->row[i];
    if (v->n == v->room) {
        unsigned room = HW_MIN(HW_MAX(2 * v->room, 16u), (unsigned)ROWS_MAX);
        struct row *more = room > v->room ? realloc(v->row, room * sizeof *more) : NULL;
        if (!more)
            return NULL;
        v->row = more;
        v->room = room;
    }
    struct row *r = &v->row[v->n++];
    *r = (struct row){.id = id};
    copy_label(r->nic, sizeof r->nic, nic);
    copy_label(r->peer_nic, sizeof r->peer_nic, peer_nic);
    return r;
}

/* Returns true unless the rail is a spare that is not in use. The server does not know which rails are spare, so on the
 * server a rail counts once it has been up. */
static bool is_wanted(const struct hw_way *w)
{
    return atomic_load(&w->up) || (w->peer->client ? !w->spare : *w->remote != 0);
}

static void look_at_rails(struct view *v, const struct hawser_peer *p, bool other)
{
    for (unsigned i = 0; i < p->n_ways; i++) {
        const struct hw_way *w = &p->way[i];
        struct hw_rail_totals now = hw_metrics_rail(p, i);
        char nic[HAWSER_NIC_NAME], peer_nic[HAWSER_NIC_NAME] = "";
        if (!other)
            hw_metrics_add_rail(&v->all, &now, NULL);
        bool wanted = is_wanted(w);
        if (other == is_listed(p) || (!wanted && now.sent + now.received == 0))
            continue;
        copy_label(nic, sizeof nic, other ? hw_metrics_other(&p->h->metrics, w->nic)->nic : w->nic);
        if (!other)
            copy_label(peer_nic, sizeof peer_nic, w->peer_nic);
        struct row *r = find_row(v, other ? -1 : (int)p->metrics_place - 1, nic, peer_nic);
        if (!r) {
            v->failed = true;
            return;
        }
        if (!*r->peer)
            name_peer(p, r->peer, sizeof r->peer);
        bool up = atomic_load(&w->up);
        r->rails += wanted;
        r->up += up;
        r->suspect += up && atomic_load(&p->peer.session.rail[i].rail.suspect);
        r->rtt_us = HW_MAX(r->rtt_us, (uint64_t)atomic_load(&w->counts.rtt_us));
        hw_metrics_add_rail(&r->t, &now, NULL);
    }
}

/* Creates the rows of the other peers, which start with the totals of closed peers. */
static void begin_others(struct view *v, struct hw_metrics *m)
{
    for (unsigned i = 0; i < m->n_others; i++) {
        struct row *r = find_row(v, -1, m->other[i].nic, "");
        if (!r) {
            v->failed = true;
            return;
        }
        memcpy(r->peer, "other", sizeof "other");
        r->t = m->other[i].gone;
    }
}

static void look_at_peers(struct view *v, struct hawser *h)
{
    for (int pass = 0; pass < 2 && !v->failed; pass++) {
        if (pass == 1)
            begin_others(v, &h->metrics);
        hw_list_each(it, tmp, &h->peers)
        {
            struct hawser_peer *p = hw_container_of(it, struct hawser_peer, in_context);
            bool lives = atomic_load(&p->state) == HW_PEER_LIVES;
            if (!lives && !p->metrics_place) /* its rails may not exist yet */
                continue;
            if (pass == 0) {
                place_peer(&h->metrics, p);
                struct hw_op_totals ops = hw_metrics_ops(p);
                hw_metrics_add_ops(&v->ops, &ops, NULL);
                v->peers += lives;
                if (!is_listed(p)) /* its NICs must be listed before begin_others() runs */
                    for (unsigned i = 0; i < p->n_ways; i++)
                        (void)hw_metrics_other(&h->metrics, p->way[i].nic);
            }
            look_at_rails(v, p, pass == 1);
        }
    }
}

static void look_at_context(struct view *v, struct hawser *h)
{
    const struct hw_metrics *m = &h->metrics;
    pthread_mutex_lock(&h->lock);
    v->all = m->gone;
    v->ops = m->gone_ops;
    v->lost = m->lost;
    memcpy(v->registered, m->registered, sizeof v->registered);
    look_at_peers(v, h);
    pthread_mutex_unlock(&h->lock);
}

/* ---- text ------------------------------------------------------------------------------------------------ */

static void write_head(FILE *f, enum hw_metric m)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", hw_metrics[m].name, hw_metrics[m].help, hw_metrics[m].name,
            hw_metrics[m].counter ? "counter" : "gauge");
}

static void write_one(FILE *f, enum hw_metric m, uint64_t value)
{
    write_head(f, m);
    fprintf(f, "%s %llu\n", hw_metrics[m].name, (unsigned long long)value);
}

/* Writes n / parts seconds. %f is not used, because it depends on the application's locale. */
static void write_seconds(FILE *f, uint64_t n, uint64_t parts, int digits)
{
    fprintf(f, "%llu.%0*llu\n", (unsigned long long)(n / parts), digits, (unsigned long long)(n % parts));
}

static void write_cpu(FILE *f, enum hw_metric m, uint64_t ns)
{
    write_head(f, m);
    fprintf(f, "%s ", hw_metrics[m].name);
    write_seconds(f, ns, 1000000000, 9);
}

/* Returns the clock in ns, or 0 if it cannot be read. */
static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec : 0;
}

/* Returns the CPU time of the progress threads in ns, and adds their number to *threads. */
static uint64_t read_cpu_time(const struct hawser *h, unsigned *threads)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < h->n_drivers; i++) {
        clockid_t clock;
        if (!atomic_load(&h->driver[i].has_thread))
            continue;
        ++*threads;
        if (pthread_getcpuclockid(h->driver[i].thread, &clock) == 0)
            sum += read_clock(clock);
    }
    return sum;
}

static void write_context(FILE *f, const struct hawser *h, const struct view *v)
{
    char process[64], kind[16], ident[HW_TRANSPORT_TEXT];
    unsigned threads = 0;
    uint64_t cpu = read_cpu_time(h, &threads);
    copy_label(process, sizeof process, program_invocation_short_name);
    copy_label(kind, sizeof kind, h->k.metrics_kind);
    copy_label(ident, sizeof ident, h->env.ident);
    write_head(f, HW_METRIC_INFO);
    fprintf(f, "%s{version=\"%s\",transport=\"%s\",process=\"%s\",kind=\"%s\"} 1\n", hw_metrics[HW_METRIC_INFO].name,
            hawser_version(), ident, process, kind);
    write_one(f, HW_METRIC_START, h->metrics.opened);
    write_cpu(f, HW_METRIC_CPU, cpu);
    write_cpu(f, HW_METRIC_PROCESS_CPU, read_clock(CLOCK_PROCESS_CPUTIME_ID));
    write_one(f, HW_METRIC_THREADS, threads);
    write_one(f, HW_METRIC_PEERS, v->peers);
    write_one(f, HW_METRIC_PEERS_LOST, v->lost);
    write_head(f, HW_METRIC_REGISTERED);
    for (int i = 0; i < 2; i++)
        fprintf(f, "%s{memory=\"%s\"} %llu\n", hw_metrics[HW_METRIC_REGISTERED].name, i ? "cuda" : "host",
                (unsigned long long)v->registered[i]);
}

static void write_ops(FILE *f, const struct hw_op_totals *ops)
{
    static const char *const names[HW_OP_BYE] = {[HW_OP_WRITE] = "write",
                                                 [HW_OP_READ] = "read",
                                                 [HW_OP_NOTIFY] = "notify",
                                                 [HW_OP_SEND] = "send",
                                                 [HW_OP_RECV] = "recv"};
    uint64_t ended = 0;
    for (enum hw_metric m = HW_METRIC_OPS; m <= HW_METRIC_OPS_BYTES; m++) {
        write_head(f, m);
        for (int k = 0; k < HW_OP_BYE; k++) {
            const struct hw_op_counts *c = &ops->of[k];
            uint64_t value = m == HW_METRIC_OPS ? c->ended : m == HW_METRIC_OPS_FAILED ? c->failed : c->bytes;
            fprintf(f, "%s{op=\"%s\"} %llu\n", hw_metrics[m].name, names[k], (unsigned long long)value);
            ended += m == HW_METRIC_OPS ? c->ended : 0;
        }
    }
    write_one(f, HW_METRIC_OPS_IN_FLIGHT, ops->started - ended);
}

static void write_paths(FILE *f, const struct hw_rail_totals *t)
{
    const struct {
        const char *direction, *path;
        uint64_t bytes;
    } row[] = {{"received", "device", t->device_in}, {"sent", "device", t->device_out},
               {"received", "copied", t->copied},    {"received", "staged", t->staged_in},
               {"sent", "staged", t->staged_out},    {"sent", "reference", t->referenced}};
    write_head(f, HW_METRIC_PATH_BYTES);
    for (size_t i = 0; i < HW_ARRAY_LEN(row); i++)
        fprintf(f, "%s{direction=\"%s\",path=\"%s\"} %llu\n", hw_metrics[HW_METRIC_PATH_BYTES].name, row[i].direction,
                row[i].path, (unsigned long long)row[i].bytes);
}

static void write_rail_value(FILE *f, enum hw_metric m, const struct row *r)
{
    uint64_t value = m == HW_METRIC_SENT            ? r->t.sent
                     : m == HW_METRIC_RECEIVED      ? r->t.received
                     : m == HW_METRIC_RESENT        ? r->t.resent
                     : m == HW_METRIC_FAILOVERS     ? r->t.failovers
                     : m == HW_METRIC_RAILS         ? r->rails
                     : m == HW_METRIC_RAILS_UP      ? r->up
                     : m == HW_METRIC_RAILS_SUSPECT ? r->suspect
                     : m == HW_METRIC_RETRANSMITS   ? r->t.retransmits
                                                    : r->rtt_us;
    if (m == HW_METRIC_RTT)
        write_seconds(f, value, 1000000, 6);
    else
        fprintf(f, "%llu\n", (unsigned long long)value);
}

static void write_rails(FILE *f, const struct view *v)
{
    for (enum hw_metric m = HW_METRIC_SENT; m < HW_METRICS; m++) {
        write_head(f, m);
        for (unsigned i = 0; i < v->n; i++) {
            const struct row *r = &v->row[i];
            char id[12] = "other";
            if (r->id >= 0)
                snprintf(id, sizeof id, "%d", r->id);
            fprintf(f, "%s{peer=\"%s\",id=\"%s\",nic=\"%s\",peer_nic=\"%s\"} ", hw_metrics[m].name, r->peer, id, r->nic,
                    r->peer_nic);
            write_rail_value(f, m, r);
        }
    }
}

char *hw_metrics_text(struct hawser *h, size_t *len)
{
    struct view v = {0};
    char *text = NULL;
    look_at_context(&v, h);
    FILE *f = v.failed ? NULL : open_memstream(&text, len);
    if (f) {
        write_context(f, h, &v);
        write_ops(f, &v.ops);
        write_paths(f, &v.all);
        write_rails(f, &v);
        fputs(HW_METRICS_END, f);
        bool bad = ferror(f);
        if (fclose(f) != 0 || bad) {
            free(text);
            text = NULL;
        }
    }
    free(v.row);
    return text;
}
