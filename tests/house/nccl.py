#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the exports and dependencies of the NCCL plugin (TAP). The dynamic symbols must be exactly NCCL's tables,
which must be data objects, and the net tables must have the right sizes. The plugin may depend only on glibc's
libraries, and must never be unmapped.
Usage: nccl.py LIBNCCL-NET-HAWSER.SO SANITIZERS"""
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import library  # in this folder
from tap import done, ok, skip  # noqa: E402

TABLES = {f"ncclNetPlugin_v{n}" for n in range(6, 13)} | {"ncclTunerPlugin_v4", "ncclTunerPlugin_v5", "ncclTunerPlugin_v6"}
# Sizes of the net tables in bytes (NCCL's ABI).
SIZES = {6: 136, 7: 152, 8: 152, 9: 160, 10: 160, 11: 176, 12: 176}


def main(lib, sanitizers):
    # readelf prints the columns number, address, size, type, binding, visibility, section and name.
    rows = [line.split() for line in library.run("readelf", "--dyn-syms", "-W", lib).splitlines()]
    rows = [r for r in rows if len(r) >= 8 and r[6] != "UND" and r[6] != "Ndx"]
    shown = {r[7]: r for r in rows}
    missing, extra = sorted(TABLES - set(shown)), sorted(set(shown) - TABLES)
    ok(not missing, f"all {len(TABLES)} tables are exported", missing)
    ok(not extra, "nothing else is exported, and no version is on their names", extra)
    bad = [name for name in TABLES & set(shown) if shown[name][3] != "OBJECT" or shown[name][4] != "GLOBAL"]
    ok(not bad, "they are data objects", bad)
    bad = [f"{v}: {shown[name][2]}" for v, size in SIZES.items()
           if (name := f"ncclNetPlugin_v{v}") in shown and int(shown[name][2], 0) != size]
    ok(not bad, "each net table has its version's size", bad)

    dynamic = library.run("readelf", "-dW", lib)
    ok(re.search(r"\(FLAGS_1\).*\bNODELETE\b", dynamic), "the library is never unmapped")
    ok(re.search(r"\(FLAGS_1\).*\bNOW\b", dynamic), "its symbols are bound when it is loaded")
    soname = re.findall(r"\(SONAME\).*\[(.+)\]", dynamic)
    ok(soname in ([], ["libnccl-net-hawser.so"]), "its soname is none, or its file's name", soname)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    # libc must define all undefined symbols except weak symbols. Otherwise the plugin could be loaded only into
    # processes that have already loaded the library that defines the symbol.
    undefined = library.run("nm", "-D", "--undefined-only", lib).splitlines()
    foreign = [r.strip() for r in undefined if not re.search(r"@GLIBC_|^\s+w ", r)]
    if sanitizers != "none":
        for what in ("needs libc and nothing else", "takes nothing but libc's functions"):
            skip(what, f"built with {sanitizers}: the sanitizer's library is needed")
    else:
        bad = [x for x in needed if not library.ALLOWED.match(x)]
        ok(needed and not bad, "needs libc and nothing else", bad)
        ok(undefined and not foreign, "takes nothing but libc's functions", foreign)
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
