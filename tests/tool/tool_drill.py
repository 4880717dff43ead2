#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser drill` in a lab of two nodes with three NICs (TAP): its report on faults that the drill causes, that
others cause and that the drill only observes; invalid arguments; and that the drill restores each NIC even if the drill
is killed. No durations are tested. Usage: tool_drill.py HAWSER"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

HAWSER = sys.argv[1]
LAB = f"drill{os.getpid()}"
NOBODY = "02:00:00:00:00:01"
SLOW = "goodput did not recover within 1 s"  # on a machine that is busy with other work


def lab(what, *argv):
    return subprocess.run([HAWSER, "lab", what, "--name", LAB, *argv], check=True, timeout=60, capture_output=True, text=True)


def node(name, *argv):
    return [HAWSER, "lab", "exec", f"{LAB}/{name}", "--", *map(str, argv)]


def start(*argv):
    return subprocess.Popen(node("a", HAWSER, "drill", "198.18.0.2", *argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def neighbours(nic):
    """Returns the Ethernet addresses to which node a sends on a NIC."""
    out = subprocess.run(node("a", "ip", "neigh", "show", "dev", nic), check=True, capture_output=True, text=True).stdout
    return re.findall(r"^198[.]\S+ .*lladdr (\S+)", out, re.M)


def finish(p):
    out, err = p.communicate(timeout=110)
    return out, err, p.returncode


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def is_well(result):
    return result[2] == 0 or SLOW in result[1]


def takes(folder):
    result = finish(start("--take", "eth1,eth2", "--faults", "2", "--off", "700ms", "--json", folder / "a", "--report", folder / "a.html"))
    ok(is_well(result), "it takes two NICs away, one after the other", *result)
    row = read(folder / "a")
    ok([(f["nic"], f["what"], f["judged"]) for f in row["drill"]] == [("eth1", "hole", True), ("eth2", "hole", True)], "and notes both", row["drill"])
    ok(all(f["retaken_bytes"] > 0 for f in row["drill"]) and row["retaken_bytes"] >= sum(f["retaken_bytes"] for f in row["drill"]),
       "what was lost is counted as sent again", row["drill"])
    ok(row["lost_channels"] == sum(c["lost"] for c in row["per_channel"]) and row["nics"] == ["eth0", "eth1", "eth2"], "and the channels that died", row)
    ok(row["bad_bytes"] == 0 and row["verified_bytes"] == 64 * 128 << 10, "every place of the region is right in the end")
    ok({p["nic"] for p in row["timeline"]} == {"eth0", "eth1", "eth2"}, "the timeline has each NIC")
    ok("eth1: hole" in (folder / "a.html").read_text(encoding="utf-8"), "the report marks the faults")
    ok(neighbours("eth1") and NOBODY not in neighbours("eth1"), "and what it took is back", neighbours("eth1"))


def takes_link():
    result = finish(start("--take", "all", "--how", "down", "--faults", "1", "--off", "500ms"))
    ok(is_well(result) and re.search(r"\beth0 +down\b", result[0]), "it takes a link down and up again", *result)
    up = subprocess.run(node("a", "ip", "-br", "link", "show", "eth0"), check=True, capture_output=True, text=True).stdout
    ok(" UP " in up, "which is up again", up)


def watches(folder):
    p = start("--duration", "7s", "--json", folder / "b")
    time.sleep(2.5)
    lab("link", "a", "2", "down")
    time.sleep(1)
    lab("link", "a", "2", "up")
    result = finish(p)
    ok(is_well(result), "without --take it watches", *result)
    ok([(f["nic"], f["what"]) for f in read(folder / "b")["drill"]] == [("eth2", "lost")], "and sees which NIC went")


def is_interrupted():
    p = start("--duration", "60s")
    time.sleep(3)
    p.send_signal(signal.SIGINT)
    result = finish(p)
    ok(result[2] == 0 and f"{64 * 128 << 10} bytes checked, 0 of them wrong" in result[0],
       "interrupted while it watches, it checks the bytes and says what it has seen", *result)
    p = start("--take", "eth1", "--off", "60s")
    time.sleep(3)
    p.send_signal(signal.SIGINT)
    result = finish(p)
    ok(result[2] == 130 and "interrupted: after 0 of 5 faults" in result[1] and NOBODY not in neighbours("eth1"),
       "and while a NIC is away, that it was", *result)


def reads_marks(folder):
    with open(folder / "marks", "w", encoding="ascii") as f:
        p = start("--duration", "6s", "--marks", folder / "marks", "--json", "-")
        time.sleep(2)
        print(f"{time.monotonic():.6f} eth1 nothing at all\nnonsense\n{time.monotonic() + 0.5:.6f} eth1 back up", file=f)
    out, err, code = finish(p)
    row = json.loads(out)
    ok(is_well((out, err, code)) and [(f["nic"], f["what"]) for f in row["drill"]] == [("eth1", "nothing at all")], "marks are faults", out, err)
    ok([m["text"].split(",")[0] for m in row["faults"]] == ["eth1: nothing at all", "eth1: back up"], "and their ends", row["faults"])


def gives_back():
    """Kills only the drill process, not its child, and tests that the NIC is restored."""
    before = neighbours("eth1")
    p = subprocess.Popen([*node("a", "sh", "-c", f"echo $$; exec {HAWSER} drill 198.18.0.2 --take eth1 --off 60s")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    pid = int(p.stdout.readline())
    end = time.monotonic() + 20
    while NOBODY not in neighbours("eth1") and time.monotonic() < end:
        time.sleep(0.1)
    ok(NOBODY in neighbours("eth1"), "while it is away, what is sent by the NIC goes to nobody")
    os.kill(pid, 9)
    p.wait(timeout=20)
    end = time.monotonic() + 20
    while NOBODY in neighbours("eth1") and time.monotonic() < end:
        time.sleep(0.1)
    ok(neighbours("eth1") == before, "killed, it gives the NIC back", before, neighbours("eth1"))


def refuses():
    for argv, code, why in ((["--nics", "eth1", "--take", "all"], 1, "the only NIC"),
                            (["--take", "eth9"], 1, "eth9 carries no data"),
                            (["--take", "eth1", "--duration", "9s"], 2, "cannot be combined with --take"),
                            (["--faults", "3"], 2, "need --take"),
                            (["--how", "nicely"], 2, "nicely"),
                            (["--json", "-", "--report", "x"], 2, "cannot be combined with --json -"),
                            (["--take", "eth1,,eth2"], 2, "eth1,,eth2")):
        result = finish(start(*argv))
        ok(result[2] == code and why in result[1], f"refused: {' '.join(argv)}", *result)
    may_not = subprocess.run(node("a", "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", HAWSER, "drill", "198.18.0.2", "--take", "eth1"),
                             capture_output=True, text=True, timeout=60)
    ok(may_not.returncode == 1 and "not permitted" in may_not.stderr, "refused: without the right to", may_not.stderr)


def loses_peer(serve):
    p = start("--duration", "60s")
    time.sleep(2)
    serve.kill()
    result = finish(p)
    ok(result[2] == 1 and "a write of 131072 bytes" in result[1], "a peer that is killed is an error", *result)


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP taking a NIC away needs root")
        return 0
    lab("up", "--nics", "3", "--rate", "300mbit")
    try:
        serve = subprocess.Popen(node("b", HAWSER, "serve"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while "hawser bench" not in serve.stdout.readline():
            if serve.poll() is not None:
                raise SystemExit("Bail out! serve ended")
        with tempfile.TemporaryDirectory() as d:
            folder = pathlib.Path(d)
            takes(folder)
            takes_link()
            watches(folder)
            reads_marks(folder)
        is_interrupted()
        gives_back()
        refuses()
        loses_peer(serve)
    finally:
        lab("down")
    return done()


sys.exit(main())
