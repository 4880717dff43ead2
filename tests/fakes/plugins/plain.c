/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simple correct net plugin: one TCP connection over loopback for each pair of comms, and a header with the size
 * before each message. Data moves only in isend, irecv and test; there are no threads. This is the reference plugin of
 * the tests.
 */
#include "plain.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESTS 16 /* maximum number of connections that have not sent the secret yet */

struct handle {
    uint64_t secret;
    uint16_t port;
    int fd;         /* the connector's file descriptor plus 1; every call of connect gets the same buffer */
    uint32_t shown; /* number of bytes of the secret that were sent */
    bool connected;
};
_Static_assert(sizeof(struct handle) <= NCCL_NET_HANDLE_MAXSIZE, "NCCL's ABI");

struct listener {
    int fd;
    uint64_t secret;
    struct guest {
        int fd;
        uint32_t got;
        uint8_t said[8];
    } guest[GUESTS]; /* oldest first */
    int n;
};

struct request {
    struct conn *c;
    uint8_t *data;
    uint64_t size;                  /* size of a receive's buffer, later the size of the message */
    uint64_t header, header_at, at; /* header_at, at: number of bytes moved */
};

struct conn {
    int fd;
    bool sends;
    ncclResult_t error;
    uint64_t posted, moved, tested; /* counts; request k is ring[k % MAX] */
    struct request ring[NCCL_NET_MAX_REQUESTS];
};

static _Atomic(ncclDebugLogger_t) logger_of_all;

static ncclResult_t fail(ncclResult_t rc, const char *what)
{
    ncclDebugLogger_t say = logger_of_all;
    if (say)
        say(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "plain: %s: %s", what, strerror(errno));
    return rc;
}

static char pci_list[4096], *pci[PLAIN_MOST];
static int n_devices = PLAIN_DEVICES;

ncclResult_t plain_init(ncclDebugLogger_t logger)
{
    const char *list = getenv("PLAIN_PCI");
    char *rest = pci_list;

    logger_of_all = logger; /* several threads may call this, for different communicators */
    if (!list || pci[0])    /* v11 and v12 call this for each communicator */
        return ncclSuccess;
    if (strlen(list) >= sizeof(pci_list)) {
        errno = ENAMETOOLONG;
        return fail(ncclInvalidArgument, "PLAIN_PCI");
    }
    strcpy(pci_list, list);
    for (n_devices = 0; rest; n_devices++) {
        if (n_devices == PLAIN_MOST) {
            errno = E2BIG;
            return fail(ncclInvalidArgument, "PLAIN_PCI");
        }
        pci[n_devices] = strsep(&rest, ",");
    }
    return ncclSuccess;
}

ncclResult_t plain_devices(int *n)
{
    *n = n_devices;
    return ncclSuccess;
}

char *plain_pci(int dev)
{
    return pci[dev];
}

ncclResult_t plain_listen(int dev, void *opaque, void **lc)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct handle *h = opaque;
    socklen_t len = sizeof(a);
    struct listener *l;

    if (dev < 0 || dev >= n_devices)
        return ncclInvalidArgument;
    l = calloc(1, sizeof(*l));
    if (!l)
        return ncclSystemError;
    memset(h, 0, sizeof(*h));
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0 || getrandom(&l->secret, sizeof(l->secret), 0) != sizeof(l->secret) ||
        bind(l->fd, (struct sockaddr *)&a, sizeof(a)) || listen(l->fd, 64) ||
        getsockname(l->fd, (struct sockaddr *)&a, &len)) {
        ncclResult_t rc = fail(ncclSystemError, "listening");
        if (l->fd >= 0)
            close(l->fd);
        free(l);
        return rc;
    }
    h->secret = l->secret;
    h->port = a.sin_port;
    *lc = l;
    return ncclSuccess;
}

static ncclResult_t new_conn(int fd, bool sends, void **out)
{
    static const int on = 1;
    struct conn *c = calloc(1, sizeof(*c));
    if (!c) {
        close(fd);
        return ncclSystemError;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->fd = fd;
    c->sends = sends;
    *out = c;
    return ncclSuccess;
}

static bool later(void)
{
    return errno == EAGAIN || errno == EINPROGRESS || errno == EALREADY || errno == EINTR;
}

ncclResult_t plain_connect(int dev, void *opaque, void **sc)
{
    struct handle *h = opaque;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = h->port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = h->fd - 1;
    ssize_t n;

    (void)dev;
    *sc = NULL;
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            return fail(ncclSystemError, "a socket");
        h->fd = fd + 1;
    }
    if (!h->connected && connect(fd, (struct sockaddr *)&a, sizeof(a)) && errno != EISCONN) {
        if (later())
            return ncclSuccess;
        goto close_fd;
    }
    h->connected = true;
    n = send(fd, (uint8_t *)&h->secret + h->shown, sizeof(h->secret) - h->shown, MSG_NOSIGNAL);
    if (n < 0 && !later())
        goto close_fd;
    h->shown += n > 0 ? (uint32_t)n : 0;
    if (h->shown < sizeof(h->secret))
        return ncclSuccess;
    h->fd = 0;
    return new_conn(fd, true, sc);
close_fd:
    fail(ncclRemoteError, "connecting");
    close(fd);
    h->fd = 0;
    return ncclRemoteError;
}

static void send_away(struct listener *l, int i)
{
    close(l->guest[i].fd);
    memmove(&l->guest[i], &l->guest[i + 1], (size_t)(l->n - i - 1) * sizeof(l->guest[0]));
    l->n--;
}

/* Accepts a connection that sends the peer's secret. Closes connections that send anything else and, if too many
 * connections are silent, the oldest of them. */
ncclResult_t plain_accept(void *lc, void **rc)
{
    struct listener *l = lc;
    int fd;

    *rc = NULL;
    while ((fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (l->n == GUESTS)
            send_away(l, 0);
        l->guest[l->n++] = (struct guest){.fd = fd};
    }
    for (int i = 0; i < l->n;) {
        struct guest *g = &l->guest[i];
        ssize_t n = recv(g->fd, g->said + g->got, sizeof(g->said) - g->got, 0);
        if (n < 0 && later()) {
            i++;
            continue;
        }
        g->got += n > 0 ? (uint32_t)n : 0;
        if (n > 0 && g->got < sizeof(g->said))
            continue;
        if (n > 0 && memcmp(g->said, &l->secret, sizeof(l->secret)) == 0) {
            fd = g->fd;
            g->fd = -1;
            send_away(l, i);
            return new_conn(fd, false, rc);
        }
        send_away(l, i);
    }
    return ncclSuccess;
}

/* Returns a handle for deregistration only, because host memory needs no registration. */
ncclResult_t plain_reg(void *comm, void *data, size_t size, int type, void **mh)
{
    if (!comm || !data || !size || type != NCCL_PTR_HOST)
        return ncclInvalidArgument;
    *mh = data;
    return ncclSuccess;
}

ncclResult_t plain_dereg(void *comm, void *mh)
{
    return comm && mh ? ncclSuccess : ncclInvalidArgument;
}

/* Moves up to len bytes. Returns the number of bytes moved, 0 if none can be moved now, or -1 if the connection is
 * broken. */
static ssize_t move(struct conn *c, void *data, size_t len)
{
    ssize_t n = c->sends ? send(c->fd, data, len, MSG_NOSIGNAL) : recv(c->fd, data, len, 0);
    if (n > 0)
        return n;
    if (n < 0 && later())
        return 0;
    if (n == 0)
        errno = ECONNRESET;
    c->error = fail(ncclRemoteError, c->sends ? "sending" : "receiving");
    return -1;
}

/* Moves data of the requests in order, as far as the socket permits. */
static ncclResult_t progress(struct conn *c)
{
    while (!c->error && c->moved < c->posted) {
        struct request *q = &c->ring[c->moved % NCCL_NET_MAX_REQUESTS];
        ssize_t n = 0;
        if (q->header_at < sizeof(q->header)) {
            n = move(c, (uint8_t *)&q->header + q->header_at, sizeof(q->header) - q->header_at);
            if (n <= 0)
                break;
            q->header_at += (uint64_t)n;
            if (q->header_at < sizeof(q->header))
                continue;
            if (q->header > q->size) {
                errno = EMSGSIZE;
                c->error = fail(ncclInvalidUsage, "a message larger than its receive");
                break;
            }
            q->size = q->header;
        }
        if (q->at < q->size) {
            n = move(c, q->data + q->at, q->size - q->at);
            if (n <= 0)
                break;
            q->at += (uint64_t)n;
        }
        if (q->at == q->size)
            c->moved++;
    }
    return c->error;
}

static ncclResult_t post(struct conn *c, void *data, size_t size, void **req)
{
    struct request *q = &c->ring[c->posted % NCCL_NET_MAX_REQUESTS];

    *req = NULL;
    if (c->error)
        return c->error;
    if (c->posted - c->tested == NCCL_NET_MAX_REQUESTS)
        return ncclSuccess;
    *q = (struct request){.c = c, .data = data, .size = size, .header = c->sends ? size : 0};
    c->posted++;
    *req = q;
    return progress(c);
}

ncclResult_t plain_isend(void *sc, void *data, size_t size, int tag, void *mh, void **req)
{
    (void)tag;
    (void)mh;
    return post(sc, data, size, req);
}

ncclResult_t plain_irecv(void *rc, int n, void **data, size_t *sizes, int *tags, void **mhs, void **req)
{
    (void)tags;
    (void)mhs;
    return n == 1 ? post(rc, data[0], sizes[0], req) : ncclInvalidUsage;
}

ncclResult_t plain_iflush(void *rc, int n, void **data, int *sizes, void **mhs, void **req)
{
    (void)rc, (void)n, (void)data, (void)sizes, (void)mhs;
    *req = NULL; /* host memory needs no flush */
    return ncclSuccess;
}

ncclResult_t plain_test(void *req, int *done, int *sizes)
{
    struct request *q = req;
    struct conn *c = q->c;
    ncclResult_t rc = ncclSuccess;

    *done = 0;
    if (q != &c->ring[c->tested % NCCL_NET_MAX_REQUESTS])
        return ncclInvalidUsage; /* NCCL tests only the oldest request */
    if (c->moved == c->tested)
        rc = progress(c);
    if (c->moved == c->tested)
        return rc;
    c->tested++; /* data that arrived before an error is valid */
    *done = 1;
    if (sizes && !c->sends)
        *sizes = (int)q->size;
    return ncclSuccess;
}

ncclResult_t plain_close(void *comm)
{
    struct conn *c = comm;
    close(c->fd);
    free(c);
    return ncclSuccess;
}

ncclResult_t plain_close_listen(void *lc)
{
    struct listener *l = lc;
    while (l->n)
        send_away(l, 0);
    close(l->fd);
    free(l);
    return ncclSuccess;
}
