#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests values that NCCL takes from each rank and that must be equal on all ranks (TAP). These values must not depend
on a rank's NICs, CPUs and file descriptors."""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tap import done, ok  # noqa: E402

driver, hawser = sys.argv[1], os.path.abspath(sys.argv[2])
CPUS = os.sched_getaffinity(0)


# With table v12, NCCL's ranks agree on the values that depend on the devices' speed, so the plugin reports the real
# speed.
def facts(*before, cpus=None, files=None, version="11", **env):
    def limited():
        if cpus:
            os.sched_setaffinity(0, cpus)
        if files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    r = subprocess.run([*before, driver, "facts", "--version", version, hawser], capture_output=True, text=True, timeout=60, preexec_fn=limited,
                       env={**os.environ, **env})
    return (json.loads(r.stdout) if r.returncode == 0 else None), r.stderr


first, err = facts()
ok(first and len(first["devices"]) > 0 and len(first["parameters"]) > 0 and len(first["tuner"]) > 100 and len(first["chunks"]) > 100, "a rank's facts",
   first, err)

RANKS = {"one CPU": dict(cpus={min(CPUS)}), "the loopback alone": dict(HAWSER_NICS="lo"),
         "64 descriptors": dict(files=64), "two threads": dict(HAWSER_THREADS="2")}
for name, how in RANKS.items():
    other, err = facts(**how)
    ok(other == first, f"a rank with {name}: the same", other, err)

# Runs ranks in separate network namespaces with 1, 3 and 8 NICs.
script = """mount -t sysfs sysfs /sys && ip link set lo up
for i in $(seq $1); do
    ip link add n$i type veth peer name p$i && ip addr add 198.18.$i.1/24 dev n$i && ip link set n$i up && ip link set p$i up
done
shift
exec "$@" """
can = os.geteuid() == 0 and shutil.which("unshare") and subprocess.run(
    ["unshare", "--net", "--mount", "ip", "link", "add", "n0", "type", "veth"], capture_output=True).returncode == 0
for n in (1, 3, 8):
    if not can:
        ok(True, f"{n} NICs # SKIP no network namespaces here")
        continue
    node = ["unshare", "--net", "--mount", "sh", "-ec", script, "sh", str(n)]
    other, err = facts(*node)
    ok(other == first, f"a rank with {n} NICs: the same", other, err)
    real, err = facts(*node, version="12")
    speeds = [d[1] for d in real["devices"]] if real else []
    ok(len(speeds) == 5 and all(v == n * 10000 // 5 for v in speeds),  # the kernel reports 10 Gb/s for a veth
       "to NCCL with table v12 they have what the NICs have", speeds, err)

# Only the loopback interface has an IPv4 address. The plugin must not choose the loopback for that reason.
if can:
    script = """ip link set lo up && ip link add n1 type veth peer name p1 && ip addr add fd00::1/64 dev n1 nodad
ip link set n1 up && ip link set p1 up && exec "$0" bench --verbose --seconds 1 "$1" """
    r = subprocess.run(["unshare", "--net", "sh", "-ec", script, driver, hawser], capture_output=True, text=True, timeout=60)
    ok(r.returncode == 0 and "using n1" in r.stderr and "verified" in r.stdout, "a NIC with only an IPv6 address", r.stdout, r.stderr[-2000:])
else:
    ok(True, "a NIC with only an IPv6 address # SKIP no network namespaces here")

different, err = facts(HAWSER_NCCL_TUNE="0")
ok(different and different != first, "and this test sees a difference where there is one", err)
done()
