#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python binding, torch and NIXL with the memory of GPUs: tests/gpu/run python [OPTION...].
  binding  alloc() on a GPU, its __cuda_array_interface__, a copy between GPUs (tests/python/gpu.py)
  torch    tensors of all types and shapes, DLPack, streams (torch_memory.py)
  example  examples/python/torch_gpu.py: two processes
  nixl     NIXL's agents in two processes, backend HAWSER: VRAM to VRAM, and to and from DRAM (tests/nixl/nixl_vram.py)
Needs python3 with cffi, numpy, torch and nixl, from --carried FOLDER, which `tests/gpu/gather` fills, and from the
machine. With --fake LIBRARY, the driver of tests/fakes/cuda replaces the GPU. torch cannot use it, so only binding and
nixl run. Takes two minutes. Ends with the line "N passed, N failed, N skipped". Tests that are impossible here are
skipped, with the reason."""
import argparse
import ctypes
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PARTS = ("binding", "torch", "example", "nixl")
LIMIT_S = 100  # time limit for each part
passed = failed = skipped = 0


def skip(name, reason):
    global skipped
    skipped += 1
    print(f"skipped: {name}: {reason}", flush=True)


def count_check(good, name, reason=""):
    global passed, failed
    passed += good
    failed += not good
    if not good:
        print(f"failed: {name}: {reason}", flush=True)


def run(name, env, *argv):
    """Runs a part and prints its output. Returns its exit status and its output."""
    print(f"== {name}", flush=True)
    try:
        r = subprocess.run([sys.executable, *map(str, argv)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=LIMIT_S)
        status, text = r.returncode, r.stdout
    except subprocess.TimeoutExpired as e:
        status, text = 1, (e.stdout or b"").decode(errors="replace") + f"\nnot done within {LIMIT_S} s"
    print(text, flush=True)
    return status, text


def run_tap(name, env, *argv):
    """Runs a part that prints TAP, and counts its checks."""
    status, text = run(name, env, *argv)
    lines = text.splitlines()
    if status == 77:
        return skip(name, next((x.split("# SKIP ", 1)[1] for x in lines if x.startswith("1..0 # SKIP ")), "no reason"))
    left = [x for x in lines if x.startswith("ok ") and " # SKIP " in x]
    good, bad = sum(x.startswith("ok ") for x in lines) - len(left), sum(x.startswith("not ok ") for x in lines)
    for x in left:
        skip(name, x.split(" - ", 1)[1].replace(" # SKIP ", ": "))
    for _ in range(good):
        count_check(True, name)
    for _ in range(bad):
        count_check(False, name, "see above")
    if bad == 0 and (status or f"1..{good + len(left)}" not in lines):
        count_check(False, name, f"exit status {status} after {good + len(left)} checks")
    return None


def find_missing(env, *modules):
    """Returns why one of the modules cannot be imported, or "" if all can be."""
    for module in modules:
        r = subprocess.run([sys.executable, "-c", f"import {module}"], env=env, capture_output=True, text=True)
        if r.returncode:
            return f"no {module}: {(r.stderr.strip().splitlines() or ['it cannot be imported'])[-1]}"
    return ""


def find_gpus(env):
    """Returns why no GPU is available, or "" if a GPU is available."""
    code = "import ctypes, os; n = ctypes.c_int(); d = ctypes.CDLL(os.environ.get('HAWSER_CUDA_LIBRARY', 'libcuda.so.1'));" \
           "rc = d.cuInit(0) or d.cuDeviceGetCount(ctypes.byref(n)); print(f'CUDA error {rc}' if rc else n.value or 'no GPU')"
    r = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    said = (r.stdout + r.stderr).strip().splitlines()[-1]
    return "" if said.isdigit() else said


def make_environment(a):
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NIXL_LOG_LEVEL": "WARN"}
    path = [ROOT / "python", ROOT / "tests", ROOT / "tests/nixl"]
    library, plugins = ROOT / "build/libhawser.so.1", ROOT / "build/nixl"
    if a.carried:
        carried = pathlib.Path(a.carried).resolve()
        path.append(carried / "site")  # before the machine's own packages
        library, plugins = carried / "libhawser.so.1", carried / "plugins"
        try:
            ctypes.CDLL("libssl.so.3")
        except OSError:  # NIXL's library needs libssl.so.3
            env["LD_LIBRARY_PATH"] = os.pathsep.join([str(carried / "fallback"), *filter(None, [env.get("LD_LIBRARY_PATH")])])
    if a.fake:
        env["HAWSER_CUDA_LIBRARY"] = os.path.abspath(a.fake)
    env["PYTHONPATH"] = os.pathsep.join([*map(str, path), *filter(None, [env.get("PYTHONPATH")])])
    return env | {"HAWSER_LIBRARY": str(library), "NIXL_PLUGIN_DIR": str(plugins)}


def run_binding(env):
    if why := find_missing(env, "cffi", "hawser"):
        return skip("binding", why)
    status, text = run("binding", env, ROOT / "tests/python/gpu.py")
    return count_check(status == 0 and "right:" in text, "binding", f"exit status {status}")


def run_torch(env):
    if why := find_missing(env, "cffi", "hawser"):
        return skip("torch", why)
    return run_tap("torch", env, HERE / "torch_memory.py")


def run_example(env):
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 'torch finds no GPU')"
    r = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    if why := find_missing(env, "cffi", "hawser", "torch") or (r.stderr.strip() if r.returncode else ""):
        return skip("example", why)
    status, text = run("example", env, ROOT / "examples/python/torch_gpu.py")
    return count_check(status == 0 and text.count(", verified") == 3, "example", f"exit status {status}")


def run_nixl(env):
    if why := find_missing(env, "numpy") or (find_missing(env, "nixl_cu12._api") and find_missing(env, "nixl_cu13._api")):
        return skip("nixl", why)
    return run_tap("nixl", env, ROOT / "tests/nixl/nixl_vram.py")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--carried", help="folder of tests/gpu/gather; without, build/ is used and what Python finds")
    p.add_argument("--fake", help="libfakecuda.so")
    p.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all")
    a = p.parse_args()
    env = make_environment(a)
    if why := find_gpus(env):
        for name in a.parts or PARTS:
            skip(name, why)
    else:
        for name in a.parts or PARTS:
            {"binding": run_binding, "torch": run_torch, "example": run_example, "nixl": run_nixl}[name](env)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
