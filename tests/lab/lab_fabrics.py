#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests two nodes of a lab with each fabric (TAP). Checks which pairs of NICs are used, why other pairs are not, that
every byte arrives, and that paths that deliver no packets cost less than a second.
Usage: lab_fabrics.py HAWSER FABRIC..."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from tap import done, ok, skip  # noqa: E402

HAWSER, *FABRICS = sys.argv[1:]


class Skip(Exception):
    pass


class Lab:
    """A lab with `hawser serve` in node b."""

    def __init__(self, *argv):
        self.name, self.server = f"f{os.getpid()}", None
        r = self.lab("up", *argv)
        if r.returncode and re.search("needs root|no rights", r.stderr):
            raise Skip(r.stderr.strip())
        if r.returncode:
            raise SystemExit(f"Bail out! {r.stderr}")

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.server = subprocess.Popen([HAWSER, "lab", "exec", f"{self.name}/b", "--", HAWSER, "serve"],
                                       stdout=subprocess.PIPE, stderr=self.log, text=True)
        for line in self.server.stdout:
            if re.match("  hawser bench ", line):
                return self
        self.__exit__()
        raise SystemExit("Bail out! serve ended")

    def __exit__(self, *_):
        self.server.send_signal(signal.SIGINT)
        self.lab("down")
        self.server.communicate()

    def lab(self, what, *argv):
        return subprocess.run([HAWSER, "lab", what, "--name", self.name, *map(str, argv)], capture_output=True,
                              text=True, timeout=60)

    def run(self, *argv, node="a"):
        return self.lab("exec", node, "--", *argv)

    def bench(self, to, *argv):
        """Runs a short bench from node a to an address of node b. Returns the result, and its duration in `seconds`."""
        begin = time.monotonic()
        r = self.run(HAWSER, "bench", to, "--json", "-", "--size", "4MiB", "--iters", "8", *argv)
        r.seconds = time.monotonic() - begin
        return r


def used(r):
    """Returns the pairs in use, as in "eth0-enp0 eth1-enp1"."""
    return " ".join(f"{a}-{b}" for a, b in sorted(re.findall(r"^# (\S+) .*-> .*?(\S+), \d+ channels?$", r.stderr, re.M)))


def idle(r):
    return re.findall(r"^# not used: (.*)$", r.stderr, re.M)


def verified(r):
    lines = [json.loads(x) for x in r.stdout.splitlines()]
    return lines and all(x["bad_bytes"] == 0 and x["lost_channels"] == 0 and
                         x["verified_bytes"] == x["iters"] * x["size"] > 0 for x in lines)


def carries(r, pairs, what):
    """Checks that the bench succeeded, used these pairs, and verified every byte."""
    ok(r.returncode == 0 and used(r) == pairs and verified(r), f"{what}: {pairs}, every byte verified", (used(r), r))


def tcp_counts(lab, node):
    """Returns the TCP counters of the node's kernel, such as CurrEstab and OutRsts."""
    names, counts = re.findall(r"^Tcp: (.*)$", lab.run("cat", "/proc/net/snmp", node=node).stdout, re.M)
    return dict(zip(names.split(), map(int, counts.split())))


def resets_nothing(lab, rails):
    """Checks that no connection is reset during setup. A reset that answers data in flight would leave by the first
    route, and teach neighbours a wrong address."""
    bench = subprocess.Popen([HAWSER, "lab", "exec", "--name", lab.name, "a", "--", HAWSER, "bench", "198.18.0.2",
                              "--iters", "1000000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and tcp_counts(lab, "b")["CurrEstab"] < rails and bench.poll() is None:
        time.sleep(0.05)
    counts = [tcp_counts(lab, n) for n in "ab"]
    ok(counts[1]["CurrEstab"] >= rails and not any(c["OutRsts"] for c in counts),
       "no connection is reset while a peer is set up", counts)
    bench.send_signal(signal.SIGINT)
    bench.wait(30)


def requires(lab, to, n, there):
    good, bad = lab.bench(to, "--require-nics", n), lab.bench(to, "--require-nics", n + 1)
    ok(good.returncode == 0 and used(good).count("-") == n, f"--require-nics {n}", good)
    ok(bad.returncode == 1 and not bad.stdout and f"{n} pair" in bad.stderr and f"{n + 1} are required" in bad.stderr,
       f"--require-nics {n + 1} fails {there}", bad)


def validates(lab, to, what, *argv):
    r = lab.run(HAWSER, "validate", to, "--size", "1MiB", *argv)
    ok(r.returncode == 0, f"{what}: validate", r)


def subnet():
    with Lab("--nics", "4,3", "--names", "eth,enp") as lab:
        resets_nothing(lab, 12)
        r = lab.bench("198.18.0.2")
        carries(r, "eth0-enp0 eth1-enp1 eth2-enp2", "a subnet a rail, 4 NICs and 3, other names")
        ok(idle(r) == ["eth3: no route from it to a NIC of the peer"], "eth3 has no rail there, and it is said", r)
        requires(lab, "198.18.1.2", 3, "where a rail is missing")
        validates(lab, "198.18.2.2", "the third rail", "--nic", "eth2")


def routed():
    with Lab("--fabric", "routed", "--nics", "4,5", "--names", "eth,enp") as lab:
        r = lab.bench("198.18.0.3")
        carries(r, "eth0-enp0 eth1-enp1 eth2-enp2 eth3-enp3", "a layer-3 fabric, 4 NICs and 5, other names")
        ok(len(idle(r)) == 1 and "the peer's enp4" in idle(r)[0], "the fifth is named as not used", r)
        validates(lab, "198.18.1.3", "from any NIC to any", "--nic", "eth3")
        lab.lab("link", "b", 1, "down")
        carries(lab.bench("198.18.0.3"), "eth0-enp0 eth1-enp2 eth2-enp3 eth3-enp4", "one down there: the fifth steps in")
        lab.lab("link", "a", 3, "down")
        r = lab.bench("198.18.0.3")
        carries(r, "eth0-enp0 eth1-enp2 eth2-enp3", "one down here too")
        requires(lab, "198.18.0.3", 3, "where a NIC is down")


def gcp():
    with Lab("--fabric", "gcp") as lab:
        r = lab.bench("198.18.0.2")
        carries(r, "eth0-eth0 eth1-eth1 eth2-eth2 eth3-eth3", "addresses of 32 bits, a router a rail")
        ok(not idle(r), "nothing is idle", r)
        validates(lab, "198.18.2.2", "the third rail")
        lab.lab("link", "b", 2, "down")
        r = lab.bench("198.18.3.2")
        carries(r, "eth0-eth0 eth1-eth1 eth3-eth3", "a rail dead")
        ok(len(idle(r)) == 1 and idle(r)[0].startswith("eth2: "), "its NIC is named", r)
        requires(lab, "198.18.1.2", 3, "where a rail is dead")


def shared_subnet():
    with Lab("--fabric", "shared-subnet") as lab:
        four, astray = "eth0-eth0 eth1-eth1 eth2-eth2 eth3-eth3", r"arrived on another NIC|other devices carried"
        carries(lab.bench("198.18.0.2"), four, "four NICs in one subnet")
        r = lab.bench("198.18.0.2", "--op", "read")
        ok("a routing table for " in r.stderr, "what is read leaves the other node by its first NIC: bench says so", r)
        r = lab.run(HAWSER, "validate", "198.18.1.2", "--nic", "eth1", "--size", "4MiB")
        # Which error appears depends on the first ARP answer.
        ok(r.returncode == 1 and re.search("a routing table for |" + astray, r.stderr), "and validate fails", r)
    with Lab("--fabric", "shared-subnet") as lab:  # a new lab, because a's wrong neighbour entries remain
        remedy = "cd /proc/sys/net/ipv4/conf/all && echo 1 >arp_ignore && echo 2 >arp_announce"
        if any(lab.run("sh", "-c", remedy, node=n).returncode for n in "ab"):
            raise Skip("/proc/sys cannot be written")
        r = lab.bench("198.18.0.2")
        carries(r, four, "after the remedy")
        ok(not re.search(astray, r.stderr), "they come in where they should", r)
        r = lab.run(HAWSER, "validate", "198.18.1.2", "--nic", "eth1", "--size", "4MiB")
        ok(r.returncode == 1 and "left through another NIC; on the peer, add a routing table" in r.stderr,
           "without routes by source they leave by the first: validate fails, with the remedy", r)


def bridge():
    def fastest(lab):
        return min(lab.bench("198.18.0.2").seconds for _ in range(3))

    with Lab() as lab:
        plain = fastest(lab)
    with Lab("--fabric", "bridge") as lab:
        r = lab.bench("198.18.0.2")
        carries(r, "eth0-eth0 eth1-eth1 eth2-eth2 eth3-eth3", "docker0 on every node, cni0 that leads nowhere")
        said = "\n".join(idle(r))
        ok("docker0: no route from it" in said and re.search("^cni0 to cni0 198.19.0.2:20000: no answer", said, re.M),
           "both are named as not used, with the reason", r)
        cost = fastest(lab) - plain
        ok(cost < 1, "they cost no time", f"{cost:.2f} s more than {plain:.2f} s")
        requires(lab, "198.18.0.2", 4, "where only cni0 is left")


def delay():
    with Lab("--fabric", "routed", "--nics", "2", "--delay", "5ms,0", "--loss", "0.1%,0") as lab:
        for op in "write", "read":  # a channel may fail because of lost packets, and reconnect
            r = lab.bench("198.18.0.3", "--op", op)
            lines = [json.loads(x) for x in r.stdout.splitlines()]
            ok(r.returncode == 0 and used(r) == "eth0-eth0 eth1-eth1" and lines and
               all(x["bad_bytes"] == 0 and x["verified_bytes"] == 8 * x["size"] for x in lines),
               f"{op} with 5 ms and a loss of 0.1 % on one rail of two: every byte verified", r)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that SIGTERM also removes the lab
for fabric in FABRICS:
    try:
        {"subnet": subnet, "routed": routed, "gcp": gcp, "shared-subnet": shared_subnet, "bridge": bridge,
         "delay": delay}[fabric]()
    except Skip as why:
        skip(f"a lab with fabric {fabric}", why)
sys.exit(done())
