/* SPDX-License-Identifier: Apache-2.0 */
/* Links: peers of libhawser, pooled by the process they lead to. Connecting takes round trips, and NCCL's thread may
 * not wait: each link is made by a thread of its own, which ends once it is up. */
#include "inner.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int connect_link_host(struct hn_link *l, const char *host, int ms)
{
    struct hawser_connect_options o = {.size = sizeof(o), .key = l->to.key, .key_len = HN_KEY};
    return hawser_connect(hn_g.h, host, l->to.port, &o, ms, &l->peer);
}

/* Its addresses in turn, again until the time is up: the other process may be slow to take connections in. */
static int try_link_addresses(struct hn_link *l)
{
    uint64_t deadline = hw_deadline(HN_CONNECT_MS), refused = 0;
    bool here = l->to.host == hn_g.host;
    int rc = -EHOSTUNREACH;
    for (unsigned turn = 0; turn == 0 || hw_now() < deadline; turn++) {
        const struct hn_addr *a = &l->to.addr[turn % HN_ADDRS];
        char host[INET6_ADDRSTRLEN] = "127.0.0.1";
        if (!here && (!a->family || !inet_ntop(a->family == 6 ? AF_INET6 : AF_INET, a->ip, host, sizeof(host))))
            continue;
        uint64_t now = hw_now();
        int ms = now >= deadline ? 1 : (int)HW_MIN((deadline - now) / HW_MS + 1, 10000ull);
        rc = connect_link_host(l, host, ms);
        if (rc == -ECONNREFUSED && !refused)
            refused = hw_deadline(HN_REFUSED_MS);
        if (rc == 0 || (refused && hw_now() >= refused) || rc == -EACCES || rc == -EPERM || rc == -EPROTO ||
            rc == -ENOMEM || rc == -EMFILE)
            break;
        struct timespec nap = {.tv_nsec = 50 * 1000000L};
        nanosleep(&nap, NULL);
    }
    return rc;
}

#define PATHS_SHOWN 64

/* What joins the two nodes, and what does not, for who reads NCCL's log. */
static void say_paths(const struct hn_link *l)
{
    struct hawser_path *path = calloc(PATHS_SHOWN, sizeof(*path));
    size_t n = PATHS_SHOWN;
    if (!path || hawser_paths(l->peer, path, &n) < 0)
        n = 0;
    for (size_t i = 0; i < HW_MIN(n, (size_t)PATHS_SHOWN); i++) {
        const struct hawser_path *p = &path[i];
        if (p->state == HAWSER_PATH_USED)
            hn_say(NCCL_LOG_INFO, "%s: %s %s to %s %s", hawser_peer_name(l->peer), p->nic, p->local, p->peer_nic,
                   p->remote);
        else
            hn_say(NCCL_LOG_INFO, "%s: not used: %s%s%s: %s", hawser_peer_name(l->peer), p->nic,
                   *p->nic && *p->peer_nic ? " to " : "", p->peer_nic, p->why);
    }
    free(path);
}

static void *run_link_connector(void *arg)
{
    struct hn_link *l = arg;
    int rc = try_link_addresses(l);
    if (rc == 0)
        say_paths(l);
    if (rc) {
        l->rc = rc;
        snprintf(l->err, sizeof(l->err), "%s", hawser_error());
    }
    atomic_store(&l->state, rc ? HN_DEAD : HN_UP);
    return NULL;
}

static bool is_dead(struct hn_link *l)
{
    int state = atomic_load(&l->state);
    return state == HN_DEAD || (state == HN_UP && hawser_peer_state(l->peer) < 0);
}

static void free_link(struct hn_link *l)
{
    if (l->has_thread)
        (void)pthread_join(l->thread, NULL);
    hawser_peer_close(l->peer);
    hw_list_remove(&l->all);
    free(l);
}

static struct hn_link *new_link(void)
{
    struct hn_link *l = calloc(1, sizeof(*l));
    if (!l) {
        (void)hw_no_memory("a link");
        return NULL;
    }
    l->next_stream = 1;
    l->number = hn_g.next_link++;
    hw_list_append(&hn_g.links, &l->all);
    return l;
}

int hn_link_get(const struct hn_handle *to, struct hn_link **out)
{
    struct hn_link *least = NULL;
    unsigned lanes = 0;
    hw_list_each(it, tmp, &hn_g.links)
    {
        struct hn_link *l = hw_container_of(it, struct hn_link, all);
        if (!l->out || l->to.process != to->process || is_dead(l))
            continue;
        lanes++;
        if (!least || l->refs < least->refs)
            least = l;
    }
    if (least && (least->refs == 0 || lanes >= hn_g.lanes)) {
        least->refs++;
        *out = least;
        return 0;
    }
    struct hn_link *l = new_link();
    if (!l)
        return -ENOMEM;
    l->out = true;
    l->to = *to;
    l->refs = 1;
    int rc = pthread_create(&l->thread, NULL, run_link_connector, l);
    if (rc) {
        free_link(l);
        return hw_fail(-rc, "starting a thread to connect: %s", strerror(rc));
    }
    l->has_thread = true;
    *out = l;
    return 0;
}

void hn_link_put(struct hn_link *l)
{
    l->refs--;
}

/* Who has connected, shown as a link in. */
static void take_in(void)
{
    hawser_peer *p;
    while (hawser_accept(hn_g.h, 0, &p) == 0) {
        struct hn_link *l = new_link();
        if (!l) {
            hawser_peer_close(p);
            return;
        }
        l->peer = p;
        atomic_store(&l->state, HN_UP);
    }
}

void hn_links_serve(void)
{
    take_in();
    hw_list_each(it, tmp, &hn_g.links)
    {
        struct hn_link *l = hw_container_of(it, struct hn_link, all);
        uint8_t buf[HAWSER_NOTIFY_MAX];
        size_t len;
        while (!l->out && hawser_notification(l->peer, buf, sizeof(buf), &len) == 0) {
            struct hn_hello hello;
            if (hn_hello_decode(buf, len, &hello))
                hn_say(NCCL_LOG_WARN, "from %s: %s", hawser_peer_name(l->peer), hawser_error());
            else
                hn_arrived(l, &hello);
        }
        if (l->refs == 0 && is_dead(l))
            free_link(l);
    }
}

/* NCCL asks for connections only while it wants some; who connects to a listen that is closed is to be told all the
 * same. */
static void *run_link_attendant(void *arg)
{
    struct timespec until;
    (void)arg;
    pthread_mutex_lock(&hn_g.mu);
    while (!hn_g.leaving) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += HN_ATTEND_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        if (pthread_cond_timedwait(&hn_g.leave, &hn_g.mu, &until) == ETIMEDOUT && !hn_g.leaving)
            hn_links_serve();
    }
    pthread_mutex_unlock(&hn_g.mu);
    return NULL;
}

int hn_attend(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&hn_g.leave, &attr);
    pthread_condattr_destroy(&attr);
    hn_g.leaving = false;
    int rc = pthread_create(&hn_g.attendant, NULL, run_link_attendant, NULL);
    if (rc)
        pthread_cond_destroy(&hn_g.leave);
    return rc ? hw_fail(-rc, "starting a thread: %s", strerror(rc)) : 0;
}

void hn_attend_no_more(void)
{
    hn_g.leaving = true;
    pthread_cond_signal(&hn_g.leave);
    pthread_mutex_unlock(&hn_g.mu);
    (void)pthread_join(hn_g.attendant, NULL);
    pthread_mutex_lock(&hn_g.mu);
    pthread_cond_destroy(&hn_g.leave);
}

void hn_links_close(void)
{
    hw_list_each(it, tmp, &hn_g.links)
    {
        free_link(hw_container_of(it, struct hn_link, all));
    }
}
