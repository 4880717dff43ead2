#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the `hawser` command says to people, and when: one event, one line; results in spite of a signal (TAP).
Usage: tool_user.py HAWSER"""
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import HAWSER, Serve, run  # noqa: E402
from tap import done, ok  # noqa: E402


def start(*argv):
    return subprocess.Popen([HAWSER, *map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def errors_of(s):
    s.errors.seek(0)
    return s.errors.read()


def peer_dies(tmp):
    s, out = Serve(), tmp / "killed.jsonl"
    p = start("bench", s.host, "--size", "1MiB", "--duration", "60s", "--json", out)
    time.sleep(2)
    s.p.kill()
    said = p.communicate(timeout=30)
    lines = said[1].splitlines()
    ok(p.returncode == 1 and len(lines) == 1 and "lost" in lines[0], "a server that is killed: one line", said)
    row = json.loads(out.read_text())
    ok(row["iters"] > 0 and row["ended_early"] and "1MiB write" in said[0], "and what was measured before", (row, said))


def strangers():
    s = Serve()
    host, port = s.host.split(":")
    for _ in range(30):
        socket.create_connection((host, int(port))).close()
    r = run("bench", s.host, "--iters", "2", "--size", "1KiB")
    ok(r.returncode == 0 and s.stop() == 0 and errors_of(s) == "",
       "connections that say nothing, as of doctor and health checks, are no warning", errors_of(s))


def interrupted(tmp):
    s = Serve()
    for op in "write", "read", "send", "pingpong":
        out = tmp / f"{op}.jsonl"
        p = start("bench", s.host, "--op", op, "--size", "64KiB", "--duration", "60s", "--json", out, "--report", tmp / "r.html")
        time.sleep(1.5)
        p.send_signal(signal.SIGINT)
        said = p.communicate(timeout=30)
        row = json.loads(out.read_text())
        ok(p.returncode == 130 and re.search(rf"^ +64KiB {op} ", said[0], re.M) and
           re.fullmatch("hawser bench: interrupted: .*\n", said[1]), f"{op}, interrupted: the row, one line, status 130", said)
        ok(0 < row["iters"] and row["verified_bytes"] == row["iters"] * row["size"] and row["bad_bytes"] == 0 and
           row["ended_early"] == "interrupted" and "<svg" in (tmp / "r.html").read_text(),
           "all of it checked, in the JSON line and the report", row)
    p = start("bench", s.host, "--size", "1MiB", "--duration", "60s", "--compare-raw")
    time.sleep(1.5)
    p.send_signal(signal.SIGTERM)
    said = p.communicate(timeout=30)
    ok(p.returncode == 143 and "1MiB write" in said[0], "SIGTERM beside plain sockets: the row, status 143", said)
    out = tmp / "sweep.jsonl"
    p = start("bench", s.host, "--size", "64KiB", "--duration", "1s", "--channels", ",".join("1234" * 4), "--json", out)
    time.sleep(3)
    p.send_signal(signal.SIGINT)
    said = p.communicate(timeout=30)
    ok(p.returncode == 130 and "# 64KiB: best at" in said[0] and said[1].count("\n") == 1 and out.read_text(),
       "a sweep, interrupted: the combinations so far", said)
    p = start("validate", s.host, "--size", "256MiB", "--channels", "8", "--timeout", "300s")
    time.sleep(0.7)
    p.send_signal(signal.SIGINT)
    said = p.communicate(timeout=30)
    ok(p.returncode == 130 and re.search("^Success: [0-8] / 8$", said[0], re.M) and "FAILED" not in said[0] and
       re.fullmatch("hawser validate: interrupted: .*\n", said[1]), "validate, interrupted: what rounds proved", said)
    ok(s.stop() == 0 and "lost: " not in s.said, "no client was lost by that", s.said)


with tempfile.TemporaryDirectory() as d:
    peer_dies(pathlib.Path(d))
    strangers()
    interrupted(pathlib.Path(d))
sys.exit(done())
