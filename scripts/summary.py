#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums the TAP of one or more meson testlog.json files: prints every skip's reason and every failure, then the line
"N passed, N failed, N skipped". Exits 1 when something failed or nothing ran. What meson's exit-code protocol cannot
see fails here: TAP that ends before its plan, and a "not ok" in a program that exits 0."""
import json
import re
import sys

POINT = re.compile(r"^(not )?ok\b(?:\s+\d+)?(?:\s*-?\s*(.*?))?(?:\s*#\s*(SKIP|TODO)\b\s*(.*))?$", re.I)
PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?$", re.I)


def judge(test):
    """Returns passed, failures, skips of one meson test; the latter two as lists of text."""
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
    # meson 1.0 calls exit 77 an error where the protocol is TAP.
    if result == "SKIP" or (result == "ERROR" and code == 77 and plan == 0):
        if not skipped:
            skipped.append(f"{name}: no reason given")
    elif result in ("OK", "EXPECTEDFAIL"):
        if plan is None and points == 0:
            passed = 1  # a plain program, judged by its exit code
        elif plan is None:
            failed.append(f"{name}: ended before its TAP plan")
        elif plan != points:
            failed.append(f"{name}: planned {plan} checks, made {points}")
    elif not failed:
        failed.append(f"{name}: {result.lower()}, exit status {code}")
    return passed, failed, skipped


def main(paths):
    passed, failed, skipped, tests = 0, [], [], 0
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as log:
                for line in log:
                    p, f, s = judge(json.loads(line))
                    tests, passed, failed, skipped = tests + 1, passed + p, failed + f, skipped + s
        except OSError as e:
            failed.append(f"no test log: {e}")
    if tests == 0 and not failed:
        failed.append("no test was run")
    for s in skipped:
        print(f"skipped: {s}")
    for f in failed:
        print(f"FAILED: {f}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
