# SPDX-License-Identifier: Apache-2.0
"""Installs NIXL's wheels for the tests, without dependencies (several GB). Each version has a separate folder, and all
versions share a virtual environment. HAWSER_TEST_NIXL_WHEELS names a folder that is kept between builds."""
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

TRIED = pathlib.Path(__file__).resolve().parents[2] / "nixl/tried.h"
VERSIONS = re.findall(r'"([0-9.]+)"', TRIED.read_text(encoding="utf-8"))
NEWEST = VERSIONS[-1]


class Missing(Exception):
    """The reason why a wheel cannot be installed."""


def run(*argv, until):
    """Runs a command. Raises Missing if the command fails, with the last line of its output, or runs past `until`."""
    try:
        r = subprocess.run(argv, capture_output=True, text=True, timeout=max(until - time.monotonic(), 1), check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Missing(f"{argv[1:4]}: {type(e).__name__}") from e
    if r.returncode:
        lines = (r.stderr + r.stdout).strip().splitlines() or ["no output"]
        raise Missing(f"{' '.join(argv[1:4])}: {lines[-1]}")


class Wheels:
    def __init__(self, cache):
        self.cache = pathlib.Path(os.environ.get("HAWSER_TEST_NIXL_WHEELS") or cache)
        self.cache.mkdir(parents=True, exist_ok=True)
        self.python = self.cache / "venv/bin/python"
        # Only one test installs at a time. The kernel releases the lock when the process exits.
        self.lock = open(self.cache / "lock", "w", encoding="utf-8")

    def install(self, folder, what, until):
        """Installs a package into `folder`, which is created only when the installation is complete."""
        if folder.exists():
            return folder
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            if not folder.exists():
                half = folder.with_name(folder.name + ".half")
                shutil.rmtree(half, ignore_errors=True)
                run(self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-compile",
                    "--only-binary=:all:", "--retries=0", "--timeout=10", "--target", str(half), what, until=until)
                for unused in [*half.glob("nixl_ep_*"), *half.glob("include")]:  # half of the wheel's size
                    shutil.rmtree(unused)
                half.rename(folder)
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)
        return folder

    def prepare(self, until):
        """Creates the virtual environment, and installs numpy, which NIXL's Python code imports."""
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            if not self.python.exists():
                shutil.rmtree(self.cache / "venv", ignore_errors=True)
                run(sys.executable, "-m", "venv", str(self.cache / "venv"), until=until)
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)
        return self.install(self.cache / "numpy", "numpy", until)

    def get(self, version, until):
        """Returns the folder of a version, for PYTHONPATH. Raises Missing if it cannot be installed."""
        return self.install(self.cache / version, f"nixl-cu12=={version}", until)

    def environment(self, wheel, plugin):
        """Returns the environment of a program that uses this wheel and the plugin."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HAWSER_", "NIXL_"))}
        here = pathlib.Path(__file__).resolve()
        env["PYTHONPATH"] = os.pathsep.join(map(str, (wheel, self.cache / "numpy", here.parent, here.parents[1])))
        return env | {"NIXL_PLUGIN_DIR": str(pathlib.Path(plugin).parent), "PYTHONDONTWRITEBYTECODE": "1",
                      "NIXL_LOG_LEVEL": "FATAL", "PYTHON": str(self.python)}
