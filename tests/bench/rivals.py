#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests bench/rivals (TAP): the contents of the receiver's memory decide the result, whatever the contender reports; a
contender that hangs or dies loses only its own result; medians and ratios are correct. Then measures hawser, if NIXL's
wheel, root privileges and two network namespaces are available.
Usage: rivals.py BUILD SANITIZERS"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from compare import pair as pair_module  # noqa: E402
from compare.book import Book, judge_targets, run_rounds, write_book  # noqa: E402
from compare.contenders import Contender, equip_contenders, list_contenders  # noqa: E402
from compare.memory import find_difference, make_pattern  # noqa: E402
from compare.pair import Pair  # noqa: E402
from compare.run import Failure, Run  # noqa: E402
from tap import done, ok, skip  # noqa: E402

CASE = {"pieces": 16, "size": 4096, "slots": 3}
INSTALL_S = 40


class OwnNode:
    """This machine, without namespaces."""
    nics = 1

    def on(self, node, argv):
        return argv

    def address(self, node):
        return "127.0.0.1"

    def devices(self):
        return ["lo"]


def measure(run, plant=False, **config):
    """Runs a contender that copies memory, unless config overrides this. Returns the measurement, or the failure's
    text."""
    contender = Contender("copy", "", {"mover": "copy"} | config, (), {})
    try:
        with Pair(run, OwnNode(), contender, plant) as pair:
            return pair.measure(CASE, 1, 0.05)
    except Failure as e:
        return str(e)


def check_verification(run):
    good = measure(run)
    ok(isinstance(good, dict) and good["median"] > 0, "a contender that moves what it was given is measured", good)
    for what, words in (("a contender that changes a byte", {"damage": 1}),
                        ("a byte planted by --plant", {"plant": True})):
        bad = measure(run, **words)
        ok(isinstance(bad, str) and bad.startswith("wrong bytes in "), f"{what} is found", bad)
    a = make_pattern(1, 1 << 20)
    ok(len({bytes(a[k:k + 4096]) for k in range(0, len(a), 4096)}) == 256, "no two pages of a pattern are alike")
    b = bytearray(a)
    b[70001] ^= 1
    ok(find_difference(a, bytearray(a)) == (0, None) and find_difference(b, a) == (1, 70001) and
       find_difference(make_pattern(2, 1 << 20), a)[0] == 256, "and wrong bytes are counted by pages")


def check_failures(run):
    pair_module.STALL_S = 0.2
    begun = time.monotonic()
    said = measure(run, hang=1)
    ok("did not end" in said and time.monotonic() - begun < 5, "a request that does not end costs its deadline", said)
    said = measure(run, mover="nobody")
    ok("ended with 1" in said and "KeyError" in said, "a process that dies is told with its last words", said)


def check_book(run, folder):
    book = Book()

    def step(rnd):
        book.put("ours", "GB/s", rnd, [3.0, 8.0, 2.0][rnd])
        book.fix("rate", rnd, 4.0)
        if rnd == 1:
            raise Failure("the second round")
        book.put("theirs", "GB/s", rnd, 1.0 + rnd)
    run_rounds(run, [("step", step)], 0, 3, 0)
    rows = judge_targets(book, [("a", "ours", ["theirs"], ">=", 1.5), ("b", "ours", ["rate"], ">=", 0.9),
                                ("c", "ours", ["nobody"], ">=", 1)])
    want = [((3 + 2 / 3) / 2, 2, True), (0.75, 3, False), (None, 0, None)]
    ok([(r["ratio"], r["rounds"], r["met"]) for r in rows] == want,
       "ratios are taken within a round, and their median is judged", rows)
    path = folder / "book.json"
    write_book(path, book, rows, schema="test")
    read = json.loads(path.read_text())
    ok(read["measurements"]["ours"] == {"unit": "GB/s", "median": 3.0, "values": [3.0, 8.0, 2.0]} and
       read["targets"] == rows and read["schema"] == "test", "all of it is in the file", read)
    ok([s["why"] for s in run.skipped] == ["the second round"], "and so is why a value is missing", run.skipped)


def run_rivals(build, folder, *options):
    path = folder / "rivals.json"
    r = subprocess.run([ROOT / "bench/rivals", "--build", build, "--contenders", "hawser", "--rounds", "1", "--seconds",
                        "0.1", "--json", path, *options, "lists"],
                       capture_output=True, text=True, timeout=50, check=False)
    return r.returncode, json.loads(path.read_text()) if path.exists() else {}, r.stdout + r.stderr


def check_hawser(run, build, folder):
    ours = [c for c in list_contenders(build) if c.name == "hawser"]
    try:
        ours, _ = equip_contenders(run, ours, None, build / "nixl-wheels", INSTALL_S)
        why = "" if ours else run.skipped[-1]["why"]
    except Failure as e:
        why = str(e)
    if why or os.geteuid():
        skip("hawser by NIXL in two network namespaces", why or "needs root")
        return
    rc, got, text = run_rivals(build, folder)
    if rc and "no nodes:" in text:
        skip("hawser by NIXL in two network namespaces", "no nodes: " + text.partition("no nodes:")[2].splitlines()[0])
        return
    ok(rc == 0 and got["measurements"]["hawser 1024x64K"]["median"] > 0 and
       got["congestion"] == [{"a": "reno", "b": "reno"}], "hawser by NIXL in two network namespaces is measured", text)
    rc, got, text = run_rivals(build, folder, "--plant")
    ok(rc == 1 and not got["measurements"] and "wrong bytes in 1 pages" in text,
       "and is not, with a byte planted", text)


def main(build, sanitizers):
    if sanitizers != "none":
        print(f"1..0 # SKIP built with {sanitizers}: Python is not")
        return 77
    run = Run(100)
    try:
        with tempfile.TemporaryDirectory() as folder:
            check_book(run, pathlib.Path(folder))
            check_verification(run)
            check_failures(run)
            check_hawser(run, pathlib.Path(build), pathlib.Path(folder))
    finally:
        run.close()
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
