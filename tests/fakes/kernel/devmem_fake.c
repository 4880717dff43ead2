/* SPDX-License-Identifier: Apache-2.0 */
#include "devmem_fake.h"

#include "net/nic.h"
#include "transport/devmem/kernel.h"
#include "wire/helper.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PAGE     4096u
#define BINDINGS 32
#define FLOWS    256
#define CLIENTS  8

struct binding {
    bool live, tx;
    uint32_t id, client;
    uint8_t *base;
    size_t size;
    uint8_t *taken; /* per page: 1 while the application holds the page */
    size_t npages, next;
};

struct flow {
    bool live;
    uint32_t rule, binding;
    uint16_t local, remote;
};

struct df_faults df_faults;
static struct df_counts counts;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct binding bindings[BINDINGS];
static struct flow flows[FLOWS];
static uint32_t ids = 100, lottery = 12345;
static pthread_t thread;
static int stop_pipe[2], listener = -1;

struct df_counts df_counts(void)
{
    pthread_mutex_lock(&mu);
    struct df_counts n = counts;
    for (unsigned i = 0; i < FLOWS; i++)
        n.rules += flows[i].live;
    pthread_mutex_unlock(&mu);
    return n;
}

void df_well(void)
{
    df_faults.plain = df_faults.host = df_faults.shift = df_faults.no_tx = false;
    df_faults.wedge = df_faults.lie = df_faults.stray_now = false;
    df_faults.linear = df_faults.short_of = 0;
}

static uint32_t draw(uint32_t n)
{
    lottery = lottery * 1664525 + 1013904223;
    return (lottery >> 8) % n;
}

/* ---- the kernel ------------------------------------------------------------------------------------- */

static uint16_t end_of(int fd, bool peer)
{
    union hw_addr a = {0};
    socklen_t len = sizeof(a);
    if (peer ? getpeername(fd, &a.sa, &len) : getsockname(fd, &a.sa, &len))
        return 0;
    return hw_addr_port(&a);
}

static struct binding *binding_of(uint32_t id)
{
    for (unsigned i = 0; i < BINDINGS; i++)
        if (bindings[i].live && bindings[i].id == id)
            return &bindings[i];
    return NULL;
}

static struct flow *flow_of(int fd)
{
    uint16_t local = end_of(fd, false), remote = end_of(fd, true);
    for (unsigned i = 0; i < FLOWS; i++)
        if (flows[i].live && flows[i].local == local && flows[i].remote == remote)
            return &flows[i];
    return NULL;
}

static long page_take(struct binding *b)
{
    for (size_t k = 0; k < b->npages; k++) {
        size_t i = (b->next + 7 * k + 1) % b->npages;
        if (!b->taken[i]) {
            b->taken[i] = 1;
            b->next = i;
            counts.pages_out++;
            counts.pages_most = HW_MAX(counts.pages_most, counts.pages_out);
            return (long)i;
        }
    }
    return -1;
}

static void put_cmsg(struct msghdr *m, size_t *used, int type, struct dm_dmabuf_cmsg d)
{
    struct cmsghdr *c = (struct cmsghdr *)((uint8_t *)m->msg_control + *used);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(sizeof(d));
    memcpy(CMSG_DATA(c), &d, sizeof(d));
    *used += CMSG_SPACE(sizeof(d));
}

/* Receives payload of a steered socket in pieces of various sizes. Each piece is in a page of the pool or, with some
 * faults, in host memory. The caller holds mu. */
static ssize_t receive(int fd, struct binding *b, struct msghdr *m)
{
    uint8_t *iov = m->msg_iov->iov_base, stash[PAGE];
    size_t len = m->msg_iov->iov_len, used = 0, total = 0, host = 0;
    while (total < len && used + CMSG_SPACE(sizeof(struct dm_dmabuf_cmsg)) <= m->msg_controllen) {
        bool linear = df_faults.host || (df_faults.linear && draw(df_faults.linear) == 0);
        size_t want = linear ? 13 : draw(4) ? PAGE : 1 + draw(1448);
        long page = linear ? 0 : page_take(b);
        if (page < 0)
            break;
        ssize_t n = recv(fd, stash, HW_MIN(want, len - total), MSG_DONTWAIT);
        if (n <= 0) {
            if (!linear) {
                b->taken[page] = 0;
                counts.pages_out--;
            }
            if (total)
                break;
            return n;
        }
        struct dm_dmabuf_cmsg d = {.frag_size = (uint32_t)n};
        if (linear) {
            memcpy(iov + host, stash, (size_t)n);
            host += (size_t)n;
        } else {
            d.frag_offset = (size_t)page * PAGE + (PAGE - (size_t)n) / 2;
            d.frag_token = (uint32_t)page + 1;
            d.dmabuf_id = b->id;
            size_t shift = df_faults.shift ? 64 : 0;
            memcpy(b->base + (d.frag_offset + shift) % (b->size - PAGE), stash, (size_t)n);
        }
        put_cmsg(m, &used, linear ? DM_SCM_DEVMEM_LINEAR : DM_SCM_DEVMEM_DMABUF, d);
        total += (size_t)n;
    }
    if (!total) {
        errno = EAGAIN;
        return -1;
    }
    m->msg_controllen = used;
    return (ssize_t)(df_faults.lie ? total + 1 : total);
}

static ssize_t fake_recvmsg(int fd, struct msghdr *m, int flags)
{
    if (!(flags & DM_MSG_SOCK_DEVMEM))
        return recvmsg(fd, m, flags);
    pthread_mutex_lock(&mu);
    struct flow *f = flow_of(fd);
    struct binding *b = f && !df_faults.plain && !df_faults.stray_now ? binding_of(f->binding) : NULL;
    ssize_t n;
    if (df_faults.wedge) {
        errno = ENODEV;
        n = -1;
    } else if (df_faults.short_of && draw(df_faults.short_of) == 0) {
        errno = ENOBUFS;
        n = -1;
    } else if (b) {
        n = receive(fd, b, m);
    } else {
        n = recvmsg(fd, m, flags & ~DM_MSG_SOCK_DEVMEM);
    }
    int saved = errno;
    pthread_mutex_unlock(&mu);
    errno = saved;
    return n;
}

static ssize_t fake_sendmsg(int fd, const struct msghdr *m, int flags)
{
    const struct cmsghdr *c = CMSG_FIRSTHDR(m);
    uint32_t id;
    if (!c || c->cmsg_type != DM_SCM_DEVMEM_DMABUF || !(flags & MSG_ZEROCOPY)) {
        errno = EINVAL;
        return -1;
    }
    memcpy(&id, CMSG_DATA(c), sizeof(id));
    pthread_mutex_lock(&mu);
    struct binding *b = binding_of(id);
    uint64_t offset = (uintptr_t)m->msg_iov->iov_base;
    size_t some = 1 + draw(300000);
    ssize_t n = -1;
    if (!b || !b->tx)
        errno = EINVAL;
    else if (df_faults.short_of && draw(df_faults.short_of) == 0)
        errno = ENOBUFS;
    else if (offset + m->msg_iov->iov_len > b->size)
        errno = EFAULT;
    else
        /* sends by reference; the real kernel reports the completions */
        n = send(fd, b->base + offset, HW_MIN(m->msg_iov->iov_len, some), MSG_ZEROCOPY | MSG_DONTWAIT | MSG_NOSIGNAL);
    counts.device_sends += n > 0;
    int saved = errno;
    pthread_mutex_unlock(&mu);
    errno = saved;
    return n;
}

static int fake_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    if (level != SOL_SOCKET || name != DM_SO_DEVMEM_DONTNEED)
        return setsockopt(fd, level, name, value, len);
    const struct dm_token_range *r = value;
    int n = 0, frags = 0;
    pthread_mutex_lock(&mu);
    struct flow *f = flow_of(fd);
    struct binding *b = f ? binding_of(f->binding) : NULL;
    for (size_t i = 0; b && i < len / sizeof(*r); i++)
        for (uint32_t k = 0; k < r[i].count; k++) {
            size_t page = r[i].start + k - 1;
            frags++;
            if (page < b->npages && b->taken[page]) {
                b->taken[page] = 0;
                counts.pages_out--;
                n++;
            }
        }
    pthread_mutex_unlock(&mu);
    if (len / sizeof(*r) > DM_TOKENS_MAX || frags > DM_FRAGS_MAX) {
        errno = EINVAL;
        return -1;
    }
    return n;
}

static bool never_self(int fd)
{
    (void)fd; /* loopback counts as a network here */
    return false;
}

void df_kernel(void)
{
    dm_sys = (struct dm_sys){
        .recvmsg = fake_recvmsg, .sendmsg = fake_sendmsg, .setsockopt = fake_setsockopt, .to_self = never_self};
}

/* ---- hawserd ------------------------------------------------------------------------------------------ */

static void unbind(struct binding *b)
{
    for (unsigned i = 0; i < FLOWS; i++)
        if (flows[i].live && flows[i].binding == b->id)
            flows[i].live = false;
    for (size_t i = 0; i < b->npages; i++)
        counts.pages_out -= b->taken[i];
    (void)munmap(b->base, b->size);
    free(b->taken);
    memset(b, 0, sizeof(*b));
}

static int bind_memory(struct binding *b, int fd, uint32_t client, bool tx)
{
    struct stat st;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at < 0 || fstat(fd, &st))
        return -errno;
    size_t size = (size_t)(st.st_size - at);
    uint8_t *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
    if (base == MAP_FAILED)
        return -errno;
    size_t npages = tx ? 0 : HW_MIN(size / PAGE, (size_t)4096) - 1; /* the size of a part of a file is unknown */
    *b = (struct binding){.live = true,
                          .tx = tx,
                          .id = ++ids,
                          .client = client,
                          .base = base,
                          .size = size,
                          .npages = npages,
                          .taken = calloc(npages + 1, 1)};
    return 0;
}

/* Counts the receive bindings of a client. */
static unsigned count_bound(uint32_t client)
{
    unsigned n = 0;
    for (unsigned i = 0; i < BINDINGS; i++)
        n += bindings[i].live && !bindings[i].tx && bindings[i].client == client;
    return n;
}

static void answer(uint32_t client, const struct hw_helper_request *q, int fd, struct hw_helper_reply *r)
{
    struct binding *b = NULL;
    switch (q->type) {
    case HW_H_BIND_RX:
    case HW_H_BIND_TX:
        if (q->type == HW_H_BIND_TX && df_faults.no_tx) {
            r->status = -EOPNOTSUPP;
            snprintf(r->text, sizeof(r->text), "the driver of %s does not send device memory", q->nic);
            return;
        }
        if (q->type == HW_H_BIND_RX && df_faults.queues && count_bound(client) + q->count > df_faults.queues) {
            r->status = -EBUSY;
            snprintf(r->text, sizeof(r->text), "no queue of %s is free", q->nic);
            return;
        }
        for (unsigned i = 0; i < BINDINGS && !b; i++)
            b = bindings[i].live ? NULL : &bindings[i];
        r->status = b ? bind_memory(b, fd, client, q->type == HW_H_BIND_TX) : -ENOSPC;
        if (r->status)
            return;
        r->id = r->dmabuf_id = b->id;
        r->count = q->type == HW_H_BIND_RX ? q->count : 0;
        for (uint32_t i = 0; i < r->count; i++)
            r->queues[i] = i + 1;
        (q->type == HW_H_BIND_RX ? &counts.bound_rx : &counts.bound_tx)[0]++;
        return;
    case HW_H_STEER:
        for (unsigned i = 0; i < FLOWS; i++)
            if (!flows[i].live) {
                flows[i] = (struct flow){.live = true,
                                         .rule = ++ids,
                                         .binding = q->id,
                                         .local = end_of(fd, false),
                                         .remote = end_of(fd, true)};
                r->id = flows[i].rule;
                r->count = 1;
                r->queues[0] = 1;
                counts.steered++;
                return;
            }
        r->status = -ENOSPC;
        return;
    case HW_H_RELEASE:
        for (unsigned i = 0; i < FLOWS; i++)
            if (flows[i].live && flows[i].rule == q->id) {
                flows[i].live = false;
                counts.released++;
                return;
            }
        if ((b = binding_of(q->id))) {
            unbind(b);
            counts.released++;
        } else {
            r->status = -ENOENT;
        }
        return;
    default:
        return;
    }
}

static bool serve(int sock, uint32_t client)
{
    uint8_t in[HW_HELPER_REQUEST + 1], out[HW_HELPER_REPLY];
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {in, sizeof(in)};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
    ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    int fd = -1;
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    struct hw_helper_request q;
    struct hw_helper_reply r = {0};
    bool good = n > 0 && hw_helper_request_decode(in, (size_t)n, &q) == 0;
    if (good) {
        r.type = q.type;
        r.seq = q.seq;
        pthread_mutex_lock(&mu);
        answer(client, &q, fd, &r);
        pthread_mutex_unlock(&mu);
        if (r.status && !*r.text)
            snprintf(r.text, sizeof(r.text), "no");
        hw_helper_reply_encode(out, &r);
        good = send(sock, out, sizeof(out), MSG_NOSIGNAL) == (ssize_t)sizeof(out);
    }
    if (fd >= 0)
        close(fd);
    return good;
}

static void gone(uint32_t client)
{
    pthread_mutex_lock(&mu);
    for (unsigned i = 0; i < BINDINGS; i++)
        if (bindings[i].live && bindings[i].client == client)
            unbind(&bindings[i]);
    pthread_mutex_unlock(&mu);
}

static void *daemon_thread(void *arg)
{
    (void)arg;
    struct pollfd p[2 + CLIENTS] = {{.fd = stop_pipe[0], .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    for (unsigned i = 2; i < 2 + CLIENTS; i++)
        p[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    while (poll(p, 2 + CLIENTS, -1) >= 0 && !p[0].revents) {
        for (unsigned i = 2; i < 2 + CLIENTS && p[1].revents; i++)
            if (p[i].fd < 0) {
                p[i].fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                p[i].revents = 0;
                break;
            }
        for (unsigned i = 2; i < 2 + CLIENTS; i++)
            if (p[i].fd >= 0 && p[i].revents && !serve(p[i].fd, i)) {
                close(p[i].fd);
                p[i].fd = -1;
                gone(i);
            }
    }
    for (unsigned i = 2; i < 2 + CLIENTS; i++)
        if (p[i].fd >= 0) {
            gone(i);
            close(p[i].fd);
        }
    return NULL;
}

void df_start(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    unlink(path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&a, sizeof(a)) || listen(listener, 8) || pipe(stop_pipe) ||
        pthread_create(&thread, NULL, daemon_thread, NULL)) {
        perror("a helper for tests");
        exit(1);
    }
}

void df_stop(void)
{
    (void)!write(stop_pipe[1], "", 1);
    pthread_join(thread, NULL);
    close(stop_pipe[0]);
    close(stop_pipe[1]);
    close(listener);
}
