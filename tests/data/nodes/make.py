#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the nodes of this folder: what `hawser topo --save` would keep of four machines. README.md says where the facts
come from. Usage: make.py [DIR]"""
import pathlib
import sys


class Node:
    def __init__(self, where, name, machine, numa, packages=None, distance=(10, 21)):
        """numa: a list of CPUs per NUMA node."""
        self.root = where / name
        self.way = {}
        self.put("sys/class/dmi/id/sys_vendor", machine[0])
        self.put("sys/class/dmi/id/product_name", machine[1])
        self.put("sys/devices/system/cpu/online", f"0-{max(int(c.replace('-', ',').split(',')[-1]) for c in numa)}")
        for i, cpus in enumerate(numa):
            self.put(f"sys/devices/system/node/node{i}/cpulist", cpus)
            self.put(f"sys/devices/system/node/node{i}/distance",
                     " ".join(str(distance[i != k]) for k in range(len(numa))))
            first = cpus.split("-")[0]
            self.put(f"sys/devices/system/cpu/cpu{first}/topology/physical_package_id", (packages or range(9))[i])

    def put(self, path, text):
        p = self.root / path
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(f"{text}\n")

    def link(self, path, target):
        """A relative link, as in sysfs; both are paths below the root."""
        p = self.root / path
        p.parent.mkdir(parents=True, exist_ok=True)
        p.symlink_to("../" * path.count("/") + target)

    def pci(self, above, address, cls, vendor, device, numa, speed=None, lanes=None, driver=None, best=None):
        """above: the host bridge ("pci0000:00") or the address of the bridge above."""
        way = f"{self.way.get(above, 'sys/devices/' + above)}/{address}"
        self.way[address] = way
        for name, text in (("class", cls), ("vendor", vendor), ("device", device), ("numa_node", numa)):
            self.put(f"{way}/{name}", text)
        if speed:
            for name, text in (("current_link_speed", f"{speed} GT/s PCIe"), ("current_link_width", lanes),
                               ("max_link_speed", f"{best or speed} GT/s PCIe"), ("max_link_width", lanes)):
                self.put(f"{way}/{name}", text)
        self.link(f"sys/bus/pci/devices/{address}", way)
        if driver:
            self.link(f"{way}/driver", f"sys/bus/pci/drivers/{driver}")
        return address

    def net(self, name, at, speed, mtu, state="up", below=""):
        """at: a PCI address, or None for a virtual interface. below: what stands between, as virtio's device."""
        way = f"{self.way[at]}{below}/net/{name}" if at else f"sys/devices/virtual/net/{name}"
        for file, text in (("mtu", mtu), ("operstate", state), ("type", 772 if name == "lo" else 1)):
            self.put(f"{way}/{file}", text)
        if speed:
            self.put(f"{way}/speed", speed)
        if at:
            self.link(f"{way}/device", self.way[at] + below)
        self.link(f"sys/class/net/{name}", way)

    def rdma(self, name, at, rate, layer):
        way = f"{self.way[at]}/infiniband/{name}"
        for file, text in (("state", "4: ACTIVE"), ("rate", rate), ("link_layer", layer)):
            self.put(f"{way}/ports/1/{file}", text)
        self.link(f"{way}/device", self.way[at])
        self.link(f"sys/class/infiniband/{name}", way)

    def default_route(self, name):
        self.put("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
                 f"{name}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
                 f"{name}\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0")


BRIDGE, DISPLAY, ETHERNET = "0x060400", "0x030200", "0x020000"


def a3_high(where):
    n = Node(where, "a3-high", ("Google", "Google Compute Engine"), ["0-51,104-155", "52-103,156-207"])
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


def hca8(where):
    n = Node(where, "hca8", ("Example", "Eight GPUs, eight HCAs"), ["0-47,96-143", "48-95,144-191"], distance=(10, 32))
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
        n.rdma(f"mlx5_{i}", nic, "400 Gb/sec (4X NDR)", "Ethernet")
    # two ports of one card for management, bonded
    port = n.pci("pci0000:00", "0000:00:1c.0", BRIDGE, "0x8086", "0x352b", 0, "8.0", 8, "pcieport", "16.0")
    for fn in range(2):
        n.pci(port, f"0000:01:00.{fn}", ETHERNET, "0x15b3", "0x101d", 0, "8.0", 8, "mlx5_core", "16.0")
        n.net(f"eth{fn}", f"0000:01:00.{fn}", 25000, 1500)
        n.rdma(f"mlx5_bond_{fn}", f"0000:01:00.{fn}", "25 Gb/sec (1X EDR)", "Ethernet")
    n.net("bond0", None, 50000, 1500)
    for fn in range(2):
        n.link(f"{n.way[f'0000:01:00.{fn}']}/net/eth{fn}/master", "sys/devices/virtual/net/bond0")
        n.link(f"sys/devices/virtual/net/bond0/lower_eth{fn}", f"{n.way[f'0000:01:00.{fn}']}/net/eth{fn}")
    n.net("docker0", None, None, 1500, "down")
    n.net("lo", None, None, 65536, "unknown")
    n.default_route("bond0")


def flat_vm(where):
    n = Node(where, "flat-vm", ("QEMU", "Standard PC (Q35 + ICH9, 2009)"), ["0-31"])
    n.pci("pci0000:00", "0000:00:01.0", "0x030000", "0x1234", "0x1111", -1)
    for i in range(4):
        n.pci("pci0000:00", f"0000:00:{5 + i:02x}.0", DISPLAY, "0x10de", "0x20b5", -1, driver="nvidia")
    for i in range(2):
        at = n.pci("pci0000:00", f"0000:00:{0x10 + i:02x}.0", ETHERNET, "0x1af4", "0x1041", -1, driver="virtio-pci")
        n.net(f"ens{0x10 + i}", at, -1, 1500, below=f"/virtio{i}")
    n.net("lo", None, None, 65536, "unknown")
    n.default_route("ens16")


def laptop(where):
    n = Node(where, "laptop", ("Example", "Laptop 14"), ["0-15"])
    n.pci("pci0000:00", "0000:00:02.0", "0x030000", "0x8086", "0xa7a0", -1, driver="i915")
    port = n.pci("pci0000:00", "0000:00:06.0", BRIDGE, "0x8086", "0xa74d", -1, "2.5", 4, "pcieport", "16.0")
    n.pci(port, "0000:01:00.0", "0x030000", "0x10de", "0x28a1", -1, "2.5", 4, "nvidia", "16.0")
    wlan = n.pci("pci0000:00", "0000:00:14.3", "0x028000", "0x8086", "0x51f1", -1, driver="iwlwifi")
    n.net("wlan0", wlan, None, 1500)
    lan = n.pci("pci0000:00", "0000:00:1f.6", ETHERNET, "0x8086", "0x1a1e", -1, driver="e1000e")
    n.net("enp0s31f6", lan, None, 1500, "down")
    n.net("lo", None, None, 65536, "unknown")
    n.default_route("wlan0")


if __name__ == "__main__":
    to = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for make in a3_high, hca8, flat_vm, laptop:
        make(to)
