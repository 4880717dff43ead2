/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that test normal operation: properties, connections, messages and memory. Also lists all steps. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define KIB (1024u)
#define MIB (1024u * 1024)

static int step_load(struct rank *r)
{
    return net_load(r);
}

static int step_devices(struct rank *r)
{
    int n = -77, again = -77, rc = net_fail(net_devices(r, &n), "devices");
    char missing[256];
    struct props p;

    if (rc)
        return rc;
    if (n < 1 || n > 1024)
        return hw_fail(-ENODEV, "%d devices", n);
    if ((rc = net_fail(net_devices(r, &again), "devices")))
        return rc;
    if (n != again)
        return hw_fail(-EPROTO, "%d devices, and then %d", n, again);
    if (opt.dev >= (uint64_t)n)
        return hw_fail(-ENODEV, "--dev %llu of %d", (unsigned long long)opt.dev, n);
    if ((rc = net_fail(net_props(r, 0, &p), "getProperties")))
        return rc;
    return net_required(missing, sizeof(missing), p.ptr_support);
}

#define WANT(cond, ...)                                          \
    do {                                                         \
        if (!(cond))                                             \
            return hw_fail(-EPROTO, "properties: " __VA_ARGS__); \
    } while (0)

static int check_props(const struct props *p, int dev)
{
    int most = net_version() == 12 ? NCCL_NET_MAX_DEVS_PER_NIC_V12 : NCCL_NET_MAX_DEVS_PER_NIC_V9;

    WANT(p->name && p->name[0], "device %d has no name", dev);
    WANT(!p->pci_path || p->pci_path[0] == '/', "pciPath of %s is '%s'", p->name, p->pci_path);
    WANT(p->ptr_support & NCCL_PTR_HOST, "%s has no support for host memory (%#x)", p->name, (unsigned)p->ptr_support);
    WANT((p->ptr_support & ~(NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF)) == 0, "ptrSupport of %s is %#x", p->name,
         (unsigned)p->ptr_support);
    WANT(p->speed > 0, "speed of %s is %d", p->name, p->speed);
    WANT(p->port >= 0 && p->port < 256, "port of %s is %d", p->name, p->port);
    WANT(p->latency >= 0 && p->latency < 1e6, "latency of %s is %g", p->name, (double)p->latency);
    WANT(p->max_comms > 0, "maxComms of %s is %d", p->name, p->max_comms);
    WANT(p->max_recvs >= 1 && p->max_recvs <= 8, "maxRecvs of %s is %d", p->name, p->max_recvs);
    if (net_version() >= 7)
        WANT(p->device_type >= NCCL_NET_DEVICE_HOST && p->device_type <= NCCL_NET_DEVICE_GIN_GDAKI,
             "netDeviceType of %s is %d", p->name, p->device_type);
    if (net_version() >= 8)
        WANT(p->reg_is_global == 0 || p->reg_is_global == 1, "regIsGlobal of %s is %d", p->name, p->reg_is_global);
    if (net_version() < 9)
        return 0;
    WANT(p->force_flush == 0 || p->force_flush == 1, "forceFlush of %s is %d", p->name, p->force_flush);
    WANT(p->ndevs >= 1 && p->ndevs <= most, "vProps.ndevs of %s is %d", p->name, p->ndevs);
    WANT(p->ndevs > 1 || p->devs[0] == dev, "vProps.devs[0] of %s is %d", p->name, p->devs[0]);
    WANT(p->max_p2p > 0 && p->max_p2p <= NCCL_MAX_NET_SIZE_BYTES, "maxP2pBytes of %s is %zu", p->name, p->max_p2p);
    WANT(p->max_coll > 0 && p->max_coll <= NCCL_MAX_NET_SIZE_BYTES, "maxCollBytes of %s is %zu", p->name, p->max_coll);
    return 0;
}

static int step_properties(struct rank *r)
{
    int n = 0, rc = net_fail(net_devices(r, &n), "devices");
    struct props p, q;

    for (int i = 0; i < n && !rc; i++) {
        if ((rc = net_fail(net_props(r, i, &p), "getProperties")) || (rc = check_props(&p, i)))
            return rc;
        for (int k = 0; k < i; k++) {
            if ((rc = net_fail(net_props(r, k, &q), "getProperties")))
                return rc;
            WANT(strcmp(p.name, q.name) != 0, "devices %d and %d are both named %s", k, i, p.name);
        }
    }
    return rc;
}

/* ---- connections ------------------------------------------------------------------------------ */

static const struct flow_spec short_talk = {
    .what = "a short talk", .n = 24, .depth = 4, .min = 1, .max = 20000, .slack = 64};

/* Only one side calls for 400 ms, and no call may block. Every call gets the handle in the same buffer. */
static int in_order(struct rank *r, bool connect_first)
{
    struct comm *c = comm_new(r, 0);
    int rc = c->sends ? 0 : comm_listen(c);

    if (connect_first && opt.no_alternate)
        return SKIP("--no-alternate");
    if (!rc)
        rc = comm_handle(c);
    if (rc)
        return rc;
    if (c->sends == connect_first) {
        uint64_t end = hw_now() + 400 * HW_MS;
        while (hw_now() < end && !c->c) {
            uint64_t t = hw_now();
            rc = comm_try(c);
            if (rc && rc != -EAGAIN)
                return rc;
            if (hw_now() - t > 300 * HW_MS)
                return hw_fail(-EBUSY, "%s blocks while the other side does nothing", c->sends ? "connect" : "accept");
            nap_ms(5);
        }
        if (c->c && !c->sends)
            return hw_fail(-EPROTO, "accept returned a comm before anybody connected");
    }
    if ((rc = barrier(r)))
        return rc;
    if (!c->c && (rc = comm_link(c)))
        return rc;
    return flow_all(c, &short_talk);
}

static int step_connect_first(struct rank *r)
{
    return in_order(r, true);
}

static int step_accept_first(struct rank *r)
{
    return in_order(r, false);
}

static int step_connect(struct rank *r)
{
    struct comm *c;
    int rc;
    for (int i = 0; i < 4; i++)
        if ((rc = comm_open(r, i % 2, &c)) || (rc = flow_all(c, &short_talk)) || (rc = comm_close(c)))
            return rc;
    return 0;
}

/* Makes four connections, two in each direction, in one thread that calls connect and accept alternately, like NCCL's
 * service thread. */
static int step_connect_alternately(struct rank *r)
{
    struct comm *c[4];
    struct wait w = wait_for("connect and accept, taking turns");
    int rc, left = 4;

    if (opt.no_alternate)
        return SKIP("--no-alternate");
    for (int i = 0; i < 4; i++) {
        c[i] = comm_new(r, i % 2);
        rc = c[i]->sends ? 0 : comm_listen(c[i]);
        if (rc || (rc = comm_handle(c[i])))
            return rc;
    }
    while (left > 0) {
        left = 4;
        for (int i = 0; i < 4; i++) {
            rc = c[i]->c ? 0 : comm_try(c[i]);
            if (rc && rc != -EAGAIN)
                return rc;
            left -= !rc;
        }
        if ((rc = wait_turn(r, &w)))
            return rc;
    }
    for (int i = 0; i < 4; i++)
        if ((rc = flow_all(c[i], &short_talk)))
            return rc;
    return 0;
}

/* ---- messages --------------------------------------------------------------------------------- */

static const size_t all_sizes[] = {0,        1,         8, 127,       128, 4 * KIB - 1, 4 * KIB,      16 * KIB,
                                   64 * KIB, 128 * KIB, 0, 512 * KIB, MIB, 4 * MIB,     16 * MIB + 3, 1};

static int step_sizes(struct rank *r)
{
    struct flow_spec s = {.what = "every size, one at a time",
                          .n = 2 * HW_ARRAY_LEN(all_sizes),
                          .depth = 1,
                          .sizes = all_sizes,
                          .n_sizes = HW_ARRAY_LEN(all_sizes)};
    return exchange(r, &s);
}

static int step_depths(struct rank *r)
{
    static const unsigned depths[] = {4, 8, 16, 32};
    for (size_t i = 0; i < HW_ARRAY_LEN(depths); i++) {
        struct flow_spec s = {.what = "several in flight",
                              .n = 96,
                              .depth = depths[i],
                              .sizes = all_sizes,
                              .n_sizes = HW_ARRAY_LEN(all_sizes) - 3,
                              .slack = 1000};
        int rc = exchange(r, &s);
        if (rc || depths[i] >= depth_of(32))
            return hw_wrap(rc, "depth %u", depths[i]);
    }
    return 0;
}

static int step_large(struct rank *r)
{
    static const size_t sizes[] = {16 * MIB + 3, 4 * MIB};
    struct flow_spec s = {.what = "large ones", .n = 12, .depth = 8, .sizes = sizes, .n_sizes = 2};
    return exchange(r, &s);
}

static int step_many_small(struct rank *r)
{
    struct flow_spec s = {
        .what = "many small ones", .n = 20000, .depth = 32, .min = 0, .max = 256, .slack = 128, .hint = true};
    return exchange(r, &s);
}

static int step_zeros(struct rank *r)
{
    struct flow_spec s = {.what = "nothing but empty ones", .n = 200, .depth = 8, .max = 0, .slack = 4096};
    return exchange(r, &s);
}

static int step_maxima(struct rank *r)
{
    struct flow_spec s = {
        .what = "receives larger than messages", .n = 200, .depth = 8, .min = 0, .max = 70000, .slack = 3 * MIB};
    return exchange(r, &s);
}

static int step_hint(struct rank *r)
{
    struct flow_spec s = {.what = "optional completion", .n = 300, .depth = 8, .min = 8, .max = 130000, .hint = true};
    return opt.no_hint ? SKIP("--no-hint") : exchange(r, &s);
}

/* One side posts as many messages as fit before the other side begins. */
static int posted_by(struct rank *r, bool sender, const struct flow_spec *s, unsigned late_ms)
{
    struct comm *c;
    struct flow f;
    struct wait w = wait_for(s->what);
    int rc = comm_open(r, 0, &c), n = 1;

    if (rc || (rc = flow_open(&f, c, s)))
        return rc;
    if (c->sends == sender) {
        for (unsigned i = 0; i < 50 && f.posted < f.s.depth; i++) { /* isend may refuse until the receiver posts */
            if ((n = flow_post(&f)) < 0)
                return n;
            if (!n)
                nap_ms(2);
        }
        if (!sender && (n = flow_test(&f)))
            return n < 0 ? n : hw_fail(-EPROTO, "a receive is done before anything was sent");
        if ((rc = barrier(r)))
            return rc;
        for (uint64_t end = hw_now() + late_ms * HW_MS; hw_now() < end; nap_ms(1))
            if (f.done < f.posted && (n = flow_test(&f)) < 0) /* NCCL continues to test */
                return n;
    } else {
        if ((rc = barrier(r)))
            return rc;
        nap_ms(late_ms);
    }
    while (f.done < f.s.n) {
        if ((n = flow_step(&f)) < 0)
            return n;
        if (n)
            w = wait_for(s->what);
        else if ((rc = wait_turn(r, &w)))
            return rc;
    }
    return flow_close(&f);
}

static int step_receive_first(struct rank *r)
{
    struct flow_spec s = {.what = "receives posted first", .n = 64, .depth = 8, .min = 0, .max = 300000, .slack = 99};
    return posted_by(r, false, &s, 200);
}

static int step_send_first(struct rank *r)
{
    struct flow_spec s = {.what = "sends posted first", .n = 64, .depth = 8, .min = 0, .max = 300000, .slack = 99};
    return posted_by(r, true, &s, 200);
}

static int step_slow_receiver(struct rank *r)
{
    static const size_t sizes[] = {MIB, 0, 4 * MIB, 100};
    struct flow_spec s = {.what = "a slow receiver", .n = 32, .depth = 8, .sizes = sizes, .n_sizes = 4, .slack = 1};
    return posted_by(r, true, &s, (unsigned)opt.slow_ms);
}

/* ---- memory ----------------------------------------------------------------------------------- */

struct registrar {
    struct comm *c;
    atomic_bool stop;
    unsigned n;
    int rc;
    char why[HW_ERR_TEXT];
};

#define REG_SPACE (4 * MIB)

/* Registers memory like NCCL's service thread, while another thread transfers messages. */
static void *register_on(void *arg)
{
    struct registrar *g = arg;
    struct rank *r = g->c->r;
    uint8_t *space = malloc(REG_SPACE);
    void *mh[16];

    for (unsigned i = 0; space && !g->rc && (!atomic_load(&g->stop) || i < 20); i++) {
        unsigned k = 0;
        for (; k < 16 && !g->rc; k++) {
            size_t at = (i * 4099 + k * 65537) % (REG_SPACE / 2);
            at = at / HW_MAX(opt.align, 1ull) * HW_MAX(opt.align, 1ull);
            g->rc = net_fail(net_reg(r, g->c->c, space + at, 1 + (k * 131071) % (REG_SPACE / 2), &mh[k]), "regMr");
        }
        for (unsigned m = 0; m < k && !g->rc; m++, g->n++)
            g->rc = net_fail(net_dereg(r, g->c->c, mh[(m * 7) % 16]), "deregMr");
    }
    snprintf(g->why, sizeof(g->why), "%s", hw_error());
    free(space);
    return NULL;
}

static int step_register(struct rank *r)
{
    struct flow_spec s = {.what = "messages while memory is registered", .n = 300, .depth = 8, .min = 0, .max = 100000};
    struct flow_spec each = {
        .what = "messages in memory of their own", .n = 100, .depth = 4, .min = 0, .max = 50000, .register_each = true};
    struct registrar g = {0};
    struct comm *c;
    pthread_t t;
    int rc = comm_open(r, 0, &c);

    if (rc)
        return rc;
    g.c = c;
    if (pthread_create(&t, NULL, register_on, &g))
        return hw_fail(-EAGAIN, "no thread");
    rc = flow_all(c, &s);
    atomic_store(&g.stop, true);
    pthread_join(t, NULL);
    if (!rc && g.rc)
        rc = hw_fail_copy(g.rc, g.why);
    return rc ? rc : flow_all(c, &each);
}

/* ---- many at once ----------------------------------------------------------------------------- */

struct talker {
    struct rank *r;
    struct comm *c[2];
    struct flow f[2];
    const struct flow_spec *s;
    pthread_t t;
    bool links; /* makes its own connections */
    int rc;
    char why[HW_ERR_TEXT];
};

static int talk(struct talker *k)
{
    int rc = 0;
    if (k->links) {
        struct wait w = wait_for("connections made on many threads");
        for (int left = 2; left > 0 && !rc;) {
            left = 2;
            for (int i = 0; i < 2 && (!rc || rc == -EAGAIN); i++) {
                rc = k->c[i]->c ? 0 : comm_try(k->c[i]);
                left -= !rc;
            }
            if (!rc || rc == -EAGAIN)
                rc = left ? wait_turn(k->r, &w) : 0;
        }
    }
    for (int i = 0; i < 2 && !rc; i++)
        rc = flow_open(&k->f[i], k->c[i], k->s);
    if (!rc)
        rc = flow_run(k->r, k->f, 2);
    for (int i = 0; i < 2 && !rc; i++)
        rc = flow_close(&k->f[i]);
    return rc;
}

static void *talker_main(void *arg)
{
    struct talker *k = arg;
    k->rc = talk(k);
    if (k->rc) {
        snprintf(k->why, sizeof(k->why), "%s", hw_error());
        if (k->rc != -ECANCELED)
            atomic_store(&k->r->sh->gone, k->r->step + 1); /* tells the other rank to stop waiting */
    }
    return NULL;
}

/* Transfers messages over n pairs of connections. A pair has a connection in each direction, and each rank has a thread
 * for each pair. */
static int crowd(struct rank *r, size_t n, bool links, const struct flow_spec *s)
{
    struct talker *k = calloc(n, sizeof(*k));
    size_t started = 0;
    int rc = k ? 0 : hw_fail(-ENOMEM, "talkers");

    for (size_t i = 0; i < n && !rc; i++) {
        k[i] = (struct talker){.r = r, .s = s, .links = links};
        for (int d = 0; d < 2 && !rc; d++) {
            if (!links) {
                rc = comm_open(r, d, &k[i].c[d]);
                continue;
            }
            k[i].c[d] = comm_new(r, d);
            rc = k[i].c[d]->sends ? 0 : comm_listen(k[i].c[d]);
            if (!rc)
                rc = comm_handle(k[i].c[d]);
        }
    }
    while (!rc && started < n) {
        if (pthread_create(&k[started].t, NULL, talker_main, &k[started]))
            rc = hw_fail(-EAGAIN, "no thread");
        else
            started++;
    }
    for (size_t i = 0; i < started; i++)
        pthread_join(k[i].t, NULL);
    for (size_t i = 0; i < started && (!rc || rc == -ECANCELED); i++)
        if (k[i].rc)
            rc = hw_fail_copy(k[i].rc, k[i].why);
    free(k);
    return rc;
}

static int step_many_comms(struct rank *r)
{
    struct flow_spec s = {
        .what = "many connections at once", .n = 60, .depth = 8, .min = 0, .max = 200000, .slack = 1000, .hint = true};
    static const size_t counts[] = {2, 8, 32};
    for (size_t i = 0; i < HW_ARRAY_LEN(counts); i++) {
        size_t n = HW_MIN(counts[i], opt.comms_max);
        int rc = crowd(r, n, false, &s);
        if (!rc)
            rc = comm_close_all(r);
        if (rc || n < counts[i])
            return hw_wrap(rc, "%zu pairs of connections", n);
    }
    return 0;
}

static int step_made_at_once(struct rank *r)
{
    struct flow_spec s = {.what = "connections made on many threads", .n = 10, .depth = 4, .min = 0, .max = 20000};
    if (opt.no_alternate)
        return SKIP("--no-alternate");
    return crowd(r, HW_MIN((size_t)8, opt.comms_max), true, &s);
}

const struct step steps[] = {
    {"load", step_load, STEP_ALONE},
    {"devices", step_devices, 0},
    {"properties", step_properties, 0},
    {"connect", step_connect, 0},
    {"connect_first", step_connect_first, 0},
    {"accept_first", step_accept_first, 0},
    {"connect_alternately", step_connect_alternately, 0},
    {"each_device", step_each_device, 0},
    {"sizes", step_sizes, 0},
    {"depths", step_depths, 0},
    {"large", step_large, 0},
    {"many_small", step_many_small, 0},
    {"zeros", step_zeros, 0},
    {"maxima", step_maxima, 0},
    {"hint", step_hint, 0},
    {"lines", step_lines, 0},
    {"receive_first", step_receive_first, 0},
    {"send_first", step_send_first, 0},
    {"slow_receiver", step_slow_receiver, 0},
    {"register", step_register, 0},
    {"cuda", step_cuda, 0},
    {"many_comms", step_many_comms, 0},
    {"made_at_once", step_made_at_once, 0},
    {"profiler", step_profiler, 0},
    {"close_late", step_close_late, 0},
    {"unload_late", step_unload_late, 0},
    {"stray", step_stray, 0},
    {"fork", step_fork, 0},
    {"oversize", step_oversize, 0},
    {"deregister_one", step_deregister_one, 0},
    {"deregister_first", step_deregister_first, 0},
    {"abort_both", step_abort_both, 0},
    {"abort_receiver", step_abort_receiver, 0},
    {"abort_sender", step_abort_sender, 0},
    {"listen_closed", step_listen_closed, 0},
    {"after_aborts", step_after, 0},
    {"churn", step_churn, 0},
    {"recreate", step_recreate, 0},
    {"abort_connect", step_abort_connect, STEP_PROCESSES},
    {"fork_uses", step_fork_uses, STEP_PROCESSES},
    {"stopped_peer", step_stopped_peer, STEP_PROCESSES},
    {"after_stopped_peer", step_after, STEP_PROCESSES},
    {"dead_sender", step_dead_sender, STEP_DIES},
    {"after_dead_sender", step_after, STEP_PROCESSES},
    {"dead_receiver", step_dead_receiver, STEP_DIES},
    {"after_dead_receiver", step_after, STEP_PROCESSES},
    {"stopped_deadline", step_stopped_deadline, STEP_PROCESSES},
    {"dead_parent", step_dead_parent, STEP_DIES},
    {"after_dead_parent", step_after, STEP_PROCESSES},
    {"dead_idle", step_dead_idle, STEP_DIES},
    {"after_dead_idle", step_after, STEP_PROCESSES},
    {"dead_listener", step_dead_listener, STEP_DIES},
    {"after_dead_listener", step_after, STEP_PROCESSES},
    {"dead_connector", step_dead_connector, STEP_DIES},
    {"after_dead_connector", step_after, STEP_PROCESSES},
    {"dead_many", step_dead_many, STEP_DIES},
    {"after_dead_many", step_after, STEP_PROCESSES},
    {"reload", step_reload, STEP_ALONE},
};
const size_t n_steps = HW_ARRAY_LEN(steps);
