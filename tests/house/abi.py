#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ABI of libhawser.so with the dump in tests/data/abi (TAP). A program that was linked with the dumped
version must run with this library. docs/versions.md describes which changes are allowed, and when to renew the dump.
Usage: abi.py LIBHAWSER.SO SOURCE SANITIZERS  |  abi.py --write LIBHAWSER.SO SOURCE"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

DUMP, GROWS = "tests/data/abi/libhawser.abi", "tests/data/abi/grows.suppr"

def run(*argv):
    r = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    return r.returncode, r.stdout


def write_dump(library, root, out):
    """Writes a dump that contains only the public types and does not depend on the build folder."""
    return run("abidw", "--exported-interfaces-only", "--drop-private-types", "--headers-dir", root / "include", "--no-show-locs", "--no-comp-dir-path",
               "--no-corpus-path", "--no-elf-needed", "--no-parameter-names", "--out-file", out, library)


def compare(root, new):
    """Compares dumps instead of libraries, because a library would include private types."""
    return run("abidiff", "--suppressions", root / GROWS, "--no-added-syms", root / DUMP, new)


def main(library, source, sanitizers):
    root = pathlib.Path(source)
    if sanitizers != "none" or shutil.which("abidiff") is None:
        print(f"1..0 # SKIP {'there is no abidiff: scripts/deps.sh ci installs it' if sanitizers == 'none' else f'built with {sanitizers}'}")
        return 77
    with tempfile.TemporaryDirectory() as name:
        now = pathlib.Path(name) / "now.abi"
        status, text = write_dump(library, root, now)
        if status == 0 and "<class-decl" not in now.read_text(encoding="utf-8"):
            print("1..0 # SKIP built without debug information")
            return 77
        ok(status == 0 and now.stat().st_size < 100000, "the library's ABI can be written, and is small", text)
        status, text = compare(root, now)
        ok(status == 0, "programs that were linked to the last release run with this library", text)
        dump = now.read_text(encoding="utf-8")
        for what, old, new in ("a struct without a size has grown", "name='hawser_nic_stats' size-in-bits='640'", "name='hawser_nic_stats' size-in-bits='704'"), \
                ("a function is gone", "<elf-symbol name='hawser_wait'", "<elf-symbol name='hawser_waits'"), \
                ("a constant has changed", "name='HAWSER_MEM_CUDA' value='1'", "name='HAWSER_MEM_CUDA' value='2'"):
            now.write_text(dump.replace(old, new), encoding="utf-8")
            status, text = compare(root, now)
            ok(old in dump and status != 0, f"it is found that {what}", text)
    return done()


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        sys.exit(write_dump(sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[3]) / DUMP)[0])
    sys.exit(main(*sys.argv[1:]))
