#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser bench` and `validate --transport netplugin:PLUGIN` on loopback, with the plugins of tests/fakes/plugins
and with hawser's own plugin. Also tests `hawser trace` (TAP).
Usage: tool_netplugin.py host|gpu|slow|ends|trace HAWSER PLAIN TCPXLIKE RUDE OURS LIBFAKECUDA"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tap  # noqa: E402
from tap import done  # noqa: E402

PART = sys.argv[1]
HAWSER, PLAIN, TCPX, RUDE, OURS, DRIVER = [str(pathlib.Path(x).resolve()) for x in sys.argv[2:]]
# Shortens the 5 s sleep in TCPX's accept(), which only a few tests need.
QUICK = {"NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "1000", "TCPXLIKE_CONNECT_MICROS": "1000"}


def by(plugin):
    return ["--transport", f"netplugin:{plugin}"]


class Serve:
    def __init__(self, *argv, **env):
        self.err = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen([HAWSER, "serve", "--port", "0", *argv], stdout=subprocess.PIPE, text=True,
                                  stderr=self.err, env={**os.environ, **env})
        self.host = None
        while self.host is None:
            line = self.p.stdout.readline()
            if not line:
                raise SystemExit("Bail out! serve ended")
            m = re.match(r"  hawser bench (127\.0\.0\.1:\d+)", line)
            self.host = m and m[1]

    def said(self):
        """Returns the standard error that serve has written so far."""
        return os.pread(self.err.fileno(), 1 << 20, 0).decode()

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        try:
            return self.p.communicate(timeout=20)[0], self.p.returncode
        except subprocess.TimeoutExpired:
            self.p.kill()
            return self.p.communicate()[0] + "(killed by the test)", self.p.returncode


def run(what, s, *argv, timeout=80, **env):
    t = time.monotonic()
    r = subprocess.run([HAWSER, what, s.host, *map(str, argv)], capture_output=True, text=True, timeout=timeout,
                       env={**os.environ, **env})
    r.seconds = time.monotonic() - t
    r.served = s.said()[-2000:] # shown if a test fails
    return r


def ok(good, what, more=()):
    """Calls tap.ok(), with the server's output as an additional detail."""
    tap.ok(good, what, more, f"serve said: {getattr(more, 'served', '')}")


def verified(r, sizes, iters):
    rows = [json.loads(x) for x in r.stdout.splitlines()] if r.stdout.startswith("{") else []
    rows = [x for x in rows if x.get("gpu") != "all"]
    return r.returncode == 0 and [x["size"] for x in rows] == sizes and all(
        x["bad_bytes"] == 0 and x["lost_channels"] == 0 and x["verified_bytes"] == iters * x["size"] for x in rows)


def works(plugin, name, **env):
    s = Serve(*by(plugin), **env)
    r = run("validate", s, *by(plugin), **env)
    ok(r.returncode == 0 and r.stdout.endswith("Success: 4 / 4\n"), f"{name}: validate", r)
    sizes = [0, 1, 8193, 100003, 1 << 20, (8 << 20) + 5]
    for op in "write", "read", "send":
        r = run("bench", s, *by(plugin), "--op", op, "--size", ",".join(map(str, sizes)), "--iters", 12, "--json", "-", **env)
        ok(verified(r, sizes, 12), f"{name}: {op}, every byte verified", r)
    out, rc = s.stop()
    ok(rc == 0 and " 0 bad bytes" in out, f"{name}: serve ends well", out)


def manager(folder):
    """Creates the sockets of GPUDirect-TCPX's manager, to which the plugin connects."""
    held = []
    for n in "rx_rule_manager", "rx_rule_uninstall":
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].bind(f"{folder}/{n}")
        held[-1].listen(5)
    return held


class Counts:
    """The counters of the CUDA driver in both processes, and of the plugin in its separate process."""

    def __init__(self, folder):
        self.files = folder / "driver", folder / "plugin"
        self.env = {"FAKECUDA_REPORT": str(self.files[0]), "TCPXLIKE_REPORT": str(self.files[1])}

    def take(self):
        lines = [[dict(x.split("=") for x in line.split()) for line in f.read_text().splitlines()] if f.exists() else []
                 for f in self.files]
        for f in self.files:
            f.unlink(missing_ok=True)
        return lines


def clean(line):
    return line["misuse"] == line["pageable"] == line["blocking"] == line["allocations"] == line["events"] == "0"


def on_gpus(tmp, tcpx):
    gpu = {"HAWSER_CUDA_LIBRARY": DRIVER, "FAKECUDA_GPUS": "2"}
    counts = Counts(tmp)
    env = {**tcpx, **gpu, **counts.env}
    sizes = [1, 8193, 100003, 1 << 20, (4 << 20) + 5]

    def bench(s, plugin, gpus, op, iters, **env):
        return run("bench", s, *by(plugin), "--gpus", gpus, "--op", op, "--size", ",".join(map(str, sizes)), "--iters", iters,
                   "--json", "-", **env)

    def shared(what, least):
        """Checks that both processes copied bytes within the GPU, and that both plugins received requests with GPU
        memory."""
        driver, plugin = counts.take()
        ok(len(driver) == 2 and all(clean(x) and int(x["within"]) >= least for x in driver) and len(plugin) == 2 and
           all(x["listens"] == x["comms"] == x["registrations"] == "0" and int(x["cuda"]) > 0 for x in plugin),
           f"{what}: by memory of the GPU that both processes have, and nothing is left", (driver, plugin))

    s = Serve(*by(TCPX), **env)
    r = run("bench", s, *by(TCPX), "--gpus", "0:0", "--size", "1MiB", **{**env, "HAWSER_SAME_MACHINE": "auto"})
    ok(r.returncode == 1 and "the peer is on this same machine" in r.stderr, "bench --gpus with this very machine: refused", r)
    counts.files[0].unlink(missing_ok=True)
    counts.files[1].unlink(missing_ok=True)
    r = run("validate", s, *by(TCPX), "--gpus", "0:0", **env)
    ok(r.returncode == 0 and "Success: 4 / 4\n" in r.stdout, "validate between GPUs", r)
    for op in "write", "read", "send":
        r = bench(s, TCPX, "0:0", op, 6, **{k: v for k, v in env.items() if k not in counts.env})
        ok(verified(r, sizes, 6), f"{op}, every byte verified", r)
    out, rc = s.stop()
    ok(rc == 0 and " 0 bad bytes" in out, "serve ends well", out)
    shared("GPU memory", 4 << 20)

    # A request over lo, whose MTU is 65536, holds up to 4 MiB. With much shorter fragments, a request would exceed the
    # limit of 2048 fragments.
    odd = {**env, "TCPXLIKE_FRAG": "2503", "TCPXLIKE_SEED": "7", "NCCL_NSOCKS_PERTHREAD": "3"}
    s = Serve(*by(TCPX), **odd)
    r = run("validate", s, *by(TCPX), "--gpus", "0:0", "--window", "512KiB", **odd)
    ok(r.returncode == 0 and "Success: 4 / 4\n" in r.stdout, "fragments of odd lengths over three sockets each", r)
    r = bench(s, TCPX, "1:0,0:1", "write", 3, **gpu, **tcpx)
    ok(r.returncode == 0 and r.stdout.count('"bad_bytes":0') >= 10, "other GPUs than the connections'", r)
    r = run("bench", s, *by(TCPX), "--size", "1MiB", "--iters", 9, "--json", "-", **tcpx)
    ok(verified(r, [1 << 20], 9), "host memory over them", r)
    ok(s.stop()[1] == 0, "serve ends well")
    shared("odd fragments", 1)

    s = Serve(*by(PLAIN), **gpu)
    r = bench(s, PLAIN, "0:0", "read", 3, **gpu)
    ok(verified(r, sizes, 3) and "host's" not in r.stderr, "a plugin that takes host memory alone", r)
    ok(s.stop()[1] == 0, "serve ends well")

    s = Serve(*by(TCPX), **tcpx, **gpu)
    for call in "cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2":
        r = bench(s, TCPX, "0:0", "read", 3, **tcpx, **gpu, FAKECUDA_FAIL=",".join(f"{call}:1:801" for _ in range(9)))
        ok(verified(r, sizes, 3) and r.stderr.count("its memory is staged through host memory") == 1 and
           "CUDA_ERROR_NOT_SUPPORTED" in r.stderr, f"{call} fails: by way of host memory, with one warning", r)
    for what, words, more in (
            ("exit@40", "exited with status 1", {"TCPXLIKE_FAULT": "exit@40"}),
            ("die@40", "killed by", {"TCPXLIKE_FAULT": "die@40"}),
            ("error@40", "the plugin returned", {"TCPXLIKE_FAULT": "error@40"}),
            ("nocmsg@40:recv", "rx no cmsg", {"TCPXLIKE_FAULT": "nocmsg@40:recv"}),
            ("from this machine itself", "rx no cmsg", {"TCPXLIKE_LOOPBACK": "exit"}),
            ("too many fragments", "more than 2048 fragments", {"TCPXLIKE_FRAG": "100"}),
            ("the gather fails", "launching the gather", {"FAKECUDA_FAIL": "cuLaunchKernel:12:719"})):
        r = run("validate", s, *by(TCPX), "--gpus", "0:0", "--channels", 2, "--timeout", "10s", **{**tcpx, **gpu, **more})
        ok(r.returncode == 1 and words in r.stderr and r.seconds < 60, f"{what}: {words}", r)
    r = run("validate", s, *by(TCPX), "--gpus", "0:0", "--channels", 2, **tcpx, **gpu)
    ok(r.returncode == 0 and "Success: 2 / 2\n" in r.stdout, "and the other side goes on with others", r)
    ok(s.stop()[1] == 0, "to its end")


def on_hosts(tmp, tcpx):
    works(PLAIN, "plain")
    works(TCPX, "like TCPX", **tcpx)
    works(OURS, "our own")

    s = Serve(*by(PLAIN))
    r = run("validate", s, "--channels", 2)
    ok(r.returncode == 1 and "this side uses transport tcp, but the peer uses netplugin Plain" in r.stderr and r.seconds < 5,
       "one side alone: both are named, at once", r)
    ok("this side uses transport netplugin Plain, but the peer uses tcp" in s.said(), "on the serving side too", s.said())
    r = run("validate", s, *by(OURS), "--channels", 2)
    ok(r.returncode == 1 and re.search("this side uses transport netplugin .*, but the peer uses netplugin Plain", r.stderr) and
       r.seconds < 5, "another plugin: both are named, at once", r)
    r = run("validate", s, *by(tmp / "nosuch.so"))
    ok(r.returncode == 1 and "nosuch.so" in r.stderr and "No such file" in r.stderr, "no such plugin", r)
    r = run("validate", s, "--transport", "rdma")
    ok(r.returncode != 0 and '"rdma" is not one of tcp, devmem, netplugin:PLUGIN' in r.stderr, "no such transport", r)
    env = {k: v for k, v in tcpx.items() if k != "NCCL_DYNAMIC_CHUNK_SIZE"}
    r = run("validate", s, *by(TCPX), **env)
    ok(r.returncode == 1 and "NCCL_DYNAMIC_CHUNK_SIZE is not set" in r.stderr and "=524288" in r.stderr,
       "what TCPX needs is checked before it is loaded, and explained", r)
    for way, words in ("init-crash", "SIGSEGV"), ("init-exit", "exited"), ("init-fail", "init"), ("devices=0", "device"):
        r = run("validate", s, *by(RUDE), RUDE=way)
        ok(r.returncode == 1 and words in r.stderr and r.seconds < 60, f"a plugin with {way}: an error that says {words}", r)
    ok(s.stop()[1] == 0, "serve outlives them")

    s = Serve(*by(TCPX), **tcpx)
    alone = {**tcpx, "TCPXLIKE_LOOPBACK": "0"}
    del alone["HAWSER_SAME_MACHINE"]
    for what in ["validate"], ["bench", "--size", "1MiB"], ["bench", "--size", "1MiB", "--op", "pingpong"]:
        r = run(what[0], s, *by(TCPX), *what[1:], **alone)
        ok(r.returncode == 1 and "the peer is on this same machine" in r.stderr and r.seconds < 5,
           f"{' '.join(what)} with this very machine: refused, with the reason", r)
    for fault, words in ("exit@40", "exited with status 1"), ("die@40", "killed by"), ("error@40", "the plugin returned"):
        r = run("validate", s, *by(TCPX), "--channels", 2, "--timeout", "10s", **tcpx, TCPXLIKE_FAULT=fault)
        ok(r.returncode == 1 and words in r.stderr and r.seconds < 60, f"{fault} in the middle: {words}", r)
    # The last of a round's eight 256 KiB pieces fails after the plugin has accepted all eight. No later send could
    # reveal the failure.
    r = run("validate", s, *by(TCPX), "--channels", 1, "--size", "2MiB", "--timeout", "10s", "-v", **tcpx,
            TCPXLIKE_FAULT="error@8:send")
    ok(r.returncode == 1 and "the plugin returned" in r.stderr and "rail 0 (lo to lo) is up again" in r.stderr and r.seconds < 8,
       "a send that fails as the last one: the rail is made anew, and no round is run that could prove nothing", r)
    r = run("validate", s, *by(TCPX), "--channels", 2, **tcpx)
    ok(r.returncode == 0 and r.stdout.endswith("Success: 2 / 2\n"), "and the other side goes on with others", r)
    ok(s.stop()[1] == 0, "to its end")


def slowly(tmp, tcpx):
    """Tests accept() with a sleep of 5 s, as in the real plugin, and with the default settings."""
    tcpx = {k: v for k, v in tcpx.items() if k not in QUICK}
    gpu = {"HAWSER_CUDA_LIBRARY": DRIVER, "FAKECUDA_GPUS": "2"}
    s = Serve(*by(TCPX), **tcpx, **gpu)
    r = run("validate", s, *by(TCPX), "--channels", 8, **tcpx)
    ok(r.returncode == 0 and r.stdout.endswith("Success: 8 / 8\n") and 5 < r.seconds < 20,
       f"eight channels, {r.seconds:.1f} s: their accepts sleep at the same time", r)
    r = run("bench", s, *by(TCPX), "--size", "1MiB", "--iters", 9, "--json", "-", **tcpx)
    ok(verified(r, [1 << 20], 9) and r.seconds < 20, f"bench, {r.seconds:.1f} s", r)
    out, rc = s.stop()
    ok(rc == 0 and " 0 bad bytes" in out, "serve ends well", out)

    # The same with a strict plugin that is not thread-safe.
    once = {**tcpx, "TCPXLIKE_ONE_THREAD": "1", "HAWSER_PLUGIN_THREADS": "no"}
    s = Serve(*by(TCPX), **once)
    r = run("validate", s, *by(TCPX), "--channels", 8, **once)
    ok(r.returncode == 0 and r.stdout.endswith("Success: 8 / 8\n") and 5 < r.seconds < 20,
       f"a plugin that is not safe for threads, {r.seconds:.1f} s: a process for each connection", r)
    ok(r.stderr.count("SOCKET_IFNAME is not set") == 1, "its environment is told of once", r)
    out, rc = s.stop()
    ok(rc == 0 and " 0 bad bytes" in out, "serve ends well", out)
    s = Serve(*by(TCPX), **once)
    r = run("validate", s, *by(TCPX), "--channels", 1, **{**once, "HAWSER_PLUGIN_THREADS": "yes"})
    ok(r.returncode == 1 and "it is not safe for threads" in r.stderr, "which it shows where threads call it", r)
    ok(s.stop()[1] == 0, "serve ends well")


def plugin_of(s):
    """Returns the process that runs the plugin of a server."""
    for pid in pathlib.Path(f"/proc/{s.p.pid}/task/{s.p.pid}/children").read_text().split():
        if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "hawser-plugin":
            return int(pid)
    return None


def ends(tmp, tcpx):
    """Tests both ends when a plugin hangs, exits, or prints a warning."""
    s = Serve(*by(PLAIN))
    os.kill(plugin_of(s), signal.SIGKILL)
    try:
        out, rc = s.p.communicate(timeout=10)[0], s.p.returncode
    except subprocess.TimeoutExpired:
        s.p.kill()
        out, rc = s.p.communicate()[0], None
    ok(rc == 1 and "killed by SIGKILL" in s.said() and "hawser serve: " in s.said(),
       "serve ends with the reason once its plugin's process has", (out, rc, s.said()))

    s = Serve(*by(RUDE))
    r = run("validate", s, *by(RUDE), "--channels", 1, RUDE="test-hang")
    ok(r.returncode == 1 and "hung for 5000 ms in test" in r.stderr and r.seconds < 9.5,
       f"a call that hangs is told before the peer gives up: {r.seconds:.1f} s", r)
    ok(s.stop()[1] == 0, "serve outlives that")

    s = Serve(*by(TCPX), **tcpx)
    r = run("validate", s, *by(TCPX), "--channels", 1, "--timeout", "3s", **tcpx, TCPXLIKE_FAULT="fail-regmr")
    ok(r.returncode == 1 and re.search("warning: plugin libnccl-net-tcpxlike.so: NET/GPUDirectTCPX : registering", r.stderr),
       "the plugin's warnings are the tool's", r)
    r = run("validate", s, *by(TCPX), "--channels", 2, **tcpx)
    ok(r.returncode == 0 and r.stderr.count("warning: plugin") == 0, "of which a good run has none", r)
    ok(s.stop()[1] == 0, "serve ends well")

    s = Serve("--transport", "devmem")
    for what in "validate", "bench":
        r = run(what, s, "--transport", "devmem", "--size", "1MiB")
        ok(r.returncode == 1 and "the peer is on this same machine" in r.stderr and r.seconds < 5,
           f"{what} over devmem with this very machine: refused, with the reason", r)
    r = run("validate", s, "--transport", "devmem", "--size", "1MiB", "--knob", "same_machine=auto")
    ok(r.returncode == 0, "unless it is to fall back", r)
    ok(s.stop()[1] == 0, "serve ends well")


def trace(argv, **env):
    return subprocess.run([HAWSER, "trace", *map(str, argv)], capture_output=True, text=True, timeout=80,
                          env={**os.environ, **env})


def traces(tmp, tcpx):
    """Tests hawser trace, the methods of unpacking data in GPU memory, and sweeps."""
    wait = {"NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "300000"}
    s = Serve(*by(TCPX), **tcpx)
    a, b = tmp / "a.txt", tmp / "b.txt"
    job = ["validate", s.host, *by(TCPX), "--channels", 2, "--size", "64KiB"]
    r = trace(["-o", a, *job], **{**tcpx, **wait})
    text = a.read_text()
    ok(r.returncode == 0 and "Success: 2 / 2" in r.stdout and re.search(r"^accept +2 ", r.stdout, re.M), "a run is traced", r)
    ok(all(re.search(rf"^\d+\.\d{{6}} \d+\.\d+ {call} ", text, re.M) for call in
           ("init", "devices", "getProperties", "listen", "connect", "accept", "regMr", "isend", "irecv", "test",
            "irecvConsumed", "deregMr", "closeSend", "closeRecv", "closeListen", "finalize")), "every call of the table", text)
    ok(re.search(r" regMr comm=S0 type=host gpu=-1 size=\d+ ptr=\S+ = 0 mr=M\d+ us=", text) and
       re.search(r" isend comm=S0 size=\d+ tag=0 mr=M\d+ = 0 req=S0#0 polls=\d+ us=", text) and
       re.search(r" test req=S0#0 = 0 done=1 size=unsaid polls=\d+ us=", text), "arguments, results and times", text)
    ok(re.search(r" log INFO tcpxlike:\d+ NET/GPUDirectTCPX : GPUDirectTCPX_v7", text), "the plugin's log beside it", text)
    ok(all(float(us) >= 300000 for us in re.findall(r" accept .* us=([0-9.]+)", text)), "accept's 0.3 s", text)
    r = trace(["-o", b, "--polls", "--level", "trace", *job], **{**tcpx, "TCPXLIKE_CONNECT_MICROS": "0"})
    ok(r.returncode == 0 and "comm=again" in b.read_text() and "comm=again" not in text,
       "--polls: those that came to nothing, too", r)
    r = trace(["--diff", a, a])
    ok(r.returncode == 0 and "No differences." in r.stdout, "a trace does not differ from itself", r)
    r = trace(["-o", b, *job, "--timeout", "2s"], **tcpx, TCPXLIKE_FAULT="fail-regmr")
    ok(r.returncode == 1, "a run that fails fails", r)
    r = trace(["--diff", a, b])
    ok(r.returncode == 1 and re.search(r"^\+ regMr comm=[SR] type=host gpu=-1 size=\d+ = 3 mr=-", r.stdout, re.M) and
       re.search(r"^\+ log WARN tcpxlike:# NET/GPUDirectTCPX : registering", r.stdout, re.M) and
       re.search(r"^- isend = 0 ", r.stdout, re.M), "what went otherwise stands in the difference", r)
    (tmp / "odd").write_bytes(b"\x00\xff=\n = = =\n1 2\n-1 3 x\n1.5 7.7 " + b"A" * 9000 + b"\n1 1 log\n1 1 log WARN\n1 1 c = x us=nan\n")
    r = trace(["--show", tmp / "odd"])
    ok(r.returncode in (0, 1) and "Sanitizer" not in r.stderr, "a file that is no trace", r)
    for argv in [], ["--diff", a], ["--level", "loud", "true"]:
        ok(trace(argv).returncode == 2, f"`trace {' '.join(map(str, argv))}`: wrong usage")
    ok(trace([HAWSER + "x"]).returncode == 1, "a program that is not there")
    ok(s.stop()[1] == 0, "serve ends well")

    gpu = {"HAWSER_CUDA_LIBRARY": DRIVER, "FAKECUDA_GPUS": "1"}
    s = Serve(*by(TCPX), **tcpx, **gpu)
    for way in "kernel", "d2d", "host":
        mine = ["--knob", f"plugin_unpack={way}", "--knob", "plugin_spin_us=50"]
        r = run("bench", s, *by(TCPX), "--gpus", "0:0", "--op", "read", "--size", "1MiB", "--iters", 4, "--json", "-", *mine, **tcpx,
                **gpu)
        ok(verified(r, [1 << 20], 4), f"unpacked by {way}, every byte verified", r)
        r = run("validate", s, *by(TCPX), "--gpus", "0:0", "--channels", 2, "--timeout", "20s", *mine, **tcpx, **gpu,
                FAKECUDA_FAIL="cuLaunchKernel:12:719")
        ok((r.returncode == 1 and "launching the gather" in r.stderr) if way == "kernel" else "launching the gather" not in r.stderr,
           f"{way}: {'by' if way == 'kernel' else 'without'} a kernel", r)
    r = run("bench", s, *by(TCPX), "--knob", "plugin_unpack=magic", **tcpx)
    ok(r.returncode == 1 and "not one of kernel, d2d, host" in r.stderr, "there is no other way", r)
    r = run("bench", s, *by(TCPX), "--gpus", "0:0", "--channels", "1,2", "--size", "1MiB", "--iters", 3, **tcpx, **gpu)
    ok(r.returncode == 0 and re.search(r"^ +1 .* 0 -> 0 ", r.stdout, re.M) and re.search(r"^ +2 .* 0 -> 0 ", r.stdout, re.M),
       "a sweep over GPU memory: each run has a plugin's process of its own", r)
    ok(s.stop()[1] == 0, "serve ends well")

    s = Serve()
    out, page = tmp / "sweep.jsonl", tmp / "sweep.html"
    r = run("bench", s, "--channels", "1,2,4", "--window", "256KiB,16MiB", "--size", "64KiB,1MiB", "--iters", 5,
            "--json", out, "--report", page)
    rows = [json.loads(x) for x in out.read_text().splitlines()]
    seen = [(x["channels"], x["window_bytes"], x["size"]) for x in rows]
    ok(r.returncode == 0 and seen == [(c, w, z) for c in (1, 2, 4) for w in (1 << 18, 1 << 24) for z in (1 << 16, 1 << 20)],
       "a sweep: a run for each combination, in one file", r)
    ok(all(x["bad_bytes"] == 0 and x["verified_bytes"] == 5 * x["size"] for x in rows), "every byte verified", rows)
    ok(len(re.findall(r"^ +[124] +(256KiB|16MiB) +(64KiB|1MiB) +[0-9]", r.stdout, re.M)) == 12 and
       len(re.findall(r"^# (64KiB|1MiB): best at channels", r.stdout, re.M)) == 2, "one table, with the best of each size", r)
    ok(page.exists() and page.stat().st_size > 10000, "one report")
    for more in ["--channels", "1,,2"], ["--window", "1MiB,2GiB"], ["--window", "16"], ["--channels", "0,1"]:
        r = run("bench", s, *more)
        ok(r.returncode == 2 and not r.stdout, f"{' '.join(more)}: wrong usage", r)
    r = subprocess.run([HAWSER, "bench", "127.0.0.1:1", "--channels", "1,2"], capture_output=True, text=True)
    ok(r.returncode == 1 and r.stdout.count(" failed (0 means the knob's value)\n") == 2 and "refused" in r.stderr, "nobody there: each run says so", r)
    ok(s.stop()[1] == 0, "serve ends well")


def main():
    tmp = pathlib.Path(tempfile.mkdtemp())
    held = manager(tmp)
    tcpx = {**QUICK, "TCPXLIKE_LOOPBACK": "1", "HAWSER_SAME_MACHINE": "yes", "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
            "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": str(tmp)}
    {"host": on_hosts, "gpu": on_gpus, "slow": slowly, "ends": ends, "trace": traces}[PART](tmp, tcpx)
    del held
    return done()


if __name__ == "__main__":
    sys.exit(main())
