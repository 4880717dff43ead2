#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser mesh --hosts` with 64 nodes on this machine (TAP): one NIC is rate-limited, one rank is killed and one
is stopped. The test takes minutes and is not part of `make check`. During the test, the kernel's limit on neighbour
entries is raised: all network namespaces share the limit, and with the default of 1024, 64 nodes cannot all reach each
other.
Usage: mesh_many.py HAWSER [NODES [REPORT]]"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tap import done, ok  # noqa: E402

HAWSER = sys.argv[1]
NODES = int(sys.argv[2]) if len(sys.argv) > 2 else 64
LAB = f"many{os.getpid()}"
NEIGHBOURS = pathlib.Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
ROOM = 16384


def name(k):
    return chr(97 + k) if k < 26 else chr(96 + k // 26) + chr(97 + k % 26)


def signal_ranks(node, sig):
    there = os.stat(f"/run/netns/hawser-{LAB}-{node}").st_ino
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.stat(p / "ns/net").st_ino == there and (p / "comm").read_text().strip() == "hawser":
                os.kill(int(p.name), sig)
        except OSError:
            pass


def run(folder):
    slow, dead, hung = name(NODES // 3), name(NODES // 2), name(NODES - 2)
    subprocess.run([HAWSER, "lab", "rate", "--name", LAB, slow, "eth0", "8mbit"], check=True, timeout=60)
    (folder / "hosts").write_text("".join(f"{name(k)} addr=198.18.0.{k + 1} rack=r{k // 16}\n" for k in range(NODES)))
    argv = [HAWSER, "mesh", "--hosts", folder / "hosts", "--ssh", f"{HAWSER} lab exec {LAB}/{{}} --", "--size", "16KiB", "--depth", "4", "--duration", "100ms",
            "--pings", "50", "--quick", "--deadline", "20s", "--json", folder / "result", *(["--report", sys.argv[3]] if len(sys.argv) > 3 else [])]
    start = time.monotonic()
    with subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as p:
        time.sleep(30)
        signal_ranks(dead, signal.SIGKILL)
        signal_ranks(hung, signal.SIGSTOP)
        text = p.communicate(timeout=1200)[0]
    print(f"# {time.monotonic() - start:.0f} s\n" + "".join(f"# {line}\n" for line in text.splitlines()[-30:]), flush=True)
    signal_ranks(hung, signal.SIGKILL)
    found = [json.loads(line) for line in open(folder / "result", encoding="utf-8")]
    found = [(f["what"], f.get("node"), f.get("nic")) for f in found if f["type"] == "finding"]
    ok(p.returncode == 1, "it says that there are findings", p.returncode)
    ok(("port", slow, "eth0") in found, f"the rate-limited NIC of {slow} is named", found)
    ok(("died", dead, None) in found and ("silent", hung, None) in found, f"and {dead}, which died, and {hung}, which hangs", found)
    ok(len(found) == 3, "and nothing else", found)


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP it needs root")
        return 77
    before = NEIGHBOURS.read_text()
    try:
        NEIGHBOURS.write_text(str(max(ROOM, int(before))))
        subprocess.run([HAWSER, "lab", "up", "--name", LAB, "--nodes", str(NODES), "--nics", "1", "--rate", "20mbit"], check=True, timeout=120)
        with tempfile.TemporaryDirectory() as d:
            run(pathlib.Path(d))
    finally:
        subprocess.run([HAWSER, "lab", "down", "--name", LAB], check=False, timeout=120)
        NEIGHBOURS.write_text(before)
    return done()


sys.exit(main())
