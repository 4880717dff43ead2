/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which devices the plugin presents to NCCL, and how it groups the NICs of the nodes in tests/data/nodes. */
#include "nccl/devices.h"
#include "net/sysfs.h"
#include "tests/tap.h"

#include <arpa/inet.h>
#include <unistd.h>

static struct hn_nic nic[HN_NICS_MAX];
static uint8_t group[HN_NICS_MAX];
static struct hn_device device[HN_NICS_MAX];

static unsigned name_nics(const char *names)
{
    unsigned n = 0;
    memset(nic, 0, sizeof nic);
    for (; *names; names += strcspn(names, " "), names += strspn(names, " "), n++) {
        snprintf(nic[n].name, sizeof nic[n].name, "%.*s", (int)strcspn(names, " "), names);
        nic[n].ip.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001 + (n << 8))};
    }
    return n;
}

/* Checks the groups of a node's NICs. `groups` has a digit for each NIC: the number of its group. */
static void check_groups(const char *node, const char *names, unsigned with_gpu, const char *groups)
{
    char dir[512], got[HN_NICS_MAX + 1] = "";
    unsigned n = name_nics(names);
    snprintf(dir, sizeof dir, TEST_DATA "/nodes/%s", node);
    int root = hw_root_open(dir);
    hn_find_places(root, nic, n);
    unsigned used = hn_group_nics(root, nic, n, group);
    hw_close(&root);
    for (unsigned i = 0; i < n; i++)
        got[i] = (char)('0' + group[i]);
    ok(used == with_gpu && strcmp(got, groups) == 0, "%s: %s are groups %s, %u with a GPU (%s, %u)", node, names,
       groups, with_gpu, got, used);
}

static char dir[] = "/tmp/hawser-nccl-devices-XXXXXX";

/* Runs a command in the root folder that the test creates. */
static bool make(const char *command)
{
    char line[1024];
    snprintf(line, sizeof line, "cd %s && %s", dir, command);
    return system(line) == 0; /* NOLINT(cert-env33-c): the test's own commands */
}

/* Reads the place of eth0 in a root that `command` fills. */
static const struct hn_nic *find_in(const char *command)
{
    if (!make("rm -rf sys && mkdir -p sys/class/net sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0 && "
              "ln -s ../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0 sys/class/net/eth0") ||
        !make(command)) {
        printf("Bail out! %s\n", command);
        exit(1);
    }
    name_nics("eth0");
    int root = hw_root_open(dir);
    hn_find_places(root, nic, 1);
    hw_close(&root);
    return nic;
}

/* Tests files in sysfs that cannot be used. Each of them leaves a value unknown, and the others known. */
static void check_odd_files(void)
{
    static const char *const speeds[] = {
        "-1", "-9223372036854775808", "0", "2147483648", "9223372036854775807", "18446744073709551616", "4e5", "", " ",
    };
    if (!mkdtemp(dir))
        exit(1);
    for (size_t i = 0; i < HW_ARRAY_LEN(speeds); i++) {
        char command[128];
        snprintf(command, sizeof command, "echo '%s' > sys/class/net/eth0/speed", speeds[i]);
        const struct hn_nic *x = find_in(command);
        ok(x->mbps == 0 && x->pci.depth == 2 && x->numa == -1, "a speed of '%s' is unknown (%llu)", speeds[i],
           (unsigned long long)x->mbps);
    }
    is_int(find_in("echo 2147483647 > sys/class/net/eth0/speed")->mbps, INT32_MAX, "the highest speed");
    is_int(find_in("mkdir sys/class/net/eth0/speed")->mbps, 0, "a folder");
    is_int(find_in("mkfifo sys/class/net/eth0/speed")->mbps, 0, "a FIFO");
    is_int(find_in("ln -s speed sys/class/net/eth0/speed")->mbps, 0, "a link to itself");
    is_int(find_in("head -c 1000000 /dev/zero > sys/class/net/eth0/speed")->mbps, 0, "1 MB of zeros");
    ok(find_in("echo 0 > sys/class/net/eth0/carrier && echo -1 > sys/class/net/eth0/speed")->down, "no carrier");
    ok(!find_in("echo 1 > sys/class/net/eth0/carrier")->down, "a carrier");
    ok(!find_in("mkdir sys/class/net/eth0/carrier")->down, "a carrier that cannot be read");
    is_int(find_in("rm sys/class/net/eth0 && ln -s eth0 sys/class/net/eth0")->pci.depth, 0,
           "the NIC is a link to itself");
    is_int(find_in("rm sys/class/net/eth0 && mkdir sys/class/net/eth0")->pci.depth, 0, "the NIC is no link");
    is_int(find_in("rm -r sys")->pci.depth, 0, "there is no sysfs");
    make("rm -rf sys");
    rmdir(dir);
}

/* Checks the devices for n NICs. `want` lists "NIC:Mb/s" for each device, where NIC is a number. */
static void check_devices(const char *what, unsigned n, bool apart, const char *want)
{
    char got[1024] = "";
    bool distinct = true;
    unsigned devices = hn_make_devices(nic, n, apart, "", device);
    for (unsigned d = 0; d < devices; d++) {
        size_t len = strlen(got);
        snprintf(got + len, sizeof got - len, "%s%u:%d", d ? " " : "", device[d].nic, device[d].mbps);
        for (unsigned k = 0; k < d; k++)
            distinct = distinct && strcmp(device[k].name, device[d].name) != 0;
        distinct = distinct && device[d].rail == HN_NO_RAIL;
    }
    ok(strcmp(got, want) == 0 && distinct, "%s: %s", what, want);
    if (strcmp(got, want) != 0)
        diag("got %s", got);
}

int main(void)
{
    /* eth1 to eth4 of a3-high each share a switch with two GPUs. eth0, for management, is on the root bus. */
    check_groups("a3-high", "eth0 eth1 eth2 eth3 eth4", 4, "01234");
    check_groups("a3-high", "eth1 eth2", 2, "01");
    check_groups("hca8", "bond0 rdma0 rdma1 rdma2 rdma3 rdma4 rdma5 rdma6 rdma7", 8, "012345678");
    check_groups("hca8", "eth0 eth1", 1, "00");      /* two ports of one card, on a NUMA node with GPUs */
    check_groups("flat-vm", "ens16 ens17", 1, "00"); /* all devices are on one root bus, so no NIC is nearer to a GPU */
    check_groups("laptop", "enp0s31f6 wlan0", 1, "00"); /* the GPU is below another root port */
    check_groups("laptop", "lo veth0", 0, "00");        /* the topology of these interfaces is unknown */
    check_groups("laptop", "", 0, "");

    unsigned n = name_nics("eth0");
    check_devices("a NIC without a rate", n, false, "0:24000 0:24000 0:24000 0:24000 0:24000");
    nic[0].mbps = 400000;
    check_devices("one of 400 Gb/s", n, false, "0:80000 0:80000 0:80000 0:80000 0:80000");
    nic[0].mbps = 10000;
    check_devices("one of 10 Gb/s", n, false, "0:2000 0:2000 0:2000 0:2000 0:2000");
    nic[0].mbps = 1000 * 3;
    check_devices("one of 3 Gb/s: no less than NCCL takes", n, false, "0:1000 0:1000 0:1000 0:1000 0:1000");
    n = name_nics("eth0 eth1 eth2");
    for (unsigned i = 0; i < n; i++)
        nic[i].mbps = 100000 * (i + 1);
    check_devices("three NICs", n, true, "0:50000 1:100000 2:300000 0:50000 1:100000");
    check_devices("three NICs of one group", n, false, "0:120000 1:120000 2:120000 0:120000 1:120000");
    nic[0].mbps = 0;
    check_devices("one of them does not report its rate", n, false, "0:24000 1:24000 2:24000 0:24000 1:24000");
    nic[0].down = true;
    check_devices("because it has no carrier", n, false, "0:100000 1:100000 2:100000 0:100000 1:100000");
    check_devices("and is in a group of its own", n, true, "0:24000 1:100000 2:300000 0:24000 1:100000");
    is_int(hn_sum_speeds(nic, n), 500000, "the sum of the other NICs' rates");
    is_int(hn_sum_speeds(nic, 1), 0, "no NIC has a carrier");
    n = name_nics("a b c d e f g h i");
    for (unsigned i = 0; i < n; i++)
        nic[i].mbps = 400000;
    check_devices("nine NICs", n, true,
                  "0:400000 1:400000 2:400000 3:400000 4:400000 5:400000 6:400000 7:400000 8:400000");
    is_int(hn_make_devices(nic, 0, false, "", device), 0, "no NIC, no device");

    n = name_nics("eth0 eth1 eth2 eth3");
    is_int(hn_make_devices(nic, n, true, "eth0, eth2; 10.0.1.0/24, eth7", device), 5, "four NICs and a map of rails");
    ok(device[0].rail == 0 && device[2].rail == 0, "eth0 and eth2 are on one");
    ok(device[1].rail == 1 && device[3].rail == HN_NO_RAIL, "eth1 is on another by its address, eth3 on none");
    n = name_nics("eth1 eth0");
    (void)hn_make_devices(nic, n, true, "# two rails\n\neth0, enp1\neth1, enp2 # the second\n", device);
    ok(device[0].rail == 1 && device[1].rail == 0, "the map numbers the rails, in any order of the NICs");
    check_odd_files();
    return tap_done();
}
