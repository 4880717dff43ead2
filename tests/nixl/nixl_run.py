#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a test of the NIXL backend (TAP) with the newest wheel, or nixl_versions.py with all wheels.
Usage: nixl_run.py PLUGIN CACHE SCRIPT SANITIZERS [CUDA]. The test loads CUDA instead of the machine's CUDA driver."""
import os
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from nixl_wheels import NEWEST, VERSIONS, Missing, Wheels  # noqa: E402
from tap import done, ok, skip  # noqa: E402

INSTALL_S = 60  # limit for installing packages; wheels that are not installed by then are skipped
RUN_S = 50


def start(wheels, wheel, plugin, *argv, cuda=""):
    """Runs a script with a wheel. Returns its exit status and output."""
    env = wheels.environment(wheel, plugin)
    if cuda:
        env["HAWSER_CUDA_LIBRARY"] = os.path.abspath(cuda)
    try:
        r = subprocess.run([wheels.python, *argv], env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=RUN_S, check=False)
    except subprocess.TimeoutExpired as e:
        return 1, (e.stdout or b"").decode() + f"\nnot done within {RUN_S} s"
    return r.returncode, r.stdout


def run_versions(wheels, plugin, script, until):
    """Tests that every version whose wheel can be installed transfers data, and that an untested version is refused."""
    moved = 0
    for v in VERSIONS:
        try:
            wheel = wheels.get(v, until)
        except Missing as e:
            skip(f"NIXL {v} loads the backend and moves data", e)
            continue
        rc, text = start(wheels, wheel, plugin, script)
        moved += ok(rc == 0, f"NIXL {v} loads the backend and moves data", text)
    if not moved:
        return
    other = wheels.cache / "9.9.9"
    wheel = next(wheels.cache / v for v in reversed(VERSIONS) if (wheels.cache / v).exists())
    if not other.exists():
        subprocess.run(["cp", "-al", wheel, other], check=True)
        info = next(other.glob("*.dist-info"))
        info.rename(other / "nixl_cu12-9.9.9.dist-info")
    rc, text = start(wheels, other, plugin, script, "refused")
    ok(rc == 0, "a NIXL that was not tried is refused with the reason", text)


def main(plugin, cache, script, sanitizers, cuda=""):
    if sanitizers != "none":
        print(f"1..0 # SKIP built with {sanitizers}: Python is not")
        return 77
    wheels, until = Wheels(cache), time.monotonic() + INSTALL_S
    try:
        wheels.prepare(until)
        wheel = wheels.get(NEWEST, until)
    except Missing as e:
        print(f"1..0 # SKIP no NIXL wheel: {e}")
        return 77
    if pathlib.Path(script).name == "nixl_versions.py":
        run_versions(wheels, plugin, script, until)
        return done()
    rc, text = start(wheels, wheel, plugin, script, cuda=cuda)
    print(text, end="")
    return rc


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:6]))
