#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser sandbox sysfs`: the rebuilt tree, read by our own scan, by ibv_devices and by hwloc; the files that
libibverbs and NCCL open; and the tree as a folder, through FUSE, and as NCCL's XML (TAP). Usage: sandbox_sysfs.py
HAWSER"""
import contextlib
import copy
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

sys.dont_write_bytecode = True
from sandbox_help import Tool, done, full, ok, rdma, scratch, skip, with_addresses  # noqa: E402

NODES = "switch4", "a3-high", "hca8", "flat-vm", "laptop"
MARK = ".hawser-sysfs"


def tree(root):
    """Returns the contents of a folder by path: the target of a link, the bytes of a file, None for a folder."""
    out = {}
    for d, dirs, files in os.walk(root):
        for name in dirs + files:
            p = pathlib.Path(d, name)
            out[os.path.relpath(p, root)] = os.readlink(p) if p.is_symlink() else None if p.is_dir() else p.read_bytes()
    out.pop(MARK, None)
    return out


def rebuild(t, root, to, *argv):
    """Rebuilds the node whose tree is at `root` in the folder `to`."""
    to.mkdir(parents=True, exist_ok=True)
    r = t("sysfs", "--sysfs", root, "--out", to / "sys", *argv)
    assert r.returncode == 0, r
    if (root / "proc").is_dir():
        shutil.copytree(root / "proc", to / "proc", dirs_exist_ok=True)
    return to / "sys"


def plan_of(t, root, *argv):
    return json.loads(t("plan", "--json", "--sysfs", root, *argv).stdout)


# contents

def minus(s, plan):
    """Returns a snapshot without the devices that the plan left out."""
    s = copy.deepcopy(s)
    gone = set(plan["pci_left_out"])
    nics = {n["nic"] for n in plan["nics"] if n["in"]} | {"lo"}
    s["pci"] = [d for d in s["pci"] if d["path"].split("/")[-1] not in gone]
    s["net"] = [n for n in s["net"] if n["name"] in nics]
    s["rdma"] = [r for r in s["rdma"] if r["name"] in {x["device"] for x in plan["rdma"] if x["in"]}]
    return s


def same_node(t, root, to, *argv):
    """Tests that our own scan of the rebuilt tree finds the same devices as in the original, except those left out."""
    rebuild(t, root, to, *argv)
    a, b = minus(t.snapshot(root), plan_of(t, root, *argv)), t.snapshot(to)
    diff = [k for k in a if a[k] != b[k]]
    return ok(not diff, f"{root.name} {' '.join(argv)}: what our scan reads of the rebuilt tree is the same",
              [(k, [x for x in a[k] if x not in b[k]][:2], [x for x in b[k] if x not in a[k]][:2]) for k in diff])


def links(sys_):
    name = sys_.parent.name
    all_ = tree(sys_)
    real = os.path.realpath(sys_)
    dead = [p for p, v in all_.items() if (sys_ / p).is_symlink() and
            not ((sys_ / p).exists() and os.path.realpath(sys_ / p).startswith(real))]
    ok(not dead, f"{name}: all links lead somewhere in the tree", dead)
    in_class = [p for p in all_ if re.fullmatch(r"class/(net|infiniband|infiniband_verbs|pci_bus)/[^/]+", p) and p != "class/infiniband_verbs/abi_version"]
    ok(all((sys_ / p).is_symlink() and "/devices/" in os.path.realpath(sys_ / p) for p in in_class) and in_class,
       f"{name}: classes are links into devices", in_class)
    for d in (sys_ / "class/infiniband").iterdir() if (sys_ / "class/infiniband").is_dir() else ():
        way = os.path.realpath(d / "device")
        if not re.search(r"/devices/pci[^/]+(/[0-9a-f]{4}:[0-9a-f:.]+)+$", way) or not (d / "device").is_symlink():
            ok(False, f"{name}: {d.name}'s device is a link to its PCI device", way)
    for bdf in os.listdir(sys_ / "bus/pci/devices"):
        dev = pathlib.Path(os.path.realpath(sys_ / "bus/pci/devices" / bdf))
        # the paths that NCCL follows: through the bus to the device, through the device's subsystem to its type
        by_bus = os.path.realpath(f"{sys_}/class/pci_bus/{bdf.rsplit(':', 1)[0]}/../../{bdf}")
        files = ["class", "vendor", "device", "subsystem_vendor", "subsystem_device", "numa_node", "uevent", "modalias", "local_cpus",
                 "config"]
        bad = by_bus != str(dev) or not os.path.realpath(dev / "subsystem").endswith("/pci") or \
            [f for f in files if not (dev / f).is_file()]
        if bad:
            ok(False, f"{name}: {bdf} as NCCL and hwloc look for it", (by_bus, bad))


def verbs(sys_):
    """Tests the files that libibverbs and its providers open (see docs/sandbox.md)."""
    dev = sys_ / "class/infiniband/mlx5_3"
    ok((sys_ / "class/infiniband_verbs/abi_version").read_text() == "6\n", "class/infiniband_verbs/abi_version")
    v = sys_ / "class/infiniband_verbs/uverbs5"  # the two management devices have the lower numbers
    ok((v / "ibdev").read_text() == "mlx5_3\n" and (v / "abi_version").read_text() == "1\n" and (v / "dev").read_text() == "231:197\n",
       "uverbs5 says whose it is")
    ok((dev / "node_type").read_text() == "1: CA\n" and (dev / "device/modalias").read_text().startswith("pci:v000015B3") and
       os.listdir(dev / "device/infiniband_verbs") == ["uverbs5"] and (dev / "device/local_cpus").read_text(), "the device's files")
    port = dev / "ports/1"
    ok(sorted(os.listdir(port / "gids"), key=int) == [str(i) for i in range(8)] and
       all((port / f / str(i)).is_file() for f in ("gids", "gid_attrs/types", "gid_attrs/ndevs") for i in range(8)), "the whole GID table")
    ok((port / "gids/3").read_text() == "0000:0000:0000:0000:0000:ffff:0a00:0301\n" and
       (port / "gid_attrs/types/3").read_text() == "RoCE v2\n" and (port / "gid_attrs/ndevs/3").read_text() == "rdma3\n", "its entries")
    ok(not (port / "gid_attrs/types/7").read_text() and (port / "gids/7").read_text().count("0000") == 8, "an unused entry can be read")


def dangling(t, root, tmp):
    s = with_addresses(t.snapshot(root))
    rdma(s, "mlx5_5")["ports"][0]["gids"] = []
    for g in rdma(s, "mlx5_6")["ports"][0]["gids"]:
        g["ndev"] = "eth0"
    out = tmp / "dangling"
    t("sysfs", "--from", t.file(s), "--out", out)
    there = set(os.listdir(out / "bus/pci/devices"))
    ok(not {"0000:96:00.0", "0000:c5:00.0"} & there and "0000:95:00.0" in there, "no PCI device whose RDMA device has no live GID", there)
    ok(len([d for d in there if (out / "bus/pci/devices" / d / "class").read_text() == "0x030200\n"]) == 8 and
       "0000:17:00.0" in there and "0000:92:03.0" in there, "GPUs, the NVSwitch and all bridges")
    ok("mlx5_5" not in os.listdir(out / "class/infiniband") and not (out / "class/net/rdma5/device").exists() and
       (out / "class/net/rdma5/mtu").exists(), "its RDMA device is not there, its NIC without a device")
    t("sysfs", "--from", t.file(s), "--out", out, "--all-nics")
    ok({"0000:96:00.0", "0000:c5:00.0", "0000:03:00.0"} <= set(os.listdir(out / "bus/pci/devices")), "--all-nics: there it dangles")
    t("sysfs", "--from", t.file(s), "--out", out, "--gpus", "2")
    ok([d for d in sorted(os.listdir(out / "bus/pci/devices")) if (out / "bus/pci/devices" / d / "class").read_text() == "0x030200\n"]
       == ["0000:43:00.0"], "only the GPUs of the plan")


# ---- as a folder --------------------------------------------------------------------------------

def folder(t, root, tmp):
    out = tmp / "folder"
    args = "sysfs", "--sysfs", root, "--out", out
    ok(t(*args).returncode == 0, "written")
    first = tree(out)
    modes = {stat.S_IMODE(p.lstat().st_mode) & 0o222 for p in [out, *out.rglob("*")] if not p.is_symlink()}
    ok(modes == {0}, "nobody may write to it", modes)
    held = os.open(out, os.O_RDONLY)
    ok(t(*args).returncode == 0 and tree(out) == first and not list(tmp.glob("folder.*")), "written again: the same, and nothing beside it")
    ok(os.fstat(held).st_ino != out.stat().st_ino, "as a new folder in its place")
    os.close(held)
    ok(t(*args, "--nics", "rdma0").returncode == 0 and os.listdir(out / "class/infiniband") == ["mlx5_0"], "another plan takes its place")
    empty, other = tmp / "empty", tmp / "other"
    empty.mkdir()
    other.mkdir()
    (other / "precious").write_text("x")
    ok(t("sysfs", "--sysfs", root, "--out", str(empty) + "/").returncode == 0 and (empty / "class/net").is_dir(), "an empty folder does")
    for p in other, other / "precious":
        r = t("sysfs", "--sysfs", root, "--out", p)
        ok(r.returncode == 1 and "leaving it unchanged" in r.stderr and (other / "precious").read_text() == "x", f"{p.name} is not ours: left alone", r)
    r = t("sysfs", "--sysfs", root, "--out", tmp / "none/x")
    ok(r.returncode == 1 and "none/x" in r.stderr, "a place that is not there", r)
    # killed at different times; one of the two complete trees must exist afterwards
    one, two = tree(out), first
    seen = set()
    for i in range(14):
        p = subprocess.Popen([t.program, "sandbox", *map(str, args), *(() if i % 2 else ("--nics", "rdma0"))], stderr=subprocess.DEVNULL)
        time.sleep(i * 0.005)
        p.kill()
        p.wait()
        now = tree(out)
        seen.add("one" if now == one else "two" if now == two else "broken")
    ok("broken" not in seen, "killed at any time, the tree is whole", seen)
    for p in tmp.glob("folder.*"):
        subprocess.run(["chmod", "-R", "u+w", p], check=True)
        shutil.rmtree(p)
    begin = time.monotonic()
    t(*args)
    print(f"# {len(first)} files, folders and links: {1000 * (time.monotonic() - begin):.0f} ms, with the scan of the node")


# read by other programs

def lstopo(root):
    r = subprocess.run(["lstopo-no-graphics", "--input", root, "--if", "fsroot", "--filter", "io:all", "--of", "xml", "-"], text=True,
                       capture_output=True, timeout=60, env={**os.environ, "HWLOC_HIDE_ERRORS": "2"})
    assert r.returncode == 0, r
    return ET.fromstring(r.stdout)


def shape(o, gone, nets):
    """Returns an hwloc object and all objects under it, without indexes and without the devices that the plan left
    out."""
    attrs = {k: v for k, v in o.attrib.items() if k not in ("gp_index", "id")}
    info = sorted((i.get("name"), i.get("value")) for i in o.findall("info") if i.get("name") not in ("hwlocVersion", "ProcessName"))
    below = [shape(c, gone, nets) for c in o.findall("object")
             if c.get("pci_busid") not in gone and not (c.get("type") == "OSDev" and c.get("name") in nets)]
    return tuple(sorted(attrs.items())), tuple(info), tuple(below)


def hwloc(t, root, sys_):
    plan = plan_of(t, root)
    gone = {k for k in plan["pci_left_out"]}
    nets = {n["nic"] for n in plan["nics"] if not n["in"]} | {r["device"] for r in plan["rdma"] if not r["in"]}
    a, b = lstopo(root), lstopo(sys_.parent)
    n = len(b.findall(".//object[@type='PCIDev']"))
    differ = shape(a.find("object"), gone, nets) != shape(b.find("object"), gone, nets)
    ok(not differ, f"{root.name}: hwloc finds the same {n} PCI devices, and CPUs and memory, as on the original",
       "" if not differ else [(x, y) for x, y in zip(ET.tostring(a).split(b"\n"), ET.tostring(b).split(b"\n")) if x != y][:4])
    return n


def in_place(t, root, sys_):
    """Tests programs with the rebuilt tree as their /sys, and with the device files that a container with all devices
    has."""
    if os.geteuid() != 0 or not shutil.which("ibv_devices"):
        return skip("ibv_devices", "not root" if os.geteuid() else "ibv_devices (ibverbs-utils) is not installed")
    nodes = "".join(f" && mknod /dev/infiniband/uverbs{i} c 231 {192 + i}" for i in range(10))
    script = f"mount --bind {sys_} /sys && mount -t tmpfs none /dev && mkdir /dev/infiniband {nodes} || exit 77; "
    r = subprocess.run(["unshare", "-m", "sh", "-c", script + "ibv_devices; echo nets; ls /sys/class/net"], capture_output=True, text=True,
                       timeout=60, check=False)
    if r.returncode == 77 or "unshare" in r.stderr:
        return skip("ibv_devices", "no mounts or device files may be made here: " + r.stderr.strip())
    plan = plan_of(t, root)
    devices, nets = r.stdout.split("nets\n")
    found = dict(line.split() for line in devices.splitlines()[2:])
    ok(found == {f"mlx5_{i}": f"020000fffe0000{i + 2:02x}" for i in range(8)}, "ibv_devices sees the plan's RDMA devices by their GUIDs, and no other", r)
    ok(nets.split() == sorted(["lo", *plan["netdevs"].split(",")]), "so are the interfaces in /sys/class/net", nets)
    return None


def nccl(t, root):
    r = t("sysfs", "--sysfs", root, "--nccl-topo", "-")
    top = ET.fromstring(r.stdout)
    ok(top.tag == "system" and top.get("version") == "1" and [c.get("numaid") for c in top] == ["0", "1"], "two CPUs", r)
    ok(top[0].get("affinity").endswith("0fffffff,ffffff00,00000000,000fffff,ffffffff"), "their affinity", top[0].attrib)
    sw = [p for c in top for p in c]
    ok([p.get("busid") for p in sw] == [f"0000:{b}:00.0" for b in ("11", "41", "91", "c1")] and
       all(p.get("class") == "0x060400" and p.get("vendor") == "0x1000" for p in sw), "four switches, each one element by its upstream port")
    ok(all([len(p.findall("pci/gpu")), len(p.findall("pci/nic/net")), len(p)] == [2, 2, 4] for p in sw), "with two GPUs and two NICs each")
    ok([g.get("dev") for g in top.iter("gpu")] == [str(i) for i in range(8)], "GPUs by number")
    ok([(n.get("name"), n.get("port"), n.get("speed")) for n in top.iter("net")] == [(f"mlx5_{i}", "1", "400000") for i in range(8)],
       "NICs by RDMA device, port and speed")
    ok({(p.get("link_speed"), p.get("link_width")) for p in top.iter("pci")} == {("32.0 GT/s PCIe", "16")}, "link speeds and widths")
    top = ET.fromstring(t("sysfs", "--sysfs", root, "--nccl-topo", "-", "--gpus", "3,5", "--nics", "rdma1").stdout)
    ok([g.get("dev") for g in top.iter("gpu")] == ["0", "1"] and [n.get("name") for n in top.iter("net")] == ["mlx5_1"] and
       [p.get("busid") for c in top for p in c] == ["0000:11:00.0", "0000:41:00.0", "0000:91:00.0"], "only what the plan has, as numbered inside")
    s = t.snapshot(root)
    s["pci"][next(i for i, d in enumerate(s["pci"]) if d["path"].endswith("0000:13:00.0"))]["files"].update(
        max_link_speed="16.0 GT/s PCIe", max_link_width="8", subsystem_vendor='"<&>')
    p = ET.fromstring(t("sysfs", "--from", t.file(s), "--nccl-topo", "-").stdout).find(".//pci[@busid='0000:13:00.0']")
    ok((p.get("link_speed"), p.get("link_width"), p.get("subsystem_vendor")) == ("16.0 GT/s PCIe", "8", '"<&>'), "the less of a link's two ends; quoting")
    f = t.tmp / "topo.xml"
    ok(t("sysfs", "--sysfs", root, "--nccl-topo", f).returncode == 0 and ET.parse(f).getroot().tag == "system", "to a file")


# ---- FUSE ---------------------------------------------------------------------------------------

def mounted(at):
    return any(line.split()[1] == str(at) for line in pathlib.Path("/proc/self/mounts").read_text().splitlines())


def gone(at):
    end = time.monotonic() + 20
    while mounted(at) and time.monotonic() < end:
        time.sleep(0.02)
    return not mounted(at)


def fuse(t, root, tmp):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return skip("FUSE", "no /dev/fuse that may be used")
    at, host = tmp / "mnt", tmp / "host"
    at.mkdir()
    shutil.copytree(root, host, symlinks=True)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: subprocess.run(["umount", "-l", at], stderr=subprocess.DEVNULL, check=False))
        r = t("sysfs", "--sysfs", host, "--fuse", at)
        if r.returncode != 0:
            return skip("FUSE", "no FUSE mount here: " + r.stderr.strip().splitlines()[-1])
        out = rebuild(t, host, tmp / "fuse_folder")
        a, b = tree(out), tree(at)
        ok(a == b, "what FUSE serves equals the folder", [(k, a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k, 0) != b.get(k, 0)][:5])
        port = "class/infiniband/mlx5_3/ports/1"
        there = pathlib.Path(os.path.realpath(host / "sys/class/infiniband/mlx5_3")) / "ports/1"
        for f, text in {"state": "1: DOWN\n", "rate": "200 Gb/sec (4X HDR)\n", "gids/7": "fe80:0000:0000:0000:0000:0000:0000:0007\n",
                        "gid_attrs/ndevs/7": "rdma3\n", "counters/port_xmit_data": "77\n"}.items():
            before = (at / port / f).read_bytes()
            (there / f).write_text(text)
            ok((at / port / f).read_text() == text != before.decode(), f"{f} is the host's of the moment")
        mtu = pathlib.Path(os.path.realpath(host / "sys/class/net/rdma3/mtu"))
        mtu.write_text("1\n")
        ok((at / "class/net/rdma3/mtu").read_text() == "9000\n", "what does not live stays")
        (there / "lid").unlink()
        (there / "sm_lid").unlink()
        (there / "sm_lid").symlink_to("/etc/passwd")
        errors = []
        for f in "lid", "sm_lid":
            try:
                errors.append((at / port / f).read_text())
            except OSError as e:
                errors.append(e.errno)
        ok(errors == [2, 40], "what the host has no more, or as a link now, is an error and nothing else", errors)
        for act, what in (lambda: (at / "x").write_text("x"), "made"), (lambda: (at / port / "state").write_text("x"), "written"), \
                (lambda: (at / port / "state").unlink(), "removed"):
            try:
                act()
                ok(False, f"nothing can be {what}")
            except OSError as e:
                ok(e.errno == 30, f"nothing can be {what}", e)
        subprocess.run(["umount", at], check=True, timeout=20)
        ok(gone(at), "unmounted")
        p = subprocess.Popen([t.program, "sandbox", "sysfs", "--sysfs", root, "--fuse", at, "--foreground"], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not mounted(at) and p.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        ok((at / "class/net/rdma0").exists(), "in the foreground")
        p.send_signal(signal.SIGTERM)
        ok(p.wait(20) == 0 and gone(at), "which unmounts when it is told to end", p.returncode)
        r = t("sysfs", "--sysfs", root, "--fuse", tmp / "none")
        ok(r.returncode == 1 and "none" in r.stderr, "a mount point that is not there", r)


def main():
    with scratch() as d:
        tmp = pathlib.Path(d)
        t = Tool(sys.argv[1], tmp)
        roots = dict(zip(NODES, full(tmp, *NODES)))
        for name, root in roots.items():
            to = tmp / "rebuilt" / name
            same_node(t, root, to)
            links(to / "sys")
            if shutil.which("lstopo-no-graphics"):
                if name == "switch4":
                    ok(hwloc(t, root, to / "sys") == 20, "which are 8 GPUs, 8 NICs and 4 NVSwitches")
                else:
                    hwloc(t, root, to / "sys")
            else:
                skip(f"hwloc on {name}", "lstopo-no-graphics (hwloc-nox) is not installed")
        same_node(t, roots["hca8"], tmp / "rebuilt/hca8", "--exclude", "", "--gpus", "1-3")
        same_node(t, roots["switch4"], tmp / "rebuilt/hca8", "--exclude", "", "--force", "--all-nics")
        verbs(tmp / "rebuilt/switch4/sys")
        dangling(t, roots["switch4"], tmp)
        folder(t, roots["switch4"], tmp)
        in_place(t, roots["switch4"], tmp / "rebuilt/switch4/sys")
        nccl(t, roots["switch4"])
        fuse(t, roots["switch4"], tmp)
        subprocess.run(["chmod", "-R", "u+w", tmp], check=True)
    return done()


if __name__ == "__main__":
    sys.exit(main())
