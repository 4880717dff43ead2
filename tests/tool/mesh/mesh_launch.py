#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser mesh` with its launchers in a lab of network namespaces (TAP): Open MPI, SLURM, torchrun's variables,
ssh, and processes started by hand. In one run, a NIC is rate-limited, a rank is killed and another rank is stopped;
mesh must report all three. bench/mesh_launchers counts results over many runs with a single fault. "more" starts the
ranks by hand and tests the features that do not depend on the launcher. Usage: mesh_launch.py HAWSER
hand|more|hosts|mpirun|srun|torchrun"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from launchers import BEGIN_S, LETTERS, ROUND, ByHand, Hosts, Lab, Mpirun, Output, Run, Srun, TorchrunVariables, is_named, read_lines  # noqa: E402
from tap import done, ok  # noqa: E402

HAWSER, LAUNCHER = sys.argv[1], sys.argv[2]
KINDS = {"hand": ByHand, "more": ByHand, "hosts": Hosts, "mpirun": Mpirun, "srun": Srun, "torchrun": TorchrunVariables}


def try_all_at_once(launcher):
    """Tests that all three faults are reported. On a busy machine, mesh may report more than these;
    bench/mesh_launchers counts such false findings."""
    faults = {"b": "slow", "d": "dead", "g": "hung"}
    launcher.extra = ["--deadline", "5s"]
    r = Run(launcher, faults)
    names = {node: launcher.name_of(node) for node in faults}
    for node, fault in faults.items():
        ok(is_named(fault, names[node], r.found), f"{LAUNCHER}: {fault} at {names[node]} is named", r.said, r.text[-3000:])
    others = [f for f in r.findings if f["what"] not in ("path", "some") and f.get("kind") != "latency" and f.get("node") not in names.values()]
    ok(others == [], f"{LAUNCHER}: and no other node", others, r.said)
    if not launcher.own_status:
        ok(r.code != 0, f"{LAUNCHER}: the exit status says that there are findings", r.code)
    again = subprocess.run([HAWSER, "mesh", "--read", launcher.json], capture_output=True, text=True, timeout=60, check=False)
    ok(again.returncode == 1, f"{LAUNCHER}: so does that of --read", again.returncode, again.stderr)


def interrupt_hosts(launcher):
    """Interrupts `hawser mesh --hosts`, which must report the measurements made so far."""
    launcher.json.unlink(missing_ok=True)
    launcher.extra = []
    process = launcher.start()[0]
    output = Output(process)
    output.wait_for(ROUND, BEGIN_S)
    process.send_signal(signal.SIGINT)
    output.end(60)
    lines = read_lines(launcher.json) if launcher.json.exists() else []
    ok("interrupted" in output.text and "# hawser" in output.text and lines != [], "interrupted, it reports its results so far", output.text)


def more_by_hand(launcher):
    """Tests the features that do not depend on the launcher."""
    launcher.extra = ["--report", launcher.folder / "report.html", "--load", "--wait", "10s", "--time", "3s"]
    launcher.json.unlink(missing_ok=True)
    every = launcher.start()
    every[LETTERS.index("d")].kill()
    text = every[0].communicate(timeout=120)[0].decode()
    for p in every[1:]:
        p.communicate(timeout=60)
    said = [f["text"] for f in read_lines(launcher.json) if f["type"] == "finding"]
    ok(every[0].returncode == 1 and said == ["rank 3 never arrived (waited for 10 s)"], "a rank that never comes is named", text, said)
    page = (launcher.folder / "report.html").read_text(encoding="utf-8")
    ok("never arrived" in page and "<svg" in page and "<script" not in page, "the report has the finding and a heat map, and no script")
    ok("GB/s bisection" in text and "all to all" in text, "loads of all nodes at once are measured", text)
    again = subprocess.run([HAWSER, "mesh", "--read", launcher.json, "--baseline", launcher.json], capture_output=True, text=True, timeout=60, check=False)
    ok(again.returncode == 1 and "1 finding\n" in again.stdout, "a saved run is judged to the same, and differs from itself in nothing", again.stdout, again.stderr)
    ok(re.search(r"# compared with .*, which has (\d+) of the \1 nodes of this run\n", again.stdout), "the output says what was compared", again.stdout)
    launcher.extra = []
    outputs = [Output(p) for p in launcher.start()]
    outputs[0].wait_for(ROUND, BEGIN_S)
    launcher.lab.signal_ranks("a", signal.SIGINT)
    outputs[0].end(60)
    ok("interrupted" in outputs[0].text and "# hawser" in outputs[0].text, "interrupted, it tells what it has", outputs[0].text)
    for n in LETTERS:
        launcher.lab.signal_ranks(n, signal.SIGKILL)
    for o in outputs[1:]:
        o.end(60)


def refuses(folder):
    """Tests the messages that are printed before the first measurement."""
    none = {k: v for k, v in os.environ.items() if not k.startswith(("HAWSER_MESH", "SLURM", "OMPI", "PMIX", "RANK", "WORLD_SIZE"))}
    own = {"HAWSER_MESH_RANK": "1", "HAWSER_MESH_SIZE": "2", "HAWSER_MESH_MEET": "198.18.0.77"}
    (folder / "one").write_text("a\n")
    (folder / "bad").write_text("a\nb nonsense\n")
    (folder / "no.json").write_text("{}\n")
    for env, argv, code, why in (({}, [], 2, "no launcher"), ({"HAWSER_MESH_RANK": "1"}, [], 2, "HAWSER_MESH_SIZE"),
                                 ({**own, "HAWSER_MESH_KEY": "short"}, [], 2, "must be 16 to 4096"), ({**own, "HAWSER_MESH_SIZE": "x"}, [], 2, "HAWSER_MESH_SIZE"),
                                 (own, ["--wait", "1s"], 2, "was not found at 198.18.0.77"), ({"SLURM_PROCID": "0"}, [], 2, "launch hawser with srun"),
                                 ({}, ["--hosts", folder / "one"], 2, "at least two"), ({}, ["--hosts", folder / "bad"], 2, "line 2"),
                                 ({}, ["--read", folder / "no.json"], 2, "line 1"), ({}, ["--read", folder / "none"], 2, "No such file"),
                                 ({**own, "HAWSER_MESH_RANK": "0"}, ["--json", "/no/such/folder/x"], 2, "writing /no/such/folder/x"),
                                 ({}, ["--hosts", folder / "bad", "--report", "/no/such/folder/x"], 2, "writing /no/such/folder/x")):
        p = subprocess.run([HAWSER, "mesh", *map(str, argv)], env={**none, **env}, capture_output=True, text=True, timeout=60, check=False)
        ok(p.returncode == code and why in p.stderr, f"refused: {why}", p.returncode, p.stderr)


def main():
    missing = KINDS[LAUNCHER].list_missing()
    if os.geteuid() != 0 or missing:
        print(f"1..0 # SKIP {'not installed: ' + ', '.join(missing) if missing else 'namespaces that ranks can be found in need root'}")
        return 77
    with tempfile.TemporaryDirectory(dir="/tmp") as d, Lab(HAWSER, f"mesh{os.getpid()}") as lab:
        launcher = KINDS[LAUNCHER](lab, pathlib.Path(d))
        try:
            if LAUNCHER == "more":
                more_by_hand(launcher)
                refuses(pathlib.Path(d))
            else:
                try_all_at_once(launcher)
            if LAUNCHER == "hosts":
                interrupt_hosts(launcher)
        finally:
            launcher.stop()
    return done()


sys.exit(main())
