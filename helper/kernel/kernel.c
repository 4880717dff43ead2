/* SPDX-License-Identifier: Apache-2.0 */
/* Implements struct hd_kernel for the running kernel. */
#include "helper/kernel/kernel.h"
#include "helper/kernel/diag.h"
#include "helper/kernel/ethnl.h"
#include "helper/kernel/ethtool.h"
#include "helper/kernel/fds.h"
#include "helper/kernel/netdev.h"
#include "helper/kernel/port.h"

#include <stdlib.h>
#include <sys/socket.h>

struct real {
    struct hw_genl genl;
    int fd;
    struct hw_netlink diag;
    int events;
    uint64_t netns;
};

static int k_link(void *arg, const char *name, struct hd_link *out)
{
    struct real *r = arg;
    int ifindex, rc = hd_ethnl_find(&r->genl, name, &ifindex);
    return rc ? rc : hd_eth_link_at(r->fd, ifindex, out);
}
static int k_link_at(void *arg, int ifindex, struct hd_link *out)
{
    return hd_eth_link_at(((struct real *)arg)->fd, ifindex, out);
}
static int k_queues(void *arg, int ifindex, struct hd_queue *out, unsigned cap, unsigned *n)
{
    return hd_netdev_queues(&((struct real *)arg)->genl, ifindex, out, cap, n);
}
static int k_split_get(void *arg, int ifindex, struct hd_split *out)
{
    return hd_ethnl_split_get(&((struct real *)arg)->genl, ifindex, out);
}
static int k_split_set(void *arg, int ifindex, const struct hd_split *s, bool *changed)
{
    return hd_ethnl_split_set(&((struct real *)arg)->genl, ifindex, s, changed);
}
static int k_gro_hw_get(void *arg, int ifindex, enum hd_gro_hw *out)
{
    return hd_ethnl_gro_hw_get(&((struct real *)arg)->genl, ifindex, out);
}
static int k_gro_hw_set(void *arg, int ifindex, bool on)
{
    return hd_ethnl_gro_hw_set(&((struct real *)arg)->genl, ifindex, on);
}
static int k_ntuple_get(void *arg, int ifindex, bool *on)
{
    return hd_eth_ntuple_get(((struct real *)arg)->fd, ifindex, on);
}
static int k_ntuple_set(void *arg, int ifindex, bool on)
{
    return hd_eth_ntuple_set(((struct real *)arg)->fd, ifindex, on);
}
static int k_rss_get(void *arg, int ifindex, struct hd_rss *out)
{
    struct real *r = arg;
    int rc = hd_eth_rss_get(r->fd, ifindex, out);
    if (rc == 0)
        rc = hd_ethnl_contexts(&r->genl, ifindex, &out->others);
    if (rc) {
        free(out->queue);
        out->queue = NULL;
    }
    return rc;
}
static int k_rss_set(void *arg, int ifindex, const uint32_t *queue, uint32_t n)
{
    return hd_eth_rss_set(((struct real *)arg)->fd, ifindex, queue, n);
}
static int k_rules(void *arg, int ifindex, struct hd_rule **out, unsigned *n)
{
    return hd_eth_rules(((struct real *)arg)->fd, ifindex, out, n);
}
static int k_rule_at(void *arg, int ifindex, uint32_t loc, struct hd_rule *out)
{
    return hd_eth_rule_at(((struct real *)arg)->fd, ifindex, loc, out);
}
static int k_rule_add(void *arg, int ifindex, struct hd_rule *r)
{
    return hd_eth_rule_add(((struct real *)arg)->fd, ifindex, r);
}
static int k_rule_del(void *arg, int ifindex, uint32_t loc)
{
    return hd_eth_rule_del(((struct real *)arg)->fd, ifindex, loc);
}
static int k_bind(void *arg, const struct hd_bind_what *what, int *sock, uint32_t *id)
{
    struct hd_link link;
    struct real *r = arg;
    int rc = hd_eth_link_at(r->fd, what->ifindex, &link);
    return rc ? rc : hd_netdev_bind(&r->genl, link.name, what, sock, id);
}
static void k_unbind(void *arg, int *sock)
{
    (void)arg;
    hw_close(sock);
}
static int k_dmabuf_size(void *arg, int fd, uint64_t *size)
{
    (void)arg;
    return hd_fd_dmabuf_size(fd, size);
}
static int k_connection(void *arg, int fd, struct hd_conn *out)
{
    return hd_fd_connection(fd, ((struct real *)arg)->netns, out);
}
static int k_same_netns(void *arg, int fd)
{
    return hd_fd_same_netns(fd, ((struct real *)arg)->netns);
}
static int k_alive(void *arg, int ifindex, const struct hd_conn *c)
{
    return hd_diag_alive(&((struct real *)arg)->diag, ifindex, c);
}
static int k_watch(void *arg, bool on)
{
    return hd_diag_events_set(((struct real *)arg)->events, on);
}
static unsigned k_ended(void *arg, uint64_t *cookie, unsigned cap, bool *lost)
{
    return hd_diag_events(((struct real *)arg)->events, cookie, cap, lost);
}
static int k_port_hold(void *arg, const union hw_addr *local, int *sock)
{
    (void)arg;
    return hd_port_hold(local, sock);
}

int hd_kernel_open(struct hd_kernel *k)
{
    static struct real r;
    *k = (struct hd_kernel){
        .arg = &r,
        .link = k_link,
        .link_at = k_link_at,
        .queues = k_queues,
        .split_get = k_split_get,
        .split_set = k_split_set,
        .gro_hw_get = k_gro_hw_get,
        .gro_hw_set = k_gro_hw_set,
        .ntuple_get = k_ntuple_get,
        .ntuple_set = k_ntuple_set,
        .rss_get = k_rss_get,
        .rss_set = k_rss_set,
        .rules = k_rules,
        .rule_at = k_rule_at,
        .rule_add = k_rule_add,
        .rule_del = k_rule_del,
        .bind = k_bind,
        .unbind = k_unbind,
        .dmabuf_size = k_dmabuf_size,
        .connection = k_connection,
        .same_netns = k_same_netns,
        .alive = k_alive,
        .watch = k_watch,
        .ended = k_ended,
        .port_hold = k_port_hold,
        .port_free = k_unbind,
        .events = -1,
    };
    r = (struct real){.fd = -1, .diag.fd = -1, .genl.nl.fd = -1, .events = -1};
    /* The seccomp filter (hd_guard_calls()) forbids some of these sockets, so they must be opened before it is
     * installed. */
    int rc = hw_genl_open(&r.genl, NULL);
    if (rc == 0 && (r.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        rc = hw_fail(-errno, "cannot create a socket for ethtool: %s", hw_errno_text(errno));
    if (rc) {
        hd_kernel_close(k);
        return rc;
    }
    r.netns = hd_fd_netns(r.fd);
    /* Only steering needs these two. */
    (void)hw_netlink_open(&r.diag, NETLINK_SOCK_DIAG);
    k->events = r.events = hd_diag_events_open();
    return 0;
}

void hd_kernel_close(struct hd_kernel *k)
{
    struct real *r = k->arg;
    hw_genl_close(&r->genl);
    hw_close(&r->fd);
    hw_netlink_close(&r->diag);
    hw_close(&r->events);
}
