#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs NIXL's wheel below a build folder, unless a test has done so, and creates a program there that starts
examples/nixl/kv_push.py with that wheel and the build's backend. Prints the program's path. If the wheel is not available,
prints the reason to standard error and exits with status 1. Usage: demo_nixl.py BUILD"""
import pathlib
import shlex
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/nixl"))
from nixl_wheels import NEWEST, Missing, Wheels  # noqa: E402

INSTALL_S = 90


def main(build):
    until = time.monotonic() + INSTALL_S
    cache = build / "nixl-wheels"
    print(f"fetching NIXL {NEWEST} from the package index, unless it is in {cache}", file=sys.stderr)
    try:
        wheels = Wheels(cache)
        wheels.prepare(until)
        env = wheels.environment(wheels.get(NEWEST, until), build / "nixl/libplugin_HAWSER.so")
    except Missing as e:
        sys.exit(f"NIXL's wheel is not available, so the demo continues without NIXL: {e}")
    names = ("PYTHONPATH", "NIXL_PLUGIN_DIR", "NIXL_LOG_LEVEL", "PYTHONDONTWRITEBYTECODE")
    seen = subprocess.run([wheels.python, "-c", "import nixl_cu12._api"], env=env, capture_output=True, text=True, check=False)
    if seen.returncode:
        sys.exit(f"NIXL's wheel cannot be imported, so the demo continues without NIXL: {(seen.stderr.strip().splitlines() or ['no output'])[-1]}")
    program = build / "nixl-wheels/kv_push"
    variables = " ".join(f"{name}={shlex.quote(env[name])}" for name in names)
    program.write_text(f"#!/bin/sh\nexec env {variables} {shlex.quote(str(wheels.python))} {shlex.quote(str(ROOT / 'examples/nixl/kv_push.py'))} \"$@\"\n")
    program.chmod(0o755)
    print(program)


main(pathlib.Path(sys.argv[1]).resolve())
