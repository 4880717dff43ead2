#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser bench --gpus` and `validate --gpus` on loopback and in a lab. Both ends use the CUDA driver of
tests/fakes/cuda (TAP). Usage: tool_gpus.py HAWSER LIBFAKECUDA works|fails|lab"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

HAWSER, DRIVER, PART = sys.argv[1:]


def env(gpus, **more):
    return {**os.environ, "HAWSER_CUDA_LIBRARY": DRIVER, "FAKECUDA_GPUS": str(gpus), **more}


class Serve:
    """Runs `hawser serve` on a free port with the given number of GPUs."""

    def __init__(self, gpus, *argv, **more):
        self.p = subprocess.Popen([HAWSER, "serve", "--port", "0", *argv], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.DEVNULL, env=env(gpus, **more))
        self.host = None
        while self.host is None:
            line = self.p.stdout.readline()
            if not line:
                raise SystemExit("Bail out! serve ended")
            m = re.match(r"  hawser bench (127\.0\.0\.1:\d+)", line)
            self.host = m and m[1]

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        try:
            return self.p.communicate(timeout=20)[0], self.p.returncode
        except subprocess.TimeoutExpired:
            self.p.kill()
            return self.p.communicate()[0] + "(killed by the test)", self.p.returncode


def bench(s, *argv, gpus=4, what="bench", timeout=90, **more):
    return subprocess.run([HAWSER, what, s.host, *map(str, argv)], capture_output=True, text=True, timeout=timeout,
                          env=env(gpus, **more))


def rows(r):
    return [json.loads(x) for x in r.stdout.splitlines()] if r.stdout.startswith("{") else []


def pairs(lines):
    return [(x["gpu"], x["peer_gpu"]) for x in lines if x["gpu"] != "all"]


def verified(lines, iters):
    """Returns whether all bytes of every line were verified and none was wrong."""
    return lines and all(x["bad_bytes"] == 0 and x["mem"] == "cuda" and x["lost_channels"] == 0 and
                         x["iters"] == iters * x.get("gpus", 1) and
                         x["verified_bytes"] == x["iters"] * x["size"] for x in lines)


def usage():
    for text in "", "a", "0-", "3-1", "0,,1", "0,0", "0,0:0", "1:1,0-2", "-1", "0:", "0:1:2", "0-3:1", "all,0", "0-99", "5000", "0 1", "0,":
        r = subprocess.run([HAWSER, "bench", "--gpus", text, "127.0.0.1:1"], capture_output=True, text=True)
        ok(r.returncode == 2 and "GPU" in r.stderr and not r.stdout, f"--gpus '{text}': exit 2 and why", r)
    for argv, said in (["--gpu", "0-1"], "--gpu"), (["--gpus", "0", "--gpu", "1"], "not together"), (["--map", "0=lo"], "--gpus"), \
            (["--per-process"], "--gpus"), (["--gpus", "0", "--nics", "lo", "--peer-nics", "lo"], "--peer-nics"):
        r = subprocess.run([HAWSER, "bench", *argv, "127.0.0.1:1"], capture_output=True, text=True)
        ok(r.returncode == 2 and said in r.stderr, f"`bench {' '.join(argv)}`: exit 2, says {said}", r)


def one_process(s, tmp):
    out, report = tmp / "gpus.jsonl", tmp / "counts"
    r = bench(s, "--gpus", "all", "--size", "1000,300001", "--iters", 24, "--json", out, FAKECUDA_REPORT=str(report))
    lines = [json.loads(x) for x in out.read_text().splitlines()]
    every = [(i, i) for i in range(4)]
    ok(r.returncode == 0 and pairs(lines) == every * 2 and [x["size"] for x in lines] == [1000] * 5 + [300001] * 5,
       "--gpus all: a line per GPU and size", r)
    ok(verified(lines, 24), "every byte of every GPU is checked", lines)
    whole = lines[-1]
    ok(whole["gpu"] == "all" and whole["gpus"] == 4 and whole["failed_gpus"] == 0 and whole["nics"] == "lo" and
       whole["seconds"] <= sum(x["seconds"] for x in lines[5:9]) and
       abs(whole["GBps"] * whole["seconds"] - 96 * 300001 / 1e9) < 1e-6,
       "the last line of a size: bytes of all over the time in which any clock ran", lines)
    ok(whole["cpu_s_per_GB"] > 0 and lines[5]["cpu_s_per_GB"] is None, "threads' CPU time is told for all together", lines)
    ok(len(re.findall(r"^GPU \d -> \d +\d+B +24 ", r.stdout, re.M)) == 8 and len(re.findall(r"^all 4 +\d+B +96 ", r.stdout, re.M)) == 2,
       "the same as a table", r)
    told = report.read_text() if report.exists() else ""
    ok(" misuse=0 " in told + " " and " allocations=0 " in told + " ", "CUDA is not misused, and all its memory given back", told)
    for op in "read", "send", "pingpong":
        r = bench(s, "--gpus", "0:3,3:1", "--op", op, "--size", "0,1,70001", "--iters", 20, "--json", "-")
        ok(r.returncode == 0 and verified(rows(r), 20) and pairs(rows(r)) == [(0, 3), (3, 1)] * 3, f"{op} of crossed pairs", r)
    # With --hot, all operations write to the same buffer. Several channels would write the same bytes there
    # simultaneously, which is harmless on a GPU but is reported by ThreadSanitizer. The test therefore uses one
    # channel.
    r = bench(s, "--gpu", "1:2", "--size", "1MiB", "--hot", "--channels", "1", "--json", "-", "--map", "1=lo")
    ok(r.returncode == 0 and pairs(rows(r)) == [(1, 2)] and rows(r)[0]["nics"] == "lo", "--gpu 1:2, mapped to a NIC", r)
    r = bench(s, "--gpus", "0,1", "--size", "256KiB", "--duration", "400ms", "--json", "-")
    ok(r.returncode == 0 and len(rows(r)) == 3 and all(0.3 < x["seconds"] < 6 and x["bad_bytes"] == 0 for x in rows(r)),
       "for a duration", r)
    for op in "write", "pingpong":
        r = bench(s, "--gpus", "0:1,2", "--op", op, "--size", "64KiB", "--iters", 12, "--compare-raw", "--rounds", 3, "--json", "-")
        raw = "raw_GBps" if op == "write" else "raw_pingpong_spin_us"
        ok(r.returncode == 0 and verified(rows(r), 36) and len(rows(r)) == 3 and all(x[raw] > 0 for x in rows(r)[:2]) and
           (op == "pingpong" or rows(r)[2]["ratio_raw"] > 0), f"{op} in turns with plain sockets, three rounds", r)
        ok("plain sockets use host memory" in r.stderr and all(len(x) <= 80 for x in r.stderr.splitlines() if not x.startswith("hawser")),
           "which is said, within 80 columns", r)
    r = bench(s, "--gpus", "0,1", "--bidir", "--size", "64KiB", "--iters", 12, "--json", "-")
    ok(r.returncode == 0 and [x["op"] for x in rows(r)] == ["write", "read"] * 2 + ["bidir"] and
       all(x["bad_bytes"] == 0 and x["verified_bytes"] == x["iters"] * 65536 for x in rows(r)), "both directions at once", r)
    r = bench(s, "--gpus", "all", "--size", "64KiB", "--iters", 8, "--json", "-", gpus=6)
    ok(r.returncode == 0 and pairs(rows(r)) == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (5, 1)] and
       "wrap around to GPU 0" in r.stderr, "six here, four there: the numbers start again from 0, said so", r)
    r = bench(s, "--gpus", "all", what="validate", timeout=90)
    ok(r.returncode == 0 and r.stdout.count("Success: 4 / 4\n") == 4 and r.stdout.endswith("GPUs and NICs: 4 of 4\n"),
       "validate --gpus all", r)
    r = bench(s, "--gpus", "1:3", "--channels", 2, "--size", "64KiB", what="validate")
    ok(r.returncode == 0 and "GPU 1 -> 3: 2 channels" in r.stdout, "validate of a crossed pair", r)


def per_process(s):
    r = bench(s, "--gpus", "0:1,1:0,2", "--per-process", "--size", "1000,1MiB", "--iters", 16, "--json", "-")
    lines = rows(r)
    ok(r.returncode == 0 and verified(lines, 16) and pairs(lines) == [(0, 1), (1, 0), (2, 2)] * 2, "--per-process, one JSON", r)
    ok(lines and all(x["cpu_s_per_GB"] > 0 for x in lines), "each process's CPU time, and their sum", lines)
    table = r.stderr.partition("\nDuration of")[0]
    ok(len(re.findall(r"^GPU \d -> \d +\S+ +16 ", table, re.M)) == 6 and len(re.findall(r"^all 3 +\S+ +48 ", table, re.M)) == 2,
       "one table", r)
    r = bench(s, "--gpus", "0,1", "--per-process", "--size", "64KiB", FAKECUDA_FAIL="cuMemAlloc_v2:1:2")
    ok(r.returncode == 1 and r.stderr.count("CUDA_ERROR_OUT_OF_MEMORY") >= 2, "children say why they failed", r)


def children(pid):
    try:
        return [int(x) for x in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def started(s, n, **more):
    """Starts a bench --per-process run of long duration, and returns 1.5 s after its n children have started."""
    p = subprocess.Popen([HAWSER, "bench", s.host, "--gpus", f"0-{n - 1}", "--per-process", "--size", "256KiB", "--duration",
                          "3s", "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env(4, **more))
    deadline = time.monotonic() + 20
    while len(children(p.pid)) < n and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)
    return p, children(p.pid)


def gone(pids):
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{x}") for x in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [x for x in pids if os.path.exists(f"/proc/{x}")]


def killed(s):
    p, kids = started(s, 3)
    os.kill(kids[1], signal.SIGKILL)
    out, err = p.communicate(timeout=60)
    lines = [json.loads(x) for x in out.splitlines()]
    ok(p.returncode == 1 and "GPU 1 -> 1: the worker's process was killed by signal 9" in err, "a killed child is named", err)
    ok(pairs(lines) == [(0, 0), (2, 2)] and lines[-1]["gpus"] == 2 and lines[-1]["failed_gpus"] == 1 and
       all(x["bad_bytes"] == 0 for x in lines), "the others are reported", (out, err))
    p, kids = started(s, 2)
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=30)[1]
    left = gone(kids)
    ok(p.returncode == 130 and not left and "interrupted" in err, "an interrupt ends all", (err, left))
    p, kids = started(s, 2)
    p.kill()
    p.communicate()
    left = gone(kids)
    ok(len(kids) == 2 and not left, "no child outlives its parent", left)


def absent():
    s = Serve(2, "--max-memory", "80MiB")
    r = bench(s, "--gpus", "0,7")
    ok(r.returncode == 1 and "GPU 7 does not exist: this node has 4 GPUs, 0 to 3" in r.stderr, "a GPU that is not here", r)
    r = bench(s, "--gpus", "0:5")
    ok(r.returncode == 1 and "GPU 5 does not exist: the serving node has 2 GPUs, 0 to 1" in r.stderr, "or not there", r)
    r = bench(s, "--gpus", "0", "--map", "0=nosuch0")
    ok(r.returncode == 1 and "nosuch0" in r.stderr, "a map with an unknown NIC", r)
    for name, more in ("no GPU", {"FAKECUDA_GPUS": "0"}), ("no driver", {"HAWSER_CUDA_LIBRARY": "/nowhere/libcuda.so.1"}):
        r = subprocess.run([HAWSER, "bench", s.host, "--gpus", "all"], capture_output=True, text=True, env={**env(4), **more})
        ok(r.returncode == 1 and ("NO_DEVICE" in r.stderr or "/nowhere" in r.stderr), f"{name} here: why", r)
    r = bench(s, "--gpus", "0,1", "--size", "64MiB", "--iters", 2)
    ok(r.returncode == 1 and "--max-memory" in r.stderr, "a GPU's memory counts against serve's --max-memory", r)
    s.stop()
    s = Serve(0)
    r = bench(s, "--gpus", "all")
    ok(r.returncode == 1 and "the serving node has no GPU" in r.stderr, "none there", r)
    s.stop()


def faults():
    s = Serve(4)
    r = bench(s, "--gpus", "0-2", "--size", "64KiB", "--json", "-", FAKECUDA_FAIL="cuMemAlloc_v2:2:2")
    ok(r.returncode == 1 and r.stderr.count("CUDA_ERROR_OUT_OF_MEMORY") == 1 and len(pairs(rows(r))) == 2 and
       verified(rows(r), 200), "one GPU has no memory: it is named, the others finish", r)
    r = bench(s, "--gpus", "0-2", "--size", "1MiB", "--iters", 200, "--json", "-", FAKECUDA_STALL="1:150")
    ok(r.returncode == 1 and "GPU 1 -> 1 has transferred nothing for 3 s" in r.stderr and
       re.search(r"GPU 1 -> 1: (stalled|.*failed)", r.stderr), "a GPU whose copies hang is named", r)
    ok(pairs(rows(r)) == [(0, 0), (2, 2)] and all(x["bad_bytes"] == 0 for x in rows(r)), "and the others finish", r)
    s.stop()
    s = Serve(4, FAKECUDA_STALL="3:150")
    r = bench(s, "--gpus", "0:1,1:3", "--per-process", "--size", "1MiB", "--iters", 200, "--json", "-")
    ok(r.returncode == 1 and "GPU 1 -> 3" in r.stderr and pairs(rows(r)) == [(0, 1)], "a GPU that hangs there, likewise", r)
    s.p.kill()
    s.p.communicate()


def lab():
    """Tests which of four NICs each GPU uses."""
    name = f"gpus{os.getpid()}"
    up = subprocess.run([HAWSER, "lab", "up", "--name", name, "--nics", "4"], capture_output=True, text=True)
    if up.returncode:
        print(f"1..0 # SKIP no lab: {up.stderr.strip()}")
        sys.exit(77)
    node = [HAWSER, "lab", "exec", f"{name}/b", "--", HAWSER, "serve"]
    serve = subprocess.Popen(node, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL, env=env(4))
    try:
        serve.stdout.readline()

        def there(*argv):
            return subprocess.run([HAWSER, "lab", "exec", f"{name}/a", "--", HAWSER, "bench", "198.18.0.2", "--size", "256KiB",
                                   "--iters", "16", "--json", "-", *argv], capture_output=True, text=True, timeout=60, env=env(4))

        for more in [], ["--per-process"]:
            r = there("--gpus", "all", *more)
            ok(r.returncode == 0 and sorted(x["nics"] for x in rows(r)[:4]) == ["eth0", "eth1", "eth2", "eth3"] and
               rows(r)[-1]["nics"].count("eth") == 4, f"four GPUs and four NICs: one each {more}", r)
            r = there("--gpus", "0:3,1:2,2:1", "--map", "0,1=eth3;2=eth1,eth2", *more)
            ok(r.returncode == 0 and [x["nics"] for x in rows(r)[:3]] == ["eth3", "eth3", "eth1,eth2"] and verified(rows(r), 16),
               f"as a map has it {more}", r)
        r = there("--gpus", "0,1", "--nics", "eth1,eth2")
        ok(r.returncode == 0 and sorted(x["nics"] for x in rows(r)[:2]) == ["eth1", "eth2"], "--nics: the plan of these alone", r)
    finally:
        serve.terminate()
        serve.wait()
        subprocess.run([HAWSER, "lab", "down", "--name", name], check=True)


main = None if PART == "lab" else Serve(4)
if PART == "works":
    usage()
    with tempfile.TemporaryDirectory() as d:
        one_process(main, pathlib.Path(d))
    per_process(main)
elif PART == "lab":
    lab()
else:
    absent()
    killed(main)
    faults()
if main:
    said, rc = main.stop()
    ok(rc == 0 and " 0 bad bytes," in said, "serve ends well after all that", said)
sys.exit(done())
