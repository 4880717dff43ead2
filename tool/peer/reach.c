/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/peer/reach.h"

#include "net/sysfs.h"
#include "sandbox/move/move.h"

#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

#define BULK      (128u << 10)
#define MESSAGE   (TP_TOKEN + BULK)
#define MAX_CONNS 256 /* TP_MAX_NICS of one node times TP_MAX_NICS of the other */
#define STEP_MS   50

uint64_t reach_wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void reach_to_addr(const struct tp_addr *a, union hw_addr *out)
{
    memset(out, 0, sizeof *out);
    if (a->family == 4) {
        out->in.sin_family = AF_INET;
        memcpy(&out->in.sin_addr, a->byte, 4);
    } else {
        out->in6.sin6_family = AF_INET6;
        memcpy(&out->in6.sin6_addr, a->byte, 16);
    }
}

/* Returns the index of the RoCE v2 entry with this GID in the table of a device's port, or -1. */
static int look_up_gid(int root, const char *dev, const char *port, const char *gid)
{
    struct hw_names l;
    int found = -1;
    if (hw_root_list(root, &l, "sys/class/infiniband/%s/ports/%s/gids", dev, port) == 0)
        for (size_t i = 0; i < l.n && found < 0; i++) {
            char text[64], type[32];
            uint64_t index;
            if (hw_root_text(root, text, sizeof text, "sys/class/infiniband/%s/ports/%s/gids/%s", dev, port,
                             l.name[i]) > 0 &&
                strcmp(text, gid) == 0 && hw_text_u64(l.name[i], &index) == 0 && index <= UINT16_MAX &&
                hw_root_text(root, type, sizeof type, "sys/class/infiniband/%s/ports/%s/gid_attrs/types/%s", dev, port,
                             l.name[i]) > 0 &&
                strcmp(type, "RoCE v2") == 0)
                found = (int)index;
        }
    hw_names_free(&l);
    return found;
}

/* Finds the RDMA device that has a RoCE v2 GID for the NIC's address, and sets rdma and gid. */
static void find_gid(int root, struct tp_fact_nic *n)
{
    uint8_t b[16] = {[10] = 0xff, [11] = 0xff};
    char gid[40], *at = gid;
    struct hw_names devs = {0}, ports = {0};
    memcpy(n->addr.family == 4 ? b + 12 : b, n->addr.byte, n->addr.family == 4 ? 4 : 16);
    for (int i = 0; i < 16; i += 2)
        at += snprintf(at, 6, "%s%02x%02x", i ? ":" : "", b[i], b[i + 1]);
    if (hw_root_list(root, &devs, "sys/class/infiniband") < 0)
        devs.n = 0;
    for (size_t i = 0; i < devs.n && !n->rdma[0]; i++) {
        if (!tp_name_ok(devs.name[i]) || strlen(devs.name[i]) >= sizeof n->rdma ||
            hw_root_list(root, &ports, "sys/class/infiniband/%s/ports", devs.name[i]) < 0)
            ports.n = 0;
        for (size_t k = 0; k < ports.n && !n->rdma[0]; k++) {
            int index = look_up_gid(root, devs.name[i], ports.name[k], gid);
            if (index >= 0) {
                snprintf(n->rdma, sizeof n->rdma, "%s", devs.name[i]);
                n->gid = (uint16_t)index;
            }
        }
        hw_names_free(&ports);
        ports = (struct hw_names){0};
    }
    hw_names_free(&devs);
}

int reach_facts(int root, struct tp_facts *f)
{
    struct hw_nic nics[HW_NIC_MAX];
    struct utsname u;
    char id[64] = "";
    *f = (struct tp_facts){0};
    snprintf(f->hawser, sizeof f->hawser, "%s", hawser_version());
    if (uname(&u) == 0)
        snprintf(f->kernel, sizeof f->kernel, "%.*s", (int)sizeof f->kernel - 1, u.release);
    /* The boot ID is hashed, so that the peer can compare the hash but does not learn the ID. Without a boot ID, a
     * random value matches no other node. */
    if (hw_root_text(root, id, sizeof id, "proc/sys/kernel/random/boot_id") < 0)
        randombytes_buf(f->boot, sizeof f->boot);
    else
        crypto_generichash(f->boot, sizeof f->boot, (const uint8_t *)id, strlen(id), NULL, 0);
    int n = hw_nics_list(nics, HW_NIC_MAX, true);
    if (n < 0)
        return n;
    for (int i = 0; i < n && f->n_nics < TP_MAX_NICS; i++) {
        if (nics[i].loopback || !tp_name_ok(nics[i].name))
            continue;
        struct tp_fact_nic *o = &f->nic[f->n_nics++];
        uint64_t v;
        memcpy(o->nic, nics[i].name, sizeof o->nic);
        o->prefix = (uint16_t)nics[i].prefix;
        o->addr.family = nics[i].addr.sa.sa_family == AF_INET6 ? 6 : 4;
        if (o->addr.family == 6)
            memcpy(o->addr.byte, &nics[i].addr.in6.sin6_addr, 16);
        else
            memcpy(o->addr.byte, &nics[i].addr.in.sin_addr, 4);
        if (hw_root_u64(root, &v, "sys/class/net/%s/mtu", o->nic) == 0 && v <= UINT32_MAX)
            o->mtu = (uint32_t)v;
        if (hw_root_u64(root, &v, "sys/class/net/%s/speed", o->nic) == 0 && v < UINT32_MAX)
            o->speed = (uint32_t)v; /* 4294967295 is -1, which means unknown */
        find_gid(root, o);
    }
    return 0;
}

struct contained {
    int root;
    struct tp_facts *f;
};

static int add_contained(const struct sb_taken *t, void *arg)
{
    const struct contained *c = arg;
    struct tp_facts *f = c->f;
    bool v4 = t->family == AF_INET,
         local = !v4 && t->addr[0] == 0xfe; /* skip IPv6 addresses that are link-local or site-local */
    for (uint32_t i = 0; i < f->n_nics; i++)
        local |= !f->nic[i].contained &&
                 strcmp(f->nic[i].nic, t->nic) == 0; /* skip if this node has a new NIC of that name */
    if (local || !tp_name_ok(t->nic) || f->n_nics == TP_MAX_NICS)
        return 0;
    struct tp_fact_nic *o = &f->nic[f->n_nics++];
    *o = (struct tp_fact_nic){.addr.family = v4 ? 4 : 6, .prefix = (uint16_t)t->prefix, .mtu = t->mtu, .contained = 1};
    memcpy(o->nic, t->nic, sizeof o->nic);
    memcpy(o->addr.byte, t->addr, v4 ? 4 : 16);
    find_gid(c->root, o);
    return 0;
}

void reach_contained(int root, struct tp_facts *f)
{
    /* without permission to read the journals, no NICs are added */
    sb_taken(NULL, add_contained, &(struct contained){root, f});
}

bool reach_same_subnet(const struct tp_fact_nic *n, const struct tp_addr *a)
{
    struct hw_nic nic = {.prefix = n->prefix};
    union hw_addr to;
    reach_to_addr(&n->addr, &nic.addr);
    reach_to_addr(a, &to);
    return hw_nic_reaches(&nic, &to) && !hw_addr_same_host(&nic.addr, &to);
}

bool reach_is_rail(const struct tp_fact_nic *n)
{
    return n->prefix >= (n->addr.family == 6 ? 127 : 31);
}

bool reach_may(const struct tp_fact_nic *n, const struct tp_addr *a)
{
    union hw_addr from, to;
    if (reach_same_subnet(n, a))
        return true;
    reach_to_addr(&n->addr, &from);
    reach_to_addr(a, &to);
    bool own = hw_addr_is_loopback(&to) || (a->family == 4 && (a->byte[0] >= 224 || a->byte[0] == 0)) ||
               (a->family == 4 && a->byte[0] == 169 && a->byte[1] == 254) ||
               (a->family == 6 && (a->byte[0] >= 0xfe || (a->byte[0] == 0 && a->byte[1] == 0)));
    return reach_is_rail(n) && n->addr.family == a->family && !own && !hw_addr_same_host(&from, &to);
}

/* Starts to connect from n to (a, port), bound to the NIC if the kernel permits it. Returns the socket or a negative
 * errno. */
static int start_connect(const struct tp_fact_nic *n, const struct tp_addr *a, uint16_t port)
{
    union hw_addr from, to;
    reach_to_addr(&n->addr, &from);
    reach_to_addr(a, &to);
    hw_addr_set_port(&to, port);
    int fd = socket(from.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* like the library's own connections; needs no privilege since Linux 5.7, and a failure is ignored */
    (void)setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, n->nic, (socklen_t)strnlen(n->nic, sizeof n->nic));
    if (bind(fd, &from.sa, hw_addr_len(&from)) == 0 &&
        (connect(fd, &to.sa, hw_addr_len(&to)) == 0 || errno == EINPROGRESS))
        return fd;
    int rc = -errno;
    hw_close(&fd);
    return rc;
}

/* One connection of a test. Both sides send the same amount: a token, then BULK zeros. The listener sends second,
 * and its token is the complement, so that an echo is not a valid answer. */
struct conn {
    int fd; /* -1 once done */
    uint8_t nic, addr;
    bool listens, reached;
    uint32_t out, in; /* bytes sent and received so far */
};

static void token_of(const struct tp_reach *q, bool listener, uint8_t out[TP_TOKEN])
{
    for (int i = 0; i < TP_TOKEN; i++)
        out[i] = listener ? (uint8_t)~q->token[i] : q->token[i];
}

/* Returns how many bytes this side may send at this point. The listener sends its token after it has received the
 * peer's token, and BULK zeros after it has received the peer's zeros, so that the arrival of the listener's zeros
 * proves both directions. */
static uint32_t count_sendable(const struct conn *c)
{
    if (!c->listens || c->in == MESSAGE)
        return MESSAGE;
    return c->reached ? TP_TOKEN : 0;
}

/* Sends and receives without blocking. Returns false when the exchange is complete or has failed. */
static bool advance_reach_conn(struct conn *c, const struct tp_reach *q)
{
    uint8_t buf[16384], token[TP_TOKEN];
    for (;;) {
        /* read only the token at first; the bytes after the token are not checked */
        size_t want = c->in < TP_TOKEN ? TP_TOKEN - c->in : HW_MIN(sizeof buf, (size_t)(MESSAGE - c->in));
        ssize_t n = want ? recv(c->fd, buf, want, MSG_DONTWAIT) : -1;
        if (n == 0 || (n < 0 && want && errno != EAGAIN && errno != EINTR))
            return false;
        if (n <= 0)
            break;
        if (c->in < TP_TOKEN) {
            token_of(q, !c->listens, token);
            if (sodium_memcmp(buf, token + c->in, (size_t)n) != 0)
                return false;
        }
        c->in += (uint32_t)n;
        c->reached = c->in >= TP_TOKEN;
    }
    while (c->out < count_sendable(c)) {
        memset(buf, 0, sizeof buf);
        if (c->out < TP_TOKEN) {
            token_of(q, c->listens, token);
            memcpy(buf, token + c->out, TP_TOKEN - c->out);
        }
        size_t len = c->out < TP_TOKEN ? TP_TOKEN - c->out : HW_MIN(sizeof buf, (size_t)(MESSAGE - c->out));
        ssize_t n = send(c->fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (n <= 0)
            break;
        c->out += (uint32_t)n;
    }
    return c->in < MESSAGE || c->out < MESSAGE;
}

static short get_poll_events(const struct conn *c)
{
    return (short)(POLLIN | (c->out < count_sendable(c) ? POLLOUT : 0));
}

int reach_try(const struct tp_reach *q, struct tp_facts *f)
{
    HW_AUTO_FREE struct conn *c = calloc(MAX_CONNS, sizeof *c);
    HW_AUTO_FREE struct pollfd *p = calloc(MAX_CONNS, sizeof *p);
    uint64_t deadline = hw_deadline(REACH_MS);
    size_t n = 0, left;
    if (!c || !p)
        return hw_no_memory("%d connections", MAX_CONNS);
    for (uint32_t i = 0; i < f->n_nics; i++)
        for (uint32_t k = 0; k < q->n_addrs && n < MAX_CONNS; k++) {
            if (!reach_may(&f->nic[i], &q->addr[k]))
                continue;
            f->tried[i] |= (uint16_t)(1u << k);
            int fd = start_connect(&f->nic[i], &q->addr[k], q->port);
            if (fd >= 0)
                c[n++] = (struct conn){.fd = fd, .nic = (uint8_t)i, .addr = (uint8_t)k};
        }
    do {
        left = 0;
        for (size_t i = 0; i < n; i++) {
            p[i] = (struct pollfd){.fd = c[i].fd, .events = get_poll_events(&c[i])};
            left += c[i].fd >= 0;
        }
        if (left == 0 || poll(p, n, STEP_MS) < 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (c[i].fd >= 0 && p[i].revents && !advance_reach_conn(&c[i], q))
                hw_close(&c[i].fd);
    } while (left > 0 && hw_now() < deadline);
    for (size_t i = 0; i < n; i++) {
        hw_close(&c[i].fd);
        /* the listener sends only after it has received the same amount, so arrival here proves both directions */
        f->reached[c[i].nic] |= (uint16_t)((unsigned)c[i].reached << c[i].addr);
        f->carried[c[i].nic] |= (uint16_t)((unsigned)(c[i].in == MESSAGE) << c[i].addr);
    }
    return 0;
}

struct reach_listener {
    pthread_t thread;
    struct tp_reach q;
    int fd;
    bool end;
};

static void *listener_main(void *arg)
{
    struct reach_listener *l = arg;
    HW_AUTO_FREE struct conn *c = calloc(MAX_CONNS, sizeof *c);
    HW_AUTO_FREE struct pollfd *p = calloc(MAX_CONNS + 1, sizeof *p);
    size_t n = 0;
    while (c && p && !__atomic_load_n(&l->end, __ATOMIC_RELAXED)) {
        p[0] = (struct pollfd){.fd = n < MAX_CONNS ? l->fd : -1, .events = POLLIN};
        for (size_t i = 0; i < n; i++)
            p[i + 1] = (struct pollfd){.fd = c[i].fd, .events = get_poll_events(&c[i])};
        if (poll(p, n + 1, STEP_MS) < 0)
            continue;
        /* An ended connection remains in the table. The table has an entry for each connection that the peer may make,
         * and stray connections may use up entries. */
        for (size_t i = 0; i < n; i++)
            if (c[i].fd >= 0 && p[i + 1].revents && !advance_reach_conn(&c[i], &l->q))
                hw_close(&c[i].fd);
        int fd = p[0].revents ? accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
        if (fd >= 0)
            c[n++] = (struct conn){.fd = fd, .listens = true};
    }
    for (size_t i = 0; i < n; i++)
        hw_close(&c[i].fd);
    return NULL;
}

int reach_listen(uint16_t port, struct tp_reach *q, struct reach_listener **out)
{
    union hw_addr a = {.in6 = {.sin6_family = AF_INET6}};
    socklen_t len = sizeof a;
    HW_AUTO_CLOSE int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    } else {
        a.in = (struct sockaddr_in){.sin_family = AF_INET};
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    hw_addr_set_port(&a, port);
    HW_AUTO_FREE struct reach_listener *l = calloc(1, sizeof *l);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (!l)
        return hw_no_memory("a listener");
    if (fd < 0 || bind(fd, &a.sa, hw_addr_len(&a)) < 0 || listen(fd, MAX_CONNS) < 0 || getsockname(fd, &a.sa, &len) < 0)
        return port ? hw_fail(-errno, "listening on port %u for the peer's connections: %s", port, strerror(errno))
                    : hw_fail(-errno, "listening for the peer's connections: %s", strerror(errno));
    q->port = hw_addr_port(&a);
    randombytes_buf(q->token, sizeof q->token);
    *l = (struct reach_listener){.q = *q, .fd = fd};
    int e = pthread_create(&l->thread, NULL, listener_main, l);
    if (e)
        return hw_fail(-e, "starting a listening thread: %s", strerror(e));
    *out = l;
    l = NULL;
    (void)hw_take_fd(&fd);
    return 0;
}

void reach_listen_end(struct reach_listener *l)
{
    if (!l)
        return;
    __atomic_store_n(&l->end, true, __ATOMIC_RELAXED);
    pthread_join(l->thread, NULL);
    hw_close(&l->fd);
    free(l);
}

/* Reads the result of a connect() after poll(), and the path MTU if connected. */
static void read_connect_result(struct reach_knock *k, int fd)
{
    int err = 0, mtu = 0;
    socklen_t len = sizeof err;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
    k->result = -err;
    len = sizeof mtu;
    bool v6 = k->from->addr.family == 6;
    if (err == 0 && getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &len) == 0 && mtu > 0)
        k->mtu = (uint32_t)mtu;
}

void reach_knock(struct reach_knock *k, size_t n, uint16_t port, int timeout_ms)
{
    struct pollfd *p = calloc(n ? n : 1, sizeof *p);
    uint64_t deadline = hw_deadline(timeout_ms);
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        int fd = p ? start_connect(k[i].from, k[i].to, port) : -ENOMEM;
        k[i].mtu = 0;
        k[i].result = fd < 0 ? fd : -ETIMEDOUT;
        if (p)
            p[i] = (struct pollfd){.fd = fd < 0 ? -1 : fd, .events = POLLOUT};
        left += fd >= 0;
    }
    while (left > 0 && hw_now() < deadline) {
        if (poll(p, n, STEP_MS) < 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (p[i].fd >= 0 && p[i].revents) {
                read_connect_result(&k[i], p[i].fd);
                hw_close(&p[i].fd);
                left--;
            }
    }
    for (size_t i = 0; p && i < n; i++)
        hw_close(&p[i].fd);
    free(p);
}
