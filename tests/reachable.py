#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies programs of the build to where every user can run them. The build may be below a folder that only one user may
enter, such as /root, so a test that runs a program of the build as another user runs a copy: by copy() in a Python
test, by this file as a prefix of the command in a C test.
Usage: reachable.py PROGRAM [ARGUMENT...]    runs a copy of PROGRAM; exits with its status
       reachable.py --test                   tests this file (TAP)"""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

OTHER = 65534


def enters(folder):
    """Returns whether every user may enter this folder and run programs in it."""
    folder = pathlib.Path(folder).resolve()
    return all(f.stat().st_mode & stat.S_IXOTH for f in (folder, *folder.parents)) and not os.statvfs(folder).f_flag & os.ST_NOEXEC


def place(folders=None):
    """Returns a folder for temporary files that every user may enter."""
    for f in folders or (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if os.path.isdir(f) and os.access(f, os.W_OK) and enters(f):
            return f
    raise FileNotFoundError("no folder for temporary files that every user may enter and run programs in: set TMPDIR to one")


def copy(program, folder):
    """Copies a program into a folder that every user may enter. Returns the path of the copy."""
    to = pathlib.Path(folder) / pathlib.Path(program).name
    assert enters(folder), f"{folder}: not every user may enter"
    shutil.copyfile(program, to)
    to.chmod(0o755)
    return to


def run(program, *argv):
    with tempfile.TemporaryDirectory(prefix="hawser-reachable-", dir=place()) as d:
        os.chmod(d, 0o755)
        rc = subprocess.run([copy(program, d), *argv], check=False).returncode
    return 128 - rc if rc < 0 else rc


def test():
    from tap import done, ok, skip

    with tempfile.TemporaryDirectory(prefix="hawser-reachable-", dir=place()) as d:
        top = pathlib.Path(d)
        top.chmod(0o755)
        private, public = top / "private", top / "public"
        for f in private / "in", public:
            f.mkdir(parents=True)
            f.chmod(0o755)
        private.chmod(0o700)
        program = private / "in/program"
        program.write_text('#!/bin/sh\n[ $# = 0 ] || exit "$1"\nid -u\n')
        program.chmod(0o700)
        ok(enters(public) and not enters(private) and not enters(private / "in"), "a folder in a private one is none for every user")
        ok(place([private / "in", top / "none", public]) == public, "the place is one that every user may enter")
        try:
            ok(False, "where there is none", place([private]))
        except FileNotFoundError as e:
            ok("TMPDIR" in str(e), "where there is none, it says what to do")
        reached = copy(program, public)
        for status in 0, 7:
            r = subprocess.run([sys.executable, __file__, program, str(status)], check=False)
            ok(r.returncode == status, f"as a command: exit status {status}", r)
        program.write_text('#!/bin/sh\nkill -9 $$\n')
        ok(run(program) == 137, "and that of a program that a signal ends")
        if os.geteuid() != 0:
            skip("as another user", "it takes root")
            return done()
        other = {"user": OTHER, "group": OTHER, "extra_groups": [], "capture_output": True, "text": True, "check": False}
        try:
            ok(False, "another user cannot run it where it lies", subprocess.run([program], **other))
        except PermissionError:
            ok(True, "another user cannot run it where it lies")
        r = subprocess.run([reached], **other)
        ok(r.returncode == 0 and r.stdout == f"{OTHER}\n", "but its copy", r)
    return done()


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(test() if sys.argv[1] == "--test" else run(*sys.argv[1:]))
