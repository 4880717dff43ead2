/* SPDX-License-Identifier: Apache-2.0 */
/* The working part of libnccl-net-rude.so. Each connection is a TCP connection, and each message consists of its length
 * and its bytes. */
#include "rude.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct handle {
    uint64_t secret;
    struct sockaddr_in at;
    int fd; /* connect's file descriptor plus 1, kept between calls; 0 if none */
};
_Static_assert(sizeof(struct handle) <= NCCL_NET_HANDLE_MAXSIZE, "NCCL's ABI");

struct listener {
    int fd;
    uint64_t secret;
    struct stranger { /* a connection that has not sent the secret yet */
        int fd;
        struct wire_msg hello;
    } stranger[16];
    unsigned n;
};

struct comm;
struct request {
    struct comm *comm;
    uint64_t number;
    unsigned char *data;
    size_t size, total, moved;
    struct wire_msg header;
};

struct comm {
    bool sends, broken;
    int fd;
    uint64_t posted, moving, done; /* numbers of requests */
    struct wire_msg hello;
    struct request request[NCCL_NET_MAX_REQUESTS];
};

static struct comm *comm_new(bool sends, int fd)
{
    struct comm *c = calloc(1, sizeof(*c));
    c->sends = sends;
    c->fd = fd;
    return c;
}

ncclResult_t net_listen(int dev, void *out, void **comm)
{
    struct handle h = {0};
    struct listener *l = calloc(1, sizeof(*l));
    l->fd = -1;
    if (dev == 0 && wire_address("lo", &h.at) &&
        getrandom(&l->secret, sizeof(l->secret), 0) == (ssize_t)sizeof(l->secret))
        l->fd = wire_listen(&h.at);
    if (l->fd < 0) {
        free(l);
        return ncclSystemError;
    }
    h.secret = l->secret;
    memcpy(out, &h, sizeof(h));
    *comm = l;
    return ncclSuccess;
}

ncclResult_t net_connect(int dev, void *handle, void **comm, ncclNetDeviceHandle_v9_t **device)
{
    (void)device;
    struct handle h;
    struct sockaddr_in from;
    memcpy(&h, handle, sizeof(h));
    *comm = NULL;
    if (h.fd == 0) {
        h.fd = dev == 0 && wire_address("lo", &from) ? 1 + wire_connect(&from, &h.at) : 0;
        if (h.fd == 0)
            return ncclSystemError;
        memcpy(handle, &h, sizeof(h));
    }
    int up = wire_connected(h.fd - 1);
    if (up == 0)
        return ncclSuccess;
    /* a new socket's buffer always has room for 8 bytes */
    if (up < 0 || wire_put(h.fd - 1, &h.secret, sizeof(h.secret)) != (ssize_t)sizeof(h.secret)) {
        close(h.fd - 1);
        return ncclRemoteError;
    }
    *comm = comm_new(true, h.fd - 1);
    return ncclSuccess;
}

static void drop(struct listener *l, unsigned i)
{
    if (l->stranger[i].fd >= 0)
        close(l->stranger[i].fd);
    memmove(&l->stranger[i], &l->stranger[i + 1], (--l->n - i) * sizeof(l->stranger[0]));
}

ncclResult_t net_accept(void *listener, void **comm, ncclNetDeviceHandle_v9_t **device)
{
    (void)device;
    struct listener *l = listener;
    *comm = NULL;
    for (int fd; (fd = wire_accept(l->fd)) >= 0;) {
        if (l->n == sizeof(l->stranger) / sizeof(l->stranger[0]))
            drop(l, 0); /* the oldest */
        l->stranger[l->n++] = (struct stranger){.fd = fd, .hello.len = sizeof(l->secret)};
    }
    for (unsigned i = 0; i < l->n;) {
        struct stranger *s = &l->stranger[i];
        int rc = wire_msg_get(s->fd, &s->hello);
        if (rc > 0 && memcmp(s->hello.bytes, &l->secret, sizeof(l->secret)) == 0) {
            *comm = comm_new(false, s->fd);
            s->fd = -1;
            drop(l, i);
            return ncclSuccess;
        }
        if (rc != 0)
            drop(l, i);
        else
            i++;
    }
    return ncclSuccess;
}

/* Returns true if all slots are used by requests that are in progress or whose completion was not tested yet. */
static bool full(const struct comm *c)
{
    return c->posted - (c->done < c->moving ? c->done : c->moving) == NCCL_NET_MAX_REQUESTS;
}

static struct request *post(struct comm *c, void *data, size_t size)
{
    struct request *r = &c->request[c->posted % NCCL_NET_MAX_REQUESTS];
    *r = (struct request){.comm = c, .number = c->posted++, .data = data, .size = size, .header.len = 8};
    return r;
}

ncclResult_t net_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
    (void)tag, (void)mhandle;
    struct comm *c = comm;
    *request = NULL;
    if (c->broken)
        return ncclRemoteError;
    if (full(c))
        return ncclSuccess;
    struct request *r = post(c, data, size);
    uint64_t total = r->total = size;
    memcpy(r->header.bytes, &total, sizeof(total));
    *request = r;
    return ncclSuccess;
}

ncclResult_t net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
    (void)tags, (void)mhandles;
    struct comm *c = comm;
    *request = NULL;
    if (c->broken || n != 1)
        return c->broken ? ncclRemoteError : ncclInvalidUsage;
    if (!full(c))
        *request = post(c, data[0], sizes[0]);
    return ncclSuccess;
}

/* Moves a request's data. Returns 1 if the request is complete, 0 if not yet, or -1 if the connection is broken or the
 * message is too large. */
static int move(struct request *r)
{
    struct comm *c = r->comm;
    int rc = c->sends ? wire_msg_put(c->fd, &r->header) : wire_msg_get(c->fd, &r->header);
    if (rc <= 0)
        return rc;
    if (!c->sends) {
        uint64_t total;
        memcpy(&total, r->header.bytes, sizeof(total));
        r->total = total;
        if (total > r->size)
            return -1;
    }
    while (r->moved < r->total) {
        unsigned char *at = r->data + r->moved;
        ssize_t n = c->sends ? wire_put(c->fd, at, r->total - r->moved) : wire_get(c->fd, at, r->total - r->moved);
        if (n <= 0)
            return (int)n;
        r->moved += (size_t)n;
    }
    return 1;
}

void net_forget(void *request)
{
    struct request *r = request;
    if (r->number == r->comm->done)
        r->comm->done++;
}

ncclResult_t net_test(void *request, int *done, int *size)
{
    struct request *r = request;
    struct comm *c = r->comm;
    *done = 0;
    while (!c->broken && c->moving < c->posted) {
        int rc = move(&c->request[c->moving % NCCL_NET_MAX_REQUESTS]);
        c->broken = rc < 0;
        if (rc <= 0)
            break;
        c->moving++;
    }
    if (c->broken && r->number >= c->moving)
        return ncclRemoteError;
    if (r->number >= c->moving)
        return ncclSuccess;
    *done = 1;
    net_forget(r);
    if (size)
        *size = (int)r->total;
    return ncclSuccess;
}

ncclResult_t net_close(void *comm)
{
    struct comm *c = comm;
    close(c->fd);
    free(c);
    return ncclSuccess;
}

ncclResult_t net_close_listen(void *listener)
{
    struct listener *l = listener;
    while (l->n)
        drop(l, 0);
    close(l->fd);
    free(l);
    return ncclSuccess;
}

bool net_is_receive(const void *request)
{
    const struct request *r = request;
    return !r->comm->sends;
}

void net_posted(const void *request, unsigned char **data, size_t *size)
{
    const struct request *r = request;
    *data = r->data;
    *size = r->size;
}
