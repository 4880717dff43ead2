#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the driver itself (TAP): the right step must detect each fault of the faulty plugin, the driver must work with
every version of the table, and must refuse invalid command lines.
Usage: driver_test.py DRIVER PLAIN.SO FAULTY.SO RUDE.SO SANITIZERS"""
import json
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tap import done, ok, skip  # noqa: E402

driver, plain, faulty, rude, sanitizers = sys.argv[1:]

# Value of FAULTY, the step that detects the fault, and part of the step's report.
FAULTS = [
    ("init", "load", "init returned ncclInternalError"),
    ("table", "devices", "NULL in the table: deregMr"),
    ("names", "properties", "are both named plain0"),
    ("speed", "properties", "speed of plain0 is 0"),
    ("ndevs", "properties", "vProps.ndevs of plain0 is"),
    ("handle", "connect", "wrote beyond the 128 bytes"),
    ("connect", "connect_first", "connect blocks"),
    ("accept", "accept_first", "accept blocks"),
    ("corrupt", "sizes", "1 of them are wrong"),
    ("lost", "sizes", "test says 0 bytes, 8 were sent"),
    ("size", "sizes", "test says 1 bytes, 0 were sent"),
    ("beyond", "sizes", "bytes outside the receive"),
    ("before", "sizes", "bytes outside the receive"),
    ("stale", "sizes", "irecv left *request as it was"),
    ("done", "receive_first", "did not write done"),
    ("hang", "connect", "hangs (in the plugin's irecv)"),
    ("exit", "connect", "ended with exit(1) (in the plugin's isend)"),
    ("stray", "stray", "accept returned ncclInternalError"),
    ("reset", "close_late", "returned ncclRemoteError"),
    ("reset", "unload_late", "returned ncclRemoteError"),
    ("leak", "churn", "descriptors after 20 connections"),
    ("close", "connect", "close"),
    ("silent", "dead_sender", "within 2 s"),
    ("silent", "abort_receiver", "within 2 s"),
    ("silent", "listen_closed", "within 2 s"),
    ("silent", "dead_listener", "within 2 s"),
    ("thread", "reload", "threads and"),
    ("thread", "recreate", "threads after 3 communicators"),
    ("silent", "dead_many", "within 2 s"),
    ("profiler-open", "profiler", "of its events in the profiler go on"),
    ("profiler-twice", "profiler", "that is not there (any more)"),
    ("profiler-parent", "profiler", "begins with a phandle that is none"),
]
# Sanitizers report these faults differently, or their exit handlers fail.
PLAIN_BUILD_ONLY = [
    ("crash", "connect", "was killed by Segmentation fault (in the plugin's isend)"),
    ("fork", "fork", "a child that calls exit() does not end"),
    ("lines", "lines", "could be seen before their beginnings"),
]


def run(*args, **env):
    return subprocess.run([driver, *args], capture_output=True, text=True, env={**os.environ, **env}, timeout=100)


innocent = set()
if "thread" in sanitizers:
    print("1..0 # SKIP the driver's judgement is not a matter of threads, and each fault takes seconds here: other builds run it")
    sys.exit(0)

for fault, step, words in FAULTS + PLAIN_BUILD_ONLY:
    if sanitizers != "none" and (fault, step, words) in PLAIN_BUILD_ONLY:
        skip(fault, f"built with {sanitizers}")
        continue
    args = ["all", faulty, "--modes", "processes", "--deadline", "2", "--churn", "80", "--only", step]
    if step not in innocent:
        innocent.add(step)
        good = run(*args)
        ok(good.returncode == 0, f"{step}: nothing to say of a plugin without a fault", good.stdout, good.stderr)
    bad = run(*args, FAULTY=fault)
    lines = bad.stdout.splitlines()
    ok(bad.returncode == 1 and any(x.startswith("not ok") and x.endswith(": " + step) for x in lines) and
       any(x.startswith("# rank") and words in x for x in lines), f"{step}: {fault} is noticed, and said",
       bad.returncode, bad.stdout, bad.stderr)

# A plugin that is unusual but conforms to the ABI: the driver must not report any fault, and the plugin's output must
# not appear in the TAP.
r = run("all", rude, "--only", "[cdls]*", "--slow", "100ms", "--churn", "60", "--no-death",
        RUDE="isend-null,irecv-null,regmr-null,init-slow,flood=1,log-flood=2000,log-wild,spin=1")
ok(r.returncode == 0 and r.stdout.count("\nok ") > 20 and all(
    x.startswith(("ok ", "1..")) for x in r.stdout.splitlines()), "a rude plugin", r.stdout[:5000])

r = run("all", faulty, "--only", "profiler", FAULTY="profiler")
ok(r.returncode == 0 and "SKIP" not in r.stdout, "a plugin that tells the profiler, and well", r.stdout, r.stderr)

r = run("all", plain, "--only", "cuda")
ok(r.returncode == 0 and r.stdout.count("# SKIP the plugin takes no GPU memory, and refuses it") == 2,
   "a plugin that takes no GPU memory", r.stdout, r.stderr)
r = run("all", plain, "--only", "cuda", "--cuda", "--modes", "processes")
ok(r.returncode == 1 and "# rank 0: the plugin takes no GPU memory" in r.stdout, "and must, where that is asked for", r.stdout)

for version in range(6, 13):
    r = run("all", plain, "--version", str(version), "--only", "*s", "--comms-max", "4")
    ok(r.returncode == 0 and r.stdout.count("\nok ") > 14, f"v{version} of the table", r.stdout, r.stderr)

for args in ([], ["--latency"], ["--bidir", "--comms", "2", "--threads", "2", "--size", "5000"]):
    r = run("bench", plain, "--seconds", "0.3", "--json", "-", *args)
    figures = json.loads(r.stdout) if r.returncode == 0 else {}
    ok(figures.get("gigabytes_per_second", 0) > 0 or figures.get("p99_us", 0) >= figures.get("p50_us", 0) > 0,
       f"bench {' '.join(args)}", r.stdout, r.stderr)

for args, words in [
    ([], "see --help"),
    (["all"], "see --help"),
    (["some", plain], "'some' is none of all, bench, crowd and facts"),
    (["all", plain, "--version", "13"], "--version"),
    (["all", plain, "--modes", "both"], "processes or threads"),
    (["bench", plain, "--size", "0"], "--size"),
    (["bench", plain, "--seconds", "x"], "--seconds"),
]:
    r = run(*args)
    ok(r.returncode == 2 and words in r.stderr, f"refused: {' '.join(args[:1] + args[2:])}", r.stdout, r.stderr)
r = run("bench", "libc.so.6")
ok(r.returncode == 1 and "is it a net plugin?" in r.stderr, "libc is no plugin", r.stdout, r.stderr)
r = run("bench", faulty, "--version", "9")
ok(r.returncode == 1 and "has no ncclNetPlugin_v9" in r.stderr, "a version that is not there", r.stdout, r.stderr)
r = run("bench", faulty, FAULTY="exit")
ok(r.returncode == 1 and "exit(1)" in r.stderr, "bench over a plugin that leaves", r.stdout, r.stderr)
r = run("all", faulty, "--only", "load", "--without", "lo*", FAULTY="init")
ok(r.returncode == 0 and r.stdout.count("# SKIP --without lo*") == 2, "a step that is left out, and said to be", r.stdout)
r = run("all", plain, "--only", "nothing")
ok(r.returncode == 1, "no step of that name", r.stdout)
sys.exit(done())
