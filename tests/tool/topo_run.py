#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the `hawser topo` command, with snapshots of four nodes and on this machine (TAP). Usage: topo_run.py HAWSER"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

HAWSER = sys.argv[1]
NODES = pathlib.Path(__file__).resolve().parents[1] / "data/nodes"
SNAPSHOTS = None  # folder with snapshots of the nodes, created by fixtures()


def topo(*argv, **env):
    return subprocess.run([HAWSER, "topo", *map(str, argv)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **env})


def snapshot(folder, to):
    subprocess.run([HAWSER, "sandbox", "snapshot", "--sysfs", folder, "--out", to], check=True, timeout=60)


def at(node, *argv):
    return topo("--from", SNAPSHOTS / f"{node}.json", *argv)


def plan(r):
    return {x["gpu"]: ",".join(x["nics"]) for x in json.loads(r.stdout)["plan"]}


def same(a, b):
    """Returns the paths of files that differ between two folders. Symbolic links are compared by target."""
    files = [{p.relative_to(d): os.readlink(p) if p.is_symlink() else p.read_bytes()
              for p in d.rglob("*") if p.is_symlink() or p.is_file()} for d in (a, b)]
    return {str(k) for k in files[0].keys() | files[1].keys() if files[0].get(k) != files[1].get(k)}


def fixtures(tmp):
    made = tmp / "made"
    made.mkdir()
    subprocess.run([sys.executable, NODES / "make.py", made], check=True, timeout=60)
    for node in "a3-high", "hca8", "flat-vm", "laptop":
        diff = same(made / node, NODES / node)
        ok(not diff, f"{node} is what make.py writes", sorted(diff)[:10])
        snapshot(NODES / node, SNAPSHOTS / f"{node}.json")


def pictures(tmp):
    r = at("a3-high")
    ok(r.returncode == 0 and not r.stderr, "the A3-high node", r)
    for gpu in range(8):
        nic, cpus = f"eth{1 + gpu // 2}", ("0-51,104-155", "52-103,156-207")[gpu // 4]
        ok(f"  GPU {gpu:<3}  {nic} (PIX)  CPUs {cpus}\n" in r.stdout, f"GPU {gpu} on {nic} and its own node's CPUs", r.stdout)
    ok("not used: eth0 (default route), lo (loopback)" in r.stdout, "what is not used, and why", r.stdout)
    ok("  GPU 0           PHB    PIX    PHB    SYS    SYS\n" in r.stdout, "the matrix", r.stdout)
    ok('--map "0,1=eth1;2,3=eth2;4,5=eth3;6,7=eth4"' in r.stdout, "the plan as a map", r.stdout)
    ok(not any(line != line.rstrip() for line in r.stdout.splitlines()), "no blanks at lines' ends", repr(r.stdout))
    svg = tmp / "a3.svg"
    r = at("a3-high", "--json", "--svg", svg)
    j = json.loads(r.stdout)
    ok(r.returncode == 0 and j["schema"] == "hawser-topo-1" and len(j["gpus"]) == 8 and len(j["nics"]) == 6, "in JSON", r)
    ok(plan(r) == {g: f"eth{1 + g // 2}" for g in range(8)}, "the plan in JSON", j["plan"])
    ok(j["gpus"][0]["distance"] == {"eth0": "PHB", "eth1": "PIX", "eth2": "PHB", "eth3": "SYS", "eth4": "SYS"},
       "distances in JSON", j["gpus"][0])
    ok(j["map"] == "0,1=eth1;2,3=eth2;4,5=eth3;6,7=eth4", "the map in JSON", j["map"])
    again = at("a3-high", "--json", "--map", j["map"])
    ok(plan(again) == plan(r) and all(x["by_map"] for x in json.loads(again.stdout)["plan"]), "which --map takes", again)
    tree = ET.parse(svg).getroot()
    ns = "{http://www.w3.org/2000/svg}"
    words = [t.text for t in tree.iter(ns + "text")]
    lines = [p for p in tree.iter(ns + "path") if p.get("class") == "use"]
    ok(len(lines) == 8 and words.count("PIX") == 8 and "GPU 7" in words and "eth4" in words, "drawn", words)
    for node in "hca8", "flat-vm", "laptop":
        r = at(node, "--svg", svg)
        ok(r.returncode == 0 and "\nPlan\n" in r.stdout and ET.parse(svg) is not None, f"{node}, in text and drawn", r)
    ok(plan(at("flat-vm", "--json", "--gpus", "1-3", "--nics", "ens16,ens17")) ==
       {1: "ens16", 2: "ens16,ens17", 3: "ens17"}, "some GPUs, some NICs")


def wrong(tmp):
    for argv, said in {"--map 0=eth9": "eth9", "--map 9=eth1": "GPU 9", "--map 0": "0", "--gpus 0-9": "GPU 8", "--gpus x": "x",
                       "--nics eth": "'eth'", "--frob": "--frob", "here": "here", "--map": "needs a value",
                       "--save x --json": "--save"}.items():
        r = at("a3-high", *argv.split())
        ok(r.returncode == 2 and said in r.stderr and not r.stdout, f"`{argv}`: exit 2, says {said}", r)
    for d, said in {tmp / "none": "No such file", tmp: "directory", __file__: "not valid JSON"}.items():
        r = topo("--from", d)
        ok(r.returncode == 1 and said in r.stderr and not r.stdout, f"--from what is no snapshot: exit 1, says {said}", r)
    r = at("a3-high", "--svg", tmp / "none/x.svg")
    ok(r.returncode == 1 and "x.svg" in r.stderr, "a drawing that cannot be written", r)
    bad = tmp / "bad"
    j = json.loads((SNAPSHOTS / "a3-high.json").read_text())
    for net in j["net"]:
        net["files"]["operstate"] = "down"
    j["numa"][0]["files"]["cpulist"] = "7-3"
    bad.write_text(json.dumps(j))
    r = topo("--from", bad)
    ok(r.returncode == 1 and "GPU 7" in r.stdout and "none: no NIC" in r.stdout and "eth0: down" in r.stderr,
       "no NIC is up: the picture, no plan, exit 1", r)
    ok("note: sys/devices/system/node/node0/cpulist: '7-3'" in r.stdout, "a malformed file is named", r.stdout)
    r = topo("--from", bad, "--json")
    j = json.loads(r.stdout)
    ok(r.returncode == 1 and j["plan"] is None and "no NIC" in j["no_plan"] and len(j["notes"]) == 1, "so too in JSON", r)


def live(tmp):
    # no library has that name, so the result is the same with and without a CUDA driver on the machine
    r = topo("--json", HAWSER_CUDA_LIBRARY="/nonexistent/libcuda.so")
    here = json.loads(r.stdout)
    nics = {x["nic"]: x for x in here["nics"]}
    ok(r.returncode in (0, 1) and set(nics) == {p.name for p in pathlib.Path("/sys/class/net").iterdir() if p.is_dir()},
       "this machine's interfaces", r)
    ok("libcuda" in here["cuda"] and here["from"] is None, "no CUDA driver: why", here["cuda"])
    ok("lo" not in nics or nics["lo"]["loopback"], "loopback", nics)
    text = topo(HAWSER_CUDA_LIBRARY="/nonexistent/libcuda.so").stdout.splitlines()
    ok(sum("numbered by PCI address" in x for x in text) == 1 and "/nonexistent/libcuda.so" in "".join(text), "in one line", text)
    snap = tmp / "snap"
    r = topo("--save", snap)
    ok(r.returncode == 0 and str(snap) in r.stdout, "a snapshot of this machine", r)
    r = topo("--from", snap, "--json")
    there = json.loads(r.stdout)
    for x in here["nics"] + there["nics"]:
        del x["address"]  # not in a snapshot
    differ = [k for k in ("machine", "numa", "pci", "gpus", "nics", "rdma") if here[k] != there[k]]
    ok(not differ, "shows the same machine", [(here[k], there[k]) for k in differ])
    macs = [p.read_text().strip() for p in pathlib.Path("/sys/class/net").glob("*/address")]
    macs = {m for m in macs if m.strip("0:")}
    text = snap.read_text()
    ok(not any(m in text for m in macs) and not json.loads(text)["addresses"], "with no MAC address in it")
    before = sorted(tmp.iterdir())
    r = topo("--from", snap, TMPDIR=str(tmp))
    ok("\nPlan\n" in r.stdout and sorted(tmp.iterdir()) == before, "and reading it leaves nothing behind", r)
    r = topo("--save", tmp / "none/x")
    ok(r.returncode == 1 and "none/x" in r.stderr, "a snapshot that cannot be written", r)


def main():
    global SNAPSHOTS
    with tempfile.TemporaryDirectory() as t:
        tmp = SNAPSHOTS = pathlib.Path(t)
        fixtures(tmp)
        pictures(tmp)
        wrong(tmp)
        live(tmp)
    return done()


if __name__ == "__main__":
    sys.exit(main())
