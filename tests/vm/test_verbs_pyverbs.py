#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own tests of pyverbs under the verbs broker, in a guest (TAP).

    test_verbs_pyverbs.py BUILD            those that docs/verbs-pyverbs.md has as passing both ways pass brokered
    test_verbs_pyverbs.py BUILD --table    makes docs/verbs-pyverbs.md: all of them, natively and brokered

The tests are Debian's (package python3-pyverbs, which ships them as documentation), fetched by apt-get into the VM lab's
cache; nothing is installed."""
import collections
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE, TABLE = ROOT / "tests/vm", ROOT / "docs/verbs-pyverbs.md"
CACHE = pathlib.Path(os.environ.get("HAWSER_VM_CACHE", ROOT / ".cache/vm"))
PYTHON = pathlib.Path("/usr/bin/python3").resolve()  # Debian's, which the package's modules are built for
PROVIDERS = "/usr/lib/x86_64-linux-gnu/libibverbs"
# What the tests import, found by importing it here.
IMPORTS = """argparse asyncio ctypes datetime encodings.ascii encodings.idna encodings.utf_8 enum errno glob importlib.machinery itertools
json logging math mmap multiprocessing.connection multiprocessing.popen_fork multiprocessing.queues multiprocessing.synchronize os pickle
queue random resource select socket stat string struct subprocess tempfile threading time unittest.async_case unittest.main weakref
zoneinfo""".split()
POLICY = "[default]\ndevices = rxe0\nqp_types = rc, uc, ud\nallow = odp, multicast\n"
GUEST = r"""
. /verbs.sh
device_up || exit 1
export PYTHONPATH=/pyverbs PYTHONDONTWRITEBYTECODE=1
$1 python3 /pyverbs_run.py /pyverbs/tests "$2" --dev rxe0 --gid 1 >/tmp/out 2>&1
echo "STATUS $?"
grep -v "^STATUS" /tmp/out
within 20 no_objects && echo CLEAN
"""


def fetched():
    """The package's content, once for all."""
    folder = CACHE / "pyverbs"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "pyverbs.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        with tempfile.TemporaryDirectory(dir=CACHE) as tmp:
            tmp = pathlib.Path(tmp)
            get = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", "download", "python3-pyverbs"]
            if subprocess.run(get, cwd=tmp, capture_output=True, check=False).returncode:
                subprocess.run(["apt-get", "-q", "update"], capture_output=True, check=False)
                subprocess.run(get, cwd=tmp, stdout=sys.stderr, check=True)
            new = tmp / "new"
            subprocess.run(["dpkg-deb", "-x", *tmp.glob("*.deb"), new], check=True)
            tests = new / "usr/share/doc/rdma-core/tests"
            for packed in tests.glob("*.gz"):
                subprocess.run(["gzip", "-d", packed], check=True)
            (new / "tests").symlink_to(tests.relative_to(new))
            new.rename(folder)
    return folder


def stage(out):
    """A folder with what is Python's in the guest: usr/lib/python3.x, pyverbs/pyverbs, pyverbs/tests; compiled, since the
    guest would take long."""
    found = subprocess.run([PYTHON, "-I", "-S", "-c", "import sys\nfor m in sys.argv[1:]: __import__(m)\n"
                            "for m in list(sys.modules.values()): print(getattr(m, '__file__', None) or '')", *IMPORTS],
                           capture_output=True, text=True, check=True).stdout.split()
    for path in found:
        if path.startswith("/usr/lib/"):
            to = out / path[1:]
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    package = fetched()
    shutil.copytree(package / "usr/lib/python3/dist-packages/pyverbs", out / "pyverbs/pyverbs")
    shutil.copytree(package / "tests", out / "pyverbs/tests")
    subprocess.run([PYTHON, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", out], check=True)


def boot(build, staged, brokered, names, kernel="7"):
    """{id: (state, seconds, text)}, and all that was printed."""
    work = staged.parent
    (work / "policy").write_text(POLICY)
    (work / "names").write_text("\n".join(names or []) + "\n")
    (work / "guest").write_text("#!/bin/sh\n" + GUEST)
    command = [ROOT / "lab/vm/run", "--kernel", kernel, "--memory", "2G", "--timeout", "400", "--program", f"{PYTHON}:/usr/bin/python3"]
    for module in "veth", "crc32_generic?", "rdma_rxe", "ib_uverbs":
        command += ["--module", module]
    for program in "ip", "rdma", build / "hawser":
        command += ["--program", program]
    for file in (f"{HERE}/tap.sh", f"{HERE}/verbs.sh", f"{HERE}/pyverbs_run.py", f"{work}/policy", f"{work}/names",
                 f"{PROVIDERS}/librxe-rdmav34.so:{PROVIDERS}/librxe-rdmav34.so", "/etc/libibverbs.d/rxe.driver:/etc/libibverbs.d/rxe.driver"):
        command += ["--file", file]
    command += ["--dir", f"{staged}/usr:/usr", "--dir", f"{staged}/pyverbs:/pyverbs", "--log", work / "log"]
    r = subprocess.run([*command, work / "guest", "hawser verbs run --policy /policy --" if brokered else "", "/names" if names else "-"],
                       capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False)
    found = {}
    for m in re.finditer(r"^RESULT (\S+) (ok|skipped|failed) ([0-9.]+) ?(.*)$", r.stdout, re.M):
        found[m[1].removeprefix("tests.")] = (m[2], float(m[3]), m[4])
    log = (work / "log").read_text(errors="replace")
    bad = re.findall(r".*(?:WARNING:|BUG:|Oops|refcount_t:).*", log)
    whole = re.search(r"^COUNT (\d+)$", r.stdout, re.M)
    good = r.returncode == 0 and whole and int(whole[1]) == len(found) and "\nCLEAN\n" in r.stdout and not bad
    return found, good, f"{r.stdout}{r.stderr}" + "\n".join(bad)


def make_table(build, staged):
    outcome = {}
    for brokered in False, True:
        outcome[brokered], good, text = boot(build, staged, brokered, None)
        if not good:
            sys.exit(f"{'brokered' if brokered else 'natively'}: a run that was not whole:\n{text}")
    ran = sorted(n for n, r in outcome[False].items() if r[0] != "skipped")
    lines = ["# rdma-core's pyverbs tests, natively and brokered", "",
             "Made by `tests/vm/test_verbs_pyverbs.py BUILD --table`: the tests of Debian 12's rdma-core 44, unmodified, on rdma_rxe in a guest",
             "of the VM lab (Linux 7). Brokered: under `hawser verbs run`, with this policy:", "", "```", *POLICY.splitlines(), "```", ""]
    count = collections.Counter((outcome[False][n][0], outcome[True].get(n, ("missing",))[0]) for n in ran)
    lines += [f"{sum(v for k, v in count.items() if k[0] == 'ok')} pass natively; of these, {count['ok', 'ok']} pass brokered.", "",
              "| test | natively | brokered |", "|---|---|---|"]
    for n in ran:
        state, _, text = outcome[True].get(n, ("missing", 0, ""))
        lines.append(f"| `{n}` | {outcome[False][n][0]} | {state}{': ' + text.replace('|', '/') if state != 'ok' and outcome[False][n][0] == 'ok' else ''} |")
    skips = collections.Counter(r[2] for r in outcome[False].values() if r[0] == "skipped")
    lines += ["", "Skipped by themselves natively, on this device:", "", "| tests | reason |", "|---|---|"]
    lines += [f"| {n} | {reason.replace('|', '/')} |" for reason, n in sorted(skips.items(), key=lambda s: (-s[1], s[0]))]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{TABLE}: {dict(count)}; seconds: {sum(r[1] for r in outcome[False].values()):.0f} and {sum(r[1] for r in outcome[True].values()):.0f}")


def check(build, staged):
    names = re.findall(r"^\| `(\S+)` \| ok \| ok \|$", TABLE.read_text(encoding="utf-8"), re.M)
    found, good, text = boot(build, staged, True, [f"tests.{n}" for n in names])
    print(f"1..{len(names) + 1}")
    for i, n in enumerate(names, 1):
        state, took, why = found.get(n, ("missing", 0, "it did not run"))
        print(f"{'' if state == 'ok' else 'not '}ok {i} - {n}" + ("" if state == "ok" else f": {state} after {took} s: {why}"))
    print(f"{'' if good and names else 'not '}ok {len(names) + 1} - all ran, and no object of theirs is left")
    if not good:
        print("".join(f"# {line}\n" for line in text.splitlines()[-60:]), end="")
    return 0 if good and names and all(found.get(n, ("",))[0] == "ok" for n in names) else 1


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="hawser-pyverbs-") as tmp:
        staged = pathlib.Path(tmp) / "staged"
        staged.mkdir()
        stage(staged)
        return make_table(build, staged) if sys.argv[2:] == ["--table"] else check(build, staged)


if __name__ == "__main__":
    sys.exit(main())
