#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the Python wheel hawser-transfer for manylinux_2_28 on x86-64. The wheel has the package and, in the package's folder
`native`, libhawser, the NCCL plugin, the NIXL backend and the program `hawser`. There is no extension module, so one wheel
serves all supported versions of Python.

The compiler is this machine's gcc, and it links with glibc 2.28. PyPI's `ziglang` generates libraries with the symbols
of that version but no code, so a function that glibc 2.28 lacks fails to link. auditwheel checks the result.
Usage: wheel.py BUILD DIST    (BUILD is a separate folder, which is kept for the next run)
Exit status 77 means that the tools are not available, for example without access to a package index."""
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
GLIBC = "2.28"
TAG = f"manylinux_{GLIBC.replace('.', '_')}_x86_64"
TOOLS = ["ziglang==0.17.1", "auditwheel==6.8.2"]
NO_TOOLS = 77
PROJECT = tomllib.loads((ROOT / "python/pyproject.toml").read_text(encoding="utf-8"))["project"]
# Files in the build folder, and their paths in `native`.
NATIVE = {f"libhawser.so.{PROJECT['version']}": "libhawser.so.1", "hawser": "hawser", "nccl/libnccl-net-hawser.so": "nccl/libnccl-net-hawser.so",
          "nixl/libplugin_HAWSER.so": "nixl/libplugin_HAWSER.so"}
MNL = "libmnl.so.0"  # Debian has no static libmnl
# Debian packages with code in the wheel, whose licences are included.
PARTS = ["libsodium-dev", "libjansson-dev", "libfuse3-dev", "libseccomp-dev", "libinih-dev", "zlib1g-dev", "libmnl-dev"]


def run(*argv, status=1, **more):
    """Runs a command. If the command fails, prints the last lines of its output and exits with the given status."""
    argv = [str(a) for a in argv]
    r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if r.returncode:
        print(*r.stdout.strip().splitlines()[-30:], f"wheel: failed with status {r.returncode}: {' '.join(argv)[:200]}", sep="\n",
              file=sys.stderr)
        sys.exit(status)
    return r.stdout


def make_tools(folder):
    """Returns the Python of a virtual environment with TOOLS."""
    python, stamp = folder / "bin/python", folder / "tools"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(TOOLS):
        shutil.rmtree(folder, ignore_errors=True)
        run(sys.executable, "-m", "venv", folder, status=NO_TOOLS)
        run(python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", *TOOLS, status=NO_TOOLS)
        stamp.write_text("\n".join(TOOLS), encoding="utf-8")
    return python


def make_glibc(python, folder):
    """Collects the libraries to link with and the start files, which ziglang stores in its cache when it links a
    program."""
    if (folder / "libc.so").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    cache = folder / "cache"
    cache.mkdir(parents=True)
    (folder / "empty.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
    run(python, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{GLIBC}", "-fPIE", "-pie", folder / "empty.c", "-o", folder / "empty",
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)})
    names = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libld.so.2", "libc_nonshared.a", "Scrt1.o"]
    for name in names:
        found = list(cache.glob(f"o/*/{name}"))
        if len(found) != 1:
            sys.exit(f"wheel: ziglang has created {len(found)} files {name} instead of one")
        shutil.copy(found[0], folder / name)
        link = folder / name.partition(".so")[0]
        if ".so" in name and link.name != "libc":
            link.with_suffix(".so").symlink_to(name)
    shutil.rmtree(cache)
    shared = " ".join(f'"{folder / name}"' for name in names[2:6])
    # Before glibc 2.34, these were separate libraries. -lc links only the ones that are used.
    (folder / "libc.so").write_text(f'GROUP ("{folder}/libc.so.6" "{folder}/libc_nonshared.a" AS_NEEDED ({shared}))\n', encoding="utf-8")


def compile_native(glibc, build):
    """Builds the libraries and the program, preferring static libraries."""
    if not (build / "build.ninja").exists():
        native = glibc / "native.ini"
        # $ORIGIN is needed to find libmnl, which is next to the program.
        flags = f"['-B{glibc}', '-Wl,-rpath,$ORIGIN']"
        native.write_text(f"[binaries]\nc = 'gcc'\ncpp = 'g++'\n[built-in options]\nc_link_args = {flags}\ncpp_link_args = {flags}\n",
                          encoding="utf-8")
        run("meson", "setup", "--native-file", native, "--buildtype", "release", "-Dprefer_static=true", build, ROOT)
    run("ninja", "-C", build, *NATIVE)


def collect_native(glibc, build):
    """Returns a dict that maps the paths of files in the folder `native` to their bytes. Libraries and the program are
    stripped."""
    files = {}
    out = build / "wheel-native"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    mnl = run("gcc", f"-print-file-name={MNL}").strip()
    sources = {**{str(build / k): v for k, v in NATIVE.items()}, mnl: MNL, str(make_by_name(glibc, build)): "nccl/libnccl-net.so"}
    for source, place in sources.items():
        run("strip", "--strip-unneeded", "-o", out / "stripped", source)
        files[place] = (out / "stripped").read_bytes()
    tried = re.findall(r'"([0-9.]+)"', (ROOT / "nixl/tried.h").read_text(encoding="utf-8"))
    files["nixl/versions"] = ("\n".join(tried) + "\n").encode()
    return files


def make_by_name(glibc, build):
    """Builds libnccl-net.so, which contains only a dependency on the plugin next to it. A wheel cannot contain links, and a
    second copy of the plugin would be a second plugin."""
    made = build / "libnccl-net.so"
    run("gcc", f"-B{glibc}", "-shared", "-nostdlib", "-o", made, "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", "-Wl,-soname,libnccl-net.so",
        f"-L{build / 'nccl'}", "-l:libnccl-net-hawser.so")
    return made


def read_licences():
    """Returns a dict that maps paths to the bytes of the licences: hawser's, and those of the libraries that are linked
    in."""
    files = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    for name in PARTS:
        files[f"third-party/{name.removesuffix('-dev')}"] = pathlib.Path(f"/usr/share/doc/{name}/copyright").read_bytes()
    return files


def write_metadata():
    """Returns METADATA, which is generated from pyproject.toml, with README.md as the description."""
    head = ["Metadata-Version: 2.1", f"Name: {PROJECT['name']}", f"Version: {PROJECT['version']}", f"Summary: {PROJECT['description']}",
            f"License: {PROJECT['license']['text']}", f"Requires-Python: {PROJECT['requires-python']}",
            *(f"Requires-Dist: {d}" for d in PROJECT["dependencies"]), "Description-Content-Type: text/markdown"]
    return ("\n".join(head) + "\n\n" + (ROOT / "README.md").read_text(encoding="utf-8")).encode()


def collect(native):
    """Returns the wheel's file name, and a dict that maps paths to the bytes of the wheel's files."""
    stem = f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}"
    files = {f"hawser/{f.name}": f.read_bytes() for f in sorted((ROOT / "python/hawser").iterdir()) if f.suffix in (".py", ".typed")}
    files |= {f"hawser/native/{place}": data for place, data in native.items()}
    script = (ROOT / "python/bin/hawser").read_bytes()
    files[f"{stem}.data/scripts/hawser"] = b"#!python\n" + script.partition(b"\n")[2]  # pip inserts Python's path
    info = f"{stem}.dist-info"
    files |= {f"{info}/licenses/{place}": data for place, data in read_licences().items()}
    files[f"{info}/METADATA"] = write_metadata()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: hawser\nRoot-Is-Purelib: false\nTag: py3-none-{TAG}\n".encode()
    rows = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
            for path, data in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    return f"{stem}-py3-none-{TAG}.whl", files


def write_wheel(path, files):
    """Writes the zip file. The result depends only on the files."""
    half = path.with_name(path.name + ".half")
    with zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            program = name.endswith(("native/hawser", "scripts/hawser")) or ".so" in name
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            z.writestr(entry, data)
    half.replace(path)


def check_wheel(python, path):
    """Exits if auditwheel finds a dependency that a machine with glibc 2.28 lacks."""
    said = run(python, "-m", "auditwheel", "show", path)
    tag = re.search(r'platform tag:\s+"manylinux_(\d+)_(\d+)_x86_64"', said)
    if not tag or (int(tag[1]), int(tag[2])) > tuple(map(int, GLIBC.split("."))):
        sys.exit(f"{said}\nwheel: auditwheel does not confirm that {path.name} is {TAG}")
    print(f"wheel: {path} ({path.stat().st_size >> 10} KiB), manylinux_{tag[1]}_{tag[2]} according to auditwheel")


def main(build, dist):
    if platform.machine() != "x86_64":
        sys.exit(f"wheel: the wheel can be built only on x86-64, and this machine is {platform.machine()}")
    build, dist = pathlib.Path(build).resolve(), pathlib.Path(dist).resolve()
    python = make_tools(build / "tools")
    make_glibc(python, build / f"glibc-{GLIBC}")
    compile_native(build / f"glibc-{GLIBC}", build / "native")
    name, files = collect(collect_native(build / f"glibc-{GLIBC}", build / "native"))
    dist.mkdir(parents=True, exist_ok=True)
    write_wheel(dist / name, files)
    check_wheel(python, dist / name)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
