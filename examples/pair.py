#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs an example of two processes over loopback: the one without arguments says "port N", the other is given the
address. Both must end well, and the first or the second must say WORDS (TAP).
Usage: pair.py PROGRAM WORDS"""
import pathlib
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from tap import done, ok  # noqa: E402

LIMIT = 40  # s for each process: above the program's own deadlines, below the test's


def main(program, words):
    first = subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stop = threading.Timer(LIMIT, first.kill)
    stop.start()
    try:
        line = first.stdout.readline()
        if ok(line.startswith("port "), "the first process says its port", line):
            second = subprocess.run([program, "127.0.0.1", line.split()[1]], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
            ok(second.returncode == 0, "the second process ends well", second.returncode, second.stdout)
            said = first.stdout.read() + second.stdout
            ok(first.wait() == 0, "the first process ends well", first.returncode, said)
            ok(words in said, f"one of them says {words!r}", said)
            print("".join(f"# {x}\n" for x in said.splitlines()), end="")
    finally:
        stop.cancel()
        first.kill()
        first.wait()
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
