#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser bench --gpus` and `validate --gpus` over a net plugin that places data in the GPU of the connection
(TAP): both ends use the GPUs of each pair, in one process or in a process per GPU.
Usage: tool_netplugin_gpus.py loopback|lab|nics HAWSER TCPXLIKE CUDALIKE LIBFAKECUDA PLAIN"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

PART = sys.argv[1]
HAWSER, TCPX, RDMA, DRIVER, PLAIN = [str(pathlib.Path(x).resolve()) for x in sys.argv[2:]]


class World:
    """Runs commands either on this machine or in two nodes of a lab."""

    def __init__(self, tmp, gpus, here=(), there=()):
        self.here, self.there = list(here), list(there)
        self.manager = socket.socket(socket.AF_UNIX)
        self.manager.bind(f"{tmp}/rx_rule_manager")
        self.report = tmp / "plugin"
        self.env = {**os.environ, "NCCL_DYNAMIC_CHUNK_SIZE": "524288", "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": str(tmp),
                    "HAWSER_CUDA_LIBRARY": DRIVER, "FAKECUDA_GPUS": str(gpus), "FAKECUDA_MEMORY": "4096"}

    def serve(self, plugin, *more, **env):
        self.plugin = plugin
        self.p = subprocess.Popen([*self.there, HAWSER, "serve", "--transport", f"netplugin:{plugin}", "--port", "0", *more],
                                  stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL, env={**self.env, **env})
        for line in self.p.stdout:
            m = re.match(r"  hawser bench ((127\.0\.0\.1|198\.18\.0\.2):\d+)", line)
            if m:
                self.host = m[1]
                break

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        try:
            return self.p.communicate(timeout=20)[0], self.p.returncode
        except subprocess.TimeoutExpired:
            self.p.kill()
            return self.p.communicate()[0] + "(killed by the test)", self.p.returncode

    def run(self, what, *argv, **env):
        return subprocess.run([*self.here, HAWSER, what, self.host, "--transport", f"netplugin:{self.plugin}", *map(str, argv)], capture_output=True, text=True, timeout=90,
                              env={**self.env, **env})

    def requests(self):
        """Returns the plugins' counters since the last call: all requests, and the requests with CUDA memory."""
        lines = [dict(x.split("=") for x in line.split()) for line in self.report.read_text().splitlines()]
        self.report.unlink()
        return sum(int(x["requests"]) for x in lines), sum(int(x["cuda"]) for x in lines)


def rows(r):
    return [json.loads(x) for x in r.stdout.splitlines()] if r.stdout.startswith("{") else []


def sums(row, *names):
    return tuple(sum(n[x] for n in row["per_nic"]) for x in names)


def direct(r, op, n_gpus):
    """Checks that the plugin moved every payload byte of every GPU from or to the memory of that GPU, and that all
    bytes were verified."""
    lines = rows(r)
    good = r.returncode == 0 and len(lines) == n_gpus + 1 and all(x["bad_bytes"] == 0 and x["verified_bytes"] for x in lines)
    for x in lines:
        tx, rx, tx_device, rx_device, copied = sums(x, "tx_bytes", "rx_bytes", "tx_device_bytes", "rx_device_bytes",
                                                    "rx_copied_bytes")
        moved, device = (rx, rx_device) if op == "read" else (tx, tx_device)
        side = x["received"]["here" if op == "read" else "there"]
        good = good and side["device_percent"] == 100 and side["device_bytes"] == x["size"] * x["iters"]
        good = good and side["staged_bytes"] == side["copied_bytes"] == 0
        good = good and x["received"]["there" if op == "read" else "here"] is None
        if x["gpu"] != "all":  # each channel's counters include the warm-up bytes
            good = good and sum(c["rx_bytes" if op == "read" else "tx_bytes"] for c in x["per_channel"]) >= moved
        good = good and moved >= x["size"] * x["iters"] and device >= x["size"] * x["iters"] and copied == 0
    return good


def there(r):
    """Returns (GB received into device memory, GB copied by a CPU) on the server, parsed from the table and summed over
    its NICs."""
    got = re.findall(r"there \S+ .*\n.*device memory, (\S+) GB into it,\s+(\S+) GB copied", r.stdout)
    return sum(float(a) for a, _ in got), sum(float(b) for _, b in got)


def shares(r):
    """Returns the verdict's lines as {(pair, end): "device path 100.00 %, ..."}."""
    return {(a, b): c for a, b, c in re.findall(r"^(GPU \d+ -> \d+) +(here|there): (device path .*)$", r.stdout, re.M)}


ALL = "device path 100.00 %, staged 0.00 %, copied 0.00 %"


def verdicts(w):
    """Tests the verdict of bench and validate, and how --require-direct evaluates the verdict."""
    r = w.run("bench", "--gpus", "0:1,1:0", "--op", "write", "--size", "1MiB", "--iters", 4, "--require-direct")
    ok(r.returncode == 0 and shares(r) == {("GPU 0 -> 1", "there"): ALL, ("GPU 1 -> 0", "there"): ALL},
       "bench: a verdict for each GPU", r)
    r = w.run("validate", "--gpus", "1:2", "--require-direct")
    ok(r.returncode == 0 and shares(r) == {("GPU 1 -> 2", side): ALL for side in ("here", "there")}, "validate: likewise", r)
    r = w.run("validate", "--gpus", "1:2,0:0", "--channels", 2, "--json", "-")
    lines = rows(r)
    ok(r.returncode == 0 and [(x["gpu"], x["peer_gpu"]) for x in lines] == [(1, 2), (0, 0)] and
       all(x["received"][side]["device_percent"] == 100 for x in lines for side in ("here", "there")) and
       all(x["proved"] == len(x["per_channel"]) == 2 and x["why"] is None and x["per_nic"] for x in lines),
       "validate: and as JSON", r)
    r = w.run("bench", "--gpus", "0,1", "--op", "write", "--size", "1,1MiB", "--iters", 4, "--require-direct", "--json", "-")
    ok(r.returncode == 0 and [x["size"] for x in rows(r)] == [1] * 3 + [1 << 20] * 3,
       "what fits a control frame is not what --require-direct is about", r)


def copied(w):
    """Tests a plugin that accepts only host memory."""
    r = w.run("bench", "--gpus", "0,1", "--op", "read", "--size", "1MiB", "--iters", 8, "--json", "-")
    each_gpu = [x["received"]["here"] for x in rows(r)]
    ok(r.returncode == 0 and [x["copied_bytes"] for x in each_gpu] == [8 << 20, 8 << 20, 16 << 20] and
       all(x["copied_percent"] == 100 for x in each_gpu), "all of it is copied, and the line of all GPUs says so", r)
    ok([sums(x, "rx_copied_bytes") for x in rows(r)] == [(8 << 20,), (8 << 20,), (16 << 20,)],
       "the NICs' copied bytes of all GPUs are added up", r)
    r = w.run("validate", "--gpus", "1:1")
    ok(r.returncode == 0 and set(shares(r).values()) == {"device path 0.00 %, staged 0.00 %, copied 100.00 %"},
       "validate says so too", r)
    for what in "bench", "validate":
        r = w.run(what, "--gpus", "0,1", "--require-direct")
        ok(r.returncode == 1 and "never places data directly in GPU memory" in r.stderr and "\nGPU 0" not in r.stdout,
           f"{what} --require-direct: refused, and nothing is measured", r)


def each(w, name, gpus, *argv, more=(), **env):
    n = len(gpus.split(","))
    if "-" in gpus:
        n = int(gpus.split("-")[1]) + 1
    for op in "write", "read":
        r = w.run("bench", "--gpus", gpus, "--op", op, "--size", "1MiB", "--iters", 8, "--json", "-", *argv, **env)
        ok(direct(r, op, n), f"{name}: {op} of {n} GPUs, all of it direct on this side {' '.join(more)}", r)
    r = w.run("bench", "--gpus", gpus, "--op", "write", "--size", "1MiB", "--iters", 8, *argv, **env)
    into, copied = there(r)
    ok(r.returncode == 0 and abs(into - n * 8 * (1 << 20) / 1e9) < 1e-4 and copied == 0,
       f"{name}: and on the serving side", (into, copied, r))


def loopback(tmp):
    w = World(tmp, 4)
    quick = {"NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "1000", "TCPXLIKE_CONNECT_MICROS": "1000",
             "TCPXLIKE_LOOPBACK": "1", "HAWSER_SAME_MACHINE": "yes"}
    w.env.update(quick)
    w.serve(TCPX)
    told = {"TCPXLIKE_REPORT": str(w.report)}
    r = w.run("validate", "--gpus", "1:1", **told)
    _, cuda = w.requests()
    ok(r.returncode == 0 and "Success: 4 / 4\n" in r.stdout and cuda > 0, f"validate --gpus 1:1: {cuda} requests on GPU memory", r)
    each(w, "like TCPX", "0-3", "--channels", 2)
    each(w, "like TCPX, crossed", "0:3,1:2,3:0,2:2", "--channels", 1)
    each(w, "like TCPX, a process for each", "0-3", "--channels", 2, "--per-process")
    verdicts(w)
    ok(w.stop()[1] == 0, "one server for all of them ends well")
    w.serve(RDMA)
    each(w, "like RDMA", "0-3", "--channels", 2)
    ok(w.stop()[1] == 0, "and another")
    w.serve(PLAIN)
    copied(w)
    ok(w.stop()[1] == 0, "and one for a plugin that takes host memory alone")


def nics(tmp):
    """Tests which of the plugin's devices carries the traffic of a NIC."""
    quick = {"NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "1000", "TCPXLIKE_CONNECT_MICROS": "1000"}
    in_lab(tmp, 2, lambda w: nics_of(w, quick))


def carried(w, nic):
    """Returns the sum of the kernel's counters of bytes sent and received by a NIC of the client."""
    return sum(int(subprocess.run([*w.here, "cat", f"/sys/class/net/{nic}/statistics/{d}_bytes"], capture_output=True,
                                  text=True, check=True).stdout) for d in ("tx", "rx"))


def nics_of(w, quick):
    w.env.update(quick)
    for what, env, more, good, said in (
            ("two devices, each named as its NIC", {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth0,eth1"}, [], True, ""),
            ("a device for another NIC only", {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth0"}, [], False, "has no device for NIC eth1"),
            ("two devices of one name, told apart by the knob",
             {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth0,eth1", "TCPXLIKE_NAME": "tcpx"},
             ["--knob", "plugin_devices=eth0=0,eth1=1"], True, "")):
        w.serve(TCPX, *more, **env)
        before = carried(w, "eth1")
        r = w.run("validate", "--nic", "eth1", "--channels", 2, *more, **env)
        moved = carried(w, "eth1") - before
        ok((r.returncode == 0) == good and said in r.stderr, f"{what}: {'works' if good else 'refused'}", r)
        ok(moved > (32 << 20) if good else moved < (1 << 20), f"{what}: {moved} bytes by that NIC", r)
        w.stop()
    env = {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth0,eth1"}
    w.serve(TCPX, **env)
    for nic in "eth0", "eth1":
        r = subprocess.run([*w.here, HAWSER, "trace", "-o", w.report.parent / nic, "validate", w.host, "--transport",
                            f"netplugin:{TCPX}", "--nic", nic, "--channels", "2"], capture_output=True, text=True, timeout=60,
                           env={**w.env, **env})
        ok(r.returncode == 0 and "Success: 2 / 2" in r.stdout, f"a trace of {nic}", r)
    r = subprocess.run([HAWSER, "trace", "--diff", w.report.parent / "eth0", w.report.parent / "eth1"], capture_output=True,
                       text=True)
    ok(r.returncode == 1 and re.search("^- listen dev=0 gpu=0 = 0 comm=L", r.stdout, re.M) and
       re.search("^[+] listen dev=1 gpu=0 = 0 comm=L", r.stdout, re.M), "in what one NIC's run differs from the other's", r)
    w.stop()
    env = {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth0,eth1", "TCPXLIKE_NAME": "tcpx"}
    w.serve(TCPX, **env)
    r = w.run("bench", "--nics", "eth0,eth1", "--size", "1MiB", "--iters", 4, **env)
    ok("(tcpx, tcpx) matches NIC" in r.stderr and "plugin_devices" in r.stderr and
       not re.search(r"here eth1 +tx +0\.0*[1-9]", r.stdout), "two devices of one name: said so, and no NIC is given another's bytes", r)
    w.stop()


def in_lab(tmp, gpus, fn):
    name = f"npgpus{os.getpid()}"
    up = subprocess.run([HAWSER, "lab", "up", "--name", name, "--nics", "4"], capture_output=True, text=True)
    if up.returncode:
        print(f"1..0 # SKIP no lab: {up.stderr.strip()}")
        sys.exit(77)
    w = World(tmp, gpus, [HAWSER, "lab", "exec", f"{name}/a", "--"], [HAWSER, "lab", "exec", f"{name}/b", "--"])
    try:
        fn(w)
    finally:
        w.p.kill()
        w.p.wait()
        subprocess.run([HAWSER, "lab", "down", "--name", name], check=True)


def eight(w):
    """Tests two GPUs per NIC, with the plugin's default delays and the default settings."""
    w.env["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] = "eth0,eth1,eth2,eth3"
    plan = "0,1=eth0;2,3=eth1;4,5=eth2;6,7=eth3"
    w.serve(TCPX)
    r = w.run("bench", "--gpus", "0-7", "--map", plan, "--op", "write", "--size", "1MiB", "--iters", 8, "--json", "-")
    lines = rows(r)
    ok(direct(r, "write", 8) and [x["nics"] for x in lines[:8]] == [f"eth{i // 2}" for i in range(8)],
       "eight GPUs, two to each of four NICs, all of it direct", r)
    r = w.run("bench", "--gpus", "0-7", "--per-process", "--map", plan, "--op", "read", "--size", "1MiB", "--iters", 8, "--json", "-")
    ok(direct(r, "read", 8), "with a process for each GPU", r)
    out, rc = w.stop()
    ok(rc == 0 and " 0 bad bytes" in out, "the one server ends well", out)


def lab(tmp):
    in_lab(tmp, 8, eight)


with tempfile.TemporaryDirectory() as d:
    {"loopback": loopback, "lab": lab, "nics": nics}[PART](pathlib.Path(d))
sys.exit(done())
