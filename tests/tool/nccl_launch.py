#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser nccl bench` when a launcher starts its processes, with tests/fakes/nccl in a lab of two nodes (TAP):
the variables of SLURM and torchrun, Open MPI's real mpirun, and failures. Usage: nccl_launch.py HAWSER LIBFAKECUDA
LIBFAKENCCL"""
import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok, skip  # noqa: E402

HAWSER, CUDA, NCCL = [os.path.abspath(a) for a in sys.argv[1:]]
LAB = f"ncclrun{os.getpid()}"
NODES = "ab"
KEY = secrets.token_hex(16)
QUICK = ["--size", "8,64KiB", "--iters", "2", "--warmup", "1", "--rounds", "1"]


def address(node):
    return f"198.18.0.{NODES.index(node) + 1}"


def environment(tmp, **more):
    drop = ("NCCL_", "HAWSER_", "FAKENCCL_", "LD_LIBRARY_PATH", "SLURM", "OMPI", "PMIX", "RANK", "WORLD_SIZE", "MASTER_")
    e = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    e.update({"HAWSER_CUDA_LIBRARY": CUDA, "FAKECUDA_GPUS": "2", "FAKENCCL_DIR": str(tmp), "HOME": str(tmp), "HAWSER_MESH_KEY": KEY})
    e.update({k: str(v) for k, v in more.items() if v is not None})
    return {k: v for k, v in e.items() if more.get(k, "") is not None}


def bench(*argv):
    return [HAWSER, "nccl", "bench", "--nccl", NCCL, *QUICK, *map(str, argv)]


def start(node, rank, tmp, command, variables, **more):
    """Starts a process in a node, with a host name for that node."""
    inside = [HAWSER, "lab", "exec", f"{LAB}/{node}", "--", "unshare", "-u", "sh", "-c", 'hostname node$0; exec "$@"', node, *command]
    return subprocess.Popen(inside, env=environment(tmp, **{**variables(rank), **more}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def by_slurm(rank):
    return {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": 2, "SLURM_NTASKS": 2, "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0, "SLURMD_NODENAME": f"n{rank + 1}",
            "SLURM_STEP_NODELIST": "n[1-2]", "HAWSER_MESH_MEET": address("a")}


def by_torchrun(rank):
    return {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank, "MASTER_ADDR": address("a"), "MASTER_PORT": 29500,
            "TORCHELASTIC_RUN_ID": f"nccl{os.getpid()}"}


def finish(every, timeout=100):
    """Returns (exit status, standard output, errors) of each process."""
    told = []
    for p in every:
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
        told.append((p.returncode, out, err))
    return told


def run(tmp, variables, *argv, **more):
    return finish([start(node, rank, tmp, bench(*argv), variables, **more) for rank, node in enumerate(NODES)])


def rows(text):
    return [json.loads(x) for x in text.splitlines() if x.startswith("{")]


def alive(tmp):
    """Returns the hawser processes that a run has left behind."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (p / "comm").read_text() in ("hawser\n", "hawser-rank\n") and f"FAKENCCL_DIR={tmp}".encode() in (p / "environ").read_bytes().split(b"\0"):
                found.append(int(p.name))
    return found


def is_quiet(tmp):
    for _ in range(100):
        if not alive(tmp):
            return True
        time.sleep(0.1)
    return False


def works(tmp):
    report = tmp / "report"
    told = run(tmp, by_slurm, "--json", "-", "--rails", "eth0;eth1", FAKENCCL_REPORT=report)
    code, out, err = told[0]
    j = rows(out)
    ok([t[0] for t in told] == [0, 0] and not told[1][1], "SLURM's variables: both processes end well, and rank 0's alone prints", *told)
    ok([(x["config"], x["op"], x["size"], x["errors"]) for x in j if x["op"] != "write"] ==
       [(c, op, z, 0) for op in ("all_reduce", "sendrecv") for z in (8, 65536) for c in ("hawser", "socket")], "hawser and sockets, all of it checked", out)
    ok(all(x["hosts"] == "n1,n2" for x in j) and [x.get("ranks") for x in j if x["op"] != "write"] == [4] * 8,
       "one process a node: both GPUs of each node have a rank, and the nodes have SLURM's names", out)
    ok([(x["size"], x["errors"], x["checked"] > 0) for x in j if x["op"] == "write"] == [(8, 0, True), (65536, 0, True)], "and hawser's own transfer", out, err)
    seen = [dict(w.split("=", 1) for w in x.split(" ") if "=" in w) for x in report.read_text().splitlines()]
    ok(sorted((x["rank"], x["NCCL_HOSTID"]) for x in seen if x["network"] == "hawser") == [(str(i), f"hawser-bench-{i // 2}") for i in range(4)] and
       len({x["netns"] for x in seen}) == 2, "ranks in two namespaces, those of a node on one host for NCCL", seen)
    nics = [n for x in j if x["op"] != "write" for n in x["nics"]]
    ok({n["host"] for n in nics} == {"n1", "n2"} and {"eth0", "eth1"} <= {n["nic"] for n in nics} and
       all(set(n) == {"host", "nic", "sent_bytes", "received_bytes", "retransmits", "dropped"} for n in nics), "each line has the counters of both nodes' NICs", nics)
    ok(not alive(tmp), "and nothing is left", alive(tmp))

    told = run(tmp, by_torchrun, "--gpus", "1")
    ok([t[0] for t in told] == [0, 0] and "2 ranks" in told[0][1] and "# rank 1: host nodeb, GPU 0, NCCL_HOSTID=hawser-bench-1" in told[0][1],
       "torchrun's variables", *told)
    ok(re.search(r"^#  hawser +nodeb +eth0 +\d+ +\d+ +\d+ +\d+$", told[0][1], re.M), "a table of what the NICs counted", told[0][1])


def by_mpirun(tmp):
    if not shutil.which("mpirun"):
        skip("Open MPI", "mpirun is not installed")
        return
    agent = tmp / "agent"
    agent.write_text(f"""#!/bin/sh
host=$1; shift
case $host in {" ".join(f"{address(n)}) n={n} ;;" for n in NODES)} esac
exec {HAWSER} lab exec {LAB}/$n -- unshare -u sh -c 'hostname node$0; exec sh -c "$1"' $n "$*"
""")
    agent.chmod(0o755)
    (tmp / "hostfile").write_text("".join(f"{address(n)} slots=2\n" for n in NODES))
    passed = [w for k in ("HAWSER_MESH_KEY", "HAWSER_CUDA_LIBRARY", "FAKECUDA_GPUS", "FAKENCCL_DIR") for w in ("-x", k)]
    command = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", agent, "--hostfile", tmp / "hostfile", "-n", "4", "--map-by", "ppr:2:node",
               *passed, *bench("--json", "-")]
    p = subprocess.Popen([HAWSER, "lab", "exec", f"{LAB}/a", "--", *map(str, command)], env=environment(tmp), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    told = finish([p])
    j = rows(told[0][1])
    ok(told[0][0] == 0 and len(j) == 10 and all(x["errors"] == 0 and len(x["hosts"].split(",")) == 4 for x in j),
       "mpirun with two processes a node: a rank each", *told)
    ok(is_quiet(tmp), "and nothing is left", alive(tmp))


def fails(tmp):
    told = run(tmp, by_torchrun, "--gpus", "1", FAKENCCL_FAULT="die:1:3")
    ok(told[0][0] == 1 and "rank 1 (host nodeb, GPU 0) ended with status 3" in told[0][2] and "dies as it was told" in told[0][2] and told[1][0] == 0,
       "a rank of NCCL's that dies: named with its host, and its last words", *told)
    every = [start(node, rank, tmp, bench("--gpus", "1"), by_torchrun, FAKENCCL_FAULT="hang:0:3") for rank, node in enumerate(NODES)]
    for _ in range(200):
        names = [pathlib.Path(f"/proc/{p}/comm") for p in alive(tmp)]
        with contextlib.suppress(OSError):
            if [n.read_text() for n in names].count("hawser-rank\n") == 2:
                break
        time.sleep(0.1)
    there = os.stat(f"/run/netns/hawser-{LAB}-b").st_ino
    for pid in alive(tmp):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}/ns/net").st_ino == there:
                os.kill(pid, signal.SIGKILL)
    told = finish(every)
    ok(told[0][0] == 1 and re.search(r"host nodeb.* ended with status", told[0][2]), "all processes of a node are killed: named", *told)
    ok(is_quiet(tmp), "and the others end", alive(tmp))
    every = [start("a", 0, tmp, bench("--wait", "2s"), by_slurm)]
    told = finish(every)
    ok(told[0][0] == 1 and "1 of 2 ranks connected within 2 s; rank 1, n2 did not" in told[0][2] and is_quiet(tmp), "a process that never comes is named", *told)
    told = run(tmp, by_torchrun, HAWSER_MESH_KEY=None)
    ok([t[0] for t in told] == [2, 2] and all("a job key is needed" in t[2] for t in told), "without a key nobody is obeyed", *told)
    every = [start(node, rank, tmp, bench("--wait", "4s"), by_torchrun, HAWSER_MESH_KEY=KEY + node) for rank, node in enumerate(NODES)]
    told = finish(every)
    ok([t[0] for t in told] == [1, 1] and "1 of 2 ranks connected" in told[0][2], "nor by another key", *told)
    told = finish([start("a", 0, tmp, bench("--local"), by_torchrun)])
    ok(told[0][0] == 0 and "each rank as a separate node" in told[0][1], "--local: this host alone", *told)
    (tmp / "rails").write_text("# of the cluster\neth1 10.0.1.0/24  # left\n\n eth2\n")
    told = finish([start("a", 0, tmp, bench("--local", "--rails", f"@{tmp}/rails"), by_torchrun)])
    ok(told[0][0] == 0 and "# rails: eth1 10.0.1.0/24  ; eth2\n" in told[0][1], "--rails takes a file, and hands on its text", *told)
    for argv, why in (["--rails", "10.0.0.0/99"], "neither a NIC's name nor"), (["--rails", "@/nowhere"], "No such file"), (["--raw", "1"], "--local"), \
            (["--meet", "[::1"], "::1"):
        told = finish([start("a", 0, tmp, bench(*argv), by_torchrun)])
        ok(told[0][0] in (1, 2) and why in told[0][2], f"{' '.join(argv)} is refused", *told)
    told = finish([start("a", 0, tmp, bench(), lambda _: {"SLURM_PROCID": 0})])
    ok(told[0][0] == 1 and "launch hawser with srun" in told[0][2], "half of SLURM's variables are none", *told)


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP namespaces that processes can be found in need root")
        return 77
    subprocess.run([HAWSER, "lab", "up", "--name", LAB, "--nodes", "2", "--nics", "2"], check=True, timeout=120, capture_output=True)
    try:
        with tempfile.TemporaryDirectory() as d:
            works(pathlib.Path(d))
            by_mpirun(pathlib.Path(d))
            fails(pathlib.Path(d))
    finally:
        subprocess.run([HAWSER, "lab", "down", "--name", LAB], check=True, timeout=120, capture_output=True)
    return done()


sys.exit(main())
