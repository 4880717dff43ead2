#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What libhawser.so shows and needs: its dynamic symbols are exactly the HAWSER_API functions of hawser.h, and it
needs libc and its parts only, since it is loaded into strangers' processes (TAP).
Usage: library.py LIBHAWSER.SO HAWSER.H SANITIZERS"""
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

# glibc's own libraries; the dynamic linker is named where the compiler calls __tls_get_addr.
ALLOWED = re.compile(r"^(libc|libm|libpthread|ld-linux[^.]*)\.so\.\d+$")


def api(header):
    with open(header, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    return {re.search(r"\b(hawser_\w+)\s*\(", d)[1] for d in re.findall(r"\bHAWSER_API\b([^;]*;)", text)}


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def main(lib, header, sanitizers):
    declared = api(header)
    # Type A is the version node's own absolute symbol, HAWSER_0.
    rows = [line.split() for line in run("nm", "-D", "--defined-only", lib).splitlines()]
    shown = {r[-1].split("@")[0] for r in rows if r[-2] != "A"}
    ok(len(declared) > 10, f"the header declares {len(declared)} functions")
    missing, extra = sorted(declared - shown), sorted(shown - declared)
    ok(not missing, "every function of the header is exported", missing)
    ok(not extra, "nothing else is exported", extra)
    versions = {r[-1].split("@")[-1] for r in rows if r[-2] != "A"}
    ok(versions == {"HAWSER_0"}, "every symbol carries the version HAWSER_0", sorted(versions))

    dynamic = run("readelf", "-dW", lib)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    soname = re.findall(r"\(SONAME\).*\[(.+)\]", dynamic)
    ok(soname == ["libhawser.so.0"], "soname is libhawser.so.0", soname)
    if sanitizers != "none":
        n += 1
        print(f"ok {n} - needs libc and nothing else # SKIP built with {sanitizers}: the sanitizer's library is needed")
    else:
        bad = [x for x in needed if not ALLOWED.match(x)]
        ok(needed and not bad, "needs libc and nothing else", bad)
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
