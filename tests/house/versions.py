#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the version in other files matches the project's version in meson.build (TAP; see docs/versions.md)."""
import ctypes
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

# Maps a file to a pattern whose first match is the file's version.
PLACES = {
    "python/pyproject.toml": r'^version = "(.*)"$',
    "debian/changelog": r"^hawser \((.*)\) ",
    "CHANGELOG.md": r"^## (\S+)",
}


def main(source, version, library):
    root = pathlib.Path(source)
    for place, pattern in PLACES.items():
        found = re.search(pattern, (root / place).read_text(encoding="utf-8"), re.M)
        ok(found and found[1] == version, f"{place} has version {version}", found and found[1])
    header = (root / "include/hawser.h").read_text(encoding="utf-8")
    numbers = [re.search(rf"^#define HAWSER_VERSION_{n} (\d+)$", header, re.M)[1] for n in ("MAJOR", "MINOR")]
    ok(version.split(".")[:2] == numbers, f"hawser.h has {'.'.join(numbers)}")
    call = ctypes.CDLL(library).hawser_version
    call.restype = ctypes.c_char_p
    ok(call().decode() == version, "hawser_version() says it", call())
    # In the symbols file, a function's version is that of the oldest package with the function, so the version must not
    # be later than the project's.
    symbols = re.findall(r"^ (\S+)@HAWSER_(\d+\.\d+) (\S+)$", (root / "debian/libhawser1.symbols").read_text(encoding="utf-8"), re.M)
    wrong = [s for s in symbols if not s[2].startswith(s[1] + ".") or list(map(int, s[2].split("."))) > list(map(int, version.split(".")))]
    ok(len(symbols) > 10 and not wrong, "debian/libhawser1.symbols: each function came with the minor version of its node", wrong)
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
