#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reproduces, in a lab, faults that users had before hawser existed, and checks the messages of hawser's tools (TAP).
docs/symptoms.md must contain these messages word for word.
Usage: lab_symptoms.py HAWSER TCPXLIKE LIBFAKECUDA SYMPTOMS.md"""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from tap import done, ok  # noqa: E402

HAWSER, TCPX, DRIVER = [str(pathlib.Path(x).resolve()) for x in sys.argv[1:4]]
PAGE = " ".join(pathlib.Path(sys.argv[4]).read_text().split())
BY = ["--transport", f"netplugin:{TCPX}"]


class Skip(Exception):
    pass


class Lab:
    """Two nodes, one of which runs `hawser serve`."""

    def __init__(self, *argv, serve=(), node="b", **env):
        self.name, self.node, self.server, self.argv, self.env = f"sy{os.getpid()}", node, None, serve, env
        r = subprocess.run([HAWSER, "lab", "up", "--name", self.name, *argv], capture_output=True, text=True, timeout=60)
        if r.returncode and re.search("needs root|no rights", r.stderr):
            raise Skip(r.stderr.strip())
        if r.returncode:
            raise SystemExit(f"Bail out! {r.stderr}")

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.server = subprocess.Popen([HAWSER, "lab", "exec", f"{self.name}/{self.node}", "--", HAWSER, "serve", *self.argv], text=True,
                                       stdout=subprocess.PIPE, stderr=self.log, env={**os.environ, **self.env})
        for line in self.server.stdout:
            if re.match("  hawser bench ", line):
                return self
        self.__exit__()
        raise SystemExit("Bail out! serve ended")

    def __exit__(self, *_):
        self.server.send_signal(signal.SIGINT)
        self.server.communicate(timeout=60)
        subprocess.run([HAWSER, "lab", "down", "--name", self.name], capture_output=True, timeout=60)

    def said(self):
        """Returns what the server has written to standard error so far."""
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    def run(self, *argv):
        for node in "ab":
            subprocess.run([HAWSER, "lab", "exec", f"{self.name}/{node}", "--", *argv], capture_output=True, timeout=60, check=True)

    def __call__(self, *argv, **env):
        return subprocess.run([HAWSER, "lab", "exec", f"{self.name}/a", "--", HAWSER, *map(str, argv)], capture_output=True,
                              text=True, timeout=60, env={**os.environ, **env})


def answers(r, text, what, rc=1):
    """Checks that the tool prints the text, and that docs/symptoms.md contains the text word for word."""
    said = " ".join((r.stdout + r.stderr).split())
    ok(r.returncode == rc and text in said, f"{what}: {text}", (r.returncode, r.stdout, r.stderr))
    ok(text in PAGE, "which docs/symptoms.md has word for word", text)


def no_cmsg(tcpx):
    """Seed 1: both ends are on one machine."""
    gpu = {"HAWSER_CUDA_LIBRARY": DRIVER, "FAKECUDA_GPUS": "2"}
    with Lab("--nics", "2", serve=BY, **tcpx) as lab:  # all nodes of a lab share one kernel
        r = lab("doctor", "198.18.0.2", *BY, **tcpx)
        answers(r, "FAIL pair.machine both sides run on one machine, under the same kernel: host memory works, but devmem and TCPX do not",
                "rx no cmsg, doctor")
        r = lab("doctor", "--only", "tcpx", **tcpx)
        answers(r, "tcpx.packets no NIC of this machine has the statistic rx_devmem_pkts", "rx_devmem_pkts on a NIC without it, doctor", r.returncode)
    gone = {**tcpx, **gpu, "TCPXLIKE_LOOPBACK": "exit"}
    with Lab("--nics", "2", serve=BY, node="a", **gone) as lab:  # node a, where the server runs
        r = lab("validate", "198.18.0.1", *BY, "--gpus", "0:0", **{**gone, "HAWSER_SAME_MACHINE": "auto"})
        answers(r, "the peer is on this same machine", "rx no cmsg, validate")
        r = lab("validate", "198.18.0.1", *BY, "--gpus", "0:0", "--channels", 2, "--timeout", "10s",
                **gone)
        r.stderr += lab.said()
        answers(r, "NET/GPUDirectTCPX : control connection: closed or reset by the other end", "rx no cmsg, validate where it is not refused")
        answers(r, "rx no cmsg", "and the serving side")


def stalls(tcpx):
    """Seed 2: the window is full, and no request completes."""
    with Lab("--nics", "2", serve=BY, **tcpx) as lab:
        r = lab("validate", "198.18.0.2", *BY, "--channels", 1, "--timeout", "4s", **tcpx, TCPXLIKE_FAULT="stall@12:send")
        answers(r, "Success: 0 / 1", "a transfer that stands still, validate")
        answers(r, "channel 0 eth0 ", "and names the NIC")
        answers(r, "FAILED: it received nothing", "and what the channel did")
        answers(r, "deadline passed with", "and how far it came")


def wrong_nic(tcpx):
    """Seeds 4 and 5: several NICs are in one subnet."""
    with Lab("--fabric", "shared-subnet") as lab:
        r = lab("doctor", "--only", "rdma")
        answers(r, "WARN rdma.arp-ignore eth0, eth1, eth2, eth3: 0, so this NIC also answers ARP requests for other NICs' addresses",
                "several NICs in one subnet, doctor", 0)
        answers(r, "WARN rdma.arp-announce eth0, eth1, eth2, eth3: 0, so this NIC may send ARP requests with another NIC's address", "doctor", 0)
        # It is random which NIC answers first and which source address a request has. Apply only the first half of the
        # remedy, so that only sent packets take the wrong path, and remove old neighbour entries.
        lab.run("sh", "-c", "cd /proc/sys/net/ipv4/conf; for n in all eth0 eth1 eth2 eth3; do echo 1 >$n/arp_ignore; echo 2 >$n/arp_announce; done")
        lab.run("ip", "neigh", "flush", "all")
        r = lab("validate", "198.18.1.2", "--nic", "eth1", "--size", "4MiB")
        answers(r, "that eth1 on the peer sent, the kernel counted only 0.0 MB", "bytes by another NIC, validate")
        ok("a routing table for " in r.stderr, "with the remedy", r)
        answers(r, "Success: 0 / 4", "and fails")


def one_more():
    """Seed 5: one node has an additional NIC."""
    with Lab("--nics", "4,3") as lab:
        r = lab("doctor", "198.18.0.2")
        answers(r, "WARN pair.nics here eth3: not used, because no NIC of the other node that is up is in its subnet", "a NIC more here, doctor", r.returncode)
        r = lab("sandbox", "plan", "--nics", "eth1,eth2,eth3", "--peer", "198.18.0.2")
        answers(r, "the peer 198.18.0.2 has no corresponding NIC (--peer)", "a NIC more here, sandbox plan", 0)


def no_bind():
    """Seed 3: devmem is required, but the NIC does not support it."""
    with Lab("--nics", "2", serve=["--transport", "devmem"]) as lab:
        r = lab("validate", "198.18.0.2", "--transport", "devmem", "--require-devmem", "--size", "1MiB", "--knob", "same_machine=yes")
        answers(r, "knob require_direct: no devmem over eth0: no hawserd at /run/hawser/hawserd.sock: start it (systemctl start "
                "hawserd, or as root: hawserd)", "a NIC that cannot bind, validate")
        r = lab("doctor", "--only", "nic")
        answers(r, "nic.devmem eth0, eth1: veth has no devmem support: GPU memory is staged through host memory", "a NIC that cannot bind, doctor", r.returncode)


def main():
    with tempfile.TemporaryDirectory() as d:
        held = []
        for n in "rx_rule_manager", "rx_rule_uninstall":
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].bind(f"{d}/{n}")
            held[-1].listen(5)
        tcpx = {"NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "1000", "TCPXLIKE_CONNECT_MICROS": "1000",
                "TCPXLIKE_LOOPBACK": "1", "HAWSER_SAME_MACHINE": "yes", "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
                "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": d, "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth0,eth1",
                "NCCL_GPUDIRECTTCPX_CTRL_DEV": "eth0"}
        try:
            no_cmsg(tcpx)
            stalls(tcpx)
            wrong_nic(tcpx)
            one_more()
            no_bind()
        except Skip as e:
            print(f"1..0 # SKIP {e}")
            return 77
    return done()


if __name__ == "__main__":
    sys.exit(main())
