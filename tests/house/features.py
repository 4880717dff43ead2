#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests builds without optional libraries (TAP). With only libsodium, meson must build libhawser, the NCCL plugin and,
if possible, the NIXL backend. meson's summary must name the parts that are left out, with the reasons.
Usage: features.py SOURCE BUILD SANITIZERS CC..."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

PARTS = ["libhawser, NCCL plugin", "NIXL backend", "hawserd", "command hawser", "man pages", "tests"]
OPTIONS = ["mnl", "inih", "seccomp", "jansson", "fuse3", "zlib"]


def run(*argv, **more):
    r = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False,
                       env={**os.environ, **more})
    return r.returncode, r.stdout


def read_summary(text):
    """Returns a dict from each part to the text about the part in meson's summary."""
    return {p: m[1] for p in PARTS if (m := re.search(rf"^ +{re.escape(p)} *: (.*)$", text, re.M))}


def build_alone(source, folder, compiler):
    """Tests a build in which pkg-config finds only libsodium."""
    pc = folder / "pc"
    pc.mkdir()
    where = run("pkg-config", "--variable=pcfiledir", "libsodium")[1].strip()
    (pc / "libsodium.pc").symlink_to(f"{where}/libsodium.pc")
    alone = folder / "alone"
    status, text = run("meson", "setup", "--buildtype=plain", alone, source, CC=compiler, PKG_CONFIG_LIBDIR=str(pc))
    said = read_summary(text)
    ok(status == 0 and said.get("libhawser, NCCL plugin") == "yes", "configures with libsodium alone", text)
    ok(all(re.match("no: .*mnl was not found", said.get(p, "")) for p in ("hawserd", "command hawser", "tests")), "the summary names what is left out", said)
    status, text = run("ninja", "-C", alone, CC=compiler)
    ok(status == 0, "builds", text[-4000:])
    made = ["libhawser.so", "libhawser.a", "nccl/libnccl-net-hawser.so", "examples/example-transfer"]
    made += ["nixl/libplugin_HAWSER.so"] if said.get("NIXL backend") == "yes" else []
    ok(not [m for m in made if not (alone / m).exists()] and not (alone / "hawser").exists(), "the library, the plugins, the examples, and no command", made)
    foreign = [(m, n) for m in made for n in re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-dW", alone / m)[1])
               if not re.match(r"(libc|libm|libpthread|libgcc_s|libstdc\+\+|ld-linux[^.]*|libhawser)\.so\.", n)]
    ok(not foreign, "none of them needs a library of another package", foreign)
    status, text = run(alone / "examples/example-transfer")
    ok(status == 0, "the example moves data", text)


def main(source, build, sanitizers, *compiler):
    if sanitizers != "none":
        print(f"1..0 # SKIP built with {sanitizers}: what a build without options has is not")
        return 77
    with tempfile.TemporaryDirectory(dir=build) as name:
        folder = pathlib.Path(name)
        build_alone(source, folder, " ".join(compiler))
        status, text = run("meson", "setup", folder / "fuse", source, "-Dfuse3=disabled", CC=" ".join(compiler))
        said = read_summary(text)
        ok(status == 0 and said.get("hawserd") == "yes" and said.get("command hawser") == "no: fuse3 is disabled", "without fuse3 hawserd is built, and the command is not",
           said)
        status, text = run("meson", "introspect", "--buildoptions", folder / "fuse")
        ok(re.search(r'"name": "werror"[^}]*"value": false|"value": false[^}]*"name": "werror"', text), "warnings are no errors unless asked for")
        status, text = run("meson", "setup", folder / "tests", source, "-Dfuse3=disabled", "-Dtests=enabled", CC=" ".join(compiler))
        ok(status != 0 and "the tests need all parts, and fuse3 is disabled" in text, "tests that are asked for are not left out silently", text)
        options = [a for o in OPTIONS for a in ("-D", f"{o}=disabled")]
        status, text = run("meson", "setup", folder / "none", source, *options, "-Dnixl=disabled", CC=" ".join(compiler))
        ok(status == 0 and all(f"{o} is disabled" in read_summary(text).get("command hawser", "") for o in OPTIONS), "each option alone disables its part", text)
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
