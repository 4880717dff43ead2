/* SPDX-License-Identifier: Apache-2.0 */
/* listen, connect and accept: one control connection and several data connections. Each connection starts with a
 * hello. */
#include "tcpxlike.h"

#include <fcntl.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* The contents of listen's 128-byte handle. As in GPUDirect-TCPX, 88 bytes are used, and the last 8 of them are a
 * pointer. */
struct handle {
    uint64_t secret;
    struct sockaddr_in at;
    uint8_t unused[56];
    struct connecting *state;
};
_Static_assert(sizeof(struct handle) == 88 && offsetof(struct handle, state) == 80, "as documented");

struct hello {
    uint64_t secret, id;
    uint16_t index, count; /* index 0 is the control connection; count includes it */
};

struct connecting {
    struct connecting *next;
    int dev;
    int fd[1 + MAX_SOCKS];
    struct wire_msg hello[1 + MAX_SOCKS];
    unsigned calls;
    uint64_t since;
    bool welcome; /* the other side's accept has finished */
    struct gpu_side gpu;
};

struct stranger { /* a connection that has sent no hello, or whose group is incomplete */
    int fd;
    struct wire_msg hello;
};

struct listener {
    int fd;
    uint64_t secret;
    unsigned calls;
    uint64_t since;
    struct stranger stranger[32];
    unsigned n;
    bool used;
    atomic_bool accepting; /* accept() sleeps */
    struct gpu_side gpu;
};

static struct connecting *pending; /* of the whole process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool address_of(int dev, struct sockaddr_in *at)
{
    return dev >= 0 && (unsigned)dev < tcpx_opt.devices && wire_address(tcpx_opt.interface[dev], at);
}

/* Counts a call. Returns true for the first TCPXLIKE_RETRIES calls, and until `ms` milliseconds have passed. */
static bool too_early(unsigned *calls, uint64_t since, unsigned ms)
{
    return (*calls)++ < tcpx_opt.retries || hw_now() - since < ms * HW_MS;
}

/* ---- listen ----------------------------------------------------------------------------------- */

ncclResult_t tcpx_listen(int dev, void *out, void **comm)
{
    tcpx_check_thread();
    struct handle h = {0};
    if (!address_of(dev, &h.at))
        return FAIL("listening: device %d has no address", dev);
    struct listener *l = calloc(1, sizeof(*l));
    l->fd = wire_listen(&h.at);
    if (l->fd < 0 || getrandom(&l->secret, sizeof(l->secret), 0) != (ssize_t)sizeof(l->secret)) {
        free(l);
        return FAIL("listening on device %d: no socket", dev);
    }
    tcpx_gpu_now(&l->gpu);
    h.secret = l->secret;
    h.state = tcpx_opt.clean_handle ? NULL : (void *)l; /* valid only in this process */
    memcpy(out, &h, sizeof(h));
    tcpx_listens++;
    *comm = l;
    return ncclSuccess;
}

ncclResult_t tcpx_close_listen(void *listener)
{
    struct listener *l = listener;
    const char *trap = getenv("TCPXLIKE_TRAP"); /* a file to create if the listener is in use */
    if (atomic_load(&l->accepting) && trap)
        (void)close(open(trap, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    for (unsigned i = 0; i < l->n; i++)
        close(l->stranger[i].fd);
    close(l->fd);
    free(l);
    tcpx_listens--;
    return ncclSuccess;
}

/* ---- connect ---------------------------------------------------------------------------------- */

static void sleep_us(unsigned us)
{
    const struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    if (us)
        (void)nanosleep(&t, NULL);
}

static void forget(struct connecting *s)
{
    pthread_mutex_lock(&lock);
    struct connecting **at = &pending;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&lock);
    free(s);
}

static bool is_pending(const struct connecting *s)
{
    pthread_mutex_lock(&lock);
    const struct connecting *at = pending;
    while (at && at != s)
        at = at->next;
    pthread_mutex_unlock(&lock);
    return at;
}

static struct connecting *start(int dev, const struct handle *h)
{
    static atomic_uint_fast64_t ids;
    struct sockaddr_in from;
    if (!address_of(dev, &from))
        return NULL;
    struct connecting *s = calloc(1, sizeof(*s));
    struct hello hello = {.secret = h->secret,
                          .id = ((uint64_t)getpid() << 32) + atomic_fetch_add(&ids, 1),
                          .count = (uint16_t)(1 + tcpx_opt.socks)};
    *s = (struct connecting){.dev = dev, .since = hw_now()};
    tcpx_gpu_now(&s->gpu);
    bool good = true;
    for (unsigned i = 0; i < hello.count; i++) {
        hello.index = (uint16_t)i;
        s->hello[i].len = sizeof(hello);
        memcpy(s->hello[i].bytes, &hello, sizeof(hello));
        s->fd[i] = wire_connect(&from, &h->at);
        good = good && s->fd[i] >= 0;
    }
    for (unsigned i = 0; !good && i < hello.count; i++)
        if (s->fd[i] >= 0)
            close(s->fd[i]);
    if (!good) {
        free(s);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    s->next = pending;
    pending = s;
    pthread_mutex_unlock(&lock);
    return s;
}

/* Sends the hellos. Returns 1 if all connections are established and all hellos are sent, 0 if not yet, or -1 on
 * failure. */
static int introduce(struct connecting *s)
{
    int all = 1;
    for (unsigned i = 0; i < 1 + tcpx_opt.socks; i++) {
        int up = s->hello[i].done ? 1 : wire_connected(s->fd[i]);
        if (up > 0)
            up = wire_msg_put(s->fd[i], &s->hello[i]);
        if (up < 0)
            return -1;
        all = all && up;
    }
    return all;
}

/* Like introduce(), but also waits for a limited time until the other side's accept has finished. */
static int meet(struct connecting *s)
{
    const uint64_t until = hw_now() + tcpx_opt.connect_us * 1000ull;
    uint8_t byte;
    for (;;) {
        int up = introduce(s);
        ssize_t n = up > 0 && !s->welcome ? wire_get(s->fd[0], &byte, 1) : 0;
        s->welcome |= n > 0;
        if (up < 0 || n < 0)
            return -1;
        if (s->welcome || hw_now() >= until)
            return s->welcome;
        sleep_us(500);
    }
}

ncclResult_t tcpx_connect(int dev, void *handle, void **comm, ncclNetDeviceHandle_v7_t **device)
{
    tcpx_check_thread();
    (void)device; /* the sender does not use the GPU here */
    struct handle h;
    memcpy(&h, handle, sizeof(h));
    *comm = NULL;
    if (h.state && !is_pending(h.state))
        CRASH("connect: the handle has the pointer %p at 80, which is not this connect's", (void *)h.state);
    if (!h.state) {
        h.state = start(dev, &h);
        if (!h.state)
            return FAIL("connecting from device %d: no socket", dev);
        memcpy(handle, &h, sizeof(h));
    }
    struct connecting *s = h.state;
    int up = meet(s);
    bool early = too_early(&s->calls, s->since, tcpx_opt.slow_connect);
    if (up == 0 || (up > 0 && early))
        return ncclSuccess;
    h.state = NULL;
    if (up < 0) {
        for (unsigned i = 0; i < 1 + tcpx_opt.socks; i++)
            close(s->fd[i]);
        forget(s);
        memcpy(handle, &h, sizeof(h));
        return FAIL("connecting from device %d: refused or reset by the other end", dev);
    }
    *comm = tcpx_comm_new(true, s->fd[0], s->fd + 1, tcpx_opt.socks, &s->gpu);
    forget(s); /* the handle keeps its pointer, so the next call crashes */
    return *comm ? ncclSuccess : ncclInternalError;
}

/* ---- accept ----------------------------------------------------------------------------------- */

static void drop(struct listener *l, unsigned i)
{
    l->stranger[i] = l->stranger[--l->n];
}

/* Accepts new connections and reads their hellos. */
static void welcome(struct listener *l)
{
    while (l->n < HW_ARRAY_LEN(l->stranger)) {
        int fd = wire_accept(l->fd);
        if (fd < 0)
            break;
        l->stranger[l->n++] = (struct stranger){.fd = fd, .hello.len = sizeof(struct hello)};
    }
    for (unsigned i = 0; i < l->n;) {
        struct stranger *s = &l->stranger[i];
        struct hello h;
        int rc = wire_msg_get(s->fd, &s->hello);
        memcpy(&h, s->hello.bytes, sizeof(h));
        if (rc < 0 || (rc > 0 && (h.secret != l->secret || h.count < 2 || h.count > 1 + MAX_SOCKS))) {
            close(s->fd);
            drop(l, i);
        } else {
            i++;
        }
    }
}

/* Stores the connections of a complete group in fd, sorted by index, and returns their number, or 0 if no group is
 * complete. */
static unsigned family(struct listener *l, int fd[1 + MAX_SOCKS])
{
    for (unsigned i = 0; i < l->n; i++) {
        unsigned found = 0;
        struct hello a;
        memcpy(&a, l->stranger[i].hello.bytes, sizeof(a));
        for (unsigned j = 0; j < l->n; j++) {
            struct hello b;
            memcpy(&b, l->stranger[j].hello.bytes, sizeof(b));
            if (l->stranger[j].hello.done == sizeof(b) && b.id == a.id && b.index < a.count) {
                fd[b.index] = l->stranger[j].fd;
                found++;
            }
        }
        if (l->stranger[i].hello.done == sizeof(a) && found == a.count)
            return found;
    }
    return 0;
}

ncclResult_t tcpx_accept(void *listener, void **comm, ncclNetDeviceHandle_v7_t **device)
{
    tcpx_check_thread();
    struct listener *l = listener;
    int fd[1 + MAX_SOCKS];
    if (!device || !*device)
        CRASH("accept: *recvDevComm must lead to 32 bytes to write to");
    *comm = NULL;
    if (l->used)
        return FAIL("accept: this listener has given its connection already");
    l->since = l->since ? l->since : hw_now();
    welcome(l);
    unsigned n = family(l, fd);
    bool early = too_early(&l->calls, l->since, tcpx_opt.slow_accept);
    if (n == 0 || early || tcpx_opt.no_accept)
        return ncclSuccess;
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < l->n; j++)
            if (l->stranger[j].fd == fd[i])
                drop(l, j);
    if (tcpx_opt.exit_accept)
        LEAVE("leaving in accept, as TCPXLIKE_FAULT says");
    while (tcpx_opt.hang_accept)
        pause();
    atomic_store(&l->accepting, true);
    sleep_us(tcpx_opt.steering_us); /* until the flow rules of these connections take effect */
    atomic_store(&l->accepting, false);
    struct comm *c = tcpx_comm_new(false, fd[0], fd + 1, n - 1, &l->gpu);
    if (!c)
        return ncclInternalError;
    (void)wire_put(fd[0], "", 1); /* the other side's connect waits for this byte */
    **device = (ncclNetDeviceHandle_v7_t){
        .netDeviceType = NCCL_NET_DEVICE_UNPACK,
        .netDeviceVersion = NCCL_NET_DEVICE_UNPACK_VERSION,
        .handle = c->bounce->device_handle,
        .size = sizeof(struct unpackNetDeviceHandle),
        .needsProxyProgress = 1,
    };
    l->used = true;
    *comm = c;
    return ncclSuccess;
}
