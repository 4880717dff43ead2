#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs an example with two processes over loopback, as a TAP test. The first process has no arguments and prints "port
N"; the second process is given this address. Both must exit with status 0, and one of them must print WORDS.
Usage: pair.py PROGRAM WORDS"""
import pathlib
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from tap import done, ok  # noqa: E402

LIMIT = 40  # s for each process, more than the program's own timeouts but less than the test's


def main(program, words):
    first = subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stop = threading.Timer(LIMIT, first.kill)
    stop.start()
    try:
        line = first.stdout.readline()
        if ok(line.startswith("port "), "the first process prints its port", line):
            second = subprocess.run([program, "127.0.0.1", line.split()[1]], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
            ok(second.returncode == 0, "the second process succeeds", second.returncode, second.stdout)
            said = first.stdout.read() + second.stdout
            ok(first.wait() == 0, "the first process succeeds", first.returncode, said)
            ok(words in said, f"one of them prints {words!r}", said)
            print("".join(f"# {x}\n" for x in said.splitlines()), end="")
    finally:
        stop.cancel()
        first.kill()
        first.wait()
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
