/* SPDX-License-Identifier: Apache-2.0 */
/* The lead: accepts the ranks, orders measurements in rounds, and records the results. */
#include "tool/mesh/run/mesh_lead.h"

#include "tool/peer/session.h"
#include "tool/report/output.h"
#include "tool/tool.h"

#include <inttypes.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define POLL_MS  200
#define KNOCK_MS 1000
#define EVENTS   64
#define LEAVE_MS 5000  /* ms to wait for the final messages of ranks */
#define HURRY_MS 500   /* the same after an interrupt, because a launcher may kill this process soon */
#define SLACK_MS 20000 /* ms beyond the expected time of an order, after which the lead gives up on the rank */
#define HOPELESS 3     /* a node is left out after this many failed pairs in a row */

/* ---- messages from ranks ---------------------------------------------------------------------- */

static struct lead_rank *find_rank(struct lead *l, const hawser_peer *p)
{
    for (uint32_t i = 0; i < l->size; i++)
        if (l->rank[i].peer == p)
            return &l->rank[i];
    return NULL;
}

static struct mesh_node *get_node(struct lead *l, const struct lead_rank *r)
{
    /* no node exists while ranks are still connecting */
    return r->node >= 0 && l->m->node ? &l->m->node[r->node] : NULL;
}

/* Closes the connection to a rank. If the rank takes part and has not left, also marks its node as lost, and reports
 * this. */
static void lose_rank(struct lead *l, struct lead_rank *r, enum mesh_state state, const char *why)
{
    struct mesh_node *node = get_node(l, r);
    hawser_peer_close(r->peer);
    r->peer = NULL;
    r->busy = false;
    if (!node || r->left)
        return;
    node->state = state;
    snprintf(node->why, sizeof node->why, "%s", why);
    output_progress(NULL);
    fprintf(stderr, "hawser mesh: %s %s; continuing without it\n", node->name,
            state == MESH_DIED ? "died" : "stopped answering");
}

/* Tests whether the host of a lost rank still answers. Returns 0 if the rank's service listens, which means that
 * the process exists, or -ECONNREFUSED if the process has ended. Any other error means that nothing answers. */
static int knock(const struct mesh_hello *h)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *to = NULL;
    char port[8];
    int result = -EHOSTUNREACH, err;
    snprintf(port, sizeof port, "%u", h->port);
    if (getaddrinfo(h->addr, port, &hints, &to) != 0)
        return result;
    HW_AUTO_CLOSE int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t len = sizeof err;
    if (fd >= 0 && (connect(fd, to->ai_addr, to->ai_addrlen) == 0 || errno == EINPROGRESS) &&
        poll(&p, 1, KNOCK_MS) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0)
        result = -err;
    freeaddrinfo(to);
    return result;
}

static void note_death(struct lead *l, hawser_peer *p, int result)
{
    struct lead_rank *r = find_rank(l, p);
    if (!r) {
        hawser_peer_close(p); /* the peer never sent a HELLO */
        return;
    }
    if (tool_stop && result == -ESHUTDOWN) /* after an interrupt, all ranks leave at the same time */
        r->left = true;
    switch (knock(&r->hello)) {
    case 0:
        lose_rank(l, r, MESH_SILENT, "its process runs but does not answer");
        break;
    case -ECONNREFUSED:
        lose_rank(l, r, MESH_DIED, "");
        break;
    default:
        lose_rank(l, r, MESH_SILENT, "nothing answers at its address");
    }
}

static void note_hello(struct lead *l, hawser_peer *p, const struct mesh_hello *h)
{
    struct session_path path[1];
    struct session s = {.h = l->h, .peer = p};
    if (h->size != l->size || l->rank[h->rank].peer || l->closed) {
        tool_fail("mesh", "%s (%s) was refused: %s", h->name, hawser_peer_name(p),
                  l->closed            ? "the measurements have already begun"
                  : h->size != l->size ? "it belongs to a job of a different size"
                                       : "its rank is already connected");
        hawser_peer_close(p);
        return;
    }
    struct lead_rank *r = &l->rank[h->rank];
    r->peer = p;
    r->hello = *h;
    l->here++;
    /* Record rank 0's address as other ranks reach it; rank 0 itself connected over loopback. */
    if (!l->own[0] && h->rank != 0 && session_paths(&s, path, 1) == 1)
        snprintf(l->own, sizeof l->own, "%s", path[0].local);
}

static void note_message(struct lead *l, const struct hawser_completion *c)
{
    HW_AUTO_FREE struct mesh_message *m = calloc(1, sizeof *m);
    struct lead_rank *r = find_rank(l, c->peer);
    if (!m || mesh_decode(c->data, c->length, m) < 0) {
        tool_fail("mesh", "%s: %s", hawser_peer_name(c->peer), m ? hw_error() : "out of memory");
        return;
    }
    if (m->type == MESH_HELLO && !r)
        note_hello(l, c->peer, &m->hello);
    else if (m->type == MESH_ANSWER && r && r->busy && m->answer.seq == r->order.seq) {
        r->busy = false;
        l->busy--;
        l->answered(l, r, &m->answer);
    } else if (m->type == MESH_FINAL && r) {
        r->left = true;
        l->leaving--;
        for (uint32_t i = 0; r->node >= 0 && i < m->hello.n_nics; i++) {
            struct mesh_node *node = get_node(l, r);
            uint8_t nic = mesh_nic(node, m->hello.nic[i].name);
            if (nic != MESH_ALL) {
                node->nic[nic].rx_errors = m->hello.nic[i].rx_errors;
                node->nic[nic].tx_errors = m->hello.nic[i].tx_errors;
            }
        }
    }
}

/* Waits up to ms milliseconds for messages from ranks, and handles them. */
static int hear(struct lead *l, int ms)
{
    struct hawser_completion c[EVENTS];
    int n = hawser_poll_wait(l->h, c, EVENTS, ms);
    for (int i = 0; i < n; i++) {
        struct lead_rank *r = find_rank(l, c[i].peer);
        bool was_busy = r && r->busy, was_here = r && !r->left;
        if (c[i].event == HAWSER_NOTIFIED) {
            note_message(l, &c[i]);
            hawser_data_free(c[i].data);
        } else if (c[i].event == HAWSER_DIED) {
            note_death(l, c[i].peer, c[i].result);
            l->busy -= was_busy;
            l->here -= was_here && !l->closed;
            l->leaving -= was_here && l->closed && l->leaving > 0;
        }
    }
    return HW_MIN(n, 0);
}

/* ---- meeting ------------------------------------------------------------------------------------ */

static void name_absent(const struct lead *l, uint32_t rank, struct mesh_node *node)
{
    char host[MESH_NAME];
    if (l->seat->names)
        snprintf(node->name, sizeof node->name, "%s", l->seat->names[rank]);
    else if (l->pmix && launch_pmix_host(l->pmix, rank, host, sizeof host) == 0)
        snprintf(node->name, sizeof node->name, "%s", host);
    else
        snprintf(node->name, sizeof node->name, "rank %u", rank);
}

/* Returns true if an earlier rank is in the same network namespace of the same host. Only the first rank in a namespace
 * takes part; the others are released. */
static bool is_on_earlier_host(const struct lead *l, uint32_t rank)
{
    const struct mesh_hello *h = &l->rank[rank].hello;
    for (uint32_t i = 0; i < rank; i++) {
        const struct mesh_hello *o = &l->rank[i].hello;
        if (l->rank[i].peer && memcmp(o->boot, h->boot, sizeof h->boot) == 0 && o->netns == h->netns)
            return true;
    }
    return false;
}

static void copy_node(struct lead *l, uint32_t rank, struct mesh_node *node)
{
    struct lead_rank *r = &l->rank[rank];
    const struct mesh_hello *h = &r->hello;
    node->rank = rank;
    if (!r->peer) {
        node->state = MESH_ABSENT;
        snprintf(node->why, sizeof node->why, "waited for %" PRIu64 " s", l->o->wait_ms / 1000);
        name_absent(l, rank, node);
        return;
    }
    snprintf(node->name, sizeof node->name, "%s", h->name);
    snprintf(node->rack, sizeof node->rack, "%s", h->rack);
    snprintf(node->version, sizeof node->version, "%s", h->version);
    node->n_nics = h->n_nics;
    for (uint32_t i = 0; i < h->n_nics; i++)
        node->nic[i] = (struct mesh_nic_facts){.speed = h->nic[i].speed, .mtu = h->nic[i].mtu};
    for (uint32_t i = 0; i < h->n_nics; i++)
        memcpy(node->nic[i].name, h->nic[i].name, HAWSER_NIC_NAME);
    if (rank == 0 && l->own[0])
        snprintf(r->hello.addr, sizeof r->hello.addr, "%s", l->own);
}

/* Appends the rank to each name that several nodes share. */
static void make_names_differ(struct mesh *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        bool twice = false;
        for (uint32_t k = i + 1; k < m->n; k++)
            if (strcmp(m->node[i].name, m->node[k].name) == 0) {
                char name[MESH_NAME + 16];
                twice = true;
                snprintf(name, sizeof name, "%.*s:%u", MESH_NAME - 8, m->node[k].name, m->node[k].rank);
                snprintf(m->node[k].name, sizeof m->node[k].name, "%.*s", MESH_NAME - 1, name);
            }
        if (twice) {
            char name[MESH_NAME + 16];
            snprintf(name, sizeof name, "%.*s:%u", MESH_NAME - 8, m->node[i].name, m->node[i].rank);
            snprintf(m->node[i].name, sizeof m->node[i].name, "%.*s", MESH_NAME - 1, name);
        }
    }
}

static int seat_nodes(struct lead *l)
{
    const struct mesh_message bye = {.type = MESH_BYE};
    uint32_t n = 0, well = 0;
    for (uint32_t i = 0; i < l->size; i++)
        n += !l->rank[i].peer || !is_on_earlier_host(l, i);
    int rc = mesh_init(l->m, n);
    n = 0;
    for (uint32_t i = 0; i < l->size && rc == 0; i++) {
        struct lead_rank *r = &l->rank[i];
        r->node = -1;
        if (r->peer && is_on_earlier_host(l, i)) {
            l->spare++;
            (void)mesh_tell(r->peer, &bye, 0);
            l->leaving++;
            continue;
        }
        copy_node(l, i, &l->m->node[n]);
        well += l->m->node[n].state == MESH_WELL;
        l->by_node[n] = i;
        r->node = (int)n++;
    }
    if (rc < 0)
        return rc;
    make_names_differ(l->m);
    if (well < 2) {
        const char *missing = NULL;
        for (uint32_t i = 0; i < l->m->n && !missing; i++)
            missing = l->m->node[i].state == MESH_ABSENT ? l->m->node[i].name : NULL;
        return hw_fail(-ENODEV, "%u of %u ranks connected, on %u node%s%s%s; at least two nodes are needed", l->here,
                       l->size, well, hw_plural(well), missing ? "; first missing node: " : "", missing ? missing : "");
    }
    return 0;
}

static int meet(struct lead *l)
{
    const uint64_t end = hw_deadline((int)l->o->wait_ms);
    while (l->here < l->size && hw_now() < end) {
        output_progress("%u of %u ranks connected", l->here, l->size);
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        int rc = hear(l, POLL_MS);
        if (rc < 0)
            return rc;
    }
    output_progress(NULL);
    l->closed = true;
    return seat_nodes(l);
}

/* ---- orders ------------------------------------------------------------------------------------- */

static void add_target(struct lead *l, uint32_t node, struct mesh_order *o)
{
    const struct mesh_hello *h = &l->rank[l->by_node[node]].hello;
    struct mesh_target *t = &o->target[o->n_targets++];
    snprintf(t->addr, sizeof t->addr, "%s", h->addr);
    t->port = h->port;
}

/* Orders node `from` to measure with the targets of o. Fails with -ENOMEM; an unreachable rank is lost, without an
 * error. */
static int give_order(struct lead *l, uint32_t from, const struct mesh_order *o, uint32_t to)
{
    struct lead_rank *r = &l->rank[l->by_node[from]];
    HW_AUTO_FREE struct mesh_message *m = calloc(1, sizeof *m);
    if (!m)
        return hw_no_memory("an order");
    m->type = MESH_ORDER;
    m->order = *o;
    m->order.seq = ++l->seq;
    r->order = m->order;
    r->to = to;
    r->busy = true;
    l->busy++;
    if (mesh_tell(r->peer, m, 0) < 0) {
        l->busy--;
        lose_rank(l, r, knock(&r->hello) == -ECONNREFUSED ? MESH_DIED : MESH_SILENT, hw_error());
    }
    return 0;
}

static struct mesh_order make_order(const struct lead *l, enum mesh_what what, uint64_t duration_ms)
{
    const struct mesh_options *o = l->o;
    return (struct mesh_order){.what = what,
                               .size = o->size,
                               .depth = (uint32_t)o->depth,
                               .duration_ms = (uint32_t)duration_ms,
                               .warmup_ms = (uint32_t)(duration_ms / 5),
                               .pings = (uint32_t)o->pings,
                               .gpu = o->has_gpu ? (uint16_t)o->gpu : TP_HOST};
}

/* Waits until all orders are answered, an error occurs, or this process is interrupted. Gives up on ranks that do not
 * answer in time. */
static int await_answers(struct lead *l, const struct mesh_order *o)
{
    const uint64_t rails = o->what == MESH_RAILS ? TP_MAX_NICS : 1;
    const uint64_t end =
        hw_deadline((int)(rails * 3 * (o->duration_ms + o->warmup_ms) + 2 * l->o->deadline_ms + SLACK_MS));
    int rc = 0;
    while (l->busy > 0 && rc == 0 && !tool_stop && hw_now() < end)
        rc = hear(l, POLL_MS);
    for (uint32_t i = 0; i < l->size && rc == 0 && hw_now() >= end; i++)
        if (l->rank[i].busy) {
            l->busy--;
            lose_rank(l, &l->rank[i], MESH_SILENT, "it did not answer an order before the deadline");
        }
    return tool_stop ? hw_fail(-EINTR, "interrupted") : rc;
}

bool lead_has(const struct lead *l, uint32_t node)
{
    return l->m->node[node].state == MESH_WELL && !l->hopeless[node];
}

int lead_phase(struct lead *l, const struct mesh_pair *pair, size_t n, enum mesh_what what, uint64_t duration_ms)
{
    static const char *const names[] = {"latency", "one way", "both ways", "rails", "all to all"};
    struct mesh_order o = make_order(l, what, duration_ms);
    const uint64_t start = hw_now();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct mesh_order one = o;
        if (!lead_has(l, pair[i].a) || !lead_has(l, pair[i].b) || l->failed_now[pair[i].a])
            continue;
        add_target(l, pair[i].b, &one);
        rc = give_order(l, pair[i].a, &one, pair[i].b);
    }
    if (rc == 0)
        rc = await_answers(l, &o);
    if (l->o->common.verbose > 0) {
        output_progress(NULL);
        fprintf(stderr, "hawser mesh: %s: %zu pair%s in %.2f s\n", names[what - MESH_LATENCY], n, hw_plural(n),
                (double)(hw_now() - start) / 1e9);
    }
    return rc;
}

int lead_all_to_all(struct lead *l, uint64_t duration_ms)
{
    struct mesh_order o = make_order(l, MESH_ALL_TO_ALL, duration_ms);
    const uint32_t n = l->m->n;
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct mesh_order one = o;
        for (uint32_t k = 1; k < n && one.n_targets < MESH_TARGETS; k++) /* spread the targets over all ranks */
            if (lead_has(l, (i + k) % n))
                add_target(l, (i + k) % n, &one);
        if (lead_has(l, i) && one.n_targets)
            rc = give_order(l, i, &one, MESH_RANKS);
    }
    return rc < 0 ? rc : await_answers(l, &o);
}

/* ---- answers ------------------------------------------------------------------------------------ */

static void keep_sample(struct lead *l, uint32_t from, uint32_t to, enum mesh_kind kind, uint8_t nic, uint8_t to_nic,
                        double value)
{
    const struct mesh_sample s = {.from = (uint16_t)from,
                                  .to = (uint16_t)to,
                                  .kind = (uint8_t)kind,
                                  .nic = nic,
                                  .to_nic = to_nic,
                                  .value = (float)value};
    int rc = l->keep == LEAD_ASIDE ? 0 : l->keep == LEAD_AGAIN ? mesh_add_again(l->m, &s) : mesh_add(l->m, &s);
    if (rc < 0 && !l->full) {
        l->full = true;
        tool_fail("mesh", "%s: later results are lost", hw_error());
    }
}

static void keep_shares(struct lead *l, uint32_t from, uint32_t to, enum mesh_kind kind, const struct mesh_answer *a)
{
    for (uint32_t i = 0; i < a->n_nics; i++) {
        uint8_t nic = mesh_nic(&l->m->node[from], a->nic[i].nic), peer = mesh_nic(&l->m->node[to], a->nic[i].peer_nic);
        if (nic == MESH_ALL || peer == MESH_ALL)
            continue;
        keep_sample(l, from, to, kind, nic, peer, a->nic[i].out_GBps);
        keep_sample(l, to, from, kind, peer, nic, a->nic[i].in_GBps);
    }
}

static void note_failure(struct lead *l, uint32_t from, uint32_t to, const char *text)
{
    l->failed_now[from] = l->failed_now[to] = true;
    if (l->keep == LEAD_KEEP)
        (void)mesh_add_fault(l->m, (uint16_t)from, (uint16_t)to, 0, text);
    const uint32_t end[] = {from, to};
    for (unsigned k = 0; k < 2; k++) {
        l->failures[end[k]]++;
        if (l->failures[end[k]] >= HOPELESS && !l->hopeless[end[k]]) {
            l->hopeless[end[k]] = true;
            output_progress(NULL);
            fprintf(stderr, "hawser mesh: %d measurements in a row with %s failed; continuing without it\n", HOPELESS,
                    l->m->node[end[k]].name);
        }
    }
}

static void note_load(struct lead *l, uint32_t from, const struct mesh_answer *a)
{
    if (a->status < 0) {
        output_progress(NULL);
        tool_fail("mesh", "%s, all to all: %s", l->m->node[from].name, a->text);
        return;
    }
    l->m->all_GBps += a->out_GBps;
}

void lead_answer(struct lead *l, struct lead_rank *r, const struct mesh_answer *a)
{
    const uint32_t from = (uint32_t)r->node, to = r->to;
    l->m->checked += a->checked;
    if (r->order.what == MESH_ALL_TO_ALL) {
        note_load(l, from, a);
        return;
    }
    if (a->bad)
        (void)mesh_add_fault(l->m, (uint16_t)from, (uint16_t)to, a->bad, "");
    if (a->status < 0) {
        if (!tool_stop && lead_has(l, from) && l->m->node[to].state == MESH_WELL)
            note_failure(l, from, to, a->text);
        return;
    }
    l->failures[from] = l->failures[to] = 0;
    if (r->order.what == MESH_LATENCY) {
        keep_sample(l, from, to, MESH_K_LATENCY, MESH_ALL, MESH_ALL, a->low_us);
        keep_sample(l, to, from, MESH_K_LATENCY, MESH_ALL, MESH_ALL, a->low_us);
        return;
    }
    if (r->order.what != MESH_RAILS) {
        enum mesh_kind kind = r->order.what == MESH_BOTH_WAYS ? MESH_K_BOTH : MESH_K_WAY;
        keep_sample(l, from, to, kind, MESH_ALL, MESH_ALL, a->out_GBps);
        keep_sample(l, to, from, kind, MESH_ALL, MESH_ALL, a->in_GBps);
        l->sum_GBps += a->out_GBps + a->in_GBps;
    }
    if (r->order.what == MESH_RAILS) {
        l->railed[from]++;
        l->railed[to]++;
    }
    if (r->order.what != MESH_BOTH_WAYS)
        keep_shares(l, from, to, r->order.what == MESH_RAILS ? MESH_K_RAIL : MESH_K_WAY, a);
}

/* ---- the end ------------------------------------------------------------------------------------- */

static void dismiss(struct lead *l)
{
    const struct mesh_message bye = {.type = MESH_BYE};
    const uint64_t end = hw_deadline(tool_stop ? HURRY_MS : LEAVE_MS);
    for (uint32_t i = 0; i < l->size; i++)
        if (l->rank[i].peer && l->rank[i].node >= 0 && mesh_tell(l->rank[i].peer, &bye, 0) == 0)
            l->leaving++;
    while (l->leaving > 0 && hw_now() < end)
        (void)hear(l, POLL_MS);
}

static int open_lead(struct lead *l)
{
    l->rank = calloc(l->size, sizeof *l->rank);
    l->by_node = calloc(l->size, sizeof *l->by_node);
    l->failures = calloc(l->size, sizeof *l->failures);
    l->railed = calloc(l->size, sizeof *l->railed);
    l->hopeless = calloc(l->size, sizeof *l->hopeless);
    l->failed_now = calloc(l->size, sizeof *l->failed_now);
    const bool full = l->rank && l->by_node && l->failures && l->railed && l->hopeless && l->failed_now;
    return full ? 0 : hw_no_memory("%u ranks", l->size);
}

int mesh_lead(const struct mesh_options *o, const struct launch_seat *seat, hawser *h, struct launch_pmix *pmix,
              struct mesh *m, struct mesh_findings *out)
{
    struct lead l = {.o = o, .seat = seat, .h = h, .pmix = pmix, .m = m, .size = seat->size, .answered = lead_answer};
    int rc = open_lead(&l);
    const uint64_t start = hw_now();
    if (rc == 0)
        rc = meet(&l);
    if (rc == 0)
        rc = lead_measure(&l);
    output_progress(NULL);
    if (rc < 0 && m->rounds > 0) {
        tool_fail("mesh", "%s; the results contain the measurements up to this point", hw_error());
        rc = 0;
    }
    {
        HW_KEEP_ERROR();
        if (l.rank)
            dismiss(&l);
    }
    if (rc == 0)
        rc = mesh_judge(m, out);
    HW_KEEP_ERROR();
    m->seconds = (double)(hw_now() - start) / 1e9;
    free(l.rank);
    free(l.by_node);
    free(l.failures);
    free(l.railed);
    free(l.hopeless);
    free(l.failed_now);
    return rc;
}
