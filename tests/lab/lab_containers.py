#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests containers on two nodes of a lab (TAP). One node has a NIC without a counterpart on the other node. `hawser`
requests the other node's list of NICs, and moves the NICs that both nodes have into a container on each node. Transfers
between the two containers are verified."""
import os
import re
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
from tap import done, ok  # noqa: E402

HAWSER = sys.argv[1]
LAB = f"lc{os.getpid()}"


def at(node, *argv):
    return [HAWSER, "lab", "exec", f"{LAB}/{node}", "--", *map(str, argv)]


def run(node, *argv):
    return subprocess.run(at(node, *argv), capture_output=True, text=True, timeout=60)


def serve(argv):
    """Starts `hawser serve`, and returns the process when the server is ready."""
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    for line in p.stdout:
        said += line
        if re.match("  hawser bench ", line):
            return p
    raise SystemExit(f"Bail out! serve ended: {said}")


def stop(p):
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=60)
    return p.returncode


def nics(r):
    """Returns the NICs of a plan."""
    m = re.search(r"^netdevs: (.*)$", r.stdout, re.M)
    return m[1] if m else r


def plans():
    """Tests plans. The nodes query each other over eth0, which no plan contains. Only node a has eth4."""
    a = run("a", HAWSER, "sandbox", "plan", "--nics", "eth1,eth2,eth3,eth4", "--peer", "198.18.0.2")
    ok(a.returncode == 0 and nics(a) == "eth1,eth2,eth3", "the plan of a: what b has too", (nics(a), a))
    ok("eth4" in a.stdout and "the peer 198.18.0.2 has no corresponding NIC (--peer)" in a.stdout, "the one that b lacks, and why", a)
    ok("# the peer's eth1 198.18.1.2/24, no RDMA device: with eth1\n" in a.stderr, "each of the peer's NICs, with its address and partner", a)
    b = run("b", HAWSER, "sandbox", "plan", "--nics", "eth1,eth2,eth3", "--peer", "198.18.0.1")
    ok(b.returncode == 0 and nics(b) == "eth1,eth2,eth3", "the plan of b is the same", b)
    r = run("a", HAWSER, "sandbox", "plan", "--nics", "eth4", "--peer", "198.18.0.2")
    ok(r.returncode == 1 and "no NIC is left" in r.stderr, "nothing in common is an error", r)
    r = run("a", HAWSER, "sandbox", "plan", "--nics", "eth1", "--peer", "198.18.0.2:9")
    ok(r.returncode == 1 and "asking 198.18.0.2:9 for the list of its NICs" in r.stderr, "so is nobody who answers", r)
    r = run("a", HAWSER, "sandbox", "plan", "--nics", "eth1", "--peer", "198.18.0.2", "--peer-nics", "eth1")
    ok(r.returncode == 2 and "--peer-nics" in r.stderr, "a list and a peer are one too many", r)


def transfer():
    """Runs containers on both nodes, with transfers between them."""
    box = serve(at("b", HAWSER, "sandbox", "run", "--nics", "eth1,eth2,eth3", "--peer", "198.18.0.1", "--id", f"{LAB}b", "--", HAWSER,
                   "serve"))
    here = run("b", "ls", "/sys/class/net").stdout.split()
    ok("eth0" in here and "eth1" not in here, "the NICs of b are in its container", here)
    # b's NICs are now in the container, and the container's `serve` still reports these NICs.
    r = run("a", HAWSER, "sandbox", "plan", "--nics", "eth1,eth2,eth3,eth4", "--peer", "198.18.0.2")
    ok(nics(r) == "eth1,eth2,eth3" and "# the peer's eth1 198.18.1.2/24, no RDMA device, in a container: with eth1\n" in r.stderr,
       "a still learns of them", r)
    inside = f"""echo "$NCCL_SOCKET_IFNAME $NCCL_NET_PLUGIN $(ls /sys/class/net | xargs)"
for n in 1 2 3; do {HAWSER} validate 198.18.$n.2 --nic eth$n --size 1MiB || exit 1; done
{HAWSER} bench 198.18.1.2 --size 4MiB --iters 8 --require-nics 3"""
    r = run("a", HAWSER, "sandbox", "run", "--nics", "eth1,eth2,eth3,eth4", "--id", f"{LAB}a", "--peer", "198.18.0.2", "--", "sh", "-c", inside)
    lines = r.stdout.splitlines()
    ok(lines and lines[0] == "=eth1,eth2,eth3 hawser eth1 eth2 eth3 lo", "the environment and /sys of a's container: what both have", r)
    ok(r.stdout.count("Success: 4 / 4\n") == 3, "validate between the containers, over each NIC", r)
    used = re.findall(r"^# (\S+) .*-> .*?(\S+), \d+ channels?$", r.stdout, re.M)
    ok(r.returncode == 0 and sorted(set(used)) == [(n, n) for n in ("eth1", "eth2", "eth3")], "bench between the containers, over three NICs", r)
    # The same server process has served validate and bench.
    ok(stop(box) == 0, "the server in b's container ends")
    for node, last in (("a", 4), ("b", 3)):
        there = run(node, "ls", "/sys/class/net").stdout.split()
        ok(all(f"eth{i}" in there for i in range(last + 1)), f"{node} has its NICs again", there)


def main():
    up = subprocess.run([HAWSER, "lab", "up", "--name", LAB, "--nics", "5,4"], capture_output=True, text=True, timeout=60)
    if up.returncode:
        if re.search("needs root|no rights", up.stderr):
            print(f"1..0 # SKIP {up.stderr.strip()}")
            return 77
        print(f"Bail out! {up.stderr}")
        return 1
    servers = []
    try:
        servers = [serve(at(n, HAWSER, "serve", "--bind", f"198.18.0.{i}")) for i, n in enumerate("ab", 1)]
        plans()
        transfer()
    finally:
        for p in servers:
            stop(p)
        subprocess.run([HAWSER, "lab", "down", "--name", LAB], timeout=60, stdout=subprocess.DEVNULL)
    return done()


if __name__ == "__main__":
    sys.exit(main())
