#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs many ranks that connect to each other with the plugin and exchange messages (TAP). Tests how many file
descriptors and threads each rank needs, the behaviour with few file descriptors, and how many ranks each rank counts on
its CPUs.
Usage: crowd_test.py DRIVER HAWSER.SO PLAIN.SO SANITIZERS"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tap import done, ok  # noqa: E402

driver, hawser, plain, sanitizers = sys.argv[1:]
BASE = 30  # file descriptors of a process without links, for libhawser's loops and listener, and for the test
LINK = 3   # file descriptors of a link over one NIC; after large messages, each connection has two more (a pipe)


def crowd(plugin, ranks, comms, *args, limit=None, cpus=None, size="4KiB"):
    def limited():
        if limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        if cpus:
            os.sched_setaffinity(0, cpus)
    r = subprocess.run([driver, "crowd", plugin, "--ranks", str(ranks), "--comms", str(comms), "--size", size,
                        "--deadline", "60", *args], capture_output=True, text=True, timeout=100, preexec_fn=limited)
    return r, json.loads(r.stdout) if r.returncode == 0 else {}


def shares(r):
    """Returns (CPUs, processes) from each rank's line about the processes that share the rank's CPUs."""
    return re.findall(r"(\d+) CPUs? for (\d+) process", r.stderr)


r, c = crowd(plain, 4, 2)
ok(r.returncode == 0 and c["ranks"] == 4 and c["connect_ms"] > 0, "a plugin of the tests'", r.stdout, r.stderr)

# Two processes have at most six links in each direction, for any number of communicators.
r, c = crowd(hawser, 2, 16, size="64KiB")
ok(r.returncode == 0 and c["descriptors"] <= BASE + 12 * (LINK + 4), "two ranks, 16 communicators each way", r.stdout, r.stderr)

few = 24 if sanitizers == "none" else 8
r, c = crowd(hawser, few, 1)
ok(r.returncode == 0 and c["descriptors"] <= BASE + 2 * 6 * LINK * (few - 1), f"{few} ranks, one communicator each way",
   r.stdout, r.stderr)
# A rank has the loops' threads, one thread that accepts, eight that connect, and a sanitizer's own threads.
ok(r.returncode == 0 and c["threads"] <= (os.cpu_count() or 1) + 12, "no thread for each link", r.stdout)
ok(r.returncode == 0 and (c["open_threads"] == 0 or sanitizers != "none"), "and none takes the program's signals", r.stdout)

# With six links in each direction, each of 24 processes would need 23 * 12 * 3 file descriptors.
ranks = 24 if sanitizers == "none" else 12
r, c = crowd(hawser, ranks, 8)
ok(r.returncode == 0 and c["descriptors"] <= BASE + 48 * 2 * 2 * LINK, f"{ranks} ranks, eight communicators each way",
   r.stdout, r.stderr)
r, c = crowd(hawser, ranks, 8, limit=(256, 256))
ok(r.returncode == 0, "the same with 256 descriptors", r.stdout, r.stderr)
r, c = crowd(hawser, ranks, 2, limit=(64, 1024))
ok(r.returncode == 0 and c["descriptors"] > 64, "a soft limit is raised to the hard one", r.stdout, r.stderr)
r, c = crowd(hawser, 16, 1, limit=(48, 48))
ok(r.returncode == 1 and "EMFILE" in r.stderr, "not even one link to each: an error that says so", r.stdout, r.stderr)

# Each rank counts the processes that have the same CPUs as the rank.
r, c = crowd(hawser, 5, 1, "--verbose")
all_cpus = str(len(os.sched_getaffinity(0)))
seen = shares(r)  # other tests may be running
ok(r.returncode == 0 and len(seen) == 5 and all(c == all_cpus and int(n) >= 5 for c, n in seen),
   "five ranks share the CPUs", seen, r.stderr[-2000:])
one = min(os.sched_getaffinity(0))
with subprocess.Popen([driver, "bench", hawser, "--seconds", "3"], stdout=subprocess.DEVNULL) as other:
    time.sleep(0.5)
    r, c = crowd(hawser, 3, 1, "--verbose", cpus={one})
    ok(r.returncode == 0 and shares(r) == [("1", "3")] * 3, "three have a CPU for themselves that two others may run on too", shares(r), r.stderr[-2000:])
    ok(other.wait() == 0, "those two are well")

done()
