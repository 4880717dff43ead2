/* SPDX-License-Identifier: Apache-2.0 */
/* Devmem TCP through the kernel's own interface, for the tests of lab/dmnic in a guest: configures a card, binds
 * udmabuf memory to a queue, receives into bound memory and sends from it, and compares every byte with a pattern known
 * to both ends. All netlink messages are built here, so the test does not depend on hawser's code.
 *   dmnic_probe nic IF split=on|off|auto thresh=0 ntuple=on|off rss=N rule=4|6:PORT:QUEUE unrule=LOCATION rules
 *   dmnic_probe stat IF NAME
 *   dmnic_probe recv IF queue=Q port=P bytes=N seed=S [mem=BYTES] [clamp=BYTES] [lazy=MS] [unbind=BYTES] [conns=N]
 *   dmnic_probe send HOST port=P bytes=N seed=S [dev=IF] [mem=BYTES] [chunk=BYTES] [idle=MS]
 *   dmnic_probe bindtx IF
 *   dmnic_probe pools net
 * recv prints "ready" after binding its memory, when it is listening. At the end, recv and send print a line of
 * NAME=VALUE pairs. The exit status is 0 on success, 1 after an error or if bytes are wrong, 2 for invalid usage. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/ethtool.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <linux/udmabuf.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* include/uapi/linux/netdev.h, uio.h and asm-generic/socket.h of Linux 6.16; Debian 12's headers are older. */
enum { NETDEV_CMD_PAGE_POOL_GET = 5, NETDEV_CMD_BIND_RX = 13, NETDEV_CMD_BIND_TX = 15 };
enum { NETDEV_A_DMABUF_IFINDEX = 1, NETDEV_A_DMABUF_QUEUES, NETDEV_A_DMABUF_FD, NETDEV_A_DMABUF_ID };
enum { NETDEV_A_PAGE_POOL_DETACH_TIME = 6 };
enum { RINGS_HDS_THRESH = 17 }; /* ETHTOOL_A_RINGS_HDS_THRESH */
enum { NETDEV_A_QUEUE_ID = 1, NETDEV_A_QUEUE_TYPE = 3 };
enum { DEVMEM_LINEAR = 78, DEVMEM_DMABUF = 79, DEVMEM_DONTNEED = 80, SOCK_DEVMEM = 0x2000000 };
struct frag {
    uint64_t offset;
    uint32_t size, token, dmabuf, flags;
};
struct token {
    uint32_t start, count;
};
enum { FRAGS = 512, IOV = 1 << 20, TOKENS = 128 /* limit of one SO_DEVMEM_DONTNEED call */, MAX_KEPT = 65536 };

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
    va_list ap;
    int e = errno;
    va_start(ap, fmt);
    fflush(stdout);
    fprintf(stderr, "dmnic_probe: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, ": %s\n", strerror(e));
    va_end(ap);
    exit(1);
}

static const char *text_arg(int argc, char **argv, const char *name)
{
    size_t len = strlen(name);
    for (int i = 3; i < argc; i++) {
        if (strncmp(argv[i], name, len) == 0 && argv[i][len] == '=')
            return argv[i] + len + 1;
    }
    return NULL;
}

static uint64_t arg(int argc, char **argv, const char *name, uint64_t otherwise)
{
    const char *text = text_arg(argc, argv, name);
    char *end;
    if (!text)
        return otherwise;
    uint64_t v = strtoull(text, &end, 10);
    if (*end || end == text) {
        errno = EINVAL;
        die("%s=%s", name, text);
    }
    return v;
}

/* ---- the data: each byte is a function of the seed and its position in the stream ---- */

static uint64_t word(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u + 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns the byte at a position in the stream. A word is computed once for its eight bytes. */
static uint8_t byte_at(uint64_t seed, uint64_t i, uint64_t *w, bool first)
{
    if (first || i % 8 == 0)
        *w = word(seed, i / 8);
    return (uint8_t)(*w >> i % 8 * 8);
}

static void fill(uint8_t *p, uint64_t seed, uint64_t at, size_t len)
{
    uint64_t w = 0;
    for (size_t i = 0; i < len; i++)
        p[i] = byte_at(seed, at + i, &w, i == 0);
}

static uint64_t wrong(const uint8_t *p, uint64_t seed, uint64_t at, size_t len)
{
    uint64_t n = 0, w = 0;
    for (size_t i = 0; i < len; i++)
        n += p[i] != byte_at(seed, at + i, &w, i == 0);
    return n;
}

/* ---- netlink ---- */

struct msg {
    struct nlmsghdr nl;
    struct genlmsghdr genl;
    char attr[4096];
};

static struct nlattr *put(struct msg *m, uint16_t type, const void *data, uint16_t len)
{
    struct nlattr *a = (void *)((char *)m + m->nl.nlmsg_len);
    a->nla_type = type;
    a->nla_len = (uint16_t)(NLA_HDRLEN + len);
    if (len)
        memcpy((char *)a + NLA_HDRLEN, data, len);
    m->nl.nlmsg_len += NLA_ALIGN(a->nla_len);
    return a;
}

static void put_u32(struct msg *m, uint16_t type, uint32_t v)
{
    put(m, type, &v, 4);
}

static void end_nest(struct msg *m, struct nlattr *nest)
{
    nest->nla_type |= NLA_F_NESTED;
    nest->nla_len = (uint16_t)((char *)m + m->nl.nlmsg_len - (char *)nest);
}

static struct msg begin(uint16_t family, uint8_t cmd)
{
    struct msg m = {
        .nl = {.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN), .nlmsg_type = family, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .genl = {.cmd = cmd, .version = 1}};
    return m;
}

/* Returns the attribute of type `want` from a message, or NULL. */
static const struct nlattr *find(const struct nlmsghdr *h, uint16_t want)
{
    int left = (int)h->nlmsg_len - (int)NLMSG_LENGTH(GENL_HDRLEN);
    const char *at = (const char *)h + NLMSG_LENGTH(GENL_HDRLEN);
    while (left >= NLA_HDRLEN) {
        const struct nlattr *a = (const void *)at;
        if (a->nla_len < NLA_HDRLEN || a->nla_len > left)
            break;
        if ((a->nla_type & NLA_TYPE_MASK) == want)
            return a;
        left -= NLA_ALIGN(a->nla_len);
        at += NLA_ALIGN(a->nla_len);
    }
    return NULL;
}

/* Sends m and stores the u32 (or u16) attribute `want` of the reply. Returns 0 or -errno. */
static int ask(int fd, struct msg *m, uint16_t want, uint32_t *value)
{
    static char buf[16384] __attribute__((aligned(8)));
    if (send(fd, m, m->nl.nlmsg_len, 0) < 0)
        die("netlink send");
    for (;;) {
        ssize_t n = recv(fd, buf, sizeof(buf), 0);
        if (n < 0)
            die("netlink receive");
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type == NLMSG_ERROR)
                return ((struct nlmsgerr *)NLMSG_DATA(h))->error;
            const struct nlattr *a = find(h, want);
            if (a && value)
                memcpy(value, (const char *)a + NLA_HDRLEN, a->nla_len == NLA_HDRLEN + 2 ? 2 : 4);
        }
    }
}

static int genl_open(const char *family, uint16_t *id)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
    struct msg m = begin(GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
    uint32_t v = 0;
    if (fd < 0)
        die("netlink socket");
    put(&m, CTRL_ATTR_FAMILY_NAME, family, (uint16_t)(strlen(family) + 1));
    int rc = ask(fd, &m, CTRL_ATTR_FAMILY_ID, &v);
    errno = rc ? -rc : ENOENT;
    if (rc || v == 0)
        die("netlink family %s", family);
    *id = (uint16_t)v;
    return fd;
}

/* Binds the dma-buf for sending or, if queue >= 0, to that receive queue. The binding lasts until *fd is closed. */
static int bind_dmabuf(const char *ifname, int queue, int dmabuf, int *fd, uint32_t *id)
{
    uint16_t family;
    *fd = genl_open("netdev", &family);
    struct msg m = begin(family, queue >= 0 ? NETDEV_CMD_BIND_RX : NETDEV_CMD_BIND_TX);
    put_u32(&m, NETDEV_A_DMABUF_IFINDEX, if_nametoindex(ifname));
    put_u32(&m, NETDEV_A_DMABUF_FD, (uint32_t)dmabuf);
    if (queue >= 0) {
        struct nlattr *q = put(&m, NETDEV_A_DMABUF_QUEUES, NULL, 0);
        put_u32(&m, NETDEV_A_QUEUE_ID, (uint32_t)queue);
        put_u32(&m, NETDEV_A_QUEUE_TYPE, 0);
        end_nest(&m, q);
    }
    return ask(*fd, &m, NETDEV_A_DMABUF_ID, id);
}

/* ---- ethtool ---- */

static void ethtool(const char *ifname, void *cmd, const char *what)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_data = cmd};
    snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", ifname);
    if (fd < 0 || ioctl(fd, SIOCETHTOOL, &r) < 0)
        die("%s: %s", ifname, what);
    close(fd);
}

/* Sets header split to `split` (ETHTOOL_TCP_DATA_SPLIT_*), or hds-thresh to 0 if split is -1. */
static void set_split(const char *ifname, int split)
{
    uint16_t family;
    uint8_t v = (uint8_t)split;
    int fd = genl_open("ethtool", &family);
    struct msg m = begin(family, ETHTOOL_MSG_RINGS_SET);
    struct nlattr *head = put(&m, ETHTOOL_A_RINGS_HEADER, NULL, 0);
    put_u32(&m, ETHTOOL_A_HEADER_DEV_INDEX, if_nametoindex(ifname));
    end_nest(&m, head);
    if (split >= 0)
        put(&m, ETHTOOL_A_RINGS_TCP_DATA_SPLIT, &v, 1);
    else
        put_u32(&m, RINGS_HDS_THRESH, 0);
    int rc = ask(fd, &m, 0, NULL);
    errno = -rc;
    if (rc)
        die("%s: tcp-data-split", ifname);
    close(fd);
}

static void set_rss(const char *ifname, uint32_t n)
{
    static union {
        struct ethtool_rxfh_indir head;
        uint32_t room[2 + 4096];
    } t;
    t.head.cmd = ETHTOOL_GRXFHINDIR;
    t.head.size = 0;
    ethtool(ifname, &t, "size of the indirection table");
    if (t.head.size > 4096)
        t.head.size = 4096;
    for (uint32_t i = 0; i < t.head.size; i++)
        t.head.ring_index[i] = i % n;
    t.head.cmd = ETHTOOL_SRXFHINDIR;
    ethtool(ifname, &t, "indirection table");
}

static void add_rule(const char *ifname, const char *text)
{
    unsigned v, port, queue;
    struct ethtool_rxnfc r = {.cmd = ETHTOOL_SRXCLSRLINS};
    if (sscanf(text, "%u:%u:%u", &v, &port, &queue) != 3) {
        errno = EINVAL;
        die("rule=%s", text);
    }
    r.fs.flow_type = v == 6 ? TCP_V6_FLOW : TCP_V4_FLOW;
    if (v == 6) {
        r.fs.h_u.tcp_ip6_spec.pdst = htons((uint16_t)port);
        r.fs.m_u.tcp_ip6_spec.pdst = 0xffff;
    } else {
        r.fs.h_u.tcp_ip4_spec.pdst = htons((uint16_t)port);
        r.fs.m_u.tcp_ip4_spec.pdst = 0xffff;
    }
    r.fs.ring_cookie = queue;
    r.fs.location = RX_CLS_LOC_ANY;
    ethtool(ifname, &r, "rule");
    printf("rule %u\n", r.fs.location);
}

static void list_rules(const char *ifname)
{
    struct {
        struct ethtool_rxnfc head;
        uint32_t location[1024];
    } all = {.head = {.cmd = ETHTOOL_GRXCLSRLCNT}};
    ethtool(ifname, &all.head, "number of rules");
    if (all.head.rule_cnt > 1024)
        all.head.rule_cnt = 1024;
    all.head.cmd = ETHTOOL_GRXCLSRLALL;
    ethtool(ifname, &all.head, "rules");
    for (uint32_t i = 0; i < all.head.rule_cnt; i++) {
        struct ethtool_rxnfc r = {.cmd = ETHTOOL_GRXCLSRULE, .fs = {.location = all.location[i]}};
        ethtool(ifname, &r, "rule");
        printf("%u: port %u queue %llu\n", r.fs.location, ntohs(r.fs.h_u.tcp_ip4_spec.pdst),
               (unsigned long long)r.fs.ring_cookie);
    }
}

static bool is(const char *text, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(text, name, len) == 0;
}

static int nic(int argc, char **argv)
{
    for (int i = 3; i < argc; i++) {
        const char *v = strchr(argv[i], '=');
        size_t n = v ? (size_t)(v++ - argv[i]) : strlen(argv[i]);
        if (v && is(argv[i], n, "split")) {
            set_split(argv[2], strcmp(v, "on") == 0 ? 2 : strcmp(v, "off") == 0);
        } else if (v && is(argv[i], n, "thresh")) {
            set_split(argv[2], -1);
        } else if (v && is(argv[i], n, "ntuple")) {
            struct ethtool_value f = {.cmd = ETHTOOL_GFLAGS};
            ethtool(argv[2], &f, "flags");
            f.cmd = ETHTOOL_SFLAGS;
            f.data = strcmp(v, "on") == 0 ? f.data | ETH_FLAG_NTUPLE : f.data & ~(uint32_t)ETH_FLAG_NTUPLE;
            ethtool(argv[2], &f, "ntuple");
        } else if (v && is(argv[i], n, "rss")) {
            set_rss(argv[2], (uint32_t)strtoul(v, NULL, 10));
        } else if (v && is(argv[i], n, "rule")) {
            add_rule(argv[2], v);
        } else if (v && is(argv[i], n, "unrule")) {
            struct ethtool_rxnfc r = {.cmd = ETHTOOL_SRXCLSRLDEL, .fs = {.location = (uint32_t)strtoul(v, NULL, 10)}};
            ethtool(argv[2], &r, "deleting a rule");
        } else if (strcmp(argv[i], "rules") == 0) {
            list_rules(argv[2]);
        } else {
            errno = EINVAL;
            die("%s", argv[i]);
        }
    }
    return 0;
}

static int stat_cmd(const char *ifname, const char *name)
{
    union {
        struct ethtool_sset_info head;
        uint32_t room[5];
    } count = {.head = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1u << ETH_SS_STATS}};
    ethtool(ifname, &count, "number of statistics");
    uint32_t n_stats = count.head.data[0];
    struct ethtool_gstrings *names = calloc(1, sizeof(*names) + (size_t)n_stats * ETH_GSTRING_LEN);
    struct ethtool_stats *stats = calloc(1, sizeof(*stats) + (size_t)n_stats * 8);
    if (!names || !stats)
        die("memory");
    *names = (struct ethtool_gstrings){.cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = n_stats};
    *stats = (struct ethtool_stats){.cmd = ETHTOOL_GSTATS, .n_stats = n_stats};
    ethtool(ifname, names, "names of statistics");
    ethtool(ifname, stats, "statistics");
    errno = ENOENT;
    bool found = false;
    for (uint32_t i = 0; i < n_stats; i++) {
        const char *s = (char *)names->data + (size_t)i * ETH_GSTRING_LEN;
        if (strcmp(name, "all") == 0 ? stats->data[i] != 0 : strncmp(s, name, ETH_GSTRING_LEN) == 0) {
            strcmp(name, "all") == 0 ? printf("%s=", s) : 0;
            printf("%llu\n", (unsigned long long)stats->data[i]);
            found = true;
        }
    }
    if (!found && strcmp(name, "all") != 0)
        die("%s: %s", ifname, name);
    free(names);
    free(stats);
    return 0;
}

/* ---- memory ---- */

static uint8_t *memory(size_t size, int *dmabuf)
{
    int mem = memfd_create("dmnic_probe", MFD_ALLOW_SEALING | MFD_CLOEXEC),
        dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
    struct udmabuf_create c = {.memfd = (uint32_t)mem, .flags = UDMABUF_FLAGS_CLOEXEC, .size = size};
    if (mem < 0 || ftruncate(mem, (off_t)size) < 0 || fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        die("memfd of %zu bytes", size);
    if (dev < 0)
        die("/dev/udmabuf");
    uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
    if (p == MAP_FAILED)
        die("mmap");
    memset(p, 0xee, size);
    *dmabuf = ioctl(dev, UDMABUF_CREATE, &c);
    if (*dmabuf < 0)
        die("udmabuf of %zu bytes", size);
    close(dev);
    close(mem);
    return p;
}

/* ---- receiving ---- */

struct receiver {
    int sk;
    uint8_t *mem;
    size_t mem_size;
    struct token kept[MAX_KEPT]; /* tokens not yet returned to the kernel */
    uint32_t nkept, most;
    uint64_t got, devmem, linear, plain, bad, frags;
};

static void give_back(struct receiver *r)
{
    uint32_t n = 0;
    while (n < r->nkept) {
        uint32_t k = r->nkept - n > TOKENS ? TOKENS : r->nkept - n;
        int freed = setsockopt(r->sk, SOL_SOCKET, DEVMEM_DONTNEED, r->kept + n, k * (socklen_t)sizeof(struct token));
        if (freed != (int)k) {
            if (freed >= 0)
                errno = ENOMSG;
            die("SO_DEVMEM_DONTNEED freed %d of %u", freed, k);
        }
        n += k;
    }
    r->nkept = 0;
}

/* Calls recvmsg() once. Returns false at the end of the stream. */
static bool receive(struct receiver *r, uint64_t seed)
{
    static uint8_t iov[IOV];
    static char control[FRAGS * CMSG_SPACE(sizeof(struct frag))] __attribute__((aligned(8)));
    struct iovec v = {.iov_base = iov, .iov_len = sizeof(iov)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(r->sk, &m, SOCK_DEVMEM), told = 0;
    size_t copied = 0;
    if (n < 0)
        die("recvmsg after %llu bytes", (unsigned long long)r->got);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        struct frag f;
        if (c->cmsg_level != SOL_SOCKET || (c->cmsg_type != DEVMEM_LINEAR && c->cmsg_type != DEVMEM_DMABUF))
            continue;
        memcpy(&f, CMSG_DATA(c), sizeof(f));
        if (c->cmsg_type == DEVMEM_LINEAR) {
            r->bad += wrong(iov + copied, seed, r->got, f.size);
            copied += f.size;
            r->linear += f.size;
        } else {
            errno = ERANGE;
            if (f.offset > r->mem_size || f.size > r->mem_size - f.offset || r->nkept == MAX_KEPT)
                die("fragment at %llu, %u bytes", (unsigned long long)f.offset, f.size);
            r->bad += wrong(r->mem + f.offset, seed, r->got, f.size);
            memset(r->mem + f.offset, 0xdd, f.size); /* bytes that are not overwritten fail the next check */
            r->kept[r->nkept++] = (struct token){f.token, 1};
            r->devmem += f.size;
            r->frags++;
        }
        r->got += f.size;
        told += f.size;
    }
    if (n > told) { /* ordinary data, from an unbound queue */
        r->bad += wrong(iov + copied, seed, r->got, (size_t)(n - told));
        r->plain += (uint64_t)(n - told);
        r->got += (uint64_t)(n - told);
    }
    if (r->nkept > r->most)
        r->most = r->nkept;
    return n > 0;
}

static int recv_cmd(int argc, char **argv)
{
    static struct receiver r;
    const char *ifname = argv[2];
    uint64_t bytes = arg(argc, argv, "bytes", 1 << 20), seed = arg(argc, argv, "seed", 1),
             unbind = arg(argc, argv, "unbind", 0);
    uint64_t lazy = arg(argc, argv, "lazy", 0), conns = arg(argc, argv, "conns", 1);
    uint32_t id = 0;
    int clamp = (int)arg(argc, argv, "clamp", 0), rcvbuf = 1 << 20;
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)arg(argc, argv, "port", 5000))};
    int dmabuf, nl = -1, one = 1, ls = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    r.mem_size = arg(argc, argv, "mem", 8 << 20);
    r.mem = memory(r.mem_size, &dmabuf);
    if (arg(argc, argv, "queue", 999) != 999) {
        int rc = bind_dmabuf(ifname, (int)arg(argc, argv, "queue", 0), dmabuf, &nl, &id);
        errno = -rc;
        if (rc)
            die("%s: bind-rx", ifname);
    }
    setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    /* Limits the data in flight to the number of pages in the memory. Otherwise, out-of-order data might occupy all
     * pages, leaving none for missing data. Without SO_RCVBUF, the kernel would enlarge the window automatically. */
    if (clamp && (setsockopt(ls, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf)) < 0 ||
                  setsockopt(ls, IPPROTO_TCP, TCP_WINDOW_CLAMP, &clamp, sizeof(clamp)) < 0))
        die("TCP_WINDOW_CLAMP");
    if (ls < 0 || bind(ls, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(ls, 8) < 0)
        die("listen");
    printf("ready dmabuf=%u\n", id);
    fflush(stdout);
    for (; conns > 0; conns--) {
        uint64_t until = r.got + bytes, start = r.got;
        r.sk = accept(ls, NULL, NULL);
        if (r.sk < 0)
            die("accept");
        while (r.got < until) {
            uint64_t before = r.got;
            r.got -= start; /* the pattern restarts with each connection */
            bool more = receive(&r, seed);
            r.got += start;
            if (!more)
                break;
            if (unbind && before < unbind && r.got >= unbind)
                close(nl);
            /* With `lazy`, pages are returned only when no more data arrives. */
            struct pollfd p = {.fd = r.sk, .events = POLLIN};
            if (!lazy || r.nkept == MAX_KEPT || poll(&p, 1, (int)lazy) == 0)
                give_back(&r);
        }
        give_back(&r);
        if (r.got < until) {
            errno = EPIPE;
            die("the stream ended after %llu bytes", (unsigned long long)r.got);
        }
        close(r.sk);
    }
    printf("got=%llu devmem=%llu linear=%llu plain=%llu frags=%llu most=%u bad=%llu\n", (unsigned long long)r.got,
           (unsigned long long)r.devmem, (unsigned long long)r.linear, (unsigned long long)r.plain,
           (unsigned long long)r.frags, r.most, (unsigned long long)r.bad);
    return r.bad != 0;
}

/* ---- sending ---- */

struct sender {
    int sk;
    uint32_t sent, done, copied; /* messages */
};

/* Reads completions until no more than `left` messages are in flight. */
static void complete(struct sender *s, uint32_t left)
{
    while (s->sent - s->done > left) {
        char control[128];
        struct msghdr m = {.msg_control = control, .msg_controllen = sizeof(control)};
        struct pollfd p = {.fd = s->sk};
        if (recvmsg(s->sk, &m, MSG_ERRQUEUE) < 0) {
            if (errno != EAGAIN)
                die("error queue");
            if (poll(&p, 1, 60000) == 0) {
                errno = ETIMEDOUT;
                die("completion %u of %u", s->done, s->sent);
            }
            if (p.revents & POLLHUP) {
                errno = ECONNRESET;
                die("waiting for completions");
            }
            continue;
        }
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            struct sock_extended_err e;
            memcpy(&e, CMSG_DATA(c), sizeof(e));
            errno = (int)e.ee_errno;
            if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY || e.ee_errno)
                die("error queue: origin %u", e.ee_origin);
            s->done += e.ee_data - e.ee_info + 1;
            if (e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED)
                s->copied += e.ee_data - e.ee_info + 1;
        }
    }
}

/* Drops the socket's cached route. sendmsg() from bound memory does not check whether the cached route was dropped when
 * the link went down (net/core/devmem.c, net_devmem_get_binding()), and returns ENODEV forever; setting a new type of
 * service drops the route. */
static void reroute(const struct sender *s, int family)
{
    for (int tos = 4; tos >= 0; tos -= 4) {
        if (family == AF_INET6 ? setsockopt(s->sk, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos))
                               : setsockopt(s->sk, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)))
            die("type of service");
    }
}

static int send_cmd(int argc, char **argv)
{
    struct sender s = {0};
    const char *dev = text_arg(argc, argv, "dev");
    uint64_t bytes = arg(argc, argv, "bytes", 1 << 20), seed = arg(argc, argv, "seed", 1),
             idle = arg(argc, argv, "idle", 0);
    size_t size = arg(argc, argv, "mem", 4 << 20), chunk = arg(argc, argv, "chunk", 256 << 10);
    struct addrinfo *ai, hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    int dmabuf, nl = -1, one = 1;
    uint32_t id = 0;
    uint8_t *mem = memory(size, &dmabuf);
    if (getaddrinfo(argv[2], text_arg(argc, argv, "port"), &hint, &ai) != 0)
        die("address %s", argv[2]);
    s.sk = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (dev) {
        int rc = bind_dmabuf(dev, -1, dmabuf, &nl, &id);
        errno = -rc;
        if (rc)
            die("%s: bind-tx", dev);
        if (setsockopt(s.sk, SOL_SOCKET, SO_BINDTODEVICE, dev, (socklen_t)strlen(dev) + 1) < 0 ||
            setsockopt(s.sk, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) < 0)
            die("SO_BINDTODEVICE, SO_ZEROCOPY");
    }
    if (connect(s.sk, ai->ai_addr, ai->ai_addrlen) < 0)
        die("connect to %s", argv[2]);
    int family = ai->ai_family;
    freeaddrinfo(ai);
    uint64_t at = 0;
    unsigned retries = 0;
    while (at < bytes) {
        size_t off = at % size, n = chunk;
        n = n > bytes - at ? bytes - at : n;
        n = n > size - off ? size - off : n;
        if (off == 0)
            complete(&s, 0); /* overwrite the memory only after all of it has been read */
        if (idle && at >= bytes / 2) {
            complete(&s, 0);
            printf("idle\n");
            fflush(stdout);
            raise(SIGSTOP); /* until SIGCONT */
            idle = 0;
        }
        fill(mem + off, seed, at, n);
        for (size_t sent = 0; sent < n;) {
            char control[CMSG_SPACE(4)] __attribute__((aligned(8))) = {0};
            struct iovec v = {.iov_base = dev ? (void *)(off + sent) : mem + off + sent,
                              .iov_len = n - sent}; // NOLINT: an offset
            struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
            if (dev) {
                m.msg_control = control;
                m.msg_controllen = sizeof(control);
                struct cmsghdr *c = CMSG_FIRSTHDR(&m);
                *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = DEVMEM_DMABUF, .cmsg_len = CMSG_LEN(4)};
                memcpy(CMSG_DATA(c), &id, 4);
            }
            ssize_t k = sendmsg(s.sk, &m, MSG_NOSIGNAL | (dev ? MSG_ZEROCOPY : 0));
            if (k < 0 && errno == ENOBUFS && s.sent != s.done) { /* too many unread completions */
                complete(&s, (s.sent - s.done) / 2);
                continue;
            }
            if (k < 0 && dev && (errno == ENODEV || errno == EHOSTUNREACH || errno == ENETUNREACH) &&
                retries++ < 2000) {
                reroute(&s, family);
                usleep(10000);
                continue;
            }
            if (k < 0)
                die("sendmsg at %llu", (unsigned long long)at);
            s.sent += dev != NULL;
            sent += (size_t)k;
        }
        at += n;
    }
    complete(&s, 0);
    shutdown(s.sk, SHUT_WR);
    char end;
    while (recv(s.sk, &end, 1, 0) > 0)
        ;
    printf("sent=%llu messages=%u copied=%u retries=%u\n", (unsigned long long)at, s.sent, s.copied, retries);
    return 0;
}

static int bindtx_cmd(const char *ifname)
{
    int dmabuf, nl;
    uint32_t id = 0;
    memory(1 << 20, &dmabuf);
    int rc = bind_dmabuf(ifname, -1, dmabuf, &nl, &id);
    errno = -rc;
    if (rc)
        die("%s: bind-tx", ifname);
    printf("dmabuf=%u\n", id);
    return 0;
}

static int pools_cmd(void)
{
    static char buf[65536] __attribute__((aligned(8)));
    unsigned pools = 0, waiting = 0;
    uint16_t family;
    int fd = genl_open("netdev", &family);
    struct msg m = begin(family, NETDEV_CMD_PAGE_POOL_GET);
    m.nl.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    if (send(fd, &m, m.nl.nlmsg_len, 0) < 0)
        die("netlink send");
    for (;;) {
        ssize_t n = recv(fd, buf, sizeof(buf), 0);
        if (n < 0)
            die("netlink receive");
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type == NLMSG_ERROR) {
                errno = -((struct nlmsgerr *)NLMSG_DATA(h))->error;
                die("page-pool-get");
            }
            if (h->nlmsg_type == NLMSG_DONE) {
                printf("pools=%u waiting=%u\n", pools, waiting);
                return 0;
            }
            pools++;
            waiting += find(h, NETDEV_A_PAGE_POOL_DETACH_TIME) != NULL;
        }
    }
}

int main(int argc, char **argv)
{
    const char *cmd = argc > 2 ? argv[1] : "";
    if (strcmp(cmd, "nic") == 0)
        return nic(argc, argv);
    if (strcmp(cmd, "stat") == 0 && argc == 4)
        return stat_cmd(argv[2], argv[3]);
    if (strcmp(cmd, "recv") == 0)
        return recv_cmd(argc, argv);
    if (strcmp(cmd, "send") == 0)
        return send_cmd(argc, argv);
    if (strcmp(cmd, "bindtx") == 0)
        return bindtx_cmd(argv[2]);
    if (strcmp(cmd, "pools") == 0)
        return pools_cmd();
    fprintf(stderr, "usage: dmnic_probe nic|stat|recv|send|bindtx|pools ...\n");
    return 2;
}
