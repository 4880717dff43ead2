/* SPDX-License-Identifier: Apache-2.0 */
/* Connects links. Connecting takes several round trips, and NCCL's threads must not block, so separate threads connect
 * the links. These threads take links from a queue and exit when the queue is empty. After a failed attempt that is not
 * the last, a link moves to the end of the queue, so that the other links get their turn. An attempt at a dead peer
 * takes up to TRY_MS, so slow attempts do not count for the number of threads, up to a higher limit. */
#include "base/thread.h"
#include "inner.h"
#include "net/paths.h"
#include "net/route.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ms for one attempt: an answer can take seconds if all peers connect at once. With more than three addresses, an
 * attempt takes less time, but at least TRY_LEAST_MS, so that each of the first six addresses gets its turn. */
#define TRY_MS       10000
#define TRY_LEAST_MS 5000
/* ms between a failed attempt and the next. Doubled, up to AGAIN_MOST_MS, each time all addresses have failed, because
 * a peer may log each attempt. */
#define AGAIN_MS      50
#define AGAIN_MOST_MS 500
#define PATHS_SHOWN   64

/* Logs the used and spare paths to the peer, and why other paths are not used. */
static void say_paths(hawser_peer *peer)
{
    struct hawser_path *path = calloc(PATHS_SHOWN, sizeof(*path));
    size_t n = PATHS_SHOWN;
    if (!path || hawser_paths(peer, path, &n) < 0)
        n = 0;
    for (size_t i = 0; i < HW_MIN(n, (size_t)PATHS_SHOWN); i++) {
        const struct hawser_path *p = &path[i];
        if (p->state == HAWSER_PATH_USED || p->state == HAWSER_PATH_SPARE)
            hn_say(NCCL_LOG_INFO, "%s: %s %s to %s %s%s", hawser_peer_name(peer), p->nic, p->local, p->peer_nic,
                   p->remote, p->state == HAWSER_PATH_SPARE ? ", spare" : "");
        else
            hn_say(NCCL_LOG_INFO, "%s: not used: %s%s%s: %s", hawser_peer_name(peer), p->nic,
                   *p->nic && *p->peer_nic ? " to " : "", p->peer_nic, p->why);
    }
    free(path);
}

static unsigned count_addresses(const struct hn_handle *h)
{
    unsigned n = 0;
    while (n < HN_ADDRS && h->addr[n].family)
        n++;
    return n;
}

static union hw_addr decode_address(const struct hn_addr *a)
{
    union hw_addr out = {.sa.sa_family = a->family == 6 ? AF_INET6 : AF_INET};
    if (a->family == 6)
        memcpy(&out.in6.sin6_addr, a->ip, 16);
    else
        memcpy(&out.in.sin_addr, a->ip, 4);
    return out;
}

/* Returns true if the listening process uses only its loopback interface, as it does if it has no other NIC. */
static bool is_loopback_only(const struct hn_handle *h)
{
    bool only = true;
    for (unsigned i = 0; i < count_addresses(h) && only; i++) {
        const union hw_addr a = decode_address(&h->addr[i]);
        only = hw_addr_is_loopback(&a);
    }
    return only;
}

#define RANKS 4

/* Keeps the NICs that this process uses and that have a carrier. Routes over a NIC without a carrier remain, but lead
 * nowhere. Returns their number. */
static int keep_dialable(int fd, struct hw_nic *nic, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (hw_nic_listed(hn_g.nics, nic[i].name) && !hw_nic_is_down(fd, nic[i].name))
            nic[kept++] = nic[i];
    return kept;
}

/* Returns 0 if one of these NICs reaches the address without a gateway, and 1 with a gateway. Returns 2 for an address
 * that is not of the family that this process uses, because the paths of a session have the family of the dialled
 * address. Returns 3 if no NIC reaches the address, as for the address of a bridge that every node has. */
static unsigned rank_address(int fd, const struct hn_addr *a, const struct hw_nic *nic, int n)
{
    const union hw_addr to = decode_address(a);
    unsigned best = RANKS - 1;
    for (int i = 0; i < n && best; i++) {
        const uint8_t way = hw_route_way(fd, &nic[i], &to);
        best = way & HW_WAY_LINK ? 0 : way & HW_WAY_GATEWAY ? HW_MIN(best, 1u) : best;
    }
    return to.sa.sa_family == hn_g.nic[0].ip.sa.sa_family ? best : HW_MAX(best, 2u);
}

/* Puts the addresses of the handle that are most likely to be reached first, because each attempt at an address that
 * does not answer takes seconds. Otherwise keeps their order. */
static void sort_addresses(struct hn_handle *h)
{
    const unsigned n = count_addresses(h);
    struct hn_addr sorted[HN_ADDRS];
    struct hw_nic nic[HW_NIC_MAX];
    unsigned rank[HN_ADDRS], k = 0;
    int fd = hw_route_open();
    int nics = keep_dialable(fd, nic, hw_nics_list(nic, HW_NIC_MAX, true));
    for (unsigned i = 0; i < n; i++)
        rank[i] = rank_address(fd, &h->addr[i], nic, nics);
    hw_close(&fd);
    for (unsigned want = 0; want < RANKS; want++)
        for (unsigned i = 0; i < n; i++)
            if (rank[i] == want)
                sorted[k++] = h->addr[i];
    memcpy(h->addr, sorted, n * sizeof(*sorted));
}

/* Stores the next address to try in `host`. Returns false if the handle has no address. */
static bool next_address(struct hn_link *l, char host[INET6_ADDRSTRLEN])
{
    if (l->to.host == hn_g.host) {
        /* the NICs in knob nics must have addresses of the dialled address's family */
        snprintf(host, INET6_ADDRSTRLEN, hn_g.nic[0].ip.sa.sa_family == AF_INET6 ? "::1" : "127.0.0.1");
        return true;
    }
    const unsigned n = count_addresses(&l->to);
    if (!n)
        return false;
    const struct hn_addr *a = &l->to.addr[l->turn++ % n];
    return inet_ntop(a->family == 6 ? AF_INET6 : AF_INET, a->ip, host, INET6_ADDRSTRLEN) != NULL;
}

static int choose_try_ms(const struct hn_handle *to)
{
    const int each = HN_CONNECT_MS / (int)HW_MAX(count_addresses(to), 1u);
    return to->host == hn_g.host ? TRY_MS : HW_MIN(HW_MAX(each, TRY_LEAST_MS), TRY_MS);
}

/* Removes the names of NICs that are not in `now` from a list of names. */
static void keep_present(char *list, const struct hw_nic *now, int n)
{
    char *to = list;
    for (const char *p = list; *p;) {
        const size_t len = strcspn(p, ",");
        const char *next = p + len + (p[len] == ',');
        bool found = false;
        for (int i = 0; i < n && !found; i++)
            found = strlen(now[i].name) == len && memcmp(now[i].name, p, len) == 0;
        if (found) {
            if (to > list)
                *to++ = ',';
            memmove(to, p, len);
            to += len;
        }
        p = next;
    }
    *to = 0;
}

/* Logs each NIC once when it is found to be missing in the list of present NICs, and once when it is back. */
static void say_absent(const char *present)
{
    for (unsigned i = 0; i < hn_g.nnics; i++) {
        const char *name = hn_g.nic[i].name;
        const unsigned bit = 1u << i;
        if (hw_nic_listed(present, name)) {
            if (atomic_fetch_and(&hn_g.absent, ~bit) & bit)
                hn_say(NCCL_LOG_INFO, "NIC %s is usable again: new connections use it", name);
        } else if (!(atomic_fetch_or(&hn_g.absent, bit) & bit)) {
            hn_say(NCCL_LOG_WARN, "NIC %s is down or has lost its address: new connections use the other NICs", name);
        }
    }
}

/* Stores the NICs of this process that have an address now and, of these, the NICs that the link prefers. libhawser
 * would refuse to connect if one of the NICs were missing. If no NIC has an address, nics is "", and libhawser reports
 * why it cannot connect. */
static void find_present(const struct hn_link *l, const char *host, char nics[sizeof(hn_g.nics)],
                         char prefer[sizeof(hn_g.nics)])
{
    struct hw_nic now[HW_NIC_MAX];
    const int n = hw_nics_list(now, HW_NIC_MAX, strchr(host, ':') != NULL);
    memcpy(nics, hn_g.nics, sizeof(hn_g.nics));
    hn_group_names(l->group, prefer);
    if (n < 0)
        return;
    keep_present(nics, now, n);
    keep_present(prefer, now, n);
    if (*nics)
        say_absent(nics);
}

static int try_once(struct hn_link *l)
{
    char host[INET6_ADDRSTRLEN], nics[sizeof(hn_g.nics)], prefer[sizeof(hn_g.nics)];
    struct hawser_connect_options o = {
        .size = sizeof(o), .key = l->to.key, .key_len = HN_KEY, .nics = nics, .prefer = prefer};
    hawser_peer *peer;
    if (!next_address(l, host))
        return hw_fail(-EPROTO, "the handle contains no address");
    find_present(l, host, nics, prefer);
    int rc = hawser_connect(hn_g.h, host, l->to.port, &o, choose_try_ms(&l->to), &peer);
    if (rc && l->to.host != hn_g.host && is_loopback_only(&l->to))
        return hw_wrap(rc,
                       "the other rank's node has no NIC with an address, except the loopback (link-local addresses "
                       "do not count)");
    if (rc)
        return rc;
    say_paths(peer);
    hawser_peer_set_user(peer, l);
    l->peer = peer;
    return 0;
}

/* Returns true if there is an address that no attempt has used. At another address, another process may listen, because
 * several nodes can have the same address in different networks. So an answer does not count before the last address
 * was tried. */
static bool is_address_left(const struct hn_link *l)
{
    return l->to.host != hn_g.host && l->failures + 1 < count_addresses(&l->to);
}

static bool is_final(struct hn_link *l, int rc)
{
    uint64_t now = hw_now();
    if (rc == -ECONNREFUSED && !l->refused)
        l->refused = now;
    if (now >= l->give_up || rc == -ENOMEM || rc == -EMFILE)
        return true;
    const bool over = l->refused && now >= l->refused + HN_REFUSED_MS * HW_MS;
    return !is_address_left(l) && (over || rc == -EACCES || rc == -EPERM || rc == -EPROTO);
}

/* Returns the pause in ms after a failed attempt, and counts the attempt. */
static unsigned choose_pause_ms(struct hn_link *l)
{
    unsigned ms = AGAIN_MS;
    const unsigned rounds = l->failures++ / HW_MAX(count_addresses(&l->to), 1u);
    for (unsigned i = 0; i < rounds && ms < AGAIN_MOST_MS; i++)
        ms *= 2;
    return HW_MIN(ms, (unsigned)AGAIN_MOST_MS);
}

static void queue_link(struct hn_link *l)
{
    pthread_mutex_lock(&hn_g.dial.mu);
    atomic_store(&l->state, HN_WAITING);
    hw_list_append(&hn_g.dial.waiting, &l->wait);
    pthread_cond_signal(&hn_g.dial.more);
    pthread_mutex_unlock(&hn_g.dial.mu);
}

/* Sets HN_UP without locking g.mu: NCCL's threads hold g.mu while they poll the link's state, so this thread might have
 * to wait a long time for g.mu. */
static void try_link(struct hn_link *l)
{
    if (!l->give_up) {
        l->give_up = hw_now() + HN_CONNECT_MS * HW_MS;
        if (l->to.host != hn_g.host)
            sort_addresses(&l->to);
    }
    int rc = try_once(l);
    if (rc == 0) {
        atomic_store(&l->state, HN_UP);
        return;
    }
    pthread_mutex_lock(&hn_g.mu);
    if (!is_final(l, rc) && (l->refs || !hn_g.dial.ending)) {
        l->not_before = hw_now() + choose_pause_ms(l) * HW_MS;
        queue_link(l);
    } else {
        l->rc = rc;
        snprintf(l->err, sizeof(l->err), "%s", hawser_error());
        atomic_store(&l->state, HN_DEAD);
        hn_link_yield(l);
    }
    pthread_mutex_unlock(&hn_g.mu);
}

/* Removes and returns the first queued link that is due. If no link is due, returns NULL and sets *when to the time at
 * which the next link becomes due, or to UINT64_MAX if the queue is empty. */
static struct hn_link *take_waiting(uint64_t *when)
{
    uint64_t now = hw_now();
    *when = UINT64_MAX;
    hw_list_each(it, tmp, &hn_g.dial.waiting)
    {
        struct hn_link *l = hw_container_of(it, struct hn_link, wait);
        if (l->not_before <= now) {
            hw_list_remove(&l->wait);
            atomic_store(&l->state, HN_DIALLING);
            return l;
        }
        *when = HW_MIN(*when, l->not_before);
    }
    return NULL;
}

static void *run_dialler(void *arg)
{
    struct hn_dialler *self = arg;
    uint64_t when;
    pthread_mutex_lock(&hn_g.dial.mu);
    for (;;) {
        struct hn_link *l = take_waiting(&when);
        if (l) {
            self->since = hw_now();
            pthread_mutex_unlock(&hn_g.dial.mu);
            try_link(l);
            pthread_mutex_lock(&hn_g.dial.mu);
            self->since = 0;
        } else if (when != UINT64_MAX) {
            struct timespec until = hw_timespec(when);
            (void)pthread_cond_timedwait(&hn_g.dial.more, &hn_g.dial.mu, &until);
        } else {
            break;
        }
    }
    self->ended = true;
    pthread_mutex_unlock(&hn_g.dial.mu);
    return NULL;
}

/* Call under dial.mu, but not while hn_dial_end() joins the threads. */
static void join_ended_diallers(void)
{
    for (size_t i = 0; i < HN_DIALLERS_MOST; i++) {
        struct hn_dialler *d = &hn_g.dial.thread[i];
        if (!d->started || !d->ended)
            continue;
        (void)pthread_join(d->id, NULL); /* waits only briefly: the thread sets `ended` last */
        d->started = d->ended = false;
    }
}

/* Starts another dialling thread if fewer than HN_DIALLERS are running without a slow attempt. Fails with -EAGAIN if no
 * dialling thread is running and none could be started. Call under dial.mu, but not while hn_dial_end() joins the
 * threads. */
static int add_dialler(void)
{
    int rc = 0;
    unsigned running = 0, slow = 0;
    const uint64_t now = hw_now();
    struct hn_dialler *next = NULL;
    join_ended_diallers();
    for (size_t i = 0; i < HN_DIALLERS_MOST; i++) {
        struct hn_dialler *d = &hn_g.dial.thread[i];
        running += d->started;
        slow += d->started && d->since && now >= d->since + HN_SLOW_MS * HW_MS;
        next = d->started || next ? next : d;
    }
    if (next && running - slow < HN_DIALLERS) {
        next->since = 0;
        rc = hw_thread_start(&next->id, run_dialler, next, "a connecting thread");
        next->started = rc == 0;
    }
    return running ? 0 : rc;
}

static bool is_link_due(void)
{
    const uint64_t now = hw_now();
    hw_list_each(it, tmp, &hn_g.dial.waiting)
    {
        if (hw_container_of(it, struct hn_link, wait)->not_before <= now)
            return true;
    }
    return false;
}

void hn_dial_tidy(void)
{
    if (hn_g.dial.ending)
        return;
    pthread_mutex_lock(&hn_g.dial.mu);
    if (is_link_due())
        (void)add_dialler();
    else
        join_ended_diallers();
    pthread_mutex_unlock(&hn_g.dial.mu);
}

void hn_dial_begin(void)
{
    if (hn_g.dial.begun)
        return;
    hn_g.dial.begun = true;
    pthread_mutex_init(&hn_g.dial.mu, NULL);
    hw_cond_init(&hn_g.dial.more);
    hw_list_init(&hn_g.dial.waiting);
}

int hn_dial(struct hn_link *l)
{
    int rc = 0;
    queue_link(l);
    if (!hn_g.dial.ending) {
        pthread_mutex_lock(&hn_g.dial.mu);
        rc = add_dialler();
        pthread_mutex_unlock(&hn_g.dial.mu);
    }
    if (rc)
        (void)hn_dial_cancel(l);
    return rc;
}

bool hn_dial_cancel(struct hn_link *l)
{
    pthread_mutex_lock(&hn_g.dial.mu);
    bool waited = atomic_load(&l->state) == HN_WAITING;
    if (waited) {
        hw_list_remove(&l->wait);
        atomic_store(&l->state, HN_DEAD);
    }
    pthread_mutex_unlock(&hn_g.dial.mu);
    return waited;
}

void hn_dial_end(void)
{
    hn_g.dial.ending = true;
    hw_list_each(it, tmp, &hn_g.links)
    {
        struct hn_link *l = hw_container_of(it, struct hn_link, all);
        if (l->refs == 0)
            (void)hn_dial_cancel(l);
    }
    for (size_t i = 0; i < HN_DIALLERS_MOST; i++) {
        struct hn_dialler *d = &hn_g.dial.thread[i];
        if (!d->started)
            continue;
        pthread_mutex_unlock(&hn_g.mu);
        (void)pthread_join(d->id, NULL);
        pthread_mutex_lock(&hn_g.mu);
        d->started = d->ended = false;
    }
    hn_g.dial.ending = false;
    pthread_mutex_lock(&hn_g.dial.mu);
    if (!hw_list_empty(&hn_g.dial.waiting) && add_dialler()) /* links were queued meanwhile */
        hn_say(NCCL_LOG_WARN, "%s", hawser_error());
    pthread_mutex_unlock(&hn_g.dial.mu);
}
