#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the Python wheel, which is built by scripts/wheel.py, installed into a new virtual environment with NIXL, and
used as README.md describes (TAP). Exits 77 with the reason if the build tools or NIXL are not available.
Usage: wheel_run.py BUILD SANITIZERS LIBFAKENCCL"""
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import zipfile

sys.dont_write_bytecode = True
from tap import done, ok, skip  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 60  # default time limit of one command, in seconds
NIXL = re.findall(r'"([0-9.]+)"', (ROOT / "nixl/tried.h").read_text(encoding="utf-8"))[-1]
NO_TOOLS = 77  # exit status of wheel.py if build tools are missing
# The libraries of glibc and gcc that manylinux_2_28 provides, and the libraries that the wheel contains.
NEEDED = re.compile(r"(libc|libm|libpthread|libdl|librt|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so\.\d|libmnl\.so\.0|libnccl-net-hawser\.so")
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}


class Missing(Exception):
    """A required program or resource that this machine or its network lacks."""


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HAWSER_", "NIXL_", "NCCL_", "PYTHON", "LD_LIBRARY_PATH", "VIRTUAL_ENV"))}
    return clean | {"PYTHONDONTWRITEBYTECODE": "1"} | {k: str(v) for k, v in more.items()}


def run(*argv, limit=LIMIT, cwd="/", **more):
    """Runs a command outside the source tree. Returns its exit status, and its stdout and stderr as one string."""
    try:
        r = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, cwd=cwd,
                           env=environment(**more), check=False)
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode(errors="replace")
    return r.returncode, r.stdout


def pip(python, *argv):
    status, text = run(python, "-m", "pip", "-q", "--disable-pip-version-check", *argv, limit=150)
    return status, text


def need_pip(python, *argv):
    status, text = pip(python, "install", "--no-compile", "--retries=1", *argv)
    if status:
        raise Missing(f"pip install {' '.join(map(str, argv))}: {(text.strip().splitlines() or ['no output'])[-1]}")


def build(folder):
    status, text = run("nice", sys.executable, ROOT / "scripts/wheel.py", folder, folder / "dist", limit=550)
    if status == NO_TOOLS:
        raise Missing(text.strip().splitlines()[-1])
    ok(status == 0, "make wheel builds, and auditwheel finds manylinux_2_28", text)
    return next((folder / "dist").glob("hawser_transfer-*-py3-none-manylinux_2_28_x86_64.whl")) if status == 0 else None


# ---- contents of the wheel --------------------------------------------------------------------------

def symbol_faults(path):
    """Yields symbol versions that manylinux_2_28 lacks, and required libraries that neither manylinux_2_28 nor the
    wheel has."""
    table = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
    for name, version in set(re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_(\d[\d.]*)", table)):
        if tuple(map(int, version.split("."))) > NEWEST[name]:
            yield f"{path.name}: {name}_{version}"
    for need in re.findall(r"NEEDED +(\S+)", subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout):
        if not NEEDED.fullmatch(need):
            yield f"{path.name} needs {need}"


def examine(wheel, folder):
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as z:
        z.extractall(folder)
        names = {n for n in z.namelist() if not n.endswith("/")}
    stem = "-".join(wheel.name.split("-")[:2])
    ok(all(n.startswith(("hawser/", f"{stem}.dist-info/")) or n == f"{stem}.data/scripts/hawser" for n in names),
       "it holds the package, its record and the command, and nothing else", sorted(names))
    record = [line.rsplit(",", 2) for line in (folder / f"{stem}.dist-info/RECORD").read_text().splitlines()]
    wrong = [path for path, digest, _ in record if digest and digest != "sha256=" + base64.urlsafe_b64encode(
        hashlib.sha256((folder / path).read_bytes()).digest()).rstrip(b"=").decode()]
    ok({r[0] for r in record} == names and not wrong, "its record has each file, and each file's checksum", wrong)
    libraries = sorted(n for n in names if ".so" in n or n.endswith("native/hawser"))
    foreign = [n for n in libraries if re.search(r"libnccl\.|libcud|libnv", n)]
    ok(not foreign and len(libraries) == 6, "no NCCL and no CUDA in it", libraries)
    ok([n for n in names if "libnccl-net" in n and not n.startswith("hawser/native/nccl/")] == [] and
       {n.rpartition("/")[2] for n in names if n.startswith("hawser/native/nccl/")} == {"libnccl-net.so", "libnccl-net-hawser.so"},
       "libnccl-net.so lies in a folder of NCCL's names alone", libraries)
    faults = [f for n in libraries for f in symbol_faults(folder / n)]
    ok(not faults, "nothing in it needs what is newer than glibc 2.28 and gcc 8", faults)
    meta = (folder / f"{stem}.dist-info/METADATA").read_text(encoding="utf-8")
    ok(re.search(r"^Name: hawser-transfer$", meta, re.M) and re.search(r"^Requires-Python: >=3.10$", meta, re.M), "its name and Pythons", meta[:400])
    licences = {n.rpartition("/")[2] for n in names if "/licenses/" in n}
    ok({"LICENSE", "libmnl", "libsodium", "libfuse3", "libseccomp"} <= licences, "the licences of what is linked in", sorted(licences))


# ---- installed --------------------------------------------------------------------------------------

def list_files(folder):
    return {str(p.relative_to(folder)): (p.lstat().st_size, p.lstat().st_mtime_ns) for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()}


def install(wheel, venv):
    """Creates a new environment with numpy, cffi and NIXL, then installs the wheel. Returns the environment's
    Python."""
    shutil.rmtree(venv, ignore_errors=True)
    status, text = run(sys.executable, "-m", "venv", venv)
    if status:
        raise Missing(f"python3 -m venv: {text.strip().splitlines()[-1]}")
    python = venv / "bin/python"
    need_pip(python, "numpy", "cffi")
    need_pip(python, "--no-deps", f"nixl-cu12=={NIXL}")
    before = list_files(venv)
    status, text = pip(python, "install", "--no-compile", "--no-deps", "--no-index", wheel)
    after = list_files(venv)
    changed = [f for f in before if after.get(f) != before[f]]
    strange = [f for f in after.keys() - before.keys() if not re.search(r"^bin/hawser$|/site-packages/hawser(/|_transfer-[^/]*\.dist-info/)", f)]
    ok(status == 0 and not changed and not strange, "installing adds its own files and changes no other", text, changed, strange)
    return python


def run_example(python, folder):
    """Runs the README.md script in two processes."""
    text = re.search(r"^```python\n(import sys\n.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)[1]
    script = folder / "transfer.py"
    script.write_text(text, encoding="utf-8")
    with subprocess.Popen([python, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), cwd="/") as first:
        try:
            port = re.fullmatch(r"port (\d+)\n", first.stdout.readline())
            status, said = run(python, script, "127.0.0.1", port[1]) if port else (1, "")
            heard = first.communicate(timeout=LIMIT)[0]
        finally:
            first.kill()
    return status == 0 and first.returncode == 0 and "all of them right" in heard and text.count("\n") <= 30, f"{said}{heard}"


def use(python, folder):
    good, text = run_example(python, folder)
    ok(good, "README's script of 30 lines moves and checks data between two processes", text)
    hawser = python.parent / "hawser"
    status, text = run(hawser, "--version")
    ok(status == 0 and re.match(r"hawser \d+\.\d+\.\d+\n", text), "the command runs", text)
    status, text = run(hawser, "topo")
    ok(status == 0, "hawser topo", text)
    status, text = run(hawser, "bench")
    ok(status == 2 and "hawser bench" in text, "its exit status comes through", status, text)
    status, text = run(python, "-m", "hawser", "paths")
    ok(status == 0 and text.count("/native/") == 4 and "not in this" not in text, "python -m hawser paths", text)
    status, text = run(python, "-m", "hawser")
    ok(status == 2 and "usage:" in text, "python -m hawser: usage", text)
    code = "import hawser, os; print(os.access(hawser.nccl_plugin_path(), os.R_OK), os.listdir(hawser.nixl_plugin_dir()))"
    status, text = run(python, "-c", code)
    ok(status == 0 and text.startswith("True") and "libplugin_HAWSER.so" in text, "hawser.nccl_plugin_path(), hawser.nixl_plugin_dir()", text)
    code = "import hawser\nfor f in hawser.nccl_plugin_path, hawser.nixl_plugin_dir:\n try: f()\n except FileNotFoundError as e: print(e)"
    native = hawser.parents[1].resolve() / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/hawser/native"
    status, text = run(python, "-c", code, PYTHONPATH=ROOT / "python", HAWSER_LIBRARY=native / "libhawser.so.1")
    ok(text.count("install the wheel hawser-transfer") == 2, "without the wheel both say what to install", text)
    return hawser, native


def use_nccl(hawser, native, nccl):
    nccl = pathlib.Path(nccl).resolve()  # the commands run in another folder
    status, text = run(hawser, "nccl", "check", "--nccl", nccl)
    ok(status == 1 and "hawser nccl env" in text, "hawser nccl check: NCCL does not use what is only installed", text)
    status, text = run("sh", "-c", 'eval "$("$0" nccl env)" && "$0" nccl check --nccl "$1"; echo "status $? $LD_LIBRARY_PATH"', hawser, nccl)
    ok(f"status 0 {native}/nccl\n" in text and re.search(r"PASS  nccl.link +.*is hawser.s", text), "with hawser nccl env it does, and finds libnccl-net.so",
       text)
    status, text = run(hawser, "nccl", "check", "--nccl", nccl, NCCL_NET_PLUGIN=native / "nccl/libnccl-net-hawser.so")
    ok(status == 0, "and by the plugin's path", text)
    maps = "import ctypes; l = ctypes.CDLL('{}/nccl/libnccl-net.so'); ctypes.c_void_p.in_dll(l, 'ncclNetPlugin_v11')".format(native)
    status, text = run(sys.executable, "-c", maps)
    ok(status == 0, "libnccl-net.so alone brings the plugin's tables", text)


def use_nixl(python, hawser):
    tool = [python, "-m", "hawser", "nixl-install"]
    plugin = next(python.parents[1].glob("lib/python*/site-packages/.nixl_cu12.mesonpy.libs/plugins")) / "libplugin_HAWSER.so"
    before = list_files(plugin.parent)
    status, text = run(hawser, "nixl", "check")
    ok(status == 1 and f"fix:  {python} -m hawser nixl-install" in text.replace("python3 -m", "python -m"), "hawser nixl check: not there yet, and what to do",
       text)
    status, text = run(*tool)
    ok(status == 0 and f"installed {plugin}" in text and list_files(plugin.parent).keys() - before.keys() == {plugin.name}, "nixl-install puts it there", text)
    status, text = run(*tool)
    ok(status == 0 and "is already installed" in text, "a second time changes nothing", text)
    status, text = run(hawser, "nixl", "check")
    ok(status == 0 and text.count("PASS") == 4, "hawser nixl check: NIXL will use it", text)
    status, text = run(python, ROOT / "tests/nixl/nixl_moves.py", PYTHONPATH=f"{ROOT}/tests/nixl:{ROOT}/tests", PYTHON=python, NIXL_LOG_LEVEL="FATAL")
    ok(status == 0 and "\nok " in "\n" + text, "NIXL's agents move data by it", text)
    code = ("from nixl_cu12._api import nixl_agent, nixl_agent_config\nprint(nixl_agent('a', nixl_agent_config(backends=[])).get_plugin_list())")
    status, text = run(python, "-c", code, NIXL_LOG_LEVEL="FATAL")
    ok(status == 0 and "'HAWSER'" in text and "'UCX'" in text, "beside NIXL's own backends", text)
    status, text = run(*tool, "--remove")
    ok(status == 0 and f"removed {plugin}" in text and list_files(plugin.parent) == before, "--remove leaves all as it was", text)
    status, text = run(*tool, "--remove")
    ok(status == 0 and "is not installed" in text, "a second time says that there is none", text)
    status, text = run(hawser, "nixl", "check")
    ok(status == 1, "hawser nixl check: gone", text)


def misuse_nixl(python, folder):
    """Tests cases that nixl-install refuses (exit status 1, one line, nothing changed), and cases in which the user
    insists."""
    def attempt(what, said, *argv, **more):
        status, text = run(python, "-m", "hawser", "nixl-install", *argv, **more)
        ok(status == 1 and said in text and "Traceback" not in text and text.count("\n") == 1, what, status, text)

    def place(name, version=NIXL):
        site = folder / name
        (site / f"nixl_cu12-{version}.dist-info").mkdir(parents=True)
        (site / f"nixl_cu12-{version}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: nixl-cu12\nVersion: {version}\n")
        (site / ".nixl_cu12.mesonpy.libs").mkdir()
        return site, site / ".nixl_cu12.mesonpy.libs/plugins"

    empty = folder / "empty"
    empty.mkdir()
    attempt("no NIXL", f"no NIXL wheel in {empty}", "--dir", empty)
    site, plugins = place("foreign")
    plugins.mkdir()
    (plugins / "libplugin_HAWSER.so").write_text("somebody's")
    attempt("a file that is not ours", "is not hawser's", "--dir", site)
    attempt("nor is it removed", "is not hawser's", "--remove", "--dir", site)
    ok((plugins / "libplugin_HAWSER.so").read_text() == "somebody's" and len(list(plugins.iterdir())) == 1, "it stays as it is")
    site, plugins = place("readonly")
    plugins.symlink_to("/sys/kernel")  # where even root cannot create a file
    attempt("a folder that cannot be written", "cannot write", "--dir", site)
    site, plugins = place("new", "99.0")
    plugins.mkdir()
    attempt("a version that the backend would refuse", "nixl-cu12 99.0 was not tested", "--dir", site)
    ok(not list(plugins.iterdir()), "nothing is left there")
    status, text = run(python, "-m", "hawser", "nixl-install", "--dir", site, HAWSER_NIXL_ANY_VERSION="1")
    ok(status == 0 and (plugins / "libplugin_HAWSER.so").is_file(), "at the user's own risk it is installed", text)
    (plugins / "libplugin_HAWSER.so").write_bytes(b"an older HAWSER_NIXL_ANY_VERSION")
    status, text = run(python, "-m", "hawser", "nixl-install", "--dir", site, HAWSER_NIXL_ANY_VERSION="1")
    ok(status == 0 and (plugins / "libplugin_HAWSER.so").stat().st_size > 100000, "an older release of ours is replaced", text)


# ---- other Pythons ----------------------------------------------------------------------------------

def find_python(version):
    """Returns a Python of this version from PATH or pyenv, or None."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv") / "versions"
    for python in [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]:
        if python and run(python, "-c", f"import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')")[0] == 0:
            return python
    return None


def use_other_python(version, wheel, folder):
    what = f"Python {version} runs README's script"
    python, venv = find_python(version), folder / f"venv-{version}"
    if python is None:
        skip(what, f"no Python {version} with venv here")
        return
    status, text = run(python, "-m", "venv", venv)
    try:
        if status:
            raise Missing(text.strip().splitlines()[-1])
        need_pip(venv / "bin/python", "cffi")
    except Missing as e:
        skip(what, e)
        return
    status, text = pip(venv / "bin/python", "install", "--no-deps", "--no-index", wheel)
    good, said = run_example(venv / "bin/python", folder) if status == 0 else (False, text)
    ok(good, what, said)


def uninstall(python):
    status, text = pip(python, "uninstall", "-y", "hawser-transfer")
    left = [f for f in list_files(python.parents[1]) if "hawser" in f]
    ok(status == 0 and not left, "uninstalling leaves nothing behind", text, left)


def main(folder, sanitizers, nccl):
    reasons = {f"built with {sanitizers}: the wheel is not": sanitizers != "none", "the wheel is for x86-64": platform.machine() != "x86_64",
               "scripts/wheel.py needs Python 3.11": sys.version_info < (3, 11)}
    for reason in (r for r, holds in reasons.items() if holds):
        print(f"1..0 # SKIP {reason}")
        return 77
    folder = pathlib.Path(folder).resolve()
    scratch = folder / "scratch"
    try:
        wheel = build(folder)
        if not wheel:
            return done()
        examine(wheel, folder / "contents")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        python = install(wheel, folder / "venv")
    except Missing as e:
        print(f"1..0 # SKIP {e}")
        return 77
    hawser, native = use(python, scratch)
    use_nccl(hawser, native, nccl)
    use_nixl(python, hawser)
    misuse_nixl(python, scratch)
    for version in "3.10", "3.11", "3.12", "3.13":
        use_other_python(version, wheel, scratch)
    uninstall(python)
    shutil.rmtree(scratch)
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
