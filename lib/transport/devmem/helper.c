/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/devmem/helper.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct dm_helper {
    int fd;
    int timeout_ms; /* -1 if the connection is broken, see -EPIPE in helper.h */
    uint32_t seq;
};

/* Ends the connection. hawserd then revokes the grants of this connection. */
static int fail_helper_conn(struct dm_helper *h, int rc)
{
    /* not closed, because a caller may poll the descriptor, whose number must not be reused for another file */
    if (h->fd >= 0)
        shutdown(h->fd, SHUT_RDWR);
    h->timeout_ms = -1;
    return rc;
}

static int wait_helper_socket(struct dm_helper *h, short events, uint64_t deadline)
{
    for (;;) {
        uint64_t now = hw_now();
        struct pollfd p = {.fd = h->fd, .events = events};
        int ms = now >= deadline ? 0 : (int)HW_MIN((deadline - now + HW_MS - 1) / HW_MS, 60000ull);
        int n = poll(&p, 1, ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return fail_helper_conn(h, hw_fail(-errno, "waiting for hawserd: %s", hw_errno_name(errno)));
        if (n == 0 && hw_now() >= deadline)
            return fail_helper_conn(
                h, hw_fail(-ETIMEDOUT,
                           "hawserd did not answer before the deadline; its grants to this connection are released"));
    }
}

static int send_request(struct dm_helper *h, const struct hw_helper_request *q, int fd, uint64_t deadline)
{
    uint8_t buf[HW_HELPER_REQUEST];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = buf, .iov_len = sizeof(buf)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    hw_helper_request_encode(buf, q);
    if (hw_helper_fds(q->type)) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    }
    for (;;) {
        int rc = wait_helper_socket(h, POLLOUT, deadline);
        if (rc)
            return rc;
        ssize_t n = sendmsg(h->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == (ssize_t)sizeof(buf))
            return 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0 && errno == EBADF) /* the caller's descriptor is bad, and nothing was sent */
            return hw_fail(-EBADF, "file descriptor %d, which was to be sent to hawserd, is not open", fd);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return 0; /* hawserd's last reply, with the reason, may still be readable */
        return fail_helper_conn(
            h, hw_fail(n < 0 ? -errno : -EIO, "sending to hawserd: %s", hw_errno_name(n < 0 ? errno : EIO)));
    }
}

static int recv_reply(struct dm_helper *h, struct hw_helper_reply *r, uint64_t deadline)
{
    uint8_t buf[HW_HELPER_REPLY + 1]; /* one more byte, to detect longer packets */
    bool reset = false;
    for (;;) {
        int rc = wait_helper_socket(h, POLLIN, deadline);
        if (rc)
            return rc;
        ssize_t n = recv(h->fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        /* The kernel reports ECONNRESET once, before queued data, if hawserd has closed the socket without reading the
         * request (net/unix/af_unix.c, unix_release_sock()). hawserd's refusal may be queued. */
        if (n < 0 && errno == ECONNRESET && !reset) {
            reset = true;
            continue;
        }
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return fail_helper_conn(
                h,
                hw_fail(-EPIPE, "hawserd has ended, or has dropped this client; see its log (journalctl -u hawserd)"));
        if (n < 0)
            return fail_helper_conn(h, hw_fail(-errno, "receiving from hawserd: %s", hw_errno_name(errno)));
        rc = hw_helper_reply_decode(buf, (size_t)n, r);
        return rc ? fail_helper_conn(h, rc) : 0;
    }
}

/* Sends one request and receives the reply. A refusal is returned as the error, with hawserd's text. */
static int call_helper(struct dm_helper *h, struct hw_helper_request *q, int fd, struct hw_helper_reply *r)
{
    if (h->timeout_ms < 0)
        return hw_fail(-EPIPE, "the connection to hawserd is broken: open a new one");
    uint64_t deadline = hw_deadline(h->timeout_ms);
    *r = (struct hw_helper_reply){0};
    q->seq = ++h->seq;
    int rc = send_request(h, q, fd, deadline);
    if (rc == 0)
        rc = recv_reply(h, r, deadline);
    if (rc)
        return rc;
    if (r->type != q->type || r->seq != q->seq)
        return fail_helper_conn(
            h, hw_fail(-EPROTO, "hawserd answered request %u of type %u with an answer to request %u of type %u",
                       q->seq, q->type, r->seq, r->type));
    return r->status ? hw_fail_copy(r->status, r->text) : 0;
}

static int no_way_in(int err, const char *path)
{
    switch (err) {
    case ENOENT:
        return hw_fail(-err, "no hawserd at %s: start it (systemctl start hawserd, or as root: hawserd)", path);
    case ECONNREFUSED:
        return hw_fail(-err, "hawserd at %s has ended: restart it (systemctl restart hawserd)", path);
    case EACCES:
    case EPERM:
        return hw_fail(-EACCES,
                       "%s: this user is not allowed to connect to hawserd: check the socket's folder and mode", path);
    default:
        return hw_fail(-err, "connecting to hawserd at %s: %s", path, hw_errno_name(err));
    }
}

static int connect_hawserd(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof(a.sun_path))
        return hw_fail(-ENAMETOOLONG, "'%s' is not a path of a UNIX socket (1 to %zu bytes)", path,
                       sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return hw_fail(-errno, "creating a UNIX socket for hawserd: %s", hw_errno_name(errno));
    /* connect() does not block, because EAGAIN is the right result if hawserd is so far behind that its connection
     * queue is full */
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        int err = errno;
        hw_close(&fd);
        return err == EAGAIN ? hw_fail(-EAGAIN, "the connection queue of hawserd at %s is full: try again later", path)
                             : no_way_in(err, path);
    }
    return fd;
}

int dm_helper_open(const char *path, int timeout_ms, struct dm_helper **out)
{
    *out = NULL;
    struct dm_helper *h = calloc(1, sizeof(*h));
    if (!h)
        return hw_no_memory("a client of hawserd");
    h->timeout_ms = HW_MAX(timeout_ms, 0);
    h->fd = connect_hawserd(path ? path : HW_HELPER_SOCKET);
    int rc = h->fd < 0 ? h->fd : 0;
    if (rc == 0) {
        struct hw_helper_request q = {.type = HW_H_HELLO};
        struct hw_helper_reply r;
        rc = call_helper(h, &q, -1, &r);
    }
    if (rc) {
        dm_helper_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

void dm_helper_close(struct dm_helper *h)
{
    if (!h)
        return;
    hw_close(&h->fd);
    free(h);
}

int dm_helper_fd(const struct dm_helper *h)
{
    return h->fd;
}

static int bind_to(struct dm_helper *h, uint16_t type, const char *nic, int fd, uint32_t count, uint32_t page,
                   struct dm_binding *out)
{
    struct hw_helper_request q = {.type = type, .count = count, .page = page};
    struct hw_helper_reply r;
    *out = (struct dm_binding){0};
    if (strlen(nic) >= sizeof(q.nic) || !*nic)
        return hw_fail(-ENODEV, "'%s' is not the name of a network device (1 to %zu bytes)", nic, sizeof(q.nic) - 1);
    memcpy(q.nic, nic, strlen(nic));
    int rc = call_helper(h, &q, fd, &r);
    if (rc)
        return rc;
    if (r.count != count)
        return fail_helper_conn(
            h, hw_fail(-EPROTO, "the number of queues that hawserd bound on %s is %u, not %u", nic, r.count, count));
    *out = (struct dm_binding){.id = r.id, .dmabuf_id = r.dmabuf_id, .nqueues = r.count, .page = r.page};
    memcpy(out->queues, r.queues, sizeof(out->queues));
    return 0;
}

int dm_helper_bind_rx(struct dm_helper *h, const char *nic, int dmabuf_fd, unsigned nqueues, uint32_t page,
                      struct dm_binding *out)
{
    *out = (struct dm_binding){0};
    if (nqueues < 1 || nqueues > HW_HELPER_QUEUES)
        return hw_fail(-EINVAL, "invalid number of queues for a binding: 1 to %d are allowed, not %u", HW_HELPER_QUEUES,
                       nqueues);
    if (!hw_helper_page(page))
        return hw_fail(-EINVAL,
                       "invalid piece size: %u bytes; it must be 0 or a power of two from %u to %u (knob devmem_piece)",
                       page, HW_HELPER_PAGE_MIN, HW_HELPER_PAGE_MAX);
    return bind_to(h, HW_H_BIND_RX, nic, dmabuf_fd, nqueues, page, out);
}

int dm_helper_bind_tx(struct dm_helper *h, const char *nic, int dmabuf_fd, struct dm_binding *out)
{
    return bind_to(h, HW_H_BIND_TX, nic, dmabuf_fd, 0, 0, out);
}

int dm_helper_steer(struct dm_helper *h, uint32_t binding, int sock, uint32_t *rule, uint32_t *queue)
{
    struct hw_helper_request q = {.type = HW_H_STEER, .id = binding};
    struct hw_helper_reply r;
    *rule = *queue = 0;
    if (binding == 0)
        return hw_fail(-ENOENT, "invalid binding 0");
    int rc = call_helper(h, &q, sock, &r);
    if (rc)
        return rc;
    *rule = r.id;
    *queue = r.queues[0];
    return 0;
}

int dm_helper_release(struct dm_helper *h, uint32_t id)
{
    struct hw_helper_request q = {.type = HW_H_RELEASE, .id = id};
    struct hw_helper_reply r;
    if (id == 0)
        return hw_fail(-ENOENT, "invalid binding or rule 0");
    return call_helper(h, &q, -1, &r);
}
