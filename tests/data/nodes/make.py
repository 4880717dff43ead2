#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the nodes in this folder: the files of four machines that `hawser topo` reads. README.md gives the sources of
the data. With full=True, a node also has the files that `hawser sandbox` and hwloc read. Tests create these thousands
of files when needed.
Usage: make.py [DIR]"""
import pathlib
import sys


def cpus_of(text):
    """Returns the CPU numbers in a list such as "0-3,8"."""
    parts = [[int(x) for x in p.split("-")] for p in text.split(",")]
    return [c for p in parts for c in range(p[0], p[-1] + 1)]


def bitmap(cpus, of):
    """Returns a set of CPUs in the kernel's format: groups of 32 bits, with the highest group first."""
    v = sum(1 << c for c in cpus)
    return ",".join(f"{v >> 32 * i & 0xffffffff:08x}" for i in reversed(range((of + 31) // 32)))


class Node:
    def __init__(self, where, name, machine, numa, packages=None, distance=(10, 21), full=False):
        """Starts a node. `numa` has the CPU list of each NUMA node."""
        self.root = where / name
        self.way = {}
        self.full = full
        self.above = {}
        self.numa = numa
        self.n_cpus = max(max(cpus_of(c)) for c in numa) + 1
        if full:
            self.cpus(packages or range(9))
        self.put("sys/class/dmi/id/sys_vendor", machine[0])
        self.put("sys/class/dmi/id/product_name", machine[1])
        self.put("sys/devices/system/cpu/online", f"0-{max(int(c.replace('-', ',').split(',')[-1]) for c in numa)}")
        for i, cpus in enumerate(numa):
            self.put(f"sys/devices/system/node/node{i}/cpulist", cpus)
            self.put(f"sys/devices/system/node/node{i}/distance",
                     " ".join(str(distance[i != k]) for k in range(len(numa))))
            first = cpus.split("-")[0]
            self.put(f"sys/devices/system/cpu/cpu{first}/topology/physical_package_id", (packages or range(9))[i])

    def cpus(self, packages):
        """Writes the CPU topology. A core has two threads if its NUMA node's CPU list has two ranges, else one."""
        for path, text in ("cpu/possible", f"0-{self.n_cpus - 1}"), ("cpu/present", f"0-{self.n_cpus - 1}"), \
                ("node/online", f"0-{len(self.numa) - 1}" if len(self.numa) > 1 else "0"):
            self.put(f"sys/devices/system/{path}", text)
        for i, text in enumerate(self.numa):
            cpus = cpus_of(text)
            self.put(f"sys/devices/system/node/node{i}/cpumap", bitmap(cpus, self.n_cpus))
            self.put(f"sys/devices/system/node/node{i}/meminfo", f"Node {i} MemTotal:       {64 << 20} kB\n"
                     f"Node {i} MemFree:        {12345 + i} kB")
            cores = len(cpus) // (2 if "," in text else 1)
            for k, c in enumerate(cpus):
                threads = [x for n, x in enumerate(cpus) if n % cores == k % cores]
                for file, value in (("physical_package_id", packages[i]), ("core_id", k % cores), ("die_id", 0),
                                    ("package_cpus", bitmap(cpus, self.n_cpus)), ("core_siblings", bitmap(cpus, self.n_cpus)),
                                    ("core_cpus", bitmap(threads, self.n_cpus)),
                                    ("thread_siblings", bitmap(threads, self.n_cpus)),
                                    ("thread_siblings_list", ",".join(map(str, threads)))):
                    self.put(f"sys/devices/system/cpu/cpu{c}/topology/{file}", value)

    def finish(self):
        """Writes the configuration space of every device. Runs last, because a bridge's configuration space contains
        the numbers of the buses below the bridge."""
        if not self.full:
            return
        for address, (kind, cls, vendor, device, speed, lanes) in self.pcie.items():
            below = [a for a in self.above if address in self.way[a].split("/")[:-1]]
            buses = [int(a.split(":")[1], 16) for a in below]
            direct = [int(a.split(":")[1], 16) for a in below if self.above[a] == address]
            c = bytearray(256)
            c[0:4] = int(vendor, 16).to_bytes(2, "little") + int(device, 16).to_bytes(2, "little")
            c[6] = 0x10  # status: has a capability list
            c[9:12] = int(cls, 16).to_bytes(3, "little")
            if cls.startswith("0x0604"):
                c[0x0e] = 1
                c[0x18:0x1b] = bytes([int(address.split(":")[1], 16), min(direct, default=0), max(buses, default=0)])
                self.put(f"{self.way[address]}/secondary_bus_number", c[0x19])
                self.put(f"{self.way[address]}/subordinate_bus_number", c[0x1a])
            if speed:  # the link registers of the PCI Express capability (PCI Express Base Specification, 7.5.3)
                gen = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5}[speed] | lanes << 4
                c[0x34] = 0x40
                c[0x40], c[0x42] = 0x10, 2 | kind << 4
                c[0x4c:0x4e] = c[0x52:0x54] = gen.to_bytes(2, "little")
            p = self.root / self.way[address] / "config"
            p.write_bytes(c)

    def put(self, path, text):
        p = self.root / path
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(f"{text}\n")

    def link(self, path, target):
        """Makes a relative symbolic link, as in sysfs. Both paths are relative to the root."""
        p = self.root / path
        p.parent.mkdir(parents=True, exist_ok=True)
        p.symlink_to("../" * path.count("/") + target)

    def pci(self, above, address, cls, vendor, device, numa, speed=None, lanes=None, driver=None, best=None):
        """Adds a PCI device. `above` is the host bridge ("pci0000:00") or the address of the bridge above."""
        way = f"{self.way.get(above, 'sys/devices/' + above)}/{address}"
        self.way[address] = way
        for name, text in (("class", cls), ("vendor", vendor), ("device", device), ("numa_node", numa)):
            self.put(f"{way}/{name}", text)
        if speed:
            for name, text in (("current_link_speed", f"{speed} GT/s PCIe"), ("current_link_width", lanes),
                               ("max_link_speed", f"{best or speed} GT/s PCIe"), ("max_link_width", lanes)):
                self.put(f"{way}/{name}", text)
        self.link(f"sys/bus/pci/devices/{address}", way)
        if self.full:
            self.pci_more(above, address, cls, vendor, device, numa, speed, lanes)
        if driver:
            self.link(f"{way}/driver", f"sys/bus/pci/drivers/{driver}")
        return address

    pcie = None

    def pci_more(self, above, address, cls, vendor, device, numa, speed, lanes):
        way, cpus = self.way[address], cpus_of(self.numa[max(numa, 0)])
        depth = way.count("/") - 3
        kind = (4 if depth == 0 else 5 + (depth + 1) % 2) if cls.startswith("0x0604") else 0
        self.pcie = self.pcie or {}
        self.pcie[address] = (kind, cls, vendor, device, speed, lanes)
        self.above[address] = above
        for file, text in (("subsystem_vendor", vendor), ("subsystem_device", "0x0001"), ("revision", "0x01"),
                           ("local_cpus", bitmap(cpus, self.n_cpus)), ("local_cpulist", self.numa[max(numa, 0)]),
                           ("modalias", f"pci:v0000{vendor[2:].upper()}d0000{device[2:].upper()}sv*sd*bc*sc*i*"),
                           ("uevent", f"PCI_CLASS={cls[2:].upper()}\nPCI_ID={vendor[2:]}:{device[2:]}\nPCI_SLOT_NAME={address}")):
            self.put(f"{way}/{file}", text)
        self.link(f"{way}/subsystem", "sys/bus/pci")
        bus = address.rsplit(":", 1)[0]
        bus_way = f"{way.rsplit('/', 1)[0]}/pci_bus/{bus}"
        (self.root / bus_way).mkdir(parents=True, exist_ok=True)
        if not (self.root / f"sys/class/pci_bus/{bus}").is_symlink():
            self.link(f"sys/class/pci_bus/{bus}", bus_way)

    def net(self, name, at, speed, mtu, state="up", below=""):
        """Adds an interface. `at` is a PCI address, or None for a virtual interface. `below` is the path from the PCI
        device to the interface's parent device, if that is another device, such as virtio's."""
        way = f"{self.way[at]}{below}/net/{name}" if at else f"sys/devices/virtual/net/{name}"
        for file, text in (("mtu", mtu), ("operstate", state), ("type", 772 if name == "lo" else 1)):
            self.put(f"{way}/{file}", text)
        if speed:
            self.put(f"{way}/speed", speed)
        if at:
            self.link(f"{way}/device", self.way[at] + below)
        if self.full:
            n = self.ifindex = getattr(self, "ifindex", 0) + 1
            for file, text in (("address", f"02:00:00:00:00:{n:02x}" if name != "lo" else "00:00:00:00:00:00"),
                               ("ifindex", n), ("dev_port", 0), ("flags", "0x1003"), ("carrier", 1)):
                self.put(f"{way}/{file}", text)
            self.link(f"{way}/subsystem", "sys/class/net")
            if below:
                self.link(f"{self.way[at]}{below}/subsystem", "sys/bus/virtio")
        self.link(f"sys/class/net/{name}", way)

    def rdma(self, name, at, rate, layer, ndev=None, ipv4=None):
        """Adds an RDMA device. `ndev` is the interface to which the device's GIDs belong, and `ipv4` its address."""
        way = f"{self.way[at]}/infiniband/{name}"
        if self.full:
            self.rdma_more(name, way, at, ndev, ipv4)
        for file, text in (("state", "4: ACTIVE"), ("rate", rate), ("link_layer", layer)):
            self.put(f"{way}/ports/1/{file}", text)
        self.link(f"{way}/device", self.way[at])
        self.link(f"sys/class/infiniband/{name}", way)

    def rdma_more(self, name, way, at, ndev, ipv4):
        n = self.n_rdma = getattr(self, "n_rdma", -1) + 1
        guid = f"0200:00ff:fe00:00{n:02x}"
        for file, text in (("node_type", "1: CA"), ("node_guid", guid), ("sys_image_guid", guid), ("board_id", "MT_0000000838"),
                           ("fw_ver", "28.39.1002"), ("hca_type", "MT4129"), ("hw_rev", "0"), ("node_desc", f"host {name}"),
                           ("ports/1/phys_state", "5: LinkUp"), ("ports/1/lid", "0x0"), ("ports/1/lid_mask_count", "0"),
                           ("ports/1/sm_lid", "0x0"), ("ports/1/sm_sl", "0"), ("ports/1/cap_mask", "0x04010000"),
                           ("ports/1/pkeys/0", "0xffff"), ("ports/1/counters/port_xmit_data", 1000 + n),
                           ("ports/1/hw_counters/out_of_sequence", 0)):
            self.put(f"{way}/{file}", text)
        v4 = ":".join("%02x%02x" % tuple(map(int, ipv4.split(".")[i:i + 2])) for i in (0, 2)) if ipv4 else None
        gids = [("fe80:0000:0000:0000:" + guid, t) for t in ("IB/RoCE v1", "RoCE v2")]
        gids += [("0000:0000:0000:0000:0000:ffff:" + v4, t) for t in ("IB/RoCE v1", "RoCE v2")] if v4 else []
        for i in range(8):
            gid, kind = gids[i] if ndev and i < len(gids) else ("0000:0000:0000:0000:0000:0000:0000:0000", None)
            self.put(f"{way}/ports/1/gids/{i}", gid)
            for folder, text in (("types", kind), ("ndevs", ndev)):
                p = self.root / f"{way}/ports/1/gid_attrs/{folder}/{i}"
                p.parent.mkdir(parents=True, exist_ok=True)
                p.write_text(f"{text}\n" if kind else "")  # empty, because a file cannot return EINVAL like sysfs
        self.link(f"{way}/subsystem", "sys/class/infiniband")
        verbs = f"{self.way[at]}/infiniband_verbs/uverbs{n}"
        for file, text in (("dev", f"231:{192 + n}"), ("ibdev", name), ("abi_version", 1)):
            self.put(f"{verbs}/{file}", text)
        self.link(f"{verbs}/device", self.way[at])
        self.link(f"{verbs}/subsystem", "sys/class/infiniband_verbs")
        self.link(f"sys/class/infiniband_verbs/uverbs{n}", verbs)
        self.put("sys/class/infiniband_verbs/abi_version", 6)

    def default_route(self, name):
        self.put("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
                 f"{name}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
                 f"{name}\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0")


BRIDGE, DISPLAY, ETHERNET = "0x060400", "0x030200", "0x020000"


def a3_high(where, full=False):
    n = Node(where, "a3-high", ("Google", "Google Compute Engine"), ["0-51,104-155", "52-103,156-207"], full=full)
    n.pci("pci0000:00", "0000:00:0b.0", ETHERNET, "0x1ae0", "0x0042", 0, driver="gve")
    n.net("eth0", "0000:00:0b.0", 200000, 1460)
    for i, (root, bus) in enumerate((("00", 0x02), ("00", 0x08), ("80", 0x82), ("80", 0x88))):
        numa = i // 2
        port = n.pci(f"pci0000:{root}", f"0000:{root}:{0x10 + i % 2:02x}.0", BRIDGE, "0x8086", "0x352a", numa, "32.0", 16,
                     "pcieport")
        up = n.pci(port, f"0000:{bus:02x}:00.0", BRIDGE, "0x1000", "0xc030", numa, "32.0", 16, "pcieport")
        for k in range(3):
            down = n.pci(up, f"0000:{bus + 1:02x}:{k:02x}.0", BRIDGE, "0x1000", "0xc030", numa, "32.0", 16, "pcieport")
            at = f"0000:{bus + 2 + k:02x}:00.0"
            if k < 2:
                n.pci(down, at, DISPLAY, "0x10de", "0x2330", numa, "32.0", 16, "nvidia")
            else:
                n.pci(down, at, ETHERNET, "0x1ae0", "0x0042", numa, "16.0", 16, "gve")
                n.net(f"eth{i + 1}", at, 200000, 8244)
    n.net("lo", None, None, 65536, "unknown")
    n.default_route("eth0")
    n.finish()


def hca8(where, full=False):
    n = Node(where, "hca8", ("Example", "Eight GPUs, eight HCAs"), ["0-47,96-143", "48-95,144-191"], distance=(10, 32), full=full)
    for i in range(8):
        root, numa = f"{(0x10, 0x30, 0x50, 0x70, 0x90, 0xb0, 0xd0, 0xe0)[i]:02x}", i // 4
        bus = int(root, 16)
        port = n.pci(f"pci0000:{root}", f"0000:{root}:01.0", BRIDGE, "0x8086", "0x352a", numa, "32.0", 16, "pcieport")
        up = n.pci(port, f"0000:{bus + 1:02x}:00.0", BRIDGE, "0x1000", "0xc030", numa, "32.0", 16, "pcieport")
        gpu_port = n.pci(up, f"0000:{bus + 2:02x}:00.0", BRIDGE, "0x1000", "0xc030", numa, "32.0", 16, "pcieport")
        nic_port = n.pci(up, f"0000:{bus + 2:02x}:01.0", BRIDGE, "0x1000", "0xc030", numa, "32.0", 16, "pcieport")
        n.pci(gpu_port, f"0000:{bus + 3:02x}:00.0", DISPLAY, "0x10de", "0x2330", numa, "32.0", 16, "nvidia")
        nic = n.pci(nic_port, f"0000:{bus + 4:02x}:00.0", "0x020000", "0x15b3", "0x1021", numa, "32.0", 16, "mlx5_core")
        n.net(f"rdma{i}", nic, 400000, 9000)
        n.rdma(f"mlx5_{i}", nic, "400 Gb/sec (4X NDR)", "Ethernet", f"rdma{i}", f"10.0.{i}.1")
    # Two bonded ports of one card, for management.
    port = n.pci("pci0000:00", "0000:00:1c.0", BRIDGE, "0x8086", "0x352b", 0, "8.0", 8, "pcieport", "16.0")
    for fn in range(2):
        n.pci(port, f"0000:01:00.{fn}", ETHERNET, "0x15b3", "0x101d", 0, "8.0", 8, "mlx5_core", "16.0")
        n.net(f"eth{fn}", f"0000:01:00.{fn}", 25000, 1500)
        n.rdma(f"mlx5_bond_{fn}", f"0000:01:00.{fn}", "25 Gb/sec (1X EDR)", "Ethernet", None if fn else "bond0")
    n.net("bond0", None, 50000, 1500)
    for fn in range(2):
        n.link(f"{n.way[f'0000:01:00.{fn}']}/net/eth{fn}/master", "sys/devices/virtual/net/bond0")
        n.link(f"sys/devices/virtual/net/bond0/lower_eth{fn}", f"{n.way[f'0000:01:00.{fn}']}/net/eth{fn}")
    n.net("docker0", None, None, 1500, "down")
    n.net("lo", None, None, 65536, "unknown")
    n.default_route("bond0")
    n.finish()


def flat_vm(where, full=False):
    n = Node(where, "flat-vm", ("QEMU", "Standard PC (Q35 + ICH9, 2009)"), ["0-31"], full=full)
    n.pci("pci0000:00", "0000:00:01.0", "0x030000", "0x1234", "0x1111", -1)
    for i in range(4):
        n.pci("pci0000:00", f"0000:00:{5 + i:02x}.0", DISPLAY, "0x10de", "0x20b5", -1, driver="nvidia")
    for i in range(2):
        at = n.pci("pci0000:00", f"0000:00:{0x10 + i:02x}.0", ETHERNET, "0x1af4", "0x1041", -1, driver="virtio-pci")
        n.net(f"ens{0x10 + i}", at, -1, 1500, below=f"/virtio{i}")
    n.net("lo", None, None, 65536, "unknown")
    n.default_route("ens16")
    n.finish()


def laptop(where, full=False):
    n = Node(where, "laptop", ("Example", "Laptop 14"), ["0-15"], full=full)
    n.pci("pci0000:00", "0000:00:02.0", "0x030000", "0x8086", "0xa7a0", -1, driver="i915")
    port = n.pci("pci0000:00", "0000:00:06.0", BRIDGE, "0x8086", "0xa74d", -1, "2.5", 4, "pcieport", "16.0")
    n.pci(port, "0000:01:00.0", "0x030000", "0x10de", "0x28a1", -1, "2.5", 4, "nvidia", "16.0")
    wlan = n.pci("pci0000:00", "0000:00:14.3", "0x028000", "0x8086", "0x51f1", -1, driver="iwlwifi")
    n.net("wlan0", wlan, None, 1500)
    lan = n.pci("pci0000:00", "0000:00:1f.6", ETHERNET, "0x8086", "0x1a1e", -1, driver="e1000e")
    n.net("enp0s31f6", lan, None, 1500, "down")
    n.net("lo", None, None, 65536, "unknown")
    n.default_route("wlan0")
    n.finish()


def switch4(where):
    """Writes a node with 4 switches, each with two GPUs, two NICs and an NVSwitch. The node also has two RDMA NICs for
    management, an NVMe drive and a BMC."""
    n = Node(where, "switch4", ("Example", "Four switches"), ["0-51,104-155", "52-103,156-207"], full=True)
    root = n.pci("pci0000:00", "0000:00:01.0", BRIDGE, "0x8086", "0x352b", 0, "16.0", 4, "pcieport")
    n.pci(root, "0000:01:00.0", "0x010802", "0x144d", "0xa80a", 0, "16.0", 4, "nvme")
    root = n.pci("pci0000:00", "0000:00:02.0", BRIDGE, "0x8086", "0x352b", 0, "5.0", 1, "pcieport")
    n.pci(root, "0000:02:00.0", "0x030000", "0x1a03", "0x2000", 0, "5.0", 1, "ast")
    root = n.pci("pci0000:00", "0000:00:03.0", BRIDGE, "0x8086", "0x352b", 0, "16.0", 8, "pcieport")
    for fn in range(2):
        n.pci(root, f"0000:03:00.{fn}", ETHERNET, "0x15b3", "0x101f", 0, "16.0", 8, "mlx5_core")
        n.net(f"eth{fn}", f"0000:03:00.{fn}", 25000, 1500)
        n.rdma(f"mlx5_{8 + fn}", f"0000:03:00.{fn}", "25 Gb/sec (1X EDR)", "Ethernet", f"eth{fn}", f"192.168.{fn}.5")
    for i in range(4):
        bus, numa = (0x10, 0x40, 0x90, 0xc0)[i], i // 2
        port = n.pci(f"pci0000:{bus:02x}", f"0000:{bus:02x}:01.0", BRIDGE, "0x8086", "0x352a", numa, "32.0", 16, "pcieport")
        up = n.pci(port, f"0000:{bus + 1:02x}:00.0", BRIDGE, "0x1000", "0xc030", numa, "32.0", 16, "pcieport")
        for k in range(5):
            down = n.pci(up, f"0000:{bus + 2:02x}:{k:02x}.0", BRIDGE, "0x1000", "0xc030", numa, "32.0", 16, "pcieport")
            at = f"0000:{bus + 3 + k:02x}:00.0"
            if k < 2:
                n.pci(down, at, DISPLAY, "0x10de", "0x2330", numa, "32.0", 16, "nvidia")
            elif k < 4:
                nic = 2 * i + k - 2
                n.pci(down, at, ETHERNET, "0x15b3", "0x1021", numa, "32.0", 16, "mlx5_core")
                n.net(f"rdma{nic}", at, 400000, 9000)
                n.rdma(f"mlx5_{nic}", at, "400 Gb/sec (4X NDR)", "Ethernet", f"rdma{nic}", f"10.0.{nic}.1")
            else:
                n.pci(down, at, "0x068000", "0x10de", "0x22a3", numa, "16.0", 2)
    n.net("lo", None, None, 65536, "unknown")
    n.default_route("eth0")
    n.finish()


if __name__ == "__main__":
    to = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for make in a3_high, hca8, flat_vm, laptop:
        make(to)
