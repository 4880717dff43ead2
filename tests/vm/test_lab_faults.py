#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the VM lab's messages when a guest does not exit properly (TAP). Usage: test_lab_faults.py BUILD"""
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def vm(*args):
    return subprocess.run([ROOT / "lab/vm/run", *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def ends(what, args, status, *said):
    r = vm(*args)
    good = r.returncode == status and all(s in r.stderr for s in said)
    ok(good, what, f"status {r.returncode}, wanted {status} and {said}\n{r.stdout}{r.stderr}")
    return r


with tempfile.TemporaryDirectory() as tmp:
    tmp = pathlib.Path(tmp)
    script = tmp / "script"
    script.write_text("""#!/bin/bash
echo "$#:$2"
echo complaint >&2
echo shown >/dev/stderr
mkdir -p /out/deep && echo kept >/out/deep/file
ln -s /etc/passwd /out/link
sleep 1000 &
exit 7
""")
    r = ends("a script that fails, and leaves a program behind: its status", ("--kernel", "6.12", "--out", tmp / "out", "--log", tmp / "log",
                                                                           script, "one", "two words"), 7, "left out: ./link")
    ok(sorted(r.stdout.splitlines()) == ["2:two words", "complaint", "shown"], "its output, without the kernel's log", r.stdout)
    ok((tmp / "out/deep/file").read_text() == "kept\n", "its files")
    ok(not (tmp / "out/link").exists(), "nothing but files and folders")
    ok("Linux version 6.12." in (tmp / "log").read_text(), "the kernel's log from its first line")

    r = ends("a panic", ("-c", "echo before; sleep 1; echo c >/proc/sysrq-trigger"), 125, "the guest died: Kernel panic", "sysrq_handle_crash")
    ok(r.stdout == "before\n", "what was said before a panic is there", r.stdout)
    ends("a command that runs too long, and where it hung", ("--timeout", "2", "-c", "sleep 1000"), 124,
         "longer than 2 s", "sysrq: Show Blocked State")
    # Stops everything except /init and this shell, including the guest's own timeout for the command.
    ends("a guest that hangs", ("--timeout", "1", "--grace", "4", "-c", "kill -STOP -1; while :; do sleep 1; done"), 125,
         "hung while the command ran")
    ends("a guest that reboots", ("-c", "reboot -f"), 125, "the guest ended while the command ran")
    ends("a kernel that does not come up, twice", ("--append", "rdinit=/nonesuch", "-c", "true"), 125, "Unable to mount root",
         "booting it again")

    # None of these boots a guest.
    ends("no such kernel", ("--kernel", "5", "-c", "true"), 125, "unknown kernel series '5'", "kernel 5 is not available")
    ends("no such module", ("--module", "nonesuch", "-c", "true"), 125, "has no module 'nonesuch'")
    ends("no such program", ("--program", "nonesuch", "-c", "true"), 125, "no program 'nonesuch'")
    ends("no such file", ("--file", tmp / "none", "-c", "true"), 125, "cannot read")
    ends("nothing to run", (), 2, "specify either SCRIPT or -c TEXT")

    r = subprocess.run([ROOT / "lab/vm/build-module", "7", tmp / "src", tmp / "ko"], capture_output=True, text=True, check=False)
    ok(r.returncode == 1 and "neither a Kbuild" in r.stderr, "a module without a Kbuild file", r.stderr)
    (tmp / "src").mkdir()
    (tmp / "src/Kbuild").write_text("obj-m := broken.o\n")
    (tmp / "src/broken.c").write_text("int x = undeclared;\n")
    r = subprocess.run([ROOT / "lab/vm/build-module", "7", tmp / "src", tmp / "ko"], capture_output=True, text=True, check=False)
    ok(r.returncode == 1 and "undeclared" in r.stderr and "cannot be built" in r.stderr, "a module with a fault", r.stderr)

    # A module without this fault, on the oldest kernel, which has another compiler and other headers.
    (tmp / "src/Kbuild").write_text("obj-m := good.o\n")
    (tmp / "src/good.c").write_text('#include <linux/module.h>\nMODULE_LICENSE("GPL");\n')
    r = subprocess.run([ROOT / "lab/vm/build-module", "6.1", tmp / "src", tmp / "ko"], capture_output=True, text=True, check=False)
    ok(r.returncode == 0 and not r.stderr, "a module is built for 6.1", r.stderr)
    ends("and 6.1 takes it", ("--kernel", "6.1", "--file", tmp / "ko/good.ko", "-c", "insmod /good.ko && grep -q ^good /proc/modules"), 0)

    # Tests the runner's messages for failing tests.
    tests = {
        "a": "echo ok 1 - good; echo 1..1",
        "b": "# vm: timeout 2\necho ok 1 - so far; sleep 1000",
        "c": "echo ok 1 - so far; echo 'WARNING: made up' >/dev/kmsg; echo 1..1",
        "d": "# vm: expect-log made up\necho 'WARNING: made up' >/dev/kmsg; echo ok 1 - expected; echo 1..1",
        "e": "echo ok 1 - so far; sleep 1; echo c >/proc/sysrq-trigger; sleep 100",
        "f": "sleep 1000 & echo ok 1 - so far; exit 1",
        "g": "ps | grep '[s]leep 1000' && echo not ok 1 - alone || echo ok 1 - alone; echo 1..2",
        "h": "echo 1..0 '#' SKIP no reason but a test; exit 77",
        "i": "# vm: kernels 5\necho ok 1 - never; echo 1..1",
    }
    (tmp / "tests").mkdir()
    for name, text in tests.items():
        (tmp / f"tests/test_{name}.sh").write_text(f"#!/bin/sh\n{'' if 'vm: kernels' in text else '# vm: kernels 7'}\n{text}\n")
        (tmp / f"tests/test_{name}.sh").chmod(0o755)
    r = subprocess.run([ROOT / "tests/vm/run", "--tests", tmp / "tests", tmp / "build"], capture_output=True, text=True, check=False)
    last = r.stdout.splitlines()[-1]
    for fault in ("b (linux 7): ended within its 2 s", "c (linux 7): the kernel's log: ", "e (linux 7): the guest lived to the end",
                  "e (linux 7): the kernel's log: ", "f (linux 7): fail, exit status 1", "g (linux 7): planned 2 checks, ran 1",
                  "boot 1 (linux 5): the guest came up"):
        ok(f"FAILED: {fault}" in r.stdout, f"the runner: {fault}", r.stdout + r.stderr)
    ok("skipped: h (linux 7): no reason but a test" in r.stdout, "the runner: a skip with its reason", r.stdout)
    ok(r.returncode == 1 and " passed, " in last, "the runner: its closing line", r.stdout + r.stderr)
    ok("ok   a (linux 7)" in r.stdout and "ok   d (linux 7)" in r.stdout and "ok   shutdown of boot 2 (linux 7)" in r.stdout,
       "the runner: what is good, after a panic too", r.stdout + r.stderr)

sys.exit(done())
