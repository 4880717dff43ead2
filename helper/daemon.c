/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/daemon.h"
#include "helper/fds.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct client {
    struct hw_list node;
    int fd;
    struct ucred who;
    const struct hd_rights *rights;
    bool greeted;
    uint32_t tokens; /* requests that it may make at once */
    uint64_t filled; /* when they were last filled up */
};

#define SAY(d, level, ...) hw_log((d)->state.log, level, __VA_ARGS__)

/* ---- listening ---------------------------------------------------------------------------------- */

int hd_listen(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    if (!*path || strlen(path) >= sizeof(a.sun_path))
        return hw_fail(-ENAMETOOLONG, "'%s' is no path for a UNIX socket (1 to %zu bytes)", path,
                       sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return hw_fail(-errno, "a UNIX socket: %s", hw_errno_name(errno));
    int rc = 0;
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            rc = hw_fail(-EEXIST, "%s is there, and no socket: it is not touched", path);
        else if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EAGAIN)
            rc = hw_fail(-EADDRINUSE, "somebody listens at %s already", path);
        else if (unlink(path) < 0)
            rc = hw_fail(-errno, "removing the old socket %s: %s", path, hw_errno_name(errno));
    }
    if (rc == 0 && (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || chmod(path, 0666) < 0 || listen(fd, 64) < 0))
        rc = hw_fail(-errno, "listening at %s: %s", path, hw_errno_name(errno));
    if (rc)
        hw_close(&fd);
    return rc ? rc : fd;
}

/* ---- clients ------------------------------------------------------------------------------------ */

static void client_end(struct hd_daemon *d, struct client *c)
{
    hd_drop(&d->state, c);
    hw_list_remove(&c->node);
    d->n_clients--;
    hw_close(&c->fd);
    free(c);
}

/* False where it could not be sent: a client that does not read its answers. */
static bool answer(int fd, struct hw_helper_reply *a)
{
    uint8_t buf[HW_HELPER_REPLY];
    hw_helper_reply_encode(buf, a);
    return send(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(buf);
}

/* rc with hw_error() into the answer. */
static void refuse(struct hw_helper_reply *a, int rc)
{
    *a = (struct hw_helper_reply){.type = a->type, .seq = a->seq, .status = rc};
    snprintf(a->text, sizeof(a->text), "%s", *hw_error() ? hw_error() : hw_errno_name(rc));
}

/* SO_PEERCRED's groups: the one that it names, and the supplementary ones. To be freed. */
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

static int admit(struct hd_daemon *d, int fd, struct ucred *who, const struct hd_rights **rights)
{
    socklen_t len = sizeof(*who);
    unsigned n_groups, same = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &len) < 0)
        return hw_fail(-errno, "SO_PEERCRED: %s", hw_errno_name(errno));
    gid_t *groups = groups_of(fd, who->gid, &n_groups);
    *rights = hd_policy_find(d->policy, who->uid, groups, n_groups);
    free(groups);
    if (!*rights)
        return hw_fail(-EACCES, "hawserd's policy grants nothing to user %u: its administrator can, in %s",
                       (unsigned)who->uid, HD_POLICY_FILE);
    int rc = d->state.k->same_netns(d->state.k->arg, fd);
    if (rc)
        return hw_wrap(rc, "your socket");
    hw_list_each(it, tmp, &d->clients) same += hw_container_of(it, struct client, node)->who.uid == who->uid;
    if (same >= HD_CLIENTS_PER_USER || d->n_clients >= HD_CLIENTS_MAX)
        return hw_fail(-EUSERS, "hawserd has %u clients, %u of them user %u's: it takes %d, and %d of one user",
                       d->n_clients, same, (unsigned)who->uid, HD_CLIENTS_MAX, HD_CLIENTS_PER_USER);
    return 0;
}

static void accept_one(struct hd_daemon *d)
{
    struct ucred who = {0};
    const struct hd_rights *rights = NULL;
    int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            struct timespec t = {.tv_nsec = 100000000};
            SAY(d, HAWSER_LOG_ERROR, "taking a client: %s", hw_errno_name(errno));
            nanosleep(&t, NULL); /* the socket stays readable: no race through the loop for that */
        }
        return;
    }
    struct client *c = calloc(1, sizeof(*c));
    int rc = c ? admit(d, fd, &who, &rights) : hw_fail(-ENOMEM, "no memory for a client");
    if (rc) {
        /* unasked, as an answer to the greeting, whose number is 1, that comes or is here already: nothing of a
         * stranger's is read */
        struct hw_helper_reply a = {.type = HW_H_HELLO, .seq = 1};
        refuse(&a, rc);
        (void)answer(fd, &a);
        uint64_t now = hw_now();
        if (now - d->refused_said > 1000 * HW_MS || d->refused_said == 0) {
            d->refused_said = now;
            SAY(d, HAWSER_LOG_WARN, "user %u, process %d refused: %s", (unsigned)who.uid, (int)who.pid, a.text);
        }
        hw_close(&fd);
        free(c);
        return;
    }
    *c = (struct client){.fd = fd, .who = who, .rights = rights, .tokens = HD_BURST, .filled = hw_now()};
    hw_list_append(&d->clients, &c->node);
    d->n_clients++;
}

/* ---- requests ----------------------------------------------------------------------------------- */

static int dispatch(struct hd_daemon *d, struct client *c, const struct hw_helper_request *q, int fd,
                    struct hw_helper_reply *a)
{
    switch (q->type) {
    case HW_H_HELLO:
        return 0;
    case HW_H_BIND_RX:
    case HW_H_BIND_TX:
        return hd_bind(&d->state, c, c->who.uid, c->rights, fd, q, a);
    case HW_H_STEER:
        return hd_steer(&d->state, c, c->rights, fd, q->id, a);
    case HW_H_RELEASE:
        return hd_release(&d->state, c, q->id);
    default:
        return hw_fail(-EPROTO, "a request of type %u", q->type);
    }
}

struct packet {
    uint8_t buf[HW_HELPER_REQUEST + 1]; /* one more, so that a longer one shows */
    ssize_t len;
    int fd;   /* that came with it, or -1 */
    bool cut; /* there were more descriptors than one, which the kernel has thrown away */
};

static void receive(int sock, struct packet *p)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = p->buf, .iov_len = sizeof(p->buf)};
    /* CMSG_LEN and not CMSG_SPACE, whose padding the kernel would fill with a second descriptor */
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int))};
    p->fd = -1;
    p->len = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (p->len < 0)
        return;
    p->cut = m.msg_flags & MSG_CTRUNC;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&p->fd, CMSG_DATA(h), sizeof(p->fd));
}

/* One request. False: the client is to go. */
static bool serve_one(struct hd_daemon *d, struct client *c)
{
    struct packet p = {0};
    struct hw_helper_request q;
    receive(c->fd, &p);
    if (p.len < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (p.len <= 0)
        return false; /* it has closed, orderly or not */
    c->tokens--;

    int rc = hw_helper_request_decode(p.buf, (size_t)p.len, &q);
    struct hw_helper_reply a = {.type = q.type, .seq = q.seq};
    bool stay = rc == 0;
    if (rc == 0 && (p.cut || (p.fd >= 0) != hw_helper_fds(q.type)))
        rc = hw_fail(-EPROTO, "a request of type %u with %s descriptors", q.type, p.cut ? "too many" : "other");
    else if (rc == 0 && c->greeted == (q.type == HW_H_HELLO))
        rc = hw_fail(-EPROTO, "a request of type %u %s the greeting", q.type, c->greeted ? "after" : "before");
    if (rc) {
        SAY(d, HAWSER_LOG_WARN, "user %u, process %d is dropped: %s", (unsigned)c->who.uid, (int)c->who.pid,
            hw_error());
        stay = false;
    }
    if (rc == 0) {
        c->greeted = true;
        hw_fail(0, "%s", "");
        rc = dispatch(d, c, &q, p.fd, &a);
        if (rc)
            SAY(d, HAWSER_LOG_DEBUG, "user %u, process %d: request of type %u: %s: %s", (unsigned)c->who.uid,
                (int)c->who.pid, q.type, hw_errno_name(rc), hw_error());
    }
    if (rc)
        refuse(&a, rc);
    hd_fd_shed(&p.fd);
    /* to a malformed request only another version gets an answer, as the rest would not understand it */
    if ((stay || rc == -EPROTONOSUPPORT) && !answer(c->fd, &a)) {
        SAY(d, HAWSER_LOG_WARN, "user %u, process %d is dropped: it does not read its answers", (unsigned)c->who.uid,
            (int)c->who.pid);
        stay = false;
    }
    return stay;
}

static void refill(struct client *c, uint64_t now)
{
    uint64_t more = (now - c->filled) / (1000 * HW_MS / HD_RATE);
    if (more == 0)
        return;
    c->tokens = (uint32_t)HW_MIN(c->tokens + more, (uint64_t)HD_BURST);
    c->filled = now;
}

/* ---- the loop ----------------------------------------------------------------------------------- */

/* Fills the poll set. Returns how long to wait, in milliseconds. */
static int gather(struct hd_daemon *d, struct pollfd *p, struct client **who, nfds_t *n, uint64_t next)
{
    uint64_t now = hw_now();
    int wait = -1;
    *n = 0;
    p[(*n)++] = (struct pollfd){.fd = d->stop, .events = POLLIN};
    p[(*n)++] = (struct pollfd){.fd = d->listener, .events = POLLIN};
    hw_list_each(it, tmp, &d->clients)
    {
        struct client *c = hw_container_of(it, struct client, node);
        refill(c, now);
        who[*n] = c;
        /* one that has used up its requests is only watched for its end, and asked again soon */
        p[(*n)++] = (struct pollfd){.fd = c->fd, .events = c->tokens ? POLLIN : 0};
        if (!c->tokens)
            wait = 1000 / HD_RATE + 1;
    }
    if (next != HW_NEVER && wait < 0)
        wait = (int)(next > now ? (next - now) / HW_MS + 1 : 0);
    return wait;
}

static void rounds(struct hd_daemon *d, struct pollfd *p, struct client **who)
{
    uint64_t retry = HW_NEVER, watch = HW_NEVER;
    for (;;) {
        nfds_t n;
        if (hd_left(&d->state) == 0)
            retry = HW_NEVER;
        else if (retry == HW_NEVER)
            retry = hw_deadline(HD_RETRY_MS);
        if (hw_list_empty(&d->state.rules))
            watch = HW_NEVER;
        else if (watch == HW_NEVER)
            watch = hw_deadline(HD_WATCH_MS);
        int wait = gather(d, p, who, &n, HW_MIN(retry, watch));
        if (poll(p, n, wait) < 0 && errno != EINTR) {
            SAY(d, HAWSER_LOG_ERROR, "poll: %s", hw_errno_name(errno));
            return;
        }
        if (p[0].revents)
            return;
        if (hw_now() >= watch) {
            hd_watch(&d->state);
            watch = HW_NEVER;
        }
        if (hw_now() >= retry) {
            d->state.retrying = true;
            (void)hd_settle_all(&d->state);
            d->state.retrying = false;
            retry = HW_NEVER;
        }
        for (nfds_t i = 2; i < n; i++)
            if (p[i].revents && ((p[i].revents & (POLLHUP | POLLERR)) || !serve_one(d, who[i])))
                client_end(d, who[i]);
        if (p[1].revents)
            accept_one(d);
    }
}

int hd_serve(struct hd_daemon *d)
{
    struct pollfd *p = calloc(HD_CLIENTS_MAX + 2, sizeof(*p));
    struct client **who = calloc(HD_CLIENTS_MAX + 2, sizeof(struct client *));
    hw_list_init(&d->clients);
    if (p && who)
        rounds(d, p, who);
    free(p);
    free(who);
    if (!p || !who)
        return hw_fail(-ENOMEM, "no memory for the clients");
    hw_list_each(it, tmp, &d->clients) client_end(d, hw_container_of(it, struct client, node));
    unsigned left = hd_settle_all(&d->state);
    if (left)
        SAY(d, HAWSER_LOG_ERROR,
            "%u things could not be undone; `hawser devmem undo`, or the next hawserd, tries again", left);
    return (int)left;
}
