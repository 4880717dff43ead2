#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the exports and dependencies of libhawser.so (TAP). The dynamic symbols must be exactly the HAWSER_API
functions of hawser.h. The version nodes and the soname must match the header's version. The library may depend only on
glibc's libraries, because other programs load libhawser.so.
Usage: library.py LIBHAWSER.SO HAWSER.H SANITIZERS"""
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok, skip  # noqa: E402

# glibc's own libraries. Code that calls __tls_get_addr depends on the dynamic linker.
ALLOWED = re.compile(r"^(libc|libm|libpthread|ld-linux[^.]*)\.so\.\d+$")


def api(header):
    with open(header, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    return {re.search(r"\b(hawser_\w+)\s*\(", d)[1] for d in re.findall(r"\bHAWSER_API\b([^;]*;)", text)}


def version(header):
    """Returns HAWSER_VERSION_MAJOR and HAWSER_VERSION_MINOR."""
    with open(header, encoding="utf-8") as f:
        text = f.read()
    return [re.search(rf"#define HAWSER_VERSION_{x} (\d+)", text)[1] for x in ("MAJOR", "MINOR")]


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def main(lib, header, sanitizers):
    declared = api(header)
    major, minor = version(header)
    # The first node has the symbols of the first minor version. Each later minor version has a separate node, up to the
    # header's minor version.
    nodes = [f"HAWSER_{major}.{k}" for k in range(int(minor) + 1)]
    # A symbol of type A (absolute) is a version node.
    rows = [line.split() for line in run("nm", "-D", "--defined-only", lib).splitlines()]
    shown = {r[-1].split("@")[0] for r in rows if r[-2] != "A"}
    ok(len(declared) > 10, f"the header declares {len(declared)} functions")
    missing, extra = sorted(declared - shown), sorted(shown - declared)
    ok(not missing, "every function of the header is exported", missing)
    ok(not extra, "nothing else is exported", extra)
    versions = {r[-1].split("@")[-1] for r in rows if r[-2] != "A"}
    ok(versions <= set(nodes), f"every symbol carries one of the versions {', '.join(nodes)}", sorted(versions))
    ok(nodes[0] in versions, f"and some carry the first, {nodes[0]}", sorted(versions))
    named = {r[-1].split("@")[0] for r in rows if r[-2] == "A"}
    ok(named == set(nodes), "there are these nodes, and no others", sorted(named))

    dynamic = run("readelf", "-dW", lib)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    soname = re.findall(r"\(SONAME\).*\[(.+)\]", dynamic)
    ok(soname == [f"libhawser.so.{major}"], f"soname is libhawser.so.{major}", soname)
    if sanitizers != "none":
        skip("needs libc and nothing else", f"built with {sanitizers}: the sanitizer's library is needed")
    else:
        bad = [x for x in needed if not ALLOWED.match(x)]
        ok(needed and not bad, "needs libc and nothing else", bad)
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
