#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the commands `hawser sandbox move`, `restore`, `watch` and `status` in a node of a lab, which needs no
privileges (TAP). Usage: sandbox_move_tool.py HAWSER"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

HAWSER = sys.argv[1]
LAB = f"smt{os.getpid()}"


def run(*argv):
    return subprocess.run([HAWSER, "sandbox", *map(str, argv)], capture_output=True, text=True, timeout=60)


def until(what):
    deadline = time.monotonic() + 30
    while not what() and time.monotonic() < deadline:
        time.sleep(0.02)
    return what()


def nics(pid="self"):
    return {line.split(":")[0].strip() for line in open(f"/proc/{pid}/net/dev") if ":" in line} - {"lo"}


def container():
    p = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
    until(lambda: not nics(p.pid))
    return p


def inside(d):
    all_nics = nics()
    box = container()
    at = ["--journal-dir", d]
    r = run("move", "box", "--netns", box.pid, "--nics", "eth0,eth1=rdma1", *at)
    ok(r.returncode == 0 and re.fullmatch("hawser sandbox move: warning: this mount namespace is not the host's, .* restore box`\n", r.stderr),
       f"move in a private mount namespace, as that of `hawser lab exec`: {r.stderr}")
    ok(nics() == all_nics - {"eth0", "eth1"} and nics(box.pid) == {"eth0", "rdma1"}, "they are there, under their names")
    r = run("status", "--json", *at)
    s = json.loads(r.stdout)
    ok(r.returncode == 0 and len(s) == 1 and s[0]["id"] == "box" and s[0]["state"] == "running" and s[0]["holder"] == box.pid
       and s[0]["nics"] == [{"name": "eth0", "as": "eth0", "place": "there"}, {"name": "eth1", "as": "rdma1", "place": "there"}],
       "status --json")
    r = run("status", *at)
    ok(r.returncode == 0 and r.stdout.startswith("box: running") and "as rdma1" in r.stdout, "status")
    hide = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", 'umount "$1" && shift && exec "$@"', "sh", f"{d}/box.netns"]
    seen = [subprocess.run([*hide, HAWSER, "sandbox", "status", *at, *more], capture_output=True, text=True, timeout=60) for more in ([], ["--json"])]
    ok("lost" not in seen[0].stdout and "eth0            unknown\n" in seen[0].stdout and seen[0].stdout.count("other than this one") == 1 and
       [x["place"] for x in json.loads(seen[1].stdout)[0]["nics"]] == ["unknown"] * 2,
       f"status in a namespace that sees neither the host nor the container: {[(x.stdout, x.stderr) for x in seen]}")
    r = run("move", "box", "--netns", box.pid, "--nics", "eth2", *at)
    ok(r.returncode == 1 and "journal of box" in r.stderr, f"a second move of one container: {r.stderr.strip()}")
    r = run("move", "other", "--netns", box.pid, "--nics", "eth0", *at)
    ok(r.returncode == 1 and "belongs to the container box" in r.stderr, f"a NIC of another's: {r.stderr.strip()}")
    r = run("restore", "box", "-v", *at)
    ok(r.returncode == 0 and nics() == all_nics, "restore")
    ok("eth0 is restored" in r.stderr, "which says so with --verbose")
    r = run("restore", "box", *at)
    ok(r.returncode == 0 and not r.stderr, "and has nothing more to do")

    moves = [subprocess.Popen([HAWSER, "sandbox", "move", f"c{i}", "--netns", str(box.pid), "--nics", "eth3", *at],
                              stderr=subprocess.DEVNULL) for i in range(4)]
    ok(sorted(m.wait(60) for m in moves) == [0, 1, 1, 1], "of four at once that want one NIC, one gets it")
    for i in range(4):
        run("restore", f"c{i}", *at)
    ok(nics() == all_nics, "which gives it back")

    r = run("move", "box", "--netns", box.pid, "--nics", "eth0,eth2=rdma2", "-v", *at)
    ok(r.returncode == 0 and "eth0 is in the container\n" in r.stderr and "eth2 is in the container, as rdma2\n" in r.stderr,
       f"move again; --verbose says which NICs are moved: {r.stderr}")
    w = subprocess.Popen([HAWSER, "sandbox", "watch", "box", *at])
    w.send_signal(signal.SIGTERM)
    ok(w.wait(30) != 0 and "eth0" not in nics(), "watch ends by a signal, and has restored nothing")
    w = subprocess.Popen([HAWSER, "sandbox", "watch", "box", *at])
    box.kill()
    box.wait()
    ok(w.wait(30) == 0 and nics() == all_nics, "or by the container's end, and has restored")
    r = run("status", "box", *at)
    ok(r.returncode == 1 and "no journal of box" in r.stderr, f"no status of what is not: {r.stderr.strip()}")

    for argv, text in ((["move", "box"], "--netns"), (["move"], "ID"), (["move", "b", "--netns", "1", "--nics", ","], "empty name"),
                       (["move", "b", "--netns", "1", "--nics", "eth0", "--rdma", "x"], "auto, yes or no"),
                       (["move", "../b", "--netns", "1", "--nics", "eth0"], "not a valid container ID"), (["restore"], "ID"),
                       (["restore", "a", "b"], "unexpected argument 'b'"), (["status", "a", "b"], "unexpected argument 'b'"), (["watch"], "ID")):
        r = run(*argv, *at)
        ok(r.returncode == 2 and text in r.stderr, f"{' '.join(argv)}: {r.stderr.splitlines()[0] if r.stderr else ''}")
    (pathlib.Path(d) / "bad.journal").write_text("nonsense\n")
    r = run("status", *at)
    ok(r.returncode == 1 and "bad: unreadable" in r.stdout, f"a journal that is none: {r.stdout.strip()}")
    r = run("restore", "bad", *at)
    ok(r.returncode == 1 and "line 1" in r.stderr and (pathlib.Path(d) / "bad.journal").exists(), "is left alone,")
    ok(run("restore", "bad", "--forget", *at).returncode == 0 and not os.listdir(d), "unless it is to be forgotten")
    line = "hawser-sandbox - 2"
    (pathlib.Path(d) / "new.journal").write_text(f"{zlib.crc32(line.encode()):08x} {line}\n")
    r = run("restore", "new", *at)
    ok(r.returncode == 1 and "version 2" in r.stderr, f"a journal of another version is left alone: {r.stderr.strip()}")
    r = run("restore", "new", "--forget", *at)
    ok(r.returncode == 0 and not os.listdir(d), f"and can be forgotten: {r.stderr.strip()}")
    return done()


def main():
    if len(sys.argv) > 2:
        return inside(sys.argv[2])
    up = subprocess.run([HAWSER, "lab", "up", "--name", LAB], capture_output=True, text=True, timeout=60)
    if up.returncode:
        print(f"1..0 # SKIP no lab here: {up.stderr.strip()}")
        return 77
    try:
        with tempfile.TemporaryDirectory() as d:
            return subprocess.run([HAWSER, "lab", "exec", "--name", LAB, "a", "--", sys.executable, __file__, HAWSER, d],
                                  timeout=300).returncode
    finally:
        subprocess.run([HAWSER, "lab", "down", "--name", LAB], timeout=60)


if __name__ == "__main__":
    sys.exit(main())
