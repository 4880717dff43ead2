/* SPDX-License-Identifier: Apache-2.0 */
/* The context of the process, which is opened for the first listener or connection, and closed after the last listener
 * or connection and the last finalize; its NICs; and the properties that NCCL reads. */
#include "base/size.h"
#include "inner.h"
#include "net/host.h"
#include "net/nic.h"
#include "net/rails.h"
#include "net/sysfs.h"
#include "wire/wire.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
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
    /* Libhawser recovers from a lost NIC without reporting an error to NCCL, but users want to know about the loss. */
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

/* Returns true if a NIC is in a comma-separated list of names (exact) or of prefixes. Like NCCL, ignores a port after a
 * name, as in "eth0:1" (src/misc/utils.cc, parseStringList). */
static bool matches_nic_list(const char *list, const char *nic, bool exact)
{
    for (; *list; list += strcspn(list, ","), list += *list == ',') {
        const size_t n = strcspn(list, ",:");
        if (n && strncmp(list, nic, n) == 0 && (!exact || strlen(nic) == n))
            return true;
    }
    return false;
}

/* Returns true if NCCL_SOCKET_IFNAME selects a NIC. The list has prefixes, or names if it begins with "=". A leading
 * "^" (also in "^=") selects all other NICs. */
static bool by_ifname(const char *list, const char *nic)
{
    bool but = *list == '^', exact = list[but] == '=';
    return matches_nic_list(list + but + exact, nic, exact) != but;
}

/* HAWSER_NICS and NCCL_SOCKET_IFNAME are the user's choice. Without them, pass 0 accepts everything except the loopback
 * and, like NCCL, NICs whose names begin with "docker" or "virbr". Pass 1, for a host with no other NIC, accepts the
 * rest. A list of NICs that are not to be used, such as "^docker", rarely names the loopback, which pass 0 does not
 * accept either: other nodes cannot reach its address. */
static bool is_usable_nic(const struct hw_nic *n, int pass)
{
    const char *nics = getenv("HAWSER_NICS"), *ifname = getenv("NCCL_SOCKET_IFNAME");
    if (nics && *nics)
        return hw_nic_listed(nics, n->name);
    if (ifname && *ifname)
        return by_ifname(ifname, n->name) && (*ifname != '^' || n->loopback == (pass > 0));
    bool odd = n->loopback || strncmp(n->name, "docker", 6) == 0 || strncmp(n->name, "virbr", 5) == 0;
    return pass == 0 ? !odd : odd;
}

/* Returns true if the NIC's name can be in the value of knob nics. The kernel allows commas and any byte above 127. */
static bool is_listable(const char *name)
{
    for (; *name; name++)
        if (*name <= ' ' || *name > '~' || *name == ',')
            return false;
    return true;
}

/* Appends a name to a comma-separated list, or leaves out the name if there is no room for it. */
static void append_name(char *list, size_t cap, const char *name)
{
    const size_t len = strlen(list), comma = len > 0;
    if (len + comma + strlen(name) >= cap)
        return;
    if (comma)
        list[len] = ',';
    memcpy(list + len + comma, name, strlen(name) + 1);
}

/* Adds a NIC, or adds its name to *rest if there is no room for the NIC. */
static void add_nic(const struct hw_nic *n, char rest[HW_ERR_TEXT])
{
    for (unsigned i = 0; i < hn_g.nnics; i++)
        if (strcmp(hn_g.nic[i].name, n->name) == 0)
            return;
    if (hn_g.nnics == HN_NICS_MAX) {
        if (!hw_nic_listed(rest, n->name))
            append_name(rest, HW_ERR_TEXT, n->name);
        return;
    }
    struct hn_nic *nic = &hn_g.nic[hn_g.nnics++];
    memcpy(nic->name, n->name, sizeof(nic->name));
    nic->ip = n->addr;
    append_name(hn_g.nics, sizeof(hn_g.nics), n->name);
}

/* HAWSER_NCCL_NEAR is for measurements: 0 puts all NICs into one group, and 1 makes each NIC a separate group. */
static void group_nics(int root)
{
    const char *text = getenv("HAWSER_NCCL_NEAR");
    uint64_t near;
    if (!text || !*text) {
        hn_g.groups = root < 0 ? 0 : hn_group_nics(root, hn_g.nic, hn_g.nnics, hn_g.group);
        return;
    }
    if (hw_parse_u64(text, 0, 1, &near)) {
        hn_say(NCCL_LOG_WARN, "HAWSER_NCCL_NEAR: %s; using 0", hw_error());
        near = 0;
    }
    for (unsigned i = 0; i < hn_g.nnics; i++)
        hn_g.group[i] = near ? (uint8_t)i : 0;
    hn_g.groups = near ? hn_g.nnics : 1;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

static void place_nics(void)
{
    const char *knob = getenv("HAWSER_RAILS");
    HW_AUTO_FREE char *rails = NULL;
    int root = hw_root_open("/");
    if (root >= 0)
        hn_find_places(root, hn_g.nic, hn_g.nnics);
    group_nics(root);
    hw_close(&root);
    if (knob && *knob)
        (void)hw_rails_read(knob, &rails); /* hawser_open() reports errors in the map */
    hn_g.ndevices = hn_make_devices(hn_g.nic, hn_g.nnics, hn_g.groups > 1, rails ? rails : "", hn_g.device);
}

/* Warns of names in HAWSER_NICS that select no NIC, for example because of a typing error. */
static void say_unused_names(const char *list, const char *rest)
{
    char unused[HW_ERR_TEXT] = "", name[HAWSER_NIC_NAME];
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        snprintf(name, sizeof(name), "%.*s", (int)HW_MIN(n, sizeof(name)), list);
        if (n && !hw_nic_listed(hn_g.nics, name) && !hw_nic_listed(rest, name))
            append_name(unused, sizeof(unused), name);
    }
    if (*unused)
        hn_say(NCCL_LOG_WARN, "HAWSER_NICS: not used: %s; there is no such NIC, or it is down or has no usable address",
               unused);
}

static void survey_usable_nics(void)
{
    struct hw_nic nic[HW_NIC_MAX];
    char rest[HW_ERR_TEXT] = "";
    const char *odd = "";
    hn_g.nnics = 0;
    *hn_g.nics = 0;
    atomic_store(&hn_g.absent, 0);
    /* In each pass of is_usable_nic(), IPv6 addresses count only if no accepted NIC has an IPv4 address. */
    for (int pass = 0; pass < 4 && hn_g.nnics == 0; pass++) {
        int n = hw_nics_list(nic, HW_NIC_MAX, pass % 2);
        for (int i = 0; i < n; i++)
            if (is_usable_nic(&nic[i], pass / 2)) {
                if (is_listable(nic[i].name))
                    add_nic(&nic[i], rest);
                else if (strcmp(nic[i].name, odd) != 0)
                    hn_say(NCCL_LOG_WARN, "NIC %s is not used: its name has a comma or a byte that is not ASCII",
                           odd = nic[i].name);
            }
    }
    if (*rest)
        hn_say(NCCL_LOG_WARN, "not used: %s; at most %d NICs are used: select them with HAWSER_NICS", rest,
               HN_NICS_MAX);
    place_nics();
    /* Transport tcp would accept GPU memory too, but would copy it through host memory, and NCCL's own copies are
     * faster. */
    const char *transport = getenv("HAWSER_TRANSPORT"), *nics = getenv("HAWSER_NICS");
    const char *ifname = getenv("NCCL_SOCKET_IFNAME");
    const bool chosen = (nics && *nics) || (ifname && *ifname);
    hn_g.gpu = transport && strcmp(transport, "devmem") == 0;
    hn_g.surveyed = true;
    if (hn_g.nnics && nics)
        say_unused_names(nics, rest);
    if (hn_g.nnics)
        hn_say(NCCL_LOG_INFO, "using %s%s", hn_g.nics, hn_g.gpu ? ", with GPU memory" : "");
    else
        hn_say(NCCL_LOG_WARN, "no usable NIC: no NIC%s is up with an address; see `hawser nccl check`",
               chosen ? " selected by HAWSER_NICS or NCCL_SOCKET_IFNAME" : "");
}

/* NCCL's ranks wait for each other between init and the first connection, so all processes of the node exist by now. */
static void choose_near(void)
{
    char names[sizeof(hn_g.nics)];
    unsigned processes = hn_count_processes();
    hn_g.near = hn_g.groups > 1 && (processes >= hn_g.groups || is_set("HAWSER_NCCL_NEAR"));
    for (unsigned g = 0; hn_g.near && g < HN_NICS_MAX; g++) {
        hn_group_names(g, names);
        if (*names)
            hn_say(NCCL_LOG_INFO, "devices near %s send over %s", names,
                   strchr(names, ',') ? "these NICs while one of them works" : "this NIC while it works");
    }
}

unsigned hn_group_of(int dev)
{
    return hn_g.near ? hn_g.group[hn_g.device[dev].nic] : 0;
}

void hn_group_names(unsigned group, char out[HN_NICS_MAX * HAWSER_NIC_NAME])
{
    size_t len = 0;
    *out = 0;
    for (unsigned i = 0; hn_g.near && i < hn_g.nnics; i++)
        if (hn_g.group[i] == group)
            len += (size_t)snprintf(out + len, sizeof(hn_g.nics) - len, "%s%s", len ? "," : "", hn_g.nic[i].name);
}

/* Returns an address of the NIC from the list `now`: the address that the survey found, or the first of the same family
 * if the NIC has lost that address. Returns NULL if the NIC has none now. */
static const union hw_addr *find_address(const struct hn_nic *nic, const struct hw_nic *now, int n)
{
    const union hw_addr *first = NULL;
    for (int i = 0; i < n; i++) {
        if (strcmp(now[i].name, nic->name) != 0 || now[i].addr.sa.sa_family != nic->ip.sa.sa_family)
            continue;
        if (hw_addr_same_host(&now[i].addr, &nic->ip))
            return &nic->ip;
        first = first ? first : &now[i].addr;
    }
    return first;
}

static void encode_address(struct hn_addr *a, const union hw_addr *ip)
{
    a->family = ip->sa.sa_family == AF_INET6 ? 6 : 4;
    if (a->family == 4)
        memcpy(a->ip, &ip->in.sin_addr, 4);
    else
        memcpy(a->ip, &ip->in6.sin6_addr, 16);
}

/* Adds the addresses of the NICs in the other family than the family of nic[0]. Nodes without addresses of that family
 * need them. */
static void add_other_family(struct hn_addr out[HN_ADDRS], unsigned n, const struct hw_nic *now, int addresses)
{
    for (unsigned i = 0; i < hn_g.nnics; i++)
        for (int k = 0; k < addresses && n < HN_ADDRS; k++)
            if (strcmp(now[k].name, hn_g.nic[i].name) == 0 && now[k].addr.sa.sa_family != hn_g.nic[0].ip.sa.sa_family) {
                encode_address(&out[n++], &now[k].addr);
                break;
            }
}

void hn_group_addresses(unsigned group, struct hn_addr out[HN_ADDRS])
{
    struct hw_nic now[HW_NIC_MAX];
    const union hw_addr *ip[HN_NICS_MAX];
    int turn[HN_NICS_MAX];
    const unsigned nics = hn_g.nnics;
    unsigned n = 0;
    int addresses = hw_nics_list(now, HW_NIC_MAX, true);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memset(out, 0, HN_ADDRS * sizeof(*out));
    /* NICs without a carrier come after the others: an attempt at their addresses takes seconds. NICs that have no
     * address now come last, with the addresses that the survey found. */
    for (unsigned i = 0; i < nics; i++) {
        ip[i] = find_address(&hn_g.nic[i], now, addresses);
        const int state = !ip[i] ? 2 : hw_nic_is_down(fd, hn_g.nic[i].name) ? 1 : 0;
        turn[i] = 2 * state + (hn_g.near && hn_g.group[i] != group);
    }
    hw_close(&fd);
    for (int k = 0; k < 6; k++)
        for (unsigned i = 0; i < nics && n < HN_ADDRS; i++)
            if (turn[i] == k)
                encode_address(&out[n++], ip[i] ? ip[i] : &hn_g.nic[i].ip);
    add_other_family(out, n, now, addresses);
}

/* ---- the context, and what NCCL reads --------------------------------------------------------------------- */

static void reset_nccl_after_fork(void)
{
    /* The child has none of the plugin's threads, and must not touch the connections, which belong to the parent. */
    struct hn_global fresh = {.mu = PTHREAD_MUTEX_INITIALIZER, .presence = -1};
    hn_cpus_end();
    hn_g = fresh;
}

static void at_fork(void)
{
    (void)pthread_atfork(NULL, NULL, reset_nccl_after_fork);
}

/* Returns the maximum number of links to a process. Each group of NICs needs a link of its own. Sets *chosen if the
 * number is the user's. */
static unsigned lanes_wanted(bool *chosen)
{
    const char *text = getenv("HAWSER_NCCL_LANES");
    const uint64_t least = hn_g.near ? hn_g.groups : 1;
    uint64_t n = HN_LANES;
    *chosen = text && *text && hw_parse_u64(text, 1, HN_LANES_MAX, &n) == 0;
    if (text && *text && !*chosen)
        hn_say(NCCL_LOG_WARN, "HAWSER_NCCL_LANES: %s; using %d", hw_error(), HN_LANES);
    else if (*chosen && n < least)
        hn_say(NCCL_LOG_WARN, "HAWSER_NCCL_LANES: %llu is less than the number of groups of NICs; using %llu",
               (unsigned long long)n, (unsigned long long)least);
    return (unsigned)HW_MAX(n, least);
}

/* Raises the soft limit for file descriptors to the hard limit if possible, and returns the soft limit. NCCL does so in
 * only one of its processes (bootstrap.cc), but every process needs descriptors for its connections. */
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

/* Returns how many NICs a link uses: all, or those of the largest group. */
static unsigned count_preferred(void)
{
    unsigned most = 1;
    for (unsigned i = 0; i < hn_g.nnics; i++) {
        unsigned n = 0;
        for (unsigned k = 0; k < hn_g.nnics; k++)
            n += !hn_g.near || hn_g.group[k] == hn_g.group[i];
        most = HW_MAX(most, n);
    }
    return most;
}

/* Half of the file descriptors may serve links, and half of these links may be outgoing. Each connection also has a
 * pipe (HAWSER_TRUSTED). */
static unsigned choose_links_max(uint64_t descriptors, bool lanes_chosen)
{
    unsigned nics = count_preferred(), each = nics * (nics > 1 ? 2 : 3) * 3;
    uint64_t most = HW_MAX(descriptors / 4 / each, 1ull);
    return (unsigned)HW_MIN(most, lanes_chosen ? (uint64_t)UINT_MAX : HN_LINKS);
}

int hn_open(void)
{
    if (hn_g.h)
        return 0;
    choose_near();
    /* NCCL's operations may take any amount of time, so they have no deadline, but they fail if the peer dies. The
     * user's own settings take precedence. */
    const char *const ours[][2] = {
        {"HAWSER_OP_TIMEOUT_MS", "op_timeout_ms=0"},
        /* of two channels per pair of NICs, one is often idle, especially with several NICs */
        {"HAWSER_CHANNELS", count_preferred() > 1 ? "channels=1" : "channels=2"}};
    const char *knobs[HW_ARRAY_LEN(ours) + 6];
    char nics[sizeof(hn_g.nics) + 8];
    size_t n = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(ours); i++)
        if (!getenv(ours[i][0]))
            knobs[n++] = ours[i][1];
    /* NCCL waits by polling, and its work comes in bursts. If there are enough CPUs, libhawser's threads keep polling
     * for a short time after they run out of work. */
    struct hn_threads wanted = hn_threads_wanted();
    char threads[32], below[48];
    if (wanted.poll && !getenv("HAWSER_BUSY_US"))
        knobs[n++] = "busy_us=300";
    if (!getenv("HAWSER_BUSY_BELOW")) {
        snprintf(below, sizeof(below), "busy_below=%llu", (unsigned long long)wanted.poll_below);
        knobs[n++] = below;
    }
    if (!getenv("HAWSER_THREADS")) {
        snprintf(threads, sizeof(threads), "threads=%u", wanted.loops);
        knobs[n++] = threads;
    }
    snprintf(nics, sizeof(nics), "nics=%s", hn_g.nics);
    knobs[n++] = nics;
    knobs[n++] = "metrics_kind=nccl";
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
    bool lanes_chosen;
    hn_g.lanes = lanes_wanted(&lanes_chosen);
    hn_g.links_max = choose_links_max(raise_descriptor_limit(), lanes_chosen);
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
        return; /* another thread is closing the context */
    hn_attend_no_more();
    hn_dial_end();
    /* in use again in the meantime: keep the context open, and restart the attendant thread */
    if (hn_g.inits || hn_g.comms) {
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
    /* other threads read these pointers without g.mu: written only once */
    if (!hn_g.logger && logger)
        hn_g.logger = logger;
    if (!hn_g.profiler && profiler)
        hn_g.profiler = profiler;
    /* NICs may have been renamed since the last communicator of a process that lives longer */
    if (!hn_g.surveyed || (!hn_g.inits && !hn_g.h))
        survey_usable_nics();
    hn_g.inits++;
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

ncclResult_t hn_finalize(void)
{
    pthread_mutex_lock(&hn_g.mu);
    if (hn_g.inits)
        hn_g.inits--;
    /* NCCL does not close connections that an aborted communicator has not finished connecting */
    if (!hn_g.inits && hn_g.h)
        hn_attempts_drop();
    close_if_over();
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

ncclResult_t hn_devices(int *n)
{
    pthread_mutex_lock(&hn_g.mu);
    *n = (int)hn_g.ndevices;
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

int hn_check_device(int dev)
{
    return dev < 0 || (unsigned)dev >= hn_g.ndevices
               ? hw_fail(-EINVAL, "device %d does not exist: the number of devices is %u", dev, hn_g.ndevices)
               : 0;
}

ncclResult_t hn_properties(int dev, struct hn_props *p)
{
    int rc = hn_check_device(dev);
    if (rc)
        return hn_error(rc, "properties");
    struct hn_device *d = &hn_g.device[dev];
    *p = (struct hn_props){.name = d->name,
                           .pci_path = *d->pci ? d->pci : NULL,
                           /* distinct: NCCL takes devices with equal GUIDs for ports of one NIC */
                           .guid = (uint64_t)dev + 1,
                           .ptr_support = NCCL_PTR_HOST | (hn_g.gpu ? NCCL_PTR_CUDA : 0),
                           .speed = HN_SPEED,
                           .real_speed = d->mbps,
                           .rail = d->rail,
                           .max_comms = 65536,
                           .max_p2p_bytes = NCCL_MAX_NET_SIZE_BYTES,
                           .max_coll_bytes = NCCL_MAX_NET_SIZE_BYTES};
    return ncclSuccess;
}
