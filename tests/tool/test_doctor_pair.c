/* SPDX-License-Identifier: Apache-2.0 */
/* Tests doctor's checks of GPUDirect-TCPX, of RDMA, and of a pair of nodes. */
#include "doctor_machine.h"
#include "tool/doctor/doctor_pair.h"

#include <elf.h>

/* Writes a shared object with one exported symbol and nothing else. */
static void put_plugin(const char *path, const char *symbol, uint16_t machine)
{
    struct {
        Elf64_Ehdr e;
        Elf64_Shdr s[3];
        Elf64_Sym sym[2];
        char names[64];
    } f = {.e = {.e_type = ET_DYN, .e_machine = machine, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3}};
    memcpy(f.e.e_ident, ELFMAG, SELFMAG);
    f.e.e_ident[EI_CLASS] = ELFCLASS64;
    f.e.e_ident[EI_DATA] = ELFDATA2LSB;
    f.e.e_shoff = (size_t)((char *)f.s - (char *)&f);
    f.s[1] = (Elf64_Shdr){.sh_type = SHT_DYNSYM,
                          .sh_offset = (size_t)((char *)f.sym - (char *)&f),
                          .sh_size = sizeof f.sym,
                          .sh_entsize = sizeof(Elf64_Sym),
                          .sh_link = 2};
    f.s[2] =
        (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = (size_t)(f.names - (char *)&f), .sh_size = sizeof f.names};
    f.sym[1] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), .st_shndx = 1};
    snprintf(f.names + 1, sizeof f.names - 1, "%s", symbol);
    put_bytes(path, &f, sizeof f);
}

static void tcpx(void)
{
    static const char plugin[] = "usr/local/tcpx/lib64/libnccl-net-tcpx.so";
    fresh();
    check("tcpx.plugin", DR_SKIP, "no variable selects one");
    check("tcpx.path", DR_SKIP, "no plugin");
    check("tcpx.manager", DR_SKIP, "TCPX is not set up");
    check("tcpx.prefix", DR_SKIP, "no socket of RxDM");
    check("tcpx.chunk-size", DR_SKIP, "TCPX is not set up");
    check("tcpx.nics", DR_SKIP, "none of TCPX's NIC variables");
    check("tcpx.recv-sync", DR_SKIP, "not set");
    check("tcpx.packets", DR_SKIP, "no NIC of this machine");

    env[0] = "NCCL_GPUDIRECTTCPX_FORCE_ACK=0";
    check("tcpx.plugin", DR_FAIL, "TCPX is set up here");
    check("tcpx.manager", DR_FAIL, "no rx_rule_manager socket is found");
    check("tcpx.chunk-size", DR_FAIL, "not set");
    env[0] = "NCCL_NET_PLUGIN=none";
    check("tcpx.plugin", DR_SKIP, "none");
    env[0] = "NCCL_NET_PLUGIN=hawser";
    check("tcpx.plugin", DR_FAIL, "no plugin of this name");
    env[0] = NULL;
    put_plugin(plugin, "ncclNetPlugin_v7", EM_X86_64);
    check("tcpx.plugin", DR_PASS, "/usr/local/tcpx/lib64/libnccl-net-tcpx.so exports ncclNetPlugin_v7");
    check("tcpx.path", DR_WARN, "not in LD_LIBRARY_PATH");
    env[0] = "LD_LIBRARY_PATH=/usr/lib:/usr/local/tcpx/lib64";
    check("tcpx.path", DR_PASS, plugin);
    put_plugin("opt/net/plugin.so", "ncclNetPlugin_v8", EM_X86_64);
    put_plugin("opt/net/libnccl-net-tcpx.so", "ncclNetPlugin_v8", EM_X86_64);
    env[0] = "NCCL_NET_PLUGIN=/opt/net/plugin.so";
    check("tcpx.plugin", DR_PASS, "/opt/net/plugin.so exports ncclNetPlugin_v8");
    check("tcpx.path", DR_PASS, "/opt/net/plugin.so");
    env[0] = "NCCL_NET_PLUGIN=/opt/net/libnccl-net-tcpx.so"; /* not the file that TCPX installs under this name */
    check("tcpx.plugin", DR_PASS, "/opt/net/libnccl-net-tcpx.so exports ncclNetPlugin_v8");
    env[0] = "NCCL_NET_PLUGIN=/usr/local/tcpx/lib64/libnccl-net-tcpx.so";
    check("tcpx.path", DR_PASS, plugin);
    env[0] = "NCCL_NET_PLUGIN=nosuch,/opt/net/plugin.so";
    check("tcpx.plugin", DR_PASS, "/opt/net/plugin.so exports ncclNetPlugin_v8");
    env[0] = "NCCL_NET_PLUGIN=nosuch,tcpx";
    check("tcpx.plugin", DR_PASS, "/usr/local/tcpx/lib64/libnccl-net-tcpx.so exports ncclNetPlugin_v7");
    env[0] = "NCCL_NET_PLUGIN=/opt/libnccl-net-tcpx.so";
    check("tcpx.plugin", DR_FAIL, "not an existing file");
    env[0] = "NCCL_NET_PLUGIN=lib64/libnccl-net-tcpx.so";
    check("tcpx.plugin", DR_FAIL, "not an absolute path");
    env[0] = "LD_LIBRARY_PATH=/usr/lib:/usr/local/tcpx/lib64";
    symlinkat("local/tcpx/lib64", m.root, "usr/lib");
    struct dr_report d;
    if (dr_run(&d, &m, NULL, 1u << DR_TCPX) < 0)
        abort();
    size_t n = 0;
    for (size_t i = 0; i < d.n; i++)
        n += strcmp(d.r[i].check->id, "tcpx.plugin") == 0;
    is_int(n, 1, "one plugin under two names is one");
    dr_free(&d);
    put_plugin(plugin, "ncclNetPlugin_v5", EM_X86_64);
    check("tcpx.plugin", DR_WARN, "too old");
    put_plugin(plugin, "ncclCollNetPlugin_v7", EM_X86_64);
    check("tcpx.plugin", DR_FAIL, "exports no ncclNetPlugin_vN");
    put_plugin(plugin, "ncclNetPlugin_v7", EM_AARCH64);
    check("tcpx.plugin", DR_FAIL, "another processor");
    put(plugin, "#!/bin/sh\n");
    check("tcpx.plugin", DR_FAIL, "not an ELF file");
    put(plugin, "");
    check("tcpx.plugin", DR_FAIL, "larger than 128 MiB");

    fresh();
    put_socket("run/tcpx/rx_rule_manager");
    check("tcpx.manager", DR_FAIL, "no get_gpu_fd_*");
    put_socket("run/tcpx/get_gpu_fd_0000:04:00.0");
    check("tcpx.manager", DR_PASS, "1 GPU");
    check("tcpx.prefix", DR_FAIL,
          "looks for RxDM's sockets in /tmp (NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX is not set)");
    env[0] = "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=/run/other";
    check("tcpx.prefix", DR_FAIL, "in /run/other, but");
    put_socket("run/other/rx_rule_manager");
    check("tcpx.manager", DR_FAIL, "/run/other/rx_rule_manager exists, but there is no get_gpu_fd_*");
    check("tcpx.prefix", DR_PASS, "/run/other/rx_rule_manager");
    env[0] = "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=/run/tcpx";
    check("tcpx.prefix", DR_PASS, "/run/tcpx/rx_rule_manager");
    check("tcpx.chunk-size", DR_FAIL, "not set, so the value is 0");
    env[1] = "NCCL_DYNAMIC_CHUNK_SIZE=0";
    check("tcpx.chunk-size", DR_FAIL, "0");
    env[1] = "NCCL_DYNAMIC_CHUNK_SIZE=512K";
    check("tcpx.chunk-size", DR_FAIL, "not a number");
    env[1] = "NCCL_DYNAMIC_CHUNK_SIZE=131072";
    check("tcpx.chunk-size", DR_WARN, "131072");
    env[1] = "NCCL_DYNAMIC_CHUNK_SIZE=524288";
    check("tcpx.chunk-size", DR_PASS, "524288");

    put("sys/class/net/eth1/mtu", "1500\n");
    env[1] = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1";
    check("tcpx.nics", DR_PASS, "SOCKET_IFNAME=eth1");
    env[1] = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2,../x";
    check("tcpx.nics", DR_FAIL, "lists eth2, ../x");
    env[1] = "NCCL_GPUDIRECTTCPX_CTRL_DEV=";
    check("tcpx.nics", DR_WARN, "is empty");
    env[1] = "NCCL_GPUDIRECTTCPX_RX_BINDINGS=eth1:8-21,112-125;eth9:0-7";
    check("tcpx.nics", DR_FAIL, "lists eth9,");
    env[1] = "NCCL_GPUDIRECTTCPX_RECV_SYNC=0";
    check("tcpx.recv-sync", DR_PASS, "0");
    env[1] = "NCCL_GPUDIRECTTCPX_RECV_SYNC=1";
    check("tcpx.recv-sync", DR_WARN, "every node");

    struct dr_nic *g = nic("eth1", "gve");
    g->devmem_rc = 0;
    check("tcpx.packets", DR_WARN, "has placed no packet");
    g->devmem_pkts[0] = g->devmem_pkts[1] = 83018;
    check("tcpx.packets", DR_WARN, "rx_devmem_pkts is 83018 and did not rise within 300 ms: if a transfer runs now");
    g->rx_pkts[1] = 999;
    check("tcpx.packets", DR_WARN, "if a transfer runs now");
    g->rx_pkts[0] = 5000000;
    g->rx_pkts[1] = 5070000;
    check("tcpx.packets", DR_WARN, "rx_devmem_pkts stayed at 83018 while 70000 packets arrived within 300 ms");
    g->devmem_pkts[1]++;
    check("tcpx.packets", DR_PASS, "rose by 1 within 300 ms");
}

static void rdma(void)
{
#define PORT "sys/class/infiniband/mlx5_0/ports/1/"
    fresh();
    check("rdma.gids", DR_SKIP, "no RDMA device");
    put("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
    check("rdma.gids", DR_SKIP, "cannot be read: No such file or directory");
    put(PORT "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    check("rdma.gids", DR_FAIL, "empty");
    put(PORT "gids/1", "fe80:0000:0000:0000:0000:00ff:fe00:0001\n");
    put(PORT "gid_attrs/types/1", "IB/RoCE v1\n");
    check("rdma.gids", DR_WARN, "none for RoCE v2");
    put(PORT "link_layer", "InfiniBand\n");
    check("rdma.gids", DR_PASS, "1 GID");
    put(PORT "link_layer", "Ethernet\n");
    put(PORT "gids/3", "0000:0000:0000:0000:0000:ffff:c612:0001\n");
    put(PORT "gid_attrs/types/3", "RoCE v2\n");
    check("rdma.gids", DR_PASS, "2 GIDs, RoCE v2");
    put(PORT "state", "1: DOWN\n");
    check("rdma.gids", DR_WARN, "1: DOWN");

    static const struct {
        const char *id, *name, *good, *bad;
        bool fails; /* with RDMA */
    } t[] = {{"rdma.arp-ignore", "arp_ignore", "1", "0", true},
             {"rdma.arp-announce", "arp_announce", "2", "0", true},
             {"rdma.arp-filter", "arp_filter", "0", "1", false},
             {"rdma.rp-filter", "rp_filter", "2", "1", false}};
    for (size_t i = 0; i < HW_ARRAY_LEN(t); i++) {
        char all[96], own[96];
        fresh();
        address(nic("eth1", "x"), 1, 1);
        address(nic("eth2", "x"), 2, 1);
        snprintf(all, sizeof all, "proc/sys/net/ipv4/conf/all/%s", t[i].name);
        snprintf(own, sizeof own, "proc/sys/net/ipv4/conf/eth1/%s", t[i].name);
        check(t[i].id, DR_SKIP, "no two NICs share");
        address(&m.nic[1], 1, 2);
        check(t[i].id, DR_SKIP, "proc/sys");
        put(all, "0\n");
        put(own, t[i].bad);
        check(t[i].id, DR_WARN, t[i].bad);
        put(own, t[i].good);
        check(t[i].id, DR_PASS, t[i].good);
        put(own, "0");
        put(all, strcmp(t[i].good, "0") == 0 ? "1" : t[i].good);
        check(t[i].id, strcmp(t[i].good, "0") == 0 ? DR_WARN : DR_PASS, strcmp(t[i].good, "0") == 0 ? "1" : t[i].good);
        put("sys/class/net/eth1/device/infiniband/mlx5_0/x", "");
        put(all, "0");
        put(own, t[i].bad);
        if (t[i].fails)
            check(t[i].id, DR_FAIL, t[i].bad);
        m.nic[1].up = false;
        check(t[i].id, DR_SKIP, "no two NICs share");
    }
}

static struct tp_fact_nic fact(const char *name, uint8_t net, uint8_t host, uint32_t mtu, uint32_t speed)
{
    struct tp_fact_nic n = {
        .addr = {.family = 4, .byte = {198, 18, net, host}}, .prefix = 24, .mtu = mtu, .speed = speed};
    snprintf(n.nic, sizeof n.nic, "%s", name);
    return n;
}

/* The link of the first NICs fails, and their addresses explain this. */
static void check_addresses(void)
{
    static const char shared[] = "probably because NICs of one node share a subnet";
    const int forward = pair.link[0].forward;
    const struct tp_fact_nic there = pair.there.nic[0];
    pair.link[0].forward = -EHOSTUNREACH;
    pair.here.nic[pair.here.n_nics++] = fact("eth2", 1, 9, 8244, 200000);
    check("pair.forward", DR_FAIL, shared);
    check("pair.reverse", DR_FAIL, shared);
    pair.here.n_nics--;
    pair.there.nic[pair.there.n_nics++] = fact("eth1", 1, 9, 8244, 200000);
    check("pair.reverse", DR_FAIL, "another machine has this node's address"); /* two addresses of one NIC */
    snprintf(pair.there.nic[1].nic, sizeof pair.there.nic[1].nic, "eth2");
    check("pair.reverse", DR_FAIL, shared);
    pair.there.n_nics--;
    pair.there.nic[0].addr = pair.here.nic[0].addr;
    check("pair.forward", DR_FAIL, "both nodes have the same address");
    check("pair.reverse", DR_FAIL, "both nodes have the same address");
    pair.there.nic[0] = there;
    pair.link[0].forward = forward;
}

static void pairs(void)
{
    static const char *const asked[] = {"pair.machine", "pair.kernel",  "pair.nics",     "pair.mtu",
                                        "pair.forward", "pair.reverse", "pair.path-mtu", "pair.clock"};
    fresh();
    pair = (struct dr_pair){
        .peer = "198.18.0.2:20000", .connected = -ECONNREFUSED, .asked = -ECONNREFUSED, .why = "refused"};
    check("pair.session", DR_FAIL, "refused");
    check("pair.version", DR_SKIP, "no session");
    pair.connected = 0;
    check("pair.session", DR_PASS, "198.18.0.2:20000");
    snprintf(pair.why, sizeof pair.why, "the peer left");
    check("pair.version", DR_FAIL, "the peer left");
    for (size_t i = 0; i < HW_ARRAY_LEN(asked); i++)
        check(asked[i], DR_SKIP, "no information about the peer");

    pair.asked = 0;
    pair.here = (struct tp_facts){.hawser = "0.1.0", .kernel = "6.12.1", .boot = {1}};
    pair.there = pair.here;
    check("pair.version", DR_PASS, "0.1.0 on both");
    check("pair.kernel", DR_PASS, "6.12.1 on both");
    check("pair.machine", DR_WARN, "one machine");
    put("run/tcpx/x", "");
    check("pair.machine", DR_FAIL, "one machine");
    pair.there.boot[0] = 2;
    check("pair.machine", DR_PASS, "two machines");
    snprintf(pair.there.hawser, sizeof pair.there.hawser, "0.2.0");
    snprintf(pair.there.kernel, sizeof pair.there.kernel, "6.12.2");
    check("pair.version", DR_WARN, "here 0.1.0, there 0.2.0");
    check("pair.kernel", DR_WARN, "there 6.12.2");
    snprintf(pair.there.kernel, sizeof pair.there.kernel, "6.18.2");
    check("pair.kernel", DR_WARN, "differ in devmem support");

    pair.here.nic[pair.here.n_nics++] = fact("eth1", 1, 1, 8244, 200000);
    pair.there.nic[pair.there.n_nics++] = fact("eth7", 7, 2, 8244, 200000);
    check("pair.nics", DR_WARN, "no NIC of the other node that is up is in its subnet");
    for (size_t i = 3; i < 7; i++)
        check(asked[i], DR_SKIP, "no NICs in the same subnet");
    pair.there.nic[0] = fact("eth1", 1, 2, 8244, 200000);
    pair.link[pair.n_links++] = (struct dr_link){.mtu = 8244};
    check("pair.nics", DR_PASS, "1 on each node");
    check("pair.mtu", DR_PASS, "8244 on both");
    check("pair.forward", DR_PASS, "connected");
    check("pair.reverse", DR_PASS, "connected");
    check("pair.path-mtu", DR_PASS, "8244, and 128 KiB");
    pair.there.nic[pair.there.n_nics++] = fact("eth0", 9, 2, 1500, 1000);
    check("pair.nics", DR_SKIP, "slower than others");
    pair.there.nic[1].speed = 200000;
    check("pair.nics", DR_WARN, "not used");
    pair.there.nic[1] = fact("eth1", 9, 2, 1500, 200000);
    check("pair.nics", DR_PASS, "1 on each node");
    pair.there.nic[1] = fact("eth2", 1, 3, 8244, 200000);
    pair.link[pair.n_links++] = (struct dr_link){.there = 1};
    check("pair.nics", DR_WARN, "1 here, 2 there");
    pair.there.nic[1] = pair.here.nic[0];
    check("pair.nics", DR_PASS, "1 on each node"); /* two machines share an address */
    pair.there.boot[0] = 1;
    check("pair.nics", DR_SKIP, "the same NICs");
    pair.there.boot[0] = 2;
    pair.n_links = 1;
    pair.there.n_nics = 1;
    pair.there.nic[0].mtu = 1460;
    check("pair.mtu", DR_WARN, "here 8244, there 1460");
    pair.there.nic[0].mtu = 0;
    check("pair.mtu", DR_SKIP, "the MTU of one or both NICs is unknown");
    check("pair.path-mtu", DR_SKIP, "unknown");
    pair.there.nic[0].mtu = 8244;
    pair.link[0].mtu = 1400;
    check("pair.path-mtu", DR_WARN, "1400, less than the NICs' 8244");
    pair.link[0].mtu = 8244;
    pair.link[0].reverse = -EBADMSG;
    check("pair.reverse", DR_PASS, "connected");
    check("pair.path-mtu", DR_FAIL, "large packets are probably lost");
    pair.link[0].reverse = -EHOSTUNREACH;
    check("pair.reverse", DR_FAIL, "drops it, or another machine has this node's address");
    check_addresses();
    check("pair.path-mtu", DR_SKIP, "no large packet was tested");
    pair.link[0].forward = -ECONNREFUSED;
    check("pair.forward", DR_WARN, "no program listens at 198.18.1.2, a firewall refuses the connection, or another");
    pair.link[0].forward = -ETIMEDOUT;
    check("pair.forward", DR_FAIL, "timed out");

    check("pair.clock", DR_SKIP, "jumped");
    pair.clock = true;
    pair.round_trip_ns = 200000;
    pair.offset_ns = -2000000;
    check("pair.clock", DR_PASS, "2.000 ms behind, with an error of up to 0.100 ms");
    pair.offset_ns = 50000000;
    check("pair.clock", DR_WARN, "50.000 ms ahead");
    pair.offset_ns = -7200LL * 1000000000;
    check("pair.clock", DR_FAIL, "behind");
}

/* Tests NICs whose addresses have no subnet: through routes, each NIC reaches either only its counterpart or all NICs
 * of the peer. */
static void routed_rails(void)
{
    struct tp_fact_nic here = fact("eth1", 1, 1, 8244, 200000), there = fact("enp6s0", 2, 1, 8244, 200000);
    ok(!reach_may(&here, &there.addr) && !reach_is_rail(&here), "two subnets: nothing is tried");
    here.prefix = there.prefix = 32;
    ok(reach_may(&here, &there.addr) && reach_is_rail(&here), "two rails: it is tried");
    ok(!reach_may(&here, &here.addr), "not to itself");
    static const uint8_t own[][4] = {{127, 0, 0, 1}, {169, 254, 169, 254}, {224, 0, 0, 1}, {0, 0, 0, 0}};
    for (size_t i = 0; i < HW_ARRAY_LEN(own); i++) {
        struct tp_addr a = {.family = 4};
        memcpy(a.byte, own[i], 4);
        ok(!reach_may(&here, &a), "nor to %u.%u.%u.%u, which every node has for itself", own[i][0], own[i][1],
           own[i][2], own[i][3]);
    }
    here.prefix = 31;
    ok(reach_may(&here, &there.addr), "/31 likewise");

    fresh();
    pair = (struct dr_pair){.peer = "198.18.2.1:20000"};
    pair.here = (struct tp_facts){.hawser = "0.1.0", .kernel = "6.18.1", .boot = {1}};
    pair.there = (struct tp_facts){.hawser = "0.1.0", .kernel = "6.18.1", .boot = {2}};
    for (uint8_t i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "eth%d", i + 1);
        pair.here.nic[i] = fact(name, (uint8_t)(10 + i), 1, 8244, 200000);
        snprintf(name, sizeof name, "enp%ds0", i + 6);
        pair.there.nic[i] = fact(name, (uint8_t)(20 + i), 1, 8244, 200000);
        pair.here.nic[i].prefix = pair.there.nic[i].prefix = 32;
    }
    pair.here.n_nics = pair.there.n_nics = 4;
    check("pair.nics", DR_WARN, "the prefix is /32, and no connection with a routed NIC of the other node worked");
    /* a separate network for each rail, as on Google Cloud; the fourth is broken */
    for (uint8_t i = 0; i < 4; i++)
        for (uint8_t k = 0; k < 4; k++) {
            bool good = i == k && i < 3;
            pair.link[pair.n_links++] = (struct dr_link){.here = i,
                                                         .there = k,
                                                         .routed = true,
                                                         .mtu = 8244,
                                                         .forward = good ? 0 : -ETIMEDOUT,
                                                         .reverse = good ? 0 : -EHOSTUNREACH};
        }
    dr_pair_prune(&pair);
    is_int(pair.n_links, 4, "of sixteen pairs of rails three work, and the last two NICs have no other");
    ok(pair.link[3].here == 3 && pair.link[3].there == 3, "which is eth4 and enp9s0");
    check("pair.forward", DR_PASS, "connected");
    pair.n_links = 3;
    check("pair.reverse", DR_PASS, "connected");
    check("pair.nics", DR_WARN, "no connection with a routed NIC");
    pair.here.n_nics = pair.there.n_nics = 3;
    check("pair.nics", DR_PASS, "3 on each node");
    pair.link[0].reverse = -ENODATA;
    check("pair.reverse", DR_SKIP, "did not try to connect back");
}

int main(void)
{
    tcpx();
    routed_rails();
    rdma();
    pairs();
    covered(1u << DR_TCPX | 1u << DR_RDMA | 1u << DR_PAIR);
    wipe();
    return tap_done();
}
