/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SAY(d, level, ...) hw_log((d)->state.log, level, __VA_ARGS__)

/* ---- limits of each client and user -------------------------------------------------------------- */

static void fill_tokens(struct hd_tokens *t, uint64_t now, unsigned rate, unsigned most)
{
    uint64_t more = (now - t->filled) / (1000 * HW_MS / rate);
    if (more == 0)
        return;
    t->left = (uint32_t)HW_MIN(t->left + more, (uint64_t)most);
    t->filled = now;
}

static struct hd_account *find_account(struct hd_daemon *d, uid_t uid)
{
    hw_list_each(it, tmp, &d->accounts)
    {
        struct hd_account *u = hw_container_of(it, struct hd_account, node);
        if (u->uid == uid)
            return u;
    }
    struct hd_account *u = calloc(1, sizeof(*u));
    if (!u)
        return NULL;
    uint64_t now = hw_now();
    *u = (struct hd_account){.uid = uid, .changes = {HD_CHANGES, now}, .binds = {HD_BINDS, now}};
    hw_list_append(&d->accounts, &u->node);
    return u;
}

static void fill_account(struct hd_account *u, uint64_t now)
{
    fill_tokens(&u->changes, now, HD_CHANGES_RATE, HD_CHANGES);
    fill_tokens(&u->binds, now, HD_BINDS_RATE, HD_BINDS);
}

/* Frees an unused account once all its tokens are available again. If the account were freed earlier, the user could
 * get a full set of tokens by reconnecting. */
static void forget_account(struct hd_account *u, uint64_t now)
{
    fill_account(u, now);
    if (u->clients || u->inspections || u->binds.left < HD_BINDS || u->changes.left < HD_CHANGES)
        return;
    hw_list_remove(&u->node);
    free(u);
}

/* ---- connect and disconnect --------------------------------------------------------------------- */

void hd_clients_init(struct hd_daemon *d)
{
    hw_list_init(&d->clients);
    hw_list_init(&d->accounts);
    hw_list_init(&d->inspections);
    hd_discard_init(&d->discard);
    d->lines = (struct hd_tokens){.left = HD_LINES, .filled = hw_now()};
}

/* Sends an answer. Returns false if this fails, for example because the client does not read its answers. */
static bool send_answer(int fd, struct hw_helper_reply *a)
{
    uint8_t buf[HW_HELPER_REPLY];
    hw_helper_reply_encode(buf, a);
    return send(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(buf);
}

/* Sets the answer to an error with status rc and the text of hw_error(). */
static void set_refusal(struct hw_helper_reply *a, int rc)
{
    *a = (struct hw_helper_reply){.type = a->type, .seq = a->seq, .status = rc};
    snprintf(a->text, sizeof(a->text), "%s", *hw_error() ? hw_error() : hw_errno_text(rc));
}

/* Returns true if a log line may be written. Limits the rate of log lines that clients can cause at will. */
static bool may_say(struct hd_daemon *d)
{
    fill_tokens(&d->lines, hw_now(), HD_LINES_RATE, HD_LINES);
    if (d->lines.left == 0)
        return false;
    d->lines.left--;
    return true;
}

/* Returns the groups of the peer: `first`, which is from SO_PEERCRED, and the supplementary groups. The caller must
 * free the list. */
static gid_t *groups_of(int fd, gid_t first, unsigned *n)
{
    socklen_t len = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) < 0 && errno != ERANGE)
        len = 0;
    gid_t *g = calloc(1, sizeof(*g) + len);
    *n = 0;
    if (!g)
        return NULL;
    if (len && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, g + 1, &len) < 0)
        len = 0;
    g[0] = first;
    *n = 1 + (unsigned)(len / sizeof(*g));
    return g;
}

/* Determines the client's rights and account, and counts the client in the account. Returns 0, or an error if the
 * client is refused. */
static int admit_client(struct hd_daemon *d, struct hd_client *c, const struct ucred *who)
{
    unsigned n_groups;
    gid_t *groups = groups_of(c->fd, who->gid, &n_groups);
    if (!groups)
        return hw_no_memory("a user's groups");
    c->rights = hd_policy_find(d->policy, who->uid, groups, n_groups);
    free(groups);
    if (!c->rights)
        return hw_fail(
            -EACCES,
            "hawserd's policy grants nothing to user %u; the administrator can change the policy (by default %s)",
            (unsigned)who->uid, HD_POLICY_FILE);
    int rc = d->state.k->same_netns(d->state.k->arg, c->fd);
    if (rc)
        return hw_wrap(rc, "the connection to hawserd");
    c->account = find_account(d, who->uid);
    if (!c->account)
        return hw_no_memory("a user");
    /* If many clients are connected, each user may have only a few clients, so that a few users cannot exhaust the
     * limit. */
    unsigned most = d->n_clients < HD_CLIENTS_BUSY ? HD_CLIENTS_PER_USER : HD_CLIENTS_FEW;
    if (c->account->clients >= most || d->n_clients >= HD_CLIENTS_MAX)
        return hw_fail(
            -EUSERS,
            "hawserd has %u clients, of which %u belong to user %u; at most %d are allowed, and currently %u per user",
            d->n_clients, c->account->clients, (unsigned)who->uid, HD_CLIENTS_MAX, most);
    c->account->clients++;
    return 0;
}

void hd_client_accept(struct hd_daemon *d)
{
    struct ucred who = {0};
    int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            struct timespec t = {.tv_nsec = 100000000};
            if (may_say(d))
                SAY(d, HAWSER_LOG_ERROR, "cannot accept a client: %s", hw_errno_text(errno));
            nanosleep(&t, NULL); /* the socket stays readable, so the loop would spin without this pause */
        }
        return;
    }
    uint64_t now = hw_now();
    struct hd_client *c = calloc(1, sizeof(*c));
    if (c)
        *c = (struct hd_client){
            .fd = fd, .requests = {.left = HD_BURST, .filled = now}, .deadline = now + HD_GREETING_MS * HW_MS};
    socklen_t len = sizeof(who);
    int rc = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0
                 ? hw_fail(-errno, "cannot read SO_PEERCRED: %s", hw_errno_text(errno))
             : c ? admit_client(d, c, &who)
                 : hw_no_memory("a client");
    if (rc || !c) {
        /* This is the reply to the client's greeting, which has number 1. The greeting is not read, because nothing is
         * read from a refused client. */
        struct hw_helper_reply a = {.type = HW_H_HELLO, .seq = 1};
        set_refusal(&a, rc);
        (void)send_answer(fd, &a);
        if (may_say(d))
            SAY(d, HAWSER_LOG_WARN, "refused a client (user %u, process %d): %s", (unsigned)who.uid, (int)who.pid,
                a.text);
        hd_discard_add(&d->discard, &fd);
        free(c);
        return;
    }
    c->pid = who.pid;
    hw_list_append(&d->clients, &c->node);
    d->n_clients++;
}

void hd_client_end(struct hd_daemon *d, struct hd_client *c)
{
    if (c->ended)
        return;
    c->ended = true;
    hd_drop(&d->state, c);
    if (c->look) {
        c->look->client = NULL;
        (void)shutdown(c->look->pair, SHUT_WR);
    }
    c->look = NULL;
    hd_discard_add(&d->discard, &c->fd);
    c->account->clients--;
    d->n_clients--;
}

static void drop_client(struct hd_daemon *d, struct hd_client *c, const char *why)
{
    if (may_say(d))
        SAY(d, HAWSER_LOG_WARN, "disconnected a client (user %u, process %d): %s", (unsigned)c->account->uid,
            (int)c->pid, why);
    hd_client_end(d, c);
}

static void forget_inspection(struct hd_daemon *d, struct hd_inspection *i)
{
    hw_list_remove(&i->node);
    d->n_inspections--;
    i->account->inspections--;
    hw_close(&i->pair);
    free(i);
}

void hd_clients_reap(struct hd_daemon *d)
{
    uint64_t now = hw_now();
    hw_list_each(it, tmp, &d->clients)
    {
        struct hd_client *c = hw_container_of(it, struct hd_client, node);
        if (!c->ended && c->deadline <= now)
            drop_client(d, c,
                        c->look ? "the inspection of the client's descriptor did not end in time"
                                : "the client sent no greeting in time");
        if (!c->ended)
            continue;
        hw_list_remove(&c->node);
        free(c);
    }
    hw_list_each(it, tmp, &d->accounts) forget_account(hw_container_of(it, struct hd_account, node), now);
}

void hd_clients_end(struct hd_daemon *d)
{
    hw_list_each(it, tmp, &d->clients) hd_client_end(d, hw_container_of(it, struct hd_client, node));
    hd_clients_reap(d);
    hw_list_each(it, tmp, &d->inspections) forget_inspection(d, hw_container_of(it, struct hd_inspection, node));
    hw_list_each(it, tmp, &d->accounts)
    {
        hw_list_remove(it);
        free(hw_container_of(it, struct hd_account, node));
    }
}

/* ---- requests ----------------------------------------------------------------------------------- */

static int dispatch_request(struct hd_daemon *d, struct hd_client *c, const struct hw_helper_request *q,
                            const struct hd_facts *f, int dmabuf, struct hw_helper_reply *a)
{
    switch (q->type) {
    case HW_H_HELLO:
        return 0;
    case HW_H_BIND_RX:
    case HW_H_BIND_TX:
        return hd_bind(&d->state, c, c->account->uid, c->rights, f, dmabuf, q, a);
    case HW_H_STEER:
        return hd_steer(&d->state, c, c->rights, f, q->id, a);
    case HW_H_RELEASE:
        return hd_release(&d->state, c, q->id);
    default:
        return hw_fail(-EPROTO, "unknown request type %u", q->type);
    }
}

static void answer_request(struct hd_daemon *d, struct hd_client *c, const struct hw_helper_request *q,
                           const struct hd_facts *f, int dmabuf)
{
    struct hw_helper_reply a = {.type = q->type, .seq = q->seq};
    hw_fail(0, "%s", "");
    int rc = dispatch_request(d, c, q, f, dmabuf, &a);
    if (rc)
        SAY(d, HAWSER_LOG_DEBUG, "user %u, process %d: request of type %u: %s: %s", (unsigned)c->account->uid,
            (int)c->pid, q->type, hw_errno_text(rc), hw_error());
    if (rc)
        set_refusal(&a, rc);
    if (!send_answer(c->fd, &a))
        drop_client(d, c, "an answer could not be sent, because the client has ended or does not read its answers");
}

struct peek {
    uint8_t buf[HW_HELPER_REQUEST + 1]; /* the additional byte detects a message that is too long */
    ssize_t len;
    bool fds; /* the message has descriptors */
};

/* Reads the next message but leaves it in the queue, because the process that receives the message also gets its
 * descriptors. */
static void peek_message(int sock, struct peek *p)
{
    struct iovec iov = {.iov_base = p->buf, .iov_len = sizeof(p->buf)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    p->len = recvmsg(sock, &m, MSG_PEEK | MSG_DONTWAIT);
    p->fds = p->len >= 0 && m.msg_flags & MSG_CTRUNC; /* set because m has no buffer for descriptors */
}

/* Starts the inspection of a request's descriptor. If a limit is reached or the start fails, tries again later. */
static void begin_inspection(struct hd_daemon *d, struct hd_client *c, const struct hw_helper_request *q)
{
    bool bind = q->type == HW_H_BIND_RX; /* limited separately, because a NIC may rebuild its rings for a binding */
    uint64_t now = hw_now();
    if ((bind && c->account->binds.left == 0) || c->account->inspections >= HD_INSPECT_USER ||
        d->n_inspections >= HD_INSPECT_MAX) {
        c->later = now + 20 * HW_MS;
        return;
    }
    struct hd_inspection *i = calloc(1, sizeof(*i));
    int rc = i ? hd_inspect_start(d->state.k, q->type, c->fd, &i->pair) : hw_no_memory("an inspection");
    if (rc) {
        free(i);
        c->later = now + 100 * HW_MS;
        if (may_say(d))
            SAY(d, HAWSER_LOG_ERROR, "%s", hw_error());
        return;
    }
    i->account = c->account;
    i->client = c;
    hw_list_append(&d->inspections, &i->node);
    d->n_inspections++;
    c->account->inspections++;
    c->account->binds.left -= bind;
    c->account->changes.left--;
    c->requests.left--;
    c->look = i;
    c->q = *q;
    c->deadline = hw_deadline(HD_INSPECT_MS);
}

static int check_order(const struct hd_client *c, const struct peek *p, const struct hw_helper_request *q)
{
    if (p->fds != (hw_helper_fds(q->type) != 0))
        return hw_fail(-EPROTO, "unexpected request of type %u with%s descriptors", q->type, p->fds ? "" : "out");
    if (c->greeted == (q->type == HW_H_HELLO))
        return hw_fail(-EPROTO, "unexpected request of type %u %s the greeting", q->type,
                       c->greeted ? "after" : "before");
    return 0;
}

void hd_client_serve(struct hd_daemon *d, struct hd_client *c, short revents)
{
    struct peek p;
    struct hw_helper_request q;
    if (revents & (POLLHUP | POLLERR)) {
        hd_client_end(d, c);
        return;
    }
    peek_message(c->fd, &p);
    if (p.len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (p.len <= 0) { /* the client has closed the connection, or the connection has failed */
        hd_client_end(d, c);
        return;
    }
    int rc = hw_helper_request_decode(p.buf, (size_t)p.len, &q);
    /* A malformed request is answered only if its version is not supported. The sender of any other malformed request
     * would not understand the answer. */
    if (rc == -EPROTONOSUPPORT) {
        struct hw_helper_reply a = {.type = q.type, .seq = q.seq};
        set_refusal(&a, rc);
        (void)send_answer(c->fd, &a);
    }
    if (rc == 0)
        rc = check_order(c, &p, &q);
    if (rc) {
        drop_client(d, c, hw_error());
        return;
    }
    uint64_t now = hw_now();
    bool change = q.type != HW_H_HELLO;
    fill_account(c->account, now);
    if (change && c->account->changes.left == 0) {
        c->later = now + 20 * HW_MS;
        return;
    }
    if (p.fds) {
        begin_inspection(d, c, &q);
        return;
    }
    (void)recv(c->fd, p.buf, sizeof(p.buf), MSG_DONTWAIT);
    c->account->changes.left -= change;
    c->requests.left--;
    c->greeted = true;
    c->deadline = HW_NEVER;
    answer_request(d, c, &q, NULL, -1);
}

short hd_client_events(struct hd_client *c, uint64_t now, uint64_t *wake)
{
    uint64_t at = 0;
    fill_tokens(&c->requests, now, HD_RATE, HD_BURST);
    *wake = HW_MIN(*wake, c->deadline);
    if (c->look) /* the client's requests are handled one at a time */
        return 0;
    if (c->requests.left == 0)
        at = now + 1000 * HW_MS / HD_RATE;
    at = HW_MAX(at, c->later);
    if (at <= now)
        return POLLIN;
    *wake = HW_MIN(*wake, at);
    return 0; /* poll() reports the end of the connection even without events */
}

void hd_inspection_serve(struct hd_daemon *d, struct hd_inspection *i, short revents)
{
    struct hd_client *c = i->client;
    struct hd_facts f;
    int dmabuf = -1;
    if (c) {
        int rc = hd_inspect_answer(i->pair, &f, &dmabuf);
        i->client = NULL;
        c->look = NULL;
        c->deadline = HW_NEVER;
        if (rc)
            drop_client(d, c, hw_error());
        else if (f.many)
            drop_client(d, c, "the request has too many descriptors");
        else
            answer_request(d, c, &c->q, &f, dmabuf);
        hw_close(&dmabuf);                /* the child has the descriptor open too, and closes the last reference */
        (void)shutdown(i->pair, SHUT_WR); /* not SHUT_RDWR, which would look as if the child had exited */
        return;
    }
    if (revents & POLLHUP)
        forget_inspection(d, i);
}
