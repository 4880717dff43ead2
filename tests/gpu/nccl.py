#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real NCCL over hawser against its own sockets, on one machine of two GPUs or more: tests/gpu/run nccl [OPTION...].
  table  two ranks, all sizes, the sockets' default and tuned, and plain sockets, in rounds
  four   all_reduce and alltoall among four ranks, where there are four GPUs
  hosts  two GPUs as two hosts (`hawser nccl bench --hosts`), in two nodes of a lab where that can be made: NCCL over hawser and
         sockets, and hawser's own transfer; only where it is asked for
  train  PyTorch's DDP and FSDP among two and four ranks, bitwise as over NCCL's sockets; a rank killed, a group given up
         (nccl_train.py)
Every element is checked, which decides whether a test passes. The targets of the table depend on the machine's load,
and are only reported as met or MISSED. The table takes up to 4 minutes, --quick takes one, and the rest takes three.
Ends with the line "N passed, N failed, N skipped". Tests that are impossible here are skipped, with the reason."""
import argparse
import ctypes.util
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import nccl_train  # in this folder

HERE = pathlib.Path(__file__).resolve().parent
SIZES = "8,1KiB,64KiB,1MiB,16MiB,64MiB,256MiB"
SMALL = 64 << 10  # up to this size, latency is the target; above, throughput
TUNED = 1.1  # target, relative to the best speed of tuned NET/Socket
DEFAULT = {"all_reduce": 6, "sendrecv": 8}  # targets from 256 MiB on, relative to the default's speed
LIMIT = 0.9  # at this share of plain sockets' rate or more, the loopback interface is the bottleneck


def find_nccl():
    """Finds NCCL. Searches PyTorch's folder first, because the loader's path may contain an older version."""
    code = "import nvidia.nccl as n; print(list(n.__path__)[0])"
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    places = [r.stdout.strip() + "/lib"] if r.returncode == 0 else []
    for site in sys.path:
        places += [site + "/nvidia/nccl/lib", site + "/torch/lib"]
    places += ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64", "/usr/local/lib"]
    for p in places:
        found = sorted(glob.glob(p + "/libnccl.so.2"))
        if found:
            return found[0]
    return ctypes.util.find_library("nccl")


def end(passed, failed, skipped):
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


def size_text(n):
    for unit, k in ("MiB", 20), ("KiB", 10):
        if n >= 1 << k:
            return f"{n >> k} {unit}"
    return f"{n} B"


def num(v, digits=2):
    return "-" if v is None else f"{v:.{digits}f}"


def aims(row, cpu_of):
    """Yields (met, text) for each target of the row."""
    op, size, share = row["op"], row["size"], row["of_raw"]
    at_limit = share is not None and share >= LIMIT
    note = f", {100 * share:.0f} % of plain sockets" if share is not None else ""
    what = f"{op} {size_text(size)}"
    tuned, default = row["ratio_tuned"], row["ratio_default"]
    if size <= SMALL:
        if default is not None:
            yield default >= 1, f"{what}: {1 / default:.2f}x the time of NET/Socket's default (aim <= 1.00)"
        return
    if tuned is not None:
        yield tuned >= TUNED or at_limit, f"{what}: {tuned:.2f}x the best tuned, {row['tuned_best']} (aim >= {TUNED}){note}"
    if size >= 256 << 20 and default is not None and op in DEFAULT:
        yield default >= DEFAULT[op] or at_limit, f"{what}: {default:.1f}x the default (aim >= {DEFAULT[op]}){note}"
    best = cpu_of.get((op, size, row["tuned_best"]))
    if best and row["cpu_s_per_GB"] is not None:
        yield row["cpu_s_per_GB"] <= best, f"{what}: {row['cpu_s_per_GB']:.3f} CPU s/GB, NET/Socket at its best {best:.3f} (aim <= 1.00x)"


def table(rows, raws):
    """Prints the table of docs/results.md."""
    ops = sorted({(r["op"], r["size"]) for r in rows})
    by = {(r["op"], r["size"], r["config"]): r for r in rows}
    configs = list(dict.fromkeys(r["config"] for r in rows))
    print("\n| operation | size | " + " | ".join(f"{c}, us" for c in configs) + " | GB/s | of default | of best tuned | of plain sockets | CPU s/GB, ours / its |")
    print("|---|---|" + "---|" * (len(configs) + 5))
    for op, size in ops:
        ours = by.get((op, size, "hawser"), {})
        best = by.get((op, size, ours.get("tuned_best")), {})
        times = [num(by.get((op, size, c), {}).get("time_us"), 1) for c in configs]
        share = ours.get("of_raw")
        print(f"| {op} | {size_text(size)} | " + " | ".join(times) + f" | {num(ours.get('algbw_GBps'))} | {num(ours.get('ratio_default'))}x | "
              f"{num(ours.get('ratio_tuned'))}x | {'-' if share is None else f'{100 * share:.0f} %'} | "
              f"{num(ours.get('cpu_s_per_GB'), 3)} / {num(best.get('cpu_s_per_GB'), 3)} |")
    for r in raws:
        print(f"Plain sockets, {r['streams']} streams: {r['wire_GBps']:.1f} GB/s.")
    print()


def bench(a, nccl, gpus, ops, sizes, rounds, raw, limit):
    """Runs `hawser nccl bench --vs-socket`, and prints a table of the results.

    Returns ((passed, failed, skipped), rows)."""
    env = dict(os.environ)
    if not a.lab:
        env.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as d:
        out = a.json or d + "/nccl.jsonl"
        argv = [a.tool, "nccl", "bench", "--vs-socket", "--gpus", str(gpus), "--nccl", nccl, "--op", ops, "--size", sizes, "--rounds", str(rounds),
                "--json", out, "--timeout", "60s", *(["--lab", a.lab] if a.lab else ["--raw", raw] if raw else []), *a.more]
        print("+ " + " ".join(argv[1:]), flush=True)
        try:
            r = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
        except subprocess.TimeoutExpired as e:
            print((e.stdout or b"").decode(errors="replace"))
            print(f"failed: nccl: not done within {limit} s: take fewer --rounds or --sizes")
            return (0, 1, 0), []
        print(r.stdout)
        if r.returncode and any(x in r.stdout for x in ("NCCL transfers nothing with fewer than two GPUs", "no CUDA driver", "NO_DEVICE", "GPUs were requested")):
            print(f"skipped: nccl: {r.stdout.strip()}")
            return (0, 0, 1), []
        lines = [json.loads(x) for x in open(out, encoding="utf-8")] if os.path.exists(out) else []
    rows, raws = [x for x in lines if x["op"] != "raw"], [x for x in lines if x["op"] == "raw"]
    passed = sum(x["errors"] == 0 for x in rows)
    failed = len(rows) - passed
    if rows:
        table(rows, raws)
    for x in rows:
        if x["errors"]:
            print(f"failed: {x['config']}: {x['op']} {size_text(x['size'])}: {x['errors']} of {x['checked']} elements are wrong")
    if r.returncode and not failed:
        print("failed: nccl: not all was measured, see above")
        failed = 1
    return (passed, failed, 0), rows


def hosts(a, nccl):
    """(passed, failed, skipped)"""
    lab = f"hosts{os.getpid()}"
    sizes = "8,1MiB,64MiB" if a.sizes == SIZES else a.sizes
    wanted = 5 * len(sizes.split(","))  # for each size: two operations over two networks, and hawser's own transfer
    up = subprocess.run([a.tool, "lab", "up", "--name", lab, "--nics", "1"], capture_output=True, text=True).returncode == 0
    env = dict(os.environ)
    if not up:
        env.setdefault("NCCL_SOCKET_IFNAME", "lo")
    try:
        with tempfile.TemporaryDirectory() as d:
            reach, out = pathlib.Path(d) / "reach", pathlib.Path(d) / "out.jsonl"
            into = f'"{os.path.abspath(a.tool)}" lab exec {lab}/$host -- ' if up else ""
            reach.write_text(f'#!/bin/sh\nhost=$1; shift\ncase $host in a) gpu=0;; *) gpu=1;; esac\nexport CUDA_VISIBLE_DEVICES=$gpu\nexec {into}"$@"\n')
            reach.chmod(0o755)
            argv = [a.tool, "nccl", "bench", "--hosts", "a,b", "--ssh", str(reach), "--gpus", "1", "--nccl", nccl, "--size", sizes, "--rounds", "1",
                    "--json", str(out), "--timeout", "60s", *a.more]
            print("+ " + " ".join(argv[1:]), flush=True)
            r = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=a.limit)
            print(r.stdout)
            if r.returncode and any(x in r.stdout for x in ("no CUDA driver", "NO_DEVICE", "has no GPU")):
                print(f"skipped: hosts: {r.stdout.strip()}")
                return 0, 0, 1
            rows = [json.loads(x) for x in out.read_text().splitlines()] if out.exists() else []
    except subprocess.TimeoutExpired:
        print(f"failed: hosts: not done within {a.limit} s")
        return 0, 1, 0
    finally:
        if up:
            subprocess.run([a.tool, "lab", "down", "--name", lab])
    good = sum(x["errors"] == 0 for x in rows)
    return good, max(len(rows) - good, wanted - len(rows), int(r.returncode != 0 and good == len(rows))), 0


def main():
    a = argparse.ArgumentParser(prog="tests/gpu/run nccl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--parts", default="table,four,train", help="which of them (all but hosts)")
    a.add_argument("--tool", default=str(HERE / "../../build/hawser"), help="the program; its plugin is the one beside it")
    a.add_argument("--nccl", help="NCCL's library; by default PyTorch's")
    a.add_argument("--sizes", default=SIZES, help="of the table")
    a.add_argument("--op", default="all_reduce,sendrecv", help="of the table")
    a.add_argument("--four-sizes", default="64,64KiB,1MiB,64MiB", help="of four")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--raw", default="16,32", help="plain sockets; '' for none")
    a.add_argument("--limit", type=int, default=230, help="seconds for the table")
    a.add_argument("--quick", action="store_true", help="one round of 8 B, 1 MiB and 64 MiB")
    a.add_argument("--json", help="keep the lines of JSON in this file, of the last table that was made")
    a.add_argument("--lab", help="ranks in nodes of this lab, see `hawser lab up`; no plain sockets then")
    a.add_argument("--plugin-dir", help="of train: where libnccl-net-hawser.so is, if neither in build/nccl nor on LD_LIBRARY_PATH")
    a.add_argument("more", nargs="*", help="after --: more options of `hawser nccl bench`")
    a = a.parse_args()
    parts = a.parts.split(",")
    if bad := [p for p in parts if p not in ("table", "four", "hosts", "train")]:
        print(f"failed: nccl: there is no part '{bad[0]}'; there are table, four, hosts, train")
        end(0, 1, 0)
    if a.quick:
        a.sizes, a.rounds = "8,1MiB,64MiB", 1
    nccl = a.nccl or find_nccl()
    total = [0, 0, 0]

    def add(counts):
        for i, n in enumerate(counts):
            total[i] += n

    if "train" != a.parts and not os.access(a.tool, os.X_OK):
        print(f"failed: nccl: no program {a.tool}: build first, or name it by --tool")
        end(0, 1, 0)
    if "train" != a.parts and not nccl:
        print("skipped: nccl: no libnccl.so.2 where PyTorch, CUDA or the system would have it; name it by --nccl")
        add((0, 0, 1))
        parts = [p for p in parts if p == "train"]
    if "table" in parts:
        counts, rows = bench(a, nccl, 2, a.op, a.sizes, a.rounds, a.raw, a.limit)
        add(counts)
        cpu_of = {(x["op"], x["size"], x["config"]): x["cpu_s_per_GB"] for x in rows}
        for x in rows:
            if x["config"] == "hawser":
                for met, text in aims(x, cpu_of):
                    print(("met: " if met else "MISSED: ") + text)
    if "four" in parts:
        print("== four ranks", flush=True)
        add(bench(a, nccl, 4, "all_reduce,alltoall", a.four_sizes, 1, "", 120)[0])
    if "hosts" in parts:
        print("== two hosts", flush=True)
        add(hosts(a, nccl))
    if "train" in parts:
        print("== PyTorch", flush=True)
        add(nccl_train.run(["--plugin-dir", a.plugin_dir] if a.plugin_dir else []))
    end(*total)


if __name__ == "__main__":
    main()
