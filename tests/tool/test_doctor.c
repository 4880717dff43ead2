/* SPDX-License-Identifier: Apache-2.0 */
/* Tests doctor's checks of the kernel, limits, NICs and GPUs, and the output of results. */
#include "doctor_machine.h"

#include <zlib.h>

static void kernel(void)
{
    fresh();
    snprintf(m.release, sizeof m.release, "6.16.0");
    check("kernel.version", DR_PASS, "receive and send");
    snprintf(m.release, sizeof m.release, "6.12.95-cloud");
    check("kernel.version", DR_WARN, "but not send");
    snprintf(m.release, sizeof m.release, "6.6.93+");
    check("kernel.version", DR_WARN, "no devmem TCP");
    snprintf(m.release, sizeof m.release, "mystery");
    check("kernel.version", DR_SKIP, "mystery");

    fresh();
    check("kernel.devmem", DR_SKIP, "neither /proc/config.gz nor /boot/config-6.12.95-test");
    m.netdev_rc = 0;
    check("kernel.devmem", DR_WARN, "neither bind-rx nor bind-tx");
    m.netdev_ops = 1u << 13;
    check("kernel.devmem", DR_SKIP, "has bind-rx, but the kernel's build configuration");
    put("boot/config-6.12.95-test", "CONFIG_NET=y\n# CONFIG_NET_DEVMEM is not set\n");
    check("kernel.devmem", DR_WARN, "not set in /boot/config-6.12.95-test");
    put("boot/config-6.12.95-test", "CONFIG_NET_DEVMEM_OTHER=y\nX_CONFIG_NET_DEVMEM=y\n");
    check("kernel.devmem", DR_WARN, "not set");
    put("boot/config-6.12.95-test", "CONFIG_NET=y\nCONFIG_NET_DEVMEM=y\n");
    check("kernel.devmem", DR_PASS, "/boot/config-6.12.95-test");
    char path[128];
    snprintf(path, sizeof path, "%s/proc", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/proc/config.gz", dir);
    gzFile gz = gzopen(path, "wb");
    gzputs(gz, "# CONFIG_NET_DEVMEM is not set\n");
    gzclose(gz);
    check("kernel.devmem", DR_WARN, "/proc/config.gz");
    put_bytes("proc/config.gz", "\x1f\x8b\x08garbage", 10);
    check("kernel.devmem", DR_SKIP, "build configuration cannot be read");

    fresh();
    check("kernel.tcp-mem", DR_SKIP, "proc/sys/net/ipv4/tcp_rmem");
    put("proc/sys/net/ipv4/tcp_rmem", "4096 lots\n");
    check("kernel.tcp-mem", DR_SKIP, "three numbers");
    put("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
    check("kernel.tcp-mem", DR_PASS, "up to 6.0 MiB");
    put("proc/sys/net/ipv4/tcp_rmem", "4096 131072 1048576\n");
    check("kernel.tcp-mem", DR_WARN, "only up to 1.00 MiB");
    put("proc/sys/net/ipv4/tcp_rmem", "4096 65536 65536\n");
    check("kernel.tcp-mem", DR_FAIL, "2.6 Gbit/s");

    check("kernel.sock-mem", DR_SKIP, "rmem_max");
    put("proc/sys/net/core/rmem_max", "212992\n");
    check("kernel.sock-mem", DR_WARN, "0.20 MiB");
    put("proc/sys/net/core/rmem_max", "33554432\n");
    check("kernel.sock-mem", DR_PASS, "32.0 MiB");

    check("kernel.congestion", DR_SKIP, "tcp_congestion_control");
    put("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n");
    check("kernel.congestion", DR_WARN, "bbr (available: unknown)");
    put("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
    put("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic\n");
    check("kernel.congestion", DR_PASS, "cubic (available: reno cubic)");
}

static void limits(void)
{
    fresh();
    m.memlock = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    check("limits.memlock", DR_PASS, "unlimited");
    m.memlock = (struct rlimit){8u << 20, RLIM_INFINITY};
    check("limits.memlock", DR_WARN, "8.0 MiB (hard limit unlimited)");
    put("sys/class/infiniband_verbs/uverbs0/dev", "231:192\n");
    check("limits.memlock", DR_FAIL, "RDMA");
    m.nofile = (struct rlimit){1024, 524288};
    check("limits.nofile", DR_WARN, "1024 (hard limit 524288)");
    m.nofile = (struct rlimit){256, 256};
    check("limits.nofile", DR_FAIL, "too few");
    m.nofile = (struct rlimit){524288, 524288};
    check("limits.nofile", DR_PASS, "524288");
}

/* Checks the remedy of a check's first finding, and the text that makes the remedy permanent. */
static void remedy(const char *id, const char *mend, const char *keep)
{
    struct dr_report d;
    bool good = false;
    if (dr_run(&d, &m, NULL, (1u << DR_PAIR) - 1) < 0)
        abort();
    for (size_t i = 0; i < d.n; i++)
        if (strcmp(d.r[i].check->id, id) == 0) {
            good = strstr(d.r[i].mend, mend) && strstr(d.r[i].keep, keep);
            ok(good, "%s: mend: %s; keep: %s", id, d.r[i].mend, d.r[i].keep);
            break;
        }
    dr_free(&d);
}

/* Tests the checks of the additional settings that some drivers need for devmem TCP. */
static void devmem_settings(struct dr_nic *n)
{
    n->split = DR_SPLIT_ON;
    n->thresh = 0;
    check("nic.header-split", DR_PASS, "on");
    n->thresh = 640;
    check("nic.header-split", DR_WARN, "packets of up to 640 bytes");
    remedy("nic.header-split", "ethtool -G eth1 tcp-data-split on hds-thresh 0",
           "ENV{INTERFACE}==\"eth1\", RUN+=\"/sbin/ethtool -G eth1 tcp-data-split on hds-thresh 0\"' >> /etc/udev");
    n->thresh = -ENODATA;
    put("sys/class/net/eth1/mtu", "8244\n");
    n->buf_len = 2048;
    check("nic.rx-buf-len", DR_WARN, "2048 bytes: packets of the NIC's MTU, 8244");
    remedy("nic.rx-buf-len", "ethtool -G eth1 rx-buf-len 4096", "RUN+=\"/sbin/ethtool -G eth1 rx-buf-len 4096\"'");
    put("sys/class/net/eth1/mtu", "1460\n");
    check("nic.rx-buf-len", DR_PASS, "MTU 1460");
    n->buf_len = 4096;
    put("sys/class/net/eth1/mtu", "8244\n");
    check("nic.rx-buf-len", DR_PASS, "4096 bytes");
    n->buf_len = -ENODATA;

    check("nic.gro-hw", DR_SKIP, "only mlx5_core needs rx-gro-hw");
    snprintf(n->driver, sizeof n->driver, "mlx5_core");
    n->gro_hw = 0;
    check("nic.gro-hw", DR_WARN, "off");
    n->split = DR_SPLIT_OFF;
    check("nic.header-split", DR_WARN, "off");
    remedy("nic.header-split", "ethtool -K eth1 rx-gro-hw on; ethtool -G eth1 tcp-data-split on",
           "RUN+=\"/sbin/ethtool -K eth1 rx-gro-hw on\", RUN+=\"/sbin/ethtool -G eth1 tcp-data-split on\"'");
    n->split = DR_SPLIT_UNKNOWN; /* the initial state in 7.x */
    check("nic.header-split", DR_SKIP, "does not report");
    char was[sizeof m.release];
    memcpy(was, m.release, sizeof was);
    snprintf(m.release, sizeof m.release, "7.3.4");
    check("nic.header-split", DR_WARN, "off");
    memcpy(m.release, was, sizeof was);
    n->gro_hw = 1;
    check("nic.gro-hw", DR_PASS, "on");
    n->gro_hw = -EOPNOTSUPP;
    check("nic.gro-hw", DR_WARN, "cannot be turned on");
    snprintf(n->driver, sizeof n->driver, "gve");
}

static void rails(void)
{
    static const char head[] = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    char text[512];
    fresh();
    struct dr_nic *n = nic("eth1", "gve");
    address(n, 1, 1);
    check("nic.rail", DR_SKIP, "no address with prefix /31 or /32");
    n->addr[0].prefix = 32;
    check("nic.rail", DR_SKIP, "cannot be read");
    /* one route through another NIC, and one that covers only the gateway */
    snprintf(text, sizeof text,
             "%seth10\t0001000A\t0101000A\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
             "eth1\t0101000A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n",
             head);
    put("proc/net/route", text);
    check("nic.rail", DR_WARN, "the prefix is /32, but no route");
    remedy("nic.rail", "ip route add PEERS via GATEWAY dev eth1", "network configuration");
    snprintf(text, sizeof text, "%seth1\t0001000A\t0101000A\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n", head);
    put("proc/net/route", text);
    check("nic.rail", DR_PASS, "the prefix is /32; routes through this NIC to a gateway or a larger subnet: 1");
    n->addr[0].prefix = 31;
    snprintf(text, sizeof text, "%seth1\t0701000A\t0101000A\t0007\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n", head);
    put("proc/net/route", text);
    check("nic.rail", DR_PASS, "the prefix is /31; routes through this NIC to a gateway or a larger subnet: 1");
    n->addr[0].prefix = 128;
    n->addr[0].addr.sa.sa_family = AF_INET6;
    put("proc/net/ipv6_route", "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 "
                               "00000000000000000000000000000000 00000100 "
                               "00000001 00000000 00000001     eth1\n"
                               "fd000000000000000000000000000001 80 00000000000000000000000000000000 00 "
                               "00000000000000000000000000000000 00000100 "
                               "00000001 00000000 00000001     eth1\n");
    check("nic.rail", DR_WARN, "/128");
    put("proc/net/ipv6_route", "fd000000000000000000000000000000 30 00000000000000000000000000000000 00 "
                               "fe800000000000000000000000000001 00000400 "
                               "00000001 00000000 00000003     eth1\n");
    check("nic.rail", DR_PASS, "the prefix is /128; routes through this NIC to a gateway or a larger subnet: 1");
}

static void nics(void)
{
    static const char *const every[] = {"nic.link",   "nic.speed",  "nic.pcie",      "nic.mtu", "nic.header-split",
                                        "nic.ntuple", "nic.queues", "nic.devmem",    "nic.rss", "nic.irqs",
                                        "nic.gro-hw", "nic.rail",   "nic.rx-buf-len"};
    fresh();
    for (size_t i = 0; i < HW_ARRAY_LEN(every); i++)
        check(every[i], DR_SKIP, "no NIC except loopback");
    m.n_nics = -EACCES;
    check("nic.mtu", DR_SKIP, "Permission denied");
    m.n_nics = 0;
    struct dr_nic *n = nic("eth1", "");
    for (size_t i = 0; i < HW_ARRAY_LEN(every); i++)
        check(every[i], DR_SKIP, "");

    put("sys/class/net/eth1/operstate", "up\n");
    check("nic.link", DR_PASS, "up");
    put("sys/class/net/eth1/operstate", "lowerlayerdown\n");
    check("nic.link", DR_FAIL, "lowerlayerdown");
    put("sys/class/net/eth1/operstate", "unknown\n");
    check("nic.link", DR_SKIP, "does not report");
    n->up = false;
    check("nic.link", DR_SKIP, "administratively down");
    n->up = true;

    put("sys/class/net/eth1/speed", "200000\n");
    check("nic.speed", DR_PASS, "200 Gbit/s");
    put("sys/class/net/eth1/speed", "1000\n");
    check("nic.speed", DR_WARN, "1.0 Gbit/s");
    put("sys/class/net/eth1/speed", "-1\n");
    check("nic.speed", DR_SKIP, "unknown to its driver");

    put("sys/class/net/eth1/device/current_link_speed", "32.0 GT/s PCIe\n");
    put("sys/class/net/eth1/device/max_link_speed", "32.0 GT/s PCIe\n");
    put("sys/class/net/eth1/device/current_link_width", "16\n");
    put("sys/class/net/eth1/device/max_link_width", "16\n");
    check("nic.pcie", DR_PASS, "32.0 GT/s x16");
    put("sys/class/net/eth1/device/current_link_width", "8\n");
    check("nic.pcie", DR_WARN, "x8, but the NIC supports 32.0 GT/s x16");
    put("sys/class/net/eth1/device/current_link_speed", "Unknown\n");
    check("nic.pcie", DR_SKIP, "'Unknown'");

    put("sys/class/net/eth1/mtu", "8244\n");
    check("nic.mtu", DR_PASS, "8244");
    put("sys/class/net/eth1/mtu", "1500\n");
    check("nic.mtu", DR_WARN, "1500");
    put("sys/class/net/eth1/mtu", "1000\n");
    check("nic.mtu", DR_FAIL, "IPv6");
    put("sys/class/net/eth1/mtu", "x\n");
    check("nic.mtu", DR_SKIP, "not a whole number");

    snprintf(n->driver, sizeof n->driver, "gve");
    check("nic.devmem", DR_WARN, "not in 6.12.95-test");
    snprintf(m.release, sizeof m.release, "6.18.1");
    check("nic.devmem", DR_WARN, "this node runs 6.18.1");
    snprintf(m.release, sizeof m.release, "7.3.4");
    check("nic.devmem", DR_PASS, "receive and send");
    snprintf(n->driver, sizeof n->driver, "bnge");
    check("nic.devmem", DR_PASS, "receive only");
    snprintf(n->driver, sizeof n->driver, "e1000e");
    check("nic.devmem", DR_WARN, "e1000e has no devmem");
    snprintf(n->driver, sizeof n->driver, "dmnic");
    check("nic.devmem", DR_PASS, "receive and send");
    snprintf(m.release, sizeof m.release, "6.12.95-test");
    check("nic.devmem", DR_PASS, "receive only");
    check("nic.hawserd", DR_PASS, "accepts this user");
    m.hawserd = -ENOENT;
    snprintf(m.hawserd_why, sizeof m.hawserd_why, "no hawserd at /run");
    check("nic.hawserd", DR_WARN, "no hawserd at /run");
    m.hawserd = -EACCES;
    check("nic.hawserd", DR_WARN, "no hawserd at /run");
    snprintf(n->driver, sizeof n->driver, "e1000e");
    check("nic.hawserd", DR_SKIP, "not needed");
    m.hawserd = 0;
    snprintf(n->driver, sizeof n->driver, "gve");
    snprintf(m.release, sizeof m.release, "6.6.93+");
    n->devmem_rc = 0;
    check("nic.devmem", DR_PASS, "GPUDirect-TCPX");

    n->split = DR_SPLIT_ON;
    check("nic.header-split", DR_PASS, "on");
    n->split = DR_SPLIT_OFF;
    check("nic.header-split", DR_WARN, "off");
    n->split = DR_SPLIT_UNKNOWN;
    check("nic.header-split", DR_SKIP, "does not report");

    devmem_settings(n);

    n->ntuple = 0;
    check("nic.ntuple", DR_SKIP, "are off, and the driver does not report the rules");
    n->rules = 3;
    check("nic.ntuple", DR_WARN, "off");
    n->ntuple = 1;
    check("nic.ntuple", DR_PASS, "3 rules");

    n->queues = n->queues_max = 1;
    check("nic.queues", DR_WARN, "only one");
    n->queues_max = n->combined_max = 16;
    check("nic.queues", DR_WARN, "1 of at most 16");
    remedy("nic.queues", "ethtool -L eth1 combined 16", "/sbin/ethtool -L eth1 combined 16");
    n->combined_max = 0;
    remedy("nic.queues", "ethtool -L eth1 rx 16", "/sbin/ethtool -L eth1 rx 16");
    n->queues = 16;
    check("nic.queues", DR_PASS, "16 of at most 16");
    check("nic.rss", DR_SKIP, "no indirection table");
    n->rss_queues = 16;
    n->rss_last = 15;
    check("nic.rss", DR_PASS, "16 of 16");
    n->split = DR_SPLIT_ON;
    check("nic.rss", DR_WARN, "queue 15, the last one, which must be removed from RSS");
    n->rss_queues = 15;
    n->rss_last = 14;
    check("nic.rss", DR_PASS, "15 of 16");
    n->rss_queues = 1;
    n->rss_last = 0;
    check("nic.rss", DR_WARN, "only one of the 16");

    struct dr_nic *veth = nic("veth0", "veth");
    veth->physical = false;
    struct dr_report d;
    if (dr_run(&d, &m, NULL, 1u << DR_NIC) < 0)
        abort();
    bool named = false;
    for (size_t i = 0; i < d.n; i++)
        named |= strcmp(d.r[i].subject, "veth0") == 0;
    ok(!named, "virtual NICs are not looked at beside physical ones");
    dr_free(&d);
}

static void irqs(void)
{
    fresh();
    nic("eth1", "gve");
    put("sys/class/net/eth1/device/numa_node", "-1\n");
    put("sys/class/net/eth1/device/local_cpulist", "0-3\n");
    check("nic.irqs", DR_SKIP, "does not report which CPUs");
    put("sys/class/net/eth1/device/numa_node", "0\n");
    check("nic.irqs", DR_SKIP, "no interrupt of this NIC");
    put("proc/interrupts", "           CPU0       CPU1\n"
                           "  7:          0          0  IO-APIC   7-edge      eth10-tx\n"
                           " 40:          1          2  PCI-MSI-0000:06:00.0   1-edge      gve-ntfy-blk0@eth1\n"
                           " 41:          1          2  PCI-MSI-0000:06:00.0   2-edge      eth1-rx-0\n"
                           "LOC:          1          2  Local timer interrupts of eth1\n");
    put("proc/irq/7/smp_affinity_list", "9\n");
    put("proc/irq/40/smp_affinity_list", "0-7\n");
    put("proc/irq/40/effective_affinity_list", "2\n");
    put("proc/irq/41/smp_affinity_list", "1\n");
    check("nic.irqs", DR_PASS, "2 interrupts on CPUs of the NIC's NUMA node 0");
    put("proc/irq/41/smp_affinity_list", "3-4\n");
    check("nic.irqs", DR_WARN, "1 of 2 interrupts");
    put("sys/class/net/eth1/device/msi_irqs/50", "msix\n");
    put("sys/class/net/eth1/device/msi_irqs/51", "msix\n");
    put("sys/class/net/eth1/device/msi_irqs/52", "msix\n");
    check("nic.irqs", DR_SKIP, "3 interrupts");
    put("proc/irq/50/smp_affinity_list", "1\n");
    put("proc/irq/51/smp_affinity_list", "1\n");
    put("proc/irq/52/smp_affinity_list", "1\n");
    check("nic.irqs", DR_WARN, "all 3 interrupts go to one CPU");
    put("proc/irq/52/smp_affinity_list", "2\n");
    check("nic.irqs", DR_PASS, "3 interrupts");
}

static void gpus(void)
{
    static const char open_modules[] = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release "
                                       "Build  (x@y)  Tue\nGCC version: 12\n";
    static const char closed[] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6\n";
    fresh();
    check("gpu.driver", DR_SKIP, "no NVIDIA GPU");
    check("gpu.bar1", DR_SKIP, "no NVIDIA GPU");
    check("gpu.dma-buf", DR_SKIP, "no libcuda.so.1");
    check("gpu.gpudirect", DR_SKIP, "no libcuda.so.1");
    check("gpu.peermem", DR_SKIP, "no NVIDIA driver");
    put("sys/bus/pci/devices/0000:05:00.0/vendor", "0x10de\n");
    put("sys/bus/pci/devices/0000:05:00.0/class", "0x030200\n");
    put("sys/bus/pci/devices/0000:06:00.0/vendor", "0x10de\n");
    put("sys/bus/pci/devices/0000:06:00.0/class", "0x068000\n"); /* an NVSwitch is not a GPU */
    check("gpu.driver", DR_FAIL, "NVIDIA GPUs on PCI: 1, but NVIDIA's driver is not loaded");
    put("proc/driver/nvidia/version", open_modules);
    check("gpu.driver", DR_PASS, "580.95.05, open");
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  510.1.2  x\n");
    check("gpu.driver", DR_WARN, "older than 515");
    put("proc/driver/nvidia/version", closed);
    check("gpu.driver", DR_WARN, "535.54.03, proprietary");
    put("proc/driver/nvidia/version", "something else\n");
    check("gpu.driver", DR_SKIP, "has no version");

    check("gpu.bar1", DR_SKIP, "cannot be read");
    put("sys/bus/pci/devices/0000:05:00.0/resource", "0x0000000012000000 0x0000000012ffffff 0x0000000000040200\n"
                                                     "0x0000382000000000 0x0000383fffffffff 0x000000000014220c\n");
    check("gpu.bar1", DR_PASS, "131072 MiB");
    m.n_gpus = 1;
    m.gpu[0] = (struct hw_gpu_info){.name = "H100", .pci = "0000:05:00.0", .memory = 80ull << 30};
    check("gpu.bar1", DR_PASS, "131072 MiB");
    m.gpu[0].memory = 192ull << 30;
    check("gpu.bar1", DR_WARN, "less than the GPU's memory");
    put("sys/bus/pci/devices/0000:05:00.0/resource", "0x12000000 0x12ffffff 0x40200\n0xd0000000 0xdfffffff 0x14220c\n");
    check("gpu.bar1", DR_WARN, "256 MiB");
    put("sys/bus/pci/devices/0000:05:00.0/resource", "0x12000000 0x12ffffff 0x40200\n0x0 0x0 0x0\n");
    check("gpu.bar1", DR_FAIL, "no address space");

    check("gpu.dma-buf", DR_WARN, "H100 does not support dma-buf export");
    check("gpu.gpudirect", DR_WARN, "H100 does not support GPUDirect RDMA");
    m.gpu[0].dmabuf = m.gpu[0].gpudirect = true;
    check("gpu.dma-buf", DR_PASS, "H100 supports dma-buf export");
    check("gpu.gpudirect", DR_PASS, "H100 supports GPUDirect RDMA");
    m.n_gpus = 0;
    check("gpu.dma-buf", DR_SKIP, "finds no GPU");

    put("proc/driver/nvidia/version", closed);
    check("gpu.peermem", DR_SKIP, "no RDMA NIC");
    put("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
    check("gpu.peermem", DR_WARN, "not loaded, but the modules are proprietary");
    put("proc/driver/nvidia/version", open_modules);
    check("gpu.peermem", DR_PASS, "not needed");
    put("sys/module/nvidia_peermem/version", "1\n");
    check("gpu.peermem", DR_PASS, "loaded");
}

/* Tests the format of the text lines and of the JSON output. */
static void prints(void)
{
    static char text[32768];
    char *line;
    struct dr_report d;
    fresh();
    put("sys/class/net/eth1/mtu", "1500\n");
    put("sys/class/net/eth2/mtu", "1500\n");
    put("sys/class/net/eth3/mtu", "9000\n");
    nic("eth1", "x");
    nic("eth3", "x");
    nic("eth2", "x");
    if (dr_run(&d, &m, NULL, 1u << DR_NIC) < 0)
        abort();
    FILE *f = fmemopen(text, sizeof text, "w");
    dr_print(f, &d, false, false);
    fclose(f);
    line = strstr(text, "WARN  nic.mtu");
    ok(line && strncmp(line + 24, "eth1, eth2: 1500\n", 17) == 0, "one line for what is the same of two NICs");
    ok(line && strstr(line, "ip link set eth1 mtu 9000") && strstr(line, "ip link set eth2 mtu 9000") &&
           strstr(line, "why:"),
       "with why, and a command for each");
    ok(strstr(text, "PASS  nic.mtu           eth3: 9000\n") && !strchr(text, '\033'),
       "and one for the third, no colours");
    memset(text, 0, sizeof text);
    f = fmemopen(text, sizeof text, "w");
    dr_print(f, &d, true, false);
    fclose(f);
    ok(strstr(text, "\033[33mWARN\033[0m"), "colours where they are asked for");
    memset(text, 0, sizeof text);
    f = fmemopen(text, sizeof text, "w");
    is_int(dr_print_json(f, &d), 0, "JSON");
    fclose(f);
    ok(strstr(text, "\"schema\":\"hawser-doctor-1\"") && strstr(text, "\"subject\":\"eth2\",\"found\":\"1500\""),
       "with one entry for each NIC");
    dr_free(&d);
}

int main(void)
{
    kernel();
    limits();
    nics();
    rails();
    irqs();
    gpus();
    prints();
    covered(1u << DR_KERNEL | 1u << DR_LIMITS | 1u << DR_NIC | 1u << DR_GPU);
    wipe();
    return tap_done();
}
