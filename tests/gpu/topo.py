#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests real NCCL over a rebuilt /sys: tests/gpu/run topo [OPTION...]. Needs two GPUs and root.
To a snapshot of this machine, adds for each GPU a switch with a NIC and its RDMA device at the GPU's host bridge, and
another switch with a NIC whose RDMA device has no GID (for example because it was moved away): the dangling one. The
GPUs keep their buses, which the driver reports; if they have no NUMA node, as in a guest, they get the first. The
snapshot is planned and rebuilt with the filter and without it (--all-nics). In a mount namespace with the result on
/sys, NCCL runs an all_reduce with two ranks, over the plain plugin. The NICs do not exist, so the plugin only reports
that its devices are those PCI devices, which are the network controllers in /sys/bus/pci/devices, where older versions
of NCCL looked for them. NCCL's view is read from NCCL_TOPO_DUMP_FILE of each rank, since each has one GPU. The machine
itself is not changed.
Ends with the line "N passed, N failed, N skipped"."""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

sys.dont_write_bytecode = True
from nccl import end, find_nccl  # in this folder

HERE = pathlib.Path(__file__).resolve().parent
CLONE_NEWNS, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18  # linux/{sched,mount}.h
ABOUT = "class", "vendor", "device", "subsystem_vendor", "subsystem_device"
ROOT_PORT = ("0x060400", "0x8086", "0x352a", "0x0000", "0x0000")
SWITCH = ("0x060400", "0x11f8", "0x5000", "0x0000", "0x0000")
NIC = ("0x020000", "0x15b3", "0x1021", "0x15b3", "0x0023")
counts = {"passed": 0, "failed": 0}


def check(good, what, why=""):
    counts["passed" if good else "failed"] += 1
    print(f"{'passed' if good else 'failed'}: {what}" + (f": {why}" if why and not good else ""), flush=True)


def must(good, what, why):
    """Checks a condition that all further tests need. Ends the program if the condition is false, in order not to waste
    time on a borrowed machine."""
    check(good, what, why)
    if not good:
        end(counts["passed"], counts["failed"], 0)


def skip(why):
    print(f"skipped: topo: {why}")
    end(0, 0, 1)


# ---- the machine with added devices -------------------------------------------------------------

def bdf(path):
    return path.rsplit("/", 1)[1]


def place(device):
    return (f"cpu{device['files']['numa_node']}",)


def gpus_of(snapshot):
    return [d for d in snapshot["pci"] if d["files"]["vendor"] == "0x10de" and d["files"]["class"].startswith("0x03")]


def own_numa(s, gpus):
    """Assigns all devices to the machine's first NUMA node if no GPU has a NUMA node, as in a guest. If the GPUs were
    on a node that the kernel does not have, NCCL would request memory on that node. NVIDIA's driver (580.159.04) then
    loops forever with its lock held, and no program can use a GPU."""
    if all(g["files"].get("numa_node", "-1") == "-1" for g in gpus):
        for x in s["pci"]:
            x["files"]["numa_node"] = str(s["numa"][0]["node"])


def add_switch(s, gpu, n, dangling):
    """Adds a root port, a switch (an upstream and a downstream port) and NIC n at the GPU's host bridge and NUMA node.
    Returns the NIC's location (CPU, switch, NIC), in which `switch` is the switch's upstream port."""
    host = gpu["path"].split("/")[1]  # pci0000:00
    domain, bus = host[3:].split(":")
    here = {bdf(d["path"]) for d in s["pci"]}
    used = {x[:7] for x in here}
    slot = next(i for i in range(1, 32) if f"{domain}:{bus}:{i:02x}.0" not in here)
    free = [f"{domain}:{i:02x}" for i in range(1, 256) if f"{domain}:{i:02x}" not in used][:3]
    at, path = [f"{domain}:{bus}:{slot:02x}.0"] + [f"{b}:00.0" for b in free], f"devices/{host}"
    near = {k: v for k, v in gpu["files"].items() if k in ("numa_node", "local_cpus", "local_cpulist")}
    for address, ids in zip(at, (ROOT_PORT, SWITCH, SWITCH, NIC)):
        path += "/" + address
        link = {x + y: z for x in ("current", "max") for y, z in (("_link_speed", "32.0 GT/s PCIe"), ("_link_width", "16"))}
        s["pci"].append({"path": path, "driver": "mlx5_core" if ids is NIC else "pcieport",
                         "files": {**near, **link, **dict(zip(ABOUT, ids)), "uevent": f"PCI_SLOT_NAME={address}"}})
    gids = []
    if not dangling:
        s["net"].append({"name": f"rdma{n}", "path": f"{path}/net/rdma{n}", "driver": "mlx5_core", "bus": "pci", "default_route": False,
                         "files": {"type": "1", "operstate": "up", "mtu": "9000", "speed": "400000", "dev_port": "0", "flags": "0x1003",
                                   "address": f"02:00:00:00:77:{n:02x}"},
                         "addresses": [f"10.77.{n}.1/24"]})
        gids = [{"index": 3, "gid": f"0000:0000:0000:0000:0000:ffff:0a4d:{n:02x}01", "type": "RoCE v2", "ndev": f"rdma{n}"}]
    s["rdma"].append({"name": f"mlx5_{n}", "path": f"{path}/infiniband/mlx5_{n}", "files": {"node_type": "1: CA"},
                      "ports": [{"port": 1, "gid_table": 8, "gids": gids,
                                 "files": {"state": "4: ACTIVE", "link_layer": "Ethernet", "rate": "400 Gb/sec (4X NDR)"}}]})
    return place(gpu) + (at[1], at[3])


def hawser(a, *argv):
    r = subprocess.run([a.tool, "sandbox", *map(str, argv)], capture_output=True, text=True, timeout=60)
    if r.returncode:
        print(f"failed: hawser sandbox {' '.join(map(str, argv))}: {r.stderr.strip()}")
        end(counts["passed"], counts["failed"] + 1, 0)
    return r.stdout


# ---- NCCL --------------------------------------------------------------------------------------

def enter(folder):
    """Creates a mount namespace in which `folder` is mounted read-only on /sys. Runs in a child before exec."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name, *args):
        if getattr(libc, name)(*args) != 0:
            raise OSError(ctypes.get_errno(), name)

    def mount(what, where, flags):
        call("mount", what, where, None, ctypes.c_ulong(flags), None)

    call("unshare", CLONE_NEWNS)
    mount(None, b"/", MS_REC | MS_PRIVATE)
    mount(os.fsencode(folder), b"/sys", MS_BIND)
    mount(None, b"/sys", MS_REMOUNT | MS_BIND | MS_RDONLY)


def may_enter(folder):
    """Returns None if enter(folder) is possible, and otherwise the reason why not."""
    try:
        r = subprocess.run(["test", "-e", "/sys/.hawser-sysfs"], preexec_fn=lambda: enter(folder))
        return None if r.returncode == 0 else "the rebuilt tree is not on /sys in the mount namespace"
    except (OSError, subprocess.SubprocessError) as e:
        return f"no mount namespace of our own (root is needed): {e}"


def nics(folder):
    """Returns the paths that the network controllers in /sys/bus/pci/devices have in the sandbox."""
    found = []
    for d in sorted((folder / "bus/pci/devices").iterdir()):
        if (d / "class").read_text().startswith("0x02"):
            found.append("/sys/" + str(d.resolve().relative_to(folder.resolve())))
    return found


def run_nccl(a, work, name, paths, folder, rank):
    """Runs an all_reduce over a plugin whose devices have these paths. Returns the root of NCCL's XML."""
    stem = f"{name.replace(' ', '-')}-{rank}"
    out, dump = work / f"{stem}.jsonl", work / f"{stem}.xml"
    env = dict(os.environ, PLAIN_PCI=",".join(paths), NCCL_TOPO_DUMP_FILE=str(dump), NCCL_TOPO_DUMP_FILE_RANK=str(rank),
               LD_LIBRARY_PATH=f"{a.plugin_dir}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    env.setdefault("NCCL_SOCKET_IFNAME", "lo")
    env.pop("NCCL_TOPO_FILE", None)
    argv = [a.tool, "nccl", "bench", "--nccl", a.nccl, "--gpus", "2", "--plugin", "plain", "--op", "all_reduce", "--size", "64KiB,1MiB",
            "--iters", "10", "--timeout", "20s", "--json", str(out), *(["--verbose"] if a.verbose else [])]
    try:
        r = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=45,
                           preexec_fn=(lambda: enter(folder)) if folder else None)
    except subprocess.TimeoutExpired:
        must(False, f"{name}: rank {rank}: all_reduce", "not done within 45 s")
    if a.verbose:
        print(r.stdout)
    rows = [json.loads(x) for x in out.read_text().splitlines()] if out.exists() else []
    good = r.returncode == 0 and len(rows) == 2 and all(x["errors"] == 0 and x["checked"] > 0 and x["network"] == "Plain" for x in rows)
    must(good, f"{name}: rank {rank}: all_reduce among two GPUs over {len(paths)} NICs, every element right", f"exit status {r.returncode}\n{r.stdout}")
    must(dump.exists(), f"{name}: rank {rank}: NCCL dumps its topology", "there is no file")
    return ET.parse(dump).getroot()


def ways(root, tag):
    """Returns a dict of the <gpu> or <net> elements. A key is the CPU and the addresses of the <pci> elements above."""
    found = {}

    def walk(e, above):
        if e.tag == "cpu":
            above = [f"cpu{e.get('numaid')}"]
        elif e.tag == "pci":
            above = above + [e.get("busid").lower()]
        elif e.tag == tag:
            found.setdefault(tuple(above), []).append(e)
        for x in e:
            walk(x, above)

    walk(root, [])
    return found


def links(root):
    return {e.get("busid").lower(): (e.get("link_speed"), e.get("link_width")) for e in root.iter("pci")}


def below(root):
    """Returns the structure of NCCL's XML as text."""
    return "; ".join(" > ".join(w) + f": {tag}" for tag in ("gpu", "net") for w in sorted(ways(root, tag)))


# ---- checks ------------------------------------------------------------------------------------

def each_under_its_own(name, root, added, others, gpu, rank):
    """Checks NCCL's topology. `added` has the locations of the NICs that must each be alone under a switch. `others`
    has the addresses of this machine's own NICs, which must also be present."""
    got = ways(root, "net")
    print(f"# {name}: rank {rank}: {below(root)}")
    check(set(ways(root, "gpu")) == {gpu}, f"{name}: rank {rank}: its GPU is at {' > '.join(gpu)}", str(sorted(ways(root, "gpu"))))
    by_nic = {w[-1]: w for w in got}
    for way in added:
        w = by_nic.get(way[-1], ())
        alone = sum(way[1] in v for v in got) == 1 and len(got.get(w, [])) == 1
        check(w == way and alone, f"{name}: rank {rank}: {way[2]} is alone under its own switch, {way[1]}, on {way[0]}",
              " > ".join(w) or "it is not there")
    want = {way[-1] for way in added} | set(others)
    check(set(by_nic) == want, f"{name}: rank {rank}: NICs are {', '.join(sorted(want))}, no others", ", ".join(sorted(by_nic)))


def same_as_ours(root, ours, added, rank):
    """Compares NCCL's XML with the XML that `hawser sandbox sysfs --nccl-topo` makes from the same plan."""
    mine, its = ways(ours, "net"), ways(root, "net")
    check(set(mine) == set(its) and len(mine) == len(added), f"filter on: rank {rank}: NICs hang as `hawser sandbox sysfs --nccl-topo` says", f"{sorted(mine)}, NCCL: {sorted(its)}")
    a, b = links(ours), links(root)
    on_way = {at for w in its for at in w[1:]}
    check(on_way and all(a.get(x) == b[x] for x in on_way), f"filter on: rank {rank}: so do links' speed and width", f"{a}, NCCL: {b}")


def main():
    p = argparse.ArgumentParser(prog="tests/gpu/run topo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tool", default=str(HERE / "../../build/hawser"), help="the program")
    p.add_argument("--plugin-dir", default=str(HERE / "../../build/tests/fakes/plugins"), help="where libnccl-net-plain.so is")
    p.add_argument("--nccl", help="NCCL's library; by default PyTorch's")
    p.add_argument("--keep", help="copy the snapshot and NCCL's XML to this folder")
    p.add_argument("--verbose", action="store_true", help="show what NCCL says")
    a = p.parse_args()
    a.tool, a.plugin_dir = os.path.abspath(a.tool), os.path.abspath(a.plugin_dir)
    for file in a.tool, a.plugin_dir + "/libnccl-net-plain.so":
        if not os.path.exists(file):
            print(f"failed: topo: no {file}: build first, or name it by --tool, --plugin-dir")
            end(0, 1, 0)
    a.nccl = a.nccl or find_nccl()
    if not a.nccl:
        skip("no libnccl.so.2 where PyTorch, CUDA or the system would have it; name it by --nccl")
    with tempfile.TemporaryDirectory() as d:
        work = pathlib.Path(d)
        try:
            everything(a, work)
        finally:
            for f in [*work.glob("*.json"), *work.glob("*.xml")] if a.keep else []:
                shutil.copy(f, a.keep)
            subprocess.run(["chmod", "-R", "u+w", d], check=False)  # the rebuilt folders are 0555
    end(counts["passed"], counts["failed"], 0)


def everything(a, work):
    s = json.loads(hawser(a, "snapshot"))
    mine = gpus_of(s)[:2]
    if len(mine) < 2:
        skip(f"NCCL transfers nothing with fewer than two GPUs; this host has {len(mine)}")
    own_numa(s, mine)
    gpus = [place(g) + (bdf(g["path"]),) for g in mine]
    real = {bdf(x["path"]) for x in s["pci"] if x["files"]["class"].startswith("0x02")}
    added = [add_switch(s, g, n, dangling=n == 2) for n, g in enumerate((*mine, mine[0]))]
    good, dangling = added[:2], added[2]
    (work / "node.json").write_text(json.dumps(s, indent=1))
    plan = json.loads(hawser(a, "plan", "--json", "--from", work / "node.json"))
    check({x["pci"] for x in plan["nics"] if x["in"] and x["pci"]} >= {way[-1] for way in good} and dangling[-1] in plan["pci_left_out"],
          "the plan takes each GPU's NIC, and leaves out the dangling one", json.dumps(plan))
    taken = {x["pci"] for x in plan["nics"] if x["in"] and x["pci"]} & real
    for folder, more in ("on", []), ("off", ["--all-nics"]):
        hawser(a, "sysfs", "--from", work / "node.json", "--out", work / folder, *more)
    hawser(a, "sysfs", "--from", work / "node.json", "--nccl-topo", work / "ours.xml")
    if why := may_enter(work / "on"):
        skip(why)
    paths = nics(work / "on")
    for rank in range(2):
        root = run_nccl(a, work, "filter on", paths, work / "on", rank)
        each_under_its_own("filter on", root, good, taken, gpus[rank], rank)
        same_as_ours(root, ET.parse(work / "ours.xml").getroot(), paths, rank)
        root = run_nccl(a, work, "filter off", nics(work / "off"), work / "off", rank)
        each_under_its_own("filter off", root, added, real, gpus[rank], rank)
    # Shows why the rebuilt tree is necessary: with this machine's own /sys, NCCL does not find the NICs, and assigns
    # them to the first CPU.
    root = run_nccl(a, work, "own sys", paths, None, 0)
    print(f"# own /sys: {below(root)}")
    got = ways(root, "net")
    check(sum(map(len, got.values())) == len(paths) and not {at for way in good for at in way[1:]} & {at for w in got for at in w},
          "on the machine's own /sys none of these NICs has a place", str(sorted(got)))


if __name__ == "__main__":
    main()
