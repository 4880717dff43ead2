#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser sandbox snapshot`: its contents for this machine and for a node, and invalid snapshots, which must be
refused (TAP).
Usage: sandbox_snapshot.py HAWSER"""
import copy
import fcntl
import json
import os
import pathlib
import re
import socket
import struct
import sys

sys.dont_write_bytecode = True
from sandbox_help import Tool, done, full, net, ok, rdma, scratch  # noqa: E402


def read(p):
    try:
        return p.read_text().strip()
    except OSError:
        return None


def holds(t, root):
    """Tests that the snapshot contains the node's devices and the unchanged contents of their files."""
    s = t.snapshot(root)
    ok(s["schema"] == "hawser-snapshot" and s["version"] == 1 and not s["addresses"] and s["gids"], "schema and version")
    sys_ = root / "sys"
    devices = {os.path.relpath(p.resolve(), sys_): p for p in (sys_ / "bus/pci/devices").iterdir()}
    ok({d["path"] for d in s["pci"]} == set(devices), f"{len(devices)} PCI devices at their places")
    bad = [(d["path"], f) for d in s["pci"] for f, v in d["files"].items() if read(sys_ / d["path"] / f) != v]
    ok(not bad and all(len(d["files"]) >= 12 for d in s["pci"]), "their files", bad)
    ok(all(bytes.fromhex(d["config"]) == (sys_ / d["path"] / "config").read_bytes() for d in s["pci"]), "their configuration")
    ok({d.get("driver") for d in s["pci"]} == {"nvidia", "mlx5_core", "pcieport", "nvme", "ast", None}, "their drivers")
    bad = [(n["name"], f) for n in s["net"] for f, v in n["files"].items() if read(sys_ / n["path"] / f) != v]
    ok(not bad and len(s["net"]) == 11 and net(s, "rdma0")["files"]["address"].startswith("02:"), "interfaces", bad)
    ok([n["name"] for n in s["net"] if n["default_route"]] == ["eth0"], "who has a default route")
    for r in s["rdma"]:
        way, p = sys_ / r["path"], r["ports"][0]
        same = all(read(way / f) == v for f, v in r["files"].items()) and \
            all(read(way / "ports/1" / f) == v for f, v in p["files"].items()) and \
            all(read(way / f"ports/1/gids/{g['index']}") == g["gid"] and
                read(way / f"ports/1/gid_attrs/types/{g['index']}") == g["type"] and
                read(way / f"ports/1/gid_attrs/ndevs/{g['index']}") == g["ndev"] for g in p["gids"])
        v = r["uverbs"]
        same &= read(sys_ / v["path"] / "ibdev") == r["name"] and read(sys_ / v["path"] / "dev") == v["files"]["dev"]
        same &= p["gid_table"] == 8 and len(p["gids"]) == 4 and {"counters/port_xmit_data", "pkeys/0", "state", "rate", "lid",
                                                                 "link_layer", "hw_counters/out_of_sequence"} <= set(p["files"])
        if not same or r["name"] == "mlx5_0":
            ok(same, f"RDMA device {r['name']}", r)
    for n in s["numa"]:
        node = sys_ / f"devices/system/node/node{n['node']}"
        ok(all(read(node / f) == n["files"][f] for f in ("cpumap", "cpulist", "distance")) and
           "MemTotal" in n["files"]["meminfo"] and "MemFree" not in n["files"]["meminfo"], f"NUMA node {n['node']}", n)
    ok(len(s["cpus"]) == 208 and s["cpus"][107]["files"]["topology/thread_siblings_list"] == "3,107", "CPUs")
    ok(s["files"]["class/infiniband_verbs/abi_version"] == "6", "the ABI of uverbs")
    return s


def bare(t, root):
    text = t("snapshot", "--no-addresses", "--sysfs", root).stdout
    s = json.loads(text)
    ok(not s["gids"] and not any(p["gids"] for r in s["rdma"] for p in r["ports"]), "--no-addresses: no GID")
    ok(not re.search(r"02:00:00|0200:00ff|fe80|host mlx5", text), "no MAC address, GUID or host name either")


def live(t):
    s = json.loads(t("snapshot").stdout)
    here = {p.name: p for p in pathlib.Path("/sys/class/net").iterdir() if p.is_dir()}
    names = {n for n in here if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:+-]*", n)}
    ok({n["name"] for n in s["net"]} == names and s["addresses"], "this machine's interfaces", s["net"])
    ok(all(read(here[n["name"]] / "address") == n["files"].get("address") for n in s["net"]), "their MAC addresses")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for n in s["net"]:
        try:
            v4 = socket.inet_ntoa(fcntl.ioctl(sock, 0x8915, struct.pack("256s", n["name"].encode()))[20:24])  # SIOCGIFADDR
        except OSError:
            v4 = None
        if v4 or n["name"] == "lo":
            ok(not v4 or v4 in [a.split("/")[0] for a in n["addresses"]], f"{n['name']}'s IPv4 address", (v4, n))
    pci = pathlib.Path("/sys/bus/pci/devices")
    ok(len(s["pci"]) == (len(list(pci.iterdir())) if pci.is_dir() else 0), "its PCI devices")
    again = t.file(s)
    # This machine may have no NIC, in which case a plan that requests NICs would fail.
    ok(t("plan", "--from", again, "--nics", "none").returncode == 0, "which can be read again")
    out = t.tmp / "out.json"
    ok(t("snapshot", "--out", out).returncode == 0 and json.loads(out.read_text())["net"] and not (t.tmp / "out.json.part").exists(), "--out")
    r = t("snapshot", "--out", "/nonexistent/x")
    ok(r.returncode == 1 and "/nonexistent/x" in r.stderr, "a file that cannot be made", r)
    r = t("snapshot", "--sysfs", t.tmp)
    ok(r.returncode == 1 and "sys" in r.stderr and not r.stdout, "a folder that is no machine", r)


def refused(t, good):
    def bend(change):
        s = copy.deepcopy(good)
        change(s)
        return s

    def pci(**kw):
        return lambda s: s["pci"][3].update(kw)

    def nets(**kw):
        return lambda s: net(s, "rdma0").update(kw)

    def gid(**kw):
        return lambda s: rdma(s, "mlx5_0")["ports"][0]["gids"][0].update(kw)

    def port(**kw):
        return lambda s: rdma(s, "mlx5_0")["ports"][0].update(kw)

    deep = "devices/" + "/".join(["a" * 60] * 20)
    cases = {
        "no JSON at all": ("{", "not valid JSON"),
        "an empty file": ("", "not valid JSON"),
        "no object": ("[]", "schema"),
        "another schema": (bend(lambda s: s.update(schema="x")), "schema"),
        "a later version": (bend(lambda s: s.update(version=2)), "version 2"),
        "no list of PCI devices": (bend(lambda s: s.pop("pci")), "'pci' is missing"),
        "a list that is an object": (bend(lambda s: s.update(net={})), "wrong type"),
        "a path that climbs": (bend(pci(path="devices/pci0000:00/../../0000:00:01.0")), "not a device"),
        "an absolute path": (bend(pci(path="/devices/pci0000:00/0000:00:01.0")), "not a device"),
        "a path beside devices": (bend(pci(path="class/net/0000:00:01.0")), "not a device"),
        "a path that is too long": (bend(pci(path=deep)), "not a device"),
        "a path with an empty part": (bend(pci(path="devices//0000:00:01.0")), "not a device"),
        "a path that is no PCI device's": (bend(pci(path="devices/pci0000:00/eth0")), "PCI device"),
        "a path that ends in none": (bend(pci(path="devices/pci0000:00/0000:00:01.0/x")), "PCI address"),
        "two of one address": (bend(lambda s: s["pci"].append(copy.deepcopy(s["pci"][0]))), "the same address"),
        "a driver with a slash": (bend(pci(driver="../nvidia")), "not a valid name"),
        "a file that climbs": (bend(lambda s: s["pci"][0]["files"].update({"../x": "1"})), "not a file name"),
        "a file that is hidden": (bend(lambda s: s["pci"][0]["files"].update({".x": "1"})), "not a file name"),
        "a file that is a number": (bend(lambda s: s["pci"][0]["files"].update({"class": 1})), "not a string"),
        "a file longer than a page": (bend(lambda s: s["pci"][0]["files"].update({"class": "x" * 4097})), "longer than a page"),
        "too many files": (bend(lambda s: s["pci"][0]["files"].update({f"f{i}": "" for i in range(1025)})), "1024"),
        "an odd configuration": (bend(pci(config="0g")), "hexadecimal"),
        "half a byte": (bend(pci(config="0")), "hexadecimal"),
        "an interface's name with a blank": (bend(nets(name="rdma 0")), "not a valid name"),
        "an interface's name that is too long": (bend(nets(name="r" * 64)), "not a valid name"),
        "an interface that is elsewhere": (bend(nets(name="rdma1x")), "rdma1x"),
        "an interface twice": (bend(lambda s: s["net"].append(copy.deepcopy(s["net"][0]))), "twice"),
        "a default route that is a word": (bend(nets(default_route="no")), "true or false"),
        "no addresses where there should be": (bend(lambda s: s.update(addresses=True)), "'addresses' is missing"),
        "a GID that is none": (bend(gid(gid="fe80::1")), "not a valid GID"),
        "a GID beyond the table": (bend(gid(index=9)), "beyond the end of its table"),
        "a GID twice": (bend(gid(index=1)), "more than once"),
        "a GID of a negative index": (bend(gid(index=-1)), "must be from 0"),
        "a GID's type that is too long": (bend(gid(type="x" * 24)), "not a valid GID type"),
        "a GID's interface that climbs": (bend(gid(ndev="..")), "not a valid name"),
        "a table that is too long": (bend(port(gid_table=1 << 20)), "4096"),
        "a port that is a fraction": (bend(port(port=1.5)), "wrong type"),
        "a port twice": (bend(lambda s: rdma(s, "mlx5_0")["ports"].append(copy.deepcopy(rdma(s, "mlx5_0")["ports"][0]))), "twice"),
        "an RDMA device twice": (bend(lambda s: s["rdma"].append(copy.deepcopy(s["rdma"][0]))), "two RDMA devices"),
        "one uverbs of two": (bend(lambda s: rdma(s, "mlx5_0").update(uverbs=copy.deepcopy(rdma(s, "mlx5_1")["uverbs"]))), "two RDMA"),
        "a NUMA node twice": (bend(lambda s: s["numa"].append(copy.deepcopy(s["numa"][0]))), "twice"),
        "a CPU beyond all": (bend(lambda s: s["cpus"][0].update(cpu=65536)), "must be from 0"),
        "an element that is no object": (bend(lambda s: s["cpus"].append(7)), "missing"),
        "a file among others that climbs": (bend(lambda s: s["files"].update({"a/../../etc": "x"})), "not a file name"),
    }
    for what, (snap, said) in cases.items():
        r = t("plan", "--from", t.file(snap))
        ok(r.returncode == 1 and said in r.stderr and not r.stdout, what, r.stderr)
    twice = json.dumps(good).replace('"schema"', '"schema": "hawser-snapshot", "schema"', 1)
    ok("duplicate" in t("plan", "--from", t.file(twice)).stderr, "a member twice")
    ok("\\u0000" in json.dumps("\0") and t("plan", "--from", t.file(bend(pci(driver="a\0b")))).returncode == 1, "a NUL in a name")
    a = bend(lambda s: s.update(addresses=True))
    for n in a["net"]:
        n["addresses"] = []
    for bad in "10.0.0.1", "10.0.0.1/33", "10.0.0.1/", "/24", "fe80::1/129", "10.0.0/8", "10.0.0.1/24 ", 7:
        net(a, "rdma0")["addresses"] = [bad]
        ok("not an address" in t("plan", "--from", t.file(a)).stderr, f"the address '{bad}'")
    # an impossible tree with a file in place of a folder
    for change in lambda s: s["pci"][0]["files"].update({"driver": "x"}), lambda s: s["files"].update({"class": "x"}), \
            lambda s: s["files"].update({"bus/pci/devices": "x"}):
        out = t.tmp / "tree"
        r = t("sysfs", "--from", t.file(bend(change)), "--out", out)
        ok(r.returncode == 1 and "already exists and is another kind of file" in r.stderr and not out.exists() and not list(t.tmp.glob("tree.*")),
           "a file in the place of a folder or link: refused, nothing left", r)


def main():
    with scratch() as d:
        tmp = pathlib.Path(d)
        t = Tool(sys.argv[1], tmp)
        root, = full(tmp, "switch4")
        good = holds(t, root)
        bare(t, root)
        live(t)
        refused(t, good)
    return done()


if __name__ == "__main__":
    sys.exit(main())
