# SPDX-License-Identifier: Apache-2.0
"""Shared by oci_run.py and oci_hostile.py: runs the tests in new namespaces, with a folder in memory."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import reachable
from sandbox_help import done


def skip_all(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(77)


def inside(programs, prefix, work):
    """Executes the test again in a new network and mount namespace. There, calls work(folder, stack) and returns the
    test's exit status. Skips all tests if this is not possible."""
    if "inside" not in sys.argv[4:]:
        if os.geteuid() != 0:
            skip_all("it takes root")
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        lack = [x for x in programs if not shutil.which(x, path=path)]
        if lack:
            skip_all(f"not installed: {' '.join(lack)} (scripts/deps.sh)")
        alone = ["unshare", "-n", "-m", "--propagation", "private"]
        r = subprocess.run([*alone, "true"], capture_output=True, text=True, timeout=60, check=False)
        if r.returncode != 0:
            skip_all(f"no namespaces here: {r.stderr.strip()}")
        os.environ["PATH"] = path
        os.execvp("unshare", [*alone, sys.executable, *sys.argv[:4], "inside"])
    with contextlib.ExitStack() as stack:
        d = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=reachable.place()))
        subprocess.run(["mount", "-t", "tmpfs", "none", d], check=True, timeout=60)  # private to this namespace
        stack.callback(subprocess.run, ["umount", "-l", d], capture_output=True, check=False)
        stack.callback(os.chdir, "/")
        work(pathlib.Path(d), stack)
    return done()
