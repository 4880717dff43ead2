# SPDX-License-Identifier: Apache-2.0
"""Runs the examples in examples/nixl as the first lines of each example describe (TAP). Run by nixl_run.py."""
import os
import pathlib
import re
import socket
import subprocess
import sys

from tap import done, ok

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/nixl"
LIMIT_S = 40
SAYS = ["request 0: 1024 blocks pushed", "request 1: 8192 blocks pushed",
        "request 0: 1024 blocks of 65536 bytes, all of them verified",
        "request 1: 8192 blocks of 65536 bytes, all of them verified"]


def start(*argv):
    return subprocess.Popen([os.environ["PYTHON"], EXAMPLES / "kv_push.py", *argv], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def check_processes(what, *processes):
    """Checks that all processes succeed, and that their combined output contains all texts in SAYS."""
    said = ""
    try:
        for p in processes:
            said += p.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        said += f"\nnot done within {LIMIT_S} s"
    finally:
        for p in processes:
            p.kill()
            p.wait()
    ok(all(p.returncode == 0 for p in processes) and all(words in said for words in SAYS), what, said)
    print("".join(f"# {line}\n" for line in said.splitlines() if re.match("request", line)), end="")


def check_import(package):
    """Checks that kv_push.py finds NIXL's API in this package if the other packages are not installed."""
    code = ("import runpy, sys, types\n"
            "for name in 'nixl', 'nixl_cu12', 'nixl_cu13': sys.modules[name] = None\n"
            f"sys.modules['{package}'] = types.ModuleType('{package}')\n"
            f"sys.modules['{package}._api'] = api = types.ModuleType('api')\n"
            f"print(runpy.run_path({str(EXAMPLES / 'kv_push.py')!r}, run_name='imported')['nixl'] is api)\n")
    p = subprocess.run([os.environ["PYTHON"], "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    ok(p.stdout == "True\n", f"kv_push.py imports the package {package}", p.stdout, p.stderr)


def main():
    for package in ("nixl", "nixl_cu12", "nixl_cu13"):
        check_import(package)
    check_processes("kv_push.py starts both processes, and all blocks are verified", start())
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    check_processes("each process is started by hand", start("prefill", "127.0.0.1", port), start("decode", port))
    return done()


if __name__ == "__main__":
    sys.exit(main())
