/* SPDX-License-Identifier: Apache-2.0 */
/* The context of the process: made with the first connection, closed after the last; its NICs; what NCCL is told. */
#include "base/size.h"
#include "inner.h"
#include "net/host.h"
#include "net/nic.h"
#include "wire/wire.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct hn_global hn_g = {.mu = PTHREAD_MUTEX_INITIALIZER, .presence = -1};

/* ---- the log ------------------------------------------------------------------------------------------- */

void hn_say(ncclDebugLogLevel level, const char *fmt, ...)
{
    char text[HW_ERR_TEXT];
    va_list ap;
    if (!hn_g.logger)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    hn_g.logger(level, NCCL_NET, "hawser", 0, "NET/hawser: %s", text);
}

static void on_log(void *arg, int level, const char *line)
{
    (void)arg;
    /* What libhawser mends by itself, a NIC that went, is no failure to NCCL's users: but they will want to know. */
    hn_say(level <= HAWSER_LOG_WARN   ? NCCL_LOG_WARN
           : level == HAWSER_LOG_INFO ? NCCL_LOG_INFO
                                      : NCCL_LOG_TRACE,
           "%s", line);
}

ncclResult_t hn_error(int rc, const char *what)
{
    hn_say(NCCL_LOG_WARN, "%s: %s (%s)", what, hawser_error(), hw_errno_name(rc));
    switch (rc) {
    case -ECONNRESET:
    case -ESHUTDOWN:
    case -ETIMEDOUT:
    case -ECANCELED:
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
        return ncclRemoteError;
    case -EINVAL:
    case -EFAULT:
        return ncclInvalidArgument;
    case -EMSGSIZE:
        return ncclInvalidUsage;
    case -EPROTO:
    case -EACCES:
        return ncclInternalError;
    default:
        return ncclSystemError;
    }
}

/* ---- the NICs -------------------------------------------------------------------------------------------- */

/* In a comma list, of names or (not exact) of prefixes. */
static bool matches_nic_list(const char *list, const char *nic, bool exact)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n && strncmp(list, nic, n) == 0 && (!exact || strlen(nic) == n))
            return true;
    }
    return false;
}

/* NCCL_SOCKET_IFNAME: prefixes; "=" before them: names; "^" (and "^="): all but those. */
static bool by_ifname(const char *list, const char *nic)
{
    bool but = *list == '^', exact = list[but] == '=';
    return matches_nic_list(list + but + exact, nic, exact) != but;
}

/* HAWSER_NICS and NCCL_SOCKET_IFNAME are the user's; else, as NCCL does for its own sockets, everything but the
 * loopback and docker's bridges, and those where there is nothing else. */
static bool is_usable_nic(const struct hw_nic *n, int pass)
{
    const char *nics = getenv("HAWSER_NICS"), *ifname = getenv("NCCL_SOCKET_IFNAME");
    if (nics && *nics)
        return matches_nic_list(nics, n->name, true);
    if (ifname && *ifname)
        return by_ifname(ifname, n->name);
    bool odd = n->loopback || strncmp(n->name, "docker", 6) == 0;
    return pass == 0 ? !odd : odd;
}

static void add_nic(const struct hw_nic *n, unsigned *naddrs)
{
    bool known = false;
    for (int i = 0; i < hn_g.nnics; i++)
        known |= strcmp(hn_g.nic[i], n->name) == 0;
    if (*naddrs < HN_ADDRS && (!known || *naddrs == 0)) {
        struct hn_addr *a = &hn_g.addr[(*naddrs)++];
        a->family = n->addr.sa.sa_family == AF_INET6 ? 6 : 4;
        if (a->family == 4)
            memcpy(a->ip, &n->addr.in.sin_addr, 4);
        else
            memcpy(a->ip, &n->addr.in6.sin6_addr, 16);
    }
    if (known || hn_g.nnics == HN_NICS_MAX)
        return;
    memcpy(hn_g.nic[hn_g.nnics], n->name, HAWSER_NIC_NAME);
    size_t len = strlen(hn_g.nics);
    snprintf(hn_g.nics + len, sizeof(hn_g.nics) - len, "%s%s", len ? "," : "", n->name);
    hn_g.nnics++;
}

/* Where in the PCI tree a NIC is, as the kernel names it: what NCCL takes for its topology. */
static void pci_path(const char *nic, char *out, size_t cap)
{
    char path[64], real[PATH_MAX];
    snprintf(path, sizeof(path), "/sys/class/net/%s/device", nic);
    if (realpath(path, real) && strlen(real) < cap)
        memcpy(out, real, strlen(real) + 1);
}

static void survey_usable_nics(void)
{
    struct hw_nic nic[HW_NIC_MAX];
    unsigned naddrs = 0;
    int n = hw_nics_list(nic, HW_NIC_MAX, false);
    if (n == 0)
        n = hw_nics_list(nic, HW_NIC_MAX, true);
    for (int pass = 0; pass < 2 && hn_g.nnics == 0; pass++)
        for (int i = 0; i < n; i++)
            if (is_usable_nic(&nic[i], pass))
                add_nic(&nic[i], &naddrs);
    for (int i = 0; i < HN_DEVICES && hn_g.nnics; i++) {
        const char *on = hn_g.nic[i % hn_g.nnics];
        snprintf(hn_g.name[i], sizeof(hn_g.name[i]), "%s/%d", on, i);
        pci_path(on, hn_g.pci[i], sizeof(hn_g.pci[i]));
    }
    /* Transport tcp would take GPU memory as well, but by way of the host, and NCCL's own copies there are faster. */
    const char *transport = getenv("HAWSER_TRANSPORT");
    hn_g.gpu = transport && strcmp(transport, "devmem") == 0;
    hn_g.surveyed = true;
    if (hn_g.nnics)
        hn_say(NCCL_LOG_INFO, "using %s%s", hn_g.nics, hn_g.gpu ? ", with GPU memory" : "");
    else
        hn_say(NCCL_LOG_WARN, "no usable NIC: none is up with an address%s; see `hawser nccl check`",
               getenv("HAWSER_NICS") || getenv("NCCL_SOCKET_IFNAME") ? " and named by HAWSER_NICS or NCCL_SOCKET_IFNAME"
                                                                     : "");
}

/* ---- the context ------------------------------------------------------------------------------------------ */

static void reset_nccl_after_fork(void)
{
    /* The child has none of the threads, and must not touch the connections, which are the parent's still. */
    struct hn_global fresh = {.mu = PTHREAD_MUTEX_INITIALIZER, .presence = -1};
    hn_cpus_end();
    hn_g = fresh;
}

static void at_fork(void)
{
    (void)pthread_atfork(NULL, NULL, reset_nccl_after_fork);
}

static unsigned lanes_wanted(void)
{
    const char *text = getenv("HAWSER_NCCL_LANES");
    uint64_t n;
    if (!text || !*text)
        return HN_LANES;
    if (hw_parse_u64(text, 1, HN_LANES_MAX, &n) == 0)
        return (unsigned)n;
    hn_say(NCCL_LOG_WARN, "HAWSER_NCCL_LANES: %s; taken as %d", hw_error(), HN_LANES);
    return HN_LANES;
}

/* NCCL raises the limit of descriptors in one of its processes (bootstrap.cc); connections want it in all. */
static uint64_t raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 1024;
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit most = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &most) == 0)
            return most.rlim_cur;
    }
    return limit.rlim_cur;
}

/* Half of the descriptors may be links', half of these links out. A connection has a pipe, too (HAWSER_TRUSTED). */
static unsigned choose_links_max(uint64_t descriptors)
{
    unsigned each = (unsigned)hn_g.nnics * (hn_g.nnics > 1 ? 2 : 3) * 3;
    uint64_t most = HW_MAX(descriptors / 4 / each, 1ull);
    return (unsigned)HW_MIN(most, getenv("HAWSER_NCCL_LANES") ? (uint64_t)UINT_MAX : HN_LINKS);
}

int hn_open(void)
{
    if (hn_g.h)
        return 0;
    /* What NCCL does takes as long as it takes: no deadline but the peer's life. The user's own settings come first. */
    const char *const ours[][2] = {
        {"HAWSER_OP_TIMEOUT_MS", "op_timeout_ms=0"},
        /* per pair of NICs: of a link's two connections one is idle more often, of many NICs' more so */
        {"HAWSER_CHANNELS", hn_g.nnics > 1 ? "channels=1" : "channels=2"}};
    const char *knobs[HW_ARRAY_LEN(ours) + 4];
    char nics[sizeof(hn_g.nics) + 8];
    size_t n = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(ours); i++)
        if (!getenv(ours[i][0]))
            knobs[n++] = ours[i][1];
    /* NCCL waits by polling, and what it waits for comes in bursts: where there are CPUs for it our threads do so too,
     * for as long as a burst lasts. */
    struct hn_threads wanted = hn_threads_wanted();
    char threads[32];
    if (wanted.poll && !getenv("HAWSER_BUSY_US"))
        knobs[n++] = "busy_us=100";
    if (!getenv("HAWSER_THREADS")) {
        snprintf(threads, sizeof(threads), "threads=%u", wanted.loops);
        knobs[n++] = threads;
    }
    snprintf(nics, sizeof(nics), "nics=%s", hn_g.nics);
    knobs[n++] = nics;
    knobs[n] = NULL;
    hw_random(hn_g.key, sizeof(hn_g.key));
    hw_random(&hn_g.process, sizeof(hn_g.process));
    /* the ranks of a job trust each other */
    struct hawser_options o = {.size = sizeof(o),
                               .flags = HAWSER_TRUSTED | HAWSER_EVENTS,
                               .log = on_log,
                               .key = hn_g.key,
                               .key_len = HN_KEY,
                               .knobs = knobs};
    hw_list_init(&hn_g.links);
    hw_list_init(&hn_g.listens);
    hw_list_init(&hn_g.attempts);
    hw_list_init(&hn_g.processes);
    hn_dial_begin();
    hn_g.host = hw_host_id();
    hn_g.lanes = lanes_wanted();
    hn_g.links_max = choose_links_max(raise_descriptor_limit());
    int rc = hawser_open(&o, &hn_g.h);
    if (rc == 0 && ((rc = hawser_listen(hn_g.h, NULL, 0, &hn_g.port)) != 0 || (rc = hn_attend()) != 0)) {
        hawser_close(hn_g.h);
        hn_g.h = NULL;
    }
    return rc;
}

static void close_if_over(void)
{
    if (hn_g.inits || hn_g.comms)
        return;
    hn_cpus_end();
    if (!hn_g.h)
        return;
    hawser *h = hn_g.h;
    if (hn_g.leaving)
        return; /* another thread is at it */
    hn_attend_no_more();
    hn_dial_end();
    if (hn_g.inits || hn_g.comms) { /* somebody came meanwhile: it goes on, if it can be attended to */
        if (hn_attend())
            hn_say(NCCL_LOG_WARN, "%s", hawser_error());
        return;
    }
    hn_links_close();
    hawser_close(h);
    hn_g.h = NULL;
    hn_g.leaving = false;
}

void hn_drop(void)
{
    hn_g.comms--;
    close_if_over();
}

ncclResult_t hn_init(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, at_fork);
    pthread_mutex_lock(&hn_g.mu);
    hn_cpus_begin();
    if (!hn_g.logger)
        hn_g.logger = logger;
    if (!hn_g.profiler)
        hn_g.profiler = profiler;
    hn_g.inits++;
    if (!hn_g.surveyed)
        survey_usable_nics();
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

ncclResult_t hn_finalize(void)
{
    pthread_mutex_lock(&hn_g.mu);
    if (hn_g.inits)
        hn_g.inits--;
    close_if_over();
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

ncclResult_t hn_devices(int *n)
{
    pthread_mutex_lock(&hn_g.mu);
    *n = hn_g.nnics ? HN_DEVICES : 0;
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

ncclResult_t hn_properties(int dev, struct hn_props *p)
{
    if (dev < 0 || dev >= HN_DEVICES || !hn_g.nnics)
        return hn_error(hw_fail(-EINVAL, "there is no device %d", dev), "properties");
    *p = (struct hn_props){.name = hn_g.name[dev],
                           .pci_path = hn_g.pci[dev][0] ? hn_g.pci[dev] : NULL,
                           .guid = (uint64_t)dev + 1, /* distinct: NCCL takes devices of one guid for one NIC's ports */
                           .ptr_support = NCCL_PTR_HOST | (hn_g.gpu ? NCCL_PTR_CUDA : 0),
                           .speed = HN_SPEED,
                           .max_comms = 65536,
                           .max_p2p_bytes = NCCL_MAX_NET_SIZE_BYTES,
                           .max_coll_bytes = NCCL_MAX_NET_SIZE_BYTES};
    return ncclSuccess;
}
