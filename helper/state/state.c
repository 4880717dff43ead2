/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void read_boot(struct hd_state *s)
{
    struct stat st;
    if (hw_boot_id(s->boot) < 0)
        snprintf(s->boot, sizeof(s->boot), "unknown");
    s->netns = stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
}

void hd_state_init(struct hd_state *s, const struct hd_kernel *k, const struct hw_logger *log, const char *path)
{
    *s = (struct hd_state){.k = k, .log = log, .path = path};
    hw_list_init(&s->nics);
    hw_list_init(&s->bindings);
    hw_list_init(&s->rules);
    read_boot(s);
}

void hd_state_forget(struct hd_state *s)
{
    hw_list_each(it, tmp, &s->rules)
    {
        hd_rule_free(s, hw_container_of(it, struct hd_held_rule, node));
    }
    hw_list_each(it, tmp, &s->nics) hd_nic_free(s, hw_container_of(it, struct hd_nic, node));
}

void hd_state_free(struct hd_state *s)
{
    hw_list_each(it, tmp, &s->bindings)
    {
        struct hd_binding *b = hw_container_of(it, struct hd_binding, node);
        s->k->unbind(s->k->arg, &b->sock);
        hw_list_remove(it);
        free(b);
    }
    hd_state_forget(s);
}

/* Writes the journal after an undo. A failure is only logged, because a later undo detects that the change no longer
 * exists. */
static void update_state_journal(struct hd_state *s)
{
    if (hd_journal_write(s) < 0)
        hw_log(s->log, HAWSER_LOG_ERROR, "%s", hw_error());
}

/* ---- limits ------------------------------------------------------------------------------------- */

static int within_limits(const struct hd_state *s, uid_t uid, const struct hd_rights *r, unsigned queues,
                         uint64_t bytes)
{
    unsigned bindings = 1;
    hw_list_each(it, tmp, &s->bindings)
    {
        const struct hd_binding *b = hw_container_of(it, struct hd_binding, node);
        if (b->uid != uid)
            continue;
        bindings++;
        queues += b->n;
        bytes = bytes > UINT64_MAX - b->bytes ? UINT64_MAX : bytes + b->bytes;
    }
    if (bindings > r->max_bindings)
        return hw_fail(-EDQUOT, "max-bindings of [%s] is %u, but user %u would have %u bindings", r->who,
                       r->max_bindings, (unsigned)uid, bindings);
    if (queues > r->max_queues)
        return hw_fail(-EDQUOT, "max-queues of [%s] is %u, but user %u would have %u queues", r->who, r->max_queues,
                       (unsigned)uid, queues);
    if (bytes > r->max_bytes)
        return hw_fail(-EDQUOT, "max-bytes of [%s] is %llu, but user %u would have %llu bytes", r->who,
                       (unsigned long long)r->max_bytes, (unsigned)uid, (unsigned long long)bytes);
    return 0;
}

static int rules_within(const struct hd_state *s, uid_t uid, const struct hd_rights *r)
{
    unsigned n = 1;
    hw_list_each(it, tmp, &s->rules)
    {
        const struct hd_held_rule *h = hw_container_of(it, struct hd_held_rule, node);
        n += h->uid == uid; /* includes rules that could not be removed yet */
    }
    if (n > r->max_rules)
        return hw_fail(-EDQUOT, "max-rules of [%s] is %u, but user %u would have %u flow rules", r->who, r->max_rules,
                       (unsigned)uid, n);
    return 0;
}

/* ---- bindings ----------------------------------------------------------------------------------- */

static uint32_t new_id(struct hd_state *s)
{
    for (;;) {
        uint32_t id = ++s->last_id;
        bool used = id == 0;
        hw_list_each(it, tmp, &s->bindings) used |= hw_container_of(it, struct hd_binding, node)->id == id;
        hw_list_each(it, tmp, &s->rules) used |= hw_container_of(it, struct hd_held_rule, node)->id == id;
        if (!used)
            return id;
    }
}

static int check_size(const struct hd_facts *f, unsigned n)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (f->rc)
        return hw_fail_copy(f->rc, f->why);
    if (f->bytes % page || f->bytes < page * HW_MAX(n, 1u))
        return hw_fail(-EINVAL,
                       "the dma-buf has %llu bytes, but its size must be a multiple of the page size, %llu bytes, with "
                       "at least one page per queue",
                       (unsigned long long)f->bytes, (unsigned long long)page);
    return 0;
}

static void free_rss(struct hd_rss *rss)
{
    free(rss->queue);
}

/* Chooses the queues, turns header split on, and then removes the queues from RSS. The order is necessary, because
 * turning header split on may make a driver rebuild its rings and reset RSS. */
static int prepare_binding_queues(struct hd_state *s, struct hd_nic *nic, const struct hd_link *link,
                                  const struct hd_rights *r, struct hd_binding *b)
{
    __attribute__((cleanup(free_rss))) struct hd_rss rss = {0};
    int rc = s->k->rss_get(s->k->arg, nic->ifindex, &rss);
    if (rc)
        return rc;
    rc = hd_choose(s, link, r, b->n, b->queue, &rss);
    if (rc)
        return rc;
    rc = hd_split_on(s, nic, link);
    if (rc)
        return rc;
    free(rss.queue);
    rc = s->k->rss_get(s->k->arg, nic->ifindex, &rss);
    return rc ? rc : hd_take(s, nic, &rss, b->queue, b->n);
}

/* Binds with buffers of the requested size, or of the page size if the kernel, the driver or the memory does not
 * support the requested size. The kernel then fails with EOPNOTSUPP if the driver supports only page-sized buffers
 * (net/core/netdev_rx_queue.c:211 of Linux 7.3), with ERANGE if the driver does not support this size
 * (mlx5e_queue_validate_qcfg()), or with EINVAL if the memory is not contiguous enough (net_devmem_bind_dmabuf()) or
 * the kernel does not support the attribute. */
static int bind_pages(struct hd_state *s, struct hd_binding *b, const struct hd_nic *nic, int dmabuf, uint32_t page,
                      uint32_t *granted)
{
    struct hd_bind_what w = {
        .ifindex = nic->ifindex, .dmabuf = dmabuf, .queue = b->queue, .n = b->n, .page = b->n ? page : 0};
    int rc = s->k->bind(s->k->arg, &w, &b->sock, &b->dmabuf_id);
    if (w.page && (rc == -EOPNOTSUPP || rc == -ERANGE || rc == -EINVAL)) {
        hw_log(s->log, HAWSER_LOG_INFO,
               "%s: using page-sized buffers, because a binding with buffers of %u bytes failed: %s", nic->name, w.page,
               hw_error());
        w.page = 0;
        rc = s->k->bind(s->k->arg, &w, &b->sock, &b->dmabuf_id);
    }
    *granted = rc ? 0 : w.page;
    return rc;
}

int hd_bind(struct hd_state *s, const void *owner, uid_t uid, const struct hd_rights *r, const struct hd_facts *f,
            int dmabuf, const struct hw_helper_request *q, struct hw_helper_reply *a)
{
    struct hd_link link;
    if (!hd_policy_nic(r, q->nic))
        return hw_fail(-EACCES, "the policy does not allow %s to use NIC %s", r->who, q->nic);
    HW_AUTO_FREE struct hd_binding *b = calloc(1, sizeof(*b));
    if (!b)
        return hw_no_memory("a binding");
    *b = (struct hd_binding){.owner = owner, .uid = uid, .n = q->count, .bytes = f->bytes, .sock = -1};
    int rc = s->k->link(s->k->arg, q->nic, &link);
    if (rc)
        return rc;
    rc = check_size(f, b->n);
    if (rc)
        return rc;
    rc = within_limits(s, uid, r, b->n, b->bytes);
    if (rc)
        return rc;
    if (!link.up)
        return hw_fail(-ENETDOWN, "%s is down: run `ip link set %s up`", q->nic, q->nic);
    struct hd_nic *nic = hd_nic_find(s, link.ifindex);
    if (!nic)
        nic = hd_nic_add(s, link.ifindex, q->nic);
    if (!nic)
        return -ENOMEM;
    /* the new binding is counted from here on, so that hd_settle() does not undo the following changes */
    nic->bindings++;
    rc = b->n ? prepare_binding_queues(s, nic, &link, r, b) : 0;
    if (rc == 0)
        rc = bind_pages(s, b, nic, dmabuf, q->page, &a->page);
    if (rc) {
        HW_KEEP_ERROR();
        nic->bindings--;
        hd_settle(s, nic);
        return rc;
    }
    b->nic = nic;
    b->id = new_id(s);
    for (unsigned i = 0; i < b->n; i++)
        hd_put(&nic->held, b->queue[i]);
    hw_list_append(&s->bindings, &b->node);
    a->id = b->id;
    a->dmabuf_id = b->dmabuf_id;
    a->count = b->n;
    memcpy(a->queues, b->queue, sizeof(a->queues));
    hw_log(s->log, HAWSER_LOG_INFO, "%s: new binding %u of user %u: dma-buf %u, bytes: %llu, %s, queues: %u", q->nic,
           b->id, (unsigned)uid, b->dmabuf_id, (unsigned long long)b->bytes, b->n ? "receive" : "send", b->n);
    b = NULL;
    return 0;
}

/* ---- rules -------------------------------------------------------------------------------------- */

/* Removes the rule from the NIC and frees it. If the rule cannot be removed, it is left without an owner, and hawserd
 * tries again later. */
static void rule_end(struct hd_state *s, struct hd_held_rule *r)
{
    int rc = hd_unplace(s, r);
    r->binding = NULL;
    if (rc && rc != -ENODEV) {
        hw_log(s->log, HAWSER_LOG_WARN, "%s; hawserd will try again", hw_error());
        return;
    }
    hd_rule_free(s, r);
}

static struct hd_binding *binding_of(const struct hd_state *s, const void *owner, uint32_t id)
{
    hw_list_each(it, tmp, &s->bindings)
    {
        struct hd_binding *b = hw_container_of(it, struct hd_binding, node);
        if (b->id == id && b->owner == owner)
            return b;
    }
    return NULL;
}

/* Returns the binding's queue that has the fewest rules. */
static uint32_t find_least_ruled_queue(const struct hd_state *s, const struct hd_binding *b)
{
    unsigned best = UINT32_MAX;
    uint32_t queue = b->queue[0];
    for (unsigned i = 0; i < b->n; i++) {
        unsigned n = 0;
        hw_list_each(it, tmp, &s->rules)
        {
            const struct hd_held_rule *h = hw_container_of(it, struct hd_held_rule, node);
            n += h->nic == b->nic && h->rule.queue == b->queue[i];
        }
        if (n < best) {
            best = n;
            queue = b->queue[i];
        }
    }
    return queue;
}

/* Fails with -EEXIST if the connection already has a flow rule, because it is undefined which of the two rules a NIC
 * would apply. */
static int check_unruled(struct hd_state *s, const struct hd_nic *nic, const struct hd_rule *want)
{
    HW_AUTO_FREE struct hd_rule *all = NULL;
    struct hd_rule like = *want;
    unsigned n = 0;
    int rc = s->k->rules(s->k->arg, nic->ifindex, &all, &n);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++) {
        like.queue = all[i].queue;
        if (hd_rule_same(&all[i], &like))
            return hw_fail(-EEXIST, "%s already has a flow rule for this connection, at location %u", nic->name,
                           all[i].loc);
    }
    return 0;
}

/* Turns reports of destroyed sockets on or off. Reports are turned on only while rules exist, because reports are
 * expensive on a machine with many connections. */
static int watch_sockets(struct hd_state *s, bool on)
{
    if (s->watching == on)
        return 0;
    int rc = s->k->watch(s->k->arg, on);
    if (rc == 0)
        s->watching = on;
    return rc;
}

static int check_connection(struct hd_state *s, const struct hd_held_rule *h, const struct hd_conn *c)
{
    int rc = s->k->alive(s->k->arg, h->nic->ifindex, c);
    if (rc < 0)
        return rc;
    return rc == 1 ? 0
                   : hw_fail(-ENOTCONN,
                             "sock_diag does not show the connection over %s: the connection has ended or is bound to "
                             "another device, or the kernel module tcp_diag is missing",
                             h->nic->name);
}

/* Adds the rule to the NIC. After port_hold(), no other socket can get the connection's local port if the port is
 * ephemeral, and the first check proves that the endpoints still belong to the client's connection. If the connection
 * ends after the second check, the next report or check removes the rule. */
static int place_rule(struct hd_state *s, struct hd_held_rule *h, const struct hd_conn *c)
{
    int rc = hd_ntuple_on(s, h->nic);
    if (rc)
        return rc;
    rc = watch_sockets(s, true);
    if (rc)
        return rc;
    rc = s->k->port_hold(s->k->arg, &c->local, &h->port);
    if (rc)
        return rc;
    rc = check_connection(s, h, c);
    if (rc)
        return rc;
    rc = hd_journal_write(s);
    if (rc)
        return rc;
    rc = s->k->rule_add(s->k->arg, h->nic->ifindex, &h->rule);
    h->placed = rc == 0;
    return rc ? rc : check_connection(s, h, c);
}

int hd_steer(struct hd_state *s, const void *owner, const struct hd_rights *r, const struct hd_facts *f,
             uint32_t binding, struct hw_helper_reply *a)
{
    struct hd_binding *b = binding_of(s, owner, binding);
    const struct hd_conn *c = &f->conn;
    if (!b)
        return hw_fail(-ENOENT, "this client has no binding %u", binding);
    if (b->n == 0)
        return hw_fail(-EINVAL, "binding %u is for sending, so no flow can be steered to it", binding);
    if (b->nic->gone)
        return hw_fail(-ENODEV, "%s no longer exists; release binding %u", b->nic->name, binding);
    int rc = rules_within(s, b->uid, r);
    if (rc)
        return rc;
    if (f->rc)
        return hw_fail_copy(f->rc, f->why);
    if (hw_addr_same_host(&c->local, &c->remote) || hw_addr_is_loopback(&c->local))
        return hw_fail(-EINVAL,
                       "both ends of the connection are on this machine, so its packets do not pass through a NIC");
    struct hd_held_rule *h = calloc(1, sizeof(*h));
    if (!h)
        return hw_no_memory("a rule");
    *h = (struct hd_held_rule){.nic = b->nic, .binding = b, .uid = b->uid, .cookie = c->cookie, .port = -1};
    h->rule = (struct hd_rule){.exact = true, .local = c->local, .remote = c->remote};
    h->due = hw_deadline(HD_LOOK_MS);
    rc = check_unruled(s, b->nic, &h->rule);
    if (rc) {
        free(h);
        return rc;
    }
    h->rule.queue = find_least_ruled_queue(s, b);
    h->id = new_id(s);
    hw_list_append(&s->rules, &h->node);
    rc = place_rule(s, h, c);
    if (rc) {
        HW_KEEP_ERROR();
        rule_end(s, h);
        update_state_journal(s);
        return rc;
    }
    a->id = h->id;
    a->count = 1;
    a->queues[0] = h->rule.queue;
    hw_log(s->log, HAWSER_LOG_DEBUG, "%s: new rule %u at location %u to queue %u", b->nic->name, h->id, h->rule.loc,
           h->rule.queue);
    return 0;
}

/* ---- ends of connections ------------------------------------------------------------------------ */

static void end_with_connection(struct hd_state *s, struct hd_held_rule *r)
{
    hw_log(s->log, HAWSER_LOG_DEBUG, "%s: removing rule %u, because its connection has ended", r->nic->name, r->id);
    rule_end(s, r);
}

void hd_take_reports(struct hd_state *s)
{
    uint64_t cookie[256];
    bool lost, some = false;
    unsigned n = s->k->ended(s->k->arg, cookie, HW_ARRAY_LEN(cookie), &lost);
    hw_list_each(it, tmp, &s->rules)
    {
        struct hd_held_rule *r = hw_container_of(it, struct hd_held_rule, node);
        if (lost)
            r->due = 0;
        for (unsigned i = 0; i < n; i++) {
            if (!r->binding || r->cookie != cookie[i])
                continue;
            end_with_connection(s, r);
            some = true;
            break;
        }
    }
    if (some)
        update_state_journal(s);
}

uint64_t hd_look(struct hd_state *s)
{
    uint64_t now = hw_now(), next = HW_NEVER;
    unsigned looks = 0;
    bool some = false;
    if (hw_list_empty(&s->rules) && watch_sockets(s, false) < 0)
        hw_log(s->log, HAWSER_LOG_WARN, "%s", hw_error());
    hw_list_each(it, tmp, &s->rules)
    {
        struct hd_held_rule *r = hw_container_of(it, struct hd_held_rule, node);
        if (!r->binding)
            continue;
        struct hd_conn c = {.local = r->rule.local, .remote = r->rule.remote, .cookie = r->cookie};
        bool look = r->due <= now && looks < HD_LOOKS;
        if (look) {
            looks++;
            r->due = now + HD_LOOK_MS * HW_MS;
        }
        next = HW_MIN(next, r->due);
        if (!look || s->k->alive(s->k->arg, r->nic->ifindex, &c) != 0)
            continue;
        end_with_connection(s, r);
        some = true;
    }
    if (some)
        update_state_journal(s);
    return next;
}

/* ---- undo ----------------------------------------------------------------------------------------- */

/* Ends a binding. Removes the rules first, so that no more data arrives, then the binding, and finally restores the
 * queues to RSS. */
static void binding_end(struct hd_state *s, struct hd_binding *b)
{
    struct hd_nic *nic = b->nic;
    hw_list_each(it, tmp, &s->rules)
    {
        struct hd_held_rule *r = hw_container_of(it, struct hd_held_rule, node);
        if (r->binding == b)
            rule_end(s, r);
    }
    s->k->unbind(s->k->arg, &b->sock);
    for (unsigned i = 0; i < b->n; i++)
        hd_cut(&nic->held, b->queue[i]);
    hw_log(s->log, HAWSER_LOG_INFO, "%s: released binding %u of user %u", nic->name, b->id, (unsigned)b->uid);
    hw_list_remove(&b->node);
    free(b);
    nic->bindings--;
    hd_settle(s, nic);
}

int hd_release(struct hd_state *s, const void *owner, uint32_t id)
{
    struct hd_binding *b = binding_of(s, owner, id);
    if (b) {
        binding_end(s, b);
        return 0;
    }
    hw_list_each(it, tmp, &s->rules)
    {
        struct hd_held_rule *r = hw_container_of(it, struct hd_held_rule, node);
        if (r->id != id || !r->binding || r->binding->owner != owner)
            continue;
        rule_end(s, r);
        update_state_journal(s);
        return 0;
    }
    return hw_fail(-ENOENT, "this client has no binding or rule %u", id);
}

void hd_drop(struct hd_state *s, const void *owner)
{
    hw_list_each(it, tmp, &s->bindings)
    {
        struct hd_binding *b = hw_container_of(it, struct hd_binding, node);
        if (b->owner == owner)
            binding_end(s, b);
    }
}
