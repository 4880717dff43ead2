#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser nixl check` without NIXL, on folders laid out like NIXL's wheels that contain the backend, another
file, or nothing (TAP). Usage: nixl_tool.py HAWSER LIBPLUGIN_HAWSER.SO SANITIZERS"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok, skip  # noqa: E402

HAWSER, PLUGIN, SANITIZERS = sys.argv[1:]
NEWEST = re.findall(r'"([0-9.]+)"', (pathlib.Path(__file__).resolve().parents[2] / "nixl/tried.h").read_text())[-1]


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NIXL_", "HAWSER_", "PYTHON")) and k != "VIRTUAL_ENV"}
    return clean | {k: str(v) for k, v in more.items()}


def check(*argv, **more):
    """Returns the exit status, a map from each check's id to (outcome, found, mend), and standard error."""
    r = subprocess.run([HAWSER, "nixl", "check", "--json", *map(str, argv)], capture_output=True, text=True, timeout=60, env=environment(**more))
    rows = json.loads(r.stdout)["checks"] if r.stdout else []
    return r.returncode, {x["id"]: (x["outcome"], x["found"], x["mend"]) for x in rows}, r.stderr


def place_nixl(folder, name="nixl_cu12", version=NEWEST, backend=None):
    """Creates the relevant files of an installed wheel. Returns the wheel's plugin folder."""
    plugins = folder / f".{name}.mesonpy.libs/plugins"
    plugins.mkdir(parents=True)
    (folder / f"{name}-{version}.dist-info").mkdir()
    if backend:
        shutil.copy(backend, plugins / "libplugin_HAWSER.so")
    return plugins


def with_backend(tmp):
    good = tmp / "good"
    plugins = place_nixl(good, backend=PLUGIN)
    status, seen, _ = check("--dir", good)
    ok(status == 0 and {v[0] for v in seen.values()} == {"PASS"}, "all is there: exit status 0", status, seen)
    ok(seen["nixl.backend"][1] == str(plugins / "libplugin_HAWSER.so"), "which file is said", seen)
    status, seen, _ = check("--python", sys.executable, PYTHONPATH=good)
    ok(status == 0 and str(good) in seen["nixl.wheel"][1], "by a Python that has it", status, seen)
    place_nixl(tmp / "both", backend=PLUGIN)
    place_nixl(tmp / "both", "nixl_cu13")
    status, seen, _ = check("--dir", tmp / "both")
    ok(status == 1 and seen["nixl.backend"][0] in ("PASS", "FAIL"), "two of them, one without the backend: exit status 1", status, seen)
    other = tmp / "alone"
    other.mkdir()
    shutil.copy(PLUGIN, other)
    place_nixl(tmp / "bare")
    status, seen, _ = check("--dir", tmp / "bare", NIXL_PLUGIN_DIR=other)
    ok(status == 0 and "NIXL_PLUGIN_DIR, which hides" in seen["nixl.backend"][1], "by NIXL_PLUGIN_DIR, and what that hides", status, seen)
    place_nixl(tmp / "new", version="99.0", backend=PLUGIN)
    status, seen, _ = check("--dir", tmp / "new")
    ok(status == 1 and "not tested with 99.0 and refuses to start" in seen["nixl.version"][1] and f"nixl-cu12=={NEWEST}" in seen["nixl.version"][2],
       "a version that was not tried", status, seen)
    status, seen, _ = check("--dir", tmp / "new", HAWSER_NIXL_ANY_VERSION="1")
    ok(status == 0 and seen["nixl.version"][0] == "WARN", "and at the user's own risk", status, seen)


def without_backend(tmp):
    none = tmp / "none"
    none.mkdir()
    status, seen, _ = check("--dir", none)
    ok(status == 1 and "no nixl-cu12 or nixl-cu13 wheel in " + str(none) == seen["nixl.wheel"][1], "no NIXL", status, seen)
    status, seen, _ = check("--dir", tmp / "nowhere")
    ok(status == 1 and "No such file" in seen["nixl.wheel"][1], "no folder", status, seen)
    status, seen, _ = check("--python", tmp / "nopython")
    ok(status == 1 and "No such file" in seen["nixl.wheel"][1], "no Python", status, seen)
    status, seen, _ = check("--python", "/bin/false")
    ok(status == 1 and "/bin/false failed" in seen["nixl.wheel"][1], "a Python that fails", status, seen)
    empty = tmp / "empty"
    plugins = place_nixl(empty)
    status, seen, _ = check("--dir", empty)
    ok(status == 1 and f"missing: {plugins}" in seen["nixl.backend"][1] and str(plugins) in seen["nixl.backend"][2],
       "no backend, and what to do", status, seen)
    status, seen, _ = check("--dir", empty, NIXL_PLUGIN_DIR=none)
    ok(status == 1 and "NIXL_PLUGIN_DIR" in seen["nixl.backend"][1] and "unset NIXL_PLUGIN_DIR" in seen["nixl.backend"][2],
       "NIXL_PLUGIN_DIR without the backend", status, seen)
    (plugins / "libplugin_HAWSER.so").write_text("no library")
    status, seen, _ = check("--dir", empty)
    ok(status == 1 and "is not hawser's" in seen["nixl.backend"][1] and "file too short" in seen["nixl.load"][1], "a foreign file", status, seen)
    for argv, said in (["--dir"], "needs a value"), (["--dir", "a", "--python", "b"], "cannot be combined"), (["x"], "takes options only"):
        status, seen, err = check(*argv)
        ok(status == 2 and said in err, f"`{' '.join(argv)}`: exit status 2, says {said}", status, err)


def main():
    with tempfile.TemporaryDirectory() as name:
        tmp = pathlib.Path(name)
        without_backend(tmp)
        if SANITIZERS != "none":
            skip("a backend that loads", f"built with {SANITIZERS}")
        else:
            with_backend(tmp)
    return done()


if __name__ == "__main__":
    sys.exit(main())
