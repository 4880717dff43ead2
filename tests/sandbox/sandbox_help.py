# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of `hawser sandbox`: TAP output, the nodes that tests/data/nodes/make.py creates, and the
tool."""
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "data/nodes"))
import make  # noqa: E402
from tap import done, ok, skip  # imported here for other files


class Tool:
    def __init__(self, program, tmp):
        self.program, self.tmp, self.n = program, tmp, 0

    def __call__(self, *argv, env=None):
        """Runs `hawser sandbox ARGV...` without the environment variables of NCCL, runsc and hawser."""
        base = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "RUNSC_", "HAWSER_"))}
        return subprocess.run([self.program, "sandbox", *map(str, argv)], capture_output=True, text=True, timeout=60,
                              env={**base, **(env or {})})

    def snapshot(self, root):
        return json.loads(self("snapshot", "--sysfs", root).stdout)

    def file(self, snap):
        """Writes a snapshot to a file. Returns the file's path."""
        self.n += 1
        p = self.tmp / f"snap{self.n}.json"
        p.write_text(snap if isinstance(snap, str) else json.dumps(snap))
        return p

    def plan(self, snap, *argv):
        r = self("plan", "--json", "--from", self.file(snap), *argv)
        return json.loads(r.stdout) if r.returncode == 0 else r


def full(tmp, *names):
    """Creates the given nodes, and returns their folders."""
    where = tmp / "nodes"
    where.mkdir(exist_ok=True)
    for name in names:
        fn = getattr(make, name.replace("-", "_"))
        fn(where) if name == "switch4" else fn(where, full=True)
    return [where / n for n in names]


def with_addresses(snap):
    """Assigns a separate address to each interface of a snapshot."""
    s = copy.deepcopy(snap)
    s["addresses"] = True
    for i, n in enumerate(s["net"]):
        n["addresses"] = ["127.0.0.1/8"] if n["name"] == "lo" else [f"10.9.{i}.1/24", f"fe80::{i + 1}/64"]
    return s


def net(snap, name):
    return next(n for n in snap["net"] if n["name"] == name)


def rdma(snap, name):
    return next(r for r in snap["rdma"] if r["name"] == name)


def why(plan, key, name):
    """Returns the reason why the named device is not in the sandbox, or "" if it is."""
    of = {"nics": "nic", "rdma": "device", "gpus": "gpu"}[key]
    x = next(x for x in plan[key] if x[of] == name)
    assert x["in"] == (x["why"] is None)
    return x["why"] or ""


def scratch():
    """Returns a folder for thousands of small files, in memory if enough space is available."""
    shm = pathlib.Path("/dev/shm")
    roomy = os.access(shm, os.W_OK) and os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize > 256 << 20
    return tempfile.TemporaryDirectory(dir=shm if roomy else None)
