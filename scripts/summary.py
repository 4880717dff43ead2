#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Summarizes the TAP output in a meson testlog.json. Prints the reason for every skip, the output of failed tests, every
failure, and then the line "N passed, N failed, N skipped". Exits with status 1 if a test failed or none was run. Also detects
failures that meson's exit-code protocol cannot: TAP that ends before its plan, and a "not ok" in a program that exits 0.

    summary.py LOG [AGAIN]    AGAIN is the log of tests that were run again, and its results count for these tests. A test
                              that failed first and then passed is reported as "unstable: ..." and needs a fix.
    summary.py --again LOG    prints the tests to run again: those that failed without a sanitizer's report, because such a
                              report is a fault even if it occurs only once"""
import json
import re
import sys

POINT = re.compile(r"^(not )?ok\b(?:\s+\d+)?(?:\s*-?\s*(.*?))?(?:\s*#\s*(SKIP|TODO)\b\s*(.*))?$", re.I)
SANITIZER = re.compile(r"(Address|Thread|Leak|UndefinedBehavior)Sanitizer\b|: runtime error: ")
PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?$", re.I)


def judge(test):
    """Returns the number of passed checks of one meson test, and its failures and skips as lists of strings."""
    name, result, code = test["name"], test["result"], test.get("returncode")
    passed, failed, skipped, plan, points = 0, [], [], None, 0
    for line in (test.get("stdout") or "").splitlines():
        if m := PLAN.match(line.rstrip()):
            plan = int(m[1])
            if plan == 0:
                skipped.append(f"{name}: {m[2] or 'no reason given'}")
        elif m := POINT.match(line.rstrip()):
            points += 1
            if (m[3] or "").upper() == "SKIP":
                skipped.append(f"{name}: {m[2]}: {m[4] or 'no reason given'}")
            elif m[1]:
                failed.append(f"{name}: {m[2]}")
            else:
                passed += 1
    # meson 1.0 treats exit status 77 as an error if the protocol is TAP.
    if result == "SKIP" or (result == "ERROR" and code == 77 and plan == 0):
        if not skipped:
            skipped.append(f"{name}: no reason given")
    elif result in ("OK", "EXPECTEDFAIL"):
        if plan is None and points == 0:
            passed = 1  # a plain program, judged by its exit code
        elif plan is None:
            failed.append(f"{name}: ended before its TAP plan")
        elif plan != points:
            failed.append(f"{name}: planned {plan} checks, ran {points}")
    elif not failed:
        failed.append(f"{name}: {result.lower()}, exit status {code}")
    return passed, failed, skipped


def words(test):
    """Returns the relevant output of a failed test: a sanitizer's report, else the failed checks, else the last lines."""
    text = (test.get("stdout") or "") + (test.get("stderr") or "")
    if m := SANITIZER.search(text):
        return text[m.start() :].splitlines()[:40]
    lines = text.splitlines()
    near = [x for i, x in enumerate(lines) if any(y.startswith("not ok") for y in lines[max(i - 3, 0) : i + 1])]
    return near[:30] or lines[-20:]


def read(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        return {t["name"]: t for t in map(json.loads, log)}


def spoken(test):
    return SANITIZER.search((test.get("stdout") or "") + (test.get("stderr") or ""))


def again(path):
    try:
        tests = read(path)
    except OSError:
        return 0  # the summary reports this error
    for name, test in tests.items():
        if judge(test)[1] and not spoken(test):
            print(name.rpartition(" / ")[2])
    return 0


def main(paths):
    passed, failed, skipped, unstable, said, tests = 0, [], [], [], [], {}
    try:
        tests = read(paths[0])
        for name, test in read(paths[1]).items() if len(paths) > 1 else ():
            before = judge(tests[name])[1] if name in tests else []
            if before and not judge(test)[1]:
                unstable.append(f"{before[0]}: passed when it was run again")
            tests[name] = test
        for test in tests.values():
            p, f, s = judge(test)
            said += [f"{test['name']}: {line}" for line in words(test)] if f else []
            passed, failed, skipped = passed + p, failed + f, skipped + s
    except OSError as e:
        failed.append(f"no test log: {e}")
    if not tests and not failed:
        failed.append("no test was run")
    for word, texts in ("skipped", skipped), ("unstable", unstable), ("", said), ("FAILED", failed):
        for text in texts:
            print(f"{word}: {text}" if word else f"  {text}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(again(sys.argv[2]) if sys.argv[1] == "--again" else main(sys.argv[1:]))
