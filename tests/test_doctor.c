/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doctor's checks, each outcome of each on a machine made for it: files below a temporary root, and recorded answers of
 * what is not a file. What a check can say and is not made to say here is a fault: the test counts them.
 */
#include "tap.h"
#include "tool/doctor.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char dir[64];
static struct dr_machine m;
static struct dr_pair pair;
static const char *env[8];
static struct {
    const char *id;
    unsigned seen; /* bit i: enum dr_outcome i */
} seen[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st;
    (void)kind;
    (void)f;
    return remove(path);
}

static void wipe(void)
{
    if (*dir)
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *dir = 0;
}

/* Folders on the way to path, which is below the root. */
static void folders(const char *path)
{
    char part[256];
    for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(p - path), path);
        mkdirat(m.root, part, 0755);
    }
}

static void put_bytes(const char *path, const void *data, size_t n)
{
    folders(path);
    int fd = openat(m.root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    close(fd);
}

static void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

static void put_socket(const char *path)
{
    folders(path);
    if (mknodat(m.root, path, S_IFSOCK | 0600, 0) < 0)
        abort();
}

/* An empty machine: no file, no NIC, no GPU, nothing that can be asked. */
static void fresh(void)
{
    if (m.root > 0)
        close(m.root);
    wipe();
    snprintf(dir, sizeof dir, "/tmp/hawser-doctor-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    memset(env, 0, sizeof env);
    m = (struct dr_machine){.root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                            .env = env,
                            .release = "6.12.95-test",
                            .arch = "x86_64",
                            .netdev_rc = -ENOENT,
                            .n_gpus = -ENODEV,
                            .cuda_why = "no libcuda.so.1",
                            .moment_ms = 300};
    if (m.root < 0)
        abort();
}

/* A NIC of which nothing is known. */
static struct dr_nic *nic(const char *name, const char *driver)
{
    struct dr_nic *n = &m.nic[m.n_nics++];
    *n = (struct dr_nic){.physical = true,
                         .up = true,
                         .split = -EOPNOTSUPP,
                         .ntuple = -EOPNOTSUPP,
                         .rules = -EOPNOTSUPP,
                         .queues = -EOPNOTSUPP,
                         .queues_max = -EOPNOTSUPP,
                         .rss_queues = -EOPNOTSUPP,
                         .rss_last = -EOPNOTSUPP,
                         .devmem_rc = -ENODATA};
    snprintf(n->name, sizeof n->name, "%s", name);
    snprintf(n->driver, sizeof n->driver, "%s", driver);
    return n;
}

static void address(struct dr_nic *n, uint8_t net, uint8_t host)
{
    struct hw_nic *a = &n->addr[n->n_addrs++];
    a->prefix = 24;
    a->addr.in.sin_family = AF_INET;
    memcpy(&a->addr.in.sin_addr, (uint8_t[4]){198, 18, net, host}, 4);
}

/* Runs check id over m (and pair): does its first result have this outcome, and say this? A WARN or FAIL must name its
 * remedy. */
static void check(const char *id, enum dr_outcome want, const char *says)
{
    struct dr_report d;
    const struct dr_result *r = NULL;
    bool is_pair = strncmp(id, "pair.", 5) == 0;
    if (dr_run(&d, &m, is_pair ? &pair : NULL, is_pair ? 1u << DR_PAIR : (1u << DR_PAIR) - 1) < 0)
        abort();
    for (size_t i = 0; i < d.n && !r; i++)
        if (strcmp(d.r[i].check->id, id) == 0)
            r = &d.r[i];
    bool good = r && r->outcome == want && strstr(r->found, says);
    bool mends = r && (r->mend[0] != 0) == (r->outcome == DR_WARN || r->outcome == DR_FAIL);
    ok(good && mends, "%s: %s, %s", id, dr_outcome_name(want), r ? r->found : "nothing was said");
    if (!good || !mends)
        diag("wanted %s with '%s'; got %s, '%s', mend '%s'", dr_outcome_name(want), says,
             r ? dr_outcome_name(r->outcome) : "-", r ? r->found : "-", r ? r->mend : "-");
    size_t k = 0;
    while (k < HW_ARRAY_LEN(seen) - 1 && seen[k].id && strcmp(seen[k].id, id) != 0)
        k++;
    seen[k].id = id;
    seen[k].seen |= 1u << want;
    dr_free(&d);
}

static void kernel(void)
{
    fresh();
    snprintf(m.release, sizeof m.release, "6.16.0");
    check("kernel.version", DR_PASS, "receive and send");
    snprintf(m.release, sizeof m.release, "6.12.95-cloud");
    check("kernel.version", DR_WARN, "no send");
    snprintf(m.release, sizeof m.release, "6.6.93+");
    check("kernel.version", DR_WARN, "no devmem TCP");
    snprintf(m.release, sizeof m.release, "mystery");
    check("kernel.version", DR_SKIP, "mystery");

    fresh();
    check("kernel.devmem", DR_SKIP, "neither /proc/config.gz nor /boot/config-6.12.95-test");
    m.netdev_rc = 0;
    check("kernel.devmem", DR_WARN, "neither bind-rx nor bind-tx");
    m.netdev_ops = 1u << 13;
    check("kernel.devmem", DR_SKIP, "knows bind-rx, but whether");
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
    check("kernel.devmem", DR_SKIP, "whether it was built with it is not said");

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
    check("kernel.congestion", DR_WARN, "bbr (available: not said)");
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
    check("limits.memlock", DR_WARN, "8.0 MiB (at most unlimited)");
    put("sys/class/infiniband_verbs/uverbs0/dev", "231:192\n");
    check("limits.memlock", DR_FAIL, "RDMA");
    m.nofile = (struct rlimit){1024, 524288};
    check("limits.nofile", DR_WARN, "1024 (at most 524288)");
    m.nofile = (struct rlimit){256, 256};
    check("limits.nofile", DR_FAIL, "not enough");
    m.nofile = (struct rlimit){524288, 524288};
    check("limits.nofile", DR_PASS, "524288");
}

static void nics(void)
{
    static const char *const every[] = {"nic.link",   "nic.speed",  "nic.pcie",   "nic.mtu", "nic.header-split",
                                        "nic.ntuple", "nic.queues", "nic.devmem", "nic.rss", "nic.irqs"};
    fresh();
    for (size_t i = 0; i < HW_ARRAY_LEN(every); i++)
        check(every[i], DR_SKIP, "no NIC but loopback");
    m.n_nics = -EACCES;
    check("nic.mtu", DR_SKIP, "EACCES");
    m.n_nics = 0;
    struct dr_nic *n = nic("eth1", "");
    for (size_t i = 0; i < HW_ARRAY_LEN(every); i++)
        check(every[i], DR_SKIP, "");

    put("sys/class/net/eth1/operstate", "up\n");
    check("nic.link", DR_PASS, "up");
    put("sys/class/net/eth1/operstate", "lowerlayerdown\n");
    check("nic.link", DR_FAIL, "lowerlayerdown");
    put("sys/class/net/eth1/operstate", "unknown\n");
    check("nic.link", DR_SKIP, "does not say");
    n->up = false;
    check("nic.link", DR_SKIP, "set down");
    n->up = true;

    put("sys/class/net/eth1/speed", "200000\n");
    check("nic.speed", DR_PASS, "200 Gbit/s");
    put("sys/class/net/eth1/speed", "1000\n");
    check("nic.speed", DR_WARN, "1.0 Gbit/s");
    put("sys/class/net/eth1/speed", "-1\n");
    check("nic.speed", DR_SKIP, "does not know");

    put("sys/class/net/eth1/device/current_link_speed", "32.0 GT/s PCIe\n");
    put("sys/class/net/eth1/device/max_link_speed", "32.0 GT/s PCIe\n");
    put("sys/class/net/eth1/device/current_link_width", "16\n");
    put("sys/class/net/eth1/device/max_link_width", "16\n");
    check("nic.pcie", DR_PASS, "32.0 GT/s x16");
    put("sys/class/net/eth1/device/current_link_width", "8\n");
    check("nic.pcie", DR_WARN, "x8, and could be 32.0 GT/s x16");
    put("sys/class/net/eth1/device/current_link_speed", "Unknown\n");
    check("nic.pcie", DR_SKIP, "'Unknown'");

    put("sys/class/net/eth1/mtu", "8244\n");
    check("nic.mtu", DR_PASS, "8244");
    put("sys/class/net/eth1/mtu", "1500\n");
    check("nic.mtu", DR_WARN, "1500");
    put("sys/class/net/eth1/mtu", "1000\n");
    check("nic.mtu", DR_FAIL, "IPv6");
    put("sys/class/net/eth1/mtu", "x\n");
    check("nic.mtu", DR_SKIP, "no whole number");

    snprintf(n->driver, sizeof n->driver, "gve");
    check("nic.devmem", DR_WARN, "not in 6.12.95-test");
    snprintf(m.release, sizeof m.release, "6.18.1");
    check("nic.devmem", DR_WARN, "this is 6.18.1");
    snprintf(m.release, sizeof m.release, "7.3.4");
    check("nic.devmem", DR_PASS, "receive and send");
    snprintf(n->driver, sizeof n->driver, "bnge");
    check("nic.devmem", DR_PASS, "receive only");
    snprintf(n->driver, sizeof n->driver, "e1000e");
    check("nic.devmem", DR_WARN, "e1000e has no devmem");
    snprintf(n->driver, sizeof n->driver, "gve");
    snprintf(m.release, sizeof m.release, "6.6.93+");
    n->devmem_rc = 0;
    check("nic.devmem", DR_PASS, "GPUDirect-TCPX");

    n->split = DR_SPLIT_ON;
    check("nic.header-split", DR_PASS, "on");
    n->split = DR_SPLIT_OFF;
    check("nic.header-split", DR_WARN, "off");
    n->split = DR_SPLIT_UNKNOWN;
    check("nic.header-split", DR_SKIP, "does not say");

    n->ntuple = 0;
    check("nic.ntuple", DR_SKIP, "no flow rules");
    n->rules = 3;
    check("nic.ntuple", DR_WARN, "off");
    n->ntuple = 1;
    check("nic.ntuple", DR_PASS, "3 rules");

    n->queues = n->queues_max = 1;
    check("nic.queues", DR_WARN, "one only");
    n->queues_max = 16;
    check("nic.queues", DR_WARN, "1 of at most 16");
    n->queues = 16;
    check("nic.queues", DR_PASS, "16 of at most 16");
    check("nic.rss", DR_SKIP, "no indirection table");
    n->rss_queues = 16;
    n->rss_last = 15;
    check("nic.rss", DR_PASS, "16 of 16");
    n->split = DR_SPLIT_ON;
    check("nic.rss", DR_WARN, "none is left");
    n->rss_queues = 15;
    n->rss_last = 14;
    check("nic.rss", DR_PASS, "15 of 16");
    n->rss_queues = 1;
    n->rss_last = 0;
    check("nic.rss", DR_WARN, "one of 16");

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
    check("nic.irqs", DR_SKIP, "does not say which CPUs");
    put("sys/class/net/eth1/device/numa_node", "0\n");
    check("nic.irqs", DR_SKIP, "0 interrupts");
    put("proc/interrupts", "           CPU0       CPU1\n"
                           "  7:          0          0  IO-APIC   7-edge      eth10-tx\n"
                           " 40:          1          2  PCI-MSI-0000:06:00.0   1-edge      gve-ntfy-blk0@eth1\n"
                           " 41:          1          2  PCI-MSI-0000:06:00.0   2-edge      eth1-rx-0\n"
                           "LOC:          1          2  Local timer interrupts of eth1\n");
    put("proc/irq/7/smp_affinity_list", "9\n");
    put("proc/irq/40/smp_affinity_list", "0-7\n");
    put("proc/irq/40/effective_affinity_list", "2\n");
    put("proc/irq/41/smp_affinity_list", "1\n");
    check("nic.irqs", DR_PASS, "2 interrupts on CPUs of its node 0");
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
    put("sys/bus/pci/devices/0000:06:00.0/class", "0x068000\n"); /* an NVSwitch is no GPU */
    check("gpu.driver", DR_FAIL, "1 NVIDIA GPUs on PCI, and no driver");
    put("proc/driver/nvidia/version", open_modules);
    check("gpu.driver", DR_PASS, "580.95.05, open");
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  510.1.2  x\n");
    check("gpu.driver", DR_WARN, "older than 515");
    put("proc/driver/nvidia/version", closed);
    check("gpu.driver", DR_WARN, "535.54.03, the proprietary");
    put("proc/driver/nvidia/version", "something else\n");
    check("gpu.driver", DR_SKIP, "names no version");

    check("gpu.bar1", DR_SKIP, "not shown");
    put("sys/bus/pci/devices/0000:05:00.0/resource", "0x0000000012000000 0x0000000012ffffff 0x0000000000040200\n"
                                                     "0x0000382000000000 0x0000383fffffffff 0x000000000014220c\n");
    check("gpu.bar1", DR_PASS, "131072 MiB");
    m.n_gpus = 1;
    m.gpu[0] = (struct hw_gpu_info){.name = "H100", .pci = "0000:05:00.0", .memory = 80ull << 30};
    check("gpu.bar1", DR_PASS, "131072 MiB");
    m.gpu[0].memory = 192ull << 30;
    check("gpu.bar1", DR_WARN, "less than its memory");
    put("sys/bus/pci/devices/0000:05:00.0/resource", "0x12000000 0x12ffffff 0x40200\n0xd0000000 0xdfffffff 0x14220c\n");
    check("gpu.bar1", DR_WARN, "256 MiB");
    put("sys/bus/pci/devices/0000:05:00.0/resource", "0x12000000 0x12ffffff 0x40200\n0x0 0x0 0x0\n");
    check("gpu.bar1", DR_FAIL, "no room");

    check("gpu.dma-buf", DR_WARN, "H100 cannot");
    check("gpu.gpudirect", DR_WARN, "H100 cannot");
    m.gpu[0].dmabuf = m.gpu[0].gpudirect = true;
    check("gpu.dma-buf", DR_PASS, "H100 can");
    check("gpu.gpudirect", DR_PASS, "H100 can");
    m.n_gpus = 0;
    check("gpu.dma-buf", DR_SKIP, "finds no GPU");

    put("proc/driver/nvidia/version", closed);
    check("gpu.peermem", DR_SKIP, "no RDMA NIC");
    put("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
    check("gpu.peermem", DR_WARN, "not loaded, with the proprietary");
    put("proc/driver/nvidia/version", open_modules);
    check("gpu.peermem", DR_PASS, "not needed");
    put("sys/module/nvidia_peermem/version", "1\n");
    check("gpu.peermem", DR_PASS, "loaded");
}

/* A shared object with one exported symbol and nothing else. */
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
    check("tcpx.plugin", DR_SKIP, "nothing asks for one");
    check("tcpx.path", DR_SKIP, "no plugin");
    check("tcpx.manager", DR_SKIP, "nothing of TCPX");
    check("tcpx.prefix", DR_SKIP, "no sockets");
    check("tcpx.chunk-size", DR_SKIP, "nothing of TCPX");
    check("tcpx.nics", DR_SKIP, "none of them");
    check("tcpx.recv-sync", DR_SKIP, "not set");
    check("tcpx.packets", DR_SKIP, "no NIC here");

    env[0] = "NCCL_GPUDIRECTTCPX_FORCE_ACK=0";
    check("tcpx.plugin", DR_FAIL, "TCPX is set up here");
    check("tcpx.manager", DR_FAIL, "no socket");
    check("tcpx.chunk-size", DR_FAIL, "not set");
    env[0] = "NCCL_NET_PLUGIN=none";
    check("tcpx.plugin", DR_SKIP, "none");
    env[0] = "NCCL_NET_PLUGIN=hawser";
    check("tcpx.plugin", DR_FAIL, "no libnccl-net-hawser.so");
    env[0] = NULL;
    put_plugin(plugin, "ncclNetPlugin_v7", EM_X86_64);
    check("tcpx.plugin", DR_PASS, "/usr/local/tcpx/lib64/libnccl-net-tcpx.so exports ncclNetPlugin_v7");
    check("tcpx.path", DR_WARN, "not in LD_LIBRARY_PATH");
    env[0] = "LD_LIBRARY_PATH=/usr/lib:/usr/local/tcpx/lib64";
    check("tcpx.path", DR_PASS, plugin);
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
    check("tcpx.plugin", DR_FAIL, "not a file of a plugin's size");

    fresh();
    put_socket("run/tcpx/rx_rule_manager");
    check("tcpx.manager", DR_FAIL, "no get_gpu_fd_*");
    put_socket("run/tcpx/get_gpu_fd_0000:04:00.0");
    check("tcpx.manager", DR_PASS, "1 GPUs");
    check("tcpx.prefix", DR_FAIL, "looks in /tmp (NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX is not set)");
    env[0] = "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=/run/other";
    check("tcpx.prefix", DR_FAIL, "looks in /run/other, but");
    env[0] = "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=/run/tcpx";
    check("tcpx.prefix", DR_PASS, "/run/tcpx/rx_rule_manager");
    check("tcpx.chunk-size", DR_FAIL, "not set, so 0");
    env[1] = "NCCL_DYNAMIC_CHUNK_SIZE=0";
    check("tcpx.chunk-size", DR_FAIL, "0");
    env[1] = "NCCL_DYNAMIC_CHUNK_SIZE=512K";
    check("tcpx.chunk-size", DR_FAIL, "no number");
    env[1] = "NCCL_DYNAMIC_CHUNK_SIZE=131072";
    check("tcpx.chunk-size", DR_WARN, "131072");
    env[1] = "NCCL_DYNAMIC_CHUNK_SIZE=524288";
    check("tcpx.chunk-size", DR_PASS, "524288");

    put("sys/class/net/eth1/mtu", "1500\n");
    env[1] = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1";
    check("tcpx.nics", DR_PASS, "SOCKET_IFNAME=eth1");
    env[1] = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2,../x";
    check("tcpx.nics", DR_FAIL, "names eth2, ../x");
    env[1] = "NCCL_GPUDIRECTTCPX_CTRL_DEV=";
    check("tcpx.nics", DR_WARN, "is empty");
    env[1] = "NCCL_GPUDIRECTTCPX_RX_BINDINGS=eth1:8-21,112-125;eth9:0-7";
    check("tcpx.nics", DR_FAIL, "names eth9,");
    env[1] = "NCCL_GPUDIRECTTCPX_RECV_SYNC=0";
    check("tcpx.recv-sync", DR_PASS, "0");
    env[1] = "NCCL_GPUDIRECTTCPX_RECV_SYNC=1";
    check("tcpx.recv-sync", DR_WARN, "every node");

    struct dr_nic *g = nic("eth1", "gve");
    g->devmem_rc = 0;
    check("tcpx.packets", DR_WARN, "no packet has ever landed");
    g->devmem_pkts[0] = g->devmem_pkts[1] = 83018;
    check("tcpx.packets", DR_PASS, "83018 so far");
    g->devmem_pkts[1]++;
    check("tcpx.packets", DR_PASS, "1 more within 300 ms");
}

static void rdma(void)
{
#define PORT "sys/class/infiniband/mlx5_0/ports/1/"
    fresh();
    check("rdma.gids", DR_SKIP, "no RDMA device");
    put("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
    check("rdma.gids", DR_SKIP, "cannot be read: ENOENT");
    put(PORT "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    check("rdma.gids", DR_FAIL, "empty");
    put(PORT "gids/1", "fe80:0000:0000:0000:0000:00ff:fe00:0001\n");
    put(PORT "gid_attrs/types/1", "IB/RoCE v1\n");
    check("rdma.gids", DR_WARN, "none for RoCE v2");
    put(PORT "link_layer", "InfiniBand\n");
    check("rdma.gids", DR_PASS, "1 GIDs");
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
        check(asked[i], DR_SKIP, "not known");

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
    check("pair.kernel", DR_WARN, "differ in what devmem can");

    pair.here.nic[pair.here.n_nics++] = fact("eth1", 1, 1, 8244, 200000);
    pair.there.nic[pair.there.n_nics++] = fact("eth7", 7, 2, 8244, 200000);
    check("pair.nics", DR_WARN, "no NIC in its subnet");
    for (size_t i = 3; i < 7; i++)
        check(asked[i], DR_SKIP, "no NICs in the same subnet");
    pair.there.nic[0] = fact("eth1", 1, 2, 8244, 200000);
    pair.link[pair.n_links++] = (struct dr_link){.mtu = 8244};
    check("pair.nics", DR_PASS, "1 on each side");
    check("pair.mtu", DR_PASS, "8244 on both");
    check("pair.forward", DR_PASS, "connected");
    check("pair.reverse", DR_PASS, "connected");
    check("pair.path-mtu", DR_PASS, "8244, and 128 KiB");
    pair.there.nic[pair.there.n_nics++] = fact("eth0", 9, 2, 1500, 1000);
    check("pair.nics", DR_SKIP, "slower than the others");
    pair.there.nic[1].speed = 200000;
    check("pair.nics", DR_WARN, "stays idle");
    pair.there.nic[1] = fact("eth1", 9, 2, 1500, 200000);
    check("pair.nics", DR_PASS, "1 on each side");
    pair.there.nic[1] = fact("eth2", 1, 3, 8244, 200000);
    pair.link[pair.n_links++] = (struct dr_link){.there = 1};
    check("pair.nics", DR_WARN, "1 here, 2 there");
    pair.there.nic[1] = pair.here.nic[0];
    check("pair.nics", DR_SKIP, "the same NICs");
    pair.n_links = 1;
    pair.there.n_nics = 1;
    pair.there.nic[0].mtu = 1460;
    check("pair.mtu", DR_WARN, "here 8244, there 1460");
    pair.there.nic[0].mtu = 0;
    check("pair.mtu", DR_SKIP, "not known of both");
    check("pair.path-mtu", DR_SKIP, "not known");
    pair.there.nic[0].mtu = 8244;
    pair.link[0].mtu = 1400;
    check("pair.path-mtu", DR_WARN, "1400, less than the NICs' 8244");
    pair.link[0].mtu = 8244;
    pair.link[0].reverse = -EBADMSG;
    check("pair.reverse", DR_PASS, "connected");
    check("pair.path-mtu", DR_FAIL, "large packets vanish");
    pair.link[0].reverse = -EHOSTUNREACH;
    check("pair.reverse", DR_FAIL, "no connection came");
    check("pair.path-mtu", DR_SKIP, "nothing large was tried");
    pair.link[0].forward = -ECONNREFUSED;
    check("pair.forward", DR_WARN, "nobody listens at 198.18.1.2");
    pair.link[0].forward = -ETIMEDOUT;
    check("pair.forward", DR_FAIL, "timed out");

    check("pair.clock", DR_SKIP, "jumped");
    pair.clock = true;
    pair.round_trip_ns = 200000;
    pair.offset_ns = -2000000;
    check("pair.clock", DR_PASS, "2.000 ms behind, to within 0.100 ms");
    pair.offset_ns = 50000000;
    check("pair.clock", DR_WARN, "50.000 ms ahead");
    pair.offset_ns = -7200ll * 1000000000;
    check("pair.clock", DR_FAIL, "behind");
}

/* What the lines look like, and the JSON. */
static void prints(void)
{
    char text[8192] = "", *line;
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

/* Every check has been made to say all that it can say: what its function's source names. */
static void covered(void)
{
    size_t missing = 0;
    for (size_t i = 0; i < dr_n_checks; i++) {
        size_t k = 0;
        while (k < HW_ARRAY_LEN(seen) && seen[k].id && strcmp(seen[k].id, dr_checks[i].id) != 0)
            k++;
        unsigned got = k < HW_ARRAY_LEN(seen) && seen[k].id ? seen[k].seen : 0;
        /* limits are always known; a pair has a session or not */
        bool always = dr_checks[i].group == DR_LIMITS || strcmp(dr_checks[i].id, "pair.session") == 0;
        bool good = got & 1u << DR_PASS && got & (1u << DR_WARN | 1u << DR_FAIL) && (got & 1u << DR_SKIP || always);
        missing += !good;
        if (!good)
            diag("%s was not made to pass, to complain and to skip", dr_checks[i].id);
        for (size_t j = 0; j < i; j++)
            missing += strcmp(dr_checks[j].id, dr_checks[i].id) == 0;
    }
    is_int(missing, 0, "every check was made to pass, to complain and to skip");
}

int main(void)
{
    kernel();
    limits();
    nics();
    irqs();
    gpus();
    tcpx();
    rdma();
    pairs();
    prints();
    covered();
    wipe();
    return tap_done();
}
