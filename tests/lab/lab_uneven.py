#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests two NICs with very different rates, with one transfer at a time (TAP). The slow NIC must carry at most four
times its share of the total rate. Measures bytes, not time.
Usage: lab_uneven.py HAWSER"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import tap  # noqa: E402

HAWSER = str(pathlib.Path(sys.argv[1]).resolve())
LAB = f"un{os.getpid()}"
FAST, SLOW = 1000, 20  # Mb/s
MOST = 4 * SLOW / (FAST + SLOW)  # without prediction of the last chunk, the slow NIC would carry a fifth of the bytes


def run(*argv, **kw):
    return subprocess.run([HAWSER, *argv], capture_output=True, text=True, timeout=100, check=False, **kw)


def measure():
    with subprocess.Popen([HAWSER, "lab", "exec", f"{LAB}/b", "--", HAWSER, "serve"], text=True, stdout=subprocess.PIPE) as server:
        for line in server.stdout:
            if re.match("  hawser bench ", line):
                break
        time.sleep(0.1)
        r = run("lab", "exec", f"{LAB}/a", "--", HAWSER, "bench", "198.18.0.2", "--nics", "eth0,eth1", "--size", "4MiB", "--depth", "1",
                "--iters", "40", "--json", "-")
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    return r


def main():
    up = run("lab", "up", "--name", LAB, "--nics", "2", "--rate", f"{FAST}mbit,{SLOW}mbit")
    if up.returncode and re.search("needs root|no rights", up.stderr):
        tap.skip("two NICs of different rates", up.stderr.strip())
        return tap.done()
    try:
        r = measure()
    finally:
        run("lab", "down", "--name", LAB)
    rows = [json.loads(x) for x in r.stdout.splitlines()] if r.returncode == 0 else []
    sent = {n["nic"]: n["tx_bytes"] for n in rows[-1]["per_nic"]} if rows else {}
    tap.ok(rows and rows[-1]["bad_bytes"] == 0 and len(sent) == 2, "40 writes of 4 MiB over both NICs", r)
    part = sent.get("eth1", 0) / max(sum(sent.values()), 1)
    tap.ok(part <= MOST, f"{100 * part:.1f} % went by the slow NIC, which has {100 * SLOW / (FAST + SLOW):.1f} % of the rates", r)
    return tap.done()


sys.exit(main())
