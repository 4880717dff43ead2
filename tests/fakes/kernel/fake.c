/* SPDX-License-Identifier: Apache-2.0 */
#include "fake.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct fake *fake_new(void)
{
    struct fake *f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (f == MAP_FAILED)
        abort();
    memset(f, 0, sizeof(*f));
    for (int i = 0; i < 2; i++) {
        struct fake_nic *n = &f->nic[i];
        n->ifindex = 11 + i;
        snprintf(n->name, sizeof(n->name), "eth%d", i + 1);
        n->mtu = 1500;
        driver_init(&n->driver, LIKE_PLAIN);
        for (uint32_t k = 0; k < FAKE_TABLE; k++)
            n->table[k] = k % FAKE_QUEUES;
    }
    return f;
}

void fake_free(struct fake *f)
{
    munmap(f, sizeof(*f));
}

static void wrong(struct fake *f, const char *what, const struct fake_nic *n, unsigned q)
{
    if (!f->wrong[0])
        snprintf(f->wrong, sizeof(f->wrong), "%s (%s, queue %u, call %u)", what, n->name, q, f->calls);
}

bool fake_strikes(struct fake *f, bool before)
{
    if (before)
        f->calls++;
    if (f->at == 0 || f->calls != f->at)
        return false;
    bool hit = before ? f->how == FAKE_BEFORE || f->how == FAKE_DIE_BEFORE
                      : f->how == FAKE_BEHIND || f->how == FAKE_DIE_BEHIND;
    if (!hit)
        return false;
    f->struck = true;
    if (f->how == FAKE_DIE_BEFORE || f->how == FAKE_DIE_BEHIND)
        raise(SIGKILL);
    return true;
}

#define BEFORE(f)              \
    if (fake_strikes(f, true)) \
    return hw_fail(-EIO, "call %u was made to fail", (f)->calls)
#define BEHIND(f)               \
    if (fake_strikes(f, false)) \
    return hw_fail(-EIO, "call %u was made to fail behind its effect", (f)->calls)

static struct fake_nic *nic_of(struct fake *f, int ifindex)
{
    for (int i = 0; i < 2; i++)
        if (f->nic[i].ifindex == ifindex && !f->nic[i].gone)
            return &f->nic[i];
    hw_fail(-ENODEV, "device %d is gone", ifindex);
    return NULL;
}

static uint32_t bound_to(const struct fake *f, const struct fake_nic *n, unsigned q)
{
    for (int i = 0; i < FAKE_BINDS; i++)
        for (unsigned k = 0; f->bind[i].pid && f->bind[i].ifindex == n->ifindex && k < f->bind[i].n; k++)
            if (f->bind[i].queue[k] == q)
                return f->bind[i].id;
    return 0;
}

static bool in_rss(const struct fake_nic *n, unsigned q)
{
    for (int i = 0; i < FAKE_TABLE; i++)
        if (n->table[i] == q)
            return true;
    return false;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static void link_of(const struct fake_nic *n, struct hd_link *out)
{
    *out = (struct hd_link){.ifindex = n->ifindex, .up = !n->down, .rx_queues = FAKE_QUEUES, .mtu = n->mtu};
    memcpy(out->name, n->name, sizeof(out->name));
}

static int f_link(void *arg, const char *name, struct hd_link *out)
{
    struct fake *f = arg;
    BEFORE(f);
    for (int i = 0; i < 2; i++) {
        if (strcmp(f->nic[i].name, name) != 0 || f->nic[i].gone)
            continue;
        link_of(&f->nic[i], out);
        return 0;
    }
    return hw_fail(-ENODEV, "there is no NIC %s", name);
}

static int f_link_at(void *arg, int ifindex, struct hd_link *out)
{
    struct fake *f = arg;
    BEFORE(f);
    const struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    link_of(n, out);
    return 0;
}

static int f_queues(void *arg, int ifindex, struct hd_queue *out, unsigned cap, unsigned *count)
{
    struct fake *f = arg;
    *count = 0;
    BEFORE(f);
    const struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    memset(out, 0, cap * sizeof(*out));
    for (unsigned q = 0; q < FAKE_QUEUES && !n->down; q++) {
        uint32_t id = bound_to(f, n, q);
        out[q] = id ? (struct hd_queue){HD_DMABUF, id} : (struct hd_queue){n->foreign[q], 0};
        *count = q + 1;
    }
    return 0;
}

static int f_split_get(void *arg, int ifindex, struct hd_split *out)
{
    struct fake *f = arg;
    BEFORE(f);
    const struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    driver_report(&n->driver, out);
    return 0;
}

static int f_split_set(void *arg, int ifindex, const struct hd_split *s, bool *changed)
{
    struct fake *f = arg;
    bool bound = false;
    BEFORE(f);
    struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    for (unsigned q = 0; q < FAKE_QUEUES; q++)
        bound |= bound_to(f, n, q) || n->foreign[q] == HD_DMABUF;
    int rc = driver_split(&n->driver, s, bound, changed);
    if (rc)
        return rc;
    BEHIND(f);
    return 0;
}

static int f_gro_hw_get(void *arg, int ifindex, enum hd_gro_hw *out)
{
    struct fake *f = arg;
    *out = HD_GRO_NONE;
    BEFORE(f);
    const struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    *out = driver_gro(&n->driver);
    return 0;
}

static int f_gro_hw_set(void *arg, int ifindex, bool on)
{
    struct fake *f = arg;
    BEFORE(f);
    struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    driver_gro_set(&n->driver, on);
    BEHIND(f);
    return 0;
}

static int f_ntuple_get(void *arg, int ifindex, bool *on)
{
    struct fake *f = arg;
    BEFORE(f);
    const struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    *on = n->ntuple;
    return 0;
}

static int f_ntuple_set(void *arg, int ifindex, bool on)
{
    struct fake *f = arg;
    BEFORE(f);
    struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    for (int i = 0; i < FAKE_RULES && !on; i++)
        n->rule[i].used = false; /* as drivers do */
    n->ntuple = on;
    BEHIND(f);
    return 0;
}

static int f_rss_get(void *arg, int ifindex, struct hd_rss *out)
{
    struct fake *f = arg;
    *out = (struct hd_rss){0};
    BEFORE(f);
    const struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    if (n->no_rss)
        return hw_fail(-EOPNOTSUPP, "%s has no RSS table", n->name);
    out->n = FAKE_TABLE;
    out->queue = malloc(sizeof(n->table));
    if (!out->queue)
        abort();
    memcpy(out->queue, n->table, sizeof(n->table));
    out->others = n->contexts;
    return 0;
}

static int f_rss_set(void *arg, int ifindex, const uint32_t *queue, uint32_t count)
{
    struct fake *f = arg;
    BEFORE(f);
    struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    if (count != FAKE_TABLE)
        return hw_fail(-EINVAL, "a table of %u entries", count);
    for (uint32_t i = 0; i < count; i++) {
        if (queue[i] >= FAKE_QUEUES)
            return hw_fail(-EINVAL, "queue %u in the table", queue[i]);
        if (bound_to(f, n, queue[i]) || (n->foreign[queue[i]] && !in_rss(n, queue[i])))
            wrong(f, "a bound queue is put into RSS", n, queue[i]);
    }
    memcpy(n->table, queue, sizeof(n->table));
    BEHIND(f);
    return 0;
}

static int f_rules(void *arg, int ifindex, struct hd_rule **out, unsigned *count)
{
    struct fake *f = arg;
    *out = NULL;
    *count = 0;
    BEFORE(f);
    const struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    *out = calloc(FAKE_RULES, sizeof(**out));
    if (!*out)
        abort();
    for (int i = 0; i < FAKE_RULES; i++)
        if (n->rule[i].used)
            (*out)[(*count)++] = n->rule[i].rule;
    return 0;
}

static int f_rule_at(void *arg, int ifindex, uint32_t loc, struct hd_rule *out)
{
    struct fake *f = arg;
    BEFORE(f);
    const struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    if (loc >= FAKE_RULES || !n->rule[loc].used)
        return hw_fail(-ENOENT, "no rule at %u", loc);
    *out = n->rule[loc].rule;
    return 0;
}

static int f_rule_add(void *arg, int ifindex, struct hd_rule *r)
{
    struct fake *f = arg;
    BEFORE(f);
    struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    if (!n->ntuple)
        return hw_fail(-EOPNOTSUPP, "flow rules are off");
    if (!bound_to(f, n, r->queue))
        wrong(f, "a rule to a queue that is not bound", n, r->queue);
    uint32_t at = FAKE_RULES;
    while (at > 0 && n->rule[at - 1].used)
        at--;
    if (at == 0)
        return hw_fail(-ENOSPC, "the table of %d rules is full", FAKE_RULES);
    r->loc = at - 1;
    n->rule[at - 1] = (struct fake_rule){.used = true, .rule = *r};
    BEHIND(f);
    return 0;
}

static int f_rule_del(void *arg, int ifindex, uint32_t loc)
{
    struct fake *f = arg;
    BEFORE(f);
    struct fake_nic *n = nic_of(f, ifindex);
    if (!n)
        return -ENODEV;
    if (loc >= FAKE_RULES || !n->rule[loc].used)
        return hw_fail(-ENOENT, "no rule at %u", loc);
    if (n->rule[loc].foreign)
        wrong(f, "somebody else's rule is removed", n, n->rule[loc].rule.queue);
    n->rule[loc].used = false;
    BEHIND(f);
    return 0;
}

static int f_bind(void *arg, const struct hd_bind_what *what, int *sock, uint32_t *id)
{
    struct fake *f = arg;
    const uint32_t *queue = what->queue;
    unsigned count = what->n;
    *sock = -1;
    BEFORE(f);
    struct fake_nic *n = nic_of(f, what->ifindex);
    if (!n)
        return -ENODEV;
    if (count == 0 && n->no_tx)
        return hw_fail(-EOPNOTSUPP, "%s cannot send from device memory", n->name);
    int rc = count ? driver_bind(&n->driver, what->page) : 0;
    if (rc)
        return rc;
    for (unsigned i = 0; i < count; i++) {
        if (queue[i] >= FAKE_QUEUES || bound_to(f, n, queue[i]) || n->foreign[queue[i]])
            return hw_fail(-EEXIST, "queue %u is bound, or not there", queue[i]);
        if (in_rss(n, queue[i]))
            wrong(f, "a queue of RSS is bound", n, queue[i]);
        for (int k = 0; k < FAKE_RULES; k++)
            if (n->rule[k].used && n->rule[k].rule.queue == queue[i])
                wrong(f, "a queue that a rule leads to is bound", n, queue[i]);
    }
    struct fake_bind *b = NULL;
    for (int i = 0; i < FAKE_BINDS && !b; i++)
        if (!f->bind[i].pid)
            b = &f->bind[i];
    if (!b)
        return hw_fail(-ENOMEM, "no room for a binding");
    *b = (struct fake_bind){.pid = getpid(),
                            .fd = open("/dev/null", O_RDONLY | O_CLOEXEC),
                            .ifindex = what->ifindex,
                            .id = ++f->last_id,
                            .n = count,
                            .page = what->page};
    memcpy(b->queue, queue, count * sizeof(*queue));
    if (fake_strikes(f, false)) { /* as if the binding's socket had been closed */
        close(b->fd);
        b->pid = 0;
        return hw_fail(-EIO, "call %u was made to fail behind its effect", f->calls);
    }
    *sock = b->fd;
    *id = b->id;
    return 0;
}

static void f_unbind(void *arg, int *sock)
{
    struct fake *f = arg;
    (void)fake_strikes(f, true);
    for (int i = 0; i < FAKE_BINDS && *sock >= 0; i++)
        if (f->bind[i].pid == getpid() && f->bind[i].fd == *sock)
            f->bind[i].pid = 0;
    hw_close(sock);
    (void)fake_strikes(f, false);
}

static int f_dmabuf_size(void *arg, int fd, uint64_t *size)
{
    struct fake *f = arg;
    struct stat st;
    BEFORE(f);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return hw_fail(-EBADF, "descriptor %d is no dma-buf", fd);
    *size = (uint64_t)st.st_size;
    return 0;
}

static int f_connection(void *arg, int fd, struct hd_conn *c)
{
    struct fake *f = arg;
    uint32_t port = 0;
    BEFORE(f);
    memset(c, 0, sizeof(*c));
    if (pread(fd, &port, sizeof(port), 0) != sizeof(port))
        return hw_fail(-EINVAL, "descriptor %d is no TCP socket", fd);
    if (port & 1u << 16) { /* some ports get IPv6 addresses */
        c->local.in6.sin6_family = c->remote.in6.sin6_family = AF_INET6;
        inet_pton(AF_INET6, "fd00::1", &c->local.in6.sin6_addr);
        inet_pton(AF_INET6, "fd00::2", &c->remote.in6.sin6_addr);
    } else {
        c->local.in.sin_family = c->remote.in.sin_family = AF_INET;
        c->local.in.sin_addr.s_addr = htonl(0x0a000001);
        /* port 0: both ends are on this machine */
        c->remote.in.sin_addr.s_addr = htonl(port ? 0x0a000002 : 0x0a000001);
    }
    hw_addr_set_port(&c->local, 5000);
    hw_addr_set_port(&c->remote, (uint16_t)port);
    c->cookie = 1000 + port;
    return 0;
}

static int f_alive(void *arg, int ifindex, const struct hd_conn *c)
{
    struct fake *f = arg;
    BEFORE(f);
    (void)ifindex;
    if (f->blind || (f->ended && hw_addr_port(&c->remote) == f->ended))
        return 0;
    return (c->cookie - 1000) % 65536 == hw_addr_port(&c->remote);
}

static int f_watch(void *arg, bool on)
{
    struct fake *f = arg;
    BEFORE(f);
    f->watched = on;
    return 0;
}

static unsigned f_ended(void *arg, uint64_t *cookie, unsigned cap, bool *lost)
{
    struct fake *f = arg;
    unsigned n = f->watched && f->report && !f->lose && cap;
    *lost = f->lose;
    if (n)
        *cookie = 1000 + f->report;
    f->report = 0;
    f->lose = false;
    return n;
}

static int f_port_hold(void *arg, const union hw_addr *local, int *sock)
{
    struct fake *f = arg;
    *sock = -1;
    BEFORE(f);
    (void)local;
    *sock = open("/dev/null", O_RDONLY | O_CLOEXEC);
    f->ports++;
    return 0;
}

static void f_port_free(void *arg, int *sock)
{
    struct fake *f = arg;
    f->ports--;
    hw_close(sock);
}

static int f_same_netns(void *arg, int fd)
{
    const struct fake *f = arg;
    (void)fd;
    return f->foreign_ns ? hw_fail(-EXDEV, "it belongs to another network namespace") : 0;
}

void fake_kernel(struct fake *f, struct hd_kernel *k)
{
    *k = (struct hd_kernel){f,
                            f_link,
                            f_link_at,
                            f_queues,
                            f_split_get,
                            f_split_set,
                            f_gro_hw_get,
                            f_gro_hw_set,
                            f_ntuple_get,
                            f_ntuple_set,
                            f_rss_get,
                            f_rss_set,
                            f_rules,
                            f_rule_at,
                            f_rule_add,
                            f_rule_del,
                            f_bind,
                            f_unbind,
                            f_dmabuf_size,
                            f_connection,
                            f_same_netns,
                            f_alive,
                            f_watch,
                            f_ended,
                            f_port_hold,
                            f_port_free,
                            -1};
}

/* ---- this machine's sockets ---------------------------------------------------------------------- */

static struct hd_kernel real;
int fake_ifindex = 1;

static int r_connection(void *arg, int fd, struct hd_conn *out)
{
    (void)arg;
    return real.connection(real.arg, fd, out);
}
static int r_same_netns(void *arg, int fd)
{
    (void)arg;
    return real.same_netns(real.arg, fd);
}
static int r_alive(void *arg, int ifindex, const struct hd_conn *c)
{
    (void)arg;
    (void)ifindex;
    return real.alive(real.arg, fake_ifindex, c);
}
static int r_watch(void *arg, bool on)
{
    (void)arg;
    return real.watch(real.arg, on);
}
static unsigned r_ended(void *arg, uint64_t *cookie, unsigned cap, bool *lost)
{
    (void)arg;
    return real.ended(real.arg, cookie, cap, lost);
}
static int r_port_hold(void *arg, const union hw_addr *local, int *sock)
{
    (void)arg;
    return real.port_hold(real.arg, local, sock);
}
static void r_port_free(void *arg, int *sock)
{
    (void)arg;
    real.port_free(real.arg, sock);
}

int fake_kernel_real_sockets(struct hd_kernel *k)
{
    int rc = hd_kernel_open(&real);
    k->connection = r_connection;
    k->same_netns = r_same_netns;
    k->alive = r_alive;
    k->watch = r_watch;
    k->ended = r_ended;
    k->port_hold = r_port_hold;
    k->port_free = r_port_free;
    k->events = real.events;
    return rc;
}

void fake_reap(struct fake *f, pid_t pid)
{
    for (int i = 0; i < FAKE_BINDS; i++)
        if (f->bind[i].pid == pid)
            f->bind[i].pid = 0;
    f->ports = 0;
}

const char *fake_differs(const struct fake *was, const struct fake *is)
{
    static char text[120];
    for (int i = 0; i < FAKE_BINDS; i++)
        if (is->bind[i].pid)
            return "a binding is left";
    if (is->ports)
        return "a port is held";
    for (int i = 0; i < 2; i++) {
        const struct fake_nic *a = &was->nic[i], *b = &is->nic[i];
        const char *what = NULL;
        struct hd_split then, now;
        driver_report(&a->driver, &then);
        driver_report(&b->driver, &now);
        if (then.split != now.split)
            what = "header split";
        else if (driver_takes_xdp(&a->driver) && !driver_takes_xdp(&b->driver))
            what = "header split, which is configured on and was not,";
        else if (then.thresh != now.thresh)
            what = "hds-thresh";
        else if (then.buf_len != now.buf_len)
            what = "rx-buf-len";
        else if (a->driver.gro != b->driver.gro)
            what = "rx-gro-hw";
        else if (a->ntuple != b->ntuple)
            what = "ntuple";
        else if (memcmp(a->table, b->table, sizeof(a->table)) != 0)
            what = "the RSS table";
        for (int k = 0; k < FAKE_RULES && !what; k++)
            if (a->rule[k].used != b->rule[k].used ||
                (a->rule[k].used && a->rule[k].rule.queue != b->rule[k].rule.queue))
                what = "the flow rules";
        if (what) {
            snprintf(text, sizeof(text), "%s of %s", what, a->name);
            return text;
        }
    }
    return "";
}

int fake_dmabuf(size_t bytes)
{
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        abort();
    return fd;
}

int fake_sock(uint32_t port)
{
    int fd = memfd_create("socket", MFD_CLOEXEC);
    if (fd < 0 || pwrite(fd, &port, sizeof(port), 0) != sizeof(port))
        abort();
    return fd;
}
