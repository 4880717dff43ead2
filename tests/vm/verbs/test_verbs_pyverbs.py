#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs rdma-core's own pyverbs tests under the verbs broker, in a guest (TAP).

    test_verbs_pyverbs.py BUILD            tests that pass in all modes in docs/verbs-pyverbs.md must pass under the
                                           broker; some of these tests (CRUN) also run in a container
    test_verbs_pyverbs.py BUILD --crun     runs all these tests in a container
    test_verbs_pyverbs.py BUILD --table    generates docs/verbs-pyverbs.md by running all tests natively and brokered

The tests come from Debian's package python3-pyverbs, which includes them as documentation. apt-get downloads the
package into the VM lab's cache; nothing is installed."""
import collections
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE, TABLE = ROOT / "tests/vm/verbs", ROOT / "docs/verbs-pyverbs.md"
CACHE = pathlib.Path(os.environ.get("HAWSER_VM_CACHE", ROOT / ".cache/vm"))
PYTHON = pathlib.Path("/usr/bin/python3").resolve()  # Debian's Python, for which the package's modules were built
PROVIDERS = "/usr/lib/x86_64-linux-gnu/libibverbs"
# Modules that the tests import, as found by importing the tests on this machine.
IMPORTS = """argparse asyncio ctypes datetime encodings.ascii encodings.idna encodings.utf_8 enum errno glob importlib.machinery itertools
json logging math mmap multiprocessing.connection multiprocessing.popen_fork multiprocessing.queues multiprocessing.synchronize os pickle
queue random resource select socket stat string struct subprocess tempfile threading time unittest.async_case unittest.main weakref
zoneinfo""".split()
POLICY = "[default]\ndevices = rxe0\nqp_types = rc, uc, ud\nallow = odp, multicast\n"
CRUN = "test_cq_events", "test_mr", "test_pd"
NOTES = {"test_cq.CQTest.test_resize_cq": "the test posts sends, and expects that the completion queue cannot be resized to fewer entries than the "
         "number of their completions. The test does not wait for the completions, so it fails, natively and brokered, if they have not arrived yet."}
# Each argument is native, run or crun; the file /names.WAY lists the tests for that way.
GUEST = r"""
. /verbs.sh
device_up || exit 1
for how; do
    case $how in
    native) with= ;;
    run) with="hawser verbs run --policy /policy --" ;;
    crun)
        with="container py" socket=/run/hawser/verbs.sock
        mkdir -p /run/hawser
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        hawser verbs agent --policy /policy --socket $socket &
        within 30 [ -S $socket ] && bundle py && hawser verbs spec /run/py/config.json --socket $socket || exit 1
        ;;
    esac
    names=/names.$how
    [ "$(cat $names)" != - ] || names=-
    $with env PYTHONPATH=/pyverbs PYTHONDONTWRITEBYTECODE=1 python3 /pyverbs_run.py /pyverbs/tests $names --dev rxe0 --gid 1 \
        >/tmp/out 2>&1
    echo "STATUS $?"
    grep -v "^STATUS" /tmp/out
    within 20 no_objects && echo "CLEAN $how"
done
"""


def fetched():
    """Returns the path of the package's contents, which are unpacked only once."""
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
    """Creates a folder with the Python files for the guest: usr/lib/python3.x, pyverbs/pyverbs, pyverbs/tests. Compiles
    the files here, because compiling is slow in the guest."""
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


def boot(build, staged, kernel="7", **ways):
    """`ways` maps native, run or crun to the ids of the tests to run, or to None for all. Returns {way: {id: (state,
    seconds, text)}}, whether the run was complete, and the entire output."""
    work = staged.parent
    (work / "policy").write_text(POLICY)
    (work / "guest").write_text("#!/bin/sh\n" + GUEST)
    command = [ROOT / "lab/vm/run", "--kernel", kernel, "--memory", "2G", "--timeout", "400", "--program", f"{PYTHON}:/usr/bin/python3"]
    for module in "veth", "crc32_generic?", "rdma_rxe", "ib_uverbs":
        command += ["--module", module]
    for program in "ip", "rdma", "crun", build / "hawser":
        command += ["--program", program]
    for file in (f"{ROOT}/tests/vm/tap.sh", f"{HERE}/verbs.sh", f"{HERE}/pyverbs_run.py", f"{work}/policy",
                 f"{PROVIDERS}/librxe-rdmav34.so:{PROVIDERS}/librxe-rdmav34.so", "/etc/libibverbs.d/rxe.driver:/etc/libibverbs.d/rxe.driver"):
        command += ["--file", file]
    for way, names in ways.items():
        (work / f"names.{way}").write_text("-" if names is None else "".join(f"tests.{n}\n" for n in names))
        command += ["--file", work / f"names.{way}"]
    command += ["--dir", f"{staged}/usr:/usr", "--dir", f"{staged}/pyverbs:/pyverbs", "--log", work / "log"]
    r = subprocess.run([*command, work / "guest", *ways], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False)
    bad = re.findall(r".*(?:WARNING:|BUG:|Oops|refcount_t:).*", (work / "log").read_text(errors="replace"))
    found, good, rest = {}, r.returncode == 0 and not bad, r.stdout
    for way in ways:
        part, clean, rest = rest.partition(f"\nCLEAN {way}\n")
        found[way] = {m[1].removeprefix("tests."): (m[2], float(m[3]), m[4])
                      for m in re.finditer(r"^RESULT (\S+) (ok|skipped|failed) ([0-9.]+) ?(.*)$", part, re.M)}
        whole = re.search(r"^COUNT (\d+)$", part, re.M)
        good = good and clean and whole and int(whole[1]) == len(found[way])
    return found, good, f"{r.stdout}{r.stderr}" + "\n".join(bad)


def make_table(build, staged):
    outcome = {}
    for way in "native", "run", "crun":
        found, good, text = boot(build, staged, **{way: None})
        if not good:
            sys.exit(f"{way}: a run that was not whole:\n{text}")
        outcome.update(found)
    ran = sorted(n for n, r in outcome["native"].items() if r[0] != "skipped")
    lines = ["# rdma-core's pyverbs tests, natively and brokered", "",
             "`tests/vm/verbs/test_verbs_pyverbs.py BUILD --table` generates this page. The script runs the unmodified tests of Debian 12's rdma-core 44",
             "on rdma_rxe, in a guest of the VM lab (Linux 7). The tests also run through the broker, under `hawser verbs run` and in a crun container, with this policy:", "",
             "```ini", *POLICY.splitlines(), "```", ""]
    good = [n for n in ran if outcome["native"][n][0] == "ok"]
    both = [sum(outcome[way].get(n, ("missing",))[0] == "ok" for n in good) for way in ("run", "crun")]
    lines += [f"{len(good)} tests pass natively. Of these, {both[0]} pass under `verbs run`, and {both[1]} pass in the container.", "",
              "| test | natively | `verbs run` | crun |", "|---|---|---|---|"]
    for n in ran:
        cells = [outcome["native"][n][0]]
        for way in "run", "crun":
            state, _, text = outcome[way].get(n, ("missing", 0, ""))
            cells.append(f"{state}: {text.replace('|', '/')}" if state != "ok" and n in good else state)
        lines.append(f"| `{n}` | {' | '.join(cells)} |")
    lines += [""] + [f"`{n}`: {text}" for n, text in NOTES.items()]
    skips = collections.Counter(r[2] for r in outcome["native"].values() if r[0] == "skipped")
    lines += ["", "Natively, some tests skip themselves on this device, for these reasons:", "", "| tests | reason |", "|---|---|"]
    lines += [f"| {n} | {reason.replace('|', '/')} |" for reason, n in sorted(skips.items(), key=lambda s: (-s[1], s[0]))]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{TABLE}: {len(good)}, {both}; seconds: {[round(sum(r[1] for r in found.values())) for found in outcome.values()]}")


def check(build, staged, all_crun):
    names = re.findall(r"^\| `(\S+)` \| ok \| ok \| ok \|$", TABLE.read_text(encoding="utf-8"), re.M)
    names = [n for n in names if n not in NOTES]
    ways = {"crun": names} if all_crun else {"run": names, "crun": [n for n in names if n.startswith(CRUN)]}
    found, good, text = boot(build, staged, **ways)
    count, good = 0, good and all(ways.values())
    for way, wanted in ways.items():
        for n in wanted:
            count += 1
            state, took, why = found[way].get(n, ("missing", 0, "it did not run"))
            print(f"{'' if state == 'ok' else 'not '}ok {count} - {way}: {n}" + ("" if state == "ok" else f": {state} after {took} s: {why}"))
    print(f"{'' if good else 'not '}ok {count + 1} - all ran, and no object of theirs is left\n1..{count + 1}")
    if not good:
        print("".join(f"# {line}\n" for line in text.splitlines()[-60:]), end="")
    return 0 if good and all(found[way].get(n, ("",))[0] == "ok" for way in ways for n in ways[way]) else 1


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="hawser-pyverbs-") as tmp:
        staged = pathlib.Path(tmp) / "staged"
        staged.mkdir()
        stage(staged)
        return make_table(build, staged) if sys.argv[2:] == ["--table"] else check(build, staged, sys.argv[2:] == ["--crun"])


if __name__ == "__main__":
    sys.exit(main())
