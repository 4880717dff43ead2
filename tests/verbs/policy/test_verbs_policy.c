/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the policy file and annotations: the resulting rules for a container and a device, and which errors are
 * reported for which lines. */
#include "tests/tap.h"
#include "verbs/policy/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

static struct vb_policy *P;
static struct vb_rules R;

static int parse(const char *text)
{
    vb_policy_free(P);
    return vb_policy_parse(text, strlen(text), "p.ini", &P);
}

static void refused(const char *text, const char *why)
{
    struct vb_policy *p = (struct vb_policy *)(uintptr_t)8;
    int rc = vb_policy_parse(text, strlen(text), "p.ini", &p);
    ok(rc < 0 && !p && strstr(hw_error(), why), "refused: %s", hw_error());
}

static int rules(const char *container, const char *device)
{
    return vb_policy_rules(P, container, NULL, 0, device, &R);
}

/* Applies one annotation to a container's rules. */
static int narrowed(const char *container, const char *key, const char *value)
{
    struct vb_annotation a = {key, value};
    return vb_policy_rules(P, container, &a, 1, "rxe0", &R);
}

static void defaults(void)
{
    ok(parse("") == 0 && rules(NULL, "rxe0") == 0 && !R.allowed, "an empty file grants no device");
    ok(parse("[default]\ndevices = *\n") == 0 && rules(NULL, "rxe0") == 0 && R.allowed, "a line grants them all");
    ok(parse("\xef\xbb\xbf[default]\ndevices = *\n") == 0 && rules(NULL, "rxe0") == 0 && R.allowed,
       "also after a byte order mark");
    ok(R.qp_types == 1u << 2 && R.allow == 0, "RC only, and nothing that has to be allowed");
    bool gids = true;
    for (size_t i = 0; i < sizeof(R.gids); i++)
        gids &= R.gids[i] == 0xff;
    ok(gids && R.ports == UINT64_MAX - 1 && R.any_pkey && R.any_destination, "all ports, GIDs, P_Keys, destinations");
    ok(R.mr_bytes == 16ull << 30 && R.cqe == 131072 && R.qp_wr == 16384, "sizes");
    ok(R.max[VB_CONTEXT] == 64 && R.max[VB_MR] == 16384 && R.max[VB_QP] == 1024 && R.max[VB_DM] == 0, "counts");
    ok(rules(NULL, "") == 0 && vb_policy_rules(P, "", NULL, 0, "rxe0", &R) == 0, "no container's name is the default");
}

static void order(void)
{
    /* The most specific section is first, because the order of section kinds does not matter. */
    static const char text[] = "[container a device rxe*]\nqp_wr = 4\n"
                               "[container a]\nqp_wr = 3\ncqe = 30\ndevices = rxe*, siw0\n"
                               "[device rxe*]\nqp_wr = 2\ncqe = 20\nmax_qps = 20\n"
                               "[device *0]\nmax_qps = 21\n"
                               "[default]\nqp_wr = 1\ncqe = 10\nmax_qps = 10\nmax_cqs = 10\ndevices = mlx5_?\n";
    is_int(parse(text), 0, "four kinds of section");
    ok(rules("a", "rxe0") == 0 && R.qp_wr == 4 && R.cqe == 30 && R.max[VB_QP] == 21 && R.max[VB_CQ] == 10 && R.allowed,
       "each key is the most particular section's, of two patterns the later one's");
    ok(rules("a", "siw0") == 0 && R.qp_wr == 3 && R.max[VB_QP] == 21 && R.allowed, "another device");
    ok(rules("a", "siw1") == 0 && R.max[VB_QP] == 10 && !R.allowed, "a device that is not the container's");
    ok(rules(NULL, "rxe0") == 0 && R.qp_wr == 2 && R.cqe == 20 && !R.allowed, "a container without a name");
    ok(rules(NULL, "mlx5_1") == 0 && R.allowed, "the default's devices");
    ok(rules("a", "mlx5_1") == 0 && !R.allowed, "are not a container's that has devices of its own");
    ok(rules("b", "mlx5_1") == -ENOENT && !R.allowed, "an unknown container: %s", hw_error());
    ok(vb_policy_has(P, "a") && !vb_policy_has(P, "b") && !vb_policy_has(P, ""), "which there are");
    ok(parse("[container c device rxe0]\n") == 0 && vb_policy_has(P, "c"), "a section without keys is one too");
}

static bool gid(unsigned i)
{
    return R.gids[i / 8] >> i % 8 & 1;
}

static void values(void)
{
    static const char text[] = "[default]\n"
                               "devices = *\n"
                               "ports = 1, 3-4\n"
                               "gids = 3 5,250-255\n"
                               "pkeys = 0x8001, 32770\n"
                               "pkeys = 0xffff\n"
                               "qp_types = uc, ud, driver\n"
                               "destinations = 10.1.0.0/16, 192.168.0.7\n"
                               "  fe80::/10, fd00:0000:0000:0000:0000:0000:0000:0001\n"
                               "destinations = ::ffff:172.16.0.0/108\n"
                               "allow = devx, flow raw,dmabuf odp multicast xrc lid ud-anywhere\n"
                               "mr_bytes = unlimited\n"
                               "max_qps = 0\n"
                               "max_cqs = unlimited ; a comment\n";
    is_int(parse(text), 0, "all kinds of value");
    is_int(rules(NULL, "rxe0"), 0, "rules");
    is_int(R.ports, 1 << 1 | 1 << 3 | 1 << 4, "ports");
    ok(gid(3) && gid(5) && gid(250) && gid(255) && !gid(0) && !gid(4) && !gid(249), "GID indexes");
    ok(!R.any_pkey && R.n_pkeys == 3 && R.pkeys[0] == 0x8001 && R.pkeys[1] == 0x8002 && R.pkeys[2] == 0xffff, "P_Keys");
    ok(R.qp_types == (1u << 3 | 1u << 4 | 1u << 31 | 1u << 8 | 1u << 9 | 1u << 10), "QP types, and those of allow");
    is_int(R.allow, 0x1ff, "all that can be allowed");
    ok(R.mr_bytes == UINT64_MAX && R.max[VB_QP] == 0 && R.max[VB_CQ] == UINT64_MAX, "unlimited, and none");
    static const uint8_t ten[] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 1},
                         seven[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [13] = 168, [15] = 7},
                         ll[16] = {0xfe, 0x80}, fd[16] = {0xfd, [15] = 1},
                         mapped[16] = {[10] = 0xff, [11] = 0xff, [12] = 172, [13] = 16};
    const struct vb_prefix *d = R.destination;
    ok(!R.any_destination && R.n_destinations == 5, "destinations, in three lines");
    ok(d[0].bits == 112 && memcmp(d[0].gid, ten, sizeof(ten)) == 0, "IPv4 with a prefix");
    ok(d[1].bits == 128 && memcmp(d[1].gid, seven, 16) == 0, "IPv4");
    ok(d[2].bits == 10 && memcmp(d[2].gid, ll, 16) == 0, "IPv6 with a prefix");
    ok(d[3].bits == 128 && memcmp(d[3].gid, fd, 16) == 0, "a GID as sysfs writes it");
    ok(d[4].bits == 108 && memcmp(d[4].gid, mapped, 16) == 0, "IPv4 as IPv6");
    ok(parse("[default]\ndestinations = any\nallow = none\nports = any\ngids = any\npkeys = any\n") == 0 &&
           rules(NULL, "x") == 0 && R.any_destination && R.any_pkey && gid(255) && R.ports == UINT64_MAX - 1 &&
           R.allow == 0,
       "any, and none");
    ok(parse("[default]\nallow = raw\n[container a]\nallow = none\n[container b]\ncqe = 1\n") == 0 &&
           rules("a", "x") == 0 && R.allow == 0 && !(R.qp_types >> 8 & 1) && rules("b", "x") == 0 &&
           R.allow == VB_ALLOW_RAW,
       "what is allowed is taken back in a section");
}

static void mistakes(void)
{
    char line[700];
    refused("devices = *\n", "p.ini, line 1: 'devices' precedes");
    refused("[defaults]\n", "line 1: [defaults]: a section is");
    refused("# x\n[container]\n", "line 2: [container]: a section is");
    refused("[container a b]\n", "a section is");
    refused("[container a device]\n", "a section is");
    refused("[device]\n", "a section is");
    refused("[device a b]\n", "a section is");
    refused("[default device a]\n", "a section is");
    refused("[]\n", "a section is");
    refused("[container a device b c]\n", "a section is");
    refused("[default]\n[default]\n", "line 2: [default]: duplicate section");
    refused("[container a]\n[container  a]\n", "duplicate section");
    refused("[device rxe*]\n[container a]\n[device rxe*]\n", "line 3: [device rxe*]: duplicate section");
    refused("[default\n", "line 1: the line of a section");
    refused("[default] devices = *\n", "line 1: the line of a section");
    refused("[default] ; all\n", "line 1: the line of a section");
    refused("[default]\ndevices = *\n [container a]\nallow = raw\n", "line 3: the line of a section");
    snprintf(line, sizeof(line), "[container %050d]\n", 1);
    refused(line, "line 1: [container");
    snprintf(line, sizeof(line), "[default]\ndevices = %0400d\n", 1);
    refused(line, "line 2: the line is longer than");
    refused("[default]\nqps = 3\n", "line 2: unknown key 'qps'");
    refused("[default]\nMAX_QPS = 3\n", "unknown key");
    refused("[default]\nmax_qps\n", "line 2: neither a section nor");
    refused("[default]\nmax_qps = 3\nmax_qps = 4\n", "line 3: max_qps: occurs twice");
    refused("[default]\nmax_qps =\n", "line 2: max_qps");
    refused("[default]\nmax_qps = -1\n", "max_qps");
    refused("[default]\nmax_qps = 1G\n", "max_qps");
    refused("[default]\nmax_qps = 4294967296\n", "max_qps");
    refused("[default]\nmr_bytes = lots\n", "mr_bytes");
    refused("[default]\nmr_bytes = 99999999999T\n", "mr_bytes");
    refused("[default]\ndevices = ,\n", "line 2: devices: the list is empty");
    refused("[device rxe0]\ndevices = *\n", "already applies to certain devices");
    refused("[default]\nports = 0\n", "line 2: ports");
    refused("[default]\nports = 64\n", "ports");
    refused("[default]\nports = 2-1\n", "ports");
    refused("[default]\ngids = 256\n", "gids");
    refused("[default]\ngids = 1-\n", "gids");
    refused("[default]\npkeys = 0x18001\n", "pkeys: '0x18001' is not a P_Key");
    refused("[default]\npkeys = 0x\n", "is not a P_Key");
    refused("[default]\npkeys = 0x12x\n", "is not a P_Key");
    refused("[default]\npkeys = 65536\n", "is not a P_Key");
    refused("[default]\npkeys = 0x8000\n", "not a valid P_Key");
    refused("[default]\nqp_types = rc raw\n", "allow = raw");
    refused("[default]\nqp_types = xrc_ini\n", "allow = xrc");
    refused("[default]\nqp_types = any\n", "qp_types: 'any' is unknown");
    refused("[default]\nallow = everything\n", "line 2: allow: 'everything' is unknown");
    refused("[default]\ndestinations = 10.0.0.1/8\n", "bits set beyond its prefix of 8");
    refused("[default]\ndestinations = fe80::1/64\n", "bits set beyond its prefix of 64");
    refused("[default]\ndestinations = 10.0.0.0/33\n", "destinations: the prefix");
    refused("[default]\ndestinations = ::/129\n", "destinations: the prefix");
    refused("[default]\ndestinations = 10.0.0.0/\n", "destinations: the prefix");
    refused("[default]\ndestinations = 10.0.0\n", "neither an IPv4 nor an IPv6");
    refused("[default]\ndestinations = host.example\n", "neither an IPv4 nor an IPv6");
    char many[8000] = "[default]\n";
    for (int i = 0; i <= VB_DESTINATIONS_MAX; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "destinations = 10.0.%d.0/24\n", i);
    refused(many, "line 66: destinations: the list has more than 64");
    snprintf(many, sizeof(many), "[default]\n");
    for (int i = 0; i < 33; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "pkeys = %d\n", i + 1);
    refused(many, "line 34: pkeys: the list has more than 32");
    snprintf(many, sizeof(many), "[default]\n");
    for (int i = 0; i <= VB_DEVICES_MAX; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "devices = d%d\n", i);
    refused(many, "line 66: devices: the list has more than 64");
    snprintf(many, sizeof(many), "[default]\n");
    for (int i = 0; i < 7; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "devices = d%0160d\n", i);
    refused(many, "line 8: devices: the list has more than");
    struct vb_policy *p;
    ok(vb_policy_parse("[default]\0\n", 11, "p.ini", &p) == -EINVAL && !p, "a NUL: %s", hw_error());
    size_t big = 300u << 10;
    char *text = malloc(big);
    if (!text)
        exit(1);
    memset(text, '\n', big);
    ok(vb_policy_parse(text, big, "p.ini", &p) == -E2BIG && !p, "too much: %s", hw_error());
    free(text);
}

static void annotations(void)
{
    static const char text[] = "[default]\ndevices = *\n"
                               "[container a]\n"
                               "ports = 1-2\ngids = 0-7\npkeys = 0x8001, 0x8002\nqp_types = rc ud\n"
                               "destinations = 10.0.0.0/8, 192.168.1.0/24\nallow = dmabuf, raw\n"
                               "mr_bytes = 1GiB\nmax_qps = 10\n";
    is_int(parse(text), 0, "a policy to be narrowed");
    ok(narrowed("a", "hawser.verbs.devices", "rxe0 siw0") == 0 && R.allowed, "devices: one of them");
    ok(narrowed("a", "hawser.verbs.devices", "siw*") == 0 && !R.allowed, "devices: others only");
    ok(narrowed("a", "hawser.verbs.ports", "2-9") == 0 && R.ports == 1u << 2, "ports: what both have");
    ok(narrowed("a", "hawser.verbs.ports", "any") == 0 && R.ports == 6, "any is no more than there is");
    ok(narrowed("a", "hawser.verbs.gids", "7-9") == 0 && gid(7) && !gid(8) && !gid(0), "GID indexes");
    ok(narrowed("a", "hawser.verbs.pkeys", "0x8002 0x8003") == 0 && !R.any_pkey && R.n_pkeys == 1 &&
           R.pkeys[0] == 0x8002,
       "P_Keys");
    ok(narrowed("a", "hawser.verbs.pkeys", "0x0002") == 0 && R.n_pkeys == 1, "whose membership does not count");
    ok(narrowed("a", "hawser.verbs.pkeys", "any") == 0 && !R.any_pkey && R.n_pkeys == 2, "any P_Key");
    ok(narrowed(NULL, "hawser.verbs.pkeys", "0x8003") == 0 && !R.any_pkey && R.n_pkeys == 1, "one of any");
    ok(narrowed("a", "hawser.verbs.qp_types", "uc ud") == 0 && R.qp_types == (1u << 4 | 1u << 8), "QP types");
    ok(narrowed("a", "hawser.verbs.allow", "dmabuf odp") == 0 && R.allow == VB_ALLOW_DMABUF && !(R.qp_types >> 8 & 1),
       "allow: what both have");
    ok(narrowed("a", "hawser.verbs.allow", "none") == 0 && R.allow == 0, "allow: nothing");
    ok(narrowed("a", "hawser.verbs.mr_bytes", "2GiB") == 0 && R.mr_bytes == 1ull << 30, "a number is the smaller one");
    ok(narrowed("a", "hawser.verbs.mr_bytes", "unlimited") == 0 && R.mr_bytes == 1ull << 30, "also of unlimited");
    ok(narrowed("a", "hawser.verbs.max_qps", "3") == 0 && R.max[VB_QP] == 3, "max_qps");
    ok(narrowed("a", "hawser.verbs.destinations", "10.1.0.0/16, 0.0.0.0/0 fe80::/10") == 0 && !R.any_destination &&
           R.n_destinations == 3,
       "destinations: the parts that both have");
    ok(R.destination[0].bits == 112 && R.destination[0].gid[13] == 1 && R.destination[1].bits == 104 &&
           R.destination[2].bits == 120,
       "each the longer prefix");
    ok(narrowed("a", "hawser.verbs.destinations", "any") == 0 && R.n_destinations == 2, "any destination is these");
    ok(narrowed("a", "hawser.verbs.destinations", "172.16.0.0/12") == 0 && !R.any_destination && R.n_destinations == 0,
       "nothing in common is none");
    ok(narrowed(NULL, "hawser.verbs.destinations", "10.0.0.0/8") == 0 && !R.any_destination && R.n_destinations == 1 &&
           R.destination[0].bits == 104,
       "some of any");
    ok(narrowed("a", "hawser.verbs.policy", "b") == 0 && R.allowed && narrowed("a", "org.other", "b") == 0 && R.allowed,
       "others' annotations, and the one that names the section");
    ok(narrowed("a", "hawser.verbs.colour", "red") == -EINVAL && !R.allowed, "an unknown one: %s", hw_error());
    ok(narrowed("a", "hawser.verbs.ports", "x") == -EINVAL && !R.allowed, "a bad one: %s", hw_error());
    ok(narrowed("a", "hawser.verbs.", "x") == -EINVAL && narrowed("a", "hawser.verbs.gids", "") == -EINVAL,
       "empty ones");
    char *text2 = malloc(4000);
    if (!text2)
        exit(1);
    memset(text2, '1', 3999);
    text2[3999] = 0;
    ok(narrowed("a", "hawser.verbs.destinations", text2) == -EINVAL, "a long one: %s", hw_error());
    free(text2);
    struct vb_annotation two[] = {{"hawser.verbs.max_qps", "7"}, {"hawser.verbs.max_qps", "9"}};
    ok(vb_policy_rules(P, "a", two, 2, "rxe0", &R) == 0 && R.max[VB_QP] == 7, "the same twice: both hold");
    char many[4000] = "[default]\n";
    for (int i = 0; i < 40; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "destinations = 10.0.%d.0/24 10.%d.0.0/16\n", i,
                 i + 1);
    ok(parse(many) < 0, "more than 64 destinations are too many: %s", hw_error());
}

static void files(const char *installed)
{
    char path[] = "/tmp/hawser-policy.XXXXXX";
    int fd = mkstemp(path);
    static const char text[] = "[default]\ndevices = *\n";
    vb_policy_free(P);
    if (fd < 0 || write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1)
        exit(1);
    ok(vb_policy_load(path, &P) == 0 && rules(NULL, "rxe0") == 0 && R.allowed, "a file");
    fchmod(fd, 0666);
    vb_policy_free(P);
    ok(vb_policy_load(path, &P) == -EACCES && !P, "that others may write: %s", hw_error());
    unlink(path);
    ok(vb_policy_load(path, &P) == -ENOENT && !P, "that is not there: %s", hw_error());
    ok(vb_policy_load("/tmp", &P) == -EINVAL && !P, "a folder: %s", hw_error());
    close(fd);

    /* Parses the text instead of loading the file, because the user who built hawser may own the file. */
    char said[8192];
    fd = open(installed, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, said, sizeof(said));
    close(fd);
    is_int(n > 0 ? vb_policy_parse(said, (size_t)n, installed, &P) : -EIO, 0, "the file that is installed");
    if (!P) {
        diag("%s", hw_error());
        return;
    }
    ok(rules(NULL, "mlx5_0") == 0 && R.allowed && R.qp_types == 1u << 2 && R.allow == 0 && R.any_destination,
       "allows connections to anywhere, and nothing else");
    ok(R.mr_bytes == 4ull << 30 && R.max[VB_QP] == 256 && R.cqe == 65536, "of moderate size");
}

int main(int argc, char **argv)
{
    defaults();
    order();
    values();
    mistakes();
    annotations();
    files(argc > 1 ? argv[1] : "verbs/policy/policy.ini");
    vb_policy_free(P);
    return tap_done();
}
