/* SPDX-License-Identifier: Apache-2.0 */
/* Links: libhawser peers, pooled by remote process. */
#include "base/thread.h"
#include "inner.h"

#include <stdlib.h>
#include <string.h>

#define CLOSERS 32 /* maximum number of threads that close the links */

bool hn_link_is_dead(struct hn_link *l)
{
    int state = atomic_load(&l->state);
    return state == HN_DEAD || (state == HN_UP && hawser_peer_state(l->peer) < 0);
}

uint32_t hn_link_stream(struct hn_link *l)
{
    uint32_t stream = l->next_stream;
    l->next_stream += 2;
    return stream;
}

/* ---- processes ---------------------------------------------------------------------------------------------- */

static struct hn_process *find_process(uint64_t id)
{
    hw_list_each(it, tmp, &hn_g.processes)
    {
        struct hn_process *p = hw_container_of(it, struct hn_process, all);
        if (p->id == id)
            return p;
    }
    return NULL;
}

static struct hn_process *get_process(uint64_t id)
{
    struct hn_process *p = find_process(id);
    if (p || !(p = calloc(1, sizeof(*p))))
        return p;
    p->id = id;
    hw_list_init(&p->links);
    hw_list_append(&hn_g.processes, &p->all);
    return p;
}

static void leave_process(struct hn_link *l)
{
    struct hn_process *p = l->process;
    hw_list_remove(&l->of);
    l->process = NULL;
    if (p && hw_list_empty(&p->links)) {
        hw_list_remove(&p->all);
        free(p);
    }
}

/* Returns the desired number of outgoing links to each process, over all groups of NICs. */
static unsigned count_wanted_links(void)
{
    unsigned processes = 0;
    hw_list_each(it, tmp, &hn_g.processes)
    {
        processes++;
    }
    unsigned each = hn_g.links_max / HW_MAX(processes, 1u);
    return HW_MAX(HW_MIN(each, hn_g.lanes), 1u);
}

/* Counts the groups of NICs over which this process has outgoing links to process p. The given group always counts. */
static unsigned count_groups(struct hn_process *p, unsigned group)
{
    uint32_t seen = 1u << group;
    hw_list_each(it, tmp, &p->links)
    {
        const struct hn_link *l = hw_container_of(it, struct hn_link, of);
        seen |= l->out ? 1u << l->group : 0;
    }
    return (unsigned)__builtin_popcount(seen);
}

/* ---- links -------------------------------------------------------------------------------------------------- */

static struct hn_link *new_link(bool out, unsigned group)
{
    struct hn_link *l = calloc(1, sizeof(*l));
    if (!l) {
        (void)hw_no_memory("a link");
        return NULL;
    }
    l->out = out;
    l->group = group;
    l->next_stream = out ? 1 : 2;
    l->number = hn_g.next_link++;
    hw_list_init(&l->of);
    hw_list_init(&l->wait);
    hw_list_append(&hn_g.links, &l->all);
    return l;
}

static void free_link(struct hn_link *l)
{
    hawser_peer_close(l->peer);
    hw_list_remove(&l->all);
    hw_list_remove(&l->wait);
    leave_process(l);
    free(l);
}

/* Returns the live link to process p that has the fewest communicators, or NULL if there is none. If out is true,
 * considers the links that this side has connected over the NICs of the group, otherwise those that the peer has
 * connected. Sets *n to the number of links considered. */
static struct hn_link *choose_link(struct hn_process *p, bool out, unsigned group, unsigned *n)
{
    struct hn_link *least = NULL;
    *n = 0;
    hw_list_each(it, tmp, &p->links)
    {
        struct hn_link *l = hw_container_of(it, struct hn_link, of);
        if (l->out != out || (out && l->group != group) || hn_link_is_dead(l))
            continue;
        (*n)++;
        if (!least || l->refs < least->refs)
            least = l;
    }
    return least;
}

/* Distributes communicators evenly over the links that this process has connected. If one link per process is enough
 * and this process has connected none over the group, uses a link that the peer has connected. */
int hn_link_get(const struct hn_handle *to, unsigned group, struct hn_link **out)
{
    struct hn_process *p = get_process(to->process);
    unsigned lanes, theirs;
    if (!p)
        return hw_no_memory("a link");
    unsigned wanted = count_wanted_links();
    struct hn_link *l = choose_link(p, true, group, &lanes);
    if (!l && wanted == 1)
        l = choose_link(p, false, group, &theirs);
    if (!l || (l->refs && lanes < wanted / count_groups(p, group) && l->out)) {
        l = new_link(true, group);
        if (!l) {
            if (hw_list_empty(&p->links)) {
                hw_list_remove(&p->all);
                free(p);
            }
            return -ENOMEM;
        }
        l->process = p;
        hw_list_append(&p->links, &l->of);
        l->to = *to;
        int rc = hn_dial(l);
        if (rc) {
            free_link(l);
            return rc;
        }
    }
    l->refs++;
    *out = l;
    return 0;
}

void hn_link_put(struct hn_link *l)
{
    l->refs--;
}

void hn_link_yield(struct hn_link *l)
{
    hw_list_each(it, tmp, &l->process->links)
    {
        struct hn_link *other = hw_container_of(it, struct hn_link, of);
        if (other != l && atomic_load(&other->state) == HN_UP && !hn_link_is_dead(other)) {
            hn_attempts_move(l, other);
            return;
        }
    }
}

/* Records the remote process of an incoming link. If one link to a process suffices for both directions, drops the
 * links to that process that are still queued for connecting, and moves their communicators to the incoming link. */
static void greet(struct hn_link *l, uint64_t process)
{
    if (l->process || !(l->process = get_process(process)))
        return;
    hw_list_append(&l->process->links, &l->of);
    if (count_wanted_links() > 1)
        return;
    hw_list_each(it, tmp, &l->process->links)
    {
        struct hn_link *w = hw_container_of(it, struct hn_link, of);
        if (hn_dial_cancel(w)) {
            hn_attempts_move(w, l);
            free_link(w);
        }
    }
}

/* ---- incoming connections and hellos -------------------------------------------------------------------------- */

static void take_in(hawser_peer *peer)
{
    struct hn_link *l = new_link(false, 0);
    if (!l) {
        hawser_peer_close(peer);
        return;
    }
    l->peer = peer;
    atomic_store(&l->state, HN_UP);
    hawser_peer_set_user(peer, l);
}

static void take_hello(struct hn_link *l, const struct hawser_completion *c)
{
    struct hn_hello hello;
    if (!l)
        return; /* still being connected: no peer sends a hello before it has received one on this link */
    int rc = hn_hello_decode(c->data, c->length, &hello);
    if (rc == 0 && hello.stream % 2 == (l->out ? 1 : 0))
        rc = hw_fail(-EPROTO, "the hello is for stream %u, which belongs to this side", hello.stream);
    if (rc) {
        hn_say(NCCL_LOG_WARN, "from %s: %s", hawser_peer_name(l->peer), hawser_error());
        return;
    }
    if (hn_arrived(l, &hello)) /* the process ID in a hello is trusted only after the secret was checked */
        greet(l, hello.process);
}

void hn_links_serve(void)
{
    struct hawser_completion c[16];
    int n;
    uint64_t now = hw_now();
    if (now < hn_g.served + HN_SERVE_US * 1000ull)
        return;
    hn_g.served = now;
    while ((n = hawser_poll(hn_g.h, c, HW_ARRAY_LEN(c))) > 0)
        for (int i = 0; i < n; i++) {
            if (c[i].event == HAWSER_ARRIVED)
                take_in(c[i].peer);
            else if (c[i].event == HAWSER_NOTIFIED)
                take_hello(hawser_peer_user(c[i].peer), &c[i]);
            hawser_data_free(c[i].data);
        }
    hw_list_each(it, tmp, &hn_g.links)
    {
        struct hn_link *l = hw_container_of(it, struct hn_link, all);
        if (l->refs == 0 && hn_link_is_dead(l))
            free_link(l);
    }
    hn_dial_tidy();
}

/* NCCL calls accept only while it expects connections. This thread also answers peers that connect to a listener that
 * is already closed. */
static void *run_link_attendant(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&hn_g.mu);
    while (!hn_g.leaving) {
        struct timespec until = hw_timespec(hw_deadline(HN_ATTEND_MS));
        if (pthread_cond_timedwait(&hn_g.leave, &hn_g.mu, &until) == ETIMEDOUT && !hn_g.leaving)
            hn_links_serve();
    }
    pthread_mutex_unlock(&hn_g.mu);
    return NULL;
}

int hn_attend(void)
{
    hw_cond_init(&hn_g.leave);
    hn_g.leaving = false;
    int rc = hw_thread_start(&hn_g.attendant, run_link_attendant, NULL, "a thread that accepts connections");
    hn_g.attending = rc == 0;
    if (rc)
        pthread_cond_destroy(&hn_g.leave);
    return rc;
}

void hn_attend_no_more(void)
{
    hn_g.leaving = true;
    if (!hn_g.attending) /* hn_attend() failed when the context was in use again */
        return;
    hn_g.attending = false;
    pthread_cond_signal(&hn_g.leave);
    pthread_mutex_unlock(&hn_g.mu);
    (void)pthread_join(hn_g.attendant, NULL);
    pthread_mutex_lock(&hn_g.mu);
    pthread_cond_destroy(&hn_g.leave);
}

struct closing {
    hawser_peer **peer;
    size_t n;
    atomic_size_t next; /* index of the next peer to be closed */
};

static void *close_peers(void *arg)
{
    struct closing *c = arg;
    for (size_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n;)
        hawser_peer_close(c->peer[i]);
    return NULL;
}

/* Closes the peers of all links. To close a peer that does not answer takes one or two seconds, and a process may have
 * many such peers, so several threads close them. */
static void close_all_peers(void)
{
    pthread_t thread[CLOSERS];
    size_t n = 0, started = 0;
    hw_list_each(it, tmp, &hn_g.links)
    {
        n += hw_container_of(it, struct hn_link, all)->peer != NULL;
    }
    struct closing c = {.peer = calloc(HW_MAX(n, (size_t)1), sizeof(*c.peer))};
    if (!c.peer)
        return; /* free_link() closes them */
    hw_list_each(it, tmp, &hn_g.links)
    {
        struct hn_link *l = hw_container_of(it, struct hn_link, all);
        if (l->peer)
            c.peer[c.n++] = l->peer;
        l->peer = NULL;
    }
    while (started + 1 < HW_MIN(n, (size_t)CLOSERS) &&
           hw_thread_start(&thread[started], close_peers, &c, "a thread that closes connections") == 0)
        started++;
    (void)close_peers(&c);
    while (started > 0)
        (void)pthread_join(thread[--started], NULL);
    free(c.peer);
}

void hn_links_close(void)
{
    close_all_peers();
    hw_list_each(it, tmp, &hn_g.links)
    {
        free_link(hw_container_of(it, struct hn_link, all));
    }
}
