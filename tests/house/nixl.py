#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the exports and dependencies of the NIXL backend (TAP). The dynamic symbols must be exactly NIXL's two entry
points. The backend may depend only on libc, libstdc++ and libgcc, must not use symbols of NIXL, and must never be
unmapped.
Usage: nixl.py LIBPLUGIN_HAWSER.SO SANITIZERS"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import library  # in this folder
from tap import done, ok, skip  # noqa: E402

ENTRIES = {"nixl_plugin_init", "nixl_plugin_fini"}
ALLOWED = re.compile(library.ALLOWED.pattern + r"|^(libstdc\+\+\.so\.6|libgcc_s\.so\.1)$")


def main(lib, sanitizers):
    # readelf prints the columns number, address, size, type, binding, visibility, section and name. The test rejects
    # unique symbols, which libstdc++ templates can create, because they would bind to symbols of the process.
    rows = [line.split() for line in library.run("readelf", "--dyn-syms", "-W", lib).splitlines()]
    shown = {r[7] for r in rows if len(r) >= 8 and r[6] not in ("UND", "Ndx")}
    ok(shown == ENTRIES, "NIXL's entry points are exported, and nothing else", sorted(shown ^ ENTRIES))
    dynamic = library.run("readelf", "-dW", lib)
    ok(re.search(r"\(FLAGS_1\).*\bNODELETE\b", dynamic), "the library is never unmapped")
    ok(re.search(r"\(FLAGS_1\).*\bNOW\b", dynamic), "its symbols are bound when it is loaded")
    undefined = library.run("nm", "-D", "--undefined-only", lib).splitlines()
    foreign = [r.strip() for r in undefined if not re.search(r"@(GLIBC|GLIBCXX|CXXABI|GCC)_|^\s+w ", r)]
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    if sanitizers != "none":
        for what in ("needs libc and libstdc++ and nothing else", "takes nothing but their functions"):
            skip(what, f"built with {sanitizers}: the sanitizer's library is needed")
    else:
        bad = [x for x in needed if not ALLOWED.match(x)]
        ok(needed and not bad, "needs libc and libstdc++ and nothing else", bad)
        ok(undefined and not foreign, "takes nothing but their functions", foreign)
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
