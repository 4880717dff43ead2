#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests of the Python binding with a Python that has cffi and pytest: the current one or, failing that, Debian's.
Prints pytest's report, then TAP. Exits 77 if there is no such Python, if the library is built with a sanitizer, with
which Python cannot load the library, or if all tests are skipped. Usage: run.py LIBHAWSER.SO SANITIZERS FAKECUDA CC
TEST.py..."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NO_TESTS = 5  # pytest's exit status if a whole file is skipped
NEEDED = "import sys, cffi, pytest; sys.exit(sys.version_info < (3, 10))"


def find_python():
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        try:
            if subprocess.run([python, "-c", NEEDED], stderr=subprocess.DEVNULL, timeout=60).returncode == 0:
                return python
        except OSError:
            pass
    return None


def skip(reason):
    print(f"1..0 # SKIP {reason}")
    return 77


def main(library, sanitizers, cuda, cc, *tests):
    if sanitizers != "none":
        return skip(f"built with {sanitizers}: a Python without it cannot load the library")
    python = find_python()
    if python is None:
        return skip("no Python 3.10 or later with cffi and pytest (Debian: python3-cffi, python3-pytest)")
    environment = {**os.environ, "HAWSER_LIBRARY": os.path.abspath(library), "HAWSER_TEST_CUDA": os.path.abspath(cuda),
                   "HAWSER_TEST_CC": cc, "HAWSER_TAP": "1", "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": str(HERE.parents[1] / "python")}
    # -c: ignores the configuration of parent folders.
    status = subprocess.run([python, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", HERE, "-p", "no:cacheprovider",
                             *(HERE / t for t in tests)], env=environment, cwd=HERE).returncode
    return 77 if status == NO_TESTS else status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
