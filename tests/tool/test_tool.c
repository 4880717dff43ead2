/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the tool's parsers, messages and internal state. */
#include "tests/tap.h"
#include "tool/bugreport/mask.h"
#include "tool/common.h"
#include "tool/demo/demo.h"
#include "tool/launch/launch_meet.h"
#include "tool/load/buffer.h"
#include "tool/load/stats.h"
#include "tool/report/output.h"
#include "tool/sandbox/sandbox.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void sizes(void)
{
    uint64_t v[8];
    size_t n;
    ok(opts_sizes("64MiB,1GiB", v, 8, &n) == 0 && n == 2 && v[0] == 64u << 20 && v[1] == 1u << 30, "a list of sizes");
    ok(opts_sizes("1KiB:8KiB", v, 8, &n) == 0 && n == 4 && v[3] == 8192, "a range doubles");
    ok(opts_sizes("1000:3000", v, 8, &n) == 0 && n == 3 && v[1] == 2000 && v[2] == 3000, "a range ends at its end");
    ok(opts_sizes("0,4294967303", v, 8, &n) == 0 && n == 2 && v[0] == 0 && v[1] == 4294967303u, "0 and 2^32+7");
    ok(opts_sizes("9223372036854775808:18446744073709551615", v, 8, &n) == 0 && n == 2 && v[1] == UINT64_MAX,
       "a range at the very end does not wrap");
    static const char *const bad[] = {"", ",", "1,", ",1", "1,,2", "0:8", "8:4", "1:2:3", "x", "1KiB:", ":1", "-1"};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++)
        ok(opts_sizes(bad[i], v, 8, &n) == -EINVAL && *hw_error(), "'%s' is refused: %s", bad[i], hw_error());
    ok(opts_sizes("1:1KiB", v, 8, &n) == -E2BIG, "more sizes than there is room for");
}

static void hosts(void)
{
    static const struct {
        const char *text, *host;
        unsigned port; /* 0: refused */
    } t[] = {{"node7", "node7", 1},
             {"1.2.3.4:77", "1.2.3.4", 77},
             {"fe80::1", "fe80::1", 1},
             {"[fe80::1]", "fe80::1", 1},
             {"[fe80::1]:65535", "fe80::1", 65535},
             {"", "", 0},
             {":5", "", 0},
             {"a:", "", 0},
             {"a:0", "", 0},
             {"a:65536", "", 0},
             {"a:5x", "", 0},
             {"[::1", "", 0},
             {"[::1]5", "", 0},
             {"[]:5", "", 0}};
    for (size_t i = 0; i < HW_ARRAY_LEN(t); i++) {
        char host[32] = "";
        uint16_t port = 1;
        int rc = opts_host(t[i].text, host, sizeof host, &port);
        if (t[i].port)
            ok(rc == 0 && strcmp(host, t[i].host) == 0 && port == t[i].port, "host '%s'", t[i].text);
        else
            ok(rc == -EINVAL, "host '%s' is refused", t[i].text);
    }
    ok(opts_nics("eth0,eth1") == 0 && opts_nics("a") == 0, "lists of NICs");
    static const char *const bad[] = {"", "a,", ",a", "a,,b", "a,b,a", "abcdefghijklmnop", "a b", "a/b"};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++)
        ok(opts_nics(bad[i]) == -EINVAL, "NICs '%s' are refused", bad[i]);
    ok(opts_nics("eth1,eth11,eth") == 0, "a name may be another's beginning");
}

static int key_of(const char *path, const char *text, size_t n, mode_t mode, uint8_t *key, size_t *len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n || fchmod(fd, mode) < 0)
        abort();
    close(fd);
    return common_read_key(path, key, 64, len);
}

/* A key in the environment stays in no environment, even if a key file is used instead. */
static void launch_keys(const char *path)
{
    static const char name[] = "HAWSER_MESH_KEY";
    struct common c = {0};
    uint8_t key[64];
    size_t len = 0;
    setenv(name, "fedcba9876543210", 1);
    ok(launch_key(&c) == 0 && c.key_len == 16 && memcmp(c.key, "fedcba9876543210", 16) == 0 && !getenv(name),
       "a launcher's key from the environment, which is then removed");
    setenv(name, "fedcba9876543210", 1);
    (void)key_of(path, "0123456789abcdef", 16, 0600, key, &len);
    c = (struct common){.key_file = path};
    ok(launch_key(&c) == 0 && c.key_len == 16 && memcmp(c.key, "0123456789abcdef", 16) == 0, "a key file has priority");
    ok(!getenv(name), "and the key is removed from the environment too");
}

static void keys(void)
{
    char dir[] = "/tmp/hawser-test-XXXXXX", path[64], big[80];
    uint8_t key[64];
    size_t len = 0;
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof path, "%s/key", dir);
    memset(big, 'k', sizeof big);
    ok(key_of(path, "0123456789abcdef\n", 17, 0600, key, &len) == 0 && len == 16, "one newline at the end is dropped");
    ok(key_of(path, "0123456789abcdef\n\n", 18, 0600, key, &len) == 0 && len == 17, "only one");
    is_int(key_of(path, "0123456789abcde\n", 16, 0600, key, &len), -EINVAL, "15 bytes are too short");
    ok(key_of(path, big, 64, 0640, key, &len) == 0 && len == 64, "a full buffer; the group may read");
    is_int(key_of(path, big, 65, 0600, key, &len), -EINVAL, "one more is refused");
    big[64] = '\n';
    ok(key_of(path, big, 65, 0600, key, &len) == 0 && len == 64, "unless it is the newline");
    is_int(key_of(path, big, 66, 0600, key, &len), -EINVAL, "with nothing behind it");
    is_int(key_of(path, big, 32, 0604, key, &len), -EACCES, "a key that everyone can read");
    is_int(common_read_key(dir, key, sizeof key, &len), -EINVAL, "a folder");
    launch_keys(path);
    unlink(path);
    is_int(common_read_key(path, key, sizeof key, &len), -ENOENT, "no file");
    rmdir(dir);
}

static struct tp_request a_request(void)
{
    struct tp_request q = {.type = TP_RAW, .id = 7, .first = 1ull << 40, .count = 9};
    q.raw.kind = TP_RAW_DOWN;
    q.raw.streams = 4;
    q.raw.timeout_ms = 1000;
    q.raw.message = 1u << 20;
    q.raw.total = 123456789;
    q.raw.n_addrs = TP_MAX_PATHS;
    for (int i = 0; i < TP_MAX_PATHS; i++)
        snprintf(q.raw.addr[i], sizeof q.raw.addr[i], "198.18.%d.1", i);
    memset(q.raw.token, 0xab, sizeof q.raw.token);
    return q;
}

static void messages(void)
{
    uint8_t buf[TP_REPLY + 1], again[TP_REPLY];
    struct tp_request q = a_request(), q2;
    struct tp_reply r = {.type = TP_END,
                         .id = 3,
                         .status = -ENOMEM,
                         .bad = 5,
                         .checked = 6,
                         .raw_seconds = 1.5,
                         .n_nics = TP_MAX_NICS},
                    r2;
    is_int(tp_encode_request(&q, buf), 0, "a full request is encoded");
    ok(tp_decode_request(buf, TP_REQUEST, &q2) == 0 && tp_encode_request(&q2, again) == 0 &&
           memcmp(buf, again, TP_REQUEST) == 0 && q2.raw.total == 123456789 &&
           strcmp(q2.raw.addr[15], "198.18.15.1") == 0,
       "and comes back the same");
    is_int(tp_decode_request(buf, TP_REQUEST - 1, &q2), -EPROTO, "a request cut short");
    is_int(tp_decode_request(buf, TP_REQUEST + 1, &q2), -EPROTO, "a request with more behind it");
    for (int i = 0; i < 8; i++) {
        buf[i] ^= 0x80;
        is_int(tp_decode_request(buf, TP_REQUEST, &q2), -EPROTO, "another magic or version");
        buf[i] ^= 0x80;
    }
    buf[TP_REQUEST - 1] = 1;
    is_int(tp_decode_request(buf, TP_REQUEST, &q2), -EPROTO, "something where nothing belongs");

    static const struct {
        struct tp_request q;
        const char *what;
    } bad[] = {
        {{.type = 0}, "type 0"},
        {{.type = TP_TYPES}, "a type that is not there"},
        {{.type = TP_PREPARE, .op = TP_WRITE, .slots = 0, .depth = 1, .stride = 64}, "no slots"},
        {{.type = TP_PREPARE, .op = TP_WRITE, .slots = TP_MAX_SLOTS + 1, .depth = 1, .stride = 64}, "too many slots"},
        {{.type = TP_PREPARE, .op = TP_OPS, .slots = 1, .depth = 1, .stride = 64}, "an unknown op"},
        {{.type = TP_PREPARE, .op = TP_WRITE, .slots = 1, .depth = 1, .stride = 64, .size = 65}, "size over stride"},
        {{.type = TP_PREPARE, .op = TP_WRITE, .slots = 2, .depth = 1, .stride = 1ull << 63}, "a region that wraps"},
        {{.type = TP_PREPARE, .op = TP_WRITE, .slots = 1, .depth = 1, .stride = 64, .flags = 4}, "an unknown flag"},
        {{.type = TP_BEGIN, .first = UINT64_MAX, .count = 1}, "iterations that wrap"},
    };
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++)
        ok(tp_encode_request(&bad[i].q, buf) == -EINVAL && tp_decode_request(buf, TP_REQUEST, &q2) == -EPROTO,
           "%s is refused on both sides", bad[i].what);

    snprintf(r.text, sizeof r.text, "why");
    for (int i = 0; i < TP_MAX_NICS; i++) {
        snprintf(r.nic[i].nic, sizeof r.nic[i].nic, "eth%d", i);
        r.nic[i].kernel_rx_bytes = UINT64_MAX - (uint64_t)i;
        r.nic[i].devmem_pkts = 77u + (unsigned)i;
        r.nic[i].has_devmem_pkts = i % 2;
    }
    is_int(tp_encode_reply(&r, buf), 0, "a full reply is encoded");
    ok(tp_decode_reply(buf, TP_REPLY, &r2) == 0 && tp_encode_reply(&r2, again) == 0 &&
           memcmp(buf, again, TP_REPLY) == 0 && r2.status == -ENOMEM && r2.raw_seconds == 1.5 &&
           strcmp(r2.nic[15].nic, "eth15") == 0 && r2.nic[15].devmem_pkts == 92 && r2.nic[15].has_devmem_pkts == 1,
       "and comes back the same");
    is_int(tp_decode_reply(buf, TP_REPLY - 1, &r2), -EPROTO, "a reply cut short");
    buf[20] = 0x1b;
    is_int(tp_decode_reply(buf, TP_REPLY, &r2), -EPROTO, "an escape character in its text");
    r.status = 1;
    is_int(tp_encode_reply(&r, buf), -EINVAL, "a status above 0");
}

/* Tests the facts that `hawser doctor` requests from the peer. */
static void facts(void)
{
    uint8_t buf[TP_REPLY], again[TP_REPLY];
    struct tp_request q = {.type = TP_FACTS, .reach = {.port = 40000, .n_addrs = TP_MAX_NICS}}, q2;
    struct tp_reply r = {.type = TP_FACTS, .facts = {.hawser = "0.1.0", .n_nics = TP_MAX_NICS}}, r2;
    for (int i = 0; i < TP_MAX_NICS; i++) {
        q.reach.addr[i] = (struct tp_addr){.family = i % 2 ? 6 : 4, .byte = {198, 18, (uint8_t)i, 1}};
        r.facts.nic[i] = (struct tp_fact_nic){.nic = "eth0",
                                              .addr = q.reach.addr[i],
                                              .prefix = 24,
                                              .mtu = 8896,
                                              .speed = 200000,
                                              .rdma = "mlx5_0",
                                              .gid = 3,
                                              .contained = 1};
        r.facts.tried[i] = r.facts.reached[i] = 0xffff;
        r.facts.carried[i] = (uint16_t)(1u << i);
    }
    ok(tp_encode_request(&q, buf) == 0 && tp_decode_request(buf, TP_REQUEST, &q2) == 0 &&
           memcmp(&q.reach, &q2.reach, sizeof q.reach) == 0,
       "a full question about facts comes back the same");
    ok(tp_encode_reply(&r, buf) == 0 && tp_decode_reply(buf, TP_REPLY, &r2) == 0 && tp_encode_reply(&r2, again) == 0 &&
           memcmp(buf, again, TP_REPLY) == 0 && r2.facts.carried[15] == 1u << 15 && r2.facts.nic[15].speed == 200000,
       "and so does a full answer");
    q.reach.port = 22;
    is_int(tp_encode_request(&q, buf), -EINVAL, "connections to a port below 1024 are not asked for");
    q.reach.port = 40000;
    q.reach.addr[0].byte[15] = 1;
    is_int(tp_encode_request(&q, buf), -EINVAL, "an IPv4 address with more behind it");
    q.reach.addr[0] = (struct tp_addr){.family = 5};
    is_int(tp_encode_request(&q, buf), -EINVAL, "an address of no family");
    q.reach.n_addrs = TP_MAX_NICS + 1;
    is_int(tp_encode_request(&q, buf), -EINVAL, "too many addresses");
    r.facts.tried[3] = 0;
    is_int(tp_encode_reply(&r, buf), -EINVAL, "reached, but never tried");
    r.facts.tried[3] = 0xffff;
    r.facts.nic[2].prefix = 33;
    is_int(tp_encode_reply(&r, buf), -EINVAL, "an IPv4 subnet of 33 bits");
    r.facts.nic[2].prefix = 24;
    static const char *const bad[] = {"", ".", "..", "../x", "a b", "eth0:1", "a/b", "\xc3\xa4"};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        snprintf(r.facts.nic[5].nic, sizeof r.facts.nic[5].nic, "%s", bad[i]);
        is_int(tp_encode_reply(&r, buf), -EINVAL, "a NIC with a name that no interface has");
        snprintf(r.facts.nic[5].nic, sizeof r.facts.nic[5].nic, "eth5");
        snprintf(r.facts.nic[5].rdma, sizeof r.facts.nic[5].rdma, "%s", i ? bad[i] : "");
        is_int(tp_encode_reply(&r, buf), -EINVAL, i ? "an RDMA device of such a name" : "a GID of no device");
        snprintf(r.facts.nic[5].rdma, sizeof r.facts.nic[5].rdma, "mlx5_0");
    }
    is_int(tp_encode_reply(&r, buf), 0, "all is right again");
    /* an untrusted peer might send this: the reply contains the name verbatim */
    uint8_t *at = memmem(buf, TP_REPLY, "eth5", 4);
    memcpy(at, "e/h5", 4);
    is_int(tp_decode_reply(buf, TP_REPLY, &r2), -EPROTO, "a stranger's name with a slash is refused");
    memcpy(at, "eth5", 4);
    at[4] = ',';
    is_int(tp_decode_reply(buf, TP_REPLY, &r2), -EPROTO, "and one that would be two in a list");
    q = (struct tp_request){.type = TP_FACTS, .flags = TP_CONTAINED};
    is_int(tp_encode_request(&q, buf), 0, "containers' NICs are asked for");
    q.flags = TP_HOT;
    is_int(tp_encode_request(&q, buf), -EINVAL, "and by no other flag");
}

static void inventory(void)
{
    uint8_t buf[TP_REPLY];
    struct tp_request q = {.type = TP_INVENTORY, .first = TP_INVENTORY_MOST}, q2;
    struct tp_reply r = {.type = TP_INVENTORY, .whole = 9, .n_piece = 9, .piece = "inventory"}, r2;
    ok(tp_encode_request(&q, buf) == 0 && tp_decode_request(buf, TP_REQUEST, &q2) == 0 && q2.first == q.first,
       "a piece of the inventory is asked for");
    ok(tp_encode_reply(&r, buf) == 0 && tp_decode_reply(buf, TP_REPLY, &r2) == 0 && memcmp(&r2, &r, sizeof r) == 0,
       "and told");
    q.first++;
    r.n_piece++;
    ok(tp_encode_request(&q, buf) == -EINVAL && tp_encode_reply(&r, buf) == -EINVAL, "within its bounds");
}

/* matching NICs */

struct match_nic {
    const char *name, *addr; /* for example "10.0.1.1/24"; NULL if none is known */
    const char *partner;     /* expected partner of the peer's NIC, or NULL */
};

static void parse_addr(const char *text, uint8_t byte[4], unsigned *prefix)
{
    unsigned b[4];
    if (sscanf(text, "%u.%u.%u.%u/%u", &b[0], &b[1], &b[2], &b[3], prefix) != 5)
        abort();
    for (int i = 0; i < 4; i++)
        byte[i] = (uint8_t)b[i];
}

static void match(const char *what, const struct match_nic *mine, size_t n_mine, const struct match_nic *theirs,
                  size_t n_theirs)
{
    struct sbx_netdev net[8] = {0};
    struct sbx_addr addr[8] = {0};
    struct sbx_snapshot s = {.net = net, .n_net = n_mine, .addresses = mine[0].addr};
    struct tp_facts f = {.n_nics = (uint32_t)n_theirs};
    int partner[TP_MAX_NICS];
    for (size_t i = 0; i < n_mine; i++) {
        snprintf(net[i].name, sizeof net[i].name, "%s", mine[i].name);
        net[i].loopback = strcmp(mine[i].name, "lo") == 0;
        net[i].pci = -1;
        if (!mine[i].addr)
            continue;
        addr[i].family = AF_INET;
        parse_addr(mine[i].addr, (uint8_t *)&addr[i].v4, &addr[i].prefix);
        net[i].addr = &addr[i];
        net[i].n_addr = 1;
    }
    for (size_t k = 0; k < n_theirs; k++) {
        unsigned prefix;
        snprintf(f.nic[k].nic, sizeof f.nic[k].nic, "%s", theirs[k].name);
        parse_addr(theirs[k].addr, f.nic[k].addr.byte, &prefix);
        f.nic[k].addr.family = 4;
        f.nic[k].prefix = (uint16_t)prefix;
    }
    sandbox_match(&s, &f, partner);
    for (size_t k = 0; k < n_theirs; k++) {
        uint32_t at = 0;
        while (strcmp(f.nic[at].nic, theirs[k].name) != 0)
            at++;
        is_str(partner[at] < 0 ? "none" : net[partner[at]].name, theirs[k].partner ? theirs[k].partner : "none", what);
    }
}
#define NIC(name, addr)  \
    {                    \
        name, addr, NULL \
    }
#define WITH(name, addr, partner) \
    {                             \
        name, addr, partner       \
    }
#define MATCH(what, mine, theirs) match(what, mine, HW_ARRAY_LEN(mine), theirs, HW_ARRAY_LEN(theirs))

static void matches(void)
{
    static const struct match_nic
        rails[] = {NIC("lo", "127.0.0.1/8"), NIC("rdma0", "10.0.0.1/24"), NIC("rdma1", "10.0.1.1/24")},
        same[] = {WITH("rdma1", "10.0.1.2/24", "rdma1"), WITH("rdma0", "10.0.0.2/24", "rdma0"),
                  NIC("rdma2", "10.0.2.2/24")},
        named[] = {WITH("enp0", "10.0.1.2/24", "rdma1"), WITH("enp1", "10.0.0.2/24", "rdma0")},
        swapped[] = {WITH("rdma0", "10.0.1.2/24", "rdma1"), WITH("rdma1", "10.0.0.2/24", "rdma0")},
        wide[] = {NIC("rdma0", "10.0.0.1/12"), NIC("rdma1", "10.0.0.3/12"), NIC("rdma3", "10.0.0.5/12")},
        wider[] = {WITH("rdma1", "10.0.0.2/12", "rdma1"), WITH("rdma3", "10.0.0.4/12", "rdma3"),
                   WITH("rdma9", "10.0.0.6/12", "rdma0")},
        google[] = {NIC("eth1", "10.1.0.2/32"), NIC("eth2", "10.2.0.2/32")},
        cloud[] = {WITH("eth2", "10.2.0.3/32", "eth2"), WITH("eth1", "10.1.0.3/32", "eth1")},
        racks[] = {WITH("rdma0", "10.9.0.1/24", "rdma0"), WITH("rdma1", "10.9.1.1/24", "rdma1")},
        blind[] = {NIC("rdma0", NULL), NIC("rdma1", NULL)};
    MATCH("a subnet a rail, in another order, one more there", rails, same);
    MATCH("other names: by the subnet", rails, named);
    MATCH("equal names in other subnets do not count", rails, swapped);
    MATCH("all in one subnet: by names first, what is left in order", wide, wider);
    MATCH("Google's /32", google, cloud);
    MATCH("another subnet in each rack: by names", rails, racks);
    MATCH("a snapshot without addresses: by names", blind, same);
}

static void numbers(void)
{
    static const char dev[] = "Inter-|   Receive                    |  Transmit\n"
                              " face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n"
                              "    lo: 100 2 0 0 0 0 0 0 200 3 0 0 0 0 0 0\n"
                              "  eth0:18446744073709551615 2 0 0 0 0 0 0 7 3 0 0 0 0 0 0\n"
                              "eth0.1: 5 2\n";
    struct tp_nic n[3] = {{.nic = "eth0"}, {.nic = "lo"}, {.nic = "eth0.1"}};
    is_int(stats_parse_netdev(dev, sizeof dev - 1, n, 3), 2, "two of three NICs stand in /proc/net/dev");
    ok(n[0].kernel_rx_bytes == UINT64_MAX && n[0].kernel_tx_bytes == 7 && n[1].kernel_tx_bytes == 200 &&
           n[2].kernel_rx_bytes == 0,
       "with their bytes");

    struct tp_nic before[2] = {{.nic = "a", .tx_bytes = 5}, {.nic = "b"}},
                  after[2] = {{.nic = "b", .rx_bytes = 3}, {.nic = "a", .tx_bytes = 9}}, sum[2];
    size_t k = 0;
    stats_add(sum, &k, 2, before, 2, after, 2);
    stats_add(sum, &k, 2, before, 1, after, 2);
    ok(k == 2 && strcmp(sum[1].nic, "a") == 0 && sum[1].tx_bytes == 8 && sum[0].rx_bytes == 3,
       "differences add up by name, and only for what was there before");

    struct tp_nic was[2] = {{.nic = "a", .devmem_pkts = 10, .has_devmem_pkts = 1}, {.nic = "b"}},
                  is[2] = {{.nic = "a", .devmem_pkts = 25, .has_devmem_pkts = 1},
                           {.nic = "b", .devmem_pkts = 5, .has_devmem_pkts = 1}};
    k = 0;
    stats_add(sum, &k, 2, was, 2, is, 2);
    ok(k == 2 && sum[0].has_devmem_pkts && sum[0].devmem_pkts == 15 && !sum[1].has_devmem_pkts,
       "a NIC's own count of packets is one where it could be read both times");

    static const struct {
        struct tp_nic n;
        bool devmem;
        const char *says;
    } c[] = {
        {{.nic = "a", .rx_bytes = 9000000, .rx_device_bytes = 9000000, .devmem_pkts = 2200, .has_devmem_pkts = 1},
         true,
         ""},
        {{.nic = "a", .rx_bytes = 9000000, .rx_device_bytes = 9000000}, true, ""},
        {{.nic = "a", .rx_bytes = 9000000, .has_devmem_pkts = 1}, false, ""},
        {{.nic = "a", .tx_bytes = 9000000, .has_devmem_pkts = 1}, true, ""},
        {{.nic = "a", .rx_bytes = 9000000, .rx_device_bytes = 9000000, .has_devmem_pkts = 1},
         true,
         "did not change: the data arrived"},
        {{.nic = "a", .rx_bytes = 9000000, .rx_device_bytes = 9000000, .devmem_pkts = 9, .has_devmem_pkts = 1},
         true,
         "but the 9 packets that"},
        {{.nic = "a", .rx_bytes = 9000000, .has_devmem_pkts = 1}, true, "did not change (rx no cmsg)"},
        {{.nic = "a", .rx_bytes = 9000000, .devmem_pkts = 5, .has_devmem_pkts = 1},
         true,
         "rose only because of packets for other programs"},
    };
    for (size_t i = 0; i < HW_ARRAY_LEN(c); i++) {
        char why[256];
        bool differs = output_devmem_differs(&c[i].n, c[i].devmem, why, sizeof why);
        ok(differs == (*c[i].says != 0) && strstr(why, c[i].says) != NULL, "hawser's count and the NIC's, %zu: %s", i,
           *why ? why : "they agree");
    }

    double v[4] = {4, 1, 3, 2};
    ok(stats_median(v, 4) == 2.5 && stats_median(v, 3) == 2 && stats_median(v, 0) == 0, "medians");
    ok(buffer_need(8, 64, 4, false) == 256 && buffer_need(8, 64, 4, true) == 8 && buffer_need(0, 64, 1, true) == 1 &&
           buffer_need(1, UINT64_MAX / 2, 3, false) == 0,
       "memory of slots, without overflow");
    ok(tp_seed(1, 0) != tp_seed(1, 1) && tp_seed(1, 1) != tp_seed(2, 0) && tp_seed(0, 0) != 0, "seeds differ");
}

static void masks(void)
{
    static const char text[] =
        "10.0.0.1 10.0.0.2:20000, [fd00::1]:5 10.0.0.1. 02:42:ac:11:00:02 127.0.0.1 at 21:18:04 on vm, devmem\n"
        "0000:3b:00.0 version 1.0.0 vm-2 198.18.0.1/24";
    char *out = mask_addresses(text, "vm");
    is_str(out,
           "<address-1> <address-2>:20000, [<address-3>]:5 <address-1>. <address-4> 127.0.0.1 at 21:18:04 on <host>, "
           "devmem\n"
           "0000:3b:00.0 version 1.0.0 vm-2 <address-5>/24",
           "addresses and the host's name are masked, and nothing else");
    free(out);
    struct mask *m = mask_new();
    mask_word(m, "node1", "<here>");
    mask_word(m, "", "<nothing>");
    mask_word(m, "n2.lab.example", "<there>");
    out = mask_text(m, "node1.cluster.example: n2.lab.example at 10.0.0.1; node12, enx02420000ab01, enxeth0.");
    is_str(out, "<here>: <there> at <address-1>; node12, <address-2>, enxeth0.", "words go with their domains");
    free(out);
    out = mask_text(m, "enx02420000ab01 on node1. 10.0.0.1");
    is_str(out, "<address-2> on <here>. <address-1>", "placeholders stay the same in another text");
    free(out);
    mask_free(m);
}

static void put_line(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    if (!f || fprintf(f, "%s\n", text) < 0 || fclose(f) != 0)
        exit(99);
}

/* Tests the demo's message about channels when one of the channels was lost twice. */
static void demo_lost(void)
{
    char folder[] = "/tmp/hawser-tool-XXXXXX";
    struct demo *d = calloc(1, sizeof *d);
    if (!d || !mkdtemp(folder))
        exit(99);
    snprintf(d->result, sizeof d->result, "%s/result", folder);
    snprintf(d->lists, sizeof d->lists, "%s/lists", folder);
    snprintf(d->second, sizeof d->second, "%s/second", folder);
    put_line(d->result, "{\"GBps\":1}");
    put_line(d->lists, "{\"GBps\":1}\n{\"GBps\":1}");
    put_line(d->second, "{\"per_channel\":[{\"lost\":2},{\"lost\":0},{\"lost\":1}]}");
    fflush(stdout);
    int keep = dup(1), null = open("/dev/null", O_WRONLY | O_CLOEXEC); /* demo_check() prints */
    dup2(null, 1);
    (void)demo_check(d);
    fflush(stdout);
    dup2(keep, 1);
    close(keep);
    close(null);
    bool said = false;
    for (size_t i = 0; i < d->n_proved; i++)
        said = said || strstr(d->proved[i], "its channels were lost 3 times in total");
    ok(said, "the demo counts losses of channels, not channels that were lost");
    unlink(d->result);
    unlink(d->lists);
    unlink(d->second);
    rmdir(folder);
    free(d);
}

int main(void)
{
    masks();
    demo_lost();
    sizes();
    hosts();
    keys();
    messages();
    facts();
    inventory();
    matches();
    numbers();
    return tap_done();
}
